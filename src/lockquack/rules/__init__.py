"""The scoring rules, by name."""

from __future__ import annotations

from lockquack.registry import look_up
from lockquack.rules.base import Pooled, Rule
from lockquack.rules.energy import CRPS, EnergyScore
from lockquack.rules.hyvarinen import Hyvarinen
from lockquack.rules.log_score import LogScore
from lockquack.rules.pairwise import PairwiseScore

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (Hyvarinen, LogScore, PairwiseScore, CRPS, EnergyScore)
}


def get_rule(rule: Rule | type[Rule] | str) -> Rule:
    """Look up a rule, its class or its name."""
    return look_up("rule", rule, Rule, RULES)  # type: ignore[type-abstract]


__all__ = [
    "CRPS",
    "RULES",
    "EnergyScore",
    "Hyvarinen",
    "LogScore",
    "PairwiseScore",
    "Pooled",
    "Rule",
    "get_rule",
]
