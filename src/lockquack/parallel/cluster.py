"""A dask cluster: finding it, starting it, computing on it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any

from lockquack.errors import LockquackError, ParameterError
from lockquack.parallel.threads import ask_dask, in_dask_worker, linear_algebra, n_threads


def active_client() -> Any:
    """Return the dask client that is active in this process, or None; nothing is imported."""
    return None if in_dask_worker() else ask_dask("default_client")


def compute_in_order(parts: Iterable[Any]) -> Iterator[Any]:
    """Compute what dask has delayed, all in one graph; yield the results in order.

    On the cluster of the active client; otherwise as dask is configured, by default on threads.
    Either way a result is there as soon as it and those before it are computed.
    """
    client = active_client()
    if client is None:
        with linear_algebra().limit(limits=1, user_api="blas"):
            yield from _compute_here(list(parts))
        return
    waiting = deque(client.compute(list(parts)))
    try:
        while waiting:
            yield waiting.popleft().result()
    finally:
        if waiting:
            client.cancel(list(waiting))


def _compute_here(parts: Sequence[Any]) -> Iterator[Any]:
    """Compute in this process; dask tells of each task that is done."""
    import dask
    from dask.callbacks import Callback

    wanted = {part.key for part in parts}
    news: SimpleQueue[tuple[Any, Any] | None] = SimpleQueue()
    stopped = threading.Event()

    def after_task(key: Any, result: Any, *_: Any) -> None:
        if stopped.is_set():
            raise CancelledError  # nobody waits for the others
        if key in wanted:
            news.put((key, result))

    callbacks = [*Callback.active, (None, None, None, after_task, None)]
    compute = partial(dask.compute, num_workers=n_threads(), callbacks=callbacks)
    with ThreadPoolExecutor(1) as pool:
        computing = pool.submit(compute, *parts)
        computing.add_done_callback(lambda _: news.put(None))
        try:
            found: dict[Any, Any] = {}
            for i, part in enumerate(parts):
                while part.key not in found:
                    told = news.get()
                    if told is None:
                        yield from computing.result()[i:]  # or raises what ended it
                        return
                    found[told[0]] = told[1]
                yield found.pop(part.key)
        finally:
            stopped.set()


@contextmanager
def cluster(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """Let everything inside the ``with`` run on a dask cluster.

    Parameters
    ----------
    address
        Of the scheduler of an existing cluster, such as ``"tcp://10.0.0.1:8786"``. Its workers
        need the same packages and see the same files.
    workers
        Start this many processes on this machine instead, and end them afterwards.

    Yields
    ------
    distributed.Client or None
        The client; None where there is neither an address nor a number.

    Examples
    --------
    >>> from lockquack.parallel import cluster
    >>> with cluster(workers=2):  # doctest: +SKIP
    ...     fit = lq.lock(models)
    """
    if address is None and workers is None:
        yield None
        return
    if address is not None and workers is not None:
        raise ParameterError(
            f"Give the address of a cluster ({address}) or a number of workers to start "
            f"({workers}), not both."
        )
    if workers is not None and workers < 1:
        raise ParameterError(f"There must be at least one worker; got {workers}.")
    if find_spec("distributed") is None:
        raise ImportError("A cluster needs dask.distributed: pip install 'lockquack[dask]'.")
    from distributed import Client, LocalCluster

    if address is not None:
        try:
            joined = Client(address)
        except (OSError, ValueError) as error:
            raise LockquackError(f"No dask scheduler answers at {address} ({error}).") from error
        with joined:
            yield joined
        return
    with (
        # Any free port: another cluster may have dask's own.
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield client
