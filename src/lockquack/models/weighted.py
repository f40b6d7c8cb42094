"""A source as the weighted Hyvärinen score sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

from typing_extensions import override

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.models.source import Abilities, Source
from lockquack.transforms import Transform

R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class WeightedSource(Source):
    r"""The same draws with derivatives (√h g, h c + h' g) in place of (g, c).

    Two times the second plus the square of the first is the weighted score
    :math:`2 h' \partial\ell + 2h \partial^2 \ell + h (\partial\ell)^2`. The map is linear and the
    same for all draws and models, so that it commutes with every pool. Log densities stay as
    they are.
    """

    source: Source
    #: The change of coordinates z = t(y) whose weight it is, h = (dy/dz)².
    coordinates: Transform

    @classmethod
    def of(cls, source: Source, coordinates: Transform) -> WeightedSource:
        """Look at a source through the weight of a change of coordinates."""
        return cls(
            source.observations,
            n_chains=source.n_chains,
            n_draws=source.n_draws,
            likelihood=source.likelihood,
            source=source,
            coordinates=coordinates,
        )

    @property
    @override
    def can(self) -> Abilities:
        can = self.source.can
        return Abilities(
            differentiate=can.differentiate,
            be_shared=can.be_shared,
            be_sent=can.be_sent,
            read_along_draws=can.read_along_draws,
        )

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return self.source.logp(chain, draws, obs)

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        grad, curv = self.source.derivatives(chain, draws, obs)
        root, slope = (each[obs] for each in self._stretch)
        return root * grad, root * root * curv + slope * grad

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
    def restrict(self, obs: slice) -> Self | None:
        source = self.source.restrict(obs)
        if source is None:
            return None
        return replace(self, observations=source.observations, source=source)

    def _there(self, *, derivatives: bool) -> Source | None:
        """Return a source of the same numbers, unless they are weighted as they are read.

        Draws that are not at hand are weighted where they are; log densities are never changed.
        """
        return self.source.weighted(*self._stretch) if derivatives else self.source

    @cached_property
    def _stretch(self) -> tuple[Array, Array]:
        return self.coordinates.stretch(self.observations.values)
