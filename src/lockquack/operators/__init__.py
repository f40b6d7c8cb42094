"""The operators, by name."""

from __future__ import annotations

from lockquack.operators.base import Operator
from lockquack.operators.hoelder import Hoelder
from lockquack.operators.hybrid import Hybrid
from lockquack.operators.linear import Linear
from lockquack.operators.locking import Locking
from lockquack.operators.nested import Nested
from lockquack.operators.quantiles import Quantiles
from lockquack.operators.reduced import Reduced
from lockquack.operators.selection import Selection
from lockquack.operators.superposition import Superposition
from lockquack.registry import look_up

#: Operators that a name alone determines.
OPERATORS: dict[str, type[Operator]] = {
    operator.name: operator
    for operator in (Linear, Locking, Superposition, Hybrid, Hoelder, Selection)
}
#: Those that are no pools of densities.
AVERAGES: dict[str, type[Operator]] = {Quantiles.name: Quantiles}


def get_operator(operator: Operator | type[Operator] | str) -> Operator:
    """Look up an operator, its class or its name."""
    return look_up("operator", operator, Operator, {**OPERATORS, **AVERAGES})  # type: ignore[type-abstract]


__all__ = [
    "AVERAGES",
    "OPERATORS",
    "Hoelder",
    "Hybrid",
    "Linear",
    "Locking",
    "Nested",
    "Operator",
    "Quantiles",
    "Reduced",
    "Selection",
    "Superposition",
    "get_operator",
]
