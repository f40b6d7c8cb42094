"""Pools whose weights differ between observations: each is predicted as by its own weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lockquack as lq
from lockquack.operators.pool import Pool
from lockquack.prediction import distribution
from lockquack.prediction.prediction import Prediction
from tests.helpers import lock

N = 7
OPERATORS = [lq.Locking(), lq.Linear(), lq.Superposition(phases=0), lq.Hoelder(-1)]


def scalar(rng):
    y, mu = rng.normal(size=N), 0.2 * rng.normal(size=(2, 40))
    return {
        "left": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=1.0),
        "right": lq.from_family("student_t", y=y, nu=5.0, mu=mu + 1.0, sigma=1.3),
    }


def counts(rng):
    y = rng.poisson(3.0, size=N)
    return {
        "low": lq.from_family("poisson", y=y, mu=2.0 + 0.1 * rng.random((2, 40))),
        "high": lq.from_family("poisson", y=y, mu=5.0 + 0.1 * rng.random((2, 40))),
    }


def vectors(rng):
    y, mu = rng.normal(size=(N, 2)), 0.1 * rng.normal(size=(2, 40, 1))
    return {
        "a": lq.from_family("mv_normal", y=y, mu=mu + np.array([0.5, 0.0]), cov=np.eye(2)),
        "b": lq.from_family("mv_normal", y=y, mu=mu - np.array([0.5, 0.0]), cov=2 * np.eye(2)),
    }


def prediction(models, operator, x, **options):
    observations = next(iter(models.values())).observations
    return Prediction(models, Pool(operator, x, len(models)), observations, "varied", **options)


def weights(rng):
    first = rng.random(N)
    return np.stack([first, 1 - first])


ASKED = {
    "logpdf": lambda p: p.logpdf(),
    "logpdf at points": lambda p: p.logpdf([[0.0], [2.0]]).T,
    "log_norm": lambda p: p.log_norm(),
    "cdf": lambda p: p.cdf(),
    "quantile": lambda p: p.quantile(0.8),
    "hdi": lambda p: p.interval(0.7, kind="hdi").T,
    "mean": lambda p: p.mean(),
    "var": lambda p: p.var(),
    "mode": lambda p: p.mode(),
    "pit": lambda p: p.pit(random_seed=None),
}


@pytest.mark.parametrize("loo", [False, True])
@pytest.mark.parametrize("make", [scalar, counts])
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_each_observation_is_predicted_by_its_own_weights(rng, operator, make, loo):
    models, x = make(rng), weights(rng)
    varied = prediction(models, operator, x, loo=loo)
    alone = [prediction(models, operator, x[:, i], loo=loo) for i in range(N)]
    for name, ask in ASKED.items():
        expected = np.stack([ask(each).values[i] for i, each in enumerate(alone)])
        # The top of a density is flat, and so is the length of the shortest interval.
        atol = 1e-6 if name in ("mode", "hdi") else 1e-8
        np.testing.assert_allclose(ask(varied).values, expected, rtol=1e-7, atol=atol, err_msg=name)


def test_groups_of_observations_keep_their_weights(rng, monkeypatch):
    models, x = scalar(rng), weights(rng)
    whole = prediction(models, lq.Locking(), x)
    expected = whole.logpdf(), whole.quantile(0.3), whole.mean()
    monkeypatch.setattr("lockquack.models.source._OBS_AT_ONCE", 3)
    monkeypatch.setattr(distribution, "_MOST_AT_ONCE", 2)
    parts = prediction(models, lq.Locking(), x)
    assert isinstance(parts._evaluation.pooled, distribution.StreamedDistribution)
    for got, want in zip(
        (parts.logpdf(), parts.quantile(0.3), parts.mean()), expected, strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-8)


def test_draws_of_vectors_are_by_their_own_weights(rng):
    models = vectors(rng)
    x = np.stack([np.linspace(0.05, 0.95, N), np.linspace(0.95, 0.05, N)])
    varied = prediction(models, lq.Locking(), x)
    # Precisions add up with their weights: 1 and 1/2.
    exact = 0.5 * (x[0] - 0.5 * x[1]) / (x[0] + 0.5 * x[1])
    draws = varied.sample(4000, random_seed=1)["posterior_predictive"]["y"]
    np.testing.assert_allclose(draws.mean(("chain", "draw"))[:, 0], exact, atol=0.12)
    np.testing.assert_allclose(varied.mean()[:, 0], exact, atol=0.12)
    np.testing.assert_allclose(varied.mode()[:, 0], exact, atol=0.05)
    alone = [prediction(models, lq.Locking(), x[:, i]).logpdf()[i] for i in range(N)]
    np.testing.assert_allclose(varied.logpdf(), alone, atol=0.05)


def test_calibration_and_pictures(rng):
    models, x = scalar(rng), weights(rng)
    varied = prediction(models, lq.Linear(), x, loo=True)
    table = varied.coverage([0.5])
    assert table.index.tolist() == ["[varied]", "left", "right"]
    ax = varied.plot_density(2)
    drawn = [text.get_text() for text in ax.get_legend().get_texts()]
    assert drawn == ["left", "right", "varied", "observed"]


def test_mixtures_of_stored_draws(rng):
    trees = {}
    for name, model in scalar(rng).items():
        tree = model.to_datatree()
        shape = {"chain": 2, "draw": 40, "obs_id": N}
        outcomes = rng.normal(0.0 if name == "left" else 50.0, 1.0, size=tuple(shape.values()))
        tree["posterior_predictive"] = as_tree(outcomes, shape)
        trees[name] = lq.from_datatree(tree)
    x = weights(rng)
    share = prediction(trees, lq.Linear(), x).cdf(np.full(N, 25.0))
    np.testing.assert_allclose(share, x[0], atol=1e-12)


def as_tree(outcomes, shape):
    import xarray as xr

    return xr.DataTree(xr.Dataset({"y": (list(shape), outcomes)}))


def test_a_fit_with_weights_for_each_observation_is_saved_and_shown(rng, tmp_path):
    models, x = scalar(rng), weights(rng)
    constant = lock(models)
    varied = replace(constant, solution=replace(constant.solution, x=x))
    assert varied.weights.dims == ("model", "obs_id")
    np.testing.assert_array_equal(varied.weights, x)
    scores = varied.pointwise.sel(model="[lock]")
    jets = varied.objective.jets
    slope = (x[..., None] * jets.grad).sum(axis=0)
    bend = (x[..., None] * jets.curv).sum(axis=0)
    np.testing.assert_allclose(scores, -(2 * bend + slope**2)[:, 0], rtol=1e-12)
    np.testing.assert_allclose(varied.to_dataframe()["weight"][1:], x.mean(axis=1))
    for name in ("fit.nc", "fit.zarr"):
        varied.save(tmp_path / name)
        again = lq.load(tmp_path / name)
        np.testing.assert_array_equal(again.weights, x)
        np.testing.assert_allclose(again.pointwise, varied.pointwise)
    np.testing.assert_allclose(
        varied.predict().logpdf(), prediction(models, lq.Locking(), x).logpdf(), rtol=1e-9
    )
