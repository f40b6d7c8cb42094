"""Models of log y by every library: the log-normal model of y by another name."""

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

import numpyro.distributions as dist
import xarray as xr
from jax.scipy.stats import norm

import lockquack as lq
from lockquack.errors import TransformError
from tests.ppl.helpers import (
    assert_same_jets,
    assert_same_outcomes,
    container,
    not_compiled,
)

# What the libraries warn of is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::lockquack.errors.LockquackWarning"),
]

SHAPE = (2, 30)
RNG = np.random.default_rng(5)
N = 14
X = RNG.normal(2.0, 1.0, size=N)
Y = np.exp(0.3 * X + 0.5 * RNG.normal(size=N))
INTERCEPT, SLOPE = RNG.normal(0.1, 0.02, size=SHAPE), RNG.normal(0.3, 0.01, size=SHAPE)
SIGMA = RNG.gamma(2000, 0.00025, size=SHAPE)
DRAWS = {"Intercept": INTERCEPT, "x": SLOPE, "sigma": SIGMA}
NEW_X, NEW_Y = np.array([0.5, 3.0, 1.0]), np.array([0.4, 2.0, 7.0])


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


def lognormal(x=X, y=Y):
    eta = INTERCEPT[..., None] + SLOPE[..., None] * x
    return lq.from_family("lognormal", y=y, mu=eta, sigma=SIGMA)


def by_pymc(**options):
    with pm.Model() as model:
        x = pm.Data("covariate", X)
        mean = pm.Normal("Intercept", 0, 1) + pm.Normal("x", 0, 1) * x
        # As long as its mean, so that it can be moved to other covariates.
        pm.Normal("log_y", mean, pm.HalfNormal("sigma", 1), observed=np.log(Y), shape=x.shape)
    return lq.from_pymc(model, container(DRAWS), **options)


def by_bambi(**options):
    model = bmb.Model("log(y) ~ x", pd.DataFrame({"x": X, "y": Y}))
    model.build()
    return lq.from_bambi(model, container(DRAWS), **options)


def regression(x, log_y=None):
    intercept = numpyro.sample("Intercept", dist.Normal(0, 1))
    slope = numpyro.sample("x", dist.Normal(0, 1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("log_y", dist.Normal(intercept + slope * x, sigma), obs=log_y)


def by_numpyro(**options):
    return lq.from_numpyro(regression, DRAWS, model_kwargs={"x": X, "log_y": np.log(Y)}, **options)


def by_jax(**options):
    def log_density(z, p, x):
        return norm.logpdf(z, p["Intercept"] + p["x"] * x, p["sigma"])

    y = Y if options else np.log(Y)  # without the transform it is a model of what it is given
    return lq.from_jax(log_density, DRAWS, y=y, data={"x": X}, likelihood="normal", **options)


def by_file(**options):
    plain = lq.from_family(
        "normal",
        y=xr.DataArray(np.log(Y), dims="obs_id", name="log_y"),
        mu=INTERCEPT[..., None] + SLOPE[..., None] * X,
        sigma=SIGMA,
    )
    return lq.from_datatree(plain.to_datatree(), **options)


SOURCES = {
    "pymc": (by_pymc, {"covariate": NEW_X}),
    "bambi": (by_bambi, {"newdata": pd.DataFrame({"x": NEW_X})}),
    "numpyro": (by_numpyro, {"x": NEW_X}),
    "jax": (by_jax, {"x": NEW_X}),
    "file": (by_file, None),
}


@pytest.mark.parametrize("name", SOURCES)
def test_it_is_the_log_normal(name):
    make, elsewhere = SOURCES[name]
    model, exact = make(transform="log"), lognormal()
    np.testing.assert_allclose(model.observations.values[:, 0], Y, rtol=1e-14)
    assert model.likelihood.description.endswith(" of log y")
    if elsewhere is None:  # a file: what it holds is all there is
        everything = 1, slice(0, SHAPE[1]), slice(0, N)
        for got, expected in zip(
            (model.source.logp(*everything), *model.source.derivatives(*everything)),
            (exact.source.logp(*everything), *exact.source.derivatives(*everything)),
            strict=True,
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
        return
    assert_same_jets(model, exact, rtol=1e-10)
    assert model.likelihood.support == exact.likelihood.support
    if model.source.can.draw:
        assert_same_outcomes(model, exact)


@pytest.mark.parametrize("name", SOURCES)
def test_so_are_its_pools_and_its_predictions(name):
    make, elsewhere = SOURCES[name]
    other = lq.from_family(
        "gamma", y=Y, alpha=1.5, beta=1.5 * np.exp(-INTERCEPT[..., None] - SLOPE[..., None] * X)
    )
    rule = lq.Hyvarinen(transform="log")
    exact = lq.lock({"log": lognormal(), "gamma": other}, rule=rule, scores="in-sample")
    fit = lq.lock({"log": make(transform="log"), "gamma": other}, rule=rule, scores="in-sample")
    np.testing.assert_allclose(fit.weights, exact.weights, atol=1e-9)
    if elsewhere is None:
        return
    np.testing.assert_allclose(fit.logpdf(), exact.logpdf(), rtol=1e-7, atol=1e-9)
    alone, of_y = (
        lq.equal({"log": make(transform="log")}, scores="in-sample"),
        lognormal(NEW_X, NEW_Y),
    )
    new = alone.predict(NEW_Y, **elsewhere)
    expected = lq.equal({"log": of_y}, scores="in-sample")
    np.testing.assert_allclose(new.logpdf(), expected.logpdf(), rtol=1e-10)
    np.testing.assert_allclose(new.mean(), expected.predict().mean(), rtol=1e-6)
    unknown = alone.predict(**elsewhere)
    np.testing.assert_allclose(unknown.quantile(0.3), new.quantile(0.3), rtol=1e-8)


@pytest.mark.parametrize("name", SOURCES)
def test_forgetting_it_is_noticed(name):
    models = {"y": lognormal(), "log": SOURCES[name][0]()}
    with pytest.raises(TransformError, match=r"'log' is the log of that of 'y'.*transform='log'"):
        lq.stack(models, scores="in-sample")


def test_the_outcome_has_the_name_of_the_variable_unless_that_is_a_function_of_it():
    assert by_pymc().observations.name == "log_y"
    assert by_numpyro().observations.name == "log_y"
    assert by_bambi().observations.name == "log(y)"
    assert by_file().observations.name == "log_y"
    assert by_pymc(transform="log").observations.outcome == "y"
