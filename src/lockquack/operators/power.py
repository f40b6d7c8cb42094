"""Pools that are a power mean of densities."""

from __future__ import annotations

from abc import ABC

import numpy as np
from typing_extensions import override

from lockquack.jets import Array, Jet, column, power_pool, power_pool_derivatives, push_through_pool
from lockquack.operators.base import Operator
from lockquack.operators.space import Simplex, Space


class PowerPool(Operator, ABC):
    r"""The power pool with real weights and a fixed power.

    .. math:: q(y)^p \propto \sum_k w_k \pi_k(y)^p
    """

    power: float

    def space(self, concentration: Array) -> Space:
        """Weights on the simplex."""
        return Space((Simplex("weights", concentration.size, concentration),))

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        return power_pool(jets, log_column(x, jets.logp.ndim), self.power)

    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate the pool in the logarithms of the weights."""
        log_coef = log_column(x, jets.logp.ndim)
        return power_pool_derivatives(jets, log_coef, self.power).by_log_coef

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        return push_through_pool(jets, log_column(x, jets.logp.ndim), self.power, member, tangent)


def log_column(weights: Array, ndim: int) -> Array:
    """Logarithms of K weights, −inf for zeros, shaped for the ends of ``ndim`` axes."""
    with np.errstate(divide="ignore"):
        return column(np.log(weights), ndim)
