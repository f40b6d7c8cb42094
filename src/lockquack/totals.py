r"""Sums over observations that count more often than once, or not at all.

An observation with case weight :math:`w_i` counts :math:`w_i` times in a total,
:math:`T = \sum_i w_i v_i`. None stands for observations that count once each.

Standard errors take every observation, whatever its weight, for one independent draw from the
population, as those of surveys do: with the weighted mean :math:`\bar v`,

.. math:: \mathrm{se}^2(T) = \frac{m}{m - 1} \sum_i w_i^2 (v_i - \bar v)^2,

where m observations have a weight above zero. With equal weights it is the usual one, and an
observation of weight zero might as well not be there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array


def total(values: Array, weights: Array | None) -> Array:
    """Sum over the last axis, the observations.

    Examples
    --------
    >>> total(np.array([1.0, 2.0, 4.0]), np.array([2.0, 0.0, 1.0]))
    np.float64(6.0)
    """
    return np.asarray(values.sum(axis=-1) if weights is None else values @ weights)[()]


def average(values: Array, weights: Array | None) -> Array:
    """Average over the last axis, the observations."""
    if weights is None:
        return np.asarray(values.mean(axis=-1))
    return np.asarray(values @ weights / weights.sum())


def deviations(values: Array, weights: Array | None) -> Array:
    """Contributions to a total minus those of equal values, w (v − mean)."""
    centred = values - average(values, weights)[..., None]
    return centred if weights is None else centred * weights


def error_of_total(
    values: Array, weights: Array | None, *, ddof: int = 1, before: Array | None = None
) -> Array:
    """Estimate the standard error of a total over the last axis; NaN for a single observation.

    Where ``weights`` are of a bootstrap replicate, ``before`` are those that it was drawn from: an
    observation is then in the sample ``weights / before`` times, not once with another weight.

    Examples
    --------
    >>> error_of_total(np.array([1.0, 2.0, 4.0, 7.0]), np.array([1.0, 1.0, 1.0, 0.0])).round(4)
    np.float64(2.6458)
    >>> error_of_total(np.array([1.0, 2.0, 4.0]), None).round(4)
    np.float64(2.6458)
    >>> error_of_total(np.array([1.0, 2.0]), np.array([4.0, 2.0]), before=np.ones(2)).round(4)
    np.float64(1.633)
    """
    m = counted(weights, values.shape[-1])
    if m <= ddof:
        return np.full(values.shape[:-1], np.nan)[()]
    if weights is None:
        return np.asarray(np.sqrt(m) * values.std(axis=-1, ddof=ddof))[()]
    centred = values - average(values, weights)[..., None]
    squares = np.square(centred) @ (weights * (weights if before is None else before))
    return np.asarray(np.sqrt(m / (m - ddof) * squares))[()]


def standard_deviation(values: Array, weights: Array | None) -> Array:
    """Find the standard deviation over the first axis.

    Of weights that say how often an observation occurred it is that of all occurrences. The sum
    of weights that are smaller, as after normalising them, is not taken for the size of a sample.

    Examples
    --------
    >>> y = np.array([[1.0], [2.0], [4.0]])
    >>> standard_deviation(y, np.array([2.0, 1.0, 1.0])), standard_deviation(y[[0, 0, 1, 2]], None)
    (array([1.41421356]), array([1.41421356]))
    """
    # Of equal numbers rounding may leave a deviation that is not zero.
    varies = np.ptp(values[counting(weights)], axis=0) > 0
    if weights is None:
        return np.where(varies, values.std(axis=0, ddof=1), 0.0)
    size = max(float(weights.sum()), counted(weights, len(values)))
    squares = average(np.square(values.T - average(values.T, weights)[:, None]), weights)
    return np.where(varies, np.sqrt(squares * size / (size - 1.0)), 0.0)


def counted(weights: Array | None, n: int) -> int:
    """Return how many of n observations count at all."""
    return n if weights is None else int(np.count_nonzero(weights))


def counting(weights: Array | None) -> NDArray[np.bool_] | slice:
    """Choose the observations that count at all."""
    return slice(None) if weights is None else weights > 0


def effective_number(weights: Array | None, n: int) -> float:
    r"""Return the number of equal weights of the same information, :math:`(\sum w)^2 / \sum w^2`.

    Examples
    --------
    >>> effective_number(np.array([2.0, 2.0, 0.0]), 3), effective_number(None, 3)
    (2.0, 3.0)
    """
    return float(n) if weights is None else float(weights.sum() ** 2 / np.square(weights).sum())
