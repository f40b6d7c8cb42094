r"""Whether numbers are uniform, as probabilities of outcomes are under right predictions.

The test looks at the number of them below each of some places z, a binomial count, and takes the
most surprising of these. It is the test behind simultaneous bands of an empirical distribution
function [1]_.

References
----------
.. [1] Säilynoja, Bürkner and Vehtari (2022). Graphical test for discrete uniformity and its
   applications in goodness-of-fit evaluation and multiple sample comparison. Statistics and
   Computing 32(32). arXiv:2103.10522.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc
from scipy.stats import binom

from lockquack.errors import ParameterError
from lockquack.jets import Array
from lockquack.totals import average, effective_number

#: Most places at which the distribution function is looked at.
_PLACES = 100
#: Samples of uniform numbers with which the observed one is compared.
_SIMULATIONS = 4000


def uniformity(pit: Array, weights: Array | None = None) -> float:
    """P-value of the hypothesis that numbers (n,) are independent and uniform on [0, 1].

    It is found by simulation, so it is never below 1/4001. Leave-one-out probabilities are not
    quite independent, which hardly matters for more than a few dozen observations. The weighted
    distribution function of numbers with weights is looked at as if it were that of
    (Σ w)² / Σ w² numbers, which has the same variances and covariances.

    Examples
    --------
    >>> import numpy as np
    >>> spread = (np.arange(100) + 0.5) / 100
    >>> uniformity(spread) > 0.9, uniformity(0.25 + spread / 2) < 0.001
    (True, True)
    """
    n = max(1, round(effective_number(weights, pit.size)))
    places = _places(n)
    share = average((pit <= places[:, None]).astype(np.float64), weights)
    observed = _surprise(np.rint(n * share).astype(np.int64), n, places)
    # Equal surprises are equal counts; rounding must not tell them apart.
    as_rare = int((_simulated(n) <= observed * (1 + 1e-9)).sum())
    return (1 + as_rare) / (1 + _SIMULATIONS)


def ecdf_band(n: int, prob: float = 0.95) -> tuple[Array, Array, Array]:
    """Band that the distribution function of n uniform numbers leaves with probability 1 − prob.

    Returns
    -------
    tuple of ndarray
        Places in (0, 1), and the ends of the band there. The function is outside at one of them
        if, and only if, :func:`uniformity` is at most 1 − prob.

    Examples
    --------
    >>> import numpy as np
    >>> places, low, high = ecdf_band(100)
    >>> np.round([low[49], places[49], high[49]], 2)
    array([0.35, 0.5 , 0.64])
    """
    places = _places(n)
    if not 0 < prob < 1:
        raise ParameterError(f"prob must lie between 0 and 1; got {prob}.")
    rank = int((1 - prob) * (1 + _SIMULATIONS) + 1e-9)
    rarest = np.sort(_simulated(n))[max(rank - 1, 0)] * (1 - 1e-9)
    low = np.asarray(binom.ppf(rarest, n, places))
    high = n - np.asarray(binom.ppf(rarest, n, 1 - places))
    return places, low / n, high / n


def _places(n: int) -> Array:
    count = min(n, _PLACES)
    return np.arange(1, count + 1) / (count + 1)


@lru_cache(maxsize=16)
def _simulated(n: int) -> Array:
    """Surprises of samples that are uniform."""
    places = _places(n)
    shares = np.diff(places, prepend=0.0, append=1.0)
    counts = np.random.default_rng(0).multinomial(n, shares, size=_SIMULATIONS)
    return _surprise(counts[:, :-1].cumsum(axis=1), n, places)


def _surprise(counts: NDArray[np.int64], n: int, places: Array) -> Array:
    """Smallest tail probability of binomial counts (..., place)."""
    if counts.ndim > 1 and len(counts) > n:  # many are equal
        every = _tails(np.arange(n + 1)[:, None], n, places)
        return np.asarray(np.take_along_axis(every, counts, axis=0).min(axis=-1))
    return np.asarray(_tails(counts, n, places).min(axis=-1))


def _tails(counts: NDArray[np.int64], n: int, places: Array) -> Array:
    """Probability of at most as many, or of at least as many, whichever is smaller."""
    below = bdtr(counts, n, places)
    above = np.where(counts > 0, bdtrc(np.maximum(counts - 1, 0), n, places), 1.0)
    return np.asarray(np.minimum(below, above))
