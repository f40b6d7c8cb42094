"""Models whose draws are not in memory: dask arrays and files give what arrays in memory do."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, field
from threading import Event

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask import delayed

import lockquack as lq
from lockquack.errors import LockquackWarning, NonFiniteError, ParameterError, ShapeError
from lockquack.models import containers
from lockquack.models.source import Source
from lockquack.parallel.cluster import compute_in_order
from lockquack.sources import chunked, datatree
from tests.helpers import lock

LAYOUTS = {
    "all draws of some observations": (4, 60, 100),
    "some draws of some observations": (1, 25, 70),
    "some draws of all observations": (3, 7, 250),
    "a draw at a time": (1, 1, 250),
}
N, SHAPE = 250, (4, 60)


@pytest.fixture(scope="module")
def models():
    """Two regressions, by their draws."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=N)
    slopes = np.linspace(-1.0, 1.0, N)
    mu = rng.normal(0.0, 0.3, size=(*SHAPE, 1)) * slopes
    return {
        "flat": lq.from_family("normal", y=y, mu=mu, sigma=1.2),
        "steep": lq.from_family("student_t", y=y, nu=5.0, mu=mu + 0.5 * slopes, sigma=0.8),
    }


def draws_of(model):
    tree = model.to_datatree()
    parts = {"logp": "log_likelihood", "grad": "log_likelihood_grad", "curv": "log_likelihood_curv"}
    return {part: tree[group]["y"].values for part, group in parts.items()}


def in_memory(models):
    return {
        name: lq.from_arrays(y=model.observations.values[:, 0], **draws_of(model))
        for name, model in models.items()
    }


def in_chunks(models, chunks):
    return {
        name: lq.from_arrays(
            y=model.observations.values[:, 0],
            **{part: da.from_array(array, chunks) for part, array in draws_of(model).items()},
        )
        for name, model in models.items()
    }


def assert_same(got, expected):
    np.testing.assert_allclose(got.weights, expected.weights, rtol=1e-12)
    np.testing.assert_allclose(got.pointwise, expected.pointwise, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.mcse, expected.mcse, rtol=1e-12)


@dataclass
class Counted:
    """An array that remembers what was read of it."""

    values: np.ndarray
    read: list = field(default_factory=list)

    @property
    def shape(self):
        return self.values.shape

    @property
    def ndim(self):
        return self.values.ndim

    @property
    def dtype(self):
        return self.values.dtype

    def __getitem__(self, region):
        self.read.append(tuple((s.start, s.stop) for s in region))
        return self.values[region]


# Equal to arrays in memory


@pytest.mark.parametrize("chunks", LAYOUTS.values(), ids=LAYOUTS)
def test_weights_scores_and_errors_do_not_depend_on_chunks(models, chunks):
    expected, got = in_memory(models), in_chunks(models, chunks)
    assert_same(lock(got), lock(expected))
    assert_same(lock(got, scores="in-sample"), lock(expected, scores="in-sample"))


@pytest.mark.parametrize("chunks", list(LAYOUTS.values())[:2], ids=list(LAYOUTS)[:2])
def test_log_scores_do_not_depend_on_chunks(models, chunks):
    assert_same(lq.stack(in_chunks(models, chunks)), lq.stack(in_memory(models)))


def test_merging_goes_through_a_tree_and_in_strips(models, monkeypatch):
    monkeypatch.setattr(chunked, "_FAN_IN", 3)
    monkeypatch.setattr(chunked, "_TILE_OBS", 20)
    monkeypatch.setattr(chunked, "_NUMBERS_AT_ONCE", 1)
    got = in_chunks(models, (1, 7, 130))
    assert_same(lock(got, scores="in-sample"), lock(in_memory(models), scores="in-sample"))


def test_effective_sample_sizes_do_not_depend_on_chunks(models):
    got, expected = (each["flat"].ess() for each in (in_chunks(models, (1, 25, 70)), models))
    for name in ("grad", "curv"):
        np.testing.assert_allclose(got[name].values, expected[name].values, rtol=1e-10)


def test_weighted_scores_do_not_depend_on_chunks(models):
    positive = {
        name: lq.from_family("gamma", y=np.linspace(0.1, 3.0, 40), alpha=shape, beta=2.0)
        for name, shape in (
            ("a", np.full((4, 30), 1.2)),
            ("b", np.geomspace(1, 3, 120).reshape(4, 30)),
        )
    }
    rule = lq.Hyvarinen(transform="log")
    fits = []
    for model in (in_memory(positive), in_chunks(positive, (2, 10, 15))):
        with pytest.warns(LockquackWarning):
            fits.append(lq.combine(model, lq.Locking(), rule))
    assert_same(*fits)


