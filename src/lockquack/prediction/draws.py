r"""Empirical distributions of weighted draws.

Draws of the combination itself tell the distributions of the components of vectors. Draws that
came with the models, in ArviZ's ``posterior_predictive``, or that models with a generator make,
tell the distribution function of a mixture,

.. math:: F(y) = \sum_k w_k \sum_s W_{ks}\, 1[\tilde y_{ks} \le y],

with equal :math:`W_{ks}`, or those of Pareto-smoothed importance sampling to leave an observation
out; a draw of the mixture is one of them, chosen with these probabilities. Of other pools they tell
nothing: these depend on the models' densities at the same outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from typing_extensions import override

from lockquack.errors import NonFiniteError, UnsupportedError
from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.operators import Operator
from lockquack.operators.pool import Pool
from lockquack.prediction.members import remedies
from lockquack.prediction.vectors import ModelTarget
from lockquack.quadrature.beta import BetaTransform
from lockquack.quadrature.intervals import HasIntervals
from lockquack.words import STACKING

#: Draws from which one outcome of each is enough, and outcomes that stand for fewer.
FEW_DRAWS, MANY_OUTCOMES = 100, 1000


@dataclass(frozen=True, eq=False)
class WeightedDraws(HasIntervals):
    """The empirical distributions of some columns of draws."""

    draws: Array  # (draw, n), each column in ascending order
    mass: Array  # (draw, n): probability of the draws up to each
    whole: bool

    @classmethod
    def of(
        cls, draws: Array, weights: Array | None = None, *, whole: bool = False
    ) -> WeightedDraws:
        """Sort draws (draw, n); weights, by default equal, need not sum to one."""
        weights = np.ones_like(draws) if weights is None else weights
        order = draws.argsort(axis=0)
        mass = np.take_along_axis(weights, order, axis=0).cumsum(axis=0)
        return cls(np.take_along_axis(draws, order, axis=0), mass / mass[-1], whole)

    @property
    @override
    def discrete(self) -> bool:
        return self.whole

    @override
    def cdf(self, y: Array) -> Array:
        below = np.stack([(self.draws <= point).sum(axis=0) for point in y])
        return np.take_along_axis(np.pad(self.mass, ((1, 0), (0, 0))), below, axis=0)

    @override
    def steps(self, y: Array) -> Array:
        less = np.nextafter(y, -np.inf) if self.whole else y
        below = np.stack([self.cdf(less), self.cdf(y)])
        if not self.whole:  # no outcome lies beyond all draws for sure
            half = 0.5 / (1.0 + 1.0 / np.square(self._weights()).sum(axis=0))
            below = np.clip(below, half, 1.0 - half)
        return np.stack([below, 1.0 - below])

    def recalibrated(self, by: BetaTransform) -> WeightedDraws:
        """Transform the distribution function, which gives the draws other weights."""
        return replace(self, mass=by.cdf(self.mass))

    @override
    def crps(self, y: Array) -> Array:
        weights, mass = self._weights(), self.mass
        apart = (weights * self.draws * (2.0 * mass - weights - 1.0)).sum(axis=0)
        return np.stack([(weights * np.abs(self.draws - each)).sum(axis=0) for each in y]) - apart

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw from each column, (n, column)."""
        places = [np.searchsorted(mass, rng.random(n)) for mass in self.mass.T]
        return np.stack([d[p] for d, p in zip(self.draws.T, places, strict=True)], axis=1)

    @override
    def quantile(self, p: Array) -> Array:
        before = np.stack([(self.mass < each).sum(axis=0) for each in p])
        return np.take_along_axis(self.draws, before, axis=0)

    @override
    def shortest(self, prob: float) -> Array:
        ends = []
        for draws, mass in zip(self.draws.T, self.mass.T, strict=True):
            before = np.concatenate([[0.0], mass[:-1]])
            first = np.flatnonzero(before + prob <= 1.0)
            last = np.searchsorted(mass, before[first] + prob)
            shortest = (draws[last] - draws[first]).argmin()
            ends.append((draws[first[shortest]], draws[last[shortest]]))
        return np.array(ends).T

    @override
    def mean(self) -> Array:
        return (self._weights() * self.draws).sum(axis=0)

    def var(self) -> Array:
        """Variance of each column, (n,)."""
        return (self._weights() * (self.draws - self.mean()) ** 2).sum(axis=0)

    def _weights(self) -> Array:
        return np.diff(self.mass, axis=0, prepend=0.0)


def drawn_mixture(
    models: Mapping[str, Source], pool: Pool, *, loo: bool, rng: np.random.Generator
) -> WeightedDraws:
    """Mix outcomes of the draws of the models, component by component of the outcomes."""
    _require_known(models, pool.operator)
    models = left_out(models) if loo else models
    draws, weights = [], []
    shares = pool.weights.reshape(pool.K, -1)  # (K, 1 or n)
    for (name, model), share in zip(models.items(), shares, strict=True):
        stored = model.outcome_draws is not None
        repeats = 1 if stored else outcomes_per_draw(model)
        if stored:
            outcomes = stored_outcomes(name, model)
        else:
            kind = np.int64 if model.likelihood.discrete else np.float64
            outcomes = generated(model, slice(0, model.n_obs), rng).astype(kind)
        draws.append(outcomes.reshape(model.n_samples * repeats, -1))
        each = _draw_weights(model, loo=loo).reshape(model.n_samples, -1) / repeats
        each = np.repeat(share * each, repeats, axis=0)
        weights.append(np.repeat(each, model.n_components, axis=1))
    whole = all(drawn.dtype.kind in "biu" for drawn in draws)
    return WeightedDraws.of(
        np.concatenate(draws).astype(np.float64), np.concatenate(weights), whole=whole
    )


