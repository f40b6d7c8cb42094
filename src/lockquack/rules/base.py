"""What a scoring rule must say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from lockquack.collapse import Collapsed
from lockquack.jets import Array, Jet


class Rule(ABC):
    """A proper score of a predictive density at the value that was observed; larger is better."""

    name: ClassVar[str]
    #: Its name in a sentence.
    label: ClassVar[str]
    #: Whether it needs the normalised density, or any multiple of it will do.
    needs_normaliser: ClassVar[bool]
    #: Whether it needs derivatives in the outcome.
    needs_derivatives: ClassVar[bool]
    #: Whether it needs the value of the density itself.
    needs_density: ClassVar[bool]

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What it was made with, as JSON can hold it."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: Mapping[str, Any]) -> Rule:
        """Make it again from its options."""

    @abstractmethod
    def unit(self, y: Array) -> Array:
        """Units of the outcome, one per component, from outcomes of shape (n, d)."""

    @abstractmethod
    def score(self, jet: Jet, unit: Array) -> Array:
        """Score each observation: jets of shape (..., n) and (..., n, d) give (..., n)."""

    @abstractmethod
    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        """Monte Carlo standard error of the total score of a model."""
