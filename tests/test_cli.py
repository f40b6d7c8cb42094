"""The command line as people use it: files in, tables and exit statuses out."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.cli import options, paper, sample
from lockquack.cli.commands import NAMES, find_command
from lockquack.draws.blocks import Kind
from lockquack.operators import AVERAGES, OPERATORS
from lockquack.paper import experiments
from lockquack.remarks.solver import StoppedEarly
from lockquack.rules import RULES
from lockquack.sampling.samplers import SAMPLERS
from lockquack.sources.csv import read_draws
from lockquack.sources.formula import parse_formula
from lockquack.transforms import TRANSFORMS
from tests.ppl.test_stan import write_csv

N, CHAINS, DRAWS = 30, 4, 100
FAMILIES = ["--family", "normal=normal", "--family", "student=student_t"]


def posteriors():
    """Two regressions as a sampler leaves them: draws by name, (chain, draw, ...)."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=N)
    y = 1.0 + 0.8 * x + rng.standard_t(4, size=N)
    found = {}
    for name, slope in (("normal", 0.8), ("student", 0.0)):
        alpha, beta = rng.normal([[[1.0]], [[slope]]], 0.2, size=(2, CHAINS, DRAWS))
        sigma = 1.2 + 0.1 * rng.random((CHAINS, DRAWS))
        mu = alpha[..., None] + beta[..., None] * x
        found[name] = {"alpha": alpha, "beta": beta, "sigma": sigma, "mu": mu}
    found["student"]["nu"] = 4.0 + rng.random((CHAINS, DRAWS))
    draws = found["normal"]
    draws["log_lik"] = stats.norm.logpdf(y, draws["mu"], draws["sigma"][..., None])
    draws = found["student"]
    scale, nu = draws["sigma"][..., None], draws["nu"][..., None]
    draws["log_lik"] = stats.t.logpdf(y, nu, draws["mu"], scale)
    return x, y, found


def as_tree(x, y, draws):
    """Hold a posterior as PyMC does: other names of dimensions everywhere."""
    own = {
        name: (("chain", "draw", f"{name}_dim_0")[: array.ndim], array)
        for name, array in draws.items()
        if name != "log_lik"
    }
    log_lik = (("chain", "draw", "y_dim_0"), draws["log_lik"])
    groups = {
        "posterior": xr.Dataset(own),
        "log_likelihood": xr.Dataset({"y": log_lik}),
        "observed_data": xr.Dataset({"y": ("y_dim_0", y)}),
        "constant_data": xr.Dataset({"x": ("x_dim_0", x)}),
    }
    return xr.DataTree.from_dict(groups)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same two models in every kind of file."""
    folder = tmp_path_factory.mktemp("files")
    x, y, found = posteriors()
    pd.DataFrame({"x": x, "y": y}).to_csv(folder / "data.csv")
    stan_data = {"N": N, "X": np.column_stack([np.ones(N), x]).tolist(), "y": y.tolist()}
    (folder / "data.json").write_text(json.dumps(stan_data))
    for name, draws in found.items():
        as_tree(x, y, draws).to_netcdf(folder / f"{name}.nc", engine="h5netcdf")
        (folder / f"stan_{name}").mkdir()
        write_csv(folder / f"stan_{name}", draws)
        from_r(draws).to_csv(folder / f"r_{name}.csv", index=name == "normal")
        matrix = pd.DataFrame(draws["log_lik"].reshape(-1, N))
        matrix.add_prefix("V").to_csv(folder / f"matrix_{name}.csv", index=False)
    as_tree(x, y, found["normal"]).to_zarr(folder / "normal.zarr", zarr_format=2)
    shifted = lq.from_family("normal", y=y + 1, mu=found["normal"]["mu"] + 1, sigma=1.0)
    shifted.save(folder / "shifted.nc")
    return folder


def from_r(draws):
    """Write draws as R's posterior does: log_lik[3], .chain, .iteration, .draw."""
    columns = {}
    for name, array in draws.items():
        if array.ndim == 2:
            columns[name] = array.ravel()
        else:
            for i in reversed(range(array.shape[2])):
                columns[f"{name}[{i + 1}]"] = array[..., i].ravel()
    columns[".chain"] = np.repeat(np.arange(1, CHAINS + 1), DRAWS)
    columns[".iteration"] = np.tile(np.arange(1, DRAWS + 1), CHAINS)
    columns[".draw"] = np.arange(1, CHAINS * DRAWS + 1)
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def models():
    _, y, found = posteriors()
    normal, student = found["normal"], found["student"]
    return {
        "normal": lq.from_family("normal", y=y, mu=normal["mu"], sigma=normal["sigma"]),
        "student": lq.from_family(
            "student_t", y=y, nu=student["nu"], mu=student["mu"], sigma=student["sigma"]
        ),
    }


