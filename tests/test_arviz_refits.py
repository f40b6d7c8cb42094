"""Results of ArviZ that were refitted: K-fold, reloo, leave-future-out, moment matching.

Made by ArviZ itself of a conjugate model, and compared with what is made here of the same draws.
"""

from __future__ import annotations

import warnings

import arviz_stats
import numpy as np
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import LockquackWarning, ParameterError, UnsupportedError

N, FIRST = 30, 8
Y = np.append(np.random.default_rng(2).normal(0.4, 1.0, size=N - 1), 7.0)
TIME = np.arange(N)


def draws(y):
    """Posterior draws of a mean, known variance 1, prior N(0, 10): the same for the same data."""
    rng = np.random.default_rng(len(y))
    return rng.normal(y.sum() / (len(y) + 0.1), (len(y) + 0.1) ** -0.5, size=(4, 500))


def fit(train, test):
    return lq.from_family("normal", y=series(Y[test], test), mu=draws(Y[train]), sigma=1.0)


def series(values, time):
    return xr.DataArray(values, dims=["time"], coords={"time": np.asarray(time)}, name="y")


def log_likelihood(mu, y):
    mu = xr.DataArray(mu, dims=["chain", "draw"], coords={"chain": range(4), "draw": range(500)})
    return xr.apply_ufunc(stats.norm.logpdf, y, mu).transpose("chain", "draw", ...)


def tree_of(y):
    mu = draws(y.values)
    return xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"mu": (("chain", "draw"), mu)}),
            "log_likelihood": xr.Dataset({"y": log_likelihood(mu, y)}),
            "observed_data": xr.Dataset({"y": y}),
        }
    )


@pytest.fixture(scope="module")
def whole():
    return tree_of(series(Y, TIME))


@pytest.fixture(scope="module")
def wrapper(whole):
    class Conjugate(arviz_stats.SamplingWrapper):
        def sel_observations(self, idx):
            y = self.idata_orig["observed_data"]["y"]
            left = np.isin(np.arange(N), idx)
            return y[~left], y[left]

        def sample(self, modified_observed_data):
            return modified_observed_data

        def get_inference_data(self, fitted_model):
            return tree_of(fitted_model)

        def log_likelihood__i(self, excluded_obs, idata__i):
            return log_likelihood(idata__i["posterior"]["mu"].values, excluded_obs)

    return Conjugate(model=None, idata_orig=whole)


def needs(name):
    return pytest.mark.skipif(not hasattr(arviz_stats, name), reason=f"ArviZ without {name}")


def quietly(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


def stack(models, **options):
    """Stack models that are alike on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return lq.stack(models, **options)


@needs("lfo_cv")  # K-fold of versions before it fails on several draws of several chains
def test_k_fold(whole, wrapper):
    folds = TIME % 5
    theirs = quietly(arviz_stats.loo_kfold, whole, wrapper, folds=folds, pointwise=True)
    ours = lq.cross_validate(fit, n=N, folds=folds)
    model = lq.from_elpd(theirs, y=series(Y, TIME))
    np.testing.assert_allclose(model.loo().logp, ours.loo().logp, atol=1e-10)
    assert set(model.loo().how) == {"K-fold"}
    stacked = stack({"theirs": theirs, "ours": ours})
    assert stacked.scores == "held-out"
    assert "theirs: 30 K-fold; ours: 30 held out" in " ".join(repr(stacked).split())


@needs("reloo")
def test_reloo(whole, wrapper):
    before = quietly(arviz_stats.loo, whole, pointwise=True, reff=1.0)
    limit = float(np.sort(before.pareto_k.values.ravel())[-2:].mean())
    theirs = quietly(arviz_stats.reloo, wrapper, loo_orig=before, k_threshold=limit, pointwise=True)
    ours = lq.refit(fit(TIME, TIME), fit, limit=limit)
    model = lq.from_elpd(theirs)
    assert model.loo().how.tolist() == ours.loo().how.tolist() == ["PSIS"] * 29 + ["refit"]
    np.testing.assert_allclose(model.loo().logp, ours.loo().logp, atol=1e-6)
    fitted = stack({"theirs": theirs, "ours": ours})
    assert fitted.scores == "loo"
    assert "theirs: 29 PSIS, 1 refit" in " ".join(repr(fitted).split())


@needs("lfo_cv")
@pytest.mark.parametrize("method", ["exact", "approx"])
def test_leave_future_out(whole, wrapper, method):
    options = {"min_observations": FIRST, "forecast_horizon": 1, "pointwise": True}
    theirs = quietly(arviz_stats.lfo_cv, whole, wrapper, method=method, **options)
    splits = lq.leave_future_out(N, first=FIRST)
    ours = lq.cross_validate(fit, n=N, folds=splits, reuse=0.7 if method == "approx" else False)
    model = lq.from_elpd(theirs)
    np.testing.assert_allclose(model.loo().logp, ours.loo().logp, atol=1e-3)
    if method == "approx":
        assert theirs.n_refits + 1 == (ours.loo().how == "held out").sum()
    fitted = stack({"theirs": theirs, "ours": ours}, scores="prequential")
    assert fitted.scores == "prequential"
    further = options | {"forecast_horizon": 2}
    two_ahead = quietly(arviz_stats.lfo_cv, whole, wrapper, method=method, **further)
    with pytest.raises(ParameterError, match="from all before it"):
        lq.stack({"two": two_ahead}, scores="prequential")
    assert lq.stack({"two": two_ahead}).scores == "held-out"


@needs("loo_moment_match")
def test_moment_matching(whole):
    """What it returns are scores: for stacking, not for locking."""
    before = quietly(arviz_stats.loo, whole, pointwise=True, reff=1.0)
    mu = whole["posterior"]["mu"]
    upars = mu.expand_dims({"parameter": ["mu"]}, axis=-1)

    def log_prob(upars):
        at = upars.isel({upars.dims[-1]: 0})
        likelihood = sum(xr.apply_ufunc(stats.norm.logpdf, y, at) for y in Y)
        return likelihood + xr.apply_ufunc(stats.norm.logpdf, at, 0.0, np.sqrt(10.0))

    def log_lik_i(upars, i):
        at = upars.isel({upars.dims[-1]: 0})
        return xr.apply_ufunc(stats.norm.logpdf, Y[i], at)

    worst = int(np.argmax(before.pareto_k.values))
    matched = quietly(
        arviz_stats.loo_moment_match,
        whole,
        before,
        log_prob_upars_fn=log_prob,
        log_lik_i_upars_fn=log_lik_i,
        upars=upars,
        k_threshold=float(before.pareto_k.values.max()) - 1e-6,
        pointwise=True,
    )
    model = lq.from_elpd(matched)
    train = np.delete(TIME, worst)
    mean, variance = Y[train].sum() / (N - 0.9), 1 / (N - 0.9)
    expected = stats.norm.logpdf(Y[worst], mean, np.sqrt(1 + variance))
    assert abs(model.loo().logp[worst] - expected) < 0.1
    assert model.loo().pareto_k[worst] < before.pareto_k.values[worst]
    assert stack({"a": matched, "b": fit(TIME, TIME)}).scores == "loo"
    with pytest.raises(UnsupportedError, match="no draws"):
        lq.lock({"a": matched, "b": fit(TIME, TIME)})
