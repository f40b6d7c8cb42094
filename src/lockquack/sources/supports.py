"""Where a density ends and how it behaves there, by its name or by looking at it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lockquack.families import Edge, Range, find_family
from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.sources.probing import evaluate_some, some_observations, spread

#: Draws of a chain that are enough to see where a support ends, and how fast a tail falls.
_VERY_FEW_DRAWS, _FEW_DRAWS = 8, 32
#: Log densities that a number between 0 and 1 can hardly hold.
_TOO_SMALL = -600.0


class _UnknownRanges(dict[str, Range]):
    """Ranges of parameters nobody has looked at: orders that depend on them become NaN."""

    def __missing__(self, name: str) -> Range:
        return Range(np.nan, np.nan)


def find_edges(source: Source, names: Sequence[str]) -> tuple[tuple[Edge, ...], str]:
    """Where the density ends and how, and what is wrong with that."""
    families = [family for name in names if (family := find_family(name)) is not None]
    if names and len(families) == len(names):
        each = [family.edges(_UnknownRanges()) for family in families]
        if len({tuple(edge.at for edge in of_part) for of_part in each}) > 1:
            return (), "its components end at different places, where it has kinks"
        edges = tuple(
            Edge(at_end[0].at, float(np.min([edge.order for edge in at_end])))  # NaN, if one is
            for at_end in zip(*each, strict=True)
        )
    elif len(set(names)) > 1:
        return (), "its components may end at different places, where it has kinks"
    elif source.observations.d > 1:
        return (), ""
    else:
        ends = [_find_end(source, side) for side in (-1.0, 1.0)]
        if None in ends:
            return (), "its support ends at a place that depends on its parameters"
        edges = tuple(Edge(end, np.nan) for end in ends if end is not None)
    is_power = len(families) > 0  # so are all whose order their parameters determine
    found = tuple(
        Edge(edge.at, _order(source, edge.at, side, is_power=is_power))
        if np.isnan(edge.order)
        else edge
        for edge, side in zip(edges, (-1.0, 1.0), strict=True)
    )
    unclear = [edge.at for edge in found if np.isnan(edge.order)]
    return found, f"its density near {unclear[0]:g} is not a number" if unclear else ""


def _find_end(source: Source, side: float) -> float | None:
    """Find where the density ends on one side: ±inf, a number, or None where that varies.

    Distances from the observations are bisected between possible and impossible outcomes, for
    some draws at once.
    """
    obs = some_observations(source)
    y, unit = source.observations.values[obs, 0], spread(source)

    def possible(distance: Array) -> tuple[Array, Array]:
        """Whether outcomes at (point, obs) distances are possible in all, in any of the draws."""
        logp = np.concatenate(
            list(evaluate_some(source, y + side * distance, obs, _VERY_FEW_DRAWS)),
            axis=1,
        )
        inside = np.isfinite(logp)
        return inside.all(axis=1), inside.any(axis=1)

    reach = unit * 10.0 ** np.linspace(-2.0, 8.0, 21)[:, None] * np.ones(y.size)
    everywhere, somewhere = possible(reach)
    if everywhere.all():
        return side * np.inf
    ends = []
    for which, inside in ((0, everywhere), (1, somewhere)):
        first = np.argmin(inside, axis=0)
        high = np.where(inside.all(axis=0), np.inf, reach[first, np.arange(y.size)])
        low = np.where(first > 0, reach[first - 1, np.arange(y.size)], 0.0)
        for _ in range(60):
            half = np.where(np.isinf(high), low, (low + high) / 2)
            good = possible(half[None])[which][0]
            low, high = np.where(good, half, low), np.where(good, high, half)
        ends.append(y + side * low)
    place = np.concatenate(ends)
    meant = _meant(float(np.median(place)), unit)
    if np.ptp(place) < 1e-6 * unit and meant is not None:
        return meant
    # A density that only becomes too small for a number, as far out in a tail, does not end.
    deep = list(evaluate_some(source, ends[0][None], obs, _VERY_FEW_DRAWS))
    if np.nanmin(np.concatenate(deep, axis=1)) < _TOO_SMALL:
        return side * np.inf
    return None if np.ptp(place) > 1e-6 * unit else float(np.median(place))


def _meant(place: float, unit: float) -> float | None:
    """Round to a number at which a support is likely to end, if one is near."""
    for end in (round(place), np.copysign(np.pi, place)):
        if abs(place - end) < 1e-9 * max(unit, abs(place)):
            return float(end)
    return None


def _order(source: Source, end: float, side: float, *, is_power: bool) -> float:
    """Lowest order of the density at an end of its support, over all draws and observations.

    At a finite end it is the slope of the log density over the log distance, infinite where that
    keeps growing, unless it is known not to; at an infinite one, where less depends on it, the
    rate of decay in some draws.
    """
    unit = spread(source)
    n_draws = source.n_draws
    if np.isinf(end):
        n_draws = _FEW_DRAWS
        distances = unit * np.array([1e3, 1e4, 1e5])
        points = np.median(source.observations.values) + side * distances
    else:
        depth = np.array([1e-8, 1e-16, 1e-32]) if end == 0 else np.array([1e-4, 1e-7, 1e-10])
        distances = max(unit, abs(end)) * (depth[:2] if is_power else depth)
        points = end - side * distances
    y = np.repeat(points[:, None], source.n_obs, axis=1)
    lowest = np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        for logp in evaluate_some(source, y, slice(0, source.n_obs), n_draws):
            step = np.diff(logp, axis=0)
            if np.isinf(end):
                near, far = -step / np.diff(distances)[:, None, None]
                order = np.where(far > 1.5 * near, np.inf, np.where(1.5 * far < near, 0.0, far))
            else:
                slope = step / np.diff(np.log(distances))[:, None, None]
                near, far = slope[0], slope[-1]
                order = np.where(far > near + 0.1 * np.maximum(1.0, np.abs(near)), np.inf, far)
            order = np.where(np.isneginf(logp[-1]), np.inf, order)
            lowest = float(np.minimum(lowest, order.min()))  # NaN, if there is one
    return lowest
