"""From models to the densities that a rule scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.errors import UnsupportedError, naming
from lockquack.fitting.densities import Densities, Tables, places_of
from lockquack.jets import Array, Jet
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations, require_inside
from lockquack.models.passes import Passes
from lockquack.models.source import Source
from lockquack.numeric import broadcast_if_constant
from lockquack.operators import Operator
from lockquack.parallel.mapping import map_observations
from lockquack.prediction.members import are_discrete, log_components, require_evaluable
from lockquack.prediction.nodes import NodeGroup, lay_nodes
from lockquack.quadrature.nodes import Nodes
from lockquack.rules import Rule
from lockquack.rules.wishes import INTEGRAL, NEIGHBOURS, Wish
from lockquack.words import HYVARINEN, LOG_SCORE, Text, advice


@dataclass(frozen=True)
class Gathered:
    """The models' densities, as some rule wants to know them, and what they were made of."""

    densities: Densities
    collapsed: Sequence[Collapsed]
    node_groups: Sequence[NodeGroup] = ()

    def with_nodes(self, node_groups: Sequence[NodeGroup]) -> Gathered:
        """Return the same with other nodes."""
        nodes = tuple(part.nodes for part in node_groups)
        return replace(self.with_tables(INTEGRAL, nodes), node_groups=node_groups)

    def with_tables(self, wish: Wish, tables: Tables) -> Gathered:
        """Return the same with what was found for a wish."""
        known = {**self.densities.tables, wish: tables}
        return replace(self, densities=replace(self.densities, tables=known))


def gather(
    models: Mapping[str, Model],
    operator: Operator,
    rule: Rule,
    scores: Kind,
    progressbar: bool | None = None,
) -> Gathered:
    """Collapse the models' draws; where the rule needs more than that, evaluate them elsewhere."""
    sources = sources_of(models)
    _require_one_kind(sources)
    density = rule.needs_density or operator.needs_density
    collapsed = []
    for name, model in models.items():
        with naming(f"Model {name!r}"):
            collapsed.append(
                passes_for(model, rule).predict(
                    scores,
                    density=density,
                    derivatives=rule.needs_derivatives,
                    progressbar=progressbar,
                )
            )
    observations = next(iter(sources.values())).observations
    jets = _stacked([each.jet for each in collapsed], unit_of(rule, observations))
    places = places_of(list(models))
    gathered = Gathered(Densities(jets, {}, observations.weights, places), collapsed)
    for wish in rule.wishes:
        if not wish.is_granted_by(operator):
            gathered = _GRANT[wish](gathered, sources, operator, rule, scores, progressbar)
    return gathered


def passes_for(model: Model, rule: Rule) -> Passes:
    """Return the passes over a model's draws as the rule sees them: weighted, or as they are."""
    if rule.coordinates is None:
        return model.passes
    observations, domain = model.observations, rule.coordinates.domain
    what = f"transform {rule.options['transform']!r}"
    require_inside(what, observations.values, domain, observations, Text("Use ", LOG_SCORE, "."))
    return model.passes.weighted(rule.coordinates)


def _require_one_kind(models: Mapping[str, Source]) -> None:
    """Refuse discrete models beside others; of some, given as arrays, it is not known."""
    known = {k: m for k, m in models.items() if m.likelihood.discrete or m.likelihood.edges}
    if known:
        are_discrete(known)


def unit_of(rule: Rule, observations: Observations) -> Array:
    """Find the units in which a rule measures derivatives, one per component; none: no need."""
    if not rule.needs_derivatives:
        return np.ones(0)
    return rule.unit(observations.values, observations.weights)


def in_units(jet: Jet, unit: Array) -> Jet:
    """Measure derivatives in units of the outcome."""
    return Jet(jet.logp, jet.grad * unit, jet.curv * np.square(unit))


def _stacked(jets: Sequence[Jet], unit: Array) -> Jet:
    """Stack the models' jets, (K, n) and (K, n, d), in units of the outcome.

    Of many observations this is all that is held, so one model is scaled at a time.
    """
    logp = broadcast_if_constant(np.stack([jet.logp for jet in jets]))
    grad, curv = np.empty((2, len(jets), *jets[0].grad.shape))
    for k, jet in enumerate(jets):
        scaled = in_units(jet, unit)
        grad[k], curv[k] = scaled.grad, scaled.curv
    return Jet(logp, grad, curv)


def _lay_nodes(
    gathered: Gathered,
    models: Mapping[str, Source],
    operator: Operator,
    rule: Rule,
    scores: Kind,
    progressbar: bool | None,
) -> Gathered:
    """Evaluate the models where it takes to integrate pools of them."""
    what = Text(
        f"{operator!r} cannot be fitted by the {rule.label} score, which needs its normaliser; "
        "use ",
        HYVARINEN,
        ", or ",
        advice("mix them by stack", "--operator linear"),
    )
    return gathered.with_nodes(
        lay_nodes(
            models,
            loo=scores == "loo",
            of_all=operator.vanishes_with_any,
            what=what,
            progressbar=progressbar,
        )
    )


def _look_beside(
    gathered: Gathered,
    models: Mapping[str, Source],
    operator: Operator,
    rule: Rule,
    scores: Kind,
    progressbar: bool | None,
) -> Gathered:
    """Evaluate the models one below and one above each outcome."""
    require_evaluable(models, f"the {rule.label} score cannot be computed")
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
    logp = np.concatenate(list(parts), axis=2)
    return gathered.with_tables(NEIGHBOURS, (Nodes(logp, np.zeros(logp.shape[1:])),))


#: How each wish of a rule is granted.
_GRANT: Mapping[Wish, Callable[..., Gathered]] = {
    INTEGRAL: _lay_nodes,
    NEIGHBOURS: _look_beside,
}
