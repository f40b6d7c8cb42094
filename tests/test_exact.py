"""Predictions that are known exactly, and predictions of observations that were held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import special, stats

import lockquack as lq
from lockquack.errors import MonteCarloWarning, ParameterError
from lockquack.models.model import Model

N = 40


@pytest.fixture
def y(rng):
    return rng.normal(0.5, 1.4, size=N)


def exact(y, where):
    """Two closed forms: of numbers, with one mean for each observation, or as arrays."""
    means = {"numbers": (0.0, 1.0), "by observation": (np.linspace(-1, 1, N), np.full(N, 1.0))}
    if where != "arrays":
        a, b = means[where]
        return {
            "a": lq.from_family("normal", y=y, mu=a, sigma=1.0),
            "b": lq.from_family("normal", y=y, mu=b, sigma=2.0),
        }
    models = {}
    for name, mu, sigma in (("a", 0.0, 1.0), ("b", 1.0, 2.0)):
        z = ((y - mu) / sigma)[None, None]
        logp = stats.norm.logpdf(z) - np.log(sigma)
        curv = np.full(z.shape, -1.0 / sigma**2)
        models[name] = lq.from_arrays(logp=logp, grad=-z / sigma, curv=curv, y=y)
    return models


@pytest.mark.parametrize("where", ["numbers", "by observation", "arrays"])
@pytest.mark.parametrize("method", ["stack", "lock", "pseudo_bma", "select", "equal"])
def test_no_method_warns_of_draws(y, where, method):
    """Warnings are errors here."""
    models = exact(y, where)
    fit = getattr(lq, method)(models)
    assert fit.remarks == ()
    np.testing.assert_array_equal(fit.mcse, 0.0)
    again = getattr(lq, method)(models, scores="in-sample")
    np.testing.assert_array_equal(fit.weights, again.weights)


def test_comparing_and_evaluating_do_not_warn_either(y):
    models = exact(y, "numbers")
    table = lq.compare(models, cv=5)
    assert (table["bad_k"] == 0).all()
    assert np.isfinite(table["elpd"]).all()
    fit = lq.lock(models, rule="log")
    np.testing.assert_allclose(fit.pit(loo=True), fit.pit(loo=False))
    assert (
        fit.predict(loo=True).sample(50, random_seed=1)["posterior_predictive"].sizes["draw"] == 50
    )
    assert fit.coverage([0.5]).shape[0] == 4


def test_their_leave_one_out_density_is_the_density(y):
    model = exact(y, "by observation")["b"]
    np.testing.assert_allclose(model.loo().logp, stats.norm.logpdf(y, 1.0, 2.0))
    assert np.isnan(model.loo().pareto_k).all()
    shares = lq.stack(exact(y, "numbers")).weights.values
    logp = np.stack([stats.norm.logpdf(y, 0.0, 1.0), stats.norm.logpdf(y, 1.0, 2.0)])
    grid = np.linspace(0, 1, 20001)
    totals = np.logaddexp(
        np.log(np.maximum(grid, 1e-300))[:, None] + logp[0],
        np.log(np.maximum(1 - grid, 1e-300))[:, None] + logp[1],
    ).sum(axis=1)
    assert abs(shares[0] - grid[totals.argmax()]) < 1e-4


@pytest.mark.filterwarnings("ignore::lockquack.errors.InfluenceWarning")
def test_beside_models_with_draws_only_these_are_warned_of(y, rng):
    drawn = lq.from_family("normal", y=y, mu=rng.normal(size=(1, 400)) / 6, sigma=1.2)
    with pytest.warns(MonteCarloWarning, match=r"Only one chain for 'drawn':"):
        fit = lq.stack({**exact(y, "numbers"), "drawn": drawn})
    assert fit.mcse[0] == 0.0 < fit.mcse[2]
    few = lq.from_family("normal", y=y, mu=rng.normal(size=(2, 2)) / 6, sigma=1.2)
    with pytest.warns(MonteCarloWarning, match=r"Fewer than four draws per chain for 'few':"):
        lq.lock({**exact(y, "numbers"), "few": few})


# Held out


def held_out(model):
    return Model(replace(model.source, held_out=True))


@pytest.fixture
def drawn(y, rng):
    mus = {"a": rng.normal(size=(2, 200)) / 4, "b": 1 + rng.normal(size=(2, 200)) / 4}
    return mus, {
        name: held_out(lq.from_family("normal", y=y, mu=mu, sigma=1.0)) for name, mu in mus.items()
    }


def test_nothing_is_left_out_twice(y, drawn):
    mus, models = drawn
    for name, mu in mus.items():
        expected = special.logsumexp(stats.norm.logpdf(y, mu[..., None]), axis=(0, 1)) - np.log(400)
        np.testing.assert_allclose(models[name].loo().logp, expected)
        for kind in ("loo", "held-out"):
            jet = models[name].passes.predict(kind, density=True).jet
            np.testing.assert_allclose(jet.logp, expected)
    plain = {name: Model(replace(m.source, held_out=False)) for name, m in models.items()}
    for method in (lq.stack, lq.lock):
        fit = method(models)
        assert fit.scores == "held-out"
        np.testing.assert_array_equal(fit.weights, method(plain, scores="held-out").weights)
    with pytest.raises(ParameterError, match="cannot be left out"):
        fit.predict(loo=True)


def test_beside_others_the_scores_are_leave_one_out(drawn):
    _, models = drawn
    plain = Model(replace(models["b"].source, held_out=False))
    fit = lq.stack({"a": models["a"], "b": plain})
    assert fit.scores == "loo"
    rows = fit.pointwise.values[1:]
    np.testing.assert_allclose(rows[0], models["a"].collapse("held-out").jet.logp)
    np.testing.assert_allclose(rows[1], plain.loo().logp)
    own = {"a": models["a"]}
    pit = fit.predict(loo=True).pit()
    share = fit.weights.values
    each = [lq.equal(own).pit(), lq.equal({"b": plain}).pit()]
    np.testing.assert_allclose(pit, share[0] * each[0] + share[1] * each[1], atol=1e-7)


def test_they_have_no_in_sample_scores(drawn):
    for ask in (lq.stack, lq.compare):
        with pytest.raises(ParameterError, match=r"Model 'a' was fitted without.*scores= out"):
            ask(drawn[1], scores="in-sample")


def test_stored_draws_of_them_are_weighted_equally(y, rng):
    drawn = rng.normal(size=(2, 100, N))
    tree = xr.DataTree.from_dict(
        {
            "log_likelihood": xr.Dataset({"y": (("chain", "draw", "obs"), 0 * drawn - 5)}),
            "posterior_predictive": xr.Dataset({"y": (("chain", "draw", "obs"), drawn)}),
            "observed_data": xr.Dataset({"y": ("obs", y)}),
        }
    )
    fit = lq.equal({"a": held_out(lq.from_datatree(tree))})
    assert fit.scores == "held-out"
    np.testing.assert_allclose(fit.pit(), (drawn <= y).mean(axis=(0, 1)))
