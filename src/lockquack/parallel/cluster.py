"""A dask cluster: finding it, starting it, computing on it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from queue import SimpleQueue
from typing import Any

from lockquack.errors import ClusterError, LockquackError, ParameterError
from lockquack.parallel.threads import ask_dask, in_dask_worker, n_threads, small_products

#: Seconds after which workers are looked at while a result is waited for, and how often in a row
#: all of them must be paused then.
_PATIENCE, _TIMES = 10.0, 6
_GONE = (
    "The dask cluster was closed, or its connection was lost, while it was computing. Nothing was "
    "written. Begin again with another cluster, or without."
)


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
        with small_products():
            yield from _compute_here(list(parts))
        return
    yield from results_in_order(client, client.compute(list(parts)))


def results_in_order(
    client: Any, futures: Iterable[Any], ahead: int | None = None
) -> Iterator[Any]:
    """Yield results of a cluster in order; the others are cancelled if nobody waits for them.

    No more futures are asked for ``ahead`` of the results than so many; by default all.
    """
    waiting: deque[Any] = deque()
    try:
        with _saying_what_happened():
            for future in futures:
                waiting.append(future)
                if len(waiting) == ahead:
                    yield _result(client, waiting.popleft())
            while waiting:
                yield _result(client, waiting.popleft())
    finally:
        if waiting:
            with suppress(Exception):  # of a cluster that is gone nobody need cancel anything
                client.cancel(list(waiting))


def _result(client: Any, future: Any) -> Any:
    """Wait for a result, but not for workers that will never work again."""
    from distributed import wait

    waited = 0
    while True:
        try:
            wait(future, timeout=_PATIENCE)
        except TimeoutError:
            waited = waited + 1 if _all_are_paused(client) else 0
            if waited == _TIMES:
                raise ClusterError(
                    "All workers of the cluster are paused, because they hold nearly all the "
                    "memory that they may, and nothing becomes free. Let the cluster have fewer "
                    "workers with more memory each (memory_limit= of dask), or write the models "
                    "by Model.to_zarr and read them from there."
                ) from None
        else:
            return future.result()


def _all_are_paused(client: Any) -> bool:
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return bool(workers) and all(worker["status"] == "paused" for worker in workers)


@contextmanager
def _saying_what_happened() -> Iterator[None]:
    """Tell of a cluster that is gone in words of our own; what went wrong in a task stays."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"Workers of the cluster died at the same task, one after the other: {error.task}. "
            "Most often they have too little memory; their logs tell. Let the cluster have fewer "
            "workers with more memory each."
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(_GONE) from error
    except Exception as error:
        # What dask says of a closed client has no public class.
        if type(error).__module__.startswith("distributed."):
            raise ClusterError(_GONE) from error
        raise


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