def test_vector_outcomes_on_a_grid():
    rng = np.random.default_rng(5)
    y = xr.DataArray(rng.normal(size=(6, 5, 3)), dims=("school", "year", "component"))
    model = lq.from_family("mv_normal", y=y, mu=rng.normal(size=(2, 40, 3)), cov=np.eye(3))
    tree = model.to_datatree()
    lazy = lq.from_datatree(tree.chunk({"draw": 17, "school": 2, "component": 2}))
    for kind in ("loo", "in-sample"):
        got, expected = lazy.collapse(kind), model.collapse(kind)
        np.testing.assert_allclose(got.jet.curv, expected.jet.curv, rtol=1e-11)
        np.testing.assert_allclose(got.mcse(np.ones(3)), expected.mcse(np.ones(3)), rtol=1e-11)
    xr.testing.assert_identical(lazy.to_datatree().compute(), tree)


def test_log_densities_alone_are_enough_to_stack(models):
    logp = draws_of(models["flat"])["logp"]
    y = models["flat"].observations.values[:, 0]
    lazy = lq.from_arrays(logp=da.from_array(logp, (2, 30, 50)), y=y)
    assert not lazy.source.can.differentiate
    np.testing.assert_allclose(lazy.loo().logp, models["flat"].loo().logp, rtol=1e-12)
    np.testing.assert_array_equal(lazy.source.logp(1, slice(3, 9), slice(4, 6)), logp[1, 3:9, 4:6])


# Nothing is read before it is needed, and then once


def counted_model(model, chunks):
    arrays = {part: Counted(array) for part, array in draws_of(model).items()}
    lazy = {
        part: da.from_array(array, chunks, asarray=False, fancy=False, meta=array.values[:0])
        for part, array in arrays.items()
    }
    return arrays, lq.from_arrays(y=model.observations.values[:, 0], **lazy)


def test_a_pass_reads_each_chunk_once_and_only_what_it_needs(models):
    arrays, model = counted_model(models["flat"], (2, 20, 50))
    assert not any(array.read for array in arrays.values())
    model.collapse("loo")
    model.collapse("loo")
    chunks = {
        ((c, c + 2), (d, d + 20), (o, o + 50))
        for c in range(0, 4, 2)
        for d in range(0, 60, 20)
        for o in range(0, N, 50)
    }
    for part in ("grad", "curv"):
        assert len(arrays[part].read) == len(chunks)
        assert set(arrays[part].read) == chunks
    assert not arrays["logp"].read
    model.loo()
    assert set(arrays["logp"].read) == chunks
    assert len(arrays["logp"].read) == len(chunks)


def test_results_come_in_order_while_others_are_computed(monkeypatch):
    monkeypatch.setenv("LOCKQUACK_NUM_THREADS", "2")
    first_is_here = Event()

    def later(first, i):
        assert first_is_here.wait(60)
        return first + i

    first = delayed(int)(0)
    results = compute_in_order([first, *(delayed(later)(first, i) for i in range(1, 30))])
    assert next(results) == 0
    first_is_here.set()
    assert list(results) == list(range(1, 30))
    assert list(compute_in_order([first, first])) == [0, 0]

    def fail(i):
        if i == 5:
            raise RuntimeError("five")
        return i

    parts = [delayed(fail)(i) for i in range(9)]
    with pytest.raises(RuntimeError, match="five"):
        list(compute_in_order(parts))


def counted_tasks(model, monkeypatch):
    graphs = []

    def watched(parts):
        parts = list(parts)
        graphs.append({key for part in parts for key in dict(part.__dask_graph__())})
        return compute_in_order(parts)

    monkeypatch.setattr(chunked, "compute_in_order", watched)
    model.collapse()
    (tasks,) = graphs
    return len(tasks)


def test_a_chunk_with_all_draws_is_one_task(models, monkeypatch):
    _, model = counted_model(models["flat"], (4, 60, 50))
    assert counted_tasks(model, monkeypatch) == 5 + 2  # and the two arrays themselves


def test_tasks_of_chunks_with_some_draws(models, monkeypatch):
    _, model = counted_model(models["flat"], (1, 10, 125))
    # Of 24 chunks each: read and pool, take a strip; then two branches, and merge these.
    assert counted_tasks(model, monkeypatch) == 2 * (24 + 24 + 2 + 1) + 2


