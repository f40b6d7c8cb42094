r"""Predictive densities compiled by numba: densities and their sum over draws in one loop.

For each outcome the terms of all draws are computed and summed as they come, without arrays of
outcomes × draws, relative to a guess of their sum: that at the outcome before. Which formula it is,
is the :class:`~lockquack.families.base.Split` of a family. The reference is the family's own
``logp`` and :func:`lockquack.kernels.plain.log_sum_members`.

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
from lockquack.kernels.compiled import INLINE, LOWEST, economised, exponential, jit

Rows = NDArray[np.intp]
#: The constant and the parameters; of a formula that has but two, the third is not read.
Draws = tuple[Array, ...]

#: Formulas of a :class:`~lockquack.families.base.Split`, by their place here.
KINDS = ("square", "linear", "student", "skew")
_SQUARE, _LINEAR, _STUDENT, _SKEW = range(4)
_LOG_2 = float(np.log(2.0))
_ROOT_2 = float(np.sqrt(2.0))
#: Coefficients of log((1 + s) / (1 − s)) = 2 s (1 + s²/3 + s⁴/5 + …) in powers of s², the last
#: first, to the s at which a number is 2^(1/2).
_ODD = economised(2.0 / np.arange(1.0, 36.0, 2.0), ((_ROOT_2 - 1.0) / (_ROOT_2 + 1.0)) ** 2, 8)
#: Bits of 2^(−1/2).
_HALF = int(np.float64(np.sqrt(0.5)).view(np.int64))
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
        Which f: one of ``KINDS``.
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
    draws = (constant, *parameters, constant)[:4]  # always as many: what is compiled is the same
    _sums(KINDS.index(kind), (outcomes[0], outcomes[-1]), base, rows, draws, sums)
    return sums


@jit
def _sums(
    kind: int,
    outcomes: tuple[Array, Array],
    base: Array,
    rows: Rows,
    draws: Draws,
    sums: Array,
) -> None:
    """Fill the sums, column by column."""
    u, v = outcomes
    series, column = np.empty((3, draws[0].shape[1])), np.empty(len(u))
    for i in range(len(rows)):
        of_row = _rows(draws, rows[i])
        if kind == _SQUARE:
            at = u[:, i].copy()
            if _are_spaced(at, base[:, i]) and _square_spaced(at, of_row, series, column):
                sums[:, i] = base[:, i] + column
                continue
        guess = 0.0
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                guess = _log_total(kind, u[j, i], v[j, i], max(guess, -_MOST), of_row, series[0])
                sums[j, i] += guess


@jit(in_any_order=True, no_nan=True)
def _log_total(kind: int, u: float, v: float, guess: float, draws: Draws, room: Array) -> float:
    """Log of the sum at one outcome; where the guess was not good, relative to the largest term."""
    for _ in range(2):
        if kind == _SQUARE:
            total = _total(_SQUARE, u, v, guess, draws, room)
        elif kind == _LINEAR:
            total = _total(_LINEAR, u, v, guess, draws, room)
        elif kind == _STUDENT:
            total = _total(_STUDENT, u, v, guess, draws, room)
        else:
            total = _total(_SKEW, u, v, guess, draws, room)
        if _LEAST < total < _MOST:
            break
        guess = _largest(kind, u, v, draws)
        if guess == -np.inf:
            return guess
    return guess + np.log(total)


@jit(inline="always")
def _total(kind: int, u: float, v: float, origin: float, draws: Draws, room: Array) -> float:
    """Sum the terms relative to one of exp(origin); of each kind, a loop of its own."""
    c, p, q, r = draws
    total = 0.0
    if kind == _STUDENT:  # with exponentials in it too, the loop would want too many registers
        for s in range(len(c)):
            room[s] = _exponent(kind, u, v, c[s], p[s], q[s], r[s])
    for s in range(len(c)):
        known = kind == _STUDENT
        exponent = room[s] if known else _exponent(kind, u, v, c[s], p[s], q[s], r[s])
        term = _relative(exponent, origin)
        if kind == _SKEW:
            t = r[s] * (u - p[s])
            beyond = _half_erfcx(min(abs(t) / _ROOT_2, 1e100))
            beyond *= _relative(exponent - 0.5 * t * t, origin)
            term = beyond if t < 0.0 else term - beyond
        total += term
    return total


@jit(no_nan=True)
def _largest(kind: int, u: float, v: float, draws: Draws) -> float:
    """Largest exponent of the terms; for a negative t, that of φ(t) is one of them."""
    c, p, q, r = draws
    top = -np.inf
    for s in range(len(c)):
        exponent = _exponent(kind, u, v, c[s], p[s], q[s], r[s])
        if kind == _SKEW:
            exponent -= 0.5 * min(r[s] * (u - p[s]), 0.0) ** 2
        top = max(top, exponent)
    return top


@jit(**INLINE)
def _exponent(kind: int, u: float, v: float, c: float, p: float, q: float, r: float) -> float:
    """Log of one draw's term, but for Φ."""
    if kind == _LINEAR:
        return c + (p * u + q * v)
    square = (u - p) * (u - p)
    if kind == _STUDENT:
        return c - r * _log1p(min(q * square, 1e300))
    return c + q * square


@jit(no_nan=True, **INLINE)
def _relative(term: float, origin: float) -> float:
    """Exponential of a term relative to another; far from it, it need only be as far."""
    return exponential(min(max(term - origin, LOWEST), _HIGHEST))


@jit(**INLINE)
def _log(x: float) -> float:
    """Log of a positive number, without branches."""
    bits = np.float64(x).view(np.int64)
    power = (bits - _HALF) >> 52
    m = np.int64(bits - (power << 52)).view(np.float64)  # from 2^(−1/2) to 2^(1/2)
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, 0.0
    for k in _ODD:
        series = series * square + k
    return np.float64(power) * _LOG_2 + s * series


@jit(**INLINE)
def _log1p(x: float) -> float:
    """Log of 1 + x for x ≥ 0, without branches."""
    u = 1.0 + x
    lost = x - (u - 1.0)
    return _log(u) + lost * max(0.0, 1.5 - 0.5 * u)  # nearly lost / u: of a rounding error


@jit
def _row(array: Array, row: int) -> Array:
    return array[row if len(array) > 1 else 0]


@jit
def _rows(draws: Draws, row: int) -> Draws:
    return (
        _row(draws[0], row),
        _row(draws[1], row),
        _row(draws[2], row),
        _row(draws[3], row),
    )


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
def _square_spaced(u: Array, draws: Draws, series: Array, sums: Array) -> bool:
    """Sum exp(c + b (u − m)²) at equally spaced u; false if that cannot be done by a series."""
    c, m, b, _ = draws
    step, top, totals = (u[-1] - u[0]) / (len(u) - 1), c.max(), np.empty(_AT_ONCE)
    for j in range(0, len(u), _AT_ONCE):
        if j % _RUN == 0 and not _begin(u[j], step, top, c, m, b, series):
            return False
        _go_on(series, totals)
        for k in range(min(_AT_ONCE, len(u) - j)):
            sums[j + k] = top + np.log(totals[k])
    return True


@jit(**INLINE)
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
