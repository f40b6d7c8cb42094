"""Distances of the models' predictions to the outcomes and to each other.

For CRPS and energy score: from densities where these are known everywhere, from predictive draws,
stored or generated, where they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lockquack.errors import UnsupportedError, naming
from lockquack.jets import Array
from lockquack.models.observations import agreed
from lockquack.models.source import Source
from lockquack.operators.pool import OneModel, Pool
from lockquack.parallel.progress import progress_bar
from lockquack.prediction.distribution import PooledDistribution, distribution_of
from lockquack.prediction.draws import (
    FEW_DRAWS,
    MANY_OUTCOMES,
    WeightedDraws,
    generated,
    left_out,
    outcomes_per_draw,
    stored_outcomes,
)
from lockquack.prediction.members import LaterComponents
from lockquack.prediction.nodes import NodeGroup, general_pools
from lockquack.quadrature.curves import (
    Curves,
    broken_at,
    curves_on_outcomes,
    curves_on_panels,
    within,
)
from lockquack.quadrature.grid import Components, Grid
from lockquack.quadrature.levels import COUNT, levels_of
from lockquack.quadrature.pairs import Pairs, pairs_of_numbers, pairs_of_vectors

#: Most draws of a model whose distances to all others are taken, for vector outcomes.
_MOST_VECTORS = 1000

#: How many times as many levels a prediction of averaged quantiles has as its fit: an odd number,
#: so that those of the fit are among them.
_FINER = 11


def curves_of(
    models: Mapping[str, Source], groups: Sequence[NodeGroup], unit: float, *, loo: bool
) -> list[Curves]:
    """Evaluate the models on panels that end at the outcomes, with the help of nodes."""
    every = tuple(models.values())
    y = every[0].observations.values[:, 0]
    return [_curves(every, group, y[group.obs], unit, loo=loo) for group in groups]


def _curves(
    models: Sequence[Source], group: NodeGroup, y: Array, unit: float, *, loo: bool
) -> Curves:
    if group.grid is None:
        assert group.outcomes is not None
        return curves_on_outcomes(group.nodes.logp, group.outcomes, y, unit)
    evaluate = LaterComponents(models, group.obs, loo)
    return curves_on_panels(_broken(group, evaluate, y, len(models)), y, unit)


def _broken(group: NodeGroup, evaluate: Components, y: Array, K: int) -> Grid:
    """Lay panels of which each outcome is an end; between smooth nodes densities are known."""
    grid = group.grid
    assert grid is not None
    if isinstance(grid, Grid):  # it knows of modes that new panels might miss
        return grid.cut_at(evaluate, y).refined(evaluate, *general_pools(K))
    smooth = group.smooth(evaluate, *map(OneModel, range(K)))
    if smooth is None:
        line = broken_at(grid.line, y)
        return Grid.lay(evaluate, line).refined(evaluate, *general_pools(K))
    known = within(smooth.interpolate, *smooth.ends())
    return Grid.lay(known, broken_at(smooth.panel_line(), y), tails=False)


@dataclass(frozen=True)
class _Drawn:
    """Outcomes that a model draws at some observations, and their weights."""

    outcomes: Array  # (sample, n, d)
    weights: Array  # (sample, n), not normalised
    pareto_k: Array  # (n,)


def distances_of_draws(
    models: Mapping[str, Source],
    unit: Array,
    *,
    loo: bool,
    random_seed: int,
    progressbar: bool | None = None,
) -> tuple[list[Pairs], Array]:
    """Take distances of all draws, by groups of observations; also Pareto k̂, (K, n).

    Where outcomes are drawn, all models use the same random numbers: neither their order nor a
    model that is given twice means anything.
    """
    require_draws(models)
    first = next(iter(models.values()))
    found, pareto_k = [], []
    with progress_bar(first.n_obs, "distances of draws", progressbar) as advance:
        for obs in first.observation_slices():
            pairs, each = distances_at(
                models, obs, unit, loo=loo, random_seed=(random_seed, obs.start)
            )
            found.append(pairs)
            pareto_k.append(each)
            advance(obs.stop - obs.start)
    return found, np.concatenate(pareto_k, axis=1)


def distances_at(
    models: Mapping[str, Source],
    obs: slice,
    unit: Array,
    *,
    loo: bool,
    random_seed: tuple[int, int],
) -> tuple[Pairs, Array]:
    """Take distances of all draws at some observations; also Pareto k̂, (K, n)."""
    drawn = []
    for name, model in models.items():
        source = model.left_out() if loo else model
        with naming(f"Model {name!r}"):
            drawn.append(draw_from(name, source, obs, loo, np.random.default_rng(random_seed)))
    observations = agreed(model.observations for model in models.values())
    y = observations.values[obs] / unit
    return Pairs(_distances(drawn, y, unit)), np.stack([each.pareto_k for each in drawn])


def quantiles_of(
    models: Mapping[str, Source], levels: Array, *, loo: bool, random_seed: int
) -> tuple[Array, Array]:
    """Quantiles of the models' predictions of single numbers, (K, level, n); Pareto k̂, (K, n)."""
    require_draws(models)
    models = left_out(models) if loo else models
    found = np.stack([_all_levels(*each, levels, loo, random_seed) for each in models.items()])
    return found[:, :-1], found[:, -1]


