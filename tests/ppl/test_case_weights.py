"""Case weights of models from every library: the same fit as that of the likelihood's name."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import lockquack as lq
from lockquack.errors import LockquackWarning, ShapeError
from tests.ppl.helpers import container, not_compiled

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(1)
N, SHAPE = 10, (2, 20)
X = RNG.normal(size=N)
Y = 0.5 + X + RNG.normal(size=N)
WEIGHTS = RNG.gamma(2.0, size=N)
MU, SIGMA = RNG.normal(0.5, 0.1, size=SHAPE), RNG.gamma(90.0, 0.01, size=SHAPE)


def from_pymc(weights):
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
        pm.Normal("y", mu, sigma, observed=Y)
    with not_compiled():
        return lq.from_pymc(model, container({"mu": MU, "sigma": SIGMA}), weights=weights)


def from_numpyro(weights):
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist

    def model(y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        with numpyro.plate("obs", N):
            numpyro.sample("y", dist.Normal(mu, sigma), obs=y)

    draws = {"mu": MU, "sigma": SIGMA}
    return lq.from_numpyro(model, draws, model_kwargs={"y": Y}, weights=weights)


def from_jax(weights):
    stats = pytest.importorskip("jax.scipy.stats")

    def log_density(y, params):
        return stats.norm.logpdf(y, params["mu"], params["sigma"])

    draws = {"mu": MU, "sigma": SIGMA}
    return lq.from_jax(log_density, draws, y=Y, likelihood="normal", weights=weights)


@pytest.mark.parametrize("make", [from_pymc, from_numpyro, from_jax])
def test_weights_are_those_of_the_observations(make):
    model = make(pd.Series(WEIGHTS))
    exact = lq.from_family("normal", y=Y, mu=MU, sigma=SIGMA, weights=WEIGHTS)
    other = lq.from_family("normal", y=Y, mu=X, sigma=np.ones(SHAPE), weights=WEIGHTS)
    with warnings.catch_warnings(), not_compiled():
        warnings.simplefilter("ignore", LockquackWarning)
        got, expected = (lq.lock({"a": each, "b": other}) for each in (model, exact))
    # Labels of observations differ between libraries, numbers do not.
    pd.testing.assert_frame_equal(got.to_dataframe(), expected.to_dataframe(), rtol=1e-5)
    assert model.with_data(Y[:3]).observations.weights is None if make is not from_numpyro else True
    with pytest.raises(ShapeError, match="weights must be one number for each of 10 observations"):
        make(WEIGHTS[:3])