# Weights.


def weights_of(said):
    return json.loads(said)["weights"]


def assert_same(got, fit):
    assert got == pytest.approx(fit.weights.to_series().to_dict(), abs=1e-9)


def test_weights_are_those_of_the_library(run, models):
    status, said, heard = run("weights", "normal.nc", "student.nc", *FAMILIES, "--json")
    assert (status, heard) == (0, "")
    fit = lq.lock(models)
    assert_same(weights_of(said), fit)
    record = json.loads(said)
    assert record["converged"]
    assert record["table"]["normal"]["score"] == pytest.approx(
        fit.to_dataframe()["score"]["normal"]
    )
    assert record["table"]["[lock]"]["weight"] is None


def test_files_with_log_densities_only_are_stacked(run, models):
    status, said, heard = run("weights", "normal.nc", "student.nc", "--json")
    assert status == 0
    assert "--family" in heard
    assert json.loads(said)["operator"] == "linear"
    assert_same(weights_of(said), lq.stack(models))


def test_counts_are_locked_by_the_log_score(run, folder):
    y = np.random.default_rng(3).poisson(4.0, size=20)
    trees = {}
    for name, mu in (("low", 3.0), ("high", 6.0)):
        trees[name] = mu + 0.1 * np.random.default_rng(4).random((CHAINS, DRAWS))
        groups = {
            "posterior": xr.Dataset({"mu": (("chain", "draw"), trees[name])}),
            "observed_data": xr.Dataset({"y": ("i", y)}),
        }
        xr.DataTree.from_dict(groups).to_netcdf(folder / f"{name}.nc", engine="h5netcdf")
    status, said, heard = run("weights", "low.nc", "high.nc", "--family", "poisson", "--json")
    assert (status, json.loads(said)["operator"]) == (0, "locking")
    assert "by the log score" in heard
    counts = {name: lq.from_family("poisson", y=y, mu=mu) for name, mu in trees.items()}
    assert_same(weights_of(said), lq.lock(counts, rule="log"))


@pytest.mark.parametrize(
    ("arguments", "combine"),
    [
        (["--operator", "linear"], lq.stack),
        (["--operator", "superposition", "--prior", "1.5"], lambda m: lq.quack(m, prior=1.5)),
        (["--rule", "log"], lambda m: lq.lock(m, rule="log")),
        (["--scores", "in-sample"], lambda m: lq.lock(m, scores="in-sample")),
        (["--scale", "3"], lambda m: lq.lock(m, scale=3.0)),
        (["--prior", "2,1"], lambda m: lq.lock(m, prior=[2.0, 1.0])),
        (["--operator", "selection"], lq.select),
    ],
)
def test_options_are_those_of_the_library(run, models, arguments, combine):
    status, said, _ = run("weights", "normal.nc", "student.nc", *FAMILIES, *arguments, "--json")
    assert status == 0
    assert_same(weights_of(said), combine(models))


def test_the_score_of_a_transformed_outcome(run, tmp_path):
    rng = np.random.default_rng(3)
    y = rng.exponential(2.0, size=N)
    draws = 0.5 + 0.05 * rng.random((CHAINS, DRAWS))
    made = {
        "a": lq.from_family("exponential", y=y, lam=draws),
        "b": lq.from_family("lognormal", y=y, mu=draws - 0.5, sigma=1.0),
    }
    for name, model in made.items():
        model.save(tmp_path / f"{name}.nc")
    files = [tmp_path / "a.nc", tmp_path / "b.nc"]
    plain = ("--score-transform", "none")
    status, _, heard = run("weights", *files, *plain)
    assert status == 1
    assert "--score-transform log" in heard
    for by_log in ((), ("--score-transform", "log"), ("--score-transform", "auto")):
        status, said, _ = run("weights", *files, *by_log, "--json", "--quiet")
        assert status == 0
        assert_same(weights_of(said), lq.lock(made, rule=lq.Hyvarinen(transform="log")))
    assert "Hyvärinen score of log y" in run("weights", *files)[1]
    assert "--score-transform log" in re.sub(r"\s+", " ", run("compare", *files, *plain)[1])
    status, said, _ = run("compare", *files, "--methods", "lock,stack", "--json")
    assert status == 0
    assert json.loads(said)["table"]["lock"]["hyvarinen"] is not None


