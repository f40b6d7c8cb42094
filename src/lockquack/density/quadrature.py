r"""Adaptive quadrature of many one-dimensional log densities at once.

Each row (an observation) is integrated over the real line or an interval. The line is cut at
break points: between them y is linear in a coordinate t, beyond them the tails are mapped to
[0, 1) by :math:`s/(1-s)`, and an interval's ends are approached like :math:`s^4`, which turns
algebraic tails and edges into smooth functions. Panels of t carry a Gauss-Kronrod rule with 15
nodes and are halved where the rule and its embedded Gauss rule disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, log_sum_exp

Rows = NDArray[np.intp]
#: (K, nodes, rows) log densities of the K components at nodes (nodes, rows) of the given rows.
Components = Callable[[Array, Rows], Array]
#: (K, ...) log densities of the components → (...) log density of their pool.
Pool = Callable[[Array], Array]

_NODES = np.array(
    [
        0.991455371120812639206854697526329,
        0.949107912342758524526189684047851,
        0.864864423359769072789712788640926,
        0.741531185599394439863864773280788,
        0.586087235467691130294144691693013,
        0.405845151377397166906606412076961,
        0.207784955007898467600689403773245,
        0.0,
    ]
)
_KRONROD = np.array(
    [
        0.022935322010529224963732008058970,
        0.063092092629978553290700663189204,
        0.104790010322250183839876322541518,
        0.140653259715525918745189590510238,
        0.169004726639267902826583426598550,
        0.190350578064785409913256402421014,
        0.204432940075298892414161999234649,
        0.209482141084727828012999174891714,
    ]
)
_GAUSS = np.array(
    [
        0.0,
        0.129484966168869693270611432679082,
        0.0,
        0.279705391489276667901467771423780,
        0.0,
        0.381830050505118944950369775488975,
        0.0,
        0.417959183673469387755102040816327,
    ]
)
NODES = np.concatenate([-_NODES, _NODES[-2::-1]])
KRONROD = np.concatenate([_KRONROD, _KRONROD[-2::-1]])
GAUSS = np.concatenate([_GAUSS, _GAUSS[-2::-1]])
_MAX_ROUNDS = 40


@dataclass(frozen=True)
class Line:
    """How the coordinate t runs through each row: −1 … 0 … M … M+1 for M+1 break points."""

    breaks: Array  # (rows, M + 1), increasing within a row, inside the support
    support: tuple[float, float]

    @property
    def widths(self) -> Array:
        """Lengths in y of the panels of unit length in t, tails included, (rows, M + 2)."""
        inner = np.diff(self.breaks, axis=1)
        tail = np.full((len(self.breaks), 1), np.inf)
        return np.concatenate([tail, inner, tail], axis=1)

    def place(self, t: Array, row: Rows) -> tuple[Array, Array]:
        """Return y(t) and log dy/dt for coordinates (node, panel) of panels in the given rows."""
        breaks = self.breaks[row]  # (panel, M + 1)
        last = breaks.shape[1] - 1
        left, right = t < 0, t > last
        cell = np.clip(np.floor(t), 0, max(last - 1, 0)).astype(np.intp)
        panel = np.arange(len(row))
        low = breaks[panel, cell]
        width = breaks[panel, np.minimum(cell + 1, last)] - low
        y, slope = low + (t - cell) * width, width
        reach = self._reach(breaks)
        for side, beyond, start, edge in (
            (left, -t, breaks[:, 0], self.support[0]),
            (right, t - last, breaks[:, -1], self.support[1]),
        ):
            s = np.where(side, beyond, 0.5)
            sign = -1.0 if side is left else 1.0
            if np.isinf(edge):
                y = np.where(side, start + sign * reach * s / (1 - s), y)
                slope = np.where(side, reach / np.square(1 - s), slope)
            else:
                y = np.where(side, edge + (start - edge) * (1 - s) ** 4, y)
                slope = np.where(side, 4 * np.abs(start - edge) * (1 - s) ** 3, slope)
        with np.errstate(divide="ignore"):
            return y, np.log(slope)

    @staticmethod
    def _reach(breaks: Array) -> Array:
        """Length that the tails are measured in."""
        extent = breaks[:, -1] - breaks[:, 0]
        return np.where(extent > 0, extent, np.maximum(np.abs(breaks[:, 0]), 1.0))


@dataclass(frozen=True)
class _Panels:
    row: Rows  # (panel,)
    start: Array  # (panel,), in t
    stop: Array
    log_components: Array  # (K, 15, panel)
    log_measure: Array  # (15, panel): log of dy/dt, half the panel's length included

    def __getitem__(self, keep: NDArray[np.bool_]) -> _Panels:
        return _Panels(
            self.row[keep],
            self.start[keep],
            self.stop[keep],
            self.log_components[..., keep],
            self.log_measure[:, keep],
        )

    def join(self, other: _Panels) -> _Panels:
        return _Panels(
            *(
                np.concatenate([getattr(self, name), getattr(other, name)], axis=-1)
                for name in self.__dataclass_fields__
            )
        )


@dataclass(frozen=True)
class Integral:
    """Log integrals of the rows and bounds on their relative errors."""

    log_value: Array  # (rows,)
    relative_error: Array  # (rows,)
    #: Integrals of the components themselves, on the same nodes.
    log_masses: Array  # (K, rows)


def integrate(
    components: Components, pool: Pool, line: Line, *, tolerance: float = 1e-9
) -> Integral:
    """Integrate the pool of the components over each row.

    Parameters
    ----------
    components
        Log densities of the components at given nodes of given rows. It is the expensive part:
        it is called once per node.
    pool
        Combines them; cheap.
    line
        Where to integrate.
    tolerance
        Relative error at which to stop; what was reached is in the result.
    """
    n_rows = len(line.breaks)
    row, cell = np.nonzero(line.widths > 0)
    stop = cell.astype(np.float64)
    panels = _evaluate(components, line, row, stop - 1.0, stop)
    for _ in range(_MAX_ROUNDS):
        log_value, log_error = _rule(pool(panels.log_components), panels.log_measure)
        total = _row_sums(log_value, panels.row, n_rows)
        error = np.exp(_row_sums(log_error, panels.row, n_rows) - total)
        # An even share of the tolerance each; what falls below rounding cannot be improved.
        halve = np.exp(log_error - total[panels.row]) > tolerance / 32
        halve &= (error > tolerance)[panels.row] & (panels.stop - panels.start > 1e-10)
        if not halve.any():
            break
        middle = (panels.start[halve] + panels.stop[halve]) / 2
        halves = _evaluate(
            components,
            line,
            np.tile(panels.row[halve], 2),
            np.concatenate([panels.start[halve], middle]),
            np.concatenate([middle, panels.stop[halve]]),
        )
        panels = panels[~halve].join(halves)
    masses = [_rule(each, panels.log_measure)[0] for each in panels.log_components]
    log_masses = np.stack([_row_sums(mass, panels.row, n_rows) for mass in masses])
    return Integral(total, error, log_masses)


def _evaluate(components: Components, line: Line, row: Rows, start: Array, stop: Array) -> _Panels:
    """Put nodes on new panels; rows are evaluated together, padded to the same number of them."""
    half = (stop - start) / 2
    y, log_slope = line.place(start + half + half * NODES[:, None], row)
    order = np.argsort(row, kind="stable")
    rows, counts = np.unique(row, return_counts=True)
    slot = np.concatenate([np.arange(count) for count in counts])
    column = np.repeat(np.arange(rows.size), counts)
    grid = np.empty((counts.max(), NODES.size, rows.size))
    grid[:] = y[:, order[np.cumsum(counts) - 1]]
    grid[slot, :, column] = y[:, order].T
    logs = components(grid.reshape(-1, rows.size), rows)
    logs = logs.reshape(-1, *grid.shape)
    values = np.empty((logs.shape[0], *y.shape))
    values[:, :, order] = np.moveaxis(logs[:, slot, :, column], 0, -1)
    return _Panels(row, start, stop, values, log_slope + np.log(half))


def _rule(logp: Array, log_measure: Array) -> tuple[Array, Array]:
    """Log integral of each panel by the Kronrod rule, and log of its error estimate."""
    logs = logp + log_measure
    peak = np.max(logs, axis=0)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    values = np.exp(logs - peak)
    kronrod, gauss = KRONROD @ values, GAUSS @ values
    spread = KRONROD @ np.abs(values - kronrod / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        # QUADPACK's estimate: the embedded rules' difference overstates a smooth integrand's.
        ratio = np.nan_to_num(200 * np.abs(kronrod - gauss) / spread)
        error = np.maximum(spread * np.minimum(1.0, ratio**1.5), 1e-15 * kronrod)
        return np.log(kronrod) + peak, np.log(error) + peak


def _row_sums(logs: Array, row: Rows, n_rows: int) -> Array:
    """Sum what belongs to each row, in log space."""
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=n_rows)
    table = np.full((counts.max(), n_rows), -np.inf)
    slot = np.concatenate([np.arange(count) for count in counts])
    table[slot, row[order]] = logs[order]
    return log_sum_exp(table)
