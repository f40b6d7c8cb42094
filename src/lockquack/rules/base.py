"""What a scoring rule must say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lockquack.draws.collapse import Collapsed
from lockquack.families.base import Edge
from lockquack.jets import Array, Jet
from lockquack.transforms import Transform


@dataclass(frozen=True)
class Pooled:
    """A pool at n observations, or its derivatives with the parameters along a first axis."""

    jet: Jet
    log_norm: Array  # (..., n): log of the pool's integral; zeros where it needs none
    neighbours: Array | None = None  # (..., neighbour, n): its log density beside the outcome


class Rule(ABC):
    """A proper score of a predictive density at the value that was observed; larger is better."""

    name: ClassVar[str]
    #: Its name in a sentence.
    label: ClassVar[str]
    #: Whether it needs the normalised density, or any multiple of it will do.
    needs_normaliser: ClassVar[bool] = False
    #: Whether it needs derivatives in the outcome.
    needs_derivatives: ClassVar[bool] = False
    #: Whether it needs the value of the density itself.
    needs_density: ClassVar[bool] = False
    #: Whether it needs the density at neighbouring outcomes, so discrete ones.
    needs_neighbours: ClassVar[bool] = False

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, as JSON can hold it."""
        return {}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Rule:
        """Make it again from its options."""
        return cls(**options)

    def unit(self, y: Array) -> Array:
        """Units of the outcome, one per component, from outcomes of shape (n, d)."""
        return np.ones(y.shape[1])

    @property
    def coordinates(self) -> Transform | None:
        """The change of coordinates by whose weight it looks at derivatives; None: as they are."""
        return None

    def bears(self, edge: Edge) -> bool:
        """Whether the rule is proper for a density that ends like this."""
        return True

    def has_variance(self, edge: Edge) -> bool:
        """Whether its score has a variance near such an edge."""
        return True

    @abstractmethod
    def score(self, pooled: Pooled) -> Array:
        """Score each observation, (n,)."""

    @abstractmethod
    def slopes(self, pooled: Pooled, tangent: Pooled) -> Array:
        """Slopes of the scores in the parameters, (P, n)."""

    @abstractmethod
    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        """Monte Carlo standard error of the total score of a model; NaN where it is not known."""
