"""Stacking: the linear pool by the log score, a concave problem."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from lockquack.fitting.convex import ConvexFitter
from lockquack.jets import Array
from lockquack.solvers.base import Solution
from lockquack.solvers.mixture_proportions import mixture_proportions


class LinearLogScore(ConvexFitter):
    r"""Weights of the linear pool by the log score: mixture proportions by maximum likelihood.

    .. math:: \max_{w \in \Delta} \sum_i \log \sum_k w_k \pi_k(y_i)
    """

    kind = "concave, certified"

    @override
    def solve(self) -> Solution:
        return self._solve(self.objective.case_weights)

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        return self._solve(counts).x

    @override
    def weight_slopes(self, weights: Array) -> Array:
        return -self.objective.total(self._ratios(weights))

    @override
    def half_hessian(self, weights: Array) -> Array:
        ratios = self._ratios(weights)
        counts = self.objective.case_weights
        return (ratios if counts is None else ratios * counts) @ ratios.T / 2

    @override
    def slopes_each(self, weights: Array) -> Array:
        return -self._ratios(weights)

    @override
    def hessians_each(self, weights: Array) -> Array:
        ratios = self._ratios(weights)
        return np.einsum("jn,kn->jkn", ratios, ratios)

    def _solve(self, counts: Array | None) -> Solution:
        logp, concentration = self.objective.jets.logp, self.objective.concentration
        return mixture_proportions(logp.T, counts, concentration - 1.0)

    def _ratios(self, weights: Array) -> Array:
        """Each model's density over that of the pool, (K, n)."""
        logp = self.objective.jets.logp
        return np.exp(logp - self.objective.operator.pool_density(logp, weights))
