r"""Measures of predictions besides the scores that they are fitted by.

Of predictions :math:`F_i` with means :math:`m_i` and outcomes :math:`y_i`: the continuous ranked
probability score :math:`\int (F_i(t) - 1[t \ge y_i])^2 dt`, the share of outcomes inside intervals
and the width of these, :math:`\sqrt{\overline{(y_i - m_i)^2}}`, and
:math:`R^2 = 1 - \sum (y_i - m_i)^2 / \sum (y_i - \bar y)^2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.jets import Array
from lockquack.models.observations import Observations
from lockquack.operators.pool import Pool
from lockquack.prediction.evaluation import Evaluation
from lockquack.quadrature.intervals import HasIntervals
from lockquack.totals import average

#: Probability of the intervals.
PROB = 0.9


def measure(
    evaluation: Evaluation, pools: Mapping[str, Pool], prob: float = PROB
) -> dict[str, dict[str, float]]:
    """Measure pools, and each model, by the outcomes; NaN where a pool is not known well enough."""
    question = partial(_answers, prob=prob)
    observations = evaluation.observations
    if evaluation.are_evaluable:
        found = evaluation.ask_each(pools, question)
    else:
        found = _one_by_one(evaluation, pools, question)
    return {name: _summary(each, observations, prob) for name, each in found.items()}


def _one_by_one(
    evaluation: Evaluation, pools: Mapping[str, Pool], question: partial[Array]
) -> dict[str, Array]:
    """Ask pools of draws, of which some tell nothing."""
    unknown = np.full((4, evaluation.observations.values.size), np.nan)
    try:
        found = evaluation.ask_each({}, question)
    except UnsupportedError:
        found = dict.fromkeys(evaluation.models, unknown)
    combined: dict[str, Array] = {}
    for name, pool in pools.items():
        try:
            combined |= evaluation.ask_each({name: pool}, question, models=False)
        except UnsupportedError:
            combined[name] = unknown
    return {**combined, **found}


def _answers(predicted: HasIntervals, y: Array, *, prob: float) -> Array:
    """Score outcomes (1, n); return also the ends of intervals, and means, (4, n)."""
    return np.concatenate([predicted.crps(y), predicted.interval(prob), predicted.mean()[None]])


def _summary(answers: Array, observations: Observations, prob: float) -> dict[str, float]:
    """Average over the observations; components count as observations."""
    crps, low, high, mean = answers
    y, weights, d = observations.values, observations.weights, observations.d
    middle = average(y.T, weights)
    y, around = y.reshape(-1), (y - middle).reshape(-1)
    weights = None if weights is None else np.repeat(weights, d)
    with np.errstate(invalid="ignore", divide="ignore"):
        missed, all_ = (average(np.square(each), weights) for each in (y - mean, around))
        covered = np.where(np.isnan(low), np.nan, (low <= y) & (y <= high))
        values = {
            "crps": average(crps, weights),
            f"coverage_{prob:g}": average(covered, weights),
            f"width_{prob:g}": average(high - low, weights),
            "rmse": np.sqrt(missed),
            "r2": 1.0 - missed / all_,
        }
    return {name: float(value) for name, value in values.items()}
