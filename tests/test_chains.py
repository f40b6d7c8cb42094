"""Chains as models of their own, against models that were made of one chain each."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import UnsupportedError
from lockquack.sources.chains import ChainSource

N, SHAPE = 25, (3, 300)


@pytest.fixture(scope="module")
def given():
    """Three chains in modes of their own, of a regression."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(N, 1))
    y = np.exp(0.4 * x[:, 0] + 0.5 * rng.normal(size=N))
    mode = np.array([-0.5, 0.3, 0.8])[:, None]
    alpha = 0.2 * mode + 0.05 * rng.normal(size=SHAPE)
    beta = mode + 0.05 * rng.normal(size=SHAPE)
    return x, y, alpha, beta[..., None]


def regression(given, chains=slice(None)):
    x, y, alpha, beta = given
    mu = lq.linear_predictor(x, beta[chains], intercept=alpha[chains])
    return lq.from_family("normal", y=y, transform="log", mu=mu, sigma=0.6)


def alone(given):
    return {f"chain {c}": regression(given, slice(c, c + 1)) for c in range(SHAPE[0])}


def lazy(model):
    tree = model.to_datatree()
    parts = {
        part: da.from_array(tree[f"log_likelihood{group}/y"].values, (2, 90, 10))
        for part, group in (("logp", ""), ("grad", "_grad"), ("curv", "_curv"))
    }
    return lq.from_arrays(y=model.observations.values[:, 0], **parts)


MAKE = {
    "family": lambda model, path: model,
    "arrays": lambda model, path: lq.from_datatree(model.to_datatree()),
    "container": lambda model, path: model.to_datatree(),
    "dask": lambda model, path: lazy(model),
    "file": lambda model, path: model.save(path) or path,
    "lazy file": lambda model, path: model.save(path) or lq.from_datatree(path, lazy=True),
}


@pytest.mark.parametrize("kind", MAKE)
def test_each_chain_is_a_model_of_that_chain(given, kind, tmp_path):
    whole = MAKE[kind](regression(given), tmp_path / "model.nc")
    chains, expected = lq.split_chains(whole), alone(given)
    assert list(chains) == list(expected)
    for name, model in chains.items():
        assert (model.n_chains, model.n_draws) == (1, SHAPE[1])
        ours, theirs = (
            each.passes.predict("loo", density=True) for each in (model, expected[name])
        )
        for part in ("logp", "grad", "curv"):
            np.testing.assert_allclose(
                getattr(ours.jet, part), getattr(theirs.jet, part), rtol=1e-9, atol=1e-12
            )
        np.testing.assert_allclose(model.loo().pareto_k, expected[name].loo().pareto_k)
    with pytest.warns(lq.errors.MonteCarloWarning, match="Only one chain"):
        known = lq.stack(expected)
    fit = lq.stack(chains)  # that there is one chain each is on purpose
    np.testing.assert_allclose(fit.weights, known.weights, atol=1e-8)
    assert fit.remarks == ()


def test_they_can_do_what_the_whole_model_can(given):
    chains, expected = lq.split_chains(regression(given), name="mode"), alone(given)
    assert list(chains) == ["mode 0", "mode 1", "mode 2"]
    one, other = chains["mode 2"], expected["chain 2"]
    assert one.source.can.evaluate
    assert one.source.can.draw
    assert one.source.data_names() == {"mu", "sigma", "x", "offset"}
    lq.check(one, thorough=True).require()
    rule = lq.Hyvarinen(transform="log")
    fit = lq.lock({"one": one, "zero": chains["mode 0"]}, rule=rule)
    with pytest.warns(lq.errors.MonteCarloWarning, match="Only one chain"):
        known = lq.lock({"one": other, "zero": expected["chain 0"]}, rule=rule)
    np.testing.assert_allclose(fit.logpdf(), known.logpdf(), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        fit.predict(loo=True).quantile(0.2), known.predict(loo=True).quantile(0.2), rtol=1e-6
    )
    y, x = [0.5, 2.0], [[0.0], [1.0]]
    np.testing.assert_allclose(fit.predict(y, x=x).logpdf(), known.predict(y, x=x).logpdf())
    assert fit.predict(x=x).mean().shape == (2,)
    drawn = fit.predict(x=x).sample(2000, method="rejection", random_seed=1)
    expected_mean = known.predict(x=x).mean()
    got = drawn["posterior_predictive"]["y"].mean(("chain", "draw"))
    np.testing.assert_allclose(got, expected_mean, rtol=0.05)


def test_predictive_draws_go_with_their_chain(given, rng):
    _, y, alpha, _ = given
    logp = stats.norm.logpdf(y, alpha[..., None])
    drawn = rng.normal(size=logp.shape)
    dims = ("chain", "draw", "obs")
    tree = xr.DataTree.from_dict(
        {
            "log_likelihood": xr.Dataset({"y": (dims, logp)}),
            "posterior_predictive": xr.Dataset({"y": (dims, drawn)}),
            "observed_data": xr.Dataset({"y": ("obs", y)}),
            "sample_stats": xr.Dataset({"log_marginal_likelihood": ("chain", [-3.0, -2.0, -1.0])}),
        }
    )
    for c, model in enumerate(lq.split_chains(tree).values()):
        assert model.log_marginal_likelihood is None
        pit = lq.equal({"one": model}, scores="in-sample").pit(loo=False)
        np.testing.assert_allclose(pit, (drawn[c] <= y).mean(axis=0))


def test_what_is_known_of_the_whole_is_known_of_a_chain(given):
    source = regression(given).with_weights(np.arange(1.0, N + 1)).source
    chain = ChainSource.of(source, 1)
    assert chain.data_names() == source.data_names()
    assert chain.split(slice(0, N)) is None
    some = chain.restrict(slice(5, 9))
    assert some.case_weights.tolist() == [6.0, 7.0, 8.0, 9.0]
    np.testing.assert_array_equal(some.all_logp(slice(0, 4)), chain.all_logp(slice(5, 9)))
    forecast = lq.from_quantiles(
        [0.25, 0.5, 0.75], np.outer([0.5, 1.0, 2.0], np.ones(N)), y=given[1]
    ).source
    of_it = ChainSource.of(forecast, 0)
    assert of_it.known_where == forecast.known_where
    assert not of_it.is_sample


def test_counts_too(rng):
    y, rate = (
        rng.poisson(4.0, size=N),
        np.array([2.0, 6.0])[:, None] + 0.1 * rng.normal(size=(2, 99)),
    )
    chains = lq.split_chains(lq.from_family("poisson", y=y, mu=rate))
    fit = lq.lock(chains, rule="log")
    np.testing.assert_allclose(fit.weights.sum(), 1.0)
    assert np.isfinite(fit.logpdf()).all()


def test_scores_have_no_chains(given):
    import arviz_stats

    tree = regression(given).to_datatree()
    elpd = arviz_stats.loo(tree, pointwise=True, reff=1.0)
    with pytest.raises(UnsupportedError, match="has no draws, so it has no chains"):
        lq.split_chains(elpd)
