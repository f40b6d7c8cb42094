"""Models given as arrays of log densities and derivatives."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.errors import LockquackError, NonFiniteError, ShapeError, SupportError
from lockquack.families.base import Edge
from lockquack.families.refused import find_refused
from lockquack.jets import Array, Numeric, all_finite
from lockquack.labels import (
    labels_of,
    require_same_labels,
    require_same_order,
    storable,
    string_dims,
)
from lockquack.numeric import as_numeric
from lockquack.observations import (
    COMPONENT_DIM,
    Observations,
    as_observations,
    require_inside,
)
from lockquack.predictive import Likelihood, Predictive

SAMPLE_DIMS = ("chain", "draw")


@dataclass(frozen=True, eq=False, repr=False)
class ArrayPredictive(Predictive):
    """Draws held as three arrays."""

    logp_draws: Numeric  # (chain, draw, obs)
    grad_draws: Numeric  # (chain, draw, obs, component)
    curv_draws: Numeric  # (chain, draw, obs, component)

    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        """Log densities of a tile, shape (draws, obs)."""
        return _float64(self.logp_draws[chain, draws, obs])

    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        """First and second derivatives of a tile, each of shape (draws, obs, component)."""
        return (
            _float64(self.grad_draws[chain, draws, obs]),
            _float64(self.curv_draws[chain, draws, obs]),
        )

    @property
    def draws_are_contiguous(self) -> bool:
        """Whether neighbouring draws, not neighbouring observations, lie together in memory."""
        _, draw, obs = self.grad_draws.strides[:3]
        return bool(abs(draw) < abs(obs))


def from_arrays(
    *,
    logp: Any,
    grad: Any,
    curv: Any,
    y: Any,
    support: tuple[float, float] | None = None,
    component_dim: Hashable | None = None,
    likelihood: str | None = None,
) -> Predictive:
    r"""Take a model from arrays of log densities and their derivatives in the outcome.

    .. math::

        \texttt{logp} = \log f(y_i \mid \theta_s), \quad
        \texttt{grad} = \partial_{y} \log f(y_i \mid \theta_s), \quad
        \texttt{curv} = \partial^2_{y} \log f(y_i \mid \theta_s)

    The derivatives are in the **observation** y, not in the parameters: the gradients that
    Hamiltonian Monte Carlo computes are others. They cannot be checked against ``logp`` here,
    because the density is known at one point only.

    Parameters
    ----------
    logp
        Log densities, (chain, draw, obs). numpy arrays or DataArrays with dimensions
        ``chain`` and ``draw``, in any order and memory layout.
    grad, curv
        First and second derivatives, (chain, draw, obs) or, for vector outcomes,
        (chain, draw, obs, component).
    y
        The outcomes, (obs,) or (obs, component). A DataArray passes on its labels.
    support
        Lower and upper end of the outcomes that the model deems possible, if not all reals.
        Its density is taken to vanish there with its derivative, as a log-normal does.
    component_dim
        For DataArrays with more than one observation dimension: which dimension of ``y`` holds
        the components of a vector outcome.
    likelihood
        What the densities are of, such as ``"weibull"``: a name for messages and tables. One
        that the Hyvärinen score is not proper for, such as ``"poisson"`` or ``"laplace"``, is
        remembered and refused there.

    Returns
    -------
    Predictive
        A model for :func:`lockquack.lock` and its relatives.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.array([-1.0, 0.5, 2.0])
    >>> mu = np.random.default_rng(1).normal(0.5, 0.5, size=(4, 250, 1))
    >>> lq.from_arrays(logp=-0.5 * (y - mu) ** 2, grad=mu - y, curv=-np.ones((4, 250, 3)), y=y)
    <ArrayPredictive arrays; chain: 4, draw: 250, obs_id: 3, components: 1>
    """
    observations = as_observations(_labelled_like(y, logp), component_dim)
    draws = {
        "logp": _sample_first("logp", logp, observations, vector=False),
        "grad": _sample_first("grad", grad, observations, vector=True),
        "curv": _sample_first("curv", curv, observations, vector=True),
    }
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
        _require_finite(name, array, observations)
    return ArrayPredictive(
        observations,
        n_chains=shape[0],
        n_draws=shape[1],
        likelihood=_likelihood(likelihood, _edges(support, observations)),
        logp_draws=draws["logp"],
        grad_draws=draws["grad"],
        curv_draws=draws["curv"],
    )


def _likelihood(name: str | None, edges: tuple[Edge, ...]) -> Likelihood:
    if name is None:
        return Likelihood("arrays", edges=edges)
    if not isinstance(name, str):
        raise LockquackError(f"likelihood must be a name; got a {type(name).__name__}.")
    refused = find_refused(name)
    if refused is None:
        return Likelihood(name, edges=edges)
    return Likelihood(name, refused.discrete, edges, refused.not_smooth)


def _edges(support: Any, observations: Observations) -> tuple[Edge, ...]:
    if support is None:
        return ()
    ends = as_numeric("support", support, SupportError)
    if ends.shape != (2,) or not ends[0] < ends[1]:
        raise SupportError(
            f"support must be two numbers, the lower first, such as (0, np.inf); got {support!r}."
        )
    low, high = float(ends[0]), float(ends[1])
    require_inside("support", observations.values, (low, high), observations)
    return Edge(low, np.inf), Edge(high, np.inf)


def _labelled_like(y: Any, logp: Any) -> Any:
    """Give an unlabelled y the observation labels of a labelled logp."""
    if isinstance(y, xr.DataArray) or not isinstance(logp, xr.DataArray):
        return y
    if isinstance(y, pd.Series) and y.index.name in logp.dims:
        return y
    values = as_numeric("y", y)
    template = logp.isel({dim: 0 for dim in SAMPLE_DIMS if dim in logp.dims}, drop=True)
    if isinstance(y, pd.Series) and template.ndim == 1 and template.dims[0] in template.indexes:
        theirs = storable(template.indexes[template.dims[0]])
        require_same_order("y", storable(y.index), theirs, of="logp")
    if values.shape == template.shape:
        return template.copy(data=values)
    if values.shape[:-1] == template.shape:
        return xr.DataArray(
            values, dims=[*template.dims, COMPONENT_DIM], coords=dict(template.coords)
        )
    return y


def _sample_first(name: str, given: Any, observations: Observations, *, vector: bool) -> Numeric:
    """Bring an array to (chain, draw, obs[, component]), as a view where that is possible."""
    sizes = observations.sizes
    if vector and observations.component_dim is not None:
        sizes[observations.component_dim] = observations.d
    if isinstance(given, xr.DataArray):
        given = _transpose(name, string_dims(given), [*SAMPLE_DIMS, *sizes])
        require_same_labels(name, labels_of(given), observations.labels)
    values = as_numeric(name, given)
    if values.ndim < 2 or values.shape[2:] != tuple(sizes.values()):
        expected = ", ".join([*SAMPLE_DIMS, *(f"{dim}: {size}" for dim, size in sizes.items())])
        raise ShapeError(
            f"{name} must have shape ({expected}) to go with y; got {values.shape}."
            f"{_missing_axis(values.shape, tuple(sizes.values()), observations)}"
        )
    flat = values.reshape(*values.shape[:2], observations.n, observations.d if vector else 1)
    return flat if vector else flat[..., 0]


def _missing_axis(
    shape: tuple[int, ...], expected: tuple[int, ...], observations: Observations
) -> str:
    if shape[1:] == expected:
        return " For a single chain, add its axis: array[None]."
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
    if all_finite(array):
        return
    for chain, draw in np.ndindex(array.shape[:2]):
        row = array[chain, draw]
        if not np.isfinite(row).all():
            first = np.argwhere(~np.isfinite(row))[0]
            raise NonFiniteError(
                f"{name} is {row[tuple(first)]} at chain {chain}, draw {draw}, "
                f"{observations.describe(int(first[0]))}."
            )


def _float64(tile: Numeric) -> Array:
    return np.asarray(tile, dtype=np.float64)
