"""From models to sums over their observations, which are all that is held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from lockquack.draws.blocks import Average, BlockGrid, Kind, observation_groups
from lockquack.draws.collapse import Collapsed, collapse_group
from lockquack.errors import NonFiniteError, naming
from lockquack.fitting.densities import Densities
from lockquack.fitting.sums import QuadraticSums
from lockquack.jets import Array, Jet
from lockquack.methods.gather import (
    FARTHEST,
    gather,
    pairs_at,
    passes_for,
    require_distances,
)
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations, agreed
from lockquack.models.passes import require_finite
from lockquack.models.source import Source
from lockquack.operators import Linear
from lockquack.parallel.cluster import compute_in_order
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.quadrature.pairs import pairs_of_numbers
from lockquack.rules import CRPS, Hyvarinen, Rule
from lockquack.rules.scaled import ScaledRule
from lockquack.rules.wishes import DISTANCES
from lockquack.sources.chunked import ChunkedSource, NotFiniteError


@dataclass(frozen=True, eq=False, repr=False)
class Summed:
    """Sums over the observations of some models, and what weights are to be found from them."""

    names: tuple[str, ...]
    rule: ScaledRule
    scores: Kind
    sums: QuadraticSums
    concentration: Array  # (K,)
    random_seed: int = 0


def sum_up(
    models: Mapping[str, Model], rule: Hyvarinen, scores: Kind, progressbar: bool | None = None
) -> QuadraticSums:
    """Add up what locking needs, group by group of observations, wherever that is done.

    Of models that dask holds, it averages and adds up. Where only some are, where what they hold is
    no number, or where draws are averaged in several ways, models are averaged first, as for any
    other fit.
    """
    passes = [passes_for(model, rule) for model in models.values()]
    sources = [each.source for each in passes]
    averages = [Average(each.average_for(scores)) for each in passes]
    apart = any(each.has_parts(scores) for each in passes)
    held = not apart and any(source.dask_draws() is not None for source in sources)
    summed = _sum_chunks(sources, averages, rule) if held else None
    if summed is not None:
        return summed
    if held or apart:
        return sum_averages(models, rule, scores, progressbar)
    grids = [BlockGrid(source.n_chains, source.n_draws, source.n_obs) for source in sources]
    groups = min(map(observation_groups, sources, grids, averages), key=lambda cuts: cuts[0].stop)
    work = partial(_sum_group, tuple(models), averages, grids, rule)
    total: QuadraticSums | None = None
    with progress_bar(sources[0].n_obs, "pass over draws", progressbar) as advance:
        for group, part in zip(groups, map_observations(work, sources, groups), strict=True):
            total = part if total is None else total + part
            advance(group.stop - group.start)
    assert total is not None
    return total


def sum_averages(
    models: Mapping[str, Model], rule: Rule, scores: Kind, progressbar: bool | None = None
) -> QuadraticSums:
    """Average all models, which remember it, and add up."""
    passes = [passes_for(model, rule) for model in models.values()]
    found = [each.predict(scores, density=False, progressbar=progressbar) for each in passes]
    source = passes[0].source
    return sums_of(found, rule, source, slice(0, source.n_obs))


def _sum_chunks(
    sources: Sequence[Source], averages: Sequence[Average], rule: Hyvarinen
) -> QuadraticSums | None:
    """Let dask average and add up: only sums come back. None where that cannot be done."""
    from dask import delayed

    held = [source for source in sources if isinstance(source, ChunkedSource)]
    if len(held) < len(sources):
        return None
    chunks = held[0].arrays["grad"].chunks[2] if held[0].can.differentiate else ()
    cuts = [
        source.delayed_averages(average, chunks)
        for source, average in zip(held, averages, strict=True)
    ]
    groups = [obs for obs, _ in cuts[0]]
    if any([obs for obs, _ in each] != groups for each in cuts):
        return None
    first, parts = sources[0], []
    for obs, each in zip(groups, zip(*cuts, strict=True), strict=True):
        weights = None if first.case_weights is None else first.case_weights[obs]
        outcomes = scored_outcomes(rule, first.observations.values[obs])
        parts.append(delayed(_sums_of)([average for _, average in each], outcomes, weights))
    try:
        total = reduce(add, compute_in_order(parts))
    except NotFiniteError:  # which model it was, its own pass tells
        return None
    return total if np.isfinite(total.first).all() else None


def _sum_group(
    names: Sequence[str],
    averages: Sequence[Average],
    grids: Sequence[BlockGrid],
    rule: Hyvarinen,
    sources: Sequence[Source],
    obs: slice,
) -> QuadraticSums:
    found = []
    for name, source, average, grid in zip(names, sources, averages, grids, strict=True):
        with naming(f"Model {name!r}"):
            found.append(collapse_group((source,), obs, grid, average))
            require_finite(source, found[-1], obs.start)
    return sums_of(found, rule, sources[0], obs)


def sums_of(found: Sequence[Collapsed], rule: Rule, source: Source, obs: slice) -> QuadraticSums:
    """Sum over some observations of which the models' jets are known, in plain coordinates."""
    weights = source.case_weights
    outcomes = scored_outcomes(rule, source.observations.values[obs])
    return _sums_of(found, outcomes, None if weights is None else weights[obs])


