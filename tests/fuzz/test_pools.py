"""Pools at given parameters: derivatives, limits, and what closed forms say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lockquack as lq
from lockquack.families import FAMILIES
from lockquack.jets import Jet, stack_jets
from lockquack.models.model import sources_of
from lockquack.operators.pool import Pool
from lockquack.rules import Pooled
from tests.fuzz.pairs import FLAT, operators, parameters_of
from tests.fuzz.worlds import CONTINUOUS, COUNTS, KINDS, families_of, recipe, worlds

fuzzed = pytest.mark.fuzzed
seeds = st.integers(0, 2**32 - 1)


def jets_at(models, y, draw=0):
    """Jets of one draw of each model at outcomes, (K, n)."""
    parts = []
    for source in sources_of(models).values():
        points = y.reshape(1, *source.observations.values.shape)
        jet = source.jets_at(
            points, 0, slice(draw, draw + 1), slice(0, source.n_obs), derivatives=True
        )
        parts.append(Jet(*(part[0, 0] for part in jet.parts)))
    return stack_jets(parts)


def same_jets(found, expected):
    for got, wanted in zip(found.parts, expected.parts, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


@st.composite
def pools(draw, kinds=CONTINUOUS, models=(1, 4), nested=True, **options):
    """Draw a world, an operator for its models and parameters of it."""
    world = draw(worlds(kinds, models=models, far=False, **options))
    operator = draw(operators(world.names) if nested else st.sampled_from(FLAT))
    operator = operator.bind(tuple(world.names))
    rng = np.random.default_rng(draw(seeds))
    return world, operator, parameters_of(operator, len(world.recipes), rng)


@fuzzed(10)
@given(pool=pools((*CONTINUOUS, "vector")), component=st.integers(0, 2))
def test_derivatives_in_the_outcome(pool, component):
    """Five-point differences of the log density, of any pool of any pools of any families."""
    world, operator, x = pool
    models = world.models()
    y = next(iter(models.values())).observations.values
    j = component % y.shape[1]
    here = operator.pool(jets_at(models, y), x)
    assume(np.isfinite(here.logp).all())
    inside = np.minimum(1.0, _distance_to_edges(world, y[:, j]))
    sizes = np.abs(here.grad[:, j]) + np.sqrt(np.abs(here.curv[:, j])) + 1.0 / inside
    step = 2e-3 / sizes
    assume((step > 1e-6 * (1e-3 + np.abs(y[:, j]))).all())

    def logp(by):
        moved = y.copy()
        moved[:, j] += by * step
        return operator.pool_density(jets_at(models, moved).logp, x)

    far, above, middle, below, beyond = map(logp, (2, 1, 0, -1, -2))
    slope = (8 * (above - below) - (far - beyond)) / (12 * step)
    bend = (16 * (above + below) - 30 * middle - (far + beyond)) / (12 * step**2)
    noise = 1e-14 * (1 + np.abs(middle))
    limit = 1e-5 * sizes + 20 * noise / step
    assert (np.abs(here.grad[:, j] - slope) <= limit).all(), (here.grad[:, j], slope)
    limit = 2e-4 * sizes**2 + 100 * noise / step**2
    assert (np.abs(here.curv[:, j] - bend) <= limit).all(), (here.curv[:, j], bend)


def _distance_to_edges(world, y):
    edges = [edge for model in world.models().values() for edge in model.likelihood.edges]
    ends = [edge.at for edge in edges if np.isfinite(edge.at)]
    return np.min([np.full(y.shape, np.inf), *(np.abs(y - end) for end in ends)], axis=0)


@fuzzed(8)
@given(pool=pools(nested=False), seed=seeds)
def test_derivatives_in_the_parameters(pool, seed):
    world, operator, _ = pool
    K = len(world.recipes)
    space, rng = operator.space(np.ones(K)), np.random.default_rng(seed)
    assume(space.size)
    z, direction = 0.7 * rng.normal(size=(2, space.size))
    models = world.models()
    jets = jets_at(models, next(iter(models.values())).observations.values)
    slopes = operator.tangents(jets, space.natural(z))
    step = 1e-5
    ends = [operator.pool(jets, space.natural(z + by * step * direction)) for by in (1, -1)]
    for name in ("logp", "grad", "curv"):
        along = space.pull(z, getattr(slopes, name))
        found = np.tensordot(direction, along, axes=1)
        up, down = (getattr(each, name) for each in ends)
        size = 1 + np.abs(up) + np.abs(getattr(jets, name)).max(axis=0)
        if name == "curv":
            size = size + np.square(jets.grad).max(axis=0)
        assert (np.abs(found - (up - down) / (2 * step)) <= 3e-5 * size).all(), name


@fuzzed(8)
@given(world=worlds((*CONTINUOUS, "vector")), operator=st.sampled_from(FLAT), seed=seeds)
def test_all_weight_on_one_model_is_that_model(world, operator, seed):
    assume(operator.on_simplex and not isinstance(operator, lq.Hybrid))
    K = len(world.recipes)
    models = world.models()
    jets = jets_at(models, next(iter(models.values())).observations.values)
    x = parameters_of(operator, K, np.random.default_rng(seed))
    k = seed % K
    x[:K] = np.eye(K)[k]
    pooled = operator.pool(jets, x)
    same_jets(pooled, jets[k])


@fuzzed(8)
@given(pool=pools((*CONTINUOUS, "vector")), outer=st.sampled_from(FLAT))
def test_a_pool_of_one_pool_is_that_pool(pool, outer):
    world, operator, x = pool
    assume(outer.on_simplex and not isinstance(outer, lq.Hybrid | lq.Selection))
    models = world.models()
    jets = jets_at(models, next(iter(models.values())).observations.values)
    nested = lq.Nested(outer, [(operator, world.names)]).bind(tuple(world.names))
    own = outer.space(np.ones(1))
    around = np.concatenate([own.natural(np.zeros(own.size)), x])
    same_jets(nested.pool(jets, around), operator.pool(jets, x))


@fuzzed(8)
@given(pool=pools((*CONTINUOUS, "vector"), nested=False))
def test_the_hyvarinen_score_of_a_mixture(pool):
    """By the derivatives of the density itself: 2 Δq/q − |∇q|²/q²."""
    world, _, _ = pool
    models, K = world.models(), len(world.recipes)
    jets = jets_at(models, next(iter(models.values())).observations.values)
    w = np.random.default_rng(world.seed).dirichlet(np.ones(K))
    p = w[:, None] * np.exp(jets.logp - jets.logp.max(axis=0))
    first = (p[..., None] * jets.grad).sum(axis=0)
    second = (p[..., None] * (jets.curv + jets.grad**2)).sum(axis=0)
    q = p.sum(axis=0)[:, None]
    expected = -(2 * second / q - (first / q) ** 2).sum(axis=-1)
    found = lq.Hyvarinen().score(Pooled(lq.Linear().pool(jets, w), {}))
    size = 1 + (np.abs(jets.curv) + jets.grad**2).max(axis=0).sum(axis=-1)
    assert (np.abs(found - expected) <= 1e-10 * size).all()


@fuzzed(6)
@given(pool=pools(KINDS), by=st.floats(-500, 500))
def test_a_common_constant_moves_a_pool_by_its_degree(pool, by):
    """Where exponents sum to one, at any depth, a constant of all models is one of the pool."""
    world, operator, x = pool
    assume("nonnegative" not in repr(operator))
    logp = np.stack([given["logp"][0, 0] for given in world.arrays.values()])
    expected = operator.pool_density(logp, x) + by
    np.testing.assert_allclose(operator.pool_density(logp + by, x), expected, rtol=1e-9, atol=1e-9)


@fuzzed(6)
@given(pool=pools((*CONTINUOUS, COUNTS)), seed=seeds)
def test_leaving_out_models_without_weight(pool, seed):
    world, operator, x = pool
    K = len(world.recipes)
    bound = Pool(operator, x, K)
    assume(operator in FLAT and operator.on_simplex and not isinstance(operator, lq.Hybrid))
    keep = np.random.default_rng(seed).random(K) < 0.6
    assume(keep.any())
    x = x.copy()
    x[:K] = np.where(keep, x[:K], 0.0)
    x[:K] /= x[:K].sum()
    logp = np.stack([given["logp"][0, 0] for given in world.arrays.values()])
    whole = Pool(operator, x, K)
    part, used = whole.without_unused()
    assert used.tolist() == (x[:K] > 0).tolist()
    rows = np.arange(logp.shape[1])
    np.testing.assert_allclose(part(logp[used], rows), whole(logp, rows), rtol=1e-9, atol=1e-9)
    assert bound.K == K


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_fuzzed(name):
    """A family whose parameters have a domain of their own needs a line in ``centre``."""
    rng = np.random.default_rng(1)
    kinds = [kind for kind in KINDS if name in families_of(kind)]
    assert kinds
    d = 2 if FAMILIES[name].multivariate else 1
    y = np.ones((3, d)) / 2 if d > 1 else np.full(3, 1.0 if FAMILIES[name].discrete else 0.5)
    made = recipe(name, y, (2, 5), 0.1, True, rng)
    assert lq.from_family(name, y=y, **made.given()).n_draws == 5
