"""Sampling pools, and normalising those of vector outcomes, one observation after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize
from typing_extensions import override

from lockquack.errors import UnsupportedError
from lockquack.jets import Array, stack_jets
from lockquack.models.model import Model, sources_of
from lockquack.models.source import Source
from lockquack.numeric import cut
from lockquack.operators.pool import Pool
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.prediction.distribution import PooledDistribution, distribution_of
from lockquack.prediction.members import PredictiveDensity
from lockquack.prediction.pooled import Normalised, observed_densities
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

    def work(target: ModelTarget, rng: np.random.Generator) -> tuple[Drawn, Array]:
        pareto_k = np.array([member.pareto_k.item() for member in target.members])
        return normalise_by_sampling(target, _DRAWS, rng), pareto_k

    done = _for_each(work, sources_of(models), pool, loo, rng, "normalisers", progressbar)
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

    def work(target: ModelTarget, rng: np.random.Generator) -> Drawn:
        return sample(target, n, method, rng)

    return _for_each(work, models, pool, loo, rng, "sampling", progressbar)


def _for_each(
    work: Callable[[ModelTarget, np.random.Generator], Any],
    models: Mapping[str, Source],
    pool: Pool,
    loo: bool,
    rng: np.random.Generator,
    title: str,
    progressbar: bool | None,
) -> list[Any]:
    """Do random work at each observation, each with a seed of its own."""
    names = tuple(models)

    def work_on_group(models: Sequence[Source], obs: slice, pool: Pool, seeds: Array) -> list[Any]:
        named = dict(zip(names, models, strict=True))
        return [
            work(
                ModelTarget(named, pool.at(slice(i, i + 1)), obs.start + i, loo=loo),
                np.random.default_rng(seed),
            )
            for i, seed in enumerate(seeds)
        ]

    n = next(iter(models.values())).n_obs
    groups = cut(slice(0, n), _OBS_AT_ONCE)
    seeds = rng.integers(2**63, size=n)
    results = []
    with progress_bar(n, title, progressbar) as advance:
        for group in map_observations(
            work_on_group,
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


class ModelTarget(Target):
    """A pool of models at one observation; the pool given is of this observation alone."""

    def __init__(
        self,
        models: Mapping[str, Source],
        pool: Pool,
        observation: int,
        *,
        loo: bool,
    ) -> None:
        self.models, self.own, self.loo = models, pool, loo
        self.obs = slice(observation, observation + 1)
        self.members = [PredictiveDensity.of(model, self.obs, loo) for model in models.values()]
        self.d = self.members[0].source.observations.d
        self.weights = np.abs(pool.weights).reshape(pool.K)
        above = pool.mixture_above
        self.envelope = None if above is None else above.reshape(pool.K)
        self.narrow = pool.operator.vanishes_with_any
        self.is_mixture = pool.operator.normalised

    @override
    def log_components(self, y: Array) -> Array:
        row = np.zeros(1, dtype=np.intp)
        return np.stack([member.logpdf_at(y[:, None], row)[:, 0] for member in self.members])

    @override
    def pool(self, log_components: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return self.own(log_components, np.zeros(log_components.shape[-1], dtype=np.intp))

    @override
    def with_gradient(self, y: Array) -> tuple[Array, Array]:
        jets = stack_jets([member.jet_at(y, 0) for member in self.members])
        pooled = self.own.jet(jets, np.zeros(len(y), dtype=np.intp))
        return pooled.logp, pooled.grad

    def draw_component(self, k: int, n: int, rng: np.random.Generator) -> Array:
        """Draw from a model, (n, d); of a scalar outcome by inversion where it has no generator."""
        member = self.members[k]
        if member.source.can.draw:
            return member.draw(n, 0, rng)
        if self.d > 1:
            raise UnsupportedError(
                f"Model {list(self.models)[k]!r} ({member.source.likelihood.description}) has "
                f"outcomes of {self.d} components and no generator of random outcomes, so its "
                "combinations cannot be sampled. Make it with from_family, or give from_jax "
                "sample=."
            )
        return self._inverse[k].sample(n, rng)

    @cached_property
    def _inverse(self) -> list[PooledDistribution]:
        return [
            distribution_of({name: model}, Pool.of_one(), loo=self.loo, slices=[self.obs])
            for name, model in self.models.items()
        ]
