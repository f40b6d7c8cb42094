"""What problems have in common that are convex in weights on the simplex."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np
from typing_extensions import override

from lockquack.fitting.fitter import Fitter
from lockquack.fitting.uncertainty import INACTIVE, pseudo_inverse
from lockquack.jets import Array
from lockquack.operators.base import Positions
from lockquack.operators.space import Mask, contrasts
from lockquack.solvers.simplex_qp import simplex_qp

#: Positions along a direction where the score is looked at.
_PLACES = 9
#: Curvature, as a share of the largest, below which a direction is straight but for rounding.
_STRAIGHT = 1e-9


class ConvexFitter(Fitter, ABC):
    """A convex problem whose parameters are weights of the models on the simplex."""

    most_deletions = 2_000

    @abstractmethod
    def weight_slopes(self, weights: Array) -> Array:
        """Slopes of minus the total score in the weights, (K,)."""

    @abstractmethod
    def half_hessian(self, weights: Array) -> Array:
        """Half the Hessian of minus the total score in the weights, (K, K)."""

    @abstractmethod
    def slopes_each(self, weights: Array) -> Array:
        """Slopes of minus each score in the weights, (K, n)."""

    @abstractmethod
    def hessians_each(self, weights: Array) -> Array:
        """Hessians of minus each score in the weights, (K, K, n)."""

    def step_without_each(self, chosen: Positions, weights: Array) -> Array:
        """Take one Newton step to the weights without each of the chosen observations, (m, K).

        A quadratic programme each, with the slopes and Hessians at the solution for all.
        """
        alone = replace(self, objective=self.objective.at(chosen))
        counts = self.objective.counts[chosen]
        slopes = self.weight_slopes(weights) - (alone.slopes_each(weights) * counts).T
        half = alone.hessians_each(weights) * (counts / 2)
        half = self.half_hessian(weights) - np.moveaxis(half, 2, 0)
        linear = slopes / 2 - half @ weights
        return simplex_qp(half, linear, self.objective.concentration - 1.0).x

    @override
    def learning_rate(self, x: Array) -> float:
        r"""Return :math:`\eta = \mathrm{tr}(J I^{-1} J) / \mathrm{tr}(J)` of the scores alone.

        The prior is left out of both: it bends without bound at a weight of zero, and η is not to
        make up for that. For the same reason I is not centred: near zero the prior balances the
        scores' mean slope, which says how clear the scores are there.
        """
        if not self.objective.operator.on_simplex:
            return super().learning_rate(x)
        members = np.flatnonzero(x > INACTIVE / self.objective.K)
        if members.size < 2:  # one model has all the weight: how clearly, all slopes tell
            members = np.arange(x.size)
        basis = contrasts(members.size)
        J = 2.0 * basis.T @ self.half_hessian(x)[np.ix_(members, members)] @ basis
        slopes = basis.T @ (self.slopes_each(x)[members] * self.objective.counts)
        if not (np.isfinite(J).all() and np.isfinite(slopes).all() and J.any()):
            return float("nan")
        return float(np.trace(J @ pseudo_inverse(slopes @ slopes.T) @ J) / np.trace(J))

    def score_range(self, weights: Array, direction: Array, first: float, last: float) -> float:
        """Range of the total score at ``weights + t · direction`` for t from first to last."""
        places = np.linspace(first, last, _PLACES)
        # Rounding may leave a weight a hair below zero at either end.
        points = np.maximum(weights + places[:, None] * direction, 0.0)
        totals = [self.objective.total(self.objective.scores(point)) for point in points]
        return float(np.ptp(totals))

    def flat_directions(self, weights: Array, face: Mask) -> Array:
        """Directions among the models of a face, (m, K), in which the score bends least.

        They involve the models of the face only and leave the sum of the weights as it is. Where
        several do not bend at all, any mixture of them does as well: those nearest to moving one
        of the models stand for all, so that nothing depends on the models' order.
        """
        members = np.flatnonzero(face)
        basis = contrasts(members.size)
        half = self.half_hessian(weights)[np.ix_(members, members)]
        values, vectors = np.linalg.eigh(basis.T @ half @ basis)
        top, vectors = values.max(initial=0.0), basis @ vectors
        straight = values < _STRAIGHT * top
        found = vectors[:, straight] @ vectors[:, straight].T
        slow = vectors[:, ~straight & (values < 1e-2 * top)].T
        found = np.concatenate([found[np.linalg.norm(found, axis=1) > _STRAIGHT], slow])
        directions = np.zeros((len(found), face.size))
        directions[:, members] = found
        return directions
