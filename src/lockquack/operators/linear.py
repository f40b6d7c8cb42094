"""The linear pool."""

from __future__ import annotations

from lockquack.jets import Array
from lockquack.operators.power import PowerPool


class Linear(PowerPool):
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
    verb = "mix"
    needs_density = True
    normalised = True
    mixes = True
    power = 1.0

    def mixture_above(self, x: Array, K: int) -> Array:
        """Coefficients of a mixture above the pool, which is one itself."""
        return self.weights(x, K)
