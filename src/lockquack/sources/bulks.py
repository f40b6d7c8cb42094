"""Where a prediction has its mass, found by looking at its density on ever finer grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lockquack.jets import Array, log_sum_exp
from lockquack.models.source import Source
from lockquack.sources.probing import evaluate_some, spread

#: Draws of a chain that are enough to see where a prediction is, and to see its extremes.
_FEW_DRAWS, _MANY_DRAWS = 32, 256
#: Draws of which places and widths of predictions are taken where each tells its own.
DRAWS_OF_BULKS = 400
#: Modes that are followed, each with its own break points.
_MODES = 3
#: Rounds, each of which makes a grid eight times finer.
_ZOOMS = 16
#: Powers of ten of the outcomes' spread that are looked at, either side of an observation.
_REACH = np.linspace(-8.0, 8.0, 33)

#: Location and width of some part of a prediction, each (obs,).
Bulk = tuple[Array, Array]


def search_bulks(source: Source, obs: slice, multiples: Array, *, detailed: bool) -> Array:
    """Find the modes on ever finer grids; see :meth:`Source.bulks`.

    In detail, each chain is looked at by itself, and so are its narrowest and its outermost draws.
    """
    bulks = find_bulks(source, obs, range(source.n_chains))
    if detailed:
        for chain in range(source.n_chains):
            bulks += find_bulks(source, obs, [chain]) + extreme_draws(source, obs, chain)
    return places_of(bulks, multiples, source.likelihood.support)


def places_of(
    bulks: Sequence[Bulk], multiples: Array, support: tuple[float, float] | None
) -> Array:
    """Outcomes at multiples of the widths around bulks, (bulk, multiple, obs)."""
    points = np.stack([place + multiples[:, None] * width for place, width in bulks])
    return np.clip(points, *(support or (-np.inf, np.inf)))


def bulk_of_draws(location: Array, spread: Array) -> Bulk:
    """Middle and width of a mixture of draws, (draw, obs)."""
    width = np.sqrt(np.square(spread).mean(axis=0) + location.var(axis=0))
    return location.mean(axis=0), width


def find_bulks(source: Source, obs: slice, chains: Sequence[int]) -> list[Bulk]:
    """Locate the modes of the prediction, and its mass as a whole, from some draws."""
    support = source.likelihood.support or (-np.inf, np.inf)

    def prediction(y: Array) -> Array:
        """Log density up to a constant, (point, obs); −inf where it is no number."""
        parts = [
            log_sum_exp(np.where(logp < np.inf, logp, -np.inf), axis=1)
            for logp in evaluate_some(source, y, obs, _FEW_DRAWS, chains)
        ]
        return log_sum_exp(np.stack(parts))

    y = source.observations.values[obs, 0]
    grid = _around(y, spread(source) * 10.0**_REACH, support)
    peaks = [_zoom(prediction, low, high) for low, high in _brackets(grid, prediction(grid))]
    whole = _either(peaks[0], (y, np.full(y.shape, spread(source))))
    grid = _around(whole[0], whole[1] * 10.0 ** np.linspace(-1.0, 9.0, 61)[:, None], support)
    whole = _mass(grid, prediction(grid), whole)
    grid = np.clip(whole[0] + whole[1] * np.linspace(-5.0, 5.0, 65)[:, None], *support)
    whole = _mass(grid, prediction(grid), whole)
    return [whole, *(_either(peak, whole) for peak in peaks)]


def _either(bulk: Bulk, fallback: Bulk) -> Bulk:
    """Put the fallback where a bulk has no width."""
    known = np.isfinite(bulk[1])
    return np.where(known, bulk[0], fallback[0]), np.where(known, bulk[1], fallback[1])


def _around(y: Array, distances: Array, support: tuple[float, float]) -> Array:
    """Points at given distances from y and, near ends of the support, from these; sorted."""
    distances = distances.reshape(len(distances), -1)
    points = [y[None], y - distances, y + distances]
    for end in support:
        if np.isfinite(end):
            points = [np.clip(part, *support) for part in points]
            points.append(end + (y - end) * 10.0 ** -np.linspace(0.5, 8.0, 16)[:, None])
    return np.sort(np.concatenate(points), axis=0)


def _brackets(grid: Array, logp: Array) -> list[tuple[Array, Array]]:
    """Neighbours in the grid of its highest local maxima, the highest first."""
    padded = np.pad(logp, ((1, 1), (0, 0)), constant_values=-np.inf)
    is_peak = (logp >= padded[:-2]) & (logp > padded[2:])
    order = np.argsort(np.where(is_peak, -logp, np.inf), axis=0, kind="stable")[:_MODES]
    column = np.arange(grid.shape[1])
    order = np.where(is_peak[order, column], order, order[0])
    last = len(grid) - 1
    return [
        (grid[np.maximum(at - 1, 0), column], grid[np.minimum(at + 1, last), column])
        for at in order
    ]


def _zoom(prediction: Callable[[Array], Array], low: Array, high: Array) -> Bulk:
    """Narrow brackets of a maximum until the grid resolves it; return its place and width.

    Where the density has a pole, which no grid resolves, the width is NaN.
    """
    column = np.arange(low.size)
    for _ in range(_ZOOMS):
        points = low + np.linspace(0.0, 1.0, 17)[:, None] * (high - low)
        logp = prediction(points)
        at = np.clip(np.argmax(logp, axis=0), 1, len(points) - 2)
        left, middle, right = (logp[at + k, column] for k in (-1, 0, 1))
        with np.errstate(invalid="ignore"):
            drop = np.maximum(middle - left, middle - right)
        coarse = ~(drop < 1.0) & (high > low)
        if not coarse.any():
            break
        low = np.where(coarse, points[at - 1, column], low)
        high = np.where(coarse, points[at + 1, column], high)
    width = _width(left, middle, right, points[1] - points[0], high - low)
    return points[at, column], np.where(coarse, np.nan, width)


def _width(left: Array, middle: Array, right: Array, step: Array, fallback: Array) -> Array:
    """Width of a peak from its bend, or a fallback where it has none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        width = step / np.sqrt(2.0 * middle - left - right)
    return np.where(np.isfinite(width) & (width > 0), width, fallback)


