"""Where a density ends and how it behaves there, by its name or by looking at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lockquack.families import Edge, Range, find_family, worst_edges
from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.sources.probing import evaluate_some, some_observations, spread

#: Draws of a chain that are enough to see where a support ends, and how fast a tail falls.
_VERY_FEW_DRAWS, _FEW_DRAWS = 8, 32
#: Observations, and draws of a chain, whose own ends are looked for where these differ.
_FEW_OBSERVATIONS, _FEW_ENDS = 8, 4
#: Log densities that a number between 0 and 1 can hardly hold.
_TOO_SMALL = -600.0
#: How far from the observed ones whole numbers are looked at.
_OUT_OF_SIGHT = 2.0**24
#: Whole numbers beside the observed ones among which nearly all probability must be.
_BESIDE = 2000


class _UnknownRanges(dict[str, Range]):
    """Ranges of parameters that are not known: orders that depend on them become NaN."""

    def __missing__(self, name: str) -> Range:
        return Range(np.nan, np.nan)


def find_edges(source: Source, names: Sequence[str]) -> tuple[tuple[Edge, ...], str]:
    """Where the density ends and how, and what is wrong with that."""
    families = [family for name in names if (family := find_family(name)) is not None]
    if names and len(families) == len(names):
        each = [family.edges(_UnknownRanges()) for family in families]
        if len({tuple(edge.at for edge in of_part) for of_part in each}) > 1:
            return (), "its components end at different places, where it has kinks"
        edges = worst_edges(edge for of_part in each for edge in of_part)
    elif len(set(names)) > 1:
        return (), "its components may end at different places, where it has kinks"
    elif source.observations.d > 1:
        return (), ""
    else:
        edges = tuple(_end(source, side) for side in (-1.0, 1.0))
        moving = [edge.order for edge in edges if np.isnan(edge.at)]
        if moving:
            return (), (
                "its support ends at a place that depends on its parameters, where it goes like "
                f"distance^{round(min(moving), 2) + 0.0:g}; more than 1 is needed"
            )
    is_power = len(families) > 0  # so are all whose order their parameters determine
    found = tuple(
        Edge(edge.at, _order(source, edge.at, side, is_power=is_power))
        if np.isnan(edge.order)
        else edge
        for edge, side in zip(edges, (-1.0, 1.0), strict=True)
    )
    unclear = [edge.at for edge in found if np.isnan(edge.order)]
    return found, f"its density near {unclear[0]:g} is not a number" if unclear else ""


def find_ends(source: Source) -> tuple[Edge, ...]:
    """First and last outcome that is possible in some draw and observation.

    Whole numbers are gone away from the observed ones in steps that double, then bisected. Those
    of vectors are not looked for, and what is found is nothing unless probabilities add up to one:
    a log density that somebody wrote for 0 and 1 may go on to 2.
    """
    if source.observations.d > 1:
        return ()
    y = source.observations.values[:, 0]

    def possible(outcome: float) -> bool:
        everywhere = np.full((1, y.size), outcome)
        looked = evaluate_some(source, everywhere, slice(0, y.size), _VERY_FEW_DRAWS)
        return any(bool(np.isfinite(logp).any()) for logp in looked)

    low, high = (
        _last_possible(float(start), side, possible)
        for start, side in ((y.min(), -1.0), (y.max(), 1.0))
    )
    few = np.unique(np.linspace(0, y.size - 1, _FEW_OBSERVATIONS).astype(np.intp))
    looked_at = np.arange(max(low, y.min() - _BESIDE), min(high, y.max() + _BESIDE) + 1)
    each = np.repeat(looked_at[:, None], few.size, axis=1)
    for logp in evaluate_some(source, each, few, _VERY_FEW_DRAWS):
        mass = np.exp(logp).sum(axis=0)
        if mass.min() < 0.99 or mass.max() > 1 + 1e-6:
            return ()
    return Edge(low, 0.0), Edge(high, 0.0)


def _last_possible(start: float, side: float, possible: Callable[[float], bool]) -> float:
    """Return the last whole number on one side, ±inf where it is out of sight."""
    near, far = 0.0, 1.0
    while possible(start + side * far):
        near, far = far, 2 * far
        if far > _OUT_OF_SIGHT:
            return side * np.inf
    while far - near > 1:
        half = np.floor((near + far) / 2)
        near, far = (half, far) if possible(start + side * half) else (near, half)
    return start + side * near


def _end(source: Source, side: float) -> Edge:
    """Find where the density ends on one side; its order there is not known yet (NaN).

    A place that differs between draws or observations is NaN with the lowest order there. Where
    that is more than 1, density and gradient vanish together wherever it is, and the average
    over draws goes on smoothly: it has no edge.
    """
    end = _find_end(source, side)
    if end is not None:
        return Edge(end, np.nan)
    order = _order_where_draws_end(source, side)
    return Edge(side * np.inf, np.inf) if order > 1 else Edge(np.nan, order)


def _order_where_draws_end(source: Source, side: float) -> float:
    """Lowest order of the densities of some draws, each at the end of its own support."""
    obs = some_observations(source)[:_FEW_OBSERVATIONS]
    y, unit = source.observations.values[obs, 0], spread(source)
    distances = unit * np.array([1e-2, 1e-4, 1e-6])
    orders = []
    with np.errstate(all="ignore"):
        for chain in range(source.n_chains):
            for at in np.unique(np.linspace(0, source.n_draws - 1, _FEW_ENDS).astype(int)):
                draw = slice(int(at), int(at) + 1)

                def logp(outcomes: Array, chain: int = chain, draw: slice = draw) -> Array:
                    return source.logp_at(outcomes[..., None], chain, draw, obs)[:, 0]

                inside = np.zeros(y.size)
                beyond = np.full(y.size, 1e9 * unit)
                for _ in range(80):
                    half = (inside + beyond) / 2
                    good = np.isfinite(logp((y + side * half)[None])[0])
                    inside, beyond = np.where(good, half, inside), np.where(good, beyond, half)
                ends = y + side * inside
                near = logp(ends - side * distances[:, None])
                orders.append(_slope_order(near, distances[:, None]).min())
    return float(np.min(orders))


def _slope_order(logp: Array, distances: Array) -> Array:
    """Slope of the log density over the log distance; infinite where it keeps growing."""
    slope = np.diff(logp, axis=0) / np.diff(np.log(distances), axis=0)
    near, far = slope[0], slope[-1]
    return np.where(far > near + 0.1 * np.maximum(1.0, np.abs(near)), np.inf, far)


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
    steps = unit * np.array([0.0, 1e-9, 1e-6])[:, None]
    deep = np.concatenate(
        list(evaluate_some(source, ends[0] - side * steps, obs, _VERY_FEW_DRAWS)), axis=1
    )
    # There, it hardly changes within a small distance, as it does at an end.
    fades = (deep[0] < _TOO_SMALL) & (np.abs(deep[2] - deep[1]) < 0.01 * np.abs(deep[1]))
    if fades.any():
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
            if np.isinf(end):
                near, far = -np.diff(logp, axis=0) / np.diff(distances)[:, None, None]
                order = np.where(far > 1.5 * near, np.inf, np.where(1.5 * far < near, 0.0, far))
            else:
                order = _slope_order(logp, distances[:, None, None])
            order = np.where(np.isneginf(logp[-1]), np.inf, order)
            lowest = float(np.minimum(lowest, order.min()))  # NaN, if there is one
    return lowest
