"""The observations that all models share, with their labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from lockquack.arithmetic import LARGEST
from lockquack.errors import NonFiniteError, ParameterError, ShapeError, SupportError
from lockquack.families.base import outside
from lockquack.families.discrete import impossible
from lockquack.jets import Array
from lockquack.models.labels import (
    from_pandas,
    labels_of,
    only_counts,
    require_counted_in_order,
    require_same_labels,
    require_same_order,
    storable,
    string_dims,
)
from lockquack.numeric import and_more, as_numeric
from lockquack.words import Text

OBS_DIM = "obs_id"
COMPONENT_DIM = "component"
#: The dimensions of draws.
SAMPLE_DIMS = ("chain", "draw")
#: The dimensions that draws and results have besides those of the observations.
RESERVED_DIMS = ("model", *SAMPLE_DIMS)


@dataclass(frozen=True, eq=False)
class Kept:
    """Which rows of the data remain, where others were left out because values are missing."""

    rows: NDArray[np.intp]  # positions among all rows
    total: int
    #: Whether the observations have labels of the user's; else they are labelled by ``rows``.
    labelled: bool

    def of(self, what: str, given: Any) -> Any:
        """Take the rows that remain of values of all rows; leave other values as they are."""
        if np.shape(given)[:1] != (self.total,):
            return given
        if not isinstance(given, xr.DataArray):
            return (given if hasattr(given, "dtype") else np.array(given, dtype=object))[self.rows]
        if not self.labelled:
            require_counted_in_order(what, labels_of(given))
            given = given.drop_vars([given.dims[0]], errors="ignore")
        return given.isel({given.dims[0]: self.rows})

    def __str__(self) -> str:
        return f"{self.total - len(self.rows)} of {self.total}, for missing values"


@dataclass(frozen=True, eq=False)
class Observations:
    """Observed outcomes as a table, observations × components, and how users name the rows.

    Observations on a grid (school × year) are flattened in C order; ``dims``, ``shape`` and
    ``coords`` remember the grid, so that :meth:`label` can hand results back in it.
    """

    values: Array  # (n, d), read-only
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Mapping[str, np.ndarray[Any, Any]]  # one-dimensional, those the user gave
    component_dim: str | None = None  # None: the outcome is a scalar
    components: np.ndarray[Any, Any] | None = None
    #: What the user calls the outcome; None: not said.
    name: str | None = None
    #: Case weights, how often each observation counts; None: once each.
    weights: Array | None = None  # (n,), read-only
    #: Labels that results do not show: the rows of a table that pandas only counted.
    counted: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    #: Which rows of the data these are; None: all, or not known.
    kept: Kept | None = None

    @classmethod
    def unlabelled(cls, values: Array, weights: Array | None = None) -> Observations:
        """Take outcomes (n, d) without labels."""
        component_dim = None if values.shape[1] == 1 else COMPONENT_DIM
        return cls(values, (OBS_DIM,), (len(values),), {}, component_dim, weights=weights)

    def restrict(self, obs: slice | NDArray[np.intp]) -> Observations:
        """Return some of the observations, without their labels."""
        weights = None if self.weights is None else self.weights[obs]
        return Observations.unlabelled(self.values[obs], weights)

    def weighted(self, weights: Any) -> Observations:
        """Return the same observations with case weights, in the same order or labelled alike."""
        return replace(self, weights=_read_weights(weights, self))

    def as_kept(self, rows: NDArray[np.intp], total: int) -> Observations:
        """Return the same as the rows that remain of so many; without labels, these number them."""
        coords = self.coords or {self.dims[0]: rows}
        return replace(self, coords=coords, kept=Kept(rows, total, bool(self.coords)))

    @property
    def numbered(self) -> bool:
        """Whether their only labels are the positions of the rows that remain."""
        return self.kept is not None and not self.kept.labelled

    @property
    def known(self) -> bool:
        """Whether the outcomes are known; of some models there are only scores."""
        return not bool(np.isnan(self.values).any())

    @property
    def outcome(self) -> str:
        """What to call the outcome in files, tables and pictures; never like a dimension."""
        taken = (*self.dims, self.component_dim)
        return next(name for name in (self.name, "y", "outcome") if name and name not in taken)

    @property
    def n(self) -> int:
        """Number of observations."""
        return int(self.values.shape[0])

    @property
    def d(self) -> int:
        """Number of components of one outcome."""
        return int(self.values.shape[1])

    @property
    def sizes(self) -> dict[str, int]:
        """Lengths of the observation dimensions."""
        return dict(zip(self.dims, self.shape, strict=True))

    @property
    def labels(self) -> dict[str, np.ndarray[Any, Any]]:
        """Labels of the observation dimensions and of the components, where there are any."""
        if self.component_dim is None or self.components is None:
            return dict(self.coords)
        return {**self.coords, self.component_dim: self.components}

    @property
    def index(self) -> dict[str, np.ndarray[Any, Any]]:
        """Labels with which those of anything else about these observations must agree."""
        return {**self.counted, **self.labels}

    def describe(self, index: int) -> str:
        """Name one observation for a message: its position and, where there are, its labels.

        The position is that among all rows, also where some were left out.
        """
        position = np.unravel_index(index, self.shape)
        labels = [
            f"{dim}={self.coords[dim][i]}"
            for dim, i in zip(self.dims, position, strict=True)
            if dim in self.coords
        ]
        if self.kept is not None:
            index, labels = int(self.kept.rows[index]), labels if self.kept.labelled else []
        return f"observation {index}" + (f" ({', '.join(labels)})" if labels else "")

    def label(
        self,
        values: NDArray[Any],
        leading: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> xr.DataArray:
        """Turn an array of shape (leading..., n) into a labelled one on the user's grid.

        A leading dimension maps to its coordinate values, or to None where it has none. Where the
        observations have a dimension of that name, it gets an underscore.
        """
        taken = (*self.dims, self.component_dim)
        leading = {
            f"{dim}_" if dim in taken else dim: labels for dim, labels in (leading or {}).items()
        }
        head = values.shape[: len(leading)]
        coords = {dim: labels for dim, labels in leading.items() if labels is not None}
        return xr.DataArray(
            values.reshape(*head, *self.shape),
            dims=[*leading, *self.dims],
            coords={**coords, **self.coords},
            name=name,
        )

    def label_components(
        self, values: Array, leading: Mapping[str, Any] | None = None, name: str | None = None
    ) -> xr.DataArray:
        """Turn (leading..., n, d) into a labelled array; the component axis of a scalar goes."""
        if self.component_dim is None:
            return self.label(values[..., 0], leading, name)
        labelled = [self.label(values[..., j], leading) for j in range(self.d)]
        joined = xr.concat(labelled, dim=self.component_dim, join="exact")
        if self.components is not None:
            joined = joined.assign_coords({self.component_dim: self.components})
        return joined.transpose(..., self.component_dim).rename(name)

    def to_dataarray(self) -> xr.DataArray:
        """Return the outcomes as the user gave them, by their own name."""
        return self.label_components(self.values, name=self.outcome)


def agreed(each: Iterable[Observations]) -> Observations:
    """Return the observations that several models share, once it is known that they do.

    They are those of the first model that knows the outcomes, or, if that has no labels, of one
    that knows which rows were left out; with the name that the first model gives them that names
    them.
    """
    given = list(each)
    first = next((observations for observations in given if observations.known), given[0])
    if not first.coords:
        first = next((other for other in given if other.known and other.kept), first)
    names = (observations.name for observations in given)
    return replace(first, name=next((name for name in names if name is not None), None))


def differing(a: Observations, b: Observations) -> NDArray[np.bool_]:
    """Mark the observations that have other outcomes, up to what single precision loses, (n,)."""
    tolerance = 1e-6 * (np.abs(a.values) + np.ptp(a.values, axis=0))
    return np.asarray((np.abs(a.values - b.values) > tolerance).any(axis=1))


def unknown_outcomes(template: xr.DataArray) -> Observations:
    """Make observations with the labels of an array, of which the outcomes are not known."""
    observations = as_observations(xr.zeros_like(template, dtype=np.float64))
    values = np.full(observations.values.shape, np.nan)
    values.setflags(write=False)
    return replace(observations, values=values, name=None)


def as_observations(y: Any, component_dim: Hashable | None = None) -> Observations:
    """Read outcomes from an array, a DataArray or a pandas Series.

    Arrays are (obs,) or (obs, component). A DataArray may have any observation dimensions;
    ``component_dim`` names the one that is part of a single, vector-valued outcome. The values
    are copied and cannot be written to. A DataArray or a Series passes on its name.
    """
    name = getattr(y, "name", None)
    labelled, component_dim = _as_dataarray(y, component_dim)
    if component_dim is not None:
        labelled = labelled.transpose(..., component_dim)
    dims = tuple(str(dim) for dim in labelled.dims)
    _require_free_names(dims)
    obs_dims = tuple(dim for dim in dims if dim != component_dim)
    shape = tuple(labelled.sizes[dim] for dim in obs_dims)
    labels = labels_of(labelled)
    counted = {
        dim: labels.pop(dim)
        for dim in obs_dims[:1]
        if isinstance(y, pd.Series | pd.DataFrame) and only_counts(y.index)
    }
    if labelled.size == 0:
        raise ShapeError("y is empty; there is nothing to score.")
    values = np.array(labelled.values, dtype=np.float64)
    values = values.reshape(-1, labelled.sizes[component_dim] if component_dim is not None else 1)
    values.setflags(write=False)
    observations = Observations(
        values,
        obs_dims,
        shape,
        {dim: labels[dim] for dim in obs_dims if dim in labels},
        component_dim,
        None if component_dim is None else labels.get(component_dim),
        name if isinstance(name, str) else None,
        counted=counted,
    )
    _require_finite(observations)
    _require_in_range(observations)
    return observations


def row_values(
    what: str, given: Any, observations: Observations | None
) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Read something of any kind that is known of each observation, in their order.

    Labels, where there are any, must be those of the observations. Missing entries of masked
    arrays are None. Without observations, the values are taken as they come. Where rows were left
    out, values of all rows do as well.
    """
    if observations is None or len(observations.dims) == 1:
        dim = OBS_DIM if observations is None else observations.dims[0]
        is_column = isinstance(given, pd.DataFrame) and given.shape[1] == 1
        table = given.iloc[:, 0] if is_column else given
        given = from_pandas(table, dim, "", named=False) if isinstance(table, pd.Series) else given
    if observations is not None and observations.kept is not None:
        given = observations.kept.of(what, given)
    if isinstance(given, xr.DataArray) and observations is not None:
        given = string_dims(given)
        require_same_labels(what, labels_of(given), observations.index)
        if not observations.index:
            require_counted_in_order(what, labels_of(given))
        if set(given.dims) == set(observations.dims):
            given = given.transpose(*observations.dims).values.reshape(-1)
    try:
        values = np.array(given, dtype=object)
    except Exception as reason:  # whatever the classes of other libraries raise
        raise ParameterError(
            f"{what} must be an array of one value for each observation; got {given!r}."
        ) from reason
    if isinstance(given, np.ma.MaskedArray):
        values[np.ma.getmaskarray(given)] = None
    return values


