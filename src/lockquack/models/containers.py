"""Sources in ArviZ's containers: which group holds what, and how they are filled.

A store that is larger than memory is written group by group of observations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import ParameterError
from lockquack.files.formats import write, zarr_store
from lockquack.jets import Array, log_sum_exp
from lockquack.models.observations import SAMPLE_DIMS
from lockquack.models.source import Source
from lockquack.numeric import cut
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar

LOGP_GROUP = "log_likelihood"
GRAD_GROUP = "log_likelihood_grad"
CURV_GROUP = "log_likelihood_curv"
#: Which group of a container holds which part of the jets.
GROUPS = {"logp": LOGP_GROUP, "grad": GRAD_GROUP, "curv": CURV_GROUP}
OBSERVED_GROUP = "observed_data"
#: Where ArviZ keeps outcomes that were drawn with the draws.
PREDICTIVE_GROUP = "posterior_predictive"
STATISTICS_GROUP = "sample_stats"
#: Where ArviZ keeps what is known about the observations.
CONSTANT_GROUP = "constant_data"
#: What case weights are called there: a name that nobody else's variable has.
_CASE_WEIGHTS = "lockquack_case_weights"
#: What PyMC's sequential Monte Carlo calls it, among the sample statistics.
_EVIDENCE = "log_marginal_likelihood"
#: Variable of the draws at which a sampler noted a divergence, as ArviZ calls it.
_DIVERGING = "diverging"
#: Bytes of a chunk.
_CHUNK = 2**24
#: Attribute of log densities of observations that the model was fitted without.
_HELD_OUT = "lockquack_held_out"
_DTYPES = ("float64", "float32")


def to_datatree(source: Source, var_name: str | None = None) -> xr.DataTree:
    """Compute all draws and put them into a container; see :meth:`Model.to_datatree`."""
    draws = source.dask_draws() or all_draws(source, slice(0, source.n_obs))
    return _tree(source, draws, var_name)


def to_zarr(
    source: Source,
    path: str | Path,
    *,
    dtype: str = "float64",
    var_name: str | None = None,
    progressbar: bool | None = None,
) -> None:
    """Write what :func:`to_datatree` returns, a group at a time; see :meth:`Model.to_zarr`."""
    if dtype not in _DTYPES:
        raise ParameterError(f"dtype must be one of {', '.join(_DTYPES)}; got {dtype!r}.")
    draws = source.dask_draws(dtype)
    if draws is not None:
        write(_tree(source, draws, var_name), path, zarr=True)
        return
    name, grid = var_name or source.observations.outcome, source.observations.shape
    size = np.dtype(dtype).itemsize * source.n_samples * source.observations.d
    chunks, groups = boxes(grid, max(1, _CHUNK // size))
    with zarr_store(path) as store, progress_bar(source.n_obs, "writing", progressbar) as advance:
        _write_frame(source, store, dtype, name, chunks)
        fill = partial(_write_group, store=str(store), name=name, grid=grid)
        for n_obs in map_observations(fill, (source,), groups, groups):
            advance(n_obs)
        _index(store)


def all_draws(source: Source, obs: slice) -> dict[str, Array]:
    """All draws of a source at some observations, (chain, draw, obs) or with components last."""
    values = {"logp": source.all_logp(obs)}
    if source.can.differentiate:
        values["grad"], values["curv"] = source.all_derivatives(obs)
    return values


def log_marginal_likelihood(tree: xr.DataTree) -> float | None:
    """Average the chains' estimates, the last number of each; None where there are none."""
    if STATISTICS_GROUP not in tree.children or _EVIDENCE not in tree[STATISTICS_GROUP].data_vars:
        return None
    given = tree[STATISTICS_GROUP].to_dataset()[_EVIDENCE]
    values = given.transpose("chain", ...).values if "chain" in given.dims else given.values[None]
    # PyMC leaves chains of different lengths as a list each, along whichever dimension.
    ragged = values.dtype == object and any(np.ndim(each) for each in values.flat)
    chains = values.flat if ragged else values.reshape(len(values), -1)
    last = [numbers[-1] for numbers in map(_finite, chains) if numbers.size]
    return float(log_sum_exp(np.array(last)) - np.log(len(last))) if last else None


def divergences(tree: xr.DataTree) -> int:
    """Count the draws at which a sampler noted a divergence; 0 where nothing is known."""
    if STATISTICS_GROUP not in tree.children:
        return 0
    statistics = tree[STATISTICS_GROUP].to_dataset()
    if _DIVERGING not in statistics:
        return 0
    values = np.asarray(statistics[_DIVERGING].values)
    return int(np.count_nonzero(values)) if values.dtype.kind in "biuf" else 0


