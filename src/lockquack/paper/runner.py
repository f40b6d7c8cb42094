"""Replications spread over processes, or a cluster; finished ones are kept and not run again."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lockquack import __version__
from lockquack.errors import LockquackError, ParameterError
from lockquack.files.places import write_text
from lockquack.parallel.progress import progress_bar

Rows = list[dict[str, Any]]
Replicate = Callable[[np.random.SeedSequence], Rows]
#: One thread for linear algebra in each process: more would only get into each other's way.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Runner:
    """Where and how replications run.

    Parameters
    ----------
    folder
        Results are kept here, one file per replication, as soon as it is done. A run that was
        interrupted, or that asks for more replications, goes on from there.
    seed
        Replication i depends on this seed, the experiment and i only, not on who runs it.
    workers
        Number of processes; 1 runs in this one.
    cluster
        Address of a dask scheduler to run on instead.
    progressbar
        Whether to show progress; by default in a terminal only.
    """

    folder: Path
    seed: int = 0
    workers: int = 1
    cluster: str | None = None
    progressbar: bool | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ParameterError(f"The seed must be an integer from 0; got {self.seed}.")
        if self.workers < 1:
            raise ParameterError(f"There must be at least one worker; got {self.workers}.")

    def run(self, name: str, function: Replicate, replications: int) -> pd.DataFrame:
        """Run what is missing of an experiment; return all its rows, in order."""
        if replications < 1:
            raise ParameterError(f"There must be at least one replication; got {replications}.")
        self._path(name, 0).parent.mkdir(parents=True, exist_ok=True)
        missing = [i for i in range(replications) if not self._path(name, i).exists()]
        with progress_bar(replications, name, self.progressbar) as advance:
            advance(replications - len(missing))
            for i, rows in self._results(function, name, missing):
                write_text(self._path(name, i), json.dumps(rows))
                advance(1)
        parts = []
        for i in range(replications):
            rows = json.loads(self._path(name, i).read_text())
            parts += [{"replication": i, **row} for row in rows]
        return pd.DataFrame(parts)

    def seed_of(self, name: str, replication: int) -> np.random.SeedSequence:
        """Seed of one replication of one experiment."""
        key = int.from_bytes(name.encode()[:8], "big")
        return np.random.SeedSequence(self.seed, spawn_key=(key, replication))

    def _path(self, name: str, replication: int) -> Path:
        kept = self.folder / "replications" / f"{name}-seed{self.seed}-{__version__}"
        return kept / f"{replication:05d}.json"

    def _results(
        self, function: Replicate, name: str, missing: list[int]
    ) -> Iterator[tuple[int, Rows]]:
        """Yield replications as they are done, in any order."""
        seeds = {i: self.seed_of(name, i) for i in missing}
        if self.cluster is not None:
            yield from _on_cluster(self.cluster, function, seeds)
        elif self.workers == 1 or len(missing) < 2:
            yield from ((i, function(seed)) for i, seed in seeds.items())
        else:
            yield from _in_processes(self.workers, function, seeds)


def _in_processes(
    workers: int, function: Replicate, seeds: dict[int, np.random.SeedSequence]
) -> Iterator[tuple[int, Rows]]:
    # Started afresh: a fork of a process that has threads can hang.
    context = multiprocessing.get_context("spawn")
    with (
        _one_thread_each(),
        ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool,
    ):
        futures = {pool.submit(function, seed): i for i, seed in seeds.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Let a worker end when the process that started it is killed, not wait for work forever."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _on_cluster(
    address: str, function: Replicate, seeds: dict[int, np.random.SeedSequence]
) -> Iterator[tuple[int, Rows]]:
    if find_spec("distributed") is None:
        raise LockquackError(
            "A cluster needs dask.distributed, which is not installed: "
            "pip install 'lockquack[dask]'."
        )
    distributed = import_module("distributed")
    with distributed.Client(address) as client:
        futures = client.map(function, list(seeds.values()), pure=False)
        places = {future.key: i for future, i in zip(futures, seeds, strict=True)}
        for future, rows in distributed.as_completed(futures, with_results=True):
            yield places[future.key], rows


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
