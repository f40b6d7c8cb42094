r"""Adaptive quadrature of many one-dimensional log densities at once.

Each row (an observation) is integrated over the real line or an interval. Half-lines and
intervals are made whole lines first, by :math:`z = \log(y - a)` or a logit: there outcomes over
hundreds of decades are near each other, and a power of the distance to an edge is an exponential
tail. The line is cut at break points: between them z is linear in a coordinate t, beyond them the
tails are mapped to [0, 1) by :math:`s/(1-s)`, which turns algebraic tails into smooth functions.
Panels of t carry a Gauss-Kronrod rule with 15 nodes and are halved where the Legendre coefficients
of the integrand have not died away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from lockquack.jets import Array, log_sum_exp
from lockquack.quadrature.nodes import Nodes
from lockquack.transforms import LogDistance, Logit, unbounded

Rows = NDArray[np.intp]
#: (K, nodes, rows) log densities of the K components at nodes (nodes, rows) of the given rows;
#: anything where a node is NaN.
Components = Callable[[Array, Rows], Array]
#: (K, ..., c) log densities of the components, and the row of each column, → (..., c) log density
#: of their pool.
Integrand = Callable[[Array, Rows], Array]

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
NODES = np.concatenate([-_NODES, _NODES[-2::-1]])
KRONROD = np.concatenate([_KRONROD, _KRONROD[-2::-1]])
#: From values at the nodes to the Legendre coefficients of the polynomial through them.
LEGENDRE = np.linalg.inv(legendre.legvander(NODES, NODES.size - 1))
_MAX_ROUNDS = 40
#: Most panels of a row: what so many do not resolve is noise, or has no integral.
_MOST_PANELS = 2048
#: The estimate of an error is that much larger than noise of which it is made.
_ABOVE_NOISE = 30.0
#: Outcomes beyond it, and those nearer to 0 than its inverse, make densities overflow.
_LARGEST = 1e300


@dataclass(frozen=True)
class Line:
    """How the coordinate t runs through each row: −1 … 0 … M … M+1 for M+1 break points."""

    breaks: Array  # (rows, M + 1), increasing within a row, in z
    support: tuple[float, float]  # in y
    #: Break points at which the support of a component ends, in z.
    inner: Array = field(default_factory=lambda: np.empty(0))

    @property
    def scale(self) -> LogDistance | Logit | None:
        """Make z of y; None where they are the same."""
        return unbounded(self.support)

    @property
    def widths(self) -> Array:
        """Lengths in z of the panels of unit length in t, tails included, (rows, M + 2)."""
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
        z, slope = low + (t - cell) * width, width
        reach = self._reach(breaks)
        for side, beyond, start in ((left, -t, breaks[:, 0]), (right, t - last, breaks[:, -1])):
            if not side.any():
                continue
            s = np.where(side, beyond, 0.5)
            sign = -1.0 if side is left else 1.0
            with np.errstate(divide="ignore"):  # s = 1 is infinity
                z = np.where(side, start + sign * reach * s / (1 - s), z)
                slope = np.where(side, reach / np.square(1 - s), slope)
        with np.errstate(divide="ignore"):
            log_slope = np.log(slope)
        y, log_stretch = self.outcomes(z)
        # Infinitely far out is nowhere to look: what mass there is will be missed.
        nowhere = np.isneginf(log_stretch) | np.isposinf(log_slope)
        return y, np.where(nowhere, -np.inf, np.where(nowhere, 0.0, log_slope) + log_stretch)

    def outcomes(self, z: Array) -> tuple[Array, Array]:
        """Return y(z) and log dy/dz, −inf where y would take more digits than there are."""
        if self.scale is None:
            return z, np.zeros_like(z)
        y = self.scale.backward(z)
        # What takes more digits than there are cannot be looked at: its mass will be missed.
        smallest, largest = self._limits
        known = (smallest <= y) & (y <= largest)
        with np.errstate(invalid="ignore"):
            log_stretch = np.where(known, self.scale.log_stretch(z), -np.inf)
        return self._inside(y), log_stretch

    def locate(self, y: Array, row: Rows) -> Array:
        """Return the coordinates t of outcomes (n,) in the given rows (n,), inverse to place."""
        z = y if self.scale is None else self._coordinates(y)
        breaks = self.breaks[row]
        last = breaks.shape[1] - 1
        cell = np.clip((breaks <= z[:, None]).sum(axis=1) - 1, 0, max(last - 1, 0))
        at = np.arange(z.size)
        low = breaks[at, cell]
        width = breaks[at, np.minimum(cell + 1, last)] - low
        t = cell + np.clip((z - low) / np.where(width > 0, width, 1.0), 0.0, 1.0)
        t = np.where(z >= breaks[:, -1], last, np.where(z <= breaks[:, 0], 0.0, t))
        reach = self._reach(breaks)
        left = self._beyond(np.maximum(breaks[:, 0] - z, 0.0), reach)
        right = self._beyond(np.maximum(z - breaks[:, -1], 0.0), reach)
        return np.asarray(t + right - left)

    def middle(self) -> tuple[Array, Array]:
        """Return an outcome between the break points of each row, and their extent in y."""
        low, high = self.breaks[:, 0], self.breaks[:, -1]
        z = (low + high) / 2
        if self.scale is None:
            return z, np.maximum(high - low, 1e-300)
        low, z, high = (self._inside(self.scale.backward(each)) for each in (low, z, high))
        return z, np.maximum(high - low, 1e-300)

    def noise(self, y: Array) -> Array:
        """Relative error of the distance to the nearest end of the support, by rounding of y."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = np.minimum(y - self.support[0], self.support[1] - y)
            noise = np.spacing(np.abs(y)) / near
        return np.where(np.isfinite(noise), noise, 0.0)

    def _inside(self, y: Array) -> Array:
        """Bring outcomes that were rounded to an end of the support back into it."""
        return np.clip(y, *self._limits)

    @property
    def _limits(self) -> tuple[float, float]:
        """Outcomes nearest to the ends of the support at which densities are evaluated."""
        low, high = self.support
        low = -_LARGEST if np.isinf(low) else max(np.nextafter(low, np.inf), low + 1 / _LARGEST)
        high = _LARGEST if np.isinf(high) else min(np.nextafter(high, -np.inf), high - 1 / _LARGEST)
        return low, high

    def _coordinates(self, y: Array) -> Array:
        """Return z(y), infinite at and beyond the ends of the support."""
        assert self.scale is not None
        ends = np.select([y <= self.support[0], y >= self.support[1]], [-np.inf, np.inf], np.nan)
        return np.where(np.isnan(ends), self.scale.forward(y), ends)

    @staticmethod
    def _beyond(distance: Array, reach: Array) -> Array:
        """Coordinate s within a tail, of points at a distance from where it starts."""
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(distance), 1.0, distance / (reach + distance))

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
    noise: Array  # (15, panel): relative errors of the components that no halving can mend

    def __getitem__(self, keep: NDArray[np.bool_]) -> _Panels:
        return _Panels(
            self.row[keep],
            self.start[keep],
            self.stop[keep],
            self.log_components[..., keep],
            self.log_measure[:, keep],
            self.noise[:, keep],
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
    """Log integrals of J pools of the rows' components, and bounds on their relative errors."""

    log_value: Array  # (J, rows)
    relative_error: Array  # (J, rows)


@dataclass(frozen=True)
class Grid:
    """Panels on which the components of every row are known.

    Evaluating components is the expensive part, and is done once per node. Any number of pools
    of them can then be integrated.
    """

    line: Line
    panels: _Panels

    @classmethod
    def lay(cls, components: Components, line: Line, *, tails: bool = True) -> Grid:
        """Begin with one panel between any two break points, and one for each tail."""
        widths = line.widths
        if not tails:
            widths[:, [0, -1]] = 0.0
        row, cell = np.nonzero(widths > 0)
        stop = cell.astype(np.float64)
        return cls(line, _evaluate(components, line, row, stop - 1.0, stop))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.line.breaks)

    def integrate(self, *pools: Integrand) -> Integral:
        """Integrate pools of the components over each row."""
        return self.integral(np.stack([self.pooled(pool) for pool in pools]))

    def pooled(self, pool: Integrand) -> Array:
        """Log of what each node of a panel adds to the integral of a pool, (15, panel)."""
        panels = self.panels
        return pool(panels.log_components, panels.row) + panels.log_measure

    def integral(self, logs: Array) -> Integral:
        """Integrate what :meth:`pooled` returned for each of some pools, (J, 15, panel)."""
        log_value, log_error, log_noise = _rule(logs, self.panels.noise)
        with np.errstate(invalid="ignore"):  # what is no number is found in the result
            log_error = np.logaddexp(log_error, log_noise)
        total = self._row_sums(log_value)
        return Integral(total, np.exp(self._row_sums(log_error) - total))

    def refined(
        self,
        components: Components,
        *pools: Integrand,
        tolerance: float = 1e-9,
        rounds: int = _MAX_ROUNDS,
    ) -> Grid:
        """Halve panels until the integrals of all pools have this relative error."""
        grid = self
        for _ in range(rounds):
            halve = grid._unresolved(pools, tolerance)
            if not halve.any():
                break
            grid = grid.halved(components, halve)
        return grid

    def halved(self, components: Components, which: NDArray[np.bool_]) -> Grid:
        """Halve some panels."""
        panels = self.panels
        middle = (panels.start[which] + panels.stop[which]) / 2
        halves = _evaluate(
            components,
            self.line,
            np.tile(panels.row[which], 2),
            np.concatenate([panels.start[which], middle]),
            np.concatenate([middle, panels.stop[which]]),
        )
        return Grid(self.line, panels[~which].join(halves))

    def cut_at(self, components: Components, y: Array) -> Grid:
        """Make an outcome of each row, (rows,), the end of panels; the others stay as they are."""
        panels, at = self.panels, self.line.locate(y, np.arange(self.n_rows))[self.panels.row]
        inside = (panels.start < at) & (at < panels.stop)
        if not inside.any():
            return self
        row, middle = np.tile(panels.row[inside], 2), at[inside]
        start = np.concatenate([panels.start[inside], middle])
        stop = np.concatenate([middle, panels.stop[inside]])
        halves = _evaluate(components, self.line, row, start, stop)
        return Grid(self.line, panels[~inside].join(halves))

    def nodes(self) -> Nodes:
        """Return all nodes of each row with their log quadrature weights, padded."""
        panels = self.panels
        order, slot, counts = self._slots
        weight = panels.log_measure + np.log(KRONROD)[:, None]
        K = len(panels.log_components)
        logp = np.zeros((K, NODES.size, counts.max(), self.n_rows))
        log_measure = np.full(logp.shape[1:], -np.inf)
        logp[:, :, slot, panels.row[order]] = panels.log_components[..., order]
        log_measure[:, slot, panels.row[order]] = weight[:, order]
        return Nodes(logp.reshape(K, -1, self.n_rows), log_measure.reshape(-1, self.n_rows))

    def _unresolved(self, pools: Sequence[Integrand], tolerance: float) -> NDArray[np.bool_]:
        """Mark the panels that must be halved for some pool.

        An even share of the tolerance each; what falls below rounding cannot be improved.
        """
        panels = self.panels
        logs = np.stack([self.pooled(pool) for pool in pools])
        log_value, log_error, log_noise = _rule(logs, panels.noise)
        total = self._row_sums(log_value)
        error = np.exp(self._row_sums(log_error) - total)
        with np.errstate(invalid="ignore"):  # a pool that is zero in a row
            halve = np.exp(log_error - total[:, panels.row]) > tolerance / 32
            halve &= log_error > log_noise + np.log(_ABOVE_NOISE)
        halve &= (error > tolerance)[:, panels.row]
        crowded = np.bincount(panels.row, minlength=self.n_rows) > _MOST_PANELS
        halve &= ~crowded[panels.row]
        return np.asarray(halve.any(axis=0) & (panels.stop - panels.start > 1e-10))

    def _row_sums(self, logs: Array) -> Array:
        """Sum what belongs to each row, in log space: (..., panel) → (..., row)."""
        order, slot, counts = self._slots
        table = np.full((*logs.shape[:-1], counts.max(), self.n_rows), -np.inf)
        table[..., slot, self.panels.row[order]] = logs[..., order]
        return log_sum_exp(table, axis=-2)

    @cached_property
    def _slots(self) -> tuple[Rows, Rows, Rows]:
        """Panels in the order of rows, their numbers within these, and how many each row has."""
        return _slots(self.panels.row, self.n_rows)


