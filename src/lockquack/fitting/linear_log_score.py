"""Stacking: the linear pool by the log score, a concave problem."""

from __future__ import annotations

import numpy as np

from lockquack.fitting.base import Mask, Problem, flattest
from lockquack.jets import Array
from lockquack.operators.linear import Linear
from lockquack.solvers.base import Solution
from lockquack.solvers.mixture_proportions import mixture_proportions

#: Places along a direction where the score is looked at.
_PLACES = 33


class LinearLogScore(Problem):
    r"""Weights of the linear pool by the log score: mixture proportions by maximum likelihood.

    .. math:: \max_{w \in \Delta} \sum_i \log \sum_k w_k \pi_k(y_i)
    """

    def solve(self) -> Solution:
        """Fit the weights, every observation counting once."""
        return mixture_proportions(self.jets.logp.T, alpha=self.concentration - 1.0)

    def resolve(self, counts: Array) -> Solution:
        """Fit the weights again for many countings u of the observations, (replicate, n)."""
        return mixture_proportions(self.jets.logp.T, counts, self.concentration - 1.0)

    def slopes(self, weights: Array) -> Array:
        """Slopes of minus the total score in the weights."""
        return -self._ratios(weights).sum(axis=1)

    def score_range(self, weights: Array, direction: Array, first: float, last: float) -> float:
        """Range of the total score at ``weights + t · direction`` for t from first to last."""
        places = np.linspace(first, last, _PLACES)
        # Rounding may leave a weight a hair below zero at either end.
        points = np.maximum(weights + places[:, None] * direction, 0.0)
        scores = [Linear().pool_density(self.jets.logp, point).sum() for point in points]
        return float(np.ptp(scores))

    def flat_directions(self, weights: Array, face: Mask) -> Array:
        """Directions among the models of a face, (m, K), in which the score bends least."""
        ratios = self._ratios(weights)
        return flattest(ratios @ ratios.T, face)

    def _ratios(self, weights: Array) -> Array:
        """Each model's density over that of the pool, (K, n)."""
        return np.exp(self.jets.logp - Linear().pool_density(self.jets.logp, weights))
