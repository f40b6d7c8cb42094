"""Where work is done: on the threads of this process, or on a dask cluster."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

from lockquack.errors import LockquackError, ParameterError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

_VARIABLE = "LOCKQUACK_NUM_THREADS"
#: Draws × observations that a task on a cluster has at most: a second or two of work.
_CELLS_PER_TASK = 2**26
#: What dask sets for its workers; and what a process comes to by itself that nobody tells
#: otherwise: bytes of an array from which it is given back to the system at once
#: (M_MMAP_THRESHOLD), and of freed memory that is kept (M_TRIM_THRESHOLD).
_TRIM_OF_DASK = "65536"
_ALLOCATOR = {-3: 2**25, -1: 2**26}
#: Held on a worker while it reads a model that several threads must not read at once.
_ONE_AT_A_TIME = threading.Lock()


def n_threads() -> int:
    """Return how many threads a pass may use.

    ``LOCKQUACK_NUM_THREADS`` where that is set; one inside a dask worker, which runs a task per
    thread already; elsewhere the processors that this process may use.
    """
    given = os.environ.get(_VARIABLE)
    if given is not None:
        if not given.isdecimal() or int(given) == 0:
            raise ParameterError(f"{_VARIABLE} must be a whole number from 1; got {given!r}.")
        return int(given)
    if _in_dask_worker():
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_map(
    function: Callable[[T], R], items: Iterable[T], *, threads: int | None = None
) -> Iterator[R]:
    """Apply a function to items on several threads; yield the results in the items' order.

    Numpy releases the interpreter while it computes, so threads are enough. What is done to an
    item does not depend on their number, and neither do results that are summed in this order.
    Matrix products stay on the thread that asks for them: they are too small to be shared out.
    """
    threads = n_threads() if threads is None else threads
    items = list(items)
    reuse_memory()
    with _linear_algebra().limit(limits=1, user_api="blas"):
        if threads == 1 or len(items) < 2:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            yield from pool.map(function, items)


@cache
def _linear_algebra() -> ThreadpoolController:
    """Find the libraries of linear algebra in this process."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _in_dask_worker() -> bool:
    """Whether this thread runs a task of dask.distributed, which is not imported to find out."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


@cache
def reuse_memory() -> None:
    """Let the memory of one array be used for the next.

    A pass makes and frees thousands of arrays of a megabyte a second, and to be given new pages
    for each by the system can take several times as long as the work. The allocator of the GNU
    library keeps what is freed, up to twice the largest array that it was given back so far, if
    that was less than 32 MiB. Dask tells the one of its workers to keep nothing.
    """
    if sys.platform != "linux":
        return
    if not _in_dask_worker():
        np.empty(31 * 2**20, dtype=np.uint8)  # given back at once, and never written to
        return
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != _TRIM_OF_DASK:  # somebody's own choice
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # the GNU library has it
    if set_option is not None:
        for option, size in _ALLOCATOR.items():
            set_option(option, size)


class Divisible(Protocol):
    """What work can be divided over: a model of many observations."""

    @property
    def n_samples(self) -> int:
        """Number of draws in all chains together."""

    @property
    def is_thread_safe(self) -> bool:
        """Whether several threads may read tiles at once."""

    @property
    def is_computed(self) -> bool:
        """Whether reading takes so much work that it is worth sending elsewhere."""

    def restrict(self, obs: slice) -> Self | None:
        """Return the same model of some observations; None where it cannot be cut."""


D = TypeVar("D", bound=Divisible)


def map_observations(
    work: Callable[..., R],
    models: Sequence[D],
    groups: Sequence[slice],
    *items: Sequence[Any],
    here: bool = False,
) -> Iterator[R]:
    """Do the same work for every group of observations; yield the results in their order.

    It is done on threads or, if there is an active dask client and the models are worth sending,
    on its cluster. Results do not depend on where. There, a task has consecutive groups and, if
    they can be cut, no more of the models than it needs; tasks of a worker that dies are done
    again by others.

    Parameters
    ----------
    work
        Called with the models, a slice of their observations and an element of each of ``items``.
        The slice says where in these models the group is, which may be cut ones: it must not be
        part of the result. Both must be fit for pickling.
    models
        What the work looks at.
    groups
        Slices of the observations, one after the other.
    *items
        What else differs between groups, as for ``map``.
    here
        Whether the work must be done in this process.
    """
    client = None if here else active_client()
    if client is not None and len(groups) > 1 and all(model.is_computed for model in models):
        yield from _on_cluster(client, work, models, groups, items)
        return

    def one_group(given: tuple[Any, ...]) -> R:
        return work(models, *given)

    threads = None if all(model.is_thread_safe for model in models) else 1
    yield from thread_map(one_group, zip(groups, *items, strict=True), threads=threads)


def active_client() -> Any:
    """Return the dask client that is active in this process, or None; nothing is imported."""
    distributed = sys.modules.get("distributed")
    if distributed is None or _in_dask_worker():
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def compute_in_order(parts: Iterable[Any]) -> Iterator[Any]:
    """Compute what dask has delayed, all in one graph; yield the results in order.

    On the cluster of the active client; otherwise as dask is configured, by default on threads.
    Either way a result is there as soon as it and those before it are computed.
    """
    client = active_client()
    if client is None:
        with _linear_algebra().limit(limits=1, user_api="blas"):
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


def _on_cluster(
    client: Any,
    work: Callable[..., R],
    models: Sequence[D],
    groups: Sequence[slice],
    items: Sequence[Sequence[Any]],
) -> Iterator[R]:
    import dask

    whole: list[Any] = []

    def send(function: Callable[..., Any], *given: Any) -> Any:
        # Sending data along with the work is what is meant here, not to be warned of.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            return client.submit(function, *given, pure=False)

    def submit(batch: Sequence[tuple[Any, ...]]) -> Any:
        span = slice(batch[0][0].start, batch[-1][0].stop)
        parts: list[Any] = [model.restrict(span) for model in models]
        shift = span.start
        if any(part is None for part in parts):
            # Sent once; where a worker that has it dies, the scheduler makes it again.
            whole.extend(send(_itself, model) for model in models[len(whole) :])
            parts, shift = whole, 0
        given = [(slice(obs.start - shift, obs.stop - shift), *rest) for obs, *rest in batch]
        return send(_do, work, parts, given)

    most = max(1, _CELLS_PER_TASK // max(model.n_samples for model in models))
    few = -(-groups[-1].stop // (2 * _width(client)))
    tasks = _batches(zip(groups, *items, strict=True), min(most, few))
    for results in _ahead(client, submit, tasks):
        yield from results


def _batches(given: Iterable[tuple[Any, ...]], n_obs: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Put groups together that have about that many observations."""
    batch: list[tuple[Any, ...]] = []
    for each in given:
        batch.append(each)
        if each[0].stop - batch[0][0].start >= n_obs:
            yield batch
            batch = []
    if batch:
        yield batch


def _do(work: Callable[..., R], models: Sequence[D], given: Sequence[tuple[Any, ...]]) -> list[R]:
    """Do the work of one task."""
    reuse_memory()
    safe = all(model.is_thread_safe for model in models)
    with nullcontext() if safe else _ONE_AT_A_TIME:
        return [work(models, *each) for each in given]


def _itself(model: D) -> D:
    return model


def _width(client: Any) -> int:
    """How many tasks to hand out before the first is done."""
    return max(4 * sum(client.nthreads().values()), 16)


def _ahead(client: Any, submit: Callable[[T], Any], items: Iterable[T]) -> Iterator[Any]:
    """Submit items, some ahead of the results, which come in the items' order.

    So no thread waits, and neither this process nor the scheduler holds more than a few.
    """
    width = _width(client)
    waiting: deque[Any] = deque()
    try:
        for item in items:
            waiting.append(submit(item))
            if len(waiting) == width:
                yield client.gather(waiting.popleft())
        while waiting:
            yield client.gather(waiting.popleft())
    finally:
        if waiting:
            client.cancel(list(waiting))
