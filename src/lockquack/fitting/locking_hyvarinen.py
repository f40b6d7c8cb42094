"""Locking by the Hyvärinen score: a convex quadratic programme."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from typing_extensions import override

from lockquack.fitting.convex import ConvexFitter
from lockquack.jets import Array, Jet
from lockquack.numeric import cut
from lockquack.operators.base import Places
from lockquack.solvers.base import Solution
from lockquack.solvers.nonnegative_qp import nonnegative_qp
from lockquack.solvers.simplex_qp import simplex_qp

#: Numbers that bootstrapping makes of its input at once: few enough to stay in cache.
_NUMBERS_AT_ONCE = 2**17
#: Share of a sum from which what is left without it is summed up anew.
_NEARLY_ALL = 0.99


class LockingHyvarinen(ConvexFitter):
    r"""Locking weights by the Hyvärinen score.

    The pooled gradient and curvature are linear in the weights, so minus the total score is

    .. math:: w' Q w + 2 c' w, \qquad Q = \sum_{ij} G_{ij} G_{ij}', \quad c = \sum_{ij} C_{ij},

    with :math:`G_{ij}` and :math:`C_{ij}` the K models' gradients and curvatures in units of the
    outcome.
    """

    kind = "quadratic programme, certified"
    most_deletions = 100_000

    @cached_property
    def quadratic(self) -> tuple[Array, Array]:
        """Q and c."""
        return quadratic_form(self.objective.jets, self.objective.case_weights)

    @override
    def solve(self) -> Solution:
        return self._solve(*self.quadratic)

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        jets = self.objective.jets
        row, column = np.triu_indices(self.objective.K)
        upper = np.zeros((len(counts), row.size))
        for obs in cut(slice(0, counts.shape[1]), max(1, _NUMBERS_AT_ONCE // row.size)):
            # A matrix product sums the upper triangles of these observations' K × K matrices.
            upper += counts[:, obs] @ triangles(jets.grad[:, obs]).T
        Q = np.empty((len(counts), self.objective.K, self.objective.K))
        Q[:, row, column] = upper
        Q[:, column, row] = upper
        return self._solve(Q, counts @ jets.curv.sum(axis=2).T).x

    @override
    def without_each(self, chosen: Places, x: Array) -> Array:
        Q, c = self.quadratic
        jets, counts = self.objective.jets[:, chosen], self.objective.counts[chosen]
        own = np.einsum("jnd,knd->njk", jets.grad, jets.grad) * counts[:, None, None]
        rest_Q, rest_c = Q - own, c - (jets.curv.sum(axis=2) * counts).T
        # Of what is left after nearly all was taken away, rounding would be too large a part.
        dominates = np.einsum("njj->nj", own) > _NEARLY_ALL * np.diagonal(Q)
        sizes = np.abs(self.objective.jets.curv.sum(axis=2)) * self.objective.counts
        dominates |= (sizes[:, chosen] > _NEARLY_ALL * sizes.sum(axis=1, keepdims=True)).T
        for i in np.flatnonzero(dominates.any(axis=1)).tolist():
            rest = self.counts_without(chosen[[i]])[0]
            rest_Q[i], rest_c[i] = quadratic_form(self.objective.jets, rest)
        return self._solve(rest_Q, rest_c).x

    def value(self, x: Array) -> float:
        """Return the objective at x, without a look at the observations."""
        Q, c = self.quadratic
        return float(x @ Q @ x + 2 * c @ x) - self.objective.space.log_prior(x)

    @override
    def expand_free(self, z: Array) -> tuple[float, Array]:
        space = self.objective.space
        x = space.natural(z)
        by_log = x * self.weight_slopes(x) - space.prior_slopes(x)
        return self.value(x), space.pull(z, by_log)

    @override
    def weight_slopes(self, weights: Array) -> Array:
        Q, c = self.quadratic
        return 2.0 * (Q @ weights + c)

    @override
    def half_hessian(self, weights: Array) -> Array:
        return self.quadratic[0]

    @override
    def slopes_each(self, weights: Array) -> Array:
        jets = self.objective.jets
        along = np.einsum("k,knj->nj", weights, jets.grad)
        return 2.0 * (np.einsum("knj,nj->kn", jets.grad, along) + jets.curv.sum(axis=2))

    @override
    def hessians_each(self, weights: Array) -> Array:
        grad = self.objective.jets.grad
        return 2.0 * np.einsum("jnd,knd->jkn", grad, grad)

    @override
    def score_range(self, weights: Array, direction: Array, first: float, last: float) -> float:
        slope = direction @ self.weight_slopes(weights)
        bend = direction @ self.quadratic[0] @ direction
        places = np.array([first, last])
        if bend > 0:
            places = np.append(places, np.clip(-slope / (2.0 * bend), first, last))
        return float(np.ptp(places * slope + places**2 * bend))

    def _solve(self, Q: Array, c: Array) -> Solution:
        solver = simplex_qp if self.objective.operator.on_simplex else nonnegative_qp
        return solver(Q, c, self.objective.concentration - 1.0)


def quadratic_form(jets: Jet, counts: Array | None) -> tuple[Array, Array]:
    """Q and c of the jets of some experts, every observation as often as it counts."""
    grad = jets.grad if counts is None else np.sqrt(counts)[:, None] * jets.grad
    flat = grad.reshape(len(grad), -1)
    c = jets.curv.sum(axis=(1, 2)) if counts is None else jets.curv.sum(axis=2) @ counts
    return flat @ flat.T, c


def triangles(grad: Array) -> Array:
    """Upper triangles of Σ_j G_ij G_ij' for each observation i: (K, n, d) → (K (K + 1) / 2, n)."""
    return np.concatenate([np.einsum("kij,ij->ki", grad[k:], each) for k, each in enumerate(grad)])
