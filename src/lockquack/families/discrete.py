"""What families of whole numbers share."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from lockquack.errors import UnsupportedError
from lockquack.families.base import Family, Parameters
from lockquack.jets import Array


def impossible(y: Array, support: tuple[float, float]) -> NDArray[np.bool_]:
    """Mark what is not a whole number from the first to the last of the support; NaN is not."""
    low, high = support
    return np.asarray((y < low) | (y > high) | (y > np.floor(y)) | (y == np.inf))


class DiscreteFamily(Family):
    """A likelihood of whole numbers; the log density is the logarithm of a probability."""

    discrete = True
    support = (0.0, np.inf)
    orders = (0.0, 0.0)
    #: Parameters that must lie between 0 and 1.
    probabilities: frozenset[str] = frozenset()

    @abstractmethod
    def log_mass(self, y: Array, p: Parameters) -> Array:
        """Log probability of whole numbers y in the support."""

    def logp(self, y: Array, p: Parameters) -> Array:
        out = impossible(y, self.support)
        if not out.any():
            return self.log_mass(y, p)
        return np.where(out, -np.inf, self.log_mass(np.where(out, np.nan, y), p))

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        raise UnsupportedError(
            f"Family {self.name!r} is discrete, so it has no derivatives with respect to the "
            "outcome. Use the log score."
        )

    def check_domain(self, p: Parameters) -> None:
        for name in sorted(self.probabilities):
            low, high = float(np.min(p[name])), float(np.max(p[name]))
            if low <= 0 or high >= 1:
                worst = low if low <= 0 else high
                raise self.invalid(name, f"must lie between 0 and 1; it takes the value {worst:g}")
