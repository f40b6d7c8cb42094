r"""Distribution functions of pools on the nodes of a quadrature, and their distance to an outcome.

With the distribution function F of a pool and the outcome y,

.. math:: \int \bigl(F(t) - 1[t \ge y]\bigr)^2 dt

is the continuous ranked probability score. F is a spectral integral of the density on each panel of
the nodes, from the left below the outcome and from the right above it, so that small tails keep
their digits. The outcome is the end of a panel: on none of them does the integrand jump. Of
discrete outcomes F is a sum, and an outcome stands for the interval to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.polynomial import legendre

from lockquack.jets import Array, softmax
from lockquack.quadrature.grid import KRONROD, LEGENDRE, NODES, Components, Grid, Line, Rows
from lockquack.quadrature.nodes import Table
from lockquack.quadrature.pairs import Pairs

#: From values at the nodes of a panel to the integrals from its left end to each node.
_UP_TO = (
    legendre.legvander(NODES, NODES.size)
    @ np.stack([legendre.legint(unit, lbnd=-1) for unit in np.eye(NODES.size)], axis=1)
    @ LEGENDRE
)
#: How often the highest density beyond a node, times the rest of the panel, bounds the mass there.
_SLACK = 2.0


@dataclass(frozen=True)
class Curves(Table):
    """Log densities of K models on panels of nodes that end at the outcome, at n observations."""

    logp: Array  # (K, m, n), panel after panel
    log_measure: Array  # (m, n): log of what a node stands for; −inf where it is only padding
    length: Array  # (m, n): the same in units of the outcome, zero where it is only padding
    above: Array  # (m, n): 1 where a node is at the outcome or above it, else 0
    panel: Array  # (): number of nodes in a panel; 1: outcomes that are summed

    axes: ClassVar[dict[str, str]] = {
        "logp": "kmn",
        "log_measure": "mn",
        "length": "mn",
        "above": "mn",
        "panel": "",
    }
    padding: ClassVar[dict[str, float]] = {"log_measure": -np.inf}

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return int(self.above.shape[1])

    def pairs(self) -> Pairs:
        """Integrate the products of the models' own departures from the outcome."""
        each = np.stack([self.departure(logp)[0] for logp in self.logp])
        return Pairs(np.einsum("jmn,kmn,mn->jkn", each, each, self.length, optimize=True))

    def departure(self, logq: Array) -> tuple[Array, Array]:
        """F(t) − 1[t ≥ y] at the nodes, (m, n), from log densities; and the nodes' shares."""
        share, _ = softmax(logq + self.log_measure)
        height = self._by_panel(share) / self._weight
        mass = self._by_panel(share).sum(axis=1)
        before = np.cumsum(mass, axis=0) - mass
        behind = np.cumsum(mass[::-1], axis=0)[::-1] - mass
        below = before[:, None] + self._within(height)
        beyond = behind[:, None] + self._within(height[:, ::-1], from_right=True)[:, ::-1]
        above = self._by_panel(self.above) > 0
        return np.where(above, -beyond, below).reshape(logq.shape), share

    def distance(self, logq: Array) -> Array:
        """∫ (F(t) − 1[t ≥ y])² dt in units of the outcome, (n,)."""
        departure, _ = self.departure(logq)
        return np.asarray((np.square(departure) * self.length).sum(axis=0))

    def tangents(self, logq: Array, slopes: Array) -> tuple[Array, Array]:
        """Return the same, and its derivatives, (P, n), from those of the log densities."""
        departure, share = self.departure(logq)
        pull = self._pulled(departure * self.length)
        slopes = np.where(share > 0, slopes, 0.0)
        means = np.einsum("mn,pmn->pn", share, slopes)
        along = np.einsum("mn,pmn->pn", pull * share, slopes) - (pull * share).sum(axis=0) * means
        return (np.square(departure) * self.length).sum(axis=0), 2.0 * along

    def _by_panel(self, values: Array) -> Array:
        return values.reshape(-1, int(self.panel), self.n_obs)

    @cached_property
    def _weight(self) -> Array:
        return np.ones((1, 1)) if self.panel == 1 else KRONROD[:, None]

    @property
    def _is_sum(self) -> bool:
        return bool(self.panel == 1)

    def _within(self, height: Array, *, from_right: bool = False) -> Array:
        """Integrate from an end of each panel to its nodes, (panel, node, n).

        Rounding of what is high elsewhere on a panel must not be left where nothing is: far out a
        node stands for very much.
        """
        if self._is_sum:
            return np.zeros_like(height) if from_right else height
        highest = np.maximum.accumulate(height, axis=1)
        most = _SLACK * (NODES + 1.0)[:, None] * highest
        return np.clip(np.einsum("ab,pbn->pan", _UP_TO, height), 0.0, most)

    def _pulled(self, values: Array) -> Array:
        """Carry slopes in the departures back to the shares of the nodes, (m, n)."""
        above = self._by_panel(self.above) > 0
        each = self._by_panel(values)
        low, high = np.where(above, 0.0, each), np.where(above, each, 0.0)
        behind, before = low.sum(axis=1), high.sum(axis=1)
        behind = np.cumsum(behind[::-1], axis=0)[::-1] - behind
        before = np.cumsum(before, axis=0) - before
        pulled = (behind - before)[:, None] + np.zeros_like(each)
        if self._is_sum:
            pulled += low
        else:
            own = np.einsum("ab,pan->pbn", _UP_TO, low)
            own -= np.einsum("ab,pan->pbn", _UP_TO, high[:, ::-1])[:, ::-1]
            pulled += own / self._weight
        return pulled.reshape(values.shape)


