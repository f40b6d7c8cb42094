"""The command line on files of a transformed outcome, and on outcomes that contradict a file."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq

N, SHAPE = 25, (4, 150)


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(8)
    y = rng.lognormal(0.3, 0.7, size=N)
    log = {"mu": 0.3 + 0.1 * rng.normal(size=SHAPE), "sigma": rng.gamma(200, 0.0035, size=SHAPE)}
    gamma = {"alpha": rng.gamma(200, 0.01, size=SHAPE), "beta": rng.gamma(200, 0.006, size=SHAPE)}
    return y, log, gamma


@pytest.fixture(scope="module")
def models(given):
    y, log, gamma = given
    return {
        "log": lq.from_family("lognormal", y=y, **log),
        "gamma": lq.from_family("gamma", y=y, **gamma),
    }


def write(path, draws, logp, y, name):
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({k: (("chain", "draw"), v) for k, v in draws.items()}),
            "log_likelihood": xr.Dataset({name: (("chain", "draw", "obs"), logp)}),
            "observed_data": xr.Dataset({name: ("obs", y)}),
        }
    )
    tree.to_netcdf(path, engine="h5netcdf")


@pytest.fixture(scope="module")
def folder(given, tmp_path_factory):
    """A model of log y and one of y, as files; the outcomes y, right and wrong, as tables."""
    folder = tmp_path_factory.mktemp("files")
    y, log, gamma = given
    z = (np.log(y) - log["mu"][..., None]) / log["sigma"][..., None]
    of_log = stats.norm.logpdf(z) - np.log(log["sigma"])[..., None]
    write(folder / "log.nc", log, of_log, np.log(y), "log_size")
    of_y = stats.gamma.logpdf(y, gamma["alpha"][..., None], scale=1 / gamma["beta"][..., None])
    write(folder / "gamma.nc", gamma, of_y, y, "size")
    pd.DataFrame({"size": y, "other": y[::-1]}).to_csv(folder / "data.csv", index=False)
    pd.DataFrame({"size": y[1:]}).to_csv(folder / "fewer.csv", index=False)
    columns = {f"log_lik[{i + 1}]": of_log[..., i].ravel() for i in range(N)}
    columns |= {name: draws.ravel() for name, draws in log.items()}
    pd.DataFrame(columns).to_csv(folder / "log.csv", index=False)
    return folder


def weights(run, *arguments):
    status, said, heard = run("weights", *arguments, "--json")
    assert status == 0, heard
    return json.loads(said)["weights"]


STACKED = ("--operator", "linear")


@pytest.mark.parametrize(
    "files",
    [
        ("log.nc", "gamma.nc", "--transform", "log=log"),
        ("log.nc", "gamma.nc", "--transform", "log=log", "--y", "data.csv:size"),
        ("log=log.csv", "gamma.nc", "--transform", "log=log", "--y", "data.csv:size",
         "--chains", "4"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::lockquack.errors.InfluenceWarning")
def test_log_densities_of_log_y_get_the_jacobian(run, models, files):
    expected = lq.stack(models).weights.to_series().to_dict()
    assert weights(run, *files, *STACKED) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    "files",
    [
        ("log.nc", "gamma.nc", "--transform", "log=log"),
        ("log.nc", "gamma.nc", "--transform", "log=log", "--y", "data.csv:size"),
        ("log=log.csv", "gamma.nc", "--transform", "log=log", "--y", "data.csv:size",
         "--chains", "4"),
    ],
)  # fmt: skip
def test_so_do_families_of_log_y(run, models, files):
    families = ("--family", "log=normal", "--family", "gamma=gamma", "--score-transform", "log")
    rule = lq.Hyvarinen(transform="log")
    expected = lq.lock(models, rule=rule).weights.to_series().to_dict()
    assert weights(run, *files, *families) == pytest.approx(expected, abs=1e-8)


def test_one_transform_for_all_files(run, models):
    expected = float(models["log"].loo().logp.sum())
    status, said, heard = run("weights", "log.nc", *STACKED, "--transform", "log", "--json")
    assert status == 0, heard
    assert json.loads(said)["table"]["log"]["score"] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["log.nc", "gamma.nc"], 1, "--transform log"),
        (["gamma.nc", "--y", "data.csv:other"], 1, "differ from those that the container holds"),
        (["gamma.nc", "--y", "data.csv:other", "--family", "gamma"], 1, "The outcomes in --y"),
        (["log.nc", "--y", "data.csv:size"], 1, "--transform if it is a model of a function"),
        (["gamma.nc", "--y", "fewer.csv"], 1, "24 outcomes of 1 component(s) in --y"),
        (["gamma.nc", "--transform", "lgo"], 2, "Did you mean log?"),
        (["gamma.nc", "--transform", "gama=log"], 2, "Did you mean 'gamma'?"),
        (["log.nc", "--transform", "log", "--family", "normal(mu=mu,sigma=sigma,transform=log)"],
         1, "Give one of them"),
    ],
)  # fmt: skip
def test_what_contradicts_is_said_in_a_line(run, arguments, status, expected):
    got, out, heard = run("weights", *arguments, *STACKED)
    assert (got, out) == (status, "")
    assert expected in heard
    assert heard.count("\n") == 1
    assert "lq." not in heard


def test_check_takes_them_too(run):
    status, said, heard = run("check", "log.nc", "gamma.nc", "--transform", "log=log")
    assert status == 0, heard
    assert "they can be combined" in said
    status, said, _ = run("check", "gamma.nc", "--y", "data.csv:other")
    assert status == 1
    assert "differ from those that the container holds" in said
