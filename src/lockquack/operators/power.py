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
    bare,
    column,
    log_sum_exp,
    pool_densities,
    power_pool,
    power_pool_derivatives,
    push_through_pool,
)
from lockquack.operators.base import Normaliser, Operator, SumOverNodes
from lockquack.operators.space import Simplex, Space
from lockquack.quadrature.nodes import Nodes


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
    def normaliser(self, nodes: Nodes) -> Normaliser:
        return PowerNorm(self, nodes)

    @override
    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        return power_mean_bounds(x, self.power, low, high)

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        return push_through_pool(*self.terms(jets, x), member, tangent)


class PowerNorm(SumOverNodes):
    r"""The normaliser of a power pool, without derivatives at each node.

    With shares :math:`c_k` of the models at a node, and s of the node in the integral Z,

    .. math:: \partial_{\log a_k} \log Z = \tfrac1p \textstyle\sum s\, c_k, \qquad
        \partial_p \log Z = \tfrac1p \textstyle\sum s\, (\sum_k c_k \log\pi_k - \log q).
    """

    operator: PowerPool

    @override
    def tangents(self, x: Array) -> tuple[Array, Array]:
        logp = self.nodes.logp
        jets, log_coef, power = self.operator.terms(bare(logp), x)
        if power == 0:
            return super().tangents(x)
        with np.errstate(invalid="ignore"):
            share, logq = pool_densities(jets.logp, log_coef, power)
            of_node, log_norm = self._shares(logq)
            share *= of_node
            by_coef = share.sum(axis=1) / power
            mean = np.einsum("kmn,kmn->n", share, logp) - np.einsum("mn,mn->n", of_node, logq)
        if not np.isfinite(mean).all():  # densities of zero
            return super().tangents(x)
        slopes = PoolDerivatives(bare(log_norm), bare(by_coef), lambda: bare(mean / power))
        return log_norm, self.operator.by_parameter(slopes).logp


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
