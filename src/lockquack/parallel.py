"""How many threads work at once, and a map that uses them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lockquack.errors import ParameterError

T = TypeVar("T")
R = TypeVar("R")

_VARIABLE = "LOCKQUACK_NUM_THREADS"


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
    """
    threads = n_threads() if threads is None else threads
    items = list(items)
    if threads == 1 or len(items) < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        yield from pool.map(function, items)


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
