"""From models to what the rules look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.errors import UnsupportedError, naming
from lockquack.fitting.evidence import Evidence
from lockquack.jets import Array, Jet
from lockquack.models.model import Predictive
from lockquack.numeric import held_once
from lockquack.operators import Operator
from lockquack.parallel.mapping import map_observations
from lockquack.prediction.members import are_discrete, log_components, require_evaluable
from lockquack.prediction.nodes import Laid, lay_nodes
from lockquack.rules import Rule
from lockquack.words import HYVARINEN, LOG_SCORE, Text, advice


@dataclass(frozen=True)
class Gathered:
    """The evidence for some rules, and what it was made of."""

    evidence: Evidence
    collapsed: Sequence[Collapsed]
    laid: Sequence[Laid] = ()

    def with_nodes(self, laid: Sequence[Laid]) -> Gathered:
        """Return the same with other nodes."""
        evidence = replace(self.evidence, nodes=tuple(part.nodes for part in laid))
        return replace(self, laid=laid, evidence=evidence)


def gather(
    models: Mapping[str, Predictive],
    operator: Operator,
    rule: Rule,
    scores: Kind,
    progressbar: bool | None = None,
) -> Gathered:
    """Collapse the models' draws; where the rule needs more than that, evaluate them elsewhere."""
    _require_one_kind(models)
    density = rule.needs_density or operator.needs_density
    collapsed = []
    for name, model in models.items():
        with naming(f"Model {name!r}"):
            collapsed.append(
                rule.view(model).predict(
                    scores,
                    density=density,
                    derivatives=rule.needs_derivatives,
                    progressbar=progressbar,
                )
            )
    observations = next(iter(models.values())).observations
    unit = rule.unit(observations.values) if rule.needs_derivatives else np.ones(0)
    jets = _stacked([each.jet for each in collapsed], unit)
    neighbours = _neighbours(models, rule, scores) if rule.needs_neighbours else None
    gathered = Gathered(Evidence(jets, (), neighbours), collapsed)
    if not rule.needs_normaliser or operator.normalised:
        return gathered
    return gathered.with_nodes(
        lay_nodes(
            models,
            loo=scores == "loo",
            of_all=operator.vanishes_with_any,
            what=Text(
                f"{operator!r} cannot be fitted by the {rule.label} score, which needs its "
                "normaliser; use ",
                HYVARINEN,
                ", or ",
                advice("mix them by stack", "--operator linear"),
            ),
            progressbar=progressbar,
        )
    )


def _require_one_kind(models: Mapping[str, Predictive]) -> None:
    """Refuse discrete models beside others; of some, given as arrays, it is not known."""
    known = {k: m for k, m in models.items() if m.likelihood.discrete or m.likelihood.edges}
    if known:
        are_discrete(known)


def in_units(jet: Jet, unit: Array) -> Jet:
    """Measure derivatives in units of the outcome."""
    return Jet(jet.logp, jet.grad * unit, jet.curv * np.square(unit))


def _stacked(jets: Sequence[Jet], unit: Array) -> Jet:
    """Stack the models' jets, (K, n) and (K, n, d), in units of the outcome.

    Of many observations this is all that is held, so one model is scaled at a time.
    """
    logp = held_once(np.stack([jet.logp for jet in jets]))
    grad, curv = np.empty((2, len(jets), *jets[0].grad.shape))
    for k, jet in enumerate(jets):
        scaled = in_units(jet, unit)
        grad[k], curv[k] = scaled.grad, scaled.curv
    return Jet(logp, grad, curv)


def _neighbours(models: Mapping[str, Predictive], rule: Rule, scores: Kind) -> Array:
    """Log densities of the models one below and one above each outcome, (K, 2, n)."""
    what = f"the {rule.label} score cannot be computed"
    require_evaluable(models, what)
    if not are_discrete(models):
        raise UnsupportedError(
            f"The {rule.label} score is for discrete outcomes; these have densities. Use ",
            HYVARINEN,
            " or ",
            LOG_SCORE,
            ".",
        )
    first = next(iter(models.values()))
    groups = first.observation_slices()
    y = first.observations.values[:, 0]
    beside = [np.stack([y[obs] - 1, y[obs] + 1]) for obs in groups]
    evaluate = partial(log_components, loo=scores == "loo")
    parts = map_observations(evaluate, tuple(models.values()), groups, beside)
    return np.concatenate(list(parts), axis=2)
