r"""Proportions of a mixture of known densities: maximum likelihood, or with a Dirichlet prior.

.. math:: \min_{w \in \Delta} f(w) = -\textstyle\sum_i u_i \log \sum_k w_k e^{L_{ik}}
          - \sum_k \alpha_k \log w_k

This is Bayesian stacking. Around any w, f is a quadratic form and the same prior up to third
order, so every Newton step is an interior point step of :mod:`~lockquack.solvers.simplex_qp`
on that form. A duality gap, computed from the returned weights alone, proves each answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.numeric import cut
from lockquack.solvers.base import Array, Solution, status_of, with_rounding
from lockquack.solvers.interior_point import (
    EXTRA,
    FACE_STEPS,
    PATIENCE,
    Best,
    Index,
    Mask,
    Quadratic,
    dot,
    dual_slack,
    equalised,
    face_step,
    log_terms,
    predictor_corrector,
    start_at,
)

#: Logarithm of the smallest density, relative to the best one of its row, that is told from
#: zero. At an optimum the whole mixture is at least u_i / Σ(u + alpha) of the best, so nothing
#: this small matters; squared it is still a normal number, as fast as any other.
_LOWEST = -300.0
#: Entries of a block of densities, few enough to stay in cache.
_BLOCK = 1 << 17
#: Fewest rows of a block; with many models, replicates are solved fewer at a time instead.
_ROWS = 64
#: Counts of replicates that are solved together.
_CHUNK = 1 << 22
#: Share of equal weights in the start of a replicate, which keeps it off the boundary.
_FRESH = 0.1
#: Gap, in units of the scale, that is nothing but rounding.
_ROUNDING = 16 * np.finfo(np.float64).eps


def mixture_proportions(
    log_density: ArrayLike,
    counts: ArrayLike | None = None,
    alpha: ArrayLike = 0.0,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> Solution:
    r"""Minimise :math:`-\sum_i u_i \log \sum_k w_k e^{L_{ik}} - \sum_k \alpha_k \log w_k`.

    The minimum is over the simplex. The gap that comes with the weights is a duality gap. With
    :math:`t_i = \sum_k w_k e^{L_{ik}}` and :math:`d_k = \sum_i u_i e^{L_{ik}} / t_i` at the
    returned w, and :math:`N = \sum_i u_i`, :math:`M = N + \sum_k \alpha_k`,

    .. math::

        f(w) - \min f \;\le\; M \log \frac{\ell}{M}
        - \sum_k \alpha_k \log \frac{(\ell - d_k)\, w_k}{\alpha_k}
        \qquad \text{for every } \ell \ge \max_k d_k,

    which without a prior is :math:`N \log(\max_k d_k / N)`. Proof: let
    :math:`\theta = M / \ell` and :math:`s_k = M - \theta d_k \ge 0`. For any x in the simplex
    with mixtures :math:`\tau_i`, add up :math:`u_i \log(\theta \tau_i / t_i) \le
    u_i (\theta \tau_i / t_i - 1)` and :math:`\alpha_k \log(s_k x_k / \alpha_k) \le
    s_k x_k - \alpha_k`; the right sides, :math:`\theta d'x - N` and :math:`M - \theta d'x -
    \sum_k \alpha_k`, cancel. The best :math:`\ell` is used; the choice
    :math:`\ell = \max_k (d_k + \alpha_k / w_k)` shows that the bound is never above the
    Frank-Wolfe gap :math:`\ell - M`. It is evaluated in float64, and not reported below the
    rounding error of the scale. The scale it is compared with is

    .. math::

        \sum_i u_i \Bigl(1 + \max_k L_{ik} - \log t_i\Bigr)
        + \sum_k \alpha_k (1 + |\log w_k|),

    the sum of the absolute terms of f with every row measured from its best model, and of the
    counts: constants added to rows change neither the weights nor the scale.

    Parameters
    ----------
    log_density
        L, (n, K): the log density of each of K models at each of n observations, of any size.
        Minus infinity is allowed where another model of the row is finite. One more array of
        this size is made.
    counts
        u, (n,) or (..., n): how often each observation counts, not negative; once by default.
        Leading axes are replicates, such as those of a Bayesian bootstrap.
    alpha, tol, max_iter
        As for :func:`~lockquack.solvers.simplex_qp.simplex_qp`, alpha the same for all replicates.

    Returns
    -------
    Solution
        Weights (..., K) as ``x``, with the leading axes of ``counts``. Objective, gap and scale
        are in nats. Where minimisers are not unique, models that are duplicates of each other
        share their weight equally.

    Raises
    ------
    ShapeError
        Where the arrays do not fit together, or are empty.
    NonFiniteError
        On NaN or plus infinity, and on observations that no model can have produced.
    ParameterError
        On negative ``counts`` or ``alpha``, or counts that are all zero.

    Examples
    --------
    Three observations, each possible under one of two models only:

    >>> import numpy as np
    >>> solution = mixture_proportions([[-800, -np.inf], [-800, -np.inf], [-np.inf, -900.0]])
    >>> solution.x.round(12).tolist(), bool(solution.relative_gap < 1e-12)
    ([0.666666666667, 0.333333333333], True)

    The same observations counted otherwise, twice:

    >>> counts = [[1.0, 1, 2], [1, 0, 0]]
    >>> again = mixture_proportions([[-1, -np.inf], [-1, -np.inf], [-np.inf, -2.0]], counts)
    >>> again.x.round(12).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    L, u, a = _validated(log_density, counts, alpha)
    P, top = _relative(L)
    (n, K), batch = P.shape, u.shape[:-1]
    flat = u.reshape(-1, n)
    start = np.full((1, K), 1 / K)
    if len(flat) > 1:
        pooled = _solve(P, flat.mean(axis=0, keepdims=True), a, start, tol, max_iter)[0]
        start = _FRESH * start + (1 - _FRESH) * pooled
    # Few enough replicates at a time to keep temporaries small.
    size = max(1, min(_BLOCK // (_ROWS * K), _CHUNK // n))
    chunks = cut(slice(0, max(len(flat), 1)), size)
    parts = [_solve(P, flat[at], a, start, tol, max_iter) for at in chunks]
    fields = (np.concatenate(column) for column in zip(*parts, strict=True))
    x, f, *rest = (field.reshape(batch + field.shape[1:]) for field in fields)
    return Solution(x, f - u @ top, *rest)


def _validated(
    log_density: ArrayLike, counts: ArrayLike | None, alpha: ArrayLike
) -> tuple[Array, Array, Array]:
    """Return L, u and alpha as float arrays; whether L is finite shows once its rows are."""
    L, a = (np.asarray(value, dtype=np.float64) for value in (log_density, alpha))
    if L.ndim != 2 or L.size == 0:
        raise ShapeError(f"The log densities have shape {L.shape}: want (n, K), not empty.")
    n, K = L.shape
    u = np.ones(n) if counts is None else np.asarray(counts, dtype=np.float64)
    if u.ndim == 0 or u.shape[-1] != n:
        raise ShapeError(f"There are {n} observations, but the counts have shape {u.shape}.")
    if a.shape not in ((), (K,)):
        raise ShapeError(f"There are {K} models, but alpha has shape {a.shape}.")
    for name, value in (("counts", u), ("alpha", a)):
        if not np.isfinite(value).all():
            raise NonFiniteError(f"{name} has NaN or infinite entries.")
        if (value < 0).any():
            raise ParameterError(f"{name} has negative entries: the problem is not convex.")
    if not u.any(axis=-1).all():
        raise ParameterError("The counts are all zero: no observation is left to fit.")
    return L, u, np.broadcast_to(a, (K,))


def _relative(L: Array) -> tuple[Array, Array]:
    """Return the densities relative to the best of each row, (n, K), and the best logarithms."""
    top = L.max(axis=1)
    bad = np.flatnonzero(~np.isfinite(top))
    if len(bad):
        raise NonFiniteError(
            f"Row {bad[0]} of the log densities has a NaN, plus infinity, or minus infinity for "
            f"every model; so have {len(bad)} of {len(top)} rows."
        )
    with np.errstate(over="ignore"):
        P = L - top[:, None]
    np.maximum(P, _LOWEST, out=P)
    return np.exp(P, out=P), top


@dataclass(frozen=True)
class _Model:
    """What one reading of the densities tells about f at some weights."""

    local: Quadratic  # the quadratic programme with the gradient and the Hessian of f
    slack: Array  # (B, K): best level minus d
    objective: Array  # of the relative densities
    gap: Array
    scale: Array


@dataclass(frozen=True)
class _Mixtures:
    """A batch of problems that share their densities."""

    P: Array  # (n, K), relative to the best of each row
    u: Array  # (B, n)
    alpha: Array  # (B, K)

    def take(self, keep: Mask | Index) -> _Mixtures:
        return _Mixtures(self.P, self.u[keep], self.alpha[keep])

    def at(self, w: Array, curved: bool = True) -> _Model:
        """Describe f at w; without curvature, at a fraction of the cost, for the gap only."""
        B, K = w.shape
        on = np.flatnonzero(w.any(axis=0))  # a weight of zero takes no step: no curvature needed
        d, hessian, logs = np.zeros((B, K)), np.zeros((B, len(on), len(on))), np.zeros(B)
        for rows in cut(slice(0, len(self.P)), max(_ROWS, _BLOCK // (max(B, 1) * K))):
            P, u = self.P[rows], self.u[:, rows]
            t = w @ P.T
            d += (u / t) @ P
            logs += dot(u, np.log(t))
            if curved:
                active = P if len(on) == K else P[:, on]
                scaled = active * (np.sqrt(u) / t)[:, :, None]
                hessian += np.swapaxes(scaled, 1, 2) @ scaled
        Q = np.zeros((B, K, K))
        Q[:, on[:, None], on] = hessian / 2
        # With Hessian Q + Q the gradient 2(Qw + c) is to be −d; and the Hessian times w is d.
        return self._certified(w, Quadratic(Q, -d, self.alpha), logs)

    def _certified(self, w: Array, local: Quadratic, logs: Array) -> _Model:
        """Add the gap of :func:`mixture_proportions`, at the best level, and its scale."""
        N, alpha, prior = self.u.sum(axis=-1), self.alpha, self.alpha > 0
        M, d = N + alpha.sum(axis=-1), -local.c
        # The bound's derivative vanishes where Σ α_k d_k / (level − d_k) = N.
        slack = dual_slack(local.c, alpha * d / N[:, None])
        level = d.max(axis=-1) + slack.min(axis=-1)
        ratio = np.where(prior, slack * w, 1.0) / np.where(prior, alpha, 1.0)
        gap = M * np.log(level / M) - dot(alpha, np.log(ratio))
        log_prior = log_terms(w, alpha)
        # The mixture is at most the best of its row, so no term of its logarithm is positive.
        scale = N - logs + (alpha + np.abs(log_prior)).sum(axis=-1)
        gap = with_rounding(np.where(np.isnan(gap), np.inf, gap), scale)
        return _Model(local, slack, -logs - log_prior.sum(axis=-1), gap, scale)


def _solve(
    P: Array, u: Array, alpha: Array, start: Array, tol: float, max_iter: int
) -> tuple[NDArray[Any], ...]:
    """Solve a batch with one leading axis; return the fields of its Solution."""
    # A power of two brings the counts to order one and rounds nothing.
    unit = np.exp2(np.frexp(u.sum(axis=-1) + alpha.sum())[1])
    problem = _Mixtures(P, u / unit[:, None], alpha / unit[:, None])
    with np.errstate(all="ignore"):  # what goes wrong in one problem shows up in its gap
        w = np.repeat(start, len(u), axis=0)
        best, local = _interior_point(problem, w, tol, max_iter)
        _polish(problem, best)
        _share_equally(problem, best, local)
        final = problem.at(best.w, curved=False)
    converged = final.gap <= tol * final.scale
    status = status_of(converged, best.iterations, max_iter)
    sizes = (value * unit for value in (final.objective, final.gap, final.scale))
    return best.w, *sizes, converged, best.iterations, status


def _interior_point(
    problem: _Mixtures, w: Array, tol: float, max_iter: int
) -> tuple[Best, Quadratic]:
    """Follow the central path until the gap stops falling; return the model at the start too."""
    model = problem.at(w)
    first, state = model.local, start_at(model.local, w)
    best = Best.start(w, model.scale)
    live = np.arange(len(w))
    for iteration in range(max_iter + 1):
        best.update(live, state.w, model.gap, model.scale)
        best.iterations[live] = iteration
        keep = _unfinished(best, live, tol) & np.isfinite(state.w).all(axis=-1)
        if iteration == max_iter or not keep.any():
            break
        live, problem = live[keep], problem if keep.all() else problem.take(keep)
        state = predictor_corrector(model.local.take(keep), state.take(keep))
        model = problem.at(state.w)
    return best, first


def _unfinished(best: Best, rows: Index, tol: float) -> Mask:
    """Whether there is more than rounding left to gain, and hope of gaining it."""
    gap, scale = best.gap[rows], best.scale[rows]
    patience = np.where(gap <= tol * scale, EXTRA, PATIENCE)
    return np.asarray((gap > _ROUNDING * scale) & (best.stale[rows] < patience))


def _polish(problem: _Mixtures, best: Best) -> None:
    """Replace the weights by those of the face they tend to, with exact zeros.

    As in :mod:`~lockquack.solvers.simplex_qp`, an entry without prior belongs to the face
    unless its multiplier outweighs it, and the Newton steps keep duplicated models together.
    They end with one after which the gap has not changed: with a prior it grows with the square
    of the error in the weights, so rounding hides the last digits of the weights from it.
    """
    model = problem.at(best.w, curved=False)
    outweighed = best.w * model.scale[:, None] < model.slack
    w = np.where((problem.alpha == 0) & outweighed, 0.0, best.w)
    found = Best.start(w, model.scale)
    rows = np.arange(len(w))
    for _ in range(FACE_STEPS):
        w /= w.sum(axis=-1, keepdims=True)
        model = problem.at(w)
        progress = model.gap < found.gap / 2
        found.prefer(rows, w, model.gap, model.scale, _ROUNDING)
        if not progress.any():
            break
        w = face_step(model.local, w)
    best.prefer(rows, found.w, found.gap, found.scale, _ROUNDING)


def _share_equally(problem: _Mixtures, best: Best, local: Quadratic) -> None:
    """Give equal weights to models that the second-order model ``local`` cannot tell apart."""
    rows, w = equalised(local, best.w)
    if len(rows):
        model = problem.take(rows).at(w, curved=False)
        best.prefer(rows, w, model.gap, model.scale, _ROUNDING)
