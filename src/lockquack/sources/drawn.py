"""Models that are known by what they predict: draws of outcomes, or quantiles of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import ndtri
from typing_extensions import override

from lockquack.arithmetic import own_arithmetic
from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.errors import NonFiniteError, ParameterError, ShapeError, UnsupportedError
from lockquack.jets import Array, Numeric
from lockquack.models.labels import require_same_labels, require_same_order, storable
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import (
    OBS_DIM,
    SAMPLE_DIMS,
    Observations,
    as_observations,
    as_support,
    unknown_outcomes,
)
from lockquack.models.source import Abilities, Source
from lockquack.models.transformed import on_natural_scale, on_scale_of_model
from lockquack.numeric import as_numeric
from lockquack.sources.arrays import hold_draws, is_chunked, labelled_like, sample_first
from lockquack.sources.groups import with_draws
from lockquack.transforms import get_transform
from lockquack.words import Text, advice

#: What xarray calls the dimension of quantiles.
QUANTILE_DIM = "quantile"
#: Outcomes at equal steps of probability that stand for a quantile forecast.
_STEPS = 500
#: What such a model has no scores by, and what it has.
_BY_CRPS = advice(
    "lq.combine(models, lq.Linear(), lq.CRPS()), or EnergyScore() for vectors",
    "--operator linear --rule crps",
)
#: What to say of draws from which nothing can be left out.
_LEAVE_OUT = advice(
    "Give log_lik= of lq.from_draws beside the draws; or held_out=True there, or "
    "scores='held-out', if the model was fitted without these observations; or score what it says "
    "of what it saw, scores='in-sample'.",
    "Give --scores held-out, if the models were fitted without these observations; or score what "
    "they say of what they saw, --scores in-sample.",
)


@dataclass(frozen=True, eq=False, repr=False)
class DrawnSource(Source):
    """Draws of outcomes, and no densities."""

    #: Whether they were drawn, or are quantiles at equal steps.
    drawn: bool = True
    #: How to have densities too, where somebody knows.
    remedy: Text | str = ""

    @property
    @override
    def can(self) -> Abilities:
        return Abilities(know_density=False, differentiate=False, be_shared=True, be_sent=False)

    @property
    @override
    def known_where(self) -> str:
        return f"is known by {'draws of outcomes' if self.drawn else 'quantiles'} only"

    @property
    @override
    def is_sample(self) -> bool:
        return self.drawn and self.n_chains > 1  # members of an ensemble are the forecast itself

    @property
    @override
    def lacks_chains(self) -> bool:
        return False  # they may come from anywhere

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        raise self._no_density("log densities")

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        raise self._no_density("derivatives")

    @override
    def require_density(self) -> None:
        raise self._no_density("log scores")

    @override
    def require_derivatives(self) -> None:
        raise self._no_density("derivatives")

    @override
    def all_logp(self, obs: slice) -> Array:
        raise self._no_density("log densities")

    @override
    def dask_draws(self, dtype: str | None = None) -> Mapping[str, Any] | None:
        raise self._no_density("log densities that could be written")

    @override
    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        raise self._no_density("log scores")

    @override
    def stored_loo(self) -> tuple[Array, Array]:
        unknown = np.full(self.n_obs, np.nan)
        return unknown, unknown

    @override
    def draw_weights(self, obs: slice, *, loo: bool) -> tuple[Array | None, Array]:
        if loo and not self.is_left_out:
            raise UnsupportedError(
                f"An observation cannot be left out of {self.likelihood.description}: that takes "
                "log densities, to weight the draws. ",
                _LEAVE_OUT,
                self._remedy,
            )
        return None, np.zeros(obs.stop - obs.start)

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        raise UnsupportedError(
            "This model is known by its draws at these observations only. Give what it draws "
            "elsewhere as a model of its own: fit.predict(models={name: "
            "lq.from_draws(draws), ...})."
        )

    @override
    def _not_evaluable(self) -> UnsupportedError:
        return self._no_density("densities")

    def _no_density(self, lacking: str) -> UnsupportedError:
        return UnsupportedError(
            f"There are no {lacking} of {self.likelihood.description}: outcomes are all that is "
            "known of such a model. Mix it with others by ",
            _BY_CRPS,
            ".",
            self._remedy,
        )

    @property
    def _remedy(self) -> Text:
        return Text(" ", self.remedy) if self.remedy else Text("")


@own_arithmetic
def from_draws(
    draws: Any,
    *,
    y: Any = None,
    log_lik: Any = None,
    held_out: bool = False,
    component_dim: Hashable | None = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    r"""Take a model from draws of its predictions, without densities.

    Draws :math:`\tilde y_{is}` of each outcome: ArviZ's ``posterior_predictive``, runs of a
    simulator, members of an ensemble forecast. They are enough to mix models by :class:`CRPS`, or
    by :class:`EnergyScore` for vectors, and for the cdf, quantiles, intervals, draws and
    calibration of such mixtures; for nothing that needs a density.

    Draws of a model that saw the observations it predicts look better than they are. With
    ``log_lik`` they are weighted to leave each observation out, by Pareto-smoothed importance
    sampling; a model that was fitted without the observations is ``held_out``. Of few draws CRPS
    is too large, by about half their mean difference over their number: compare models by equally
    many.

    Parameters
    ----------
    draws
        Outcomes, (chain, draw, obs) or (chain, draw, obs, component) for vectors: an array or a
        DataArray with dimensions ``chain`` and ``draw``, in any order. Draws without chains are
        those of one, ``draws[None]``. Those that dask holds are read group by group of
        observations, and :func:`running_stack` leaves them there.
    y
        What was observed, (obs,) or (obs, component). None: not known, for predictions of what is
        to come.
    log_lik
        Log densities of the observed outcomes at the same draws, (chain, draw, obs). With them the
        model has log scores too, and can be stacked.
    held_out
        Whether the model was fitted without the observations.
    component_dim
        Which dimension of a DataArray ``y`` holds the components of a vector outcome.
    transform
        ``"log"`` or another name of :func:`from_family` if the draws are of that function of y.
        They are brought back; ``y`` is given **on its natural scale**.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`.

    Returns
    -------
    Model
        A model for :func:`combine` with :class:`Linear` and :class:`CRPS`.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.gamma(2.0, size=50)
    >>> models = {
    ...     "low": lq.from_draws(rng.gamma(1.0, size=(4, 250, 50)), y=y, held_out=True),
    ...     "high": lq.from_draws(rng.gamma(3.0, size=(4, 250, 50)), y=y, held_out=True),
    ... }
    >>> fit = lq.combine(models, lq.Linear(), lq.CRPS())
    >>> fit.weights.round(1).to_series().to_dict()
    {'low': 0.6, 'high': 0.4}
    >>> fit.predict().interval(0.9).sizes
    Frozen({'ci_bound': 2, 'obs_id': 50})
    """
    draws = with_draws(draws) if isinstance(draws, xr.DataArray) else draws
    natural = _read_outcomes(y, draws, component_dim)
    modelled = on_scale_of_model(natural, transform)
    drawn = _read_draws("draws", draws, modelled)
    if log_lik is not None:
        drawn = np.asarray(drawn)
    described = Likelihood("predictive draws", discrete=drawn.dtype.kind in "biu")
    if log_lik is None:
        if transform is not None:
            drawn = get_transform(transform).backward(drawn)
        return Model(hold_outcomes(natural, drawn, described, held_out)).with_weights(weights)
    held = hold_draws(modelled, log_lik, None, None, described)
    if (held.n_chains, held.n_draws) != drawn.shape[:2]:
        raise ShapeError(
            f"log_lik has {held.n_chains} chains of {held.n_draws} draws, draws has "
            f"{drawn.shape[0]} of {drawn.shape[1]}. There must be one outcome for each."
        )
    source = replace(held, outcome_draws=_labelled(modelled, drawn), held_out=bool(held_out))
    return Model(on_natural_scale(source, transform, natural)).with_weights(weights)


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
    observations = _read_outcomes(y, table.isel({QUANTILE_DIM: 0}, drop=True), None)
    if observations.d > 1:
        raise UnsupportedError(
            "Quantiles are of single numbers; give vectors as draws, by lq.from_draws."
        )
    first = table.expand_dims("chain").rename({QUANTILE_DIM: "draw"})
    quantiles = _read_draws(
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


def hold_outcomes(
    observations: Observations, drawn: Numeric, likelihood: Likelihood, held_out: bool
) -> DrawnSource:
    """Hold draws of outcomes, (chain, draw, n[, component])."""
    return DrawnSource(
        observations,
        n_chains=drawn.shape[0],
        n_draws=drawn.shape[1],
        likelihood=likelihood,
        outcome_draws=_labelled(observations, drawn),
        held_out=bool(held_out),
    )


def _labelled(observations: Observations, drawn: Numeric) -> xr.DataArray:
    """Label draws (chain, draw, n, component)."""
    sample = {"chain": np.arange(drawn.shape[0]), "draw": np.arange(drawn.shape[1])}
    full = drawn.reshape(*drawn.shape[:2], observations.n, observations.d)
    return observations.label_components(full, sample)


def _read_outcomes(y: Any, draws: Any, component_dim: Hashable | None) -> Observations:
    """Read outcomes with the labels of draws, or what is known without them."""
    if y is not None:
        return as_observations(labelled_like(y, draws), component_dim)
    template = draws
    if not isinstance(draws, xr.DataArray):
        shape = as_numeric("draws", draws, ShapeError).shape
        if len(shape) != 3:
            raise ShapeError(
                f"Without y, draws must be (chain, draw, obs), or labelled; got the shape {shape}."
            )
        template = xr.DataArray(np.zeros(shape[2]), dims=OBS_DIM)
    some = {dim: 0 for dim in SAMPLE_DIMS if dim in template.dims}
    return unknown_outcomes(template.isel(some, drop=True))


def _read_draws(name: str, draws: Any, observations: Observations) -> Numeric:
    """Bring draws to (chain, draw, n[, component]); refuse what are no outcomes.

    Those that dask holds stay there, and are looked at where they are read.
    """
    drawn = sample_first(name, draws, observations, vector=True)
    if 0 in drawn.shape[:2]:
        raise ShapeError(f"{name} has {drawn.shape[0]} chains of {drawn.shape[1]} draws: none.")
    if is_chunked(drawn):
        return drawn
    bad = np.argwhere(~np.isfinite(drawn))
    if len(bad):
        chain, draw, obs = bad[0][:3].tolist()
        raise NonFiniteError(
            f"{name} is {drawn[tuple(bad[0])]} at chain {chain}, draw {draw}, "
            f"{observations.describe(obs)}. Leave such draws out, of all observations."
        )
    return drawn


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
