"""Pools that are a power mean of densities."""

from __future__ import annotations

from abc import ABC

import numpy as np
from typing_extensions import override

from lockquack.jets import (
    Array,
    Jet,
    Numeric,
    PoolDerivatives,
    column,
    log_sum_exp,
    power_pool,
    power_pool_derivatives,
    push_through_pool,
)
from lockquack.operators.base import Operator
from lockquack.operators.space import Simplex, Space


class PowerPool(Operator, ABC):
    r"""A power pool; unless it says otherwise, of weights and a fixed power.

    .. math:: q(y)^p \propto \Bigl|\sum_k a_k \pi_k(y)^p\Bigr|
    """

    power: float

    def space(self, concentration: Array) -> Space:
        """Weights on the simplex."""
        return Space((Simplex("weights", concentration.size, concentration),))

    def terms(self, jets: Jet, x: Array) -> tuple[Jet, Numeric, float]:
        """Jets to be pooled, logarithms of the coefficients, and the power."""
        return jets, log_column(x, jets.logp.ndim), self.power

    def by_parameter(self, slopes: PoolDerivatives) -> Jet:
        """Return derivatives in the parameters: here, in the logarithms of the weights."""
        return slopes.by_log_coef

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        return power_pool(*self.terms(jets, x))

    @override
    def tangents(self, jets: Jet, x: Array) -> Jet:
        return self.expand(jets, x)[1]

    @override
    def expand(self, jets: Jet, x: Array) -> tuple[Jet, Jet]:
        slopes = power_pool_derivatives(*self.terms(jets, x))
        return slopes.pooled, self.by_parameter(slopes)

    @override
    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        return power_mean_bounds(x, self.power, low, high)

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        return push_through_pool(*self.terms(jets, x), member, tangent)


def power_mean_bounds(weights: Array, power: float, low: Array, high: Array) -> tuple[Array, Array]:
    r"""Bound the log of :math:`Z = \int (\sum_k w_k f_k^p)^{1/p}`.

    The :math:`w_k` sum to one; :math:`\log \int f_k` lies between ``low`` and ``high``. By the
    inequality of Minkowski, which turns around at p = 1, Z is at most the mean of order p of the
    integrals for :math:`p \le 1` (that of Hölder for p = 0), and at least that for
    :math:`p \ge 1`. In the other direction :math:`(\sum_k a_k)^{1/p}` lies beyond
    :math:`\sum_k a_k^{1/p}`, which functions without overlap attain. For :math:`p \le 0` these
    have no pool at all, and only all weight on one of them says more than Z > 0.
    """
    with np.errstate(divide="ignore"):
        log_w = column(np.log(weights), low.ndim)
    if power <= 0:
        alone = column(weights, low.ndim) == 1
        below = np.where(alone.any(axis=0), np.where(alone, low, -np.inf).max(axis=0), -np.inf)
        return below, _mean(log_w, power, high)
    apart = [log_sum_exp(log_w / power + each) for each in (low, high)]
    if power < 1:
        return apart[0], _mean(log_w, power, high)
    return _mean(log_w, power, low), apart[1]


def _mean(log_w: Array, power: float, logs: Array) -> Array:
    """Log of the mean of order p of exponentials."""
    with np.errstate(invalid="ignore"):
        if power == 0:
            return np.where(np.isneginf(log_w), 0.0, np.exp(log_w) * logs).sum(axis=0)
        terms = np.where(np.isneginf(log_w), -np.inf, log_w + power * logs)
    return np.asarray(log_sum_exp(terms) / power)


def log_column(weights: Array, ndim: int) -> Array:
    """Logarithms of K weights, −inf for zeros, shaped for the ends of ``ndim`` axes."""
    with np.errstate(divide="ignore"):
        return column(np.log(weights), ndim)
