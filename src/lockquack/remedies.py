"""What each remark on a result means, in plain words, and what to do about it."""

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
    #: Words of the messages that it is about; none: whatever else has this category.
    words: str
    title: str
    meaning: str
    remedy: str


#: All of them; of one category, those about particular messages come first.
REMEDIES = (
    Remedy(
        ConvergenceWarning,
        "starts agree",
        "Several optima",
        "The objective is not convex, and only one of several searches ended at the best solution.",
        "Use an operator with fewer parameters, fix the phases or the order, or take more "
        "observations. Do not interpret single parameters.",
    ),
    Remedy(
        ConvergenceWarning,
        "",
        "The solver stopped early",
        "The weights are not quite those that the score asks for.",
        "Look for models with absurd scores in fit.pointwise. Locking and stacking are convex and "
        "should always converge: if they do not, please report it.",
    ),
    Remedy(
        MonteCarloWarning,
        "one chain",
        "A single chain",
        "Chains that disagree cannot be noticed, so Monte Carlo errors may be too small.",
        "Run at least two chains, better four.",
    ),
    Remedy(
        MonteCarloWarning,
        "Fewer than four draws",
        "Hardly any draws",
        "The Monte Carlo errors of the scores are not known.",
        "Draw more.",
    ),
    Remedy(
        MonteCarloWarning,
        "Too few effective draws",
        "Too few draws",
        "A good part of the error of a score comes from the finite number of draws, not from the "
        "observations.",
        "Run longer chains, and thin less.",
    ),
    Remedy(
        MonteCarloWarning,
        "very few draws",
        "Predictions that rest on a handful of draws",
        "At some observations nearly all draws give the outcome almost no density.",
        "Look at these observations; use leave-one-out scores, or a likelihood with heavier tails.",
    ),
    Remedy(
        MonteCarloWarning,
        "",
        "Sampling the combination is uncertain",
        "The models disagree, so the combination lies where none of them has much mass, and its "
        "normaliser or its draws are uncertain. Weights by the Hyvärinen score do not need it.",
        "Sample with method='smc', draw more, or ask whether one of the models should be there.",
    ),
    Remedy(
        ParetoWarning,
        "",
        "Leave-one-out densities are unreliable",
        "A few draws carry the prediction of an observation without itself (Pareto k̂ is high). "
        "Usually the model is surprised by that observation. Log scores, leave-one-out densities "
        "and calibration are uncertain there; Hyvärinen scores are not.",
        "Look at the observation that is named; use a likelihood with heavier tails, draw more, "
        "or fit the model again without the observation and give held-out predictions.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "cannot be told apart",
        "Models that say the same",
        "Moving weight between these models does not change the score. Their sum means something; "
        "how it is split does not.",
        "Leave one of them out, or report the sum of their weights.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "not determined one by one",
        "Weights that are not determined",
        "Some shifts of weight within this group of models do not change the score.",
        "Leave some of them out, or report sums of their weights.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "lie apart",
        "Modes that lie apart",
        "The Hyvärinen score of a mixture hardly sees the proportions of separate modes.",
        "Fit the weights by the log score: rule=LogScore(), or lq.stack.",
    ),
    Remedy(
        IdentifiabilityWarning,
        "",
        "A parameter at its bound",
        "The observations do not determine a phase, or the order of the pool.",
        "Fix it, or fit by the log score.",
    ),
    Remedy(
        EdgeWarning,
        "",
        "Densities that vanish slowly at an edge",
        "Single observations near the edge can dominate the score; standard errors are too small.",
        "Use Hyvarinen(transform='log') or 'logit', whose weight takes the edge away.",
    ),
    Remedy(
        SupportWarning,
        "could not be checked",
        "A normaliser that may not exist",
        "Weights whose sum is free were fitted to models that are known at the observed outcomes "
        "only.",
        "Keep the weights on the simplex, or make the models with from_family or an adapter.",
    ),
    Remedy(
        SupportWarning,
        "",
        "Models that deem different outcomes possible",
        "The combination lives where all models with weight do.",
        "Decide which outcomes are possible, and use models that say the same.",
    ),
    Remedy(
        QuadratureWarning,
        "",
        "A normaliser that may be wrong",
        "Some of a model's mass was not found, usually because of draws with extreme parameters, "
        "such as a scale near zero.",
        "Look at the observation that is named; fit.log_norm() shows the error of each.",
    ),
    Remedy(
        LockquackWarning,
        "",
        "Remark",
        "Something to know before trusting the result.",
        "Read the message, and the documentation of what it names.",
    ),
)


def remedy_for(category: type[LockquackWarning], message: str) -> Remedy:
    """Find what a remark means and what to do about it.

    Examples
    --------
    >>> from lockquack.errors import MonteCarloWarning
    >>> remedy_for(MonteCarloWarning, "Only one chain for 'a': …").remedy
    'Run at least two chains, better four.'
    """
    return next(
        each for each in REMEDIES if issubclass(category, each.category) and each.words in message
    )
