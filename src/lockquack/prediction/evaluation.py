"""What a pool of models predicts, as arrays; :class:`.Prediction` labels them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.jets import Array
from lockquack.models.model import Model, already_said, sources_of
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.numeric import as_generator
from lockquack.operators.pool import OneModel, Pool
from lockquack.prediction.calibration import Calibrated, intervals_and_cdf
from lockquack.prediction.distances import average_of_quantiles
from lockquack.prediction.distribution import (
    PooledDistribution,
    ask_side_by_side,
    distribution_of,
)
from lockquack.prediction.draws import WeightedDraws, drawn_mixture, sample_mixture
from lockquack.prediction.examine import (
    examine_density,
    examine_draws,
    examine_moment,
    examine_pareto,
    examine_quadrature,
)
from lockquack.prediction.members import require_evaluable
from lockquack.prediction.nodes import are_laid
from lockquack.prediction.pooled import (
    GroupDistribution,
    Normalised,
    evaluate_mixture,
)
from lockquack.prediction.vectors import normalise_by_draws, sample_each
from lockquack.quadrature.intervals import HasIntervals, IntervalKind
from lockquack.remarks import Remark, warn
from lockquack.remarks.densities import Affected
from lockquack.sampling.samplers import Drawn

#: Draws from which the components of vector outcomes are known.
_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A pool of models at some observations; results are cached."""

    models: Mapping[str, Model]
    pool: Pool
    observations: Observations
    loo: bool
    random_seed: int
    progressbar: bool | None

    @property
    def is_scalar(self) -> bool:
        """Whether outcomes are single numbers."""
        return self.observations.d == 1

    @cached_property
    def used(self) -> tuple[Mapping[str, Source], Pool]:
        """Models that have weight, and the pool of them."""
        pool, keep = self.pool.without_unused()
        kept = zip(keep, sources_of(self.models).items(), strict=True)
        return {name: source for use, (name, source) in kept if use}, pool

    @cached_property
    def pooled(self) -> PooledDistribution:
        """The distributions of scalar outcomes; warns once where nodes do not resolve them."""
        self.require_densities()
        pooled = distribution_of(*self.used, loo=self.loo, progressbar=self.progressbar)
        if pooled.holds_nodes:
            self._warn(*examine_quadrature(pooled.wrong, self.observations))
        return pooled

    @cached_property
    def marginals(self) -> PooledDistribution | WeightedDraws:
        """The distributions of outcomes, or of their components."""
        if not self.is_evaluable:
            by = self.pool.recalibration
            return self._mixture if by is None else self._mixture.recalibrated(by)
        return self.pooled if self.is_scalar else WeightedDraws.of(self.draws.reshape(_DRAWS, -1))

    @cached_property
    def _mixture(self) -> WeightedDraws:
        """Draws of the models, mixed, or their quantiles, averaged; not recalibrated."""
        if not self.pool.operator.of_densities:
            return average_of_quantiles(*self.used, loo=self.loo, random_seed=self.random_seed)
        return drawn_mixture(*self.used, loo=self.loo, rng=as_generator(self.random_seed))

    def steps(self, y: Array) -> Array:
        """Probabilities below and above scalar outcomes before recalibration, (2, 2, point, n)."""
        return self.pooled.steps(y) if self.is_evaluable else self._mixture.steps(y)

    @cached_property
    def mean(self) -> Array:
        """Means of outcomes, or of their components; warns once where there are none."""
        return self._examined("mean", self.marginals.mean())

    @cached_property
    def var(self) -> Array:
        """Variances, likewise."""
        return self._examined("variance", self.marginals.var())

    def _examined(self, moment: str, values: Array) -> Array:
        self._warn(*examine_moment(moment, values, self.observations))
        return values

    @cached_property
    def draws(self) -> Array:
        """Draws of vector outcomes, (draw, n, d)."""
        drawn = self.drawn(_DRAWS, "auto", as_generator(self.random_seed))
        return np.stack([each.y for each in drawn], axis=1)

    def drawn(self, n: int, method: str, rng: np.random.Generator) -> Sequence[Drawn]:
        """Draw from the pool at each observation; warn where the draws are unreliable."""
        require_evaluable(self.used[0], "the combination cannot be sampled", vectors=True)
        if self.pool.recalibration is not None:
            raise UnsupportedError(
                "A recalibrated combination is drawn by its distribution function; use "
                f"method='inverse-cdf' or 'auto', not {method!r}."
            )
        drawn = sample_each(
            *self.used, n, method, loo=self.loo, rng=rng, progressbar=self.progressbar
        )
        self._warn(*examine_draws(drawn, self.observations))
        return drawn

    @property
    def is_evaluable(self) -> bool:
        """Whether the density of the pool is known anywhere, as those of models with weight."""
        known = self.pool.operator.of_densities
        return known and all(source.can.evaluate for source in self.used[0].values())

    @property
    def knows_density(self) -> bool:
        """Whether the densities of all models with weight, and the pool's, are known there."""
        known = self.pool.operator.of_densities
        return known and all(source.can.know_density for source in self.used[0].values())

    def mixed(self, n: int, rng: np.random.Generator) -> Array:
        """Draw from a mixture by the draws that its models came with or make, (draw, n, d)."""
        self.warn_of_pareto("draws")
        if self.pool.recalibration is not None or not self.pool.operator.of_densities:
            drawn = cast(WeightedDraws, self.marginals)
            return drawn.sample(n, rng)[..., None].astype(np.int64 if drawn.whole else np.float64)
        return sample_mixture(*self.used, n, loo=self.loo, rng=rng)

    @cached_property
    def normalised(self) -> Normalised:
        """Log densities at the outcomes, and normalisers; warns once where these are bad."""
        result = self._normalise()
        self._warn(*examine_density(self.used[0], result, self.observations))
        return result

    @property
    def known_log_densities(self) -> Array | None:
        """Log densities at the outcomes, (n,), if they were computed or their nodes are laid."""
        if "normalised" in self.__dict__:
            return self.normalised.logp
        sources, pool = self.used
        of_all = pool.operator.vanishes_with_any
        if not (self.is_scalar and self.is_evaluable) or not are_laid(
            sources, loo=self.loo, of_all=of_all
        ):
            return None
        pooled = distribution_of(sources, pool, loo=self.loo, progressbar=False)
        if examine_quadrature(pooled.wrong, self.observations):
            return None
        logp, by = pooled.at_observed().logp, pool.recalibration
        if by is None:
            return logp
        return logp + by.log_mean_density(*pooled.steps(self.observations.values.T))[0]

    def _normalise(self) -> Normalised:
        found, by = self._normalise_pool(), self.pool.recalibration
        if by is None:
            return found
        factor = by.log_mean_density(*self.steps(self.observations.values.T))
        return replace(found, logp=found.logp + factor[0])

    def require_densities(self) -> None:
        """Refuse what would take a density of an average of quantiles."""
        if not self.pool.operator.of_densities:
            raise UnsupportedError(
                "An average of quantiles is known by these, and has no density that would follow "
                "from the models'. Ask for its cdf, quantiles, intervals, moments or draws."
            )

    def _normalise_pool(self) -> Normalised:
        self.require_densities()
        sources, pool = self.used
        models = {name: self.models[name] for name in sources}
        if pool.operator.normalised:
            return evaluate_mixture(models, pool, loo=self.loo, progressbar=self.progressbar)
        if self.is_scalar:
            return self.pooled.at_observed()
        require_evaluable(sources, "the combination cannot be normalised", vectors=True)
        return normalise_by_draws(
            models,
            pool,
            loo=self.loo,
            rng=as_generator(self.random_seed),
            progressbar=self.progressbar,
        )

    @property
    def are_evaluable(self) -> bool:
        """Whether outcomes are single numbers, and densities of all models known anywhere."""
        return all(model.source.has_quadrature for model in self.models.values())

    def calibrated(
        self, pools: Mapping[str, Pool], probs: Sequence[float] = (), kind: IntervalKind = "central"
    ) -> dict[str, Calibrated]:
        """Calibrate pools of the models, and each model, by the outcomes."""
        found = self.ask_each(pools, partial(intervals_and_cdf, probs=probs, kind=kind))
        return {name: Calibrated(each) for name, each in found.items()}

    def steps_of(self, pools: Sequence[Pool], y: Array) -> list[Array]:
        """Probabilities below and above outcomes by several pools, each (2, 2, point, n)."""
        of_densities = all(pool.operator.of_densities for pool in pools)
        if not (self.are_evaluable and of_densities):
            return [replace(self, pool=pool).steps(y) for pool in pools]
        return list(ask_side_by_side(sources_of(self.models), pools, _steps, y, loo=self.loo))

    def ask_each(
        self, pools: Mapping[str, Pool], question: Callable[..., Array], *, models: bool = True
    ) -> dict[str, Array]:
        """Ask pools of the models, and each model, about the outcomes (1, n)."""
        y, sources = self.observations.values.reshape(1, -1), sources_of(self.models)
        names = [*pools, *(sources if models else ())]
        if not self.are_evaluable:
            drawn = self._marginals_of(pools)
            return {name: question(drawn[name], y) for name in names}
        averages = {n: pool for n, pool in pools.items() if not pool.operator.of_densities}
        if averages:
            drawn = self._marginals_of(averages)
            known = {name: question(drawn[name], y) for name in averages}
            others = {name: pool for name, pool in pools.items() if name not in averages}
            known |= self.ask_each(others, question, models=models) if others or models else {}
            return {name: known[name] for name in names}
        answers = ask_side_by_side(
            sources,
            [*pools.values(), *map(OneModel, range(len(sources) if models else 0))],
            partial(_with_error, question=question),
            y,
            loo=self.loo,
            progressbar=self.progressbar,
        )
        self._warn(*examine_quadrature(answers[:, -1].max(axis=0), self.observations))
        return {name: each[:-1] for name, each in zip(names, answers, strict=True)}

    def _marginals_of(self, pools: Mapping[str, Pool]) -> dict[str, HasIntervals]:
        combined = [self if p is self.pool else replace(self, pool=p) for p in pools.values()]
        one = Pool.of_one()
        single = [replace(self, models={name: m}, pool=one) for name, m in self.models.items()]
        names = [*pools, *self.models]
        return {n: each.marginals for n, each in zip(names, [*combined, *single], strict=True)}

    def warn_of_pareto(self, affected: Affected) -> None:
        """Warn of models whose leave-one-out predictions are unreliable."""
        if self.loo:
            pareto_k = [model.loo().pareto_k for model in self.models.values()]
            sources = sources_of(self.models)
            self._warn(*examine_pareto(sources, pareto_k, self.observations, affected))

    def _warn(self, *remarks: Remark) -> None:
        warn(*remarks, already_said=already_said(self.models))


def _with_error(group: GroupDistribution, y: Array, *, question: Callable[..., Array]) -> Array:
    """Answer a question, and say below it how wrong the quadrature behind it may be."""
    return np.concatenate([question(group, y), group.wrong[None]])


def _steps(group: GroupDistribution, y: Array) -> Array:
    return group.steps(y)
