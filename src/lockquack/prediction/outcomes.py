"""Outcomes as users give them, points to evaluate, and as they get them, draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.errors import ShapeError
from lockquack.jets import Array
from lockquack.models.containers import OBSERVED_GROUP, PREDICTIVE_GROUP
from lockquack.models.labels import from_pandas, labels_of, require_same_labels
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.numeric import as_numeric
from lockquack.prediction.members import are_discrete
from lockquack.sampling.samplers import Drawn

Leading = dict[str, Any] | None
_STATISTICS = ("acceptance", "ess", "pareto_k", "log_norm", "log_norm_error")
#: Of these, the largest is the worst.
_BAD_IF_LARGE = ("pareto_k", "log_norm_error")


def read_points(y: Any, observations: Observations) -> tuple[Array, Leading]:
    """Read outcomes as (point, n × d), by default the observed ones.

    Also returns the dimension of the points, None where there is none.
    """
    if y is None:
        return observations.values.reshape(1, -1), None
    if isinstance(y, xr.DataArray):
        return _read_labelled(y, observations)
    is_row_each = isinstance(y, pd.Series) or (
        isinstance(y, pd.DataFrame) and observations.d > 1 and y.shape == observations.values.shape
    )
    if is_row_each and len(observations.dims) == 1:
        (own_dim,) = observations.dims
        _require_own(from_pandas(y, own_dim, "", named=False), observations)
    values = as_numeric("y", y).astype(np.float64)
    n, size = observations.n, observations.values.size
    own = () if observations.d == 1 else (observations.d,)
    shapes = (n, *own), (*observations.shape, *own)
    if values.ndim == 0 or values.shape in shapes:
        return np.broadcast_to(values.reshape(1, -1), (1, size)), None
    if values.shape[1:] in shapes:
        return values.reshape(-1, size), {"point": None}
    if values.shape[1:] == (1, *own):
        several = np.broadcast_to(values, (len(values), n, *own))
        return several.reshape(-1, size), {"point": None}
    raise ShapeError(
        f"y has the shape {values.shape}; there are {n} observations of {observations.d} "
        "component(s). Give one number, one outcome per observation, or points × observations; "
        "the same points for all: y[:, None]. Outcomes of other observations go to "
        "fit.predict(y, ...)."
    )


def _read_labelled(y: xr.DataArray, observations: Observations) -> tuple[Array, Leading]:
    grid = label_points(np.zeros((1, observations.values.size)), None, "", observations)
    dims = grid.dims
    extra = [str(dim) for dim in y.dims if dim not in dims]
    if len(extra) > 1:
        raise ShapeError(f"y has more than one dimension besides {dims}: {extra}.")
    _require_own(y, observations)
    as_numeric("y", y.values)
    grid, y = xr.broadcast(*xr.align(grid, y, join="override", exclude=extra))
    values = y.transpose(*extra, *dims).values.astype(np.float64)
    if not extra:
        return values.reshape(1, -1), None
    labels = y.coords[extra[0]].values if extra[0] in y.coords else None
    return values.reshape(len(values), -1), {extra[0]: labels}


def _require_own(y: xr.DataArray, observations: Observations) -> None:
    """Refuse outcomes whose labels are not those of the observations, in their order."""
    sizes = observations.sizes
    wrong = [dim for dim in sizes if y.sizes.get(dim, sizes[dim]) != sizes[dim]]
    if wrong:
        raise ShapeError(
            f"y has {y.sizes[wrong[0]]} values along {wrong[0]!r}; the combination has "
            f"{sizes[wrong[0]]} observations there."
        )
    require_same_labels("y", labels_of(y), observations.index, of="the combination")


def label_points(
    values: Array, leading: Leading, name: str, observations: Observations
) -> xr.DataArray:
    """Label (point, n × d); without a leading dimension there is one point."""
    if leading is None:
        values = values[0]
    if observations.d == 1:
        return observations.label(values, leading, name)
    shape = *values.shape[:-1], *observations.values.shape
    return observations.label_components(values.reshape(shape), leading, name)


def posterior_predictive(
    draws: Array,
    drawn: Sequence[Drawn],
    sources: Mapping[str, Source],
    observations: Observations,
    *,
    observed: bool,
    attrs: Mapping[str, Any],
) -> xr.DataTree:
    """Put draws (draw, obs, component) and their diagnostics into a tree as ArviZ has it."""
    from lockquack import __version__

    name = observations.outcome
    leading = {"chain": np.arange(1), "draw": np.arange(len(draws))}
    about = {"inference_library": "lockquack", "inference_library_version": __version__, **attrs}
    statistics = _statistics(drawn) if drawn else {}
    for statistic in _STATISTICS if statistics else ():
        values = statistics[statistic]
        if not np.isnan(values).all():
            worst = np.nanmax if statistic in _BAD_IF_LARGE else np.nanmin
            about[f"worst_{statistic}"] = float(worst(values))
    # ArviZ takes whole numbers for continuous unless their type says what they are.
    whole = draws.dtype.kind in "biu" or (are_discrete(sources) and np.isfinite(draws).all())
    kind = np.int64 if whole else np.float64
    predicted = observations.label_components(draws[None].astype(kind), leading, name)
    groups = {PREDICTIVE_GROUP: xr.Dataset({name: predicted}, attrs=about)}
    if observed and observations.known:
        outcomes = observations.to_dataarray().astype(kind)
        groups[OBSERVED_GROUP] = xr.Dataset({name: outcomes})
    if statistics:
        each = {key: observations.label(value) for key, value in statistics.items()}
        groups["sampling_stats"] = xr.Dataset(each)
    return xr.DataTree.from_dict(groups)


def _statistics(drawn: Sequence[Drawn]) -> dict[str, Array]:
    numbers = {name: np.array([getattr(each, name) for each in drawn]) for name in _STATISTICS}
    return {**numbers, "method": np.array([each.method for each in drawn])}
