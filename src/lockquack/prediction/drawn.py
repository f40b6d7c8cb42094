"""Distributions of numbers that are known by draws, such as the components of vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lockquack.jets import Array
from lockquack.quadrature.intervals import HasIntervals


@dataclass(frozen=True, eq=False)
class DrawnDistribution(HasIntervals):
    """The empirical distributions of some columns of draws."""

    draws: Array  # (draw, n), each column in ascending order

    @classmethod
    def of(cls, draws: Array) -> DrawnDistribution:
        """Take draws in any order."""
        return cls(np.sort(draws, axis=0))

    @property
    def discrete(self) -> bool:
        """Whether outcomes are whole numbers, which those of vectors are not."""
        return False

    def cdf(self, y: Array) -> Array:
        """Share of the draws that are at most y, (point, n) → (point, n)."""
        return np.stack([(self.draws <= point).mean(axis=0) for point in y])

    def quantile(self, p: Array) -> Array:
        """Outcomes below which there is a share p of the draws, (point,) → (point, n)."""
        return np.quantile(self.draws, p, axis=0)

    def shortest(self, prob: float) -> Array:
        """Return the ends of the shortest interval that holds that share of the draws, (2, n)."""
        inside = min(math.ceil(prob * len(self.draws)), len(self.draws) - 1)
        first = (self.draws[inside:] - self.draws[:-inside]).argmin(axis=0)
        column = np.arange(self.draws.shape[1])
        return np.stack([self.draws[first, column], self.draws[first + inside, column]])

    def mean(self) -> Array:
        """Mean of each column, (n,)."""
        return self.draws.mean(axis=0)

    def var(self) -> Array:
        """Variance of each column, (n,)."""
        return self.draws.var(axis=0, ddof=1)