def test_text_csv_and_files(run, tmp_path, models):
    arguments = ["weights", "normal.nc", "student.nc", *FAMILIES]
    table = lq.lock(models).to_dataframe()
    table.loc["[lock]", ["elpd", "elpd_se"]] = np.nan  # a command is asked once
    _, text, _ = run(*arguments)
    assert "use lockquack compare" in text
    assert text.startswith("Locking, fitted by the leave-one-out Hyvärinen score")
    assert f"{table['weight']['normal']:.3f}" in text
    _, csv, _ = run(*arguments, "--csv")
    pd.testing.assert_frame_equal(pd.read_csv(StringIO(csv), index_col="model"), table, rtol=1e-9)
    status, out, heard = run(*arguments, "-o", tmp_path / "w.csv", "--save", tmp_path / "fit.nc")
    assert (status, out) == (0, "")
    assert "w.csv" in heard
    assert (tmp_path / "w.csv").read_text() == csv
    assert_same(lq.load(tmp_path / "fit.nc").weights.to_series().to_dict(), lq.lock(models))


def test_bootstrap_of_as_many_draws_as_asked_for(run, models):
    arguments = ["weights", "normal.nc", "student.nc", *FAMILIES, "--json"]
    _, said, _ = run(*arguments, "--bootstrap", 50, "--seed", 4)
    draws = lq.lock(models).bootstrap(50, random_seed=4).sel(model="normal")
    row = json.loads(said)["table"]["normal"]
    assert row["weight_se"] == pytest.approx(float(draws.std(ddof=1)))
    assert row["weight_95%"] == pytest.approx(float(draws.quantile(0.95)))


# Kinds of files.


@pytest.mark.parametrize(
    "files",
    [
        ["normal=normal.zarr", "student.nc"],
        ["normal=stan_normal", "student=stan_student/*.csv", "--y", "data.json"],
        ["normal=r_normal.csv", "student=r_student.csv", "--y", "data.csv:y"],
    ],
)
def test_draws_in_every_kind_of_file(run, models, files):
    status, said, heard = run("weights", *files, *FAMILIES, "--json")
    assert status == 0, heard
    assert weights_of(said) == pytest.approx(
        lq.lock(models).weights.to_series().to_dict(), abs=1e-9
    )


@pytest.mark.parametrize(
    "files",
    [
        ["normal.nc", "student.nc"],
        ["normal=stan_normal", "student=stan_student", "--y", "data.json"],
        ["normal=r_normal.csv", "student=r_student.csv", "--y", "data.csv:y"],
        ["normal=matrix_normal.csv", "student=matrix_student.csv", "--y", "data.csv:y",
         "--chains", "4"],
    ],
)  # fmt: skip
def test_log_densities_in_every_kind_of_file(run, models, files):
    status, said, heard = run("weights", *files, "--operator", "linear", "--json")
    assert status == 0, heard
    stacked = lq.stack(models)
    assert_same(weights_of(said), stacked)
    mcse = json.loads(said)["table"]["normal"]["mcse"]  # it depends on which draws are a chain
    assert mcse == pytest.approx(float(stacked.mcse[0]))


@pytest.mark.parametrize(
    ("files", "formula"),
    [
        (["normal.nc"], "normal(mu=alpha + beta * x, sigma=sigma)"),
        (["normal.nc"], "normal(mu = -(-alpha) + 2*x*beta/2**1, sigma = exp(log(sigma)))"),
        (["r_normal.csv", "--y", "data.csv:y"], "normal(mu=alpha + x * beta, sigma=sigma)"),
        (["normal=stan_normal", "--y", "data.json"], "normal(mu=mu, sigma=sigma)"),
    ],
)
def test_formulas(run, models, files, formula):
    status, said, heard = run("weights", *files, "--family", formula, "--json")
    assert status == 0, heard
    fit = lq.lock({"normal": models["normal"]})
    table = json.loads(said)["table"]
    assert table["[lock]"]["score"] == pytest.approx(float(fit.pointwise[0].sum()))


