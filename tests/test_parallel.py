"""The same answers on threads, on a dask cluster, and on one whose workers die."""

from __future__ import annotations

import os
import resource
import signal
import sys
import types
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import cloudpickle
import dask
import dask.array as da
import distributed
import numpy as np
import pandas as pd
import pytest

import lockquack as lq
from lockquack.errors import LockquackError, NonFiniteError, ParameterError, ParetoWarning
from lockquack.fitting.sums import QuadraticSums
from lockquack.methods import summing
from lockquack.models.source import Source
from lockquack.parallel import mapping as parallel
from lockquack.parallel.cluster import active_client, cluster, compute_in_order
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.threads import in_dask_worker, linear_algebra, n_threads
from lockquack.solvers.multistart import multistart
from tests.helpers import lock

# Workers cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

N, SHAPE = 3000, (4, 50)


@pytest.fixture(scope="module")
def client():
    """Two processes of one thread each."""
    with cluster(workers=2) as client:
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(N, 2))
    return X, X.sum(axis=1) + rng.normal(size=N)


def regressions(data, n=N):
    X, y = data
    rng = np.random.default_rng(12)

    def model(columns):
        coef = 1.0 + rng.normal(0.0, 0.05, size=(*SHAPE, columns))
        mu = lq.linear_predictor(X[:n, :columns], coef)
        return lq.from_family("normal", y=y[:n], mu=mu, sigma=rng.uniform(1.0, 1.2, size=SHAPE))

    return {"one": model(1), "two": model(2)}


def locally(monkeypatch, function, threads):
    """Call a function as if there were no cluster, on so many threads."""
    with monkeypatch.context() as patch:
        patch.setattr(parallel, "active_client", lambda: None)
        patch.setenv("LOCKQUACK_NUM_THREADS", str(threads))
        return function()


def assert_identical(got, expected):
    np.testing.assert_array_equal(got.weights, expected.weights)
    np.testing.assert_array_equal(got.pointwise, expected.pointwise)
    np.testing.assert_array_equal(got.mcse, expected.mcse)


def in_chunks(model, chunks, change=lambda part, array: array):
    """Hold a model's draws as dask arrays."""
    everything = slice(0, model.observations.n)
    derivatives = [
        model.source.derivatives(c, slice(0, model.n_draws), everything)
        for c in range(model.n_chains)
    ]
    arrays = {
        "logp": model.source.all_logp(everything),
        "grad": np.stack([grad[..., 0] for grad, _ in derivatives]),
        "curv": np.stack([curv[..., 0] for _, curv in derivatives]),
    }
    lazy = {part: change(part, da.from_array(each, chunks)) for part, each in arrays.items()}
    return lq.from_arrays(y=model.observations.values[:, 0], **lazy)


def die_once(flag, chunk):
    """Kill the process that is first to do this."""
    if chunk.size:
        try:
            Path(flag).touch(exist_ok=False)
        except FileExistsError:
            return chunk
        os.kill(os.getpid(), signal.SIGKILL)
    return chunk


@dataclass(frozen=True, eq=False, repr=False)
class Mortal(Source):
    """A source that kills the first process that reads far enough."""

    source: Source
    flag: str

    def logp(self, chain, draws, obs):
        return self.source.logp(chain, draws, obs)

    def derivatives(self, chain, draws, obs):
        if chain == 2 and obs.start > 1000:
            die_once(self.flag, np.zeros(1))
        return self.source.derivatives(chain, draws, obs)


# Where work is done


def blas_threads():
    return [each["num_threads"] for each in linear_algebra().select(user_api="blas").info()]


def test_searches_do_not_wake_the_threads_of_linear_algebra():
    seen = []

    def bowl(z):
        seen.extend(blas_threads())
        return float(z @ z), 2 * z

    with linear_algebra().limit(limits=2, user_api="blas"):
        multistart(bowl, np.eye(3), scale=1.0)
        assert set(blas_threads()) == {2}
    assert set(seen) == {1}