def sample_mixture(
    models: Mapping[str, Source], pool: Pool, n: int, *, loo: bool, rng: np.random.Generator
) -> Array:
    """Draw from a mixture of models with stored draws or a generator, (n, observation, component).

    Models that can be evaluated may be among them. Whole numbers stay whole.
    """
    _require_known(models, pool.operator, evaluable_too=True)
    shares = pool.weights.reshape(pool.K, -1)  # (K, 1 or n)
    first = next(iter(models.values()))
    models = left_out(models) if loo else models
    members = [_Member.of(name, model, loo=loo) for name, model in models.items()]
    drawn = np.empty((n, first.n_obs, first.n_components))
    for obs in range(first.n_obs):
        share = shares[:, min(obs, shares.shape[1] - 1)]
        counts = rng.multinomial(n, share / share.sum())
        parts = [
            member.draw(obs, count, rng) for member, count in zip(members, counts, strict=True)
        ]
        drawn[:, obs] = rng.permutation(np.concatenate(parts))
    return drawn.astype(np.int64) if all(member.whole for member in members) else drawn


@dataclass(frozen=True)
class _Member:
    """One model of a mixture, of which outcomes are drawn."""

    name: str
    source: Source
    loo: bool
    #: Stored outcomes, (sample, n, d), and the weights of the draws, (sample, n).
    outcomes: Array | None
    weights: Array | None

    @classmethod
    def of(cls, name: str, source: Source, *, loo: bool) -> _Member:
        if source.outcome_draws is None:
            return cls(name, source, loo, None, None)
        size = source.n_samples, source.n_obs
        outcomes = stored_outcomes(name, source).reshape(*size, source.n_components)
        weights = _draw_weights(source, loo=loo).reshape(size)
        return cls(name, source, loo, outcomes, weights)

    @property
    def whole(self) -> bool:
        """Whether its outcomes are whole numbers."""
        if self.outcomes is None:
            return self.source.likelihood.discrete
        return self.outcomes.dtype.kind in "biu"

    def draw(self, obs: int, count: int, rng: np.random.Generator) -> Array:
        """Draw outcomes of one observation, (count, d)."""
        if self.outcomes is None or self.weights is None:
            target = ModelTarget({self.name: self.source}, Pool.of_one(), obs, loo=self.loo)
            return target.draw_component(0, count, rng)
        weights = self.weights[:, obs]
        chosen = rng.choice(len(weights), size=count, p=weights / weights.sum())
        return self.outcomes[chosen, obs]


def _require_known(
    models: Mapping[str, Source], operator: Operator, *, evaluable_too: bool = False
) -> None:
    """Refuse pools other than mixtures, and models of which no outcomes can be drawn.

    Those that can be evaluated may do without, where it is said so.
    """
    unknown = next(name for name, model in models.items() if not model.can.evaluate)
    if not operator.normalised:
        raise UnsupportedError(
            f"Model {unknown!r} {models[unknown].known_where}, so the combination cannot be "
            "normalised. ",
            *remedies(models[unknown]),
            " (Predictive draws tell about mixtures only, such as ",
            STACKING,
            ".)",
        )
    for name, model in models.items():
        has_draws = model.outcome_draws is not None or model.can.draw
        if not (has_draws or (evaluable_too and model.can.evaluate)):
            other = "it" if name == unknown else f"model {name!r}"
            raise UnsupportedError(
                f"Model {unknown!r} {models[unknown].known_where}, and {other} has no predictive "
                "draws. Make all models with from_family or a PPL adapter, or read "
                "all from files with a group posterior_predictive: one outcome for each draw of "
                "the log likelihood."
            )


def outcomes_per_draw(model: Source) -> int:
    """Return how many outcomes stand for each draw: one, unless draws are few.

    A prediction that is known exactly, such as a mean and a standard deviation, is a single draw.
    """
    return 1 if model.n_samples >= FEW_DRAWS else -(-MANY_OUTCOMES // model.n_samples)


def generated(model: Source, obs: slice, rng: np.random.Generator) -> Array:
    """Draw outcomes for each draw and observation, (chain, draw × outcome, n, component)."""
    each = np.repeat(np.arange(model.n_draws), outcomes_per_draw(model))
    drawn = [model.draw_outcomes(chain, each, obs, rng) for chain in range(model.n_chains)]
    return np.stack(drawn)


def stored_outcomes(name: str, model: Source, obs: slice = slice(None)) -> Array:
    """Outcomes that came with the draws of a model, (chain, draw, n, component)."""
    assert model.outcome_draws is not None
    shape = (model.n_chains, model.n_draws, model.n_obs, model.n_components)
    # Of draws that dask holds, those of other observations are not read.
    values = np.asarray(model.outcome_draws.data.reshape(shape)[:, :, obs])
    if not np.isfinite(values).all():
        raise NonFiniteError(f"The predictive draws of model {name!r} are not all finite.")
    return values


def left_out(models: Mapping[str, Source]) -> dict[str, Source]:
    """Return what predicts observations that are left out."""
    return {name: model.left_out() for name, model in models.items()}


def _draw_weights(model: Source, *, loo: bool) -> Array:
    """Weights of the draws at each observation, (chain, draw, n)."""
    if (not loo or model.is_left_out) and model.fixed_weights is None and model.pieces() is None:
        return np.full((model.n_chains, model.n_draws, model.n_obs), 1.0 / model.n_samples)
    find = partial(_weights_of_group, loo=loo)
    return np.concatenate(list(model.map_groups(find, ("logp",))), axis=2)


def _weights_of_group(models: Sequence[Source], obs: slice, *, loo: bool) -> Array:
    log_weights, _ = models[0].draw_weights(obs, loo=loo)
    assert log_weights is not None
    return np.exp(log_weights)
