"""What problems have in common that are convex in weights on the simplex."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from lockquack.fitting.fitter import Fitter
from lockquack.jets import Array
from lockquack.operators.space import Mask, contrasts

#: Places along a direction where the score is looked at.
_PLACES = 9


class ConvexFitter(Fitter, ABC):
    """A convex problem whose parameters are weights of the models on the simplex."""

    @abstractmethod
    def weight_slopes(self, weights: Array) -> Array:
        """Slopes of minus the total score in the weights, (K,)."""

    @abstractmethod
    def half_hessian(self, weights: Array) -> Array:
        """Half the Hessian of minus the total score in the weights, (K, K)."""

    def score_range(self, weights: Array, direction: Array, first: float, last: float) -> float:
        """Range of the total score at ``weights + t · direction`` for t from first to last."""
        places = np.linspace(first, last, _PLACES)
        # Rounding may leave a weight a hair below zero at either end.
        points = np.maximum(weights + places[:, None] * direction, 0.0)
        totals = [self.objective.total(self.objective.scores(point)) for point in points]
        return float(np.ptp(totals))

    def flat_directions(self, weights: Array, face: Mask) -> Array:
        """Directions among the models of a face, (m, K), in which the score bends least.

        They involve the models of the face only and leave the sum of the weights as it is.
        """
        members = np.flatnonzero(face)
        basis = contrasts(members.size)
        half = self.half_hessian(weights)[np.ix_(members, members)]
        values, vectors = np.linalg.eigh(basis.T @ half @ basis)
        flat = values < 1e-2 * values.max(initial=0.0)
        directions = np.zeros((int(flat.sum()), face.size))
        directions[:, members] = (basis @ vectors[:, flat]).T
        return directions
