"""Scores and other measures of a combination and its models, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lockquack.jets import Array
from lockquack.methods.bench import Bench, why_no_densities
from lockquack.methods.metrics import PROB, measure
from lockquack.methods.recalibrated import recalibrated_jet
from lockquack.models.model import sources_of
from lockquack.numeric import as_probability
from lockquack.operators.pool import Pool
from lockquack.rules import Hyvarinen
from lockquack.rules.base import Pooled
from lockquack.totals import total

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination


def metrics(
    self: Combination, *, prob: float = PROB, progressbar: bool | None = None
) -> pd.DataFrame:
    r"""Measure the predictions of the combination, of stacking, and of each model.

    Observations are left out of the models that predict them, unless they are held out or scores
    are in-sample. The weights were fitted to the same observations, which flatters combinations a
    little; ``compare(models, metrics=True)`` has the same columns, cross-validated.

    Parameters
    ----------
    prob
        Probability of the intervals.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    pandas.DataFrame
        A row for the combination (and for what it was before it was recalibrated), the linear
        pool with weights by stacking, and each model. Columns: ``elpd``, the total log score, and
        ``hyvarinen``, the total Hyvärinen score, larger is better; ``crps``, the mean continuous
        ranked probability score, smaller is better; ``coverage_0.9``, the share of outcomes inside
        central intervals, and ``width_0.9``, their mean width; ``rmse`` of the means, and ``r2``,
        their share of the variance, :math:`1 - \sum (y - m)^2 / \sum (y - \bar y)^2`. Where a
        measure is not known, it is NaN; ``rmse`` and ``r2`` also where predictions have no mean,
        such as a mixture with a Student t of one degree of freedom or less in some draws.
        Components of vector outcomes count as outcomes. With case
        weights, sums and averages are weighted.

    Examples
    --------
    >>> import lockquack as lq
    >>> lq.lock(lq.example_models()).metrics().round(2)
              elpd  hyvarinen  crps  coverage_0.9  width_0.9  rmse    r2
    model
    [lock]  -57.53     111.25  0.59          0.92       3.33  1.03  0.62
    [stack] -59.97      89.32  0.60          0.95       3.94  1.03  0.62
    first   -75.66      15.54  0.80          0.82       3.34  1.43  0.26
    second  -63.00      80.35  0.67          0.85       3.33  1.15  0.52
    """
    prob = as_probability("prob", prob)
    pools = {self.label: self.pool, **self._rivals(self.names)}
    bracketed = {f"[{label}]": pool for label, pool in pools.items()}
    evaluation = self.predict(loo=self.scores == "loo", progressbar=progressbar)._evaluation
    measured = measure(evaluation, bracketed, prob)
    table = pd.DataFrame.from_dict(measured, orient="index").rename_axis("model")
    weights = self.observations.weights
    for place, scores in enumerate(_all_scores(self, list(bracketed.values()), progressbar)):
        table.insert(place, ("elpd", "hyvarinen")[place], total(scores, weights))
    return table


def _all_scores(
    fit: Combination, pools: Sequence[Pool], progressbar: bool | None
) -> tuple[Array, Array]:
    """Log scores and H of pools and models, (pool + K, n) each; NaN where there are none."""
    hyvarinen = fit.rule if fit.rule.needs_derivatives else Hyvarinen()
    models = fit._require_models()
    if why_no_densities(sources_of(models)):
        unknown = np.full((len(pools) + len(fit.names), fit.observations.n), np.nan)
        return unknown, unknown
    bench = Bench.build(models, hyvarinen, fit.scores, progressbar)
    scored = [_scores(bench, pool) for pool in pools]
    scored += [(row.log_scores, row.h_scores) for row in bench.single_models().values()]
    log_scores, h_scores = map(np.stack, zip(*scored, strict=True))
    return log_scores, h_scores


def _scores(bench: Bench, pool: Pool) -> tuple[Array, Array]:
    """Log score and H of a pool, recalibrated if it is, (n,) each."""
    log_scores, h_scores = bench.scores_of(pool)
    by = pool.recalibration
    if by is None:
        return log_scores, h_scores
    observations = bench.observations
    steps = bench.evaluation(pool).steps(observations.values.T)[:, :, 0]
    if not bench.why_no_h:
        jet = pool.jet(bench.gathered.densities.jets, np.arange(bench.n_obs))
        jet = recalibrated_jet(jet, log_scores, steps, by, bench.hyvarinen, observations)
        h_scores = bench.hyvarinen.score(Pooled(jet, {}))
    return np.add(log_scores, by.log_mean_density(*steps)), h_scores
