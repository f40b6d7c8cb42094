"""Bernoulli."""

from __future__ import annotations

import numpy as np

from lockquack.families.base import Parameters
from lockquack.families.discrete import DiscreteFamily
from lockquack.jets import Array


class Bernoulli(DiscreteFamily):
    r"""Bernoulli: 1 with probability ``p``, else 0.

    .. math:: \log p = y\log p + (1-y)\log(1-p)
    """

    name = "bernoulli"
    signatures = ({"p": 0},)
    probabilities = frozenset({"p"})
    support = (0.0, 1.0)

    def log_mass(self, y: Array, p: Parameters) -> Array:
        return y * np.log(p["p"]) + (1.0 - y) * np.log1p(-p["p"])

    def location(self, p: Parameters) -> Array:
        return p["p"]

    def spread(self, p: Parameters) -> Array:
        return np.sqrt(p["p"] * (1.0 - p["p"]))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return (rng.random(size) < p["p"]).astype(np.float64)
