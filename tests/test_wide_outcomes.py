"""Distributions over many decades, and at the edges of what numbers can tell."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import lockquack as lq
from lockquack.errors import QuadratureWarning
from lockquack.models.model import sources_of
from lockquack.operators import Hoelder, Locking
from lockquack.operators.pool import Pool
from lockquack.prediction.distribution import distribution_of
from lockquack.prediction.tails import heaviest_tail

#: The models here have few draws, or are equal.
pytestmark = [
    pytest.mark.filterwarnings("ignore::lockquack.errors.MonteCarloWarning"),
    pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning"),
    pytest.mark.filterwarnings("ignore::lockquack.errors.ParetoWarning"),
]


def alike(family, y, **parameters):
    """Two models of the same prediction, without uncertainty."""
    draws = {name: np.full((2, 25), value) for name, value in parameters.items()}
    return {name: lq.from_family(family, y=np.asarray(y), **draws) for name in "ab"}


@pytest.mark.parametrize(
    ("family", "parameters", "exact"),
    [
        ("lognormal", {"mu": 0.0, "sigma": 10.0}, stats.lognorm(10.0)),
        ("gamma", {"alpha": 0.05, "beta": 1.0}, stats.gamma(0.05)),
        ("weibull", {"alpha": 0.1, "beta": 2.0}, stats.weibull_min(0.1, scale=2.0)),
        ("inverse_gamma", {"alpha": 0.2, "beta": 1.0}, stats.invgamma(0.2)),
    ],
)
def test_outcomes_over_many_decades(family, parameters, exact):
    y = 10.0 ** np.arange(-40.0, 41.0, 4.0)
    prediction = lq.equal(alike(family, y, **parameters)).predict()
    np.testing.assert_allclose(prediction.cdf().values, exact.cdf(y), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(prediction.pit().values, exact.cdf(y), rtol=1e-9, atol=1e-13)
    p = np.array([0.2, 0.5, 0.9])
    np.testing.assert_allclose(prediction.quantile(p).values[:, 0], exact.ppf(p), rtol=1e-9)


@pytest.mark.parametrize(
    ("family", "parameters", "exact"),
    [
        ("gamma", {"alpha": 0.01, "beta": 1.0}, stats.gamma(0.01)),
        ("beta", {"alpha": 0.05, "beta": 0.05}, stats.beta(0.05, 0.05)),
    ],
)
def test_mass_that_no_number_reaches_is_warned_of(family, parameters, exact):
    # A thousandth of the one lies below 1e-300, a twelfth of the other above 1 − 1e-16.
    y = [1e-30, 1e-3, 0.5, 0.9]
    prediction = lq.equal(alike(family, y, **parameters)).predict()
    with pytest.warns(QuadratureWarning) as caught:
        found = prediction.cdf().values
    (warning,) = caught
    said = warning.message.remark.error
    assert np.abs(found - exact.cdf(y)).max() < said < 0.5
    fit = lq.equal(alike(family, y, **parameters))
    with pytest.warns(QuadratureWarning):
        fit.coverage()


def test_u_shaped_densities_are_integrated(rng):
    y = np.array([1e-9, 0.01, 0.4, 0.99])
    draws = {name: rng.uniform(0.3, 0.5, size=(2, 20)) for name in ("alpha", "beta")}
    models = {name: lq.from_family("beta", y=y, **draws) for name in "ab"}
    prediction = lq.equal(models).predict()
    with pytest.warns(QuadratureWarning, match="relative error up to [1-9].*e-0[56]"):
        found = prediction.cdf().values
    exact = stats.beta(draws["alpha"][..., None], draws["beta"][..., None]).cdf(y).mean((0, 1))
    np.testing.assert_allclose(found, exact, atol=2e-5)


@pytest.mark.parametrize("transform", ["log", "auto"])
@pytest.mark.parametrize("tiny", [1e-30, 1e-200])
def test_one_tiny_outcome_is_no_reason_to_refuse(rng, tiny, transform):
    y = rng.exponential(size=30)
    y[3] = tiny
    models = {
        "exponential": lq.from_family("exponential", y=y, lam=rng.gamma(99, 0.01, (4, 100))),
        "half": lq.from_family("half_normal", y=y, sigma=rng.gamma(99, 0.01, (4, 100))),
    }
    fit = lq.combine(models, "locking", lq.Hyvarinen(transform=transform))
    assert fit.weights.values.sum() == pytest.approx(1.0)


def test_a_mean_that_does_not_exist_is_said():
    y = np.array([0.0, 1.0])
    rng = np.random.default_rng(1)
    models = {
        "cauchy": lq.from_family("student_t", y=y, nu=1.0, mu=rng.normal(size=(4, 50)), sigma=1.0),
        "normal": lq.from_family("normal", y=y, mu=0.0, sigma=np.ones((4, 50))),
    }
    prediction = lq.equal(models).predict()
    with pytest.warns(QuadratureWarning, match="no finite mean at 2 observation"):
        assert np.isnan(prediction.mean().values).all()
    with pytest.warns(QuadratureWarning, match="no finite variance at 2 observation"):
        assert np.isinf(prediction.var().values).all()


@pytest.mark.parametrize("apart", [8.0, 100.0])
@pytest.mark.parametrize("weight", [0.5, 1e-6])
def test_harmonic_pool_of_models_far_apart(apart, weight):
    y = np.zeros(1)
    models = sources_of(
        {
            name: lq.from_family("normal", y=y, mu=mu, sigma=np.ones((1, 1)))
            for name, mu in (("near", 0.0), ("far", apart))
        }
    )
    shares = np.array([weight, 1.0 - weight])
    pooled = distribution_of(models, Pool(Hoelder(-1.0), shares, 2))
    middle = apart / 2 + np.log((1.0 - weight) / weight) / apart
    t = middle + np.linspace(-12.0, 12.0, 1_000_001)  # the crossing is 1 / apart wide
    logs = stats.norm.logpdf([t, t - apart])
    terms = -np.logaddexp(*(np.log(shares)[:, None] - logs))
    exact = logsumexp(terms) + np.log(t[1] - t[0])
    assert pooled.log_norm[0] == pytest.approx(exact, abs=1e-9)
    assert pooled.relative_error[0] < 1e-8


def test_signed_exponents_by_the_log_score_end(rng):
    y = rng.normal(size=10)
    models = {
        name: lq.from_family("normal", y=y, mu=mu + rng.normal(size=(2, 20)) / 9, sigma=1.0)
        for name, mu in (("a", -0.5), ("b", 0.5))
    }
    fit = lq.combine(models, lq.Hybrid(signed=True), "log")
    assert np.isfinite(fit.logpdf().values).all()


def test_a_large_exponent_is_followed_far_out_without_overflow():
    """Log densities of a Gumbel are -1e300 there, and the exponent of one model is above one."""
    model = lq.from_family("gumbel", y=np.array([1.0, 2.0]), mu=0.0, beta=np.full((2, 20), 1420.0))
    pool = Pool(Locking("nonnegative"), np.array([1e10]), 1)
    assert heaviest_tail({"a": model.source}, pool) is None
