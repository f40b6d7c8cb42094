"""Remarks on numbers that do not look like what they should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lockquack.errors import LikelihoodWarning
from lockquack.remarks.base import Remark, listed

#: What numbers look like that were given as log densities.
LooksLike = Literal["probabilities", "minus the log densities"]


@dataclass(frozen=True)
class SuspectDerivatives(Remark):
    """Gradients that point away from the outcomes."""

    code = "suspect-derivatives"
    category = LikelihoodWarning
    title = "Derivatives that look wrong"
    meaning = (
        "A predictive density falls on both sides of its centre, so its gradient with respect to "
        "y decreases with y. Here it clearly increases. Usually the gradient was taken with "
        "respect to a parameter (for a location its sign is the opposite), or has the wrong sign. "
        "The arrays alone cannot be compared with finite differences."
    )
    remedy = (
        "Take derivatives with respect to the outcome y. Make the model with `from_family` or an "
        "adapter, where `lq.check` compares them with finite differences. If they are right, the "
        "predictions of the model vary far more than the outcomes."
    )
    example = (("stan",), 7.2)

    models: tuple[str, ...]
    #: Standard errors by which the covariance of outcomes and gradients is above zero.
    errors: float

    def _message(self) -> str:
        return (
            f"The gradients of {listed(self.models)} increase with the outcome ({self.errors:.1f} "
            "standard errors); those of a predictive density decrease. They were probably taken "
            "with respect to a parameter instead of y, or have the wrong sign. Do not use these "
            "weights."
        )


@dataclass(frozen=True)
class SuspectLogDensity(Remark):
    """Numbers that look like probabilities, or like minus the log densities."""

    code = "suspect-log-density"
    category = LikelihoodWarning
    title = "Log densities that look wrong"
    meaning = (
        "Log densities are mostly negative, unless the outcome varies by much less than 1, and the "
        "few that differ from the rest are lower. Here all are between 0 and 1, as probabilities "
        "are, or all are positive and the few that differ are higher, as after a change of sign."
    )
    remedy = (
        "Give logarithms of densities: `np.log(p)`, or `-x` for negative log likelihoods. If they "
        "are right, nothing is wrong."
    )
    example = (("stan",), "probabilities")

    models: tuple[str, ...]
    looks_like: LooksLike

    def _message(self) -> str:
        return (
            f"The log densities of {listed(self.models)} look like {self.looks_like}. Scores and "
            "weights treat them as log densities."
        )


@dataclass(frozen=True)
class RepeatedOutcome(Remark):
    """One value that a large part of the outcomes share, scored by densities."""

    code = "repeated-outcome"
    category = LikelihoodWarning
    title = "One outcome that repeats"
    meaning = (
        "Many outcomes are exactly the same number, such as zeros of rainfall or expenditure, or "
        "values at a limit of detection. A density gives a single value no probability: a model "
        "with a narrow peak there can have an arbitrarily high score."
    )
    remedy = (
        "Model the repeated value by a probability of its own (hurdle, zero-inflated or censored "
        "models) and score by the log score, or score the other outcomes only."
    )
    example = (0.0, 87, 200)

    value: float
    count: int
    n_obs: int

    def _message(self) -> str:
        return (
            f"Of {self.n_obs} outcomes {self.count} are exactly {self.value:g}, and the models are "
            "densities, which do not give a single value a probability. Scores and weights depend "
            "on how narrow the models are there."
        )


@dataclass(frozen=True)
class CoarseOutcomes(Remark):
    """Outcomes whose differences are lost to rounding."""

    code = "coarse-outcomes"
    category = LikelihoodWarning
    title = "Outcomes too large for their differences"
    meaning = (
        "The outcomes are so large compared with their differences that float64 keeps fewer than "
        "three digits of these: the scores are those of rounded outcomes."
    )
    remedy = "Subtract a constant from the outcomes, and from the locations of all models."
    example = (1e16, 2.0, 1.1)

    largest: float
    spacing: float
    spread: float

    def _message(self) -> str:
        return (
            f"Outcomes near {self.largest:.3g} are rounded to multiples of {self.spacing:.2g}, "
            f"and their standard deviation is {self.spread:.2g}: subtract a constant from the "
            "outcomes and from the locations of all models."
        )


@dataclass(frozen=True)
class RoundedOutcomes(Remark):
    """Rounded outcomes, and models that are narrower than the rounding."""

    code = "rounded-outcomes"
    category = LikelihoodWarning
    title = "Models narrower than the rounding of the outcomes"
    meaning = (
        "Most outcomes occur more than once: they are rounded. The density of these models times "
        "the rounding unit is above one there, which no probability can be, and the log score "
        "grows without limit as they get narrower. It does not show how well they predict."
    )
    remedy = (
        "Score probabilities of the rounded outcomes, with a discrete or interval-censored "
        "likelihood, or leave models out that are sharper than the measurement."
    )
    example = (("spiky",), 0.5, 0.8)

    models: tuple[str, ...]
    #: Distance of neighbouring outcomes.
    unit: float
    #: Of the observations, at which the worst of them has such a density.
    share: float

    def _message(self) -> str:
        return (
            f"The outcomes are rounded to about {self.unit:.3g}, and {listed(self.models)} is "
            f"narrower than that at {100 * self.share:.0f} % of them. The log score rewards that "
            "without limit."
        )


@dataclass(frozen=True)
class CodedOutcome(Remark):
    """A value far from all others that occurs several times, as a code for missing ones does."""

    code = "coded-outcome"
    category = LikelihoodWarning
    title = "An outcome that looks like a code"
    meaning = (
        "The smallest or the largest outcome occurs several times and is far away from all "
        "others, as −99 or 9999 for a missing value. Scores and weights treat it as an outcome."
    )
    remedy = "Leave these observations out of all models. If the value is right, nothing is wrong."
    example = (-999.0, 3, 100, 180.0)

    value: float
    count: int
    n_obs: int
    #: Distance to the others, in units of their range.
    distance: float

    def _message(self) -> str:
        return (
            f"The outcome {self.value:g} occurs {self.count} times among {self.n_obs} and lies "
            f"{self.distance:.0f} times the range of all others away from them. Is it a code for a "
            "missing value? Scores and weights treat it as an outcome."
        )


@dataclass(frozen=True)
class CopiedObservations(Remark):
    """Observations that occur several times."""

    code = "copied-observations"
    category = LikelihoodWarning
    title = "Observations that look duplicated"
    meaning = (
        "Many observations have the same outcome and the same predictions as others, more than "
        "rounding explains. If rows were duplicated, for instance by joining tables or pasting "
        "them twice, all standard errors, intervals and verdicts are too optimistic: they count "
        "each copy as new."
    )
    remedy = (
        "Remove the copies, or give each row once, with case weights if it stands for several. If "
        "people reported round numbers, the rows are correct, but densities suit them badly."
    )
    example = (200, 100)

    n_obs: int
    distinct: int

    def _message(self) -> str:
        return (
            f"Only {self.distinct} of {self.n_obs} rows are distinct (outcome and predictions). If "
            "rows were duplicated, standard errors and verdicts are too optimistic."
        )


@dataclass(frozen=True)
class TooMuchMass(Remark):
    """Log densities that integrate to more than one."""

    code = "too-much-mass"
    category = LikelihoodWarning
    title = "Densities that integrate to more than one"
    meaning = (
        "The log densities are a smooth function of the outcome alone, and over the range of the "
        "observed outcomes the density integrates to more than 1. So it is not a density of this "
        "outcome: perhaps it is for log y or for y in other units, without the derivative of the "
        "change of variable, a logarithm to base 10, or without its normalising constant."
    )
    remedy = (
        "Add log |dt/dy| where the model is for t(y), or make it with `from_family(..., "
        "transform=...)`, which does so. Give natural logarithms of whole densities. A constant "
        "that all models lack changes nothing."
    )
    example = (("log y",), 1.9)

    models: tuple[str, ...]
    mass: float

    def _message(self) -> str:
        return (
            f"The density of {listed(self.models)} integrates to {self.mass:.3g} over the observed "
            "range, more than 1: is it for log y, or for y in other units? Scores and weights "
            "treat it as a density of the outcome."
        )


@dataclass(frozen=True)
class InconsistentDerivatives(Remark):
    """Curvatures that are not the derivatives of the gradients."""

    code = "inconsistent-derivatives"
    category = LikelihoodWarning
    title = "Curvatures that do not belong to the gradients"
    meaning = (
        "Gradients and curvatures are smooth functions of the outcome alone, and the curvatures "
        "are not the derivatives of the gradients. So they are not the derivatives of one log "
        "density with respect to this outcome: perhaps with respect to log y or to y in other "
        "units, or the curvature is f''/f instead of (log f)''."
    )
    remedy = (
        "Give the first and the second derivative of the log density with respect to y. Where the "
        "model is for t(y), use `from_family(..., transform=...)`, or convert the derivatives."
    )
    example = (("stan",), 0.9)

    models: tuple[str, ...]
    #: Of the changes of the gradients, what the curvatures do not explain.
    share: float

    def _message(self) -> str:
        return (
            f"The curvatures of {listed(self.models)} are not the derivatives of its gradients "
            f"({100 * self.share:.0f} % of the change is unexplained). Are they derivatives with "
            "respect to log y or in other units, or f''/f instead of (log f)''? The Hyvärinen "
            "score uses them as given."
        )
