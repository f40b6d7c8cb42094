"""The observations that all models share, with their labels."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import NonFiniteError, ShapeError
from lockquack.jets import Array

OBS_DIM = "obs_id"
COMPONENT_DIM = "component"


@dataclass(frozen=True, eq=False)
class Observations:
    """Observed outcomes as a table, observations × components, and how users name the rows.

    Observations on a grid (school × year) are flattened in C order; ``dims``, ``shape`` and
    ``coords`` remember the grid, so that :meth:`label` can hand results back in it.
    """

    values: Array  # (n, d)
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Mapping[str, np.ndarray[Any, Any]]  # one-dimensional, those the user gave
    component_dim: str | None = None  # None: the outcome is a scalar
    components: np.ndarray[Any, Any] | None = None

    @property
    def n(self) -> int:
        """Number of observations."""
        return int(self.values.shape[0])

    @property
    def d(self) -> int:
        """Number of components of one outcome."""
        return int(self.values.shape[1])

    def describe(self, index: int) -> str:
        """Name one observation for a message: its position and, where there are, its labels."""
        position = np.unravel_index(index, self.shape)
        labels = [
            f"{dim}={self.coords[dim][i]}"
            for dim, i in zip(self.dims, position, strict=True)
            if dim in self.coords
        ]
        return f"observation {index}" + (f" ({', '.join(labels)})" if labels else "")

    def label(
        self, values: Array, leading: Mapping[str, Any] | None = None, name: str | None = None
    ) -> xr.DataArray:
        """Turn an array of shape (leading..., n) into a labelled one on the user's grid.

        A leading dimension maps to its coordinate values, or to None where it has none.
        """
        leading = leading or {}
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

    def to_dataarray(self, name: str = "y") -> xr.DataArray:
        """Return the outcomes as the user gave them."""
        return self.label_components(self.values, name=name)


def as_observations(y: Any, component_dim: Hashable | None = None) -> Observations:
    """Read outcomes from an array or DataArray.

    Arrays are (obs,) or (obs, component). A DataArray may have any observation dimensions;
    ``component_dim`` names the one that is part of a single, vector-valued outcome.
    """
    labelled = _as_dataarray(y, component_dim)
    if COMPONENT_DIM in labelled.dims and component_dim is None:
        component_dim = COMPONENT_DIM
    if component_dim is not None:
        labelled = labelled.transpose(..., component_dim)
    obs_dims = tuple(str(dim) for dim in labelled.dims if dim != component_dim)
    shape = tuple(labelled.sizes[dim] for dim in obs_dims)
    values = np.asarray(labelled.values, dtype=np.float64)
    values = values.reshape(-1, labelled.sizes[component_dim] if component_dim is not None else 1)
    coords = {dim: labelled.indexes[dim].to_numpy() for dim in obs_dims if dim in labelled.indexes}
    components = None
    if component_dim is not None and component_dim in labelled.indexes:
        components = labelled.indexes[component_dim].to_numpy()
    observations = Observations(
        values,
        obs_dims,
        shape,
        coords,
        None if component_dim is None else str(component_dim),
        components,
    )
    _require_finite(observations)
    return observations


def _as_dataarray(y: Any, component_dim: Hashable | None) -> xr.DataArray:
    if isinstance(y, xr.DataArray):
        if component_dim is not None and component_dim not in y.dims:
            raise ShapeError(f"y has no dimension {component_dim!r}; its dimensions are {y.dims}.")
        return y
    values = np.asarray(y)
    if values.ndim not in (1, 2):
        raise ShapeError(
            f"y must have shape (obs,) or (obs, component); got {values.shape}. "
            "Give a DataArray to name more dimensions."
        )
    return xr.DataArray(values, dims=[OBS_DIM, component_dim or COMPONENT_DIM][: values.ndim])


def _require_finite(observations: Observations) -> None:
    if observations.values.size == 0:
        raise ShapeError("y is empty; there is nothing to score.")
    bad = np.flatnonzero(~np.isfinite(observations.values).all(axis=1))
    if bad.size:
        raise NonFiniteError(
            f"y is not finite at {observations.describe(int(bad[0]))} and {bad.size - 1} more. "
            "Drop the missing observations from every model before combining."
        )
