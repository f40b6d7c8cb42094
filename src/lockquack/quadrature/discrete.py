"""Distributions on whole numbers, one for each row, as tables of probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lockquack.jets import Array, softmax
from lockquack.quadrature.beta import BetaTransform


@dataclass(frozen=True)
class DiscreteRows:
    """One distribution on the same outcomes for each row, normalised."""

    outcomes: Array  # (m,), consecutive whole numbers
    probability: Array  # (m, row)
    log_norm: Array  # (row,)

    @classmethod
    def of(cls, outcomes: Array, log_mass: Array) -> DiscreteRows:
        """Normalise log probabilities (m, row)."""
        probability, log_norm = softmax(log_mass)
        return cls(outcomes, probability, log_norm)

    @property
    def relative_error(self) -> Array:
        """Nothing is approximated in a sum over all outcomes."""
        return np.zeros_like(self.log_norm)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.log_norm.size

    @cached_property
    def _total(self) -> Array:
        """Probability of fewer than the first, the second, … and of any outcome, (m + 1, row)."""
        zero = np.zeros((1, self.n_rows))
        return np.concatenate([zero, np.minimum(np.cumsum(self.probability, axis=0), 1.0)])

    def cdf(self, y: Array) -> Array:
        """Probability of at most y, (point, row) → (point, row)."""
        place = np.clip(np.floor(y) - self.outcomes[0] + 1, 0, self.outcomes.size)
        known = np.where(np.isnan(place), 0, place).astype(np.intp)
        return np.where(np.isnan(y), np.nan, np.take_along_axis(self._total, known, axis=0))

    @cached_property
    def _rest(self) -> Array:
        """Probability of at least the first, the second, … and of more than any, (m + 1, row)."""
        zero = np.zeros((1, self.n_rows))
        return np.concatenate([np.cumsum(self.probability[::-1], axis=0)[::-1], zero])

    def steps(self, y: Array) -> tuple[Array, Array]:
        """Probability of less than y and of at most y, and what is left, each (2, point, row).

        Each is precise where it is small. Outcomes beyond all are taken for the nearest.
        """
        known = np.nan_to_num(np.floor(y) - self.outcomes[0])
        place = np.clip(known, 0, self.outcomes.size - 1).astype(np.intp)
        below, above = (
            np.stack([np.take_along_axis(each, place + k, axis=0) for k in (0, 1)])
            for each in (self._total, self._rest)
        )
        return below, above

    def recalibrated(self, by: BetaTransform) -> DiscreteRows:
        """Transform the distribution function; its steps are the new probabilities."""
        below, above = (np.stack([each[:-1], each[1:]]) for each in (self._total, self._rest))
        with np.errstate(divide="ignore"):
            logs = np.log(self.probability) + by.log_mean_density(below, above)
        return replace(self, probability=softmax(logs)[0])

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score, (point, row); smaller is better.

        The sum of (F(k) − 1[k ≥ y])² over whole numbers k, with its fraction where y lies between.
        """
        total = self._total[1:]
        below = np.concatenate([np.zeros((1, self.n_rows)), np.cumsum(np.square(total), axis=0)])
        rest = np.square(1.0 - total)[::-1].cumsum(axis=0)[::-1]
        above = np.concatenate([rest, np.zeros((1, self.n_rows))])
        place = np.clip(np.floor(y) - self.outcomes[0], -1, self.outcomes.size - 1)
        at = np.where(np.isnan(place), 0, place).astype(np.intp)
        fraction = np.where(at < 0, 0.0, y - self.outcomes[np.maximum(at, 0)])
        here = np.where(at < 0, 0.0, np.take_along_axis(total, np.maximum(at, 0), axis=0))
        beyond = np.maximum(self.outcomes[0] - y, 0.0)  # nothing is below the first
        return (
            np.take_along_axis(below, np.maximum(at, 0), axis=0)
            + np.square(here) * fraction
            + np.where(at < 0, 0.0, np.square(1.0 - here) * (1.0 - fraction))
            + np.take_along_axis(above, at + 1, axis=0)
            + beyond
        )

    def quantile(self, p: Array) -> Array:
        """Smallest outcome whose distribution function reaches p, (point, row)."""
        p = np.broadcast_to(p, (len(p), self.n_rows))
        result = np.empty(p.shape)
        for i in range(self.n_rows):  # a little off, so that the p of an outcome gives it back
            place = np.searchsorted(self._total[1:, i], p[:, i] * (1 - 1e-14))
            result[:, i] = self.outcomes[np.minimum(place, self.outcomes.size - 1)]
        return np.where((p >= 0) & (p <= 1), result, np.nan)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of each row."""
        mean = self.outcomes @ self.probability
        offset = self.outcomes[:, None] - mean
        return mean, (np.square(offset) * self.probability).sum(axis=0)

    def mode(self) -> Array:
        """Outcome of the highest probability, (row,)."""
        return self.outcomes[self.probability.argmax(axis=0)]

    def shortest(self, prob: float) -> Array:
        """Return the ends of the fewest consecutive outcomes with this probability, (2, row)."""
        ends = np.empty((2, self.n_rows))
        for i in range(self.n_rows):
            total = self._total[:, i]
            stop = np.searchsorted(total, total[:-1] + prob * (1 - 1e-14))
            enough = stop < total.size
            stop = np.where(enough, stop, total.size - 1)
            count = np.where(enough, stop - np.arange(stop.size), total.size)
            shortest = count == count.min()
            mass = np.where(shortest, total[stop] - total[:-1], -1.0)
            first = int(mass.argmax())
            ends[:, i] = self.outcomes[first], self.outcomes[stop[first] - 1]
        return ends
