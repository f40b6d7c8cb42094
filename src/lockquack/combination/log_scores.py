"""Log scores beside the score that weights were fitted by, as far as they are known.

The table of a fit is printed often and is to cost nothing: what takes long is not computed for it,
but shown once something else has computed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lockquack.errors import LockquackError
from lockquack.jets import Array
from lockquack.prediction.evaluation import Evaluation
from lockquack.words import Text, advice

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

#: Draws × observations, of all models, up to which leave-one-out densities are found for a table.
_AFFORDABLE = 1e7


@dataclass(frozen=True)
class LogScores:
    """Log scores of the combination and each model, and what is not known of them, in words."""

    #: (1 + K, n), the first row NaN where that of the combination is not known; None: there are
    #: none, or the score of the table is the log score.
    values: Array | None = None
    why_not: str = ""


def find_log_scores(fit: Combination) -> LogScores:
    """Find the log scores, as far as that costs next to nothing."""
    if fit.rule.is_log_likelihood:
        return LogScores()
    if fit._saved_log_scores is not None:
        known = not np.isnan(fit._saved_log_scores[0]).all()
        return LogScores(
            fit._saved_log_scores, "" if known else f"elpd of [{fit.label}]: {_NOT_SAVED}"
        )
    if fit._complete_log_scores:
        return LogScores(fit._complete_log_scores[0])
    alone = _of_models(fit)
    if isinstance(alone, str):
        return LogScores(None, "elpd: " + alone)
    together = _of_combination(fit, alone)
    if not isinstance(together, str):
        fit._complete_log_scores.append(np.vstack([together, alone]))
        return LogScores(fit._complete_log_scores[0])
    unknown = np.full((1, fit.observations.n), np.nan)
    return LogScores(np.vstack([unknown, alone]), f"elpd of [{fit.label}]: " + together)


_NOT_SAVED = "not computed before the fit was saved."


def _of_models(fit: Combination) -> Array | str:
    """Log score of each model, (K, n), if it is known or found soon; else why it is not."""
    rule, models = fit.rule, fit.models
    # A pass for derivatives finds densities too, unless they are leave-one-out ones.
    as_well = fit.operator.needs_density or fit.scores != "loo"
    if rule.needs_density or (rule.needs_derivatives and as_well):
        return fit.objective.jets.logp
    if models is None:
        return _NOT_SAVED
    if not all(model.source.can.know_density for model in models.values()):
        return "not available: models of predictive draws have no density."
    work = sum(model.source.n_samples * model.source.n_obs for model in models.values())
    if work > _AFFORDABLE and not all(model.passes.knows_loo for model in models.values()):
        ask = advice("fit.metrics()", "lockquack compare")
        return Text("not computed, because it takes a pass over many draws; use ", ask, ".")
    try:
        each = [
            model.passes.predict(fit.scores, density=True, derivatives=False)
            for model in models.values()
        ]
    except LockquackError as error:
        return Text("unknown. ", error.text)
    return np.stack([found.jet.logp for found in each])


def _of_combination(fit: Combination, alone: Array) -> Array | str:
    """Log score of the combination, (n,), if no new densities are needed for it."""
    if fit.operator.normalised and fit.recalibration is None:
        return fit.pool(alone, np.arange(alone.shape[1]))
    if not fit.operator.of_densities:
        return "not available: an average of quantiles has no density."
    if fit.models is None:
        return _NOT_SAVED
    if not all(model.source.can.evaluate for model in fit.models.values()):
        return (
            "not available: normalising the pool needs densities at unobserved outcomes, which "
            "these models do not provide (use from_family or a PPL adapter)."
        )
    loo = fit.scores == "loo"
    if loo in fit._predictions:
        evaluation = fit._predictions[loo]._evaluation
    else:
        seed = fit.random_seed
        evaluation = Evaluation(
            fit.models, fit.pool, fit.observations, loo, seed, progressbar=False
        )
    try:
        found = evaluation.known_log_densities
    except LockquackError as error:
        return Text("unknown. ", error.text)
    if found is not None:
        return found
    call = advice(
        f"call fit.logpdf({'loo=True' * loo}) and print the fit again", "use lockquack compare"
    )
    return Text("not computed yet; ", call, ".")
