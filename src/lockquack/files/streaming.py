"""Writing a model that is larger than memory to a Zarr store, group by group of observations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import ParameterError
from lockquack.files.storage import write_tree, zarr_store
from lockquack.models.model import GROUPS, Predictive, all_draws, cut
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar

#: Bytes of a chunk.
_CHUNK = 2**24
_DTYPES = ("float64", "float32")


def stream_to_zarr(
    model: Predictive, path: str | Path, dtype: str, name: str, progressbar: bool | None
) -> None:
    """Write what :meth:`Predictive.to_datatree` holds; see :meth:`Predictive.to_zarr`."""
    if dtype not in _DTYPES:
        raise ParameterError(f"dtype must be one of {', '.join(_DTYPES)}; got {dtype!r}.")
    grid = model.observations.shape
    size = np.dtype(dtype).itemsize * model.n_samples * model.observations.d
    chunks, groups = boxes(grid, max(1, _CHUNK // size))
    with zarr_store(path) as store, progress_bar(model.n_obs, "writing", progressbar) as advance:
        _write_frame(model, store, dtype, name, chunks)
        write = partial(_write_group, store=str(store), name=name, grid=grid)
        for n_obs in map_observations(write, (model,), groups, groups):
            advance(n_obs)
        _index(store)


def boxes(grid: Sequence[int], most: int) -> tuple[list[int], list[slice]]:
    """Cut a grid of observations into boxes of at most so many, consecutive in its order.

    Returns the sizes of the boxes and, of each, the slice of the flattened grid.

    Examples
    --------
    >>> boxes((3, 4), 2)[0], boxes((3, 4), 9)[0]
    ([1, 2], [2, 4])
    >>> boxes((3, 4), 9)[1]
    [slice(0, 8, None), slice(8, 12, None)]
    """
    axis = next(i for i in range(len(grid)) if prod(grid[i + 1 :]) <= most)
    row = prod(grid[axis + 1 :])  # observations that are never separated
    length = min(grid[axis], most // row)
    lines = cut(slice(0, prod(grid)), grid[axis] * row)
    groups = [group for line in lines for group in cut(line, length * row)]
    return [1] * axis + [length] + list(grid[axis + 1 :]), groups


def _write_frame(
    model: Predictive, store: Path, dtype: str, name: str, chunks: Sequence[int]
) -> None:
    """Write everything but the draws, for which there are empty arrays then."""
    import zarr

    observations = model.observations
    sample = {"chain": np.arange(model.n_chains), "draw": np.arange(model.n_draws)}
    sizes = {**{dim: labels.size for dim, labels in sample.items()}, **observations.sizes}
    whole = [model.n_chains, model.n_draws, *chunks]
    parts = ["logp", "grad", "curv"] if model.has_derivatives else ["logp"]
    frame = {GROUPS[part]: xr.Dataset(coords={**sample, **observations.labels}) for part in parts}
    frame[GROUPS["logp"]] = frame[GROUPS["logp"]].drop_vars(
        [dim for dim in observations.labels if dim == observations.component_dim]
    )
    write_tree(xr.DataTree.from_dict({**frame, **model.small_groups(name)}), store, zarr=True)
    root: Any = zarr.open_group(store, mode="r+")
    for part in parts:
        if part == "grad" and observations.component_dim is not None:
            sizes[observations.component_dim] = observations.d
            whole.append(observations.d)
        attributes = model.likelihood.to_attrs() if part == "logp" else {}
        root[GROUPS[part]].create_array(
            name,
            shape=tuple(sizes.values()),
            chunks=tuple(whole),
            dtype=dtype,
            compressors=None,  # noise does not compress
            fill_value=np.nan,
            attributes={**attributes, "_ARRAY_DIMENSIONS": list(sizes)},
        )


def _write_group(
    models: Sequence[Predictive],
    obs: slice,
    place: slice,
    *,
    store: str,
    name: str,
    grid: Sequence[int],
) -> int:
    """Compute all draws of a group of observations and write them to their place on the grid."""
    import zarr

    first, last = (np.unravel_index(i, grid) for i in (place.start, place.stop - 1))
    region = tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))
    for part, draws in all_draws(models, obs, models[0].has_derivatives).items():
        array: Any = zarr.open_array(f"{store}/{GROUPS[part]}/{name}", mode="r+")
        target = (slice(None), slice(None), *region)
        array[target] = draws.reshape(
            *draws.shape[:2], *(s.stop - s.start for s in region), *array.shape[2 + len(grid) :]
        )
    return place.stop - place.start


def _index(store: Path) -> None:
    """Let readers find all arrays in one file."""
    import zarr

    zarr.consolidate_metadata(store, zarr_format=2)
