"""The threads of this process, and the memory that they reuse."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lockquack.errors import ParameterError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")
_VARIABLE = "LOCKQUACK_NUM_THREADS"
#: How many bytes of freed memory the workers of dask keep, unless users say otherwise.
_TRIM_OF_DASK = "65536"
#: Settings of glibc's malloc, at what it arrives at by itself in a long computation. Arrays of
#: more bytes go back to the system when they are freed (M_MMAP_THRESHOLD); of the rest, so many
#: bytes are kept (M_TRIM_THRESHOLD).
_ALLOCATOR = {-3: 2**25, -1: 2**26}


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
    if in_dask_worker():
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
    reuse_memory()
    with small_products():
        if threads == 1 or len(items) < 2:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            yield from pool.map(function, items)


@contextmanager
def small_products() -> Iterator[None]:
    """Keep matrix products on the thread that asks for them: they are too small to be shared out.

    Otherwise a library of linear algebra wakes its threads for each, and they spin until the next.
    """
    with linear_algebra().limit(limits=1, user_api="blas"):
        yield


@cache
def linear_algebra() -> ThreadpoolController:
    """Find the libraries of linear algebra in this process."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def in_dask_worker() -> bool:
    """Whether this thread runs a task of dask.distributed, which is not imported to find out."""
    return ask_dask("get_worker") is not None


def ask_dask(function: str) -> Any:
    """Call a function of dask.distributed that raises ValueError where there is no answer: None.

    Another thread may be importing it just now; then there is nothing yet that could be found.
    """
    ask = getattr(sys.modules.get("distributed"), function, None)
    try:
        return None if ask is None else ask()
    except ValueError:
        return None


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
    if not in_dask_worker():
        np.empty(31 * 2**20, dtype=np.uint8)  # given back at once, and never written to
        return
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != _TRIM_OF_DASK:  # somebody's own choice
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # the GNU library has it
    if set_option is not None:
        for option, size in _ALLOCATOR.items():
            set_option(option, size)
