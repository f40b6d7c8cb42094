r"""Quadratic programmes with a log prior on the probability simplex.

.. math:: \min_{w \in \Delta} f(w) = w'Qw + 2c'w - \textstyle\sum_k \alpha_k \log w_k

The logarithm is a barrier that never goes away, so a primal-dual interior point method solves
the problem with the prior at the cost of the problem without it. A duality gap, computed from
the returned weights alone, proves each answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockquack.numeric import cut
from lockquack.solvers.base import Array, Solution, status_of, with_rounding
from lockquack.solvers.interior_point import (
    FACE_STEPS,
    Best,
    Index,
    Quadratic,
    dual_slack,
    equalised,
    face_step,
    follow_path,
    start_at,
    validated,
)

#: Matrix entries worked on at once, to keep the temporaries of a large batch in cache.
_CHUNK = 1 << 20
#: Ratio of entries from which the smaller ones have no digits left beside the larger.
_OUTLYING = 1e10
#: Most steps from weights that are near, share of the way to zero that each may take, and the
#: relative length of one after which nothing but rounding is left.
_NEWTON_STEPS, _INSIDE, _SETTLED = 30, 0.99, 1e-9


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
    Q, c, a = validated(quad, linear, alpha)
    batch, K = c.shape[:-1], c.shape[-1]
    parts = [_solve(Q[at], c[at], a[at], tol, max_iter) for at in _chunks(batch, K)]
    return Solution(*(_join(columns, batch) for columns in zip(*parts, strict=True)))


def simplex_qp_near(Q: Array, c: Array, alpha: Array, start: Array) -> Array:
    """Return the weights of one problem, (K,), for which others are a good guess.

    With a prior on all weights, Newton's method finds them from there, up to rounding; else, and
    where it does not get that far, :func:`simplex_qp`.
    """
    found = _by_newton(Q, c, alpha, start) if alpha.min() > 0 else None
    return simplex_qp(Q, c, alpha).x if found is None else found


def _by_newton(Q: Array, c: Array, alpha: Array, start: Array) -> Array | None:
    """Go by Newton's steps that keep all weights above zero; None where they do not settle."""
    K = c.size
    matrix, w = np.ones((K + 1, K + 1)), start
    matrix[K, K] = 0.0
    with np.errstate(all="ignore"):
        for _ in range(_NEWTON_STEPS):
            pull = alpha / w
            matrix[:K, :K] = 2 * Q
            matrix.flat[: K * (K + 1) : K + 2] += pull / w
            slope = pull - 2 * (Q @ w + c)
            step = np.linalg.solve(matrix, np.append(slope, 0.0))[:K]
            relative = step / w
            if not np.isfinite(relative).all():
                return None
            w = w + min(1.0, -_INSIDE / min(relative.min(), -_INSIDE)) * step
            w /= w.sum()
            if np.abs(relative).max() <= _SETTLED:
                return w
    return None


def _chunks(batch: tuple[int, ...], K: int) -> Iterator[tuple[Any, ...]]:
    """Yield indices into the batch, few enough problems at a time to keep temporaries small."""
    total = int(np.prod(batch))
    for chunk in cut(slice(0, max(total, 1)), max(1, _CHUNK // K**2)):
        flat = np.arange(chunk.start, min(chunk.stop, total))
        # An unbatched problem has no axis to index, so it is given one.
        yield np.unravel_index(flat, batch) if batch else (None,)


def _join(columns: tuple[NDArray[Any], ...], batch: tuple[int, ...]) -> NDArray[Any]:
    whole = np.concatenate(columns)
    return whole.reshape(batch + whole.shape[1:])


def _normalised(Q: Array, c: Array, alpha: Array) -> tuple[Quadratic, Array]:
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
    return Quadratic(Q / unit[:, None, None], c / unit[:, None], alpha / unit[:, None]), unit


def _solve(Q: Array, c: Array, alpha: Array, tol: float, max_iter: int) -> tuple[NDArray[Any], ...]:
    """Solve a batch with one leading axis; return the fields of its Solution."""
    problem, unit = _normalised(Q, c, alpha)
    with np.errstate(all="ignore"):  # what goes wrong in one problem shows up in its gap
        equal = np.full_like(c, 1 / c.shape[-1])
        best = follow_path(problem, start_at(problem, equal), tol, max_iter)
        sparse = np.flatnonzero((alpha == 0).any(axis=-1))
        _polish(problem.take(sparse), best, sparse, tol)
        _share_equally(problem, best, tol)
        _leave_out_outliers(problem, best, tol, max_iter)
        objective = Quadratic(Q, c, alpha).objective(best.w)
    converged = best.gap <= tol * best.scale
    status = status_of(converged, best.iterations, max_iter)
    gap = with_rounding(best.gap, best.scale)
    return best.w, objective, gap * unit, best.scale * unit, converged, best.iterations, status


def _polish(problem: Quadratic, best: Best, rows: Index, tol: float) -> None:
    """Replace the weights of ``rows`` by those of the face they tend to, with exact zeros.

    An entry without prior belongs to the face unless its multiplier, in units of the scale,
    outweighs it. The Newton steps that follow start from the interior point's weights, so
    duplicated models stay together rather than end in a vertex.
    """
    if len(rows) == 0:
        return
    w = best.w[rows]
    s = dual_slack(problem.gradient(w), problem.alpha)
    w = np.where((problem.alpha == 0) & (w * best.scale[rows][:, None] < s), 0.0, w)
    found = Best.start(w, best.scale[rows])
    for _ in range(FACE_STEPS):
        w /= w.sum(axis=-1, keepdims=True)
        found.update(np.arange(len(rows)), w, problem.gap(w), problem.scale(w))
        w = face_step(problem, w)
    best.prefer(rows, found.w, found.gap, found.scale, tol / 100)


def _leave_out_outliers(problem: Quadratic, best: Best, tol: float, max_iter: int) -> None:
    """Solve what stalled again without entries so large that they leave no digits to the others.

    These get no weight. The certificate is that of the whole problem.
    """
    for row in np.flatnonzero(best.gap > tol * best.scale):
        one = problem.take(np.array([row]))
        size = np.maximum(np.diagonal(one.Q[0]), np.abs(one.c[0]))
        kept = (size <= _OUTLYING * np.sort(size)[:2].max()) | (one.alpha[0] > 0)
        if kept.all():
            continue
        w = np.zeros_like(one.c)
        inner = one.Q[:, kept][:, :, kept], one.c[:, kept], one.alpha[:, kept]
        w[:, kept] = _solve(*inner, tol, max_iter)[0]
        best.prefer(np.array([row]), w, one.gap(w), one.scale(w), tol / 100)


def _share_equally(problem: Quadratic, best: Best, tol: float) -> None:
    """Let duplicated models have equal weights, where the certificate stays as good."""
    rows, w = equalised(problem, best.w)
    some = problem.take(rows)
    best.prefer(rows, w, some.gap(w), some.scale(w), tol / 100)
