"""The operators, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockquack.operators.base import Operator
from lockquack.operators.hoelder import Hoelder
from lockquack.operators.hybrid import Hybrid
from lockquack.operators.linear import Linear
from lockquack.operators.locking import Locking
from lockquack.operators.nested import Nested, describe
from lockquack.operators.selection import Selection
from lockquack.operators.superposition import Superposition
from lockquack.registry import resolve

#: Operators that a name alone determines.
OPERATORS: dict[str, type[Operator]] = {
    operator.name: operator
    for operator in (Linear, Locking, Superposition, Hybrid, Hoelder, Selection)
}


def get_operator(operator: Operator | type[Operator] | str) -> Operator:
    """Resolve an operator, its class or its name."""
    return resolve("operator", operator, Operator, OPERATORS)  # type: ignore[type-abstract]


def from_description(description: Mapping[str, Any]) -> Operator:
    """Make an operator again from its name and options."""
    known: dict[str, type[Operator]] = {**OPERATORS, Nested.name: Nested}
    return known[description["name"]].from_options(description["options"])


__all__ = [
    "OPERATORS",
    "Hoelder",
    "Hybrid",
    "Linear",
    "Locking",
    "Nested",
    "Operator",
    "Selection",
    "Superposition",
    "describe",
    "from_description",
    "get_operator",
]
