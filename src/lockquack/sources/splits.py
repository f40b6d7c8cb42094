"""Which observations are left out together: numbers of folds, labels, pairs of positions, time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ParameterError
from lockquack.numeric import as_count, as_generator

Index = NDArray[np.intp]
#: Positions that a model is fitted to, and those that it predicts.
Split = tuple[Index, Index]


@own_arithmetic
def leave_future_out(
    n: int, *, first: int, ahead: int = 1, step: int = 1
) -> list[tuple[Index, Index]]:
    """Make the folds of a series, of which each observation is predicted from earlier ones only.

    Parameters
    ----------
    n
        Number of observations, in the order of time.
    first
        How many there are before the first that is predicted. With 0, that one is predicted from
        nothing: its fit must be the prior's prediction.
    ahead
        How far ahead a fit predicts at most.
    step
        After how many observations the model is fitted again. So many, the last of those up to
        ``ahead``, each fit predicts: with ``step=1`` each observation is predicted exactly
        ``ahead`` steps ahead, with ``step=ahead`` a block of observations from all before it.

    Returns
    -------
    list of (train, test)
        For :func:`cross_validate`.

    Examples
    --------
    >>> for train, test in leave_future_out(6, first=3):
    ...     print(train, test)
    [0 1 2] [3]
    [0 1 2 3] [4]
    [0 1 2 3 4] [5]
    >>> for train, test in leave_future_out(6, first=3, ahead=2):
    ...     print(train, test)
    [0 1 2] [4]
    [0 1 2 3] [5]
    >>> for train, test in leave_future_out(7, first=3, ahead=2, step=2):
    ...     print(train, test)
    [0 1 2] [3 4]
    [0 1 2 3 4] [5 6]
    """
    n, first = as_count("n", n), as_count("first", first, least=0)
    ahead, step = as_count("ahead", ahead), as_count("step", step)
    if not (first < n and step <= ahead and first + ahead <= n):
        raise ParameterError(
            "leave_future_out needs 0 ≤ first < n, 0 < step ≤ ahead and first + ahead ≤ n; got "
            f"n={n}, first={first}, ahead={ahead}, step={step}."
        )
    positions = np.arange(n)
    return [
        (positions[:end], positions[end + ahead - step : end + ahead])
        for end in range(first, n - ahead + step, step)
        if end + ahead - step < n
    ]


def read_splits(n: int, folds: Any, stratify: Any, seed: int) -> list[Split]:
    """Make pairs of positions, whatever says which observations are left out together."""
    if callable(getattr(folds, "split", None)) and not isinstance(folds, str | bytes):
        folds = _of_splitter(folds, n)
    if isinstance(folds, Iterator):
        folds = list(folds)
    if isinstance(folds, int | np.integer) and not isinstance(folds, bool):
        return complements(n, _dealt(n, int(folds), stratify, seed))
    if stratify is not None:
        raise ParameterError("stratify= goes with a number of folds; these are given already.")
    if _are_pairs(folds):
        return [_checked(pair, n) for pair in folds]
    labels = _labels("folds", folds)
    if labels.shape != (n,):
        raise ParameterError(
            f"folds must be a number, labels of the {n} observations, or pairs (train, test) of "
            f"positions; got something of the shape {labels.shape}."
        )
    groups = pd.factorize(labels, use_na_sentinel=False)[0]
    if groups.max() == 0:
        raise ParameterError("All labels in folds are the same, so that nothing is left to fit to.")
    return complements(n, [np.flatnonzero(groups == g) for g in range(groups.max() + 1)])


def are_one_step_ahead(splits: Sequence[Split]) -> bool:
    """Whether each observation is predicted alone, from all before it and from no others."""
    return bool(splits) and all(
        len(test) == 1 and np.array_equal(np.sort(train), np.arange(test[0]))
        for train, test in splits
    )


def are_from_the_past(splits: Sequence[Split]) -> bool:
    """Whether all observations are predicted from earlier ones only."""
    return bool(splits) and all(train.max(initial=-1) < test.min() for train, test in splits)


def _dealt(n: int, folds: int, stratify: Any, seed: int) -> list[Index]:
    """Deal observations to folds, those of each class one after the other."""
    if not 2 <= folds <= n:
        raise ParameterError(f"There must be between 2 and {n} folds, one for each; got {folds}.")
    order = as_generator(seed).permutation(n)
    if stratify is not None:
        labels = _labels("stratify", stratify)
        if labels.shape != (n,):
            raise ParameterError(f"stratify must have {n} classes, one for each observation.")
        order = order[np.argsort(_classes(labels, folds)[order], kind="stable")]
    return [np.sort(order[k::folds]) for k in range(folds)]


def _classes(labels: NDArray[Any], folds: int) -> Index:
    """Give classes numbers; of fractions, as many neighbours as there are folds make a class."""
    if labels.dtype.kind == "f":
        return np.argsort(np.argsort(labels, kind="stable")) // folds
    return np.asarray(pd.factorize(labels, use_na_sentinel=False)[0])


def _of_splitter(splitter: Any, n: int) -> Any:
    """Ask a splitter of scikit-learn for its splits, which may need to know more than n."""
    try:
        return list(splitter.split(np.zeros((n, 1))))
    except (TypeError, ValueError) as reason:
        raise ParameterError(
            f"{type(splitter).__name__} cannot split {n} observations by their number alone "
            f"({reason}). Give its splits: folds=splitter.split(X, y, groups)."
        ) from reason


def _labels(what: str, given: Any) -> NDArray[Any]:
    """Read labels of any kind."""
    try:
        return np.asarray(given)
    except Exception as reason:  # whatever the classes of other libraries raise
        raise ParameterError(
            f"{what} is not an array of labels, or its rows differ in length ({reason})."
        ) from reason


def complements(n: int, tests: Iterable[Index]) -> list[Split]:
    """Pair the rows of each fold with all others."""
    return [(np.setdiff1d(np.arange(n), test), test) for test in tests]


def _are_pairs(folds: Any) -> bool:
    """Whether these are pairs of arrays, not labels."""
    if isinstance(folds, np.ndarray) or not isinstance(folds, Sequence):
        return False
    return len(folds) > 0 and all(
        isinstance(each, tuple | list) and len(each) == 2 for each in folds
    )


def _positions(given: Any, n: int) -> NDArray[Any]:
    """Read positions, or true and false for each observation."""
    found = np.asarray(given)
    return np.flatnonzero(found) if found.dtype == bool and found.shape == (n,) else found


def _checked(pair: Any, n: int) -> Split:
    """Read a pair of positions; refuse observations that are fitted to and predicted."""
    train, test = (_positions(each, n) for each in pair)
    for each in (train, test):
        # An array of no positions, not a list of nothing, is meant: the prior's prediction.
        if each.dtype.kind not in "iu" or each.ndim != 1 or (each is test and not each.size):
            raise ParameterError(
                "A fold must be a pair of arrays of positions, whole numbers, that it is fitted to "
                f"and that it predicts; got {each.dtype} of the shape {each.shape}."
            )
        if each.size and (each.min() < 0 or each.max() >= n):
            raise ParameterError(
                f"Positions in folds must be from 0 to {n - 1}; got {each.min()} to {each.max()}."
            )
    both = np.intersect1d(train, test)
    if both.size:
        raise ParameterError(
            f"Observation {both[0]} is fitted to and predicted in the same fold; such scores are "
            "not held out."
        )
    return train.astype(np.intp), test.astype(np.intp)
