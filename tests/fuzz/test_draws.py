"""Predictive draws, quantiles and what is made of them; fits in parts and by folds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lockquack as lq
from lockquack.errors import LockquackError
from tests.fuzz.pairs import fit_or_none
from tests.fuzz.test_fits import agree
from tests.fuzz.worlds import CONTINUOUS, COUNTS, VECTOR, worlds

fuzzed = pytest.mark.fuzzed
seeds = st.integers(0, 2**32 - 1)
rules = {VECTOR: lq.EnergyScore()}
drawn = worlds((*CONTINUOUS, COUNTS, VECTOR), models=(2, 3), n=(3, 10))
scalar = worlds((*CONTINUOUS, COUNTS), models=(2, 3), n=(3, 10))


def pair_of(world):
    return lq.Linear(), rules.get(world.kind, lq.CRPS())


def mixed(models, world, **options):
    return fit_or_none(models, *pair_of(world), **options)


@fuzzed(5)
@given(world=drawn, seed=seeds)
def test_scores_of_draws_are_what_they_say(world, seed):
    """E|X − y| − ½ E|X − X'| of the mixture of all draws, by hand."""
    arrays = world.outcomes()
    fit = mixed(world.from_draws(), world, scale=1.0)
    assume(fit is not None)
    S = len(next(iter(arrays.values())).reshape(-1, *world.y.shape))
    pool = np.concatenate([each.reshape(-1, *world.y.shape) for each in arrays.values()])
    w = np.repeat(fit.weights.values / S, S)
    i = seed % world.n
    x = pool[:, i].reshape(len(pool), -1).astype(float)

    def norm(difference):
        return np.sqrt(np.square(difference).sum(axis=-1))

    between = w @ norm(x[:, None] - x) @ w
    expected = w @ norm(x - world.y[i]) - between / 2
    found = -fit.pointwise.values[0, i]
    assert abs(found - expected) <= 1e-8 * (1 + w @ norm(x))


@fuzzed(5)
@given(world=drawn, seed=seeds, chains=st.sampled_from([1, 2, 3]))
def test_the_order_of_draws_means_nothing(world, seed, chains):
    rng = np.random.default_rng(seed)
    S = world.shape[0] * world.shape[1] // 6 * 6

    def shuffled(array):
        flat = array.reshape(-1, *array.shape[2:])[:S]
        return flat[rng.permutation(S)].reshape(chains, -1, *array.shape[2:])

    def cut(array):
        return array.reshape(1, -1, *array.shape[2:])[:, :S]

    one, other = (mixed(world.from_draws(change), world) for change in (cut, shuffled))
    assume(one is not None)
    agree(one, other)


@fuzzed(5)
@given(world=drawn, seed=seeds)
def test_observations_of_draws_in_any_order_and_number(world, seed):
    counts = np.random.default_rng(seed).integers(0, 4, size=world.n)
    assume(np.count_nonzero(counts) > 1)
    rows = np.random.default_rng(seed).permutation(np.repeat(np.arange(world.n), counts))
    models = world.from_draws()
    weighted = {name: model.with_weights(counts) for name, model in models.items()}
    one, other = mixed(world.from_draws(rows=rows), world), mixed(weighted, world)
    assert (one is None) == (other is None)
    assume(one is not None)
    agree(one, other)


@fuzzed(5)
@given(world=drawn, shift=st.sampled_from([0.0, -5.0, 1e3]), unit=st.sampled_from([1e-3, 40.0]))
def test_units_of_draws_mean_nothing(world, shift, unit):
    assume(world.kind != COUNTS)
    moved = world.from_draws(lambda draws: shift + unit * draws, y=shift + unit * world.y)
    one, other = mixed(world.from_draws(), world), mixed(moved, world)
    assert (one is None) == (other is None)
    assume(one is not None)
    agree(one, other, tolerance=1e-6)


@fuzzed(4)
@given(world=scalar, seed=seeds, forget=st.sampled_from([0.0, 0.5]))
def test_mixtures_in_parts(world, seed, forget):
    """Sums over parts are sums over all; forgetting is counting less."""
    models = world.from_draws()
    order = np.random.default_rng(seed).permutation(world.n)
    first, second = np.array_split(order, 2)
    assume(len(first) > 1)
    rule = lq.CRPS(scale=1.0)
    running = lq.running_stack(world.from_draws(rows=first), rule=rule)
    running = running.update(world.from_draws(rows=second), forget=forget)
    counts = np.ones(world.n)
    counts[first] = 1.0 - forget
    whole = lq.combine({k: m.with_weights(counts) for k, m in models.items()}, "linear", rule)
    agree(whole, running, running.solution.x, tolerance=1e-7, own=False)


