"""Weights of averages of quantiles, by CRPS."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np
from typing_extensions import override

from lockquack.errors import UnsupportedError
from lockquack.fitting.convex import ConvexFitter
from lockquack.jets import Array
from lockquack.quadrature.levels import Levels
from lockquack.quadrature.nodes import join_tables
from lockquack.rules.wishes import LEVELS
from lockquack.solvers.base import Solution
from lockquack.solvers.quantile_proportions import quantile_proportions
from lockquack.solvers.simplex_qp import simplex_qp

#: Newton steps from the common solution to that of a replicate.
_STEPS = 6


class QuantileFitter(ConvexFitter):
    r"""Weights of an average of quantiles: a linear programme.

    .. math:: \min_{w \in \Delta} \; \sum_i u_i \frac2L \sum_l
        \rho_{\tau_l}\Bigl(y_i - \sum_k w_k q_{kli}\Bigr)

    Replicates of the bootstrap are found by Newton steps from the common solution, with the
    density of the average at the outcomes estimated from its quantiles nearby: the linear programme
    of each would take minutes.
    """

    kind = "linear programme, certified"
    refits_cheaply = False
    most_deletions = 200
    cannot: ClassVar[Mapping[str, str]] = {
        "expansion": "The score of an average of quantiles has corners, so it has no curvature of "
        "which a sandwich, or the learning rate of a posterior, could be made. Use bootstrap()."
    }

    @cached_property
    def levels(self) -> Levels:
        """The models' quantiles."""
        found = join_tables(self.objective.densities.known_for(LEVELS))
        assert isinstance(found, Levels)
        return found

    @override
    def solve(self) -> Solution:
        self._require_flat()
        return self._solve(self.objective.counts)

    @override
    def refit(self, counts: Array, x: Array) -> Array:
        return self._solve(counts).x

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        half = np.tensordot(counts, self.levels.hessians(x), axes=([1], [2])) / 2
        best, step = np.repeat(x[None], len(counts), axis=0), np.ones(len(counts))
        value, slopes = self._expand(counts, best)
        for _ in range(_STEPS):
            linear = slopes / 2 - np.einsum("rjk,rk->rj", half, best)
            towards = simplex_qp(half, linear, 0.0).x
            tried = best + step[:, None] * (towards - best)
            found, new = self._expand(counts, tried)
            better = found < value
            best, slopes = (
                np.where(better[:, None], after, before)
                for after, before in ((tried, best), (new, slopes))
            )
            # At a corner of the score a whole step may lead too far.
            value, step = np.where(better, found, value), np.where(better, step, step / 2)
        return best

    @override
    def weight_slopes(self, weights: Array) -> Array:
        return self.slopes_each(weights) @ self.objective.counts

    @override
    def half_hessian(self, weights: Array) -> Array:
        return self.hessians_each(weights) @ self.objective.counts / 2

    @override
    def slopes_each(self, weights: Array) -> Array:
        return self.levels.slopes(weights)

    @override
    def hessians_each(self, weights: Array) -> Array:
        return self.levels.hessians(weights)

    def _expand(self, counts: Array, weights: Array) -> tuple[Array, Array]:
        """Value and slopes of replicates, (replicate,) and (replicate, K), each at its weights."""
        levels = self.levels
        pairs = list(zip(counts, weights, strict=True))
        values = [u @ levels.distance(levels.averaged(w)) for u, w in pairs]
        slopes = [levels.slopes(w) @ u for u, w in pairs]
        return np.array(values), np.stack(slopes)

    def _solve(self, counts: Array) -> Solution:
        counted = np.flatnonzero(counts)
        excess = self.levels.excess[..., counted]
        K, L, n = excess.shape
        return quantile_proportions(
            excess.reshape(K, -1).T,
            np.zeros(L * n),
            np.repeat(self.levels.level[:, 0], n),
            np.tile(counts[counted], L) * (2.0 / L),
        )

    def _require_flat(self) -> None:
        if (self.objective.concentration != 1.0).any():
            raise UnsupportedError(
                "Weights of averages of quantiles have a flat prior, with which they are a linear "
                "programme. Leave prior= out."
            )
