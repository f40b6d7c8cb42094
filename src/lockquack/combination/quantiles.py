"""The verb for averages of quantiles (Vincentization)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lockquack.arithmetic import own_arithmetic
from lockquack.combination.combination import Combination
from lockquack.combination.verbs import combine_by
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError
from lockquack.fitting.formulas import GivenWeights
from lockquack.jets import Array
from lockquack.methods.fit import by_model
from lockquack.methods.method import METHODS, Method
from lockquack.numeric import as_numeric
from lockquack.sources.reading import as_models


@own_arithmetic
def average_quantiles(
    models: Mapping[str, Any],
    weights: Any = None,
    *,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Average the models' quantiles, with weights by CRPS (Vincentization).

    .. math:: F^{-1}(\tau) = \sum_k w_k F_k^{-1}(\tau)

    What ``combine(models, Quantiles(), CRPS())`` does, also with weights that are given. Where
    models disagree about the place and agree about the spread, the average lies between them and is
    as wide as they are; a mixture of them is wider. So it suits models that are each right but for
    a shift, and is too narrow where their disagreement is what is not known: look at
    ``coverage()``, and at the mixture beside it in ``compare(models, rule="crps")``.

    The weights minimise the total CRPS, the pinball loss over 100 levels: a linear programme, with
    a gap that proves it.

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
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    Combination
        The average as a distribution, with ``cdf``, ``quantile``, ``interval``, ``mean``,
        ``sample``, ``pit`` and ``coverage``, but no density.

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
    >>> average.predict().interval(0.9).sizes
    Frozen({'ci_bound': 2, 'obs_id': 60})

    References
    ----------
    Lichtendahl, Grushka-Cockayne and Winkler (2013). Is it better to average probabilities or
    quantiles? Management Science 59(7).
    """
    read = as_models(models)
    method = _method(weights, tuple(read))
    return combine_by(read, method, scores=scores, random_seed=random_seed, progressbar=progressbar)


def _method(weights: Any, names: tuple[str, ...]) -> Method:
    """Find the method for weights that are given, equal, or to be found."""
    if weights is None:
        return METHODS["quantiles"]
    if isinstance(weights, str):
        if weights != "equal":
            raise ParameterError(f"weights must be numbers, 'equal' or None; got {weights!r}.")
        return METHODS["equal quantiles"]
    given = {"given": _read_weights(weights, names)}
    return replace(METHODS["quantiles"], fitter=GivenWeights, options=given)


def _read_weights(weights: Any, names: tuple[str, ...]) -> Array:
    values = as_numeric("weights", by_model("weights", weights, names), ParameterError)
    right = values.shape == (len(names),) and (values >= 0).all() and np.isclose(values.sum(), 1.0)
    if not right:
        raise ParameterError(
            f"weights must be {len(names)} numbers that are not negative and sum to one; got "
            f"{weights!r}."
        )
    return values.astype(np.float64) / values.sum()
