r"""Quadratic programmes with a log prior on the probability simplex.

.. math:: \min_{w \in \Delta} f(w) = w'Qw + 2c'w - \textstyle\sum_k \alpha_k \log w_k

The logarithm is a barrier that never goes away, so a primal-dual interior point method solves
the problem with the prior at the cost of the problem without it. A duality gap, computed from
the returned weights alone, proves each answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.base import Array, Solution

Mask = NDArray[np.bool_]
Index = NDArray[np.intp]

#: Proximal term on the diagonal of the Newton matrix, whose own diagonal is scaled to one. It
#: keeps a step out of the null space of Q, where it would be rounding error; the repeated steps
#: undo its bias in every other direction. A prior has curvature there and needs less of it.
_PROXIMAL = 1e-10
_PROXIMAL_PRIOR = 1e-14
#: Fraction of the way to the boundary that a step may go.
_INSIDE = 0.995
#: Smallest multiplier of a weight with a prior, in units of alpha / w.
_FLOOR = 0.5
#: Gap, in units of the scale at the start, that leaves an optimum of scale zero to the polish.
_VOID = 1e-30
#: Iterations without progress after which a problem is given up.
_PATIENCE = 15
#: Most steps beyond the tolerance; quadratic convergence needs no more to meet rounding.
_EXTRA = 4
#: Newton steps on the face of the simplex that carries the solution.
_FACE_STEPS = 6
#: Relative difference below which numbers are taken for equal when looking for duplicates.
_SAME = 1e-14
#: Matrix entries worked on at once, to keep the temporaries of a large batch in cache.
_CHUNK = 1 << 20


def simplex_qp(
    quad: ArrayLike,
    linear: ArrayLike,
    alpha: ArrayLike = 0.01,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> Solution:
    r"""Minimise :math:`f(w) = w'Qw + 2c'w - \sum_k \alpha_k \log w_k` over the simplex.

    The gap that comes with the weights is a Lagrangian duality gap. With the gradient
    :math:`h = 2(Qw + c)` of the quadratic part at the returned w, convexity gives, for every
    :math:`\lambda` that leaves all :math:`s_k = h_k - \lambda` nonnegative,

    .. math::

        f(w) - \min f \;\le\; \sum_k \alpha_k\, \varphi\Bigl(\frac{s_k w_k}{\alpha_k}\Bigr),
        \qquad \varphi(t) = t - 1 - \log t \ge 0,

    where an entry with :math:`\alpha_k = 0` contributes :math:`s_k w_k`. The best
    :math:`\lambda` is used, so the bound is never above the Frank-Wolfe gap
    :math:`\nabla f'w - \min_k \nabla f_k`. It is evaluated in float64,
    and not reported below the rounding error of the scale. The scale it is
    compared with is the sum of the absolute terms of f at w,

    .. math::

        \sum_{jk} w_j |Q_{jk}| w_k + 2 \sum_k w_k |c_k - c'w|
        + \sum_k \alpha_k (1 + |\log w_k|),

    to which a model without weight adds nothing, and a constant added to c neither.

    Parameters
    ----------
    quad
        Q, (..., K, K), positive semidefinite; only its symmetric part matters. Neither full
        rank nor any scale is assumed.
    linear
        c, (..., K).
    alpha
        The Dirichlet prior's concentration minus one, (..., K) or one number for all; not
        negative. Where it is zero, weights can be exactly 0.0; elsewhere they are positive.
    tol
        The gap, in units of the scale, below which a problem counts as converged. The steps
        go on until rounding stops them, whatever the tolerance.
    max_iter
        The most interior point steps to take.

    Returns
    -------
    Solution
        Weights (..., K) as ``x``; the leading axes of the three inputs are broadcast and each
        of the batch's problems is solved on its own. Where minimisers are not unique, models
        that are duplicates of each other share their weight equally.

    Raises
    ------
    ShapeError
        Where the arrays do not fit together.
    NonFiniteError
        On NaN or infinite entries.
    ParameterError
        On a negative ``alpha``, or a negative diagonal entry of Q.

    Examples
    --------
    Three models, of which the last is worse than the others in every respect:

    >>> solution = simplex_qp([[2.0, 0, 0], [0, 1, 0], [0, 0, 9]], [0.0, 0, 2], alpha=0.0)
    >>> solution.x.round(12).tolist(), bool(solution.relative_gap < 1e-12)
    ([0.333333333333, 0.666666666667, 0.0], True)

    A batch, here of one Q with two linear terms:

    >>> simplex_qp([[1.0, 0], [0, 1]], [[0.0, 0], [0, 1]], alpha=0.0).x.round(12).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    Q, c, a = _validated(quad, linear, alpha)
    batch, K = c.shape[:-1], c.shape[-1]
    parts = [_solve(Q[at], c[at], a[at], tol, max_iter) for at in _chunks(batch, K)]
    return Solution(*(_join(columns, batch) for columns in zip(*parts, strict=True)))


