"""The combination as distributions of a group of observations, and at the observed outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from typing_extensions import override

from lockquack.draws.blocks import Kind
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.source import Source
from lockquack.operators.pool import Pool, Pooling
from lockquack.prediction.members import LaterComponents, log_components
from lockquack.prediction.nodes import NodeGroup
from lockquack.quadrature.beta import BetaTransform
from lockquack.quadrature.continuous import ContinuousRows, resolved
from lockquack.quadrature.discrete import DiscreteRows
from lockquack.quadrature.grid import NODES, Components, Grid, Integrand, Rows
from lockquack.quadrature.intervals import HasIntervals
from lockquack.quadrature.recalibrated import FAR, differences, far_tail, recalibrated_rows
from lockquack.quadrature.spaced import Spaced

#: How well the slope of a tail is known.
_SLACK = 1e-3
#: Density slopes, in the log distance, below which quadrature needs no help with moments.
_LIGHT = -8.0
#: Relative error of a variance from which panels are asked for it.
_RESOLVED = 1e-8
#: Distances beyond this are as good as infinite.
_FARTHEST = 1e300
#: Steps, relative to the distance from the median, by which slopes in far tails are found, and the
#: smallest probability that is told from zero where they are not.
_STEP, _LEAST = 3e-3, 1e-16
#: Lower probabilities among which the shortest interval is looked for, and steps from there.
_STARTS, _GOLDEN_STEPS = 33, 48


@dataclass(frozen=True)
class Normalised:
    """Log density of the pool at each observation, its normaliser, and the errors of that."""

    logp: Array  # (n,)
    log_norm: Array  # (n,)
    relative_error: Array  # (n,), of the normaliser
    missing: Array  # (K, n): mass of each component that the quadrature did not see
    pareto_k: Array  # (K, n), zero unless leave-one-out


@dataclass(frozen=True, eq=False)
class GroupDistribution(HasIntervals):
    """The pool of some models as distributions of a scalar outcome, for a group of observations.

    The models' densities are computed once, on nodes that :func:`lay_nodes` chose; everything
    else is arithmetic on them. Arrays in and out have the observations last.
    """

    models: Sequence[Source]
    pool: Pooling  # counts observations from the first of the group
    loo: bool
    group: NodeGroup

    @property
    @override
    def discrete(self) -> bool:
        return self.group.grid is None

    @cached_property
    def norms(self) -> Array:
        """Log integral of the pool and its relative error; of the models what was missed, k̂, logp.

        Of shape (2 + 3 K, n).
        """
        (log_norm, error), group = self.group.log_norm(self.pool), self.group
        if self.pool.recalibration is not None:
            error = np.maximum(error, self._distributed.relative_error)
        return np.vstack([log_norm, error, group.missing, group.pareto_k, group.observed])

    @property
    def wrong(self) -> Array:
        """How wrong the quadrature may be, (n,): relative error, or mass of a model it missed."""
        return np.maximum(self.norms[1], self.group.missing.max(axis=0))

    def log_components(self, y: Array) -> Array:
        """Log densities of the models at outcomes (point, n) → (K, point, n)."""
        return log_components(self.models, self.group.obs, y, loo=self.loo)

    @override
    def cdf(self, y: Array) -> Array:
        return self._distributed.cdf(y)

    @override
    def quantile(self, p: Array) -> Array:
        return self._distributed.quantile(p[:, None] if p.ndim == 1 else p)

    @override
    def shortest(self, prob: float) -> Array:
        return _shortest(self._distributed, prob)

    @override
    def crps(self, y: Array) -> Array:
        return self._distributed.crps(y)

    @override
    def steps(self, y: Array) -> Array:
        rows = self._rows
        if isinstance(rows, DiscreteRows):
            return np.stack(rows.steps(y))
        tails = np.stack(rows.tails(y))  # (side, point, n)
        far = (tails.min(axis=0) < FAR) & np.isfinite(y)
        if far.any():
            tails = np.where(far, self._far_tails(y, tails), tails)
        return np.repeat(tails[:, None], 2, axis=1)

    def log_factor(self, y: Array) -> Array:
        """Log of what recalibration multiplies the density by at outcomes, (point, n)."""
        by = self.pool.recalibration
        return np.zeros_like(y) if by is None else by.log_mean_density(*self.steps(y))

    def mode(self) -> Array:
        """Outcome of the highest density, (n,)."""
        return self._distributed.mode()

    @override
    def mean(self) -> Array:
        return self.moments()[0]

    def moments(self) -> Array:
        """Mean and variance, (2, n); NaN or infinite where the tails are too heavy for them."""
        grid, by = self.group.grid, self.pool.recalibration
        if isinstance(grid, Spaced) and by is None:
            mean, var, error = grid.moments(self.pool)
            if (error < _RESOLVED).all():
                return np.stack([mean, var])
        rows = self._distributed
        light = isinstance(grid, Spaced) and grid.is_light
        if not isinstance(rows, ContinuousRows) or light:
            return np.stack(rows.moments())
        grid = self._panels  # where tails are looked at
        slopes = _recalibrated_slopes(_tail_slopes(grid, self.pool), by)
        if slopes.max() > _LIGHT or grid.line.scale is not None:
            mean, var = self._heavy_moments(grid, slopes.max(axis=0))
        else:
            mean, var = rows.moments()
        heavy = slopes >= -2.0 - _SLACK
        endless = np.select([heavy.all(axis=0), heavy[1], heavy[0]], [np.nan, np.inf, -np.inf])
        mean = np.where(heavy.any(axis=0), endless, mean)
        return np.stack([mean, np.where((slopes >= -3.0 - _SLACK).any(axis=0), np.inf, var)])

    def _heavy_moments(self, grid: Grid, slope: Array) -> tuple[Array, Array]:
        """Mean and variance, with nodes added until y² times the density is resolved, or y.

        The logarithm of the weight joins the components, so that the pool can multiply by it.
        """
        middle, scale = grid.line.middle()
        power = np.select([slope < -3.0 - _SLACK, slope < -2.0 - _SLACK], [1.0, 0.5])
        evaluate, own = self.evaluate, self.pool

        def weight(y: Array, rows: Rows) -> Array:
            return 2.0 * power[rows] * np.log(np.hypot(1.0, (y - middle[rows]) / scale[rows]))

        def augmented(y: Array, rows: Rows) -> Array:
            return np.concatenate([evaluate(y, rows), weight(y, rows)[None]])

        panels = grid.panels
        half = (panels.stop - panels.start) / 2
        # Of the first panels the weight is known from where their nodes are.
        y, _ = grid.line.place(panels.start + half + half * NODES[:, None], panels.row)
        logs = np.concatenate([panels.log_components, weight(y, panels.row)[None]])
        wide = Grid(grid.line, replace(panels, log_components=logs))
        wide = wide.refined(augmented, lambda logs, rows: own(logs[:-1], rows) + logs[-1])

        def pool(logs: Array, rows: Rows) -> Array:
            return own(logs[:-1], rows)

        found = resolved(wide, pool, augmented)
        wide = found.grid
        self._keep(
            Grid(wide.line, replace(wide.panels, log_components=wide.panels.log_components[:-1]))
        )
        rows, slopes = ContinuousRows.of(found), _tail_slopes(wide, pool)
        by = self.pool.recalibration
        if by is not None:
            rows = recalibrated_rows(rows, by)
        return rows.moments(_recalibrated_slopes(slopes, by))

    def _far_tails(self, y: Array, tails: Array) -> Array:
        """Probability beyond outcomes in far tails, (side, point, n), which panels do not resolve.

        From the density and its slopes there, see :func:`far_tail`.
        """
        assert self.group.grid is not None
        line, rows = self.group.grid.line, np.arange(y.shape[1])
        middle = self._rows.quantile(np.full((1, rows.size), 0.5))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            z, middle = (v if line.scale is None else line.scale.forward(v) for v in (y, middle))
            h = _STEP * np.abs(z - middle)
            places = [line.outcomes(z + k * h) for k in (-2, -1, 0, 1, 2)]
            logs = [self.pool(self.log_components(at), rows) + more for at, more in places]
            slopes = differences(logs, h)
            mass = far_tail(np.exp(logs[2] - self.group.log_norm(self.pool)[0]), *slopes)
            outwards = np.stack([slopes[0] > 0, slopes[0] < 0]) & (tails == tails.min(axis=0))
            return np.where(outwards & (mass < 10 * FAR), mass, np.maximum(tails, _LEAST))

    @cached_property
    def _distributed(self) -> ContinuousRows | DiscreteRows:
        """The distributions, recalibrated if the pool is."""
        rows, by = self._rows, self.pool.recalibration
        if by is None:
            return rows
        if isinstance(rows, DiscreteRows):
            return rows.recalibrated(by)
        return recalibrated_rows(rows, by)

    @cached_property
    def evaluate(self) -> Components:
        """Evaluate the models at other outcomes; draws are weighted when first asked."""
        return LaterComponents(self.models, self.group.obs, self.loo)

    @cached_property
    def _rows(self) -> ContinuousRows | DiscreteRows:
        group, by = self.group, self.pool.recalibration
        # What lies beyond the outermost nodes is nothing, unless tails are made heavier.
        heavier = by is not None and np.minimum(by.a, by.b).min() < 1
        smooth = None if heavier else group.smooth(self.evaluate, self.pool)
        if smooth is not None:
            return ContinuousRows.of(resolved(smooth.panels, self.pool, smooth.interpolate))
        if group.grid is not None:
            found = resolved(self._panels, self.pool, self.evaluate)
            self._keep(found.grid)
            return ContinuousRows.of(found)
        assert group.outcomes is not None
        rows = np.arange(group.nodes.logp.shape[-1])
        log_mass = self.pool(group.nodes.logp, rows) + group.nodes.log_measure
        return DiscreteRows.of(group.outcomes, log_mass)

    def _keep(self, panels: Grid) -> Grid:
        """Keep panels for other pools of the same models."""
        self.group.between.panels = panels
        return panels

    @cached_property
    def _panels(self) -> Grid:
        """Panels that resolve the pool, tails included."""
        grid, evaluate, by = self.group.grid, self.evaluate, self.pool.recalibration
        assert grid is not None
        laid = self.group.between.panels or grid
        if not isinstance(laid, Grid):
            laid = Grid.lay(evaluate, laid.line)
        laid = laid.refined(evaluate, self.pool)
        least = 1.0 if by is None else float(np.minimum(by.a, by.b).min())
        if least < 1.0 and _tail_slopes(laid, self.pool).max() <= _LIGHT:
            # Probabilities of tails are raised to that power, and so is, nearly, the density.
            powers = [partial(_raised, self.pool, power) for power in (least, least / 2)]
            laid = laid.refined(evaluate, *powers)
        return self._keep(laid)


def _raised(pool: Integrand, power: float, logs: Array, rows: Rows) -> Array:
    return power * pool(logs, rows)


def _tail_slopes(grid: Grid, pool: Integrand) -> Array:
    """Slopes of the log density in the log distance far out, (side, row); −inf at an edge.

    Between two nodes far beyond all break points: the outermost two of those at which outcomes
    and densities can be told from infinity and zero.
    """
    panels, line = grid.panels, grid.line
    last = line.breaks.shape[1] - 1
    middle, _ = line.middle()
    slopes = np.full((2, grid.n_rows), -np.inf)
    for side, beyond in enumerate((panels.stop <= 0.0, panels.start >= last)):
        if not np.isinf(line.support[side]):
            continue
        row = panels.row[beyond]
        half = (panels.stop[beyond] - panels.start[beyond]) / 2
        y, _ = line.place(panels.start[beyond] + half + half * NODES[:, None], row)
        with np.errstate(invalid="ignore"):
            logs = pool(panels.log_components[..., beyond], row)
            distance = np.abs(y - middle[row])
        slopes[side] = _outermost_slope(logs, distance, np.broadcast_to(row, y.shape), grid.n_rows)
    return slopes


def _recalibrated_slopes(slopes: Array, by: BetaTransform | None) -> Array:
    """Slopes of tails (side, row) after their probability was raised to the power a, or b."""
    if by is None:
        return slopes
    return (slopes + 1.0) * np.stack(np.broadcast_arrays(by.a, by.b)).reshape(2, -1) - 1.0


def _outermost_slope(logs: Array, distance: Array, row: Rows, n_rows: int) -> Array:
    """Slope of some points (any shape) of each row at infinity; −inf where there are too few.

    From the three outermost: that between the last two, and how it changed with 1 / distance.
    """
    known = np.isfinite(logs) & (distance > 0) & (distance < _FARTHEST)
    logs, distance, row = logs[known], np.log(distance[known]), row[known]
    order = np.lexsort((distance, row))
    logs, distance, row = logs[order], distance[order], row[order]
    end = np.searchsorted(row, np.arange(n_rows), side="right")
    enough = np.flatnonzero(end - np.searchsorted(row, np.arange(n_rows)) >= 3)
    last = end[enough, None] - np.array([3, 2, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(logs[last]) / np.diff(distance[last])
        near, far = (np.exp(-(distance[last[:, k]] + distance[last[:, k + 1]]) / 2) for k in (0, 1))
        slope = slope[:, 1] + (slope[:, 1] - slope[:, 0]) * far / (near - far)
    slopes = np.full(n_rows, -np.inf)
    slopes[enough] = np.where(np.isfinite(slope), slope, -np.inf)
    return slopes


def _shortest(rows: ContinuousRows | DiscreteRows, prob: float) -> Array:
    """Return the ends of the shortest interval of that probability, (2, row).

    The lower probability is found by golden sections around the best of some.
    """
    if isinstance(rows, DiscreteRows):
        return rows.shortest(prob)
    free = 1.0 - prob

    def length(low: Array) -> Array:
        ends = rows.quantile(np.concatenate([low, low + prob]))
        with np.errstate(invalid="ignore"):
            return ends[len(low) :] - ends[: len(low)]

    starts = np.linspace(0.0, free, _STARTS)[:, None] * np.ones(rows.n_rows)
    best = starts[length(starts).argmin(axis=0), np.arange(rows.n_rows)]
    step = free / (_STARTS - 1)
    low, high = np.maximum(best - step, 0.0), np.minimum(best + step, free)
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    for _ in range(_GOLDEN_STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        lengths = length(np.stack([left, right]))
        shorter = lengths[0] <= lengths[1]
        low, high = np.where(shorter, low, left), np.where(shorter, right, high)
    middle = (low + high) / 2
    # A density that is highest at an edge has its shortest interval there.
    ends = np.stack([middle, np.zeros_like(middle), np.full_like(middle, free)])
    chosen = ends[length(ends).argmin(axis=0), np.arange(middle.size)]
    return rows.quantile(np.stack([chosen, chosen + prob]))


def evaluate_mixture(
    models: Mapping[str, Model],
    pool: Pool,
    *,
    loo: bool,
    progressbar: bool | None = None,
) -> Normalised:
    """Evaluate a pool that needs no normaliser; densities at the observations are enough."""
    logp = observed_densities(models, loo=loo, progressbar=progressbar)
    pareto_k = np.zeros_like(logp)
    if loo:
        pareto_k = np.stack([model.loo().pareto_k for model in models.values()])
    pooled = pool(logp, np.arange(logp.shape[1]))
    nothing = np.zeros_like(pooled)
    return Normalised(pooled, nothing, nothing, np.zeros_like(logp), pareto_k)


def observed_densities(
    models: Mapping[str, Model], *, loo: bool, progressbar: bool | None = None
) -> Array:
    """Log predictive densities of the models at the observed outcomes, (K, n)."""
    kind: Kind = "loo" if loo else "in-sample"
    return np.stack(
        [
            model.passes.predict(
                kind, density=True, derivatives=False, progressbar=progressbar
            ).jet.logp
            for model in models.values()
        ]
    )
