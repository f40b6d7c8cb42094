"""Negative binomial."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from lockquack.families.base import Parameters
from lockquack.families.discrete import DiscreteFamily
from lockquack.jets import Array

#: From here on five terms of Stirling's series leave nothing.
_LARGE = 16.0


class NegativeBinomial(DiscreteFamily):
    r"""Negative binomial with mean ``mu`` and variance :math:`\mu + \mu^2/\alpha`, ``alpha``.

    .. math::

        \log p = y\log\mu - \log y! - (\alpha + y)\log(1 + \mu/\alpha)
            + \log\frac{\Gamma(\alpha + y)}{\Gamma(\alpha)\,\alpha^y}

    The last term vanishes as :math:`\alpha` grows, and what is left is the Poisson.
    """

    name = "negative_binomial"
    signatures = ({"mu": 0, "alpha": 0},)
    positive = frozenset({"mu", "alpha"})

    def log_mass(self, y: Array, p: Parameters) -> Array:
        mu, alpha = p["mu"], p["alpha"]
        poisson = y * np.log(mu) - gammaln(y + 1.0)
        return poisson - (alpha + y) * np.log1p(mu / alpha) + log_rising(alpha, y)

    def spread(self, p: Parameters) -> Array:
        return np.sqrt(p["mu"] + np.square(p["mu"]) / p["alpha"])

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.poisson(rng.gamma(p["alpha"], p["mu"] / p["alpha"], size)).astype(np.float64)


def log_rising(alpha: Array, y: Array) -> Array:
    r"""Return :math:`\log\Gamma(\alpha+y) - \log\Gamma(\alpha) - y\log\alpha`.

    By Stirling's formula where α is large: the two log-gammas cancel all digits there.
    """
    large = np.asarray(alpha >= _LARGE)
    if not large.all():
        direct = gammaln(alpha + y) - gammaln(alpha) - y * np.log(alpha)
        if not large.any():
            return np.asarray(direct)
    bounded = np.maximum(alpha, _LARGE)
    total = bounded + y
    stirling = (total - 0.5) * np.log1p(y / bounded) - y + (_series(total) - _series(bounded))
    return stirling if large.all() else np.where(large, stirling, direct)


def _series(x: Array) -> Array:
    """Return what Stirling's (x − ½) log x − x + ½ log 2π leaves of log Γ(x)."""
    inverse = 1.0 / x
    square = inverse * inverse
    tail = 1 / 1260 - square * (1 / 1680 - square / 1188)
    return inverse * (1 / 12 - square * (1 / 360 - square * tail))
