"""What is written is read again: in memory, by dask, in files, by pickle, in a shell."""

from __future__ import annotations

import copy
import io
import pickle
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

import lockquack as lq
from lockquack import cli
from lockquack.errors import LockquackError
from tests.fuzz.pairs import CONVEX, OTHERS, fit_or_none
from tests.fuzz.worlds import COUNTS, worlds
from tests.helpers import shown

fuzzed = pytest.mark.fuzzed
seeds = st.integers(0, 2**32 - 1)
convex = st.sampled_from(CONVEX)
suffixes = st.sampled_from([".nc", ".zarr"])


def same_fit(found, expected, rtol=1e-12):
    np.testing.assert_allclose(found.weights, expected.weights, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(found.pointwise, expected.pointwise, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(found.mcse, expected.mcse, rtol=1e-9, atol=1e-12)


@fuzzed(2)
@given(world=worlds(n=(2, 6)), pair=st.sampled_from([*CONVEX, *CONVEX, *OTHERS]), suffix=suffixes)
def test_fits_are_read_as_they_were_written(world, pair, suffix):
    fit = fit_or_none(world.models(), *pair)
    assume(fit is not None)
    with tempfile.TemporaryDirectory() as folder:
        fit.save(f"{folder}/fit{suffix}")
        again = lq.load(f"{folder}/fit{suffix}")
    assert again.models is None
    assert repr(again.operator) == repr(fit.operator)
    assert repr(again.rule) == repr(fit.rule)
    assert [str(remark) for remark in again.remarks] == [str(remark) for remark in fit.remarks]
    np.testing.assert_array_equal(again.solution.x, fit.solution.x)
    same_fit(again, fit, rtol=0)
    if pair in CONVEX:  # the others take seconds to bootstrap
        pd.testing.assert_frame_equal(again.to_dataframe(), fit.to_dataframe())
        assert shown(again) == shown(fit)


@fuzzed(4)
@given(world=worlds(), pair=convex, way=st.sampled_from(["pickle", "copy", "deepcopy"]))
def test_copies_are_the_same(world, pair, way):
    def copied(thing):
        if way == "pickle":
            return pickle.loads(pickle.dumps(thing))
        return copy.copy(thing) if way == "copy" else copy.deepcopy(thing)

    models = world.models()
    fit = fit_or_none(models, *pair)
    assume(fit is not None)
    same_fit(copied(fit), fit)
    same_fit(fit_or_none(copied(models), *pair), fit)


@fuzzed(2)
@given(world=worlds(models=(1, 2), n=(2, 6)), pair=convex, suffix=suffixes, lazy=st.booleans())
def test_models_are_read_as_they_were_written(world, pair, suffix, lazy):
    models = world.models()
    with tempfile.TemporaryDirectory() as folder:
        read = {}
        for k, (name, model) in enumerate(models.items()):
            path = Path(folder, f"{k}{suffix}")
            model.save(path)
            read[name] = lq.from_datatree(path, lazy=lazy)
            assert read[name].likelihood.discrete == model.likelihood.discrete
            assert read[name].likelihood.edges == model.likelihood.edges
        one, other = fit_or_none(models, *pair), fit_or_none(read, *pair)
        # Densities in files are known at the observed outcomes only.
        assume(one is not None and other is not None)
        same_fit(other, one, rtol=1e-9)


@fuzzed(3)
@given(world=worlds(models=(1, 2), n=(2, 8)), pair=convex, seed=seeds, labelled=st.booleans())
def test_chunks_mean_nothing(world, pair, seed, labelled):
    rng = np.random.default_rng(seed)

    def chunked(array):
        cut = da.from_array(array, tuple(int(rng.integers(1, size + 1)) for size in array.shape))
        if not labelled:
            return cut
        return xr.DataArray(cut, dims=["chain", "draw", "obs_id", "component"][: array.ndim])

    one, other = (fit_or_none(world.from_arrays(way), *pair) for way in (np.asarray, chunked))
    assert (one is None) == (other is None)
    assume(one is not None)
    same_fit(other, one, rtol=1e-9)


@fuzzed(4)
@given(world=worlds(), pair=convex, seed=st.integers(0, 5))
def test_the_same_seed_gives_the_same_answer(world, pair, seed):
    fits = []
    for threads in ("1", "3"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOCKQUACK_NUM_THREADS", threads)
            fit = fit_or_none(world.models(), *pair, random_seed=seed)
            fits.append(None if fit is None else (fit.solution.x, fit.to_dataframe()))
    assert (fits[0] is None) == (fits[1] is None)
    assume(fits[0] is not None)
    np.testing.assert_array_equal(fits[0][0], fits[1][0])
    pd.testing.assert_frame_equal(fits[0][1], fits[1][1], check_exact=True)


# Files that other programs wrote, at the command line


def run(*arguments):
    """Run a command; return its status and what it said. A fault of ours would say so."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = cli.main([str(argument) for argument in arguments])
        except SystemExit as left:
            status = left.code
    assert "unexpected" not in err.getvalue(), err.getvalue()
    assert "Traceback" not in err.getvalue(), err.getvalue()
    return status, out.getvalue(), err.getvalue()


def tree_of(world, name):
    """A posterior as ArviZ holds it, without what only this library writes."""
    given = world.arrays[name]
    dims = ("chain", "draw", "y_dim_0")
    return {
        "log_likelihood": xr.Dataset({"y": (dims, given["logp"])}),
        "observed_data": xr.Dataset({"y": ("y_dim_0", world.y)}),
        "posterior": xr.Dataset(
            {
                key: (("chain", "draw", *(f"{key}_dim_{i}" for i in range(value.ndim - 2))), value)
                for key, value in world.recipes[name].given().items()
            }
        ),
    }


SPOILED = ("nothing", "extra variables", "no outcomes", "no densities", "no posterior", "no chain",
           "NaN", "short", "empty", "text", "cut off", "strings", "attributes")  # fmt: skip


def spoil(groups, how, rng):
    logp, y = groups["log_likelihood"]["y"], groups["observed_data"]["y"]
    match how:
        case "extra variables":
            groups["log_likelihood"]["z"] = logp.isel(y_dim_0=0, drop=True)
            groups["prior"] = xr.Dataset({"mu": ("draw", rng.normal(size=3))})
        case "no outcomes":
            del groups["observed_data"]
        case "no densities":
            del groups["log_likelihood"]
        case "no posterior":
            del groups["posterior"]
        case "no chain":
            groups["log_likelihood"] = groups["log_likelihood"].isel(chain=0, drop=True)
        case "NaN":
            groups["log_likelihood"]["y"] = logp.where(logp != logp.max())
        case "short":
            groups["observed_data"] = xr.Dataset({"y": ("y_dim_1", y.values[:-1])})
        case "empty":
            groups["log_likelihood"] = xr.Dataset()
        case "strings":
            groups["observed_data"]["y"] = ("y_dim_0", y.values.astype(str).astype(object))
        case "attributes":
            groups["log_likelihood"].attrs = {"lockquack": "?", "likelihood": "{}"}
    return groups


@fuzzed(2)
@given(
    world=worlds(["line", "positive", COUNTS], models=(2, 2), n=(2, 6)),
    how=st.sampled_from(SPOILED),
    command=st.sampled_from(["weights", "compare", "check"]),
    operator=st.sampled_from(["linear", "locking"]),
    seed=seeds,
)
def test_netcdf_files_in_any_state(world, how, command, operator, seed):
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for k, name in enumerate(world.names):
            groups = tree_of(world, name)
            groups = spoil(groups, how, rng) if k else groups
            paths.append(Path(folder, f"model{k}.nc"))
            xr.DataTree.from_dict(groups).to_netcdf(paths[-1], engine="h5netcdf")
        if how == "text":
            paths[1].write_text("lp__,y\n1,2\n")
        if how == "cut off":
            paths[1].write_bytes(paths[1].read_bytes()[:500])
        extra = ["--operator", operator] if command == "weights" else []
        status, out, err = run(command, *paths, *extra, "--no-progress")
    assert status in (0, 1, 2, 3), (status, err)
    assert out or err.startswith("lockquack"), (out, err)
    if how in ("nothing", "no posterior") and command == "weights" and operator == "linear":
        fit = attempt(lambda: lq.stack(world.from_arrays(y=world.y)))
        assert (status in (0, 3)) == (fit is not None), err


def attempt(make):
    try:
        return make()
    except LockquackError:
        return None


def csv_of(world, name, order, rng):
    """Draws as CmdStan and posterior write them, columns in some order."""
    given = world.arrays[name]["logp"]
    chains = [
        pd.DataFrame({f"log_lik.{i + 1}": given[c, :, i] for i in range(world.n)} | {"lp__": 0.0})
        for c in range(len(given))
    ]
    return [chain[[chain.columns[i] for i in order]] for chain in chains]


@fuzzed(2)
@given(
    world=worlds(["line", COUNTS], models=(2, 2), n=(2, 6)),
    seed=seeds,
    spoilt=st.integers(0, 6),
)
def test_csv_files_with_columns_in_any_order(world, seed, spoilt):
    """Chains of other columns are refused; the same columns in another order are the same."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame({"y": world.y}).to_csv(f"{folder}/data.csv", index=False)
        files = []
        for k, name in enumerate(world.names):
            home = Path(folder, f"m{k}")
            home.mkdir()
            for c in range(world.shape[0]):
                order = rng.permutation(world.n + 1)
                csv_of(world, name, order, rng)[c].to_csv(home / f"c-{c + 1}.csv", index=False)
            files.append(home)
        damage(files[1], spoilt, rng)
        status, out, err = run(
            "weights", *files, "--y", f"{folder}/data.csv:y", "--operator", "linear", "--csv"
        )
    fit = attempt(lambda: lq.stack(world.from_arrays()))
    if spoilt == 0 and fit is not None:
        assert status in (0, 3), err
        found = pd.read_csv(io.StringIO(out))["weight"].iloc[1:]
        np.testing.assert_allclose(found, fit.weights.values, atol=1e-4)
    else:
        assert status in (0, 1, 2, 3)
        assert out or err.startswith("lockquack"), (out, err)


def damage(home, spoilt, rng):
    first = sorted(home.iterdir())[0]
    table = pd.read_csv(first)
    match spoilt:
        case 1:
            table = table.rename(columns={"log_lik.1": "log_lik.99"})
        case 2:
            table.iloc[0, 0] = np.nan
        case 3:
            table = table.iloc[:0]
        case 4:
            table = table.astype(str) + "x"
        case 5:
            table = pd.concat([table, table], axis=1)
        case 6:
            first.write_bytes(b"\xff\xfe\x00rubbish,\n" * 3)
            return
        case _:
            return
    table.to_csv(first, index=False)
