"""Divergences of real samplers on the centred eight schools, as each library notes them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import lockquack as lq
from lockquack.errors import MonteCarloWarning
from lockquack.remarks import remark_of

# What these libraries and their dependencies warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

Y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SIGMA = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def divergences_said(model):
    """Combine a model with a plain one; return what was remarked about divergences."""
    plain = lq.from_family("normal", y=Y, mu=8 + 4 * np.random.default_rng(1).normal(size=(2, 300)),
                           sigma=SIGMA)  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = lq.lock({"schools": model, "plain": plain})
    said = [remark_of(each.message) for each in caught if each.category is MonteCarloWarning]
    found = [each for each in said if each is not None and each.code == "divergences"]
    assert [each.code for each in fit.remarks].count("divergences") == len(found)
    return found


def test_pymc():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=8)  # centred: everybody knows what happens
        pm.Normal("y", theta, SIGMA, observed=Y)
        idata = pm.sample(
            300, tune=300, chains=2, cores=1, random_seed=1, progressbar=False, target_accept=0.7
        )
    count = int(idata.sample_stats["diverging"].sum())
    assert count > 0
    (said,) = divergences_said(lq.from_pymc(model, idata))
    assert f"{count} of 600" in str(said).replace(",", "")


def test_bambi():
    bmb = pytest.importorskip("bambi")
    table = pd.DataFrame({"y": Y, "g": pd.Categorical(list("abcdefgh"))})
    model = bmb.Model("y ~ 1 + (1|g)", table, noncentered=False)
    idata = model.fit(
        draws=300, tune=150, chains=2, cores=1, random_seed=46,
        progressbar=False, target_accept=0.6,
    )  # fmt: skip
    count = int(idata.sample_stats["diverging"].sum())
    assert count > 0
    (said,) = divergences_said(lq.from_bambi(model, idata))
    assert f"{count} of 600" in str(said).replace(",", "")


def schools(y=None):
    import numpyro
    from numpyro import distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, SIGMA), obs=y)


def test_numpyro():
    pytest.importorskip("numpyro")
    from jax import random
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(NUTS(schools, target_accept_prob=0.7), num_warmup=300, num_samples=300,
                num_chains=2, chain_method="sequential", progress_bar=False)  # fmt: skip
    mcmc.run(random.PRNGKey(1), y=Y)
    count = int(np.sum(mcmc.get_extra_fields()["diverging"]))
    assert count > 0
    (said,) = divergences_said(lq.from_numpyro(schools, mcmc, model_kwargs={"y": Y}))
    assert f"{count} of 600" in str(said).replace(",", "")
    # Draws alone know nothing of them.
    draws = mcmc.get_samples(group_by_chain=True)
    assert divergences_said(lq.from_numpyro(schools, draws, model_kwargs={"y": Y})) == []
