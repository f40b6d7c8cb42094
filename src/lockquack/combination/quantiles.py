r"""Averages of quantiles (Vincentization), beside the pools of densities.

.. math:: F^{-1}(\tau) = \sum_k w_k F_k^{-1}(\tau)

It is no operator: what it makes of densities at an outcome depends on the densities everywhere, so
there is no jet, no Hyvärinen score and no log score by quadrature of a pool. It needs quantiles
only, and what it makes is a model of its own, known by its draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.arithmetic import methods_in_own_arithmetic, own_arithmetic
from lockquack.checks.models import kind_of_scores, require_same_observations
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.jets import Array
from lockquack.methods.fit import by_model, require_seed
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations, agreed
from lockquack.numeric import as_numeric
from lockquack.operators import Linear
from lockquack.operators.pool import Pool
from lockquack.prediction.distances import quantiles_of
from lockquack.prediction.prediction import Prediction
from lockquack.solvers.base import Solution
from lockquack.solvers.quantile_proportions import pinball, quantile_proportions
from lockquack.sources.drawn import hold_outcomes
from lockquack.sources.reading import as_models
from lockquack.totals import error_of_total, total

_LABEL = "quantile average"
#: Levels at which quantiles are averaged, as many outcomes does the average have.
_LEVELS = (np.arange(100) + 0.5) / 100


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class QuantileAverage:
    """The average of the quantiles of some models, with weights; made by :func:`average_quantiles`.

    Attributes
    ----------
    weights
        The models' weights, which sum to one.
    model
        The average as a model of these observations, known by its draws. It can be mixed with, and
        compared to, others by :class:`CRPS`.
    solution
        What the solver found, with its gap; None where the weights were given.

    Examples
    --------
    >>> import lockquack as lq
    >>> average = lq.average_quantiles(lq.example_models(), "equal")
    >>> average.weights.values, average.model
    (array([0.5, 0.5]), <Model quantile average; chain: 1, draw: 100, obs_id: 40, components: 1>)
    """

    weights: xr.DataArray
    model: Model
    solution: Solution | None
    crps: Array  # (1 + K, n): of the average and of each model, in units of the outcome

    def predict(self, models: Mapping[str, Any] | None = None) -> Prediction:
        """Return the average as a distribution, here or at other observations.

        Parameters
        ----------
        models
            Models of other observations, with the same names; by default those it was made of.

        Returns
        -------
        Prediction
            With ``cdf``, ``quantile``, ``interval``, ``mean``, ``sample``; where the outcomes are
            known, ``pit`` and ``coverage``.

        Examples
        --------
        >>> import lockquack as lq
        >>> average = lq.average_quantiles(lq.example_models())
        >>> average.predict().quantile(0.5).sizes
        Frozen({'obs_id': 40})
        """
        model = self.model
        if models is not None:
            model = average_quantiles(models, self.weights, scores="held-out").model
        observations = model.observations
        alone = Pool(Linear(), np.ones(1), 1)
        return Prediction({_LABEL: model}, alone, observations, _LABEL, observed=observations.known)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a table: weights, and totals of CRPS in units of the outcome, smaller is better.

        Returns
        -------
        pandas.DataFrame
            A row for the average, then one for each model: ``weight``, ``crps``, its standard error
            ``crps_se``, and ``diff``, what a model has more than the average.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.average_quantiles(lq.example_models()).to_dataframe().index.tolist()
        ['[quantile average]', 'first', 'second']
        """
        counts = self.model.observations.weights
        totals = total(self.crps, counts)
        return pd.DataFrame(
            {
                "weight": [np.nan, *self.weights.values],
                "crps": totals,
                "crps_se": error_of_total(self.crps, counts),
                "diff": totals - totals[0],
            },
            index=pd.Index([f"[{_LABEL}]", *self.weights["model"].values], name="model"),
        )

    def __repr__(self) -> str:
        table = self.to_dataframe().round(3).to_string(na_rep="", index_names=False)
        return f"Average of quantiles; CRPS in units of the outcome, smaller is better\n\n{table}"


