"""Draws of a family's parameters, read in tiles of draws × observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import expit
from typing_extensions import override

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ParameterError
from lockquack.families.base import Range
from lockquack.jets import Array, all_finite
from lockquack.models.labels import (
    Labels,
    from_pandas,
    labels_of,
    merge_labels,
    require_same_labels,
    require_same_order,
    string_dims,
)
from lockquack.models.observations import OBS_DIM, SAMPLE_DIMS
from lockquack.models.source import Subset
from lockquack.numeric import and_more, as_numeric, cut
from lockquack.registry import require_known

#: Draws and observations at which a linear predictor is evaluated at once to find its range.
_DRAWS_AT_ONCE, _OBS_AT_ONCE = 64, 4096

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

    @property
    @abstractmethod
    def all_labels(self) -> Labels:
        """Labels that the user gave its dimensions, chain and draw among them."""

    @abstractmethod
    def tile(self, chain: int, draws: slice, obs: Subset) -> Array:
        """Values of shape (draws or 1, obs or 1, event...)."""

    @abstractmethod
    def restrict(self, obs: slice) -> Parameter:
        """Return the parameter at some of the observations."""

    @abstractmethod
    def range(self) -> Range:
        """Smallest and largest value over all draws and observations."""


class LazyRange(Range):
    """The range of a parameter, computed when it is needed: a regression's costs a pass.

    Conclusions from values outside the domain would mislead, so they are refused.
    """

    _title: str
    _parameter: Parameter
    _positive: bool

    def __init__(self, title: str, parameter: Parameter, *, positive: bool) -> None:
        object.__setattr__(self, "_title", title)
        object.__setattr__(self, "_parameter", parameter)
        object.__setattr__(self, "_positive", positive)

    @property
    def min(self) -> float:
        """Smallest value."""
        low = self._parameter.range().min
        if self._positive and low <= 0:
            raise ParameterError(
                f"Parameter {self._title!r} must be positive; the smallest value of its "
                f"regression is {low:g}. Use another link, such as link='log'."
            )
        return low

    @property
    def max(self) -> float:
        """Largest value."""
        return self._parameter.range().max


@dataclass(frozen=True, eq=False)
class ArrayParameter(Parameter):
    """Values held as an array in which an axis of length 1 stands for all of its places."""

    values: Array  # (chain or 1, draw or 1, obs or 1, event...)
    has_draws: bool
    labels: Labels = field(default_factory=dict)

    @property
    @override
    def sample_shape(self) -> tuple[int, int] | None:
        return (self.values.shape[0], self.values.shape[1]) if self.has_draws else None

    @property
    @override
    def all_labels(self) -> Labels:
        return self.labels

    @override
    def tile(self, chain: int, draws: slice, obs: Subset) -> Array:
        rows = self.values[chain, draws] if self.has_draws else self.values[0]
        return rows if rows.shape[1] == 1 else rows[:, obs]

    @override
    def restrict(self, obs: slice) -> ArrayParameter:
        if self.values.shape[2] == 1:
            return self
        return replace(self, values=self.values[:, :, obs], labels={})

    @override
    def range(self) -> Range:
        return Range(float(self.values.min()), float(self.values.max()))


@dataclass(frozen=True, eq=False, repr=False)
class LinearPredictor(Parameter):
    """A regression, X β through an inverse link, computed tile by tile."""

    X: Array  # (n, p)
    coef: Array  # (chain, draw, p) or, for vector outcomes, (chain, draw, p, component)
    offset: Array  # (n,) or (n, component)
    link: str
    labels: Labels = field(default_factory=dict)  # of the rows of X
    columns: Labels = field(default_factory=dict)  # of X, but for an intercept given apart
    samples: Labels = field(default_factory=dict)  # of chains and draws
    #: Whether X is a table of pandas: its rows are the observations, whatever its index is called.
    of_table: bool = False

    @property
    @override
    def sample_shape(self) -> tuple[int, int]:
        return self.coef.shape[0], self.coef.shape[1]

    @property
    @override
    def all_labels(self) -> Labels:
        return {**self.labels, **self.samples}

    @property
    def event(self) -> tuple[int, ...]:
        """Shape of one value: (component,) for the mean of a vector outcome, () otherwise."""
        return self.coef.shape[3:]

    @override
    def tile(self, chain: int, draws: slice, obs: Subset) -> Array:
        eta = np.tensordot(self.coef[chain, draws], self.X[obs], axes=(1, 1))
        with np.errstate(over="ignore", divide="ignore"):  # what is not finite is refused
            return LINKS[self.link](np.moveaxis(eta, -1, 1) + self.offset[obs])

    @override
    def restrict(self, obs: slice) -> LinearPredictor:
        return replace(self, X=self.X[obs], offset=self.offset[obs], labels={})

    @override
    def range(self) -> Range:
        chains, n_draws = self.sample_shape
        tiles = (
            self.tile(chain, draws, obs)
            for obs in cut(slice(0, len(self.X)), _OBS_AT_ONCE)
            for chain in range(chains)
            for draws in cut(slice(0, n_draws), _DRAWS_AT_ONCE)
        )
        ends = np.array([(tile.min(), tile.max()) for tile in tiles])
        return Range(float(ends[:, 0].min()), float(ends[:, 1].max()))

    def __repr__(self) -> str:
        chains, draws, covariates = self.coef.shape[:3]
        return (
            f"<LinearPredictor, {self.link} link; chain: {chains}, draw: {draws}, "
            f"obs: {len(self.X)}, covariates: {covariates}>"
        )


@own_arithmetic
def linear_predictor(
    X: Any, coef: Any, *, intercept: Any = None, offset: Any = 0.0, link: str = "identity"
) -> LinearPredictor:
    r"""Describe a regression as a parameter of :func:`from_family`, without its S × n array.

    .. math:: \text{parameter} = \operatorname{link}^{-1}(\text{intercept} + X\beta + \text{offset})

    Parameters
    ----------
    X
        Covariates, (obs, p). Labels of a DataArray or DataFrame are compared with those of
        ``coef`` and of the outcomes where they have the same dimension.
    coef
        Draws of β, (chain, draw, p); for the mean of a vector outcome (chain, draw, p, component).
    intercept
        Draws of the intercept, (chain, draw), if it is not a column of ones in X.
    offset
        Known part of the predictor, one number or one per observation.
    link
        ``"identity"``, ``"log"``, ``"logit"``, ``"inverse"`` or ``"sqrt"``.

    Returns
    -------
    LinearPredictor
        A parameter for :func:`from_family`, computed tile by tile as it is read.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> X, beta = rng.normal(size=(50, 3)), rng.normal(size=(4, 500, 3))
    >>> mu = lq.linear_predictor(X, beta)
    >>> mu
    <LinearPredictor, identity link; chain: 4, draw: 500, obs: 50, covariates: 3>
    >>> lq.from_family("normal", y=rng.normal(size=50), mu=mu, sigma=1.0)
    <Model normal; chain: 4, draw: 500, obs_id: 50, components: 1>
    """
    require_known("link", link, LINKS)
    of_table = isinstance(X, pd.DataFrame)
    rows, slopes = _aligned(from_pandas(X, OBS_DIM, "covariate"), coef)
    covariates, draws = _finite("X", rows), _finite("coef", slopes)
    if draws.ndim not in (3, 4) or covariates.ndim != 2 or covariates.shape[1] != draws.shape[2]:
        raise ParameterError(
            "X must have shape (obs, p) and coef (chain, draw, p) with the same p; got "
            f"{covariates.shape} and {draws.shape}."
        )
    if intercept is not None:
        constant = _intercept(intercept, draws.shape[:2] + draws.shape[3:])
        covariates = np.column_stack([np.ones(len(covariates)), covariates])
        draws = np.concatenate([constant[:, :, None], draws], axis=2)
    named = labels_of(rows) if isinstance(rows, xr.DataArray) else {}
    labels = {dim: named[dim] for dim in named if dim == rows.dims[0]}
    columns = {dim: named[dim] for dim in named if dim == rows.dims[1]}
    shape = (len(covariates), *draws.shape[3:])
    known = read_offset(offset, shape, labels, dim=next(iter(labels), OBS_DIM), of="X")
    drawn = merge_labels({"coef": coef, "intercept": intercept})
    samples = {dim: drawn[dim] for dim in SAMPLE_DIMS if dim in drawn}
    return LinearPredictor(covariates, draws, known, link, labels, columns, samples, of_table)


def _aligned(X: Any, coef: Any) -> tuple[Any, Any]:
    """Bring labelled X and coef to (obs, p) and (chain, draw, p, ...), the same p by name."""
    if isinstance(coef, xr.DataArray):
        coef = samples_first("coef", coef)
    if not isinstance(X, xr.DataArray):
        return X, coef
    X = string_dims(X)
    if not isinstance(coef, xr.DataArray):
        return X, coef
    shared = [dim for dim in X.dims if dim in coef.dims]
    if not shared:
        _require_same_covariates(X, coef)
        return X, coef
    require_same_labels("coef", labels_of(coef), labels_of(X), of="X")
    return X.transpose(..., *shared), coef.transpose(*SAMPLE_DIMS, *shared, ...)


def _require_same_covariates(X: xr.DataArray, coef: xr.DataArray) -> None:
    """Compare what the columns of X and the third axis of coef are called, whatever the axes."""
    columns, covariates = labels_of(X).get(str(X.dims[-1])), None
    if len(coef.dims) > 2:
        covariates = labels_of(coef).get(str(coef.dims[2]))
    if columns is not None and covariates is not None:
        require_same_order("coef", covariates, columns, of="the columns of X")


def _intercept(given: Any, shape: tuple[int, ...]) -> Array:
    if isinstance(given, xr.DataArray):
        given = samples_first("intercept", given)
    values = _finite("intercept", given)
    if values.shape != shape:
        raise ParameterError(
            f"intercept must have shape {shape} to go with coef; got {values.shape}."
        )
    return values


def read_offset(given: Any, shape: tuple[int, ...], labels: Labels, *, dim: str, of: str) -> Array:
    """Read what a regression adds; its labels are compared with those of ``of``."""
    given = from_pandas(given, dim, "component", named=False)
    if isinstance(given, xr.DataArray):
        require_same_labels("offset", labels_of(given), labels, of=of)
    values = _finite("offset", given)
    if values.shape == shape[:1] and len(shape) == 2:
        values = values[:, None]
    if values.shape not in ((), shape, (*shape[:1], 1)):
        raise ParameterError(
            f"offset must be one number or one per row of X, shape {shape}; got {values.shape}."
        )
    return np.broadcast_to(values, shape)


def samples_first(name: str, given: xr.DataArray) -> xr.DataArray:
    """Bring chain and draw to the front; both must be there."""
    given = string_dims(given)
    missing = [dim for dim in SAMPLE_DIMS if dim not in given.dims]
    if missing:
        raise ParameterError(
            f"Parameter {name!r} has the dimensions {given.dims}; it lacks {missing[0]!r}. "
            f"If there is one only, add it: .expand_dims({missing[0]!r})."
        )
    return given.transpose(*SAMPLE_DIMS, ...)


def _finite(name: str, given: Any) -> Array:
    """Read a part of a regression; its axes are rows and columns or chains and draws."""
    array = np.asarray(as_numeric(name, given, ParameterError), dtype=np.float64)
    if all_finite(array):
        return array
    bad = np.argwhere(~np.isfinite(array))
    axes = ("chain", "draw", "covariate") if name in ("coef", "intercept") else ("row", "column")
    where = ", ".join(f"{axis} {i}" for axis, i in zip(axes, bad[0].tolist(), strict=False))
    raise ParameterError(
        f"{name} must be finite; it is {array[tuple(bad[0])]}{where and f' at {where}'}"
        f"{and_more(len(bad) - 1)}."
    )
