"""Observations with a high Pareto k̂ are fitted again: exact, counted, and used everywhere."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

import lockquack as lq
from lockquack.errors import (
    LockquackWarning,
    ObservationMismatchError,
    ParameterError,
    ParetoWarning,
    ShapeError,
    UnsupportedError,
)
from tests.helpers import lock

#: Two observations that nothing but themselves tells much about: a fit without is much wider.
X = np.column_stack([np.ones(20), *(3.0 * (np.arange(20) == i) for i in (18, 19))])
Y = np.append(np.random.default_rng(6).normal(0.3, 1.0, size=18), [9.0, -8.0])
N = len(Y)
OUTLIERS = [18, 19]
SHAPE = (4, 1000)


def posterior(train, y=Y, variance=1.0):
    """Mean and covariance of the coefficients, whose prior is N(0, 10)."""
    covariance = np.linalg.inv(np.eye(3) / 10 + X[train].T @ X[train] / variance)
    return covariance @ X[train].T @ y[train] / variance, covariance


def model_of(train, test, *, y=Y, variance=1.0, family="normal"):
    rng = np.random.default_rng([len(train), *test[:1]])
    coefficients = rng.multivariate_normal(*posterior(train, y, variance), size=SHAPE)
    y = np.exp(y) if family == "lognormal" else y
    mu = coefficients @ X[test].T
    return lq.from_family(family, y=y[test], mu=mu, sigma=np.sqrt(variance))


def counting(calls, **options):
    def fit(train, test):
        calls.append(test.tolist())
        return model_of(train, test, **options)

    return fit


@pytest.fixture(scope="module")
def whole():
    return model_of(np.arange(N), np.arange(N))


@pytest.fixture(scope="module")
def refitted(whole):
    return lq.refit(whole, model_of)


def exact(variance=1.0):
    """Means and standard deviations of the exact leave-one-out predictions."""
    each = [posterior(np.delete(np.arange(N), i), variance=variance) for i in range(N)]
    variances = [variance + x @ covariance @ x for x, (_, covariance) in zip(X, each, strict=True)]
    return np.array([x @ mean for x, (mean, _) in zip(X, each, strict=True)]), np.sqrt(variances)


def test_exactly_the_bad_observations_are_fitted_again(whole):
    bad = np.flatnonzero(whole.loo().pareto_k > whole.source.pareto_limit)
    assert bad.tolist() == OUTLIERS
    calls = []
    found = lq.refit(whole, counting(calls))
    assert calls == [[i] for i in OUTLIERS]
    loo = found.loo()
    assert loo.how.tolist() == ["PSIS"] * 18 + ["refit"] * 2
    assert np.isnan(loo.pareto_k[OUTLIERS]).all()
    others = np.arange(18)
    np.testing.assert_array_equal(loo.pareto_k[others], whole.loo().pareto_k[others])
    np.testing.assert_allclose(loo.logp[others], whole.loo().logp[others], rtol=1e-12)
    # Once they are, nothing is left to do, nor is there for a limit that nothing exceeds.
    assert lq.refit(found, counting(calls)) is found
    assert lq.refit(whole, counting(calls), limit=10.0) is whole
    assert len(calls) == 2
    below = np.sort(loo.pareto_k[others])[-3]
    lq.refit(found, counting(calls), limit=below + 1e-9)
    assert len(calls) == 4


def test_leave_one_out_is_exact_then(whole, refitted):
    expected = stats.norm.logpdf(Y, *exact())
    before, after = (np.abs(model.loo().logp - expected) for model in (whole, refitted))
    assert before[OUTLIERS].min() > 0.5
    # Relative sd of a density that is averaged: about 3 at the outliers, over 4,000 draws.
    assert after.max() < 0.15
    np.testing.assert_allclose(
        refitted.passes.predict("loo", density=True).jet.logp[18:], expected[18:], atol=0.12
    )


def test_its_derivatives_are_those_of_the_fits(whole, refitted):
    means, sds = exact()
    jet, before = refitted.collapse("loo").jet, whole.collapse("loo").jet
    np.testing.assert_allclose(jet.grad[:18], before.grad[:18], rtol=1e-13)
    # The weights of the held-out average have a relative sd of 2.
    np.testing.assert_allclose(jet.grad[:, 0], (means - Y) / sds**2, atol=0.1)
    np.testing.assert_allclose(jet.curv[:, 0], -1 / sds**2, atol=0.1)


def test_every_use_of_what_is_left_out(refitted):
    means, sds = exact()
    logpdf = stats.norm.logpdf(Y, means, sds)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ParetoWarning)
        warnings.simplefilter("ignore", LockquackWarning)
        warnings.simplefilter("error", ParetoWarning)
        fit = lq.stack({"one": refitted})
        p = fit.predict(loo=True)
        np.testing.assert_allclose(p.logpdf(), logpdf, atol=0.12)
        np.testing.assert_allclose(p.pit(), stats.norm.cdf(Y, means, sds), atol=0.02)
        np.testing.assert_allclose(p.quantile(0.9), stats.norm.ppf(0.9, means, sds), rtol=0.05)
        drawn = p.sample(2000, random_seed=1)["posterior_predictive"]["y"]
        np.testing.assert_allclose(drawn.mean(["chain", "draw"]), means, atol=0.7)
        elpd = fit.to_dataframe()["score"].iloc[0]
        assert abs(elpd - logpdf.sum()) < 0.2
        table = lq.compare({"one": refitted, "two": lq.refit(wide(), fit_wide)}, cv=2)
        assert abs(table.loc["one", "elpd"] - logpdf.sum()) < 0.2
    found = fit.diagnostics()
    assert found["how"].values.tolist() == [["PSIS"] * 18 + ["refit"] * 2]


def wide():
    return model_of(np.arange(N), np.arange(N), variance=9.0)


def fit_wide(train, test):
    return model_of(train, test, variance=9.0)


def test_what_is_not_left_out_stays(whole, refitted):
    before, after = (
        lq.stack({"m": each}, scores="in-sample").predict() for each in (whole, refitted)
    )
    np.testing.assert_array_equal(before.logpdf(), after.logpdf())
    # Of new data nothing was left out.
    np.testing.assert_array_equal(
        refitted.with_data([0.1, 2.0], mu=np.zeros((*SHAPE, 2))).collapse("in-sample").jet.logp,
        whole.with_data([0.1, 2.0], mu=np.zeros((*SHAPE, 2))).collapse("in-sample").jet.logp,
    )
    assert "left out by: 18 PSIS, 2 refit" in repr(refitted)


def test_locking_and_case_weights(whole):
    counts = np.where(np.arange(N) % 2 == 0, 2.0, 1.0)
    models = {
        "narrow": lq.refit(whole, model_of).with_weights(counts),
        "wide": lq.refit(wide(), fit_wide).with_weights(counts),
    }
    jets = [model.collapse("loo").jet for model in models.values()]
    fit = lock(models)
    weights = fit.weights.values
    grad = weights @ np.stack([jet.grad[:, 0] for jet in jets])
    curv = weights @ np.stack([jet.curv[:, 0] for jet in jets])
    pooled = fit.pointwise.isel(model=0).values
    ratio = pooled / -(2 * curv + grad**2)
    np.testing.assert_allclose(ratio, ratio[0])
    np.testing.assert_allclose(lq.running_lock(models).weights, weights, atol=1e-6)
    total = models["narrow"].loo()
    np.testing.assert_allclose(total.logp, lq.refit(whole, model_of).loo().logp)


@pytest.mark.parametrize("transform", ["auto", "log"])
def test_other_coordinates_see_the_same_fits(transform):
    """A model of log y, scored as y or as log y."""
    everything = np.arange(N)

    def fit(train, test):
        return model_of(train, test, family="lognormal")

    y = np.exp(Y)
    model = lq.refit(fit(everything, everything), fit)
    refits = np.flatnonzero(model.loo().how == "refit")
    assert refits.tolist() == OUTLIERS
    held_out = [
        fit(np.delete(everything, i), everything[i : i + 1]).collapse("held-out").jet
        for i in refits
    ]
    scores = lq.combine({"m": model}, "linear", lq.Hyvarinen(transform=transform, scale=1.0))
    found = scores.pointwise.sel(model="m").values[refits]
    grad, curv = (np.array([getattr(j, part)[0, 0] for j in held_out]) for part in ("grad", "curv"))
    at = y[refits]
    # Log y is where a log-normal's support is the whole line, and what "auto" takes: h = y².
    expected = -(4 * at * grad + 2 * at**2 * curv + at**2 * grad**2)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_what_is_refused(whole, refitted, tmp_path):
    def fewer(train, test):
        return lq.from_family("normal", y=Y[test], mu=np.zeros((4, 10)), sigma=1.0)

    def others(train, test):
        return model_of(train, test - 1)

    with pytest.raises(ShapeError, match=r"Fold 0: .*\(4, 1000, 1\) and \(4, 10, 1\)"):
        lq.refit(whole, fewer)
    with pytest.raises(ObservationMismatchError, match="Fold 0: .* must return a model of the row"):
        lq.refit(whole, others)
    with pytest.raises(ParameterError, match="fit must be a function"):
        lq.refit(whole, None)
    with pytest.raises(ParameterError, match=r"fit must be a function .*; got a Model\.$"):
        lq.refit(whole, whole)
    with pytest.raises(UnsupportedError, match="be split into chains"):
        lq.split_chains(refitted)
    with pytest.raises(UnsupportedError, match="be written"):
        refitted.save(tmp_path / "model.nc")


def test_refits_resume_too(whole, tmp_path):
    calls = []
    for _ in range(2):
        lq.refit(whole, counting(calls), folder=tmp_path / "refits")
    assert calls == [[i] for i in OUTLIERS]