def test_what_is_not_finite_is_found_and_located_in_the_pass(models):
    draws = draws_of(models["flat"])
    for part, kind in (("curv", "loo"), ("logp", "in-sample")):
        bad = {name: array.copy() for name, array in draws.items()}
        bad[part][2, 31, 77] = -np.inf
        labels = xr.DataArray(np.zeros(N), dims="day", coords={"day": np.arange(N) + 1000})
        lazy = {
            name: xr.DataArray(da.from_array(array, (1, 20, 50)), dims=("chain", "draw", "day"))
            for name, array in bad.items()
        }
        model = lq.from_arrays(y=labels.copy(data=models["flat"].observations.values[:, 0]), **lazy)
        place = rf"{part} is -inf at chain 2, draw 31, observation 77 \(day=1077\)"
        with pytest.raises(NonFiniteError, match=place):
            model.collapse(kind)
        if part == "logp":
            with pytest.raises(NonFiniteError, match=place):
                model.loo()


def test_shapes_and_types_are_checked_without_reading():
    y = np.zeros(5)
    with pytest.raises(ShapeError, match="to go with y"):
        lq.from_arrays(logp=da.zeros((4, 10, 6)), y=y)
    with pytest.raises(lq.errors.LockquackError, match="not numeric"):
        lq.from_arrays(logp=da.zeros((4, 10, 5), dtype=complex), y=y)


# Files


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_files_left_on_disk_give_what_files_in_memory_do(models, tmp_path, suffix):
    paths = {name: tmp_path / f"{name}{suffix}" for name in models}
    for name, model in models.items():
        model.save(paths[name])
    lazy = {name: lq.from_datatree(path, lazy=True) for name, path in paths.items()}
    held = {name: lq.from_datatree(path) for name, path in paths.items()}
    assert "Chunked" in repr(lazy["flat"].source)
    assert "Array" in repr(held["flat"].source)
    assert_same(lock(lazy), lock(held))
    assert_same(lq.stack(lazy), lq.stack(held))


def test_large_files_are_left_on_disk(models, tmp_path, monkeypatch):
    models["flat"].save(tmp_path / "a.zarr")
    monkeypatch.setattr(datatree, "_LARGE", 3 * 8 * N * 240 - 1)
    assert "Chunked" in repr(lq.from_datatree(tmp_path / "a.zarr").source)
    assert "Array" in repr(lq.from_datatree(tmp_path / "a.zarr", lazy=False).source)
    monkeypatch.setattr(datatree, "_LARGE", 3 * 8 * N * 240 + 100_000)
    assert "Array" in repr(lq.from_datatree(tmp_path / "a.zarr").source)


def test_without_dask_files_are_read_into_memory(models, tmp_path, monkeypatch):
    models["flat"].save(tmp_path / "a.zarr")
    monkeypatch.setattr(datatree, "find_spec", lambda name: None)
    monkeypatch.setattr(datatree, "_LARGE", 0)
    assert "Array" in repr(lq.from_datatree(tmp_path / "a.zarr").source)
    with pytest.raises(ImportError, match=r"lockquack\[dask\]"):
        lq.from_datatree(tmp_path / "a.zarr", lazy=True)


# Writing


def outcomes():
    rng = np.random.default_rng(7)
    years = {"year": [1990, 1995, 2000, 2005, 2010]}
    return {
        "labelled": xr.DataArray(rng.normal(size=5), dims="year", coords=years),
        "grid": xr.DataArray(rng.normal(size=(7, 5)), dims=("school", "year"), coords=years),
        "vector": xr.DataArray(
            rng.normal(size=(9, 2)), dims=("obs", "component"), coords={"component": ["a", "b"]}
        ),
    }


@pytest.mark.parametrize("which", list(outcomes()))
@pytest.mark.parametrize("at_once", [1, 3, 12, 1000])
def test_streaming_writes_what_a_datatree_holds(tmp_path, monkeypatch, which, at_once):
    y = outcomes()[which]
    draws = np.random.default_rng(8).normal(size=(2, 6))
    if which == "vector":
        model = lq.from_family("mv_normal", y=y, mu=draws[..., None] + np.ones(2), cov=np.eye(2))
    else:
        model = lq.from_family("normal", y=y, mu=draws, sigma=1.0)
    monkeypatch.setattr(containers, "_CHUNK", at_once * 8 * 12 * model.observations.d)
    model.to_zarr(tmp_path / "a.zarr")
    with xr.open_datatree(tmp_path / "a.zarr", engine="zarr") as written:
        assert written.attrs.pop("written_by") == "lockquack"
        assert "log_likelihood" in written.attrs.pop("written_parts")
        xr.testing.assert_identical(written.load(), model.to_datatree())


