r"""Whether observed outcomes look like draws from their predictions.

If they are, the probabilities :math:`u_i = F_i(y_i)` are uniform. The test looks at the number of
them below each of some places z, a binomial count, and takes the most surprising of these. It is
the test behind simultaneous bands of an empirical distribution function [1]_.

References
----------
.. [1] Säilynoja, Bürkner and Vehtari (2022). Graphical test for discrete uniformity and its
   applications in goodness-of-fit evaluation and multiple sample comparison. Statistics and
   Computing 32(32). arXiv:2103.10522.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, bdtrc
from scipy.stats import binom

from lockquack.errors import ParameterError
from lockquack.jets import Array
from lockquack.numeric import as_generator, as_numeric
from lockquack.quadrature.intervals import HasIntervals, IntervalKind

#: Most places at which the distribution function is looked at.
_PLACES = 100
#: Samples of uniform numbers with which the observed one is compared.
_SIMULATIONS = 4000


def uniformity(pit: Array) -> float:
    """P-value of the hypothesis that numbers (n,) are independent and uniform on [0, 1].

    It is found by simulation, so it is never below 1/4001. Leave-one-out probabilities are not
    quite independent, which hardly matters for more than a few dozen observations.

    Examples
    --------
    >>> import numpy as np
    >>> spread = (np.arange(100) + 0.5) / 100
    >>> uniformity(spread) > 0.9, uniformity(0.25 + spread / 2) < 0.001
    (True, True)
    """
    places = _places(pit.size)
    observed = _surprise((pit[:, None] <= places).sum(axis=0), pit.size, places)
    # Equal surprises are equal counts; rounding must not tell them apart.
    as_rare = int((_simulated(pit.size) <= observed * (1 + 1e-9)).sum())
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
    below = bdtr(counts, n, places)
    above = np.where(counts > 0, bdtrc(np.maximum(counts - 1, 0), n, places), 1.0)
    return np.asarray(np.minimum(below, above).min(axis=-1))


@dataclass(frozen=True)
class Calibrated:
    """What predictions say of the outcomes that were observed, as :func:`look_at` finds it."""

    numbers: Array  # (2 prob + 2, n)

    def coverage(self, y: Array) -> Array:
        """Share of outcomes (n,) that lie in the intervals of each probability, (prob,)."""
        low, high = self._ends()
        return np.asarray(((low <= y) & (y <= high)).mean(axis=1))

    def widths(self) -> Array:
        """Mean width of the intervals of each probability, (prob,)."""
        low, high = self._ends()
        return np.asarray((high - low).mean(axis=1))

    def pit(self, random_seed: Any) -> Array:
        """Probabilities F(y), (n,); of whole numbers a random one between F(y − 1) and F(y).

        Without a seed, their mean.
        """
        lower, upper = self.numbers[-2:]
        if random_seed is None or np.array_equal(lower, upper):
            return (lower + upper) / 2
        rng = as_generator(random_seed)
        return lower + rng.random(lower.size) * (upper - lower)

    def _ends(self) -> tuple[Array, Array]:
        return self.numbers[:-2:2], self.numbers[1:-2:2]


def look_at(
    predicted: HasIntervals,
    y: Array,
    *,
    probs: Sequence[float] = (),
    kind: IntervalKind = "central",
) -> Array:
    """Find ends of intervals, and F(y − 1) and F(y) at outcomes, (1, n) → (2 prob + 2, n).

    For outcomes that are not whole numbers F(y) takes the place of F(y − 1).
    """
    ends = [predicted.interval(prob, kind) for prob in probs]
    upper = predicted.cdf(y)
    lower = predicted.cdf(y - 1.0) if predicted.discrete else upper
    return np.concatenate([*ends, lower, upper])


def read_probabilities(probs: ArrayLike) -> tuple[float, ...]:
    """Read one or more probabilities; whether they are some is seen where they are used."""
    wanted = np.atleast_1d(np.asarray(as_numeric("probs", probs, ParameterError), np.float64))
    if wanted.ndim > 1 or wanted.size == 0:
        raise ParameterError(f"probs must be one or more probabilities; got {probs!r}.")
    return tuple(wanted.tolist())


def coverage_table(
    calibrated: Mapping[str, Calibrated],
    outcomes: Array,
    probs: Sequence[float],
    random_seed: int,
) -> pd.DataFrame:
    """Share of outcomes (n, d) within intervals, and uniformity, by prediction.

    The components of an outcome depend on each other: each has a test of its own, and the
    smallest p-value counts, times their number.
    """
    y, d = outcomes.reshape(-1), outcomes.shape[1]
    table = {}
    for name, each in calibrated.items():
        shares = zip(probs, each.coverage(y).tolist(), strict=True)
        pit = each.pit(random_seed).reshape(outcomes.shape)
        smallest = min(uniformity(component) for component in pit.T)
        table[name] = {
            **{f"{prob:g}": share for prob, share in shares},
            f"width_{probs[-1]:g}": float(each.widths()[-1]),
            "uniformity_p": min(1.0, d * smallest),
        }
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("model")