def stored_log_likelihood(tree: xr.DataTree, name: str) -> xr.DataArray | None:
    """Find what a container has as the log likelihood of an outcome, draws first, or None."""
    if LOGP_GROUP not in tree.children or name not in tree[LOGP_GROUP].data_vars:
        return None
    return tree[LOGP_GROUP].to_dataset()[name].transpose(*SAMPLE_DIMS, ...)


def stored_case_weights(tree: xr.DataTree) -> xr.DataArray | None:
    """Find the case weights of a model that was saved with some."""
    if CONSTANT_GROUP not in tree.children:
        return None
    return tree[CONSTANT_GROUP].to_dataset().get(_CASE_WEIGHTS)


def _finite(series: Any) -> Array:
    numbers = np.asarray(series, dtype=np.float64).ravel()
    return numbers[np.isfinite(numbers)]


def _tree(source: Source, draws: Mapping[str, Any], var_name: str | None) -> xr.DataTree:
    """Label draws, arrays of numpy's or dask's, and put everything else beside them."""
    name, observations = var_name or source.observations.outcome, source.observations
    sample = {"chain": np.arange(source.n_chains), "draw": np.arange(source.n_draws)}
    labelled = {
        part: (observations.label_components if array.ndim == 4 else observations.label)(
            array, sample
        )
        for part, array in draws.items()
    }
    labelled["logp"].attrs = _attributes(source)
    groups = {GROUPS[part]: xr.Dataset({name: array}) for part, array in labelled.items()}
    return xr.DataTree.from_dict({**groups, **_small_groups(source, name)})


def _attributes(source: Source) -> dict[str, Any]:
    """Return what is noted beside the log densities."""
    held_out = {_HELD_OUT: 1} if source.held_out else {}
    return {**source.likelihood.to_attrs(), **held_out}


def is_held_out(logp: xr.DataArray) -> bool:
    """Whether log densities were saved as those of observations that the model did not see."""
    return _HELD_OUT in logp.attrs


def _small_groups(source: Source, name: str) -> dict[str, xr.Dataset]:
    """Return what a container holds besides the draws."""
    observations = source.observations
    groups = {OBSERVED_GROUP: xr.Dataset({name: observations.to_dataarray()})}
    if observations.weights is not None:
        weights = observations.label(observations.weights)
        groups[CONSTANT_GROUP] = xr.Dataset({_CASE_WEIGHTS: weights})
    chains, statistics = {"chain": np.arange(source.n_chains)}, xr.Dataset()
    if source.log_marginal_likelihood is not None:
        each = np.full(source.n_chains, source.log_marginal_likelihood)
        statistics = xr.Dataset({_EVIDENCE: ("chain", each)}, chains)
    if source.divergent:
        # Which draws they were is not kept, only how many.
        noted = np.arange(source.n_samples).reshape(source.n_chains, -1) < source.divergent
        statistics[_DIVERGING] = (SAMPLE_DIMS, noted)
    if statistics:
        groups[STATISTICS_GROUP] = statistics
    return groups


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


def _write_frame(source: Source, store: Path, dtype: str, name: str, chunks: Sequence[int]) -> None:
    """Write everything but the draws, and empty arrays for these."""
    import numcodecs
    import zarr

    observations = source.observations
    sample = {"chain": np.arange(source.n_chains), "draw": np.arange(source.n_draws)}
    sizes = {**{dim: labels.size for dim, labels in sample.items()}, **observations.sizes}
    whole = [source.n_chains, source.n_draws, *chunks]
    parts = ["logp", "grad", "curv"] if source.can.differentiate else ["logp"]
    frame = {GROUPS[part]: xr.Dataset(coords={**sample, **observations.labels}) for part in parts}
    frame[GROUPS["logp"]] = frame[GROUPS["logp"]].drop_vars(
        [dim for dim in observations.labels if dim == observations.component_dim]
    )
    write(xr.DataTree.from_dict({**frame, **_small_groups(source, name)}), store, zarr=True)
    root: Any = zarr.open_group(store, mode="r+")
    for part in parts:
        if part == "grad" and observations.component_dim is not None:
            sizes[observations.component_dim] = observations.d
            whole.append(observations.d)
        attributes = _attributes(source) if part == "logp" else {}
        root[GROUPS[part]].create_array(
            name,
            shape=tuple(sizes.values()),
            chunks=tuple(whole),
            dtype=dtype,
            # Noise does not compress; but what was changed since must not be taken for draws.
            compressors=numcodecs.CRC32C(),
            fill_value=np.nan,
            attributes={**attributes, "_ARRAY_DIMENSIONS": list(sizes)},
        )


def _write_group(
    sources: Sequence[Source],
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
    for part, draws in all_draws(sources[0], obs).items():
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
