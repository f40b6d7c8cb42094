"""Sources whose jets are a function of another's at the same outcomes: weighted, transformed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from typing_extensions import override

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.models.delegating import WrappingSource
from lockquack.models.source import Source
from lockquack.transforms import Change

R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class ChangedSource(WrappingSource):
    """The draws of another source with jets that are changed as they are read.

    Draws that are not at hand are changed where they are.
    """

    @abstractmethod
    def _find_change(self) -> Change: ...

    @cached_property
    def _change(self) -> Change:
        return self._find_change()

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return self._change[obs].logp(self.source.logp(chain, draws, obs))

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        return self._change[obs].derivatives(*self.source.derivatives(chain, draws, obs))

    @override
    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        there = self._there(derivatives=derivatives)
        if there is None:
            return super().pass_over_draws(kind, derivatives=derivatives, progress=progress)
        return there.pass_over_draws(kind, derivatives=derivatives, progress=progress)

    @override
    def map_groups(
        self, work: Callable[[Sequence[Source], slice], R], reads: Sequence[str]
    ) -> Iterator[R]:
        there = self._there(derivatives="grad" in reads)
        return super().map_groups(work, reads) if there is None else there.map_groups(work, reads)

    @override
    def dask_draws(self, dtype: str | None = None) -> Mapping[str, Any] | None:
        there = self.source.changed(self._change)
        return None if there is None else there.dask_draws(dtype)

    @override
    def changed(self, change: Change) -> Source | None:
        there = self.source.changed(self._change)
        return None if there is None else there.changed(change)

    def _there(self, *, derivatives: bool) -> Source | None:
        """Return a source that holds the same numbers, unless they are changed as they are read."""
        if not derivatives and self._change.log_shift is None:
            return self.source
        there = self.source.changed(self._change)
        # The case weights are among the observations.
        return None if there is None else replace(there, observations=self.observations)
