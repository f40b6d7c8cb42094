"""Models that are known by their cross-validated log scores only: ArviZ's ``ELPDData``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.arithmetic import own_arithmetic
from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.errors import NonFiniteError, ParameterError, ShapeError, UnsupportedError
from lockquack.jets import Array
from lockquack.models.labels import require_same_labels
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import Observations, as_observations, unknown_outcomes
from lockquack.models.source import Abilities, Source
from lockquack.models.transformed import on_scale_of_model
from lockquack.numeric import and_more
from lockquack.sources.arrays import labelled_like
from lockquack.transforms import get_transform

#: What ArviZ calls the values of single observations, in its versions and for its criteria.
_POINTWISE = ("elpd_i", "loo_i", "waic_i")
#: By what factor a log score is multiplied on each of ArviZ's scales.
_SCALES = {"log": 1.0, "negative_log": -1.0, "deviance": -2.0}
#: Kinds for which the model was fitted again without the observations.
_HELD_OUT = {"loo_kfold": "K-fold", "lfo_cv": "leave-future-out"}
#: What other kinds do.
_HOWS = {**_HELD_OUT, "waic": "WAIC", "loo": "PSIS"}


@dataclass(frozen=True, eq=False, repr=False)
class PointwiseSource(Source):
    """One cross-validated log score for each observation, and no draws."""

    scores: Array  # (n,)
    pareto_k: Array  # (n,); NaN where there is none
    limit: float
    how: str
    one_step_ahead: bool = False

    @property
    @override
    def can(self) -> Abilities:
        return Abilities(differentiate=False, be_sent=False)

    @property
    @override
    def lacks_chains(self) -> bool:
        return False  # there were some; of how many draws these are the averages is not known

    @property
    @override
    def pareto_limit(self) -> float:
        return self.limit

    @property
    @override
    def each_left_out_by(self) -> NDArray[np.str_]:
        # ArviZ's reloo puts a zero where it fitted again.
        return np.where(self.pareto_k == 0.0, "refit", self.how)

    @property
    @override
    def is_one_step_ahead(self) -> bool:
        return self.one_step_ahead

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        raise self._no_draws("its log densities at each draw are not known")

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        raise self._no_draws("its derivatives with respect to the outcome are not known")

    @override
    def all_logp(self, obs: slice) -> Array:
        return self.logp(0, slice(0, 0), obs)

    @override
    def logp_rows(self, obs: slice) -> Array:
        return self.all_logp(obs)

    @override
    def dask_draws(self, dtype: str | None = None) -> Mapping[str, Any] | None:
        raise self._no_draws("it cannot be held or written as log densities at each draw")

    @override
    def require_derivatives(self) -> None:
        raise self._no_draws(
            "it has no Hyvärinen score, which needs derivatives with respect to the outcome"
        )

    @override
    def stored_loo(self) -> tuple[Array, Array]:
        return self.scores, self.pareto_k

    @override
    def pass_over_draws(
        self, kind: Kind, *, derivatives: bool, progress: Callable[[int], object]
    ) -> Collapsed:
        if derivatives:
            self.require_derivatives()
        if kind != ("held-out" if self.held_out else "loo"):
            raise self._no_draws(f"it has no {kind} scores")
        return Collapsed.known(self.scores)

    @override
    def describe(self) -> str:
        grid = " × ".join(f"{dim}: {size}" for dim, size in self.observations.sizes.items())
        return f"{self.likelihood.description}; {grid}"

    @override
    def _not_evaluable(self) -> UnsupportedError:
        return self._no_draws("its density at other outcomes is not known")

    def _no_draws(self, so: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.likelihood.description} holds a score for each observation and no draws, so "
            f"{so}. Give the model itself: lq.from_pymc(model, idata) or another source; for log "
            "scores its InferenceData or DataTree with a group log_likelihood will do."
        )


@own_arithmetic
def from_elpd(
    elpd: Any,
    *,
    y: Any = None,
    component_dim: Hashable | None = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    r"""Take a model from its cross-validated log scores, an ``ELPDData`` of ArviZ.

    .. math:: \texttt{elpd\_i} = \log p(y_i \mid y_{-i})

    as ``arviz.loo``, ``reloo``, ``loo_kfold``, ``lfo_cv`` and ``waic`` return them, in ArviZ
    before and after 1.0, with ``pointwise=True``. That is enough to stack, for
    :func:`pseudo_bma`, :func:`select` and :func:`compare`, but for nothing that needs the model's
    density. Values of Pareto k̂ are included and remarked on as usual; scores of K-fold and
    leave-future-out cross-validation count as held out.

    The outcomes are not among them, so it cannot be seen whether two models describe the same ones
    in the same order, except by their labels and number: give ``y`` where you can. Do not
    trust sums of scores of different kinds, such as leave-one-out beside leave-future-out.

    Parameters
    ----------
    elpd
        The ``ELPDData``, with pointwise values.
    y
        The outcomes, if known; they are compared with those of the other models.
    component_dim
        Which dimension of a DataArray ``y`` holds the components of a vector outcome.
    transform
        ``"log"`` or another name of :func:`from_family` if the scores are those of that function
        of y. They get the Jacobian; ``y`` is needed for it, **on its natural scale**. Not where
        ArviZ was given ``log_jacobian``.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`.

    Returns
    -------
    Model
        A model for :func:`lockquack.stack` and its relatives.

    Examples
    --------
    >>> import arviz_stats
    >>> import lockquack as lq
    >>> models = lq.example_models()
    >>> first = arviz_stats.loo(models["first"].to_datatree(), pointwise=True, reff=1.0)
    >>> lq.from_elpd(first)
    <Model ELPDData (loo); obs_id: 40>

    It can go into the dict of models as it is:

    >>> fit = lq.stack({"first": first, "second": models["second"]})
    >>> fit.weights.round(1).to_series().to_dict()
    {'first': 0.4, 'second': 0.6}
    """
    if not is_elpd(elpd):
        raise ParameterError(f"from_elpd needs an ELPDData of ArviZ; got a {type(elpd).__name__}.")
    pointwise = _pointwise(elpd)
    template = unknown_outcomes(pointwise)
    observations = template
    if y is not None:
        observations = _with_outcomes(template, labelled_like(y, pointwise), component_dim)
    scores = _scores(elpd, pointwise, template)
    kind = str(_field(elpd, "kind") or ("waic" if "waic_i" in _names(elpd) else "loo"))
    described = f"ELPDData ({_HELD_OUT.get(kind, kind)})"
    if transform is not None:
        scores = scores + _jacobian(elpd, observations, transform)
        described = f"{described} of {transform} y"
    source = PointwiseSource(
        observations,
        n_chains=0,
        n_draws=0,
        likelihood=Likelihood(described),
        scores=scores,
        pareto_k=_pareto_k(elpd, scores.size),
        limit=_limit(elpd),
        held_out=kind in _HELD_OUT,
        how=_HOWS.get(kind, kind),
        one_step_ahead=kind == "lfo_cv" and _field(elpd, "forecast_horizon") == 1,
    )
    return Model(source).with_weights(weights)


def is_elpd(given: Any) -> bool:
    """Whether this is an ``ELPDData``, of whichever ArviZ; nothing is imported to find out."""
    return any(each.__name__ == "ELPDData" for each in type(given).__mro__)


def _names(elpd: Any) -> set[str]:
    """Names of what it holds: that of ArviZ before 1.0 is a pandas Series."""
    return set(elpd.index) if hasattr(elpd, "index") else set(dir(elpd))


def _field(elpd: Any, name: str) -> Any:
    return elpd[name] if name in _names(elpd) else None


def _pointwise(elpd: Any) -> xr.DataArray:
    found = [each for name in _POINTWISE if (each := _field(elpd, name)) is not None]
    if not found:
        raise UnsupportedError(
            "This ELPDData has a total and no values of single observations. Compute it with "
            "pointwise=True: az.loo(idata, pointwise=True)."
        )
    if np.ndim(found[0]) == 0:
        raise ShapeError("This ELPDData is of a single observation; give that of all.")
    if isinstance(found[0], xr.DataArray):
        return found[0]
    return xr.DataArray(
        np.asarray(found[0]), dims=[f"obs_id_{i}" for i in range(np.ndim(found[0]))]
    )


def _scores(elpd: Any, pointwise: xr.DataArray, observations: Observations) -> Array:
    scale = str(_field(elpd, "scale") or "log").lower()
    if scale not in _SCALES:
        raise UnsupportedError(
            f"This ELPDData has the scale {scale!r}; it must be one of {', '.join(_SCALES)}."
        )
    values = np.asarray(pointwise.values, dtype=np.float64).ravel() / _SCALES[scale]
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        at = int(bad[0])
        hint = " Subsampled scores cannot be combined." if np.isnan(values[at]) else ""
        raise NonFiniteError(
            f"The score in this ELPDData is {values[at]} at {observations.describe(at)}"
            f"{and_more(bad.size - 1)}.{hint}"
        )
    values.setflags(write=False)
    return values


def _pareto_k(elpd: Any, n: int) -> Array:
    found = _field(elpd, "pareto_k")
    return np.full(n, np.nan) if found is None else np.asarray(found, dtype=np.float64).ravel()


def _limit(elpd: Any) -> float:
    """Largest k̂ that ArviZ calls good; before it did so, what the number of draws allows."""
    limit = _field(elpd, "good_k")
    return (
        pareto_k_threshold(int(_field(elpd, "n_samples") or 0)) if limit is None else float(limit)
    )


def _with_outcomes(template: Observations, y: Any, component_dim: Hashable | None) -> Observations:
    """Read the outcomes that scores are of, which must be as many, with no other labels."""
    observations = as_observations(y, component_dim)
    if observations.n != template.n:
        raise ShapeError(
            f"y has {observations.n} outcomes, the ELPDData {template.n} scores. Give one for each."
        )
    require_same_labels("The ELPDData", template.labels, observations.labels)
    return observations


def _jacobian(elpd: Any, observations: Observations, transform: str) -> Array:
    if _field(elpd, "log_jacobian") is not None:
        raise ParameterError(
            "This ELPDData has a log_jacobian already: it is one of the outcome itself. Leave "
            "transform= out."
        )
    if not observations.known:
        raise ParameterError(
            "The Jacobian of a transform depends on the outcomes, which an ELPDData does not hold. "
            "Give them on their natural scale: from_elpd(elpd, y=y, transform=...)."
        )
    on_scale_of_model(observations, transform)
    shift = get_transform(transform).change(observations.values).log_shift
    assert shift is not None
    return shift
