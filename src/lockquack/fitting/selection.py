"""Choosing the model that scores best."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from lockquack.fitting.fitter import Fitter
from lockquack.fitting.objective import Objective
from lockquack.jets import Array
from lockquack.operators.base import Positions
from lockquack.solvers.base import Solution


class SelectionFitter(Fitter):
    """Put all weight on the model with the largest total score; the first of equals."""

    kind = "by comparison"
    is_optimum = False
    most_deletions = 10_000_000

    def solve(self) -> Solution:
        """Choose, every observation with its case weight."""
        x = self.refit_many(self.objective.counts[None], np.empty(0))[0]
        scores = self.objective.model_scores()
        scale = float(self.objective.total(np.abs(scores)).max())
        return certain(x, -float(self.objective.total(scores).max()), scale)

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        totals = counts @ self.objective.model_scores().T
        return np.eye(self.objective.K)[totals.argmax(axis=1)]

    @override
    def without_each(self, chosen: Positions, x: Array) -> Array:
        return np.eye(self.objective.K)[totals_without(self.objective, chosen).argmax(axis=0)]

    def certificate(self, solution: Solution) -> str:
        """Say how the model was chosen."""
        return "Chosen by comparing the models' total scores."


def totals_without(objective: Objective, chosen: Positions) -> Array:
    """Total scores of the models without each of the chosen observations, (K, m)."""
    scores = objective.model_scores()
    return objective.total(scores)[:, None] - objective.counts[chosen] * scores[:, chosen]


def certain(x: Array, objective: float, scale: float) -> Solution:
    """Return a solution that is known, not searched for."""
    return Solution(
        x=x,
        objective=np.array(objective),
        gap=np.array(0.0),
        scale=np.array(scale),
        converged=np.array(True),
        iterations=np.array(0),
        status=np.array("known"),
    )
