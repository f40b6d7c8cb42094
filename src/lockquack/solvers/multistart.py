r"""Smooth problems that are not convex, without constraints, from several starts.

.. math:: \min_{z \in \mathbb{R}^P} f(z)

No certificate exists here. In its place there is a point that is stationary to rounding, the
curvature that tells a minimum from a saddle, and how many starts lead to the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.parallel.threads import small_products
from lockquack.solvers.base import Array, Solution
from lockquack.solvers.smooth import Curvature, Point, SmoothFunction, ValueAndGradient

#: Error of f, in units of the scale, that a step which halves the gradient is forgiven.
_FORGIVEN = 1e-10
#: Decrease of f, in units of the scale, that is nothing but rounding, and slopes that are.
_LAST_DIGIT = float(np.finfo(np.float64).eps)
_ROUNDING = 16 * _LAST_DIGIT
#: Share of the decrease which the slope promises that a step has to keep.
_SUFFICIENT = 1e-4
#: The same for the curvature and a step off a saddle.
_SUFFICIENT_CURVED = 0.25
#: Factors by which a step is shortened until it decreases f.
_LENGTHS = 0.25 ** np.arange(26)
#: Difference of values, in units of the scale, below which two starts agree.
_AGREE = 1e-6
#: The same for values that are equal but for rounding.
_TIE = 1e-12
#: Most steps of the quasi-Newton method, most evaluations of f for them, and its memory.
_QUASI_STEPS = 300
_QUASI_EVALUATIONS = 1000
_MEMORY = 20
#: Largest slope, in units of the scale, at which it hands over to Newton's method, and at which
#: it is asked whether a valley is known already.
_QUASI_SLOPE, _IN_A_VALLEY = 1e-7, 1e-4
#: Share of the slope that a step with a Hessian from elsewhere may leave, for another of its kind.
_LEFT = 0.25
#: Error of entries of a Hessian that is given, in units of the scale.
_HESSIAN_ERROR = 1e-9
#: Most steps to a minimum that is near, and cosine of a step and the change of slopes along it
#: from which that says something.
_NEAR_STEPS, _RISES = 40, 1e-6
#: Slopes, in units of the scale, that count as none; the most Newton steps from a start.
_TOL, _MAX_ITER = 1e-8, 100
#: Distance over which a Hessian is the same but for the error of its differences.
_SAME = 1e-9
#: Share of the largest eigenvalue of the Hessian below which BFGS takes a direction for flat.
_ROUGHLY_FLAT = 1e-6
#: Length of the step off a saddle with which it begins there.
_NUDGE = 0.05
#: Longest first step in any coordinate, and how far a minimum that is near can be.
_REACH = 2.0
#: Largest slope, in units of the scale, at which it stops, and at which rounding may stop it.
_SETTLED, _NEARLY_SETTLED = 1e-7, 1e-6
_CONVERGED, _AGREES = "converged", "agrees with another start"

_Method = Literal["BFGS", "L-BFGS-B"]


@dataclass(frozen=True, eq=False)
class MultistartSolution(Solution):
    """The lowest stationary point that was found, with the evidence that it is the minimum.

    It has ``converged`` where it is stationary to the tolerance and no direction of negative
    curvature that decreases f was left; that does not make it the global minimum. Starts agree
    on it that led to its value: within 1e-6, in units of the scale or of f(x), whichever is
    larger. ``iterations`` are those from all starts.

    Attributes
    ----------
    hessian
        The Hessian of f at x, (P, P), by central differences of the gradient.
    objectives
        The value of f that each start led to, (S,); infinite where f is not finite at it.
    rivals
        The other stationary points that were found, the best first.
    """

    hessian: Array = field(kw_only=True)
    objectives: Array = field(kw_only=True)
    rivals: tuple[MultistartSolution, ...] = field(default=(), kw_only=True)


@small_products()
def multistart(
    objective: ValueAndGradient,
    starts: ArrayLike,
    *,
    scale: float,
    tol: float = _TOL,
) -> MultistartSolution:
    r"""Minimise a smooth f from each of several starts, and keep the best point.

    Each start is taken downhill by L-BFGS and then, unless it already agrees with one that was,
    by :func:`newton`. Starts that agree in value to rounding are told apart by their order: the
    first one that converged is returned, so that the point does not depend on the last digit of
    f.

    Nothing proves that the lowest point found is the lowest there is. Few agreeing starts are
    a reason to try more of them; many are no proof.

    Parameters
    ----------
    objective
        z, (P,) -> f(z) and its gradient, (P,). Values or gradients that are not finite count
        as plus infinity: no step ends there.
    starts
        The points to start from, (S, P).
    scale
        The size of the terms that add up to f. Gradients and eigenvalues are compared with it,
        so the entries of z should make a difference when they change by about one.
    tol
        The largest entry of the gradient, in units of the scale, of a point that counts as
        stationary. The steps go on until rounding stops them, whatever the tolerance.

    Returns
    -------
    MultistartSolution
        The same for the same arguments: nothing is random.

    Raises
    ------
    ShapeError
        Where ``starts`` is not (S, P) with at least one start, or the gradient is not (P,).
    NonFiniteError
        On NaN or infinite entries of ``starts``, or where f is not finite at any of them.
    ParameterError
        On a ``scale`` that is not positive.

    Examples
    --------
    Two wells, the left one deeper by 0.2:

    >>> import numpy as np
    >>> def wells(z):
    ...     return ((z**2 - 1) ** 2 + 0.1 * z).sum(), 4 * z * (z**2 - 1) + 0.1
    >>> found = multistart(wells, [[-2.0], [0.5], [3.0]], scale=1.0)
    >>> found.x.round(4).tolist(), found.objectives.round(1).tolist(), found.starts
    ([-1.0123], [-0.1, 0.1, 0.1], (1, 3))
    """
    points = _validated(starts, scale, ndim=2)
    problem = SmoothFunction(objective, float(scale))
    found = _from_starts(problem, points, tol)
    values = np.array([each.objective for each in found])
    lowest = values.min()
    if not np.isfinite(lowest):
        raise NonFiniteError(f"The objective is not finite at any of the {len(points)} starts.")
    unit = max(problem.scale, abs(lowest))
    best = min(
        (each for each in found if each.objective - lowest <= _TIE * unit),
        key=lambda each: not each.converged,
    )
    steps = np.sum([each.iterations for each in found])

    def among_all(each: MultistartSolution) -> MultistartSolution:
        agreeing = int((np.abs(values - each.objective) <= _AGREE * unit).sum())
        return replace(each, iterations=steps, objectives=values, starts=(agreeing, len(points)))

    others = [each for each in found if each.converged and each.objective - lowest > _AGREE * unit]
    rivals = sorted(others, key=lambda each: float(each.objective))
    return replace(among_all(best), rivals=tuple(map(among_all, rivals)))


@small_products()
def newton(
    objective: ValueAndGradient,
    start: ArrayLike,
    *,
    scale: float,
    tol: float = _TOL,
    max_iter: int = _MAX_ITER,
) -> MultistartSolution:
    r"""Minimise a smooth f near a start, by Newton's method.

    With the Hessian :math:`V \,\mathrm{diag}(e)\, V'`, from central differences of the
    gradient g, the step is

    .. math:: -\sum_j \frac{v_j'g}{\max(|e_j|, \delta)}\, v_j

    shortened until f decreases enough. As long as a step leaves little of the slopes, the next is
    taken with the same Hessian. Here :math:`\delta` is what the differences cannot tell
    from zero. Where :math:`|e_j| \le \delta`, and g along :math:`v_j` is within the tolerance,
    the direction is flat and takes no step: that would be rounding error, and large. The
    absolute values turn steps away from saddles and maxima. Where g has vanished but some
    :math:`e_j` is negative, a step along :math:`v_j` leaves the saddle.

    The answer is a local minimum; ``objectives`` and ``starts`` are those of one start.
    Parameters, errors and result are those of :func:`multistart`.

    Examples
    --------
    The circle :math:`z_1^2 + z_2^2 = 1` is flat along itself; started at its centre, a
    maximum, the method leaves along negative curvature:

    >>> import numpy as np
    >>> def ring(z):
    ...     excess = z @ z - 1
    ...     return excess**2, 4 * excess * z
    >>> found = newton(ring, [0.0, 0.0], scale=1.0)
    >>> round(float(np.hypot(*found.x)), 12), bool(abs(np.linalg.eigvalsh(found.hessian)[0]) < 1e-8)
    (1.0, True)
    """
    z = _validated(start, scale, ndim=1)
    problem = SmoothFunction(objective, float(scale))
    point = problem.at(z)
    if not point.finite:
        raise NonFiniteError("The objective is not finite at the start.")
    return _descend(problem, point, tol, max_iter)


def _validated(points: ArrayLike, scale: float, ndim: int) -> Array:
    array = np.array(points, dtype=np.float64)
    if array.ndim != ndim or (ndim == 2 and len(array) == 0):
        want = "(S, P) with S > 0" if ndim == 2 else "(P,)"
        raise ShapeError(f"The start has shape {array.shape}: want {want}.")
    if not np.isfinite(array).all():
        raise NonFiniteError("A start has NaN or infinite entries.")
    if not (np.isfinite(scale) and scale > 0):
        raise ParameterError(f"The scale is {scale}: want a positive number, the size of f.")
    return array


def _from_starts(problem: SmoothFunction, starts: Array, tol: float) -> list[MultistartSolution]:
    """Go downhill from every start; where that ends at a value known already, go no further."""
    ends = [_quasi_newton(problem, start, max(tol, _IN_A_VALLEY)) for start in starts]
    found: dict[int, MultistartSolution] = {}
    polished: list[MultistartSolution] = []
    for s in sorted(range(len(ends)), key=lambda s: ends[s][0].value):
        point, steps = ends[s]
        known = next((each for each in polished if _agree(problem, point, each)), None)
        if known is None and point.finite:
            point, more = _quasi_newton(problem, point.z, tol)
            steps += more
            known = next((each for each in polished if _agree(problem, point, each)), None)
        if known is not None:
            same = replace(known, converged=np.array(False), status=np.array(_AGREES))
            found[s] = replace(same, iterations=np.array(steps))
            continue
        unknown = Curvature.of(np.full((point.z.size, point.z.size), np.nan), np.inf)
        if not point.finite:
            nowhere = Point(point.z, np.inf, np.full_like(point.z, np.inf))
            found[s] = _solution(problem, nowhere, unknown, 0, "not finite at the start")
            continue
        solution = _descend(problem, point, tol, _MAX_ITER)
        polished.append(solution)
        found[s] = replace(solution, iterations=solution.iterations + steps)
    return [found[s] for s in range(len(ends))]


def _agree(problem: SmoothFunction, point: Point, known: MultistartSolution) -> bool:
    """Whether a start has led to the value of a point that is known."""
    difference = abs(point.value - float(known.objective) / problem.scale)
    return point.finite and difference <= _AGREE * max(1.0, abs(point.value))


def _quasi_newton(problem: SmoothFunction, start: Array, tol: float) -> tuple[Point, int]:
    """Go downhill by L-BFGS; return where it ended and how many steps it took."""
    first = problem.at(start)
    if start.size == 0 or not first.finite:
        return first, 0
    return _search(
        problem,
        first,
        None,
        "L-BFGS-B",
        maxfun=_QUASI_EVALUATIONS,
        maxcor=_MEMORY,
        gtol=max(tol, _QUASI_SLOPE),
        ftol=float(np.finfo(np.float64).eps),
    )


def _search(
    problem: SmoothFunction, first: Point, root: Array | None, method: _Method, **options: Any
) -> tuple[Point, int]:
    """Go downhill by a method of scipy's, in z or in coordinates t with z = first.z + root t.

    Returns where it ended, which is not above the first point, and how many steps it took.
    """
    start = first.z if root is None else np.zeros_like(first.z)
    highest = first.value
    # The method asks for the first point again, and does not tell what it knows of the last.
    known = {start.tobytes(): first}

    def at(t: Array) -> Point:
        nonlocal highest
        if t.tobytes() in known:
            return known[t.tobytes()]
        point = problem.at(t if root is None else first.z + root @ t)
        if not point.finite:
            # A line search cannot take infinity, and would take a huge number for a reason to
            # shorten the step to nothing; above all that was seen is high enough to be refused.
            point = Point(point.z, highest + 1.0, np.zeros_like(t))
        else:
            highest = max(highest, point.value)
        known[t.tobytes()] = point
        return point

    def value_and_gradient(t: Array) -> tuple[float, Array]:
        point = at(t.copy())
        return point.value, point.gradient if root is None else root.T @ point.gradient

    options["maxiter"] = _QUASI_STEPS
    result = minimize(value_and_gradient, start, jac=True, method=method, options=options)  # type: ignore[call-overload]
    end = at(np.asarray(result.x, dtype=np.float64))
    return (end if end.value <= first.value else first), int(result.nit)


@small_products()
def downhill(
    objective: ValueAndGradient,
    start: Array,
    value: float,
    gradient: Array,
    hessian: Array,
    *,
    scale: float,
) -> Array:
    """Minimise a smooth f by BFGS from a start where it is known, its Hessian at least about.

    Where the Hessian has a negative eigenvalue, the start is a saddle, and the search begins
    beside it.
    """
    if start.size == 0:
        return start
    problem = SmoothFunction(objective, float(scale))
    values, vectors = np.linalg.eigh(hessian / scale)
    size = np.maximum(np.abs(values), _ROUGHLY_FLAT * np.abs(values).max(initial=1e-300))
    first = Point(start, value / scale, gradient / scale)
    if values.min() < -_ROUGHLY_FLAT * size.max():
        first = problem.at(start + _NUDGE * vectors[:, 0])
    if not first.finite:
        return first.z
    # In coordinates t in which the Hessian is about the identity, BFGS begins with Newton's step,
    # shortened lest it lead into another valley at once.
    root = vectors / np.sqrt(size)
    longest = float(np.abs(root @ (root.T @ first.gradient)).max())
    root *= np.sqrt(min(1.0, _REACH / max(longest, _REACH)))
    end, _ = _search(problem, first, root, "BFGS", gtol=_SETTLED)
    # Its line search gives up where f is not finite nearby.
    if end.norm > _NEARLY_SETTLED:
        return _descend(problem, end, _SETTLED, _QUASI_STEPS).x
    return end.z


def _descend(
    problem: SmoothFunction, point: Point, tol: float, max_iter: int
) -> MultistartSolution:
    """Take Newton steps, and steps off saddles, until none of them makes progress."""
    for iteration in range(max_iter + 1):
        curvature = problem.curvature(point.z)
        minimum = curvature.smallest >= -curvature.noise
        if iteration == max_iter:
            break
        after = _newton_point(problem, point, curvature.newton_step(point, tol))
        if after is not None and after.norm <= _LEFT * point.norm:
            after = _go_on(problem, after, curvature, tol)
            if minimum and _is_same(after.z, point.z):
                point = after
                break
        if after is None and curvature.smallest < -curvature.noise:
            after = _off_the_saddle(problem, point, curvature)
            # Curvature along which f does not decrease is an error of the differences.
            minimum = after is None
        if after is None:
            break
        point = after
    stopped = "iteration limit" if iteration == max_iter else "stalled"
    status = _CONVERGED if point.norm <= tol and minimum else stopped
    return _solution(problem, point, curvature, iteration, status)


def _is_same(z: Array, known: Array) -> bool:
    """Whether a Hessian by differences at one point is that at the other."""
    return bool((np.abs(z - known) <= _SAME * np.maximum(1.0, np.abs(known))).all())


def _go_on(problem: SmoothFunction, point: Point, curvature: Curvature, tol: float) -> Point:
    """Take steps with one Hessian as long as each leaves little of the slopes."""
    while point.norm > _LAST_DIGIT:
        after = problem.at(point.z + curvature.newton_step(point, tol))
        allowed = point.value + _FORGIVEN * max(1.0, abs(point.value))
        if not (after.finite and after.norm <= _LEFT * point.norm and after.value <= allowed):
            break
        point = after
    return point


@small_products()
def near(
    objective: ValueAndGradient, start: Array, hessian: Array, *, scale: float
) -> Array | None:
    """Minimise a smooth f whose minimum is near a start, given its Hessian there; None: it is not.

    Each step takes one evaluation of f, whose slopes correct the Hessian as BFGS does. It is
    :func:`newton` that helps where the Hessian has a negative eigenvalue, where steps lead far
    away or do not lead to slopes within the tolerance; they go on until rounding stops them.
    """
    problem = SmoothFunction(objective, float(scale))
    point, known = problem.at(start), hessian / scale
    for _ in range(_NEAR_STEPS):
        if point.norm <= _LAST_DIGIT:
            break
        curvature = Curvature.of(known, _HESSIAN_ERROR)
        if not (point.finite and curvature.smallest >= -curvature.noise):
            return None
        after = problem.at(point.z + curvature.newton_step(point, _TOL))
        if point.norm <= _TOL and not after.norm < point.norm / 2:
            break
        higher = not after.value <= point.value + _FORGIVEN * max(1.0, abs(point.value))
        if higher or np.abs(after.z - start).max() > _REACH:
            return None
        known = _corrected(known, after.z - point.z, after.gradient - point.gradient)
        point = after
    return point.z if point.norm <= _TOL else None


def _corrected(hessian: Array, step: Array, change: Array) -> Array:
    """Correct a Hessian by how the slopes changed along a step, where they rose."""
    along, bent = float(step @ change), hessian @ step
    if not along > _RISES * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return hessian
    return hessian + np.outer(change, change) / along - np.outer(bent, bent) / float(step @ bent)


def _newton_point(problem: SmoothFunction, point: Point, step: Array) -> Point | None:
    """Search along a step; None where rounding, or f itself, is in the way of progress.

    Close to a minimum the decrease of f drowns in rounding long before the gradient does, so a
    step that halves the gradient is taken even if f seems to rise a little.
    """
    slope = float(point.gradient @ step)
    if not slope < 0:
        return None
    unit = max(1.0, abs(point.value))
    for length in _LENGTHS:
        if length < 1 and -length * slope < _ROUNDING * unit:
            return None
        after = problem.at(point.z + length * step)
        if not after.finite:
            continue
        halved = after.norm <= point.norm / 2
        if halved and after.value <= point.value + _FORGIVEN * unit:
            return after
        if after.value <= point.value + _SUFFICIENT * length * slope:
            return after if after.value < point.value - _ROUNDING * unit else None
    return None


def _off_the_saddle(problem: SmoothFunction, point: Point, curvature: Curvature) -> Point | None:
    """Search both ways along the most negative curvature; None where f decreases neither way."""
    direction = curvature.vectors[:, 0]
    unit = max(1.0, abs(point.value))
    for length in _LENGTHS:
        promised = _SUFFICIENT_CURVED * length**2 * curvature.smallest / 2
        if promised > -_ROUNDING * unit:
            break
        trials = [problem.at(point.z + sign * length * direction) for sign in (1.0, -1.0)]
        lower = [each for each in trials if each.finite and each.value <= point.value + promised]
        if lower:
            return min(lower, key=lambda each: each.value)
    return None


def _solution(
    problem: SmoothFunction, point: Point, curvature: Curvature, iterations: int, status: str
) -> MultistartSolution:
    """Return to the units of f."""
    value = point.value * problem.scale
    return MultistartSolution(
        x=point.z,
        objective=np.array(value),
        gap=np.array(np.nan),
        scale=np.array(problem.scale),
        converged=np.array(status == _CONVERGED),
        iterations=np.array(iterations),
        status=np.array(status),
        starts=(1, 1),
        stationarity=point.norm,
        hessian=curvature.hessian * problem.scale,
        objectives=np.array([value]),
    )
