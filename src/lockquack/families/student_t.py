"""Student t."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import poch

from lockquack.families.base import Family, Parameters, Split, identity
from lockquack.jets import Array


class StudentT(Family):
    r"""Student t with ``nu`` degrees of freedom, location ``mu`` and scale ``sigma``.

    .. math::

        \log p = \log\frac{\Gamma(\frac{\nu+1}2)}{\Gamma(\frac\nu2)} - \tfrac12\log\nu\pi
            - \log\sigma - \tfrac{\nu+1}2 \log(1 + z^2/\nu), \quad z = (y-\mu)/\sigma
    """

    name = "student_t"
    signatures = ({"nu": 0, "mu": 0, "sigma": 0},)
    positive = frozenset({"nu", "sigma"})
    orders = (0.0, 0.0)

    def logp(self, y: Array, p: Parameters) -> Array:
        nu, sigma = p["nu"], p["sigma"]
        square = np.square(y - p["mu"]) / (nu * np.square(sigma))
        return (log_normaliser(nu, 1) - np.log(sigma)) - (0.5 * nu + 0.5) * np.log1p(square)

    def split(self, p: Parameters) -> Split:
        nu, sigma = p["nu"], p["sigma"]
        constant = log_normaliser(nu, 1) - np.log(sigma)
        parameters = p["mu"], 1.0 / (nu * np.square(sigma)), 0.5 * nu + 0.5
        return Split("student", constant, parameters, identity)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        width = p["nu"] * np.square(p["sigma"])
        offset = y - p["mu"]
        square = offset * offset
        inverse = 1.0 / (width + square)
        pull = (-1.0 - p["nu"]) * inverse
        return pull * offset, (width - square) * inverse * pull

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return p["mu"] + p["sigma"] * rng.standard_t(p["nu"], size)


def log_normaliser(nu: Array, d: int) -> Array:
    r"""Return :math:`\log\Gamma(\frac{\nu+d}2) - \log\Gamma(\frac\nu2) - \frac d2\log\nu\pi`.

    As a rising factorial, because the two log-gammas cancel all digits when ν is large.
    """
    half = 0.5 * nu
    whole, odd = divmod(d, 2)
    rising = sum((np.log1p(j / half) for j in range(whole)), start=0.5 * odd * -np.log(half))
    if odd:
        rising = rising + np.log(poch(half + whole, 0.5))
    return rising - 0.5 * d * math.log(2.0 * math.pi)
