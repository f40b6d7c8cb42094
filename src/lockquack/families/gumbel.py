"""Gumbel of maxima."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from lockquack.families.base import Edge, Family, Parameters, Range, exp
from lockquack.jets import Array


class Gumbel(Family):
    r"""Gumbel of maxima with location ``mu`` and scale ``beta``.

    .. math:: \log p = -z - e^{-z} - \log\beta, \quad z = (y-\mu)/\beta
    """

    name = "gumbel"
    signatures = ({"mu": 0, "beta": 0},)
    positive = frozenset({"beta"})

    def logp(self, y: Array, p: Parameters) -> Array:
        depth = (p["mu"] - y) / p["beta"]
        return depth - exp(depth) - np.log(p["beta"])

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        rate = 1.0 / p["beta"]
        hazard = exp((p["mu"] - y) * rate)
        return (hazard - 1.0) * rate, hazard * -np.square(rate)

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        return Edge(-np.inf, np.inf), Edge(np.inf, 1.0 / ranges["beta"].max)

    def location(self, p: Parameters) -> Array:
        return p["mu"] + np.euler_gamma * p["beta"]

    def spread(self, p: Parameters) -> Array:
        return p["beta"] * (math.pi / math.sqrt(6.0))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.gumbel(p["mu"], p["beta"], size)