def test_streaming_holds_one_group_at_a_time(tmp_path, monkeypatch):
    sizes = []

    @dataclass(frozen=True, eq=False, repr=False)
    class Watched(Source):
        def logp(self, chain, draws, obs):
            sizes.append(obs.stop - obs.start)
            return np.zeros((draws.stop - draws.start, sizes[-1]))

        def derivatives(self, chain, draws, obs):
            grad = np.zeros((draws.stop - draws.start, obs.stop - obs.start, 1))
            return grad, grad - 1.0

    seen = lq.from_family("normal", y=np.arange(100.0), mu=np.zeros((2, 10)), sigma=1.0)
    model = lq.Model(Watched(seen.observations, 2, 10, seen.likelihood))
    monkeypatch.setattr(containers, "_CHUNK", 8 * 20 * 16)
    model.save(tmp_path / "a.zarr")
    assert max(sizes) == 16
    assert sum(sizes) == 2 * 100
    again = lq.from_datatree(tmp_path / "a.zarr", lazy=True)
    assert again.source.arrays["grad"].numblocks == (1, 1, 1)
    np.testing.assert_allclose(again.collapse().jet.curv, np.full((100, 1), -1.0), rtol=1e-14)


def test_single_precision_halves_the_store_and_keeps_seven_digits(models, tmp_path):
    model = models["flat"]
    for dtype in ("float32", "float64"):
        model.to_zarr(tmp_path / f"{dtype}.zarr", dtype=dtype)
    half, full = (lq.from_datatree(tmp_path / f"{dtype}.zarr") for dtype in ("float32", "float64"))
    assert half.source.grad_draws.dtype == np.float32
    np.testing.assert_allclose(half.collapse().jet.grad, full.collapse().jet.grad, atol=1e-6)
    with pytest.raises(ParameterError, match="float16"):
        model.to_zarr(tmp_path / "x.zarr", dtype="float16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["float32.zarr", "float64.zarr"]


def test_a_store_can_be_written_from_itself(models, tmp_path):
    path = tmp_path / "a.zarr"
    models["flat"].to_zarr(path)
    before = lq.from_datatree(path).collapse().jet
    lq.from_datatree(path, lazy=True).to_zarr(path)
    np.testing.assert_array_equal(lq.from_datatree(path).collapse().jet.grad, before.grad)
    assert [each.name for each in tmp_path.iterdir()] == ["a.zarr"]


# Memory and imports


def test_a_regression_never_exists_as_an_array_of_draws_and_observations():
    rng = np.random.default_rng(2)
    n, shape = 40_000, (4, 100)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)

    def model(columns):
        coef = rng.normal(0.0, 0.01, size=(*shape, columns))
        return lq.from_family(
            "normal", y=y, mu=lq.linear_predictor(X[:, :columns], coef), sigma=1.0
        )

    candidates = {"one": model(1), "two": model(2)}
    lock(
        {
            name: lq.from_arrays(**draws_of(lq.Model(each.source.restrict(slice(0, 9)))), y=y[:9])
            for name, each in candidates.items()
        }
    )
    tracemalloc.start()
    try:
        lock(candidates)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.3 * 8 * n * 400  # one of its three arrays


def test_what_is_held_of_each_observation_and_model():
    rng = np.random.default_rng(4)
    n, K = 100_000, 4
    X, y = rng.normal(size=(n, K)), rng.normal(size=n)
    models = {
        str(k): lq.from_family(
            "normal",
            y=y,
            mu=lq.linear_predictor(X[:, [k]], rng.normal(0.0, 0.1, size=(4, 5, 1))),
            sigma=rng.uniform(0.9, 1.1, size=(4, 5)),
        )
        for k in range(K)
    }
    lock({name: lq.Model(model.source.restrict(slice(0, 9))) for name, model in models.items()})
    tracemalloc.start()
    try:
        fit = lock(models)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fit.weights.sizes["model"] == K
    # Two derivatives with the model, and two with the combination, in its units.
    assert held / (n * K) < 33
    assert peak / (n * K) < 55


def test_work_in_memory_does_not_import_distributed():
    # Dask itself is imported by xarray, if it is installed.
    script = """
import sys, numpy as np, lockquack as lq
y, mu = np.arange(9.0), np.random.default_rng(1).normal(4, 1, size=(4, 50))
model = lq.from_family("normal", y=y, mu=mu, sigma=3.0)
lq.from_datatree(model.to_datatree()).collapse()
model.loo()
print("distributed" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]
