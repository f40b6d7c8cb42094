r"""Distribution functions of many densities on the line, from the panels of their quadrature.

On each panel the integrand is a polynomial of degree 14 through its values at the Kronrod nodes,
and the distribution function is the integral of that polynomial. Panels on which it is not
accurate are halved; there the logarithm of the integrand, often nearly a parabola, is
interpolated where that is good enough, and the models are evaluated where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from lockquack.jets import Array
from lockquack.kernels.choice import panel_inverses
from lockquack.quadrature.grid import (
    KRONROD,
    LEGENDRE,
    NODES,
    Components,
    Grid,
    Integral,
    Integrand,
    Line,
    Rows,
)

#: Error of a polynomial through the density on a panel, relative to the whole integral.
_ACCURATE = 1e-11
#: The same of a polynomial through its logarithm.
_LOG_ACCURATE = 1e-10
#: From Legendre coefficients of a density to those of its integral from −1.
_INTEGRAL = np.stack([legendre.legint(unit, lbnd=-1) for unit in np.eye(NODES.size)], axis=1)
#: From those to the integral from −1 to each node.
_UP_TO_NODES = legendre.legvander(NODES, NODES.size)
#: From Legendre coefficients of a function of u to those of the same function of −u.
_MIRROR = (-1.0) ** np.arange(NODES.size)[:, None]
#: From values on a panel to values on its left and right half.
_HALVES = [legendre.legvander((NODES + side) / 2, NODES.size - 1) @ LEGENDRE for side in (-1, 1)]
MAX_HALVINGS = 6
_NEWTON_STEPS, _SHORT = 60, 1e-8
#: Places on a panel between which its distribution function is nearly straight.
_TABLE = np.linspace(-1.0, 1.0, 9)
#: Points at which polynomials are evaluated at once.
_POINTS_AT_ONCE = 2**13
#: Length, in t, from which a panel at the end of a tail is a power of the distance.
_SHORT_TAIL = 1e-6
_INSIDE = 1.0 - 1e-10
#: Points of a panel among which the highest is looked for, and how often.
_ZOOM, _ZOOMS = np.linspace(-1.0, 1.0, 65), 5
#: Panels whose highest log density is that much below the best may still have the mode.
_NEARLY = 0.1
#: Height of dF/du below which a polynomial is mostly its error. An edge, where dy/du vanishes,
#: would make a peak of that.
_KNOWN_HEIGHT = 1e3 * _ACCURATE


@dataclass(frozen=True)
class Resolved:
    """Panels between whose nodes a pool is known too."""

    grid: Grid
    logs: Array  # (15, panel): log of dF/du at the nodes, u from −1 to 1 on each panel
    integral: Integral  # of the pool over each row

    @classmethod
    def of(cls, grid: Grid, pool: Integrand) -> Resolved:
        """Take a pool on panels that are fine enough."""
        logs = grid.pooled(pool)
        integral = grid.integral(logs[None])
        return cls(grid, logs - integral.log_value[0, grid.panels.row], integral)


def resolved(grid: Grid, pool: Integrand, components: Components) -> Resolved:
    """Halve panels until a pool is known between their nodes too."""
    found = Resolved.of(grid, pool)
    for _ in range(MAX_HALVINGS):
        panels = found.grid.panels
        rough = are_rough(found.logs)
        rough &= panels.stop - panels.start > 1e-10
        rough &= KRONROD @ (np.exp(found.logs) * panels.noise) < _ACCURATE
        if not rough.any():
            break
        found = Resolved.of(found.grid.halved(components, rough), pool)
    return found


@dataclass(frozen=True)
class ContinuousRows:
    """One distribution on the line for each row, normalised."""

    line: Line
    row: Rows  # (panel,), sorted
    start: Array  # (panel,), in t, sorted within a row
    stop: Array
    coefficients: Array  # (15, panel): Legendre coefficients of dF/du, u from −1 to 1
    heights: Array  # (15, panel): dF/du at the nodes
    log_norm: Array  # (row,)
    relative_error: Array  # (row,)

    @classmethod
    def of(cls, found: Resolved) -> ContinuousRows:
        """Take a pool of what is known on panels that are fine enough."""
        panels, integral = found.grid.panels, found.integral
        log_norm = integral.log_value[0]
        row, start, stop, coefficients, heights, _ = fit_panels(
            panels.row, panels.start, panels.stop, found.logs, log_norm.size
        )
        error = integral.relative_error[0]
        return cls(found.grid.line, row, start, stop, coefficients, heights, log_norm, error)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.log_norm.size

    def halved(self, some: NDArray[np.bool_]) -> ContinuousRows:
        """Return the same distributions on panels of which some are halved."""
        whole = self.heights[:, some]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(whole)
            by_logs = _log_error(logs) <= _LOG_ACCURATE  # precise in tails too
            halves = [
                np.where(by_logs, np.exp(side @ logs), np.maximum(side @ whole, 0.0)) / 2
                for side in _HALVES
            ]
        heights = np.concatenate([self.heights[:, ~some], *halves], axis=1)
        row, start, stop = _cut_panels(self.row, self.start, self.stop, some)
        order = np.lexsort((start, row))
        return replace(
            self,
            row=row[order],
            start=start[order],
            stop=stop[order],
            coefficients=LEGENDRE @ heights[:, order],
            heights=heights[:, order],
        )

    @cached_property
    def mass(self) -> Array:
        """Probability of each panel."""
        return 2.0 * self.coefficients[0]

    @cached_property
    def _below(self) -> Array:
        """Probability of the row's panels before each panel.

        Added up within each row: small ones would drown in the sum over all rows.
        """
        return self._before(self.mass)

    @cached_property
    def _above(self) -> Array:
        """Probability of the row's panels after each panel, likewise."""
        return self._after(self.mass)

    def _before(self, values: Array) -> Array:
        """Sum of a value of the row's panels before each panel."""
        slot = np.arange(self.row.size) - self._first[self.row]
        table = np.zeros((self.n_rows, slot.max() + 2))
        table[self.row, slot + 1] = values
        return np.cumsum(table, axis=1)[self.row, slot]

    def _after(self, values: Array) -> Array:
        """Sum of a value of the row's panels after each panel."""
        slot = self._first[self.row + 1] - 1 - np.arange(self.row.size)
        table = np.zeros((self.n_rows, slot.max() + 2))
        table[self.row, slot + 1] = values
        return np.cumsum(table, axis=1)[self.row, slot]

    @cached_property
    def _first(self) -> Rows:
        """Where each row's panels begin, and where the last one's end."""
        return np.searchsorted(self.row, np.arange(self.n_rows + 1))

    def cdf(self, y: Array) -> Array:
        """Probability of at most y, (point, row) → (point, row)."""
        return self._by_points(y, self._cdf)

    def tails(self, y: Array) -> tuple[Array, Array]:
        """Probability below and above y, each (point, row) and precise where it is small."""
        below, above = (self._by_points(y, partial(self._tail_at, k)) for k in (0, 1))
        return below, above

    def quantile(self, p: Array) -> Array:
        """Outcome below which there is probability p, (point, row) → (point, row)."""
        compiled = panel_inverses(p.shape[0] * self.n_rows)
        solve = self._solve if compiled is None else partial(self._solve_by, compiled)
        return self._by_points(p, partial(self._quantile, solve=solve))

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score, (point, row) → (point, row); smaller is better.

        The integral of F² below the outcome and of (1 − F)² above it, panel by panel.
        """
        return self._by_points(y, self._crps)

    def moments(self, slopes: Array | None = None) -> tuple[Array, Array]:
        """Mean and variance of each row; whether they exist is another matter.

        Where the slopes (side, row) of the log density in the log distance are given, panels at
        the far end of a tail, which have a pole there, are integrated as that power.
        """
        y, weight = self._weighted_nodes()
        middle = self.quantile(np.full((1, self.n_rows), 0.5))[0]
        tails = [] if slopes is None else [self._tail(side, slopes[side]) for side in (0, 1)]
        for panel, *_ in tails:
            weight[:, panel] = 0.0
        offset = np.where(weight == 0, 0.0, y - middle[self.row])
        shift = self._sum_rows((weight * offset).sum(axis=0))
        for panel, start, slope in tails:
            row = self.row[panel]
            share = self.mass[panel] * (slope + 1) / (slope + 2)
            shift += np.bincount(row, share * (start - middle[row]), minlength=self.n_rows)
        offset = np.where(weight == 0, 0.0, offset - shift[self.row])
        with np.errstate(over="ignore"):
            var = self._sum_rows((weight * np.square(offset)).sum(axis=0))
        for panel, start, slope in tails:
            row = self.row[panel]
            share = self.mass[panel] * (slope + 1) / (slope + 3)
            square = np.square(start - middle[row] - shift[row])
            var += np.bincount(row, share * square, minlength=self.n_rows)
        return middle + shift, var

    def _tail(self, side: int, slopes: Array) -> tuple[Rows, Array, Array]:
        """Short panels at the infinite end of a tail, where they begin, and the slopes there."""
        last = self.line.breaks.shape[1] - 1
        outermost = (self.start == -1.0) if side == 0 else (self.stop == last + 1.0)
        slope = slopes[self.row]
        # Slopes at which a moment does not exist are the caller's business.
        known = np.isfinite(slope) & (np.abs(slope + 2) > 1e-6) & (np.abs(slope + 3) > 1e-6)
        panel = np.flatnonzero(outermost & known & (self.stop - self.start < _SHORT_TAIL))
        inner = (self.stop if side == 0 else self.start)[panel]
        start, _ = self.line.place(inner[None], self.row[panel])
        return panel, start[0], slope[panel]

    def mode(self) -> Array:
        """Outcome of the highest density, (row,)."""
        panel = np.arange(self.row.size)
        low, high = -np.ones(panel.size), np.ones(panel.size)
        for _ in range(_ZOOMS):
            u = (low + high) / 2 + (high - low) / 2 * _ZOOM[:, None]
            y, log_density = self._log_density(u, panel)
            at = log_density.argmax(axis=0), np.arange(panel.size)
            place, top = y[at], log_density[at]
            highest = np.full(self.n_rows, -np.inf)
            np.maximum.at(highest, self.row[panel], top)
            # A mode at the end of a panel is nearly as high in the next.
            near = top >= highest[self.row[panel]] - _NEARLY
            step = (high - low) / (_ZOOM.size - 1)
            low = np.maximum(u[at] - step, -1.0)[near]
            high = np.minimum(u[at] + step, 1.0)[near]
            panel, place, top = panel[near], place[near], top[near]
        best = np.empty(self.n_rows)
        order = np.argsort(top)  # what is assigned last stays
        best[self.row[panel[order]]] = place[order]
        return best

    def _weighted_nodes(self) -> tuple[Array, Array]:
        """Outcomes at the nodes and the probability that they stand for, (15, panel)."""
        half = (self.stop - self.start) / 2
        y, _ = self.line.place(self.start + half + half * NODES[:, None], self.row)
        return y, KRONROD[:, None] * self.heights

    def _log_density(self, u: Array, panel: Rows) -> tuple[Array, Array]:
        """Outcomes at places u (point, panel) of some panels, and their log densities."""
        half = (self.stop[panel] - self.start[panel]) / 2
        u = np.clip(u, -_INSIDE, _INSIDE)  # at its ends a panel has its neighbour's slope
        y, log_slope = self.line.place(self.start[panel] + half * (1 + u), self.row[panel])
        height = legendre.legval(u, self.coefficients[:, panel], tensor=False)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(height) - log_slope - np.log(half)
        known = (height > _KNOWN_HEIGHT) & np.isfinite(y) & np.isfinite(log_slope)
        return y, np.where(known, logs, -np.inf)

    def _sum_rows(self, values: Array) -> Array:
        total = np.bincount(self.row, weights=values, minlength=self.n_rows)
        return np.asarray(total, dtype=np.float64)

    def _by_points(self, values: Array, function: Callable[[Array, Rows], Array]) -> Array:
        """Apply a function of (value, row) to a table (point, row), a part at a time."""
        flat = np.broadcast_to(values, (len(values), self.n_rows)).ravel()
        row = np.tile(np.arange(self.n_rows), len(values))
        result = np.empty(flat.size)
        for begin in range(0, flat.size, _POINTS_AT_ONCE):
            some = slice(begin, begin + _POINTS_AT_ONCE)
            result[some] = function(flat[some], row[some])
        return result.reshape(-1, self.n_rows)

    def _panel(self, keys: Array, value: Array, row: Rows) -> Rows:
        """Find the row's last panel whose key is not above a value; keys increase within a row."""
        low, high = self._first[row], self._first[row + 1] - 1
        while (low < high).any():
            middle = (low + high + 1) // 2
            further = keys[middle] <= value
            low, high = np.where(further, middle, low), np.where(further, high, middle - 1)
        return np.asarray(low)

    def _cdf(self, y: Array, row: Rows) -> Array:
        return self._tail_at(0, y, row)

    def _tail_at(self, side: int, y: Array, row: Rows) -> Array:
        """Probability below outcomes, or above them."""
        found = self.tails_within(*self._within(y, row))[side]
        return np.where(np.isnan(y), np.nan, np.clip(found, 0.0, 1.0))

    def _within(self, y: Array, row: Rows) -> tuple[Array, Rows]:
        """Find the panels in which outcomes lie, and where in them, from −1 to 1."""
        t = self.line.locate(y, row)
        panel = self._panel(self.start, t, row)
        start, stop = self.start[panel], self.stop[panel]
        return np.clip(2.0 * (t - start) / (stop - start) - 1.0, -1.0, 1.0), panel

    def tails_within(self, u: Array, panel: Rows) -> tuple[Array, Array]:
        """Probability below and above places u of some panels, (..., panel)."""
        inside = legendre.legval(u, self._integral[:, panel], tensor=False)
        return self._tails_beside(np.asarray(inside), panel)

    @property
    def tails_at_nodes(self) -> tuple[Array, Array]:
        """Probability below and above the nodes of all panels, (15, panel)."""
        return self._tails_beside(_UP_TO_NODES @ self._integral, slice(None))

    def _tails_beside(self, inside: Array, panel: Rows | slice) -> tuple[Array, Array]:
        """Probability below and above places on some panels, from that on their left there."""
        return self._below[panel] + inside, self._above[panel] + (self.mass[panel] - inside)

    def _crps(self, y: Array, row: Rows) -> Array:
        u, panel = self._within(y, row)
        below, above = self._squares
        left = legendre.legval(u, _INTEGRAL @ below[:, panel], tensor=False)
        right = legendre.legval(-u, _INTEGRAL @ (_MIRROR * above[:, panel]), tensor=False)
        whole = self._before(2.0 * below[0])[panel] + self._after(2.0 * above[0])[panel]
        half = (self.stop[panel] - self.start[panel]) / 2
        end, _ = self.line.place((self.start[panel] + half * (1 + u))[None], row)
        with np.errstate(invalid="ignore"):  # no distribution reaches beyond its panels
            beyond = np.where(np.abs(u) == 1.0, np.abs(y - end[0]), 0.0)
        return np.where(np.isnan(y), np.nan, whole + left + right + beyond)

    @cached_property
    def _squares(self) -> tuple[Array, Array]:
        """Legendre coefficients of F² dy/du and of (1 − F)² dy/du, each (15, panel)."""
        half = (self.stop - self.start) / 2
        _, log_slope = self.line.place(self.start + half + half * NODES[:, None], self.row)
        slope = np.exp(log_slope) * half
        below, above = self.tails_at_nodes
        return LEGENDRE @ (np.square(below) * slope), LEGENDRE @ (np.square(above) * slope)

    @cached_property
    def _integral(self) -> Array:
        return _INTEGRAL @ self.coefficients

    def _quantile(self, p: Array, row: Rows, solve: Callable[[Array, Rows], Array]) -> Array:
        panel = self._panel(self._below, p, row)
        target = np.clip(p - self._below[panel], 0.0, self.mass[panel])
        u = solve(target, panel)
        half = (self.stop[panel] - self.start[panel]) / 2
        y, _ = self.line.place((self.start[panel] + half * (1 + u))[None], row)
        y = np.where(p <= 0, self.line.support[0], np.where(p >= 1, self.line.support[1], y[0]))
        return np.where((p >= 0) & (p <= 1), y, np.nan)

    def _solve(self, target: Array, panel: Rows) -> Array:
        """Find where the integrals over some panels reach a target.

        Newton's method on the panels' polynomials, kept within what is known to enclose the
        solution, from where a table of each panel says it is.
        """
        table = self._table[:, panel]
        step = np.clip((table <= target).sum(axis=0) - 1, 0, _TABLE.size - 2)
        at = np.arange(target.size)
        low, high = _TABLE[step], _TABLE[step + 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (target - table[step, at]) / (table[step + 1, at] - table[step, at])
            u = low + np.clip(np.nan_to_num(share, nan=0.5), 0.0, 1.0) * (high - low)
            left = at
            for _ in range(_NEWTON_STEPS):
                here = u[left]
                excess = legendre.legval(here, self._integral[:, panel[left]], tensor=False)
                excess -= target[left]
                low[left] = np.where(excess <= 0, here, low[left])
                high[left] = np.where(excess >= 0, here, high[left])
                slope = legendre.legval(here, self.coefficients[:, panel[left]], tensor=False)
                new = here - excess / slope
                newton = (new > low[left]) & (new < high[left])
                new = np.where(newton, new, (low[left] + high[left]) / 2)
                u[left] = np.where(excess == 0, here, new)
                # A step of Newton's that short leaves an error of its square.
                done = (newton & (np.abs(new - here) < _SHORT)) | (excess == 0)
                left = left[~done & (high[left] - low[left] > 1e-15)]
                if not left.size:
                    break
        return u

    def _solve_by(self, compiled: Callable[..., Array], target: Array, panel: Rows) -> Array:
        """Do the same one point after another."""
        return compiled(target, panel, _TABLE, *self._by_panel)

    @cached_property
    def _by_panel(self) -> tuple[Array, Array, Array]:
        """Table, integral and density, the panels first."""
        density = np.append(self.coefficients, np.zeros((1, self.row.size)), axis=0)
        table, integral, density = (
            np.ascontiguousarray(each.T) for each in (self._table, self._integral, density)
        )
        return table, integral, density

    @cached_property
    def _table(self) -> Array:
        """Integrals from the left end of each panel to some places, (place, panel)."""
        return legendre.legvander(_TABLE, NODES.size) @ self._integral


def fit_panels(
    row: Rows, start: Array, stop: Array, logs: Array, n_rows: int
) -> tuple[Rows, Array, Array, Array, Array, Array]:
    """Fit a polynomial to the exponentials of logs (15, panel) at the nodes of each panel.

    Panels are halved, with interpolated logs, until that is good. Returns the row, start and stop
    of each panel, sorted by these; coefficients and exponentials, (15, panel), normalised within
    each row; and what these added up to, (row,).
    """
    heights = np.exp(logs)
    for _ in range(MAX_HALVINGS):
        rough = _is_rough(heights)
        rough[rough] = _log_error(logs[:, rough]) <= _LOG_ACCURATE
        if not rough.any():
            break
        halves = [matrix @ logs[:, rough] - np.log(2.0) for matrix in _HALVES]
        row, start, stop = _cut_panels(row, start, stop, rough)
        logs = np.concatenate([logs[:, ~rough], *halves], axis=1)
        heights = np.concatenate([heights[:, ~rough], *map(np.exp, halves)], axis=1)
    order = np.lexsort((start, row))
    row, heights = row[order], heights[:, order]
    coefficients = LEGENDRE @ heights
    # What the finer panels add up to differs from one by rounding, which upper tails notice.
    mass = 2.0 * coefficients[0]
    total = np.asarray(np.bincount(row, weights=mass, minlength=n_rows), dtype=np.float64)
    coefficients, heights = coefficients / total[row], heights / total[row]
    return row, start[order], stop[order], coefficients, heights, total


def _cut_panels(
    row: Rows, start: Array, stop: Array, some: NDArray[np.bool_]
) -> tuple[Rows, Array, Array]:
    """Cut some panels into halves, which are put behind the others: all left ones, then right."""
    middle = (start[some] + stop[some]) / 2
    return (
        np.concatenate([row[~some], row[some], row[some]]),
        np.concatenate([start[~some], start[some], middle]),
        np.concatenate([stop[~some], middle, stop[some]]),
    )


def are_rough(logs: Array) -> NDArray[np.bool_]:
    """Whether polynomials are accurate neither through the exponentials nor through the logs."""
    rough = _is_rough(np.exp(logs))
    rough[rough] = _log_error(logs[:, rough]) > _LOG_ACCURATE
    return rough


def _is_rough(heights: Array) -> NDArray[np.bool_]:
    """Whether the polynomial through the heights is wrong, on each panel."""
    return np.asarray(np.abs(LEGENDRE[12:] @ heights).max(axis=0) > _ACCURATE)


def _log_error(logs: Array) -> Array:
    """Error of the polynomial through the logs, in the density; infinite where these are."""
    with np.errstate(invalid="ignore"):
        error = np.abs(LEGENDRE[12:] @ logs).max(axis=0) * np.exp(logs.max(axis=0))
    return np.where(np.isfinite(error), error, np.inf)
