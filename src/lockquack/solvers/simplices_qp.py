r"""Quadratic programmes with a log prior on a product of simplices.

.. math:: \min_{v_1 \dots v_B \in \Delta} v'Qv + 2c'v - \textstyle\sum_{bk} \alpha_{bk} \log v_{bk}

One simplex for each of B functions of a covariate, K weights each. Q couples the simplices, and
its structure is used: :class:`GroupForm` is block-diagonal but for a pull of all simplices towards
their mean, :class:`SparseForm` is any sparse matrix, :class:`DenseForm` a small one. Of problems of
one size, batches are solved at once. The method is that of
:mod:`~lockquack.solvers.simplex_qp`, with one step length for all simplices, and so is the
certificate: the sum of the simplices' gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import splu
from typing_extensions import override

from lockquack.solvers.base import Array, Solution, status_of, with_rounding
from lockquack.solvers.interior_point import (
    EXTRA,
    FACE_STEPS,
    PATIENCE,
    Mask,
    NewtonSolver,
    Programme,
    State,
    dual_slack,
    face_step,
    gap_terms,
    log_terms,
    predictor_corrector,
    start_at,
    times,
)

#: Positions of problems in a batch.
Rows = NDArray[np.intp]


#: Proximal term on the diagonal of a Newton matrix, scaled to one; see ``interior_point``.
_PROXIMAL = 1e-13
#: Curvature, in units of the largest, that holds a weight where it is.
_HELD = 1e20


class Form(Protocol):
    """A quadratic form v'Qv of weights on B simplices, (B, K), or a batch of such forms."""

    def times(self, v: Array) -> Array:
        """Return Qv, (..., B, K)."""

    def size(self, v: Array) -> Array:
        """Return the sum of the absolute terms of v'Qv, (...)."""

    def newton(self, curvature: Array) -> NewtonSolver:
        """Factorise 2Q + diag(curvature), bordered by the sums over the simplices."""

    def take(self, rows: Rows) -> Form:
        """Keep some problems of a batch."""


@dataclass(frozen=True)
class GroupForm:
    r"""A form for each simplex, and a pull towards their mean.

    .. math:: \sum_b v_b' Q_b v_b + \lambda \sum_b |v_b - \bar v|^2
    """

    blocks: Array  # (..., B, K, K), symmetric
    pull: float | Array = 0.0  # (...)

    @property
    def _pull(self) -> Array:
        return np.asarray(self.pull)[..., None, None]

    def times(self, v: Array) -> Array:
        """Return Qv, (..., B, K)."""
        apart = v - v.mean(axis=-2, keepdims=True)
        return times(self.blocks, v) + self._pull * apart

    def size(self, v: Array) -> Array:
        """Return the sum of the absolute terms of v'Qv, (...)."""
        apart = np.square(v - v.mean(axis=-2, keepdims=True))
        terms = v * times(np.abs(self.blocks), v) + self._pull * apart
        return np.asarray(terms.sum(axis=(-2, -1)))

    def take(self, rows: Rows) -> GroupForm:
        """Keep some problems of a batch."""
        pull = np.broadcast_to(self.pull, self.blocks.shape[:1])
        return GroupForm(self.blocks[rows], pull[rows])

    def newton(self, curvature: Array) -> NewtonSolver:
        r"""Factorise by blocks; the mean is a correction of rank K.

        With :math:`S_b` the bordered inverse of block b, steps are :math:`S_b (r_b + (2\lambda/B)
        t)`, where their sum t solves :math:`(I - (2\lambda/B) \sum_b S_b) t = \sum_b S_b r_b`.
        """
        B, K = curvature.shape[-2:]
        at = np.arange(K)
        matrix = np.zeros((*curvature.shape[:-1], K + 1, K + 1))
        matrix[..., :K, :K] = 2 * self.blocks
        matrix[..., at, at] += curvature + 2 * self._pull
        root, border = _scaling(matrix[..., at, at])
        matrix[..., :K, :K] *= root[..., :, None] * root[..., None, :]
        matrix[..., :K, K] = matrix[..., K, :K] = root * border
        matrix[..., at, at] += _PROXIMAL
        inverse = np.linalg.inv(matrix)
        steps = inverse[..., :K, :K] * root[..., :, None] * root[..., None, :]  # S_b
        level = inverse[..., K, :K] * root * border
        share = 2 * self._pull / B
        # Steps sum to zero over models, so the matrix is singular along (1, …, 1) at worst.
        pulled = bool(np.any(self.pull))
        total = np.eye(K) - share * steps.sum(axis=-3)
        back = np.linalg.pinv(total, rcond=1e-15) if pulled else total

        def solve(rhs: Array) -> tuple[Array, Array]:
            if pulled:
                alone = times(steps, rhs).sum(axis=-2)
                rhs = rhs + share * times(back, alone)[..., None, :]
            return times(steps, rhs), -(level * rhs).sum(axis=-1, keepdims=True)

        return solve


