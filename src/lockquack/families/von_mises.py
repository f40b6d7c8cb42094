"""Von Mises."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import i0e

from lockquack.families.base import Edge, Family, Parameters, Range, confine, mask_outside
from lockquack.jets import Array


class VonMises(Family):
    r"""Von Mises: angles from −π to π, with direction ``mu`` and concentration ``kappa``.

    .. math:: \log p = \kappa \cos(y - \mu) - \log(2\pi I_0(\kappa))

    −π and π are the same angle, where nothing ends: density and derivatives go on at the other
    end, so the terms that an edge would add to the Hyvärinen score cancel.
    """

    name = "von_mises"
    signatures = ({"mu": 0, "kappa": 0},)
    positive = frozenset({"kappa"})
    support = (-math.pi, math.pi)
    fixed_edges = (Edge(-math.pi, 0.0, joined=True), Edge(math.pi, 0.0, joined=True))
    #: Both ends are angles; in single precision π is 9e-8 too large.
    slack = 1e-6
    outside_advice = "Bring angles there by (y + np.pi) % (2 * np.pi) - np.pi."

    def logp(self, y: Array, p: Parameters) -> Array:
        # cos − 1, whose digits do not get lost where κ is large and y near μ
        below = -2.0 * np.square(np.sin((confine(y, self.outcomes) - p["mu"]) / 2.0))
        log_norm = math.log(2.0 * math.pi) + np.log(i0e(p["kappa"]))
        return mask_outside(p["kappa"] * below - log_norm, y, self.outcomes)

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        angle = confine(y, self.outcomes) - p["mu"]
        return -p["kappa"] * np.sin(angle), -p["kappa"] * np.cos(angle)

    def edges(self, ranges: Mapping[str, Range]) -> tuple[Edge, ...]:
        return self.fixed_edges

    def location(self, p: Parameters) -> Array:
        return np.remainder(p["mu"] + math.pi, 2.0 * math.pi) - math.pi

    def spread(self, p: Parameters) -> Array:
        # That of the normal that it becomes, or of the uniform, whichever is smaller.
        return np.minimum(1.0 / np.sqrt(p["kappa"]), math.pi / math.sqrt(3.0))

    def bulks(self, p: Parameters) -> list[tuple[Array, Array]]:
        """Count a bulk that crosses π once on either side."""
        location, spread = self.location(p), self.spread(p)
        return [(location + turn, spread) for turn in (0.0, -2.0 * math.pi, 2.0 * math.pi)]

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.vonmises(p["mu"], p["kappa"], size)