def _sums_of(found: Sequence[Collapsed], outcomes: Array, weights: Array | None) -> QuadraticSums:
    jets = [each.jet for each in found]
    stacked = Jet(
        np.empty((len(jets), 0)),
        np.stack([jet.grad for jet in jets]),
        np.stack([jet.curv for jet in jets]),
    )
    return QuadraticSums.of_jets(stacked, outcomes, weights, tuple(each.effect for each in found))


def sum_distances(
    models: Mapping[str, Model], rule: CRPS, scores: Kind, progressbar: bool | None = None
) -> QuadraticSums:
    """Add up what mixtures by CRPS need, in plain units whatever the rule's.

    Group by group of observations, wherever that is done; draws that dask holds stay with it.
    """
    plain, sources = replace(rule, scale=1.0), sources_of(models)
    require_distances(sources, Linear(), plain)
    held = _held_outcomes(sources, scores)
    parts = (
        _sums_of_chunks(sources, held)
        if held
        else _sums_of_groups(sources, plain, scores == "loo", progressbar)
    )
    total = reduce(add, parts)
    if np.isfinite(total.first).all() and np.abs(total.first).max() < FARTHEST:
        return total
    # What is wrong, and with which model, all of them together tell.
    gathered = gather(models, Linear(), plain, scores, progressbar)
    return distances_of(gathered.densities, _observations(sources), 1.0)


def _observations(sources: Mapping[str, Source]) -> Observations:
    return agreed(source.observations for source in sources.values())


def _held_outcomes(sources: Mapping[str, Source], scores: Kind) -> list[Any]:
    """Draws of outcomes that dask holds, of models that need no weights; empty: not of all."""
    held = []
    for source in sources.values():
        drawn = source.outcome_draws
        weighted = source.can.know_density or (scores == "loo" and not source.is_left_out)
        if drawn is None or drawn.chunks is None or weighted:
            return []
        held.append(drawn.data.reshape(source.n_samples, source.n_obs))
    return held


def _sums_of_chunks(sources: Mapping[str, Source], held: Sequence[Any]) -> Iterator[QuadraticSums]:
    """Let dask sort the draws and add up: only sums come back."""
    from dask import delayed

    y, weights = _observations(sources).values, _observations(sources).weights
    ends = np.cumsum(held[0].chunks[1]).tolist()
    work = delayed(partial(_sum_outcomes, tuple(sources)))
    parts = []
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        own = None if weights is None else weights[start:stop]
        parts.append(work([each[:, start:stop] for each in held], y[start:stop], own))
    return compute_in_order(parts)


def _sum_outcomes(
    names: Sequence[str], draws: Sequence[Array], y: Array, weights: Array | None
) -> QuadraticSums:
    for name, each in zip(names, draws, strict=True):
        if not np.isfinite(each).all():
            raise NonFiniteError(f"The predictive draws of model {name!r} are not all finite.")
    numbers = [np.asarray(each, dtype=np.float64) for each in draws]
    matrices = pairs_of_numbers(numbers, [np.ones_like(each) for each in numbers], y[:, 0])
    return QuadraticSums.of_matrices(matrices, y, weights)


def _sums_of_groups(
    sources: Mapping[str, Source], rule: CRPS, loo: bool, progressbar: bool | None
) -> Iterator[QuadraticSums]:
    observations, every = _observations(sources), tuple(sources.values())
    groups, weights = every[0].observation_slices(), observations.weights
    outcomes = [observations.values[obs] for obs in groups]
    counts = [None if weights is None else weights[obs] for obs in groups]
    work = partial(_sum_distances_at, names=tuple(sources), rule=rule, loo=loo)
    with progress_bar(observations.n, "distances", progressbar) as advance:
        for group, part in zip(
            groups, map_observations(work, every, groups, groups, outcomes, counts), strict=True
        ):
            yield part
            advance(group.stop - group.start)


def _sum_distances_at(
    sources: Sequence[Source],
    obs: slice,
    place: slice,
    y: Array,
    weights: Array | None,
    *,
    names: Sequence[str],
    rule: CRPS,
    loo: bool,
) -> QuadraticSums:
    named = dict(zip(names, sources, strict=True))
    matrices = pairs_at(named, obs, rule, loo=loo, random_seed=(0, place.start)).matrix
    return QuadraticSums.of_matrices(matrices, y, weights)


def distances_of(densities: Densities, observations: Observations, unit: float) -> QuadraticSums:
    """Sum distances that were measured in a unit of the outcome."""
    tables = densities.known_for(DISTANCES)
    matrices = unit * np.concatenate([table.matrix for table in tables], axis=-1)
    return QuadraticSums.of_matrices(matrices, observations.values, observations.weights)


def scored_outcomes(rule: Rule, y: Array) -> Array:
    """Bring outcomes to the coordinates that are scored."""
    return y if rule.coordinates is None else rule.coordinates.forward(y)
