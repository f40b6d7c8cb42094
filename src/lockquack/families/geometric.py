"""Geometric."""

from __future__ import annotations

import numpy as np

from lockquack.families.base import Parameters
from lockquack.families.discrete import DiscreteFamily
from lockquack.jets import Array


class Geometric(DiscreteFamily):
    r"""Geometric: trials up to and with the first success, of probability ``p`` each.

    .. math:: \log p = \log p + (y-1)\log(1-p), \quad y \ge 1
    """

    name = "geometric"
    signatures = ({"p": 0},)
    probabilities = frozenset({"p"})
    support = (1.0, np.inf)

    def log_mass(self, y: Array, p: Parameters) -> Array:
        return np.log(p["p"]) + (y - 1.0) * np.log1p(-p["p"])

    def location(self, p: Parameters) -> Array:
        return 1.0 / p["p"]

    def spread(self, p: Parameters) -> Array:
        return np.sqrt(1.0 - p["p"]) / p["p"]

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.geometric(p["p"], size).astype(np.float64)
