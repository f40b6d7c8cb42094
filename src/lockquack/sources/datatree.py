"""Models in ArviZ's containers, in memory or on disk."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import LockquackError, UnsupportedError, naming
from lockquack.files.formats import is_combination, open_tree, read_tree
from lockquack.models.containers import (
    CURV_GROUP,
    GRAD_GROUP,
    GROUPS,
    LOGP_GROUP,
    OBSERVED_GROUP,
    log_marginal_likelihood,
)
from lockquack.models.labels import labels_of
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import SAMPLE_DIMS
from lockquack.models.source import Source
from lockquack.parallel.cluster import active_client
from lockquack.sources.arrays import from_arrays
from lockquack.sources.chunked import chunks_for
from lockquack.words import advice

#: Where ArviZ keeps outcomes that were drawn with the draws.
PREDICTIVE_GROUP = "posterior_predictive"
#: Bytes of draws from which a file is not read into memory.
_LARGE = 2**28


def from_datatree(data: Any, *, var_name: str | None = None, lazy: bool | None = None) -> Model:
    """Take a model from an ArviZ DataTree or InferenceData, or from a NetCDF or Zarr file.

    It must hold the groups ``log_likelihood`` and ``observed_data``: enough for the log score,
    and to stack. For the Hyvärinen score it must also hold ``log_likelihood_grad`` and
    ``log_likelihood_curv``, the first and second derivatives of the log densities in the
    outcome. :meth:`Model.to_datatree` writes them all. A ``log_marginal_likelihood`` among
    the ``sample_stats``, as PyMC's sequential Monte Carlo leaves it, is kept: the last value of
    each chain, averaged over the chains. So are outcomes in ``posterior_predictive``, if there is
    one for each draw of the log likelihood and each observation: they tell the calibration,
    quantiles and moments of mixtures, such as those of :func:`lockquack.stack`.

    Draws that are dask arrays, and those of a large file, stay where they are and are read chunk
    by chunk in a pass, on the cluster of the active dask client if there is one.

    Parameters
    ----------
    data
        The container, or the path of a NetCDF file or Zarr store.
    var_name
        The outcome's name; needed if there are several.
    lazy
        Whether to leave the draws of a file on disk, which needs dask. By default they are left
        there if dask is installed and there are more than 256 MiB, or a dask client is active.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.array([0.3, 1.2])
    >>> model = lq.from_family("normal", y=y, mu=np.zeros((4, 100)), sigma=1.0)
    >>> lq.from_datatree(model.to_datatree())
    <Model normal; chain: 4, draw: 100, obs_id: 2, components: 1>
    """
    if not isinstance(data, str | Path):
        return _from_tree(as_tree(data), var_name)
    path = Path(data)
    with naming(str(path)):
        return _from_tree(_open(path, lazy), var_name)


def _open(path: Path, lazy: bool | None) -> xr.DataTree:
    """Read a file, or open it and cut its draws into chunks for dask to read."""
    if lazy is False or (lazy is None and find_spec("dask") is None):
        return read_tree(path)
    if find_spec("dask") is None:
        raise ImportError(f"Leaving {path} on disk needs dask: pip install 'lockquack[dask]'.")
    tree = open_tree(path)
    draws = [group for group in GROUPS.values() if group in tree.children]
    small = sum(tree[group].nbytes for group in draws) <= _LARGE
    if lazy is None and small and active_client() is None:
        tree.close()
        return read_tree(path)
    chunked = {group: tree[group].to_dataset().map(_in_chunks) for group in draws}
    others = {name: child.to_dataset() for name, child in tree.children.items()}
    return xr.DataTree.from_dict({"/": tree.to_dataset(), **others, **chunked})


def _in_chunks(array: xr.DataArray) -> xr.DataArray:
    stored = array.encoding.get("preferred_chunks")
    return array.chunk(chunks_for(array.sizes, stored, array.dtype.itemsize))


def _from_tree(tree: xr.DataTree, var_name: str | None) -> Model:
    if is_combination(tree.attrs):
        raise UnsupportedError(
            "This is a combination, not a model. ",
            advice("Read it with lq.load.", "Name the files of its models instead."),
        )
    for group in (LOGP_GROUP, *_derivative_groups(tree), OBSERVED_GROUP):
        if group not in tree.children:
            raise UnsupportedError(_missing_group(group, list(tree.children)))
    name = choose_variable(tree, LOGP_GROUP, var_name)
    logp, y = (_find(tree, group, name) for group in (LOGP_GROUP, OBSERVED_GROUP))
    derivatives = [_find(tree, group, name) for group in _derivative_groups(tree)]
    component_dims = [dim for dim in y.dims if dim not in logp.dims]
    if len(component_dims) > 1:
        raise UnsupportedError(
            f"The outcome {name!r} has the dimensions {y.dims}, its log likelihood {logp.dims}: "
            "more than one dimension of an outcome is not supported."
        )
    grad, curv = derivatives or (None, None)
    component_dim = component_dims[0] if component_dims else None
    source = from_arrays(logp=logp, y=y, grad=grad, curv=curv, component_dim=component_dim).source
    return Model(
        replace(
            source,
            likelihood=Likelihood.from_attrs(logp.attrs, default=f"outcome {name!r}"),
            log_marginal_likelihood=log_marginal_likelihood(tree),
            outcome_draws=_outcome_draws(tree, name, source),
        )
    )


def _derivative_groups(tree: xr.DataTree) -> tuple[str, ...]:
    """Both groups of derivatives if there is one of them, else none."""
    groups = (GRAD_GROUP, CURV_GROUP)
    return groups if any(group in tree.children for group in groups) else ()


def _outcome_draws(tree: xr.DataTree, name: str, source: Source) -> xr.DataArray | None:
    """Find the outcomes that were drawn with the draws; None if there is not one for each."""
    if PREDICTIVE_GROUP not in tree.children or name not in tree[PREDICTIVE_GROUP].data_vars:
        return None
    drawn = tree[PREDICTIVE_GROUP].to_dataset()[name]
    if not set(SAMPLE_DIMS) <= set(drawn.dims):
        return None
    drawn = drawn.transpose(*SAMPLE_DIMS, ...)
    outcomes = source.observations.to_dataarray()
    if set(drawn.dims[2:]) != set(outcomes.dims) and drawn.shape[2:] == outcomes.shape:
        # PyMC numbers dimensions without a name anew.
        drawn = drawn.rename(dict(zip(drawn.dims[2:], outcomes.dims, strict=True)))
    sizes = {"chain": source.n_chains, "draw": source.n_draws, **outcomes.sizes}
    if dict(drawn.sizes) != sizes:
        return None
    expected = labels_of(outcomes)
    if any(
        not np.array_equal(own, expected.get(dim, own)) for dim, own in labels_of(drawn).items()
    ):
        return None
    return drawn.transpose(*sizes)


def _find(tree: xr.DataTree, group: str, name: str) -> xr.DataArray:
    dataset = tree[group].to_dataset()
    if name not in dataset:
        present = ", ".join(map(str, dataset.data_vars)) or "nothing"
        raise UnsupportedError(
            f"The group {group!r} does not hold the outcome {name!r}, of which there are log "
            f"densities; it holds {present}. Give all groups the same variable names."
        )
    return dataset[name]


def as_tree(data: Any) -> xr.DataTree:
    """Read whatever ArviZ takes for a container."""
    if isinstance(data, xr.DataTree):
        return data
    from arviz_base import convert_to_datatree

    try:
        return convert_to_datatree(data)
    except (TypeError, ValueError) as error:
        raise LockquackError(
            f"Cannot read a model from a {type(data).__name__}; give a DataTree, an "
            f"InferenceData, or the path of a NetCDF file or Zarr store. ({error})"
        ) from error


def choose_variable(tree: xr.DataTree, group: str, var_name: str | None) -> str:
    """Find the outcome among the variables of a group: the named one, or the only one."""
    names = [str(name) for name in tree[group].data_vars]
    if not names:
        raise UnsupportedError(f"The group {group!r} is empty; it must hold the outcome.")
    if var_name is None and len(names) == 1:
        return names[0]
    if var_name not in names:
        listed = ", ".join(names)
        got = "" if var_name is None else f", not {var_name!r}"
        raise UnsupportedError(
            "Say which outcome by ",
            advice("var_name=", "--var-name"),
            f": one of {listed}{got}.",
        )
    return var_name


def _missing_group(group: str, present: list[str]) -> str:
    message = f"There is no group {group!r}; there are {', '.join(present) or 'none'}."
    if group in (GRAD_GROUP, CURV_GROUP):
        message += (
            " The Hyvärinen score needs the first and the second derivatives of the log "
            "likelihood in the outcome. Add the missing group, or leave out both and use the log "
            "score."
        )
    return message
