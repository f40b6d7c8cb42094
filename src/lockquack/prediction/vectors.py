"""Normalising and sampling pools of vector outcomes, one observation after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from lockquack.jets import Array
from lockquack.models.model import Model, sources_of
from lockquack.models.source import Source
from lockquack.numeric import cut
from lockquack.operators.pool import Pool
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.prediction.pooled import Normalised, observed_densities
from lockquack.prediction.targets import ModelTarget
from lockquack.sampling.samplers import Drawn, Target, normalise_by_sampling, sample

#: Draws behind a normaliser.
_DRAWS = 1000
#: Observations that one thread or worker gets at once.
_OBS_AT_ONCE = 4


@dataclass(frozen=True)
class NormalisedBySampling(Normalised):
    """A normaliser that has a Monte Carlo error, which is its relative error here."""

    importance_k: Array  # (n,): tail index of the weights that it is the mean of


def normalise_by_draws(
    models: Mapping[str, Model],
    pool: Pool,
    *,
    loo: bool,
    rng: np.random.Generator,
    progressbar: bool | None = None,
) -> NormalisedBySampling:
    """Normalise the pool at each observation by importance sampling, and evaluate it there."""
    work = _AtEach(tuple(models), loo, _normalised)
    done = _for_each(work, sources_of(models), pool, rng, "normalisers", progressbar)
    parts = [drawn for drawn, _ in done]
    pareto_k = np.stack([k_hats for _, k_hats in done], axis=1)
    log_norm = np.array([part.log_norm for part in parts])
    logp = observed_densities(models, loo=loo, progressbar=progressbar)
    return NormalisedBySampling(
        pool(logp, np.arange(logp.shape[1])) - log_norm,
        log_norm,
        np.array([part.log_norm_error for part in parts]),
        np.zeros_like(pareto_k),
        pareto_k,
        np.array([part.pareto_k for part in parts]),
    )


def sample_each(
    models: Mapping[str, Source],
    pool: Pool,
    n: int,
    method: str,
    *,
    loo: bool,
    rng: np.random.Generator,
    progressbar: bool | None = None,
) -> Sequence[Drawn]:
    """Draw from the pool at each observation."""
    work = _AtEach(tuple(models), loo, partial(_sampled, n=n, method=method))
    return _for_each(work, models, pool, rng, "sampling", progressbar)


def _normalised(target: ModelTarget, rng: np.random.Generator) -> tuple[Drawn, Array]:
    pareto_k = np.array([member.pareto_k.item() for member in target.members])
    return normalise_by_sampling(target, _DRAWS, rng), pareto_k


def _sampled(target: ModelTarget, rng: np.random.Generator, n: int, method: str) -> Drawn:
    return sample(target, n, method, rng)


@dataclass(frozen=True)
class _AtEach:
    """Work for a group of observations, one after the other."""

    names: tuple[str, ...]
    loo: bool
    work: Callable[[ModelTarget, np.random.Generator], Any]

    def __call__(self, models: Sequence[Source], obs: slice, pool: Pool, seeds: Array) -> list[Any]:
        named = dict(zip(self.names, models, strict=True))
        return [
            self.work(
                ModelTarget(named, pool.at(slice(i, i + 1)), obs.start + i, loo=self.loo),
                np.random.default_rng(seed),
            )
            for i, seed in enumerate(seeds)
        ]


def _for_each(
    work: _AtEach,
    models: Mapping[str, Source],
    pool: Pool,
    rng: np.random.Generator,
    title: str,
    progressbar: bool | None,
) -> list[Any]:
    """Do random work at each observation, with a seed each, wherever it is done."""
    n = next(iter(models.values())).n_obs
    groups = cut(slice(0, n), _OBS_AT_ONCE)
    seeds = rng.integers(2**63, size=n)
    results = []
    with progress_bar(n, title, progressbar) as advance:
        for group in map_observations(
            work,
            tuple(models.values()),
            groups,
            [pool.at(obs) for obs in groups],
            [seeds[obs] for obs in groups],
        ):
            results += group
            advance(len(group))
    return results


def log_densities(models: Mapping[str, Source], pool: Pool, y: Array, *, loo: bool) -> Array:
    """Log densities of the pool, not normalised, at outcomes (point, n, d) → (point, n)."""
    each = []
    for i in range(y.shape[1]):
        target = ModelTarget(models, pool.at(slice(i, i + 1)), i, loo=loo)
        each.append(target.pool(target.log_components(y[:, i])))
    return np.stack(each, axis=1)


def modes(models: Mapping[str, Source], pool: Pool, draws: Array, *, loo: bool) -> Array:
    """Outcomes of the highest density, (n, d), uphill from the highest of draws (draw, n, d)."""
    found = np.empty(draws.shape[1:])
    for i in range(draws.shape[1]):
        target = ModelTarget(models, pool.at(slice(i, i + 1)), i, loo=loo)
        height = target.pool(target.log_components(draws[:, i]))
        unit = draws[:, i].std(axis=0)

        def downhill(z: Array, target: Target = target, unit: Array = unit) -> tuple[float, Array]:
            logp, grad = target.with_gradient((z * unit)[None])
            return -float(logp[0]), -grad[0] * unit

        start = draws[height.argmax(), i] / unit
        found[i] = minimize(downhill, start, jac=True, method="BFGS").x * unit
    return found
