r"""Pareto-smoothed importance sampling, for many observations at once.

The leave-one-out log weight of draw s is :math:`-\log f_s`. The largest weights make such an
average noisy. Their exceedances :math:`x_i` of a cutoff, the largest weight that is not among
them, follow nearly a generalised Pareto distribution; they are replaced by its quantiles,

.. math::

    \tilde w_i = \min\Bigl\{ u + \hat\sigma\,
        \frac{(1 - p_i)^{-\hat k} - 1}{\hat k},\ \max_s w_s \Bigr\}, \qquad
    p_i = \frac{i - 1/2}{n}, \quad i = 1, \dots, n,

with n the length of the tail and u the cutoff [1]_. The fit [2]_ averages the one free parameter
of the profile likelihood over a fixed grid,

.. math::

    b_j = \frac{1}{x_n} + \frac{1 - \sqrt{m / (j - 1/2)}}{3\, x_{\lfloor n/4 + 1/2 \rfloor}},
    \qquad k(b) = \frac1n \sum_i \log(1 - b x_i), \qquad
    \hat b = \sum_j b_j\, \frac{L(b_j)}{\sum_l L(b_l)}, \quad
    \log L(b) = n \Bigl(\log \frac{-b}{k(b)} - k(b) - 1\Bigr),

whence :math:`\hat\sigma = -k(\hat b) / \hat b`, and :math:`\hat k` is :math:`k(\hat b)` shrunk
towards 1/2 as if by ten more exceedances. Where :math:`\hat k` exceeds about 0.7 the weights are
not to be trusted.

References
----------
.. [1] Vehtari, Simpson, Gelman, Yao and Gabry (2024). Pareto smoothed importance sampling.
   Journal of Machine Learning Research 25(72). arXiv:1507.02646.
.. [2] Zhang and Stephens (2009). A new and efficient estimation method for the generalized
   Pareto distribution. Technometrics 51(3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.errors import UnsupportedError
from lockquack.jets import Array, exponentials, log_sum_exp
from lockquack.numeric import cut

_FEWEST_DRAWS = 25
#: Numbers a block of observations holds; a few such blocks stay in a core's cache.
_BLOCK = 2**17
#: Observations whose tails are fitted at once.
_TOGETHER = 2**8
#: Factors multiplied before a logarithm is taken.
_FACTORS = 16
#: Below this, 1 − bx has lost too many digits of bx for the quotient b / k(b).
_SMALL = 1e-3
#: Grid points of less weight than this are dropped, as ArviZ does.
_NEGLIGIBLE = 10 * np.finfo(np.float64).eps


def psis(logp: Array, *, r_eff: float = 1.0) -> tuple[Array, Array]:
    """Pareto-smoothed leave-one-out log weights and k̂ from log likelihoods.

    The numbers are those of ``arviz_stats.base.array_stats.psislw``, to rounding. Three things
    are settled here that its versions settle differently, or by an error:

    - Where no Pareto tail can be fitted, the weights stay as they are and k̂ is infinite. So it
      is when the lowest quarter of the tail is tied (more ties at the cutoff than that, or
      weights so unequal that the quarter underflows), when the tail has only five draws, and
      wherever ArviZ finds weights or a k̂ that are not finite. Where all draws have the same
      weight there is no tail, and k̂ is −inf.
    - Draws of equal weight may get smoothed weights in any order.
    - NaN among the log likelihoods of an observation makes all of its weights NaN and its k̂
      infinite; other observations do not notice.

    Parameters
    ----------
    logp
        Log likelihoods, (chain, draw, obs).
    r_eff
        Relative efficiency of the draws, effective sample size over sample size. It only sets
        the length of the tail.

    Returns
    -------
    log_weights
        Log weights, (chain, draw, obs), whose exponentials sum to one for each observation.
    pareto_k
        k̂ of each observation, (obs,).

    Examples
    --------
    Weights with an exponential tail, for which k is 0, and weights that are all equal:

    >>> import numpy as np
    >>> tail = -np.log(-np.log((np.arange(4000) + 0.5) / 4000))
    >>> logp = np.stack([-np.log(9 + tail), np.zeros(4000)], axis=1).reshape(4, 1000, 2)
    >>> log_weights, pareto_k = psis(logp)
    >>> pareto_k.round(2)
    array([0.03, -inf])
    >>> np.exp(log_weights).sum(axis=(0, 1)).round(12)
    array([1., 1.])
    """
    n_chains, n_draws, n_obs = logp.shape
    rows = np.empty((n_obs, n_chains, n_draws))
    pareto_k = np.empty(n_obs)
    for obs in cut(slice(0, n_obs), _TOGETHER):
        rows[obs] = np.moveaxis(logp[..., obs], 2, 0)
        pareto_k[obs] = psis_rows(rows[obs].reshape(-1, n_chains * n_draws), r_eff=r_eff).pareto_k
    return np.moveaxis(rows, 0, 2), pareto_k


def psis_rows(rows: Array, tails: Tails | None = None, *, r_eff: float = 1.0) -> Tails:
    """Turn log likelihoods, one observation per row, into log weights that sum to one.

    The draws of an observation must lie together to be partitioned. Tails that are known of the
    same numbers need not be fitted again.
    """
    tails, _ = _smooth(rows, r_eff, tails)
    with np.errstate(all="ignore"):
        for block in _blocks(rows):
            rows[block] -= log_sum_exp(rows[block], axis=1)[:, None]
    return tails


def loo_densities(
    logp: Array, case_weights: Array | None = None, tails: Tails | None = None
) -> tuple[Array, Tails, Array]:
    r"""Pareto-smoothed leave-one-out log densities, k̂, and the effect of the draws.

    With weights :math:`w_s = e^{m} / f_s` up to a factor, m the smallest log likelihood, all
    :math:`w_s f_s` are :math:`e^m` but those of the tail: their sum needs no exponentials
    beyond the weights' own.

    Parameters
    ----------
    logp
        Log likelihoods, one observation per row: (obs, sample). They are overwritten.
    case_weights
        How often each observation counts in the sum, (obs,); once by default.
    tails
        Those of the same log likelihoods, where they are known.

    Returns
    -------
    log_density
        Of each observation, (obs,).
    tails
        With k̂ of each observation.
    effect
        Effect of each draw on the sum of the log densities, to first order and but for the
        number of draws: :math:`\sum_i w_{si} f_{si} / \sum_r w_{ri} f_{ri} - w_{si} /
        \sum_r w_{ri}`, each observation as often as it counts, (sample,).
    """
    n_obs, n_samples = logp.shape
    lowest = logp.min(axis=1, initial=np.inf)
    tails, raw = _smooth(logp, 1.0, tails)
    with np.errstate(all="ignore"):
        lift = tails.smoothed - raw
        peak = np.maximum(lift.max(axis=1), 0.0)
        rest, lifted = np.exp(-peak), np.exp(lift - peak[:, None])
        sums = (n_samples - lift.shape[1]) * rest + lifted.sum(axis=1)
        times = 1.0 if case_weights is None else case_weights
        effect = np.full(n_samples, np.sum(times * rest / sums))
        shift = (lifted - rest[:, None]) / (sums / times)[:, None]
        effect += np.bincount(tails.where.reshape(-1), shift.reshape(-1), n_samples)
        log_total = np.empty(n_obs)
        for block in _blocks(logp):
            weight, total, log_total[block] = exponentials(logp[block], axis=1)
            counted = times if case_weights is None else case_weights[block]
            effect -= (counted / total[:, 0]) @ weight
        log_density = lowest + peak + np.log(sums) - log_total
    return log_density, tails, effect


def _blocks(rows: Array) -> list[slice]:
    """Cut rows into blocks that stay in cache."""
    return cut(slice(0, len(rows)), max(1, _BLOCK // rows.shape[1]))


@dataclass(frozen=True)
class Tails:
    """The largest weights of some observations, in rising order: all that is hard to find."""

    where: NDArray[np.int32]  # (obs, n): which draws
    smoothed: Array  # (obs, n): log weights relative to the largest, raw where there is no fit
    pareto_k: Array  # (obs,)


def _smooth(rows: Array, r_eff: float, tails: Tails | None) -> tuple[Tails, Array]:
    """Turn rows of log likelihoods into log weights relative to the largest, with smooth tails.

    Returns the tails, which are found unless they are known, and their raw log weights.
    """
    n_samples = rows.shape[1]
    if n_samples < _FEWEST_DRAWS:
        raise UnsupportedError(
            f"Leave-one-out densities need at least {_FEWEST_DRAWS} draws to fit the tail of "
            f"their importance weights; there are {n_samples}."
        )
    # Rows that cannot be fitted divide zero by zero on their way; they are found at the end.
    with np.errstate(all="ignore"):
        if tails is None:
            tails = _find_tails(rows, _tail_length(n_samples, r_eff))
        else:
            for block in _blocks(rows):
                _make_ratios(rows[block])
        raw = np.take_along_axis(rows, tails.where, axis=1)
        np.put_along_axis(rows, tails.where, tails.smoothed, axis=1)
    return tails, raw


def _make_ratios(rows: Array) -> None:
    """Turn log likelihoods into log weights relative to the largest."""
    np.subtract(rows.min(axis=1, keepdims=True), rows, out=rows)


def _find_tails(rows: Array, n_tail: int) -> Tails:
    """Turn log likelihoods into log weights relative to the largest, and smooth their tails."""
    n_obs = len(rows)
    where, raw = np.empty((n_obs, n_tail), dtype=np.int32), np.empty((n_obs, n_tail))
    cutoff, lowest = np.empty(n_obs), np.empty(n_obs)
    for block in _blocks(rows):
        ratios = rows[block]
        _make_ratios(ratios)
        lowest[block] = ratios.min(axis=1)
        where[block], cutoff[block] = _largest(ratios, n_tail)
        raw[block] = np.take_along_axis(ratios, where[block], axis=1)
    smoothed, pareto_k = _smooth_tail(np.ascontiguousarray(raw.T), cutoff)
    fitted = np.isfinite(pareto_k) & np.isfinite(smoothed).all(axis=0) & np.isfinite(lowest)
    k = np.where(lowest == 0, -np.inf, np.where(fitted, pareto_k, np.inf))
    return Tails(where, np.where(fitted[:, None], smoothed.T, raw), k)


def _tail_length(n_samples: int, r_eff: float) -> int:
    """Length of the tail: 3√(S / r), and a fifth of the draws where these are few."""
    if n_samples * r_eff > 225:
        return max(1, int(3 * (n_samples / r_eff) ** 0.5))
    return n_samples // 5


def _largest(rows: Array, n_tail: int) -> tuple[NDArray[np.intp], Array]:
    """Places of each row's largest values, in rising order, and the next largest."""
    last = rows.shape[1] - n_tail - 1
    cutoff = np.partition(rows, last, axis=1)[:, last]
    above = rows > cutoff[:, None]
    tied = np.count_nonzero(above, axis=1) != n_tail
    if tied.any():  # with the cutoff: some of those are in the tail, whichever
        above[tied] = False
        tail = np.argpartition(rows[tied], last, axis=1)[:, last + 1 :]
        above[np.flatnonzero(tied)[:, None], tail] = True
    where = np.flatnonzero(above).reshape(-1, n_tail)
    order = np.argsort(rows.reshape(-1)[where], axis=1)
    where -= np.arange(len(rows))[:, None] * rows.shape[1]
    return np.take_along_axis(where, order, axis=1), cutoff


