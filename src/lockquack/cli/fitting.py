"""From models and options to a combination."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from lockquack.cli.options import DISTANCES, progressbar
from lockquack.cli.output import say
from lockquack.cli.sources import read_by
from lockquack.combination.combination import Combination
from lockquack.combination.verbs import combine, quack
from lockquack.errors import ConvergenceWarning, ParameterError
from lockquack.methods.method import method_for
from lockquack.models.model import Model
from lockquack.operators import get_operator
from lockquack.rules import Hyvarinen, Rule, get_rule
from lockquack.rules.hyvarinen import AUTO


def choose_operator(models: Mapping[str, Model], options: Namespace) -> str:
    """Set the operator, where none is asked for, to what these models allow; tell what to say.

    Locking, by the log score where an outcome has no derivative but densities are known anywhere,
    as of counts; else stacking, for which log densities are enough, or mixing by CRPS, for which
    draws of outcomes are.
    """
    if options.operator is not None:
        return ""
    options.operator = "locking"
    evaluable = all(model.source.can.evaluate for model in models.values())
    if options.rule in DISTANCES and not evaluable:
        options.operator = "linear"
        return f"the models are mixed, which is all that --rule {options.rule} needs draws for."
    if options.rule is not None or options.score_transform != AUTO:
        return ""
    if all(model.source.can.differentiate for model in models.values()):
        return ""
    if not all(model.source.can.know_density for model in models.values()):
        options.operator = "linear"
        options.rule = "crps" if all(m.observations.d == 1 for m in models.values()) else "energy"
        return (
            "some files hold draws of outcomes only, so the models are mixed by "
            f"--rule {options.rule}, for which these are enough."
        )
    if evaluable:
        options.rule = "log"
        return "these outcomes have no derivatives, so the models are locked by the log score."
    options.operator = "linear"
    return (
        "the files hold log densities only, so the models are mixed (stacking), for which these "
        "are enough. To lock them, name their likelihoods by --family."
    )


def fit_models(models: Mapping[str, Model], options: Namespace) -> Combination:
    """Combine models as the options say."""
    chosen = choose_operator(models, options)
    if chosen:
        say(chosen, options)
    rule = _rule(options)
    common: dict[str, Any] = {
        "prior": options.prior,
        "scores": options.scores,
        "scale": options.scale,
        "by": read_by(options),
        "weights": options.weights,
        "random_seed": options.seed,
        "progressbar": progressbar(options),
    }
    if options.operator == "superposition":
        return quack(models, rule=rule, **common)
    return combine(models, get_operator(options.operator), rule, **common)


def is_doubtful(fit: Combination) -> bool:
    """Whether the weights should not be used, because the solver did not converge."""
    return any(issubclass(remark.category, ConvergenceWarning) for remark in fit.remarks)


def _rule(options: Namespace) -> Rule | None:
    """Return the rule that the options name; None: the usual one of the operator."""
    if options.score_transform == AUTO:
        return None if options.rule is None else get_rule(options.rule)
    if options.rule is not None:
        usual = get_rule(options.rule)
    elif options.operator == "superposition":
        usual = Hyvarinen()
    else:
        usual = method_for(get_operator(options.operator)).rule
    if not usual.needs_derivatives:
        raise ParameterError(f"--score-transform is for the rule hyvarinen, not for {usual.name}.")
    return hyvarinen(options)


def hyvarinen(options: Namespace) -> Hyvarinen:
    """Return the Hyvärinen score of the function of the outcome that the options name."""
    name: str = options.score_transform
    return Hyvarinen(transform=None if name == "none" else name)
