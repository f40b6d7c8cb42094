"""Draws of a family's parameters, read in tiles of draws × observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import expit

from lockquack.adapters.arrays import SAMPLE_DIMS
from lockquack.errors import ParameterError, unknown_name
from lockquack.families.base import Range
from lockquack.jets import Array, all_finite
from lockquack.observations import Observations
from lockquack.predictive import Selection

#: Draws that a linear predictor evaluates at once while its range is looked up.
_DRAWS_AT_ONCE = 64

LINKS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda eta: eta,
    "log": np.exp,
    "logit": expit,
    "inverse": np.reciprocal,
    "sqrt": np.square,
}


class Parameter(ABC):
    """One parameter of a family, for every draw and observation."""

    @property
    @abstractmethod
    def sample_shape(self) -> tuple[int, int] | None:
        """Chains and draws, or None where the parameter is the same in all draws."""

    @abstractmethod
    def tile(self, chain: int, draws: slice, obs: Selection) -> Array:
        """Values of shape (draws or 1, obs or 1, event...)."""

    @abstractmethod
    def range(self) -> Range:
        """Smallest and largest value over all draws and observations."""


class LazyRange(Range):
    """The range of a parameter, found when it is looked at: a regression's costs a pass."""

    _parameter: Parameter

    def __init__(self, parameter: Parameter) -> None:
        object.__setattr__(self, "_parameter", parameter)

    @property
    def min(self) -> float:
        """Smallest value."""
        return self._parameter.range().min

    @property
    def max(self) -> float:
        """Largest value."""
        return self._parameter.range().max


@dataclass(frozen=True)
class ArrayParameter(Parameter):
    """Values held as an array in which an axis of length 1 stands for all of its places."""

    values: Array  # (chain or 1, draw or 1, obs or 1, event...)
    has_draws: bool

    @property
    def sample_shape(self) -> tuple[int, int] | None:
        """Chains and draws, or None where the parameter is the same in all draws."""
        return (self.values.shape[0], self.values.shape[1]) if self.has_draws else None

    def tile(self, chain: int, draws: slice, obs: Selection) -> Array:
        """Values of shape (draws or 1, obs or 1, event...)."""
        rows = self.values[chain, draws] if self.has_draws else self.values[0]
        return rows if rows.shape[1] == 1 else rows[:, obs]

    def range(self) -> Range:
        """Smallest and largest value over all draws and observations."""
        return Range(float(self.values.min()), float(self.values.max()))


@dataclass(frozen=True)
class LinearPredictor(Parameter):
    """A regression, X β through an inverse link, computed tile by tile."""

    X: Array  # (n, p)
    coef: Array  # (chain, draw, p) or, for vector outcomes, (chain, draw, p, component)
    offset: Array  # (n,) or (n, component)
    link: str

    @property
    def sample_shape(self) -> tuple[int, int]:
        """Chains and draws."""
        return self.coef.shape[0], self.coef.shape[1]

    @property
    def event_dims(self) -> int:
        """1 for the mean of a vector outcome, 0 otherwise."""
        return self.coef.ndim - 3

    def tile(self, chain: int, draws: slice, obs: Selection) -> Array:
        """Values of shape (draws, obs, event...)."""
        eta = np.tensordot(self.coef[chain, draws], self.X[obs], axes=(1, 1))
        return LINKS[self.link](np.moveaxis(eta, -1, 1) + self.offset[obs])

    def range(self) -> Range:
        """Smallest and largest value over all draws and observations."""
        chains, n_draws = self.sample_shape
        everything = slice(0, len(self.X))
        tiles = (
            self.tile(chain, slice(start, start + _DRAWS_AT_ONCE), everything)
            for chain in range(chains)
            for start in range(0, n_draws, _DRAWS_AT_ONCE)
        )
        ends = np.array([(tile.min(), tile.max()) for tile in tiles])
        return Range(float(ends[:, 0].min()), float(ends[:, 1].max()))


