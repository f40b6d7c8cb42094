"""Exponential."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockquack.families.base import (
    Edge,
    Family,
    Parameters,
    Range,
    Split,
    mask_outside,
    on_support,
    outside,
)
from lockquack.jets import Array


class Exponential(Family):
    r"""Exponential with rate ``lam``.

    .. math:: \log p = \log\lambda - \lambda y
    """

    name = "exponential"
    signatures = ({"lam": 0},)
    positive = frozenset({"lam"})
    support = (0.0, np.inf)
    fixed_edges = (Edge(0.0, 0.0), Edge(np.inf, 0.0))

    def logp(self, y: Array, p: Parameters) -> Array:
        return mask_outside(np.log(p["lam"]) - p["lam"] * y, y, self.support)

    def split(self, p: Parameters) -> Split:
        of_outcome = on_support(self.support, lambda y: (np.zeros_like(y), -y, np.zeros_like(y)))
        return Split("linear", np.log(p["lam"]), (p["lam"], np.zeros(1)), of_outcome)

    def from_derivatives(self, y: Array, grad: Array, curv: Array) -> Parameters:
        return {"lam": -grad}

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        curv = np.where(outside(y, self.support) | np.isnan(y), np.nan, 0.0)
        grad = curv - p["lam"]
        return grad, np.broadcast_to(curv, grad.shape)

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        return Edge(0.0, 0.0), Edge(np.inf, ranges["lam"].min)

    def location(self, p: Parameters) -> Array:
        return 1.0 / p["lam"]

    def spread(self, p: Parameters) -> Array:
        return 1.0 / p["lam"]

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.exponential(1.0 / p["lam"], size)
