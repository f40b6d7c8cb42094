"""Binomial."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from lockquack.families.base import Parameters
from lockquack.families.discrete import DiscreteFamily
from lockquack.jets import Array


class Binomial(DiscreteFamily):
    r"""Binomial: successes among ``n`` trials, each with probability ``p``.

    .. math:: \log p = \log\binom ny + y\log p + (n-y)\log(1-p), \quad y \le n
    """

    name = "binomial"
    signatures = ({"n": 0, "p": 0},)
    probabilities = frozenset({"p"})

    def log_mass(self, y: Array, p: Parameters) -> Array:
        n, failures = p["n"], p["n"] - y
        too_many = failures < 0
        failures = np.where(too_many, np.nan, failures)
        ways = gammaln(n + 1.0) - (gammaln(y + 1.0) + gammaln(failures + 1.0))
        logp = ways + y * np.log(p["p"]) + failures * np.log1p(-p["p"])
        return np.where(too_many, -np.inf, logp)

    def location(self, p: Parameters) -> Array:
        return p["n"] * p["p"]

    def spread(self, p: Parameters) -> Array:
        return np.sqrt(p["n"] * p["p"] * (1.0 - p["p"]))

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.binomial(p["n"].astype(np.int64), p["p"], size).astype(np.float64)

    def check_domain(self, p: Parameters) -> None:
        super().check_domain(p)
        n = np.asarray(p["n"])
        wrong = n[(n < 0) | (n != np.floor(n))]
        if wrong.size:
            raise self.invalid(
                "n", f"must be a whole number from 0; it takes the value {wrong[0]:g}"
            )
