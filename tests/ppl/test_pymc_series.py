"""PyMC models of series: each density is given the earlier outcomes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")

import pytensor.tensor as pt

import lockquack as lq
from lockquack.errors import LikelihoodWarning, ParameterError
from tests.ppl.helpers import assert_same_jets, container, not_compiled

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(1)
SHAPE = (2, 6)
A, S = RNG.normal(0, 0.5, size=SHAPE), RNG.gamma(50, 0.02, size=SHAPE)
Y = RNG.normal(size=9)


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


def lagged(lag, y=Y):
    """An autoregression whose density PyMC does not know to be one."""

    def logp(value, a, s):
        first = pt.zeros_like(value[:lag])
        return pm.logp(pm.Normal.dist(a * pt.concatenate([first, value[:-lag]]), s), value)

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("a"), pm.HalfNormal("s"), logp=logp, observed=y)
    return lq.from_pymc(model, container({"a": A, "s": S}))


def closed_form(lag, y=Y):
    """The same with the earlier outcomes as numbers."""
    before = np.concatenate([np.zeros_like(y[:lag]), y[:-lag]])
    mu = A.reshape(*SHAPE, *[1] * y.ndim) * before
    return lq.from_family("normal", y=y.ravel(), mu=mu.reshape(*SHAPE, -1), sigma=S)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 6])
def test_a_term_is_differentiated_in_its_own_outcome(lag):
    found = lagged(lag)
    assert found.likelihood.given_earlier
    assert found.source.reach == lag
    assert_same_jets(found, closed_form(lag))
    assert lq.check(found, thorough=True).ok


@pytest.mark.parametrize("shape", [(4, 3), (5, 4)])
def test_panels_with_a_lag_in_each_column(shape):
    panel = RNG.normal(size=shape)
    assert_same_jets(lagged(1, panel), closed_form(1, panel))


def test_other_outcomes_leave_the_earlier_ones_where_they_were_observed():
    found, exact = lagged(2), closed_form(2)
    some = np.array([7, 2, 3, 0])
    points = RNG.normal(size=(3, 4, 1))
    ours, theirs = (
        each.source.jets_at(points, 1, slice(0, 6, 2), some, derivatives=True)
        for each in (found, exact)
    )
    for name in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8)


def test_pools_of_a_series_are_normalised_one_step_ahead():
    models = {"series": lagged(1), "level": lq.from_family("normal", y=Y, mu=A, sigma=1.5)}
    exact = {**models, "series": closed_form(1)}
    fits = [lq.lock(each, prior=1.5, scores="in-sample") for each in (models, exact)]
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, rtol=1e-6)
    np.testing.assert_allclose(fits[0].logpdf(), fits[1].logpdf(), rtol=1e-6)


def test_it_is_said_once_for_all_series():
    with pytest.warns(LikelihoodWarning, match="'a', 'b' are conditional on the earlier outcomes"):
        fit = lq.lock({"a": lagged(1), "b": lagged(2)})
    assert [each.code for each in fit.remarks].count("given-earlier-outcomes") == 1


def test_earlier_outcomes_must_be_told_with_new_data():
    fit = lq.lock({"a": lagged(1)})
    with pytest.raises(ParameterError, match="Model 'a' predicts an outcome from earlier ones"):
        fit.predict(models=None, anything=np.zeros(3))
    y = RNG.normal(size=5)
    expected = closed_form(1, y).collapse("held-out").jet.logp
    np.testing.assert_allclose(fit.predict(y).logpdf(), expected, rtol=1e-6)


def test_outcomes_of_a_series_are_not_drawn_anew():
    assert not lagged(1).source.can.draw


def autoregression(y, **options):
    with pm.Model() as model:
        rho = pm.Normal("a") * np.array([1.0, 0.5])
        pm.AR("y", rho, pm.HalfNormal("s"), init_dist=pm.Normal.dist(0, 2, shape=2), observed=y)
    return lq.from_pymc(model, container({"a": A, "s": S}, **options))


def test_the_joint_density_of_an_autoregression_is_taken_apart():
    mu = A[..., None] * (Y[1:-1] + 0.5 * Y[:-2])
    mu = np.concatenate([np.zeros((*SHAPE, 2)), mu], axis=-1)
    sigma = np.concatenate([np.full((*SHAPE, 2), 2.0), np.repeat(S[..., None], 7, -1)], axis=-1)
    exact = lq.from_family("normal", y=Y, mu=mu, sigma=sigma)
    assert_same_jets(autoregression(Y), exact)


def test_a_memory_without_end_reaches_to_the_first_outcome():
    """Exponential smoothing: the effect of the first outcomes fades, but never ends."""
    decay = np.tril(0.02 ** np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0))), -1)

    def logp(value, a, s):
        return pm.logp(pm.Normal.dist(a * pt.dot(decay, value), s), value)

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("a"), pm.HalfNormal("s"), logp=logp, observed=Y)
    found = lq.from_pymc(model, container({"a": A, "s": S}))
    assert found.source.reach == 8
    mu = A[..., None] * (decay @ Y)
    assert_same_jets(found, lq.from_family("normal", y=Y, mu=mu, sigma=S), rtol=1e-9)


def test_counts_given_earlier_counts():
    counts = np.array([1, 0, 2, 2, 1, 3, 0, 1, 1])

    def logp(value, a):
        before = pt.concatenate([[0], value[:-1]])
        return pm.logp(pm.Poisson.dist(pt.exp(a) * (1 + before)), value)

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("a"), logp=logp, observed=counts, dtype="int64")
    found = lq.from_pymc(model, container({"a": A}))
    assert found.likelihood.given_earlier
    rate = np.exp(A)[..., None] * (1 + np.concatenate([[0], counts[:-1]]))
    np.testing.assert_allclose(
        found.source.all_logp(slice(0, 9)), stats.poisson.logpmf(counts, rate), rtol=1e-9
    )
