"""Recalibrated pools: their jets, and methods that are recalibrated fold by fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.fitting.recalibration import fit_beta
from lockquack.jets import Array, Jet
from lockquack.methods.bench import Bench, Row, held_out_pool
from lockquack.methods.folds import Fold
from lockquack.methods.gather import in_units, unit_of
from lockquack.models.observations import Observations
from lockquack.quadrature.beta import BetaTransform
from lockquack.rules import Rule
from lockquack.rules.base import Pooled


def recalibrated_jet(
    jet: Jet, log_q: Array, steps: Array, by: BetaTransform, rule: Rule, observations: Observations
) -> Jet:
    """Jet of a recalibrated density of scalar outcomes, in the coordinates and units of a rule.

    Given are the jet of the pool in these, its normalised log density (n,) and the probabilities
    around the outcomes, (2, 2, n). With φ = log b, log q gains φ(F), its slope φ' q, and its second
    derivative φ'' q² + φ' q g.
    """
    y, unit = observations.values, unit_of(rule, observations)
    change = None if rule.coordinates is None else rule.coordinates.score_weight(y)
    slope = jet.grad / (unit if change is None else change.root * unit)
    first, second = by.slopes(steps[0, 0], steps[1, 0])
    grad = (first * np.exp(log_q))[:, None]
    curv = (second * np.exp(2.0 * log_q))[:, None] + grad * slope
    if change is not None:
        grad, curv = change.derivatives(grad, curv)
    more = in_units(Jet(np.zeros_like(log_q), grad, curv), unit)
    return Jet(jet.logp, jet.grad + more.grad, jet.curv + more.curv)


def recalibrate_row(bench: Bench, row: Row, folds: Sequence[Fold]) -> Row:
    """Recalibrate a method for each fold, by the probabilities of all other outcomes."""
    if bench.observations.d > 1:
        raise UnsupportedError("Outcomes with several components are not recalibrated.")
    evaluation = bench.evaluation(row.pools[0])
    y, weights = bench.observations.values.T, bench.case_weights
    # What a fold was predicted by says what would have been predicted elsewhere.
    steps = [each[:, :, 0] for each in evaluation.steps_of(row.pools, y)]
    a, b = np.empty((2, bench.n_obs))
    own = np.empty((2, 2, bench.n_obs))
    for fold, each in zip(folds, steps, strict=True):
        others = np.ones(bench.n_obs) if weights is None else weights.copy()
        others[fold] = 0.0
        beta = fit_beta(each, others)
        a[fold], b[fold] = beta.a, beta.b
        own[..., fold] = each[..., fold]
    by = BetaTransform(a, b)
    pool = held_out_pool(row.pools, folds)
    h_scores = row.h_scores
    if not bench.why_no_h:
        jet = pool.jet(bench.gathered.densities.jets, np.arange(bench.n_obs))
        rule = bench.hyvarinen
        jet = recalibrated_jet(jet, row.log_scores, own, by, rule, bench.observations)
        h_scores = rule.score(Pooled(jet, {}))
    distances = row.distance_scores
    if bench.distance is not None:
        predicted = bench.evaluation(replace(pool, recalibration=by)).marginals
        distances = -predicted.crps(y)[0] / unit_of(bench.distance, bench.observations)[0]
    return replace(
        row,
        log_scores=row.log_scores + by.log_mean_density(*own),
        h_scores=h_scores,
        distance_scores=distances,
        complexity=row.complexity + 1,
        recalibration=by,
    )
