"""Counts with more zeros than a family of counts explains."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lockquack.families.base import Parameters
from lockquack.families.discrete import DiscreteFamily
from lockquack.families.negative_binomial import NegativeBinomial
from lockquack.families.poisson import Poisson
from lockquack.jets import Array


class ZeroInflated(DiscreteFamily):
    r"""A family of counts with probability ``psi``, and otherwise zero.

    .. math:: p(y) = \psi\, p_0(y) + (1-\psi)\, 1_{y=0}
    """

    counts: ClassVar[DiscreteFamily]
    probabilities = frozenset({"psi"})

    def log_mass(self, y: Array, p: Parameters) -> Array:
        log_psi = np.log(p["psi"])
        zero = np.logaddexp(np.log1p(-p["psi"]), log_psi + self.counts.log_mass(np.zeros(()), p))
        return np.where(y == 0, zero, log_psi + self.counts.log_mass(y, p))

    def location(self, p: Parameters) -> Array:
        return p["psi"] * self.counts.location(p)

    def spread(self, p: Parameters) -> Array:
        psi, mean, sd = p["psi"], self.counts.location(p), self.counts.spread(p)
        return np.sqrt(psi * (np.square(sd) + (1.0 - psi) * np.square(mean)))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        counts = self.counts.draw(p, rng, size)
        return np.where(rng.random(size) < p["psi"], counts, 0.0)


class ZeroInflatedPoisson(ZeroInflated):
    """Poisson with mean ``mu`` with probability ``psi``, and otherwise zero."""

    name = "zero_inflated_poisson"
    signatures = ({"psi": 0, "mu": 0},)
    positive = frozenset({"mu"})
    counts = Poisson()


class ZeroInflatedNegativeBinomial(ZeroInflated):
    """Negative binomial (``mu``, ``alpha``) with probability ``psi``, and otherwise zero."""

    name = "zero_inflated_negative_binomial"
    signatures = ({"psi": 0, "mu": 0, "alpha": 0},)
    positive = frozenset({"mu", "alpha"})
    counts = NegativeBinomial()
