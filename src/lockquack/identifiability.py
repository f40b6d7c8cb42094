"""Which models the score cannot tell apart."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from lockquack.fitting.base import Problem
from lockquack.jets import Array

#: Weight that must be free to move before the question matters.
_MASS = 0.01
#: Monte Carlo standard errors within which two scores count as equal.
_ERRORS = 3.0
#: Share of a direction below which a model does not count as part of it.
_LOADING = 0.1


def duplicates(problem: Problem, weights: Array, mcse: Array, size: float) -> list[tuple[int, ...]]:
    """Group models any two of which are alike, as far as weight can move between them.

    The score does not change by more than three Monte Carlo standard errors, nor by more than
    the rounding error of a total of the given ``size``. Weights within a group are not
    identified; their sum is.
    """
    at_stake = [p for p in combinations(range(weights.size), 2) if weights[list(p)].sum() > _MASS]
    pairs = np.array(at_stake, dtype=np.intp).reshape(-1, 2)
    directions = np.zeros((len(pairs), weights.size))
    directions[np.arange(len(pairs)), pairs[:, 0]] = 1.0
    directions[np.arange(len(pairs)), pairs[:, 1]] = -1.0
    return _groups(problem, weights, mcse, size, directions)


def collinear(problem: Problem, weights: Array, mcse: Array, size: float) -> list[tuple[int, ...]]:
    """Group models among which some shift of weight leaves the score unchanged in that sense."""
    return _groups(problem, weights, mcse, size, problem.flat_directions(weights))


def _groups(
    problem: Problem, weights: Array, mcse: Array, size: float, directions: Array
) -> list[tuple[int, ...]]:
    groups: list[set[int]] = []
    for direction in directions:
        moved = _main_part(direction)
        first, last = reach(weights, moved)
        if last - first < _MASS:
            continue
        error = (last - first) * np.sqrt(np.square(moved) @ np.square(mcse))
        if problem.score_range(weights, moved, first, last) <= _ERRORS * error + 1e-9 * size:
            groups = _merge(groups, set(np.flatnonzero(moved).tolist()))
    return sorted(tuple(sorted(group)) for group in groups)


def reach(weights: Array, direction: Array) -> tuple[float, float]:
    """How far weight can move either way along a direction before one weight reaches zero."""
    moving = direction != 0
    steps = -weights[moving] / direction[moving]
    backward, forward = steps[direction[moving] > 0], steps[direction[moving] < 0]
    return float(backward.max(initial=-np.inf)), float(forward.min(initial=np.inf))


def _main_part(direction: Array) -> Array:
    """Keep the models with a real share in a direction; their moves still cancel."""
    members = np.abs(direction) > _LOADING * np.abs(direction).max()
    kept = np.where(members, direction, 0.0)
    kept[members] -= kept.sum() / members.sum()
    return kept / np.abs(kept).sum() * 2.0


def _merge(groups: list[set[int]], found: set[int]) -> list[set[int]]:
    """Add a group, joined with those that share a member."""
    apart = [group for group in groups if not group & found]
    touching = [group for group in groups if group & found]
    return [*apart, found.union(*touching)]
