"""Sums over draws compiled by numba: one reading where numpy needs several.

Gradients are measured from those of a block's first draw, so that no digits are lost to the
square of the mean where gradients are large and alike. What these loops are not made for goes to
:mod:`lockquack.kernels.plain`: memory that is not in rows or columns, several components with
weights, and weights or derivatives that are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import factorial
from typing import Any

import numba
import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.polynomial import chebyshev

from lockquack.jets import Array, all_finite
from lockquack.kernels import plain

#: Memory, and the step in it from one row or column to the next.
Flat = tuple[Array, int]

#: Read once, a tile need not stay in the cache; its rows do.
HELD_TILE, HELD_ROW = 2**21, 5000
#: e^x = 2^k e^r needs log 2 in a part with few digits, whose multiples are exact, and the rest.
_LOG_2, _LOG_2_REST = 0.693147180369123816490, 1.90821492927058770002e-10
_PER_LOG_2 = float(1.0 / np.log(2.0))
#: Adding it leaves the nearest whole number in the lowest bits of a float.
_TO_WHOLE = 1.5 * 2.0**52
_DEGREE = 11
#: Exponentials of less than this are not normal numbers; they are raised to it.
LOWEST = -708.0
#: Options of :func:`jit` for a function that becomes part of those that call it.
INLINE: Mapping[str, Any] = {"forceinline": True}


def economised(powers: Array, reach: float, degree: int) -> tuple[float, ...]:
    """Polynomial of a lower degree that is as good from −reach to reach, the last power first.

    The powers of x/reach are written as Chebyshev polynomials, of which the highest are left out.
    """
    scale = reach ** np.arange(len(powers))
    series = chebyshev.poly2cheb(powers * scale)[: degree + 1]
    return tuple((chebyshev.cheb2poly(series) / scale[: degree + 1])[::-1].tolist())


_EXPONENTIAL = economised(
    np.array([1.0 / factorial(n) for n in range(18)]), np.log(2.0) / 2.0, _DEGREE
)


def jit(
    function: Any = None, *, in_any_order: bool = False, no_nan: bool = False, **options: Any
) -> Any:
    """Compile a function when it is first called, and keep the code for other processes.

    Other threads go on meanwhile. A multiplication and an addition may be one instruction, sums
    ``in_any_order`` may be of several parts, and with ``no_nan`` all is a number. A loop is done
    for several numbers at once only where no function is called in it: small ones are
    :data:`INLINE`.
    """
    if function is None:
        return partial(jit, in_any_order=in_any_order, no_nan=no_nan, **options)
    allowed = {"contract", "nsz"} | ({"reassoc"} if in_any_order else set())
    allowed |= {"nnan"} if no_nan else set()
    compiler = partial(numba.njit, nogil=True, error_model="numpy", fastmath=allowed, **options)
    try:
        return compiler(cache=True)(function)
    except RuntimeError:  # there is no place to keep the code
        return compiler()(function)


def average_members(grad: Array, curv: Array, mean: Array, pooled: Array) -> None:
    """Pool by equal shares, as :func:`plain.average_members` does."""
    length = grad.shape[1]
    if _is_in_rows(grad):
        _average_rows(_lay_out(grad, 1), _lay_out(_in_rows(curv), 1), length, mean, pooled)
    elif _is_in_columns(grad) and _is_in_columns(curv):
        _average_columns(_lay_out(grad, 2), _lay_out(curv, 2), length, mean, pooled)
    else:
        plain.average_members(grad, curv, mean, pooled)


def mix_members(terms: Array, grad: Array, curv: Array, out: plain.Room) -> None:
    """Pool by shares in proportion to exp(terms), as :func:`plain.mix_members` does."""
    if grad.shape[-1] == 1:
        log_mass, square, mean, pooled = out
        term, g, h = (_lay_out(_in_rows(each), 1) for each in (terms, grad[..., 0], curv[..., 0]))
        _mix_rows(term, g, h, terms.shape[1], log_mass, square, mean[..., 0], pooled[..., 0])
        if all_finite(log_mass) and all_finite(pooled):
            return
    plain.mix_members(terms, grad, curv, out)


def log_sum_members(terms: Array) -> Array:
    """Log of the sum of exponentials over the members, as :func:`plain.log_sum_members` has it."""
    if terms.shape[2] == 1 and terms.flags.c_contiguous:
        peak, total = terms.max(axis=1), np.empty(len(terms))
        if np.isfinite(peak).all():
            _sum_exponentials(terms[..., 0], peak[:, 0], total)
            return peak + np.log(total)[:, None]
    return plain.log_sum_members(terms)


def _is_in_rows(array: Array) -> bool:
    """Whether cells are neighbours in memory, and members equally far apart across groups."""
    group, member, cell = array.strides
    even = len(array) == 1 or group == array.shape[1] * member
    return cell == array.itemsize and even and member >= 0 and member % cell == 0


def _is_in_columns(array: Array) -> bool:
    """Whether members are neighbours in memory, across groups too."""
    group, member, cell = array.strides
    even = len(array) == 1 or group == array.shape[1] * member
    return member == array.itemsize and even and cell >= 0 and cell % member == 0


def _in_rows(array: Array) -> Array:
    return array if _is_in_rows(array) else np.ascontiguousarray(array)


def _lay_out(array: Array, axis: int) -> Flat:
    """Return all memory from the first number to the last, to read, and the step along an axis."""
    ahead = sum((n - 1) * step for n, step in zip(array.shape, array.strides, strict=True))
    size = 1 + ahead // array.itemsize
    memory = as_strided(array, (size,), (array.itemsize,), writeable=False)
    return memory, array.strides[axis] // array.itemsize


@jit
def _row(flat: Flat, k: int, width: int) -> Array:
    memory, step = flat
    return memory[k * step : k * step + width]


@jit
def _five_rows(flat: Flat, k: int, width: int) -> tuple[Array, ...]:
    return (
        _row(flat, k, width),
        _row(flat, k + 1, width),
        _row(flat, k + 2, width),
        _row(flat, k + 3, width),
        _row(flat, k + 4, width),
    )


@jit
def _average_rows(grad: Flat, curv: Flat, length: int, mean: Array, pooled: Array) -> None:
    """Average members whose cells are rows, each a step from the one before."""
    n_groups, width = mean.shape
    for group in range(n_groups):
        k = group * length
        first, total, square = _row(grad, k, width), mean[group], pooled[group]
        for i in range(width):
            total[i] = square[i] = 0.0
        # Five at once, so that sums are fetched and stored less often than numbers are read.
        for _ in range(length // 5):
            g0, g1, g2, g3, g4 = _five_rows(grad, k, width)
            h0, h1, h2, h3, h4 = _five_rows(curv, k, width)
            for i in range(width):
                origin = first[i]
                x0, x1, x2 = g0[i] - origin, g1[i] - origin, g2[i] - origin
                x3, x4 = g3[i] - origin, g4[i] - origin
                total[i] += x0 + x1 + x2 + x3 + x4
                square[i] += (
                    (x0 * x0 + h0[i])
                    + (x1 * x1 + h1[i])
                    + (x2 * x2 + h2[i])
                    + (x3 * x3 + h3[i])
                    + (x4 * x4 + h4[i])
                )
            k += 5
        for _ in range(length % 5):
            g0, h0 = _row(grad, k, width), _row(curv, k, width)
            for i in range(width):
                x0 = g0[i] - first[i]
                total[i] += x0
                square[i] += x0 * x0 + h0[i]
            k += 1
        for i in range(width):
            offset = total[i] / length
            total[i] = first[i] + offset
            square[i] = square[i] / length - offset * offset


@jit(in_any_order=True)
def _average_columns(grad: Flat, curv: Flat, length: int, mean: Array, pooled: Array) -> None:
    """Average members that are neighbours in memory, cells being a step apart."""
    n_groups, n_cells = mean.shape
    for cell in range(n_cells):
        all_grad = _row(grad, cell, n_groups * length)
        all_curv = _row(curv, cell, n_groups * length)
        for group in range(n_groups):
            g, h = all_grad[group * length :][:length], all_curv[group * length :][:length]
            total = square = 0.0
            for i in range(length):
                x = g[i] - g[0]
                total += x
                square += x * x + h[i]
            offset = total / length
            mean[group, cell] = g[0] + offset
            pooled[group, cell] = square / length - offset * offset


@jit
def _mix_rows(
    terms: Flat,
    grad: Flat,
    curv: Flat,
    length: int,
    log_mass: Array,
    square: Array,
    mean: Array,
    pooled: Array,
) -> None:
    """Mix members whose cells are rows, each a step from the one before."""
    n_groups, width = mean.shape
    mass = np.empty(width)
    for group in range(n_groups):
        members = range(group * length, (group + 1) * length)
        peak, squares, slope, bend = log_mass[group], square[group], mean[group], pooled[group]
        for i in range(width):
            peak[i] = -np.inf
            mass[i] = squares[i] = slope[i] = bend[i] = 0.0
        for k in members:
            term = _row(terms, k, width)
            for i in range(width):
                peak[i] = max(peak[i], term[i])
        first = _row(grad, group * length, width)
        for k in members:
            term, g, h = _row(terms, k, width), _row(grad, k, width), _row(curv, k, width)
            for i in range(width):
                weight = exponential(max(term[i] - peak[i], LOWEST))
                x = g[i] - first[i]
                mass[i] += weight
                squares[i] += weight * weight
                slope[i] += weight * x
                bend[i] += weight * (x * x + h[i])
        for i in range(width):
            offset = slope[i] / mass[i]
            slope[i] = first[i] + offset
            bend[i] = bend[i] / mass[i] - offset * offset
            squares[i] /= mass[i] * mass[i]
            peak[i] += np.log(mass[i])


@jit(in_any_order=True)
def _sum_exponentials(terms: Array, peak: Array, result: Array) -> None:
    for k in range(len(terms)):
        row, top, total = terms[k], peak[k], 0.0
        for i in range(len(row)):
            total += exponential(max(row[i] - top, LOWEST))
        result[k] = total


@jit(**INLINE)
def exponential(x: float) -> float:
    """Exponential of a number from −708 to 708, without branches.

    Numba's own is one number at a time. Of r, at most log(2) / 2, it is a polynomial.
    """
    shifted = x * _PER_LOG_2 + _TO_WHOLE
    k = shifted - _TO_WHOLE
    r = (x - k * _LOG_2) - k * _LOG_2_REST
    series = 0.0
    for each in _EXPONENTIAL:
        series = series * r + each
    power = np.float64(shifted).view(np.int64) << 52  # k, where a float has its exponent
    return np.int64(np.float64(series).view(np.int64) + power).view(np.float64)
