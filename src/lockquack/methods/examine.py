"""What to remark on after a fit, and which combinations to refuse then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.collapse import Collapsed
from lockquack.errors import EdgeError, ImproperError, UnsupportedError
from lockquack.families.base import Edge
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.fitters import convex_relative
from lockquack.fitting.identifiability import collinear, duplicates
from lockquack.fitting.influence import changes_of, deciding, shortlist
from lockquack.fitting.objective import Objective
from lockquack.fitting.uncertainty import FEWEST_OBSERVATIONS, are_too_few
from lockquack.jets import Array, softmax
from lockquack.methods.fitted import Fitted
from lockquack.methods.gather import Gathered
from lockquack.methods.suspicious import examine_numbers
from lockquack.models.model import sources_of
from lockquack.models.observations import Observations, agreed
from lockquack.models.source import Source
from lockquack.operators.pool import Pool
from lockquack.prediction.examine import examine_pareto, examine_quadrature
from lockquack.prediction.nodes import NodeGroup
from lockquack.prediction.tails import heaviest_tail
from lockquack.remarks.base import Remark
from lockquack.remarks.densities import Affected
from lockquack.remarks.draws import HandfulOfDraws, HardlyAnyDraws, TooFewDraws
from lockquack.remarks.solver import PosteriorDoubtful, SeveralOptima, StoppedEarly
from lockquack.remarks.support import NormaliserUnchecked, SlowEdge
from lockquack.remarks.weights import (
    FewDecide,
    FewObservations,
    ModelsAlike,
    ModesApart,
    ParameterAtBound,
    PhasesAtCap,
    WeightsUndetermined,
)
from lockquack.rules import Rule
from lockquack.solvers.base import Solution
from lockquack.totals import counting, effective_number, error_of_total
from lockquack.words import WEIGHTED_BY_LOG

#: Share of the sampling error that the Monte Carlo error may reach before it is a concern.
_MCSE_SHARE = 0.25
#: Draws that should at least carry a prediction.
_FEWEST_CARRYING = 20
#: Share of the starts that should agree on the solution of a problem that is not convex. Below it
#: 64 further starts found a better one in about every second case, above it in one of thirty.
_AGREEING = 0.5
#: Observations from which it is worth a remark that one of them decides.
_FEWEST_TO_LOOK_AT = 20
#: Share of the largest model at an observation from which the models count as apart.
_APART = 0.99
#: Share of the observations that the second model must then have.
_BOTH_SIDES = 0.05


def examine(fit: Fitted, gathered: Gathered) -> list[Remark]:
    """Remark on all that a fit, and what it was made of, give reason to."""
    models, fitter, solution = fit.models or {}, fit.fitter, fit.solution
    sources = sources_of(models)
    objective, pool = fitter.objective, fitter.objective.pool(solution.x)
    scored = objective.all_scores(solution.x)
    remarks = [*examine_solution(solution), *examine_bounds(objective, solution.x)]
    remarks += examine_draws(fitter)
    if objective.rule.needs_derivatives:
        remarks += examine_edges(sources, pool, objective.rule)
        remarks += examine_modes(objective)
    remarks += examine_tails(sources, pool)
    found = _pareto_k(fit, gathered) if fit.scores == "loo" else None
    if found is not None:
        pareto_k = list(np.where(objective.counts > 0, found, -np.inf))
        affected: Affected = "scores and weights" if fitter.resamples else "scores"
        remarks += examine_pareto(sources, pareto_k, fit.observations, affected)
    return [
        *remarks,
        *examine_nodes(gathered.node_groups, pool, fit.observations),
        *examine_monte_carlo(
            fit.names, gathered.collapsed, fit.mcse, scored, objective.case_weights
        ),
        *examine_size(fitter),
        *examine_influence(fit),
        *examine_numbers(fit, gathered.collapsed),
        *examine_weights(fit.names, fitter, solution, fit.mcse, scored),
    ]


def _pareto_k(fit: Fitted, gathered: Gathered) -> Array | None:
    """Pareto k̂ of the models, (K, n), where the scores rest on weighted draws."""
    rule = fit.rule
    weighted = rule.needs_density or (rule.needs_derivatives and fit.operator.needs_density)
    if gathered.pareto_k is not None or not weighted:
        return gathered.pareto_k
    return np.stack([model.loo().pareto_k for model in (fit.models or {}).values()])


def examine_solution(solution: Solution) -> list[Remark]:
    """Remark on a solver that did not reach its certificate, or on starts that disagree."""
    if not solution.converged:
        status = str(solution.status)
        if solution.starts is not None:
            return [StoppedEarly(status, float(solution.stationarity))]
        return [StoppedEarly(status, float(solution.relative_gap), float(solution.gap))]
    agreeing, tried = solution.starts or (1, 1)
    return [] if agreeing >= _AGREEING * tried else [SeveralOptima(int(agreeing), int(tried))]


def examine_draws(fitter: Fitter) -> list[Remark]:
    """Remark on chains behind the weights that are a reason for doubt."""
    sampled = fitter.chains
    if sampled is None or sampled.is_reliable:
        return []
    return [PosteriorDoubtful(**vars(sampled))]


def examine_size(fitter: Fitter) -> list[Remark]:
    """Remark on observations that are too few for standard errors."""
    n, weights = fitter.objective.n_obs, fitter.objective.case_weights
    if not (are_too_few(n, weights) and fitter.resamples and fitter.objective.K > 1):
        return []
    worth = round(effective_number(weights, n))
    return [FewObservations(worth, FEWEST_OBSERVATIONS, weighted=weights is not None)]


def examine_influence(fit: Fitted) -> list[Remark]:
    """Remark on one or a few observations that decide the weights.

    It costs about as much as a step of the solver. Formulas that are costly to apply again,
    weights that vary, and very few observations, each of which matters, are looked at when asked
    to, by :meth:`Combination.influence`.
    """
    fitter, objective = fit.fitter, fit.objective
    x, n = fit.solution.x, objective.n_obs
    costly = not fitter.is_optimum and n > fitter.most_deletions
    few = np.count_nonzero(objective.counts) < _FEWEST_TO_LOOK_AT
    if few or costly or objective.K < 2 or not fitter.resamples or fit.pool.varies:
        return []
    moved, close, without = shortlist(fitter, x)
    found = deciding(fitter, x, moved, close, without).tolist()
    if not found:
        return []
    change = changes_of(fitter, x, without[close == found[0]])[:, 0]
    return few_decide(fit.names, objective.mean_weights(x), change, found, fit.observations)


def few_decide(
    names: tuple[str, ...],
    weights: Array,
    change: Array,
    found: Sequence[int],
    observations: Observations,
) -> list[Remark]:
    """Remark on observations, and how the weights change without the first of them, (K,)."""
    if observations.n < FEWEST_OBSERVATIONS:
        return []
    pairs = zip(names, weights.tolist(), (weights + change).tolist(), strict=True)
    return [FewDecide(tuple(map(observations.describe, found)), observations.n, tuple(pairs))]


def examine_modes(objective: Objective) -> list[Remark]:
    """Remark on mixtures whose proportions the Hyvärinen score hardly sees.

    It depends on the models' shares in the mixture at each observation. Where one model has
    nearly all of it everywhere, the modes are apart, and the score hardly knows their sizes.
    """
    if not objective.operator.mixes or objective.K < 2:
        return []
    logp = objective.jets.logp
    share, _ = softmax(logp)
    apart = objective.total((share.max(axis=0) >= _APART).astype(float))
    split = np.bincount(share.argmax(axis=0), weights=objective.counts, minlength=objective.K)
    n = objective.n_counted
    if apart < 0.5 * n or np.sort(split)[-2] < _BOTH_SIDES * n:
        return []
    return [ModesApart()]


def examine_bounds(objective: Objective, x: Array) -> list[Remark]:
    """Remark on parameters that ended at a bound, where they mean little."""
    remarks: list[Remark] = []
    for block, each in objective.space.parts(x):
        part = each if each.ndim == 1 else each[:, 0]  # what has bounds is the same everywhere
        if block.at_bound(part):
            remarks.append(ParameterAtBound(block.name, float(part[0])))
        if block.at_cap(part):
            remarks.append(PhasesAtCap())
    return remarks


def examine_nodes(
    groups: Sequence[NodeGroup], pool: Pool, observations: Observations
) -> list[Remark]:
    """Remark on normalisers that the fit rests on and that may be wrong."""
    if not groups:
        return []
    error = np.concatenate([part.log_norm(pool.at(part.obs))[1] for part in groups])
    missing = np.concatenate([part.missing for part in groups], axis=1).max(axis=0)
    return examine_quadrature(np.maximum(error, missing), observations)


def examine_monte_carlo(
    names: tuple[str, ...],
    collapsed: Sequence[Collapsed],
    mcse: Array,
    scored: Array,
    case_weights: Array | None,
) -> list[Remark]:
    """Remark on draws that are too few, too dependent, or outweighed by a handful of others.

    ``scored`` holds the scores of the combination and of each model, (1 + K, n).
    """
    remarks: list[Remark] = []
    unknown = np.array([1 < each.n_samples < 4 * len(each.log_effect) for each in collapsed])
    if unknown.any():
        remarks.append(HardlyAnyDraws(_chosen(names, unknown)))
    spread = _sampling_errors(scored, case_weights)
    noisy = _noisy(mcse, scored, case_weights)
    if noisy.any():
        # Of a single observation nothing is known about the sampling error.
        with np.errstate(over="ignore"):
            worst = int(np.argmax(np.where(noisy, mcse / np.maximum(spread, 1e-300), 0.0)))
        errors = float(mcse[worst]), float(spread[worst])
        remarks.append(TooFewDraws(_chosen(names, noisy), names[worst], *errors))
    used = counting(case_weights)
    carried = np.array([each.n_effective[used].min() for each in collapsed])
    few = (carried < _FEWEST_CARRYING) & (carried < [each.n_samples / 2 for each in collapsed])
    if few.any():
        worst = int(carried.argmin())
        remarks.append(HandfulOfDraws(_chosen(names, few), names[worst], float(carried[worst])))
    return remarks


def _noisy(mcse: Array, scored: Array, case_weights: Array | None) -> NDArray[np.bool_]:
    """Which models' Monte Carlo errors are large next to their sampling errors."""
    return np.asarray(mcse > _MCSE_SHARE * _sampling_errors(scored, case_weights))