@own_arithmetic
def average_quantiles(
    models: Mapping[str, Any],
    weights: Any = None,
    *,
    scores: Kind = "loo",
    random_seed: int = 0,
) -> QuantileAverage:
    r"""Average the models' quantiles, with weights by CRPS (Vincentization).

    .. math:: F^{-1}(\tau) = \sum_k w_k F_k^{-1}(\tau)

    Where models disagree about the place and agree about the spread, the average lies between them
    and is as wide as they are; a mixture of them is wider. So it suits models that
    are each right but for a shift, and is too narrow where their disagreement is what is
    not known: look at ``predict().coverage()``, and compare with the mixture,
    ``combine(models, Linear(), CRPS())``.

    The weights minimise the total CRPS, the pinball loss over 100 levels: a linear programme, with
    a gap that proves it. It is no operator of :func:`combine`: it has no density that follows
    from the models' densities at the outcome. What it returns is a model of its own.

    Parameters
    ----------
    models
        As for :func:`combine`, of single numbers: quantile forecasts, predictive draws, or any
        model that can be evaluated or can draw.
    weights
        Weights by name, or in the order of the models, or ``"equal"``. None: by CRPS.
    scores
        As for :func:`lock`.
    random_seed
        Seed of outcomes that models draw.

    Returns
    -------
    QuantileAverage
        Its weights, and the average as a model.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(size=60)
    >>> draws = rng.normal(size=(1, 400, 60))
    >>> low, high = (lq.from_draws(draws + by, y=y, held_out=True) for by in (-1.0, 1.0))
    >>> average = lq.average_quantiles({"low": low, "high": high})
    >>> average.weights.round(1).to_series().to_dict()
    {'low': 0.5, 'high': 0.5}

    References
    ----------
    Lichtendahl, Grushka-Cockayne and Winkler (2013). Is it better to average probabilities or
    quantiles? Management Science 59(7).
    """
    require_seed(random_seed)
    found = as_models(models)
    sources = sources_of(found)
    require_same_observations(sources)
    scores = kind_of_scores(found, scores)
    observations = agreed(model.observations for model in found.values())
    if observations.d > 1:
        raise UnsupportedError(
            f"Quantiles are of single numbers; these outcomes have {observations.d} components. "
            "Mix the models by lq.combine(models, lq.Linear(), lq.EnergyScore())."
        )
    loo = scores == "loo"
    quantiles = quantiles_of(sources, _LEVELS, loo=loo, random_seed=random_seed)  # (K, level, n)
    solution, w = None, _given(weights, tuple(found))
    if w is None:
        solution = _fit(quantiles, observations)
        w = solution.x
    averaged = np.tensordot(w, quantiles, axes=1)
    left_out, described = scores != "in-sample", Likelihood(_LABEL)
    model = Model(hold_outcomes(observations, averaged[None], described, held_out=left_out))
    y = observations.values[:, 0]
    each = np.stack([averaged, *quantiles])
    crps = 2.0 * pinball(y - each, _LEVELS[:, None]).mean(axis=1)
    labelled = xr.DataArray(w, dims="model", coords={"model": list(found)}, name="weights")
    return QuantileAverage(labelled, model, solution, crps)


def _fit(quantiles: Array, observations: Observations) -> Solution:
    if not observations.known:
        raise UnsupportedError(
            "Weights by CRPS need the outcomes, and no model holds them. Give y= to one, or give "
            "weights=."
        )
    K, L, n = quantiles.shape
    counts = np.ones(n) if observations.weights is None else observations.weights
    return quantile_proportions(
        quantiles.reshape(K, -1).T,
        np.tile(observations.values[:, 0], L),
        np.repeat(_LEVELS, n),
        np.tile(counts, L) * 2.0 / L,
    )


def _given(weights: Any, names: tuple[str, ...]) -> Array | None:
    """Read weights; None where they are to be found."""
    if weights is None:
        return None
    if isinstance(weights, str):
        if weights != "equal":
            raise ParameterError(f"weights must be numbers, 'equal' or None; got {weights!r}.")
        return np.full(len(names), 1.0 / len(names))
    values = as_numeric("weights", by_model("weights", weights, names), ParameterError)
    right = values.shape == (len(names),) and (values >= 0).all() and np.isclose(values.sum(), 1.0)
    if not right:
        raise ParameterError(
            f"weights must be {len(names)} numbers that are not negative and sum to one; got "
            f"{weights!r}."
        )
    return values.astype(np.float64) / values.sum()
