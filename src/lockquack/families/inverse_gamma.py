"""Inverse gamma."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from lockquack.families.base import Family, Parameters, Split, confine, mask_outside, on_support
from lockquack.jets import Array


class InverseGamma(Family):
    r"""Inverse gamma with shape ``alpha`` and scale ``beta``: 1/y is a gamma of rate ``beta``.

    .. math:: \log p = -(\alpha+1)\log y - \beta/y + \alpha\log\beta - \log\Gamma(\alpha)
    """

    name = "inverse_gamma"
    signatures = ({"alpha": 0, "beta": 0},)
    positive = frozenset({"alpha", "beta"})
    support = (0.0, np.inf)
    orders = (np.inf, 0.0)

    def logp(self, y: Array, p: Parameters) -> Array:
        alpha, beta = p["alpha"], p["beta"]
        inner = confine(y, self.support)
        logp = (-1.0 - alpha) * np.log(inner) - beta / inner
        logp = logp + (alpha * np.log(beta) - gammaln(alpha))
        return mask_outside(logp, y, self.support)

    def split(self, p: Parameters) -> Split:
        alpha, beta = p["alpha"], p["beta"]
        constant = alpha * np.log(beta) - gammaln(alpha)
        of_outcome = on_support(self.support, lambda y: (-np.log(y), -np.log(y), -1.0 / y))
        return Split("linear", constant, (alpha, beta), of_outcome)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        inverse = 1.0 / confine(y, self.support)
        pull, push = p["alpha"] + 1.0, p["beta"] * inverse
        return (push - pull) * inverse, (pull - 2.0 * push) * (inverse * inverse)

    def location(self, p: Parameters) -> Array:
        # Mode and the width of its peak: neither mean nor standard deviation need exist.
        return p["beta"] / (p["alpha"] + 1.0)

    def spread(self, p: Parameters) -> Array:
        return p["beta"] / np.power(p["alpha"] + 1.0, 1.5)

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return p["beta"] / rng.gamma(p["alpha"], 1.0, size)
