"""The combination at so many observations that their nodes do not fit into memory together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from typing_extensions import override

from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.operators.pool import Pool, Pooling
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.prediction.members import are_discrete, require_evaluable
from lockquack.prediction.nodes import lay_nodes
from lockquack.prediction.pooled import PooledDistribution

#: Observations whose nodes are kept: those of more would be hundreds of megabytes.
_KEPT = 2**14


def distribution_of(
    models: Mapping[str, Source],
    pool: Pool,
    *,
    loo: bool,
    progressbar: bool | None = None,
) -> PooledDistribution:
    """Make the pool of the models a distribution; every model must be evaluable anywhere."""
    few = next(iter(models.values())).n_obs <= _KEPT
    same = not loo and not pool.varies
    if few or (same and all(model.can.evaluate_once for model in models.values())):
        return PooledDistribution.of(models, pool, loo=loo, progressbar=progressbar)
    require_evaluable(models, "the combination cannot be normalised")
    return StreamedDistribution(models, pool, loo, (), progressbar=progressbar)


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamedDistribution(PooledDistribution):
    """A pool whose nodes are laid again for every question, group by group of observations.

    Where a dask client is active this is done by its cluster, and answers come back.
    """

    progressbar: bool | None

    @property
    @override
    def n_obs(self) -> int:
        return next(iter(self.models.values())).n_obs

    @property
    @override
    def discrete(self) -> bool:
        return are_discrete(self.models)

    @property
    @override
    def missing(self) -> Array:
        return self._norms_of_all[2 : 2 + len(self.models)]

    @property
    @override
    def pareto_k(self) -> Array:
        return self._norms_of_all[2 + len(self.models) :]

    @property
    @override
    def log_norm(self) -> Array:
        return self._norms_of_all[0]

    @property
    @override
    def relative_error(self) -> Array:
        return self._norms_of_all[1]

    @override
    def log_components(self, y: Array) -> Array:
        return self._ask(lambda group, y: group.log_components(y), y)

    @override
    def cdf(self, y: Array) -> Array:
        return self._ask(lambda group, y: group.cdf(y), y)

    @override
    def quantile(self, p: Array) -> Array:
        p = np.broadcast_to(p[:, None] if p.ndim == 1 else p, (len(p), self.n_obs))
        return self._ask(lambda group, p: group.quantile(p), p)

    @override
    def shortest(self, prob: float) -> Array:
        return self._ask(lambda group: group.shortest(prob))

    @override
    def mode(self) -> Array:
        return self._ask(lambda group: group.mode())

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        mean, var = self._ask(lambda group: np.stack([group.mean(), group.var()]))
        return mean, var

    @cached_property
    def _norms_of_all(self) -> Array:
        return self._ask(
            lambda group: np.vstack(
                [group.log_norm, group.relative_error, group.missing, group.pareto_k]
            )
        )

    def _ask(self, question: Callable[..., Array], *tables: Array) -> Array:
        """Ask the pool of each group, with its columns of tables; join the answers' last axes."""
        answer = partial(_answer, names=tuple(self.models), loo=self.loo, question=question)
        return _by_groups(self.models, self.pool.at, answer, tables, self.progressbar)


def ask_side_by_side(
    models: Mapping[str, Source],
    pools: Sequence[Pooling],
    question: Callable[..., Array],
    *tables: Array,
    loo: bool,
    what: str,
    progressbar: bool | None = None,
) -> Array:
    """Ask several pools of the models on the same nodes, which are not kept.

    Parameters
    ----------
    models
        Evaluable anywhere; ``what`` says what cannot be done if one is not.
    pools
        Functions of the models' log densities, which may be positive wherever a model is.
    question
        Called with the distribution of one pool at some observations and their columns of the
        tables; its answer has the observations last.
    *tables
        Arrays with the observations last, (..., n).
    loo, what, progressbar
        As for :func:`lockquack.prediction.nodes.lay_nodes`.

    Returns
    -------
    ndarray
        The answers, with an axis of pools in front.
    """
    require_evaluable(models, what)
    answer = partial(_answer_each, names=tuple(models), loo=loo, question=question)
    return _by_groups(
        models, lambda obs: [pool.at(obs) for pool in pools], answer, tables, progressbar
    )


def _by_groups(
    models: Mapping[str, Source],
    pools_at: Callable[[slice], Any],
    answer: Callable[..., Array],
    tables: Sequence[Array],
    progressbar: bool | None,
) -> Array:
    """Answer for each group of observations, with its own pools and columns of tables.

    The answers are joined along their last axes.
    """
    each = tuple(models.values())
    groups = each[0].observation_slices()
    columns = [[table[:, obs] for obs in groups] for table in tables]
    answers = []
    with progress_bar(each[0].n_obs, "densities on nodes", progressbar) as advance:
        for part in map_observations(answer, each, groups, [*map(pools_at, groups)], *columns):
            answers.append(part)
            advance(part.shape[-1])
    return np.concatenate(answers, axis=-1)


def _answer(
    models: Sequence[Source],
    obs: slice,
    pool: Pool,
    *columns: Array,
    names: Sequence[str],
    loo: bool,
    question: Callable[..., Array],
) -> Array:
    named = dict(zip(names, models, strict=True))
    group = PooledDistribution.of(named, pool, loo=loo, slices=[obs], progressbar=False)
    return question(group, *columns)


def _answer_each(
    models: Sequence[Source],
    obs: slice,
    pools: Sequence[Pooling],
    *columns: Array,
    names: Sequence[str],
    loo: bool,
    question: Callable[..., Array],
) -> Array:
    named = dict(zip(names, models, strict=True))
    nodes = lay_nodes(named, loo=loo, pools=pools, slices=[obs], of_all=False, progressbar=False)
    groups = [PooledDistribution(named, pool, loo, nodes) for pool in pools]
    return np.stack([question(group, *columns) for group in groups])
