"""Log-normal."""

from __future__ import annotations

import numpy as np

from lockquack.families.base import Family, Parameters, Split, confine, mask_outside, on_support
from lockquack.families.normal import LOG_SQRT_2PI
from lockquack.jets import Array


class LogNormal(Family):
    r"""Log-normal, ``log y`` normal with mean ``mu`` and standard deviation ``sigma``.

    .. math::

        \log p = -\tfrac12 z^2 - \log y - \log\sigma - \tfrac12 \log 2\pi, \quad
        z = (\log y-\mu)/\sigma
    """

    name = "lognormal"
    signatures = ({"mu": 0, "sigma": 0},)
    positive = frozenset({"sigma"})
    support = (0.0, np.inf)
    orders = (np.inf, 0.0)

    def logp(self, y: Array, p: Parameters) -> Array:
        log_y = np.log(confine(y, self.support))
        offset = log_y - p["mu"]
        constant = np.log(p["sigma"]) + LOG_SQRT_2PI
        logp = offset * offset * (-0.5 / np.square(p["sigma"])) - log_y - constant
        return mask_outside(logp, y, self.support)

    def split(self, p: Parameters) -> Split:
        constant = -np.log(p["sigma"]) - LOG_SQRT_2PI
        of_outcome = on_support(self.support, lambda y: (-np.log(y), np.log(y)))
        return Split("square", constant, (p["mu"], -0.5 / np.square(p["sigma"])), of_outcome)

    def from_derivatives(self, y: Array, grad: Array, curv: Array) -> Parameters:
        push = y * grad  # its own slope in log y is minus the precision
        precision = -(push + y * y * curv)
        return {"mu": np.log(y) + (1.0 + push) / precision, "sigma": np.sqrt(1.0 / precision)}

    def derivatives(self, y: Array, p: Parameters) -> tuple[Array, Array]:
        y = confine(y, self.support)
        precision = 1.0 / np.square(p["sigma"])
        push = (np.log(y) - p["mu"]) * precision + 1.0
        inverse = 1.0 / y
        return push * -inverse, (push - precision) * (inverse * inverse)

    def location(self, p: Parameters) -> Array:
        return np.exp(p["mu"])

    def spread(self, p: Parameters) -> Array:
        # Half the distance of the 16% and 84% quantiles: the standard deviation grows like
        # exp(σ²) and is then far from the bulk.
        return np.exp(p["mu"]) * np.sinh(p["sigma"])

    def draw(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.lognormal(p["mu"], p["sigma"], size)