def linear_predictor(
    X: Any, coef: Any, *, intercept: Any = None, offset: Any = 0.0, link: str = "identity"
) -> LinearPredictor:
    r"""Describe a regression as a parameter of :func:`from_family`, without its S × n array.

    .. math:: \text{parameter} = \operatorname{link}^{-1}(\text{intercept} + X\beta + \text{offset})

    Parameters
    ----------
    X
        Covariates, (obs, p).
    coef
        Draws of β, (chain, draw, p); for the mean of a vector outcome (chain, draw, p, component).
    intercept
        Draws of the intercept, (chain, draw), if it is not a column of ones in X.
    offset
        Known part of the predictor, one number or one per observation.
    link
        ``"identity"``, ``"log"``, ``"logit"``, ``"inverse"`` or ``"sqrt"``.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> X, beta = rng.normal(size=(50, 3)), rng.normal(size=(4, 500, 3))
    >>> mu = lq.linear_predictor(X, beta)
    >>> lq.from_family("normal", y=rng.normal(size=50), mu=mu, sigma=1.0)
    <FamilyPredictive normal; chain: 4, draw: 500, obs_id: 50, components: 1>
    """
    if link not in LINKS:
        raise unknown_name("link", link, LINKS)
    covariates, draws = _float64(X, "X"), _float64(coef, "coef")
    if isinstance(coef, xr.DataArray):
        draws = _float64(_samples_first("coef", coef), "coef")
    if draws.ndim not in (3, 4) or covariates.ndim != 2 or covariates.shape[1] != draws.shape[2]:
        raise ParameterError(
            "X must have shape (obs, p) and coef (chain, draw, p) with the same p; got "
            f"{covariates.shape} and {draws.shape}."
        )
    if intercept is not None:
        constant = _float64(
            _samples_first("intercept", intercept)
            if isinstance(intercept, xr.DataArray)
            else intercept,
            "intercept",
        )
        if constant.shape != draws.shape[:2] + draws.shape[3:]:
            raise ParameterError(
                f"intercept must have shape {draws.shape[:2] + draws.shape[3:]} to go with coef; "
                f"got {constant.shape}."
            )
        covariates = np.column_stack([np.ones(len(covariates)), covariates])
        draws = np.concatenate([constant[:, :, None], draws], axis=2)
    shape = (len(covariates), *draws.shape[3:])
    known = _float64(offset, "offset")
    if known.ndim < len(shape) and known.ndim > 0:
        known = known[:, None]
    return LinearPredictor(covariates, draws, np.broadcast_to(known, shape), link)


def as_parameter(name: str, given: Any, observations: Observations, event_dims: int) -> Parameter:
    """Read a parameter from a number, an array, a DataArray or a linear predictor."""
    if isinstance(given, LinearPredictor):
        if len(given.X) != observations.n or given.event_dims != event_dims:
            raise ParameterError(
                f"The linear predictor of {name!r} has {len(given.X)} rows and "
                f"{given.event_dims} event dimension(s); the outcome needs {observations.n} "
                f"and {event_dims}."
            )
        return given
    if isinstance(given, xr.DataArray):
        return _from_dataarray(name, given, observations, event_dims)
    return _from_array(name, _float64(given, name), observations, event_dims)


def _from_array(
    name: str, values: Array, observations: Observations, event_dims: int
) -> ArrayParameter:
    free = values.ndim - event_dims
    grid = len(observations.shape)
    event = values.shape[values.ndim - event_dims :]
    lead = values.shape[:free]
    obs_shape = observations.shape
    if free == 0:
        return ArrayParameter(values.reshape(1, 1, 1, *event), has_draws=False)
    if free == 2 and not (grid == 2 and lead == obs_shape):
        return ArrayParameter(values.reshape(*lead, 1, *event), has_draws=True)
    if lead == obs_shape or lead == (observations.n,):
        return ArrayParameter(values.reshape(1, 1, -1, *event), has_draws=False)
    if free > 2 and lead[2:] in (obs_shape, (observations.n,), (1,)):
        return ArrayParameter(values.reshape(*lead[:2], -1, *event), has_draws=True)
    n = " × ".join(map(str, obs_shape))
    events = "".join(f", {size}" for size in event)
    raise ParameterError(
        f"Parameter {name!r} has shape {values.shape}; with {n} observations it must be "
        f"(chain, draw{events}) or (chain, draw, {n}{events}), or ({n}{events}) where it is the "
        "same in all draws."
    )


def _from_dataarray(
    name: str, given: xr.DataArray, observations: Observations, event_dims: int
) -> ArrayParameter:
    has_draws = any(dim in given.dims for dim in SAMPLE_DIMS)
    if has_draws:
        given = _samples_first(name, given)
    obs_dims = [dim for dim in observations.dims if dim in given.dims]
    if obs_dims and len(obs_dims) == len(observations.dims):
        given = given.transpose(*(SAMPLE_DIMS if has_draws else ()), *obs_dims, ...)
    values = _float64(given.values, name)
    if has_draws:
        return _from_array(name, values, observations, event_dims)
    lead = values.shape[: values.ndim - event_dims]
    if lead not in ((), observations.shape):
        raise ParameterError(
            f"Parameter {name!r} has the dimensions {given.dims} of shape {values.shape}, without "
            f"chain and draw; the observations are {observations.dims} of shape "
            f"{observations.shape}."
        )
    event = values.shape[values.ndim - event_dims :]
    return ArrayParameter(values.reshape(1, 1, -1, *event), has_draws=False)


def _samples_first(name: str, given: xr.DataArray) -> xr.DataArray:
    missing = [dim for dim in SAMPLE_DIMS if dim not in given.dims]
    if missing:
        raise ParameterError(
            f"Parameter {name!r} has the dimensions {given.dims}; it lacks {missing[0]!r}."
        )
    return given.transpose(*SAMPLE_DIMS, ...)


def _float64(values: Any, name: str) -> Array:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"Parameter {name!r} is not numeric: {error}.") from error
    if not all_finite(array):
        bad = np.argwhere(~np.isfinite(array))
        where = f" at position {tuple(bad[0].tolist())}" if array.ndim else ""
        raise ParameterError(
            f"Parameter {name!r} must be finite; it is {array[tuple(bad[0])]}{where}, and so are "
            f"{len(bad) - 1} more."
        )
    return array
