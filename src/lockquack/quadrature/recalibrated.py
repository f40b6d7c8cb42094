r"""Distributions on the line whose distribution functions go through a beta transform.

The transformed density :math:`q\, b(F)` is put on the panels of the original one. Its logarithm is
as smooth as that of :math:`q`, tails included: :math:`\log F` is nearly a parabola there, too.
Panels are halved where it is much narrower than they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.polynomial import legendre

from lockquack.jets import Array
from lockquack.quadrature.beta import BetaTransform
from lockquack.quadrature.continuous import (
    MAX_HALVINGS,
    ContinuousRows,
    are_rough,
    fit_panels,
)
from lockquack.quadrature.grid import LEGENDRE, NODES

#: Probabilities of tails below which they are found from the slopes of the density.
FAR = 1e-9
#: Probabilities that panels cannot tell from zero.
_NOISE = 1e-14
#: From values at the nodes of a panel to first, second and third derivatives in u there.
_DERIVATIVES = tuple(
    np.stack([legendre.legval(NODES, legendre.legder(unit, k)) for unit in np.eye(NODES.size)], 1)
    @ LEGENDRE
    for k in (1, 2, 3)
)


def recalibrated_rows(base: ContinuousRows, by: BetaTransform) -> ContinuousRows:
    """Transform distributions; the error is by how much the result does not integrate to one."""
    for _ in range(MAX_HALVINGS):
        logs = _transformed_logs(base, by)
        rough = are_rough(logs)
        if not rough.any():
            break
        base = base.halved(rough)
    else:
        logs = _transformed_logs(base, by)
    row, start, stop, coefficients, heights, total = fit_panels(
        base.row, base.start, base.stop, logs, base.n_rows
    )
    return replace(
        base,
        row=row,
        start=start,
        stop=stop,
        coefficients=coefficients,
        heights=heights,
        relative_error=np.maximum(base.relative_error, np.abs(total - 1.0)),
    )


def _transformed_logs(base: ContinuousRows, by: BetaTransform) -> Array:
    """Log of dB/du at the nodes, (15, panel)."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(base.heights)
        below, above = _tails_at_nodes(base, logs)
        logs = logs + by.at(base.row).log_density(below, above)
    return np.where(np.isnan(logs) | (below <= 0) | (above <= 0), -np.inf, logs)


def _tails_at_nodes(base: ContinuousRows, logs: Array) -> tuple[Array, Array]:
    """Probability below and above the nodes, (15, panel), given the log of dF/du there."""
    slope, *more = (matrix @ logs for matrix in _DERIVATIVES)
    far = far_tail(np.exp(logs), slope, *more)
    sides = zip(base.tails_at_nodes, (slope > 0, slope < 0), strict=True)
    below, above = (
        np.where((tail < FAR) & outwards & (far < 10 * FAR), far, np.where(tail > _NOISE, tail, 0))
        for tail, outwards in sides
    )
    return below, above


def far_tail(density: Array, slope: Array, bend: Array, third: Array) -> Array:
    r"""Probability beyond a point far out, from the density and derivatives of its logarithm there.

    The ratio R = F / q of a lower tail obeys :math:`R = 1 / (g + (\log R)')`, of which this is the
    second step from R = 1 / g. It is exact for tails that are powers or exponentials. NaN where it
    is none.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> bool(abs(far_tail(norm.pdf(-8.0), 8.0, -1.0, 0.0) / norm.cdf(-8.0) - 1) < 1e-4)
    True
    """
    first = slope - bend / slope
    second = slope - (bend - third / slope + np.square(bend / slope)) / first
    found = density / np.abs(second)
    return np.where((found > 0) & (first * slope > 0) & (second * slope > 0), found, np.nan)[()]


def differences(values: Sequence[Array], step: Array) -> tuple[Array, Array, Array]:
    """First, second and third derivative in the middle of five values at equal steps."""
    far_left, left, middle, right, far_right = values
    return (
        (8.0 * (right - left) - (far_right - far_left)) / (12.0 * step),
        (16.0 * (right + left) - (far_right + far_left) - 30.0 * middle) / (12.0 * step**2),
        (far_right - far_left - 2.0 * (right - left)) / (2.0 * step**3),
    )
