"""A combination whose predictions are made as sure as they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from scipy.stats import spearmanr

from lockquack.draws.blocks import HELD_OUT
from lockquack.errors import UnsupportedError
from lockquack.fitting.recalibration import RECALIBRATED, BetaFit, Recalibration, fit_beta
from lockquack.fitting.uncertainty import FEWEST_OBSERVATIONS, are_too_few
from lockquack.jets import Array, bare
from lockquack.methods.recalibrated import recalibrated_jet
from lockquack.models.model import already_said
from lockquack.quadrature.beta import BetaTransform
from lockquack.quadrature.uniformity import uniformity
from lockquack.remarks import Remark, warn
from lockquack.remarks.calibration import (
    CalibrationDepends,
    NothingToRecalibrate,
    StillMiscalibrated,
    StrongRecalibration,
)
from lockquack.rules.base import Pooled
from lockquack.rules.wishes import INTEGRAL, NEIGHBOURS
from lockquack.totals import counting, effective_number

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

#: P-values above which a transform is noise, and below which what it leaves is not.
_NOISE, _CLEAR = 0.05, 0.01
#: Differences of medians, relative to the distance of quartiles, up to which they are the same.
_SAME = 0.05
#: Values of a and b, and their inverses, from which a transform is strong.
_STRONG = 4.0


def recalibrated(self: Combination, *, progressbar: bool | None = None) -> Combination:
    r"""Return the combination with its distribution function transformed so that it is calibrated.

    .. math:: q_c(y) = q(y)\, b_{a,b}(F(y)), \qquad
        (\hat a, \hat b) = \arg\max_{a, b} \sum_i \log b_{a,b}(F_{-i}(y_i))

    The beta-transformed pool of Gneiting and Ranjan (2013), of any operator:
    :math:`b_{a,b}` is the density of the beta distribution and :math:`F_{-i}` the leave-one-out
    distribution function, or the held-out one. With a = b = 1 nothing changes; a = b < 1 makes all
    predictions wider, a = b > 1 narrower, a > b moves them up. For whole numbers a and b maximise
    the probabilities of the outcomes themselves, the steps of the transformed distribution
    function. The weights of the models stay as they are.

    Do not expect it to fix a wrong model: two numbers for all observations correct what is wrong
    with all predictions alike. Remarks say where something else is left, and where the two
    numbers are noise. They are fitted to the same observations as the weights, which flatters the
    scores in the table a little; ``compare(models, recalibrated=True)`` does not.

    Parameters
    ----------
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    Combination
        The same weights and models; ``recalibration`` has a, b, their covariance and what they
        are worth. Everything else is as before: ``predict``, ``coverage``, ``sample``, ``save``.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = 2.0 * rng.normal(size=200)  # both models are sure of a standard deviation of 1
    >>> draws = 0.1 * rng.normal(size=(4, 100))
    >>> models = {
    ...     "left": lq.from_family("normal", y=y, mu=draws - 0.2, sigma=1.0),
    ...     "right": lq.from_family("normal", y=y, mu=draws + 0.2, sigma=1.0),
    ... }
    >>> fit = lq.stack(models).recalibrated()
    >>> fit.coverage([0.9])["0.9"].round(2).to_dict()
    {'[stack, recalibrated]': 0.9, '[stack]': 0.64, 'left': 0.63, 'right': 0.68}

    References
    ----------
    Gneiting and Ranjan (2013). Combining predictive distributions. Electronic Journal of
    Statistics 7. arXiv:1106.1638.
    """
    plain = replace(self, recalibration=None, label=self.label.removesuffix(RECALIBRATED))
    _require_suited(plain)
    prediction = plain.predict(loo=plain.scores not in HELD_OUT, progressbar=progressbar)
    prediction._evaluation.warn_of_pareto("calibration")
    y, weights = plain.observations.values.T, plain.observations.weights
    steps = prediction._evaluation.steps(y)[:, :, 0]
    beta = fit_beta(steps, weights)
    before, after = (uniformity(each, weights) for each in _pit(steps[0], beta, plain.random_seed))
    found = Recalibration(beta, np.full(y.size, np.nan), before, after)
    unscored = replace(plain, recalibration=found, label=f"{plain.label}{RECALIBRATED}")
    found = replace(found, scores=_scores(plain, unscored))
    remarks = _examine(plain, found, steps[0])
    warn(*remarks, already_said=already_said(plain._require_models()))
    earlier = tuple(each for each in plain.remarks if each.code not in _OWN_CODES)
    return replace(unscored, recalibration=found, remarks=(*earlier, *remarks))


_OWN_CODES = {
    kind.code
    for kind in (NothingToRecalibrate, StillMiscalibrated, StrongRecalibration, CalibrationDepends)
}


def _require_suited(fit: Combination) -> None:
    """Refuse outcomes for which a distribution function says little, or nothing."""
    observations = fit.observations
    if observations.d > 1:
        raise UnsupportedError(
            f"Outcomes have {observations.d} components; recalibrating each by itself would not "
            "give a distribution of them together. Combine models of one component to recalibrate "
            "its predictions."
        )
    if are_too_few(observations.n, observations.weights):
        raise UnsupportedError(
            f"Fewer than {FEWEST_OBSERVATIONS} observations do not tell whether predictions are "
            f"calibrated; there are {round(effective_number(observations.weights, observations.n))}"
            f"{'' if observations.weights is None else ', by their case weights'}."
        )
    for name, model in fit._require_models().items():
        if any(edge.joined for edge in model.likelihood.edges):
            raise UnsupportedError(
                f"Outcomes of model {name!r} lie on a circle, on which a distribution function "
                "depends on where it begins; they cannot be recalibrated by it."
            )


def _pit(below: Array, beta: BetaFit, random_seed: int) -> tuple[Array, Array]:
    """Probabilities of the outcomes before and after, drawn between F(y − 1) and F(y)."""
    lower, upper = below
    u = lower + np.random.default_rng(random_seed).random(lower.size) * (upper - lower)
    return u, beta.transform.cdf(u)


def _scores(plain: Combination, fit: Combination) -> Array:
    """Score the recalibrated combination by its own rule, (n,)."""
    rule, loo = plain.rule, plain.scores == "loo"
    y, evaluation = plain.observations.values, fit.predict(loo=loo)._evaluation
    if rule.needs_derivatives:
        jet = plain.pool.jet(plain.objective.jets, np.arange(len(y)))
        log_q, steps = plain.predict(loo=loo)._evaluation.normalised.logp, evaluation.steps(y.T)
        by = cast(BetaTransform, fit.pool.recalibration)
        jet = recalibrated_jet(jet, log_q, steps[:, :, 0], by, rule, plain.observations)
        return rule.score(Pooled(jet, {}))
    if rule.is_for_discrete:
        logp = evaluation.pooled.logpdf(np.stack([y[:, 0] + k for k in (-1, 0, 1)]))
        return rule.score(Pooled(bare(logp[1]), {NEIGHBOURS: logp[::2]}))
    if INTEGRAL in rule.wishes:
        return evaluation.normalised.logp.copy()
    # What is left measures distances, and is the same for single numbers: CRPS and energy score.
    unit = rule.unit(y, plain.observations.weights)[0]
    return np.asarray(-evaluation.marginals.crps(y.T)[0] / unit)


def _examine(fit: Combination, found: Recalibration, below: Array) -> list[Remark]:
    """Remark on a transform that does nothing, and on what it cannot fix."""
    beta = found.beta
    remarks: list[Remark] = []
    if beta.p_value > _NOISE:
        a_se, b_se = np.sqrt(np.diag(beta.cov)).tolist()
        remarks.append(NothingToRecalibrate(beta.a, a_se, beta.b, b_se, beta.p_value))
    if max(beta.a, beta.b, 1 / beta.a, 1 / beta.b) > _STRONG:
        remarks.append(StrongRecalibration(beta.a, beta.b))
    if found.after < _CLEAR:
        remarks.append(StillMiscalibrated(found.before, found.after))
    _, pit = _pit(below, beta, fit.random_seed)
    return [*remarks, *_examine_dependence(fit, pit)]


def _examine_dependence(fit: Combination, pit: Array) -> list[Remark]:
    """Remark on probabilities that depend on the prediction, as residuals may on fitted values.

    The medians are not leave-one-out: a mean without an outcome is low where that is high.
    """
    use = counting(fit.observations.weights)
    quartiles = fit.predict()._evaluation.marginals.quantile(np.array([0.25, 0.5, 0.75]))[:, use]
    median, width = quartiles[1], np.mean(quartiles[2] - quartiles[0])
    if np.ptp(median) <= _SAME * width:
        return []
    remarks: list[Remark] = []
    for what, each in (("level", pit), ("spread", np.abs(pit - 0.5))):
        correlation, p_value = spearmanr(each[use], median)
        if p_value < _CLEAR / 2:
            remarks.append(CalibrationDepends(what, float(correlation), float(p_value)))
    return remarks
