"""Weibull."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from lockquack.families.base import Edge, Family, Parameters, Range, confine, exp, mask_outside
from lockquack.jets import Array

#: −log of the probability to exceed the 16%, 50% and 84% quantiles (of −1, 0 and 1 in a normal).
_LOW, _MIDDLE, _HIGH = 0.17275377902344988, math.log(2.0), 1.8410216450092635


class Weibull(Family):
    r"""Weibull with shape ``alpha`` and scale ``beta``.

    .. math::

        \log p = \log\alpha - \log y + \log t - t, \quad t = (y/\beta)^\alpha

    The derivatives are :math:`(\alpha - 1 - \alpha t)/y` and
    :math:`-(\alpha-1)(1 + \alpha t)/y^2`.
    """

    name = "weibull"
    signatures = ({"alpha": 0, "beta": 0},)
    positive = frozenset({"alpha", "beta"})
    support = (0.0, np.inf)

    def logp(self, y: Array, p: Parameters) -> Array:
        alpha = p["alpha"]
        log_ratio = np.log(confine(y, self.support) / p["beta"])
        logp = (alpha - 1.0) * log_ratio - exp(alpha * log_ratio)
        return mask_outside(logp + np.log(alpha / p["beta"]), y, self.support)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        y, alpha = confine(y, self.support), p["alpha"]
        push = alpha * exp(alpha * np.log(y / p["beta"]))
        inverse = 1.0 / y
        return (alpha - 1.0 - push) * inverse, (1.0 - alpha) * (1.0 + push) * (inverse * inverse)

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        slowest = ranges["alpha"].min
        rate = 0.0 if slowest < 1 else np.inf if slowest > 1 else 1.0 / ranges["beta"].max
        return Edge(0.0, slowest - 1.0), Edge(np.inf, rate)

    def location(self, p: Parameters) -> Array:
        return _quantile(_MIDDLE, p)

    def spread(self, p: Parameters) -> Array:
        # Not the standard deviation: where alpha is small it is far from the bulk.
        return 0.5 * (_quantile(_HIGH, p) - _quantile(_LOW, p))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return p["beta"] * rng.weibull(p["alpha"], size)


def _quantile(exceeded: float, p: Parameters) -> Array:
    return p["beta"] * np.power(exceeded, 1.0 / p["alpha"])
