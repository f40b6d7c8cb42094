"""Pools that are a power mean of densities."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import numpy as np

from lockquack.jets import Array, Jet, pool_densities, power_pool
from lockquack.operators.base import Operator


class PowerPool(Operator, ABC):
    r"""The power pool with real weights and a fixed power.

    .. math:: q(y)^p \propto \sum_k w_k \pi_k(y)^p
    """

    power: ClassVar[float]

    def pool(self, jets: Jet, weights: Array) -> Jet:
        """Pool jets stacked over models, (K, n) and (K, n, d), into one jet, not normalised."""
        return power_pool(jets, _log(weights, jets.logp.ndim), self.power)

    def pool_density(self, logp: Array, weights: Array) -> Array:
        """Pool log densities stacked over models, (K, ...), into one, not normalised."""
        return pool_densities(logp, _log(weights, logp.ndim), self.power)[1]


def _log(weights: Array, ndim: int) -> Array:
    """Logarithms of K weights, −inf for zeros, shaped for the first of ``ndim`` axes."""
    with np.errstate(divide="ignore"):
        return np.log(weights).reshape(-1, *[1] * (ndim - 1))
