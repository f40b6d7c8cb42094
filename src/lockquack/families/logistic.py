"""Logistic."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from lockquack.families.base import Edge, Family, Parameters, Range
from lockquack.jets import Array


class Logistic(Family):
    r"""Logistic with location ``mu`` and scale ``s``.

    .. math:: \log p = -|z| - 2\log(1 + e^{-|z|}) - \log s, \quad z = (y-\mu)/s
    """

    name = "logistic"
    signatures = ({"mu": 0, "s": 0},)
    positive = frozenset({"s"})

    def logp(self, y: Array, p: Parameters) -> Array:
        distance = np.abs((y - p["mu"]) / p["s"])
        return -distance - 2.0 * np.log1p(np.exp(-distance)) - np.log(p["s"])

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        rate = 1.0 / p["s"]
        depth = (p["mu"] - y) * rate
        # Not by tanh: 1 - tanh² has no digits left in the tails.
        decay = np.exp(-np.abs(depth))
        near = rate / (1.0 + decay)
        far = near * decay
        return np.copysign(near - far, depth), far * near * -2.0

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        rate = 1.0 / ranges["s"].max
        return Edge(-np.inf, rate), Edge(np.inf, rate)

    def spread(self, p: Parameters) -> Array:
        return p["s"] * (math.pi / math.sqrt(3.0))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.logistic(p["mu"], p["s"], size)
