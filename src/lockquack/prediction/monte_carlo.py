r"""Monte Carlo errors of CRPS and energy score, from chains of draws.

To first order, a draw s with weight :math:`W_{is}` of S draws changes the total score by the mean
over draws of

.. math:: S \sum_i W_{is} \bigl(h_{is} - \bar h_i\bigr), \qquad
    h_{is} = E|X - y_i| - E|X - X'|, \quad X \sim f(\cdot \mid \theta_s), \; X' \sim F_i,

a series along the chains whose Monte Carlo error ArviZ estimates. Of draws of outcomes X is that
outcome. Of densities the means over X are sums over quantiles of :math:`F_i`, each as often as the
draw's density there has it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockquack.draws.diagnostics import mcse_mean
from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.numeric import cut
from lockquack.prediction.distances import alone, draw_from, takes_quantiles
from lockquack.quadrature.levels import COUNT, levels_of
from lockquack.quadrature.pairs import apart_from_numbers, apart_from_vectors

#: Densities that are evaluated for the error of a model, and the fewest quantiles of an observation
#: at which they are.
_DENSITIES, _FEWEST = 2e7, 16
#: Densities that are held at once.
_AT_ONCE = 2e6


def errors_of_distances(
    models: Mapping[str, Source], unit: Array, *, loo: bool, random_seed: int, by_draws: bool
) -> Array:
    """Monte Carlo standard errors of the models' total scores, (K,); NaN where there are none.

    They are unknown of predictions that did not come from chains: ensembles and quantile
    forecasts, and models put together from several fits.
    """
    found = []
    for name, model in models.items():
        source = model.left_out() if loo else model
        if source.is_exact:
            found.append(0.0)
        elif source.pieces() is not None or not source.is_sample:
            found.append(np.nan)
        elif source.can.evaluate and not by_draws:
            found.append(_error_of_density(source, unit, loo))
        else:
            found.append(_error_of_draws(name, source, unit, loo, random_seed))
    return np.array(found)


def _error_of_draws(name: str, model: Source, unit: Array, loo: bool, random_seed: int) -> float:
    if model.outcome_draws is None and takes_quantiles(model):
        return _error_of_density(model, unit, loo) if model.can.evaluate else float("nan")
    rng, y, counts = np.random.default_rng(random_seed), model.observations.values, _counts(model)
    series = np.zeros(model.n_samples)
    for obs in model.observation_slices():
        drawn = draw_from(name, model, obs, loo, rng)
        outcomes, at = drawn.outcomes / unit, y[obs] / unit
        mass = drawn.weights / drawn.weights.sum(axis=0)
        if y.shape[1] == 1:
            h = np.abs(outcomes[..., 0] - at[:, 0]) - apart_from_numbers(outcomes[..., 0], mass)
        else:
            h = np.linalg.norm(outcomes - at, axis=2) - apart_from_vectors(outcomes, mass)
        changes = _changes(h, mass) @ counts[obs]
        series += changes.reshape(model.n_samples, -1).mean(axis=1)
    return mcse_mean(series.reshape(model.n_chains, model.n_draws))


def _error_of_density(model: Source, unit: Array, loo: bool) -> float:
    n, counts = model.n_obs, _counts(model)
    # Slopes of a calibrated model nearly cancel over the observations: all of them are needed.
    levels = int(np.clip(_DENSITIES / (model.n_samples * n), _FEWEST, COUNT))
    series = np.zeros(model.n_samples)
    for obs in cut(slice(0, n), max(1, int(_AT_ONCE / (levels * model.n_samples)))):
        series += _changes_at(model, obs, levels_of(levels), unit, loo) @ counts[obs]
    return mcse_mean(series.reshape(model.n_chains, model.n_draws))


def _changes_at(model: Source, obs: slice, levels: Array, unit: Array, loo: bool) -> Array:
    """Effect of each draw on the scores of some observations, (sample, n)."""
    predicted = alone(model, obs, loo)
    quantiles = predicted.quantile(levels)  # (level, n)
    y, scaled = model.observations.values[obs, 0] / unit, quantiles / unit
    h = np.abs(scaled - y) - apart_from_numbers(scaled, np.full(scaled.shape, 1.0 / levels.size))
    every, points = slice(0, model.n_draws), quantiles[..., None]
    logs = [model.logp_at(points, chain, every, obs) for chain in range(model.n_chains)]
    density = predicted.logpdf(quantiles)[:, None]
    ratio = np.exp(np.concatenate(logs, axis=1) - density)  # (level, sample, n)
    own = np.einsum("lsn,ln->sn", ratio, h) / np.maximum(ratio.sum(axis=0), 1e-300)
    found, _ = model.draw_weights(obs, loo=loo)
    weights = np.ones(own.shape) if found is None else np.exp(found).reshape(own.shape)
    return _changes(own, weights / weights.sum(axis=0))


def _changes(h: Array, mass: Array) -> Array:
    """Effect of each draw on a weighted mean of h, (sample, n)."""
    return len(h) * mass * (h - (mass * h).sum(axis=0))


def _counts(model: Source) -> Array:
    return np.ones(model.n_obs) if model.case_weights is None else model.case_weights
