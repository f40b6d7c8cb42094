"""Averages of quantiles: what they are of normals, and whether their weights are the best."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

import lockquack as lq
from lockquack.combination.quantiles import _LEVELS
from lockquack.errors import LockquackError, UnsupportedError
from lockquack.quadrature.pairs import pairs_of_numbers
from lockquack.solvers.quantile_proportions import pinball, quantile_proportions

ONE = np.zeros((1, 1))


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(1).normal(size=60)


def normals(y, *parameters):
    return {
        f"m{k}": lq.from_family("normal", y=y, mu=ONE + mu, sigma=sd)
        for k, (mu, sd) in enumerate(parameters)
    }


def test_normals_average_to_a_normal(y):
    average = lq.average_quantiles(normals(y, (-2.0, 1.0), (3.0, 2.0)), [0.6, 0.4])
    expected = stats.norm(0.6 * -2.0 + 0.4 * 3.0, 0.6 * 1.0 + 0.4 * 2.0).ppf(_LEVELS)
    drawn = average.model.source.outcome_draws.values[0]
    np.testing.assert_allclose(drawn, np.tile(expected[:, None], y.size), rtol=1e-6)


def test_averages_of_shifted_models_are_as_wide_as_these(y):
    models = normals(y, (-2.0, 1.0), (2.0, 1.0))
    average = lq.average_quantiles(models, "equal")
    mixture = lq.combine(models, lq.Linear(), lq.CRPS())
    np.testing.assert_allclose(average.predict().var(), 1.0, rtol=0.05)
    assert float(mixture.predict().var().min()) > 4.0


def test_crps_is_the_pinball_loss_over_all_levels(y):
    average = lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)))
    drawn = average.model.source.outcome_draws.values[0]
    expected = pairs_of_numbers([drawn], [np.ones_like(drawn)], y)[0, 0]
    np.testing.assert_allclose(average.crps[0], expected, rtol=1e-9)
    assert average.to_dataframe()["diff"].min() == 0.0


def test_weights_are_the_best_of_all(y):
    models = normals(y, (-1.0, 1.0), (1.5, 1.4), (0.2, 3.0))
    average = lq.average_quantiles(models)
    assert bool(average.solution.converged)
    w, rng = average.weights.values, np.random.default_rng(2)
    each = stats.norm([[-1.0], [1.5], [0.2]], [[1.0], [1.4], [3.0]]).ppf(_LEVELS)

    def crps(weights):
        return 2 * pinball(y[:, None] - weights @ each, _LEVELS).mean(axis=1).sum()

    best = float(average.solution.objective)
    assert crps(w) == pytest.approx(best, rel=1e-6)
    for other in rng.dirichlet(np.ones(3), size=200):
        assert crps(0.98 * w + 0.02 * other) >= best * (1 - 1e-6)


def test_the_linear_programme_against_its_primal():
    rng = np.random.default_rng(3)
    x, y, level = rng.normal(size=(80, 3)), rng.normal(size=80), rng.random(80)
    counts = rng.random(80)
    found = quantile_proportions(x, y, level, counts)
    # w, and the parts of the residuals above and below zero.
    cost = np.concatenate([np.zeros(3), counts * level, counts * (1 - level)])
    equal = np.block([[x, np.eye(80), -np.eye(80)], [np.ones((1, 3)), np.zeros((1, 160))]])
    primal = optimize.linprog(cost, A_eq=equal, b_eq=np.append(y, 1.0), bounds=(0, None))
    assert float(found.objective) == pytest.approx(primal.fun, rel=1e-9)
    np.testing.assert_allclose(found.x, primal.x[:3], atol=1e-7)
    assert counts @ pinball(y - x @ found.x, level) == pytest.approx(float(found.objective))


def test_outcomes_far_from_zero_change_nothing(y):
    near = lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)))
    far = lq.average_quantiles(normals(y + 1e6, (1e6 - 1.0, 1.0), (1e6 + 1.5, 1.4)))
    np.testing.assert_allclose(far.weights, near.weights, atol=1e-5)


def test_case_weights_are_repetitions():
    rng = np.random.default_rng(4)
    y, times = rng.normal(size=30), rng.integers(0, 3, size=30)
    draws = [rng.normal(at, 1.0, size=(1, 200, 30)) for at in (-0.5, 0.8)]
    chosen = np.repeat(np.arange(30), times)
    weighted, repeated = (
        {
            f"m{k}": lq.from_draws(d[..., rows], y=y[rows], held_out=True, weights=w)
            for k, d in enumerate(draws)
        }
        for rows, w in ((np.arange(30), times), (chosen, None))
    )
    got, expected = map(lq.average_quantiles, (weighted, repeated))
    np.testing.assert_allclose(got.weights, expected.weights, atol=1e-8)


def test_the_average_is_a_model_like_others(y):
    models = normals(y, (-1.0, 1.0), (1.5, 1.4))
    average = lq.average_quantiles(models)
    fit = lq.combine({**models, "average": average.model}, lq.Linear(), lq.CRPS())
    assert float(fit.weights.sum()) == pytest.approx(1.0)
    p = average.predict()
    assert p.coverage([0.9]).index.tolist()[0] == "[quantile average]"
    np.testing.assert_allclose(p.cdf(p.quantile(0.25).values), 0.25, atol=0.011)


def test_forecasts_of_what_is_to_come(y):
    rng = np.random.default_rng(5)
    draws = {"a": rng.normal(-1, 1, size=(1, 200, 60)), "b": rng.normal(1, 1, size=(1, 200, 60))}
    past = {k: lq.from_draws(each, y=y, held_out=True) for k, each in draws.items()}
    average = lq.average_quantiles(past)
    new = average.predict({k: lq.from_draws(each[..., :4]) for k, each in draws.items()})
    np.testing.assert_allclose(new.quantile(0.3), average.predict().quantile(0.3)[:4])


@pytest.mark.parametrize(
    ("weights", "match"),
    [("best", "'equal' or None"), ([0.5, 0.6], "sum to one"), ({"m0": 1.0}, "says nothing")],
)
def test_what_are_no_weights_is_refused(weights, match, y):
    with pytest.raises(LockquackError, match=match):
        lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)), weights)


def test_vectors_have_no_quantiles():
    y = np.random.default_rng(1).normal(size=(12, 2))
    model = lq.from_draws(np.zeros((1, 9, 12, 2)), y=y, held_out=True)
    with pytest.raises(UnsupportedError, match="EnergyScore"):
        lq.average_quantiles({"a": model, "b": model})
