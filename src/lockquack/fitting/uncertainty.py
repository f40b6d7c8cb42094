"""How uncertain fitted parameters are: the sandwich, and what it says of the posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockquack.fitting.objective import Objective
from lockquack.jets import Array
from lockquack.operators.space import Mask, Space, contrasts
from lockquack.solvers.differences import central_differences, hessian
from lockquack.totals import deviations, effective_number

#: Observations from which standard errors and intervals are shown. Of fewer, a bootstrap interval
#: of 90 % contains the right weight in less than three of four cases, of two in one of three.
FEWEST_OBSERVATIONS = 10
#: Eigenvalues below this share of the largest belong to directions that change nothing.
_FLAT = 1e-9
#: Weight, in units of an equal one, below which a model is not on the active face.
INACTIVE = 1e-3


def are_too_few(n: int, case_weights: Array | None) -> bool:
    """Whether observations, by their case weights, are too few for standard errors.

    Where a few of them have nearly all of the weight, the others do not show how much these vary.
    """
    return round(effective_number(case_weights, n)) < FEWEST_OBSERVATIONS


@dataclass(frozen=True)
class Curvature:
    """The objective around a solution, in free coordinates along the active face."""

    jacobian: Array  # (P, D): parameters by D directions
    hessian: Array  # (D, D): J, of minus the total score and log prior
    slopes: Array  # (D, n): of each score
    variance: Array  # (D, D): I, the sum of squares of the scores' slopes, centred and weighted

    def sandwich(self) -> Array:
        """Covariance of the parameters, J⁻¹ I J⁻¹ / n, whatever the true distribution."""
        inverse = pseudo_inverse(self.hessian)
        return self.jacobian @ inverse @ self.variance @ inverse @ self.jacobian.T

    def learning_rate(self) -> float:
        """Return η = tr(J I⁻¹ J) / tr(J), which gives the posterior the sandwich's spread.

        J and I are those of the parameters, not of their free coordinates.
        """
        if not self.hessian.size:
            return float("nan")  # nothing varies
        back = np.linalg.pinv(self.jacobian, rcond=_FLAT)
        J, I = (back.T @ each @ back for each in (self.hessian, self.variance))  # noqa: E741
        return float(np.trace(J @ pseudo_inverse(I) @ J) / np.trace(J))


def expand_around(objective: Objective, x: Array) -> Curvature:
    """Differentiate the objective twice around a solution."""
    space = objective.space
    z = space.free(x)
    directions = _directions(space, x)  # (P, D)
    inside = np.isfinite(z)

    def at(shift: Array) -> Array:
        return np.where(inside, z + directions @ shift, z)

    still = np.zeros(directions.shape[1])
    bent = hessian(lambda shift: directions.T @ objective.expand_free(at(shift))[1], still)
    moves = central_differences(lambda shift: space.natural(at(shift)), still)
    slopes = directions.T @ space.pull(z, objective.expand(x)[1])  # (D, n)
    centred = deviations(slopes, objective.case_weights)
    return Curvature(moves.reshape(-1, z.size).T, bent, slopes, centred @ centred.T)


def weight_jacobian(objective: Objective, x: Array) -> Array:
    """Differentiate the models' weights in the parameters, (K, P)."""
    return central_differences(objective.weights, x).T


def with_draws_of_prior(
    draws: Array, hidden: Mask, concentration: Array, rng: np.random.Generator
) -> Array:
    """Draw the weights of which the data say nothing from their prior, (draw, K).

    The others share what is left in the proportions that they have.
    """
    prior = rng.dirichlet(concentration, size=len(draws))
    seen = np.where(hidden, 0.0, draws)
    total = seen.sum(axis=1, keepdims=True)
    equal = np.where(hidden, 0.0, 1.0 / max(int((~hidden).sum()), 1))
    share = np.where(total > 0, seen / np.where(total > 0, total, 1.0), equal)
    rest = 1.0 - np.where(hidden, prior, 0.0).sum(axis=1, keepdims=True)
    return np.where(hidden, prior, share * rest)


def _directions(space: Space, x: Array) -> Array:
    """Orthonormal directions in free coordinates, (P, D), that leave weights at zero there.

    A common shift of the coordinates of a simplex, or of phases, changes nothing and is left out.
    """
    columns = [np.zeros((0, x.size))]
    start = 0
    for block, part in space.parts(x):
        members = start + np.flatnonzero(block.active(part, INACTIVE))
        centred = block.ignores_shifts and members.size
        basis = contrasts(members.size).T if centred else np.eye(members.size)
        rows = np.zeros((len(basis), x.size))
        rows[:, members] = basis
        columns.append(rows)
        start += block.size
    return np.concatenate(columns).T


def pseudo_inverse(matrix: Array) -> Array:
    """Inverse of a symmetric matrix in the directions in which it is not zero."""
    return np.asarray(np.linalg.pinv(matrix, rcond=_FLAT, hermitian=True))
