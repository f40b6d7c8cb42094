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
from typing_extensions import override

from lockquack.solvers.base import Array, Solution, with_rounding
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
)

#: Unknowns up to which a matrix is factorised as a dense one.
_DENSE = 600
#: Proximal term on the diagonal of a Newton matrix, scaled to one; see ``interior_point``.
_PROXIMAL = 1e-13
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
class GroupForm(Form):
    r"""A form for each simplex, and a pull towards their mean.

    .. math:: \sum_b v_b' Q_b v_b + \lambda \sum_b |v_b - \bar v|^2
    """

    blocks: Array  # (B, K, K), symmetric
    pull: float = 0.0

    @override
    def times(self, v: Array) -> Array:
        each = np.einsum("bjk,bk->bj", self.blocks, v)
        return np.asarray(each + self.pull * (v - v.mean(axis=0)))

    @override
    def size(self, v: Array) -> float:
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
class SparseForm(Form):
    """Any form; entries (b, k) are numbered b K + k."""

    matrix: sparse.csr_array  # (B K, B K), symmetric

    @override
    def times(self, v: Array) -> Array:
        return np.asarray((self.matrix @ v.ravel()).reshape(v.shape))

    @override
    def size(self, v: Array) -> float:
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
class SimplicesQuadratic(Programme):
    """One quadratic programme on a product of simplices."""

    form: Form
    c: Array  # (B, K)
    alpha: Array

    @override
    def gradient(self, v: Array) -> Array:
        return 2 * (self.form.times(v) + self.c)

    @override
    def newton(self, curvature: Array, free: Mask | None = None) -> NewtonSolver:
        if free is not None:
            held = _HELD * (1.0 + np.abs(self.form.times(np.ones_like(curvature))).max())
            curvature = np.where(free, curvature, held)
        return self.form.newton(curvature)

    @override
    def least(self, values: Array) -> Array:
        return values.min()

    @override
    def mean(self, values: Array) -> Array:
        return values.mean()

    def objective(self, v: Array) -> float:
        """Return the value at v."""
        logs = log_terms(v, self.alpha)
        return float((v * (self.form.times(v) + 2 * self.c)).sum() - logs.sum())

    def scale(self, v: Array) -> float:
        """Return the sum of the absolute terms."""
        centred = self.c - (self.c * v).sum(axis=1, keepdims=True)
        terms = self.alpha + np.abs(log_terms(v, self.alpha))
        return self.form.size(v) + float((2 * np.abs(centred) * v + terms).sum())

    def gap(self, v: Array, h: Array | None = None) -> float:
        """Bound the distance to the minimum: the sum of the simplices' duality gaps.

        The form is convex, so it lies above its linearisation at v, whose minimum over a product
        of simplices is a sum of minima; ``h`` is the gradient of any other convex function.
        """
        h = self.gradient(v) if h is None else h
        gap = float(gap_terms(dual_slack(h, self.alpha) * v, self.alpha).sum())
        return np.inf if np.isnan(gap) else gap


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
    with np.errstate(all="ignore"):  # what goes wrong shows up in the gap
        v, iterations = _follow_path(problem, tol, max_iter)
        v = _polished(problem, v, tol)
    scale = problem.scale(v)
    gap, objective = float(with_rounding(problem.gap(v), scale)), problem.objective(v)
    return Solution.of_one(v, objective, gap, scale, iterations, tol=tol, max_iter=max_iter)


def _follow_path(problem: SimplicesQuadratic, tol: float, max_iter: int) -> tuple[Array, int]:
    """Take steps of one length for all simplices until the gap stops falling."""
    state = _start(problem)
    best, least, stale = state.w, np.inf, 0
    for iteration in range(max_iter):
        v = state.w
        gap, scale = problem.gap(v), problem.scale(v)
        stale = 0 if gap < least / 2 else stale + 1
        if gap < least:
            best, least = v, gap
        patience = EXTRA if least <= tol * scale else PATIENCE
        if least == 0 or stale >= patience or not np.isfinite(v).all():
            return best, iteration
        state = predictor_corrector(problem, state)
    return best, max_iter


def _start(problem: SimplicesQuadratic) -> State:
    """Return equal weights; no simplex's multipliers are much smaller than those of the others."""
    B, K = problem.c.shape
    state = start_at(problem, np.full((B, K), 1 / K))
    room = state.z.min(axis=1, keepdims=True)
    more = np.maximum(room.mean() - room, 0.0)
    return State(state.w, state.z + more, state.lam - more)


def _polished(problem: SimplicesQuadratic, v: Array, tol: float) -> Array:
    """Replace the weights by those of the face they tend to, with exact zeros.

    A weight without prior is set to zero where its multiplier, in units of the scale, outweighs
    it; Newton's steps among the others follow.
    """
    prior = problem.alpha > 0
    scale = problem.scale(v)
    slack = dual_slack(problem.gradient(v), problem.alpha)
    face = np.where(~prior & (v * scale / len(v) < slack), 0.0, v)
    best, least = v, max(problem.gap(v), tol * scale / 100)
    for _ in range(FACE_STEPS):
        face = face / face.sum(axis=1, keepdims=True)
        gap = problem.gap(face)
        if not gap <= least:
            break
        best, least = face, max(gap, tol * scale / 100)
        face = face_step(problem, face)
    return best
