"""Remarks on how the weights were solved for."""

from __future__ import annotations

from dataclasses import dataclass

from lockquack.errors import ConvergenceWarning
from lockquack.remarks.base import Remark


@dataclass(frozen=True)
class StoppedEarly(Remark):
    """A solver that did not reach its certificate."""

    code = "stopped-early"
    category = ConvergenceWarning
    title = "The solver stopped early"
    meaning = "The search for the weights ended before they were shown to be the best."
    remedy = (
        "Check `fit.pointwise` for models with implausible scores. Locking by the Hyvärinen "
        "score and stacking are convex and should always converge: if they do not, please report "
        "it."
    )
    example = ("no progress", 1e-6, 2e-4)

    status: str
    #: What is left, the slope or the gap, in units of the objective's size.
    relative: float
    #: Distance from the optimum; None for problems that are not convex, where it is not known.
    gap: float | None = None

    def _message(self) -> str:
        stopped = f"The solver stopped early ({self.status}): "
        if self.gap is None:
            return (
                f"{stopped}the gradient is not zero at the solution (relative size "
                f"{self.relative:.2g})."
            )
        return (
            f"{stopped}other weights could score higher by up to {self.gap:.2g}, prior included "
            f"(relative {self.relative:.2g})."
        )


@dataclass(frozen=True)
class SeveralOptima(Remark):
    """Searches that ended at different places."""

    code = "several-optima"
    category = ConvergenceWarning
    title = "Several optima"
    meaning = (
        "The objective is not convex, and fewer than half of the searches, from different "
        "starts, ended at this solution. There may be a better one: where so few agreed, a "
        "search with many more starts found one in about half of the cases."
    )
    remedy = (
        "Use an operator with fewer parameters, fix the phases or the order, or use more "
        "observations. Do not interpret single parameters."
    )
    example = (1, 8)

    agreeing: int
    tried: int

    def _message(self) -> str:
        return (
            f"Only {self.agreeing} of {self.tried} searches ended at this solution: the score has "
            "several optima, and there may be a better one."
        )


@dataclass(frozen=True)
class PosteriorDoubtful(Remark):
    """Chains that diverged, disagree, or have few effective draws."""

    code = "posterior-doubtful"
    category = ConvergenceWarning
    title = "Unreliable draws of the posterior"
    meaning = (
        "The posterior of the weights was sampled, and its chains diverged, do not agree (R-hat), "
        "or have a small effective sample size. Means and intervals of the weights may be wrong by "
        "more than Monte Carlo error."
    )
    remedy = (
        "Use more draws (`fit.posterior(4000)`) and another seed, and see whether the weights "
        "agree. Divergences that remain, and chains that never agree, mean several modes or a "
        "prior that the data hardly change: use fewer models or covariates, or the convex "
        "weights of `by=`."
    )
    example = (4, 500, 3, 1.04, 120.0)

    chains: int
    draws: int
    divergences: int
    rhat: float
    ess: float

    def _message(self) -> str:
        return (
            f"The draws of the posterior are unreliable: in {self.chains} chains of {self.draws} "
            f"draws, {self.divergences} draws diverged, the largest R-hat is {self.rhat:.3f}, and "
            f"the smallest effective sample size {self.ess:.0f}."
        )
