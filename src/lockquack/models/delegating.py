"""A source that is another but for something: whatever it does not say itself, the other does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.families.base import Split
from lockquack.jets import Array, Jet
from lockquack.models.source import Abilities, Source, Subset


@dataclass(frozen=True, eq=False, repr=False)
class WrappingSource(Source):
    """A source made of another, whose facts it has, at the same observations."""

    source: Source

    @property
    @override
    def known_where(self) -> str:
        return self.source.known_where

    @property
    @override
    def is_sample(self) -> bool:
        return self.source.is_sample

    @override
    def require_density(self) -> None:
        self.source.require_density()

    @override
    def data_names(self) -> frozenset[str] | None:
        return self.source.data_names()

    @override
    def numbers_of_rows(self, data: Mapping[str, Any]) -> set[int]:
        return self.source.numbers_of_rows(data)

    @override
    def restrict(self, obs: slice) -> Self | None:
        source = self.source.restrict(obs)
        if source is None:
            return None
        return replace(self, observations=self.observations.restrict(obs), source=source)


@dataclass(frozen=True, eq=False, repr=False)
class DelegatingSource(WrappingSource):
    """The draws of another source, at the same observations."""

    @property
    @override
    def can(self) -> Abilities:
        return self.source.can

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return self.source.logp(chain, draws, obs)

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        return self.source.derivatives(chain, draws, obs)

    @override
    def logp_at(self, y: Array, chain: int, draws: slice, obs: Subset) -> Array:
        return self.source.logp_at(y, chain, draws, obs)

    @override
    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        return self.source.jets_at(y, chain, draws, obs, derivatives=derivatives)

    @override
    def split(self, obs: slice) -> Split | None:
        return self.source.split(obs)

    @override
    def bulks(self, obs: slice, multiples: Array, *, detailed: bool) -> Array:
        return self.source.bulks(obs, multiples, detailed=detailed)

    @override
    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Subset, rng: np.random.Generator
    ) -> Array:
        return self.source.draw_outcomes(chain, draws, obs, rng)

    @override
    def stored_logp(self, chain: int, draws: slice) -> Array | None:
        return self.source.stored_logp(chain, draws)

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        return self.source.with_data(y, **data)
