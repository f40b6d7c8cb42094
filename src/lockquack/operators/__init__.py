"""The operators, by name."""

from __future__ import annotations

from lockquack.errors import unknown_name
from lockquack.operators.base import Operator
from lockquack.operators.locking import Locking

OPERATORS: dict[str, type[Operator]] = {operator.name: operator for operator in (Locking,)}


def get_operator(operator: Operator | type[Operator] | str) -> Operator:
    """Resolve a name through the registry; an operator is returned as it is."""
    if isinstance(operator, Operator):
        return operator
    if isinstance(operator, type) and issubclass(operator, Operator):
        return operator()
    if not isinstance(operator, str) or operator not in OPERATORS:
        raise unknown_name("operator", operator, OPERATORS)
    return OPERATORS[operator]()


__all__ = ["OPERATORS", "Locking", "Operator", "get_operator"]