def _smooth_tail(tail: Array, cutoff: Array) -> tuple[Array, Array]:
    """Pareto quantiles in place of sorted log weights (n, obs) above a cutoff (obs,), and k̂."""
    n_tail = len(tail)
    origin = np.exp(cutoff)
    k, sigma = _fit_pareto(np.exp(tail) - origin)
    log_survival = np.log1p(-(np.arange(n_tail) + 0.5) / n_tail)[:, None]
    quantile = np.expm1(-k * log_survival) / k
    # The weights are relative to the largest, whose logarithm is zero.
    return np.minimum(np.log(origin + sigma * quantile), 0.0), k


def _fit_pareto(x: Array) -> tuple[Array, Array]:
    """Shape and scale of generalised Pareto distributions of sorted exceedances (n, obs).

    The shape is NaN where the first quartile does not exceed the smallest value: such a sample
    is far from any of these distributions.
    """
    n = len(x)
    n_grid = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    grid = 1 - np.sqrt(n_grid / (np.arange(n_grid) + 0.5))
    b = grid[:, None] / (3 * quartile) + 1 / x[-1]
    k = _profile(b, x)
    log_likelihood = n * (np.log(-b / k) - k - 1)
    weight = np.exp(log_likelihood - log_likelihood.max(axis=0))
    weight /= weight.sum(axis=0)
    weight[weight < _NEGLIGIBLE] = 0.0
    b_mean = (b * weight).sum(axis=0) / weight.sum(axis=0)
    k_mean = np.log1p(-b_mean * x).mean(axis=0)
    # The prior: ten exceedances from a distribution of shape 1/2.
    k_shrunk = (n * k_mean + 5.0) / (n + 10)
    return np.where(quartile > x[0], k_shrunk, np.nan), -k_mean / b_mean


def _profile(b: Array, x: Array) -> Array:
    """Mean of log(1 − b x) over the sample, (grid, obs), with few logarithms.

    This is nearly all of the fit, so several factors share a logarithm. That fails where their
    product overflows or where b is nearly zero; there, each factor gets its own.
    """
    n, n_obs = x.shape
    n_groups = -(-n // _FACTORS)
    padded = np.zeros((n_groups * _FACTORS, n_obs))  # a zero adds a factor of one
    padded[:n] = x
    k, factors = np.empty(b.shape), np.empty(padded.shape)
    groups = factors.reshape(_FACTORS, n_groups, n_obs)
    for row, b_row in zip(k, b, strict=True):
        np.multiply(padded, -b_row, out=factors)
        factors += 1.0
        np.log(np.multiply.reduce(groups, axis=0)).sum(axis=0, out=row)
    k /= n
    j, i = np.nonzero(np.isfinite(b) & (~np.isfinite(k) | (np.abs(b) * x[-1] < _SMALL)))
    k[j, i] = np.log1p(-b[j, i] * x[:, i]).mean(axis=0)
    return k
