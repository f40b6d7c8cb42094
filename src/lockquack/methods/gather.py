"""From models to the densities that a rule scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import Collapsed
from lockquack.errors import NonFiniteError, UnsupportedError, naming
from lockquack.fitting.densities import Densities, Tables, ranks_of
from lockquack.jets import Array, Jet
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations, agreed, require_inside
from lockquack.models.passes import Passes
from lockquack.models.source import Source
from lockquack.numeric import all_within, broadcast_if_constant
from lockquack.operators import Operator
from lockquack.operators.pool import Pool
from lockquack.parallel.mapping import map_observations
from lockquack.prediction.distances import (
    curves_of,
    distances_at,
    distances_of_draws,
    quantiles_of,
    require_draws,
)
from lockquack.prediction.members import (
    are_discrete,
    are_evaluable,
    log_components,
    require_evaluable,
)
from lockquack.prediction.nodes import NodeGroup, lay_nodes
from lockquack.prediction.tails import heaviest_tail
from lockquack.quadrature.curves import Curves
from lockquack.quadrature.levels import COUNT, Levels, levels_of
from lockquack.quadrature.nodes import Nodes
from lockquack.quadrature.pairs import Pairs
from lockquack.rules import Rule
from lockquack.rules.wishes import DISTANCES, DISTRIBUTION, INTEGRAL, LEVELS, NEIGHBOURS, Wish
from lockquack.words import BY_LOG_SCORE, HYVARINEN, LOG_SCORE, Text, advice

#: Distance to an outcome, in units of the outcomes, beyond which a prediction has no mean; beside
#: it, nothing is left of the distances of other models.
FARTHEST = 1e10
#: Power of the distance by which a density must fall far out for ∫ (1 − F)² to be finite.
_FALL = -1.5


@dataclass(frozen=True)
class Gathered:
    """The models' densities, as some rule wants to know them, and what they were made of."""

    densities: Densities
    collapsed: Sequence[Collapsed]
    node_groups: Sequence[NodeGroup] = ()
    #: Pareto k̂ of each model and observation, (K, n), where it was found on the way.
    pareto_k: Array | None = None

    def with_nodes(self, node_groups: Sequence[NodeGroup]) -> Gathered:
        """Return the same with other nodes; itself, if they are its own."""
        if tuple(map(id, node_groups)) == tuple(map(id, self.node_groups)):
            return self
        nodes = tuple(part.nodes for part in node_groups)
        return replace(self.with_tables(INTEGRAL, nodes), node_groups=node_groups)

    def with_tables(self, wish: Wish, tables: Tables) -> Gathered:
        """Return the same with what was found for a wish."""
        known = {**self.densities.tables, wish: tables}
        return replace(self, densities=replace(self.densities, tables=known))


@dataclass(frozen=True)
class _Asked:
    """For whom wishes are granted."""

    models: Mapping[str, Source]
    operator: Operator
    rule: Rule
    scores: Kind
    random_seed: int
    progressbar: bool | None

    @property
    def loo(self) -> bool:
        """Whether observations are left out."""
        return self.scores == "loo"


def gather(
    models: Mapping[str, Model],
    operator: Operator,
    rule: Rule,
    scores: Kind,
    progressbar: bool | None = None,
    random_seed: int = 0,
) -> Gathered:
    """Collapse the models' draws; where the rule needs more than that, evaluate them elsewhere."""
    sources = sources_of(models)
    _require_one_kind(sources)
    collapsed = _collapse(models, operator, rule, scores, progressbar)
    observations = next(iter(sources.values())).observations
    unit = unit_of(rule, observations) if rule.needs_derivatives else np.ones(0)
    jets = _stacked([each.jet for each in collapsed], unit)
    places = ranks_of(list(models))
    gathered = Gathered(Densities(jets, {}, observations.weights, places), collapsed)
    return grant(gathered, sources, operator, rule, scores, progressbar, random_seed)


