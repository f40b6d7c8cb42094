"""What every registered operator must do."""

from __future__ import annotations

import numpy as np
import pytest

from lockquack.families import FAMILIES
from lockquack.fitting import PROBLEMS
from lockquack.jets import Jet, stack_jets
from lockquack.operators import OPERATORS

WEIGHTS = np.array([0.2, 0.5, 0.3])


def members(y):
    """Jets of three normals or, for vector outcomes, of three Student t."""
    if y.ndim == 1:
        p = {"mu": np.array([[-1.0], [0.5], [2.0]]), "sigma": np.array([[1.0], [0.7], [2.0]])}
        return FAMILIES["normal"].jet(y[None], p)
    scale = np.eye(y.shape[1]) + 0.4
    return stack_jets(
        [
            FAMILIES["mv_student_t"].jet(
                y, {"nu": np.array(5.0), "mu": np.full(y.shape[1], mu), "scale": s * scale}
            )
            for mu, s in ((-1.0, 1.0), (0.5, 0.5), (2.0, 4.0))
        ]
    )


@pytest.fixture(params=OPERATORS)
def operator(request):
    return OPERATORS[request.param]()


@pytest.mark.parametrize("d", [0, 3])
def test_derivatives_match_finite_differences(operator, d):
    rng = np.random.default_rng(1)
    y = rng.normal(size=5) if d == 0 else rng.normal(size=(5, d))
    pooled, step = operator.pool(members(y), WEIGHTS), 1e-4
    for j in range(max(d, 1)):
        shift = step if d == 0 else step * np.eye(d)[j]
        above, here, below = (
            operator.pool_density(members(at).logp, WEIGHTS) for at in (y + shift, y, y - shift)
        )
        np.testing.assert_allclose(pooled.grad[:, j], (above - below) / (2 * step), rtol=2e-6)
        bend = (above - 2 * here + below) / step**2
        np.testing.assert_allclose(pooled.curv[:, j], bend, rtol=2e-5, atol=2e-6)


def test_one_hot_weights_return_that_model(operator):
    jets = members(np.array([-0.4, 1.3]))
    for k in range(3):
        pooled = operator.pool(jets, np.eye(3)[k])
        for part in ("logp", "grad", "curv"):
            np.testing.assert_allclose(getattr(pooled, part), getattr(jets[k], part), rtol=1e-13)


def test_permuting_models_permutes_weights(operator):
    jets, order = members(np.array([-0.4, 1.3])), [2, 0, 1]
    a, b = operator.pool(jets, WEIGHTS), operator.pool(jets[order], WEIGHTS[order])
    np.testing.assert_allclose(a.curv, b.curv, rtol=1e-12)
    np.testing.assert_allclose(a.logp, b.logp, rtol=1e-12)


@pytest.mark.parametrize("shift", [-800.0, 800.0])
def test_a_common_shift_of_logp_shifts_the_pool(operator, shift):
    jets = members(np.array([-0.4, 1.3]))
    a = operator.pool(jets, WEIGHTS)
    b = operator.pool(Jet(jets.logp + shift, jets.grad, jets.curv), WEIGHTS)
    np.testing.assert_allclose(b.logp - shift, a.logp, atol=1e-10)
    np.testing.assert_allclose(b.curv, a.curv, rtol=1e-10)


def test_the_density_is_that_of_the_jet(operator):
    jets = members(np.array([-0.4, 1.3]))
    np.testing.assert_array_equal(
        operator.pool(jets, WEIGHTS).logp, operator.pool_density(jets.logp, WEIGHTS)
    )


def test_a_normalised_pool_integrates_to_one(operator):
    grid = np.linspace(-25, 30, 20_001)
    total = np.trapezoid(np.exp(operator.pool(members(grid), WEIGHTS).logp), grid)
    assert (abs(total - 1) < 1e-9) == operator.normalised


@pytest.mark.parametrize("pair", PROBLEMS, ids=lambda pair: "-".join(p.__name__ for p in pair))
def test_problems_agree_with_operator_and_rule(pair):
    # The slopes and the solution must be those of the rule's score of the operator's pool.
    operator, rule = pair[0](), pair[1]()
    rng = np.random.default_rng(2)
    y = rng.normal(0.5, 1.2, size=50)
    jets, unit = members(y), rule.unit(y[:, None])
    problem = PROBLEMS[pair](jets, unit, np.full(3, 1.01))

    def total(w):
        return rule.score(operator.pool(jets, w), unit).sum()

    step = 1e-6
    for j in range(3):
        change = step * np.eye(3)[j]
        slope = (total(WEIGHTS + change) - total(WEIGHTS - change)) / (2 * step)
        assert problem.slopes(WEIGHTS)[j] == pytest.approx(-slope, rel=1e-6)
    direction = np.array([0.5, 0.5, -1.0])
    scores = [total(WEIGHTS + t * direction) for t in np.linspace(-0.3, 0.2, 500)]
    assert problem.score_range(WEIGHTS, direction, -0.3, 0.2) == pytest.approx(
        np.ptp(scores), rel=1e-3
    )
    best = problem.solve()
    for _ in range(50):
        other = rng.dirichlet(np.ones(3))
        mixed = 0.9 * best.x + 0.1 * other
        assert -total(mixed) - 0.01 * np.log(mixed).sum() >= best.objective - 1e-9
    np.testing.assert_allclose(problem.resolve(np.ones((2, 50))).x, [best.x] * 2, atol=1e-7)
    flat = problem.flat_directions(best.x, np.ones(3, dtype=bool))
    np.testing.assert_allclose(flat.sum(axis=1), 0.0, atol=1e-10)
