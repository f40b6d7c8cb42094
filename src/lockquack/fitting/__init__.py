"""Which operator can be fitted by which rule, and how."""

from __future__ import annotations

from lockquack.errors import UnsupportedError
from lockquack.fitting.base import Problem
from lockquack.fitting.linear_log_score import LinearLogScore
from lockquack.fitting.locking_hyvarinen import LockingHyvarinen
from lockquack.operators import Linear, Locking, Operator
from lockquack.rules import Hyvarinen, LogScore, Rule

PROBLEMS: dict[tuple[type[Operator], type[Rule]], type[Problem]] = {
    (Locking, Hyvarinen): LockingHyvarinen,
    (Linear, LogScore): LinearLogScore,
}


def problem_for(operator: Operator, rule: Rule) -> type[Problem]:
    """Find how to fit an operator by a rule, or say what can be fitted instead."""
    try:
        return PROBLEMS[type(operator), type(rule)]
    except KeyError:
        pairs = ", ".join(f"{o.__name__}() by {r.__name__}()" for o, r in PROBLEMS)
        raise UnsupportedError(
            f"{operator!r} cannot be fitted by {rule!r}. Available: {pairs}."
        ) from None


__all__ = ["PROBLEMS", "Problem", "problem_for"]