@dataclass(frozen=True)
class DenseForm:
    """Any form; entries (b, k) are numbered b K + k."""

    matrix: Array  # (..., B K, B K), symmetric

    def times(self, v: Array) -> Array:
        """Return Qv, (..., B, K)."""
        return times(self.matrix, _flat(v)).reshape(v.shape)

    def size(self, v: Array) -> Array:
        """Return the sum of the absolute terms of v'Qv, (...)."""
        return np.asarray((_flat(v) * times(self._absolute, _flat(v))).sum(axis=-1))

    def take(self, rows: Rows) -> DenseForm:
        """Keep some problems of a batch."""
        return DenseForm(self.matrix[rows])

    @cached_property
    def _absolute(self) -> Array:
        return np.abs(self.matrix)

    def newton(self, curvature: Array) -> NewtonSolver:
        """Invert the bordered matrix, scaled to a unit diagonal."""
        (*batch, B, K), size = curvature.shape, self.matrix.shape[-1]
        index, rows = np.arange(size), np.repeat(np.arange(B), K)
        diagonal = 2 * self.matrix[..., index, index].reshape(curvature.shape) + curvature
        root, border = _scaling(diagonal)
        flat, sums = _flat(root), _flat(root * border)
        whole = np.zeros((*batch, size + B, size + B))
        whole[..., :size, :size] = 2 * self.matrix * (flat[..., :, None] * flat[..., None, :])
        whole[..., index, index] += _flat(curvature) * flat**2 + _PROXIMAL
        whole[..., index, size + rows] = whole[..., size + rows, index] = sums
        inverse = np.linalg.inv(whole)[..., :, :size]

        def solve(rhs: Array) -> tuple[Array, Array]:
            step = times(inverse, _flat(rhs) * flat)
            levels = step[..., size:, None] * border
            return step[..., :size].reshape(rhs.shape) * root, -levels

        return solve


@dataclass(frozen=True)
class SparseForm:
    """Any form, of one problem; entries (b, k) are numbered b K + k."""

    matrix: sparse.csr_array  # (B K, B K), symmetric

    def times(self, v: Array) -> Array:
        """Return Qv, shaped like v."""
        return np.asarray((self.matrix @ v.ravel()).reshape(v.shape))

    def size(self, v: Array) -> Array:
        """Return the sum of the absolute terms of v'Qv, (...)."""
        value = v.ravel() @ (self._absolute @ v.ravel())
        return np.full(v.shape[:-2], value)

    def take(self, rows: Rows) -> SparseForm:
        """Return the same: it is no batch."""
        return self

    @cached_property
    def _absolute(self) -> sparse.csr_array:
        return abs(self.matrix)

    def newton(self, curvature: Array) -> NewtonSolver:
        """Factorise the bordered matrix, scaled to a unit diagonal."""
        B, K = curvature.shape[-2:]
        diagonal = 2 * self.matrix.diagonal() + curvature.ravel()
        root, border = (each.ravel() for each in _scaling(diagonal.reshape(B, K)))
        size, rows = root.size, np.repeat(np.arange(B), K)
        scale = sparse.diags_array(root)
        added = sparse.diags_array(curvature.ravel() * root**2 + _PROXIMAL)
        centre = scale @ (2 * self.matrix) @ scale + added
        sums = sparse.coo_array((root * border[rows], (rows, np.arange(size))), shape=(B, size))
        nothing = sparse.coo_array((B, B))
        whole = sparse.vstack([sparse.hstack([centre, sums.T]), sparse.hstack([sums, nothing])])
        factor = splu(sparse.csc_array(whole))

        def solve(rhs: Array) -> tuple[Array, Array]:
            step = factor.solve(np.concatenate([rhs.ravel() * root, np.zeros(B)]))
            steps = (step[:size] * root).reshape(rhs.shape)
            return steps, -(step[size:] * border).reshape(*rhs.shape[:-1], 1)

        return solve


