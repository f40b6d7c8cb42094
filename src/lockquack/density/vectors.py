"""Normalising and sampling pools of vector outcomes, one observation after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lockquack.density.pooled import Normalised, observed_densities
from lockquack.density.sampling import Drawn, normalise_by_sampling, sample
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