def _sampling_errors(scored: Array, case_weights: Array | None) -> Array:
    """Find the standard errors that Monte Carlo errors are compared with, one per model.

    The largest of those of the model's score, of its distance to the combination, and of the
    combination's score: a model that scores the same everywhere has none of its own.
    """
    pooled = scored[0]
    errors = [
        error_of_total(np.stack([each, each - pooled, pooled]), case_weights, ddof=0).max()
        for each in scored[1:]
    ]
    return np.array(errors)


def examine_weights(
    names: tuple[str, ...], fitter: Fitter, solution: Solution, mcse: Array, scored: Array
) -> list[Remark]:
    """Remark on models that the score cannot tell apart, and on weights that are not unique."""
    relative = convex_relative(fitter)
    if relative is None or not fitter.objective.operator.on_simplex:
        return []
    weights, size = fitter.objective.mean_weights(solution.x), float(solution.scale)
    # What too few draws hide is remarked on elsewhere; it does not make models alike.
    noisy = _noisy(mcse, scored, fitter.objective.case_weights)
    noise = np.where(noisy | np.isnan(mcse), 0.0, mcse)
    alike = duplicates(relative, weights, noise, size)
    remarks: list[Remark] = [
        ModelsAlike(tuple(names[k] for k in group), float(weights[list(group)].sum()))
        for group in alike
    ]
    if relative is not fitter:
        return remarks
    return remarks + [
        WeightsUndetermined(tuple(names[k] for k in group))
        for group in collinear(relative, weights, noise, size)
        if not any(set(group) <= set(known) for known in alike)
    ]


