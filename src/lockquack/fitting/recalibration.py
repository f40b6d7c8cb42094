r"""The beta transform that makes probabilities of outcomes uniform, by maximum likelihood.

Of outcomes with probabilities :math:`u_i = F_i(y_i)`, the log score of predictions grows by
:math:`\sum_i \log b_{a,b}(u_i)` when they are transformed, which is concave in a and b. Of whole
numbers it grows by the logarithm of :math:`(B(F_i(y_i)) - B(F_i(y_i - 1))) / p_i`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import chi2

from lockquack.jets import Array
from lockquack.operators.pool import Pool
from lockquack.quadrature.beta import BetaTransform
from lockquack.totals import total

#: What the label of a recalibrated combination ends in.
RECALIBRATED = ", recalibrated"
#: Logarithms of a and b are kept within these: beyond, predictions have nothing to be mended.
_BOUND = 6.0
#: Steps, in the logarithms, by which derivatives are found; Newton steps, and the shortest.
_STEP, _NEWTON_STEPS, _SHORT = 1e-4, 100, 1e-10


@dataclass(frozen=True, eq=False)
class BetaFit:
    """The transform that was found, and how well it is determined."""

    a: float
    b: float
    #: Covariance of a and b, (2, 2), which allows for probabilities that are not beta-distributed.
    cov: Array
    #: Growth of the log score at each observation, (n,).
    gains: Array
    #: Probability of as large a distance of a and b from 1, were they 1.
    p_value: float

    @property
    def transform(self) -> BetaTransform:
        """The transform."""
        return BetaTransform(self.a, self.b)


@dataclass(frozen=True, eq=False)
class Recalibration:
    """A combination's transform, and what it has come to."""

    beta: BetaFit
    #: Scores of the recalibrated combination by its own rule, (n,); NaN where they are not known.
    scores: Array
    #: P-values of the hypothesis that probabilities of outcomes are uniform, before and after.
    before: float
    after: float


def recalibrated(pool: Pool, by: Recalibration | None) -> Pool:
    """Transform what a pool predicts; as it is where there is no transform."""
    return pool if by is None else replace(pool, recalibration=by.beta.transform)


def fit_beta(steps: Array, weights: Array | None = None) -> BetaFit:
    """Fit a transform to probabilities of outcomes (2, 2, n), which count once or by weights.

    The probabilities are those of less than the outcome and of at most it, and what is left.

    Examples
    --------
    >>> from scipy.stats import beta
    >>> u = beta(2.0, 3.0).ppf((np.arange(400) + 0.5) / 400)
    >>> found = fit_beta(np.stack([[u, u], [1 - u, 1 - u]]))
    >>> bool(abs(found.a - 2) < 0.03), bool(abs(found.b - 3) < 0.03), found.p_value < 1e-6
    (True, True, True)
    """

    def gains(theta: Array) -> Array:
        return BetaTransform(*np.exp(theta)).log_mean_density(*steps)

    theta = _maximise(lambda theta: float(total(gains(theta), weights)), np.zeros(2))
    found = gains(theta)
    cov = _sandwich(gains, theta, weights)
    with np.errstate(invalid="ignore"):
        distance = float(theta @ np.linalg.pinv(cov) @ theta)
    a, b = np.exp(theta)
    by_log = np.outer(np.exp(theta), np.exp(theta))
    return BetaFit(float(a), float(b), cov * by_log, found, float(chi2.sf(distance, 2)))


def _maximise(value: Callable[[Array], float], theta: Array) -> Array:
    """Newton's method with halved steps; along the slopes where the value is not concave."""
    here = value(theta)
    for _ in range(_NEWTON_STEPS):
        slope, bend = _derivatives(value, theta)
        largest = float(np.linalg.eigvalsh(bend).max())
        # A bend that is made negative enough points uphill, in steps that are not too long.
        bend = bend - np.eye(2) * max(0.0, largest + 1e-3 * np.abs(bend).max())
        step = np.linalg.solve(bend, -slope)
        step = step / max(1.0, float(np.abs(step).max()))
        while np.abs(step).max() > _SHORT:
            new = np.clip(theta + step, -_BOUND, _BOUND)
            there = value(new)
            if there >= here:
                break
            step = step / 2
        else:
            break
        theta, here = new, there
    return theta


def _derivatives(value: Callable[[Array], float], theta: Array) -> tuple[Array, Array]:
    """Slopes and second derivatives of a function of two numbers, by differences."""
    moves = _STEP * np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    table = np.array([value(theta + move) for move in moves]).reshape(3, 3)
    slope = np.array([table[2, 1] - table[0, 1], table[1, 2] - table[1, 0]]) / (2 * _STEP)
    first = table[2, 1] - 2 * table[1, 1] + table[0, 1]
    second = table[1, 2] - 2 * table[1, 1] + table[1, 0]
    mixed = (table[2, 2] - table[2, 0] - table[0, 2] + table[0, 0]) / 4
    return slope, np.array([[first, mixed], [mixed, second]]) / _STEP**2


def _sandwich(gains: Callable[[Array], Array], theta: Array, weights: Array | None) -> Array:
    """Covariance of the logarithms of a and b, whether or not probabilities are beta."""
    moves = _STEP * np.eye(2)
    slopes = np.stack([gains(theta + m) - gains(theta - m) for m in moves]) / (2 * _STEP)
    counted = slopes if weights is None else slopes * weights
    _, bend = _derivatives(lambda at: float(total(gains(at), weights)), theta)
    inverse = np.linalg.pinv(bend)
    return np.asarray(inverse @ (counted @ counted.T) @ inverse)
