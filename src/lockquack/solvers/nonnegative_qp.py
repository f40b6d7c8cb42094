r"""Quadratic programmes with a log prior on nonnegative weights whose sum is free.

.. math:: \min_{w \ge 0} f(w) = w'Qw + 2c'w - \textstyle\sum_k \alpha_k \log w_k

The same interior point method as on the simplex, without the multiplier of the sum, and Newton
steps on the face where the solution lies. A duality gap, computed from the returned weights
alone, proves each answer.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from lockquack.solvers.base import Array, Solution, status_of, with_rounding
from lockquack.solvers.interior_point import (
    FACE_STEPS,
    Best,
    Mask,
    Quadratic,
    State,
    dot,
    face_step,
    follow_path,
    gap_terms,
    log_terms,
    solve_each,
    times,
    validated,
)
from lockquack.solvers.simplex_qp import simplex_qp

_EPS = float(np.finfo(np.float64).eps)
#: Share of the curvature that is added where Q is inverted, and how often that is refined.
_RIDGE = 1e-12
_REFINEMENTS = 3
#: Gap or slope, in units of its absolute terms, that is nothing but rounding.
_ROUNDING = 64 * _EPS
#: Curvature along a direction that the search for one without any cannot tell from none.
_FLAT = 1e-12
#: Weight of the slope against the curvature in the search for a direction that has none.
_FAINT = 1e-10


def nonnegative_qp(
    quad: ArrayLike,
    linear: ArrayLike,
    alpha: ArrayLike = 0.0,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> Solution:
    r"""Minimise :math:`f(w) = w'Qw + 2c'w - \sum_k \alpha_k \log w_k` over :math:`w \ge 0`.

    The gap that comes with the weights is a duality gap. For every y that leaves all
    :math:`s = 2(Qy + c)` nonnegative,

    .. math::

        f(w) - \min f \;\le\; (w - y)'Q(w - y)
        + \sum_k \alpha_k\, \varphi\Bigl(\frac{s_k w_k}{\alpha_k}\Bigr),
        \qquad \varphi(t) = t - 1 - \log t \ge 0,

    where an entry with :math:`\alpha_k = 0` contributes :math:`s_k w_k`. Proof: Q is positive
    semidefinite, so :math:`x'Qx \ge 2y'Qx - y'Qy` and :math:`f(x) \ge -y'Qy + \sum_k (s_k x_k -
    \alpha_k \log x_k)` for every :math:`x \ge 0`. A term of the sum is at least
    :math:`\alpha_k - \alpha_k \log(\alpha_k / s_k)`, or zero where :math:`\alpha_k = 0`.
    Subtract this from :math:`f(w) = (w - y)'Q(w - y) - y'Qy + \sum_k (s_k w_k - \alpha_k \log
    w_k)`.

    At a minimum :math:`y = w` will do. Otherwise y is w moved, by a solve with Q, to where the
    entries of s that were too small are what they should be. An entry of s that is below zero
    by no more than the rounding error of its own terms counts as zero: its sign is not known,
    and the bound is that of a problem whose c differs in the last digits. The bound is evaluated
    in float64, and not reported below the rounding error of its terms. The scale it is compared
    with is the size of the terms of f at w,

    .. math:: w'Qw + 2 \sum_k w_k |c_k| + \sum_k \alpha_k (1 + |\log w_k|).

    Where large weights cancel each other, the terms of :math:`w'Qw` are much larger than their
    sum, and rounding can leave more than the tolerance: such a problem has not converged.

    There is no minimum where some :math:`v \ge 0` with :math:`Qv = 0` has :math:`c'v < 0`, or
    :math:`c'v = 0` and a weight with a prior. If Q is singular up to rounding, whether there is
    such a v is up to rounding too.

    Parameters, errors and result are those of :func:`simplex_qp`, but that the weights' prior is
    proportional to :math:`\prod_k w_k^{\alpha_k}`, and that duplicates need not share their
    weight. A problem without minimum has not converged: its status is ``"unbounded"``, its gap
    infinite and its weights some finite ones, far out.

    Examples
    --------
    >>> solution = nonnegative_qp([[2.0, 0, 1], [0, 1, 0], [1, 0, 1]], [-6.0, 2, 0])
    >>> solution.x.round(12).tolist(), bool(solution.relative_gap < 1e-12)
    ([3.0, 0.0, 0.0], True)

    A direction without curvature, going down:

    >>> nonnegative_qp([[1.0, -1], [-1, 1]], [0.0, -1]).status.item()
    'unbounded'
    """
    Q, c, a = validated(quad, linear, alpha)
    batch, K = c.shape[:-1], c.shape[-1]
    Q, c, a = Q.reshape(-1, K, K), c.reshape(-1, K), a.reshape(-1, K)
    problem, unit = _rescaled(Q / 2 + np.swapaxes(Q, -1, -2) / 2, c, a)
    with np.errstate(all="ignore"):  # what goes wrong in one problem shows up in its gap
        best = follow_path(problem, _start(problem), tol, max_iter)
        _polish(problem, best, tol)
        gap = with_rounding(best.gap, problem.scale(best.w))
        w = best.w * unit
        objective, scale = Quadratic(Q, c, a).objective(w), _scale(Quadratic(Q, c, a), w)
        converged = np.asarray(gap <= tol * scale)
        unbounded = np.zeros_like(converged)
        unbounded[~converged] = _falls_forever(problem.take(~converged))
    status = status_of(converged, best.iterations, max_iter)
    return Solution(
        x=w.reshape(*batch, K),
        objective=objective.reshape(batch),
        gap=np.where(unbounded, np.inf, gap).reshape(batch),
        scale=scale.reshape(batch),
        converged=converged.reshape(batch),
        iterations=best.iterations.reshape(batch),
        status=np.where(unbounded, "unbounded", status).reshape(batch),
    )


class _Orthant(Quadratic):
    """A batch of problems in weights of any sum, the diagonal of Q being about one."""

    fixed_sum: ClassVar[bool] = False

    def scale(self, w: Array) -> Array:
        """Return the sum of the absolute terms of f(w), which rounding goes with."""
        return _scale(Quadratic(np.abs(self.Q), self.c, self.alpha), w)

    def gap(self, w: Array) -> Array:
        """Return the bound of :func:`nonnegative_qp`, infinite where no y was found for it."""
        Q, alpha, prior = self.Q, self.alpha, self.alpha > 0
        wanted = np.where(prior, alpha / np.where(prior, w, 1.0), 0.0)
        h = self.gradient(w)
        lack = np.where(h < wanted / 2, wanted - h, 0.0) / 2
        ridged = Q + _RIDGE * np.eye(w.shape[-1])
        move = np.zeros_like(w)
        for _ in range(_REFINEMENTS if lack.any() else 0):
            move = move + solve_each(ridged, lack - times(Q, move))
        s = h + 2 * times(Q, move)
        # Where Q is singular the move is long, and its rounding error counts.
        error = 8 * _EPS * times(np.abs(Q), np.abs(move))
        unknown = 4 * _EPS * (times(np.abs(Q), w) + np.abs(self.c))
        valid = np.where(prior, s > error, s >= error - unknown).all(axis=-1)
        gap = dot(move, times(Q, move)) + gap_terms(np.maximum(s, 0.0) * w, alpha).sum(axis=-1)
        gap = gap + dot(error, w + np.abs(move))
        return np.where(valid & np.isfinite(gap), gap, np.inf)


def _scale(problem: Quadratic, w: Array) -> Array:
    """Return the scale of :func:`nonnegative_qp`."""
    terms = times(problem.Q, w) + 2 * np.abs(problem.c)
    logs = np.abs(log_terms(w, problem.alpha))
    return np.asarray(dot(w, terms) + (problem.alpha + logs).sum(axis=-1))


def _rescaled(Q: Array, c: Array, alpha: Array) -> tuple[_Orthant, Array]:
    """Return the problem in units of the weights that make the diagonal of Q about one.

    The units are powers of two, so nothing is rounded. A weight without curvature is measured
    by its linear term.
    """
    diagonal = np.diagonal(Q, axis1=-2, axis2=-1)
    size = np.where(diagonal > 0, np.sqrt(diagonal), np.abs(c))
    unit = np.exp2(-np.frexp(np.where(size > 0, size, 1.0))[1])
    return _Orthant(Q * unit[:, :, None] * unit[:, None, :], c * unit, alpha), unit


def _start(problem: _Orthant) -> State:
    """Return weights and multipliers that are large enough for the problem, and positive."""
    size = (np.abs(problem.c) + np.sqrt(problem.alpha)).max(axis=-1, keepdims=True)
    w = np.repeat(np.where(size > 0, size, 1.0), problem.c.shape[-1], axis=-1)
    return State(w, w + np.abs(problem.gradient(w)), np.zeros_like(size))


def _polish(problem: _Orthant, best: Best, tol: float) -> None:
    """Replace the weights by those of the face they tend to, with exact zeros.

    A weight without prior is zero if its multiplier outweighs it; the diagonal of Q is about
    one, so they are of one kind. Newton steps among the others follow. A weight of zero that f
    wants to grow is given its share of what it would be on its own: f is convex, so at the
    mean of points that are lower each it is lower.
    """
    prior, diagonal = problem.alpha > 0, np.diagonal(problem.Q, axis1=-2, axis2=-1)
    multiplier = np.maximum(problem.gradient(best.w), 0.0)
    w = np.where(~prior & (best.w < multiplier), 0.0, best.w)
    found = Best.start(w, best.scale)
    rows = np.arange(len(w))
    for _ in range(4 * FACE_STEPS):
        found.prefer(rows, w, problem.gap(w), problem.scale(w), _ROUNDING)
        before, w = w, face_step(problem, w)
        if (np.abs(w - before) <= _EPS * w).all():
            break
        w = np.where(~prior & (w <= _EPS * best.w), 0.0, w)
        alone = -problem.gradient(w) / (2 * np.where(diagonal > 0, diagonal, np.inf))
        wanted = ~prior & (w == 0) & (alone > 0)
        w = np.where(wanted, alone / np.maximum(wanted.sum(axis=-1, keepdims=True), 1), w)
    best.prefer(rows, found.w, found.gap, found.scale, tol / 100)


def _falls_forever(problem: _Orthant) -> Mask:
    """Whether along some v, up to rounding, f has no curvature and the prior no counterweight.

    Of the directions on the simplex with hardly any curvature, v is the one with the lowest
    slope.
    """
    Q, c = problem.Q, problem.c
    slopes = c / np.maximum(np.abs(c).max(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    v = simplex_qp(Q, _FAINT * slopes, 0.0).x
    flat = dot(v, times(Q, v)) <= _FLAT
    slope, level = dot(c, v), _ROUNDING * dot(np.abs(c), v)
    helped = (problem.alpha * v > 0).any(axis=-1)
    return np.asarray(flat & ((slope < -level) | (helped & (slope <= level))))
