"""Long tasks that do not depend on each other, each result as soon as it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed as as_threads_complete
from typing import Any, TypeVar

from lockquack.parallel.cluster import active_client

T = TypeVar("T")
R = TypeVar("R")


def completed(
    function: Callable[[T], R], items: Sequence[T], *, threads: int = 1
) -> Iterator[tuple[int, R]]:
    """Apply a function to items; yield the place of each and its result as it is done.

    On the workers of the active dask client, if there is one, otherwise on so many threads. Where
    a task fails, those that run are waited for, and the first error is raised after their results;
    no other task begins.
    """
    client = active_client()
    if client is not None:
        from distributed import as_completed

        sent = {client.submit(function, item, pure=False): i for i, item in enumerate(items)}
        yield from _results(sent, as_completed)
    elif threads == 1 or len(items) < 2:
        for i, item in enumerate(items):
            yield i, function(item)
    else:
        pool = ThreadPoolExecutor(min(threads, len(items)))
        try:
            begun = {pool.submit(function, item): i for i, item in enumerate(items)}
            yield from _results(begun, as_threads_complete)
        finally:
            pool.shutdown(cancel_futures=True)


def _results(
    futures: dict[Any, int], as_completed: Callable[[list[Any]], Iterator[Any]]
) -> Iterator[tuple[int, Any]]:
    failure = None
    for future in as_completed(list(futures)):
        if future.cancelled():
            continue
        error = future.exception()
        if error is None:
            yield futures[future], future.result()
        elif failure is None:
            failure = error
            for each in futures:
                if not each.done():
                    each.cancel()
    if failure is not None:
        raise failure
