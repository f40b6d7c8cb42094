"""What a user should know about a result before trusting it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lockquack.diagnostics import pareto_k_threshold
from lockquack.errors import (
    ConvergenceWarning,
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
#: Relative error of a normaliser, and missing mass of a component, that are still harmless.
_QUADRATURE_ERROR = 1e-6


@dataclass(frozen=True)
class Note:
    """A remark, shown in the table of the result and warned of once, when it was made."""

    category: type[LockquackWarning]
    message: str


def fit_notes(
    names: tuple[str, ...], problem: Problem, solution: Solution, mcse: Array, scored: Array
) -> list[Note]:
    """Remark on a fit, given the scores of the combination and of each model, (1 + K, n)."""
    trusted, notes = _monte_carlo(names, mcse, scored)
    return [
        *_convergence(solution),
        *notes,
        *_identifiability(names, problem, solution, trusted),
    ]


def density_notes(
    models: Mapping[str, Predictive], result: Normalised, observations: Observations
) -> list[Note]:
    """Remark on a normalised density."""
    notes = []
    for (name, model), pareto_k in zip(models.items(), result.pareto_k, strict=True):
        limit = pareto_k_threshold(model.n_samples)
        bad = int((pareto_k > limit).sum())
        if bad:
            worst = int(pareto_k.argmax())
            notes.append(
                Note(
                    ParetoWarning,
                    f"Leave-one-out densities of model {name!r} are unreliable at {bad} "
                    f"observation(s): Pareto k̂ above {limit:.2f}, worst {pareto_k[worst]:.2f} at "
                    f"{observations.describe(worst)}. The weights do not depend on them.",
                )
            )
    wrong = np.maximum(result.relative_error, result.missing.max(axis=0))
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


def _convergence(solution: Solution) -> list[Note]:
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


def _monte_carlo(names: tuple[str, ...], mcse: Array, scored: Array) -> tuple[Array, list[Note]]:
    """Compare Monte Carlo with sampling errors; return the former where they can be trusted."""
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
    n = scored.shape[1]
    behind = scored[1:] - scored[0]
    spread = np.sqrt(n) * np.max([scored[1:].std(axis=1), behind.std(axis=1)], axis=0)
    spread = np.maximum(spread, np.sqrt(n) * scored[0].std())
    noisy = mcse > _MCSE_SHARE * spread
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
    # What too few draws hide is said here; it does not make models alike.
    return np.where(noisy | unknown, 0.0, mcse), notes


def _identifiability(
    names: tuple[str, ...], problem: Problem, solution: Solution, mcse: Array
) -> list[Note]:
    weights, size = solution.x, float(solution.scale)
    alike = duplicates(problem, weights, mcse, size)
    notes = [
        Note(
            IdentifiabilityWarning,
            f"The models {_listed(names, group)} cannot be told apart: moving weight between them "
            "changes the score by less than its Monte Carlo error. Together they have weight "
            f"{weights[list(group)].sum():.3f}; how it is split among them means nothing.",
        )
        for group in alike
    ]
    found = {frozenset(group) for group in alike}
    notes += [
        Note(
            IdentifiabilityWarning,
            f"The weights of {_listed(names, group)} are not determined one by one: some shifts "
            "of weight among these models leave the score unchanged within its Monte Carlo "
            "error. Other splits predict as well.",
        )
        for group in collinear(problem, weights, mcse, size)
        if not any(set(group) <= known for known in found)
    ]
    return notes


def _listed(names: tuple[str, ...], chosen: Iterable[Any]) -> str:
    return ", ".join(repr(names[k]) for k in chosen)
