r"""Quadratic programmes: weights by scores that are quadratic in them.

.. math:: \min_{w \in \Delta} \; w' Q w + 2 c' w - \log \mathrm{prior}(w), \qquad
   Q = \sum_i Q_i, \quad c = \sum_i c_i .
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np
from typing_extensions import override

from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.forms import Forms, OfJets, OfMatrices, symmetric
from lockquack.jets import Array
from lockquack.numeric import cut
from lockquack.operators.base import Positions
from lockquack.rules.wishes import DISTANCES
from lockquack.solvers.base import Solution
from lockquack.solvers.nonnegative_qp import nonnegative_qp
from lockquack.solvers.simplex_qp import simplex_qp

#: Numbers that bootstrapping makes of its input at once: few enough to stay in cache.
_NUMBERS_AT_ONCE = 2**17
#: Share of a sum from which what is left without it is summed up anew.
_NEARLY_ALL = 0.99


class QuadraticFitter(ConvexFitter):
    """Weights by a score that is quadratic in them."""

    kind = "quadratic programme, certified"
    most_deletions = 100_000

    @property
    @abstractmethod
    def forms(self) -> Forms:
        """The quadratic form of each observation."""

    @cached_property
    def quadratic(self) -> tuple[Array, Array]:
        """Q and c."""
        return self.forms.total(self.objective.case_weights)

    @override
    def solve(self) -> Solution:
        return self._solve(*self.quadratic)

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        forms, K = self.forms, self.objective.K
        size = K * (K + 1) // 2
        upper = np.zeros((len(counts), size))
        for obs in cut(slice(0, counts.shape[1]), max(1, _NUMBERS_AT_ONCE // size)):
            # A matrix product sums the upper triangles of these observations' K × K matrices.
            upper += counts[:, obs] @ forms.triangles(obs).T
        return self._solve(symmetric(upper, K), counts @ forms.linear.T).x

    @override
    def refit_each(self, counts: Array, x: Array) -> Array:
        return self.refit_many(counts, x)

    @override
    def without_each(self, chosen: Positions, x: Array) -> Array:
        Q, c = self.quadratic
        forms, counts = self.forms, self.objective.counts[chosen]
        own = np.moveaxis(forms.matrices(chosen), 2, 0) * counts[:, None, None]
        linear = forms.linear
        rest_Q, rest_c = Q - own, c - (linear[:, chosen] * counts).T
        # Of what is left after nearly all was taken away, rounding would be too large a part.
        dominates = np.einsum("njj->nj", own) > _NEARLY_ALL * np.diagonal(Q)
        sizes = np.abs(linear) * self.objective.counts
        dominates |= (sizes[:, chosen] > _NEARLY_ALL * sizes.sum(axis=1, keepdims=True)).T
        for i in np.flatnonzero(dominates.any(axis=1)).tolist():
            rest = self.counts_without(chosen[[i]])[0]
            rest_Q[i], rest_c[i] = forms.total(rest)
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
        return self.forms.slopes(weights)

    @override
    def hessians_each(self, weights: Array) -> Array:
        return 2.0 * self.forms.matrices(slice(None))

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


class LockingHyvarinen(QuadraticFitter):
    r"""Locking weights by the Hyvärinen score.

    The pooled gradient and curvature are linear in the weights, so minus the total score is

    .. math:: w' Q w + 2 c' w, \qquad Q = \sum_{ij} G_{ij} G_{ij}', \quad c = \sum_{ij} C_{ij},

    with :math:`G_{ij}` and :math:`C_{ij}` the K models' gradients and curvatures in units of the
    outcome.
    """

    @property
    @override
    def forms(self) -> Forms:
        return OfJets(self.objective.jets)


class LinearEnergy(QuadraticFitter):
    r"""Weights of a mixture by CRPS or energy score.

    The distribution function of a mixture is linear in the weights, so minus the score is
    :math:`w' Q_i w` with the matrices of :mod:`lockquack.quadrature.pairs`.
    """

    @cached_property
    @override
    def forms(self) -> Forms:
        tables = self.objective.densities.known_for(DISTANCES)
        return OfMatrices(np.concatenate([table.matrix for table in tables], axis=-1))
