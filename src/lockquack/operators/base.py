"""What an operator must say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from lockquack.jets import Array, Jet


class Operator(ABC):
    """A way to combine K predictive densities into one, given K weights."""

    name: ClassVar[str]
    #: Whether the derivatives of the pool depend on the members' densities, not only on theirs.
    needs_density: ClassVar[bool]
    #: Whether the pool of densities is itself a density, without a normaliser.
    normalised: ClassVar[bool]

    @abstractmethod
    def pool(self, jets: Jet, weights: Array) -> Jet:
        """Pool jets stacked over models, (K, n) and (K, n, d), into one jet, not normalised."""

    @abstractmethod
    def pool_density(self, logp: Array, weights: Array) -> Array:
        """Pool log densities stacked over models, (K, ...), into one, not normalised."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
