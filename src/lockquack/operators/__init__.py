"""The operators, by name."""

from __future__ import annotations

from lockquack.operators.base import Operator
from lockquack.operators.linear import Linear
from lockquack.operators.locking import Locking
from lockquack.registry import resolve

OPERATORS: dict[str, type[Operator]] = {operator.name: operator for operator in (Linear, Locking)}


def get_operator(operator: Operator | type[Operator] | str) -> Operator:
    """Resolve an operator, its class or its name."""
    return resolve("operator", operator, Operator, OPERATORS)  # type: ignore[type-abstract]


__all__ = ["OPERATORS", "Linear", "Locking", "Operator", "get_operator"]