def _flat(v: Array) -> Array:
    """Write the simplices of a problem one after the other, (..., B K)."""
    return v.reshape(*v.shape[:-2], -1)


def _scaling(diagonal: Array) -> tuple[Array, Array]:
    """Scale rows to a unit diagonal, (..., B, K), and the constraints too, (..., B, 1)."""
    largest = diagonal.max(axis=(-2, -1), keepdims=True)
    root = 1 / np.sqrt(np.maximum(diagonal, np.where(largest > 0, 1e-30 * largest, 1.0)))
    return root, 1 / root.max(axis=-1, keepdims=True)


@dataclass(frozen=True)
class SimplicesQuadratic(Programme):
    """Quadratic programmes on a product of simplices."""

    form: Form
    c: Array  # (..., B, K)
    alpha: Array

    def take(self, rows: Rows) -> SimplicesQuadratic:
        """Keep some problems of a batch."""
        return SimplicesQuadratic(self.form.take(rows), self.c[rows], self.alpha[rows])

    @override
    def gradient(self, v: Array) -> Array:
        return 2 * (self.form.times(v) + self.c)

    @override
    def newton(self, curvature: Array, free: Mask | None = None) -> NewtonSolver:
        if free is not None:
            size = np.abs(self.form.times(np.ones_like(curvature)))
            held = _HELD * (1.0 + size.max(axis=(-2, -1), keepdims=True))
            curvature = np.where(free, curvature, held)
        return self.form.newton(curvature)

    @override
    def least(self, values: Array) -> Array:
        return values.min(axis=(-2, -1), keepdims=True)

    @override
    def mean(self, values: Array) -> Array:
        return values.mean(axis=(-2, -1), keepdims=True)

    def objective(self, v: Array) -> Array:
        """Return the value at v, (...)."""
        terms = v * (self.form.times(v) + 2 * self.c) - log_terms(v, self.alpha)
        return np.asarray(terms.sum(axis=(-2, -1)))

    def scale(self, v: Array) -> Array:
        """Return the sum of the absolute terms, (...)."""
        centred = self.c - (self.c * v).sum(axis=-1, keepdims=True)
        terms = 2 * np.abs(centred) * v + self.alpha + np.abs(log_terms(v, self.alpha))
        return self.form.size(v) + terms.sum(axis=(-2, -1))

    def gap(self, v: Array, h: Array | None = None) -> Array:
        """Bound the distance to the minimum: the sum of the simplices' duality gaps, (...).

        The form is convex, so it lies above its linearisation at v, whose minimum over a product
        of simplices is a sum of minima; ``h`` is the gradient of any other convex function.
        """
        h = self.gradient(v) if h is None else h
        gap = gap_terms(dual_slack(h, self.alpha) * v, self.alpha).sum(axis=(-2, -1))
        return np.where(np.isnan(gap), np.inf, gap)


def simplices_qp(
    form: Form,
    linear: Array,
    alpha: Array,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
    refine: bool = True,
) -> Solution:
    r"""Minimise :math:`v'Qv + 2c'v - \sum \alpha \log v` over a product of simplices.

    Parameters
    ----------
    form
        Q, positive semidefinite.
    linear
        c, (B, K), or (problem, B, K) of a batch.
    alpha
        The Dirichlet priors' concentrations minus one, (B, K); not negative. Where it is zero,
        weights can be exactly 0.0.
    tol
        The gap, in units of the scale, below which the problem counts as converged.
    max_iter
        The most interior point steps to take.
    refine
        Whether to go on beyond the tolerance, to exact zeros, until rounding stops the progress.

    Returns
    -------
    Solution
        Weights (B, K), or (problem, B, K), as ``x``.

    Examples
    --------
    Two groups that prefer different models, apart and pulled together:

    >>> blocks = np.stack([np.eye(2), np.eye(2)])
    >>> c = np.array([[-1.0, 0.0], [0.0, -1.0]])
    >>> simplices_qp(GroupForm(blocks), c, np.zeros((2, 2))).x.round(9).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> simplices_qp(GroupForm(blocks, pull=3.0), c, np.zeros((2, 2))).x.round(9).tolist()
    [[0.625, 0.375], [0.375, 0.625]]
    """
    if linear.ndim == 2:
        return _unbatched(form, linear, alpha, tol, max_iter, refine)
    problem = SimplicesQuadratic(form, linear, np.broadcast_to(alpha, linear.shape))
    with np.errstate(all="ignore"):  # what goes wrong shows up in the gap
        v, iterations = _follow_path(problem, tol, max_iter, EXTRA if refine else 0)
        v = _polished(problem, v, tol) if refine else v
        scale = problem.scale(v)
        gap = with_rounding(problem.gap(v), scale)
        converged = gap <= tol * scale
        return Solution(
            x=v,
            objective=problem.objective(v),
            gap=gap,
            scale=scale,
            converged=converged,
            iterations=iterations,
            status=status_of(converged, iterations, max_iter),
        )


