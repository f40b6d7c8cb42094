"""Outcomes that do not look like independent measurements: what to remark on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array
from lockquack.models.observations import Observations
from lockquack.remarks.base import Remark
from lockquack.remarks.numbers import (
    CoarseOutcomes,
    CodedOutcome,
    CopiedObservations,
    RepeatedOutcome,
    RoundedOutcomes,
)

#: Observations from which a pattern among them is looked for.
ENOUGH = 20
#: Share of the outcomes that is one value, and how many times as often as the next it occurs.
_REPEATED, _APART = 0.2, 3
#: Outcomes among which it is looked for.
_LOOKED_AT = 10_000
#: Rounding of the outcomes, in units of their standard deviation, that is too coarse.
_COARSE = 1e-3
#: How many times the range of all other outcomes a value is away that is a code for something.
_BEYOND = 3.0
#: Values that must occur more than once, and how many times as many equal pairs as rounding makes.
_FEWEST_COPIED, _TOO_MANY = 10, 3.0
#: Values that atoms may be, which occur often by themselves.
_ATOMS = 3
#: Share of equal outcomes that all models predict equally, where these are copies.
_SAME = 0.9
#: Share of the observations at which a model is narrower than the rounding.
_NARROW = 0.1


def examine_outcomes(
    observations: Observations, names: Sequence[str], predicted: Array, *, densities: bool
) -> list[Remark]:
    """Remark on outcomes of a continuous variable that repeat, are coarse, or are codes.

    ``predicted`` is what the models say at each observation, (K, n): log densities, or anything
    else that is the same where the models predict the same.
    """
    if not observations.known or observations.d > 1 or observations.n < ENOUGH:
        return []
    y = observations.values[:, 0]
    remarks = [*_examine_repeated(y), *_examine_precision(y), *_examine_codes(y)]
    if _are_copies(y, predicted):
        return [*remarks, CopiedObservations(len(y), len(np.unique(y)))]
    return [*remarks, *(_examine_rounding(y, names, predicted) if densities else ())]


def _examine_repeated(y: Array) -> list[Remark]:
    some = y[:: -(-len(y) // _LOOKED_AT)]
    values, counts = np.unique(some, return_counts=True)
    order = np.argsort(-counts)
    if values.size < 2 or counts[order[0]] < max(_REPEATED * some.size, _APART * counts[order[1]]):
        return []
    value = float(values[order[0]])
    return [RepeatedOutcome(value, int((y == value).sum()), len(y))]


def _examine_precision(y: Array) -> list[Remark]:
    largest, spread = float(np.abs(y).max()), float(y.std())
    if float(np.spacing(largest)) > _COARSE * spread > 0:
        return [CoarseOutcomes(largest, float(np.spacing(largest)), spread)]
    return []


def _examine_codes(y: Array) -> list[Remark]:
    """Remark on the smallest or largest value, if it repeats and is far from all others."""
    for value, rest in ((y.min(), y[y > y.min()]), (y.max(), y[y < y.max()])):
        count = len(y) - len(rest)
        if count < 2 or len(rest) < ENOUGH:
            continue
        gap = float(np.abs(rest - value).min())
        if gap > _BEYOND * float(np.ptp(rest)) > 0:
            return [CodedOutcome(float(value), count, len(y), gap / float(np.ptp(rest)))]
    return []


def _are_copies(y: Array, predicted: Array) -> bool:
    """Whether more rows are equal than rounding to the smallest difference would make so.

    Of n outcomes with density p that are rounded to multiples of δ, n² δ ∫p² / 2 pairs are equal;
    for most densities ∫p² is about .4 to .6 over the distance of the quartiles. Values that are
    equal where the models say different things are of different rows.
    """
    values, counts = np.unique(y, return_counts=True)
    width = float(np.subtract(*np.quantile(y, [0.75, 0.25])))
    if (counts > 1).sum() < _FEWEST_COPIED or width <= 0:
        return False
    by_chance = len(y) ** 2 / 2 * float(np.diff(values).min()) * 0.5 / width
    often = np.sort(counts)[:-_ATOMS]
    pairs = float((often * (often - 1.0) / 2).sum())
    return pairs > _TOO_MANY * by_chance + _FEWEST_COPIED and _say_the_same(y, predicted)


def _say_the_same(y: Array, predicted: Array) -> bool:
    """Whether all models predict the same at most observations with the same outcome."""
    order = np.lexsort((*predicted, y))
    tied: NDArray[np.bool_] = np.diff(y[order]) == 0
    same = tied & (predicted[:, order[1:]] == predicted[:, order[:-1]]).all(axis=0)
    return bool(same.sum() >= _SAME * tied.sum())


def _examine_rounding(y: Array, names: Sequence[str], logp: Array) -> list[Remark]:
    """Remark on models that put more than all their mass between two neighbouring outcomes."""
    values, place = np.unique(y, return_inverse=True)
    if values.size < 2 or 2 * values.size > y.size:
        return []
    gaps = np.diff(values)
    own = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))[place]
    share = np.mean(logp + np.log(own) > 0, axis=1)
    narrow = tuple(name for name, each in zip(names, share, strict=True) if each > _NARROW)
    return [RoundedOutcomes(narrow, float(np.median(own)), float(share.max()))] if narrow else []