def test_formulas_multiply_matrices(models):
    x, _, found = posteriors()
    coef = np.stack([found["normal"]["alpha"], found["normal"]["beta"]], axis=-1)
    variables = {
        "X": xr.DataArray(np.column_stack([np.ones(N), x]), dims=["obs", "covariate"]),
        "b": xr.DataArray(coef, dims=["chain", "draw", "b_dim_0"]),
        "s": xr.DataArray(found["normal"]["sigma"], dims=["chain", "draw"]),
    }
    found_mu = parse_formula("normal(mu=X @ b, sigma=s)").evaluate(variables)["mu"]
    np.testing.assert_allclose(
        found_mu.transpose("chain", "draw", "obs"), found["normal"]["mu"], rtol=1e-12
    )


def test_formulas_do_not_cut_down_what_differs_in_labels():
    a = xr.DataArray(np.zeros(3), dims="obs", coords={"obs": [0, 1, 2]})
    b = xr.DataArray(np.zeros(3), dims="obs", coords={"obs": [1, 2, 3]})
    with pytest.raises(lq.errors.ShapeError, match="a \\+ b"):
        parse_formula("normal(mu=a + b, sigma=1)").evaluate({"a": a, "b": b})


@pytest.mark.parametrize(
    "text",
    ["normal(mu=__import__('os'), sigma=1)", "normal(mu=mu.values, sigma=1)",
     "normal(mu=[x for x in mu], sigma=1)", "normal(mu=mu if mu else 1, sigma=1)"],
)  # fmt: skip
def test_formulas_compute_nothing_else(text):
    with pytest.raises(lq.errors.LockquackError):
        parse_formula(text).evaluate({"mu": xr.DataArray(0.0)})


def test_vector_outcomes(run, tmp_path):
    rng = np.random.default_rng(5)
    y = rng.normal(size=(12, 2))
    draws = {
        "mu": 0.2 * rng.normal(size=(CHAINS, DRAWS, 2)),
        "cov": np.eye(2) * (1.0 + rng.random((CHAINS, DRAWS, 1, 1))),
    }
    flat = draws["cov"].reshape(-1, 4)
    table = {f"mu[{j + 1}]": draws["mu"][..., j].ravel() for j in range(2)}
    table |= {f"cov[{j // 2 + 1},{j % 2 + 1}]": flat[:, j] for j in range(4)}
    pd.DataFrame(table).to_csv(tmp_path / "pair.csv", index=False)
    (tmp_path / "data.json").write_text(json.dumps({"Y": y.tolist()}))
    files = [tmp_path / "pair.csv", "--y", f"{tmp_path / 'data.json'}:Y", "--chains", CHAINS]
    status, said, heard = run("weights", *files, "--family", "mv_normal", "--json")
    assert status == 0, heard
    fit = lq.lock({"pair": lq.from_family("mv_normal", y=y, **draws)})
    score = json.loads(said)["table"]["pair"]["score"]
    assert score == pytest.approx(fit.to_dataframe().loc["pair", "score"])


def test_chains_of_one_stan_program_are_one_model(run, folder):
    files = sorted((folder / "stan_normal").glob("*.csv"))
    common = ["--y", "data.json", "--operator", "linear", "--json"]
    status, said, _ = run("weights", *files, *common)
    assert status == 0
    assert weights_of(said) == {"regression": 1.0}
    status, _, heard = run("weights", *files, *files, *common)
    assert status == 1
    assert "Say which files belong together" in heard


def test_columns_that_merely_look_like_arrays(tmp_path):
    table = pd.DataFrame({"b.2": [1.0, 2.0], "c[1]": [3.0, 4.0], "c[2]": [5.0, 6.0]})
    table.to_csv(tmp_path / "draws.csv", index=False)
    found = read_draws([tmp_path / "draws.csv"])
    assert found["b.2"].shape == (1, 2)
    np.testing.assert_array_equal(found["c"], [[[3.0, 5.0], [4.0, 6.0]]])


# The other commands.


