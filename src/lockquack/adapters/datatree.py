"""Models in ArviZ's containers, in memory or on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xarray as xr

from lockquack.adapters.arrays import from_arrays
from lockquack.errors import LockquackError, UnsupportedError
from lockquack.predictive import CURV_GROUP, GRAD_GROUP, LOGP_GROUP, Likelihood, Predictive
from lockquack.storage import is_combination, read_tree


def from_datatree(data: Any, *, var_name: str | None = None) -> Predictive:
    """Take a model from an ArviZ DataTree or InferenceData, or from a NetCDF or Zarr file.

    It must hold the groups ``log_likelihood``, ``log_likelihood_grad`` and
    ``log_likelihood_curv``, the log densities and their first and second derivatives in the
    outcome, and ``observed_data``. :meth:`Predictive.to_datatree` writes them.

    Parameters
    ----------
    data
        The container, or the path of a NetCDF file or Zarr store.
    var_name
        The outcome's name; needed if there are several.

    Returns
    -------
    Predictive
        A model for :func:`lockquack.lock` and its relatives.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.array([0.3, 1.2])
    >>> model = lq.from_family("normal", y=y, mu=np.zeros((4, 100)), sigma=1.0)
    >>> lq.from_datatree(model.to_datatree())
    <ArrayPredictive normal; chain: 4, draw: 100, obs_id: 2, components: 1>
    """
    if not isinstance(data, str | Path):
        return _from_tree(_as_tree(data), var_name)
    try:
        return _from_tree(read_tree(data), var_name)
    except LockquackError as error:
        if str(data) in str(error):
            raise
        raise type(error)(f"{data}: {error}") from error


def _from_tree(tree: xr.DataTree, var_name: str | None) -> Predictive:
    if is_combination(tree.attrs):
        raise UnsupportedError("This is a combination, not a model. Read it with lq.load.")
    for group in (LOGP_GROUP, GRAD_GROUP, CURV_GROUP, "observed_data"):
        if group not in tree.children:
            raise UnsupportedError(_missing_group(group, list(tree.children)))
    name = _variable(tree, var_name)
    logp, grad, curv, y = (
        _find(tree, group, name) for group in (LOGP_GROUP, GRAD_GROUP, CURV_GROUP, "observed_data")
    )
    component_dims = [dim for dim in y.dims if dim not in logp.dims]
    if len(component_dims) > 1:
        raise UnsupportedError(
            f"The outcome {name!r} has the dimensions {y.dims}, its log likelihood {logp.dims}: "
            "more than one dimension of an outcome is not supported."
        )
    model = from_arrays(
        logp=logp,
        grad=grad,
        curv=curv,
        y=y,
        component_dim=component_dims[0] if component_dims else None,
    )
    return model.with_likelihood(Likelihood.from_attrs(logp.attrs, default=f"outcome {name!r}"))


def _find(tree: xr.DataTree, group: str, name: str) -> xr.DataArray:
    dataset = tree[group].to_dataset()
    if name not in dataset:
        present = ", ".join(map(str, dataset.data_vars)) or "nothing"
        raise UnsupportedError(
            f"The group {group!r} does not hold the outcome {name!r}, of which there are log "
            f"densities; it holds {present}. Give all groups the same variable names."
        )
    return dataset[name]


def _as_tree(data: Any) -> xr.DataTree:
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


def _variable(tree: xr.DataTree, var_name: str | None) -> str:
    names = [str(name) for name in tree[LOGP_GROUP].data_vars]
    if not names:
        raise UnsupportedError(f"The group {LOGP_GROUP!r} is empty; it must hold the outcome.")
    if var_name is None and len(names) == 1:
        return names[0]
    if var_name not in names:
        listed = ", ".join(names)
        got = "" if var_name is None else f", not {var_name!r}"
        raise UnsupportedError(f"Say which outcome by var_name=: one of {listed}{got}.")
    return var_name


def _missing_group(group: str, present: list[str]) -> str:
    message = f"There is no group {group!r}; there are {', '.join(present) or 'none'}."
    if group in (GRAD_GROUP, CURV_GROUP):
        message += (
            " The Hyvärinen score needs the derivatives of the log likelihood in the outcome, "
            "which samplers do not store. Make the model with from_family, or compute them and "
            "use from_arrays."
        )
    return message
