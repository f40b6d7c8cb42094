"""What PyMC and NumPyro leave in ArviZ's containers, beside the models that made it."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")
    numpyro = pytest.importorskip("numpyro")
    import arviz as az

import numpyro.distributions as dist

import lockquack as lq
from lockquack.errors import UnsupportedError
from tests.ppl.helpers import container, not_compiled

# What the libraries warn of is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::lockquack.errors.LockquackWarning"),
]

SHAPE, N = (2, 60), 10
RNG = np.random.default_rng(9)
Y = RNG.normal(1.0, 1.2, size=N)
DRAWS = {"mu": RNG.normal(1.0, 0.2, size=SHAPE), "sigma": RNG.gamma(200, 0.006, size=SHAPE)}


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


@pytest.fixture
def fitted():
    with pm.Model(coords={"school": [f"s{i}" for i in range(N)]}) as model:
        mu, sigma = pm.Normal("mu", 0, 5), pm.HalfNormal("sigma", 5)
        pm.Normal("score", mu, sigma, observed=Y, dims="school")
    return model, container(DRAWS)


def test_the_log_likelihood_that_pymc_adds_is_a_model(fitted):
    model, idata = fitted
    with pytest.raises(UnsupportedError, match=r"pm\.compute_log_likelihood\(idata, model=model\)"):
        lq.stack({"a": idata})
    with model:
        pm.compute_log_likelihood(idata, progressbar=False)
        observed = pm.sample_prior_predictive(1, random_seed=1)
    whole = lq.from_pymc(model, idata)
    np.testing.assert_allclose(lq.stack({"a": idata}).pointwise[1], whole.loo().logp, atol=1e-9)
    assert whole.observations.name == "score"
    groups = observed["observed_data"]
    data = groups.to_dataset() if hasattr(groups, "to_dataset") else groups
    with_y = container(DRAWS, log_likelihood=dataset(idata, "log_likelihood"), observed_data=data)
    fit = lq.equal({"idata": with_y, "model": whole})
    assert fit.observations.name == "score"
    assert fit.observations.coords["school"].tolist()[2] == "s2"
    with pytest.raises(UnsupportedError, match=r"lq\.from_pymc\(model, idata\)"):
        lq.lock({"idata": with_y})
    with pytest.raises(UnsupportedError, match=r"Model 'b': .*compute_log_likelihood.*from_pymc"):
        lq.stack({"a": idata, "b": container(DRAWS)})


def dataset(idata, group):
    found = idata[group]
    return found.to_dataset() if hasattr(found, "to_dataset") else found


def test_models_and_fits_of_libraries_are_answered_by_their_source(fitted):
    model, _ = fitted
    with pytest.raises(lq.errors.LockquackError, match=r"Model 'a' is a Model\. .*lq\.from_pymc"):
        lq.stack({"a": model})
    mcmc = numpyro.infer.MCMC(numpyro.infer.NUTS(lambda: None), num_warmup=1, num_samples=1)
    with pytest.raises(lq.errors.LockquackError, match=r"Model 'a' is a MCMC.*lq\.from_numpyro"):
        lq.stack({"a": mcmc})


def test_chains_of_a_pymc_model_can_be_evaluated(fitted):
    chains = lq.split_chains(lq.from_pymc(*fitted))
    for c, model in enumerate(chains.values()):
        exact = lq.from_family(
            "normal", y=Y, mu=DRAWS["mu"][c : c + 1], sigma=DRAWS["sigma"][c : c + 1]
        )
        assert model.source.can.evaluate
        np.testing.assert_allclose(model.loo().logp, exact.loo().logp)
        lq.check(model).require()
        np.testing.assert_allclose(
            lq.equal({"one": model}, scores="in-sample").predict().quantile(0.3),
            exact_quantile(exact),
            rtol=1e-6,
        )


def exact_quantile(exact):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lq.equal({"one": exact}, scores="in-sample").predict().quantile(0.3)


def test_what_numpyro_leaves(fitted):
    def program(y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        sigma = numpyro.sample("sigma", dist.HalfNormal(5))
        with numpyro.plate("school", N):
            numpyro.sample("score", dist.Normal(mu, sigma), obs=y)

    model = lq.from_numpyro(program, DRAWS, model_kwargs={"y": Y})
    assert model.observations.name == "score"
    both = lq.equal({"numpyro": model, "pymc": lq.from_pymc(*fitted)})
    np.testing.assert_allclose(both.pointwise[1], both.pointwise[2], atol=1e-6)
    elpd = az.loo(both_tree(model), pointwise=True)
    np.testing.assert_allclose(lq.from_elpd(elpd).loo().logp, model.loo().logp, atol=0.02)


def both_tree(model):
    tree = model.to_datatree()
    groups = {name: tree[name].to_dataset() for name in ("log_likelihood", "observed_data")}
    return container(DRAWS, **groups)
