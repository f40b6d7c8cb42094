"""Which operator can be fitted by which rule, and how."""

from __future__ import annotations

from lockquack.fitting.base import Problem
from lockquack.fitting.formulas import (
    ChoiceByEvidence,
    EqualWeights,
    ModelAveraging,
    PseudoBMA,
    PseudoBMAPlus,
)
from lockquack.fitting.hybrid_hyvarinen import HybridHyvarinen
from lockquack.fitting.linear_log_score import LinearLogScore
from lockquack.fitting.locking_density import LockingLogScore, LockingPairwise
from lockquack.fitting.locking_hyvarinen import LockingHyvarinen
from lockquack.fitting.selection import SelectionProblem
from lockquack.fitting.smooth import SmoothProblem
from lockquack.operators import Hybrid, Linear, Locking, Operator, Selection
from lockquack.rules import RULES, Hyvarinen, LogScore, PairwiseScore, Rule

#: Pairs that have a solver of their own; :class:`SmoothProblem` does all others.
PROBLEMS: dict[tuple[type[Operator], type[Rule]], type[Problem]] = {
    (Locking, Hyvarinen): LockingHyvarinen,
    (Locking, LogScore): LockingLogScore,
    (Locking, PairwiseScore): LockingPairwise,
    (Linear, LogScore): LinearLogScore,
    (Hybrid, Hyvarinen): HybridHyvarinen,
    **{(Selection, rule): SelectionProblem for rule in RULES.values()},
}

#: Ways to weight a mixture that are no search, by name.
FORMULAS: dict[str, type[Problem]] = {
    "equal": EqualWeights,
    "pseudo-BMA": PseudoBMA,
    "pseudo-BMA+": PseudoBMAPlus,
    "BMA": ModelAveraging,
    "selection by marginal likelihood": ChoiceByEvidence,
}


def problem_for(operator: Operator, rule: Rule) -> type[Problem]:
    """Find how to fit an operator by a rule."""
    found = PROBLEMS.get((type(operator), type(rule)), SmoothProblem)
    free_sum = isinstance(operator, Locking) and not operator.on_simplex
    if free_sum and found is not LockingHyvarinen:
        return SmoothProblem
    return found
