"""Densities of models and of pools of them over the bulk of an observation, to be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.operators.pool import OneModel, Pooling
from lockquack.parallel.threads import small_products
from lockquack.prediction.nodes import NodeGroup, are_laid, lay_nodes
from lockquack.prediction.pooled import GroupDistribution
from lockquack.quadrature.grid import Rows

#: Points of a curve, and the probability beyond either end of it, unless its tails are heavy.
_POINTS, _BEYOND = 400, 0.002


@dataclass(frozen=True)
class Curve:
    """Densities, or probabilities, at outcomes of one observation."""

    y: Array  # (point,)
    densities: Mapping[str, Array]  # (point,), of models and pools
    discrete: bool


def curves_of(
    models: Mapping[str, Source],
    pools: Mapping[str, Pooling],
    positions: Sequence[int],
    observed: Array | None,
    *,
    loo: bool,
    models_too: bool,
) -> list[Curve]:
    """Evaluate pools, and models if they are drawn, over the bulk of some observations.

    What is observed, (n,), lies within the curve.
    """
    wanted = {**{name: OneModel(k) for k, name in enumerate(models)}, **pools}
    drawn = wanted if models_too else pools
    found: dict[int, Curve] = {}
    with small_products():
        for group in _groups(models, list(wanted.values()), sorted(set(positions)), loo=loo):
            chosen = [i for i in set(positions) if group.obs.start <= i < group.obs.stop]
            if chosen:
                of = partial(GroupDistribution, tuple(models.values()), loo=loo, group=group)
                each = {name: of(pool.at(group.obs)) for name, pool in drawn.items()}
                rows = np.array(chosen) - group.obs.start
                known = None if observed is None else observed[chosen]
                found |= zip(chosen, _curves(each, rows, known), strict=True)
    return [found[position] for position in positions]


def _groups(
    models: Mapping[str, Source], pools: Sequence[Pooling], positions: list[int], *, loo: bool
) -> list[NodeGroup]:
    """Lay nodes for the observations that are asked for, or take those of all that are there."""
    slices = None
    if not are_laid(models, loo=loo, of_all=False):
        slices = [slice(i, i + 1) for i in positions]
        pools = [pool.at(slice(positions[0], positions[-1] + 1)) for pool in pools]
    return lay_nodes(
        models,
        loo=loo,
        pools=pools,
        slices=slices,
        of_all=False,
        what="densities cannot be drawn",
        progressbar=False,
    )


def _curves(
    each: Mapping[str, GroupDistribution], rows: Rows, observed: Array | None
) -> list[Curve]:
    """Evaluate all distributions at the same outcomes of each row."""
    first = next(iter(each.values()))
    ends = [_ends(of, rows) for of in each.values()]
    if observed is not None:
        ends.append((observed, observed))
    low, high = np.min([a for a, _ in ends], axis=0), np.max([b for _, b in ends], axis=0)
    y = _whole(low, high) if first.discrete else np.linspace(low, high, _POINTS)
    logp = _log_components(list(each.values()), y, rows)
    densities = {name: np.exp(_log_density(of, logp, y, rows)) for name, of in each.items()}
    known = [~np.isnan(column) for column in y.T]
    return [
        Curve(y[some, i], {name: of[some, i] for name, of in densities.items()}, first.discrete)
        for i, some in enumerate(known)
    ]


def _log_components(each: Sequence[GroupDistribution], y: Array, rows: Rows) -> Array:
    """Log densities of the models at outcomes (point, row), (K, point, row).

    Interpolated between the nodes that all the pools share, where that is as good.
    """
    first = each[0]
    nodes = first.group.smooth(first.evaluate, *(of.pool for of in each))
    if nodes is not None:
        low, high = (end[rows] for end in nodes.ends())
        if ((low <= y) & (y <= high)).all():
            return nodes.interpolate(y, rows)
    return first.evaluate(y, rows)


def _log_density(of: GroupDistribution, logp: Array, y: Array, rows: Rows) -> Array:
    """Log density of a distribution at outcomes (point, row), from those of the models."""
    everywhere = np.full((len(y), of.norms.shape[1]), np.nan)
    everywhere[:, rows] = y
    return of.pool(logp, rows) - of.norms[0, rows] + of.log_factor(everywhere)[:, rows]


def _whole(low: Array, high: Array) -> Array:
    """Whole numbers from low to high in columns, which end in NaN where others are longer."""
    y = low + np.arange(int((high - low).max()) + 1)[:, None]
    return np.where(y <= high, y, np.nan)


def _ends(of: GroupDistribution, rows: Rows) -> tuple[Array, Array]:
    """Return where curves begin and end; heavy tails are cut to keep the bulk visible."""
    levels = np.array([_BEYOND, 0.05, 0.95, 1.0 - _BEYOND])
    lowest, low, high, highest = of.quantile(levels)[:, rows]
    reach = high - low
    return np.maximum(lowest, low - reach), np.minimum(highest, high + reach)
