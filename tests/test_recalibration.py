"""Predictions that are made as sure as they should be."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import integrate, stats
from scipy.special import betaln

import lockquack as lq
from lockquack.errors import CalibrationWarning, LockquackWarning, UnsupportedError
from lockquack.fitting.recalibration import fit_beta
from lockquack.models.model import sources_of
from lockquack.operators import Linear, Locking
from lockquack.operators.pool import Pool
from lockquack.prediction.distribution import distribution_of
from lockquack.quadrature.beta import BetaTransform
from tests.helpers import shown

BOTH = [(0.3, 0.4), (0.7, 1.6), (2.5, 2.0), (5.0, 1.2)]
OPERATORS = ["stack", "lock", "quack", "hoelder"]


def quiet(act, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return act(*args, **options)


def combined(name, models):
    if name == "hoelder":
        return quiet(lq.combine, models, "hoelder", "log")
    return quiet(getattr(lq, name), models)


def normals(y, sd=1.0, apart=0.4, shape=(2, 50), seed=0):
    """Two models, sure of their standard deviation."""
    draws = 0.02 * np.random.default_rng(seed).normal(size=shape)
    return {
        "left": lq.from_family("normal", y=y, mu=draws - apart / 2, sigma=sd),
        "right": lq.from_family("normal", y=y, mu=draws + apart / 2, sigma=sd),
    }


def same_normals(n=3):
    """The locked pool of two normals is N(0.5, 1) at each observation."""
    y, mu = np.linspace(-1.0, 1.0, n), np.zeros((1, 2, n))
    return {
        "a": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.0),
    }


def pooled(a, b, models=None):
    pool = Pool(Locking(), np.array([0.5, 0.5]), 2, BetaTransform(a, b))
    return distribution_of(sources_of(models or same_normals()), pool)


def closed_form(a, b):
    """Log density of the transformed N(0.5, 1), tails included."""
    q = stats.norm(0.5, 1.0)

    def logpdf(y):
        return q.logpdf(y) + (a - 1) * q.logcdf(y) + (b - 1) * q.logsf(y) - betaln(a, b)

    return q, logpdf


def unlike(u):
    return np.stack([[u, u], [1 - u, 1 - u]])


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.3, 0.3), (2.0, 5.0), (8.0, 3.0), (0.6, 1.4)])
def test_a_and_b_are_those_of_scipy(a, b, rng):
    u = rng.beta(a, b, size=300)
    found = fit_beta(unlike(u))
    assert [found.a, found.b] == pytest.approx(stats.beta.fit(u, floc=0, fscale=1)[:2], rel=1e-6)
    assert found.gains.sum() == pytest.approx(stats.beta(found.a, found.b).logpdf(u).sum())


def test_standard_errors_are_those_of_other_samples(rng):
    found = [fit_beta(unlike(rng.beta(0.6, 0.8, size=200))) for _ in range(100)]
    spread = np.std([(each.a, each.b) for each in found], axis=0)
    said = np.mean([np.sqrt(np.diag(each.cov)) for each in found], axis=0)
    assert said == pytest.approx(spread, rel=0.2)


def test_case_weights_are_repetitions(rng):
    u, counts = rng.beta(0.6, 0.8, size=50), rng.integers(0, 4, size=50)
    weighted, repeated = (
        fit_beta(unlike(u), counts.astype(float)),
        fit_beta(unlike(np.repeat(u, counts))),
    )
    assert (weighted.a, weighted.b) == pytest.approx((repeated.a, repeated.b), rel=1e-7)


@pytest.mark.parametrize(("a", "b"), BOTH)
def test_a_normal_pool_has_a_closed_form(a, b):
    found, (q, logpdf) = pooled(a, b), closed_form(a, b)
    y = np.linspace(-7.0, 8.0, 31)[:, None] * np.ones(3)
    bulk = np.abs(y - 0.5) < 5.5
    np.testing.assert_allclose(found.logpdf(y)[bulk], logpdf(y)[bulk], atol=1e-8)
    np.testing.assert_allclose(found.logpdf(y), logpdf(y), atol=1e-3)
    np.testing.assert_allclose(found.cdf(y), stats.beta(a, b).cdf(q.cdf(y)), atol=1e-6)
    p = np.array([0.01, 0.3, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(found.quantile(p)[:, 0], q.ppf(stats.beta(a, b).ppf(p)), rtol=1e-4)
    t = np.linspace(-40, 40, 200_001)
    density = np.exp(logpdf(t))
    mean = np.trapezoid(t * density, t)
    assert found.mean() == pytest.approx(mean, abs=1e-6)
    assert found.var() == pytest.approx(np.trapezoid((t - mean) ** 2 * density, t), rel=1e-5)
    assert found.mode() == pytest.approx(t[density.argmax()], abs=1e-3)


@pytest.mark.parametrize(("a", "b"), [(403.0, 125.0), (3.0, 2000.0), (20_000.0, 15_000.0)])
def test_distributions_much_narrower_than_the_pool_have_a_closed_form(a, b):
    found, (q, _) = pooled(a, b), closed_form(a, b)
    p = np.array([1e-4, 0.01, 0.3, 0.5, 0.9, 0.999])
    y = q.ppf(stats.beta(a, b).ppf(p))
    np.testing.assert_allclose(found.quantile(p)[:, 0], y, rtol=1e-6)
    np.testing.assert_allclose(found.cdf(y[:, None] * np.ones(3))[:, 0], p, rtol=1e-6)


@pytest.mark.parametrize(("a", "b"), BOTH)
def test_densities_integrate_to_one_and_quantiles_invert(a, b, rng):
    y = rng.gamma(2.0, size=4)
    shape = 2.0 + 0.1 * rng.normal(size=(2, 20))
    models = {
        "gamma": lq.from_family("gamma", y=y, alpha=shape, beta=1.0),
        "lognormal": lq.from_family("lognormal", y=y, mu=0.3 * np.ones((2, 20)), sigma=0.8),
    }
    found = pooled(a, b, models)

    z = np.linspace(-30.0, 6.0, 721)[:, None] * np.ones(4)
    density = np.exp(found.logpdf(np.exp(z)) + z)
    assert np.trapezoid(density, z[:, 0], axis=0) == pytest.approx(1.0, abs=1e-5)
    p = np.array([0.02, 0.5, 0.97])
    np.testing.assert_allclose(found.cdf(found.quantile(p)), p[:, None] * np.ones(4), atol=1e-9)
    assert (found.log_norm == pooled(1.0, 1.0, models).log_norm).all()


@pytest.mark.parametrize("y", [-9.0, -12.0, 10.0, 25.0])
def test_outliers_have_the_tail_that_they_have(y):
    # Far beyond what panels resolve: log F from the slopes of the density.
    found, (_, logpdf) = pooled(0.4, 2.5), closed_form(0.4, 2.5)
    assert found.logpdf(np.full((1, 3), y))[0] == pytest.approx(logpdf(y), abs=1e-4)


def test_heavy_tails_are_raised_to_a_power():
    # F ~ |y|^-4 becomes |y|^-2: no variance; |y|^-1: no mean either.
    t = {"t": lq.from_family("student_t", y=np.zeros(3), nu=4.0, mu=np.zeros((1, 2)), sigma=1.0)}

    def moments(a, b):
        pool = Pool(Linear(), np.ones(1), 1, BetaTransform(a, b))
        found = distribution_of(sources_of(t), pool)
        return found.mean()[0], found.var()[0]

    exact, _ = integrate.quad(
        lambda s: 2 * stats.t(4).isf(s) ** 2 * stats.beta(0.9, 0.9).pdf(s), 0, 0.5, limit=400
    )
    assert moments(0.9, 0.9) == pytest.approx((0.0, exact), abs=1e-3, rel=1e-3)
    assert moments(0.4, 0.4)[1] == np.inf
    assert np.isnan(moments(0.2, 0.2)[0])
    assert moments(0.2, 1.0)[0] == -np.inf


@pytest.mark.parametrize("name", OPERATORS)
def test_a_and_b_of_one_change_nothing(name, rng):
    fit = combined(name, normals(rng.normal(size=30)))
    found = replace(fit.predict(), pool=replace(fit.pool, recalibration=BetaTransform(1.0, 1.0)))
    plain = fit.predict()
    y = rng.normal(size=(5, 30))
    np.testing.assert_array_equal(found.logpdf(y), plain.logpdf(y))
    np.testing.assert_allclose(found.cdf(y), plain.cdf(y), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.quantile([0.1, 0.8]), plain.quantile([0.1, 0.8]), atol=1e-12)
    np.testing.assert_allclose(found.mean(), plain.mean(), atol=1e-12)
    np.testing.assert_allclose(found.var(), plain.var(), atol=1e-12)


@pytest.mark.parametrize("sd", [0.5, 2.0], ids=["too wide", "too narrow"])
@pytest.mark.parametrize("name", OPERATORS[:3])
def test_recalibrated_pools_cover_at_nominal_rates(name, sd, rng):
    train, test = sd * rng.normal(size=(2, 250))
    fit = combined(name, normals(train))
    found = quiet(fit.recalibrated)
    fresh = found.predict(models=normals(test))
    covered = quiet(fresh.coverage, [0.5, 0.8, 0.9]).iloc[0]
    for prob in (0.5, 0.8, 0.9):
        assert covered[f"{prob:g}"] == pytest.approx(prob, abs=4 * np.sqrt(prob * (1 - prob) / 250))
    before = fit.predict(models=normals(test))
    assert fresh.logpdf().sum() > before.logpdf().sum() + 20
    assert covered["uniformity_p"] > 1e-3


def test_calibrated_pools_lose_nothing(rng):
    # Two numbers that are noise cost one nat in all on new data, on average; here 12 data sets.
    lost = []
    for seed in range(12):
        train, test = rng.normal(0.2, 1.0, size=(2, 200))
        fit = combined("stack", normals(train, apart=0.4, seed=seed))
        found = quiet(fit.recalibrated)
        other = normals(test, seed=seed)
        lost.append(
            float(fit.predict(models=other).logpdf().sum())
            - float(found.predict(models=other).logpdf().sum())
        )
    assert np.mean(lost) < 1.0 + 3 * np.std(lost) / np.sqrt(12)
    assert np.mean(lost) / 200 < 0.02


@pytest.mark.parametrize("name", ["stack", "lock"])
def test_a_recalibrated_combination_is_one_like_any_other(name, rng, tmp_path):
    y = 2.0 * rng.normal(size=60)
    fit = combined(name, normals(y)).recalibrated()
    assert fit.label == f"{name}, recalibrated"
    assert "Recalibrated: a = 0." in repr(fit)
    assert "recalibrated" in fit._repr_html_()
    loo = fit.predict(loo=True)
    gained = fit.recalibration.beta.gains.sum()
    plain = float(replace(fit, recalibration=None).logpdf(loo=True).sum())
    assert float(loo.logpdf().sum()) == pytest.approx(plain + gained, abs=1e-7)
    np.testing.assert_allclose(loo.pit(), loo.cdf(), rtol=1e-12)
    low, high = fit.interval(0.8).values
    inside = fit.predict()
    np.testing.assert_allclose(inside.cdf(high) - inside.cdf(low), 0.8, atol=1e-9)
    shortest = fit.interval(0.8, kind="hdi").values
    np.testing.assert_allclose(inside.cdf(shortest[1]) - inside.cdf(shortest[0]), 0.8, atol=1e-9)
    assert (shortest[1] - shortest[0] <= high - low + 1e-9).all()
    draws = fit.sample(500, random_seed=1)["posterior_predictive"]["y"]
    u = fit.predict().cdf(draws.isel(chain=0).values)
    assert stats.kstest(u.values.ravel(), "uniform").pvalue > 1e-3
    assert len(fit.plot_density(0).lines) > 2
    assert fit.plot_pit() is not None
    assert list(fit.coverage().index[:2]) == [f"[{name}, recalibrated]", f"[{name}]"]
    again = fit.recalibrated()
    assert (again.label, again.recalibration.beta.a) == (fit.label, fit.recalibration.beta.a)
    with pytest.raises(UnsupportedError, match="method='inverse-cdf'"):
        fit.sample(10, method="rejection")


def test_the_report_shows_before_and_after(rng, tmp_path):
    fit = combined("lock", normals(2.0 * rng.normal(size=40))).recalibrated()
    quiet(fit.report, tmp_path / "report.html", methods=["lock"])
    text = (tmp_path / "report.html").read_text()
    assert "[lock, recalibrated]" in text
    assert "a = 0." in text
    assert all(word in text for word in ("CRPS", "RMSE", "R²", "coverage"))


@pytest.mark.parametrize("name", ["pseudo_bma", "lock"])
def test_files_and_pickles_keep_it(name, rng, tmp_path):
    fit = combined(name, normals(2.0 * rng.normal(size=60))).recalibrated()
    fit.save(tmp_path / "fit.nc")
    for other in (lq.load(tmp_path / "fit.nc"), pickle.loads(pickle.dumps(fit))):
        assert shown(other) == shown(fit)
        xr.testing.assert_identical(other.pointwise, fit.pointwise)
        np.testing.assert_array_equal(other.recalibration.beta.cov, fit.recalibration.beta.cov)
        assert type(other.fitter) is type(fit.fitter)


def test_the_hyvarinen_score_is_that_of_the_transformed_density(rng):
    y = rng.gamma(3.0, size=40)
    models = {
        "gamma": lq.from_family("gamma", y=y, alpha=6.0 + 0.1 * rng.random((2, 40)), beta=2.0),
        "lognormal": lq.from_family("lognormal", y=y, mu=1 + 0.02 * rng.random((2, 40)), sigma=0.4),
    }
    for coordinates in ("log", None):
        rule = lq.Hyvarinen(transform=coordinates)
        plain = quiet(lq.lock, models, rule=rule)
        fit = quiet(plain.recalibrated)
        h = 1e-3
        prediction = fit.predict(loo=True)
        # Finite differences of the log density in y, whose H in log y has the weight y².
        low, mid, high = (prediction.logpdf(y * (1 + k * h)).values for k in (-1, 0, 1))
        grad, curv = (high - low) / (2 * h * y), (low - 2 * mid + high) / (h * y) ** 2
        unit = rule.unit(y[:, None])[0]
        if coordinates == "log":
            score = -(unit**2) * (4 * y * grad + 2 * y**2 * curv + y**2 * grad**2)
        else:
            score = -(unit**2) * (2 * curv + grad**2)
        np.testing.assert_allclose(fit.pointwise.values[0], score, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["stack", "lock by pairs", "lock"])
def test_whole_numbers_have_probabilities_that_are_steps(name, rng):
    y = rng.negative_binomial(3, 0.4, size=150)  # wider than any Poisson
    rate = 4.5 + 0.05 * rng.normal(size=(2, 50))
    models = {
        "low": lq.from_family("poisson", y=y, mu=rate - 1.0),
        "high": lq.from_family("poisson", y=y, mu=rate + 1.0),
    }
    rules = {"lock by pairs": "pairwise", "lock": "log"}
    fit = quiet(lq.lock, models, rule=rules[name]) if name in rules else quiet(lq.stack, models)
    found = quiet(fit.recalibrated)
    a, b = found.recalibration.beta.a, found.recalibration.beta.b
    assert max(a, b) < 0.9
    outcomes = np.arange(0, 60)[:, None] * np.ones(150)
    mass = np.exp(found.predict().logpdf(outcomes))
    np.testing.assert_allclose(mass.sum("point"), 1.0, atol=1e-9)
    F = fit.predict().cdf(outcomes)
    np.testing.assert_allclose(found.predict().cdf(outcomes), stats.beta(a, b).cdf(F), atol=1e-12)
    covered = quiet(found.coverage, [0.8], random_seed=1)
    assert covered["uniformity_p"].iloc[0] > 0.01 > covered["uniformity_p"].iloc[1]

    def likelihood(theta):
        transform = stats.beta(*np.exp(theta))
        loo = fit.predict(loo=True)
        upper, lower = loo.cdf(y.astype(float)).values, loo.cdf(y - 1.0).values
        return np.log(transform.cdf(upper) - transform.cdf(lower)).sum()

    best = likelihood(np.log([a, b]))
    for move in ([0.02, 0], [-0.02, 0], [0, 0.02], [0, -0.02]):
        assert likelihood(np.log([a, b]) + move) < best
    if name == "lock by pairs":
        logp = found.predict(loo=True).logpdf(np.stack([y - 1.0, y, y + 1.0])).values
        score = -np.logaddexp(0.0, logp[::2] - logp[1]).sum(axis=0)
        np.testing.assert_allclose(found.pointwise.values[0], score, rtol=1e-9)


def test_models_that_are_known_by_their_draws_are_recalibrated(rng):
    y = 2.0 * rng.normal(size=80)
    shape = (4, 250, 80)
    models = {}
    for name, model in normals(y, shape=(4, 250)).items():
        tree = model.to_datatree()
        outcomes = rng.normal(-0.2 if name == "left" else 0.2, 1.0, size=shape)
        tree["posterior_predictive"] = xr.Dataset({"y": (("chain", "draw", "obs_id"), outcomes)})
        tree = xr.DataTree.from_dict(
            {key: tree[key].to_dataset() for key in ("log_likelihood", "observed_data")}
            | {"posterior_predictive": tree["posterior_predictive"].to_dataset()}
        )
        models[name] = lq.from_datatree(tree)
    fit = quiet(lq.stack, models)
    found = quiet(fit.recalibrated)
    known = quiet(combined("stack", normals(y, shape=(4, 250))).recalibrated)
    assert found.recalibration.beta.a == pytest.approx(known.recalibration.beta.a, rel=0.2)
    assert quiet(found.coverage, [0.9])["0.9"].iloc[0] == pytest.approx(0.9, abs=0.08)
    draws = quiet(found.sample, 2000, random_seed=1)["posterior_predictive"]["y"]
    assert float(draws.std()) == pytest.approx(float(known.predict().var().mean()) ** 0.5, rel=0.1)
    found.logpdf(loo=True)


def test_weights_by_covariates_are_recalibrated_too(rng):
    x = np.linspace(0.0, 1.0, 80)
    y = 2.0 * rng.normal(size=80)
    fit = quiet(lq.stack, normals(y), by=lq.Spline(x, name="x"), shrinkage=1.0)
    found = quiet(fit.recalibrated)
    new = found.predict(models=normals(y[:3]), by=x[:3])
    plain = fit.predict(models=normals(y[:3]), by=x[:3])
    transform = stats.beta(found.recalibration.beta.a, found.recalibration.beta.b)
    np.testing.assert_allclose(new.cdf(), transform.cdf(plain.cdf()), atol=1e-6)


def test_what_cannot_be_recalibrated_is_refused(rng):
    y = rng.normal(size=(20, 2))
    mu = np.zeros((2, 20, 2)) + 0.1 * rng.normal(size=(2, 20, 1))
    vectors = {"a": lq.from_family("mv_normal", y=y, mu=mu, cov=np.eye(2))}
    with pytest.raises(UnsupportedError, match="2 components"):
        quiet(lq.stack, vectors).recalibrated()
    with pytest.raises(UnsupportedError, match="Fewer than 10"):
        quiet(lq.stack, normals(rng.normal(size=8))).recalibrated()
    circle = lq.from_family("von_mises", y=rng.normal(size=20), mu=np.zeros((2, 20)), kappa=1.0)
    with pytest.raises(UnsupportedError, match="circle"):
        quiet(lq.stack, {"a": circle}).recalibrated()


def test_held_out_predictions_are_recalibrated_as_they_are(rng):
    fit = quiet(lq.stack, normals(2.0 * rng.normal(size=60)), scores="held-out")
    found = fit.recalibrated()
    assert found.coverage([0.9])["0.9"].iloc[0] == pytest.approx(0.9, abs=0.1)
    right = np.random.default_rng(2).normal(size=60)
    with pytest.warns(CalibrationWarning, match="no detectable effect"):
        quiet(lq.stack, normals(right)).recalibrated()
