"""Clusters that close, workers that are paused or find no room, interrupted commands."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import dask
import distributed
import numpy as np
import pytest

import lockquack as lq
from lockquack.errors import ClusterError
from lockquack.models.source import Source
from lockquack.parallel import cluster
from lockquack.parallel.cluster import _all_are_paused
from lockquack.parallel.mapping import map_observations

# Workers cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def client():
    with cluster(workers=2) as client:
        yield client


def normal(n=600, mu=0.0):
    rng = np.random.default_rng(3)
    draws = mu + 0.05 * rng.normal(size=(4, 50))
    return lq.from_family("normal", y=rng.normal(size=n), mu=draws, sigma=1.0)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True, eq=False, repr=False)
class Slow(Source):
    """A source that says when it is being read, and then takes its time."""

    source: Source
    flag: str

    def logp(self, chain, draws, obs):
        return self.source.logp(chain, draws, obs)

    def derivatives(self, chain, draws, obs):
        Path(self.flag).touch()
        time.sleep(0.3)
        return self.source.derivatives(chain, draws, obs)


@contextmanager
def once_there(path, act):
    """Do something as soon as a file is there."""

    def waiting():
        while not path.exists():
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=waiting)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("what", ["cluster", "client"])
def test_a_cluster_that_closes_in_the_middle(client, tmp_path, what, monkeypatch):
    monkeypatch.setattr("lockquack.models.containers._CHUNK", 8 * 200 * 16)
    model, flag = normal(), tmp_path / "flag"
    slow = lq.Model(Slow(model.observations, 4, 50, model.likelihood, model.source, str(flag)))
    close = client.cluster.close if what == "cluster" else client.close
    before = tmp_path / "model.zarr"
    model.to_zarr(before)
    kept = contents(before)
    with (
        once_there(flag, close),
        pytest.raises(ClusterError, match="closed, or its connection was lost"),
    ):
        slow.to_zarr(before)
    assert contents(before) == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flag", "model.zarr"]


def test_workers_that_stay_paused(monkeypatch):
    """A worker that holds too much memory is given no work; nobody should wait for it for ever."""
    # The module, not the function of that name.
    monkeypatch.setattr(sys.modules[cluster.__module__], "_PATIENCE", 0.2)
    hold = {"distributed.worker.memory.pause": 1e-6, "distributed.worker.memory.terminate": False}
    with (
        dask.config.set(hold),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, memory_limit="4GB", dashboard_address=":0"
        ) as small,
        distributed.Client(small) as client,
    ):
        while not _all_are_paused(client):
            time.sleep(0.05)
        with pytest.raises(ClusterError, match="All workers of the cluster are paused"):
            on_workers(_size)


def test_workers_that_die_at_the_same_task():
    """A few are replaced, then it is said; dask's own limit is three of them."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        cluster(workers=1),
        pytest.raises(ClusterError, match="died at the same task"),
    ):
        on_workers(_die)


def on_workers(work):
    return list(map_observations(work, (normal().source,), [slice(0, 300), slice(300, 600)]))


def _size(sources, obs):
    return sources[0].n_obs


def _die(sources, obs):
    os.kill(os.getpid(), signal.SIGKILL)


def limit(size):
    """Let no file be larger than that, in the process where it is called."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


FULL = """
import sys
from pathlib import Path
import cloudpickle
import lockquack as lq
from lockquack.models import containers
from lockquack.parallel import cluster
from lockquack.parallel.cluster import _all_are_paused
from lockquack.parallel.mapping import map_observations
from tests import test_workers as t

def main():
    cloudpickle.register_pickle_by_value(t)
    containers._CHUNK, folder = 8 * 200 * 64, Path(sys.argv[1])
    with cluster(workers=1) as client:
        model = t.normal()
        fit = lq.lock({"a": model, "b": t.normal(mu=0.5)})
        model.to_zarr(folder / "model.zarr")
        lazy = lq.from_datatree(folder / "model.zarr")
        writers = {
            "fit.nc": fit.save, "fit.zarr": fit.save, "model.nc": model.save,
            "model.zarr": model.to_zarr, "lazy.nc": lazy.save, "lazy.zarr": lazy.to_zarr,
        }
        for name, write in writers.items():
            write(folder / name)
        before = t.contents(folder)
        for name, write in writers.items():
            for size in (0, 3000):
                client.run(t.limit, size)
                t.limit(size)
                try:
                    write(folder / name)
                except OSError as error:
                    assert error.filename == str(folder / name), error
                    print(name, error.strerror)
                client.run(t.limit, t.resource.RLIM_INFINITY)
                t.limit(t.resource.RLIM_INFINITY)
                assert t.contents(folder) == before, name

if __name__ == "__main__":
    main()
"""


def test_a_full_disk_with_workers(tmp_path):
    """What was there stays, the error names the place, and no process dies of it."""
    (tmp_path / "files").mkdir()
    (tmp_path / "full.py").write_text(FULL)
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "full.py", tmp_path / "files"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    names = ("fit.nc", "fit.zarr", "model.nc", "model.zarr", "lazy.nc", "lazy.zarr")
    assert said == [f"{name} File too large" for name in names for _ in range(2)]


#: What workers do before they begin: say that they are at it, and take their time.
PRELOAD = """
import time
from pathlib import Path
from lockquack.sources import chunked

def slow(*chunks, _put=chunked._put_into_box, **more):
    Path({flag!r}).touch()
    time.sleep(600)

chunked._put_into_box = slow
"""


def test_an_interrupted_command_ends_its_workers(tmp_path):
    """Also where they are not interrupted themselves, as by a terminal."""
    flag = tmp_path / "flag"
    for name in ("a", "b"):
        normal().save(tmp_path / f"{name}.nc")
    (tmp_path / "preload.py").write_text(PRELOAD.format(flag=str(flag)))
    before = {path.name for path in tmp_path.iterdir()}
    preload = {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(tmp_path / "preload.py")}
    command = ["weights", "a.nc", "b.nc", "--save", "fit.nc", "--quiet", "--workers", "2"]
    with subprocess.Popen(
        [sys.executable, "-m", "lockquack", *command],
        cwd=tmp_path,
        env={**os.environ, **preload},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell lets what it runs in the background ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        while not flag.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        assert len(in_session(process.pid)) > 2
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 130, said
    assert b"lockquack: interrupted." in said
    assert {path.name for path in tmp_path.iterdir()} == before | {"flag"}
    for _ in range(200):  # what tidies up after workers ends a moment later than its parent
        if not in_session(process.pid):
            break
        time.sleep(0.1)
    assert in_session(process.pid) == []


def in_session(leader):
    """Find the processes of a session that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = path.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        if int(session) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found
