"""Densities of one observation on a grid, and how observations are named: what pictures need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lockquack.errors import ParameterError, unknown_name
from lockquack.jets import Array
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.operators.pool import OneModel, Pooling
from lockquack.plots import DensityPanel
from lockquack.prediction.nodes import lay_nodes
from lockquack.prediction.pooled import PooledDistribution

#: Points of a curve.
_POINTS = 400
#: Probability beyond either end of a curve, unless its tails are heavy.
_BEYOND = 0.002


def locate(observations: Observations, obs: Any) -> int:
    """Find the position of an observation: given as such, by its label, or by labels.

    Examples
    --------
    >>> import xarray as xr
    >>> from lockquack.models.observations import as_observations
    >>> y = xr.DataArray([1.0, 2.0], coords={"city": ["Oslo", "Turku"]}, dims="city")
    >>> [locate(as_observations(y), obs) for obs in (1, -1, "Turku", {"city": "Turku"})]
    [1, 1, 1, 1]
    """
    if isinstance(obs, int | np.integer) and not isinstance(obs, bool):
        if not -observations.n <= obs < observations.n:
            raise ParameterError(
                f"There is no observation {obs}: there are {observations.n}, from 0 on."
            )
        return int(obs) % observations.n
    labels = obs if isinstance(obs, Mapping) else {observations.dims[0]: obs}
    if set(labels) != set(observations.dims):
        raise ParameterError(
            f"An observation is given by its position, or by a label for each of its dimensions "
            f"{observations.dims}; got {obs!r}."
        )
    index = []
    for dim in observations.dims:
        known = observations.coords.get(dim, np.arange(observations.sizes[dim]))
        found = np.flatnonzero(known == labels[dim])
        if not found.size:
            raise unknown_name(f"{dim}", labels[dim], map(str, known))
        index.append(int(found[0]))
    return int(np.ravel_multi_index(index, observations.shape))


def short_name(observations: Observations, index: int) -> str:
    """Labels of an observation, or its position."""
    position = np.unravel_index(index, observations.shape)
    labels = [
        str(observations.coords[dim][i])
        for dim, i in zip(observations.dims, position, strict=True)
        if dim in observations.coords
    ]
    return ", ".join(labels) or str(index)


def density_panel(
    members: Mapping[str, Source],
    pools: Mapping[str, Pooling],
    position: int,
    observations: Observations,
    *,
    loo: bool,
    models: bool = True,
    known: bool = True,
) -> DensityPanel:
    """Evaluate models and pools for one observation, where there is something to see.

    Without ``models`` these are left out, and without ``known`` what was observed.
    """
    one = slice(position, position + 1)
    pools = {name: pool.at(one) for name, pool in pools.items()}
    each = {name: OneModel(k) for k, name in enumerate(members)}
    nodes = lay_nodes(
        members,
        loo=loo,
        pools=[*pools.values(), *each.values()],
        slices=[one],
        of_all=False,
        what="densities cannot be drawn",
        progressbar=False,
    )
    combined = {name: PooledDistribution(members, pool, loo, nodes) for name, pool in pools.items()}
    single = {name: PooledDistribution(members, pool, loo, nodes) for name, pool in each.items()}
    observed = [float(observations.values[position, 0])] if known else []
    drawn = single if models else {}
    ends = [_ends(each) for each in (*drawn.values(), *combined.values())]
    low = min([*observed, *(each[0] for each in ends)])
    high = max([*observed, *(each[1] for each in ends)])
    discrete = next(iter(combined.values())).discrete
    y = np.arange(low, high + 1) if discrete else np.linspace(low, high, _POINTS)
    logp = next(iter(combined.values())).log_components(y[:, None])

    def density(of: PooledDistribution) -> Array:
        return np.exp(of.pool(logp, np.zeros(1, dtype=np.intp)) - of.log_norm)[:, 0]

    return DensityPanel(
        y,
        {name: density(of) for name, of in drawn.items()},
        {name: density(of) for name, of in combined.items()},
        observed[0] if known else None,
        observations.describe(position),
        discrete,
    )


def _ends(distribution: PooledDistribution) -> tuple[float, float]:
    """Where a curve begins and ends; heavy tails are cut, lest nothing else can be seen."""
    levels = np.array([_BEYOND, 0.05, 0.95, 1.0 - _BEYOND])
    lowest, low, high, highest = distribution.quantile(levels)[:, 0]
    reach = high - low
    return float(max(lowest, low - reach)), float(min(highest, high + reach))