def _collapse(
    models: Mapping[str, Model],
    operator: Operator,
    rule: Rule,
    scores: Kind,
    progressbar: bool | None,
) -> list[Collapsed]:
    """Average the draws of each model at the observed outcomes, if the rule looks at these."""
    density = rule.needs_density or operator.needs_density
    collapsed = []
    for name, model in models.items():
        if not (rule.needs_density or rule.needs_derivatives):
            collapsed.append(Collapsed.known(np.full(model.observations.n, np.nan)))
            continue
        with naming(f"Model {name!r}"):
            collapsed.append(
                passes_for(model, rule).predict(
                    scores,
                    density=density,
                    derivatives=rule.needs_derivatives,
                    progressbar=progressbar,
                )
            )
    return collapsed


def grant(
    gathered: Gathered,
    models: Mapping[str, Source],
    operator: Operator,
    rule: Rule,
    scores: Kind,
    progressbar: bool | None = None,
    random_seed: int = 0,
) -> Gathered:
    """Find out what the rule wants to know of pools by the operator, and is not known yet."""
    asked = _Asked(models, operator, rule, scores, random_seed, progressbar)
    for wish in rule.wishes_for(operator):
        if not (wish.is_granted_by(operator) or gathered.densities.known_for(wish)):
            gathered = _GRANT[wish](gathered, asked)
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
    """Find the units in which a rule measures the outcome, one per component; none: no need."""
    if not rule.has_unit:
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


def _lay_nodes(gathered: Gathered, asked: _Asked) -> Gathered:
    """Evaluate the models where it takes to integrate pools of them."""
    smooth = all(
        model.can.differentiate and not model.likelihood.not_smooth
        for model in asked.models.values()
    )
    what = Text(
        f"{asked.operator!r} cannot be fitted by the {asked.rule.label} score, which needs its "
        "normaliser; use ",
        *((HYVARINEN, ", or ") if smooth else ()),
        advice("mix them by stack" if smooth else "stack", "--operator linear"),
    )
    return gathered.with_nodes(
        lay_nodes(
            asked.models,
            loo=asked.loo,
            of_all=asked.operator.vanishes_with_any,
            what=what,
            progressbar=asked.progressbar,
        )
    )


def _look_beside(gathered: Gathered, asked: _Asked) -> Gathered:
    """Evaluate the models one below and one above each outcome."""
    models, rule = asked.models, asked.rule
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
    evaluate = partial(log_components, loo=asked.loo)
    parts = map_observations(evaluate, tuple(models.values()), groups, beside)
    logp = np.concatenate(list(parts), axis=2)
    return gathered.with_tables(NEIGHBOURS, (Nodes(logp, np.zeros(logp.shape[1:])),))


def _find_distances(gathered: Gathered, asked: _Asked) -> Gathered:
    """Integrate the models' distribution functions, or take distances of their draws."""
    _require_outcomes(asked)
    observations = _observations(asked)
    unit = unit_of(asked.rule, observations)
    if are_evaluable(asked.models):
        curves, pareto_k = _curves(asked, unit)
        pairs = [each.pairs() for each in curves]
    else:
        pairs, pareto_k = distances_of_draws(
            asked.models,
            unit,
            loo=asked.loo,
            random_seed=asked.random_seed,
            progressbar=asked.progressbar,
        )
    _require_means(asked, np.concatenate([each.own for each in pairs], axis=1))
    return replace(gathered.with_tables(DISTANCES, tuple(pairs)), pareto_k=pareto_k)


def _find_distribution(gathered: Gathered, asked: _Asked) -> Gathered:
    """Evaluate the models where it takes to integrate distribution functions of their pools."""
    _require_outcomes(asked)
    what = Text(
        f"{asked.operator!r} cannot be fitted by {asked.rule.label}, which needs its distribution "
        "function; draws tell of mixtures only: use ",
        advice("Linear()", "--operator linear"),
    )
    require_evaluable(asked.models, what)
    curves, pareto_k = _curves(asked, unit_of(asked.rule, _observations(asked)))
    own = [[each.distance(logp) for logp in each.logp] for each in curves]
    _require_means(asked, np.concatenate(own, axis=1))
    return replace(gathered.with_tables(DISTRIBUTION, tuple(curves)), pareto_k=pareto_k)


