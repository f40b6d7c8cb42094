"""Labels of dimensions: reading, comparing and making them fit for files.

Where two sides have labels of the same dimension, these must be the same in the same order: nothing
is reordered, and nothing with other labels is matched by its position. An index of pandas is a
label of its rows even where it only counts, because pandas itself goes by it. What has no labels
is matched by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.errors import ObservationMismatchError
from lockquack.jets import Numeric
from lockquack.words import Text, advice

Labels = Mapping[str, Numeric]


def storable(index: pd.Index[Any]) -> Numeric:
    """Return labels as NetCDF and Zarr can hold them: numbers, dates or else strings.

    Examples
    --------
    >>> storable(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])).tolist()
    ["('a', 1)", "('b', 2)"]
    """
    plain = index if isinstance(index, pd.MultiIndex) else index.infer_objects()
    values = plain.to_numpy()
    if values.dtype.kind in "biufmM":
        return np.asarray(values)
    return np.array([str(label) for label in values], dtype=np.str_)


def labels_of(given: xr.DataArray) -> dict[str, Numeric]:
    """Labels of those dimensions that have any."""
    return {str(dim): storable(given.indexes[dim]) for dim in given.dims if dim in given.indexes}


def string_dims(given: xr.DataArray) -> xr.DataArray:
    """Rename dimensions that are not strings: messages, files and lookups need one spelling."""
    return given.rename({dim: str(dim) for dim in given.dims if not isinstance(dim, str)})


def require_same_labels(name: str, got: Labels, expected: Labels, of: str = "y") -> None:
    """Compare labels where both sides have them, dimension by dimension.

    Parameters
    ----------
    name, of
        What the messages call the two sides.
    got, expected
        Dimension → labels.

    Raises
    ------
    ObservationMismatchError
        Naming the first label that differs, and whether only the order does.

    Examples
    --------
    >>> require_same_labels("mu", {"obs": np.array([2, 1])}, {"obs": np.array([1, 2])})
    Traceback (most recent call last):
    lockquack.errors.ObservationMismatchError: mu and y label 'obs' differently: ...
    """
    for dim, theirs in expected.items():
        if dim not in got:
            continue
        mine = np.asarray(got[dim])
        if len(mine) != len(theirs):
            raise ObservationMismatchError(
                f"{name} has {len(mine)} labels of {dim!r}, {of} has {len(theirs)}. "
                "They must be the same, in the same order."
            )
        differs = _differ(mine, theirs)
        if differs.any():
            at = int(np.flatnonzero(differs)[0])
            raise ObservationMismatchError(
                f"{name} and {of} label {dim!r} differently: position {at} is {mine[at]} in "
                f"{name} and {theirs[at]} in {of}. ",
                _remedy(dim, mine, theirs, of),
            )


def merge_labels(parts: Mapping[str, Any]) -> dict[str, Numeric]:
    """Gather the labels of several things, which must not contradict each other.

    Parameters
    ----------
    parts
        What messages call each → a DataArray, or its labels; anything else has none.

    Examples
    --------
    >>> mu, sigma = {"chain": np.array([0, 1])}, {"chain": np.array([1, 0])}
    >>> merge_labels({"mu": mu, "sigma": sigma})
    Traceback (most recent call last):
    lockquack.errors.ObservationMismatchError: sigma and mu label 'chain' differently: ...
    """
    merged: dict[str, Numeric] = {}
    owners: dict[str, str] = {}
    for name, given in parts.items():
        labels = labels_of(given) if isinstance(given, xr.DataArray) else given
        for dim, own in labels.items() if isinstance(labels, Mapping) else ():
            of = owners.setdefault(dim, name)
            require_same_labels(name, {dim: own}, {dim: merged.setdefault(dim, own)}, of)
    return merged


def require_same_order(name: str, got: Numeric, expected: Numeric, of: str = "y") -> None:
    """Refuse labels that are the same in another order, where dimensions match by position only.

    Dimensions of different names may well be labelled differently, so nothing else is compared.
    """
    if len(got) == len(expected) and _differ(got, expected).any() and _same_set(got, expected):
        raise ObservationMismatchError(
            f"{name} and {of} have the same labels in another order ({got[0]}, {got[1]}, ... and "
            f"{expected[0]}, {expected[1]}, ...). Bring one of them into the order of the other."
        )


def require_counted_in_order(name: str, got: Labels) -> None:
    """Refuse numbers from 0 as labels that are not in order, where the other side has no labels.

    Such numbers are most often the index of a table that was sorted or shuffled.

    Examples
    --------
    >>> require_counted_in_order("by", {"obs": np.array([0, 2, 1])})
    Traceback (most recent call last):
    lockquack.errors.ObservationMismatchError: by is numbered 0 to 2 in another order (0, 2, ...)...
    """
    for labels in got.values():
        count = np.arange(len(labels))
        if labels.dtype.kind not in "iuf" or np.array_equal(labels, count):
            continue
        if np.array_equal(np.sort(labels), count):
            raise ObservationMismatchError(
                f"{name} is numbered 0 to {len(labels) - 1} in another order ({labels[0]}, "
                f"{labels[1]}, ...), and the observations have no labels. Bring it into their "
                "order by these numbers, .sort_index() of a table; if the two belong together as "
                "they stand, drop the numbers, .to_numpy()."
            )


def _same_set(a: Numeric, b: Numeric) -> bool:
    return sorted(map(str, a)) == sorted(map(str, b))


def _differ(a: Numeric, b: Numeric) -> np.ndarray[Any, np.dtype[np.bool_]]:
    left, right = pd.Index(a), pd.Index(b)
    both_missing = np.asarray(left.isna()) & np.asarray(right.isna())
    return np.asarray(left != right, dtype=np.bool_) & ~both_missing


def _remedy(dim: str, mine: Numeric, theirs: Numeric, of: str) -> Text:
    they = "They must be the same, in the same order."
    if _same_set(mine, theirs):
        order = "They are the same labels in another order"
        select = f".loc[...] of a table, .sel({dim}=...) of a DataArray"
        they = advice(f"{order}: select them in the order of {of}, by {select}.", f"{order}.")
    return Text(
        they,
        advice(
            " If the two belong together as they stand, drop the labels of one, by .to_numpy() of "
            f"a table, .drop_vars({dim!r}) of a DataArray.",
            " Write the file anew with labels that agree.",
        ),
    )


def from_pandas(given: Any, obs_dim: str, column_dim: str, *, named: bool = True) -> Any:
    """Make Series and DataFrames labelled arrays; return anything else unchanged.

    Parameters
    ----------
    given
        What the user gave.
    obs_dim, column_dim
        What to call the rows and the columns where the table does not say.
    named
        Whether the name of the index is that of the rows; else they are ``obs_dim``.
    """
    if not isinstance(given, pd.Series | pd.DataFrame):
        return given
    names, axes = (obs_dim, column_dim), given.axes
    dims = [
        str(names[i] if axis.name is None or (i == 0 and not named) else axis.name)
        for i, axis in enumerate(axes)
    ]
    # Columns that only count were never named; rows that only count may be those of another table.
    coords = {
        dims[i]: storable(axis) for i, axis in enumerate(axes) if i == 0 or not only_counts(axis)
    }
    return xr.DataArray(_pandas_values(given), dims=dims, coords=coords)


def only_counts(index: pd.Index[Any]) -> bool:
    """Whether an index is the one that pandas makes where none is given: 0 to n − 1.

    Examples
    --------
    >>> only_counts(pd.Series([1.5, 2.5]).index), only_counts(pd.Index([1, 0]))
    (True, False)
    """
    return index.equals(pd.RangeIndex(len(index)))


def _pandas_values(given: pd.Series[Any] | pd.DataFrame) -> Numeric:
    # Columns of numbers and of booleans together would become Python objects.
    kinds = given.dtypes if isinstance(given, pd.DataFrame) else pd.Series([given.dtype])
    if all(kind.kind in "biuf" for kind in kinds):
        return np.asarray(given.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(given)
