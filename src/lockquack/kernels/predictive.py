r"""Predictive densities compiled by numba: densities and their sum over draws in one loop.

For each outcome the log density of every draw is computed into a row that stays in cache, then
exponentiated and summed, without arrays of outcomes × draws. Which formula it is, is the
:class:`~lockquack.families.base.Split` of a family. The reference is the family's own ``logp`` and
:func:`lockquack.kernels.plain.log_sum_members`.

At equally spaced outcomes, normal densities need exponentials at the first of them only: with
:math:`f_j = \exp(b (u + jh - m)^2)` and :math:`r_j = f_{j+1} / f_j`,

.. math:: f_{j+1} = r_j f_j, \qquad r_{j+1} = e^{2bh^2} r_j.

The errors of the ratios add up like j²/2, so every few outcomes the series begins anew.

References
----------
.. [1] Shepherd and Laframboise (1981). Chebyshev approximation of (1 + 2x) exp(x²) erfc x in
   0 ≤ x < ∞. Mathematics of Computation 36(153), 249–253.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.special import erfcx

from lockquack.jets import Array
from lockquack.kernels.compiled import LOWEST, exponential, jit

Rows = NDArray[np.intp]

#: Coefficients of log((1 + s) / (1 − s)) = 2 s (1 + s²/3 + s⁴/5 + …), the last first.
_ODD = tuple(float(k) for k in range(21, 0, -2))
_LOG_2 = float(np.log(2.0))
_ROOT_2 = float(np.sqrt(2.0))
#: Bits of a float: those of its fraction, and those that 1 has for an exponent.
_FRACTION, _ONE = (1 << 52) - 1, 1023 << 52
#: Largest number whose exponential is taken, and between what a sum of such is one of digits.
_HIGHEST, _LEAST, _MOST = 700.0, 1e-250, 1e250
#: Outcomes for which a series goes on, and how many of them are summed at once.
_RUN, _AT_ONCE = 32, 4
#: How far equally spaced outcomes are moved by rounding, in units of the largest.
_ROUNDING = 1e-15
#: Where (z − c) / (z + c) changes its sign: it maps the half-line for the series of erfc [1]_.
_CENTRE, _DEGREE = 3.75, 22


def _coefficients() -> tuple[float, ...]:
    """Coefficients of (1 + 2z) exp(z²) erfc(z) in powers of (z − c) / (z + c), the last first."""
    s = chebyshev.chebpts1(3 * _DEGREE)
    z = _CENTRE * (1 + s) / (1 - s)
    fitted = chebyshev.chebfit(s, (1 + 2 * z) * erfcx(z), _DEGREE)
    return tuple(chebyshev.cheb2poly(fitted)[::-1].tolist())


#: In two parts: the compiler does not unroll a loop over all of them.
_FIRST, _LAST = _coefficients()[:12], _coefficients()[12:]


def log_sums(
    kind: str,
    outcomes: Sequence[Array],
    base: Array,
    rows: Rows,
    constant: Array,
    parameters: Sequence[Array],
) -> Array:
    """Log of the sum over draws of exp(base + constant + f(outcomes, parameters)), (point, row).

    Parameters
    ----------
    kind
        Which f: a key of ``FORMULAS``.
    outcomes
        What f wants to know of each outcome, (point, row).
    base
        What does not depend on the draws, (point, row); where −inf, or NaN, so is the sum.
    rows
        Which of the rows of ``constant`` and ``parameters`` belong to the columns.
    constant, parameters
        One number for each draw, (row, draw), or (1, draw) where all rows have the same.
    """
    sums = np.empty(base.shape)
    room = np.empty((3, constant.shape[1]))
    FORMULAS[kind](*outcomes, base, rows, constant, *parameters, room, sums)
    return sums


@jit(in_any_order=True, no_nan=True)
def _total(terms: Array, origin: float) -> float:
    total = 0.0
    for s in range(len(terms)):
        total += exponential(min(max(terms[s] - origin, LOWEST), _HIGHEST))
    return total


@jit(no_nan=True)
def _log_total(terms: Array, guess: float) -> float:
    """Log of the sum of exponentials; where the guess of it is good, no largest is looked for."""
    total = _total(terms, guess)
    if _LEAST < total < _MOST:
        return guess + np.log(total)
    top = terms.max()
    return top if top == -np.inf else top + np.log(_total(terms, top))


@jit
def _log(x: float) -> float:
    """Log of a positive number, without branches."""
    bits = np.float64(x).view(np.int64)
    m = np.int64((bits & _FRACTION) | _ONE).view(np.float64)
    high = m > _ROOT_2
    power = np.float64((bits >> 52) - 1023 + (1 if high else 0))
    m = 0.5 * m if high else m
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, 0.0
    for k in _ODD:
        series = series * square + 1.0 / k
    return power * _LOG_2 + 2.0 * s * series


@jit
def _log1p(x: float) -> float:
    """Log of 1 + x for x ≥ 0, without branches."""
    u = 1.0 + x
    lost = x - (u - 1.0)
    return _log(u) + lost * max(0.0, 1.5 - 0.5 * u)  # nearly lost / u: of a rounding error


@jit
def _row(array: Array, row: int) -> Array:
    return array[row if len(array) > 1 else 0]


@jit
def _is_possible(base: float) -> bool:
    return base > -np.inf  # false for NaN


@jit
def _are_spaced(u: Array, base: Array) -> bool:
    """Whether outcomes of one row are possible and, but for rounding, equally spaced."""
    step = (u[-1] - u[0]) / max(len(u) - 1, 1)
    slack = _ROUNDING * max(abs(u[0]), abs(u[-1]))
    for j in range(len(u)):
        if not (_is_possible(base[j]) and abs(u[0] + j * step - u[j]) <= slack):
            return False
    return len(u) > _AT_ONCE


@jit(in_any_order=True, no_nan=True)
def _begin(u: float, step: float, top: float, c: Array, m: Array, b: Array, series: Array) -> bool:
    """Fill (f, r, e^{2bh²}) for a run from u on; false if any is too small on the way."""
    f, ratio, change = series[0], series[1], series[2]
    too_small = 0.0  # counted, because that can be done for several at once
    for s in range(len(c)):
        x, end = u - m[s], u + _RUN * step - m[s]
        too_small += 1.0 if c[s] - top + b[s] * max(x * x, end * end) < -_HIGHEST else 0.0
        f[s] = exponential(max(c[s] - top + b[s] * (x * x), LOWEST))
        ratio[s] = exponential(min(max(b[s] * step * (2.0 * x + step), LOWEST), _HIGHEST))
        change[s] = exponential(max(2.0 * b[s] * step * step, LOWEST))
    return too_small == 0.0


@jit(in_any_order=True)
def _go_on(series: Array, sums: Array) -> None:
    """Sum the next four terms of each series."""
    f, ratio, change = series[0], series[1], series[2]
    first = second = third = fourth = 0.0
    for s in range(len(f)):
        a, r, q = f[s], ratio[s], change[s]
        first += a
        a, r = a * r, r * q
        second += a
        a, r = a * r, r * q
        third += a
        a, r = a * r, r * q
        fourth += a
        f[s], ratio[s] = a * r, r * q
    sums[0], sums[1], sums[2], sums[3] = first, second, third, fourth


@jit
def _square_spaced(u: Array, c: Array, m: Array, b: Array, series: Array, sums: Array) -> bool:
    """Sum exp(c + b (u − m)²) at equally spaced u; false if that cannot be done by a series."""
    step, top, totals = (u[-1] - u[0]) / (len(u) - 1), c.max(), np.empty(_AT_ONCE)
    for j in range(0, len(u), _AT_ONCE):
        if j % _RUN == 0 and not _begin(u[j], step, top, c, m, b, series):
            return False
        _go_on(series, totals)
        for k in range(min(_AT_ONCE, len(u) - j)):
            sums[j + k] = top + np.log(totals[k])
    return True


@jit(in_any_order=True)
def _square(
    u: Array,
    base: Array,
    rows: Rows,
    constant: Array,
    mean: Array,
    bend: Array,
    room: Array,
    sums: Array,
) -> None:
    """Sum exp(constant + bend (u − mean)²)."""
    terms, column = room[0], np.empty(len(u))
    for i in range(len(rows)):
        c, m, b = _row(constant, rows[i]), _row(mean, rows[i]), _row(bend, rows[i])
        guess, at = 0.0, u[:, i].copy()
        if _are_spaced(at, base[:, i]) and _square_spaced(at, c, m, b, room, column):
            sums[:, i] = base[:, i] + column
            continue
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                for s in range(len(terms)):
                    x = at[j] - m[s]
                    terms[s] = c[s] + b[s] * (x * x)
                guess = _log_total(terms, max(guess, -_MOST))
                sums[j, i] += guess


@jit(in_any_order=True)
def _linear(
    u: Array,
    v: Array,
    base: Array,
    rows: Rows,
    constant: Array,
    first: Array,
    second: Array,
    room: Array,
    sums: Array,
) -> None:
    """Sum exp(constant + first u + second v)."""
    terms = room[0]
    for i in range(len(rows)):
        c, a, b = _row(constant, rows[i]), _row(first, rows[i]), _row(second, rows[i])
        guess = 0.0
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                x, y = u[j, i], v[j, i]
                for s in range(len(terms)):
                    terms[s] = c[s] + (a[s] * x + b[s] * y)
                guess = _log_total(terms, max(guess, -_MOST))
                sums[j, i] += guess


@jit(in_any_order=True)
def _student(
    u: Array,
    base: Array,
    rows: Rows,
    constant: Array,
    mean: Array,
    width: Array,
    power: Array,
    room: Array,
    sums: Array,
) -> None:
    """Sum exp(constant − power log(1 + width (u − mean)²))."""
    terms = room[0]
    for i in range(len(rows)):
        c, m = _row(constant, rows[i]), _row(mean, rows[i])
        w, e = _row(width, rows[i]), _row(power, rows[i])
        guess = 0.0
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                at = u[j, i]
                for s in range(len(terms)):
                    x = at - m[s]
                    terms[s] = c[s] - e[s] * _log1p(min(w[s] * (x * x), 1e300))
                guess = _log_total(terms, max(guess, -_MOST))
                sums[j, i] += guess


@jit
def _half_erfcx(z: float) -> float:
    """Half of exp(z²) erfc(z), from 0 to 1e100, without branches."""
    outer, inner = 1.0 + 2.0 * z, z + _CENTRE
    both = 1.0 / (outer * inner)
    s, series = (z - _CENTRE) * outer * both, 0.0
    for k in _FIRST:
        series = series * s + k
    for k in _LAST:
        series = series * s + k
    return 0.5 * series * inner * both


@jit
def _log_phi(t: float, half: float) -> float:
    """Log of the normal distribution function, from what :func:`_half_erfcx` is at |t| / √2."""
    below, square = t < 0.0, 0.5 * t * t
    share = half if below else 1.0 - exponential(max(-square, LOWEST)) * half
    return _log(share) - (square if below else 0.0)


@jit(in_any_order=True)
def _skew(
    u: Array,
    base: Array,
    rows: Rows,
    constant: Array,
    mean: Array,
    bend: Array,
    slope: Array,
    room: Array,
    sums: Array,
) -> None:
    """Sum exp(constant + bend (u − mean)²) Φ(slope (u − mean))."""
    terms, halves = room[0], room[1]
    for i in range(len(rows)):
        c, m = _row(constant, rows[i]), _row(mean, rows[i])
        b, a = _row(bend, rows[i]), _row(slope, rows[i])
        guess = 0.0
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                at = u[j, i]
                for s in range(len(terms)):
                    halves[s] = _half_erfcx(min(abs(a[s] * (at - m[s])) / _ROOT_2, 1e100))
                for s in range(len(terms)):
                    x = at - m[s]
                    terms[s] = c[s] + b[s] * (x * x) + _log_phi(a[s] * x, halves[s])
                guess = _log_total(terms, max(guess, -_MOST))
                sums[j, i] += guess


FORMULAS = {"square": _square, "linear": _linear, "student": _student, "skew": _skew}
