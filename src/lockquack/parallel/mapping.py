"""The same work for every group of observations, wherever it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, Self, TypeVar

from lockquack.parallel.cluster import active_client, results_in_order
from lockquack.parallel.threads import reuse_memory, thread_map

T = TypeVar("T")
R = TypeVar("R")
#: Draws × observations that a task on a cluster has at most: a second or two of work.
_CELLS_PER_TASK = 2**26
#: Held on a worker while it reads a model that several threads must not read at once.
_ONE_AT_A_TIME = threading.Lock()


class Sharing(Protocol):
    """Who may read something, and where."""

    @property
    def be_shared(self) -> bool:
        """Whether several threads may read it at once."""

    @property
    def be_sent(self) -> bool:
        """Whether reading takes so much work that it is worth sending elsewhere."""


class Divisible(Protocol):
    """What work can be divided over: a source of many observations."""

    @property
    def n_samples(self) -> int:
        """Number of draws in all chains together."""

    @property
    def can(self) -> Sharing:
        """Who may read it, and where."""

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
    if client is not None and len(groups) > 1 and all(model.can.be_sent for model in models):
        yield from _on_cluster(client, work, models, groups, items)
        return

    def one_group(given: tuple[Any, ...]) -> R:
        return work(models, *given)

    threads = None if all(model.can.be_shared for model in models) else 1
    yield from thread_map(one_group, zip(groups, *items, strict=True), threads=threads)


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
    # So no thread waits, and neither this process nor the scheduler holds more than a few.
    for results in results_in_order(client, map(submit, tasks), ahead=_width(client)):
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
    safe = all(model.can.be_shared for model in models)
    with nullcontext() if safe else _ONE_AT_A_TIME:
        return [work(models, *each) for each in given]


def _itself(model: D) -> D:
    return model


def _width(client: Any) -> int:
    """How many tasks to hand out before the first is done."""
    return max(4 * sum(client.nthreads().values()), 16)