def curves_on_outcomes(logp: Array, outcomes: Array, y: Array, unit: float) -> Curves:
    """Take log probabilities (K, m, n) of consecutive whole numbers, (m,)."""
    shape = logp.shape[1:]
    above = (outcomes[:, None] >= y).astype(np.float64)
    return Curves(logp, np.zeros(shape), np.full(shape, 1.0 / unit), above, np.array(1.0))


def curves_on_panels(grid: Grid, y: Array, unit: float) -> Curves:
    """Take the components of a grid of which each outcome is a break point."""
    panels, n_rows = grid.panels, grid.n_rows
    order = np.lexsort((panels.start, panels.row))
    row, start, stop = panels.row[order], panels.start[order], panels.stop[order]
    first = np.searchsorted(row, np.arange(n_rows))
    slot = np.arange(row.size) - first[row]
    half = (stop - start) / 2
    places, _ = grid.line.place(start + half + half * NODES[:, None], row)  # (15, panel)
    shape = (int(slot.max()) + 1, NODES.size, n_rows)
    logp = np.zeros((len(panels.log_components), *shape))
    log_measure, above = np.full(shape, -np.inf), np.ones(shape)
    logp[:, slot, :, row] = np.moveaxis(panels.log_components[..., order], 2, 0)
    measured = panels.log_measure[:, order] + np.log(KRONROD)[:, None]
    log_measure[slot, :, row] = measured.T
    above[slot, :, row] = (places >= y[row]).T
    flat = log_measure.reshape(-1, n_rows)
    return Curves(
        logp.reshape(len(logp), -1, n_rows),
        flat,
        np.exp(flat) / unit,
        above.reshape(-1, n_rows),
        np.array(float(NODES.size)),
    )


def broken_at(line: Line, y: Array) -> Line:
    """Make the outcome of each row a break point, where it lies inside the support."""
    z = y if line.scale is None else line.scale.forward(np.clip(y, *line.support))
    z = np.where(np.isfinite(z), z, line.breaks[:, 0])
    return Line(np.sort(np.column_stack([line.breaks, z]), axis=1), line.support, line.inner)


def within(components: Components, low: Array, high: Array) -> Components:
    """Return components that are zero beyond two outcomes of each row."""

    def evaluate(y: Array, rows: Rows) -> Array:
        inside = np.clip(y, low[rows], high[rows])
        return np.where((inside == y) | np.isnan(y), components(inside, rows), -np.inf)

    return evaluate
