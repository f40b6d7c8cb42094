"""How time and memory change with the number of threads, and of workers of a dask cluster."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from kernels import best_of, extra_memory, growth
from problems import CHAINS, DRAWS

import lockquack as lq
from lockquack.parallel.cluster import cluster
from lockquack.parallel.threads import thread_map

Row = dict[str, Any]
Works = Mapping[str, Callable[[], object]]

#: Observations of a regression that is never stored: 20 seconds and more of work.
COMPUTED = 1_000_000
#: Observations of one in a Zarr store, 0.6 GB for each of its three arrays.
STORED = 20_000
ROUNDS = 2
#: What more processors of this machine, beside all else that it does, can give at best.
REFERENCE = "np.exp in cache"


def measure_workers() -> list[Row]:
    """Time passes over computed and over stored draws on 1, 2, … threads and workers.

    Seconds are those of the work; starting a cluster is not part of them. Memory of threads is
    what the work allocates at most; that of workers is all that their processes ever held.
    """
    numbers = [1, 2]
    while 2 * numbers[-1] <= len(os.sched_getaffinity(0)):
        numbers.append(2 * numbers[-1])
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "model.zarr"
        _regression(STORED).to_zarr(store)
        computed = _regression(COMPUTED)
        works: Works = {
            # A copy does not remember that it was averaged before.
            f"pass, n = {COMPUTED:,}, computed": lambda: replace(computed).collapse(),
            f"pass, n = {STORED:,}, Zarr": lambda: lq.from_datatree(store, lazy=True).collapse(),
            f"PSIS, n = {STORED:,}, Zarr": lambda: lq.from_datatree(store, lazy=True).loo(),
        }
        measured = {
            "threads": [
                _on_threads(number, {REFERENCE: _reference, **works}) for number in numbers
            ],
            "workers": [_on_workers(number, works) for number in numbers],
        }
    rows = []
    for by, found in measured.items():
        for work in found[0]:
            seconds, memory = ([each[work][i] for each in found] for i in (0, 1))
            rows.append({"work": work, "by": by, **growth(numbers, seconds, memory)})
    return rows


def _regression(n_obs: int) -> lq.Model:
    """Make a regression on three covariates, with draws around the truth."""
    rng = np.random.default_rng(0)
    covariates = rng.normal(size=(n_obs, 3))
    coefficients = 1.0 + 0.01 * rng.normal(size=(CHAINS, DRAWS, 3))
    return lq.from_family(
        "normal",
        y=covariates.sum(axis=1) + rng.normal(size=n_obs),
        mu=lq.linear_predictor(covariates, coefficients),
        sigma=rng.uniform(1.0, 1.1, size=(CHAINS, DRAWS)),
    )


def _reference() -> None:
    """Do what needs processors and nothing else."""
    values = np.linspace(-1.0, 1.0, 40_000)

    def work(_: int) -> None:
        out = np.empty_like(values)
        for _ in range(2000):
            np.exp(values, out=out)

    list(thread_map(work, range(4)))


def _on_threads(number: int, works: Works) -> dict[str, tuple[float, int]]:
    """Seconds and bytes of each work."""
    os.environ["LOCKQUACK_NUM_THREADS"] = str(number)
    seconds = best_of(works, ROUNDS)
    found = {name: (seconds[name], extra_memory(work)) for name, work in works.items()}
    del os.environ["LOCKQUACK_NUM_THREADS"]
    return found


def _on_workers(number: int, works: Works) -> dict[str, tuple[float, int]]:
    """Seconds and bytes of each work, each on a cluster of its own."""
    found = {}
    for name, work in works.items():
        with cluster(workers=number) as client:
            client.wait_for_workers(number)
            client.run(_import)
            seconds = best_of({name: work}, ROUNDS)[name]
            found[name] = seconds, sum(client.run(_peak_memory).values())
    return found


def _import() -> None:
    """Import on a worker what it would import in its first task."""
    import zarr  # noqa: F401


def _peak_memory() -> int:
    """Bytes that a process has held at most, not counting what the one did that started it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
