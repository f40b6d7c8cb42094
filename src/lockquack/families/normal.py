"""Normal."""

from __future__ import annotations

import math

import numpy as np

from lockquack.families.base import Family, Parameters, Split, identity
from lockquack.jets import Array

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Normal(Family):
    r"""Normal with mean ``mu`` and standard deviation ``sigma``.

    .. math:: \log p = -\tfrac12 z^2 - \log\sigma - \tfrac12 \log 2\pi, \quad z = (y-\mu)/\sigma
    """

    name = "normal"
    signatures = ({"mu": 0, "sigma": 0},)
    positive = frozenset({"sigma"})
    orders = (np.inf, np.inf)

    def logp(self, y: Array, p: Parameters) -> Array:
        offset = y - p["mu"]
        constant = np.log(p["sigma"]) + LOG_SQRT_2PI
        return offset * offset * (-0.5 / np.square(p["sigma"])) - constant

    def split(self, p: Parameters) -> Split:
        constant = -np.log(p["sigma"]) - LOG_SQRT_2PI
        return Split("square", constant, (p["mu"], -0.5 / np.square(p["sigma"])), identity)

    def from_derivatives(self, y: Array, grad: Array, curv: Array) -> Parameters:
        return {"mu": y - grad / curv, "sigma": np.sqrt(-1.0 / curv)}

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        curv = -1.0 / np.square(p["sigma"])
        grad = (y - p["mu"]) * curv
        return grad, np.broadcast_to(curv, grad.shape)

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.normal(p["mu"], p["sigma"], size)
