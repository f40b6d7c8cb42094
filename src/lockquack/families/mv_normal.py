"""Multivariate normal."""

from __future__ import annotations

import numpy as np

from lockquack.families.base import Parameters
from lockquack.families.elliptical import Elliptical, Whitened
from lockquack.families.normal import LOG_SQRT_2PI
from lockquack.jets import Array


class MvNormal(Elliptical):
    r"""Multivariate normal with mean ``mu`` and covariance ``cov`` or its lower ``chol``.

    .. math::

        \log p = -\tfrac12 \delta'\Sigma^{-1}\delta - \tfrac12\log\det\Sigma
            - \tfrac d2 \log 2\pi, \quad \delta = y - \mu
    """

    name = "mv_normal"
    signatures = ({"mu": 1, "cov": 2}, {"mu": 1, "chol": 2})
    matrix = "cov"
    orders = (np.inf, np.inf)

    def density(self, square: Array, log_det: Array, p: Parameters) -> Array:
        return -0.5 * square - (log_det + p["mu"].shape[-1] * LOG_SQRT_2PI)

    def slopes(self, white: Whitened, p: Parameters) -> tuple[Array, Array]:
        grad = -white.pull
        return grad, np.broadcast_to(-white.precision, grad.shape)