def test_groups_are_worked_on_in_order_wherever(client, data, monkeypatch):
    models = [model.source for model in regressions(data).values()]
    groups = [slice(start, min(start + 70, N)) for start in range(0, N, 70)]

    def work(models, obs, name):
        return name, [float(model.logp(0, slice(0, 3), obs).sum()) for model in models]

    def done():
        return list(map_observations(work, models, groups, range(len(groups))))

    expected = [work(models, obs, i) for i, obs in enumerate(groups)]
    assert done() == expected
    assert locally(monkeypatch, done, 1) == expected
    assert locally(monkeypatch, done, 3) == expected


def test_a_cluster_gets_few_tasks_and_only_what_they_need(client, data, monkeypatch):
    sent = []
    submit = client.submit

    def watched(function, *given, **options):
        sent.append(len(cloudpickle.dumps(given)))
        return submit(function, *given, **options)

    monkeypatch.setattr(client, "submit", watched)
    model = regressions(data)["two"]
    model.collapse()
    assert len(sent) <= 2 * parallel._width(client)
    # Two covariates, the outcome and the offset of each observation once, and the draws with
    # every task: not the draws × observations.
    assert sum(sent) < 1.5 * (8 * 4 * N + len(sent) * 8 * 3 * 200) + len(sent) * 10_000
    assert sum(sent) < 8 * N * 200 / 4


def test_arrays_in_memory_are_never_sent(client, data, monkeypatch):
    model = lq.from_datatree(regressions(data, 300)["one"].to_datatree())
    monkeypatch.setattr(client, "submit", None)
    monkeypatch.setattr(client, "compute", None)
    model.collapse()
    model.loo()


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
def test_workers_do_not_ask_for_new_memory_with_every_tile(client, data):
    model = regressions(data)["two"]
    lazy = in_chunks(model, (*SHAPE, 500))
    for each in (model, lazy):
        each.collapse()  # what every worker needs to begin with
        before = client.run(new_pages)
        for _ in range(5):
            replace(each).collapse()
        after = client.run(new_pages)
        got = 4096 * sum(after[worker] - before[worker] for worker in after)
        assert got < 5 * 8 * N * model.source.n_samples / 2  # half of one of the arrays


def new_pages():
    """Pages of memory that this process has been given."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_a_model_that_cannot_be_cut_is_sent_once(client, data, monkeypatch):
    whole = []
    submit = client.submit

    def watched(function, *given, **options):
        whole.append(function is parallel._itself)
        return submit(function, *given, **options)

    monkeypatch.setattr(client, "submit", watched)
    model = regressions(data)["one"]
    # The flag exists: nobody dies.
    source = Mortal(model.observations, *SHAPE, model.likelihood, model.source, __file__)
    uncut = lq.Model(source)
    np.testing.assert_array_equal(uncut.collapse().jet.grad, model.collapse().jet.grad)
    assert sum(whole) == 1


def test_errors_on_workers_are_those_of_this_process(client, data):
    model = regressions(data)["one"]
    coef = model.source.parameters["mu"].coef.copy()
    coef[3, 4, 0] = 1e200
    spoilt = replace(model.source.parameters["mu"], coef=coef)
    parameters = {**model.source.parameters, "mu": spoilt}
    bad = lq.Model(replace(model.source, parameters=parameters))
    with pytest.raises(ParameterError, match="'mu' of family 'normal' must be at most"):
        bad.collapse()


def test_there_is_a_client_only_if_one_is_active(client):
    assert active_client() is client
    assert client.submit(lambda: active_client() is None).result()
    assert client.submit(n_threads).result() == 1


def test_a_cluster_is_an_address_or_a_number_of_workers():
    with cluster() as nothing:
        assert nothing is None
    with pytest.raises(ParameterError, match="not both"), cluster("tcp://localhost:1", 2):
        pass
    with pytest.raises(ParameterError, match="at least one worker; got 0"), cluster(workers=0):
        pass
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "100ms"}),
        pytest.raises(LockquackError, match="No dask scheduler answers at tcp://localhost:1"),
        cluster("tcp://localhost:1"),
    ):
        pass


def test_an_existing_cluster_is_joined_and_left_alone(client, data, monkeypatch):
    address = client.scheduler.address
    with cluster(address) as joined:
        assert joined is not client
        assert active_client() is joined
        fit = lock(regressions(data, 500))
    assert client.status == "running"
    assert_identical(fit, locally(monkeypatch, lambda: lock(regressions(data, 500)), 2))


# The same answers


def stack(models):
    """Stack without the warning that this is less reliable than locking."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ParetoWarning)
        return lq.stack(models)


