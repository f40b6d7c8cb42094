r"""How much weights that depend on covariates are pulled together, by cross-validation.

The weights, not the models, are fitted to all folds of the observations but one and scored on that
one, for every λ of a grid that ends with constant weights, :math:`\lambda = \infty`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array
from lockquack.totals import error_of_total, total

#: λ that are tried, in units of the score's curvature; none and infinite shrinkage beside them.
_FACTORS = 4.0 ** np.arange(-3, 5)
_FOLDS = 10
#: Observations from which there is a choice; of fewer, weights are constant.
FEWEST = 20
#: Groups by which λ is chosen at most: it is about any of them, however many there are.
MOST_GROUPS = 200


@dataclass(frozen=True)
class Choice:
    """What every λ of a grid came to, compared with constant weights."""

    shrinkage: float
    grid: tuple[float, ...]  # ascending; the last is infinite
    gains: tuple[float, ...]  # held-out total score minus that of constant weights
    errors: tuple[float, ...]  # standard errors of these
    n_obs: int

    @property
    def gain(self) -> float:
        """Held-out total score minus that of constant weights, for the chosen λ."""
        return self.gains[self.grid.index(self.shrinkage)]

    @property
    def best(self) -> tuple[float, float]:
        """Largest gain of weights that are not constant, and its standard error."""
        return max(zip(self.gains[:-1], self.errors[:-1], strict=True), default=(0.0, 0.0))

    @property
    def gain_se(self) -> float:
        """Standard error of the gain."""
        return self.errors[self.grid.index(self.shrinkage)]


#: No choice.
CONSTANT = Choice(np.inf, (np.inf,), (0.0,), (0.0,), 0)


def shrinkages(stiffness: float) -> Array:
    """Return the grid for scores of a given curvature in the weights of a function."""
    return np.concatenate([[0.0], stiffness * _FACTORS, [np.inf]])


def deal_folds(rng: np.random.Generator, n: int, folds: int = _FOLDS) -> list[NDArray[np.intp]]:
    """Divide n observations into folds at random."""
    return [np.sort(part) for part in np.array_split(rng.permutation(n), min(folds, n))]


def beyond_constant(scores: Array, averages: Array, counts: Array) -> Array:
    """Held-out scores of every λ minus those of constant weights, (λ, n).

    Constant weights are those that score best, or the average of the weights of this λ if its
    scores, ``averages``, are better: an average of many weights, each of them pulled to the others,
    may be better than the best constant weights, and that is not because they vary.
    """
    better = total(averages, counts) > total(scores[-1], counts)
    constant = np.where(better[:, None], averages, scores[-1])
    with np.errstate(invalid="ignore"):
        return np.where(scores == constant, 0.0, scores - constant)  # minus infinity too


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out scores of each λ of a grid minus those of constant weights."""

    grid: Array  # ascending; the last is infinite
    apart: Array  # (λ, m)
    rows: NDArray[np.intp]  # which observations these are, (m,)

    @property
    def arrays(self) -> dict[str, Array]:
        """All there is, by names for a file; nothing if there were too few observations."""
        if not self.rows.size:
            return {}
        return {
            "shrinkages": self.grid,
            "held_out": self.apart,
            "held_out_rows": self.rows.astype(np.float64),
        }

    def choose(self, counts: Array, case_weights: Array) -> Choice:
        """Choose the λ of the best score if that is a standard error above constant weights.

        Both are of all observations, (n,): how often they count now, and in all the data.

        The best of several scores is often so by chance: of 500 simulated data sets of 200
        observations in which constant weights are right, taking the best λ found others in 40 to 50
        of 100, and lost .3 to .7 nats on average; this finds them in 5 to 7, and loses .1 to .3.
        Stricter rules lose less there, and more where weights do vary; on data sets that none was
        made for they cannot be told apart (``benchmarks/shrinkage.py``). These numbers are from
        before :func:`beyond_constant` knew of averages.
        """
        if not self.rows.size:
            return CONSTANT
        counts, before = counts[self.rows], case_weights[self.rows]
        gains, errors = total(self.apart, counts), error_of_total(self.apart, counts, before=before)
        best = int(np.argmax(gains))
        chosen = best if gains[best] > errors[best] else self.grid.size - 1
        return Choice(
            float(self.grid[chosen]),
            tuple(self.grid.tolist()),
            tuple(gains.tolist()),
            tuple(errors.tolist()),
            self.rows.size,
        )


#: Of too few observations to choose by.
NOTHING_HELD_OUT = HeldOut(np.array([np.inf]), np.zeros((1, 0)), np.zeros(0, dtype=np.intp))
