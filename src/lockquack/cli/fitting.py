"""From models and options to a combination."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from lockquack.cli.options import progressbar
from lockquack.combination.combination import Combination
from lockquack.combination.verbs import combine, quack
from lockquack.draws.blocks import Kind
from lockquack.errors import ConvergenceWarning, ParameterError
from lockquack.models.model import Model
from lockquack.operators import get_operator
from lockquack.rules import Hyvarinen, Rule, get_rule

#: The rule that goes with an operator if none is named; superposition chooses itself.
_USUAL = {
    "linear": "log",
    "locking": "hyvarinen",
    "hybrid": "hyvarinen",
    "hoelder": "log",
    "selection": "log",
}


def fit_models(models: Mapping[str, Model], options: Namespace) -> Combination:
    """Combine models as the options say."""
    rule = _rule(options)
    common: dict[str, Any] = {
        "prior": _prior(options, rule),
        "scores": _scores(options),
        "scale": options.scale,
        "random_seed": options.seed,
        "progressbar": progressbar(options),
    }
    if options.operator == "superposition":
        return quack(models, rule=rule, **common)
    if rule is None:
        raise ParameterError(f"There is no usual rule for {options.operator}; name one by --rule.")
    return combine(models, get_operator(options.operator), rule, **common)


def is_doubtful(fit: Combination) -> bool:
    """Whether nobody should rely on the weights: the solver did not get to its end."""
    return any(issubclass(remark.category, ConvergenceWarning) for remark in fit.remarks)


def _rule(options: Namespace) -> Rule | None:
    name = options.rule or _USUAL.get(options.operator)
    if options.score_transform is None:
        return None if name is None else get_rule(name)
    if name not in (None, "hyvarinen"):
        raise ParameterError(f"--score-transform is for the rule hyvarinen, not for {name}.")
    return Hyvarinen(transform=options.score_transform)


def _prior(options: Namespace, rule: Rule | None) -> Any:
    if options.prior is not None:
        return options.prior
    stacking = options.operator == "linear" and rule is not None and not rule.needs_derivatives
    return 1.0 if stacking or options.operator == "selection" else 1.01


def _scores(options: Namespace) -> Kind:
    kind: Kind = options.scores
    return kind
