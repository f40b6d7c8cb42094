r"""Quadratic programmes with a log prior on a product of simplices.

.. math:: \min_{v_1 \dots v_B \in \Delta} v'Qv + 2c'v - \textstyle\sum_{bk} \alpha_{bk} \log v_{bk}

One simplex for each of B functions of a covariate, K weights each. Q couples the simplices, and
its structure is used: :class:`GroupForm` is block-diagonal but for a pull of all simplices towards
their mean, :class:`SparseForm` is any sparse matrix. The method is that of
:mod:`~lockquack.solvers.simplex_qp`, with one step length for all simplices, and so is the
certificate: the sum of the simplices' gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import splu

from lockquack.solvers.base import Array, Solution
from lockquack.solvers.interior_point import EXTRA, FACE_STEPS, PATIENCE, Quadratic, gap_terms

#: Solves for steps, (B, K), whose sum over each simplex is zero; and for the multipliers, (B, 1).
NewtonSolver = Callable[[Array], tuple[Array, Array]]

#: Unknowns up to which a matrix is factorised as a dense one.
_DENSE = 600
#: Proximal term on the diagonal of a Newton matrix, scaled to one; see ``interior_point``.
_PROXIMAL = 1e-13
#: Fraction of the way to the boundary that a step may go.
_INSIDE = 0.995
#: Curvature, in units of the largest, that holds a weight where it is.
_HELD = 1e20


class Form(Protocol):
    """A quadratic form v'Qv of weights on B simplices, (B, K)."""

    def times(self, v: Array) -> Array:
        """Return Qv, (B, K)."""

    def size(self, v: Array) -> float:
        """Return the sum of the absolute terms of v'Qv."""

    def newton(self, curvature: Array) -> NewtonSolver:
        """Factorise 2Q + diag(curvature), bordered by the sums over the simplices."""


@dataclass(frozen=True)
class GroupForm:
    r"""A form for each simplex, and a pull towards their mean.

    .. math:: \sum_b v_b' Q_b v_b + \lambda \sum_b |v_b - \bar v|^2
    """

    blocks: Array  # (B, K, K), symmetric
    pull: float = 0.0

    def times(self, v: Array) -> Array:
        """Return Qv, (B, K)."""
        each = np.einsum("bjk,bk->bj", self.blocks, v)
        return np.asarray(each + self.pull * (v - v.mean(axis=0)))

    def size(self, v: Array) -> float:
        """Return the sum of the absolute terms of v'Qv."""
        each = np.einsum("bj,bjk,bk->", v, np.abs(self.blocks), v, optimize=True)
        return float(each + self.pull * np.square(v - v.mean(axis=0)).sum())

    def newton(self, curvature: Array) -> NewtonSolver:
        r"""Factorise by blocks; the mean is a correction of rank K.

        With :math:`S_b` the bordered inverse of block b, steps are :math:`S_b (r_b + (2\lambda/B)
        t)`, where their sum t solves :math:`(I - (2\lambda/B) \sum_b S_b) t = \sum_b S_b r_b`.
        """
        B, K = curvature.shape
        at = np.arange(K)
        matrix = np.zeros((B, K + 1, K + 1))
        matrix[:, :K, :K] = 2 * self.blocks
        matrix[:, at, at] += curvature + 2 * self.pull
        root, border = _scaling(matrix[:, at, at])
        matrix[:, :K, :K] *= root[:, :, None] * root[:, None, :]
        matrix[:, :K, K] = matrix[:, K, :K] = root * border
        matrix[:, at, at] += _PROXIMAL
        inverse = np.linalg.inv(matrix)
        steps = inverse[:, :K, :K] * root[:, :, None] * root[:, None, :]  # S_b
        level = inverse[:, K, :K] * root * border
        share = 2 * self.pull / B
        total = np.eye(K) - share * steps.sum(axis=0)

        def solve(rhs: Array) -> tuple[Array, Array]:
            if self.pull:
                alone = np.einsum("bjk,bk->j", steps, rhs)
                # Steps sum to zero over models, so the matrix is singular along (1, …, 1) at worst.
                rhs = rhs + share * np.linalg.lstsq(total, alone, rcond=1e-15)[0]
            return np.einsum("bjk,bk->bj", steps, rhs), -np.einsum("bk,bk->b", level, rhs)[:, None]

        return solve


