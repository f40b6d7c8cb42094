"""What was found when models were combined: everything but what can be computed from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockquack.draws.blocks import Kind
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.objective import Objective
from lockquack.fitting.recalibration import Recalibration, recalibrated
from lockquack.jets import Array
from lockquack.models.design import Design
from lockquack.models.model import Model
from lockquack.models.observations import Observations
from lockquack.operators import Operator
from lockquack.operators.pool import Pool
from lockquack.remarks import Remark
from lockquack.rules import Rule
from lockquack.solvers.base import Solution


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """The parameters that a method found for some models, and how."""

    names: tuple[str, ...]
    scores: Kind
    label: str
    observations: Observations
    fitter: Fitter
    solution: Solution
    mcse: Array  # (K,)
    remarks: tuple[Remark, ...]
    random_seed: int
    models: Mapping[str, Model] | None
    #: How observations that are left out were predicted, where it is not what the scores say.
    left_out_by: tuple[str, ...] = ()
    #: The covariates that the weights depend on, if they do.
    design: Design | None = None
    #: How the combination was recalibrated, if it was.
    recalibration: Recalibration | None = None
    #: Log scores of the combination and of each model, (1 + K, n), that a file was found to hold.
    _saved_log_scores: Array | None = None

    def __post_init__(self) -> None:
        jets = self.objective.jets
        for array in (self.solution.x, self.mcse, jets.logp, jets.grad, jets.curv):
            array.setflags(write=False)

    @property
    def objective(self) -> Objective:
        """What the parameters minimise."""
        return self.fitter.objective

    @property
    def operator(self) -> Operator:
        """How the densities are pooled."""
        return self.objective.operator

    @property
    def rule(self) -> Rule:
        """The score that the parameters maximise."""
        return self.objective.rule

    @property
    def pool(self) -> Pool:
        """The operator with its fitted parameters."""
        return recalibrated(self.objective.pool(self.solution.x), self.recalibration)
