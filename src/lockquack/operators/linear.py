"""The linear pool."""

from __future__ import annotations

from lockquack.jets import Array, Jet, pool_densities, power_pool
from lockquack.operators.base import Operator, log_weights


class Linear(Operator):
    r"""Linear pooling, the mixture of the models.

    .. math:: q(y) = \sum_k w_k \pi_k(y), \qquad w \ge 0, \; \sum_k w_k = 1

    Stacking, Bayesian model averaging and their relatives differ in the weights only. The
    mixture needs no normaliser; where the models disagree it has several modes.

    Examples
    --------
    At 0 the gradients of N(-1, 1) and N(1, 1) cancel in their equal mixture, and their spread
    takes the curvature away:

    >>> import numpy as np
    >>> from lockquack.jets import Jet
    >>> jets = Jet(np.zeros((2, 1)), np.array([[[-1.0]], [[1.0]]]), -np.ones((2, 1, 1)))
    >>> pooled = Linear().pool(jets, np.array([0.5, 0.5]))
    >>> pooled.grad.item(), pooled.curv.item()
    (0.0, 0.0)
    """

    name = "linear"
    needs_density = True
    normalised = True

    def pool(self, jets: Jet, weights: Array) -> Jet:
        """Pool jets stacked over models, (K, n) and (K, n, d), into one jet."""
        return power_pool(jets, log_weights(weights, jets.logp.ndim), 1.0)

    def pool_density(self, logp: Array, weights: Array) -> Array:
        """Pool log densities stacked over models, (K, ...), into one."""
        return pool_densities(logp, log_weights(weights, logp.ndim), 1.0)[1]