def _evaluate(components: Components, line: Line, row: Rows, start: Array, stop: Array) -> _Panels:
    """Put nodes on new panels; rows are evaluated together, padded by NaN to the same number."""
    half = (stop - start) / 2
    y, log_slope = line.place(start + half + half * NODES[:, None], row)
    rows, column = np.unique(row, return_inverse=True)
    order, slot, counts = _slots(column, rows.size)
    column = column[order]
    grid = np.full((counts.max(), NODES.size, rows.size), np.nan)
    grid[slot, :, column] = y[:, order].T
    logs = components(grid.reshape(-1, rows.size), rows)
    logs = logs.reshape(-1, *grid.shape)
    values = np.empty((logs.shape[0], *y.shape))
    values[:, :, order] = np.moveaxis(logs[:, slot, :, column], 0, -1)
    return _Panels(row, start, stop, values, log_slope + np.log(half), line.noise(y))


def _rule(logs: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Log integral of each panel by the Kronrod rule, and logs of its error estimate and noise.

    From logs of shape (..., node, panel) to (..., panel).
    """
    peak = np.max(logs, axis=-2, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    values = np.exp(logs - peak)
    kronrod = KRONROD @ values
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.maximum(_rule_error(LEGENDRE @ values), 1e-15 * kronrod)
        unsure = KRONROD @ (values * noise)
        sums = np.log(np.stack([kronrod, error, unsure])) + peak[..., 0, :]
        return sums[0], sums[1], sums[2]


def _rule_error(coefficients: Array) -> Array:
    """Error of the Kronrod rule from the Legendre coefficients (..., 15, panel) of the integrand.

    The rule is exact up to degree 22, so what it misses are coefficients that were not computed.
    Those that were tell how fast they fall: by r per degree, between degrees 6 and 13. The usual
    estimate, the difference to the embedded Gauss rule, knows degrees up to 13 only and asks for
    panels of half the length.
    """
    size = np.abs(coefficients)
    early, late = size[..., 5:8, :].max(axis=-2), size[..., 12:15, :].max(axis=-2)
    fall = np.minimum(np.nan_to_num(late / early, nan=1.0, posinf=1.0), 1.0)
    return np.asarray(10.0 * late * np.square(fall))  # r⁷ squared: fourteen degrees on


def _slots(row: Rows, n_rows: int) -> tuple[Rows, Rows, Rows]:
    """Order panels by row; number them within their row; count them by row."""
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=n_rows)
    first = np.cumsum(counts) - counts
    return order, np.arange(row.size) - np.repeat(first, counts), counts
