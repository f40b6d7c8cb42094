"""Looking at a density from outside: at some draws, some observations, any outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.errors import UnsupportedError
from lockquack.jets import Array, Numeric
from lockquack.models.source import Source, Subset

#: Numbers that are evaluated at once while looking around.
AT_ONCE = 2**18
_SOME_OBSERVATIONS = 64
#: Outcomes that are moved one by one where log densities depend on each other's outcomes.
_MOVED = 1024


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


@dataclass(frozen=True)
class Dependence:
    """On which outcomes of others the log densities of the observations depend.

    Where they depend on earlier ones only, the terms of a likelihood are
    ``p(y_t | y_<t, θ)``: factors of its joint density, and what is left out is one of them.
    """

    #: How many observations back the farthest earlier outcome lies; 0 where there is none.
    reach: int = 0
    #: Whether any depends on the outcome of a later observation.
    on_later: bool = False

    @property
    def on_earlier(self) -> bool:
        """Whether any depends on the outcome of an earlier observation."""
        return self.reach > 0

    def __or__(self, other: Dependence) -> Dependence:
        """Put together what was seen in two draws."""
        return Dependence(max(self.reach, other.reach), self.on_later or other.on_later)

    def require_factors(self) -> None:
        """Refuse terms whose product is not the joint density of the outcomes."""
        if self.on_later:
            raise UnsupportedError(
                "The log density of one observation depends on the outcome of a later one, so the "
                "likelihood does not factorise. Terms may depend on earlier outcomes: put the "
                "observations in the order of time, or give other outcomes as covariates."
            )


def find_dependence(
    logp: Callable[[Array], Array], y: Array, *, discrete: bool = False
) -> Dependence:
    """Move outcomes, and see which log densities of other observations change.

    Parameters
    ----------
    logp
        Takes outcomes (observation, component) and returns log densities (observation,).
    y
        The observed outcomes.
    discrete
        Whether outcomes are whole numbers.

    Examples
    --------
    >>> y = np.arange(6.0)[:, None]
    >>> find_dependence(lambda y: -y[:, 0] ** 2, y)
    Dependence(reach=0, on_later=False)
    >>> find_dependence(lambda y: -(y[:, 0] - np.append([0, 0], y[:-2])) ** 2, y)
    Dependence(reach=2, on_later=False)
    >>> find_dependence(lambda y: -(y[:, 0] - np.append(y[1:], 0)) ** 2, y).on_later
    True
    >>> memory = np.tril(0.01 ** np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    >>> find_dependence(lambda y: -(memory @ y[:, 0]) ** 2, y)  # it fades away, but has no end
    Dependence(reach=5, on_later=False)
    """
    n = len(y)
    before, elsewhere = logp(y), moved_outcomes(y, discrete=discrete)

    def change(some: NDArray[np.bool_]) -> Array:
        """By how much log densities of other observations change when these outcomes move."""
        with np.errstate(invalid="ignore"):
            after = logp(np.where(some[:, None], elsewhere, y))
            same = np.isclose(after, before, rtol=1e-10, atol=1e-10, equal_nan=True)
            size = np.nan_to_num(np.abs(after - before), nan=np.inf)
        return np.where(same | some, 0.0, size)

    if not any(change(some).any() for some in separating(n)):
        return Dependence()
    largest = np.zeros(2 * n - 1)  # change by lag, from the most negative one
    for number in (min(n, _MOVED), n):  # all of them, if some tell nothing
        if not largest.any():
            for at in np.unique(np.linspace(0, n - 1, number).astype(int)):
                window = slice(n - 1 - at, 2 * n - 1 - at)
                largest[window] = np.maximum(largest[window], change(np.arange(n) == at))
    later, earlier = largest[: n - 1], largest[n:]
    return Dependence(_reach(earlier), bool(later.any() or not largest.any()))


def _reach(change: Array) -> int:
    """Return the largest lag at which there is a change, given those at lags 1, 2, ….

    Changes that have faded away before they end go on unseen: then all lags count.
    """
    seen = np.flatnonzero(change)
    if not seen.size:
        return 0
    faded = change[seen[-1]] < 1e-3 * change.max()
    return len(change) if faded else int(seen[-1]) + 1


def moved_outcomes(y: Array, *, discrete: bool = False) -> Array:
    """Return other outcomes near the observed ones, whole numbers where only they are possible.

    Examples
    --------
    >>> moved_outcomes(np.array([0.0, 1.0, 1.0, 0.0]), discrete=True)
    array([1., 0., 0., 1.])
    """
    if discrete:
        return np.where((y < y.max()) | (y.max() == y.min()), y + 1, y - 1)
    return y + 0.1 * (y.std() or np.abs(y).max() or 1.0)


def is_lagged(values: Numeric, y: Array) -> bool:
    """Whether an array holds the outcomes of earlier observations beside those of later ones.

    Parameters
    ----------
    values
        Data of a model, with a row for each observation and any other axes.
    y
        The outcomes (observation, component).

    Examples
    --------
    >>> y = np.array([0.3, 0.9, 0.4, 0.7, 0.1, 0.5])[:, None]
    >>> is_lagged(np.append([0.0, 0.0], y[:-2]), y), is_lagged(y[::-1], y)
    (True, False)
    """
    n = len(y)
    if values.dtype.kind not in "iuf" or values.shape[:1] != (n,):
        return False
    for column in values.reshape(n, -1).T:
        for component in y.T:
            lags = np.flatnonzero(column[1 : n // 2 + 1] == component[0]) + 1
            for lag in lags:
                earlier = component[: n - lag]
                if np.unique(earlier).size > 3 and np.array_equal(column[lag:], earlier):
                    return True
    return False
