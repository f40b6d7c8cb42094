"""Covariates that weights may depend on, as users give them.

They are read once, together with the observations. That makes a
:class:`~lockquack.models.design.Design`, which knows their functions at any observations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.jets import Array
from lockquack.models.observations import Observations, row_values
from lockquack.numeric import and_more, as_count, as_numeric

#: Values of a covariate, one for each observation, of any kind.
Values = np.ndarray[Any, np.dtype[Any]]
#: What a covariate without a name is called.
_UNNAMED = "covariate"


class Covariate:
    """Something known of each observation, by which weights may differ; added with ``+``."""

    def __init__(self, values: Any, name: str | None = None) -> None:
        given = getattr(values, "name", None) if name is None else name
        self.values, self.name = values, None if given is None else str(given)

    def __add__(self, other: Any) -> Covariates:
        return Covariates((self,)) + other

    def read(self, observations: Observations | None) -> Values:
        """Return the values in the order of the observations, whose labels must agree."""
        values = row_values("by", self.values, observations)
        if values.ndim != 1 or (observations is not None and len(values) != observations.n):
            n = "new observation" if observations is None else f"of {observations.n} observations"
            raise ShapeError(
                f"by must have one value for each {n}; {self!r} has the shape {values.shape}."
            )
        return values

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name or '...'})"


class Groups(Covariate):
    """Weights that differ between groups, of which each is pulled towards the mean of all.

    A missing value is a group of its own. A group that was not among the observations has the mean
    of the weights of all groups.

    Parameters
    ----------
    values
        The group of each observation: strings, numbers, categories.
    name
        What to call it; by default the name of a Series or DataArray.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> fit = lq.stack(lq.example_models(), by=lq.Groups(np.arange(40) % 2, name="side"))
    >>> fit.weights.dims
    ('model', 'obs_id')
    """


class Spline(Covariate):
    """Weights that change smoothly with a number: B-splines, of which neighbours are alike.

    Beyond the range of the observations weights stay what they are at its end. Where the number is
    missing, the average of the splines' weights is taken.

    Parameters
    ----------
    values
        A number for each observation.
    df
        Number of splines; fewer where there are fewer different numbers.
    degree
        Of the splines.
    name
        What to call it; by default the name of a Series or DataArray.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> age = lq.Spline(np.linspace(20, 70, 40), df=4, name="age")
    >>> lq.lock(lq.example_models(), by=age, shrinkage=1.0).weights.sizes["obs_id"]
    40
    """

    def __init__(
        self, values: Any, df: int = 5, *, degree: int = 2, name: str | None = None
    ) -> None:
        super().__init__(values, name)
        self.df, self.degree = as_count("df", df), as_count("degree", degree)
        if self.df <= self.degree:
            raise ParameterError(
                f"df must be above degree, or there are no such splines; got df={df} and "
                f"degree={degree}."
            )

    @override
    def read(self, observations: Observations | None) -> Values:
        return as_floats(super().read(observations))


class Features(Covariate):
    """Weights by given functions, of which each observation has shares that sum to one.

    Parameters
    ----------
    values
        A row for each observation, a column for each function: not negative, of sum one.
    name
        What to call them.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> late = np.linspace(0, 1, 40)
    >>> halves = lq.Features(np.column_stack([1 - late, late]))
    >>> lq.lock(lq.example_models(), by=halves, shrinkage=1.0).weights.sizes["obs_id"]
    40
    """

    @override
    def read(self, observations: Observations | None) -> Values:
        given = self.values
        if isinstance(given, pd.DataFrame):
            row_values("by", given.iloc[:, 0], observations)  # for its labels
        if observations is not None and observations.kept is not None:
            given = observations.kept.of("by", np.asarray(given))
        rows = as_numeric("by", np.asarray(given), ParameterError).astype(np.float64)
        if rows.ndim != 2 or (observations is not None and len(rows) != observations.n):
            n = "new observation" if observations is None else f"of {observations.n} observations"
            raise ShapeError(
                f"Features must have a row for each {n} and a column for each function; got the "
                f"shape {rows.shape}."
            )
        bad = np.flatnonzero(~((rows >= 0).all(axis=1) & (np.abs(rows.sum(axis=1) - 1) < 1e-8)))
        if bad.size:
            raise ParameterError(
                f"Rows of Features must not be negative and must sum to one; row {bad[0]} is "
                f"{rows[bad[0]].tolist()}{and_more(bad.size - 1)}. Divide them by their sums."
            )
        return rows


@dataclass(frozen=True)
class Covariates:
    """Several covariates, whose weights are averaged.

    One of T covariates moves a weight by 1 / T at most, so one that says nothing takes from the
    others. Where covariates matter together, paste groups to one: ``Groups(a + "/" + b)``.
    """

    parts: tuple[Covariate, ...]

    def __add__(self, other: Any) -> Covariates:
        if isinstance(other, Covariate):
            return Covariates((*self.parts, other))
        if isinstance(other, Covariates):
            return Covariates((*self.parts, *other.parts))
        return NotImplemented

    @property
    def names(self) -> list[str]:
        """Names of the covariates; those without are called by their number."""
        usual = [_UNNAMED if k == 0 else f"{_UNNAMED} {k + 1}" for k in range(len(self.parts))]
        names = [part.name or other for part, other in zip(self.parts, usual, strict=True)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ParameterError(f"by has two covariates called {twice!r}; rename one of them.")
        return names


def as_covariates(by: Any) -> Covariates:
    """Read what users give: numbers become splines, anything else groups.

    Examples
    --------
    >>> as_covariates(pd.DataFrame({"age": [20.5, 31.0], "town": ["a", "b"]})).parts
    (Spline(age), Groups(town))
    """
    if isinstance(by, Covariates):
        return by
    if isinstance(by, Covariate):
        return Covariates((by,))
    if isinstance(by, str):
        raise ParameterError(
            f"by={by!r} is a name; give the values, one for each observation, such as data[{by!r}]."
        )
    if isinstance(by, pd.DataFrame | Mapping | xr.Dataset):
        columns = list(by)
        if not columns:
            raise ParameterError("by has no columns.")
        return Covariates(tuple(_of_one_kind(by[name], str(name)) for name in columns))
    array = by if isinstance(by, pd.Series | xr.DataArray) else _as_table(by)
    if not isinstance(array, xr.DataArray) and array.ndim == 2:
        return Covariates(tuple(_of_one_kind(column, None) for column in array.T))
    return Covariates((_of_one_kind(by, None),))


def _as_table(by: Any) -> NDArray[Any]:
    """Read an array of observations, or of observations and covariates."""
    try:
        array = np.asanyarray(by)
    except Exception as reason:  # whatever the classes of other libraries raise
        raise ParameterError(
            f"by is not an array, or its rows differ in length ({reason})."
        ) from reason
    if array.ndim > 2 or array.shape[1:] == (0,):
        raise ParameterError(
            "by must be one value for each observation, or a table of observations × covariates; "
            f"got the shape {array.shape}."
        )
    return array


def _of_one_kind(values: Any, name: str | None) -> Covariate:
    flat = values.values.ravel() if isinstance(values, xr.DataArray) else values
    series = flat if isinstance(flat, pd.Series) else pd.Series(np.ma.filled(_as_row(flat), None))
    dtype = series.infer_objects().dtype
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        raise ParameterError(
            "by has dates; turn them into numbers, such as days since the first, or into groups, "
            "such as lq.Groups(dates.dt.year)."
        )
    is_number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
    return Spline(values, name=name) if is_number else Groups(values, name=name)


def _as_row(values: Any) -> Any:
    if isinstance(values, np.ma.MaskedArray):
        return values.astype(object)
    return np.asarray(values, dtype=None if isinstance(values, np.ndarray) else object)


def as_floats(values: Values) -> Array:
    """Read numbers, missing ones as NaN; refuse anything else, and infinity."""
    try:
        numbers = pd.to_numeric(pd.Series(values), errors="raise").to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as reason:
        raise ParameterError(
            f"by is not numeric ({reason}). Splines are of numbers; use lq.Groups for labels."
        ) from reason
    bad = np.flatnonzero(np.isinf(numbers))
    if bad.size:
        raise NonFiniteError(
            f"by is infinite at observation {bad[0]}{and_more(bad.size - 1)}. Use NaN for what is "
            "not known."
        )
    return numbers
