"""A model's parameters at other observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import ParameterError
from lockquack.jets import Array, all_finite
from lockquack.models.labels import from_pandas, labels_of, require_same_labels, string_dims
from lockquack.models.observations import SAMPLE_DIMS, Observations
from lockquack.numeric import as_numeric
from lockquack.sources.parameter_reading import as_parameter, user_name
from lockquack.sources.parameters import (
    ArrayParameter,
    LinearPredictor,
    Parameter,
    read_offset,
)


def move_parameters(
    parameters: Mapping[str, Parameter],
    data: Mapping[str, Any],
    observations: Observations,
    event_shape: Callable[[str], tuple[int, ...]],
) -> dict[str, Parameter]:
    """Bring the parameters of a family to other observations.

    ``data`` has parameters by name, ``x`` for the covariates of regressions and ``offset`` for
    what these add.
    """
    given = dict(data)
    x, offset = given.pop("x", None), given.pop("offset", None)
    regressions = _regressions(parameters)
    _require_known(parameters, given, x, offset, regressions)
    moved: dict[str, Parameter] = {}
    for name, parameter in parameters.items():
        if name in given:
            moved[name] = as_parameter(name, given[name], observations, event_shape(name))
        elif isinstance(parameter, LinearPredictor):
            covariates = x.get(name) if isinstance(x, Mapping) else x
            moved[name] = _regression(name, parameter, covariates, offset, observations)
        elif isinstance(parameter, ArrayParameter) and parameter.values.shape[2] == 1:
            moved[name] = parameter
        else:
            raise ParameterError(
                f"Parameter {user_name(name)!r} differs between observations; say what it is at "
                f"the new ones: {name}=..."
            )
    return moved


def names_of_data(parameters: Mapping[str, Parameter]) -> frozenset[str]:
    """Names under which something about other observations can be given."""
    return frozenset([*parameters, *(("x", "offset") if _regressions(parameters) else ())])


def _regressions(parameters: Mapping[str, Parameter]) -> list[str]:
    return [name for name, each in parameters.items() if isinstance(each, LinearPredictor)]


def rows_of_parameter(given: Any, event_dims: int) -> set[int]:
    """How many observations a parameter is given for; empty where it is the same at all."""
    if isinstance(given, LinearPredictor):
        return {len(given.X)}
    if isinstance(given, xr.DataArray):
        lead = tuple(given.sizes[dim] for dim in given.dims if dim not in SAMPLE_DIMS)
    else:
        lead = np.shape(given)
        lead = lead[2:] if len(lead) - event_dims >= 2 else lead
    return set(lead[:1]) if len(lead) > event_dims else set()


def _require_known(
    parameters: Mapping[str, Parameter],
    given: Mapping[str, Any],
    x: Any,
    offset: Any,
    regressions: list[str],
) -> None:
    """Refuse data that the model has no use for."""
    unknown = [name for name in given if name not in parameters]
    if unknown:
        raise ParameterError(
            f"The model has no parameter {unknown[0]!r}; it has {', '.join(parameters)}. "
            "Covariates of a linear_predictor are given by x=."
        )
    if (x is not None or offset is not None) and not regressions:
        raise ParameterError(
            "The model has no linear_predictor that x= or offset= could be for; give its "
            f"parameters at the new observations: {', '.join(parameters)}."
        )
    if isinstance(x, Mapping) and set(x) - set(regressions):
        raise ParameterError(
            f"x has the key {sorted(set(x) - set(regressions))[0]!r}, which is neither a model nor "
            f"a regression parameter ({', '.join(regressions)})."
        )


def _regression(
    name: str, old: LinearPredictor, x: Any, offset: Any, observations: Observations
) -> LinearPredictor:
    title = user_name(name)
    if x is None:
        raise ParameterError(
            f"Parameter {title!r} is a regression; give the covariates of the new observations, "
            "x=..., one row each."
        )
    X, labels = _covariates(title, old, x, observations)
    if offset is None:
        if old.offset.any():
            raise ParameterError(
                f"The regression of {title!r} has an offset; give that of the new observations, "
                "offset=..."
            )
        offset = 0.0
    shape, known = (observations.n, *old.event), {**observations.index, **labels}
    offset = read_offset(offset, shape, known, dim=observations.dims[0], of="y")
    return replace(old, X=X, offset=offset, labels=labels)


def _covariates(
    title: str, old: LinearPredictor, x: Any, observations: Observations
) -> tuple[Array, dict[str, Any]]:
    x = from_pandas(x, observations.dims[0], "covariate", named=False)
    labels = {}
    if isinstance(x, xr.DataArray):
        x = string_dims(x).transpose(..., *old.columns, missing_dims="ignore")
        _require_same_columns(title, old, x)
        labels = {dim: of for dim, of in labels_of(x).items() if dim == x.dims[0]}
        require_same_labels("x", labels, observations.index)
    X = np.asarray(as_numeric("x", x, ParameterError), np.float64)
    if X.ndim == 1:
        X = X[:, None]
    columns = old.X.shape[1]
    has_intercept = bool((old.X[:, 0] == 1.0).all())
    if X.ndim == 2 and X.shape[1] == columns - 1 and has_intercept:
        X = np.column_stack([np.ones(len(X)), X])  # the intercept, which is not a covariate
    if X.shape != (observations.n, columns):
        raise ParameterError(
            f"x must have one row for each of the {observations.n} new observations and the "
            f"{columns} columns that the regression of {title!r} had (a first column of ones may "
            f"be left out); got the shape {np.shape(x)}."
        )
    if not all_finite(X):
        raise ParameterError("x must be finite.")
    if has_intercept and len(old.X) > 1 and (X[:, 0] != 1.0).any():
        raise ParameterError(
            f"x has {columns} columns, so the first is that of the intercept of {title!r}, which "
            f"is 1 everywhere; got {X[:, 0][X[:, 0] != 1.0][0]:g}. Give the covariates of this "
            "regression only, or a column of ones before them. Models with other covariates get "
            "their own: x={name: ...}."
        )
    return X, labels


def _require_same_columns(title: str, old: LinearPredictor, x: xr.DataArray) -> None:
    """Compare names of columns where both sides have them; that of an intercept may be left out."""
    if x.ndim != 2:
        return
    for expected in old.columns.values():
        got = labels_of(x).get(str(x.dims[1]), expected)
        both = min(len(got), len(expected))
        if list(map(str, got[-both:])) != list(map(str, expected[-both:])):
            raise ParameterError(
                f"x has the columns {', '.join(map(str, got))}; the regression of {title!r} had "
                f"{', '.join(map(str, expected))}. Give these, in this order. Models with other "
                "covariates get their own: x={name: ...}."
            )
