"""The same models in several libraries: the same jets, and one combination of all of them."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pandas as pd
import pytest

# Compiling is most of what these tests do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")
    bmb = pytest.importorskip("bambi")
    numpyro = pytest.importorskip("numpyro")

import jax.numpy as jnp
import numpyro.distributions as dist
import pytensor.tensor as pt
from scipy import stats

import lockquack as lq
from tests.helpers import lock
from tests.ppl.helpers import assert_same_jets, container, not_compiled

# What the libraries warn of is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::lockquack.errors.LockquackWarning"),
]

SHAPE = (2, 20)
RNG = np.random.default_rng(3)
N = 12
X = RNG.normal(2.0, 1.0, size=N)
Y = RNG.gamma(3.0, size=N)
INTERCEPT, SLOPE = RNG.normal(0.4, 0.1, size=SHAPE), RNG.normal(0.2, 0.05, size=SHAPE)
SIGMA, NU = RNG.gamma(50, 0.02, size=SHAPE), RNG.gamma(20, 0.2, size=SHAPE)
ALPHA = RNG.gamma(80, 0.05, size=SHAPE)
ETA = INTERCEPT[..., None] + SLOPE[..., None] * X
DRAWS = {"Intercept": INTERCEPT, "x": SLOPE, "sigma": SIGMA, "nu": NU, "alpha": ALPHA}

SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOLS_SD = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

Y2 = RNG.normal(size=(9, 2))
MU2 = RNG.normal(0.0, 0.2, size=(*SHAPE, 2))
SD2 = RNG.gamma(50, 0.02, size=(*SHAPE, 2))
CHOL2 = np.linalg.cholesky([[1.0, 0.6], [0.6, 1.0]])


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


#: Likelihood of a regression by library: PyMC, NumPyro, Bambi's family, closed form.
REGRESSIONS = {
    "linear": (
        lambda eta, p, **o: pm.Normal("y", eta, p["sigma"], **o),
        lambda eta, p: dist.Normal(eta, p["sigma"]),
        {"family": "gaussian"},
        ("normal", {"mu": ETA, "sigma": SIGMA}),
    ),
    "student": (
        lambda eta, p, **o: pm.StudentT("y", nu=p["nu"], mu=eta, sigma=p["sigma"], **o),
        lambda eta, p: dist.StudentT(p["nu"], eta, p["sigma"]),
        {"family": "t"},
        ("student_t", {"nu": NU, "mu": ETA, "sigma": SIGMA}),
    ),
    "gamma": (
        lambda eta, p, **o: pm.Gamma(
            "y", alpha=p["alpha"], beta=p["alpha"] * pt.exp(-eta), **o
        ),
        lambda eta, p: dist.Gamma(p["alpha"], p["alpha"] * jnp.exp(-eta)),
        {"family": "gamma", "link": "log"},
        ("gamma", {"alpha": ALPHA, "beta": ALPHA[..., None] * np.exp(-ETA)}),
    ),
    "lognormal": (
        lambda eta, p, **o: pm.LogNormal("y", eta, p["sigma"], **o),
        lambda eta, p: dist.LogNormal(eta, p["sigma"]),
        {"family": "lognormal"},
        ("lognormal", {"mu": ETA, "sigma": SIGMA}),
    ),
}  # fmt: skip
PARAMETERS = {
    "linear": ["sigma"],
    "student": ["sigma", "nu"],
    "gamma": ["alpha"],
    "lognormal": ["sigma"],
}


def in_pymc(name, x=X, y=Y):
    with pm.Model() as model:
        intercept, slope = pm.Normal("Intercept"), pm.Normal("x")
        p = {key: pm.HalfNormal(key) for key in PARAMETERS[name]}
        covariate = pm.Data("covariate", x)
        eta = intercept + slope * covariate
        REGRESSIONS[name][0](eta, p, observed=y, shape=covariate.shape)
    return lq.from_pymc(model, container(DRAWS))


def in_numpyro(name, x=X, y=Y):
    def model(x, y=None):
        intercept = numpyro.sample("Intercept", dist.Normal(0, 1))
        slope = numpyro.sample("x", dist.Normal(0, 1))
        p = {key: numpyro.sample(key, dist.HalfNormal(1.0)) for key in PARAMETERS[name]}
        with numpyro.plate("obs", len(x)):
            numpyro.sample("y", REGRESSIONS[name][1](intercept + slope * x, p), obs=y)

    return lq.from_numpyro(model, DRAWS, model_kwargs={"x": x, "y": y})


def in_bambi(name):
    options = dict(REGRESSIONS[name][2])
    if options["family"] == "lognormal" and (
        "lognormal" not in bmb.defaults.families.BUILTIN_FAMILIES
    ):
        return None  # this version of Bambi has no log-normal family
    model = bmb.Model("y ~ x", pd.DataFrame({"x": X, "y": Y}), **options)
    model.build()
    names = ["Intercept", "x", *PARAMETERS[name]]
    return lq.from_bambi(model, container({key: DRAWS[key] for key in names}))


def in_closed_form(name):
    family, parameters = REGRESSIONS[name][3]
    return lq.from_family(family, y=Y, **parameters)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_have_the_same_jets_in_all_libraries(name):
    exact = in_closed_form(name)
    models = [in_pymc(name), in_numpyro(name), in_bambi(name)]
    for model in models:
        if model is not None:
            assert_same_jets(model, exact)
            assert [e.at for e in model.likelihood.edges] == [e.at for e in exact.likelihood.edges]
            orders = [e.order for e in model.likelihood.edges]
            np.testing.assert_allclose(orders, [e.order for e in exact.likelihood.edges], 1e-3)


def eight_schools():
    """Schools with effects of their own, in PyMC and in NumPyro, not centred, and exactly."""
    mu, tau = RNG.normal(5, 2, size=SHAPE), RNG.gamma(9, 0.5, size=SHAPE)
    z = RNG.normal(size=(*SHAPE, 8))
    draws = {"mu": mu, "tau": tau, "z": z}
    with pm.Model() as model:
        theta = pm.Normal("mu", 0, 5) + pm.HalfCauchy("tau", 5) * pm.Normal("z", shape=8)
        pm.Normal("y", theta, SCHOOLS_SD, observed=SCHOOLS)

    def schools(sd, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([8]))
        numpyro.sample("y", dist.Normal(mu + tau * z, sd), obs=y)

    arguments = {"sd": SCHOOLS_SD, "y": SCHOOLS}
    return (
        lq.from_pymc(model, container(draws)),
        lq.from_numpyro(schools, draws, model_kwargs=arguments),
        lq.from_family(
            "normal", y=SCHOOLS, mu=mu[..., None] + tau[..., None] * z, sigma=SCHOOLS_SD
        ),
    )


def two_components():
    """Outcomes of two components whose scales are not known."""
    draws = {"mu": MU2, "sd": SD2}
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", shape=2), pm.HalfNormal("sd", shape=2)
        pm.MvNormal("y", mu, chol=sd[:, None] * CHOL2, observed=Y2)

    def pairs(y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
        sd = numpyro.sample("sd", dist.HalfNormal(1).expand([2]).to_event(1))
        with numpyro.plate("obs", len(Y2)):
            chol = sd[:, None] * jnp.asarray(CHOL2)
            numpyro.sample("y", dist.MultivariateNormal(mu, scale_tril=chol), obs=y)

    return (
        lq.from_pymc(model, container(draws)),
        lq.from_numpyro(pairs, draws, model_kwargs={"y": Y2}),
        lq.from_family("mv_normal", y=Y2, mu=MU2, chol=SD2[..., None] * CHOL2),
    )


@pytest.mark.parametrize("make", [eight_schools, two_components])
def test_groups_and_vectors_have_the_same_jets(make):
    by_pymc, by_numpyro, exact = make()
    assert_same_jets(by_pymc, exact)
    assert_same_jets(by_numpyro, exact)


def assert_same_distribution(ours, theirs):
    for j in range(ours.shape[1]):
        assert stats.ks_2samp(ours[:, j], theirs[:, j]).pvalue > 1e-3
    if ours.shape[1] > 1:
        sums = ours @ [1.0, -1.0], theirs @ [1.0, -1.0]
        assert stats.ks_2samp(*sums).pvalue > 1e-3


def test_models_of_two_libraries_are_locked_and_sampled_at_new_covariates():
    models = {"normal": in_pymc("linear"), "student": in_numpyro("student")}
    exact = {"normal": in_closed_form("linear"), "student": in_closed_form("student")}
    fit, expected = lock(models), lock(exact)
    np.testing.assert_allclose(fit.weights, expected.weights, rtol=1e-6)
    assert list(fit.weights["model"].values) == ["normal", "student"]

    x_new, y_new = np.array([0.5, 3.0]), np.array([1.0, 2.0])
    eta = INTERCEPT[..., None] + SLOPE[..., None] * x_new
    in_closed = {
        "normal": lq.from_family("normal", y=y_new, mu=eta, sigma=SIGMA),
        "student": lq.from_family("student_t", y=y_new, nu=NU, mu=eta, sigma=SIGMA),
    }
    new = fit.predict(covariate={"normal": x_new}, x={"student": x_new})
    reference = expected.predict(models=in_closed)
    np.testing.assert_allclose(new.logpdf(y_new), reference.logpdf(y_new), rtol=1e-6)
    drawn = new.sample(2000, random_seed=1)["posterior_predictive"]["y"].values
    for i in range(2):
        at = np.sort(drawn[..., i].ravel())
        cdf = np.array([reference.cdf(np.full(2, each))[i] for each in at[::40]])
        assert np.abs(cdf - np.arange(0, at.size, 40) / at.size).max() < 0.05


def test_vectors_of_two_libraries_are_locked_and_sampled():
    by_pymc, by_numpyro, exact = two_components()
    wide = lq.from_family("mv_normal", y=Y2, mu=MU2, chol=3 * SD2[..., None] * CHOL2)
    draws = np.tile(np.arange(SHAPE[1]), 100)
    for model in (by_pymc, by_numpyro):
        assert model.source.can.draw
        seeds = [np.random.default_rng(seed) for seed in (1, 1, 2)]
        first, again, other = (
            model.source.draw_outcomes(0, draws, np.array([4, 0]), seed) for seed in seeds
        )
        assert first.shape == (draws.size, 2, 2)
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)
        reference = exact.source.draw_outcomes(0, draws, np.array([4, 0]), np.random.default_rng(3))
        assert_same_distribution(first[:, 0], reference[:, 0])
        # Outcomes of two observations are drawn apart, though these are alike.
        assert abs(np.corrcoef(first[:, 0, 0] - first[:, 1, 0], first[:, 0, 1])[0, 1]) < 0.6
        assert (first[:, 0] != first[:, 1]).all()

    fit = lock({"pymc": by_pymc, "numpyro": by_numpyro, "wide": wide}, prior=2.0)
    expected = lock({"pymc": exact, "numpyro": exact, "wide": wide}, prior=2.0)
    np.testing.assert_allclose(fit.weights, expected.weights, rtol=1e-5)
    ours, theirs = (
        each.sample(1500, random_seed=seed)["posterior_predictive"]["y"].values[..., 0, :]
        for each, seed in ((fit, 1), (expected, 2))
    )
    assert_same_distribution(ours.reshape(-1, 2), theirs.reshape(-1, 2))