def average_of_quantiles(
    models: Mapping[str, Source], pool: Pool, *, loo: bool, random_seed: int
) -> WeightedDraws:
    """Average the models' quantiles at equal steps of probability, with the weights of a pool."""
    quantiles, _ = quantiles_of(models, levels_of(_FINER * COUNT), loo=loo, random_seed=random_seed)
    weights = pool.weights.reshape(pool.K, 1, -1)  # (K, 1, 1 or n)
    return WeightedDraws.of((weights * quantiles).sum(axis=0))


def _all_levels(name: str, model: Source, levels: Array, loo: bool, random_seed: int) -> Array:
    rng = np.random.default_rng(random_seed)
    slices = model.observation_slices()
    return np.concatenate([_levels(name, model, obs, levels, loo, rng) for obs in slices], axis=1)


def _levels(
    name: str, model: Source, obs: slice, levels: Array, loo: bool, rng: np.random.Generator
) -> Array:
    """Quantiles and, below them, Pareto k̂, (level + 1, n)."""
    if model.can.evaluate:
        found = alone(model, obs, loo)
        return np.concatenate([found.quantile(levels), found.pareto_k])
    with naming(f"Model {name!r}"):
        drawn = draw_from(name, model, obs, loo, rng)
    sorted_ = WeightedDraws.of(drawn.outcomes[..., 0], drawn.weights)
    return np.concatenate([sorted_.quantile(levels), drawn.pareto_k[None]])


def _distances(drawn: Sequence[_Drawn], y: Array, unit: Array) -> Array:
    weights = [each.weights for each in drawn]
    if y.shape[1] == 1:
        numbers = [each.outcomes[..., 0] / unit for each in drawn]
        return pairs_of_numbers(numbers, weights, y[:, 0])
    some = [slice(None, None, -(-len(each.weights) // _MOST_VECTORS)) for each in drawn]
    vectors = [each.outcomes[rows] / unit for each, rows in zip(drawn, some, strict=True)]
    thinned = [each[rows] for each, rows in zip(weights, some, strict=True)]
    return pairs_of_vectors(vectors, thinned, y)


def draw_from(name: str, model: Source, obs: slice, loo: bool, rng: np.random.Generator) -> _Drawn:
    """Take a model's stored outcomes, or draw one for each of its draws, or more if these are few.

    Quantiles take the place of outcomes that cannot be drawn, and of those of few draws.
    """
    stored = model.outcome_draws is not None
    if not stored and takes_quantiles(model):
        return _quantiles(model, obs, loo)
    repeats = 1 if stored else outcomes_per_draw(model)
    found = stored_outcomes(name, model, obs) if stored else generated(model, obs, rng)
    n = obs.stop - obs.start
    outcomes = found.reshape(-1, n, model.n_components).astype(np.float64)
    logs, pareto_k = model.draw_weights(obs, loo=loo)
    weights = np.ones((model.n_samples, n)) if logs is None else np.exp(logs).reshape(-1, n)
    weights = np.repeat(weights, repeats, axis=0)
    # What corresponds to no outcome is as if it had not been drawn.
    missing = np.asarray(np.isnan(outcomes).any(axis=2))
    return _Drawn(
        np.where(missing[..., None], 0.0, outcomes), np.where(missing, 0.0, weights), pareto_k
    )


def takes_quantiles(model: Source) -> bool:
    """Whether quantiles of a density take the place of outcomes that nobody has drawn."""
    few = model.n_samples < FEW_DRAWS and model.can.evaluate and model.n_components == 1
    return few or not model.can.draw


def _quantiles(model: Source, obs: slice, loo: bool) -> _Drawn:
    """Take quantiles of a density at equal steps of probability."""
    found = alone(model, obs, loo)
    count = model.n_samples if model.n_samples >= FEW_DRAWS else MANY_OUTCOMES
    levels = (np.arange(count) + 0.5) / count
    outcomes = found.quantile(levels)[..., None]
    return _Drawn(outcomes, np.ones(outcomes.shape[:2]), found.pareto_k[0])


def alone(model: Source, obs: slice, loo: bool) -> PooledDistribution:
    """Return a model's own prediction of some observations as a distribution."""
    return distribution_of({"": model}, Pool.of_one(), loo=loo, slices=[obs], progressbar=False)


def require_draws(models: Mapping[str, Source]) -> None:
    """Refuse models without draws of outcomes, or a density that could take their place."""
    for name, model in models.items():
        if not (model.outcome_draws is not None or model.can.draw or model.has_quadrature):
            raise UnsupportedError(
                f"Model {name!r} {model.known_where} and has no predictive draws, so its distance "
                "to the outcomes is not known. Make it with from_family or a PPL adapter, read it "
                "from a file with a group posterior_predictive (one outcome for each draw of the "
                "log likelihood), or give its draws to lq.from_draws."
            )
