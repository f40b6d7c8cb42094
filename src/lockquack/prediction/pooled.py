"""The combination as a distribution, one per observation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from typing_extensions import override

from lockquack.draws.blocks import Kind
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.source import Source
from lockquack.operators.pool import OneModel, Pool, Pooling
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.threads import thread_map
from lockquack.prediction.members import components, log_components, members_at
from lockquack.prediction.nodes import NodeGroup, lay_nodes, refine_nodes, within
from lockquack.quadrature.continuous import ContinuousRows
from lockquack.quadrature.discrete import DiscreteRows
from lockquack.quadrature.grid import NODES, Components, Grid, Integrand, Rows
from lockquack.quadrature.intervals import HasIntervals

#: How well the slope of a tail is known.
_SLACK = 1e-3
#: Density slopes, in the log distance, below which quadrature needs no help with moments.
_LIGHT = -8.0
#: Lower probabilities among which the shortest interval is looked for, and steps from there.
_STARTS, _GOLDEN_STEPS = 33, 48


@dataclass(frozen=True)
class Normalised:
    """Log density of the pool at each observation, what normalised it, and how well."""

    logp: Array  # (n,)
    log_norm: Array  # (n,)
    relative_error: Array  # (n,), of the normaliser
    missing: Array  # (K, n): mass of each component that the quadrature did not see
    pareto_k: Array  # (K, n), zero unless leave-one-out


@dataclass(frozen=True, eq=False)
class PooledDistribution(HasIntervals):
    """The pool of some models as a distribution of a scalar outcome, one per observation.

    The models' densities are computed once, on nodes that :func:`lay_nodes` chose; everything
    else is arithmetic on them. Arrays in and out have the observations last. The pool counts
    observations from the first that there are nodes for.
    """

    models: Mapping[str, Source]
    pool: Pooling
    loo: bool
    node_groups: Sequence[NodeGroup]
    _computed: dict[int, ContinuousRows | DiscreteRows] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        models: Mapping[str, Source],
        pool: Pool,
        *,
        loo: bool = False,
        slices: Sequence[slice] | None = None,
        progressbar: bool | None = None,
    ) -> PooledDistribution:
        """Lay nodes for a pool of the models; every model must be evaluable anywhere."""
        same = not loo and slices is None and not pool.varies
        same = same and all(model.can.evaluate_once for model in models.values())
        if same:  # one observation tells about all
            slices = [slice(0, 1)]
        node_groups = lay_nodes(
            models,
            loo=loo,
            pools=[pool],
            slices=slices,
            of_all=pool.operator.vanishes_with_any,
            progressbar=progressbar,
        )
        if same:
            n = next(iter(models.values())).n_obs
            return RepeatedDistribution(models, pool, loo, node_groups, copies=n)
        return cls(models, pool, loo, node_groups)

    def with_pool(self, pool: Pooling) -> PooledDistribution:
        """Return another pool of the same models, on the same nodes and some more."""
        node_groups = refine_nodes(self.node_groups, self.models, pool, loo=self.loo)
        return replace(self, pool=pool, node_groups=node_groups, _computed={})

    def component(self, k: int) -> PooledDistribution:
        """Return one of the models by itself.

        Only where the nodes reach over all of its support, which those of a pool do that is
        positive wherever any of the models is.
        """
        return self.with_pool(OneModel(k))

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return sum(part.obs.stop - part.obs.start for part in self.node_groups)

    @property
    @override
    def discrete(self) -> bool:
        return self.node_groups[0].grid is None

    @property
    def missing(self) -> Array:
        """Mass of each model that the nodes do not see, (K, n)."""
        return np.concatenate([part.missing for part in self.node_groups], axis=-1)

    @property
    def pareto_k(self) -> Array:
        """Pareto k̂ of each model and observation, (K, n); zero unless leave-one-out."""
        return np.concatenate([part.pareto_k for part in self.node_groups], axis=-1)

    @cached_property
    def _norms(self) -> list[tuple[Array, Array]]:
        return [part.log_norm(self._pool_of(part)) for part in self.node_groups]

    @property
    def log_norm(self) -> Array:
        """Log integral of the pool, (n,)."""
        return np.concatenate([value for value, _ in self._norms])

    @property
    def relative_error(self) -> Array:
        """Bound on the relative error of the integral, (n,)."""
        return np.concatenate([error for _, error in self._norms])

    def log_components(self, y: Array) -> Array:
        """Log densities of the models at outcomes (point, n) → (K, point, n)."""
        evaluate = partial(log_components, loo=self.loo)
        groups = [part.obs for part in self.node_groups]
        columns = [y[:, self._columns(part)] for part in self.node_groups]
        parts = map_observations(evaluate, tuple(self.models.values()), groups, columns)
        return np.concatenate(list(parts), axis=-1)

    def logpdf(self, y: Array) -> Array:
        """Log density at outcomes (point, n) → (point, n), by averaging all draws there."""
        with np.errstate(invalid="ignore"):
            logp = self.pool(self.log_components(y), np.arange(self.n_obs)) - self.log_norm
        return np.where(np.isnan(logp) & ~np.isnan(y), -np.inf, logp)

    @override
    def cdf(self, y: Array) -> Array:
        return self._by_group(lambda i, y: self._rows(i).cdf(y), y)

    @override
    def quantile(self, p: Array) -> Array:
        p = np.broadcast_to(p[:, None] if p.ndim == 1 else p, (len(p), self.n_obs))
        return self._by_group(lambda i, p: self._rows(i).quantile(p), p)

    @override
    def shortest(self, prob: float) -> Array:
        return self._by_group(lambda i: _shortest(self._rows(i), prob))

    def mean(self) -> Array:
        """Mean at each observation, (n,); NaN or infinite where the tails are too heavy for one."""
        return self._moments[0]

    def var(self) -> Array:
        """Variance at each observation, (n,); infinite where the tails are too heavy for one."""
        return self._moments[1]

    def mode(self) -> Array:
        """Outcome of the highest density, (n,)."""
        return self._by_group(lambda i: self._rows(i).mode())

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw outcomes by inverting the distribution function, (n, observation)."""
        return self.quantile(rng.random((n, self.n_obs)))

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        mean, var = self._by_group(lambda i: np.stack(self._moments_of(i)))
        return mean, var

    def _moments_of(self, index: int) -> tuple[Array, Array]:
        grid, rows = self.node_groups[index].grid, self._rows(index)
        if grid is None or not isinstance(rows, ContinuousRows):
            return rows.moments()
        slopes = _tail_slopes(grid, self._pool_of(self.node_groups[index]))
        if slopes.max() > _LIGHT:
            mean, var = self._heavy_moments(index, grid, slopes.max(axis=0))
        else:
            mean, var = rows.moments()
        heavy = slopes >= -2.0 - _SLACK
        endless = np.select([heavy.all(axis=0), heavy[1], heavy[0]], [np.nan, np.inf, -np.inf])
        mean = np.where(heavy.any(axis=0), endless, mean)
        return mean, np.where((slopes >= -3.0 - _SLACK).any(axis=0), np.inf, var)

    def _heavy_moments(self, index: int, grid: Grid, slope: Array) -> tuple[Array, Array]:
        """Mean and variance, with nodes added until y² times the density is resolved, or y.

        The logarithm of the weight joins the components, so that the pool can multiply by it.
        """
        breaks = grid.line.breaks
        middle, scale = breaks.mean(axis=1), np.maximum(np.ptp(breaks, axis=1), 1e-300)
        power = np.select([slope < -3.0 - _SLACK, slope < -2.0 - _SLACK], [1.0, 0.5])
        evaluate, own = self._components(index), self._pool_of(self.node_groups[index])

        def weight(y: Array, rows: Rows) -> Array:
            return power[rows] * np.log1p(np.square((y - middle[rows]) / scale[rows]))

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

        return ContinuousRows.of(wide, pool, lambda: augmented).moments(_tail_slopes(wide, pool))

    def _by_group(self, ask: Callable[..., Array], *tables: Array) -> Array:
        """Ask each group by its index and its columns of tables; join the answers' last axes."""

        def answer(index: int) -> Array:
            columns = self._columns(self.node_groups[index])
            return ask(index, *(table[:, columns] for table in tables))

        threads = None if all(model.can.be_shared for model in self.models.values()) else 1
        answers = thread_map(answer, range(len(self.node_groups)), threads=threads)
        return np.concatenate(list(answers), axis=-1)

    def _components(self, index: int) -> Components:
        part = self.node_groups[index]
        return components(members_at(self.models.values(), part.obs, loo=self.loo))

    def _rows(self, index: int) -> ContinuousRows | DiscreteRows:
        """Distributions of one group of observations, computed when first needed."""
        if index not in self._computed:
            part = self.node_groups[index]
            if part.outcomes is not None:
                rows = np.arange(part.nodes.logp.shape[-1])
                log_mass = self._pool_of(part)(part.nodes.logp, rows) + part.nodes.log_measure
                self._computed[index] = DiscreteRows.of(part.outcomes, log_mass)
            elif part.grid is not None:
                self._computed[index] = ContinuousRows.of(
                    part.grid, self._pool_of(part), lambda: self._components(index)
                )
        return self._computed[index]

    def _columns(self, part: NodeGroup) -> slice:
        """Which columns of a table of all observations belong to a group of them."""
        return within(part.obs, [each.obs for each in self.node_groups[:1]])

    def _pool_of(self, part: NodeGroup) -> Pooling:
        return self.pool.at(self._columns(part))


