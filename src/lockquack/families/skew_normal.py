"""Skew-normal."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, log_ndtr

from lockquack.families.base import Family, Parameters, Split, identity
from lockquack.families.normal import LOG_SQRT_2PI
from lockquack.jets import Array

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


class SkewNormal(Family):
    r"""Skew-normal with location ``mu``, scale ``sigma`` and skewness ``alpha``.

    .. math::

        \log p = \log 2 + \log\varphi(z) + \log\Phi(\alpha z) - \log\sigma, \quad z = (y-\mu)/\sigma

    With :math:`r = \varphi/\Phi` at :math:`x = \alpha z`, the derivatives in z are
    :math:`-z + \alpha r` and :math:`-1 - \alpha^2 r (r + x)`.
    """

    name = "skew_normal"
    signatures = ({"mu": 0, "sigma": 0, "alpha": 0},)
    positive = frozenset({"sigma"})
    orders = (np.inf, np.inf)

    def logp(self, y: Array, p: Parameters) -> Array:
        z = (y - p["mu"]) / p["sigma"]
        constant = np.log(p["sigma"]) + (LOG_SQRT_2PI - math.log(2.0))
        return log_ndtr(p["alpha"] * z) - 0.5 * z * z - constant

    def split(self, p: Parameters) -> Split:
        rate = 1.0 / p["sigma"]
        constant = np.log(rate) - (LOG_SQRT_2PI - math.log(2.0))
        parameters = p["mu"], -0.5 * np.square(rate), p["alpha"] * rate
        return Split("skew", constant, parameters, identity)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        rate, alpha = 1.0 / p["sigma"], p["alpha"]
        z = (y - p["mu"]) * rate
        ratio, excess = _inverse_mills(alpha * z)
        grad = (alpha * ratio - z) * rate
        return grad, -(1.0 + np.square(alpha) * (ratio * excess)) * np.square(rate)

    def location(self, p: Parameters) -> Array:
        return p["mu"] + p["sigma"] * (SQRT_2_OVER_PI * _lean(p["alpha"]))

    def spread(self, p: Parameters) -> Array:
        return p["sigma"] * np.sqrt(1.0 - np.square(SQRT_2_OVER_PI * _lean(p["alpha"])))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        # Two normals, one of them folded: the sum leans as far as its share in it.
        lean = _lean(p["alpha"])
        folded, rest = np.abs(rng.normal(size=size)), rng.normal(size=size)
        return p["mu"] + p["sigma"] * (lean * folded + np.sqrt(1.0 - np.square(lean)) * rest)


def _lean(alpha: Array) -> Array:
    return alpha / np.hypot(1.0, alpha)


def _inverse_mills(x: Array) -> tuple[Array, Array]:
    """Return r = φ(x)/Φ(x) and r + x, both to nearly full relative precision."""
    ratio = np.asarray(SQRT_2_OVER_PI / erfcx(x * -math.sqrt(0.5)))
    excess = np.asarray(ratio + x)
    # r + x falls like 1/|x| while r grows like |x|: below -20 the sum has lost 3 digits, and
    # Laplace's continued fraction 1/(t + 2/(t + 3/(t + …))), t = -x, needs few terms.
    tail = x < -20.0
    if tail.any():
        t = -x[tail]
        fraction = t
        for k in range(10, 1, -1):
            fraction = t + k / fraction
        excess[tail] = 1.0 / fraction
    return ratio, excess
