"""Models in ArviZ's containers, in memory or on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import xarray as xr

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import (
    LockquackError,
    ObservationMismatchError,
    ParameterError,
    UnsupportedError,
    naming,
    unknown_name,
)
from lockquack.files.formats import explaining, is_combination, open_tree, read_tree
from lockquack.models.containers import (
    CONSTANT_GROUP,
    GROUPS,
    LOGP_GROUP,
    OBSERVED_GROUP,
    STATISTICS_GROUP,
    divergences,
    is_held_out,
    log_marginal_likelihood,
    stored_case_weights,
)
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import Observations, as_observations, differing, unknown_outcomes
from lockquack.models.transformed import on_natural_scale, on_scale_of_model
from lockquack.parallel.cluster import active_client
from lockquack.sources.arrays import hold_draws, labelled_like
from lockquack.sources.chunked import chunks_for
from lockquack.sources.drawn import DrawnSource, from_draws
from lockquack.sources.groups import (
    StoredOutcome,
    find_outcome,
    how_to_add_densities,
    outcomes_alone,
    predictive_draws,
)
from lockquack.sources.joining import join_outcomes
from lockquack.words import Text, advice

#: Bytes of draws from which a file is not read into memory.
_LARGE = 2**28
#: What is read at once, whatever is left there.
_SMALL = (OBSERVED_GROUP, CONSTANT_GROUP, STATISTICS_GROUP)


@own_arithmetic
def from_datatree(
    data: Any,
    *,
    var_name: str | Sequence[str] | None = None,
    y: Any = None,
    transform: str | None = None,
    lazy: bool | None = None,
    weights: Any = None,
) -> Model:
    """Take a model from an ArviZ DataTree or InferenceData, or from a NetCDF or Zarr file.

    It must hold the groups ``log_likelihood`` and ``observed_data``: enough for the log score,
    and to stack. For the Hyvärinen score it must also hold ``log_likelihood_grad`` and
    ``log_likelihood_curv``, the first and second derivatives of the log densities in the
    outcome. :meth:`Model.to_datatree` writes them all. A ``log_marginal_likelihood`` among
    the ``sample_stats``, as PyMC's sequential Monte Carlo leaves it, is kept: the last value of
    each chain, averaged over the chains. So are outcomes in ``posterior_predictive``, if there is
    one for each draw of the log likelihood and each observation: they tell the calibration,
    quantiles and moments of mixtures, such as those of :func:`lockquack.stack`, which can also be
    sampled.

    The variables of all groups should have the outcome's name. Where ``log_likelihood`` holds a
    single variable of another name, as Stan's ``log_lik``, it is treated as that of the
    variable in ``observed_data`` that has its shape, if there is only one.

    Draws that are dask arrays, and those of a large file, stay where they are and are read chunk
    by chunk in a pass, on the cluster of the active dask client if there is one.

    Parameters
    ----------
    data
        The container, or the path of a NetCDF file or Zarr store.
    var_name
        The outcome's name; needed if there are several. With a list of names they are scored
        jointly: an observation is the vector of all outcomes along the dimensions that they have
        in common, and its log density is the sum of theirs.
    y
        The outcomes, if the container has none, (obs,) or (obs, component), **on their natural
        scale**. Where it has some, they must be the same.
    transform
        ``"log"`` or another name of :func:`from_family` if what was observed is that function of
        the outcome. The log densities get the Jacobian, and so do their derivatives, if there are
        any; predictive draws are brought back.
    lazy
        Whether to leave the draws of a file on disk, which needs dask. By default they are left
        there if dask is installed and there are more than 256 MiB, or a dask client is active.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`. A name is
        that of a variable in ``constant_data`` or ``observed_data``. None: those with which the
        model was saved, if any.

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
    return read_container(data, var_name, y, transform, weights, lazy=lazy)


def read_container(
    data: Any,
    var_name: str | Sequence[str] | None = None,
    y: Any = None,
    transform: str | None = None,
    weights: Any = None,
    *,
    lazy: bool | None = None,
    outcomes_needed: bool = True,
) -> Model:
    """Do what :func:`from_datatree` does; outcomes that are not needed may be missing.

    Without them, the model has log scores only.
    """
    if not isinstance(data, str | Path):
        return _from_tree(as_tree(data), var_name, y, transform, weights, outcomes_needed)
    path = Path(data)
    with naming(str(path)):
        return _from_tree(_open(path, lazy), var_name, y, transform, weights, outcomes_needed)


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
    with explaining(path):
        in_chunks = partial(_in_chunks, path=path)
        chunked = {group: tree[group].to_dataset().map(in_chunks) for group in draws}
        others = {name: child.to_dataset() for name, child in tree.children.items()}
        read = {name: others[name].load() for name in _SMALL if name in others}
    return xr.DataTree.from_dict({"/": tree.to_dataset(), **others, **read, **chunked})


def _in_chunks(array: xr.DataArray, path: Path) -> xr.DataArray:
    import dask.array as da

    stored = array.encoding.get("preferred_chunks")
    chunks = chunks_for(array.sizes, stored, array.dtype.itemsize)
    lazy = da.from_array(
        _Stored(array.variable, path), chunks=tuple(chunks.values()), name=False, asarray=False
    )
    return array.copy(data=lazy)


@dataclass(frozen=True, eq=False)
class _Stored:
    """Draws in a file, of which parts are read when they are needed; errors name the file."""

    variable: xr.Variable
    path: Path

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape

    @property
    def dtype(self) -> Any:
        return self.variable.dtype

    @property
    def ndim(self) -> int:
        return self.variable.ndim

    def __getitem__(self, key: Any) -> Any:
        with explaining(self.path):
            return self.variable[key].values


def _from_tree(
    tree: xr.DataTree,
    var_name: str | Sequence[str] | None,
    y: Any,
    transform: str | None,
    weights: Any,
    outcomes_needed: bool,
) -> Model:
    if is_combination(tree.attrs):
        raise UnsupportedError(
            "This is a combination, not a model. ",
            advice("Read it with lq.load.", "Name the files of its models instead."),
        )
    needed = outcomes_needed and y is None
    alone = None if outcomes_needed else outcomes_alone(tree, var_name, y)
    if alone is not None:
        draws, outcomes, held_out = alone
        own = case_weights(tree, weights)
        model = from_draws(draws, y=outcomes, held_out=held_out, transform=transform, weights=own)
        assert isinstance(model.source, DrawnSource)
        lacking = f"The container has no group {LOGP_GROUP!r}. "
        remedy = Text(lacking, how_to_add_densities(tree, or_draws=False))
        return Model(replace(model.source, remedy=remedy))
    if var_name is None or isinstance(var_name, str):
        found = find_outcome(tree, var_name, outcomes_needed=needed)
    else:
        found = join_outcomes([find_outcome(tree, n, outcomes_needed=needed) for n in var_name])
    found, natural, modelled = _with_observations(found, y, transform)
    likelihood = Likelihood.from_attrs(found.logp.attrs, default=f"outcome {found.name!r}")
    grad, curv = found.derivatives or (None, None)
    source = hold_draws(modelled, found.logp, grad, curv, likelihood)
    source = replace(
        source,
        log_marginal_likelihood=log_marginal_likelihood(tree),
        held_out=is_held_out(found.logp),
        divergent=divergences(tree),
        outcome_draws=predictive_draws(found, source),
    )
    if transform is None:
        source = source.named(found.outcome_name)
    natural_source = on_natural_scale(source, transform, natural)
    return Model(natural_source).with_weights(case_weights(tree, weights))


def case_weights(tree: xr.DataTree, given: Any) -> Any:
    """Find case weights in a container: by their name, or those with which it was saved."""
    if given is None:
        return stored_case_weights(tree)
    if not isinstance(given, str):
        return given
    known: dict[str, xr.DataArray] = {}
    for group in (OBSERVED_GROUP, CONSTANT_GROUP):
        if group in tree.children:
            variables = tree[group].to_dataset().data_vars
            known |= {str(name): values for name, values in variables.items()}
    if given not in known:
        raise unknown_name("variable with case weights", given, known)
    return known[given]


def _with_observations(
    found: StoredOutcome, y: Any, transform: str | None
) -> tuple[StoredOutcome, Observations | None, Observations]:
    """Return also the outcomes, where they are given, and what the model sees of them."""
    if y is None and found.y is None:
        if transform is not None:
            raise ParameterError(
                f"The Jacobian of the transform {transform!r} depends on the outcomes, which are "
                "not there. Give them on their natural scale, by ",
                advice("y= of lq.from_datatree", "--y"),
                ".",
            )
        return found, None, unknown_outcomes(found.logp.isel(chain=0, draw=0, drop=True))
    if y is None:
        return found, None, as_observations(found.y, found.component_dim)
    given = labelled_like(y, found.logp)
    if found.y is not None:
        stored = as_observations(found.y, found.component_dim)
        natural = agreeing(as_observations(given), stored, transform)
        return found, natural, stored
    if isinstance(given, xr.DataArray):
        found = found.of(given)
    natural = as_observations(given, found.component_dim)
    return found, natural, on_scale_of_model(natural, transform)


def agreeing(given: Observations, stored: Observations, transform: str | None) -> Observations:
    """Return given outcomes with the labels of those in a container, of which they are t⁻¹.

    Outcomes that contradict these are refused.
    """
    modelled = on_scale_of_model(given, transform)
    if given.values.size != stored.values.size:
        raise ObservationMismatchError(
            f"There are {given.n} outcomes of {given.d} component(s) in ",
            advice("y=", "--y"),
            f", and {stored.n} of {stored.d} in the container.",
        )
    modelled = replace(stored, values=modelled.values.reshape(stored.values.shape))
    differs = differing(stored, modelled)
    if differs.any():
        at = int(differs.argmax())
        raise ObservationMismatchError(
            "The outcomes in ",
            advice("y=", "--y"),
            f" differ from those that the container holds at {differs.sum()} observations, first "
            f"at {stored.describe(at)}: {modelled.values[at].tolist()} and "
            f"{stored.values[at].tolist()}. Leave them out, or give those that the model was "
            "fitted to; ",
            advice("transform=", "--transform"),
            " if it is a model of a function of them.",
        )
    return replace(modelled, values=given.values.reshape(stored.values.shape), name=given.name)


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
