"""Poisson."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from lockquack.families.base import Parameters
from lockquack.families.discrete import DiscreteFamily
from lockquack.jets import Array


class Poisson(DiscreteFamily):
    r"""Poisson with mean ``mu``.

    .. math:: \log p = y\log\mu - \mu - \log y!
    """

    name = "poisson"
    signatures = ({"mu": 0},)
    positive = frozenset({"mu"})

    def log_mass(self, y: Array, p: Parameters) -> Array:
        return y * np.log(p["mu"]) - p["mu"] - gammaln(y + 1.0)

    def spread(self, p: Parameters) -> Array:
        return np.sqrt(p["mu"])

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.poisson(p["mu"], size).astype(np.float64)
