"""The table of operators and rules, made from the registry."""

from __future__ import annotations

from lockquack.fitting.fitters import can_be_fitted, fitter_for
from lockquack.operators import OPERATORS, Linear, Locking, Nested, Operator, Quantiles
from lockquack.rules import RULES, Rule


def pairs_table() -> str:
    """Say for every operator and rule how they are fitted together, as a Markdown table.

    A star marks pairs that need a normaliser, so scalar or discrete outcomes of models whose
    density is known anywhere.

    Examples
    --------
    >>> print(pairs_table().splitlines()[0])
    | operator | `Hyvarinen` | `LogScore` | `PairwiseScore` | `CRPS` | `EnergyScore` |
    """
    rules = [rule() for rule in RULES.values()]
    operators = {repr(operator()): operator() for operator in OPERATORS.values()}
    operators[repr(Locking("nonnegative"))] = Locking("nonnegative")
    operators[repr(Quantiles())] = Quantiles()
    operators["Nested(…)"] = Nested(Locking(), [Linear(), 0])
    lines = [
        ["operator", *(f"`{type(rule).__name__}`" for rule in rules)],
        ["---"] * (len(rules) + 1),
        *([f"`{name}`", *(_cell(o, rule) for rule in rules)] for name, o in operators.items()),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(operator: Operator, rule: Rule) -> str:
    if not can_be_fitted(operator, rule):
        return "–"
    star = "*" if rule.needs_normaliser and operator.needs_normaliser else ""
    return fitter_for(operator, rule).kind + star
