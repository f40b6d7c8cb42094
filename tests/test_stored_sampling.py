"""Draws from mixtures of models with stored predictive draws, against their distributions."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack import cli
from lockquack.errors import ParetoWarning, UnsupportedError

N, SHAPE = 8, (2, 300)


def container(logp, drawn, y, dims=("obs",)):
    both = ("chain", "draw")
    return xr.DataTree.from_dict(
        {
            "log_likelihood": xr.Dataset({"size": ((*both, "obs"), logp)}),
            "posterior_predictive": xr.Dataset({"size": ((*both, *dims), drawn)}),
            "observed_data": xr.Dataset({"size": (dims, y)}),
        }
    )


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(2)
    y = rng.normal(0.0, 1.5, size=N)
    trees, families = {}, {}
    for name, shift, sigma in (("left", -1.0, 1.2), ("right", 1.2, 1.3)):
        mu = shift + 0.25 * rng.normal(size=SHAPE)
        logp = stats.norm.logpdf(y, mu[..., None], sigma)
        trees[name] = container(logp, rng.normal(mu[..., None], sigma, size=logp.shape), y)
        families[name] = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    return trees, families


def probabilities(fit, loo, at):
    """Distribution function of the stored mixture, which other tests compare with ArviZ."""
    return fit.predict(loo=loo).cdf(at).values


@pytest.mark.parametrize("loo", [False, True])
def test_draws_follow_the_mixture_of_the_stored_ones(given, loo):
    fit, n = lq.equal(given[0]), 6000
    tree = fit.predict(loo=loo).sample(n, random_seed=1)
    drawn = tree["posterior_predictive"]["size"]
    assert dict(drawn.sizes) == {"chain": 1, "draw": n, "obs": N}
    assert tree["posterior_predictive"].attrs["sampling_method"] == "draws of the models"
    assert tree["posterior_predictive"].attrs["leave_one_out"] == int(loo)
    np.testing.assert_array_equal(tree["observed_data"]["size"], fit.observations.values[:, 0])
    for at in (-2.0, -1.0, 0.0, 1.0, 2.0):
        expected = probabilities(fit, loo, at)
        error = 4.5 * np.sqrt(expected * (1 - expected) / n) + 1e-9
        assert (np.abs((drawn[0] <= at).mean("draw") - expected) <= error).all()
    stored = np.concatenate(
        [t["posterior_predictive/size"].values.reshape(-1, N) for t in given[0].values()]
    )
    assert all(np.isin(drawn.values[0, :, i], stored[:, i]).all() for i in range(N))
    # In no order, and the same for the same seed.
    assert abs(np.corrcoef(drawn.values[0, :-1, 0], drawn.values[0, 1:, 0])[0, 1]) < 0.06
    again = fit.predict(loo=loo).sample(n, random_seed=1)
    np.testing.assert_array_equal(again["posterior_predictive"]["size"], drawn)


@pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning")
def test_weights_and_leave_one_out_matter(given):
    fit = lq.equal(given[0])
    inside, left_out = (
        fit.predict(loo=loo).sample(20000, random_seed=3)["posterior_predictive"]["size"]
        for loo in (False, True)
    )
    exact = lq.equal(given[1])
    for drawn, loo in ((inside, False), (left_out, True)):
        mean = exact.predict(loo=loo).mean()
        np.testing.assert_allclose(drawn.mean(("chain", "draw")), mean, atol=0.12)
    chosen = lq.select(given[0])
    best = str(chosen.weights.idxmax().item())
    drawn = chosen.sample(500, random_seed=1)["posterior_predictive"]["size"].values[0]
    own = given[0][best]["posterior_predictive/size"].values.reshape(-1, N)
    assert all(np.isin(drawn[:, i], own[:, i]).all() for i in range(N))


def test_models_that_can_be_evaluated_may_be_among_them(given):
    mixed = {"left": given[0]["left"], "right": given[1]["right"]}
    drawn = lq.equal(mixed).sample(8000, random_seed=5)["posterior_predictive"]["size"]
    exact = lq.equal(given[1])
    mean, sd = exact.predict().mean(), np.sqrt(exact.predict().var())
    np.testing.assert_allclose(drawn.mean(("chain", "draw")), mean, atol=0.12)
    np.testing.assert_allclose(drawn.std(("chain", "draw")), sd, atol=0.12)


def test_counts_stay_whole_and_vectors_stay_together(rng):
    y, rate = rng.poisson(3.0, size=N), rng.gamma(300, 0.01, size=(*SHAPE, 1))
    counts = container(stats.poisson.logpmf(y, rate), rng.poisson(rate, size=(*SHAPE, N)), y)
    other = lq.from_family("poisson", y=y, mu=rate[..., 0] + 0.5)
    for models in ({"a": counts}, {"a": counts, "b": other}):
        drawn = lq.equal(models).sample(50, random_seed=1)
        assert drawn["posterior_predictive"]["size"].dtype == np.int64
    pairs = rng.normal(size=(N, 2))
    first = rng.normal(size=(*SHAPE, N, 1))
    drawn = np.concatenate([first, first + 100], axis=-1)  # one tells the other
    tree = container(np.zeros((*SHAPE, N)) - np.arange(N), drawn, pairs, ("obs", "side"))
    fit = lq.equal({"a": tree}, scores="in-sample")
    got = fit.sample(40, random_seed=1)["posterior_predictive"]["size"]
    assert got.dims == ("chain", "draw", "obs", "side")
    np.testing.assert_allclose(got.isel(side=1) - got.isel(side=0), 100.0)


@pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning")
def test_what_cannot_be_drawn_is_said(given):
    bare = {k: lq.from_datatree(t.filter(lambda n: n.name != "posterior_predictive"))
            for k, t in given[0].items()}  # fmt: skip
    with pytest.raises(UnsupportedError, match="only, and it has no predictive draws.*posterior_"):
        lq.equal(bare).sample(10)
    with pytest.raises(UnsupportedError, match="cannot be sampled"):
        lq.equal(given[0]).sample(10, method="rejection")
    lockable = {}
    for name, model in given[1].items():
        groups = {k: v.to_dataset() for k, v in model.to_datatree("size").children.items()}
        drawn = given[0][name]["posterior_predictive"].to_dataset().rename(obs="obs_id")
        lockable[name] = xr.DataTree.from_dict({**groups, "posterior_predictive": drawn})
    with pytest.raises(UnsupportedError, match=r"cannot be normalised.*mixtures only"):
        lq.lock(lockable).sample(10)


def test_high_pareto_k_is_said(rng):
    y = np.array([0.0, 0.1, 9.0])
    mu = rng.normal(size=SHAPE)
    logp = stats.norm.logpdf(y, mu[..., None])
    tree = container(logp, rng.normal(mu[..., None], 1.0, size=logp.shape), y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = lq.equal({"a": tree}, scores="in-sample")
    with pytest.warns(ParetoWarning, match="Draws of the combination are unreliable there too"):
        fit.predict(loo=True).sample(10, random_seed=1)


@pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning")
def test_from_the_shell(given, tmp_path, capsys):
    for name, tree in given[0].items():
        tree.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    files = [str(tmp_path / f"{name}.nc") for name in given[0]]
    options = ["--operator", "linear", "-n", "60", "--seed", "4", "-o"]
    for loo in (False, True):
        path = tmp_path / f"draws{loo}.csv"
        assert cli.main(["sample", *files, *options, str(path), *(["--loo"] if loo else [])]) == 0
        expected = lq.stack(given[0], random_seed=4).sample(60, loo=loo, random_seed=4)
        table = pd.read_csv(path)
        np.testing.assert_allclose(
            table["size[3]"], expected["posterior_predictive"]["size"].values[0, :, 2]
        )
    capsys.readouterr()
    assert cli.main(["sample", *files, *options, str(tmp_path / "d.nc")]) == 0
    status = cli.main(["sample", *files, "--operator", "locking", "-o", str(tmp_path / "e.nc")])
    assert status == 1
    assert "Mix by --operator linear" in capsys.readouterr().err
