"""The combination as a distribution, one per observation, wherever its nodes are kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from typing_extensions import override

from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.operators.pool import Pool, Pooling
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.parallel.threads import thread_map
from lockquack.prediction.members import are_discrete, log_components, require_evaluable
from lockquack.prediction.nodes import NodeGroup, counted_from, lay_nodes
from lockquack.prediction.pooled import GroupDistribution, Normalised
from lockquack.prediction.shared import MOST_KEPT
from lockquack.quadrature.intervals import HasIntervals

#: Observations whose nodes are held at once: those of more would be hundreds of megabytes.
_MOST_AT_ONCE = 2**14
#: What is asked of the distributions of a group; its answer has their observations last.
Question = Callable[..., Array]


def distribution_of(
    models: Mapping[str, Source],
    pool: Pool,
    *,
    loo: bool = False,
    slices: Sequence[slice] | None = None,
    progressbar: bool | None = None,
) -> PooledDistribution:
    """Make the pool of the models a distribution; every model must be evaluable anywhere.

    The pool counts observations from the first of the slices, by default all observations.
    """
    n = next(iter(models.values())).n_obs
    same = slices is None and not loo and not pool.varies
    same = same and all(model.can.evaluate_once for model in models.values())
    if slices is None and n > _MOST_AT_ONCE and not same:
        require_evaluable(models, "the combination cannot be normalised")
        return StreamedDistribution(models, pool, loo, progressbar)
    groups = lay_nodes(
        models,
        loo=loo,
        pools=[pool],
        slices=[slice(0, 1)] if same else slices,
        of_all=pool.operator.vanishes_with_any,
        progressbar=progressbar,
    )
    kept = [
        GroupDistribution(
            tuple(models.values()), pool.at(counted_from(groups[0].obs, group.obs)), loo, group
        )
        for group in groups
    ]
    if same:
        return RepeatedDistribution(models, pool, loo, kept[0], n)
    return KeptDistribution(models, pool, loo, kept)


@dataclass(frozen=True, eq=False)
class PooledDistribution(HasIntervals):
    """The pool of some models as a distribution of a scalar outcome, one per observation.

    Arrays in and out have the observations last. Kinds of it differ in how they ask the
    :class:`GroupDistribution` of each group of observations.
    """

    models: Mapping[str, Source]
    pool: Pool
    loo: bool

    @abstractmethod
    def _ask(self, question: Question, *tables: Array) -> Array:
        """Ask every group, with its columns of tables; join the answers' last axes."""

    @property
    @override
    def discrete(self) -> bool:
        return are_discrete(self.models)

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return self._norms.shape[1]

    @cached_property
    def _norms(self) -> Array:
        return self._ask(lambda group: group.norms)

    @property
    def log_norm(self) -> Array:
        """Log integral of the pool, (n,)."""
        return self._norms[0]

    @property
    def relative_error(self) -> Array:
        """Bound on the relative error of the integral, (n,)."""
        return self._norms[1]

    @property
    def missing(self) -> Array:
        """Mass of each model that the nodes do not see, (K, n)."""
        return self._norms[2 : 2 + len(self.models)]

    @property
    def holds_nodes(self) -> bool:
        """Whether questions are answered from nodes that are there, not laid again for each."""
        return True

    @property
    def wrong(self) -> Array:
        """How wrong the quadrature may be, (n,): relative error, or mass of a model it missed."""
        return np.maximum(self.relative_error, self.missing.max(axis=0))

    @property
    def pareto_k(self) -> Array:
        """Pareto k̂ of each model and observation, (K, n); zero unless leave-one-out."""
        return self._norms[2 + len(self.models) :][: len(self.models)]

    def log_components(self, y: Array) -> Array:
        """Log densities of the models at outcomes (point, n) → (K, point, n)."""
        return self._ask(lambda group, y: group.log_components(y), y)

    def logpdf(self, y: Array) -> Array:
        """Log density at outcomes (point, n) → (point, n), by averaging all draws there."""
        with np.errstate(invalid="ignore"):
            logp = self.pool(self.log_components(y), np.arange(self.n_obs)) - self.log_norm
            logp = logp + self.log_factor(y)
        return np.where(np.isnan(logp) & ~np.isnan(y), -np.inf, logp)

    @property
    def observed(self) -> Array:
        """Log density of each model at the observed outcomes, (K, n)."""
        return self._norms[2 + 2 * len(self.models) :]

    def at_observed(self) -> Normalised:
        """Evaluate the pool at the observed outcomes; it is not recalibrated."""
        pooled = self.pool(self.observed, np.arange(self.n_obs)) - self.log_norm
        return Normalised(pooled, self.log_norm, self.relative_error, self.missing, self.pareto_k)

    def log_factor(self, y: Array) -> Array:
        """Log of what recalibration multiplies the density by at outcomes, (point, n)."""
        if self.pool.recalibration is None:
            return np.zeros_like(y)
        return self._ask(lambda group, y: group.log_factor(y), y)

    @override
    def steps(self, y: Array) -> Array:
        return self._ask(lambda group, y: group.steps(y), y)

    @override
    def crps(self, y: Array) -> Array:
        return self._ask(lambda group, y: group.crps(y), y)

    @override
    def cdf(self, y: Array) -> Array:
        return self._ask(lambda group, y: group.cdf(y), y)

    @override
    def quantile(self, p: Array) -> Array:
        if p.ndim == 1:
            return self._ask(lambda group: group.quantile(p))
        return self._ask(lambda group, p: group.quantile(p), p)

    @override
    def shortest(self, prob: float) -> Array:
        return self._ask(lambda group: group.shortest(prob))

    @cached_property
    def _moments(self) -> Array:
        return self._ask(lambda group: group.moments())

    @override
    def mean(self) -> Array:
        # NaN or infinite where the tails are too heavy for one.
        return self._moments[0]

    def var(self) -> Array:
        """Variance at each observation, (n,); infinite where the tails are too heavy for one."""
        return self._moments[1]

    def mode(self) -> Array:
        """Outcome of the highest density, (n,)."""
        return self._ask(lambda group: group.mode())

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw outcomes by inverting the distribution function, (n, observation)."""
        return self.quantile(rng.random((n, self.n_obs)))


@dataclass(frozen=True, eq=False)
class KeptDistribution(PooledDistribution):
    """A pool whose nodes are all kept."""

    groups: Sequence[GroupDistribution]

    @override
    def _ask(self, question: Question, *tables: Array) -> Array:
        def answer(group: GroupDistribution) -> Array:
            columns = self._columns(group)
            return question(group, *(table[:, columns] for table in tables))

        threads = _threads(self.models.values())
        return np.concatenate(list(thread_map(answer, self.groups, threads=threads)), axis=-1)

    @override
    def log_components(self, y: Array) -> Array:
        # New densities, unlike all that is computed from nodes, are worth a cluster.
        evaluate = partial(log_components, loo=self.loo)
        obs = [each.group.obs for each in self.groups]
        columns = [y[:, self._columns(group)] for group in self.groups]
        parts = map_observations(evaluate, tuple(self.models.values()), obs, columns)
        return np.concatenate(list(parts), axis=-1)

    def _columns(self, group: GroupDistribution) -> slice:
        """Which columns of a table of all observations belong to a group of them."""
        return counted_from(self.groups[0].group.obs, group.group.obs)


@dataclass(frozen=True, eq=False)
class RepeatedDistribution(PooledDistribution):
    """A distribution that is the same at all observations, computed for one of them."""

    one: GroupDistribution
    copies: int

    @cached_property
    @override
    def observed(self) -> Array:
        values = next(iter(self.models.values())).observations.values
        return self.log_components(values.T)[:, 0]

    @override
    def _ask(self, question: Question, *tables: Array) -> Array:
        answer = question(self.one, *(table.reshape(-1, 1) for table in tables))
        if not tables:
            return np.repeat(answer, self.copies, axis=-1)
        return answer.reshape(*answer.shape[:-2], *tables[0].shape)


@dataclass(frozen=True, eq=False)
class StreamedDistribution(PooledDistribution):
    """A pool whose nodes are laid again for every question, group by group of observations.

    Where a dask client is active this is done by its cluster, and answers come back.
    """

    progressbar: bool | None

    @property
    @override
    def holds_nodes(self) -> bool:
        return False

    @override
    def _ask(self, question: Question, *tables: Array) -> Array:
        (answer,) = ask_side_by_side(
            self.models,
            [self.pool],
            question,
            *tables,
            loo=self.loo,
            of_all=self.pool.operator.vanishes_with_any,
            progressbar=self.progressbar,
        )
        return answer


def ask_side_by_side(
    models: Mapping[str, Source],
    pools: Sequence[Pooling],
    question: Question,
    *tables: Array,
    loo: bool,
    of_all: bool = False,
    progressbar: bool | None = None,
) -> Array:
    """Ask several pools of the models on the same nodes.

    Those of many observations are not kept. The answers have an axis of pools in front. With
    ``of_all``, the pools are zero where any of the models is.
    """
    every = tuple(models.values())
    if every[0].n_obs <= MOST_KEPT:
        return _ask_kept(models, pools, question, *tables, loo=loo, of_all=of_all)
    answer = partial(_answer, names=tuple(models), loo=loo, question=question, of_all=of_all)
    groups = every[0].observation_slices()
    own = [[pool.at(obs) for pool in pools] for obs in groups]
    columns = [[table[:, obs] for obs in groups] for table in tables]
    answers = []
    with progress_bar(every[0].n_obs, "densities on nodes", progressbar) as advance:
        for part in map_observations(answer, every, groups, own, *columns):
            answers.append(part)
            advance(part.shape[-1])
    return np.concatenate(answers, axis=-1)


def _ask_kept(
    models: Mapping[str, Source],
    pools: Sequence[Pooling],
    question: Question,
    *tables: Array,
    loo: bool,
    of_all: bool,
) -> Array:
    """Ask several pools on nodes that are there already, or are kept for the next."""
    groups = lay_nodes(models, loo=loo, pools=pools, of_all=of_all)
    every = tuple(models.values())

    def answer(group: NodeGroup) -> Array:
        columns = [table[:, group.obs] for table in tables]
        each = [GroupDistribution(every, pool.at(group.obs), loo, group) for pool in pools]
        return np.stack([question(pooled, *columns) for pooled in each])

    return np.concatenate(list(thread_map(answer, groups, threads=_threads(every))), axis=-1)


def _threads(models: Iterable[Source]) -> int | None:
    """Return how many threads may ask models: one, where any cannot be shared."""
    return None if all(model.can.be_shared for model in models) else 1


def _answer(
    models: Sequence[Source],
    obs: slice,
    pools: Sequence[Pooling],
    *columns: Array,
    names: Sequence[str],
    loo: bool,
    question: Question,
    of_all: bool,
) -> Array:
    named = dict(zip(names, models, strict=True))
    (group,) = lay_nodes(
        named, loo=loo, pools=pools, slices=[obs], of_all=of_all, progressbar=False
    )
    each = [GroupDistribution(models, pool, loo, group) for pool in pools]
    return np.stack([question(group, *columns) for group in each])