def _unbatched(
    form: Form, linear: Array, alpha: Array, tol: float, max_iter: int, refine: bool
) -> Solution:
    """Solve one problem, as a batch of one."""
    if isinstance(form, GroupForm):
        form = GroupForm(form.blocks[None], form.pull)
    elif isinstance(form, DenseForm):
        form = DenseForm(form.matrix[None])
    found = simplices_qp(form, linear[None], alpha, tol=tol, max_iter=max_iter, refine=refine)
    return replace(found, **{each: getattr(found, each)[0] for each in ("x", *_OF_EACH)})


_OF_EACH = ("objective", "gap", "scale", "converged", "iterations", "status")


def _follow_path(
    problem: SimplicesQuadratic, tol: float, max_iter: int, extra: int
) -> tuple[Array, NDArray[np.int_]]:
    """Take steps until the gaps stop falling; problems that are done are left out."""
    state = _start(problem)
    best, iterations = state.w.copy(), np.full(len(state.w), max_iter)
    least, stale = np.full(len(best), np.inf), np.zeros(len(best), dtype=np.int_)
    rows = np.arange(len(best))
    for iteration in range(max_iter):
        v = state.w
        gap, scale = problem.gap(v), problem.scale(v)
        stale = np.where(gap < least / 2, 0, stale + 1)
        better = gap < least
        best[rows[better]] = v[better]
        least = np.where(better, gap, least)
        patience = np.where(least <= tol * scale, extra, PATIENCE)
        done = (least == 0) | (stale >= patience) | ~np.isfinite(v).all(axis=(1, 2))
        if done.any():
            iterations[rows[done]] = iteration
            keep = np.flatnonzero(~done)
            problem, state, rows = problem.take(keep), state.take(keep), rows[keep]
            least, stale = least[keep], stale[keep]
        if not rows.size:
            break
        state = predictor_corrector(problem, state)
    return best, iterations


def _start(problem: SimplicesQuadratic) -> State:
    """Return equal weights; no simplex's multipliers are much smaller than those of the others."""
    state = start_at(problem, np.full(problem.c.shape, 1 / problem.c.shape[-1]))
    room = state.z.min(axis=-1, keepdims=True)
    more = np.maximum(room.mean(axis=-2, keepdims=True) - room, 0.0)
    return State(state.w, state.z + more, state.lam - more)


def _polished(problem: SimplicesQuadratic, v: Array, tol: float) -> Array:
    """Replace the weights by those of the face they tend to, with exact zeros.

    A weight without prior is set to zero where its multiplier, in units of the scale, outweighs
    it; Newton's steps among the others follow.
    """
    prior = problem.alpha > 0
    scale = problem.scale(v)
    slack = dual_slack(problem.gradient(v), problem.alpha)
    share = (scale / v.shape[-2])[..., None, None]
    face = np.where(~prior & (v * share < slack), 0.0, v)
    best, least = v.copy(), np.maximum(problem.gap(v), tol * scale / 100)
    rows = np.arange(len(v))
    for _ in range(FACE_STEPS):
        face = face / face.sum(axis=-1, keepdims=True)
        gap = problem.gap(face)
        keep = np.flatnonzero(gap <= least[rows])
        if not keep.size:
            break
        problem, rows, face = problem.take(keep), rows[keep], face[keep]
        best[rows], least[rows] = face, np.maximum(gap[keep], tol * scale[rows] / 100)
        face = face_step(problem, face)
    return best
