"""Gamma."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import gammaln

from lockquack.families.base import (
    Edge,
    Family,
    Parameters,
    Range,
    Split,
    confine,
    mask_outside,
    on_support,
)
from lockquack.jets import Array


class Gamma(Family):
    r"""Gamma with shape ``alpha`` and rate ``beta``.

    .. math:: \log p = (\alpha-1)\log y - \beta y + \alpha\log\beta - \log\Gamma(\alpha)
    """

    name = "gamma"
    signatures = ({"alpha": 0, "beta": 0},)
    positive = frozenset({"alpha", "beta"})
    support = (0.0, np.inf)

    def logp(self, y: Array, p: Parameters) -> Array:
        alpha, beta = p["alpha"], p["beta"]
        inner = confine(y, self.support)
        logp = (alpha - 1.0) * np.log(inner) - beta * inner
        logp = logp + (alpha * np.log(beta) - gammaln(alpha))
        return mask_outside(logp, y, self.support)

    def split(self, p: Parameters) -> Split:
        alpha, beta = p["alpha"], p["beta"]
        constant = alpha * np.log(beta) - gammaln(alpha)
        of_outcome = on_support(self.support, lambda y: (-np.log(y), np.log(y), -y))
        return Split("linear", constant, (alpha, beta), of_outcome)

    def from_derivatives(self, y: Array, grad: Array, curv: Array) -> Parameters:
        return {"alpha": 1.0 - y * y * curv, "beta": -y * curv - grad}

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        inverse = 1.0 / confine(y, self.support)
        pull = (p["alpha"] - 1.0) * inverse
        grad = pull - p["beta"]
        return grad, np.broadcast_to(pull * -inverse, grad.shape)

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        return Edge(0.0, ranges["alpha"].min - 1.0), Edge(np.inf, ranges["beta"].min)

    def location(self, p: Parameters) -> Array:
        return p["alpha"] / p["beta"]

    def spread(self, p: Parameters) -> Array:
        return np.sqrt(p["alpha"]) / p["beta"]

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.gamma(p["alpha"], 1.0 / p["beta"], size)
