"""Models whose predictions of observations that are left out are not by PSIS alone.

The model itself stays what it is: its densities, its predictions of the same and of new data are
those of all its draws. What it predicts where an observation is left out comes from elsewhere:
by a fit without it, or by weights that leave out more than the observation itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.errors import UnsupportedError
from lockquack.models.delegating import DelegatingSource
from lockquack.models.leaving_out import counted_by_way
from lockquack.models.source import FixedWeights, Source
from lockquack.sources.folds import FoldedSource

Index = NDArray[np.intp]
R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class ReweightedSource(DelegatingSource):
    """The draws of another source, weighted so that they are of another posterior."""

    weights: FixedWeights
    how: str

    @classmethod
    def of(cls, source: Source, weights: FixedWeights, how: str) -> ReweightedSource:
        """Weight the draws of a source."""
        facts = {**source.common_fields(), "held_out": True, "outcome_draws": None}
        return cls(**facts, source=source, weights=weights, how=how)

    @property
    @override
    def fixed_weights(self) -> FixedWeights:
        return self.weights

    @property
    @override
    def left_out_by(self) -> str:
        return self.how


@dataclass(frozen=True, eq=False, repr=False)
class LeftOutSource(DelegatingSource):
    """A source with something else that predicts its observations where they are left out."""

    instead: FoldedSource
    #: Which observations are left out together, (n,), by number.
    group: Index

    @classmethod
    def of(cls, source: Source, instead: FoldedSource, group: Index) -> LeftOutSource:
        """Let something else predict what is left out."""
        base = source.source if isinstance(source, LeftOutSource) else source
        return cls(**source.common_fields(), source=base, instead=instead, group=group)

    @override
    def left_out(self) -> Source:
        # The case weights are among the observations.
        return replace(self.instead, observations=self.observations)

    @property
    @override
    def each_left_out_by(self) -> NDArray[np.str_]:
        return self.instead.each_left_out_by

    @override
    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        return self._own.pass_over_draws(kind, derivatives=derivatives, progress=progress)

    @override
    def map_groups(
        self, work: Callable[[Sequence[Source], slice], R], reads: Sequence[str]
    ) -> Iterator[R]:
        return self._own.map_groups(work, reads)

    @override
    def restrict(self, obs: slice) -> None:
        return None  # what predicts instead cannot be cut

    @override
    def one_chain(self, chain: int) -> Source:
        raise self._not_possible("be split into chains; split the model first")

    @override
    def dask_draws(self, dtype: str | None = None) -> Mapping[str, Any] | None:
        raise self._not_possible(
            "be written; write the model that it was made of, and keep refits in a folder"
        )

    @override
    def describe(self) -> str:
        return f"{super().describe()}, left out by: {counted_by_way(self.each_left_out_by)}"

    @property
    def _own(self) -> Source:
        return replace(self.source, observations=self.observations)

    def _not_possible(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.likelihood.description} has predictions of its own for observations that are "
            f"left out, so it cannot {what}."
        )


def as_folded(source: Source) -> FoldedSource:
    """Return what predicts each observation that is left out, as one source or several."""
    left = source.left_out()
    if isinstance(left, FoldedSource):
        return left
    return FoldedSource(
        **{**source.common_fields(), "outcome_draws": None},
        sources=(source,),
        fold=np.zeros(source.n_obs, dtype=np.intp),
        row=np.arange(source.n_obs),
        hows=(source.left_out_by,),
        first_saw=not source.is_left_out,
    )


def left_out_together(source: Source) -> Index:
    """Return which observations are left out together: by default each by itself."""
    return source.group if isinstance(source, LeftOutSource) else np.arange(source.n_obs)
