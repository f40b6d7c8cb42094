"""Models that are known by draws of their predictions, without densities."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from typing_extensions import override

from lockquack.arithmetic import own_arithmetic
from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.errors import NonFiniteError, ShapeError, UnsupportedError
from lockquack.jets import Array, Numeric
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import (
    OBS_DIM,
    SAMPLE_DIMS,
    Observations,
    as_observations,
    unknown_outcomes,
)
from lockquack.models.source import Abilities, Source
from lockquack.models.transformed import on_natural_scale, on_scale_of_model
from lockquack.numeric import as_numeric
from lockquack.sources.arrays import hold_draws, is_chunked, labelled_like, sample_first
from lockquack.sources.groups import with_draws
from lockquack.transforms import get_transform
from lockquack.words import Text, advice

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
    natural = read_outcomes(y, draws, component_dim)
    modelled = on_scale_of_model(natural, transform)
    drawn = read_draws("draws", draws, modelled)
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


def read_outcomes(y: Any, draws: Any, component_dim: Hashable | None) -> Observations:
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


def read_draws(name: str, draws: Any, observations: Observations) -> Numeric:
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
