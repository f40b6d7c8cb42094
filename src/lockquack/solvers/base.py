"""What every solver hands back: a point, and a proof of how good it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solution:
    """The minimiser of f that a solver found, with a bound on what it may have missed.

    A batch of problems is solved at once, so every field has the batch's shape ``(...)``. For
    one problem that shape is ``()``: the fields are 0-d arrays, which ``float``, ``bool`` and
    ``if`` take like scalars.

    Attributes
    ----------
    x
        The points, (..., K).
    objective
        f(x).
    gap
        An upper bound on f(x) − min f, in the units of f.
    scale
        The size of the terms that add up to f(x), in the units of f.
    converged
        Whether the gap is small against the scale.
    iterations
        How many steps the solver took.
    status
        In words, what made the solver stop.
    starts
        For a problem that is not convex, how many starts agree on the solution and how many
        there were. Then the gap is not known (NaN).
    stationarity
        For such a problem, the largest slope that is left, in units of the scale.

    Examples
    --------
    >>> import numpy as np
    >>> solution = Solution(
    ...     x=np.array([0.5, 0.5]), objective=np.array(3.0), gap=np.array(1e-12),
    ...     scale=np.array(4.0), converged=np.array(True), iterations=np.array(7),
    ...     status=np.array("converged"),
    ... )
    >>> float(solution.relative_gap), bool(solution.converged), str(solution.status)
    (2.5e-13, True, 'converged')
    """

    x: Array
    objective: Array
    gap: Array
    scale: Array
    converged: NDArray[np.bool_]
    iterations: NDArray[np.int_]
    status: NDArray[np.str_]
    starts: tuple[int, int] | None = field(default=None, kw_only=True)
    stationarity: float = field(default=float("nan"), kw_only=True)

    @classmethod
    def of_one(
        cls,
        x: Array,
        objective: float,
        gap: float,
        scale: float,
        iterations: int,
        *,
        tol: float,
        max_iter: int,
    ) -> Solution:
        """Make the solution of one problem, which has converged if its gap is small enough."""
        f, bound, size = (np.asarray(number) for number in (objective, gap, scale))
        converged, taken = np.asarray(bound <= tol * size), np.asarray(iterations)
        return cls(x, f, bound, size, converged, taken, status_of(converged, taken, max_iter))

    @property
    def relative_gap(self) -> Array:
        """The gap in units of the scale; a gap of zero is zero on every scale."""
        positive = np.where(self.scale > 0, self.scale, 1.0)
        unbounded = (self.scale == 0) & (self.gap > 0)
        return np.asarray(np.where(unbounded, np.inf, self.gap / positive))


def with_rounding(gap: ArrayLike, scale: ArrayLike) -> Array:
    """Raise a gap to the rounding error of its scale: a bound below it would claim too much."""
    return np.maximum(gap, np.finfo(np.float64).eps * np.asarray(scale))


def status_of(
    converged: NDArray[np.bool_], iterations: NDArray[np.int_], max_iter: int
) -> NDArray[np.str_]:
    """Say in words what made a solver stop."""
    stopped = np.where(iterations >= max_iter, "iteration limit", "stalled")
    return np.where(converged, "converged", stopped)
