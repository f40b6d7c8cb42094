"""Several outcomes of one container, scored jointly: an observation is all of them at one place.

Given the parameters, outcomes are independent of each other, so their log densities add up and
their derivatives lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from lockquack.errors import ShapeError, UnsupportedError, first_line
from lockquack.models.observations import COMPONENT_DIM, OBS_DIM, SAMPLE_DIMS
from lockquack.sources.groups import StoredOutcome


def join_outcomes(parts: Sequence[StoredOutcome]) -> StoredOutcome:
    """Make one outcome of several: a vector at each place that all of them have.

    The places are the dimensions that all have in common. Where an outcome has more of them, as
    pupils within schools, what lies along those is part of the vector too.
    """
    parts = _on_common_dims(parts)
    dims = _places(parts)
    name = "_and_".join(part.name for part in parts)
    joined = [
        _side_by_side(parts, [part.derivatives[k] for part in parts], dims)
        for k in range(min(len(part.derivatives) for part in parts))
    ]
    y = _side_by_side(parts, [part.y for part in parts], dims)
    drawn = _side_by_side(parts, [part.drawn for part in parts], dims)
    logp = [_summed(part.logp, dims) for part in parts]
    return StoredOutcome(
        name,
        sum(logp[1:], logp[0]),
        [each for each in joined if each is not None],
        None if y is None else y.rename(name),
        drawn,
    )


def _on_common_dims(parts: Sequence[StoredOutcome]) -> list[StoredOutcome]:
    """Give dimensions that only count, under a name of each outcome's own, the same name."""
    own = [_own_dims(part) for part in parts]
    unnamed = all(dims == (f"{part.name}_dim_0",) for part, dims in zip(parts, own, strict=True))
    if (
        not unnamed
        or len({part.logp.sizes[dims[0]] for part, dims in zip(parts, own, strict=True)}) > 1
    ):
        return list(parts)
    return [part.renamed({dims[0]: OBS_DIM}) for part, dims in zip(parts, own, strict=True)]


def _places(parts: Sequence[StoredOutcome]) -> list[str]:
    first, *others = parts
    dims = [
        str(dim)
        for dim in first.logp.dims
        if dim not in SAMPLE_DIMS and all(dim in other.logp.dims for other in others)
    ]
    if not dims:
        listed = ", ".join(f"{part.name!r}: {_own_dims(part)}" for part in parts)
        raise UnsupportedError(
            f"The outcomes have no dimension in common ({listed}), so that no observation has all "
            "of them. Combine the models for one outcome at a time."
        )
    try:
        xr.align(*(part.logp for part in parts), join="exact", copy=False)
    except ValueError as error:
        raise ShapeError(
            f"The outcomes {', '.join(part.name for part in parts)} have different labels or "
            f"draws: {first_line(error)}"
        ) from error
    return dims


def _own_dims(part: StoredOutcome) -> tuple[str, ...]:
    return tuple(str(dim) for dim in part.logp.dims if dim not in SAMPLE_DIMS)


def _summed(logp: xr.DataArray, dims: Sequence[str]) -> xr.DataArray:
    """Add up what lies along other dimensions than the places."""
    return logp.sum([dim for dim in logp.dims if dim not in (*SAMPLE_DIMS, *dims)])


def _side_by_side(
    parts: Sequence[StoredOutcome], arrays: Sequence[xr.DataArray | None], dims: Sequence[str]
) -> xr.DataArray | None:
    """Put the values at each place into one vector; None where an outcome has none."""
    columns = []
    for part, array in zip(parts, arrays, strict=True):
        if array is None or not set(dims) <= set(array.dims):
            return None
        kept = [dim for dim in (*SAMPLE_DIMS, *dims) if dim in array.dims]
        rest = [dim for dim in array.dims if dim not in kept]
        array = array.transpose(*kept, *rest).drop_vars(rest, errors="ignore")
        flat = array.data.reshape(*(array.sizes[dim] for dim in kept), -1)
        count = flat.shape[-1]
        labels = [part.name] if not rest else [f"{part.name}[{i}]" for i in range(count)]
        coords = {dim: array.coords[dim] for dim in kept if dim in array.coords}
        coords[COMPONENT_DIM] = np.array(labels)
        columns.append(xr.DataArray(flat, dims=[*kept, COMPONENT_DIM], coords=coords))
    return xr.concat(columns, COMPONENT_DIM, join="exact")