def _find_levels(gathered: Gathered, asked: _Asked) -> Gathered:
    """Take the models' quantiles at equal steps of probability."""
    _require_outcomes(asked)
    observations = _observations(asked)
    quantiles, pareto_k = quantiles_of(
        asked.models, levels_of(COUNT), loo=asked.loo, random_seed=asked.random_seed
    )
    excess = (quantiles - observations.values[:, 0]) / unit_of(asked.rule, observations)
    return replace(gathered.with_tables(LEVELS, (Levels(excess),)), pareto_k=pareto_k)


def require_distances(models: Mapping[str, Source], operator: Operator, rule: Rule) -> None:
    """Refuse models whose distances to the outcomes cannot be known."""
    _require_outcomes(_Asked(models, operator, rule, "loo", 0, None))
    if not all(model.can.evaluate for model in models.values()):
        require_draws(models)


def pairs_at(
    models: Mapping[str, Source],
    obs: slice,
    rule: Rule,
    *,
    loo: bool,
    random_seed: tuple[int, int],
) -> Pairs:
    """Distances of the models at some observations, in the units of a rule that has its own."""
    observations = agreed(model.observations for model in models.values())
    unit = unit_of(rule, observations)
    if all(model.can.evaluate for model in models.values()):
        groups = lay_nodes(models, loo=loo, of_all=False, slices=[obs], progressbar=False)
        (curves,) = curves_of(models, groups, float(unit[0]), loo=loo)
        return curves.pairs()
    return distances_at(models, obs, unit, loo=loo, random_seed=random_seed)[0]


def _curves(asked: _Asked, unit: Array) -> tuple[list[Curves], Array]:
    for name, model in asked.models.items():
        heavy = heaviest_tail({name: model}, Pool.of_one(), _FALL)
        if heavy is not None:
            raise _without_mean(asked, name, heavy[0])
    groups = lay_nodes(asked.models, loo=asked.loo, of_all=False, progressbar=asked.progressbar)
    curves = curves_of(asked.models, groups, float(unit[0]), loo=asked.loo)
    return curves, np.concatenate([group.pareto_k for group in groups], axis=1)


def _require_means(asked: _Asked, distances: Array) -> None:
    """Refuse models, by their distances to the outcomes (K, n), whose mean does not exist."""
    for name, own in zip(asked.models, distances, strict=True):
        if not all_within(own, FARTHEST):
            raise _without_mean(asked, name, int(np.where(np.isnan(own), np.inf, own).argmax()))


def _without_mean(asked: _Asked, name: str, observation: int) -> NonFiniteError:
    return NonFiniteError(
        f"{asked.rule.label} of model {name!r} is infinite, or would be but for rounding, at "
        f"{asked.models[name].observations.describe(observation)}: its prediction has tails so "
        "heavy that it has no mean. Use ",
        BY_LOG_SCORE,
        ".",
    )


def _observations(asked: _Asked) -> Observations:
    return agreed(model.observations for model in asked.models.values())


def _require_outcomes(asked: _Asked) -> None:
    """Refuse outcomes that are not known, and vectors where a rule is for numbers."""
    observations = _observations(asked)
    if not observations.known:
        raise UnsupportedError(
            f"{asked.rule.label} needs the outcomes, and no model holds them. Give y= to one."
        )
    if observations.d > 1 and not asked.rule.is_for_mixtures:
        raise UnsupportedError(
            f"{asked.rule.label} is for single numbers; these outcomes have {observations.d} "
            "components. Use ",
            advice("EnergyScore()", "--rule energy"),
            ".",
        )


#: How each wish of a rule is granted.
_GRANT: Mapping[Wish, Callable[[Gathered, _Asked], Gathered]] = {
    INTEGRAL: _lay_nodes,
    NEIGHBOURS: _look_beside,
    DISTANCES: _find_distances,
    DISTRIBUTION: _find_distribution,
    LEVELS: _find_levels,
}
