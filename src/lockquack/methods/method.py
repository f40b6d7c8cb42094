"""The methods: an operator, a rule, a prior and a label each, in one registry.

``lock``, ``stack`` and their relatives, ``combine``, ``compare``, the command line, the report and
the tables of the documentation read it. To add a method, add it to the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.fitting.basis import Basis
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.fitters import fitter_for, varying_fitter_for
from lockquack.fitting.formulas import (
    ChoiceByMarginalLikelihood,
    EqualWeights,
    ModelAveraging,
    PseudoBMA,
    PseudoBMAPlus,
)
from lockquack.fitting.gated import GatedFitter
from lockquack.fitting.objective import Objective
from lockquack.fitting.varying import VaryingFitter, VaryingObjective
from lockquack.jets import Array
from lockquack.methods.gather import Gathered
from lockquack.operators import (
    Hoelder,
    Hybrid,
    Linear,
    Locking,
    Operator,
    Quantiles,
    Selection,
    Superposition,
)
from lockquack.rules import CRPS, EnergyScore, Hyvarinen, LogScore, PairwiseScore, Rule

#: How much there is to weights that depend on covariates.
_VARYING = 4


@dataclass(frozen=True)
class Varying:
    """How weights depend on covariates."""

    basis: Basis
    #: λ; None: chosen by cross-validation.
    shrinkage: float | None = None
    #: Of the folds, or of the draws of a gate.
    random_seed: int = 0
    #: Whether weights are a softmax, and drawn from their posterior.
    is_gate: bool = False

    def pose(self, objective: Objective, kind: type[VaryingFitter]) -> VaryingFitter:
        """Set up what is to be minimised, and how."""
        seed, shrinkage = None, self.shrinkage
        if shrinkage is None:
            seed, shrinkage = self.random_seed, np.inf
        known = objective.common_fields()
        return kind(VaryingObjective(**known, basis=self.basis, shrinkage=shrinkage), seed)


@dataclass(frozen=True)
class Method:
    """A way to combine models: which weights to find, and how."""

    operator: Operator
    rule: Rule
    #: Concentration of the Dirichlet prior on the weights where users give none.
    concentration: float = 1.01
    #: What it is called, everywhere; by default after its operator and rule.
    label: str = ""
    #: How the weights are found; None: as operator and rule have it.
    fitter: type[Fitter] | None = None
    #: What the fitter needs to know besides the models.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: How much there is to it, for :func:`compare`, which recommends the simplest that will do: 0,
    #: one model; 1, nothing is estimated; 2, mixtures; 3, locking; 4, more parameters than weights.
    complexity: int = 4
    #: Whether another method is better wherever pools can be normalised.
    is_fallback: bool = False
    #: Whether a pool is taken only if it is known to predict no worse than a single model: where a
    #: score that needs no normaliser was not what users asked for.
    must_beat_best_model: bool = False
    #: Whether :func:`compare`, which ranks by log score and H, tries it without being told to.
    is_default: bool = True
    #: How the weights depend on covariates; None: they do not.
    varying: Varying | None = None

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", f"{self.operator.verb} by {self.rule.short}")

    @property
    def kind(self) -> type[Fitter]:
        """How the weights are found."""
        if self.varying is None:
            return self.fitter or fitter_for(self.operator, self.rule)
        if self.fitter is not None:
            raise UnsupportedError(
                f"Weights by {self.label} cannot depend on covariates; use another method with by=."
            )
        found = varying_fitter_for(self.operator, self.rule)
        if not self.varying.is_gate:
            return found
        if not self.operator.on_simplex:
            raise UnsupportedError(
                f"A softmax gives weights that sum to one, and those of {self.operator!r} need "
                "not. Leave weights='softmax' out, or use an operator on the simplex."
            )
        return GatedFitter

    def for_models(self, names: tuple[str, ...]) -> Method:
        """Return the method with its operator made for these models and its rule."""
        operator = self.operator.bind(names)
        if self.rule.needs_derivatives:
            operator = operator.without_zeros()
        return replace(self, operator=operator)

    def pose(self, gathered: Gathered, concentration: Array) -> Fitter:
        """Set up what is to be minimised, and how."""
        objective = Objective(self.operator, self.rule, gathered.densities, concentration)
        if self.varying is not None:
            return self.varying.pose(objective, varying_fitter_for(self.operator, self.rule))
        return self.kind(objective, **dict(self.options))

    def varied(self, varying: Varying, names: Sequence[str]) -> Method:
        """Return the method with weights that depend on covariates of these names."""
        listed = " + ".join(names)
        label = f"{self.label} ~ {f'softmax({listed})' if varying.is_gate else listed}"
        return replace(self, varying=varying, label=label, complexity=_VARYING)


def _formula(
    label: str, fitter: type[Fitter], complexity: int, operator: Operator | None = None
) -> Method:
    return Method(operator or Linear(), LogScore(), 1.0, label, fitter, complexity=complexity)


#: All methods with a name, by their label (ML: marginal likelihood). The first of an operator is
#: what its name alone means.
METHODS: dict[str, Method] = {
    method.label: method
    for method in (
        Method(Locking(), Hyvarinen(), label="lock", complexity=3),
        Method(Locking(), LogScore(), complexity=3),
        Method(Locking(), PairwiseScore(), complexity=3),
        Method(Superposition(), LogScore(), label="quack"),
        Method(Superposition(), Hyvarinen(), is_fallback=True),
        Method(Hybrid(), Hyvarinen(), label="hybrid"),
        Method(Hoelder(), LogScore(), label="hoelder"),
        Method(Linear(), LogScore(), 1.0, label="stack", complexity=2),
        Method(Linear(), CRPS(), 1.0, label="stack by CRPS", complexity=2, is_default=False),
        Method(Quantiles(), CRPS(), 1.0, label="quantiles", complexity=2, is_default=False),
        Method(Linear(), EnergyScore(), 1.0, label="stack by ES", complexity=2, is_default=False),
        _formula("pseudo-BMA+", PseudoBMAPlus, 2),
        _formula("pseudo-BMA", PseudoBMA, 2),
        _formula("BMA", ModelAveraging, 2),
        Method(Selection(), LogScore(), 1.0, label="select", complexity=0),
        Method(Selection(), Hyvarinen(), 1.0, complexity=0),
        Method(Selection(), CRPS(), 1.0, complexity=0, is_default=False),
        Method(Selection(), EnergyScore(), 1.0, complexity=0, is_default=False),
        _formula("select by ML", ChoiceByMarginalLikelihood, 0, Selection()),
        _formula("equal", EqualWeights, 1),
        replace(
            _formula("equal quantiles", EqualWeights, 1, Quantiles()),
            rule=CRPS(),
            is_default=False,
        ),
    )
}


def method_for(operator: Operator, rule: Rule | None = None) -> Method:
    """Find the method of an operator and a rule, or make one of them.

    Without a rule, the operator's usual one.

    Examples
    --------
    >>> method_for(Linear(), LogScore()).label, method_for(Linear(), Hyvarinen()).label
    ('stack', 'mix by H')
    >>> method_for(Locking()).rule
    Hyvarinen(scale=None, transform='auto', bounds=None)
    """
    for method in METHODS.values():
        same = type(method.operator) is type(operator) and method.fitter is None
        if same and (rule is None or type(method.rule) is type(rule)):
            label = method.label if method.operator == operator else ""
            return replace(method, operator=operator, rule=rule or method.rule, label=label)
    return Method(operator, rule or Hyvarinen())
