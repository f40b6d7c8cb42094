"""ArviZ's diagnostics on plain arrays of shape (chain, draw, ...).

ArviZ is imported when one of these is called: importing it takes seconds.
"""

from __future__ import annotations

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.jets import Array, log_sum_exp

_FEWEST_FOR_PSIS = 25


def mcse_mean(series: Array) -> float:
    """Monte Carlo standard error of the mean of a (chain, draw) series; NaN below four draws."""
    if series.shape[1] < 4:
        return float("nan")
    if np.ptp(series) == 0:
        return 0.0
    from arviz_stats.base import array_stats

    return float(array_stats.mcse(series, chain_axis=0, draw_axis=1, method="mean"))


def ess_mean(draws: Array) -> Array:
    """Effective sample size for the mean of each quantity in (chain, draw, quantity)."""
    if draws.shape[1] < 4:
        return np.full(draws.shape[2:], np.nan)
    from arviz_stats.base import array_stats

    return np.asarray(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean"))


def psis(logp: Array) -> tuple[Array, Array]:
    """Pareto-smoothed leave-one-out log weights and k̂ from log likelihoods (chain, draw, obs).

    The log weights have the shape of the input and sum to one over the draws.
    """
    n_draws = logp.shape[0] * logp.shape[1]
    if n_draws < _FEWEST_FOR_PSIS:
        raise UnsupportedError(
            f"Leave-one-out densities need at least {_FEWEST_FOR_PSIS} draws to fit the tail of "
            f"their importance weights; there are {n_draws}."
        )
    from arviz_stats.base import array_stats

    with np.errstate(all="ignore"):
        log_weights, pareto_k = array_stats.psislw(logp, axis=(0, 1))
    log_weights = np.moveaxis(log_weights, (-2, -1), (0, 1))
    # A tail so heavy that most of it underflows cannot be fitted: ArviZ then gives NaN weights
    # with an innocent k̂. Plain weights with k̂ = inf say what they are worth.
    hopeless = ~(np.isfinite(log_weights).all(axis=(0, 1)) & np.isfinite(pareto_k))
    log_weights = np.where(hopeless, -logp, log_weights)
    pareto_k = np.where(hopeless, np.inf, pareto_k)
    return log_weights - log_sum_exp(log_weights.reshape(-1, logp.shape[2])), pareto_k


def pareto_k_threshold(n_draws: int) -> float:
    """Largest k̂ at which that many draws give reliable leave-one-out log scores."""
    return min(1.0 - 1.0 / np.log10(n_draws), 0.7) if n_draws > 10 else 0.0
