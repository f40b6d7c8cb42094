"""Half-normal."""

from __future__ import annotations

import math

import numpy as np

from lockquack.families.base import (
    Edge,
    Family,
    Parameters,
    Split,
    confine,
    mask_outside,
    on_support,
)
from lockquack.jets import Array

_TWO_OVER_PI = 2.0 / math.pi


class HalfNormal(Family):
    r"""Half-normal: the absolute value of a normal with mean 0 and scale ``sigma``.

    .. math:: \log p = -\tfrac12 y^2/\sigma^2 - \log\sigma + \tfrac12 \log(2/\pi)
    """

    name = "half_normal"
    signatures = ({"sigma": 0},)
    positive = frozenset({"sigma"})
    support = (0.0, np.inf)
    fixed_edges = (Edge(0.0, 0.0), Edge(np.inf, np.inf))
    orders = (0.0, np.inf)

    def logp(self, y: Array, p: Parameters) -> Array:
        constant = np.log(p["sigma"]) - 0.5 * math.log(_TWO_OVER_PI)
        return mask_outside(-0.5 * np.square(y / p["sigma"]) - constant, y, self.support)

    def split(self, p: Parameters) -> Split:
        constant = 0.5 * math.log(_TWO_OVER_PI) - np.log(p["sigma"])
        parameters = np.zeros(1), -0.5 / np.square(p["sigma"])
        of_outcome = on_support(self.support, lambda y: (np.zeros_like(y), y))
        return Split("square", constant, parameters, of_outcome)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        y = confine(y, self.support)
        curv = -1.0 / np.square(p["sigma"])
        grad = y * curv
        return grad, np.where(np.isnan(grad), np.nan, curv)

    def location(self, p: Parameters) -> Array:
        return p["sigma"] * math.sqrt(_TWO_OVER_PI)

    def spread(self, p: Parameters) -> Array:
        return p["sigma"] * math.sqrt(1.0 - _TWO_OVER_PI)

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return np.abs(rng.normal(0.0, p["sigma"], size))
