"""Remarks on densities: leave-one-out, normalisers, and draws from the combination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lockquack.errors import MonteCarloWarning, ParetoWarning, QuadratureWarning
from lockquack.remarks.base import Remark
from lockquack.words import Text, advice

#: What depends on leave-one-out densities.
Affected = Literal[
    "scores",
    "scores and weights",
    "log scores",
    "report",
    "density",
    "intervals",
    "calibration",
    "draws",
]
_CONSEQUENCES: dict[Affected, str] = {
    "scores": "The scores depend on these values.",
    "scores and weights": "Scores and weights depend on these values.",
    "log scores": "Its log scores are unreliable there too; locking by the Hyvärinen score does "
    "not use them.",
    "report": "Its log score and its calibration are unreliable there too.",
    "density": "The density of the combination is unreliable there too.",
    "intervals": "Intervals are unreliable there too.",
    "calibration": "Calibration is unreliable there too.",
    "draws": "Draws of the combination are unreliable there too.",
}


@dataclass(frozen=True)
class HighParetoK(Remark):
    """Leave-one-out densities that importance sampling cannot give."""

    code = "pareto-k"
    category = ParetoWarning
    title = "Leave-one-out densities are unreliable"
    meaning = (
        "The leave-one-out prediction of an observation depends on a few draws (Pareto k̂ is high). "
        "Usually the model did not expect that observation. Log scores, leave-one-out densities "
        "and calibration are uncertain there. Hyvärinen scores of the models, and of locking, are "
        "not affected."
    )
    remedy = (
        "Let `lq.refit(model, fit)` fit the model again without these observations. Check the "
        "observation that is named: a likelihood with heavier tails may be needed. Or use more "
        "draws, or `lq.lock`."
    )
    example = (("normal", "student"), (2, 1), 0.7, 0.93, "normal", "observation 17", "scores")

    models: tuple[str, ...]
    #: At how many observations, for each of them.
    counts: tuple[int, ...]
    #: The lowest of their limits.
    limit: float
    worst: float
    worst_model: str
    observation: str
    affected: Affected

    def _message(self) -> str:
        pairs = zip(self.models[1:], self.counts[1:], strict=True)
        more = "".join(f", of {name!r} at {count}" for name, count in pairs)
        return (
            f"Leave-one-out densities of {self.models[0]!r} are unreliable at {self.counts[0]} "
            f"observation(s){more}: Pareto k̂ exceeds {self.limit:.2f} there. The largest is "
            f"{self.worst:.2f}, of {self.worst_model!r} at {self.observation}. "
            f"{_CONSEQUENCES[self.affected]}"
        )


@dataclass(frozen=True)
class WrongNormaliser(Remark):
    """Normalisers that quadrature may have got wrong."""

    code = "wrong-normaliser"
    category = QuadratureWarning
    title = "The normalising constant may be inaccurate"
    meaning = (
        "Its relative error may be above 1e-6, or some of a model's probability mass was missed, "
        "usually because of draws with extreme parameters, such as a scale near zero, or because "
        "that mass lies closer to an edge of the support than floating-point numbers can "
        "represent. Probabilities and quantiles may be wrong by as much."
    )
    remedy = (
        "Check the observation that is named; `fit.predict().log_norm()` shows the error at each."
    )
    example = (3, 4e-5, "observation 17")

    count: int
    #: The largest, relative to the normaliser.
    error: float
    observation: str

    def _message(self) -> str:
        return (
            f"The normalising constant may be inaccurate at {self.count} observation(s), worst at "
            f"{self.observation} (relative error up to {self.error:.1e}, from quadrature or from "
            "missed probability mass)."
        )


@dataclass(frozen=True)
class NoMoment(Remark):
    """Tails so heavy that a mean or a variance does not exist."""

    code = "no-moment"
    category = QuadratureWarning
    title = "A mean or variance that does not exist"
    meaning = (
        "The tails of the combination fall so slowly that the integral of the outcome, or of its "
        "square, diverges, as for a Cauchy distribution. It is NaN or infinite, and an average of "
        "draws would not converge."
    )
    remedy = "Use the median, quantiles or intervals, which always exist."
    example = ("mean", 3, "observation 17")

    #: ``"mean"`` or ``"variance"``.
    moment: str
    count: int
    #: The first of them.
    observation: str

    def _message(self) -> str:
        return (
            f"The combination has no finite {self.moment} at {self.count} observation(s), first at "
            f"{self.observation}: its tails are too heavy."
        )


@dataclass(frozen=True)
class UncertainNormaliser(Remark):
    """Normalisers of vector outcomes with a large Monte Carlo error."""

    code = "uncertain-normaliser"
    category = MonteCarloWarning
    title = "The normalising constant is uncertain"
    meaning = (
        "The models disagree, so the combination of vector outcomes lies where none of them has "
        "much mass, and its normalising constant, which is estimated by sampling, is uncertain. "
        "Weights by the Hyvärinen score do not need it."
    )
    remedy = (
        "Check whether all of the models belong in the combination. "
        "`fit.sample(10_000, method='smc')['sampling_stats']` has estimates from more draws."
    )
    example = (3, 0.12, 0.84, "observation 17")

    count: int
    error: float
    pareto_k: float
    observation: str

    def _message(self) -> str:
        return (
            f"The normalising constant is uncertain at {self.count} observation(s): its relative "
            f"Monte Carlo error is {self.error:.2g} and Pareto k̂ {self.pareto_k:.2f} at "
            f"{self.observation}."
        )


@dataclass(frozen=True)
class UnreliableDraws(Remark):
    """Draws from the combination with a small effective sample size."""

    code = "unreliable-draws"
    category = MonteCarloWarning
    title = "Draws of the combination are unreliable"
    meaning = (
        "The models disagree at some observations, where importance or sequential sampling of the "
        "combination works badly."
    )
    remedy = (
        "Sample with `method='auto'` or `method='smc'`, use more draws, or "
        "`method='rejection'`, which is slow but exact."
    )
    example = (3, "importance", 12.0, 0.91, "observation 17")

    count: int
    method: str
    effective: float
    #: None where the method has none.
    pareto_k: float | None
    observation: str

    def _message(self) -> str:
        k_hat = "" if self.pareto_k is None else f" (Pareto k̂ {self.pareto_k:.2f})"
        return Text(
            f"The draws are unreliable at {self.count} observation(s): with method "
            f"{self.method!r}, those at {self.observation} have an effective sample size of "
            f"{self.effective:.0f}{k_hat}. Use ",
            advice("method='auto', or method='smc'", "--method auto, or --method smc"),
            ".",
        )
