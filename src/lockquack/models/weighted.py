"""A source as the weighted Hyvärinen score sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.models.changed import ChangedSource
from lockquack.models.source import Abilities, FixedWeights, Source
from lockquack.transforms import Change, Transform


@dataclass(frozen=True, eq=False, repr=False)
class WeightedSource(ChangedSource):
    r"""The same draws with derivatives (√h g, h c + h' g) in place of (g, c).

    Two times the second plus the square of the first is the weighted score
    :math:`2 h' \partial\ell + 2h \partial^2 \ell + h (\partial\ell)^2`. The map is linear and the
    same for all draws and models, so that it commutes with every pool. Log densities stay as
    they are.
    """

    #: The change of coordinates z = t(y) whose weight it is, h = (dy/dz)².
    coordinates: Transform

    @classmethod
    def of(cls, source: Source, coordinates: Transform) -> WeightedSource:
        """Weight the derivatives of a source as a change of coordinates does."""
        return cls(**source.common_fields(), source=source, coordinates=coordinates)

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
    def left_out(self) -> Source:
        left = self.source.left_out()
        return self if left is self.source else WeightedSource.of(left, self.coordinates)

    @override
    def pieces(self) -> Sequence[tuple[NDArray[np.intp], Source]] | None:
        pieces = self.source.pieces()
        if pieces is None:
            return None
        return [(places, WeightedSource.of(each, self.coordinates)) for places, each in pieces]

    @property
    @override
    def fixed_weights(self) -> FixedWeights | None:
        return self.source.fixed_weights

    @override
    def _find_change(self) -> Change:
        return self.coordinates.score_weight(self.observations.values)
