r"""Whether observed outcomes look like draws from their predictions.

If they are, the probabilities :math:`u_i = F_i(y_i)` are uniform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lockquack.errors import ParameterError
from lockquack.jets import Array
from lockquack.models.observations import Observations
from lockquack.numeric import as_generator, as_numeric
from lockquack.quadrature.intervals import HasIntervals, IntervalKind
from lockquack.quadrature.uniformity import uniformity
from lockquack.totals import average


@dataclass(frozen=True)
class Calibrated:
    """Intervals and distribution functions at the outcomes, from :func:`intervals_and_cdf`."""

    numbers: Array  # (2 prob + 2, n)

    def coverage(self, y: Array, weights: Array | None = None) -> Array:
        """Share of outcomes (n,) that lie in the intervals of each probability, (prob,)."""
        low, high = self._ends()
        return average(((low <= y) & (y <= high)).astype(np.float64), weights)

    def widths(self, weights: Array | None = None) -> Array:
        """Mean width of the intervals of each probability, (prob,)."""
        low, high = self._ends()
        return average(high - low, weights)

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


def intervals_and_cdf(
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
    """Read one or more numbers; that they lie between 0 and 1 is checked where they are used."""
    wanted = np.atleast_1d(np.asarray(as_numeric("probs", probs, ParameterError), np.float64))
    if wanted.ndim > 1 or wanted.size == 0:
        raise ParameterError(f"probs must be one or more probabilities; got {probs!r}.")
    return tuple(wanted.tolist())


def coverage_table(
    calibrated: Mapping[str, Calibrated],
    observations: Observations,
    probs: Sequence[float],
    random_seed: int,
) -> pd.DataFrame:
    """Share of outcomes within intervals, and uniformity, by prediction.

    The components of an outcome depend on each other: each has a test of its own, and the
    smallest p-value counts, times their number.
    """
    outcomes, weights, d = observations.values, observations.weights, observations.d
    y, repeated = outcomes.reshape(-1), None if weights is None else np.repeat(weights, d)
    table = {}
    for name, each in calibrated.items():
        shares = zip(probs, each.coverage(y, repeated).tolist(), strict=True)
        pit = each.pit(random_seed).reshape(outcomes.shape)
        smallest = min(uniformity(component, weights) for component in pit.T)
        table[name] = {
            **{f"{prob:g}": share for prob, share in shares},
            f"width_{probs[-1]:g}": float(each.widths(repeated)[-1]),
            "uniformity_p": min(1.0, d * smallest),
        }
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("model")
