"""What a user should know about a result before trusting it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.collapse import Collapsed
from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.errors import (
    ConvergenceWarning,
    EdgeError,
    EdgeWarning,
    IdentifiabilityWarning,
    ImproperError,
    LockquackWarning,
    MonteCarloWarning,
    ParetoWarning,
    QuadratureWarning,
    SupportWarning,
    UnsupportedError,
)
from lockquack.families.base import Edge
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.fitters import convex_relative
from lockquack.fitting.identifiability import collinear, duplicates
from lockquack.fitting.objective import Objective
from lockquack.jets import Array, softmax
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.operators.pool import Pool
from lockquack.prediction.nodes import Laid
from lockquack.prediction.tails import heaviest_tail
from lockquack.rules import Rule
from lockquack.solvers.base import Solution

if TYPE_CHECKING:
    from lockquack.prediction.pooled import Normalised

#: Share of the sampling error that the Monte Carlo error may reach before it is a concern.
_MCSE_SHARE = 0.25
#: Draws that should at least carry a prediction.
_FEWEST_CARRYING = 20
#: Starts that should agree on the solution of a problem that is not convex.
_FEWEST_AGREEING = 2
#: Share of the largest model at an observation from which the models count as apart.
_APART = 0.99
#: Share of the observations that the second model must then have.
_BOTH_SIDES = 0.05
#: Relative error of a normaliser, and missing mass of a component, that are still harmless.
_QUADRATURE_ERROR = 1e-6


@dataclass(frozen=True)
class Note:
    """A remark, shown in the table of the result and warned of once, when it was made."""

    category: type[LockquackWarning]
    message: str


def convergence_notes(solution: Solution) -> list[Note]:
    """Remark on a solver that did not reach its certificate, or on starts that disagree."""
    if solution.converged:
        return _disagreement(solution)
    if solution.starts is not None:
        return [
            Note(
                ConvergenceWarning,
                f"The solver stopped early ({solution.status}): a slope of "
                f"{solution.stationarity:.2g} of the objective's size is left.",
            )
        ]
    return [
        Note(
            ConvergenceWarning,
            f"The solver stopped early ({solution.status}): the objective may be up to "
            f"{float(solution.gap):.2g} from its optimum, {float(solution.relative_gap):.2g} of "
            "its size.",
        )
    ]


def _disagreement(solution: Solution) -> list[Note]:
    if solution.starts is None or solution.starts[0] >= _FEWEST_AGREEING:
        return []
    agreeing, tried = solution.starts
    return [
        Note(
            ConvergenceWarning,
            f"Only {agreeing} of {tried} starts agree on the solution: the objective has several "
            "optima, and there may be a better one still.",
        )
    ]


def blindness_notes(objective: Objective) -> list[Note]:
    """Remark on mixtures whose proportions the Hyvärinen score hardly sees.

    It depends on the models' shares in the mixture at each observation. Where one model has
    nearly all of it everywhere, the modes are apart, and the score hardly knows their sizes.
    """
    if not objective.operator.mixes or objective.K < 2:
        return []
    logp = objective.jets.logp
    share, _ = softmax(logp)
    largest = share.max(axis=0)
    split = np.bincount(share.argmax(axis=0), minlength=objective.K).astype(float)
    if np.median(largest) < _APART or np.sort(split)[-2] < _BOTH_SIDES * logp.shape[1]:
        return []
    return [
        Note(
            IdentifiabilityWarning,
            "The models lie apart: at most observations one of them has nearly all the density. "
            "The Hyvärinen score of a mixture hardly sees the proportions of separate modes, so "
            "these weights mean little. Use LogScore() for them.",
        )
    ]


def bound_notes(objective: Objective, x: Array) -> list[Note]:
    """Remark on parameters that ended at a bound, where they mean little."""
    notes = []
    for block, part in objective.space.parts(x):
        if block.at_bound(part):
            notes.append(
                Note(
                    IdentifiabilityWarning,
                    f"The {block.name} of the pool is at its bound ({part[0]:.3g}): the data do "
                    "not determine it. Fix it, or use another rule.",
                )
            )
        if block.at_cap(part):
            notes.append(
                Note(
                    IdentifiabilityWarning,
                    "Phases are at the cap of .99 π that keeps the density from having zeros, "
                    "which the Hyvärinen score would reward. LogScore() needs no cap.",
                )
            )
    return notes


def node_notes(laid: Sequence[Laid], pool: Pool, observations: Observations) -> list[Note]:
    """Remark on normalisers that the fit rests on and that may be wrong."""
    if not laid:
        return []
    error = np.concatenate([part.log_norm(pool.at(part.obs))[1] for part in laid])
    missing = np.concatenate([part.missing for part in laid], axis=1).max(axis=0)
    return _quadrature_notes(np.maximum(error, missing), observations)


def density_notes(
    models: Mapping[str, Source], result: Normalised, observations: Observations
) -> list[Note]:
    """Remark on a normalised density."""
    consequence = "So is the density of the combination there."
    notes = pareto_notes(models, result.pareto_k, observations, consequence)
    wrong = np.maximum(result.relative_error, result.missing.max(axis=0))
    return notes + _quadrature_notes(
        np.where(np.isfinite(result.logp), wrong, np.inf), observations
    )


def _quadrature_notes(wrong: Array, observations: Observations) -> list[Note]:
    wrong = np.where(np.isnan(wrong), np.inf, wrong)
    bad = int((wrong > _QUADRATURE_ERROR).sum())
    if not bad:
        return []
    worst = int(wrong.argmax())
    return [
        Note(
            QuadratureWarning,
            f"The normaliser may be wrong at {bad} observation(s): by {wrong[worst]:.1e} of "
            f"its size, or so much of a model's mass was not found, at "
            f"{observations.describe(worst)}.",
        )
    ]


def pareto_notes(
    models: Mapping[str, Source],
    pareto_k: Iterable[Array],
    observations: Observations,
    consequence: str,
) -> list[Note]:
    """Remark on leave-one-out densities that importance sampling cannot give."""
    notes = []
    for (name, model), k_hat in zip(models.items(), pareto_k, strict=True):
        limit = pareto_k_threshold(model.n_samples)
        bad = int((k_hat > limit).sum())
        if bad:
            worst = int(k_hat.argmax())
            notes.append(
                Note(
                    ParetoWarning,
                    f"Leave-one-out densities of model {name!r} are unreliable at {bad} "
                    f"observation(s): Pareto k̂ above {limit:.2f}, worst {k_hat[worst]:.2f} at "
                    f"{observations.describe(worst)}. {consequence}",
                )
            )
    return notes


def _noisy(mcse: Array, scored: Array) -> NDArray[np.bool_]:
    """Which models' Monte Carlo errors are large next to their sampling errors.

    ``scored`` holds the scores of the combination and of each model, (1 + K, n).
    """
    return np.asarray(mcse > _MCSE_SHARE * _sampling_errors(scored))


def monte_carlo_notes(
    names: tuple[str, ...], collapsed: Sequence[Collapsed], mcse: Array, scored: Array
) -> list[Note]:
    """Remark on draws that are too few, too dependent, or outweighed by a handful of others."""
    notes = []
    unknown = np.array([each.n_samples < 4 * len(each.log_influence) for each in collapsed])
    if unknown.any():
        notes.append(
            Note(
                MonteCarloWarning,
                f"Fewer than four draws per chain for {_listed(names, np.flatnonzero(unknown))}: "
                "the Monte Carlo standard errors (mcse) are not known.",
            )
        )
    spread = _sampling_errors(scored)
    noisy = _noisy(mcse, scored)
    if noisy.any():
        # Of a single observation nothing is known about the sampling error.
        worst = int(np.argmax(np.where(noisy, mcse / np.maximum(spread, 1e-300), 0.0)))
        notes.append(
            Note(
                MonteCarloWarning,
                f"Too few effective draws for {_listed(names, np.flatnonzero(noisy))}: the Monte "
                f"Carlo error of the score of {names[worst]!r} is {mcse[worst]:.2g}, where its "
                f"sampling error is {spread[worst]:.2g}. Draw longer chains.",
            )
        )
    carried = np.array([each.n_effective.min() for each in collapsed])
    few = (carried < _FEWEST_CARRYING) & (carried < [each.n_samples / 2 for each in collapsed])
    if few.any():
        worst = int(carried.argmin())
        notes.append(
            Note(
                MonteCarloWarning,
                f"The predictions of {_listed(names, np.flatnonzero(few))} rest on very few draws "
                f"at some observations ({carried[worst]:.1f} in effect for {names[worst]!r}, "
                "where the others give the outcome almost no density). Their scores and mcse "
                "cannot be trusted.",
            )
        )
    return notes


def _sampling_errors(scored: Array) -> Array:
    """Find the standard errors that Monte Carlo errors are compared with, one per model.

    The largest of those of the model's score, of its distance to the combination, and of the
    combination's score: a model that scores the same everywhere has none of its own.
    """
    pooled = scored[0]
    errors = [max(each.std(), (each - pooled).std(), pooled.std()) for each in scored[1:]]
    return np.sqrt(pooled.size) * np.array(errors)


def identifiability_notes(
    names: tuple[str, ...], fitter: Fitter, solution: Solution, mcse: Array, scored: Array
) -> list[Note]:
    """Remark on models that the score cannot tell apart, and on weights that are not unique."""
    relative = convex_relative(fitter)
    if relative is None or not fitter.objective.operator.on_simplex:
        return []
    weights, size = fitter.objective.weights(solution.x), float(solution.scale)
    # What too few draws hide is noted elsewhere; it does not make models alike.
    noise = np.where(_noisy(mcse, scored) | np.isnan(mcse), 0.0, mcse)
    alike = duplicates(relative, weights, noise, size)
    notes = [
        Note(
            IdentifiabilityWarning,
            f"The models {_listed(names, group)} cannot be told apart: their scores, and those of "
            "their pools, differ by less than their Monte Carlo error. Together they have weight "
            f"{weights[list(group)].sum():.3f}; how it is split among them means nothing.",
        )
        for group in alike
    ]
    if relative is not fitter:
        return notes
    return notes + [
        Note(
            IdentifiabilityWarning,
            f"The weights of {_listed(names, group)} are not determined one by one: some shifts "
            "of weight among these models leave the score unchanged within its Monte Carlo "
            "error. Other splits predict as well.",
        )
        for group in collinear(relative, weights, noise, size)
        if not any(set(group) <= set(known) for known in alike)
    ]


def examine_edges(models: Mapping[str, Source], pool: Pool, rule: Rule) -> list[Note]:
    """Look at the combination where supports end; refuse one for which the rule is not proper."""
    likelihoods = [model.likelihood for model in models.values()]
    weights = np.asarray(pool.weights.reshape(pool.K, -1).any(axis=1))
    used = [each for each, w in zip(likelihoods, weights, strict=True) if w]
    places = {edge.at for each in used for edge in each.edges if np.isfinite(edge.at)}
    steep = []
    for at in sorted(places):
        orders = [each.order_at(at) for each in likelihoods]
        pooled = Edge(at, _pooled_order(orders, pool))
        if not rule.bears(pooled):
            raise EdgeError(
                f"The combination does not vanish smoothly at {at:g} (it goes like "
                f"distance^{pooled.order:.3g}, more than 1 is needed): some models end there and "
                "others go on. The Hyvärinen score is not proper there. Use "
                "Hyvarinen(transform='log') or another that ends there, or model a transform of "
                "the outcome in all models."
            )
        own = [Edge(at, order) for order, w in zip(orders, weights, strict=True) if order and w]
        if not all(map(rule.has_variance, [pooled, *own])):
            steep.append(f"{at:g}")
    if not steep:
        return []
    return [
        Note(
            EdgeWarning,
            f"Near {', '.join(steep)} the score has no finite variance, because densities vanish "
            "there only like a low power of the distance. The standard errors of scores and "
            "weights are too small. Hyvarinen(transform='log'), or a model of a transform, has no "
            "such edge.",
        )
    ]


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
    return float(np.where(known, slopes, np.inf).min())


def examine_tails(models: Mapping[str, Source], pool: Pool) -> list[Note]:
    """Refuse a pool that cannot be normalised, where its operator does not rule that out."""
    if pool.operator.always_integrable:
        return []
    unknown = [name for name, model in models.items() if not model.can.evaluate]
    if unknown and not pool.operator.signed:
        return [
            Note(
                SupportWarning,
                f"Model {unknown[0]!r} is known at the observed outcomes only, so it could not be "
                "checked that the pool has a normaliser: with heavy tails and a small sum of "
                "weights it may have none.",
            )
        ]
    if unknown:
        raise UnsupportedError(
            f"Exponents of any sign can make a pool without a normaliser. Model {unknown[0]!r} is "
            "known at the observed outcomes only, so it cannot be checked. Use Hybrid() without "
            "signed, or make the model with from_family or a PPL adapter."
        )
    heavy = heaviest_tail(models, pool)
    if heavy is not None:
        observation, slope = heavy
        place = next(iter(models.values())).observations.describe(observation)
        raise ImproperError(
            f"The combination has no normaliser at {place}: far out its density goes like "
            f"distance^{slope:.3g}, and less than -1 is needed. The score does not notice. Use "
            "weights on the simplex, the default."
        )
    return []


def _listed(names: tuple[str, ...], chosen: Iterable[Any]) -> str:
    return ", ".join(repr(names[k]) for k in chosen)