def test_weights_and_scores_are_the_same_with_any_number_of_workers(client, data, monkeypatch):
    for method in (lock, stack):
        one, two = (
            locally(monkeypatch, partial(method, regressions(data, 1200)), threads)
            for threads in (1, 2)
        )
        assert_identical(two, one)
        assert_identical(method(regressions(data, 1200)), one)


def test_densities_and_draws_are_the_same_with_any_number_of_workers(client, data, monkeypatch):
    monkeypatch.setattr("lockquack.models.source._OBS_AT_ONCE", 10)

    def answers():
        fit = lock(regressions(data, 24))
        draws = fit.sample(3, random_seed=5)["posterior_predictive"]["y"].values[0]
        moments = [fit.predict().mean(), fit.predict().var(), fit.predict().mode()]
        densities = [fit.logpdf(), fit.predict().log_norm(), *fit.logpdf(np.zeros((2, 24)))]
        return np.stack([*moments, *densities, *draws, fit.pit(), *fit.interval(0.8, kind="hdi")])

    expected = locally(monkeypatch, answers, 1)
    np.testing.assert_array_equal(locally(monkeypatch, answers, 2), expected)
    np.testing.assert_array_equal(answers(), expected)
    # Very many observations: nodes are not kept.
    monkeypatch.setattr("lockquack.prediction.distribution._MOST_AT_ONCE", 23)
    np.testing.assert_array_equal(locally(monkeypatch, answers, 2), expected)
    np.testing.assert_array_equal(answers(), expected)


def test_coverage_is_the_same_with_any_number_of_workers(client, data, monkeypatch):
    monkeypatch.setattr("lockquack.models.source._OBS_AT_ONCE", 10)
    fit = lock(regressions(data, 24))
    cover = partial(fit.coverage, [0.5, 0.9], loo=False)
    one, two = (locally(monkeypatch, cover, threads) for threads in (1, 2))
    pd.testing.assert_frame_equal(two, one, check_exact=True)
    pd.testing.assert_frame_equal(cover(), one, check_exact=True)


def test_replicates_are_the_same_with_any_number_of_workers(client, data, monkeypatch):
    monkeypatch.setattr("lockquack.combination.uncertainty._NUMBERS_AT_ONCE", 1000)
    fit = lock(regressions(data, 300))
    draw = partial(fit.bootstrap, 40, random_seed=3)
    np.testing.assert_array_equal(draw(), locally(monkeypatch, draw, 2))


def test_folds_are_the_same_with_any_number_of_workers(client, data, monkeypatch):
    methods = ["lock", "lock by log", "quack", "stack", "pseudo-BMA+"]
    compare = partial(lq.compare, regressions(data, 60), methods, cv=5)
    one, two = (locally(monkeypatch, compare, threads) for threads in (1, 2))
    there = compare()
    pd.testing.assert_frame_equal(two, one, check_exact=True)
    pd.testing.assert_frame_equal(there, one, check_exact=True)


def test_a_fold_is_a_task_and_the_problem_is_sent_once(client, data, monkeypatch):
    sent = []
    submit = client.submit

    def watched(function, *given, **options):
        sent.append((function, len(cloudpickle.dumps(given))))
        return submit(function, *given, **options)

    monkeypatch.setattr(client, "submit", watched)
    models = regressions(data, 60)
    lq.compare(models, ["quack"], cv=5)
    assert [function for function, _ in sent] == [parallel._itself] + 5 * [parallel._do]
    whole, *folds = (size for _, size in sent)
    assert sum(folds) < whole / 4
    # Weights that are found in less time than it takes to send the problem.
    sent.clear()
    lq.compare(models, ["lock", "stack", "pseudo-BMA+", "select"], cv=5)
    assert not sent


