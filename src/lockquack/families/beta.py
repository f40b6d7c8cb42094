"""Beta."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import betaln

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


class Beta(Family):
    r"""Beta on (0, 1) with shapes ``alpha`` and ``beta``.

    .. math:: \log p = (\alpha-1)\log y + (\beta-1)\log(1-y) - \log B(\alpha, \beta)
    """

    name = "beta"
    signatures = ({"alpha": 0, "beta": 0},)
    positive = frozenset({"alpha", "beta"})
    support = (0.0, 1.0)

    def logp(self, y: Array, p: Parameters) -> Array:
        alpha, beta = p["alpha"], p["beta"]
        inner = confine(y, self.support)
        logp = (alpha - 1.0) * np.log(inner) + (beta - 1.0) * np.log1p(-inner)
        return mask_outside(logp - betaln(alpha, beta), y, self.support)

    def split(self, p: Parameters) -> Split:
        alpha, beta = p["alpha"], p["beta"]
        of_outcome = on_support(self.support, lambda y: (np.zeros_like(y), np.log(y), np.log1p(-y)))
        return Split("linear", -betaln(alpha, beta), (alpha - 1.0, beta - 1.0), of_outcome)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        y = confine(y, self.support)
        left, right = 1.0 / y, 1.0 / (1.0 - y)
        from_left, from_right = (p["alpha"] - 1.0) * left, (p["beta"] - 1.0) * right
        return from_left - from_right, from_left * -left - from_right * right

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        return Edge(0.0, ranges["alpha"].min - 1.0), Edge(1.0, ranges["beta"].min - 1.0)

    def location(self, p: Parameters) -> Array:
        return p["alpha"] / (p["alpha"] + p["beta"])

    def spread(self, p: Parameters) -> Array:
        total = p["alpha"] + p["beta"]
        return np.sqrt(p["alpha"] * p["beta"] / (total + 1.0)) / total

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.beta(p["alpha"], p["beta"], size)
