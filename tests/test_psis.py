"""Batched Pareto smoothing against ArviZ's, one observation at a time, and its own invariants."""

from __future__ import annotations

import arviz_stats
import numpy as np
import pytest
from arviz_stats.base import array_stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import lockquack as lq
from lockquack.draws import psis as psis_module
from lockquack.draws.psis import _profile, loo_densities, psis
from lockquack.errors import UnsupportedError
from tests.helpers import lock

TOLERANCE = 1e-10
SHAPES = [(1, 25), (1, 30), (1, 31), (4, 50), (3, 77), (1, 225), (1, 226), (7, 191), (4, 1000)]


def plain(logp):
    return -logp - special.logsumexp(-logp, axis=(0, 1))


def lowest_quarter_is_tied(logp):
    """What ArviZ calls far from a Pareto distribution since version 1, for one observation."""
    weights = np.sort(np.exp(logp.min() - logp), axis=None)
    n = weights.size // 5 if weights.size <= 225 else int(3 * weights.size**0.5)
    tail, cutoff = weights[-n:], weights[-n - 1]
    return tail[int(n / 4 + 0.5) - 1] - cutoff <= tail[0] - cutoff


def by_arviz(logp, r_eff=1.0):
    """Each observation by ArviZ; plain weights and infinite k̂ where it fails or finds NaN."""
    logp = logp.astype(float)
    log_weights, pareto_k = plain(logp), np.full(logp.shape[2], np.inf)
    for i in range(logp.shape[2]):
        column = logp[..., i]
        if arviz_stats.__version__.startswith("0.") and lowest_quarter_is_tied(column):
            continue
        try:
            with np.errstate(all="ignore"):
                weights, k = array_stats.psislw(column, r_eff=r_eff, axis=(0, 1))
        except ValueError:  # all tail values are the same
            continue
        if np.isfinite(k) and np.isfinite(weights).all():
            log_weights[..., i], pareto_k[i] = weights, k
    return log_weights, pareto_k


