"""Fits do not depend on what has no meaning: order, units, constants, layout, chains, copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lockquack as lq
from lockquack.errors import LockquackError, QuadratureWarning
from lockquack.remarks.limits import MisledScore
from tests.fuzz.layouts import LAYOUTS, laid_out
from tests.fuzz.pairs import CONVEX, OTHERS, fit_or_none
from tests.fuzz.worlds import CONTINUOUS, COUNTS, World, worlds

fuzzed = pytest.mark.fuzzed
seeds = st.integers(0, 2**32 - 1)
convex, others = st.sampled_from(CONVEX), st.sampled_from(OTHERS)
#: Those that draw no outcomes, whose random numbers go by the place of an observation; stored
#: draws have tests of their own.
DRAWN = lq.EnergyScore
exact = st.sampled_from([pair for pair in CONVEX if not isinstance(pair[1], DRAWN)])
exact_others = st.sampled_from([pair for pair in OTHERS if not isinstance(pair[1], DRAWN)])


def agree(one, other, x=None, *, tolerance=1e-7, own=True):
    """Require that the other fit is as good as the one, by the one's own objective.

    Weights may differ where the score hardly does; ``x`` are the parameters of the other, in
    the order of the one. Unless it has no ``own`` objective, that must be the same there.
    """
    objective = one.objective
    x = other.solution.x if x is None else x
    size = float(one.solution.scale) if np.isfinite(one.solution.scale) else 1.0
    limit = tolerance * max(size, objective.n_counted, 1.0)
    limit += np.nan_to_num(float(one.solution.gap)) + np.nan_to_num(float(other.solution.gap))
    best, again = value(one, one.solution.x), value(one, x)
    assert abs(again - best) <= limit, (best, again, limit)
    assert not own or abs(value(other, other.solution.x) - again) <= limit


def value(fit, x):
    """Return what was minimised; of choices, which ignore the prior, minus the score."""
    objective = fit.objective
    scores = objective.total(objective.scores(x))
    return objective.value(x) if fit.fitter.is_optimum else -float(scores)


def both(make, one, other, pair, **options):
    """Fit the same pair to two sets of models, of which both are refused or none.

    Weights of any sum may have no optimum, of which a remark tells, and whether a pool with next
    to no weights has a normaliser is decided numerically, so that rounding can decide it.
    """
    first, second = make(one, *pair, **options), make(other, *pair, **options)
    assert (first is None) == (second is None) or not pair[0].on_simplex
    assume(first is not None and second is not None)
    assume(pair[0].on_simplex or (first.solution.converged and second.solution.converged))
    return first, second


def permuting_models(world, pair, seed):
    K = len(world.recipes)
    order = np.random.default_rng(seed).permutation(K)
    names = [world.names[k] for k in order]
    one, other = both(fit_or_none, world.models(), world.of(names).models(), pair)
    back = np.argsort(order)
    _, chosen = other.operator.select(back, K)
    agree(one, other, other.solution.x[chosen])
    if one.solution.gap < 1e-10 * one.solution.scale:
        expected = one.pointwise.isel(model=0).values
        np.testing.assert_allclose(other.pointwise.isel(model=0), expected, rtol=1e-3, atol=1e-3)
    assert {remark.code for remark in one.remarks} == {remark.code for remark in other.remarks}


@fuzzed(10)
@given(world=worlds(models=(2, 4)), pair=convex, seed=seeds)
def test_the_order_of_models_means_nothing(world, pair, seed):
    permuting_models(world, pair, seed)


@fuzzed(2)
@given(world=worlds(models=(2, 3), n=(3, 8)), pair=others, seed=seeds)
def test_the_order_of_models_means_nothing_to_searches(world, pair, seed):
    permuting_models(world, pair, seed)


def permuting_observations(world, pair, seed):
    order = np.random.default_rng(seed).permutation(world.n)
    one, other = both(fit_or_none, world.models(), world.at(order).models(), pair)
    agree(one, other)
    expected = one.objective.at(order).scores(other.solution.x)
    found = other.objective.scores(other.solution.x)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


@fuzzed(10)
@given(world=worlds(), pair=exact, seed=seeds)
def test_the_order_of_observations_means_nothing(world, pair, seed):
    permuting_observations(world, pair, seed)


@fuzzed(2)
@given(world=worlds(models=(2, 3), n=(3, 8)), pair=exact_others, seed=seeds)
def test_the_order_of_observations_means_nothing_to_searches(world, pair, seed):
    permuting_observations(world, pair, seed)


@fuzzed(10)
@given(world=worlds(), pair=convex, seed=seeds, size=st.sampled_from([1.0, 30.0, 1e3, 1e5]))
def test_constants_in_log_densities_cancel(world, pair, seed, size):
    """Log densities may lack any constant that is the same for all models of an observation."""
    constants = size * np.random.default_rng(seed).normal(size=world.n)
    plain = world.from_arrays()
    shifted = {
        name: lq.from_arrays(y=world.y, **{**given, "logp": given["logp"] + constants})
        for name, given in world.arrays.items()
    }
    one, other = both(fit_or_none, plain, shifted, pair)
    np.testing.assert_allclose(
        one.objective.scores(other.solution.x),
        one.objective.scores(one.solution.x),
        rtol=1e-3,
        atol=1e-3,
    )
    agree(one, replace(other, fitter=one.fitter))


@fuzzed(10)
@given(
    world=worlds(["line"]),
    pair=convex,
    shift=st.sampled_from([0.0, -3.0, 1e3]),
    unit=st.sampled_from([1e-6, 0.1, 1e4]),
)
def test_units_and_origins_mean_nothing(world, pair, shift, unit):
    one, other = both(fit_or_none, world.models(), world.moved(shift, unit).models(), pair)
    by_density = not one.rule.has_unit
    volume = world.n * np.log(unit) if by_density else 0.0  # log densities are per unit
    value = one.objective.value(one.solution.x)
    again = one.objective.value(other.solution.x)
    size = max(float(one.solution.scale), world.n, 1e-8 * abs(value))  # and rounding
    # 1e3 away from the origin, three digits of y/unit are lost at 1e-6.
    precise = 1e-7 if shift == 0 or unit > 1e-3 else 1e-3
    assert abs(again - value) <= precise * size
    assert abs(other.objective.value(other.solution.x) - again - volume) <= precise * size


@fuzzed(8)
@given(world=worlds(["line"]), pair=convex)
def test_models_of_the_logarithm(world, pair):
    """Models of log y, brought to y, get the weights of models of an outcome that log y is.

    That is so on the simplex; a power of a density is not brought to y as the density is.
    """
    assume(pair[0].on_simplex)
    assume(not isinstance(pair[1], lq.EnergyScore))  # distances on the scale of y are others
    of_log = World(
        "positive",
        np.exp(world.y),
        {name: replace(each, transform="log") for name, each in world.recipes.items()},
    )
    one, other = both(fit_or_none, world.models(), of_log.models(), pair)
    best, again = value(one, one.solution.x), value(one, other.solution.x)
    size = max(float(one.solution.scale), world.n, 1.0)
    assert abs(again - best) <= 1e-6 * size
    warned = any(issubclass(remark.category, QuadratureWarning) for remark in other.remarks)
    # Scores by H differ by a term that no model changes.
    if not (one.rule.needs_derivatives or warned):
        volume = world.y.sum()
        assert abs(value(other, other.solution.x) - again - volume) <= 1e-6 * size


@fuzzed(10)
@given(world=worlds(), pair=convex, layout=st.sampled_from(LAYOUTS), seed=seeds)
def test_memory_means_nothing(world, pair, layout, seed):
    """Order of axes, strides, byte order, read-only memory, lists: the same numbers."""
    rng = np.random.default_rng(seed)
    lay = laid_out(layout, rng)
    derivatives = pair[1].needs_derivatives
    kept = {
        name: {k: v for k, v in given.items() if derivatives or k == "logp"}
        for name, given in world.arrays.items()
    }
    expected = {n: lq.from_arrays(y=world.y, **g) for n, g in kept.items()}
    found = {
        name: lq.from_arrays(y=lay(world.y), **{k: lay(v) for k, v in given.items()})
        for name, given in kept.items()
    }
    one, other = both(fit_or_none, expected, found, pair)
    agree(one, other, tolerance=1e-9)


@fuzzed(10)
@given(world=worlds(), pair=convex, layout=st.sampled_from(LAYOUTS), seed=seeds)
def test_memory_of_parameters_means_nothing(world, pair, layout, seed):
    lay = laid_out(layout, np.random.default_rng(seed))
    found = {
        name: lq.from_family(
            recipe.family,
            y=lay(world.y),
            transform=recipe.transform,
            **{k: lay(v) for k, v in recipe.given().items()},
        )
        for name, recipe in world.recipes.items()
    }
    one, other = both(fit_or_none, world.models(), found, pair)
    agree(one, other, tolerance=1e-9)


@fuzzed(6)
@given(world=worlds(), pair=convex, seed=seeds)
def test_single_precision_is_the_same_numbers_rounded(world, pair, seed):
    def rounded(array):
        return array.astype(np.float32)

    def widened(array):
        return array.astype(np.float32).astype(np.float64)

    y = rounded(world.y) if seed % 2 else world.y
    one, other = both(
        fit_or_none,
        world.from_arrays(widened, y=y.astype(np.float64)),
        world.from_arrays(rounded, y=y),
        pair,
    )
    agree(one, other, tolerance=1e-9)


@fuzzed(10)
@given(world=worlds(samples=(16, 80)), pair=exact, chains=st.sampled_from([1, 2, 4]))
def test_chains_share_their_draws(world, pair, chains):
    """The same draws as one chain or as several: only standard errors may differ."""
    S = world.shape[0] * world.shape[1] // 4 * 4
    one, other = (
        world.mapped(lambda recipe, c=c: recipe.of_draws(np.arange(S).reshape(c, -1)))
        for c in (1, chains)
    )
    first, second = both(fit_or_none, one.models(), other.models(), pair)
    agree(first, second, tolerance=1e-9)
    smooth = world.kind != COUNTS
    for kind in ("in-sample", "loo"):
        a, b = (
            next(iter(each.models.values())).collapse(kind, derivatives=smooth)
            for each in (first, second)
        )
        np.testing.assert_allclose(a.jet.logp, b.jet.logp, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(a.jet.curv, b.jet.curv, rtol=1e-9, atol=1e-10)


@fuzzed(10)
@given(world=worlds(), pair=exact, seed=seeds, whole=st.booleans())
def test_repeated_observations_are_counted(world, pair, seed, whole):
    """Copies of observations, observations left out, and case weights say the same."""
    counts = np.random.default_rng(seed).integers(0, 4, size=world.n)
    assume(counts.any())
    rows = np.repeat(np.arange(world.n), counts)
    weighted = {
        name: model.with_weights(counts.astype(float) if whole else counts)
        for name, model in world.models().items()
    }
    one, other = both(fit_or_none, world.at(rows).models(), weighted, pair)
    agree(one, other)


@fuzzed(8)
@given(world=worlds(models=(2, 4)), pair=convex)
def test_a_model_given_twice_shares_its_weight(world, pair):
    """A copy of a model changes nothing but the prior, which is flat here."""
    models = world.models()
    first = next(iter(models))
    one, other = both(fit_or_none, models, {**models, "copy": models[first]}, pair, prior=1.0)
    objective, weights = one.objective, other.weights.values
    merged = weights[:-1] + np.where(np.array(world.names) == first, weights[-1], 0.0)
    size = max(float(one.solution.scale), world.n, 1.0)
    assert abs(objective.value(merged) - objective.value(one.solution.x)) <= 1e-7 * size


@fuzzed(10)
@given(world=worlds(models=(1, 1)), pair=st.sampled_from([*CONVEX, *OTHERS]))
def test_one_model_has_all_the_weight(world, pair):
    fit = fit_or_none(world.models(), *pair)
    assume(fit is not None and fit.operator.on_simplex)
    np.testing.assert_allclose(fit.weights, 1.0, rtol=1e-12)
    scores = fit.pointwise.values
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6, atol=1e-6)


@fuzzed(10)
@given(world=worlds(models=(2, 4)), pair=st.sampled_from([*CONVEX, *OTHERS[:2]]))
def test_no_model_alone_is_better(world, pair):
    """By the score that was fitted, flat prior: the simplex contains its corners."""
    fit = fit_or_none(world.models(), *pair, prior=1.0)
    assume(fit is not None and fit.fitter.is_optimum and fit.operator.on_simplex)
    assume(not fit.operator.left_out(len(fit.names)).size)
    assume(not any(isinstance(remark, MisledScore) for remark in fit.remarks))  # it was replaced
    totals = fit.pointwise.values.sum(axis=1)
    size = max(float(fit.solution.scale), world.n, 1.0)
    assert totals[0] >= totals[1:].max() - 1e-7 * size


@fuzzed(8)
@given(world=worlds(), pair=convex, scores=st.sampled_from(["loo", "in-sample", "held-out"]))
def test_tables_hold_what_they_say(world, pair, scores):
    fit = fit_or_none(world.models(), *pair, scores=scores)
    assume(fit is not None)
    table = fit.to_dataframe()
    weights = fit.weights.values
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert table["weight"].iloc[1:].tolist() == weights.tolist()
    totals = fit.pointwise.values.sum(axis=1)
    np.testing.assert_allclose(table["score"], totals, rtol=1e-9, atol=1e-9)
    inside = table.iloc[1:].dropna()
    assert (inside["weight_5%"] <= inside["weight_95%"]).all()
    if fit.operator.on_simplex:
        np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-9)
    assert repr(fit)
    assert fit._repr_html_()


@fuzzed(5)
@given(world=worlds(models=(2, 3), n=(3, 8)), pair=exact, seed=seeds)
def test_the_weights_without_an_observation(world, pair, seed):
    """Leaving one out of a fit is fitting the others, in the same units."""
    unit = {"scale": 1.0} if pair[1].has_unit else {}
    fit = fit_or_none(world.models(), *pair, **unit)
    i = seed % world.n
    others = np.delete(np.arange(world.n), i)
    alone = fit_or_none(world.at(others).models(), *pair, **unit)
    assume(fit is not None and alone is not None)
    assume(not fit.operator.left_out(len(fit.names)).size)
    assume(not alone.operator.left_out(len(fit.names)).size)
    x = fit.influence().weights.values[:, i]
    best, found = value(alone, alone.solution.x), value(alone, x)
    assert abs(found - best) <= 1e-6 * max(float(alone.solution.scale), world.n, 1.0)


@fuzzed(5)
@given(world=worlds(CONTINUOUS, models=(1, 4), n=(4, 12)), seed=seeds)
def test_observations_in_parts(world, seed):
    """Sums over parts, in any order, are sums over all: the weights are those of lock."""
    rule = lq.Hyvarinen()
    fit = fit_or_none(world.models(), lq.Locking(), rule)
    assume(fit is not None and not fit.operator.left_out(len(fit.names)).size)
    order = np.random.default_rng(seed).permutation(world.n)
    cut = 1 + seed % (world.n - 1)
    parts = [world.at(rows).models() for rows in (order[:cut], order[cut:])]
    try:
        running = lq.running_lock(parts[0], rule=rule).update(parts[1])
    except LockquackError:
        assume(False)  # one observation has no spread, and parts may lack what the whole has
    agree(fit, running, running.solution.x, tolerance=1e-7, own=False)