def examine_edges(models: Mapping[str, Source], pool: Pool, rule: Rule) -> list[Remark]:
    """Look at the combination where supports end; refuse one for which the rule is not proper."""
    likelihoods = [model.likelihood for model in models.values()]
    weights = np.asarray(pool.weights.reshape(pool.K, -1).any(axis=1))
    used = [each for each, w in zip(likelihoods, weights, strict=True) if w]
    places = {edge.at for each in used for edge in each.edges if np.isfinite(edge.at)}
    slow: list[float] = []
    for at in sorted(places):
        orders = [each.order_at(at) for each in likelihoods]
        on_circle = all(each.is_joined_at(at) for each in used)
        pooled = Edge(at, _pooled_order(orders, pool), joined=on_circle)
        if not rule.is_proper_at(pooled):
            if any(each.is_joined_at(at) for each in used):
                raise EdgeError(
                    "Some models are of angles on a circle and others of numbers on a line. Their "
                    f"combination jumps at {at:g}, where the Hyvärinen score is not proper. "
                    "Combine models of angles, or use the log score."
                )
            raise EdgeError(
                f"The combination does not vanish smoothly at {at:g} (it goes like "
                f"distance^{pooled.order:.3g}, more than 1 is needed): some models end there and "
                "others go on. The Hyvärinen score is not proper there. Use ",
                WEIGHTED_BY_LOG,
                " or another that ends there, or model a transform of the outcome in all models.",
            )
        own = [Edge(at, order) for order, w in zip(orders, weights, strict=True) if order and w]
        if not all(map(rule.has_variance, [pooled, *own])):
            slow.append(float(at))
    return [SlowEdge(tuple(slow))] if slow else []


