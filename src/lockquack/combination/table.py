"""The table of a combination: its weights and scores, and those of each model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lockquack.combination.log_scores import find_log_scores
from lockquack.jets import Array
from lockquack.totals import error_of_total, total

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination


def to_dataframe(self: Combination) -> pd.DataFrame:
    """Return the table: one row for the combination, then one for each model.

    The combination is scored on the observations that its weights were fitted to, which
    flatters it a little.

    Returns
    -------
    pandas.DataFrame
        Columns: ``weight``, its standard error and the ends of its 90 % interval, by the
        Bayesian bootstrap, and, where it depends on covariates, its smallest and largest value
        (the weight itself is then the average over the observations); ``score``, the total over
        observations, each times its case weight where there are any, larger is better, and its
        standard error; ``diff``, the score minus the combination's, and its standard error,
        paired over observations; ``mcse``, the part of the score's error that is due to the
        finite number of draws. Where the score is not the log score, ``elpd``, the total log
        score, and its standard error: of a pool other than a mixture it is NaN until its
        normalisers are known, from ``fit.logpdf(loo=True)``, ``fit.metrics()`` or
        :func:`compare` of the same models.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> fit.to_dataframe()[["weight", "score", "diff"]].round(1)
               weight  score  diff
    model
    [lock]        NaN  111.2   0.0
    first         0.4   15.5 -95.7
    second        0.6   80.4 -30.9
    """
    scored, counts = self._scored, self.observations.weights
    behind = scored - scored[0]
    log_scored = find_log_scores(self).values
    elpd = {}
    if log_scored is not None:
        elpd = {"elpd": total(log_scored, counts), "elpd_se": _errors(self, log_scored)}
    return pd.DataFrame(
        {
            "weight": [np.nan, *self._weights],
            "weight_se": [np.nan, *self._weights_se],
            "weight_5%": [np.nan, *self._weights_interval[0]],
            "weight_95%": [np.nan, *self._weights_interval[1]],
            **self._weights_range,
            "score": total(scored, counts),
            "score_se": _errors(self, scored),
            "diff": total(behind, counts),
            "diff_se": _errors(self, behind),
            "mcse": [np.nan, *self.mcse],
            **elpd,
        },
        index=pd.Index(self._rows, name="model"),
    )


def _errors(fit: Combination, scores: Array) -> Array:
    """Find standard errors of totals of scores (row, n); NaN for too few observations."""
    if fit._has_few_observations:
        return np.full(len(scores), np.nan)
    with np.errstate(invalid="ignore"):
        return error_of_total(scores, fit.observations.weights)
