"""Which models the score cannot tell apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from lockquack.fitting.convex import ConvexFitter
from lockquack.jets import Array

#: Weight that must be at stake before the question matters.
_MASS = 0.05
#: Monte Carlo standard errors within which two scores count as equal.
_ERRORS = 3.0
#: Share of a direction below which a model does not count as part of it.
_LOADING = 0.1
#: Share of the way to a weight of zero: with any weight a model excludes outcomes, without it not.
_INSIDE = 1.0 - 1e-9


def duplicates(
    fitter: ConvexFitter, weights: Array, mcse: Array, size: float
) -> list[tuple[int, ...]]:
    """Group models that are alike: no pool of two of them scores differently from another.

    Differently means by more than three Monte Carlo standard errors, and by more than the
    rounding error of a total of the given ``size``. Weights within a group are not identified;
    their sum is. Groups with next to no weight are left out.
    """
    groups: list[set[int]] = []
    for j, k in combinations(range(weights.size), 2):
        if weights[j] + weights[k] < _MASS:
            continue
        one, other = np.eye(weights.size)[[j, k]]
        change = fitter.score_range(one, other - one, 0.0, 1.0)
        if change <= _ERRORS * np.hypot(mcse[j], mcse[k]) + 1e-9 * size:
            groups = _merge(groups, {j, k})
    return sorted(tuple(sorted(group)) for group in groups)


def collinear(
    fitter: ConvexFitter, weights: Array, mcse: Array, size: float
) -> list[tuple[int, ...]]:
    """Group models among which some shift of weight leaves the score unchanged in that sense."""
    slopes = fitter.weight_slopes(weights)
    # A model without weight belongs here too if it might as well have some.
    undecided = slopes - slopes @ weights <= _ERRORS * mcse + 1e-9 * size
    face = (weights > 0.1 / weights.size) | undecided
    groups: list[set[int]] = []
    for direction in fitter.flat_directions(weights, face):
        moved = _main_part(direction)
        first, last = (_INSIDE * end for end in reach(weights, moved))
        if last - first < _MASS:
            continue
        error = (last - first) * np.sqrt(np.square(moved) @ np.square(mcse))
        if fitter.score_range(weights, moved, first, last) <= _ERRORS * error + 1e-9 * size:
            groups = _merge(groups, set(np.flatnonzero(moved).tolist()))
    return sorted(tuple(sorted(group)) for group in groups)


def reach(weights: Array, direction: Array) -> tuple[float, float]:
    """How far weight can move either way along a direction before one weight reaches zero."""
    moving = direction != 0
    steps = -weights[moving] / direction[moving]
    backward, forward = steps[direction[moving] > 0], steps[direction[moving] < 0]
    return float(backward.max(initial=-np.inf)), float(forward.min(initial=np.inf))


def _main_part(direction: Array) -> Array:
    """Keep the models with a real share in a direction; their moves still cancel.

    Where one model moves against many that move a little each, all of them are its main part.
    """
    members = np.abs(direction) > _LOADING * np.abs(direction).max()
    kept = np.where(members, direction, 0.0)
    if np.abs(kept.sum()) > 0.5 * np.abs(kept).sum():
        members, kept = direction != 0, direction.copy()
    kept[members] -= kept.sum() / members.sum()
    return kept / np.abs(kept).sum() * 2.0


def _merge(groups: list[set[int]], found: set[int]) -> list[set[int]]:
    """Add a group, joined with those that share a member."""
    apart = [group for group in groups if not group & found]
    touching = [group for group in groups if group & found]
    return [*apart, found.union(*touching)]
