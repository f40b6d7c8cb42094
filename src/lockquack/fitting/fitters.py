"""Which operator can be fitted by which rule, and how."""

from __future__ import annotations

from dataclasses import replace

from lockquack.errors import UnsupportedError
from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.hybrid_hyvarinen import HybridHyvarinen
from lockquack.fitting.linear_log_score import LinearLogScore
from lockquack.fitting.locking_density import LockingLogScore, LockingPairwise
from lockquack.fitting.quadratic import LinearEnergy, LockingHyvarinen
from lockquack.fitting.quantile_average import QuantileFitter
from lockquack.fitting.selection import SelectionFitter
from lockquack.fitting.smooth import SmoothFitter
from lockquack.fitting.varying import VaryingFitter
from lockquack.fitting.varying_convex import (
    VaryingLinearEnergy,
    VaryingLinearLogScore,
    VaryingLockingHyvarinen,
    VaryingLockingLogScore,
    VaryingLockingPairwise,
)
from lockquack.fitting.varying_smooth import VaryingHybridHyvarinen, VaryingSmoothFitter
from lockquack.operators import Hybrid, Linear, Locking, Operator, Quantiles, Selection
from lockquack.rules import (
    CRPS,
    RULES,
    EnergyScore,
    Hyvarinen,
    LogScore,
    PairwiseScore,
    Rule,
)
from lockquack.words import advice

#: Pairs that have a solver of their own; :class:`SmoothFitter` does all others.
FITTERS: dict[tuple[type[Operator], type[Rule]], type[Fitter]] = {
    (Locking, Hyvarinen): LockingHyvarinen,
    (Locking, LogScore): LockingLogScore,
    (Locking, PairwiseScore): LockingPairwise,
    (Linear, LogScore): LinearLogScore,
    (Linear, CRPS): LinearEnergy,
    (Linear, EnergyScore): LinearEnergy,
    (Hybrid, Hyvarinen): HybridHyvarinen,
    (Quantiles, CRPS): QuantileFitter,
    **{(Selection, rule): SelectionFitter for rule in RULES.values()},
}


def can_be_fitted(operator: Operator, rule: Rule) -> bool:
    """Whether pools by an operator have such scores at all."""
    if not operator.of_densities:
        return rule.takes_quantiles
    return operator.normalised or not rule.is_for_mixtures


def fitter_for(operator: Operator, rule: Rule) -> type[Fitter]:
    """Find how to fit an operator by a rule."""
    if not operator.of_densities and not rule.takes_quantiles:
        raise UnsupportedError(
            f"An average of quantiles has no {rule.label} score: its density does not follow from "
            "those of the models at the outcome. Use ",
            advice("CRPS()", "--rule crps"),
            ".",
        )
    if not can_be_fitted(operator, rule):
        raise UnsupportedError(
            f"The {rule.label} score is known from draws of the models, which tell of mixtures "
            f"only, not of {operator!r}. Use ",
            advice("Linear()", "--operator linear"),
            ", or for single numbers ",
            advice("CRPS()", "--rule crps"),
            ".",
        )
    found = FITTERS.get((type(operator), type(rule)), SmoothFitter)
    return found if operator.on_simplex or found is LockingHyvarinen else SmoothFitter


#: How weights that depend on covariates are fitted where constant ones are fitted so.
_VARYING: dict[type[Fitter], type[VaryingFitter]] = {
    kind.relative: kind
    for kind in (
        VaryingHybridHyvarinen,
        VaryingLinearEnergy,
        VaryingLinearLogScore,
        VaryingLockingHyvarinen,
        VaryingLockingLogScore,
        VaryingLockingPairwise,
        VaryingSmoothFitter,
    )
}


def varying_fitter_for(operator: Operator, rule: Rule) -> type[VaryingFitter]:
    """Find how to fit weights that depend on covariates."""
    found = _VARYING.get(fitter_for(operator, rule))
    if found is None or operator.signed:
        raise UnsupportedError(
            f"The weights of {operator!r} cannot depend on covariates. Use another operator, such "
            "as Linear() or Locking(), with by=."
        )
    return found if operator.on_simplex else VaryingSmoothFitter


def convex_relative(fitter: Fitter) -> ConvexFitter | None:
    """Return the fitter, or a convex one of the same models and rule; None for formulas.

    Models whose pools of two all score alike by one operator are alike for any.
    """
    if isinstance(fitter, ConvexFitter):
        return fitter
    if not fitter.is_optimum:
        return None
    if isinstance(fitter, VaryingFitter):
        return convex_relative(fitter.constant)
    for operator in (Linear(), Locking()):
        if not can_be_fitted(operator, fitter.objective.rule):
            continue
        kind = fitter_for(operator, fitter.objective.rule)
        if issubclass(kind, ConvexFitter):
            return kind(replace(fitter.objective, operator=operator))
    return None