@dataclass(frozen=True, eq=False)
class RepeatedDistribution(PooledDistribution):
    """A distribution that is the same at all observations, computed for one of them."""

    copies: int = 1

    @property
    @override
    def n_obs(self) -> int:
        return self.copies

    @property
    @override
    def missing(self) -> Array:
        return self._repeat(super().missing)

    @property
    @override
    def pareto_k(self) -> Array:
        return self._repeat(super().pareto_k)

    @property
    @override
    def log_norm(self) -> Array:
        return self._repeat(super().log_norm)

    @property
    @override
    def relative_error(self) -> Array:
        return self._repeat(super().relative_error)

    @override
    def log_components(self, y: Array) -> Array:
        return super().log_components(y.reshape(-1, 1)).reshape(-1, *y.shape)

    @override
    def cdf(self, y: Array) -> Array:
        return self._rows(0).cdf(y.reshape(-1, 1)).reshape(y.shape)

    @override
    def quantile(self, p: Array) -> Array:
        values = self._rows(0).quantile(p.reshape(-1, 1))
        return self._repeat(values) if p.ndim == 1 else values.reshape(p.shape)

    @override
    def shortest(self, prob: float) -> Array:
        return self._repeat(super().shortest(prob))

    @override
    def mean(self) -> Array:
        return self._repeat(super().mean())

    @override
    def var(self) -> Array:
        return self._repeat(super().var())

    @override
    def mode(self) -> Array:
        return self._repeat(super().mode())

    def _repeat(self, values: Array) -> Array:
        return np.repeat(values, self.copies, axis=-1)


