"""Stacking: the linear pool by the log score, a concave problem."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.objective import Objective
from lockquack.jets import Array
from lockquack.solvers.base import Solution
from lockquack.solvers.mixture_proportions import mixture_proportions

#: Largest logarithm of a ratio of densities whose square is a number still.
_LARGEST = 350.0


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
    def refit_each(self, counts: Array, x: Array) -> Array:
        return self.refit_many(counts, x)

    @override
    def weight_slopes(self, weights: Array) -> Array:
        return -self.objective.total(density_ratios(self.objective, weights))

    @override
    def half_hessian(self, weights: Array) -> Array:
        ratios = density_ratios(self.objective, weights)
        counts = self.objective.case_weights
        return (ratios if counts is None else ratios * counts) @ ratios.T / 2

    @override
    def slopes_each(self, weights: Array) -> Array:
        return -density_ratios(self.objective, weights)

    @override
    def hessians_each(self, weights: Array) -> Array:
        ratios = density_ratios(self.objective, weights)
        return np.einsum("jn,kn->jkn", ratios, ratios)

    def _solve(self, counts: Array | None) -> Solution:
        logp, concentration = self.objective.jets.logp, self.objective.concentration
        return mixture_proportions(logp.T, counts, concentration - 1.0)


def density_ratios(objective: Objective, weights: Array) -> Array:
    """Find each model's density over that of the linear pool, (K, n); 1 where nothing is counted.

    At the best weights it is at most the sum of all counts over that of the observation. Without a
    count there is no bound, and a model without weight may be any number of times as high.
    """
    logp, counts = objective.jets.logp, objective.case_weights
    apart = logp - objective.operator.pool_density(logp, weights)
    if counts is not None:
        apart = np.where(counts > 0, apart, 0.0)
    return np.exp(np.minimum(apart, _LARGEST))