def assert_equals_arviz(logp, r_eff=1.0):
    log_weights, pareto_k = psis(logp, r_eff=r_eff)
    expected, expected_k = by_arviz(logp, r_eff)
    np.testing.assert_allclose(pareto_k, expected_k, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(log_weights, expected, rtol=0, atol=TOLERANCE)
    return pareto_k


def pareto_logp(rng, k, size):
    """Log likelihoods whose inverses have a Pareto tail of shape k."""
    return -np.log(0.05 + stats.genpareto.rvs(k, size=size, random_state=rng))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spread", [0.01, 1.0, 10.0])
def test_normal_log_weights(rng, shape, spread):
    assert_equals_arviz(spread * rng.normal(size=(*shape, 9)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [-0.3, -0.1, 0.0, 0.4, 0.7, 1.0, 1.5])
def test_pareto_weights(rng, shape, k):
    pareto_k = assert_equals_arviz(pareto_logp(rng, k, (*shape, 9)))
    if np.prod(shape) == 4000:
        assert np.mean(pareto_k) == pytest.approx(k, abs=0.15)


def test_reference_posteriors(family):
    for scale in family.answers["scales"]:
        for model in family.models(scale, thin=20).values():
            assert np.isfinite(assert_equals_arviz(model.source.all_logp(slice(0, 60)))).all()


@pytest.mark.parametrize("r_eff", [0.1, 0.6, 2.0])
def test_relative_efficiency_sets_the_tail(rng, r_eff):
    logp = pareto_logp(rng, 0.5, (4, 300, 5))
    pareto_k = assert_equals_arviz(logp, r_eff)
    assert (np.abs(pareto_k - psis(logp)[1]) > 1e-3).all()


def test_single_precision_is_only_read_as_such(rng):
    logp = rng.normal(size=(4, 100, 5)).astype(np.float32)
    log_weights, pareto_k = psis(logp)
    assert log_weights.dtype == pareto_k.dtype == np.float64
    assert_equals_arviz(logp)


def test_products_that_overflow(rng):
    # The largest weight is e^150 times the quartile of the tail: eight such factors are infinite.
    logp = 100.0 * rng.normal(size=(4, 250, 20))
    weights = np.sort(-logp.reshape(1000, 20), axis=0)
    assert ((weights[-1] - weights[-70]) > 100).all()
    assert (assert_equals_arviz(logp) > 1).all()


def test_ranges_beyond_the_floats(rng):
    logp = 1e4 * rng.uniform(-1, 1, size=(4, 250, 20))
    pareto_k = assert_equals_arviz(logp)
    assert np.isinf(pareto_k).all()


def test_a_common_offset_of_ten_thousand(rng):
    pareto_k = assert_equals_arviz(rng.normal(size=(4, 250, 20)) + 1e4)
    assert np.isfinite(pareto_k).all()


def test_profile_where_b_is_tiny_or_products_are_huge(rng):
    x = np.sort(rng.exponential(size=(83, 3)), axis=0)
    b = np.array([-1e60, -1e3, -1e-5, -1e-12, 1e-14, 1e-4, 0.1])[:, None] / x[-1]
    with np.errstate(over="ignore"):
        k = _profile(b, x)
    np.testing.assert_allclose(k, np.log1p(-b[:, None] * x).mean(axis=1), rtol=1e-12)


# Ties: tied draws are interchangeable, so weights are compared in order of (logp, weight).


def in_order(logp, log_weights):
    values, weights = (a.reshape(-1, a.shape[2]) for a in (logp, log_weights))
    return np.take_along_axis(weights, np.lexsort((weights, values), axis=0), axis=0)


@pytest.mark.parametrize("copies", [2, 3, 5])
@pytest.mark.parametrize("n_distinct", [60, 301])
def test_repeated_draws(rng, copies, n_distinct):
    # For some of these sizes the cutoff falls between equal draws, for others beside them.
    logp = np.repeat(rng.normal(size=(1, n_distinct, 12)), copies, axis=1)
    log_weights, pareto_k = psis(logp)
    expected, expected_k = by_arviz(logp)
    np.testing.assert_allclose(pareto_k, expected_k, atol=TOLERANCE)
    np.testing.assert_allclose(in_order(logp, log_weights), in_order(logp, expected), atol=1e-10)
    assert np.isfinite(pareto_k).all()


@pytest.mark.parametrize("n_tied", [2, 10, 13, 30])
def test_ties_at_the_cutoff(rng, n_tied):
    # 400 draws have a tail of 60, whose fourteenth is its quartile.
    ordered = np.sort(rng.normal(size=(400, 6)), axis=0)
    ordered[400 - 60 - 5 : 400 - 60 + n_tied] = ordered[400 - 60]
    logp = -rng.permuted(ordered, axis=0).reshape(4, 100, 6)
    log_weights, pareto_k = psis(logp)
    expected, expected_k = by_arviz(logp)
    np.testing.assert_allclose(pareto_k, expected_k, atol=TOLERANCE)
    np.testing.assert_allclose(in_order(logp, log_weights), in_order(logp, expected), atol=1e-10)
    assert np.isfinite(pareto_k).all() == (n_tied < 15)


def test_where_there_is_no_tail_the_weights_stay_plain(rng):
    logp = rng.normal(size=(4, 100, 4))
    logp[..., 0] = -3.7
    logp[..., 1] = np.maximum(logp[..., 1], np.quantile(logp[..., 1], 0.3))  # a constant tail
    logp[..., 2] = -1e4 * rng.uniform(size=(4, 100)) ** 2  # a tail that underflows
    log_weights, pareto_k = psis(logp)
    np.testing.assert_array_equal(np.isinf(pareto_k), [True, True, True, False])
    np.testing.assert_allclose(log_weights[..., :3], plain(logp)[..., :3], atol=1e-12)
    assert np.abs(log_weights[..., 3] - plain(logp)[..., 3]).max() > 1e-3


def test_five_draws_are_no_tail(rng):
    logp = rng.normal(size=(1, 29, 3))
    log_weights, pareto_k = psis(logp)
    assert np.isinf(pareto_k).all()
    np.testing.assert_allclose(log_weights, plain(logp), atol=1e-12)
    assert np.isinf(psis(rng.normal(size=(4, 100, 3)), r_eff=1e4)[1]).all()


def test_nan_stays_in_its_observation(rng):
    logp = rng.normal(size=(4, 100, 5))
    expected, expected_k = psis(logp)
    logp[2, 17, 3] = np.nan
    log_weights, pareto_k = psis(logp)
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(log_weights[..., others], expected[..., others])
    np.testing.assert_array_equal(pareto_k[others], expected_k[others])
    assert np.isnan(log_weights[..., 3]).all()
    assert pareto_k[3] == np.inf


@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
def test_infinite_log_likelihoods_are_reported_not_smoothed(rng, infinity):
    logp = rng.normal(size=(4, 100, 2))
    logp[0, 0, 0] = infinity
    log_weights, pareto_k = psis(logp)
    assert pareto_k[0] == np.inf
    assert np.isfinite(pareto_k[1])
    assert not np.isfinite(log_weights[0, 0, 0])


@pytest.mark.parametrize("shape", [(1, 24), (4, 6), (1, 1)])
def test_too_few_draws(shape):
    with pytest.raises(UnsupportedError, match=f"at least 25 draws.*there are {np.prod(shape)}"):
        psis(np.zeros((*shape, 2)))


# Invariants.


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_draws=st.integers(30, 400),
    spread=st.floats(0.1, 20.0),
    offset=st.floats(-50.0, 50.0),
)
def test_offsets_and_order_of_draws_do_not_matter(seed, n_draws, spread, offset):
    rng = np.random.default_rng(seed)
    logp = spread * rng.standard_t(5, size=(1, n_draws, 3))
    log_weights, pareto_k = psis(logp)
    np.testing.assert_allclose(special.logsumexp(log_weights, axis=(0, 1)), 0.0, atol=1e-12)

    shifted, shifted_k = psis(logp + offset)
    np.testing.assert_allclose(shifted, log_weights, atol=1e-8)
    np.testing.assert_allclose(shifted_k, pareto_k, atol=1e-8)

    order = rng.permutation(n_draws)
    permuted, permuted_k = psis(logp[:, order])
    np.testing.assert_array_equal(permuted_k, pareto_k)
    np.testing.assert_allclose(permuted, log_weights[:, order], atol=1e-12)


def test_observations_do_not_see_each_other(rng):
    # More observations than a block holds, so that blocks end in the midst of them.
    logp = rng.normal(size=(4, 1000, 75)) * np.geomspace(0.1, 3000, 75)
    log_weights, pareto_k = psis(logp)
    assert 0 < np.isinf(pareto_k).sum() < 40
    for i in range(75):
        single, k = psis(logp[..., i : i + 1])
        np.testing.assert_allclose(pareto_k[i], k[0], rtol=1e-11)
        np.testing.assert_allclose(log_weights[..., i], single[..., 0], rtol=0, atol=1e-11)


def test_memory_layout_does_not_matter_and_the_input_is_left_alone(rng):
    logp = rng.normal(size=(4, 100, 6))
    other_layout = np.asfortranarray(logp)
    other_layout.flags.writeable = False
    for mine, theirs in zip(psis(logp), psis(other_layout), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_no_observations():
    log_weights, pareto_k = psis(np.zeros((4, 100, 0)))
    assert log_weights.shape == (4, 100, 0)
    assert pareto_k.shape == (0,)


# Densities without going through the weights


@pytest.mark.parametrize("shape", [(1, 25), (1, 31), (4, 50), (7, 191)])
def test_densities_are_the_weighted_averages(rng, shape):
    n = 300  # more than are fitted together
    logp = rng.normal(size=(*shape, n)) * np.geomspace(0.01, 3000, n) + rng.normal(size=n)
    logp[..., :5] = -2.5  # no tail at all
    logp[..., 5:10] = np.round(logp[..., 50:55])  # ties
    rows = np.moveaxis(logp, 2, 0).reshape(n, -1).copy()
    density, tails, effect = loo_densities(rows)
    log_weights, expected_k = psis(logp)
    expected = special.logsumexp(log_weights + logp, axis=(0, 1))
    shift = np.exp(log_weights + logp - expected) - np.exp(log_weights)
    np.testing.assert_array_equal(tails.pareto_k, expected_k)
    assert np.isfinite(density).all()
    np.testing.assert_allclose(density, expected, rtol=1e-12, atol=1e-12)
    # Of equal draws, any may be in the tail.
    untied = np.r_[0:5, 10:n]
    rows = np.moveaxis(logp, 2, 0).reshape(n, -1)[untied]
    effect = loo_densities(rows)[2]
    np.testing.assert_allclose(effect.reshape(shape), shift[..., untied].sum(2), atol=1e-11)


def test_densities_are_those_of_arviz(family):
    models = family.models(next(iter(family.answers["scales"])), thin=20)
    for model in models.values():
        logp, loo = model.source.all_logp(slice(0, model.observations.n)), model.loo()
        weights, k = by_arviz(logp)
        expected = special.logsumexp(weights + logp, axis=(0, 1))
        np.testing.assert_allclose(loo.logp, expected, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(loo.pareto_k, k, rtol=0, atol=TOLERANCE)


def test_nan_in_one_density_stays_there(rng):
    rows = rng.normal(size=(4, 100))
    expected, _, _ = loo_densities(rows.copy())
    rows[2, 7] = np.nan
    density, tails, _ = loo_densities(rows)
    assert np.isnan(density[2])
    assert tails.pareto_k[2] == np.inf
    np.testing.assert_array_equal(density[[0, 1, 3]], expected[[0, 1, 3]])


def test_locking_never_smooths_and_stacking_smooths_each_observation_once(rng, monkeypatch):
    seen = []
    find = psis_module._find_tails

    def counting(rows, n_tail):
        seen.append(len(rows))
        return find(rows, n_tail)

    monkeypatch.setattr(psis_module, "_find_tails", counting)
    y = rng.normal(size=300)
    models = {
        name: lq.from_family("normal", y=y, mu=0.1 * rng.normal(size=(4, 50)), sigma=scale)
        for name, scale in [("a", 1.0), ("b", 2.0)]
    }
    lock(models)
    assert seen == []
    lq.stack(models)
    assert sum(seen) == 2 * 300
    lq.stack(models)
    lq.lock(models).predict(loo=True).logpdf()
    assert sum(seen) == 2 * 300


def test_weights_from_known_tails_are_the_same_to_the_bit(rng):
    logp = rng.normal(size=(60, 500)) * np.geomspace(0.01, 3000, 60)[:, None]
    logp[3], logp[5] = -2.5, np.round(logp[5])
    logp[7, 11] = np.nan
    weights, again = logp.copy(), logp.copy()
    tails = psis_module.psis_rows(weights)
    assert psis_module.psis_rows(again, tails) is tails
    np.testing.assert_array_equal(weights, again)
    density, _, effect = loo_densities(logp.copy())
    known, _, shift = loo_densities(logp, None, tails)
    np.testing.assert_array_equal(density, known)
    np.testing.assert_array_equal(effect, shift)
