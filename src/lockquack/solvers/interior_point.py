r"""Primal-dual interior point steps on the simplex, or the orthant, for batches of problems.

The quadratic programme

.. math:: \min_{w \in \Delta} w'Qw + 2c'w - \textstyle\sum_k \alpha_k \log w_k

is what a Newton step of any smooth problem on the simplex looks like. This module has its
optimality conditions, its steps and its certificate; the solvers beside it decide where to take
the steps and when to stop. Without the constraint on the sum, its multiplier is zero and the
steps are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.base import Array

Mask = NDArray[np.bool_]
Index = NDArray[np.intp]
#: Solves for steps of the weights, (B, K), and of the multipliers of their sums, (B, 1).
NewtonSolver = Callable[[Array], tuple[Array, Array]]

#: Proximal term on the diagonal of the Newton matrix, whose own diagonal is scaled to one. It
#: keeps a step out of the null space of Q, where it would be rounding error; the repeated steps
#: undo its bias in every other direction. A prior has curvature there and needs less of it.
_PROXIMAL = 1e-10
_PROXIMAL_PRIOR = 1e-14
#: Fraction of the way to the boundary that a step may go.
_INSIDE = 0.995
#: Smallest multiplier of a weight with a prior, in units of alpha / w.
_FLOOR = 0.5
#: Gap, in units of the scale at the start, that is small enough where the optimum's scale is zero.
_VOID = 1e-30
#: Iterations without progress after which a problem is given up.
PATIENCE = 15
#: Most steps beyond the tolerance; quadratic convergence needs no more to meet rounding.
EXTRA = 4
#: Newton steps on the face of the simplex that carries the solution.
FACE_STEPS = 6
#: Relative difference below which numbers are taken for equal when looking for duplicates.
_SAME = 1e-14


def validated(quad: ArrayLike, linear: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array, Array]:
    """Return Q, c and alpha as finite float arrays, as views broadcast to one batch."""
    Q, c, a = (np.asarray(value, dtype=np.float64) for value in (quad, linear, alpha))
    if Q.ndim < 2 or c.ndim < 1 or not Q.shape[-2] == Q.shape[-1] == c.shape[-1] > 0:
        raise ShapeError(f"Q has shape {Q.shape} and c {c.shape}: want (..., K, K) and (..., K).")
    try:
        shape = np.broadcast_shapes(Q.shape[:-1], c.shape, a.shape)
    except ValueError:
        shape = ()
    if shape[-1:] != c.shape[-1:]:
        raise ShapeError(f"Shapes {Q.shape}, {c.shape} and alpha's {a.shape} do not fit together.")
    for name, value in (("Q", Q), ("c", c), ("alpha", a)):
        if not np.isfinite(value).all():
            raise NonFiniteError(f"{name} has NaN or infinite entries.")
    if (a < 0).any():
        raise ParameterError("alpha is negative: a prior concentration below one has no minimum.")
    if (np.diagonal(Q, axis1=-2, axis2=-1) < 0).any():
        raise ParameterError("Q has a negative diagonal entry: it is not positive semidefinite.")
    return (
        np.broadcast_to(Q, (*shape, shape[-1])),
        np.broadcast_to(c, shape),
        np.broadcast_to(a, shape),
    )


class Programme(ABC):
    """What a step needs to know of a batch of quadratic programmes."""

    alpha: Array  # (B, K): the prior's concentration minus one
    #: Whether the weights sum to one.
    fixed_sum: ClassVar[bool] = True

    @abstractmethod
    def gradient(self, w: Array) -> Array:
        """Return 2(Qw + c), the gradient without the prior."""

    @abstractmethod
    def newton(self, curvature: Array, free: Mask | None = None) -> NewtonSolver:
        """Factorise 2Q + diag(curvature), bordered by the sums; only free weights get a step."""

    def least(self, values: Array) -> Array:
        """Return the least of (B, K) values in each problem of the batch."""
        return values.min(axis=-1, keepdims=True)

    def mean(self, values: Array) -> Array:
        """Return the mean of (B, K) values in each problem of the batch."""
        return values.mean(axis=-1, keepdims=True)


@dataclass(frozen=True)
class Quadratic(Programme):
    """A batch of problems with one leading axis."""

    Q: Array  # (B, K, K), symmetric
    c: Array  # (B, K)
    alpha: Array

    def take(self, keep: Mask | Index) -> Self:
        """Keep some problems of the batch."""
        return type(self)(self.Q[keep], self.c[keep], self.alpha[keep])

    @override
    def gradient(self, w: Array) -> Array:
        return 2 * (times(self.Q, w) + self.c)

    def objective(self, w: Array) -> Array:
        """Return f(w)."""
        return dot(w, times(self.Q, w) + 2 * self.c) - log_terms(w, self.alpha).sum(axis=-1)

    def scale(self, w: Array) -> Array:
        """Return the sum of the absolute terms of f(w)."""
        centred = self.c - dot(self.c, w)[:, None]
        terms = times(np.abs(self.Q), w) + 2 * np.abs(centred)
        return dot(w, terms) + (self.alpha + np.abs(log_terms(w, self.alpha))).sum(axis=-1)

    def gap(self, w: Array) -> Array:
        """Return the duality gap at the best multiplier; see :func:`simplex_qp`."""
        s = dual_slack(self.gradient(w), self.alpha)
        return np.asarray(gap_terms(s * w, self.alpha).sum(axis=-1))

    @override
    def newton(self, curvature: Array, free: Mask | None = None) -> NewtonSolver:
        # [2Q + diag(curvature), 1; 1', 0], scaled to a unit diagonal. Where the sum of the
        # weights is not fixed, the border is that of the identity.
        (B, K), Q = curvature.shape, self.Q
        diagonal = 2 * np.diagonal(Q, axis1=-2, axis2=-1) + curvature
        floor = 1e-30 * diagonal.max(axis=-1, keepdims=True)
        root = 1 / np.sqrt(np.where(diagonal > floor, diagonal, np.where(floor > 0, floor, 1.0)))
        if free is not None:
            root = np.where(free, root, 0.0)
        border = 1 / root.max(axis=-1, keepdims=True)
        matrix = np.zeros((B, K + 1, K + 1))
        matrix[:, :K, :K] = 2 * Q * root[:, :, None] * root[:, None, :]
        if self.fixed_sum:
            matrix[:, :K, K] = matrix[:, K, :K] = root * border
        else:
            matrix[:, K, K] = 1.0
        at = np.arange(K)
        matrix[:, at, at] += curvature * root**2
        matrix[:, at, at] += np.where(self.alpha > 0, _PROXIMAL_PRIOR, _PROXIMAL)

        def solve(rhs: Array) -> tuple[Array, Array]:
            step = solve_each(matrix, np.concatenate([rhs * root, np.zeros_like(border)], axis=-1))
            return step[:, :-1] * root, -step[:, -1:] * border

        return solve


def dual_slack(h: Array, alpha: Array) -> Array:
    r"""Return :math:`s = h - \lambda` at the root of :math:`\sum_k \alpha_k / s_k = 1`.

    Where the entries without prior do not let the slack become small enough for a root,
    it is the smallest nonnegative slack. With :math:`s = h - \min h + \tau`, Newton's
    method on :math:`1 / \sum_k \alpha_k / s_k`, concave in :math:`\tau`, climbs to the
    root from below, so s stays nonnegative; every iterate gives a valid bound.
    """
    excess = h - h.min(axis=-1, keepdims=True)
    prior = alpha > 0
    tau = np.maximum((alpha - excess).max(axis=-1, keepdims=True), 0.0)
    for _ in range(40):
        inverse = 1 / np.where(prior, excess + tau, np.inf)
        total = (alpha * inverse).sum(axis=-1, keepdims=True)
        slope = (alpha * inverse**2).sum(axis=-1, keepdims=True)
        step = total * (total - 1) / np.where(slope > 0, slope, 1.0)
        tau = np.maximum(tau + step, 0.0)
        if not (step > 1e-14 * tau).any():
            break
    return excess + tau


def log_terms(w: Array, alpha: Array) -> Array:
    """Return alpha log w, the terms of the log prior, and 0 where there is none."""
    return np.asarray(alpha * np.log(np.where(alpha > 0, w, 1.0)))


def gap_terms(product: Array, alpha: Array) -> Array:
    """Return alpha φ(product / alpha), φ(t) = t − 1 − log t, and the product where alpha = 0."""
    d = (product - alpha) / np.where(alpha > 0, alpha, 1.0)
    near = np.abs(d) < 1e-3
    series = d * d * (1 / 2 - d * (1 / 3 - d * (1 / 4 - d * (1 / 5 - d / 6))))
    exact = d - np.log1p(np.where(near | (alpha == 0), 0.0, d))
    return np.where(alpha > 0, alpha * np.where(near, series, exact), product)


def times(matrix: Array, vector: Array) -> Array:
    """Multiply each matrix of a batch by its vector."""
    return np.asarray(np.matmul(matrix, vector[..., None])[..., 0])


def dot(left: Array, right: Array) -> Array:
    """Multiply each vector of a batch by its partner."""
    return np.asarray((left * right).sum(axis=-1))


@dataclass
class Best:
    """The weights with the smallest gap so far, for each problem of a batch."""

    w: Array
    gap: Array
    scale: Array
    first: Array  # the scale at the start
    stale: NDArray[np.int_]  # steps since the gap last fell by half
    solved: NDArray[np.int_]  # steps since the gap fell below the tolerance
    iterations: NDArray[np.int_]

    @classmethod
    def start(cls, w: Array, scale: Array) -> Best:
        """Begin with weights whose gap is not known yet."""
        zeros = np.zeros((3, len(w)), dtype=np.int_)
        return cls(w.copy(), np.full(len(w), np.inf), scale, scale.copy(), *zeros)

    def update(self, rows: Index, w: Array, gap: Array, scale: Array) -> None:
        """Take weights whose gap is smaller, and count the steps since it last fell by half."""
        # Until there is a bound, nothing is known about the progress.
        progress = (gap < self.gap[rows] / 2) | np.isposinf(gap)
        self.stale[rows] = np.where(progress, 0, self.stale[rows] + 1)
        better = gap < self.gap[rows]
        at = rows[better]
        self.w[at], self.gap[at], self.scale[at] = w[better], gap[better], scale[better]

    def prefer(self, rows: Index, w: Array, gap: Array, scale: Array, slack: float) -> None:
        """Take w, better for other reasons, unless its gap is worse by more than the slack."""
        accept = gap <= np.maximum(self.gap[rows], slack * scale)
        at = rows[accept]
        self.w[at], self.gap[at], self.scale[at] = w[accept], gap[accept], scale[accept]

    def finished(self, rows: Index, tol: float) -> Mask:
        """Whether rounding has stopped the progress, or nothing has come of many steps."""
        gap, stale = self.gap[rows], self.stale[rows]
        self.solved[rows] += gap <= np.maximum(tol * self.scale[rows], _VOID * self.first[rows])
        done = (self.solved[rows] > 0) & ((stale > 0) | (self.solved[rows] > EXTRA))
        return done | (gap == 0) | (stale >= PATIENCE)


@dataclass(frozen=True)
class State:
    """Weights w, their multipliers z and the multiplier of the sum."""

    w: Array
    z: Array
    lam: Array  # (B, 1)

    def take(self, keep: Mask | Index) -> State:
        """Keep some problems of the batch."""
        return State(self.w[keep], self.z[keep], self.lam[keep])

    def moved(self, step: State, length: Array) -> State:
        """Go along a step."""
        return State(
            self.w + length * step.w, self.z + length * step.z, self.lam + length * step.lam
        )


def start_at(problem: Programme, w: Array) -> State:
    """Return w with multipliers that satisfy the dual constraint exactly."""
    h = problem.gradient(w)
    low = h.min(axis=-1, keepdims=True)
    room = h.mean(axis=-1, keepdims=True) - low + problem.alpha.sum(axis=-1, keepdims=True)
    return State(w, h - low + room, low - room)


def predictor_corrector(problem: Programme, state: State) -> State:
    r"""Take one step of Mehrotra's method on the perturbed optimality conditions.

    .. math:: 2(Qw + c) - z - \lambda 1 = 0, \quad w_k z_k = \alpha_k + \mu,
              \quad \textstyle\sum_k w_k = 1
    """
    residual = state.lam - problem.gradient(state.w)
    solve = problem.newton(state.z / state.w)

    def step(target: Array) -> State:
        dw, dlam = solve(residual + target / state.w)
        return State(dw, (target - state.z * (state.w + dw)) / state.w, dlam)

    def length_of(step: State, inside: float) -> Array:
        """Return the longest step up to 1 that keeps w and z nonnegative, or positive."""
        ratio = np.minimum(_to_boundary(state.w, step.w), _to_boundary(state.z, step.z))
        return np.minimum(1.0, inside * problem.least(ratio))

    def distance(w: Array, z: Array) -> Array:
        return problem.mean(np.abs(w * z - problem.alpha))

    predictor = step(problem.alpha)
    length = length_of(predictor, 1.0)
    ahead = state.w + length * predictor.w, state.z + length * predictor.z
    mu = distance(state.w, state.z)
    centring = (distance(*ahead) / np.where(mu > 0, mu, 1.0)) ** 3
    centre = problem.alpha + np.minimum(centring, 1.0) * mu
    # The products must not be sent to the boundary that the prior keeps them away from.
    corrector = step(np.maximum(centre - length**2 * predictor.w * predictor.z, centre / 10))
    after = state.moved(corrector, length_of(corrector, _INSIDE))
    # The sum is one to rounding; let it be one exactly.
    w = after.w / after.w.sum(axis=-1, keepdims=True) if problem.fixed_sum else after.w
    # A multiplier far below alpha / w would hide the curvature of the prior from the next step.
    return State(w, np.maximum(after.z, _FLOOR * problem.alpha / w), after.lam)


def follow_path(problem: Quadratic, state: State, tol: float, max_iter: int) -> Best:
    """Follow the central path of every problem until its gap stops falling."""
    best = Best.start(state.w, problem.scale(state.w))
    live = np.arange(len(state.w))
    for iteration in range(max_iter + 1):
        best.update(live, state.w, problem.gap(state.w), problem.scale(state.w))
        best.iterations[live] = iteration
        keep = ~best.finished(live, tol) & np.isfinite(state.w).all(axis=-1)
        if iteration == max_iter or not keep.any():
            break
        if not keep.all():
            live, problem, state = live[keep], problem.take(keep), state.take(keep)
        state = predictor_corrector(problem, state)
    return best


def _to_boundary(value: Array, step: Array) -> Array:
    return np.where(step < 0, value / np.where(step < 0, -step, 1.0), np.inf)


def solve_each(matrix: Array, column: Array) -> Array:
    """Solve each system of the batch; a singular one gives NaN and spares the others."""
    try:
        return np.asarray(np.linalg.solve(matrix, column[..., None])[..., 0])
    except np.linalg.LinAlgError:
        if len(matrix) == 1:
            return np.full_like(column, np.nan)
        half = len(matrix) // 2
        return np.concatenate(
            [solve_each(matrix[:half], column[:half]), solve_each(matrix[half:], column[half:])]
        )


def face_step(problem: Programme, w: Array) -> Array:
    """Take a Newton step among the positive weights; one that reaches zero stays there."""
    free, prior = w > 0, problem.alpha > 0
    inverse = 1 / np.where(free, w, 1.0)
    pull = problem.alpha * inverse
    step, _ = problem.newton(pull * inverse, free)(pull - problem.gradient(w))
    step = np.where(free & np.isfinite(step), step, 0.0)
    ratio = _to_boundary(w, step)
    length = np.minimum(1.0, problem.least(np.where(prior, _INSIDE * ratio, ratio)))
    blocked = ~prior & (ratio <= length)
    return np.where(blocked, 0.0, np.maximum(w + length * step, 0.0))


def equalised(problem: Quadratic, w: Array) -> tuple[Index, Array]:
    """Give equal weights to models that rounding cannot tell apart.

    By convexity the average over duplicates is no worse. Models i and j are duplicates where
    Q_ii = Q_ij = Q_jj, which for a positive semidefinite Q makes their rows equal; that their
    gradients agree too guards against rows that only nearly are. Returns the problems that
    have duplicates, and their weights.
    """
    Q, h = problem.Q, problem.gradient(w)
    diagonal = np.diagonal(Q, axis1=-2, axis2=-1)
    size = times(np.abs(Q), w) + np.abs(problem.c)

    def differ(left: Array, right: Array, unit: Array) -> Mask:
        return np.asarray(np.abs(left - right) > _SAME * unit)

    def pairs(x: Array) -> tuple[Array, Array]:
        return x[:, :, None], x[:, None, :]

    apart = differ(diagonal[:, :, None], Q, diagonal[:, :, None])
    apart |= np.swapaxes(apart, -1, -2)
    apart |= differ(*pairs(problem.c), np.maximum(*pairs(np.abs(problem.c))))
    apart |= differ(*pairs(h), np.maximum(*pairs(size))) | np.not_equal(*pairs(problem.alpha))
    twins = (~apart).sum(axis=-1)
    rows = np.flatnonzero((twins > 1).any(axis=-1))
    shared = times((~apart[rows]).astype(np.float64), w[rows]) / twins[rows]
    return rows, shared / shared.sum(axis=-1, keepdims=True)
