"""Weights that depend on covariates: what these mean, and what they do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lockquack as lq
from tests.fuzz.pairs import CONVEX, fit_or_none
from tests.fuzz.worlds import worlds

fuzzed = pytest.mark.fuzzed
seeds = st.integers(0, 2**32 - 1)
PAIRS = [pair for pair in CONVEX if pair[0].on_simplex]
convex = st.sampled_from(PAIRS)
#: Those that draw no outcomes, whose random numbers go by the place of an observation.
exact = st.sampled_from([pair for pair in PAIRS if not isinstance(pair[1], lq.EnergyScore)])
shrinkages = st.sampled_from([0.0, 0.3, 10.0, np.inf])
observed = worlds(models=(2, 3), n=(6, 14))


def covariates(kind, n, seed):
    """Make up covariates of n observations, in one of the forms in which people have them."""
    rng = np.random.default_rng(seed)
    groups, numbers = rng.choice(["a", "b", "ü"], size=n), rng.normal(size=n)
    return {
        "groups": groups,
        "numbers": numbers,
        "spline": lq.Spline(numbers, df=3),
        "table": pd.DataFrame({"group": groups, "number": numbers}),
        "sum": lq.Groups(groups, name="group") + lq.Spline(numbers, name="x"),
        "features": lq.Features(rng.dirichlet(np.ones(2), size=n)),
    }[kind]


kinds = st.sampled_from(["groups", "numbers", "spline", "table", "sum", "features"])


def sure(*fits):
    """Whether all could be made: those are the optimum, by their own account."""
    assert all(fit.solution.converged for fit in fits if fit is not None)
    return all(fit is not None for fit in fits)


def total(fit, rows=slice(None)):
    """Return the total score of the pool at some observations."""
    return float(fit.pointwise.isel(model=0).values[rows].sum())


def sized(fit, n):
    """Return the size of the scores, by which differences are measured."""
    return max(float(np.abs(fit.pointwise.values).sum()), n, 1.0)


@fuzzed(3)
@given(world=observed, pair=convex, kind=kinds, shrinkage=shrinkages, seed=seeds)
def test_weights_are_weights_everywhere(world, pair, kind, shrinkage, seed):
    by = covariates(kind, world.n, seed)
    fit = fit_or_none(world.models(), *pair, by=by, shrinkage=shrinkage)
    assume(fit is not None)
    weights = fit.weights.transpose("model", ...).values.reshape(len(world.names), -1)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=0), 1.0, rtol=1e-9)
    again = fit.weights_at(by)["weight"].values.reshape(weights.shape)
    np.testing.assert_allclose(again, weights, rtol=1e-9, atol=1e-12)


@fuzzed(3)
@given(world=observed, pair=convex, kind=st.sampled_from(["groups", "numbers"]), seed=seeds)
def test_infinite_shrinkage_is_the_constant_fit(world, pair, kind, seed):
    by, models = covariates(kind, world.n, seed), world.models()
    one = fit_or_none(models, *pair, prior=1.0)
    other = fit_or_none(models, *pair, prior=1.0, by=by, shrinkage=np.inf)
    assert (one is None) == (other is None)
    assume(sure(one, other))
    assert np.ptp(other.pool.weights, axis=-1).max(initial=0.0) <= 1e-9
    assert abs(total(one) - total(other)) <= 1e-6 * sized(one, world.n)


@fuzzed(3)
@given(world=observed, pair=exact, seed=seeds)
def test_without_shrinkage_every_group_is_alone(world, pair, seed):
    groups = covariates("groups", world.n, seed)
    unit = {"scale": 1.0} if pair[1].has_unit else {}
    fit = fit_or_none(world.models(), *pair, prior=1.0, by=groups, shrinkage=0.0, **unit)
    assume(sure(fit))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        alone = fit_or_none(world.at(rows).models(), *pair, prior=1.0, **unit)
        assume(sure(alone))
        assert abs(total(fit, rows) - total(alone)) <= 1e-6 * sized(fit, world.n)


@fuzzed(3)
@given(world=observed, pair=exact, kind=st.sampled_from(["groups", "numbers"]),
       shrinkage=shrinkages, seed=seeds)  # fmt: skip
def test_the_order_of_observations_means_nothing(world, pair, kind, shrinkage, seed):
    order = np.random.default_rng(seed).permutation(world.n)
    by = covariates(kind, world.n, seed)
    one = fit_or_none(world.models(), *pair, by=by, shrinkage=shrinkage)
    other = fit_or_none(world.at(order).models(), *pair, by=by[order], shrinkage=shrinkage)
    assert (one is None) == (other is None)
    assume(sure(one, other))
    size = max(float(one.solution.scale), sized(one, world.n))
    assert abs(float(one.solution.objective) - float(other.solution.objective)) <= 1e-6 * size