def _mass(grid: Array, logp: Array, fallback: Bulk) -> Bulk:
    """Median and half the central two thirds of what lies under the points of a grid."""
    peak = logp.max(axis=0)
    density = np.exp(logp - np.where(np.isfinite(peak), peak, 0.0))
    pieces = np.diff(grid, axis=0) * (density[1:] + density[:-1]) / 2
    total = np.concatenate([np.zeros((1, grid.shape[1])), np.cumsum(pieces, axis=0)])
    places, widths = fallback[0].copy(), fallback[1].copy()
    for i in np.flatnonzero(total[-1] > 0):
        low, middle, high = np.interp([1 / 6, 1 / 2, 5 / 6], total[:, i] / total[-1, i], grid[:, i])
        if high > low:
            places[i], widths[i] = middle, (high - low) / 2
    return places, widths


def extreme_draws(source: Source, obs: slice, chain: int) -> list[Bulk]:
    """Locate the narrowest and the outermost single draws of a chain."""
    place, width = find_bulks(source, obs, [chain])[0]
    points = place + width * np.linspace(-6.0, 6.0, 49)[:, None]
    places, widths = [], []
    for logp in evaluate_some(source, points, obs, _MANY_DRAWS, [chain]):
        at = np.clip(np.argmax(logp, axis=0), 1, len(points) - 2)[None]  # (1, draws, obs)
        left, middle, right = (np.take_along_axis(logp, at + k, axis=0)[0] for k in (-1, 0, 1))
        places.append(np.take_along_axis(points[:, None], at, axis=0)[0])
        widths.append(_width(left, middle, right, points[1] - points[0], width))
    location, spread = np.concatenate(places), np.concatenate(widths)  # (draws, obs)
    column = np.arange(place.size)
    chosen = (spread.argmin(axis=0), location.argmin(axis=0), location.argmax(axis=0))
    return [(location[draw, column], spread[draw, column]) for draw in chosen]
