"""Quantiles on panels, compiled by numba: Newton's method for one point after another.

The reference is :class:`lockquack.quadrature.continuous.ContinuousRows`, which does the same for
many points at once by numpy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array
from lockquack.kernels.compiled import jit

Rows = NDArray[np.intp]

#: Most steps, and the length of one of Newton's that leaves an error of its square.
_STEPS, _SHORT, _NARROW = 60, 1e-8, 1e-15
#: Factors of the recurrence of Legendre polynomials, for Clenshaw's sum.
_BACK = np.array([0.0, *((k - 1) / k for k in range(1, 32))])
_AHEAD = np.array([0.0, *((2 * k - 1) / k for k in range(1, 32))])


def solve_panels(
    target: Array, panel: Rows, places: Array, table: Array, integral: Array, density: Array
) -> Array:
    """Find where integrals over panels reach a target, from −1 to 1, (point,).

    Parameters
    ----------
    target, panel
        What is to be reached, and on which panel.
    places, table
        Places on every panel, and the integrals from its left end to them, (panel, place).
    integral, density
        Legendre coefficients of the integral and of what is integrated, (panel, coefficient), as
        many of the one as of the other.
    """
    found = np.empty(target.size)
    _solve(target, panel, places, table, integral, density, _BACK, _AHEAD, found)
    return found


@jit
def _both(x: float, first: Array, second: Array, back: Array, ahead: Array) -> tuple[float, float]:
    """Values of two Legendre series of equal length, by Clenshaw's sums side by side."""
    n = len(first)
    a0, a1, b0, b1 = first[n - 2], first[n - 1], second[n - 2], second[n - 1]
    for k in range(n - 1, 1, -1):
        a0, a1 = first[k - 2] - a1 * back[k], a0 + a1 * x * ahead[k]
        b0, b1 = second[k - 2] - b1 * back[k], b0 + b1 * x * ahead[k]
    return a0 + a1 * x, b0 + b1 * x


@jit
def _solve(
    target: Array,
    panel: Rows,
    places: Array,
    table: Array,
    integral: Array,
    density: Array,
    back: Array,
    ahead: Array,
    found: Array,
) -> None:
    for i in range(len(target)):
        goal, known, at = target[i], table[panel[i]], 0
        while at < len(places) - 2 and known[at + 1] <= goal:
            at += 1
        low, high = places[at], places[at + 1]
        rise = known[at + 1] - known[at]
        share = (goal - known[at]) / rise if rise > 0.0 else 0.5
        u = low + min(max(share, 0.0), 1.0) * (high - low)
        for _ in range(_STEPS):
            excess, slope = _both(u, integral[panel[i]], density[panel[i]], back, ahead)
            excess -= goal
            if excess == 0.0:
                break
            low, high = (u, high) if excess < 0.0 else (low, u)
            here, u = u, u - excess / slope
            inside = low < u < high
            u = u if inside else (low + high) / 2.0
            if (inside and abs(u - here) < _SHORT) or not high - low > _NARROW:
                break
        found[i] = u
