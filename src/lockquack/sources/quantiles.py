"""Models that are known by quantiles of their predictions, as forecasts often are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import ndtri

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ParameterError, ShapeError, UnsupportedError
from lockquack.jets import Array, Numeric
from lockquack.models.labels import require_same_labels, require_same_order, storable
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import OBS_DIM, Observations, as_support
from lockquack.numeric import as_numeric
from lockquack.sources.drawn import hold_outcomes, read_draws, read_outcomes

#: What xarray calls the dimension of quantiles.
QUANTILE_DIM = "quantile"
#: Outcomes at equal steps of probability that stand for a quantile forecast.
_STEPS = 500


@own_arithmetic
def from_quantiles(
    levels: ArrayLike,
    values: Any,
    *,
    y: Any = None,
    support: tuple[float, float] | None = None,
    held_out: bool = True,
    weights: Any = None,
) -> Model:
    r"""Take a model from quantiles of its predictions, as forecast hubs collect them.

    Between the levels, quantiles are taken to be straight; beyond the outermost, to be those of
    a normal distribution through the outermost two. The model becomes 500 outcomes at
    equal steps of probability, and is then one of :func:`from_draws`.

    Do not trust what such a model says beyond its outermost levels, and leave-one-out is not
    possible: forecasts are taken to have been made without what they are of.

    Parameters
    ----------
    levels
        Probabilities, increasing, at least two.
    values
        The quantiles, (level, obs), not decreasing along the levels: an array, or a DataArray with
        a dimension ``quantile``. A DataFrame has a row for each level.
    y
        What was observed, (obs,). None: not known, for forecasts of what is to come.
    support
        The smallest and the largest outcome there can be, such as ``(0, np.inf)`` of counts.
        Quantiles beyond are moved there; refused where half of a forecast lies beyond.
    held_out
        Whether the forecasts were made without the observations.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`.

    Returns
    -------
    Model
        A model for :func:`combine` with :class:`Linear` and :class:`CRPS`, and for
        :func:`average_quantiles`.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> levels = [0.025, 0.25, 0.5, 0.75, 0.975]
    >>> spread = np.array([-2.0, -0.7, 0.0, 0.7, 2.0])[:, None]
    >>> y = np.array([9.0, 12.0, 11.5, 8.0])
    >>> lq.from_quantiles(levels, 10.0 + spread * np.ones(4), y=y)
    <Model quantiles at 5 levels; chain: 1, draw: 500, obs_id: 4, components: 1>
    """
    at = _read_levels(levels)
    if isinstance(values, pd.DataFrame):
        _require_same_table(values, at, y)
    table = _read_quantiles(values, at)
    observations = read_outcomes(y, table.isel({QUANTILE_DIM: 0}, drop=True), None)
    if observations.d > 1:
        raise UnsupportedError(
            "Quantiles are of single numbers; give vectors as draws, by lq.from_draws."
        )
    first = table.expand_dims("chain").rename({QUANTILE_DIM: "draw"})
    quantiles = read_draws(
        "values", first if isinstance(y, xr.DataArray) or y is None else first.values, observations
    )[0]
    _require_increasing(quantiles, at, observations)
    flat = quantiles.reshape(at.size, -1)
    drawn = _interpolated(at, flat)
    if support is not None:
        ends = as_support(support)
        _require_within(flat, observations, ends)
        drawn = np.clip(drawn, *ends)
    described = Likelihood(f"quantiles at {at.size} levels")
    source = replace(hold_outcomes(observations, drawn[None], described, held_out), drawn=False)
    return Model(source).with_weights(weights)


def _require_within(
    quantiles: Array, observations: Observations, ends: tuple[float, float]
) -> None:
    """Refuse forecasts of which about half is said to be impossible, and such outcomes.

    Lower quantiles of counts may well be negative, where a forecast is a rough one.
    """
    middle = quantiles[len(quantiles) // 2]
    outcomes = observations.values[:, 0]  # of what is to come, NaN
    for what, values in (("The middle quantiles", middle), ("The outcomes", outcomes)):
        beyond = np.asarray((values < ends[0]) | (values > ends[1]))
        if beyond.any():
            first = observations.describe(int(beyond.argmax()))
            raise ParameterError(
                f"{what} of {int(beyond.sum())} observation(s) lie outside the support "
                f"({ends[0]:g}, {ends[1]:g}), first at {first}. Give another support, or none."
            )


def _read_levels(levels: ArrayLike) -> Array:
    at = as_numeric("levels", levels, ParameterError).astype(np.float64)
    inside = at.ndim == 1 and at.size >= 2 and at[0] > 0 and at[-1] < 1
    if not (inside and (np.diff(at) > 0).all()):
        raise ParameterError(
            f"levels must be two or more increasing probabilities between 0 and 1; got {levels!r}."
        )
    return at


def _require_same_table(values: pd.DataFrame, levels: Array, y: Any) -> None:
    """Refuse a table of quantiles whose labels contradict the levels, or those of the outcomes."""
    own = values.index.to_numpy()
    if own.dtype.kind == "f" and own.shape == levels.shape and not np.allclose(own, levels):
        raise ParameterError(
            f"The rows of values are labelled {own[0]:g}, {own[1]:g}, ..., and the levels are "
            f"{levels[0]:g}, {levels[1]:g}, ... They must be the same."
        )
    if isinstance(y, pd.Series) and len(y) == values.shape[1]:
        got, expected = storable(values.columns), storable(y.index)
        counted = any(isinstance(index, pd.RangeIndex) for index in (values.columns, y.index))
        if counted:
            require_same_order("values", got, expected)
        else:
            require_same_labels("values", {OBS_DIM: got}, {OBS_DIM: expected}, of="y")


def _read_quantiles(values: Any, levels: Array) -> xr.DataArray:
    """Label quantiles, levels first."""
    if isinstance(values, xr.DataArray) and QUANTILE_DIM in values.dims:
        table = values.transpose(QUANTILE_DIM, ...).drop_vars(QUANTILE_DIM, errors="ignore")
    else:
        values = values.to_numpy() if isinstance(values, pd.DataFrame) else values
        numbers = as_numeric("values", values, ParameterError)
        if numbers.ndim != 2:
            raise ShapeError(f"values must be (level, obs); got the shape {numbers.shape}.")
        table = xr.DataArray(numbers, dims=[QUANTILE_DIM, OBS_DIM])
    if table.shape[0] != levels.size:
        raise ShapeError(
            f"values has {table.shape[0]} quantiles of each outcome, and there are {levels.size} "
            "levels; levels come first: (level, obs)."
        )
    return table


def _require_increasing(quantiles: Numeric, levels: Array, observations: Observations) -> None:
    falls = np.argwhere(np.diff(quantiles.reshape(levels.size, -1), axis=0) < 0)
    if len(falls):
        level, obs = falls[0].tolist()
        raise ParameterError(
            f"The quantile at level {levels[level + 1]:g} is below that at {levels[level]:g} at "
            f"{observations.describe(obs)}. Quantiles cannot cross; if they are to be put in "
            "order: np.sort(values, axis=0)."
        )


def _interpolated(levels: Array, quantiles: Array) -> Array:
    """Quantiles at equal steps of probability, (step, n), from those at some levels, (level, n)."""
    at = (np.arange(_STEPS) + 0.5) / _STEPS
    cell = np.clip(np.searchsorted(levels, at) - 1, 0, levels.size - 2)
    inside = (at >= levels[0]) & (at <= levels[-1])
    straight = (at - levels[cell]) / (levels[cell + 1] - levels[cell])
    z = ndtri(levels)
    normal = (ndtri(at) - z[cell]) / (z[cell + 1] - z[cell])
    share = np.where(inside, straight, normal)[:, None]
    return quantiles[cell] + share * (quantiles[cell + 1] - quantiles[cell])
