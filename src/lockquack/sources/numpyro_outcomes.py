"""The outcomes at the observed sites of a NumPyro model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
from lockquack.sources.numpyro_series import single, unwrapped
from lockquack.sources.numpyro_sites import Site


@dataclass(frozen=True)
class Part:
    """Which of the outcomes are those at one site."""

    site: str
    shape: tuple[int, ...]  # that they have there
    dtype: Any  # in which the distribution takes them
    rows: slice  # of the observations
    columns: slice | None  # of the components; None: all
    event_shape: tuple[int, ...]  # of one outcome: () where it is a number
    #: Whether the site makes one event of all outcomes, which is taken apart.
    taken_apart: bool = False

    @property
    def lead(self) -> tuple[int, ...]:
        """The shape of the observations at the site."""
        return self.shape[: len(self.shape) - len(self.event_shape)]

    def distribution(self, trace: Mapping[str, Any]) -> Any:
        """Return what the site of a trace has, without what masks it, for single outcomes."""
        fn = unwrapped(trace[self.site]["fn"])
        return single(fn) if self.taken_apart else fn


@dataclass(frozen=True)
class Outcome:
    """The outcomes at a site, or at several.

    Those at several sites are components of one outcome, or follow each other.
    """

    rows: Numeric  # all of them, flattened: (n,) or (n, d)
    grid: tuple[int, ...]  # the shape of the observations
    d: int | None  # components of one outcome, None: it is a scalar
    mask: NDArray[np.bool_]  # (n,), False: not observed
    parts: tuple[Part, ...]

    @property
    def kept(self) -> NDArray[np.intp]:
        """Positions of what is observed."""
        return np.flatnonzero(self.mask)

    @property
    def beside(self) -> bool:
        """Whether the sites are components of one outcome."""
        return self.parts[0].columns is not None

    def at_site(self, part: Part, rows: Any) -> Any:
        """Take the outcomes of a site out of all, as the model has them."""
        some = rows[part.rows]
        return (some if part.columns is None else some[:, part.columns]).reshape(part.shape)

    def at_sites(self, rows: Any) -> dict[str, Any]:
        """Take the outcomes of all sites out of all, as their distributions want them."""
        return {part.site: self.at_site(part, rows).astype(part.dtype) for part in self.parts}


def read_outcome(sites: Sequence[Site], y: Any = None) -> Outcome:
    """Find out which axes of the outcomes are observations, and which of these were made.

    Without ``y``, the outcomes are those at the sites.
    """
    if len(sites) == 1:
        return _at_one_site(sites[0], y)
    for site in sites:
        _require_whole(site)
    each = [np.asarray(site.value) for site in sites]
    leads = [
        at.shape[: at.ndim - len(site.event_shape)] for site, at in zip(sites, each, strict=True)
    ]
    if leads[0] and len(set(leads)) == 1 and _plates_agree(sites):
        return _masked(_side_by_side(sites, each, leads[0], y), sites)
    return _masked(_one_after_the_other(sites, each, leads, y), sites)


def _at_one_site(site: Site, y: Any) -> Outcome:
    values = np.asarray(site.value if y is None else y)
    taken_apart = site.single is not None and values.ndim > 0 and not site.batch_shape
    if taken_apart:
        assert site.single is not None
        batch_shape, event_shape = site.single
        site = replace(
            site,
            batch_shape=batch_shape,
            event_shape=event_shape,
            masks=(*site.masks, *site.inner_masks),
            inner_masks=(),
        )
    _require_whole(site)
    grid = _grid(site, values)
    d = values.shape[-1] if site.event_shape else None
    part = Part(
        site.name,
        values.shape,
        _dtype(site, values),
        slice(None),
        None,
        site.event_shape,
        taken_apart,
    )
    return _masked(Outcome(_flat(values, d), grid, d, np.empty(0, bool), (part,)), [site])


def _side_by_side(
    sites: Sequence[Site], values: Sequence[Numeric], grid: tuple[int, ...], y: Any
) -> Outcome:
    """Make the outcomes of several sites the components of one."""
    widths = [
        at.shape[-1] if site.event_shape else 1 for site, at in zip(sites, values, strict=True)
    ]
    ends = np.cumsum([0, *widths]).tolist()
    n = int(np.prod(grid))
    rows = np.concatenate([at.reshape(n, -1) for at in values], axis=1)
    if y is not None:
        rows = np.asarray(y)
        if rows.ndim < 2 or rows.shape[-1] != ends[-1] or rows.size != n * ends[-1]:
            raise ShapeError(
                f"The outcomes at the sites {_listed(sites)} are vectors of {ends[-1]} components, "
                f"of shape {(*grid, ends[-1])} with these arguments; got {rows.shape}."
            )
        rows = rows.reshape(n, -1)
    parts = tuple(
        Part(
            site.name,
            at.shape,
            _dtype(site, at),
            slice(None),
            slice(start, stop),
            site.event_shape,
        )
        for site, at, (start, stop) in zip(sites, values, pairwise(ends), strict=True)
    )
    return Outcome(rows, grid, ends[-1], np.empty(0, bool), parts)


def _one_after_the_other(
    sites: Sequence[Site], values: Sequence[Numeric], leads: Sequence[tuple[int, ...]], y: Any
) -> Outcome:
    """Let the observations of several sites follow each other; a site may have a single one."""
    if len({site.event_shape for site in sites}) > 1 or len(sites[0].event_shape) > 1:
        shapes = ", ".join(
            f"{site.name}: {at.shape}" for site, at in zip(sites, values, strict=True)
        )
        raise ShapeError(
            f"The outcomes at the sites {_listed(sites)} have different shapes ({shapes}). Sites "
            "in the same plates are components of one outcome; others follow each other, and then "
            "each outcome must be a number, or a vector of the same length."
        )
    d = sites[0].event_shape[0] if sites[0].event_shape else None
    ends = np.cumsum([0, *(int(np.prod(lead)) for lead in leads)]).tolist()
    rows = np.concatenate([_flat(at, d) for at in values])
    if y is not None:
        if np.shape(y) != rows.shape:
            raise ShapeError(
                f"The sites {_listed(sites)} have outcomes of shape {rows.shape} with these "
                f"arguments; got {np.shape(y)}."
            )
        rows = np.asarray(y)
    parts = tuple(
        Part(site.name, at.shape, _dtype(site, at), slice(start, stop), None, site.event_shape)
        for site, at, (start, stop) in zip(sites, values, pairwise(ends), strict=True)
    )
    return Outcome(rows, (len(rows),), d, np.empty(0, bool), parts)


def _masked(outcome: Outcome, sites: Sequence[Site]) -> Outcome:
    """Find out which outcomes are observed: of components that are side by side, all or none."""
    masks = []
    for site, part in zip(sites, outcome.parts, strict=True):
        mask = np.ones(part.lead, dtype=np.bool_)
        for each in site.masks:
            mask &= np.broadcast_to(np.asarray(each), part.lead)
        masks.append(mask.reshape(-1))
    if outcome.beside and not all(np.array_equal(mask, masks[0]) for mask in masks):
        raise UnsupportedError(
            f"The sites {_listed(sites)} have different masks. Leave out the observations of "
            "which not all outcomes are known, by masking all sites alike."
        )
    together = masks[0] if outcome.beside else np.concatenate(masks)
    if not together.any():
        raise UnsupportedError(f"All outcomes of the site {_listed(sites)} are masked.")
    return Outcome(outcome.rows, outcome.grid, outcome.d, together, outcome.parts)


def _require_whole(site: Site) -> None:
    """Refuse outcomes that are not observed as a whole, and likelihoods that are tempered."""
    scale = 1.0 if site.scale is None else np.asarray(site.scale)
    if np.ptp(scale) == 0 and np.max(scale) != 1:
        raise UnsupportedError(
            f"The site {site.name!r} is scaled by {np.max(scale):g} (handlers.scale): its draws "
            "are of a posterior to which all outcomes contribute more or less than once, and "
            "leaving one out is not what leave-one-out formulas assume. Draw with a scale of 1. "
            "Scales that differ between observations are treated as case weights."
        )
    if not np.all([np.all(mask) for mask in site.inner_masks]):
        raise UnsupportedError(
            f"The site {site.name!r} has masked components of outcomes. Leave out the outcomes "
            "that are not complete, by masking them as a whole."
        )


def case_weights(sites: Sequence[Site], outcome: Outcome) -> NDArray[np.float64] | None:
    """Return how often each observation counts, where ``handlers.scale`` says so, or None."""
    each = []
    for site, part in zip(sites, outcome.parts, strict=True):
        scale = 1.0 if site.scale is None else np.asarray(site.scale, dtype=np.float64)
        each.append(np.broadcast_to(scale, part.lead).reshape(-1))
    if outcome.beside and not all(np.array_equal(weights, each[0]) for weights in each):
        raise UnsupportedError(
            f"The sites {_listed(sites)} have different scales (handlers.scale), so there is no "
            "one case weight for each observation. Scale all of them alike."
        )
    together = each[0] if outcome.beside else np.concatenate(each)
    return None if (together == 1).all() else together[outcome.kept]


def _plates_agree(sites: Sequence[Site]) -> bool:
    """Whether sites of the same shape are in the same plates, as far as they are in any."""
    return len({tuple(sorted(site.plates.items())) for site in sites if site.plates}) < 2


def _dtype(site: Site, y: Numeric) -> Any:
    if not site.discrete:
        return np.float64
    return y.dtype if y.dtype.kind in "biu" else np.int64


def _flat(y: Numeric, d: int | None) -> Numeric:
    return y.reshape(-1) if d is None else y.reshape(-1, d)


def _listed(sites: Sequence[Site]) -> str:
    return ", ".join(repr(site.name) for site in sites)


def _grid(site: Site, y: Numeric) -> tuple[int, ...]:
    """Return the shape of the observations: that of y without the components of an outcome."""
    if y.ndim and y.shape == site.event_shape and not site.batch_shape:
        raise UnsupportedError(
            f"All {y.size} outcomes of the site {site.name!r} are one event of its distribution "
            f"({site.likelihood}): there are no single observations. Its score would be a joint "
            "one. Write the distribution of each outcome given the parameters and, in a time "
            "series, given earlier outcomes as data."
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


def require_same(first: Outcome, last: Outcome) -> None:
    """Refuse outcomes, or a mask of them, that are not the same in all draws."""
    if not np.array_equal(first.rows, last.rows, equal_nan=True):
        raise UnsupportedError(
            "What is observed at the site "
            f"{', '.join(repr(part.site) for part in first.parts)} is not the same in all draws: "
            "the values depend on the draws, so they are no outcomes. Observe what was measured; "
            "of covariates that are imputed, observe the known ones at a site of their own."
        )
    if not np.array_equal(first.mask, last.mask):
        raise UnsupportedError(
            "The mask of the outcomes differs between draws. Only what is never observed can be "
            "left out."
        )


def observations(y: Any, outcome: Outcome, sites: Sequence[Site]) -> Observations:
    """Label the observations: by position where some are masked, by plates on a grid."""
    if not outcome.mask.all():
        dims = [OBS_DIM, COMPONENT_DIM][: 1 if outcome.d is None else 2]
        coords = {OBS_DIM: outcome.kept, **_components(outcome)}
        return as_observations(xr.DataArray(outcome.rows[outcome.kept], dims=dims, coords=coords))
    if isinstance(y, xr.DataArray):
        return as_observations(y, None if outcome.d is None else y.dims[-1])
    if len(outcome.grid) == 1 and not outcome.beside:
        return as_observations(outcome.rows if y is None else y)
    site = sites[0]
    names = [site.plates.get(axis - len(outcome.grid)) for axis in range(len(outcome.grid))]
    dims = [
        f"{site.name}_dim_{axis}" if name is None or name in RESERVED_DIMS else name
        for axis, name in enumerate(names)
    ]
    if len(dims) == 1:
        dims = [OBS_DIM]
    component = [] if outcome.d is None else [COMPONENT_DIM]
    values = outcome.rows.reshape(*outcome.grid, *outcome.rows.shape[1:])
    return as_observations(
        xr.DataArray(values, dims=[*dims, *component], coords=_components(outcome))
    )


def _components(outcome: Outcome) -> dict[str, list[str]]:
    """Name components after their sites."""
    if not outcome.beside:
        return {}
    widths = [part.columns.stop - part.columns.start for part in outcome.parts if part.columns]
    names = [
        part.site if width == 1 else f"{part.site}[{j}]"
        for part, width in zip(outcome.parts, widths, strict=True)
        for j in range(width)
    ]
    return {COMPONENT_DIM: names}


def is_same(value: Any, y: Numeric) -> bool:
    """Whether an argument of the model holds the outcomes."""
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):
        return False
    if given.dtype.kind not in "biuf" or given.shape != y.shape or not y.ndim:
        return False
    return np.array_equal(given, y, equal_nan=True)
