"""Multivariate Student t."""

from __future__ import annotations

import numpy as np

from lockquack.families.base import Parameters
from lockquack.families.elliptical import Elliptical, Whitened
from lockquack.families.student_t import log_normaliser
from lockquack.jets import Array


class MvStudentT(Elliptical):
    r"""Multivariate t with ``nu``, location ``mu`` and matrix ``scale`` or its lower ``chol``.

    With :math:`m = \delta'\Sigma^{-1}\delta`, :math:`\delta = y - \mu`,

    .. math::

        \log p = \log\frac{\Gamma(\frac{\nu+d}2)}{\Gamma(\frac\nu2)} - \tfrac d2\log\nu\pi
            - \tfrac12\log\det\Sigma - \tfrac{\nu+d}2 \log(1 + m/\nu).
    """

    name = "mv_student_t"
    signatures = ({"nu": 0, "mu": 1, "scale": 2}, {"nu": 0, "mu": 1, "chol": 2})
    positive = frozenset({"nu"})
    matrix = "scale"
    orders = (0.0, 0.0)

    def density(self, square: Array, log_det: Array, p: Parameters) -> Array:
        nu, d = p["nu"], p["mu"].shape[-1]
        constant = log_normaliser(nu, d) - log_det
        return constant - (0.5 * nu + 0.5 * d) * np.log1p(square / nu)

    def slopes(self, white: Whitened, p: Parameters) -> tuple[Array, Array]:
        count = np.asarray(p["nu"] + white.d)[..., None]
        inverse = (1.0 / (p["nu"] + white.square))[..., None]
        pull = white.pull * inverse
        return -count * pull, count * (2.0 * pull * pull - white.precision * inverse)

    def radius(self, p: Parameters, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return np.sqrt(p["nu"] / rng.chisquare(p["nu"], size))
