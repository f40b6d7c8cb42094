r"""Smooth convex functions with a log prior on the probability simplex.

.. math:: \min_{w \in \Delta} F(w) = f(w) - \textstyle\sum_k \alpha_k \log w_k

Every Newton step is a quadratic programme of :mod:`~lockquack.solvers.simplex_qp`, which has
the prior and the constraints as they are; or, on a product of simplices, of
:mod:`~lockquack.solvers.simplices_qp`. A duality gap, computed from the gradient at the returned
weights alone, proves each answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.base import Array, Solution, with_rounding
from lockquack.solvers.interior_point import EXTRA, log_terms
from lockquack.solvers.simplex_qp import simplex_qp, simplex_qp_near
from lockquack.solvers.simplices_qp import Form, GroupForm, SimplicesQuadratic, simplices_qp

#: The value, the gradient (K,) and the Hessian (K, K) of f at weights (K,).
Expand = Callable[[Array], tuple[float, Array, Array]]
#: The value, the gradient (B, K) and half the Hessian of f at weights on B simplices, (B, K).
ExpandForm = Callable[[Array], tuple[float, Array, Form]]

#: Change of f, or gap, in units of the scale, that is nothing but rounding.
_ROUNDING = 16 * np.finfo(np.float64).eps
#: Rise of f, in units of the scale, that no rounding explains.
_JUMP = 1e-9
#: Slope at the end of a step, in units of the slope at its start, that ends a line search.
_LEVEL = 0.1
#: Most evaluations of a line search, enough to bisect down to rounding.
_EVALUATIONS = 60
#: Share of the tolerance that a prior which keeps weights above zero may cost.
_TRACE = 0.5
#: Share of equal weights mixed into a start that has zeros where the prior allows none.
_FRESH = 0.1


def simplex_newton(
    expand: Expand,
    start: ArrayLike,
    alpha: ArrayLike,
    *,
    scale: float,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> Solution:
    r"""Minimise :math:`F(w) = f(w) - \sum_k \alpha_k \log w_k` over the simplex, f convex.

    The gap that comes with the weights is a duality gap. With the gradient g of f at the
    returned w, for every :math:`\lambda` that leaves all :math:`s_k = g_k - \lambda`
    nonnegative,

    .. math::

        F(w) - \min F \;\le\; \sum_k \alpha_k\, \varphi\Bigl(\frac{s_k w_k}{\alpha_k}\Bigr),
        \qquad \varphi(t) = t - 1 - \log t \ge 0,

    where an entry with :math:`\alpha_k = 0` contributes :math:`s_k w_k`. Proof: f is convex, so
    :math:`f(w) - f(x) \le g'(w - x) = s'w - s'x` for every x of the simplex, on which
    :math:`\lambda` cancels. So :math:`F(w) - F(x)` is at most :math:`\sum_k [s_k w_k - s_k x_k +
    \alpha_k \log(x_k / w_k)]`. A term with :math:`\alpha_k = 0` is at most :math:`s_k w_k`;
    any other is largest at :math:`x_k = \alpha_k / s_k`, where it is
    :math:`s_k w_k - \alpha_k + \alpha_k \log(\alpha_k / (s_k w_k))`. The best :math:`\lambda` is
    used, which makes the bound the value at w minus the minimum over the simplex of the
    linearised problem: never above the Frank-Wolfe gap. It is evaluated in float64, and not
    reported below the rounding error of the scale.

    Each step goes towards the minimum x of the quadratic model of f at w, prior included.
    With :math:`d = x - w` the slope of F along d is at most minus the decrease of the model,
    so d leads down unless w is the minimum. F is convex along d; the step ends where the slope
    has become small, or at x. Stopping at the bottom rather than anywhere lower matters where
    f is nearly piecewise linear: its bends are where its curvature is, and one that no step
    ends at is not in the next model.

    Where f is not convex, neither the gap nor the answer means anything.

    Parameters
    ----------
    expand
        w -> f(w), its gradient (K,) and its positive semidefinite Hessian (K, K). The weights
        it is called with are not negative and sum to one; they may be 0.0. Where what it
        returns is not finite, the step is shortened.
    start
        Weights to start from, (K,).
    alpha, tol, max_iter
        As for :func:`simplex_qp`, of Newton's steps.
    scale
        The size of the terms that add up to f, such as the sum of their absolute values.

    Returns
    -------
    Solution
        Weights (K,) as ``x``. Its scale is the one given, and :math:`\sum_k \alpha_k
        (1 + |\log w_k|)` for the prior.

    Raises
    ------
    ShapeError
        Where the arrays do not fit together, or are empty.
    NonFiniteError
        On NaN or infinite entries, and where f is not finite at the start.
    ParameterError
        On a negative ``alpha``, a ``scale`` that is not positive, or a start off the simplex.

    Examples
    --------
    Three exponentials, of which the last rises too steeply to have any weight:

    >>> import numpy as np
    >>> def tilted(w):
    ...     e = np.exp(w * [1.0, 2, 3])
    ...     return e.sum(), e * [1, 2, 3], np.diag(e * [1, 4, 9])
    >>> solution = simplex_newton(tilted, [1.0, 0, 0], 0.0, scale=4.0)
    >>> solution.x.round(6).tolist(), bool(solution.relative_gap < 1e-12)
    ([0.897716, 0.102284, 0.0], True)
    """
    w, a = _validated(start, alpha, scale)

    def expand_form(v: Array) -> tuple[float, Array, Form]:
        value, gradient, hessian = expand(v[0])
        g, H = np.asarray(gradient, dtype=np.float64), np.asarray(hessian, dtype=np.float64)
        if g.shape != w.shape or H.shape != w.shape * 2:
            raise ShapeError(
                f"Gradient {g.shape}, Hessian {H.shape}: want (K,), (K, K); K={w.size}"
            )
        # Rounding can leave a variance of zero below zero.
        return value, g[None], GroupForm((H + np.diag(np.maximum(-H.diagonal(), 0.0)))[None] / 2)

    solution = simplices_newton(
        expand_form, w[None], a[None], scale=scale, tol=tol, max_iter=max_iter
    )
    return replace(solution, x=solution.x[0])


def simplices_newton(
    expand: ExpandForm,
    start: Array,
    alpha: Array,
    *,
    scale: float,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> Solution:
    """Minimise a convex function with a log prior over a product of B simplices.

    As :func:`simplex_newton`, whose gap adds up over the simplices: f lies above its
    linearisation, and that falls into one part for each simplex.

    Parameters
    ----------
    expand
        v, (B, K) -> f(v), its gradient (B, K) and half its Hessian.
    start
        Weights to start from, (B, K).
    alpha
        The Dirichlet priors' concentrations minus one, (B, K).
    scale, tol, max_iter
        As for :func:`simplex_newton`.

    Returns
    -------
    Solution
        Weights (B, K) as ``x``.

    Examples
    --------
    >>> import numpy as np
    >>> def squares(v):
    ...     a = np.array([[1.0, 4.0], [4.0, 1.0]])
    ...     return float((a * v**2).sum()), 2 * a * v, GroupForm(a[:, None] * np.eye(2))
    >>> simplices_newton(squares, np.full((2, 2), 0.5), np.zeros((2, 2)), scale=1.0).x.round(9)
    array([[0.8, 0.2],
           [0.2, 0.8]])
    """
    problem = _Problem(expand, alpha, float(scale))
    with np.errstate(all="ignore"):  # what goes wrong shows up in the gap
        first = problem.at(start)
        if not first.finite:
            raise NonFiniteError("f, its gradient or its Hessian is not finite at the start.")
        best, iterations = _newton(problem, first, tol, max_iter)
        if best.gap > tol * best.scale and iterations < max_iter:
            inside, more = _from_inside(problem, best.w, tol, max_iter - iterations)
            best = inside if inside.gap < best.gap else best
            iterations += more
    return Solution.of_one(
        best.w, best.value, best.gap, best.scale, iterations, tol=tol, max_iter=max_iter
    )


def _validated(start: ArrayLike, alpha: ArrayLike, scale: float) -> tuple[Array, Array]:
    """Return start and alpha as float arrays, the start with weight where the prior wants it."""
    w, a = np.array(start, dtype=np.float64), np.asarray(alpha, dtype=np.float64)
    if w.ndim != 1 or w.size == 0 or a.shape not in ((), w.shape):
        raise ShapeError(f"Start has shape {w.shape} and alpha {a.shape}: want (K,) for both.")
    for name, value in (("start", w), ("alpha", a)):
        if not np.isfinite(value).all():
            raise NonFiniteError(f"{name} has NaN or infinite entries.")
        if (value < 0).any():
            raise ParameterError(f"{name} has negative entries: got {value.min()}.")
    if abs(w.sum() - 1) > 1e-6:
        raise ParameterError(f"The start sums to {w.sum()}: want weights that sum to one.")
    if not (np.isfinite(scale) and scale > 0):
        raise ParameterError(f"The scale is {scale}: want a positive number, the size of f.")
    if ((a > 0) & (w == 0)).any():
        w = (1 - _FRESH) * w + _FRESH / len(w)
    return w / w.sum(), np.broadcast_to(a, w.shape)


@dataclass(frozen=True)
class _Point:
    """What one expansion tells about F at some weights."""

    w: Array  # (B, K)
    value: float  # with the prior
    gradient: Array  # (B, K), of f alone
    half_hessian: Form  # of f alone
    gap: float
    scale: float

    @property
    def finite(self) -> bool:
        curvature = self.half_hessian.size(self.w)
        return bool(np.isfinite([self.value, curvature, self.gradient.sum()]).all())


@dataclass(frozen=True)
class _Problem:
    expand: ExpandForm
    alpha: Array
    scale: float

    def at(self, w: Array) -> _Point:
        """Expand f at w, add the prior and the certificate."""
        value, gradient, form = self.expand(w.copy())
        logs = log_terms(w, self.alpha)
        scale = self.scale + float((self.alpha + np.abs(logs)).sum())
        bound = SimplicesQuadratic(form, gradient, self.alpha).gap(w, gradient)
        gap = float(with_rounding(bound, scale))
        return _Point(w, float(value) - float(logs.sum()), gradient, form, gap, scale)

    def slope(self, point: _Point, d: Array) -> float:
        """Return the derivative of F along d."""
        pull = self.alpha / np.where(self.alpha > 0, point.w, 1.0)
        return float(((point.gradient - pull) * d).sum())

    def curvature(self, point: _Point, d: Array) -> float:
        """Return the second derivative of F along d."""
        pull = self.alpha / np.where(self.alpha > 0, point.w, 1.0) ** 2
        return float((d * (2 * point.half_hessian.times(d) + pull * d)).sum())


def _newton(problem: _Problem, point: _Point, tol: float, max_iter: int) -> tuple[_Point, int]:
    """Take steps until rounding stops the progress; return the best point and their number.

    With a prior the gap grows with the square of the error in the weights, so rounding hides
    their last digits from it: of points whose gaps are nothing but rounding the last is best.
    """
    best, stale = point, 0
    for iteration in range(max_iter):
        patience = 1 if best.gap <= tol * best.scale else EXTRA
        if stale >= patience:
            return best, iteration
        after = _line_search(problem, point, _model_minimum(problem, point))
        falls = after.value < point.value - _ROUNDING * after.scale
        progress = after.gap < best.gap / 2 or (falls and best.gap > tol * best.scale)
        stale = 0 if progress else stale + 1
        if after.gap <= max(best.gap, _ROUNDING * after.scale):
            best = after
        point = after
    return best, max_iter


def _from_inside(problem: _Problem, near: Array, tol: float, max_iter: int) -> tuple[_Point, int]:
    """Minimise with a trace of a prior, which keeps all weights above zero and the gap small.

    f can jump, or have slopes without bound, where a weight becomes zero: a locked pool then has
    tails that this model cuts off. There no slope certifies anything, just beside it they do.
    """
    alpha = np.maximum(problem.alpha, _TRACE * tol * problem.scale / near.size)
    start = (1 - _FRESH) * near + _FRESH / near.shape[1]
    traced = replace(problem, alpha=alpha)
    found, iterations = _newton(traced, traced.at(start), _TRACE * tol, max_iter)
    return problem.at(found.w), iterations


def _model_minimum(problem: _Problem, point: _Point) -> Array:
    """Minimise the quadratic model of f at a point, with the prior, over the simplices."""
    form = point.half_hessian
    linear = point.gradient / 2 - form.times(point.w)
    if isinstance(form, GroupForm) and not form.pull:
        if len(linear) == 1:
            return simplex_qp_near(form.blocks[0], linear[0], problem.alpha[0], point.w[0])[None]
        return simplex_qp(form.blocks, linear, problem.alpha).x
    return simplices_qp(form, linear, problem.alpha).x


def _line_search(problem: _Problem, start: _Point, target: Array) -> _Point:
    """Go from a point towards the target until F is nearly level, at most to the target.

    The slope is bracketed and its zero approached by Newton's method, by bisection where that
    leaves the bracket. A negative slope proves by convexity that F has decreased, unless F jumps
    up where a weight becomes zero: a locked pool then has outcomes that this model excludes.
    """
    d = target - start.w
    rounding = _ROUNDING * start.scale
    level = max(_LEVEL * abs(problem.slope(start, d)), rounding)
    low, high, t = 0.0, 1.0, 1.0
    reached = start
    for _ in range(_EVALUATIONS):
        w = target if t == 1 else np.maximum(start.w + t * d, 0.0)
        point = problem.at(w / w.sum(axis=1, keepdims=True))
        rises = point.value > start.value + _JUMP * start.scale
        slope = problem.slope(point, d) if point.finite and not rises else np.inf
        lower = slope <= 0 or point.value <= start.value + rounding
        if lower and (abs(slope) <= level or (t == 1 and slope <= 0)):
            return point
        if slope <= 0:
            low, reached = t, point
        else:
            high = t
        step = t - np.float64(slope) / problem.curvature(point, d)
        inside = low + (high - low) / 64 < step < high - (high - low) / 64
        t = step if inside else (low + high) / 2
    return reached