@fuzzed(4)
@given(world=scalar, seed=seeds, folds=st.integers(2, 4), how=st.sampled_from(["family", "draws"]))
def test_folds_are_put_back_in_order(world, seed, folds, how):
    """Predictions that do not depend on the fold are those of all observations, held out."""
    labels = np.random.default_rng(seed).integers(0, folds, size=world.n)
    assume(len(set(labels.tolist())) > 1)

    def made(name, rows):
        if how == "draws":
            return world.from_draws(rows=rows)[name]
        return world.at(rows).model(name)

    pair = pair_of(world) if how == "draws" else (lq.Linear(), lq.LogScore())
    try:
        crossed = {
            name: lq.cross_validate(lambda _, test, k=name: made(k, test), n=world.n, folds=labels)
            for name in world.names
        }
        whole = {name: made(name, np.arange(world.n)) for name in world.names}
        one = lq.combine(whole, *pair, scores="held-out")
    except LockquackError:
        assume(False)
    other = lq.combine(crossed, *pair)
    np.testing.assert_allclose(other.pointwise, one.pointwise, rtol=1e-9, atol=1e-9)
    agree(one, other)


@fuzzed(4)
@given(world=scalar, seed=seeds)
def test_averages_of_quantiles(world, seed):
    """The order of models and observations means nothing; no model alone is better."""
    assume(np.ptp(world.y) > 0)  # which is the unit
    order = np.random.default_rng(seed).permutation(world.n)
    names = [world.names[k] for k in np.random.default_rng(seed).permutation(len(world.names))]
    one = lq.average_quantiles(world.from_draws())
    mirrored = world.from_draws(rows=order)
    other = lq.average_quantiles({name: mirrored[name] for name in names})
    totals, again = one.pointwise.values.sum(axis=1), other.pointwise.values.sum(axis=1)
    size = 1e-7 * (1 + np.abs(totals).max())
    assert abs(totals[0] - again[0]) <= size
    assert totals[0] >= totals[1:].max() - size
    np.testing.assert_allclose(one.weights.sum(), 1.0, rtol=1e-9)


@fuzzed(4)
@given(world=worlds(["line", "positive"], models=(1, 1), n=(2, 6)), seed=seeds)
def test_quantiles_are_kept(world, seed):
    rng = np.random.default_rng(seed)
    levels = np.sort(rng.uniform(0.02, 0.98, size=rng.integers(3, 9)))
    assume((np.diff(levels) > 0.01).all())
    values = np.quantile(next(iter(world.outcomes().values())), levels, axis=(0, 1))  # (level, n)
    model = lq.from_quantiles(levels, values, y=world.y)
    fit = lq.combine({"one": model}, "linear", lq.CRPS(scale=1.0))
    found = fit.predict().quantile(levels).values
    step = np.gradient(values, levels, axis=0).max(axis=0) / 250
    assert (np.abs(found - values) <= step + 1e-9 * np.abs(values)).all()


@fuzzed(4)
@given(world=worlds(models=(2, 3), n=(3, 8)), seed=seeds, n=st.integers(1, 200))
def test_shares_of_an_average_are_the_weights(world, seed, n):
    fit = fit_or_none(world.models(), lq.Linear(), lq.LogScore())
    assume(fit is not None)
    rng = np.random.default_rng(seed)
    draws = {name: rng.normal(size=(2, 30, 2)) + 100 * k for k, name in enumerate(world.names)}
    found = fit.average(draws, n=n, random_seed=seed)
    again = fit.average(draws, n=n, random_seed=seed)
    np.testing.assert_array_equal(found.values, again.values)
    for name, weight in zip(world.names, fit.weights.values, strict=True):
        chosen = found.values[0][found["model"].values.ravel() == name]
        assert abs(len(chosen) - n * weight) <= 1 + 1e-9
        assert np.isin(chosen, draws[name]).all()


@fuzzed(2)
@given(world=worlds(("line", "positive", "unit"), models=(1, 3), n=(10, 16), far=False), seed=seeds)
def test_recalibration_makes_a_density_that_scores_no_worse(world, seed):
    fit = fit_or_none(world.models(), lq.Linear(), lq.LogScore())
    assume(fit is not None)
    try:
        made = fit.recalibrated()
    except LockquackError:
        assume(False)
    before, after = (float(each.pointwise.values[0].sum()) for each in (fit, made))
    assert after >= before - 1e-6 * world.n
    prediction = made.predict()
    p = np.sort(np.random.default_rng(seed).uniform(0.01, 0.99, size=4))
    cdf = prediction.cdf(prediction.quantile(p).values).values
    np.testing.assert_allclose(cdf, np.broadcast_to(p[:, None], cdf.shape), atol=1e-6)


@fuzzed(0.2)
@given(world=worlds(models=(2, 3), n=(8, 14), far=False), seed=st.integers(0, 9))
def test_a_softmax_gives_weights(world, seed):
    by = np.random.default_rng(seed).choice(["a", "b"], size=world.n)
    fit = fit_or_none(
        world.models(), lq.Linear(), lq.LogScore(), by=by, weights="softmax", random_seed=seed
    )
    assume(fit is not None)
    weights = fit.weights.transpose("model", ...).values.reshape(len(world.names), -1)
    assert (weights > 0).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=1e-9)
    again = fit.weights_at(by)["weight"].values.reshape(weights.shape)
    np.testing.assert_allclose(again, weights, rtol=1e-9)
