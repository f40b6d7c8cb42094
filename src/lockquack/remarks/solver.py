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
    meaning = "The weights are not quite those that the score asks for."
    remedy = (
        "Check `fit.pointwise` for models with absurd scores. Locking by the Hyvärinen score and "
        "stacking are convex and should always converge: if they do not, please report it."
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
            return f"{stopped}the slope left is {self.relative:.2g} of the objective's size."
        return (
            f"{stopped}the objective may be up to {self.gap:.2g} from its optimum, "
            f"{self.relative:.2g} of its size."
        )


@dataclass(frozen=True)
class SeveralOptima(Remark):
    """Searches that ended at different places."""

    code = "several-optima"
    category = ConvergenceWarning
    title = "Several optima"
    meaning = (
        "The objective is not convex, and fewer than half of the searches, from different starts, "
        "ended at the solution. There may be a better one: where so few agreed, a search with many "
        "more starts found one in about half of the cases."
    )
    remedy = (
        "Use an operator with fewer parameters, fix the phases or the order, or take more "
        "observations. Do not interpret single parameters."
    )
    example = (1, 8)

    agreeing: int
    tried: int

    def _message(self) -> str:
        return (
            f"Only {self.agreeing} of {self.tried} starts agree on the solution: the objective "
            "has several optima, and there may be a better one still."
        )
