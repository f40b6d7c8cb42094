"""What a family of likelihoods must say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lockquack.errors import ParameterError
from lockquack.jets import Array, Jet

#: The values of a family's parameters by name, broadcastable against the observations.
Parameters = Mapping[str, Array]


@dataclass(frozen=True)
class Edge:
    """How a density behaves where its support ends.

    At a finite edge the density goes to zero like distance^order (``inf``: faster than any
    power; 0: it does not vanish; negative: it diverges). At an infinite edge it falls like
    exp(-order · distance) (``inf``: faster, 0: slower, like a power).
    """

    at: float
    order: float

    @property
    def vanishes(self) -> bool:
        """Whether density × gradient of its log goes to 0 here, as the Hyvärinen score needs."""
        return bool(np.isinf(self.at) or self.order > 1)


@dataclass(frozen=True)
class Range:
    """The smallest and largest value that a parameter takes over all draws and observations."""

    min: float
    max: float


class Family(ABC):
    """A parametric likelihood with exact derivatives in the observation.

    Parameters and observations are arrays that broadcast against each other; a parameter with
    event dimensions (the mean vector, the covariance matrix) carries them last.
    """

    name: ClassVar[str]
    #: Parameter name → number of event dimensions; alternatives for families that take several.
    signatures: ClassVar[tuple[Mapping[str, int], ...]]
    #: Parameters that must be positive.
    positive: ClassVar[frozenset[str]] = frozenset()
    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    multivariate: ClassVar[bool] = False

    @abstractmethod
    def logp(self, y: Array, p: Parameters) -> Array:
        """Log density of y, −inf outside the support."""

    @abstractmethod
    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        """First and second derivatives of the log density in y, NaN outside the support.

        Scalar families return the broadcast shape; vector families (..., d).
        """

    @abstractmethod
    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        """Worst behaviour at each edge of the support, over the ranges of the parameters."""

    @abstractmethod
    def location(self, p: Parameters) -> Array:
        """Middle of the bulk of the density."""

    @abstractmethod
    def spread(self, p: Parameters) -> Array:
        """Width of the bulk of the density, in the units of y; a standard deviation or alike."""

    def jet(self, y: Array, p: Parameters) -> Jet:
        """Log density and derivatives together, with the component axis of :class:`Jet`."""
        grad, curv = self.derivatives(y, p)
        if not self.multivariate:
            grad, curv = grad[..., None], curv[..., None]
        return Jet(self.logp(y, p), grad, curv)

    def signature(self, given: Mapping[str, Any]) -> Mapping[str, int]:
        """Find the signature that the given parameter names make up, or say what is wrong."""
        for signature in self.signatures:
            if signature.keys() == given.keys():
                return signature
        expected = " or ".join(", ".join(signature) for signature in self.signatures)
        raise ParameterError(
            f"Family {self.name!r} takes the parameters {expected}; "
            f"got {', '.join(given) or 'none'}."
        )