def test_vector_draws_are_the_same_with_any_number_of_workers(client, monkeypatch):
    rng = np.random.default_rng(14)
    y, mu = rng.normal(size=(9, 2)), rng.normal(0.0, 0.1, size=(2, 30, 2))
    models = {
        name: lq.from_family("mv_normal", y=y, mu=mu + shift, cov=np.eye(2))
        for name, shift in (("left", -0.3), ("right", 0.3))
    }

    def draws():
        return lock(models).sample(20, random_seed=6)["posterior_predictive"]["y"].values

    one, two = (locally(monkeypatch, draws, threads) for threads in (1, 2))
    np.testing.assert_array_equal(two, one)
    np.testing.assert_array_equal(draws(), one)


def test_counts_are_the_same_with_any_number_of_workers(client, monkeypatch):
    rng = np.random.default_rng(15)
    y = rng.poisson(3.0, size=300).astype(float)
    mu = rng.gamma(300.0, 0.01, size=(2, 40))
    models = {
        name: lq.from_family("poisson", y=y, mu=mu * factor)
        for name, factor in (("low", 0.9), ("high", 1.2))
    }

    def weights():
        by_log = lq.combine(models, lq.Locking(), lq.LogScore())
        return [
            fit.weights.values
            for fit in (by_log, lq.combine(models, lq.Locking(), lq.PairwiseScore()))
        ]

    for first, second in zip(weights(), locally(monkeypatch, weights, 1), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("chunks", [(4, 50, 500), (1, 20, 900)])
def test_chunks_on_a_cluster(client, data, monkeypatch, chunks):
    models = regressions(data, 1600)
    lazy = {name: in_chunks(model, chunks) for name, model in models.items()}
    for method in (lock, stack):
        got, expected = method(lazy), locally(monkeypatch, partial(method, models), 1)
        np.testing.assert_allclose(got.weights, expected.weights, rtol=1e-12)
        np.testing.assert_allclose(got.pointwise, expected.pointwise, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(got.mcse, expected.mcse, rtol=1e-12)


def test_arrays_that_live_on_a_cluster(client, data, monkeypatch):
    model = regressions(data, 400)["two"]
    there = in_chunks(model, (2, 25, 100), lambda part, array: array.persist())
    expected = locally(monkeypatch, lambda: replace(model).collapse(), 1)
    np.testing.assert_allclose(there.collapse().jet.curv, expected.jet.curv, rtol=1e-12)


def test_files_are_read_by_the_workers(client, data, tmp_path):
    model = regressions(data, 100)["one"]
    for suffix in (".zarr", ".nc"):
        model.save(tmp_path / f"a{suffix}")
        stored = lq.from_datatree(tmp_path / f"a{suffix}")
        assert "Chunked" in repr(stored.source)
        np.testing.assert_allclose(stored.collapse().jet.curv, model.collapse().jet.curv)


def test_a_store_is_written_by_the_workers(client, data, tmp_path, monkeypatch):
    model = regressions(data, 900)["two"]
    monkeypatch.setattr("lockquack.models.containers._CHUNK", 8 * 200 * 128)
    model.to_zarr(tmp_path / "a.zarr")
    lazy = lq.from_datatree(tmp_path / "a.zarr", lazy=True)
    expected = locally(monkeypatch, lambda: replace(model).collapse("in-sample"), 1)
    np.testing.assert_allclose(lazy.collapse("in-sample").jet.logp, expected.jet.logp, rtol=1e-12)


# Workers that die, or are small


def test_a_worker_that_dies_does_not_change_the_answer(client, data, tmp_path, monkeypatch):
    model = regressions(data)["two"]
    expected = locally(monkeypatch, lambda: replace(model).collapse(), 1)
    flag = tmp_path / "died"
    source = Mortal(model.observations, *SHAPE, model.likelihood, model.source, str(flag))
    mortal = lq.Model(source)
    np.testing.assert_array_equal(mortal.collapse().jet.curv, expected.jet.curv)
    np.testing.assert_array_equal(mortal.collapse().effect, expected.effect)
    assert flag.exists()


def test_a_worker_that_dies_while_it_reads_chunks(client, data, tmp_path, monkeypatch):
    model = regressions(data, 1000)["two"]
    expected = locally(monkeypatch, lambda: replace(model).collapse(), 1)
    flag = tmp_path / "died"

    def deadly(part, array):
        kill = partial(die_once, str(flag))
        return array.map_blocks(kill, meta=np.empty((0, 0, 0))) if part == "curv" else array

    lazy = in_chunks(model, (1, 25, 100), deadly)
    np.testing.assert_allclose(lazy.collapse().jet.curv, expected.jet.curv, rtol=1e-12)
    assert flag.exists()


@pytest.mark.parametrize("chunks", [(1, 25, 100), (-1, -1, 70)])
def test_chunks_are_summed_where_they_are_read(client, data, tmp_path, monkeypatch, chunks):
    models = regressions(data, 500)
    expected = locally(monkeypatch, lambda: lq.running_lock(models), 1)
    flag, kinds = tmp_path / "died", []

    def deadly(part, array):
        kill = partial(die_once, str(flag))
        return array.map_blocks(kill, meta=np.empty((0, 0, 0))) if part == "curv" else array

    def watched(parts):
        for found in compute_in_order(parts):
            kinds.append(type(found))
            yield found

    monkeypatch.setattr(summing, "compute_in_order", watched)
    # Chunks of another size are cut as those of the first model are.
    lazy = {"one": in_chunks(models["one"], chunks), "two": in_chunks(models["two"], 250, deadly)}
    fit = lq.running_lock(lazy)
    assert set(kinds) == {QuadraticSums}
    assert flag.exists()
    np.testing.assert_allclose(fit.weights, expected.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fit.to_dataframe(), expected.to_dataframe(), rtol=1e-9)


def test_what_is_no_number_in_a_chunk_is_named_when_summed(data):
    models = regressions(data, 300)

    def spoiled(part, array):
        return da.where(da.arange(300) == 123, np.nan, array) if part == "curv" else array

    lazy = {"one": in_chunks(models["one"], 100), "two": in_chunks(models["two"], 100, spoiled)}
    with pytest.raises(NonFiniteError, match="123"):
        lq.running_lock(lazy)


class Formula:
    """An array of deviations y − μ that is computed as it is read."""

    dtype, ndim = np.dtype(np.float64), 3

    def __init__(self, y, mu):
        self.y, self.mu = y, mu
        self.shape = (*mu.shape, *y.shape)

    def __getitem__(self, region):
        chains, draws, obs = region
        return self.mu[chains, draws, None] - self.y[obs]


def test_draws_of_many_times_a_workers_memory():
    rng = np.random.default_rng(13)
    y, mu = rng.normal(size=64_000), rng.normal(size=(4, 500))
    deviations = da.from_array(Formula(y, mu), (4, 500, 1000), asarray=False, fancy=False)
    curv = da.full_like(deviations, -1.0)
    limit = 480 * 2**20  # of which a third are libraries, the compiler's among them
    assert deviations.nbytes + curv.nbytes > 4 * limit
    model = lq.from_arrays(logp=deviations, grad=deviations, curv=curv, y=y)
    # Without spilling and waiting: what does not fit would end the worker.
    config = {
        f"distributed.worker.memory.{remedy}": False for remedy in ("target", "spill", "pause")
    }
    with (
        dask.config.set(config),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        ) as small,
        distributed.Client(small),
    ):
        jet = model.collapse().jet
    np.testing.assert_allclose(jet.grad[:, 0], mu.mean() - y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jet.curv[:, 0], mu.var() - 1.0, rtol=1e-9)


def test_dask_that_another_thread_is_importing_just_now(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", types.ModuleType("distributed"))
    assert not in_dask_worker()
    assert active_client() is None
