"""Reading parameters: which axis is which, chains and draws, observations, its own."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.arithmetic import LARGEST
from lockquack.errors import ParameterError
from lockquack.jets import Array
from lockquack.models.labels import (
    from_pandas,
    labels_of,
    require_same_labels,
    require_same_order,
    string_dims,
)
from lockquack.models.observations import SAMPLE_DIMS, Observations
from lockquack.numeric import all_within, as_numeric
from lockquack.sources.parameters import ArrayParameter, LinearPredictor, Parameter, samples_first

Shape = tuple[int, ...]

#: Chains that an array may have, with as many observations as it has chains or draws, before
#: it is asked whether it has draws where chains should be.
_MOST_CHAINS = 16


def user_name(name: str) -> str:
    """Return how users know a parameter: ``"0.sigma"`` of a mixture is ``"component 0: sigma"``."""
    *path, last = name.split(".")
    return "".join(f"component {k}: " for k in path) + last


def as_parameter(name: str, given: Any, observations: Observations, event: Shape) -> Parameter:
    """Read a parameter from a number, an array, a DataArray or a linear predictor.

    Parameters
    ----------
    name
        Its name in the family; a mixture's have the component in front, ``"0.sigma"``.
    given
        What the user gave.
    observations
        What it must fit.
    event
        Shape of one of its values: () for numbers, (d,) for a mean vector.
    """
    title = user_name(name)
    if isinstance(given, LinearPredictor):
        return _fitting(title, given, observations, event)
    if isinstance(given, pd.Series):
        _require_one_each(title, given, observations)
        given = from_pandas(given, observations.dims[0], "", named=False)
    values = np.asarray(as_numeric(f"Parameter {title!r}", given, ParameterError), np.float64)
    if isinstance(given, xr.DataArray):
        return _from_dataarray(title, given.copy(data=values), observations, event)
    return _from_array(title, values, observations, event)


def _require_one_each(title: str, given: pd.Series[Any], observations: Observations) -> None:
    """Refuse a Series of another length than there are observations, such as one of draws."""
    if len(observations.dims) == 1 and len(given) != observations.n:
        raise ParameterError(
            f"Parameter {title!r}: a Series is read as one value per observation; this one has "
            f"{len(given)} values for {observations.n} observations. For draws of a single chain "
            "give series.to_numpy()[None]."
        )


def require_domain(
    name: str, parameter: Parameter, observations: Observations, *, positive: bool
) -> None:
    """Refuse a value that is not finite, or not positive where it must be, and say where it is.

    A regression is checked as it is computed, tile by tile.
    """
    if not isinstance(parameter, ArrayParameter):
        return
    values, limit = parameter.values, LARGEST["parameter"]
    if not all_within(values, limit):
        if not np.isfinite(values).all():
            raise _outside("finite", ~np.isfinite(values), name, parameter, observations)
        at_most = f"at most {limit:g} in size"
        raise _outside(at_most, np.abs(values) > limit, name, parameter, observations)
    if positive and values.min() <= 0:
        raise _outside("positive", values <= 0, name, parameter, observations)
    if positive and values.min() < 1 / limit:
        at_least = f"at least {1 / limit:g}"
        raise _outside(at_least, values < 1 / limit, name, parameter, observations)


def _outside(
    wanted: str,
    bad: np.ndarray[Any, np.dtype[np.bool_]],
    name: str,
    parameter: ArrayParameter,
    observations: Observations,
) -> ParameterError:
    first = np.unravel_index(int(bad.argmax()), bad.shape)
    where = [f"chain {first[0]}, draw {first[1]}"] if parameter.has_draws else []
    if bad.shape[2] > 1:
        where.append(observations.describe(int(first[2])))
    if bad.ndim > 3:
        where.append(f"entry {tuple(int(i) for i in first[3:])}")
    more = f" {bad.sum() - 1} more of its values are not." if bad.sum() > 1 else ""
    return ParameterError(
        f"Parameter {user_name(name)!r} must be {wanted}; it is {parameter.values[first]:g}"
        f"{' at ' if where else ''}{', '.join(where)}.{more}"
    )


def _fitting(
    title: str, given: LinearPredictor, observations: Observations, event: Shape
) -> LinearPredictor:
    if len(given.X) != observations.n:
        raise ParameterError(
            f"The linear predictor of {title!r} has {len(given.X)} rows of X; there are "
            f"{observations.n} observations."
        )
    if given.event != event:
        chain, draw, p = given.coef.shape[:3]
        raise ParameterError(
            f"The linear predictor of {title!r} has coef of shape {given.coef.shape}; this "
            f"parameter of outcomes of {observations.d} component(s) needs "
            f"{(chain, draw, p, *event)}."
        )
    _require_same_rows(f"the X of {title}", given, observations)
    return given


def _require_same_rows(name: str, given: LinearPredictor, observations: Observations) -> None:
    """Compare the rows of X with the observations."""
    if len(observations.dims) > 1:
        require_same_labels(name, given.labels, observations.index)
        return
    (dim,) = observations.dims
    theirs = observations.index.get(dim)
    for own, labels in given.labels.items():
        if given.of_table or own == dim:
            require_same_labels(name, {dim: labels}, observations.index)
        elif theirs is not None:
            require_same_order(name, labels, theirs)


def _from_array(
    title: str, values: Array, observations: Observations, event: Shape
) -> ArrayParameter:
    """Read axes by their number and length, as arrays without names allow."""
    lead = _lead(values.shape, event)
    if lead is None:
        raise _wrong_shape(title, values.shape, observations, event)
    as_draws, constant = _fits_as_draws(lead, observations), _fits_as_constant(lead, observations)
    if as_draws and constant:
        raise ParameterError(
            f"Parameter {title!r} has shape {values.shape}, which could be (chain, draw) or the "
            f"grid of observations {observations.dims}. Name its dimensions: "
            f"xr.DataArray(..., dims={SAMPLE_DIMS}) or dims={observations.dims}."
        )
    if as_draws:
        _require_few_chains(title, lead, observations)
        return ArrayParameter(values.reshape(*lead[:2], prod(lead[2:]), *event), has_draws=True)
    if constant:
        return ArrayParameter(values.reshape(1, 1, prod(lead), *event), has_draws=False)
    raise _wrong_shape(title, values.shape, observations, event)


def _lead(shape: Shape, event: Shape) -> Shape | None:
    """Axes before those of the parameter itself; None where these do not fit."""
    free = len(shape) - len(event)
    return shape[:free] if free >= 0 and shape[free:] == event else None


def _fits_as_draws(lead: Shape, observations: Observations) -> bool:
    return len(lead) >= 2 and lead[2:] in ((), observations.shape, (observations.n,), (1,))


def _fits_as_constant(lead: Shape, observations: Observations) -> bool:
    return lead in ((), observations.shape, (observations.n,))


def _require_few_chains(title: str, lead: Shape, observations: Observations) -> None:
    """Refuse (draw, obs) and (obs, draw), which would be read as very many chains."""
    if len(lead) > 2 or lead[0] <= min(lead[1], _MOST_CHAINS) or observations.n not in lead:
        return
    meant = "array[None]" if lead[1] == observations.n else "array.T[None]"
    raise ParameterError(
        f"Parameter {title!r} has shape {lead}, which is read as (chain, draw): {lead[0]} "
        f"chains of {lead[1]} draws. There are {observations.n} observations: did you mean "
        f"{meant} (one chain, draws, observations)? If these are chains, give array[..., None]."
    )


def _wrong_shape(
    title: str, shape: Shape, observations: Observations, event: Shape
) -> ParameterError:
    grid = ", ".join(map(str, observations.shape))
    own = "".join(f", {size}" for size in event)
    lead = _lead(shape, event)
    hint = ""
    if (
        event
        and lead is None
        and (_fits_as_draws(shape, observations) or _fits_as_constant(shape, observations))
    ):
        hint = f" It lacks its own axes, which come last: {event}."
    elif lead is not None and (len(lead) == 1 or lead[1:] == observations.shape):
        hint = " For a single chain, add its axis: array[None]."
    if len(observations.shape) > 1:
        hint += f" Or name its dimensions: xr.DataArray(..., dims=({observations.dims[0]!r}, ...))."
    return ParameterError(
        f"Parameter {title!r} has shape {shape}; with {' × '.join(map(str, observations.shape))} "
        f"observations of {observations.d} component(s) it must be (chain, draw{own}) or "
        f"(chain, draw, {grid}{own}), or ({grid}{own}) where it is the same in all draws.{hint}"
    )


def _from_dataarray(
    title: str, given: xr.DataArray, observations: Observations, event: Shape
) -> ArrayParameter:
    """Read dimensions by their names; those of the observations that it lacks are broadcast."""
    has_draws = any(dim in given.dims for dim in SAMPLE_DIMS)
    given = samples_first(title, given) if has_draws else string_dims(given)
    labels = labels_of(given)
    given = _name_the_observations(title, given, observations, len(event))
    require_same_labels(title, labels_of(given), observations.index)
    grid = [dim for dim in observations.dims if dim in given.dims]
    own = [dim for dim in given.dims if dim not in (*SAMPLE_DIMS, *grid)]
    sizes = tuple(given.sizes.get(dim, 1) for dim in observations.dims)
    shape = tuple(given.sizes[dim] for dim in own)
    if shape != event or any(given.sizes[dim] != observations.sizes[dim] for dim in grid):
        raise ParameterError(
            f"Parameter {title!r} has the dimensions {dict(given.sizes)}; the observations are "
            f"{observations.sizes}, and its own dimensions, which come last, must be of shape "
            f"{event}."
        )
    values = given.transpose(*SAMPLE_DIMS, *grid, *own, missing_dims="ignore").values
    lead = values.shape[:2] if has_draws else (1, 1)
    values = values.reshape(*lead, *sizes, *event)
    if grid:
        values = np.broadcast_to(values, (*lead, *observations.shape, *event))
    return ArrayParameter(
        values.reshape(*lead, observations.n if grid else 1, *event), has_draws, labels
    )


def _name_the_observations(
    title: str, given: xr.DataArray, observations: Observations, event_dims: int
) -> xr.DataArray:
    """Let the one dimension of another name, such as ArviZ's mu_dim_0, be the observations'."""
    known = (*SAMPLE_DIMS, *observations.dims)
    others = [dim for dim in given.dims if dim not in known]
    if observations.component_dim in others and event_dims == 1:
        others.sort(key=lambda dim: dim == observations.component_dim)
    unknown = others[: max(len(others) - event_dims, 0)]
    given = given.squeeze([dim for dim in unknown if given.sizes[dim] == 1], drop=True)
    unknown = [dim for dim in unknown if dim in given.dims]
    if not unknown:
        return given
    named = [dim for dim in observations.dims if dim in given.dims]
    if named or len(unknown) > 1 or len(observations.dims) > 1:
        listed = ", ".join(repr(dim) for dim in unknown)
        raise ParameterError(
            f"Parameter {title!r} has dimensions that the observations do not have, {listed}: "
            f"theirs are {observations.dims}. Rename those that are the same."
        )
    if given.sizes[unknown[0]] != observations.n:
        raise ParameterError(
            f"Parameter {title!r} has {given.sizes[unknown[0]]} values along {unknown[0]!r}; "
            f"there are {observations.n} observations."
        )
    theirs = observations.index.get(observations.dims[0])
    if theirs is not None and unknown[0] in labels_of(given):
        require_same_order(title, labels_of(given)[unknown[0]], theirs)
    # Otherwise its labels are another dimension's, and say nothing about those of y.
    return given.drop_vars(unknown, errors="ignore").rename({unknown[0]: observations.dims[0]})