def _pooled_order(orders: Sequence[float | None], pool: Pool) -> float:
    """Order at which the pool vanishes at an edge, from those of its members (None: it is zero).

    Log densities are order × log distance there; two very small distances tell the slope.
    """
    log_distance = np.array([-1e6, -2e6])
    finite = np.array([np.inf if order is None else order for order in orders])
    with np.errstate(invalid="ignore"):
        logp = np.where(finite[:, None] == 0, 0.0, finite[:, None] * log_distance)
    # Where weights differ, the least order of all observations counts.
    n = pool.x.shape[1] if pool.varies else 1
    pooled = np.stack(
        [pool(np.repeat(each[:, None], n, axis=1), np.arange(n)) for each in logp.T]
    )  # (distance, n)
    with np.errstate(invalid="ignore"):
        slopes = np.diff(pooled, axis=0)[0] / np.diff(log_distance)[0]
    known = np.asarray(np.isfinite(pooled).all(axis=0))
    # An order of exactly -1 is a case of its own, which rounding must not hide.
    return float(np.where(known, slopes, np.inf).min().round(12))


def examine_tails(models: Mapping[str, Source], pool: Pool) -> list[Remark]:
    """Refuse a pool that cannot be normalised, where its operator does not rule that out."""
    if pool.operator.always_integrable:
        return []
    unknown = [name for name, model in models.items() if not model.can.evaluate]
    if unknown and not pool.operator.signed:
        return [NormaliserUnchecked(unknown[0])]
    if unknown:
        raise UnsupportedError(
            f"Exponents of any sign can make a pool without a normaliser. Model {unknown[0]!r} is "
            "known at the observed outcomes only, so it cannot be checked. Use Hybrid() without "
            "signed, or make the model with from_family or a PPL adapter."
        )
    heavy = heaviest_tail(models, pool)
    if heavy is not None:
        observation, slope = heavy
        place = agreed(model.observations for model in models.values()).describe(observation)
        raise ImproperError(
            f"The combination has no normaliser at {place}: far out its density goes like "
            f"distance^{slope:.3g}, and less than -1 is needed. The score does not notice. Use "
            "weights on the simplex, the default."
        )
    likelihoods = [model.likelihood for model in models.values()]
    for at in sorted({edge.at for each in likelihoods for edge in each.edges}):
        order = _pooled_order([each.order_at(at) for each in likelihoods], pool)
        if np.isfinite(at) and order < -1.0:
            raise ImproperError(
                f"The combination has no normaliser: near {at:g} its density goes like "
                f"distance^{order:.3g}, and more than -1 is needed. The score does not notice. Use "
                "weights on the simplex, the default."
            )
    return []


def _chosen(names: tuple[str, ...], chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen)
