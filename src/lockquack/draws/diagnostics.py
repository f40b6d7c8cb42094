"""ArviZ's diagnostics on plain arrays of shape (chain, draw, ...).

ArviZ is imported when one of these is called: importing it takes seconds.
"""

from __future__ import annotations

import numpy as np

from lockquack.jets import Array

#: Standard errors within which a difference between two scores is noise.
NOISE_ERRORS = 2.0


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


def rhat(draws: Array) -> Array:
    """R-hat of each quantity in (chain, draw, quantity), rank-normalised."""
    from arviz_stats.base import array_stats

    return np.asarray(array_stats.rhat(draws, chain_axis=0, draw_axis=1))


def pareto_k_threshold(n_draws: int) -> float:
    """Largest k̂ at which that many draws give reliable leave-one-out log scores."""
    return min(1.0 - 1.0 / np.log10(n_draws), 0.7) if n_draws > 10 else 0.0
