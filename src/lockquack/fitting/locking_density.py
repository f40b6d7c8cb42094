"""Locking by rules of the density: convex, because the pool's logarithm is linear in weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from scipy.special import expit
from typing_extensions import override

from lockquack.fitting.convex import ConvexFitter
from lockquack.jets import Array, softmax
from lockquack.quadrature.nodes import Nodes
from lockquack.rules.wishes import INTEGRAL, NEIGHBOURS, Wish
from lockquack.solvers.base import Solution
from lockquack.solvers.simplex_newton import simplex_newton
from lockquack.solvers.simplex_qp import simplex_qp

#: Most Newton steps of a bootstrap replicate, and the change of a weight at which it has settled:
#: the next change would be about the square of it.
_STEPS, _SETTLED = 10, 1e-4
#: Log share of an outcome in the pool below which it is nothing but rounding.
_ROUNDING = np.log(np.finfo(np.float64).eps)


class LockingDensity(ConvexFitter, ABC):
    r"""Locking weights by a rule whose scores are concave in the log density.

    Minus the score of observation i is a convex function of w with slopes :math:`s_i` and
    Hessian :math:`H_i`.
    """

    kind = "convex, certified"
    refits_cheaply = False
    #: Where the rule looks besides the observed outcomes.
    wish: ClassVar[Wish]

    def jumps(self, weights: Array) -> bool:
        """Whether a model without weight excludes outcomes that the pool allows.

        With any weight it would exclude them from the pool, so the score is not continuous there,
        and its slopes tell nothing of weights beside.
        """
        if (weights > 0).all():
            return False
        start = 0
        for nodes in self.objective.densities.known_for(self.wish):
            obs = slice(start, start + nodes.logp.shape[2])
            these = weights if weights.ndim == 1 else weights[:, obs]
            pooled = self.objective.operator.pool_density(nodes.logp, these) + nodes.log_measure
            allowed = pooled > np.max(pooled, axis=0) + _ROUNDING
            without = these.reshape(len(these), 1, -1) == 0
            if (np.isneginf(nodes.logp) & without & allowed).any():
                return True
            start = obs.stop
        return False

    @abstractmethod
    def expansions(self, weights: Array) -> tuple[Array, Array]:
        """Slopes, (K, n), and Hessians, (K, K, n), of minus each score in the weights."""

    @override
    def solve(self) -> Solution:
        equal = np.full(self.objective.K, 1.0 / self.objective.K)
        return self._newton(self.objective.counts, equal)

    def refit_many(self, counts: Array, x: Array) -> Array:
        """Fit again for many sets of counts u, (replicate, n) → (replicate, K).

        Newton's method: the first quadratic programmes have the slopes and Hessians at the
        common solution, the next ones those at each replicate's own weights, until it settles.
        """
        slopes, hessians = self.expansions(x)
        gradient, hessian = counts @ slopes.T, np.tensordot(counts, hessians, axes=(1, 2))
        w = np.repeat(x[None], len(counts), axis=0)
        moving = np.arange(len(counts))
        for _ in range(_STEPS):
            linear = gradient - np.einsum("bjk,bk->bj", hessian, w[moving])
            moved = simplex_qp(hessian / 2, linear / 2, self.objective.concentration - 1.0).x
            settled = np.abs(moved - w[moving]).max(axis=1) < _SETTLED
            w[moving] = moved
            moving = moving[~settled]
            if not moving.size:
                return w
            each = [self.expansions(w[b]) for b in moving]
            pairs = list(zip(each, counts[moving], strict=True))
            gradient = np.stack([first @ u for (first, _), u in pairs])
            hessian = np.stack([second @ u for (_, second), u in pairs])
        for b in moving.tolist():
            w[b] = self.refit(counts[b], x)
        return w

    @override
    def refit(self, counts: Array, x: Array) -> Array:
        return self._newton(counts, 0.9 * x + 0.1 / self.objective.K).x

    @override
    def weight_slopes(self, weights: Array) -> Array:
        return self.objective.total(self.expansions(weights)[0])

    @override
    def half_hessian(self, weights: Array) -> Array:
        return self.objective.total(self.expansions(weights)[1]) / 2

    @override
    def slopes_each(self, weights: Array) -> Array:
        return self.expansions(weights)[0]

    @override
    def hessians_each(self, weights: Array) -> Array:
        return self.expansions(weights)[1]

    def _newton(self, counts: Array, start: Array) -> Solution:
        def expand(w: Array) -> tuple[float, Array, Array]:
            slopes, hessians = self.expansions(w)
            value = np.nan if self.jumps(w) else -float(self.objective.scores(w) @ counts)
            return value, slopes @ counts, hessians @ counts

        scale = self.objective.size_of(self.objective.scores(start))
        return simplex_newton(expand, start, self.objective.concentration - 1.0, scale=scale)


class LockingLogScore(LockingDensity):
    r"""Locking weights by the log score: an exponential family in the weights.

    Minus the score :math:`\log Z_i(w) - w'\ell_i` has slopes :math:`E_w \ell - \ell_i` and Hessian
    :math:`\mathrm{Cov}_w \ell`, expectations under the pool.
    """

    wish = INTEGRAL

    @override
    def expansions(self, weights: Array) -> tuple[Array, Array]:
        parts, start = [], 0
        for nodes in self.objective.densities.known_for(INTEGRAL):
            end = start + nodes.logp.shape[2]
            these = weights if weights.ndim == 1 else weights[:, start:end]
            parts.append(self._moments(nodes, these))
            start = end
        mean = np.concatenate([each for each, _ in parts], axis=1)
        cov = np.concatenate([each for _, each in parts], axis=2)
        return mean - self.objective.jets.logp, cov

    def _moments(self, nodes: Nodes, weights: Array) -> tuple[Array, Array]:
        """Mean, (K, n), and covariance, (K, K, n), of the log densities under the pool."""
        logp = nodes.logp
        share, _ = softmax(self.objective.operator.pool_density(logp, weights) + nodes.log_measure)
        # Where the pool is zero, so is its share, whatever its logarithm does.
        finite = np.where((share > 0) & np.isfinite(logp), logp, 0.0)
        mean = np.einsum("mn,kmn->kn", share, finite)
        centred = finite - mean[:, None]
        return mean, np.einsum("jmn,kmn->jkn", share * centred, centred, optimize=True)


class LockingPairwise(LockingDensity):
    r"""Locking weights by the pairwise conditional score: logistic regressions on log ratios.

    Minus the score is :math:`\sum_z \log(1 + e^{w' r_z})` with the models' log ratios
    :math:`r_z = \ell(z) - \ell(y)`.
    """

    wish = NEIGHBOURS

    @override
    def expansions(self, weights: Array) -> tuple[Array, Array]:
        logp = self.objective.jets.logp
        (neighbours,) = (nodes.logp for nodes in self.objective.densities.known_for(NEIGHBOURS))
        ratios = neighbours - logp[:, None]  # (K, neighbour, n)
        pooled = self.objective.operator.pool_density(logp, weights)
        share = expit(self.objective.operator.pool_density(neighbours, weights) - pooled)
        finite = np.where((share > 0) & np.isfinite(ratios), ratios, 0.0)
        slopes = np.einsum("zn,kzn->kn", share, finite)
        return slopes, np.einsum("zn,jzn,kzn->jkn", share * (1 - share), finite, finite)
