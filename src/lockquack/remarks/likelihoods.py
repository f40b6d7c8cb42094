"""Remarks on what the scored densities are densities of."""

from __future__ import annotations

from dataclasses import dataclass

from lockquack.errors import LikelihoodWarning
from lockquack.remarks.base import Remark, listed


@dataclass(frozen=True)
class GivenEarlierOutcomes(Remark):
    """Models of series, whose densities are given the outcomes of earlier observations."""

    code = "given-earlier-outcomes"
    category = LikelihoodWarning
    title = "Densities given earlier outcomes"
    meaning = (
        "The model is of a series: the density of an outcome is given the earlier ones, "
        "p(yₜ | y₁, …, yₜ₋₁, θ), and their product is the density of the series. Scores are of "
        "these one-step-ahead densities. What leave-one-out leaves out is one of them, not one "
        "time: the later densities are still given the outcome that was left out. Derivatives are "
        "of each density in its own outcome, the earlier ones held at their observed values."
    )
    remedy = (
        "Nothing, where one-step-ahead predictions are what you want. To score predictions "
        "from the past only, fit the model again to the beginnings of the series and give held-out "
        "predictions, `scores='held-out'`."
    )
    example = (("autoregression",),)

    models: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"The densities of {listed(self.models)} are given the earlier outcomes of a series: "
            "p(yₜ | y₁, …, yₜ₋₁, θ). Leave-one-out leaves out one of these terms, not all that "
            "depends on the outcome."
        )


@dataclass(frozen=True)
class NotScored(Remark):
    """Data in a model that are not among the observations that are scored."""

    code = "not-scored"
    category = LikelihoodWarning
    title = "Data that are not scored"
    meaning = (
        "Terms that are added to the model's log density hold data of their own, as where censored "
        "outcomes come in through a `pm.Potential`. They shape the posterior, but they do not tell "
        "which of their numbers are outcomes, so the model is scored for its observed variable "
        "alone: of survival times, for the events and not for the censored ones."
    )
    remedy = (
        "If these data are outcomes, put them into the observed variable: "
        "`pm.Censored('y', pm.Weibull.dist(...), lower=None, upper=limit, observed=y)`, or "
        "`pm.CustomDist(..., logp=..., observed=y)`. If they are not, nothing is wrong."
    )
    example = ("weibull", ("censored",))

    model: str
    terms: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"Model {self.model!r} has data of its own in {listed(self.terms)}, which no score "
            "sees: if they are outcomes, as censored ones are, it is scored without them."
        )
