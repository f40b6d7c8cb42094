"""What every operator must do, what its limits are, and how superposition is normalised."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

import lockquack as lq
from lockquack.errors import ParameterError, UnknownNameError
from lockquack.families import FAMILIES
from lockquack.jets import Jet, stack_jets
from lockquack.models.model import sources_of
from lockquack.operators import (
    OPERATORS,
    Hoelder,
    Hybrid,
    Linear,
    Locking,
    Nested,
    Operator,
    Superposition,
    get_operator,
)
from lockquack.operators.base import SumOverNodes
from lockquack.operators.nested import CompositeOperator
from lockquack.operators.pool import GeometricMean, Pool
from lockquack.operators.reduced import leave_out
from lockquack.prediction.nodes import lay_nodes
from lockquack.quadrature.nodes import Nodes
from lockquack.transforms import TRANSFORMS
from tests.helpers import changed

NAMES = ("a", "b", "c")
PARTS = ("logp", "grad", "curv")
W = np.array([0.2, 0.5, 0.3])

DEEP = Nested(Locking("nonnegative"), [(Linear(), ["b", "c"]), "b"])
NESTED = [
    Nested(Locking(), [(Linear(), ["a", "b"]), "c"]),
    Nested(Linear(), [(Locking(), ["a", "b"]), (Superposition(), ["b", "c"])]),
    Nested(Hoelder(), [(Hybrid(), ["a", "c"]), "b"]),
    Nested(Superposition(), [(DEEP, ["b", "c"]), "a"]),
    Nested(Linear(), [(Linear(), ["a", "b"]), (Hoelder(1), ["b", "c"])]),
]
INSTANCES = [
    *(kind() for kind in OPERATORS.values()),
    Locking("nonnegative"),
    Superposition(phases=0),
    Superposition(phases=[0.3, -0.4, 2.5]),
    Superposition(capped=True),
    Hoelder(-1),
    Hoelder(0.3),
    Hoelder(1),
    Hybrid(signed=True),
    *NESTED,
]


@pytest.fixture(params=INSTANCES, ids=repr)
def operator(request) -> Operator:
    return request.param.bind(NAMES)


def has_total_one(operator):
    """Whether exponents sum to one at every level, so that the pool is of degree one."""
    return "nonnegative" not in repr(operator) and "signed" not in repr(operator)


def over(property_of_it):
    """Run a test over the operators that have some property."""
    chosen = [each.bind(NAMES) for each in INSTANCES if property_of_it(each)]
    return pytest.mark.parametrize("operator", chosen, ids=repr)


of_total_one = over(has_total_one)
not_signed = over(lambda operator: "signed" not in repr(operator))
not_nested = over(lambda operator: not isinstance(operator, Nested))
not_composite = over(lambda operator: not isinstance(operator, CompositeOperator))


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


def somewhere(operator, seed=0, K=3):
    """Parameters of an operator, nothing special about them."""
    space = operator.space(np.ones(K))
    return space.natural(0.7 * np.random.default_rng(seed).normal(size=space.size))


def shifted(jets, by):
    return Jet(jets.logp + by, jets.grad, jets.curv)


def close(a, b, **tolerance):
    for part in PARTS:
        np.testing.assert_allclose(getattr(a, part), getattr(b, part), **tolerance)


# The contract


@pytest.mark.parametrize("d", [0, 3])
def test_derivatives_match_finite_differences(operator, d):
    y = np.random.default_rng(1).normal(size=(5, d) if d else 5)
    x, step = somewhere(operator), 2e-3
    pooled = operator.pool(members(y), x)
    for j in range(max(d, 1)):
        shift = step * np.eye(d)[j] if d else step
        far, above, here, below, beyond = (
            operator.pool_density(members(y + by * shift).logp, x) for by in (2, 1, 0, -1, -2)
        )
        slope = (8 * (above - below) - (far - beyond)) / (12 * step)
        bend = (16 * (above + below) - 30 * here - (far + beyond)) / (12 * step**2)
        np.testing.assert_allclose(pooled.grad[:, j], slope, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(pooled.curv[:, j], bend, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("d", [0, 2])
def test_push_matches_finite_differences(operator, d):
    rng = np.random.default_rng(2)
    jets, x = members(rng.normal(size=(4, d) if d else 4)), somewhere(operator, 3)
    for k in range(3):
        one = jets[k]
        tangent = Jet(*(rng.normal(size=(2, *getattr(one, part).shape)) for part in PARTS))
        pushed = operator.push(jets, x, k, tangent)
        for t in range(2):

            def moved(step, k=k, way=tangent[t]):
                parts = [getattr(jets, part).copy() for part in PARTS]
                for part, change in zip(parts, (way.logp, way.grad, way.curv), strict=True):
                    part[k] += step * change
                return operator.pool(Jet(*parts), x)

            above, below, step = moved(1e-5), moved(-1e-5), 2e-5
            for part in PARTS:
                slope = (getattr(above, part) - getattr(below, part)) / step
                np.testing.assert_allclose(
                    getattr(pushed, part)[t], slope, rtol=1e-6, atol=1e-7, err_msg=part
                )


def one_hot(operator, k):
    """Parameters with all weight on model k, where the operator has weights of models."""
    x = somewhere(operator, 4)
    if isinstance(operator, Hybrid):
        return np.concatenate([np.eye(4)[k + 1], x[4:]])
    return np.concatenate([np.eye(3)[k], x[3:]])


@not_nested
def test_one_hot_weights_return_that_model(operator):
    jets = members(np.array([-0.4, 1.3]))
    for k in range(3):
        x = one_hot(operator, k)
        close(operator.pool(jets, x), jets[k], rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(operator.weights(x, 3), np.eye(3)[k])


def test_a_member_of_a_pool_of_pools_can_have_all_the_weight():
    jets = members(np.array([-0.4, 1.3]))
    operator = NESTED[0].bind(NAMES)
    close(operator.pool(jets, np.array([0.0, 1.0, 0.3, 0.7])), jets[2], rtol=1e-13)
    mixture = Linear().pool(jets[:2], np.array([0.3, 0.7]))
    close(operator.pool(jets, np.array([1.0, 0.0, 0.3, 0.7])), mixture, rtol=1e-13)
    np.testing.assert_allclose(
        operator.weights(np.array([0.6, 0.4, 0.3, 0.7]), 3), [0.18, 0.42, 0.4]
    )


ORDER = [2, 0, 1]


def permuted(operator, x):
    """The same pool for models in another order: the operator and its parameters."""
    if isinstance(operator, Nested):
        names = tuple(NAMES[k] for k in ORDER)
        return next(each for each in NESTED if each.bind(NAMES) == operator).bind(names), x
    blocks = [part for _, part in operator.space(np.ones(3)).parts(x)]
    if isinstance(operator, Hybrid):
        blocks = [blocks[0][:1], blocks[0][1:], blocks[1]]
    moved = np.concatenate([part[ORDER] if part.size == 3 else part for part in blocks])
    if isinstance(operator, Superposition) and len(operator.phases or ()) > 1:
        return Superposition(np.array(operator.phases)[ORDER]), moved
    return operator, moved


def test_permuting_models_permutes(operator):
    jets, x = members(np.array([-0.4, 1.3])), somewhere(operator, 5)
    other, moved = permuted(operator, x)
    close(other.pool(jets[ORDER], moved), operator.pool(jets, x), rtol=1e-11)
    np.testing.assert_allclose(
        other.weights(moved, 3), operator.weights(x, 3)[ORDER], rtol=1e-13, atol=1e-15
    )


@over(lambda operator: has_total_one(operator) or not isinstance(operator, Nested))
@pytest.mark.parametrize("shift", [-800.0, 800.0])
def test_a_common_shift_of_logp_shifts_the_pool(operator, shift):
    jets, x = members(np.array([-0.4, 1.3])), somewhere(operator, 6)
    total = 1.0
    if not has_total_one(operator):
        total = x[:4].sum() if isinstance(operator, Hybrid) else x.sum()
    a, b = operator.pool(jets, x), operator.pool(shifted(jets, shift), x)
    np.testing.assert_allclose(b.logp - total * shift, a.logp, atol=1e-9)
    np.testing.assert_allclose(b.grad, a.grad, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(b.curv, a.curv, rtol=1e-9, atol=1e-11)


def test_the_density_is_that_of_the_jet(operator):
    jets, x = members(np.array([-0.4, 1.3])), somewhere(operator, 7)
    np.testing.assert_array_equal(operator.pool(jets, x).logp, operator.pool_density(jets.logp, x))
    np.testing.assert_array_equal(
        operator.tangents(jets, x).logp, operator.expand_density(jets.logp, x)[1]
    )


@not_signed
@pytest.mark.parametrize("seed", [8, 9])
def test_only_a_normalised_pool_integrates_to_one(operator, seed):
    grid = np.linspace(-45, 50, 20_001)
    logq = operator.pool_density(members(grid).logp, somewhere(operator, seed))
    total = np.trapezoid(np.exp(logq), grid)
    assert (abs(total - 1) < 1e-9) == operator.normalised


def test_a_normaliser_of_its_own_is_the_sum_over_nodes(operator):
    grid, n = np.linspace(-12.0, 12.0, 60), 5
    logp = np.repeat(members(grid).logp[..., None], n, axis=2) + 0.1 * np.arange(n)
    nodes = Nodes(logp, np.full((60, n), np.log(grid[1] - grid[0])))
    for seed in range(3):
        x = somewhere(operator, seed)
        plain = SumOverNodes(operator, nodes).tangents(x)
        for own, expected in zip(operator.normaliser(nodes).tangents(x), plain, strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-11, atol=1e-12)


FORMULAS = {
    Linear(): lambda p, x: p.T @ x,
    Locking(): lambda p, x: np.prod(p.T**x, axis=1),
    Locking("nonnegative"): lambda p, x: np.prod(p.T**x, axis=1),
    Superposition(): lambda p, x: abs(np.sqrt(p.T) @ (np.sqrt(x[:3]) * np.exp(1j * x[3:]))) ** 2,
    Hybrid(): lambda p, x: (p.T @ x[4:]) ** x[0] * np.prod(p.T ** x[1:4], axis=1),
    Hybrid(signed=True): lambda p, x: (p.T @ x[4:]) ** x[0] * np.prod(p.T ** x[1:4], axis=1),
    Hoelder(): lambda p, x: (p.T ** x[3] @ x[:3]) ** (1 / x[3]),
    Hoelder(-1): lambda p, x: 1 / (p.T**-1 @ x),
}


@pytest.mark.parametrize("operator", FORMULAS, ids=repr)
def test_the_density_is_the_written_formula(operator):
    density = np.exp(members(np.linspace(-3, 4, 9)).logp)
    for seed in range(3):
        x = somewhere(operator, seed)
        got = np.exp(operator.pool_density(np.log(density), x))
        np.testing.assert_allclose(got, FORMULAS[operator](density, x), rtol=1e-12)


def vanishing(rng):
    """Log densities of three models at eight places, of which some deem some impossible."""
    logp = rng.normal(size=(3, 8)) - 2.0
    logp[0, [1, 4, 6, 7]] = logp[1, [2, 4, 7]] = logp[2, [3, 6, 7]] = -np.inf
    return logp


@not_signed
def test_impossible_outcomes_make_no_nan(operator, rng):
    logp = vanishing(rng)
    nodes = Nodes(logp[..., None], np.zeros((8, 1)))
    for seed in range(4):
        x = somewhere(operator, seed)
        logq = operator.pool_density(logp, x)
        assert not np.isnan(logq).any()
        assert logq[7] == -np.inf
        assert np.isfinite(logq[[0, 5]]).all()
        log_norm, slopes = SumOverNodes(operator, nodes).tangents(x)
        assert np.isfinite(log_norm).all()
        assert np.isfinite(slopes).all()
        np.testing.assert_allclose(log_norm, np.logaddexp.reduce(logq), atol=1e-12)
        if operator.vanishes_with_any:
            assert (logq[[1, 2, 3, 4, 6]] == -np.inf).all()
        # A model without weight may say anything.
        if not isinstance(operator, CompositeOperator):
            for k in range(3):
                np.testing.assert_allclose(
                    operator.pool_density(logp, one_hot(operator, k)), logp[k], rtol=1e-12
                )


def test_impossible_outcomes_leave_derivatives_of_the_others(rng):
    # At an outcome that model 0 deems impossible, a mixture is that of the others.
    jets = members(rng.normal(size=4))
    jets.logp[0] = -np.inf
    for operator in (Linear(), Superposition(phases=0), Hoelder(0.3)):
        close(
            operator.pool(jets, W),
            shifted(operator.pool(jets[1:], W[1:]), 0.0),
            rtol=1e-12,
        )


# Making them, and making them again


@pytest.mark.parametrize("operator", INSTANCES, ids=repr)
def test_its_description_makes_it_again(operator):
    for each in (operator, operator.bind(NAMES), operator.without_zeros()):
        again = Operator.from_description(json.loads(json.dumps(each.describe())))
        assert again == each
        assert hash(again) == hash(each)
        assert again.describe() == each.describe()


@pytest.mark.parametrize("operator", INSTANCES, ids=repr)
def test_its_repr_is_python(operator):
    kinds = {kind.__name__: kind for kind in (*OPERATORS.values(), Nested)}
    assert eval(repr(operator), kinds) == operator


@pytest.mark.parametrize("name", OPERATORS)
def test_a_name_a_class_or_an_operator_resolves(name):
    kind = OPERATORS[name]
    assert type(get_operator(name)) is type(get_operator(kind)) is kind
    made = kind()
    assert get_operator(made) is made


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: get_operator("lineer"), UnknownNameError, "Did you mean 'linear'"),
        (lambda: get_operator(3), UnknownNameError, "Known: "),
        (lambda: Locking("nonnegativ"), UnknownNameError, "Did you mean 'nonnegative'"),
        (lambda: Hoelder(np.inf), ParameterError, "finite"),
        (lambda: Hoelder("1"), ParameterError, "finite number"),
        (lambda: Hybrid(signed=True, prior_sd=0.0), ParameterError, "positive"),
        (lambda: Superposition(phases=[[0.0]]), ParameterError, "one per model"),
        (lambda: Superposition(phases=np.nan), ParameterError, "finite"),
        (lambda: Superposition(phases=[0, 1]).space(np.ones(3)), ParameterError, "2 phases and 3"),
        (lambda: Superposition(phases=[0, 3.12]).without_zeros(), ParameterError, "LogScore"),
        (lambda: Nested(Locking(), []), ParameterError, "list of members"),
        (lambda: Nested("locking", ["a"]), ParameterError, "an operator and a list"),
        (lambda: Nested(Locking(), [(Linear(), "ab")]), ParameterError, "such as"),
        (lambda: Nested(Locking(), [3.0]), ParameterError, "got 3.0"),
        (lambda: NESTED[0].bind(("a", "bb", "c")), UnknownNameError, "Did you mean 'bb'"),
        (lambda: Nested(Linear(), [3]).bind(NAMES), UnknownNameError, "Known: a, b, c"),
    ],
)
def test_what_cannot_be_made_says_why(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_models_without_weight_are_left_out_of_pools_of_pools():
    pool = Pool(Hybrid(), np.array([0.5, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0]), 3)
    rest, keep = pool.without_unused()
    assert keep.tolist() == [True, False, False]
    np.testing.assert_array_equal(rest.x, [0.5, 0.5, 1.0])


PER_OBSERVATION = [
    Linear(),
    Locking(),
    Locking("nonnegative"),
    Superposition(),
    Superposition(phases=[0.0, 1.0, 2.0]),
    Hoelder(-1),
    Hoelder(),
    Hybrid(),
    Nested(Locking(), [(Linear(), [0, 1]), 2]),
    Nested(Linear(), [(Superposition(), [0, 2]), 1]),
]


@pytest.mark.parametrize("operator", PER_OBSERVATION, ids=repr)
def test_parameters_may_differ_between_observations(operator):
    """Every observation is pooled as by itself: jets, slopes, normalisers, weights, bounds."""
    n, rng = 5, np.random.default_rng(1)
    space = operator.space(np.ones(3))
    x = np.stack([space.natural(rng.normal(size=space.size)) for _ in range(n)], axis=1)
    start = 0
    for block in space.blocks:  # orders and phases are common
        if block.name in ("power", "phases"):
            x[start : start + block.size] = x[start : start + block.size, :1]
        start += block.size
    logp, grad, curv = rng.normal(size=(3, 3, n))
    jets = Jet(logp, grad[..., None], curv[..., None])
    nodes = Nodes(rng.normal(size=(3, 7, n)), rng.normal(size=(7, n)))
    pool = Pool(operator, x, 3)
    rows = np.arange(n)
    together, tangents = pool.jet(jets, rows), operator.tangents(jets, x)
    log_norm, slopes = operator.normaliser(nodes).tangents(x)
    for i in range(n):
        one, here = jets[:, i : i + 1], slice(i, i + 1)
        alone = operator.pool(one, x[:, i])
        for name in ("logp", "grad", "curv"):
            np.testing.assert_allclose(
                getattr(together, name)[here], getattr(alone, name), rtol=1e-12
            )
            np.testing.assert_allclose(
                getattr(tangents, name)[:, here],
                getattr(operator.tangents(one, x[:, i]), name),
                rtol=1e-11,
                atol=1e-12,
            )
        own = operator.normaliser(Nodes(nodes.logp[..., here], nodes.log_measure[:, here]))
        expected, expected_slopes = own.tangents(x[:, i])
        np.testing.assert_allclose(log_norm[here], expected, rtol=1e-12)
        np.testing.assert_allclose(slopes[:, here], expected_slopes, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(pool.weights[:, i], operator.weights(x[:, i], 3), rtol=1e-13)
        above = operator.mixture_above(x[:, i], 3)
        if above is not None:
            np.testing.assert_allclose(pool.mixture_above[:, i], above, rtol=1e-12)
        places = rng.normal(size=(3, 4, 1))
        np.testing.assert_allclose(
            pool.at(here)(places, np.zeros(1, dtype=int)), operator.pool_density(places, x[:, i])
        )
        np.testing.assert_allclose(
            pool(places, np.array([i])), operator.pool_density(places, x[:, i])
        )


def test_names_of_models_become_positions():
    assert repr(NESTED[0].bind(NAMES)) == "Nested(Locking(), [(Linear(), [0, 1]), 2])"
    assert NESTED[0].bind(NAMES).bind(NAMES) == NESTED[0].bind(NAMES)
    # Inner names are positions among the models of the inner pool.
    inner = NESTED[3].bind(NAMES).members[0][0]
    assert repr(inner) == "Nested(Locking(weights='nonnegative'), [(Linear(), [0, 1]), 0])"
    everything = Nested(Locking(), [Linear(), "a"])
    assert everything.bind(NAMES) == Nested(Locking(), [(Linear(), [0, 1, 2]), 0])


def test_no_cap_is_lost_inside_a_pool_of_pools():
    operator = Nested(Superposition(), [(Superposition(), ["a", "b"]), "c"]).without_zeros()
    assert repr(operator).count("capped=True") == 2


@pytest.mark.parametrize(
    "operator",
    [
        Nested(Nested(Locking(), [(Linear(), [0, 1]), 2]), [(Linear(), ["a", "b"]), "a", "c"]),
        *NESTED,
    ],
    ids=repr,
)
def test_every_parameter_of_a_pool_of_pools_is_reported(operator):
    operator = operator.bind(NAMES)
    x = somewhere(operator)
    reported = operator.parameters(x, 3)
    np.testing.assert_array_equal(np.concatenate(list(reported.values())), x)


def test_some_of_the_models_in_another_order(operator):
    jets, x = members(np.array([-0.4, 1.3])), somewhere(operator, 2)
    for order in ([2, 0, 1], [1, 2, 0], [0, 2, 1]):
        other, chosen = operator.select(np.array(order), 3)
        close(other.pool(jets[order], x[chosen]), operator.pool(jets, x), rtol=1e-12)
        np.testing.assert_allclose(
            other.weights(x[chosen], 3), operator.weights(x, 3)[order], rtol=1e-14
        )


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_a_reduced_operator_is_the_pool_of_the_others(operator, left_out):
    kept = np.delete(np.arange(3), left_out)
    jets, reduced = members(np.array([-0.4, 1.3])), leave_out(operator, np.array([left_out]), 3)
    inner = operator.select(kept, 3)[0]
    assert reduced.space(np.ones(3)).size == inner.space(np.ones(2)).size
    x = inner.space(np.ones(2)).natural(np.linspace(-0.7, 0.9, inner.space(np.ones(2)).size))
    close(reduced.pool(jets, x), inner.pool(jets[kept], x))
    close(reduced.tangents(jets, x), inner.tangents(jets[kept], x))
    assert reduced.weights(x, 3)[left_out] == 0.0
    np.testing.assert_array_equal(reduced.weights(x, 3)[kept], inner.weights(x, 2))
    assert reduced.left_out(3).tolist() == [left_out]
    tangent = Jet(np.ones((1, 2)), np.full((1, 2, 1), 0.3), np.full((1, 2, 1), -0.2))
    close(reduced.push(jets, x, int(kept[1]), tangent), inner.push(jets[kept], x, 1, tangent))
    assert not reduced.push(jets, x, left_out, tangent).logp.any()
    nodes = Nodes(np.random.default_rng(1).normal(size=(3, 5, 2)), np.zeros((5, 2)))
    of_kept = Nodes(nodes.logp[kept], nodes.log_measure)
    np.testing.assert_array_equal(
        reduced.normaliser(nodes).log_norm(x), inner.normaliser(of_kept).log_norm(x)
    )
    again = Operator.from_description(json.loads(json.dumps(reduced.describe())))
    assert again == reduced
    rest, keep = Pool(reduced, x, 3).without_unused()
    close(rest.operator.pool(jets[keep], rest.x), reduced.pool(jets, x), rtol=1e-12)
    for name, values in reduced.parameters(x, 3).items():
        if name in operator.of_models:
            assert values.shape == (3,)
            assert values[left_out] == 0.0


@not_composite
def test_leaving_out_a_model_without_weight_changes_nothing(operator):
    jets, x = members(np.array([-0.4, 1.3])), somewhere(operator, 2)
    x[:3] = [0.3, 0.0, 0.7]
    keep = np.array([True, False, True])
    other, rest = operator.restrict(x, keep)
    close(other.pool(jets[keep], rest), operator.pool(jets, x), rtol=1e-12)


@pytest.mark.parametrize("inner", [Locking("nonnegative"), Hybrid(signed=True)])
def test_a_pool_of_pools_is_integrable_only_if_all_of_them_are(inner):
    assert Nested(Locking(), [Linear(), "a"]).always_integrable
    assert not Nested(Linear(), [inner, "a"]).always_integrable
    assert not Nested(inner, [Linear(), "a"]).always_integrable


# Limits


def test_hoelder_one_is_linear():
    jets = members(np.linspace(-2, 3, 7))
    close(Hoelder(1).pool(jets, W), Linear().pool(jets, W), rtol=1e-14)
    close(Hoelder().pool(jets, np.append(W, 1.0)), Linear().pool(jets, W), rtol=1e-14)


def test_hoelder_tends_to_locking():
    jets = members(np.linspace(-2, 3, 7))
    locked = Locking().pool(jets, W)

    def distance(p):
        pooled = Hoelder(p).pool(jets, W)
        return max(np.abs(getattr(pooled, part) - getattr(locked, part)).max() for part in PARTS)

    for p in (1e-3, -1e-3, 1e-4):
        assert distance(p) / distance(p / 10) == pytest.approx(10.0, rel=0.1)
    for p in (1e-9, -1e-9, 0):
        close(Hoelder(p).pool(jets, W), locked, rtol=1e-14)
    close(Hoelder().pool(jets, np.append(W, 1e-9)), locked, rtol=1e-14)
    # In between, neither rounding of (1/p) log Σ w π^p nor the limit does harm.
    close(Hoelder(2e-8).pool(jets, W), locked, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("p", "extreme"), [(400.0, np.max), (-400.0, np.min)])
def test_hoelder_of_a_large_order_is_the_extreme_density(p, extreme):
    logp = members(np.linspace(-2, 3, 7)).logp
    got = Hoelder(p).pool_density(logp, W)
    np.testing.assert_allclose(got, extreme(logp, axis=0), atol=-2 * np.log(W.min()) / abs(p))


def test_equal_phases_are_the_power_pool_of_order_a_half():
    # |Σ √(w π)|² = (Σ √w π^½)²: coefficients √w, which do not sum to one.
    jets = members(np.linspace(-2, 3, 7))
    root = np.sqrt(W)
    pooled = Hoelder(0.5).pool(jets, root / root.sum())
    scaled = shifted(pooled, 2 * np.log(root.sum()))
    close(Superposition(phases=0).pool(jets, W), scaled, rtol=1e-12)
    for phase in (0.0, 1.1, -4.0):
        x = np.append(W, np.full(3, phase))
        close(Superposition().pool(jets, x), scaled, rtol=1e-12)
        close(Superposition(phases=phase).pool(jets, W), scaled, rtol=1e-12)


def test_phases_averaged_over_the_circle_give_back_the_mixture():
    # The cross terms are of frequency one in every phase: a few equidistant ones average exactly.
    logp = members(np.linspace(-2, 3, 7)).logp
    circle = 2 * np.pi * np.arange(5) / 5
    pools = [
        Superposition().pool_density(logp, np.array([*W, first, second, 0.0]))
        for first in circle
        for second in circle
    ]
    np.testing.assert_allclose(
        np.exp(pools).mean(axis=0), np.exp(Linear().pool_density(logp, W)), rtol=1e-12
    )


def test_hybrid_is_linear_at_one_end_and_locking_at_the_other():
    jets = members(np.linspace(-2, 3, 7))
    other = np.array([0.5, 0.1, 0.4])
    mixed = np.array([1.0, 0, 0, 0, *W])
    close(Hybrid().pool(jets, mixed), Linear().pool(jets, W), rtol=1e-13)
    locked = np.array([0.0, *W, *other])
    close(Hybrid().pool(jets, locked), Locking().pool(jets, W), rtol=1e-13)
    np.testing.assert_allclose(Hybrid().weights(mixed, 3), W)
    np.testing.assert_allclose(Hybrid().weights(locked, 3), W)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_only_differences_of_phases_matter_up_to_their_sign(K):
    jets = members(np.linspace(-2, 3, 7))[:K]
    w, phases = W[:K] / W[:K].sum(), np.array([0.4, 2.0, -1.3])[:K]
    operator = Superposition()
    base = np.concatenate([w, phases])
    for other in (-phases, phases + 1.7, phases + 2 * np.pi * np.arange(K)):
        x = np.concatenate([w, other])
        close(operator.pool(jets, x), operator.pool(jets, base), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            operator.parameters(x, K)["phases"], operator.parameters(base, K)["phases"], atol=1e-12
        )
    reported = operator.parameters(base, K)["phases"]
    assert reported[w.argmax()] == 0.0
    close(operator.pool(jets, np.concatenate([w, reported])), operator.pool(jets, base), rtol=1e-10)


def test_opposite_phases_make_a_zero():
    jets = members(np.array([0.3]))[[1, 1]]
    q = Superposition().pool_density(jets.logp, np.array([0.5, 0.5, 0.0, np.pi]))
    assert np.exp(q) < 1e-30


# The normaliser of a superposition

DENSITIES = {
    "normals": [
        ("normal", {"mu": -1.0, "sigma": 1.0}),
        ("normal", {"mu": 1.0, "sigma": 2.0}),
        ("normal", {"mu": 0.3, "sigma": 0.4}),
    ],
    "t": [
        ("student_t", {"nu": 3.0, "mu": 0.0, "sigma": 1.0}),
        ("student_t", {"nu": 1.5, "mu": 2.0, "sigma": 0.5}),
        ("normal", {"mu": -1.0, "sigma": 0.5}),
    ],
}


def pdf(name, mu, sigma, nu=np.inf):
    """A density as a plain function of a number, written out."""
    if name == "normal":
        return lambda y: math.exp(-(((y - mu) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
    size = math.gamma((nu + 1) / 2) / math.gamma(nu / 2) / math.sqrt(nu * math.pi) / sigma
    return lambda y: size * (1 + ((y - mu) / sigma) ** 2 / nu) ** (-(nu + 1) / 2)


def node_groups(kind, K):
    """The nodes that the package lays for densities without uncertain parameters, and those."""
    models = {
        str(k): lq.from_family(
            name, y=np.array([0.0, 1.0]), **{key: np.full((1, 1), v) for key, v in p.items()}
        )
        for k, (name, p) in enumerate(DENSITIES[kind][:K])
    }
    frozen = [pdf(name, **p) for name, p in DENSITIES[kind][:K]]
    return lay_nodes(sources_of(models), loo=False, of_all=False)[0].nodes, frozen


def quad(function):
    parts = [-np.inf, -6.0, -1.0, 0.3, 2.0, 6.0, np.inf]
    options = {"epsabs": 1e-13, "epsrel": 1e-12, "limit": 200}
    return sum(integrate.quad(function, a, b, **options)[0] for a, b in pairwise(parts))


@pytest.mark.parametrize("kind", DENSITIES)
@pytest.mark.parametrize("K", [2, 3])
def test_the_closed_form_is_the_integral(kind, K):
    nodes, frozen = node_groups(kind, K)
    rng = np.random.default_rng(K)
    phases = 2 * np.pi * rng.random(K)
    for operator in (Superposition(), Superposition(phases=phases), Superposition(capped=True)):
        x = somewhere(operator, seed=K, K=K)
        w, angles = x[:K], x[K:] if operator.phases is None else phases
        amplitude = np.sqrt(w) * np.exp(1j * angles)
        exact = quad(lambda y, a=amplitude: abs(a @ np.sqrt([p(y) for p in frozen])) ** 2)
        closed = operator.normaliser(nodes)
        np.testing.assert_allclose(closed.log_norm(x), np.log(exact), atol=1e-8)
        summed = SumOverNodes(operator, nodes)
        np.testing.assert_allclose(closed.log_norm(x), summed.log_norm(x), atol=1e-12)
        for got, expected in zip(closed.tangents(x), summed.tangents(x), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-11)


@pytest.mark.parametrize("kind", DENSITIES)
@pytest.mark.parametrize(
    "operator",
    [Superposition(), Superposition(phases=[0.0, 2.5, -0.7]), Superposition(capped=True)],
    ids=repr,
)
def test_slopes_of_the_closed_form_match_finite_differences(kind, operator):
    closed = operator.normaliser(node_groups(kind, 3)[0])
    x, step = somewhere(operator, 1), 1e-6
    log_norm, slopes = closed.tangents(x)
    np.testing.assert_array_equal(log_norm, closed.log_norm(x))
    for j in range(x.size):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            # In the logarithms of weights, in phases themselves.
            moved[j] = x[j] * np.exp(sign * step) if j < 3 else x[j] + sign * step
            ends.append(closed.log_norm(moved))
        np.testing.assert_allclose(slopes[j], (ends[0] - ends[1]) / (2 * step), atol=1e-8)


@of_total_one
@pytest.mark.parametrize("shift", [-800.0, 800.0])
def test_densities_up_to_a_constant_normalise_too(operator, shift):
    nodes, x = node_groups("normals", 3)[0], somewhere(operator, 2)
    base, slopes = operator.normaliser(nodes).tangents(x)
    moved = operator.normaliser(Nodes(nodes.logp + shift, nodes.log_measure)).tangents(x)
    np.testing.assert_allclose(moved[0] - shift, base, atol=1e-9)
    space = operator.space(np.ones(3))
    a, b = (space.pull(space.free(x), each) for each in (moved[1], slopes))
    np.testing.assert_allclose(a, b, atol=1e-9)


# Changes of variable


@pytest.mark.parametrize("transform", ["log", "log10", "sqrt", "logit"])
def test_pools_of_total_one_commute_with_a_change_of_variable(operator, transform):
    change = TRANSFORMS[transform]
    y = np.array([0.05, 0.3, 0.5, 0.9])
    z, x = members(change.forward(y)), somewhere(operator, 3)
    before = operator.pool(stack_jets([changed(change, y, each) for each in z]), x)
    after = changed(change, y, operator.pool(z, x))
    if has_total_one(operator):
        close(before, after, rtol=1e-10, atol=1e-10)
    else:
        assert np.abs(before.grad - after.grad).max() > 1e-3


def test_stacking_weights_commute_with_a_change_of_variable(rng):
    y = np.exp(rng.normal(0.3, 0.8, size=60))
    mu = 0.1 * rng.normal(size=(4, 50))
    places = {"a": -0.5, "b": 1.0, "c": 0.4}
    one, other = (
        lq.stack(
            {
                name: lq.from_family("normal", y=values, mu=mu + at, sigma=0.7, transform=transform)
                for name, at in places.items()
            }
        )
        for values, transform in ((y, "log"), (np.log(y), None))
    )
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-10)
    jacobian = np.log(y).sum()
    assert one.solution.objective == pytest.approx(float(other.solution.objective) + jacobian)


def test_a_pool_that_names_a_model_twice_is_refused():
    pool = Nested(Locking(), [(Linear(), ["a", "a"]), "b"])
    with pytest.raises(ParameterError, match="names a model twice"):
        pool.bind(("a", "b"))


def test_geometric_means_of_densities_far_out_do_not_overflow():
    mean = GeometricMean(0, 1)(np.full((2, 1, 3), -1.5e308), np.arange(3))
    np.testing.assert_array_equal(mean, -1.5e308)