def as_support(given: Any) -> tuple[float, float]:
    """Read the two ends of the outcomes that are possible, the lower first."""
    ends = as_numeric("support", given, SupportError)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise SupportError(
            f"support must be two numbers, the lower first, such as (0, np.inf); got {given!r}."
        )
    return float(ends[0]), float(ends[1])


def _read_weights(given: Any, observations: Observations) -> Array | None:
    """Read case weights; None where every observation counts once."""
    labelled = from_pandas(given, observations.dims[0], COMPONENT_DIM)
    if observations.kept is not None:
        labelled = observations.kept.of("weights", labelled)
    if isinstance(labelled, xr.DataArray):
        labelled = _on_grid(string_dims(labelled), observations)
    values = np.array(as_numeric("weights", labelled, ParameterError), dtype=np.float64)
    if values.shape not in (observations.shape, (observations.n,)):
        raise ShapeError(
            f"weights must be one number for each of {observations.n} observations, "
            f"{observations.sizes}; got the shape {values.shape}. Leave out the weights of "
            "observations that the model leaves out, such as missing outcomes."
        )
    values = values.reshape(-1)
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if bad.size:
        at = int(bad[0])
        raise ParameterError(
            f"Case weights must be finite and not negative; the weight of "
            f"{observations.describe(at)} is {values[at]:g}{and_more(bad.size - 1)}. Give an "
            "observation that should not count the weight 0."
        )
    if not values.any():
        raise ParameterError("All case weights are zero: no observation is left to count.")
    values.setflags(write=False)
    return None if (values == 1).all() else values


