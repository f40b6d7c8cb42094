"""Models of a probabilistic programming language on a dask cluster."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import lockquack as lq
from lockquack.parallel import mapping as parallel
from lockquack.parallel.cluster import cluster
from tests.ppl.helpers import not_compiled

# What the libraries warn of is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

N, SHAPE = 2100, (2, 20)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    draws = {"slope": rng.normal(1.0, 0.1, SHAPE), "sigma": rng.uniform(0.9, 1.1, SHAPE)}
    return x, x + rng.normal(size=N), draws


def from_pymc(x, y, draws):
    import pymc as pm

    with pm.Model() as model:
        slope, sigma = pm.Normal("slope"), pm.HalfNormal("sigma")
        pm.Normal("y", slope * x, sigma, observed=y)
    posterior = {name: (("chain", "draw"), values) for name, values in draws.items()}
    return lq.from_pymc(model, xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)}))


def from_numpyro(x, y, draws):
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)

    return lq.from_numpyro(model, draws, model_kwargs={"x": x, "y": y})


@pytest.mark.parametrize(("library", "make"), [("pymc", from_pymc), ("numpyro", from_numpyro)])
def test_a_pass_on_a_cluster_is_that_of_this_process(library, make, data, monkeypatch):
    pytest.importorskip(library)
    plainly = not_compiled() if library == "pymc" else nullcontext()
    with plainly:
        model = make(*data)
        expected = model.collapse("in-sample")
    with cluster(workers=1) as client:
        sent = []
        submit = client.submit
        monkeypatch.setattr(
            client, "submit", lambda f, *a, **k: sent.append(f) or submit(f, *a, **k)
        )
        got = replace(model).collapse("in-sample")
    assert sent.count(parallel._itself) == 1
    assert len(sent) > 2
    np.testing.assert_allclose(got.jet.logp, expected.jet.logp, rtol=1e-12)
    np.testing.assert_allclose(got.jet.curv, expected.jet.curv, rtol=1e-12)
