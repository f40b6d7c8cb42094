"""Intervals of a given probability."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from lockquack.jets import Array
from lockquack.numeric import as_probability
from lockquack.registry import require_known

IntervalKind = Literal["central", "hdi"]


class HasIntervals(ABC):
    """Some distributions of numbers; arrays in and out have these last."""

    @property
    @abstractmethod
    def discrete(self) -> bool:
        """Whether outcomes are whole numbers."""

    @abstractmethod
    def cdf(self, y: Array) -> Array:
        """Probability of at most y, (point, n) → (point, n)."""

    @abstractmethod
    def quantile(self, p: Array) -> Array:
        """Outcomes below which there is probability p, (point,) → (point, n)."""

    @abstractmethod
    def shortest(self, prob: float) -> Array:
        """Return the ends of the shortest interval of that probability, (2, n)."""

    @abstractmethod
    def steps(self, y: Array) -> Array:
        """Probability of less than y and of at most y, and what is left of it, (2, 2, point, n).

        Each is precise where it is small. Those of a pool are before any recalibration.
        """

    @abstractmethod
    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score at outcomes, (point, n) → (point, n)."""

    @abstractmethod
    def mean(self) -> Array:
        """Mean of each, (n,)."""

    def interval(self, prob: float, kind: IntervalKind = "central") -> Array:
        """Return the ends of an interval, (2, n): between quantiles, or the shortest.

        Of whole numbers, it has at least that probability.
        """
        prob = as_probability("prob", prob)
        require_known("kind of interval", kind, ("central", "hdi"))
        if kind == "central":
            return self.quantile(np.array([(1 - prob) / 2, (1 + prob) / 2]))
        return self.shortest(prob)