def _on_grid(given: xr.DataArray, observations: Observations) -> xr.DataArray:
    """Bring labelled weights to the grid of the observations; labels must not contradict."""
    if set(given.dims) == set(observations.dims):
        given = given.transpose(*observations.dims)
        require_same_labels("weights", labels_of(given), observations.coords)
    elif given.ndim == len(observations.dims) == 1:
        (theirs,), (own,) = given.dims, observations.dims
        if theirs in given.indexes and own in observations.coords:
            labels = storable(given.indexes[theirs])
            require_same_order("weights", labels, observations.coords[own])
    if given.ndim == 1 and given.shape == observations.shape and not observations.coords:
        require_counted_in_order("weights", labels_of(given))
    return given


def in_brief(outcome: Array) -> str:
    """Write one outcome, (component,), with a few digits.

    Examples
    --------
    >>> in_brief(np.array([-0.07133874632222192])), in_brief(np.array([1.0, 2.5]))
    ('-0.0713', '[1, 2.5]')
    """
    each = [f"{value:.3g}" for value in outcome]
    return each[0] if len(each) == 1 else f"[{', '.join(each)}]"


def require_inside(
    what: str,
    values: Array,
    interval: tuple[float, float],
    observations: Observations,
    remedy: str = "",
) -> None:
    """Refuse outcomes, or a function of them, outside an open interval."""
    bad = outside(values, interval).any(axis=1)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        low, high = interval
        raise SupportError(
            f"The {what} needs values in ({low:g}, {high:g}); {bad.sum()} outcome(s) are not, "
            f"first {in_brief(values[at])} at {observations.describe(at)}.",
            remedy and Text(" ", remedy),
        )


