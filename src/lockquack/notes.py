"""What a user should know about a result before trusting it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lockquack.collapse import Collapsed
from lockquack.diagnostics import pareto_k_threshold
from lockquack.errors import (
    ConvergenceWarning,
    EdgeError,
    EdgeWarning,
    IdentifiabilityWarning,
    LockquackWarning,
    MonteCarloWarning,
    ParetoWarning,
    QuadratureWarning,
)
from lockquack.fitting.base import Problem
from lockquack.identifiability import collinear, duplicates
from lockquack.jets import Array
from lockquack.observations import Observations
from lockquack.predictive import Predictive
from lockquack.solvers.base import Solution

if TYPE_CHECKING:
    from lockquack.density.pooled import Normalised

#: Share of the sampling error that the Monte Carlo error may reach before it is a concern.
_MCSE_SHARE = 0.25
#: Draws that should at least carry a prediction.
_FEWEST_CARRYING = 20
#: Relative error of a normaliser, and missing mass of a component, that are still harmless.
_QUADRATURE_ERROR = 1e-6


@dataclass(frozen=True)
class Note:
    """A remark, shown in the table of the result and warned of once, when it was made."""

    category: type[LockquackWarning]
    message: str


def convergence_notes(solution: Solution) -> list[Note]:
    """Remark on a solver that did not reach its certificate."""
    if solution.converged:
        return []
    return [
        Note(
            ConvergenceWarning,
            f"The solver stopped early ({solution.status}): the objective may be up to "
            f"{float(solution.gap):.2g} from its optimum, {float(solution.relative_gap):.2g} of "
            "its size.",
        )
    ]


def density_notes(
    models: Mapping[str, Predictive], result: Normalised, observations: Observations
) -> list[Note]:
    """Remark on a normalised density."""
    consequence = "So is the density of the combination there."
    notes = pareto_notes(models, result.pareto_k, observations, consequence)
    wrong = np.maximum(result.relative_error, result.missing.max(axis=0))
    wrong = np.where(np.isfinite(result.logp) & ~np.isnan(wrong), wrong, np.inf)
    bad = int((wrong > _QUADRATURE_ERROR).sum())
    if bad:
        worst = int(wrong.argmax())
        notes.append(
            Note(
                QuadratureWarning,
                f"The normaliser may be wrong at {bad} observation(s): by {wrong[worst]:.1e} of "
                f"its size, or so much of a model's mass was not found, at "
                f"{observations.describe(worst)}.",
            )
        )
    return notes


def pareto_notes(
    models: Mapping[str, Predictive],
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
    """Which models' Monte Carlo errors are unknown, or large next to their sampling errors.

    ``scored`` holds the scores of the combination and of each model, (1 + K, n).
    """
    return np.isnan(mcse) | (mcse > _MCSE_SHARE * _sampling_errors(scored))


def monte_carlo_notes(
    names: tuple[str, ...], collapsed: Sequence[Collapsed], mcse: Array, scored: Array
) -> list[Note]:
    """Remark on draws that are too few, too dependent, or outweighed by a handful of others."""
    notes = []
    unknown = np.isnan(mcse)
    if unknown.any():
        notes.append(
            Note(
                MonteCarloWarning,
                f"Fewer than four draws per chain for {_listed(names, np.flatnonzero(unknown))}: "
                "the Monte Carlo standard errors (mcse) are not known.",
            )
        )
    spread = _sampling_errors(scored)
    noisy = _noisy(mcse, scored) & ~unknown
    if noisy.any():
        worst = int(np.argmax(np.where(noisy, mcse / spread, 0.0)))
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
    errors = [scored[1:].std(axis=1), (scored[1:] - scored[0]).std(axis=1)]
    return np.sqrt(scored.shape[1]) * np.maximum(np.max(errors, axis=0), scored[0].std())


def identifiability_notes(
    names: tuple[str, ...], problem: Problem, solution: Solution, mcse: Array, scored: Array
) -> list[Note]:
    """Remark on models that the score cannot tell apart, and on weights that are not unique."""
    weights, size = solution.x, float(solution.scale)
    # What too few draws hide is noted elsewhere; it does not make models alike.
    noise = np.where(_noisy(mcse, scored), 0.0, mcse)
    alike = duplicates(problem, weights, noise, size)
    notes = [
        Note(
            IdentifiabilityWarning,
            f"The models {_listed(names, group)} cannot be told apart: moving weight between them "
            "changes the score by less than its Monte Carlo error. Together they have weight "
            f"{weights[list(group)].sum():.3f}; how it is split among them means nothing.",
        )
        for group in alike
    ]
    notes += [
        Note(
            IdentifiabilityWarning,
            f"The weights of {_listed(names, group)} are not determined one by one: some shifts "
            "of weight among these models leave the score unchanged within its Monte Carlo "
            "error. Other splits predict as well.",
        )
        for group in collinear(problem, weights, noise, size)
        if not any(set(group) <= set(known) for known in alike)
    ]
    return notes


def examine_edges(models: Mapping[str, Predictive], weights: Array) -> list[Note]:
    """Look at the combination where supports end; refuse one that does not vanish there.

    A log-linear pool vanishes like distance^Σ w e, e the orders of its members and 0 for those
    that go on beyond. The Hyvärinen score is proper if that exceeds 1, and has a variance if
    it exceeds 3.
    """
    likelihoods = [m.likelihood for m, w in zip(models.values(), weights, strict=True) if w > 0]
    used = weights[weights > 0]
    places = {edge.at for each in likelihoods for edge in each.edges if np.isfinite(edge.at)}
    steep = []
    for at in sorted(places):
        orders = [each.order_at(at) for each in likelihoods]
        if None in orders:
            continue  # a model ends before, so the combination does too
        pooled = sum(w * e for w, e in zip(used, orders, strict=True) if e)
        if pooled <= 1:
            raise EdgeError(
                f"The combination does not vanish smoothly at {at:g} (it goes like "
                f"distance^{pooled:.3g}, more than 1 is needed): some models end there and "
                "others go on. The Hyvärinen score is not proper there. Model a transform of the "
                "outcome, such as its log, in all models."
            )
        if min(pooled, *(e for e in orders if e)) <= 3:
            steep.append(f"{at:g}")
    if not steep:
        return []
    return [
        Note(
            EdgeWarning,
            f"Near {', '.join(steep)} the score has no finite variance, because densities vanish "
            "there only like a low power of the distance. The standard errors of scores and "
            "weights are too small. A model of a transform, such as the log, has no such edge.",
        )
    ]


def _listed(names: tuple[str, ...], chosen: Iterable[Any]) -> str:
    return ", ".join(repr(names[k]) for k in chosen)
