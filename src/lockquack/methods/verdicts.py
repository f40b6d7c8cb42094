"""Which differences between scores are more than noise, when many are compared at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from lockquack.draws.diagnostics import NOISE_ERRORS
from lockquack.fitting.uncertainty import are_too_few
from lockquack.jets import Array
from lockquack.totals import counted, deviations, error_of_total, total

Verdict = Literal["best", "noise", "unclear", "worse", "not known"]
#: Probability that at least one of equally good rows is called worse.
LEVEL = 0.05
#: Total log scores that differ by less are so alike that their standard error is not to be
#: trusted [1]; and numbers of observations from which it can be.
SIMILAR, FEW = 4.0, 100
#: Total difference of log scores that is noise however small its standard error, and share of the
#: total CRPS that is.
_NEGLIGIBLE, _NEGLIGIBLE_SHARE = 0.1, 1e-3
#: Random vectors behind the limit for all differences together.
_VECTORS = 4000


@dataclass(frozen=True)
class Differences:
    """Total scores minus the best total, with paired standard errors; a row each."""

    total: Array  # (row,); NaN where a score is not known
    se: Array  # (row,)

    @property
    def p_worse(self) -> Array:
        """Probability of being worse than the best, by the normal distribution, each for itself."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(ndtr(-self.total / self.se))


def differences(scores: Array, case_weights: Array | None = None) -> Differences:
    """Compare rows of scores, (row, observation), with the row of the best total."""
    totals = total(scores, case_weights)
    if np.isnan(totals).all():
        return Differences(totals, totals)
    apart = scores - scores[np.nanargmax(totals)]
    return Differences(total(apart, case_weights), error_if_enough(apart, case_weights))


def error_if_enough(scores: Array, case_weights: Array | None) -> Array:
    """Estimate the standard errors of totals; NaN where observations are too few for any."""
    if are_too_few(scores.shape[-1], case_weights):
        return np.full(scores.shape[:-1], np.nan)
    return error_of_total(scores, case_weights)


def simultaneous_limit(
    scores: Array, random_seed: int = 0, case_weights: Array | None = None
) -> float:
    r"""Find how many standard errors some difference of equally good rows rarely exceeds.

    The quantile 1 − α of :math:`\max_{j,k} |Z_j - Z_k| / s_{jk}`, where :math:`Z` has the
    multivariate t distribution with n − 1 degrees of freedom and the covariance of the rows of
    scores, and :math:`s_{jk}` is the standard error of their difference. So it accounts for the
    number of rows, for how alike they are, and for the best being chosen after the fact.
    It is never below the limit for one difference.

    Examples
    --------
    >>> scores = np.random.default_rng(1).normal(size=(10, 200))
    >>> round(simultaneous_limit(scores), 1), round(simultaneous_limit(scores[:2]), 1)
    (3.2, 2.0)
    """
    known = scores[np.isfinite(scores).all(axis=1)]
    rows, n = len(known), counted(case_weights, known.shape[1])
    if rows < 2 or n < 2:
        return NOISE_ERRORS
    apart = deviations(known, case_weights)
    covariance = apart @ apart.T * n / (n - 1)
    values, vectors = np.linalg.eigh(covariance)
    rng = np.random.default_rng(random_seed)
    z = rng.standard_normal((_VECTORS, rows)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    z /= np.sqrt(rng.chisquare(n - 1, size=(_VECTORS, 1)) / (n - 1))
    first, second = np.triu_indices(rows, 1)
    variance = covariance[first, first] + covariance[second, second]
    squared = variance - 2 * covariance[first, second]
    differ = squared > 1e-12 * variance
    if not differ.any():
        return NOISE_ERRORS
    first, second, se = first[differ], second[differ], np.sqrt(squared[differ])
    largest = np.zeros(_VECTORS)
    for j, k, each in zip(first, second, se, strict=True):
        np.maximum(largest, np.abs(z[:, j] - z[:, k]) / each, out=largest)
    return max(NOISE_ERRORS, float(np.quantile(largest, 1 - LEVEL)))


def judge(
    scores: Array,
    doubtful: NDArray[np.bool_],
    *,
    in_nats: bool = True,
    are_distances: bool = False,
    random_seed: int = 0,
    case_weights: Array | None = None,
) -> list[Verdict]:
    """Say of each row whether it is worse than the best.

    - ``worse``: the difference exceeds the limit for all differences together
      (:func:`simultaneous_limit`), with and without the observations at which a score is doubtful,
      and is not one of :data:`SIMILAR` nats or less.
    - ``unclear``: it exceeds two standard errors, which would be enough for a single difference.
    - ``noise``: it does not, or it is below a tenth of a nat, or a thousandth of a distance.

    Of fewer than ten observations there are no standard errors: all differences are unclear.

    Parameters
    ----------
    scores
        (row, observation), larger is better; a row with NaN is not known.
    doubtful
        Where a score cannot be relied on, (row, observation).
    in_nats
        Whether these are log scores.
    are_distances
        Whether these are CRPS or energy scores, of which zero is the best there could be.
    random_seed
        Seed of the limit.
    case_weights
        How often each observation counts; once by default.

    Returns
    -------
    list of str
        A verdict for each row.
    """
    found = differences(scores, case_weights)
    if np.isnan(found.total).all():
        return ["not known"] * len(scores)
    few = are_too_few(scores.shape[1], case_weights)
    limit = simultaneous_limit(scores, random_seed, case_weights)
    totals = total(scores, case_weights)
    best = int(np.nanargmax(totals))
    negligible = _NEGLIGIBLE if in_nats else 0.0
    if are_distances:
        negligible = _NEGLIGIBLE_SHARE * abs(float(totals[best]))
    apart = np.where(doubtful | doubtful[best], 0.0, scores - scores[best])
    sure_total, sure_se = total(apart, case_weights), error_of_total(apart, case_weights)
    verdicts: list[Verdict] = []
    for row, (behind, se) in enumerate(zip(found.total, found.se, strict=True)):
        clear = -behind > limit * se and -sure_total[row] > limit * sure_se[row]
        if np.isnan(behind):
            verdicts.append("not known")
        elif row == best or behind == 0:
            verdicts.append("best")
        elif few:
            verdicts.append("unclear")
        elif -behind <= max(NOISE_ERRORS * se, negligible):
            verdicts.append("noise")
        else:
            similar = in_nats and -behind < SIMILAR
            verdicts.append("worse" if clear and not similar else "unclear")
    return verdicts