def require_whole(what: str, observations: Observations, support: tuple[float, float]) -> None:
    """Refuse outcomes that are not whole numbers from the first to the last of the support."""
    bad = impossible(observations.values, support).any(axis=1)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        low, high = support
        upper = f" to {high:g}" if np.isfinite(high) else ""
        raise SupportError(
            f"The {what} needs whole numbers from {low:g}{upper}; {bad.sum()} outcome(s) are not, "
            f"first {in_brief(observations.values[at])} at {observations.describe(at)}."
        )


def _as_dataarray(y: Any, component_dim: Hashable | None) -> tuple[xr.DataArray, str | None]:
    """Return y with string dimensions and the one that holds components, if any does."""
    wanted = None if component_dim is None else str(component_dim)
    if isinstance(y, pd.DataFrame) and y.shape[1] == 1 and wanted is None:
        y = y.iloc[:, 0]  # one column of a table is a scalar outcome
    y = from_pandas(y, OBS_DIM, wanted or COMPONENT_DIM)
    if isinstance(y, xr.DataArray):
        labelled = string_dims(y)
        as_numeric("y", y.values)
        if labelled.ndim == 0:
            raise ShapeError("y is a single number; give one outcome per observation.")
    else:
        values = as_numeric("y", y)
        if values.ndim not in (1, 2):
            raise ShapeError(
                f"y must have shape (obs,) or (obs, component); got {values.shape}. "
                'Name the dimensions of a grid: xr.DataArray(y, dims=("school", "year")).'
            )
        dims = [OBS_DIM, wanted or COMPONENT_DIM][: values.ndim]
        labelled = xr.DataArray(values, dims=dims)
    if wanted is None and COMPONENT_DIM in labelled.dims:
        wanted = COMPONENT_DIM
    if wanted is not None and wanted not in labelled.dims:
        raise ShapeError(
            f"y has no dimension {wanted!r}, which component_dim= names; it has the dimensions "
            f"{labelled.dims} of shape {labelled.shape}. Leave component_dim out for scalar "
            "outcomes."
        )
    if labelled.dims == (wanted,):
        raise ShapeError(
            f"y has the dimension {wanted!r} of its components only; add one for the observations."
        )
    return labelled, wanted


def _require_free_names(dims: tuple[str, ...]) -> None:
    taken = [dim for dim in dims if dim in RESERVED_DIMS]
    if taken:
        raise ShapeError(
            f"y has a dimension called {taken[0]!r}, a name that results need for themselves. "
            f"Rename it: y.rename({taken[0]}='observed_{taken[0]}')."
        )


def _require_finite(observations: Observations) -> None:
    bad = np.flatnonzero(~np.isfinite(observations.values).all(axis=1))
    if bad.size:
        raise NonFiniteError(
            f"y is not finite at {observations.describe(int(bad[0]))}{and_more(bad.size - 1)}. "
            "Drop the missing observations from every model before combining."
        )


def _require_in_range(observations: Observations) -> None:
    """Refuse outcomes in units in which their squares overflow or vanish."""
    sizes, limit = np.abs(observations.values).max(axis=1), LARGEST["outcome"]
    at = int(sizes.argmax())
    if not (sizes[at] == 0 or 1 / limit <= sizes[at] <= limit):
        raise SupportError(
            f"The largest outcome is {sizes[at]:.3g} in size, at {observations.describe(at)}; it "
            f"must be between {1 / limit:g} and {limit:g}, because scores are made of squares of "
            "it. Change the units of y, and those of the models with them."
        )
