"""Remarks on numbers that do not look like what they are taken for."""

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
        "A predictive density falls on both sides of the place where it expects the outcomes, so "
        "its gradient in y is lower where y is larger. Here it is the other way round, clearly. "
        "Usually the gradient was taken in a parameter, whose sign is the opposite for a location, "
        "or has the wrong sign. The arrays alone cannot be compared with finite differences."
    )
    remedy = (
        "Take derivatives in the outcome y. Make the model with `from_family` or an adapter, where "
        "`lq.check` compares them with finite differences. If they are right, the model "
        "exaggerates: its predictions vary far more than the outcomes."
    )
    example = (("stan",), 7.2)

    models: tuple[str, ...]
    #: Standard errors by which the covariance of outcomes and gradients is above zero.
    errors: float

    def _message(self) -> str:
        return (
            f"The gradients of {listed(self.models)} grow with the outcome (by {self.errors:.1f} "
            "standard errors), where those of a predictive density fall. Probably they were taken "
            "in a parameter in place of y, or have the wrong sign."
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
            "weights take them for log densities."
        )


@dataclass(frozen=True)
class RepeatedOutcome(Remark):
    """One value that a large part of the outcomes share, scored by densities."""

    code = "repeated-outcome"
    category = LikelihoodWarning
    title = "One outcome that repeats"
    meaning = (
        "Many outcomes are exactly the same number, as zeros of rainfall or expenditure, or values "
        "at a limit of detection. A density says nothing about the probability of a single value: "
        "a model that has a narrow peak there scores as high as one likes."
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
    title = "Outcomes that are rounded by their size"
    meaning = (
        "The outcomes are so large next to their differences that float64 keeps fewer than three "
        "digits of these: scores are those of rounded outcomes."
    )
    remedy = "Subtract a constant from the outcomes, and from the locations of all models."
    example = (1e16, 2.0, 1.1)

    largest: float
    spacing: float
    spread: float

    def _message(self) -> str:
        return (
            f"Outcomes near {self.largest:.3g} are rounded to multiples of {self.spacing:.2g}, "
            f"where their standard deviation is {self.spread:.2g}: subtract a constant from "
            "outcomes and locations."
        )
