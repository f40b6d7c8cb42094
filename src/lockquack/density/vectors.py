"""Normalising and sampling pools of vector outcomes, one observation after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from lockquack.density.pooled import Normalised, observed_densities
from lockquack.density.sampling import Drawn, Target, normalise_by_sampling, sample
from lockquack.density.targets import ModelTarget
from lockquack.jets import Array
from lockquack.operators import Operator
from lockquack.predictive import Predictive
from lockquack.progress import progress_bar

#: Draws behind a normaliser.
_DRAWS = 1000


@dataclass(frozen=True)
class NormalisedBySampling(Normalised):
    """A normaliser that has a Monte Carlo error, which is its relative error here."""

    importance_k: Array  # (n,): tail index of the weights that it is the mean of


def normalise_by_draws(
    models: Mapping[str, Predictive],
    operator: Operator,
    x: Array,
    *,
    loo: bool,
    rng: np.random.Generator,
    progressbar: bool | None = None,
) -> NormalisedBySampling:
    """Normalise the pool at each observation by importance sampling, and evaluate it there."""
    n = next(iter(models.values())).n_obs
    parts: list[Drawn] = []
    pareto_k = np.zeros((len(models), n))
    with progress_bar(n, "normalisers", progressbar) as advance:
        for i in range(n):
            target = ModelTarget(models, operator, x, i, loo=loo)
            pareto_k[:, i] = [member.pareto_k.item() for member in target.members]
            parts.append(normalise_by_sampling(target, _DRAWS, rng))
            advance(1)
    log_norm = np.array([part.log_norm for part in parts])
    logp = observed_densities(models, loo=loo, progressbar=progressbar)
    return NormalisedBySampling(
        operator.pool_density(logp, x) - log_norm,
        log_norm,
        np.array([part.log_norm_error for part in parts]),
        np.zeros_like(pareto_k),
        pareto_k,
        np.array([part.pareto_k for part in parts]),
    )


def sample_each(
    models: Mapping[str, Predictive],
    operator: Operator,
    x: Array,
    n: int,
    method: str,
    *,
    loo: bool,
    rng: np.random.Generator,
    progressbar: bool | None = None,
) -> Sequence[Drawn]:
    """Draw from the pool at each observation."""
    n_obs = next(iter(models.values())).n_obs
    drawn = []
    with progress_bar(n_obs, "sampling", progressbar) as advance:
        for i in range(n_obs):
            drawn.append(sample(ModelTarget(models, operator, x, i, loo=loo), n, method, rng))
            advance(1)
    return drawn


def log_densities(
    models: Mapping[str, Predictive], operator: Operator, x: Array, y: Array, *, loo: bool
) -> Array:
    """Log densities of the pool, not normalised, at outcomes (point, n, d) → (point, n)."""
    each = []
    for i in range(y.shape[1]):
        target = ModelTarget(models, operator, x, i, loo=loo)
        each.append(target.pool(target.log_components(y[:, i])))
    return np.stack(each, axis=1)


def modes(
    models: Mapping[str, Predictive], operator: Operator, x: Array, draws: Array, *, loo: bool
) -> Array:
    """Outcomes of the highest density, (n, d), uphill from the highest of draws (draw, n, d)."""
    found = np.empty(draws.shape[1:])
    for i in range(draws.shape[1]):
        target = ModelTarget(models, operator, x, i, loo=loo)
        height = target.pool(target.log_components(draws[:, i]))
        unit = draws[:, i].std(axis=0)

        def downhill(z: Array, target: Target = target, unit: Array = unit) -> tuple[float, Array]:
            logp, grad = target.with_gradient((z * unit)[None])
            return -float(logp[0]), -grad[0] * unit

        start = draws[height.argmax(), i] / unit
        found[i] = minimize(downhill, start, jac=True, method="BFGS").x * unit
    return found