def _validated(quad: ArrayLike, linear: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array, Array]:
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


def _chunks(batch: tuple[int, ...], K: int) -> Iterator[tuple[Any, ...]]:
    """Yield indices into the batch, few enough problems at a time to keep temporaries small."""
    total = int(np.prod(batch))
    size = max(1, _CHUNK // K**2)
    for start in range(0, max(total, 1), size):
        flat = np.arange(start, min(start + size, total))
        # An unbatched problem has no axis to index, so it is given one.
        yield np.unravel_index(flat, batch) if batch else (None,)


def _join(columns: tuple[NDArray[Any], ...], batch: tuple[int, ...]) -> NDArray[Any]:
    whole = np.concatenate(columns)
    return whole.reshape(batch + whole.shape[1:])


@dataclass(frozen=True)
class _Problem:
    """A batch of problems with one leading axis."""

    Q: Array  # (B, K, K), symmetric
    c: Array  # (B, K)
    alpha: Array  # (B, K)

    def take(self, keep: Mask | Index) -> _Problem:
        return _Problem(self.Q[keep], self.c[keep], self.alpha[keep])

    def gradient(self, w: Array) -> Array:
        """Return 2(Qw + c), the gradient without the prior."""
        return 2 * (_times(self.Q, w) + self.c)

    def objective(self, w: Array) -> Array:
        return _dot(w, _times(self.Q, w) + 2 * self.c) - self._log_terms(w).sum(axis=-1)

    def scale(self, w: Array) -> Array:
        """Return the sum of the absolute terms of f(w)."""
        centred = self.c - _dot(self.c, w)[:, None]
        terms = _times(np.abs(self.Q), w) + 2 * np.abs(centred)
        return _dot(w, terms) + (self.alpha + np.abs(self._log_terms(w))).sum(axis=-1)

    def gap(self, w: Array) -> Array:
        """Return the duality gap at the best multiplier; see :func:`simplex_qp`."""
        s = self.dual_slack(self.gradient(w))
        return np.asarray(_gap_terms(s * w, self.alpha).sum(axis=-1))

    def dual_slack(self, h: Array) -> Array:
        r"""Return :math:`s = h - \lambda` at the root of :math:`\sum_k \alpha_k / s_k = 1`.

        Where the entries without prior do not let the slack become small enough for a root,
        it is the smallest nonnegative slack. With :math:`s = h - \min h + \tau`, Newton's
        method on :math:`1 / \sum_k \alpha_k / s_k`, concave in :math:`\tau`, climbs to the
        root from below, so s stays nonnegative; every iterate gives a valid bound.
        """
        excess = h - h.min(axis=-1, keepdims=True)
        prior = self.alpha > 0
        tau = np.maximum((self.alpha - excess).max(axis=-1, keepdims=True), 0.0)
        for _ in range(40):
            inverse = 1 / np.where(prior, excess + tau, np.inf)
            total = (self.alpha * inverse).sum(axis=-1, keepdims=True)
            slope = (self.alpha * inverse**2).sum(axis=-1, keepdims=True)
            step = total * (total - 1) / np.where(slope > 0, slope, 1.0)
            tau = np.maximum(tau + step, 0.0)
            if not (step > 1e-14 * tau).any():
                break
        return excess + tau

    def _log_terms(self, w: Array) -> Array:
        return self.alpha * np.log(np.where(self.alpha > 0, w, 1.0))


def _gap_terms(product: Array, alpha: Array) -> Array:
    """Return alpha φ(product / alpha), φ(t) = t − 1 − log t, and the product where alpha = 0."""
    d = (product - alpha) / np.where(alpha > 0, alpha, 1.0)
    near = np.abs(d) < 1e-3
    series = d * d * (1 / 2 - d * (1 / 3 - d * (1 / 4 - d * (1 / 5 - d / 6))))
    exact = d - np.log1p(np.where(near | (alpha == 0), 0.0, d))
    return np.where(alpha > 0, alpha * np.where(near, series, exact), product)


def _times(matrix: Array, vector: Array) -> Array:
    return np.asarray(np.matmul(matrix, vector[..., None])[..., 0])


def _dot(left: Array, right: Array) -> Array:
    return np.asarray((left * right).sum(axis=-1))


def _normalised(Q: Array, c: Array, alpha: Array) -> tuple[_Problem, Array]:
    """Return the problem with entries of order one, and the unit that undoes it.

    The unit is a power of two, so nothing is rounded. c is measured from its entry at the best
    vertex: a constant in c would only take digits away from the differences that matter, and
    so would an outlier among the models that are not used.
    """
    Q = Q / 2 + np.swapaxes(Q, -1, -2) / 2
    vertex = np.diagonal(Q, axis1=-2, axis2=-1) / 2 + c
    c = c - np.take_along_axis(c, vertex.argmin(axis=-1)[:, None], axis=-1)
    size = np.max([np.abs(Q).max(axis=(-1, -2)), np.abs(c).max(axis=-1), alpha.max(axis=-1)], 0)
    unit = np.exp2(np.frexp(size)[1] - 1)
    return _Problem(Q / unit[:, None, None], c / unit[:, None], alpha / unit[:, None]), unit


def _solve(Q: Array, c: Array, alpha: Array, tol: float, max_iter: int) -> tuple[NDArray[Any], ...]:
    """Solve a batch with one leading axis; return the fields of its Solution."""
    problem, unit = _normalised(Q, c, alpha)
    with np.errstate(all="ignore"):  # what goes wrong in one problem shows up in its gap
        best = _interior_point(problem, tol, max_iter)
        sparse = np.flatnonzero((alpha == 0).any(axis=-1))
        _polish(problem.take(sparse), best, sparse, tol)
        _share(problem, best, tol)
        objective = _Problem(Q, c, alpha).objective(best.w)
    converged = best.gap <= tol * best.scale
    limited = best.iterations >= max_iter
    status = np.where(limited, "iteration limit", "stalled")
    status = np.where(converged, "converged", status)
    # The bound is itself computed in float64: a smaller one would claim too much.
    gap = np.maximum(best.gap, np.finfo(np.float64).eps * best.scale)
    return best.w, objective, gap * unit, best.scale * unit, converged, best.iterations, status


@dataclass
class _Best:
    """The weights with the smallest gap so far, for each problem of a batch."""

    w: Array
    gap: Array
    scale: Array
    first: Array  # the scale at the start
    stale: NDArray[np.int_]  # steps since the gap last fell by half
    solved: NDArray[np.int_]  # steps since the gap fell below the tolerance
    iterations: NDArray[np.int_]

    @classmethod
    def start(cls, w: Array, scale: Array) -> _Best:
        zeros = np.zeros((3, len(w)), dtype=np.int_)
        return cls(w.copy(), np.full(len(w), np.inf), scale, scale.copy(), *zeros)

    def update(self, rows: Index, w: Array, gap: Array, scale: Array) -> None:
        progress = gap < self.gap[rows] / 2
        self.stale[rows] = np.where(progress, 0, self.stale[rows] + 1)
        better = gap < self.gap[rows]
        at = rows[better]
        self.w[at], self.gap[at], self.scale[at] = w[better], gap[better], scale[better]

    def prefer(self, rows: Index, w: Array, problem: _Problem, tol: float) -> None:
        """Take w, better for other reasons, unless its gap is worse by more than rounding."""
        gap, scale = problem.gap(w), problem.scale(w)
        accept = gap <= np.maximum(self.gap[rows], tol / 100 * scale)
        at = rows[accept]
        self.w[at], self.gap[at], self.scale[at] = w[accept], gap[accept], scale[accept]

    def finished(self, rows: Index, tol: float) -> Mask:
        """Whether rounding has stopped the progress, or nothing has come of many steps."""
        gap, stale = self.gap[rows], self.stale[rows]
        self.solved[rows] += gap <= np.maximum(tol * self.scale[rows], _VOID * self.first[rows])
        done = (self.solved[rows] > 0) & ((stale > 0) | (self.solved[rows] > _EXTRA))
        return done | (gap == 0) | (stale >= _PATIENCE)


def _interior_point(problem: _Problem, tol: float, max_iter: int) -> _Best:
    """Follow the central path of every problem until its gap stops falling."""
    state = _start(problem)
    best = _Best.start(state.w, problem.scale(state.w))
    live = np.arange(len(state.w))
    for iteration in range(max_iter + 1):
        best.update(live, state.w, problem.gap(state.w), problem.scale(state.w))
        best.iterations[live] = iteration
        keep = ~best.finished(live, tol) & np.isfinite(state.w).all(axis=-1)
        if iteration == max_iter or not keep.any():
            break
        if not keep.all():
            live, problem, state = live[keep], problem.take(keep), state.take(keep)
        state = _predictor_corrector(problem, state)
    return best


@dataclass(frozen=True)
class _State:
    """Weights w, their multipliers z and the multiplier of the sum."""

    w: Array
    z: Array
    lam: Array  # (B, 1)

    def take(self, keep: Mask) -> _State:
        return _State(self.w[keep], self.z[keep], self.lam[keep])

    def moved(self, step: _State, length: Array) -> _State:
        w = self.w + length * step.w
        return _State(
            w / w.sum(axis=-1, keepdims=True),
            self.z + length * step.z,
            self.lam + length * step.lam,
        )


def _start(problem: _Problem) -> _State:
    """Return equal weights, with multipliers that satisfy the dual constraint exactly."""
    w = np.full_like(problem.c, 1 / problem.c.shape[-1])
    h = problem.gradient(w)
    low = h.min(axis=-1, keepdims=True)
    room = h.mean(axis=-1, keepdims=True) - low + problem.alpha.sum(axis=-1, keepdims=True)
    return _State(w, h - low + room, low - room)


def _predictor_corrector(problem: _Problem, state: _State) -> _State:
    r"""Take one step of Mehrotra's method on the perturbed optimality conditions.

    .. math:: 2(Qw + c) - z - \lambda 1 = 0, \quad w_k z_k = \alpha_k + \mu,
              \quad \textstyle\sum_k w_k = 1
    """
    residual = state.lam - problem.gradient(state.w)
    matrix = _newton_matrix(problem, state.z / state.w)

    def step(target: Array) -> _State:
        dw, dlam = matrix.solve(residual + target / state.w)
        return _State(dw, (target - state.z * (state.w + dw)) / state.w, dlam)

    def distance(w: Array, z: Array) -> Array:
        return np.abs(w * z - problem.alpha).mean(axis=-1, keepdims=True)

    predictor = step(problem.alpha)
    length = _step_length(state, predictor, 1.0)
    ahead = state.w + length * predictor.w, state.z + length * predictor.z
    mu = distance(state.w, state.z)
    centring = (distance(*ahead) / np.where(mu > 0, mu, 1.0)) ** 3
    centre = problem.alpha + np.minimum(centring, 1.0) * mu
    # The products must not be sent to the boundary that the prior keeps them away from.
    corrector = step(np.maximum(centre - length**2 * predictor.w * predictor.z, centre / 10))
    after = state.moved(corrector, _step_length(state, corrector, _INSIDE))
    # A multiplier far below alpha / w would hide the curvature of the prior from the next step.
    return _State(after.w, np.maximum(after.z, _FLOOR * problem.alpha / after.w), after.lam)


def _step_length(state: _State, step: _State, inside: float) -> Array:
    """Return the longest step up to 1 that keeps w and z nonnegative, or positive."""
    ratio = np.minimum(_to_boundary(state.w, step.w), _to_boundary(state.z, step.z))
    return np.minimum(1.0, inside * ratio.min(axis=-1, keepdims=True))


def _to_boundary(value: Array, step: Array) -> Array:
    return np.where(step < 0, value / np.where(step < 0, -step, 1.0), np.inf)


@dataclass(frozen=True)
class _Newton:
    """The bordered Newton matrix, rows and columns scaled to a unit diagonal."""

    matrix: Array  # (B, K + 1, K + 1)
    root: Array  # (B, K): the scaling of the weights
    border: Array  # (B, 1): the scaling of the multiplier

    def solve(self, rhs: Array) -> tuple[Array, Array]:
        """Return the steps of w, which sums to zero, and of the multiplier."""
        column = np.concatenate([rhs * self.root, np.zeros_like(self.border)], axis=-1)
        step = _solve_each(self.matrix, column)
        return step[:, :-1] * self.root, -step[:, -1:] * self.border


def _newton_matrix(problem: _Problem, curvature: Array, free: Mask | None = None) -> _Newton:
    """Build [2Q + diag(curvature), 1; 1', 0]; weights that are not free get no step."""
    (B, K), Q = curvature.shape, problem.Q
    diagonal = 2 * np.diagonal(Q, axis1=-2, axis2=-1) + curvature
    floor = 1e-30 * diagonal.max(axis=-1, keepdims=True)
    root = 1 / np.sqrt(np.where(diagonal > floor, diagonal, np.where(floor > 0, floor, 1.0)))
    if free is not None:
        root = np.where(free, root, 0.0)
    border = 1 / root.max(axis=-1, keepdims=True)
    matrix = np.zeros((B, K + 1, K + 1))
    matrix[:, :K, :K] = 2 * Q * root[:, :, None] * root[:, None, :]
    matrix[:, :K, K] = matrix[:, K, :K] = root * border
    at = np.arange(K)
    matrix[:, at, at] += curvature * root**2
    matrix[:, at, at] += np.where(problem.alpha > 0, _PROXIMAL_PRIOR, _PROXIMAL)
    return _Newton(matrix, root, border)


def _solve_each(matrix: Array, column: Array) -> Array:
    """Solve each system of the batch; a singular one gives NaN and spares the others."""
    try:
        return np.asarray(np.linalg.solve(matrix, column[..., None])[..., 0])
    except np.linalg.LinAlgError:
        if len(matrix) == 1:
            return np.full_like(column, np.nan)
        half = len(matrix) // 2
        return np.concatenate(
            [_solve_each(matrix[:half], column[:half]), _solve_each(matrix[half:], column[half:])]
        )


def _polish(problem: _Problem, best: _Best, rows: Index, tol: float) -> None:
    """Replace the weights of ``rows`` by those of the face they tend to, with exact zeros.

    An entry without prior belongs to the face unless its multiplier, in units of the scale,
    outweighs it. The Newton steps that follow start from the interior point's weights, so
    duplicated models stay together rather than end in a vertex.
    """
    if len(rows) == 0:
        return
    w = best.w[rows]
    s = problem.dual_slack(problem.gradient(w))
    w = np.where((problem.alpha == 0) & (w * best.scale[rows][:, None] < s), 0.0, w)
    found = _Best.start(w, best.scale[rows])
    for _ in range(_FACE_STEPS):
        w /= w.sum(axis=-1, keepdims=True)
        found.update(np.arange(len(rows)), w, problem.gap(w), problem.scale(w))
        w = _face_step(problem, w)
    best.prefer(rows, found.w, problem, tol)


def _face_step(problem: _Problem, w: Array) -> Array:
    """Take a Newton step among the positive weights; one that reaches zero stays there."""
    free, prior = w > 0, problem.alpha > 0
    inverse = 1 / np.where(free, w, 1.0)
    pull = problem.alpha * inverse
    newton = _newton_matrix(problem, pull * inverse, free)
    step, _ = newton.solve(pull - problem.gradient(w))
    step = np.where(np.isfinite(step), step, 0.0)
    ratio = _to_boundary(w, step)
    reach = np.where(prior, _INSIDE * ratio, ratio)
    length = np.minimum(1.0, reach.min(axis=-1, keepdims=True))
    blocked = ~prior & (ratio <= length)
    return np.where(blocked, 0.0, np.maximum(w + length * step, 0.0))


def _share(problem: _Problem, best: _Best, tol: float) -> None:
    """Give equal weights to models that rounding cannot tell apart.

    By convexity the average over duplicates is no worse. Models i and j are duplicates where
    Q_ii = Q_ij = Q_jj, which for a positive semidefinite Q makes their rows equal; that their
    gradients agree too guards against rows that only nearly are.
    """
    Q, h = problem.Q, problem.gradient(best.w)
    diagonal = np.diagonal(Q, axis1=-2, axis2=-1)
    size = _times(np.abs(Q), best.w) + np.abs(problem.c)

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
    w = _times((~apart[rows]).astype(np.float64), best.w[rows]) / twins[rows]
    best.prefer(rows, w / w.sum(axis=-1, keepdims=True), problem.take(rows), tol)
