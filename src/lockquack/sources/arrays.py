"""Models given as arrays of log densities and, where there are any, derivatives."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import LockquackError, ParameterError, ShapeError
from lockquack.families import find_family
from lockquack.families.base import Edge, worst_edges
from lockquack.families.refused import find_refused
from lockquack.jets import Numeric
from lockquack.models.labels import (
    labels_of,
    merge_labels,
    require_same_labels,
    require_same_order,
    storable,
    string_dims,
)
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import (
    COMPONENT_DIM,
    SAMPLE_DIMS,
    Observations,
    as_observations,
    as_support,
    require_inside,
    require_whole,
)
from lockquack.models.transformed import on_natural_scale, on_scale_of_model
from lockquack.numeric import as_numeric
from lockquack.sources.chunked import ChunkedSource
from lockquack.sources.in_memory import ArraySource, first_unusable, unusable


@own_arithmetic
def from_arrays(
    *,
    logp: Any,
    y: Any,
    grad: Any = None,
    curv: Any = None,
    support: tuple[float, float] | None = None,
    component_dim: Hashable | None = None,
    likelihood: str | None = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    r"""Make a model from arrays of log densities and, if known, their derivatives by the outcome.

    .. math::

        \texttt{logp} = \log f(y_i \mid \theta_s), \quad
        \texttt{grad} = \partial_{y} \log f(y_i \mid \theta_s), \quad
        \texttt{curv} = \partial^2_{y} \log f(y_i \mid \theta_s)

    The derivatives are in the **observation** y, not in the parameters: the gradients that
    Hamiltonian Monte Carlo computes are others. They cannot be checked against ``logp`` here,
    because the density is known at one point only. Without them the model has log scores, and
    can be stacked, but no Hyvärinen score.

    Dask arrays, labelled or not, stay where they are: a pass reads them chunk by chunk, on the
    cluster of the active dask client if there is one. Whether they are finite is seen only then.

    Parameters
    ----------
    logp
        Log densities, (chain, draw, obs). numpy or dask arrays, or DataArrays with dimensions
        ``chain`` and ``draw``, in any order and memory layout.
    y
        The outcomes, (obs,) or (obs, component). A DataArray passes on its labels.
    grad, curv
        First and second derivatives, both or neither, (chain, draw, obs) or, for vector
        outcomes, (chain, draw, obs, component).
    support
        Lower and upper end of the outcomes that are possible under the model, if not all reals.
        Its density is taken to vanish there with its derivative, as a log-normal does; of a
        discrete likelihood, the smallest and the largest outcome.
    component_dim
        For DataArrays with more than one observation dimension: which dimension of ``y`` holds
        the components of a vector outcome.
    likelihood
        What the densities are of, such as ``"weibull"``: a name for messages and tables. One
        that the Hyvärinen score is not proper for, such as ``"laplace"``, or that is discrete,
        such as ``"poisson"``, is remembered and refused there.
    transform
        ``"log"``, ``"sqrt"`` or another name of :func:`from_family` if the arrays are of that
        function of y: log densities of log y and their derivatives with respect to log y.
        They get the Jacobian; ``y`` is given **on its natural scale**, ``support`` on that of the
        model.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.array([-1.0, 0.5, 2.0])
    >>> mu = np.random.default_rng(1).normal(0.5, 0.5, size=(4, 250, 1))
    >>> lq.from_arrays(logp=-0.5 * (y - mu) ** 2, grad=mu - y, curv=-np.ones((4, 250, 3)), y=y)
    <Model arrays; chain: 4, draw: 250, obs_id: 3, components: 1>
    """
    natural = as_observations(labelled_like(y, logp), component_dim)
    observations = on_scale_of_model(natural, transform)
    described = _with_support(_named(likelihood), support, observations)
    source = hold_draws(observations, logp, grad, curv, described)
    return Model(on_natural_scale(source, transform, natural)).with_weights(weights)


def hold_draws(
    observations: Observations, logp: Any, grad: Any, curv: Any, likelihood: Likelihood
) -> ArraySource | ChunkedSource:
    """Hold arrays of log densities and, if there are any, of their derivatives, as they are."""
    draws = {"logp": sample_first("logp", logp, observations, vector=False)}
    if _both_given(grad, curv):
        draws["grad"] = sample_first("grad", grad, observations, vector=True)
        draws["curv"] = sample_first("curv", curv, observations, vector=True)
    merge_labels({"logp": logp, "grad": grad, "curv": curv})
    shape = draws["logp"].shape[:2]
    if 0 in shape:
        raise ShapeError(
            f"logp has {shape[0]} chains of {shape[1]} draws; at least one draw is needed."
        )
    for name, array in draws.items():
        if array.shape[:2] != shape:
            raise ShapeError(
                f"{name} has {array.shape[0]} chains of {array.shape[1]} draws, logp has "
                f"{shape[0]} of {shape[1]}. They must come from the same draws."
            )
    if any(map(is_chunked, draws.values())):
        return ChunkedSource.of(observations, likelihood, draws)
    for name, array in draws.items():
        _require_finite(name, array, observations)
    tail = (observations.n, observations.d if "grad" in draws else 0)
    nothing = np.empty((*shape, observations.n, 0))
    return ArraySource(
        observations,
        n_chains=shape[0],
        n_draws=shape[1],
        likelihood=likelihood,
        logp_draws=draws["logp"],
        grad_draws=draws.get("grad", nothing).reshape(*shape, *tail),
        curv_draws=draws.get("curv", nothing).reshape(*shape, *tail),
    )


def _both_given(grad: Any, curv: Any) -> bool:
    if (grad is None) != (curv is None):
        there, lacking = ("grad", "curv") if curv is None else ("curv", "grad")
        raise ParameterError(
            f"There is {there} but no {lacking}. Give both derivatives, or neither and use the "
            "log score."
        )
    return grad is not None


def _named(name: str | None) -> Likelihood:
    """Gather what a name alone tells about a likelihood."""
    if name is None:
        return Likelihood("arrays")
    if not isinstance(name, str):
        raise LockquackError(f"likelihood must be a name; got a {type(name).__name__}.")
    family = find_family(name)
    if family is not None:
        return Likelihood(name, family.discrete, family.fixed_edges)
    refused = find_refused(name)
    if refused is None:
        return Likelihood(name)
    return Likelihood(name, refused.discrete, refused.edges, refused.not_smooth)


def _with_support(likelihood: Likelihood, support: Any, observations: Observations) -> Likelihood:
    if support is None:
        return likelihood
    low, high = as_support(support)
    if likelihood.discrete:
        require_whole("support", observations, (low, high))
    else:
        require_inside("support", observations.values, (low, high), observations)
    edges = (*likelihood.edges, Edge(low, np.inf), Edge(high, np.inf))
    return replace(likelihood, edges=worst_edges(edges))


def labelled_like(y: Any, logp: Any) -> Any:
    """Give an unlabelled y the observation labels of a labelled logp."""
    if isinstance(y, xr.DataArray) or not isinstance(logp, xr.DataArray):
        return y
    is_table = isinstance(y, pd.Series | pd.DataFrame)
    if is_table and y.index.name in logp.dims:
        return y
    values = as_numeric("y", y)
    template = logp.isel({dim: 0 for dim in SAMPLE_DIMS if dim in logp.dims}, drop=True)
    if is_table and template.ndim == 1 and template.dims[0] in template.indexes:
        theirs = storable(template.indexes[template.dims[0]])
        require_same_order("y", storable(y.index), theirs, of="logp")
    if values.shape == template.shape:
        return template.copy(data=values).rename(getattr(y, "name", None))
    if values.shape[:-1] == template.shape:
        return xr.DataArray(
            values, dims=[*template.dims, COMPONENT_DIM], coords=dict(template.coords)
        )
    return y


def sample_first(name: str, given: Any, observations: Observations, *, vector: bool) -> Any:
    """Bring an array to (chain, draw, obs[, component]), as a view where that is possible.

    Scalar outcomes have no axis of components.
    """
    sizes = observations.sizes
    if vector and observations.component_dim is not None:
        sizes[observations.component_dim] = observations.d
    if isinstance(given, xr.DataArray):
        given = _transpose(name, string_dims(given), [*SAMPLE_DIMS, *sizes])
        require_same_labels(name, labels_of(given), observations.index)
    values = _without_labels(name, given)
    if values.ndim < 2 or values.shape[2:] != tuple(sizes.values()):
        expected = ", ".join([*SAMPLE_DIMS, *(f"{dim}: {size}" for dim, size in sizes.items())])
        raise ShapeError(
            f"{name} must have shape ({expected}) to go with y; got {values.shape}."
            f"{_missing_axis(values.shape, tuple(sizes.values()), observations)}"
        )
    own = values.shape[2 + len(observations.dims) :]
    return values.reshape(*values.shape[:2], observations.n, *own)


def is_chunked(given: Any) -> bool:
    """Whether this is a dask array, labelled or not; nothing is imported to find out."""
    if isinstance(given, xr.DataArray):
        return given.chunks is not None
    return type(given).__module__.startswith("dask.array")


def _without_labels(name: str, given: Any) -> Any:
    """Return the numbers as an array of numpy's or dask's."""
    if not is_chunked(given):
        return as_numeric(name, given)
    array = given.data if isinstance(given, xr.DataArray) else given
    as_numeric(name, np.empty(0, dtype=array.dtype))
    return array


def _missing_axis(
    shape: tuple[int, ...], expected: tuple[int, ...], observations: Observations
) -> str:
    if shape[1:] == expected:
        return " For a single chain, add its axis: array[None]."
    if shape[:1] == expected:
        return " Draws come before observations: array.T[None]."
    if expected != observations.shape and shape[2:] == observations.shape:
        return f" Add the axis of the {observations.d} components, which comes last."
    return ""


def _transpose(name: str, given: xr.DataArray, dims: list[str]) -> xr.DataArray:
    if set(given.dims) != set(dims):
        raise ShapeError(
            f"{name} has the dimensions {given.dims}; with this y they must be {tuple(dims)}, "
            "in any order. Rename them, or say which is part of one outcome by component_dim=."
        )
    return given.transpose(*dims)


def _require_finite(name: str, array: Numeric, observations: Observations) -> None:
    found = first_unusable(name, array)
    if found is not None:
        value, (chain, draw, obs) = found
        raise unusable(name, value, f"chain {chain}, draw {draw}, {observations.describe(obs)}")
