"""The scoring rules, by name."""

from __future__ import annotations

from lockquack.errors import unknown_name
from lockquack.rules.base import Rule
from lockquack.rules.hyvarinen import Hyvarinen

RULES: dict[str, type[Rule]] = {rule.name: rule for rule in (Hyvarinen,)}


def get_rule(rule: Rule | type[Rule] | str) -> Rule:
    """Resolve a name through the registry; a rule is returned as it is."""
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, type) and issubclass(rule, Rule):
        return rule()
    if not isinstance(rule, str) or rule not in RULES:
        raise unknown_name("rule", rule, RULES)
    return RULES[rule]()


__all__ = ["RULES", "Hyvarinen", "Rule", "get_rule"]