def test_compare(run, models):
    arguments = ["compare", "normal.nc", "student.nc", *FAMILIES, "--methods", "lock,stack", "--cv"]
    status, said, _ = run(*arguments, "3", "--csv")
    assert status == 0
    table = lq.compare(models, ["lock", "stack"], cv=3)
    got = pd.read_csv(StringIO(said), index_col="method")
    np.testing.assert_allclose(got.loc[table.index, "elpd"], table["elpd"])
    _, text, _ = run(*arguments, "3")
    assert re.search(rf"{table.index[0]}\s+{table['elpd'].iloc[0]:.1f}", text)
    _, said, _ = run(*arguments, "3", "--json")
    assert json.loads(said)["table"]["lock"]["verdict"] == table.loc["lock", "verdict"]


def test_compare_says_once_what_is_left_out(run):
    _, said, _ = run("compare", "normal.nc", "student.nc", "--cv", "2")
    assert said.count("Left out") == 2
    assert "--family" in said
    assert "from_family" not in said


def test_sample(run, models, tmp_path):
    arguments = ["sample", "normal.nc", "student.nc", *FAMILIES, "-n", 40, "--seed", 2, "-o"]
    for name in ("d.nc", "d.zarr", "d.csv"):
        status, out, heard = run(*arguments, tmp_path / name)
        assert (status, out) == (0, "")
        assert name in heard
    expected = lq.lock(models, random_seed=2).sample(40, random_seed=2)
    expected = expected["posterior_predictive"]["y"].values
    for name in ("d.nc", "d.zarr"):
        options = {"consolidated": False} if name == "d.zarr" else {"engine": "h5netcdf"}
        with xr.open_datatree(tmp_path / name, **options) as tree:
            (drawn,) = tree["posterior_predictive"].data_vars.values()
            np.testing.assert_allclose(drawn, expected)
    table = pd.read_csv(tmp_path / "d.csv")
    np.testing.assert_allclose(table["y[3]"], expected[0, :, 2])
    assert table[".draw"].tolist() == list(range(1, 41))


def test_report(run, models, tmp_path):
    arguments = ["report", "normal.nc", "student.nc", *FAMILIES, "--no-thorough"]
    status, out, heard = run(*arguments, "--title", "Two & two", "-o", tmp_path / "r.html")
    assert (status, out) == (0, "")
    assert "r.html" in heard
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Two &amp; two" in page
    assert "lockquack report normal.nc student.nc --family normal=normal" in page
    assert f"{float(lq.lock(models).weights[0]):.3f}" in page


def test_check_finds_nothing(run):
    status, said, heard = run("check", "normal.nc", "student.nc", *FAMILIES, "--json")
    assert (status, heard) == (0, "")
    first = json.loads(said)["models"][0]
    assert first["good for"] == "log score, Hyvärinen, evaluate"
    assert (first["chains"], first["draws"], first["observations"]) == (CHAINS, DRAWS, N)
    status, text, _ = run("check", "normal.nc", "student.nc")
    assert status == 0
    assert "they can be combined" in text


def test_check_finds_problems(run, tmp_path):
    x, y, found = posteriors()
    draws = dict(found["normal"])
    draws["log_lik"] = draws["log_lik"].copy()
    draws["log_lik"][0, 5, 2] = np.nan
    as_tree(x, y, draws).to_netcdf(tmp_path / "nan.nc", engine="h5netcdf")
    status, said, _ = run("check", "normal.nc", tmp_path / "nan.nc", "missing.nc")
    assert status == 1
    assert "nan: problem: " in said
    assert "chain 0, draw 5" in said
    assert "There is no file missing.nc" in said
    status, said, _ = run("check", "normal.nc", "shifted.nc", "--json")
    assert status == 1
    assert "shift" in json.loads(said)["together"]


def test_check_makes_remarks(run):
    arguments = ["check", "matrix_normal.csv", "--y", "data.csv:y"]
    status, said, _ = run(*arguments)
    assert status == 0
    assert "remark: Only one chain" in said
    assert run(*arguments, "--strict")[0] == 3


# What can go wrong.

