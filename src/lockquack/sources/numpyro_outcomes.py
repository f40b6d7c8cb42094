"""The outcomes at an observed site of a NumPyro model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lockquack.errors import ShapeError, UnsupportedError
from lockquack.jets import Numeric
from lockquack.models.observations import (
    COMPONENT_DIM,
    OBS_DIM,
    RESERVED_DIMS,
    Observations,
    as_observations,
)
from lockquack.sources.numpyro_sites import Site


@dataclass(frozen=True)
class Outcome:
    """The outcomes at an observed site."""

    values: Numeric  # as the model has them
    grid: tuple[int, ...]  # the shape of the observations
    d: int | None  # components of one outcome, None: it is a scalar
    mask: NDArray[np.bool_]  # (grid), False: not observed
    dtype: Any  # in which the distribution takes them

    @property
    def kept(self) -> NDArray[np.intp]:
        """Positions of what is observed in the flattened grid."""
        return np.flatnonzero(self.mask)

    @property
    def rows(self) -> Numeric:
        """All outcomes, flattened: (n,) or (n, d)."""
        return self.values.reshape(-1) if self.d is None else self.values.reshape(-1, self.d)


def read_outcome(site: Site, y: Numeric) -> Outcome:
    """Find out which axes of the outcomes are observations, and which of these were made."""
    if site.scale is not None and not np.all(np.asarray(site.scale) == 1):
        raise UnsupportedError(
            f"The site {site.name!r} is scaled (handlers.scale): its observations count more or "
            "less than once, and leaving one out is not what leave-one-out formulas assume. Give "
            "the densities by lq.from_arrays with held-out scores instead."
        )
    grid = _grid(site, y)
    if not np.all([np.all(mask) for mask in site.inner_masks]):
        raise UnsupportedError(
            f"The site {site.name!r} has masked components of outcomes. Leave out the outcomes "
            "that are not complete, by masking them as a whole."
        )
    mask = np.ones(grid, dtype=np.bool_)
    for part in site.masks:
        mask &= np.broadcast_to(np.asarray(part), grid)
    if not mask.any():
        raise UnsupportedError(f"All outcomes of the site {site.name!r} are masked.")
    integer = y.dtype if y.dtype.kind in "biu" else np.int64
    d = y.shape[-1] if site.event_shape else None
    return Outcome(y, grid, d, mask, integer if site.discrete else np.float64)


def _grid(site: Site, y: Numeric) -> tuple[int, ...]:
    """Return the shape of the observations: that of y without the components of an outcome."""
    if y.ndim and y.shape == site.event_shape and not site.batch_shape:
        remedy = (
            "Leave out .to_event(), or put it on the components of one outcome only."
            if site.independent
            else "Its score would be a joint one. Write the distribution of each outcome given the "
            "parameters and, in a time series, given earlier outcomes as data."
        )
        raise UnsupportedError(
            f"All {y.size} outcomes of the site {site.name!r} are one event of its distribution "
            f"({site.likelihood}): there are no single observations. {remedy}"
        )
    lead = y.shape[: y.ndim - len(site.event_shape)]
    fits = len(site.event_shape) < 2 and y.shape[len(lead) :] == site.event_shape
    if fits and lead and _broadcasts_to(site.batch_shape, lead):
        return lead
    raise ShapeError(
        f"The site {site.name!r} has outcomes of shape {y.shape}; its distribution has the shape "
        f"{site.batch_shape} and outcomes of shape {site.event_shape} each. They must fit, with "
        "one axis at most for the components of an outcome. Change all arguments of the model "
        "that belong to the outcomes; where outcomes and parameters broadcast against each other, "
        "as (n,) and (n, 1) do, give them the same shape."
    )


def _broadcasts_to(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, whole) == whole
    except ValueError:
        return False


def require_same_mask(first: Outcome, last: Outcome) -> None:
    """Refuse a mask that is not the same in all draws."""
    if not np.array_equal(first.mask, last.mask):
        raise UnsupportedError(
            "The mask of the outcomes differs between draws. Only what is never observed can be "
            "left out."
        )


def observations(y: Any, outcome: Outcome, site: Site) -> Observations:
    """Label the observations: by position where some are masked, by plates on a grid."""
    if not outcome.mask.all():
        dims = [OBS_DIM, COMPONENT_DIM][: 1 if outcome.d is None else 2]
        kept = xr.DataArray(outcome.rows[outcome.kept], dims=dims, coords={OBS_DIM: outcome.kept})
        return as_observations(kept)
    if isinstance(y, xr.DataArray):
        return as_observations(y, None if outcome.d is None else y.dims[-1])
    if len(outcome.grid) == 1:
        return as_observations(y)
    names = [site.plates.get(axis - len(outcome.grid)) for axis in range(len(outcome.grid))]
    dims = [
        f"{site.name}_dim_{axis}" if name is None or name in RESERVED_DIMS else name
        for axis, name in enumerate(names)
    ]
    component = [] if outcome.d is None else [COMPONENT_DIM]
    return as_observations(xr.DataArray(outcome.values, dims=[*dims, *component]))


def changed(y: Numeric) -> Numeric:
    """Return other outcomes that are as possible: slightly larger, or whole numbers moved on."""
    if y.dtype.kind in "biu":
        return np.roll(y, 1)
    return y * (1 + 1e-3) + 1e-3 * float(np.nanstd(y))


def is_same(value: Any, y: Numeric) -> bool:
    """Whether an argument of the model holds the outcomes."""
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):
        return False
    if given.dtype.kind not in "biuf" or given.shape != y.shape or not y.ndim:
        return False
    return np.array_equal(given, y, equal_nan=True)
