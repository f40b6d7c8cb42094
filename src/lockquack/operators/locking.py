"""Locking: the log-linear pool."""

from __future__ import annotations

from lockquack.operators.power import PowerPool


class Locking(PowerPool):
    r"""Log-linear pooling, the geometric bridge between the models.

    .. math:: q(y) \propto \prod_k \pi_k(y)^{w_k}, \qquad w \ge 0, \; \sum_k w_k = 1

    The pool of log-concave densities is log-concave, so it has one mode where a mixture can
    have several, and it lies between the extreme modes of its members. It does not hold for
    heavy tails: the equal pool of two Cauchy densities at ±5 has modes at ±4.9.

    Examples
    --------
    The pool of N(0, 1) and N(4, 1) with weights ¾ and ¼ is N(1, 1); at 0 its gradient is 1:

    >>> import numpy as np
    >>> from lockquack.jets import Jet
    >>> jets = Jet(np.zeros((2, 1)), np.array([[[0.0]], [[4.0]]]), -np.ones((2, 1, 1)))
    >>> pooled = Locking().pool(jets, np.array([0.75, 0.25]))
    >>> pooled.grad.item(), pooled.curv.item()
    (1.0, -1.0)
    """

    name = "locking"
    needs_density = False
    normalised = False
    power = 0.0