WRONG = [
    (["wieghts", "a.nc"], 2, "Did you mean weights?"),
    (["weights"], 2, "required: FILE"),
    (["weights", "a.nc", "--operater", "x"], 2, "Did you mean --operator? See"),
    (["weights", "a.nc", "--operator", "loking"], 2, "Did you mean locking?"),
    (["weights", "a.nc", "--rule", "hyvarinnen"], 2, "Did you mean hyvarinen?"),
    (["weights", "a.nc", "--scores", "lo"], 2, "Did you mean loo?"),
    (["weights", "a.nc", "--prior", "flat"], 2, "numbers"),
    (["weights", "a.nc", "--bootstrap", "0"], 2, "at least 1"),
    (["weights", "normal.nc", "--family", "norml"], 2, "Did you mean 'normal'?"),
    (["weights", "normal.nc", "--family", "norml=normal"], 2, "Did you mean 'normal'?"),
    (["weights", "normal.nc", "--family", "normal(mu=sgima,sigma=1)"], 2, "'sigma'?"),
    (["compare", "normal.nc", "--methods", "lokc"], 2, "Did you mean 'lock'?"),
    (["weights", "normal.nc", "--family", "normal(mu"], 1, "Write it like"),
    (["weights", "normal.nc", "--family", "normal(mu=mu, sigma=2*sigma)"], 1, "--ignore-log-lik"),
    (["weights", "normal.nc", "--family", "student_t"], 1, "nu=..."),
    (["weights", "a.nc", "b.nc"], 1, "There is no file a.nc"),
    (["weights", "data.csv"], 1, "--y FILE:COLUMN"),
    (["weights", "data.csv", "--y", "data.csv:z"], 2, "Unknown column"),
    (["weights", "data.csv", "--y", "data.csv"], 1, "by --var-name"),
    (["weights", "normal.nc", "normal.zarr"], 1, "NAME=normal.nc"),
    (["weights", "normal.nc", "student.nc", "--operator", "locking"], 1, "--operator linear"),
    (["weights", "normal.nc", "student.nc", "--rule", "hyvarinen"], 1, "likelihood by --family"),
    (["weights", "normal.nc", "student.nc", "--operator", "superposition"], 1, "--family"),
    (["weights", "normal.nc", "student.nc", "--rule", "log"], 1, "; use --operator linear"),
    (["weights", "normal.nc", "--by", "d.csv:g", "--by", "d.csv:x"], 2, "can be given once"),
    (["weights", "normal.nc", "--by", "y.csv:g", "-o", "y.csv"], 1, "y.csv is one of the files"),
    (["compare", "normal.nc", "--case-weights", "y.csv:w", "-o", "y.csv"], 1, "that are read"),
    (["weights", "normal.nc", "--family", "half_cauchy"], 1, "use --score-transform log"),
    (["weights", "normal.nc", "--family", "laplace_"], 1, "log score"),
    (["weights", "normal.nc", "--rule", "pairwise", "--family", "normal"], 1, "Use --rule hyv"),
    (["weights", "normal.nc", "shifted.nc", "--operator", "linear"], 1, "shift"),
    (["weights", "data.json"], 1, "not a NetCDF file"),
    (["weights", "normal.nc", "-o", "nowhere/w.csv"], 1, "There is no folder nowhere"),
    (["sample", "normal.nc", "student.nc", "-o", "d.nc"], 1, "--family normal="),
    (["sample", "normal.nc", "-o", "d.xlsx"], 1, ".zarr or .csv"),
    (["paper", "wieghts"], 2, "Did you mean weights?"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "expected"), WRONG)
def test_one_line_says_what_is_wrong(run, arguments, status, expected):
    got, out, heard = run(*arguments)
    assert (got, out) == (status, "")
    assert expected in heard
    assert heard.count("\n") == 1
    for python in ("from_family", "LogScore(", "Hyvarinen(", "lq.", "='", "adapter"):
        assert python not in heard


def test_traceback_for_developers(run):
    with pytest.raises(FileNotFoundError):
        run("weights", "missing.nc", "--traceback")


