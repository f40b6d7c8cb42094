"""Predictive densities compiled by numba: densities and their sum over draws in one loop.

For each outcome the log density of every draw is computed into a row that stays in cache, then
exponentiated and summed, without arrays of outcomes × draws. Which formula it is, is the
:class:`~lockquack.families.base.Split` of a family. The reference is the family's own ``logp`` and
:func:`lockquack.kernels.plain.log_sum_members`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array
from lockquack.kernels.compiled import LOWEST, exponential, jit

Rows = NDArray[np.intp]

#: Coefficients of log((1 + s) / (1 − s)) = 2 s (1 + s²/3 + s⁴/5 + …), the last first.
_ODD = tuple(float(k) for k in range(21, 0, -2))
_LOG_2 = float(np.log(2.0))
_ROOT_2 = float(np.sqrt(2.0))
#: Bits of a float: those of its fraction, and those that 1 has for an exponent.
_FRACTION, _ONE = (1 << 52) - 1, 1023 << 52


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
    room = np.empty(constant.shape[1])
    FORMULAS[kind](*outcomes, base, rows, constant, *parameters, room, sums)
    return sums


@jit(in_any_order=True, no_nan=True)
def _log_total(terms: Array) -> float:
    top = terms[0]
    for s in range(len(terms)):
        top = max(top, terms[s])
    if top == -np.inf:
        return top
    total = 0.0
    for s in range(len(terms)):
        total += exponential(max(terms[s] - top, LOWEST))
    return top + np.log(total)


@jit
def _log1p(x: float) -> float:
    """Log of 1 + x for x ≥ 0, without branches."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u
    bits = np.float64(u).view(np.int64)
    m = np.int64((bits & _FRACTION) | _ONE).view(np.float64)
    high = m > _ROOT_2
    power = np.float64((bits >> 52) - 1023 + (1 if high else 0))
    m = 0.5 * m if high else m
    s = (m - 1.0) / (m + 1.0)
    square, series = s * s, 0.0
    for k in _ODD:
        series = series * square + 1.0 / k
    return power * _LOG_2 + (2.0 * s * series + lost)


@jit
def _row(array: Array, row: int) -> Array:
    return array[row if len(array) > 1 else 0]


@jit
def _is_possible(base: float) -> bool:
    return base > -np.inf  # false for NaN


@jit(in_any_order=True)
def _square(
    u: Array,
    base: Array,
    rows: Rows,
    constant: Array,
    mean: Array,
    bend: Array,
    terms: Array,
    sums: Array,
) -> None:
    """Sum exp(constant + bend (u − mean)²)."""
    for i in range(len(rows)):
        c, m, b = _row(constant, rows[i]), _row(mean, rows[i]), _row(bend, rows[i])
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                at = u[j, i]
                for s in range(len(terms)):
                    x = at - m[s]
                    terms[s] = c[s] + b[s] * (x * x)
                sums[j, i] += _log_total(terms)


@jit(in_any_order=True)
def _linear(
    u: Array,
    v: Array,
    base: Array,
    rows: Rows,
    constant: Array,
    first: Array,
    second: Array,
    terms: Array,
    sums: Array,
) -> None:
    """Sum exp(constant + first u + second v)."""
    for i in range(len(rows)):
        c, a, b = _row(constant, rows[i]), _row(first, rows[i]), _row(second, rows[i])
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                x, y = u[j, i], v[j, i]
                for s in range(len(terms)):
                    terms[s] = c[s] + (a[s] * x + b[s] * y)
                sums[j, i] += _log_total(terms)


@jit(in_any_order=True)
def _student(
    u: Array,
    base: Array,
    rows: Rows,
    constant: Array,
    mean: Array,
    width: Array,
    power: Array,
    terms: Array,
    sums: Array,
) -> None:
    """Sum exp(constant − power log(1 + width (u − mean)²))."""
    for i in range(len(rows)):
        c, m = _row(constant, rows[i]), _row(mean, rows[i])
        w, e = _row(width, rows[i]), _row(power, rows[i])
        for j in range(len(u)):
            sums[j, i] = base[j, i]
            if _is_possible(base[j, i]):
                at = u[j, i]
                for s in range(len(terms)):
                    x = at - m[s]
                    terms[s] = c[s] - e[s] * _log1p(min(w[s] * (x * x), 1e300))
                sums[j, i] += _log_total(terms)


FORMULAS = {"square": _square, "linear": _linear, "student": _student}