def _tail_slopes(grid: Grid, pool: Integrand) -> Array:
    """Slopes of the log density in the log distance far out, (side, row); −inf at an edge.

    Between the two outermost nodes, which lie far beyond all break points.
    """
    panels, line = grid.panels, grid.line
    last = line.breaks.shape[1] - 1
    slopes = np.full((2, grid.n_rows), -np.inf)
    ends = ((panels.start == -1.0, [0, 1]), (panels.stop == last + 1.0, [-1, -2]))
    for side, (outermost, nodes) in enumerate(ends):
        if not np.isinf(line.support[side]):
            continue
        row = panels.row[outermost]
        half = (panels.stop[outermost] - panels.start[outermost]) / 2
        t = panels.start[outermost] + half + half * NODES[nodes, None]
        distance = np.abs(line.place(t, row)[0] - line.breaks[row].mean(axis=1))
        with np.errstate(invalid="ignore"):
            far, near = pool(panels.log_components[:, nodes][..., outermost], row)
            slope = (far - near) / np.log(distance[0] / distance[1])
        slopes[side, row] = np.where(np.isfinite(slope), slope, -np.inf)
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


def at_observed(pooled: PooledDistribution, logp: Array) -> Normalised:
    """Evaluate a pool at the observed outcomes, where the models' log densities are (K, n)."""
    return Normalised(
        pooled.pool(logp, np.arange(logp.shape[1])) - pooled.log_norm,
        pooled.log_norm,
        pooled.relative_error,
        pooled.missing,
        pooled.pareto_k,
    )


def mix(
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
