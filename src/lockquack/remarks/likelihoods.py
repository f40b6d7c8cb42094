"""Remarks on what exactly is scored."""

from __future__ import annotations

from dataclasses import dataclass

from lockquack.errors import LikelihoodWarning
from lockquack.remarks.base import Remark, listed


@dataclass(frozen=True)
class GivenEarlierOutcomes(Remark):
    """Models of series, whose densities are given the outcomes of earlier observations."""

    code = "given-earlier-outcomes"
    category = LikelihoodWarning
    title = "Densities conditional on earlier outcomes"
    meaning = (
        "The model describes a time series: the density of an outcome is conditional on the "
        "earlier ones, p(yₜ | y₁, …, yₜ₋₁, θ), and the product of these densities is that of the "
        "series. These one-step-ahead densities are scored. Leave-one-out leaves out one of them: "
        "the later densities are still conditional on the outcome that was left out. Derivatives "
        "are with respect to the own outcome of each density, the earlier ones held fixed."
    )
    remedy = (
        "Nothing, if one-step-ahead predictions are what you want. To score predictions from the "
        "past only, fit the model again to the beginnings of the series: `lq.cross_validate` with "
        "`lq.leave_future_out`."
    )
    example = (("autoregression",),)

    models: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"The densities of {listed(self.models)} are conditional on the earlier outcomes of a "
            "series: p(yₜ | y₁, …, yₜ₋₁, θ). Leave-one-out leaves out one of these terms, not "
            "everything that depends on the outcome."
        )


@dataclass(frozen=True)
class OutcomesUnknown(Remark):
    """Models of which it is not known whether they describe the same outcomes."""

    code = "outcomes-unknown"
    category = LikelihoodWarning
    title = "Unknown outcomes"
    meaning = (
        "The container has log likelihoods, but not the outcomes (no `observed_data`). So it "
        "cannot be checked whether all models describe the same outcomes in the same units: "
        "densities of y and of log y must not be compared, and the numbers alone do not show it."
    )
    remedy = (
        "Give the outcomes: `lq.from_datatree(idata, y=y)`, with `transform='log'` for a model "
        "for log y."
    )
    example = (("normal",),)

    models: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"The outcomes of {listed(self.models)} are not known, so it was not checked whether "
            "all models describe the same outcomes on the same scale (y or log y)."
        )


@dataclass(frozen=True)
class NotScored(Remark):
    """Data in a model that are not among the observations that are scored."""

    code = "not-scored"
    category = LikelihoodWarning
    title = "Data that are not scored"
    meaning = (
        "Terms that are added to the model's log density contain further data, for instance "
        "censored outcomes in a `pm.Potential`. They affect the posterior, but nothing says which "
        "of their numbers are outcomes, so only the observed variable is scored: of survival "
        "times, the events and not the censored ones."
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
            f"Model {self.model!r} has further data in {listed(self.terms)}, which are not scored: "
            "if they are outcomes, such as censored ones, they are missing from its scores."
        )
