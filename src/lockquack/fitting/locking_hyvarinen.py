"""Locking by the Hyvärinen score: a convex quadratic programme."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lockquack.fitting.base import Mask, Problem, flattest
from lockquack.jets import Array
from lockquack.solvers.base import Solution
from lockquack.solvers.simplex_qp import simplex_qp

#: Bound on the numbers that bootstrapping holds at once beside its input.
_NUMBERS_AT_ONCE = 2**22


class LockingHyvarinen(Problem):
    r"""Locking weights by the Hyvärinen score.

    The pooled gradient and curvature are linear in the weights, so minus the total score is

    .. math::

        w' Q w + 2 c' w, \qquad Q = \sum_{ij} s_j^2\, G_{ij} G_{ij}', \quad
        c = \sum_{ij} s_j^2\, C_{ij},

    with :math:`G_{ij}` and :math:`C_{ij}` the K models' gradients and curvatures.
    """

    @cached_property
    def _features(self) -> tuple[Array, Array]:
        """Gradients and curvatures in units of the outcome, (n, d, K)."""
        return (
            np.moveaxis(self.jets.grad * self.unit, 0, -1),
            np.moveaxis(self.jets.curv * self.unit**2, 0, -1),
        )

    @cached_property
    def _quadratic(self) -> tuple[Array, Array]:
        grad, curv = self._features
        flat = grad.reshape(-1, grad.shape[-1])
        return flat.T @ flat, curv.sum(axis=(0, 1))

    def solve(self) -> Solution:
        """Fit the weights, every observation counting once."""
        return simplex_qp(*self._quadratic, self.concentration - 1.0)

    def resolve(self, counts: Array) -> Solution:
        """Fit the weights again for many countings u of the observations, (replicate, n)."""
        grad, curv = self._features
        K = grad.shape[-1]
        row, column = np.triu_indices(K)
        upper = np.zeros((len(counts), row.size))
        step = max(1, _NUMBERS_AT_ONCE // (row.size * grad.shape[1]))
        for start in range(0, len(grad), step):
            part = grad[start : start + step]
            # A matrix product sums the upper triangles of these observations' K × K matrices.
            triangles = np.einsum("ijp,ijp->ip", part[..., row], part[..., column])
            upper += counts[:, start : start + step] @ triangles
        Q = np.empty((len(counts), K, K))
        Q[:, row, column] = upper
        Q[:, column, row] = upper
        return simplex_qp(Q, counts @ curv.sum(axis=1), self.concentration - 1.0)

    def slopes(self, weights: Array) -> Array:
        """Slopes of minus the total score in the weights."""
        Q, c = self._quadratic
        return 2.0 * (Q @ weights + c)

    def score_range(self, weights: Array, direction: Array, first: float, last: float) -> float:
        """Range of the total score at ``weights + t · direction`` for t from first to last."""
        slope = direction @ self.slopes(weights)
        bend = direction @ self._quadratic[0] @ direction
        places = np.array([first, last])
        if bend > 0:
            places = np.append(places, np.clip(-slope / (2.0 * bend), first, last))
        return float(np.ptp(places * slope + places**2 * bend))

    def flat_directions(self, weights: Array, face: Mask) -> Array:
        """Directions among the models of a face, (m, K), in which the score bends least."""
        return flattest(self._quadratic[0], face)
