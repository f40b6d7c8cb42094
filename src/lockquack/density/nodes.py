"""Places that stand for all outcomes: quadrature nodes, or the outcomes themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from lockquack.density.members import (
    MULTIPLES,
    Member,
    are_discrete,
    break_points,
    components,
    members_at,
    require_evaluable,
    support_of,
)
from lockquack.density.quadrature import Grid, Line, Pool
from lockquack.evidence import Nodes
from lockquack.jets import Array, log_sum_exp
from lockquack.predictive import Predictive
from lockquack.progress import progress_bar

#: Mass of a component that may go missing before a closer look.
_MISSING = 1e-8
#: Most outcomes of a discrete model that are summed.
_MOST_OUTCOMES = 2**20


@dataclass(frozen=True)
class Laid:
    """Nodes for a slice of the observations, and what they may have missed."""

    obs: slice
    nodes: Nodes
    grid: Grid | None  # None: the nodes are all outcomes of discrete models
    missing: Array  # (K, obs): mass of each component that the nodes do not see
    pareto_k: Array  # (K, obs), zero unless leave-one-out

    def log_norm(self, pool: Pool) -> tuple[Array, Array]:
        """Log integral of a pool, (obs,), and a bound on its relative error."""
        if self.grid is None:
            total = log_sum_exp(pool(self.nodes.logp) + self.nodes.log_measure)
            return total, np.zeros_like(total)
        integral = self.grid.integrate(pool)
        return integral.log_value[0], integral.relative_error[0]


def lay_nodes(
    models: Mapping[str, Predictive],
    *,
    loo: bool,
    pools: Sequence[Pool] | None = None,
    slices: Sequence[slice] | None = None,
    of_all: bool = True,
    what: str = "the combination cannot be normalised",
    progressbar: bool | None = None,
) -> list[Laid]:
    """Evaluate the models where it takes to integrate pools of them, observation by observation.

    Without ``pools``, the nodes resolve each model and the geometric mean of any two, so that
    most pools of them are resolved; :func:`refine_nodes` sees to a particular one. With
    ``of_all``, the pools are zero where any of the models is.
    """
    require_evaluable(models, what)
    pools = general_pools(len(models)) if pools is None else pools
    slices = next(iter(models.values())).observation_slices() if slices is None else slices
    discrete, support = are_discrete(models), support_of(models, of_all=of_all)
    parts = []
    with progress_bar(slices[-1].stop, "densities on nodes", progressbar) as advance:
        for obs in slices:
            parts.append(_lay(members_at(models, obs, loo=loo), support, pools, discrete=discrete))
            advance(obs.stop - obs.start)
    return parts


def refine_nodes(
    laid: Sequence[Laid], models: Mapping[str, Predictive], pool: Pool, *, loo: bool
) -> list[Laid]:
    """Add nodes where a particular pool needs them."""
    result = []
    for part in laid:
        if part.grid is None or (part.log_norm(pool)[1] <= 1e-9).all():
            result.append(part)
            continue
        members = members_at(models, part.obs, loo=loo)
        grid = part.grid.refined(components(members), pool)
        result.append(replace(part, grid=grid, nodes=grid.nodes()))
    return result


def general_pools(K: int) -> list[Pool]:
    """Each component, and the geometric mean of any two."""

    def component(k: int) -> Pool:
        return lambda logp: logp[k]

    def mean(j: int, k: int) -> Pool:
        return lambda logp: (logp[j] + logp[k]) / 2

    return [*map(component, range(K)), *(mean(j, k) for j, k in combinations(range(K), 2))]


def _lay(
    members: list[Member], support: tuple[float, float], pools: Sequence[Pool], *, discrete: bool
) -> Laid:
    pareto_k = np.stack([member.pareto_k for member in members])
    obs = members[0].obs
    if discrete:
        nodes, missing = _all_outcomes(members, support)
        return Laid(obs, nodes, None, missing, pareto_k)
    grid, missing = _resolve(members, support, pools, detailed=False)
    if (missing > _MISSING).any():
        grid, missing = _resolve(members, support, pools, detailed=True)
    return Laid(obs, grid.nodes(), grid, missing, pareto_k)


def _resolve(
    members: list[Member], support: tuple[float, float], pools: Sequence[Pool], *, detailed: bool
) -> tuple[Grid, Array]:
    """Lay a grid; return also how much of each component's mass it does not find.

    A density integrates to one, so what is missing tells when the break points were too few.
    """
    line = Line(break_points(members, support, detailed=detailed), support)
    evaluate = components(members)
    grid = Grid.lay(evaluate, line).refined(evaluate, *pools)
    each = general_pools(len(members))[: len(members)]
    missing = np.abs(1.0 - np.exp(grid.integrate(*each).log_value))
    for k, member in enumerate(members):
        low, high = member.model.likelihood.support or (-np.inf, np.inf)
        if not (member.model.is_complete and support[0] <= low and high <= support[1]):
            missing[k] = 0.0  # part of it lies where the pool is zero
    return grid, missing


def _all_outcomes(members: list[Member], support: tuple[float, float]) -> tuple[Nodes, Array]:
    """Sum over all outcomes from the lowest to where no component has mass left."""
    obs = members[0].obs
    rows = np.arange(obs.stop - obs.start)
    bulks = np.stack([m.model.bulks(obs, MULTIPLES, detailed=False).max() for m in members])
    low = support[0]
    width = max(8.0, float(bulks.max()) - low, np.max(members[0].model.observations.values) - low)
    while True:
        high = min(support[1], low + np.ceil(width))
        outcomes = np.arange(low, high + 1)
        logp = components(members)(np.repeat(outcomes[:, None], rows.size, axis=1), rows)
        missing = np.abs(1.0 - np.exp(log_sum_exp(logp, axis=1)))
        if (missing < _MISSING**1.5).all() or high == support[1] or width > _MOST_OUTCOMES:
            return Nodes(logp, np.zeros(logp.shape[1:])), missing
        width *= 2