@dataclass(frozen=True)
class SparseForm:
    """Any form; entries (b, k) are numbered b K + k."""

    matrix: sparse.csr_array  # (B K, B K), symmetric

    def times(self, v: Array) -> Array:
        """Return Qv, (B, K)."""
        return np.asarray((self.matrix @ v.ravel()).reshape(v.shape))

    def size(self, v: Array) -> float:
        """Return the sum of the absolute terms of v'Qv."""
        return float(v.ravel() @ (abs(self.matrix) @ v.ravel()))

    @cached_property
    def _dense(self) -> Array:
        return self.matrix.toarray()

    def newton(self, curvature: Array) -> NewtonSolver:
        """Factorise the bordered matrix, scaled to a unit diagonal."""
        B, K = curvature.shape
        diagonal = 2 * self.matrix.diagonal() + curvature.ravel()
        root, border = (each.ravel() for each in _scaling(diagonal.reshape(B, K)))
        added = curvature.ravel() * root**2 + _PROXIMAL
        small = root.size <= _DENSE
        factor = (self._dense_factor if small else self._sparse_factor)(root, border, added)

        def solve(rhs: Array) -> tuple[Array, Array]:
            step = factor(np.concatenate([rhs.ravel() * root, np.zeros(B)]))
            steps = (step[: B * K] * root).reshape(B, K)
            return steps, -(step[B * K :] * border)[:, None]

        return solve

    def _dense_factor(self, root: Array, border: Array, added: Array) -> Callable[[Array], Array]:
        size, B = root.size, border.size
        whole = np.zeros((size + B, size + B))
        whole[:size, :size] = 2 * self._dense * root[:, None] * root
        index, rows = np.arange(size), np.repeat(np.arange(B), size // B)
        whole[index, index] += added
        whole[index, size + rows] = whole[size + rows, index] = root * border[rows]
        factor = linalg.lu_factor(whole, check_finite=False)
        return lambda column: np.asarray(linalg.lu_solve(factor, column, check_finite=False))

    def _sparse_factor(self, root: Array, border: Array, added: Array) -> Callable[[Array], Array]:
        size, B = root.size, border.size
        rows = np.repeat(np.arange(B), size // B)
        scale = sparse.diags_array(root)
        centre = scale @ (2 * self.matrix) @ scale + sparse.diags_array(added)
        sums = sparse.coo_array((root * border[rows], (rows, np.arange(size))), shape=(B, size))
        nothing = sparse.coo_array((B, B))
        whole = sparse.vstack([sparse.hstack([centre, sums.T]), sparse.hstack([sums, nothing])])
        return splu(sparse.csc_array(whole)).solve


def _scaling(diagonal: Array) -> tuple[Array, Array]:
    """Scale rows to a unit diagonal, (B, K), and the constraints accordingly, (B, 1)."""
    floor = 1e-30 * diagonal.max() if diagonal.max() > 0 else 1.0
    root = 1 / np.sqrt(np.maximum(diagonal, floor))
    return root, 1 / root.max(axis=1, keepdims=True)


@dataclass(frozen=True)
class SimplicesQuadratic:
    """A quadratic programme on a product of simplices."""

    form: Form
    c: Array  # (B, K)
    alpha: Array  # (B, K)

    def gradient(self, v: Array) -> Array:
        """Return 2(Qv + c), the gradient without the prior."""
        return 2 * (self.form.times(v) + self.c)

    def objective(self, v: Array) -> float:
        """Return the value at v."""
        return float((v * (self.form.times(v) + 2 * self.c)).sum() - self._log_terms(v).sum())

    def scale(self, v: Array) -> float:
        """Return the sum of the absolute terms."""
        centred = self.c - (self.c * v).sum(axis=1, keepdims=True)
        terms = self.alpha + np.abs(self._log_terms(v))
        return self.form.size(v) + float((2 * np.abs(centred) * v + terms).sum())

    def slack(self, h: Array) -> Array:
        """Return the multipliers of the weights, (B, K), at the best levels of the simplices."""
        return Quadratic(np.empty(0), self.c, self.alpha).dual_slack(h)

    def gap(self, v: Array, h: Array | None = None) -> float:
        """Bound the distance to the minimum: the sum of the simplices' duality gaps.

        The form is convex, so it lies above its linearisation at v, whose minimum over a product
        of simplices is a sum of minima; ``h`` is the gradient of any other convex function.
        """
        h = self.gradient(v) if h is None else h
        gap = float(gap_terms(self.slack(h) * v, self.alpha).sum())
        return np.inf if np.isnan(gap) else gap

    def _log_terms(self, v: Array) -> Array:
        return self.alpha * np.log(np.where(self.alpha > 0, v, 1.0))


def simplices_qp(
    form: Form, linear: Array, alpha: Array, *, tol: float = 1e-10, max_iter: int = 100
) -> Solution:
    r"""Minimise :math:`v'Qv + 2c'v - \sum \alpha \log v` over a product of simplices.

    Parameters
    ----------
    form
        Q, positive semidefinite.
    linear
        c, (B, K).
    alpha
        The Dirichlet priors' concentrations minus one, (B, K); not negative. Where it is zero,
        weights can be exactly 0.0.
    tol
        The gap, in units of the scale, below which the problem counts as converged.
    max_iter
        The most interior point steps to take.

    Returns
    -------
    Solution
        Weights (B, K) as ``x``.

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
    problem = SimplicesQuadratic(form, linear, alpha)
    start = np.full(linear.shape, 1 / linear.shape[1])
    with np.errstate(all="ignore"):  # what goes wrong shows up in the gap
        v, iterations = _follow_path(problem, start, tol, max_iter)
        v = _polished(problem, v, tol)
    scale = problem.scale(v)
    # The bound is itself computed in float64: a smaller one would claim too much.
    gap = max(problem.gap(v), float(np.finfo(np.float64).eps) * scale)
    converged = gap <= tol * scale
    stopped = "iteration limit" if iterations >= max_iter else "stalled"
    return Solution(
        x=v,
        objective=np.asarray(problem.objective(v)),
        gap=np.asarray(gap),
        scale=np.asarray(scale),
        converged=np.asarray(converged),
        iterations=np.asarray(iterations),
        status=np.asarray("converged" if converged else stopped),
    )


def _follow_path(
    problem: SimplicesQuadratic, v: Array, tol: float, max_iter: int
) -> tuple[Array, int]:
    """Take Mehrotra's steps until the gap stops falling."""
    h = problem.gradient(v)
    low = h.min(axis=1, keepdims=True)
    room = h.mean(axis=1, keepdims=True) - low + problem.alpha.sum(axis=1, keepdims=True)
    room = np.maximum(room, room.mean())
    z, lam = h - low + room, low - room
    best, least, stale = v, np.inf, 0
    for iteration in range(max_iter):
        gap, scale = problem.gap(v), problem.scale(v)
        stale = 0 if gap < least / 2 else stale + 1
        if gap < least:
            best, least = v, gap
        patience = EXTRA if least <= tol * scale else PATIENCE
        if least == 0 or stale >= patience or not np.isfinite(v).all():
            return best, iteration
        v, z, lam = _step(problem, v, z, lam)
    return best, max_iter


def _step(
    problem: SimplicesQuadratic, v: Array, z: Array, lam: Array
) -> tuple[Array, Array, Array]:
    """Take a predictor and a corrector on the optimality conditions; one length for all."""
    residual = lam - problem.gradient(v)
    newton = problem.form.newton(z / v)

    def towards(target: Array) -> tuple[Array, Array, Array]:
        dv, dlam = newton(residual + target / v)
        return dv, (target - z * (v + dv)) / v, dlam

    def distance(v: Array, z: Array) -> float:
        return float(np.abs(v * z - problem.alpha).mean())

    dv, dz, _ = towards(problem.alpha)
    length = _length(v, z, dv, dz, 1.0)
    mu = distance(v, z)
    centring = min(distance(v + length * dv, z + length * dz), mu) / mu if mu > 0 else 0.0
    centre = problem.alpha + centring**3 * mu
    dv, dz, dlam = towards(np.maximum(centre - length**2 * dv * dz, centre / 10))
    length = _length(v, z, dv, dz, _INSIDE)
    v = v + length * dv
    v /= v.sum(axis=1, keepdims=True)
    # A multiplier far below alpha / v would hide the curvature of the prior from the next step.
    return v, np.maximum(z + length * dz, problem.alpha / (2 * v)), lam + length * dlam


def _length(v: Array, z: Array, dv: Array, dz: Array, inside: float) -> float:
    """Return the longest step up to 1 that keeps weights and multipliers positive."""
    return min(1.0, inside * min(_to_boundary(v, dv).min(), _to_boundary(z, dz).min()))


def _to_boundary(value: Array, step: Array) -> Array:
    return np.where(step < 0, value / np.where(step < 0, -step, 1.0), np.inf)


def _polished(problem: SimplicesQuadratic, v: Array, tol: float) -> Array:
    """Replace the weights by those of the face they tend to, with exact zeros.

    A weight without prior is set to zero where its multiplier, in units of the scale, outweighs
    it; Newton's steps among the others follow.
    """
    prior = problem.alpha > 0
    scale = problem.scale(v)
    slack = problem.slack(problem.gradient(v))
    face = np.where(~prior & (v * scale / len(v) < slack), 0.0, v)
    best, least = v, max(problem.gap(v), tol * scale / 100)
    for _ in range(FACE_STEPS):
        face = face / face.sum(axis=1, keepdims=True)
        gap = problem.gap(face)
        if not gap <= least:
            break
        best, least = face, max(gap, tol * scale / 100)
        face = _face_step(problem, face)
    return best


def _face_step(problem: SimplicesQuadratic, v: Array) -> Array:
    """Take a Newton step among the positive weights; one that reaches zero stays there."""
    free, prior = v > 0, problem.alpha > 0
    inverse = 1 / np.where(free, v, 1.0)
    pull = problem.alpha * inverse
    held = _HELD * (1.0 + np.abs(problem.form.times(np.ones_like(v))).max())
    step, _ = problem.form.newton(np.where(free, pull * inverse, held))(pull - problem.gradient(v))
    step = np.where(free & np.isfinite(step), step, 0.0)
    ratio = _to_boundary(v, step)
    length = min(1.0, float(np.where(prior, _INSIDE * ratio, ratio).min()))
    blocked = free & ~prior & (ratio <= length)
    return np.where(blocked, 0.0, np.maximum(v + length * step, 0.0))
