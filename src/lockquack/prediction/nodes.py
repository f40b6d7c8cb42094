"""Quadrature nodes for pools of models; of discrete models, all their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, log_sum_exp
from lockquack.models.source import Source
from lockquack.operators.pool import GeometricMean, OneModel, Pooling
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.prediction.members import (
    MULTIPLES,
    LaterComponents,
    PredictiveDensity,
    are_discrete,
    components,
    lay_line,
    predictive_densities,
    require_evaluable,
    support_of,
    tails_to_try,
)
from lockquack.prediction.shared import NODES
from lockquack.quadrature.grid import Components, Grid, Integrand
from lockquack.quadrature.nodes import Nodes
from lockquack.quadrature.spaced import TOLERANCE, Spaced

#: Mass of a component that may go missing before a closer look.
_MISSING = 1e-8
#: The same from which equally spaced nodes are not trusted.
_LITTLE = 1e-10
#: Models of which the mean of any two is resolved along with a pool, for the next to come.
_FEW_MODELS = 6
#: Share of a sum over outcomes that those left out may have.
_BEYOND = 1e-13
#: Most outcomes of a discrete model that are summed.
_MOST_OUTCOMES = 2**20


@dataclass
class Between:
    """Where else the models of a group were evaluated, kept for all pools of them."""

    halved: Spaced | None = None
    panels: Grid | None = None


@dataclass(frozen=True)
class NodeGroup:
    """Nodes for some consecutive observations, and what they may have missed."""

    obs: slice
    nodes: Nodes
    grid: Grid | Spaced | None  # None: the nodes are all outcomes of discrete models
    outcomes: Array | None  # (m,): what these outcomes are
    missing: Array  # (K, obs): mass of each component that the nodes do not see
    pareto_k: Array  # (K, obs), zero unless leave-one-out
    observed: Array  # (K, obs): log densities of the components at the observed outcomes
    between: Between = field(default_factory=Between)

    def log_norm(self, pool: Integrand) -> tuple[Array, Array]:
        """Log integral of a pool, (obs,), and a bound on its relative error."""
        if self.grid is None:
            rows = np.arange(self.nodes.logp.shape[-1])
            total = log_sum_exp(pool(self.nodes.logp, rows) + self.nodes.log_measure)
            return total, np.zeros_like(total)
        integral = self.grid.integrate(pool)
        return integral.log_value[0], integral.relative_error[0]

    def smooth(self, evaluate: Components, *pools: Integrand) -> Spaced | None:
        """Return nodes between which pools are known too, halved if need be; None if not."""
        nodes = self.grid
        if not isinstance(nodes, Spaced):
            return None
        if all(map(nodes.is_smooth, pools)):
            return nodes
        if not nodes.can_be_halved():
            return None
        others = _pools_to_come(len(self.missing))
        halved = self.halved or nodes.halved(evaluate, *pools, *others)
        self.between.halved = halved
        return halved if all(map(halved.is_smooth, pools)) else None

    @property
    def halved(self) -> Spaced | None:
        """Nodes at half the distance, where these are known already."""
        known, nodes = self.between.halved, self.grid
        finer = isinstance(nodes, Spaced) and known is not None and known.n_nodes > nodes.n_nodes
        return known if finer else None

    def refined(self, evaluate: Components, pool: Integrand) -> NodeGroup:
        """Return a group with nodes that resolve a pool."""
        laid = self.grid
        assert laid is not None, "continuous outcomes have a grid"
        grid = (self.halved or laid).refined(evaluate, pool)
        if isinstance(laid, Spaced) and isinstance(grid, Spaced) and grid.is_half_of(laid):
            self.between.halved = grid
        return replace(self, grid=grid, nodes=grid.nodes())


def counted_from(first: slice, obs: slice) -> slice:
    """Return a slice of observations that are counted from the first of another slice."""
    return slice(obs.start - first.start, obs.stop - first.start)


def lay_nodes(
    models: Mapping[str, Source],
    *,
    loo: bool,
    pools: Sequence[Pooling] | None = None,
    slices: Sequence[slice] | None = None,
    of_all: bool = True,
    what: str = "the combination cannot be normalised",
    progressbar: bool | None = None,
) -> list[NodeGroup]:
    """Evaluate the models at nodes that resolve integrals of their pools, by observation.

    Without ``pools``, the nodes resolve each model and the geometric mean of any two, so that
    most pools of them are resolved; :func:`refine_nodes` sees to a particular one. With
    ``of_all``, the pools are zero where any of the models is. Pools that differ between
    observations know those of the slices, counted from the first. Without ``slices``, which are
    then all observations, nodes that were laid for these models before are used again.
    """
    require_evaluable(models, what)
    every = tuple(models.values())
    support = support_of(models, of_all=of_all)
    if slices is not None:
        return _lay_anew(models, support, loo, pools, slices, progressbar)
    groups = every[0].observation_slices()
    about = _about(every, support, loo)
    kept = NODES.get(every, about)
    if kept is None:
        wanted = [*_pools_to_come(len(models)), *(pools or ())]
        kept = _lay_anew(models, support, loo, wanted, groups, progressbar)
    for pool in pools or ():
        kept = refine_nodes(kept, models, pool, loo=loo)
    NODES.keep(every, about, kept)
    return kept


def are_laid(models: Mapping[str, Source], *, loo: bool, of_all: bool) -> bool:
    """Whether nodes of all observations are kept from an earlier question."""
    every = tuple(models.values())
    return NODES.get(every, _about(every, support_of(models, of_all=of_all), loo)) is not None


def _about(models: Sequence[Source], support: tuple[float, float], loo: bool) -> Any:
    """Return what nodes depend on besides the models."""
    return loo, support, len(models[0].observation_slices())


def _lay_anew(
    models: Mapping[str, Source],
    support: tuple[float, float],
    loo: bool,
    pools: Sequence[Pooling] | None,
    slices: Sequence[slice],
    progressbar: bool | None,
) -> list[NodeGroup]:
    pools = pools or general_pools(len(models))
    lay = partial(_lay, support=support, discrete=are_discrete(models), loo=loo)
    own = [[pool.at(counted_from(slices[0], obs)) for pool in pools] for obs in slices]
    parts = []
    with progress_bar(slices[-1].stop, "densities on nodes", progressbar) as advance:
        node_groups = map_observations(lay, tuple(models.values()), slices, own)
        for obs, part in zip(slices, node_groups, strict=True):
            parts.append(replace(part, obs=obs))
            advance(obs.stop - obs.start)
    return parts


def refine_nodes(
    node_groups: Sequence[NodeGroup], models: Mapping[str, Source], pool: Pooling, *, loo: bool
) -> list[NodeGroup]:
    """Add nodes where a pool needs them; groups that need none are returned as they are."""
    slices = [part.obs for part in node_groups]
    pools = {part.obs.start: pool.at(counted_from(slices[0], part.obs)) for part in node_groups}
    rough = [
        part
        for part in node_groups
        if part.grid is None or (part.log_norm(pools[part.obs.start])[1] > TOLERANCE).any()
    ]
    if not rough:
        return list(node_groups)
    refine = partial(_refine, support=support_of(models, of_all=False), loo=loo)
    groups = [part.obs for part in rough]
    own = [pools[obs.start] for obs in groups]
    refined = map_observations(refine, tuple(models.values()), groups, rough, own)
    new = {part.obs.start: each for part, each in zip(rough, refined, strict=True) if each}
    return [
        replace(new[part.obs.start], obs=part.obs) if part.obs.start in new else part
        for part in node_groups
    ]


def _refine(
    models: Sequence[Source],
    obs: slice,
    part: NodeGroup,
    pool: Pooling,
    *,
    support: tuple[float, float],
    loo: bool,
) -> NodeGroup | None:
    """Add nodes to those of a group; None if it needs none."""
    if part.grid is None:
        return _more_outcomes(
            part, lambda: predictive_densities(models, obs, loo=loo), support, pool
        )
    return part.refined(LaterComponents(models, obs, loo), pool)


def _pools_to_come(K: int) -> list[Pooling]:
    """Pools to think of besides those that are asked for: the general ones of a few models."""
    return general_pools(K) if K <= _FEW_MODELS else []


def general_pools(K: int) -> list[Pooling]:
    """Each component, and the geometric mean of any two."""
    pairs = [GeometricMean(j, k) for j, k in combinations(range(K), 2)]
    return [*map(OneModel, range(K)), *pairs]


def _lay(
    models: Sequence[Source],
    obs: slice,
    pools: Sequence[Pooling],
    *,
    support: tuple[float, float],
    discrete: bool,
    loo: bool,
) -> NodeGroup:
    members = predictive_densities(models, obs, loo=loo)
    pareto_k = np.stack([member.pareto_k for member in members])
    y = members[0].source.observations.values[obs].T
    observed = components(members)(y, np.arange(y.shape[1]))[:, 0]
    if discrete:
        nodes, outcomes, missing = _all_outcomes(members, support, pools)
        return NodeGroup(obs, nodes, None, outcomes, missing, pareto_k, observed)
    grid, missing = _resolve(members, support, pools, detailed=False)
    if (missing > _MISSING).any():
        grid, missing = _resolve(members, support, pools, detailed=True)
    return NodeGroup(obs, grid.nodes(), grid, None, missing, pareto_k, observed)


def _resolve(
    members: list[PredictiveDensity],
    support: tuple[float, float],
    pools: Sequence[Pooling],
    *,
    detailed: bool,
) -> tuple[Grid | Spaced, Array]:
    """Lay a grid; return also how much mass of each component it misses.

    A density integrates to one, so what is missing tells when the break points were too few.
    """
    line, modes = lay_line(members, support, detailed=detailed)
    evaluate = components(members)
    whole = np.array([_lies_within(member, support) for member in members])
    if not detailed:
        for heavy in tails_to_try(members, support):
            spaced = Spaced.lay(evaluate, line, modes, pools, heavy=heavy)
            if spaced is not None:
                missing = _missing(spaced, whole)
                if (missing <= _LITTLE).all():
                    return spaced, missing
    grid = Grid.lay(evaluate, line).refined(evaluate, *pools)
    return grid, _missing(grid, whole)


def _missing(grid: Grid | Spaced, whole: NDArray[np.bool_]) -> Array:
    """Mass of each component that a grid does not see, of those that lie within it."""
    each = map(OneModel, range(whole.size))
    missing = np.abs(1.0 - np.exp(grid.integrate(*each).log_value))
    missing[~whole] = 0.0  # part of it lies where the pool is zero
    return missing


def _all_outcomes(
    members: list[PredictiveDensity], support: tuple[float, float], pools: Sequence[Pooling]
) -> tuple[Nodes, Array, Array]:
    """Evaluate the models at all outcomes that have mass under them or the pools."""
    obs = members[0].obs
    seen = np.concatenate(
        [
            members[0].source.observations.values[obs].ravel(),
            *(m.source.bulks(obs, MULTIPLES, detailed=False).ravel() for m in members),
        ]
    )
    first, last = np.clip([np.floor(seen.min()), max(np.ceil(seen.max()), 8.0)], *support)
    start = np.arange(first, last + 1)
    evaluate = _on_outcomes(members)
    each = map(OneModel, range(len(members)))
    whole = np.array([_lies_within(member, support) for member in members])
    outcomes, logp = _widened(
        evaluate,
        support,
        [*each, *pools],
        start,
        evaluate(start),
        np.append(whole, [False] * len(pools)),
    )
    missing = np.abs(1.0 - np.exp(log_sum_exp(logp, axis=1)))
    missing[~whole] = 0.0  # part of it lies where the pool is zero
    return Nodes(logp, np.zeros(logp.shape[1:])), outcomes, missing


def _more_outcomes(
    part: NodeGroup,
    members: Callable[[], list[PredictiveDensity]],
    support: tuple[float, float],
    pool: Pooling,
) -> NodeGroup | None:
    """Add outcomes on which a pool has mass; None if there are no more."""
    assert part.outcomes is not None
    outcomes, logp = _widened(
        lambda outcomes: _on_outcomes(members())(outcomes),
        support,
        [pool],
        part.outcomes,
        part.nodes.logp,
        np.zeros(1, dtype=np.bool_),
    )
    if outcomes.size == part.outcomes.size:
        return None
    return replace(part, outcomes=outcomes, nodes=Nodes(logp, np.zeros(logp.shape[1:])))


def _widened(
    evaluate: Callable[[Array], Array],
    support: tuple[float, float],
    pools: Sequence[Pooling],
    outcomes: Array,
    logp: Array,
    whole: NDArray[np.bool_],
) -> tuple[Array, Array]:
    """Add outcomes on both sides until no pool has mass beyond; the marked ones sum to one."""
    rows = np.arange(logp.shape[-1])
    while outcomes.size <= _MOST_OUTCOMES:
        logq = np.stack([pool(logp, rows) for pool in pools])  # (pool, outcome, row)
        total = log_sum_exp(logq, axis=1)
        lacking = bool((np.abs(1.0 - np.exp(total[whole])) > _MISSING).any())
        low, high = outcomes[0], outcomes[-1]
        step = float(outcomes.size)
        beside = min(1, outcomes.size - 1)  # a single outcome says nothing of a rate
        if low > support[0] and (lacking or _has_more(logq[:, beside], logq[:, 0], total)):
            low = max(support[0], low - step)
        if high < support[1] and (lacking or _has_more(logq[:, -1 - beside], logq[:, -1], total)):
            high = min(support[1], high + step)
        if (low, high) == (outcomes[0], outcomes[-1]):
            break
        below, above = np.arange(low, outcomes[0]), np.arange(outcomes[-1] + 1, high + 1)
        more = evaluate(np.concatenate([below, above]))
        logp = np.concatenate([more[:, : below.size], logp, more[:, below.size :]], axis=1)
        outcomes = np.concatenate([below, outcomes, above])
    return outcomes, logp


def _has_more(before: Array, last: Array, total: Array) -> bool:
    """Whether the tail matters, if its terms continue at the rate of the last two."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rate = np.where(np.isneginf(last), -np.inf, last - before)
        beyond = np.exp(last - total + rate) / -np.expm1(rate)
    return bool(((rate >= 0) | (beyond > _BEYOND)).any())


def _on_outcomes(members: list[PredictiveDensity]) -> Callable[[Array], Array]:
    rows = np.arange(members[0].obs.stop - members[0].obs.start)
    evaluate = components(members)

    def on(outcomes: Array) -> Array:
        return evaluate(np.repeat(outcomes[:, None], rows.size, axis=1), rows)

    return on


def _lies_within(member: PredictiveDensity, support: tuple[float, float]) -> bool:
    """Whether all of a component's mass lies where the pool can be positive."""
    low, high = member.source.likelihood.support or (-np.inf, np.inf)
    return member.source.can.integrate_to_one and support[0] <= low and high <= support[1]