def test_faults_of_our_own_are_called_that(run, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("lockquack.cli.sources.read_models", fail)
    status, _, heard = run("weights", "normal.nc")
    assert status == 1
    assert "ZeroDivisionError" in heard
    assert "LOCKQUACK_DEBUG=1" in heard
    monkeypatch.setenv("LOCKQUACK_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run("weights", "normal.nc")


def test_interrupted(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lockquack.cli.sources.read_models", interrupt)
    status, _, heard = run("weights", "normal.nc")
    assert status == 130
    assert "interrupted" in heard


def test_status_of_a_fit_that_did_not_converge(run, monkeypatch, models):
    fit = lq.lock(models)
    doubtful = replace(fit, remarks=(StoppedEarly("no progress", 1e-3, 0.1),))
    monkeypatch.setattr("lockquack.cli.fitting.combine", lambda *_, **__: doubtful)
    status, said, _ = run("weights", "normal.nc", "student.nc", *FAMILIES)
    assert status == 3
    assert "Note: The solver stopped early (no progress): " in said


def test_notes_go_where_they_belong(run):
    arguments = ["weights", "a=normal.nc", "b=normal.nc", "--operator", "linear"]
    status, said, heard = run(*arguments)
    assert (status, heard) == (0, "")
    assert "cannot be distinguished" in said
    _, said, heard = run(*arguments, "--csv")
    assert "cannot be distinguished" not in said
    assert heard.startswith("lockquack: note: ")
    assert run(*arguments, "--csv", "--quiet")[2] == ""
    assert run(*arguments, "--strict")[0] == 3


# The demonstration and the paper.


def test_demo(run, monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("lockquack.demo.main", seen.append)
    assert run("demo", "--output", tmp_path / "people.png")[0] == 0
    assert seen == [tmp_path / "people.png"]


def test_paper_knows_what_there_is(run):
    assert tuple(experiments.EXPERIMENTS) == paper.EXPERIMENTS
    assert tuple(experiments.FORMATS) == paper.FORMATS
    assert "gif" in run("paper", "--format", "gif")[2]
    assert "at least 1" in run("paper", "--workers", "0")[2]
    assert run("paper", "demo", "--seed", "-1")[0] == 2


def test_what_is_not_installed(run, monkeypatch):
    monkeypatch.setattr("lockquack.cli.requiring.find_spec", lambda name: None)
    status, _, heard = run("paper")
    assert status == 1
    assert "pip install 'lockquack[paper]'" in heard


# Help.


def test_help_has_an_example_for_each_command(run):
    status, said, _ = run("--help")
    assert status == 0
    for name in NAMES:
        assert f"  {name} " in said
        status, shown, _ = run(name, "--help")
        assert status == 0
        assert f"$ lockquack {name}" in shown
    assert run() == (2, said, "")
    assert run("--version")[1] == f"lockquack {lq.__version__}\n"


def test_examples_in_help_and_docs_are_understood():
    examples = [line for name in NAMES for line in find_command(name).examples]
    for page in ("README.md", "docs/howto/command-line.md"):
        text = (Path(__file__).parents[1] / page).read_text().replace("\\\n", "")
        examples += re.findall(r"^\$ (lockquack .*)$", text, re.MULTILINE)
    assert len(examples) > 20
    for example in examples:
        program, name, *rest = shlex.split(re.split(r" [|>] ", example)[0], comments=True)
        assert program == "lockquack"
        find_command(name).parser().read(rest)


def test_names_in_help_are_those_that_there_are():
    assert set(options.OPERATORS) == {*OPERATORS, *AVERAGES}
    assert set(options.RULES) == set(RULES)
    # Files do not say whether they are of predictions one step ahead.
    assert get_args(Kind) == (*options.SCORES, "prequential")
    assert set(options.TRANSFORMS) == set(TRANSFORMS)
    assert set(sample.METHODS) == {"auto", "inverse-cdf", *SAMPLERS}


def test_help_imports_nothing_heavy():
    script = (
        "import sys; before = set(sys.modules); from lockquack.cli import main; main(['--help']); "
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = done.stderr.split()
    heavy = [name for name in loaded if name.partition(".")[0] in ("numpy", "scipy", "xarray")]
    assert heavy == []
    assert len(loaded) < 80  # argparse and what it needs


# Real processes and terminals.


def start(arguments, folder, **options):
    command = [sys.executable, "-m", "lockquack", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "TERM": "xterm"}
    return subprocess.Popen(command, cwd=folder, env=environment, **options)


def test_a_pipe_gets_plain_text(folder, models):
    process = start(
        ["weights", "normal.nc", "student.nc", *FAMILIES],
        folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, heard = process.communicate()
    assert (process.returncode, heard) == (0, "")
    assert "\x1b" not in out
    assert f"{float(lq.lock(models).weights[0]):.3f}" in out


def test_a_terminal_gets_a_rich_table(folder, models):
    pytest.importorskip("rich")
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = start(
        ["weights", "normal.nc", "student.nc", *FAMILIES],
        folder, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "\x1b[1m" in text
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    row = next(line for line in lines if line.startswith("normal"))
    assert row.split()[1] == f"{float(lq.lock(models).weights[0]):.3f}"
    assert max(map(len, lines)) <= 80
