r"""Beta transforms of distribution functions, which recalibrate them.

From a distribution function :math:`F` with density :math:`q`, the transform makes
:math:`B_{a,b}(F(y))`, whose density is :math:`q(y)\, b_{a,b}(F(y))`: :math:`B_{a,b}` is the
distribution function of the beta distribution, :math:`b_{a,b}` its density. It is wider where a
and b are below one, narrower where they are above, and moves outcomes up where a is the larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, betaln

from lockquack.jets import Array

#: Steps of a distribution function, relative to what is left of it, below which the mean density
#: of the step is that in its middle.
_NARROW = 1e-5
#: Probabilities below this are not told from zero.
_LEAST = 1e-300


@dataclass(frozen=True, eq=False)
class BetaTransform:
    """The distribution function of a beta distribution, for all observations or one for each.

    Examples
    --------
    >>> doubled = BetaTransform(2.0, 1.0)  # of the larger of two draws
    >>> np.round([doubled.cdf(np.array([0.5]))[0], doubled.quantile(np.array([0.25]))[0]], 12)
    array([0.25, 0.5 ])
    """

    a: Array | float  # a number, or (n,)
    b: Array | float

    @property
    def varies(self) -> bool:
        """Whether it differs between observations."""
        return np.ndim(self.a) == 1

    def at(self, obs: slice | NDArray[np.intp]) -> BetaTransform:
        """Return that of some of the observations, (n,); panels may name one more than once."""
        if not self.varies:
            return self
        return BetaTransform(np.asarray(self.a)[obs], np.asarray(self.b)[obs])

    def cdf(self, below: Array) -> Array:
        """Transform probabilities (..., n)."""
        return np.asarray(betainc(self.a, self.b, below))

    def above(self, above: Array) -> Array:
        """Transform the probabilities of more, 1 − F, as precisely where these are small."""
        return np.asarray(betainc(self.b, self.a, above))

    def quantile(self, p: Array) -> Array:
        """Return the probabilities that are transformed to p, (..., n)."""
        return np.asarray(betaincinv(self.a, self.b, p))

    def mass(self, below: Array, above: Array) -> Array:
        """Probability between two places, given F and 1 − F there, (2, ..., n) → (..., n)."""
        lower_half = below[1] <= 0.5
        return np.where(
            lower_half,
            self.cdf(below[1]) - self.cdf(below[0]),
            self.above(above[0]) - self.above(above[1]),
        )

    def log_density(self, below: Array, above: Array) -> Array:
        """Log density b(F), given F and 1 − F, (..., n), each precise where it is small."""
        logs = (self.a - 1.0) * _log(below) + (self.b - 1.0) * _log(above)
        return np.asarray(logs - betaln(self.a, self.b))

    def log_mean_density(self, below: Array, above: Array) -> Array:
        """Log of (B(F₁) − B(F₀)) / (F₁ − F₀), the mean density of a step, (2, ..., n) → (..., n).

        It is the density itself where the two are the same, as they are for outcomes that are not
        whole numbers.
        """
        step = np.where(below[1] <= 0.5, below[1] - below[0], above[0] - above[1])
        # The middle of a distribution function that goes on at the same rate.
        middle = [
            np.sqrt(_positive(each[0])) * np.sqrt(_positive(each[1])) for each in (below, above)
        ]
        left = np.minimum(middle[0], middle[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            wide = np.log(self.mass(below, above)) - np.log(step)
        narrow = (step <= _NARROW * left) | ~np.isfinite(wide)
        return np.where(narrow, self.log_density(*middle), wide)

    def slopes(self, below: Array, above: Array) -> tuple[Array, Array]:
        """First and second derivative of the log density in F."""
        low, high = (self.a - 1.0) / _positive(below), (self.b - 1.0) / _positive(above)
        return low - high, -low / _positive(below) - high / _positive(above)


def _positive(probability: Array) -> Array:
    return np.maximum(probability, _LEAST)


def _log(probability: Array) -> Array:
    return np.log(_positive(probability))
