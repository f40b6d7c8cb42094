"""Looking at a density from outside: at some draws, some observations, any outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array
from lockquack.models.source import Source, Subset

#: Numbers that are evaluated at once while looking around.
AT_ONCE = 2**18
_SOME_OBSERVATIONS = 64


def evaluate_some(
    source: Source, y: Array, obs: Subset, n_draws: int, chains: Sequence[int] = ()
) -> Iterator[Array]:
    """Go through log densities (point, draws, obs) of up to so many draws of each chain."""
    if source.likelihood.discrete:
        y = np.round(y)
    step = -(-source.n_draws // n_draws)
    length = step * max(1, AT_ONCE // y.size)
    for chain in chains or range(source.n_chains):
        for start in range(0, source.n_draws, length):
            draws = slice(start, min(start + length, source.n_draws), step)
            with np.errstate(all="ignore"):  # far out, and outside the support
                yield source.logp_at(y[..., None], chain, draws, obs)


def spread(source: Source) -> float:
    """Spread of the outcomes, or their size, or one: a number of the order of their differences."""
    y = source.observations.values
    return float(y.std() or np.abs(y).max() or 1.0)


def some_observations(source: Source) -> NDArray[np.intp]:
    """Positions of a few observations, from the first to the last."""
    return np.unique(np.linspace(0, source.n_obs - 1, _SOME_OBSERVATIONS).astype(np.intp))


def separating(n: int) -> list[NDArray[np.bool_]]:
    """Choose sets of n observations: of any two, some set has the first and not the second.

    They are those whose number has a certain binary digit, and those whose number has not. Move
    the outcomes of each set in turn, and no dependence of one observation on another escapes.

    Examples
    --------
    >>> [mask.astype(int).tolist() for mask in separating(3)]
    [[0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0]]
    """
    digits = [(np.arange(n) >> place) % 2 == 1 for place in range((n - 1).bit_length())]
    return [mask for digit in digits for mask in (digit, ~digit)]
