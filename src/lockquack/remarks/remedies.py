"""What each remark on a result means, in plain words, and what to do about it.

The one place for these words: reports show them, and the documentation's page on warnings is made
of them. Backticks mark code.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockquack.errors import (
    ConvergenceWarning,
    EdgeWarning,
    IdentifiabilityWarning,
    LockquackWarning,
    MonteCarloWarning,
    ParetoWarning,
    QuadratureWarning,
    SupportWarning,
)


@dataclass(frozen=True)
class Remedy:
    """One thing that can be wrong with a result."""

    category: type[LockquackWarning]
    #: Words by which its messages are known.
    words: str
    title: str
    meaning: str
    remedy: str


#: All of them, category by category.
REMEDIES = (
    Remedy(
        ConvergenceWarning,
        "stopped early",
        "The solver stopped early",
        "The weights are not quite those that the score asks for.",
        "Look for models with absurd scores in `fit.pointwise`. Locking by the Hyvärinen score and "
        "stacking are convex and should always converge: if they do not, please report it.",
    ),
    Remedy(
        ConvergenceWarning,
        "starts agree",
        "Several optima",
        "The objective is not convex, and only one of several searches ended at the best solution "
        "found. There may be a better one.",
        "Use an operator with fewer parameters, fix the phases or the order, or take more "
        "observations. Do not interpret single parameters.",
    ),
    Remedy(
        MonteCarloWarning,
        "Only one chain",
        "A single chain",
        "Chains that disagree cannot be noticed, so Monte Carlo errors (`mcse`) may be too small.",
        "Run at least two chains, better four.",
    ),
    Remedy(
        MonteCarloWarning,
        "Fewer than four draws per chain",
        "Hardly any draws",
        "The Monte Carlo errors of the scores (`mcse`) are not known.",
        "Draw more.",
    ),
    Remedy(
        MonteCarloWarning,
        "Too few effective draws",
        "Too few draws",
        "The error of a score that comes from the finite number of draws is more than a quarter of "
        "its error from the finite number of observations.",
        "Run longer chains, and thin less.",
    ),
    Remedy(
        MonteCarloWarning,
        "rest on very few draws",
        "Predictions that rest on a handful of draws",
        "At some observations all but a handful of draws give the outcome almost no density, and "
        "an in-sample or held-out average is that of the handful.",
        "Look at these observations; use leave-one-out scores, or a likelihood with heavier tails.",
    ),
    Remedy(
        MonteCarloWarning,
        "The normaliser is uncertain",
        "The normaliser is uncertain",
        "The models disagree, so the combination of vector outcomes lies where none of them has "
        "much mass, and its normaliser, which is found by sampling, is uncertain. Weights by the "
        "Hyvärinen score do not need it.",
        "Ask whether one of the models should be there. "
        "`fit.sample(10_000, method='smc')['sampling_stats']` has normalisers from more draws.",
    ),
    Remedy(
        MonteCarloWarning,
        "The draws are unreliable",
        "Draws of the combination are unreliable",
        "The models disagree at some observations, and importance or sequential sampling of the "
        "combination did badly there.",
        "Sample with `method='auto'` or `method='smc'`, draw more, or accept "
        "`method='rejection'`, which is slow but exact.",
    ),
    Remedy(
        ParetoWarning,
        "Leave-one-out densities of model",
        "Leave-one-out densities are unreliable",
        "A few draws carry the prediction of an observation without itself (Pareto k̂ is high). "
        "Usually the model is surprised by that observation. Log scores, leave-one-out densities "
        "and calibration are uncertain there. Hyvärinen scores of the models, and of locking, are "
        "not.",
        "Look at the observation that is named; use a likelihood with heavier tails, draw more, "
        "fit the model again without the observation and give held-out predictions, or use "
        "`lq.lock`.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "cannot be told apart",
        "Models that say the same",
        "The scores of these models, and of their pools, differ by less than their Monte Carlo "
        "error. The sum of their weights means something; how it is split does not.",
        "Leave one of them out, or report the sum of their weights.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "are not determined one by one",
        "Weights that are not determined",
        "Some shifts of weight within this group of models do not change the score.",
        "Leave some of them out, or report sums of their weights.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "The models lie apart",
        "Modes that lie apart",
        "The Hyvärinen score of a mixture hardly sees the proportions of separate modes.",
        "Fit the weights by the log score: `rule='log'`, or `lq.stack`.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "is at its bound",
        "A parameter at its bound",
        "The observations do not determine the order of the pool.",
        "Fix it, such as `Hoelder(-1)`, or fit by the log score.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "Phases are at the cap",
        "Phases at their cap",
        "Phases any further apart would give the density a zero, which the Hyvärinen score would "
        "reward.",
        "Fit by the log score, which needs no cap, or fix the phases.",
    ),
    Remedy(
        EdgeWarning,
        "has no finite variance",
        "Densities that vanish slowly at an edge",
        "They vanish fast enough for the score to be proper, but so slowly that it has no "
        "variance: single observations near the edge can dominate it, and standard errors are too "
        "small.",
        "Use `Hyvarinen(transform='log')` or `'logit'`, whose weight takes the edge away.",
    ),
    Remedy(
        SupportWarning,
        "The models have different supports",
        "Models that deem different outcomes possible",
        "A mixture of them lives where any does, a log-linear pool only where all with weight do.",
        "Decide which outcomes are possible, and use models that say the same.",
    ),
    Remedy(
        SupportWarning,
        "it could not be checked that the pool has a normaliser",
        "A normaliser that may not exist",
        "Weights whose sum is free were fitted to models that are known at the observed outcomes "
        "only.",
        "Keep the weights on the simplex, or make the models with `from_family` or an adapter.",
    ),
    Remedy(
        QuadratureWarning,
        "The normaliser may be wrong",
        "A normaliser that may be wrong",
        "It may be off by more than a millionth of its size, or some of a model's mass was not "
        "found, usually because of draws with extreme parameters, such as a scale near zero.",
        "Look at the observation that is named; `fit.log_norm()` shows the error of each.",
    ),
)

#: For remarks of other versions, read from a file.
_UNKNOWN = Remedy(
    LockquackWarning,
    "",
    "Remark",
    "Something to know before trusting the result.",
    "Read the message, and the documentation of what it names.",
)


def remedy_for(category: type[LockquackWarning], message: str) -> Remedy:
    """Find what a remark means and what to do about it.

    Examples
    --------
    >>> from lockquack.errors import MonteCarloWarning
    >>> remedy_for(MonteCarloWarning, "Only one chain for 'a': …").remedy
    'Run at least two chains, better four.'
    """
    known = (each for each in REMEDIES if each.category is category and each.words in message)
    return next(known, _UNKNOWN)
