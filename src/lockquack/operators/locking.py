"""Locking: the log-linear pool."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from typing_extensions import override

from lockquack.jets import Array, Jet, column, log_linear_pool
from lockquack.operators.base import Operator
from lockquack.operators.power import power_mean_bounds
from lockquack.operators.space import Positive, Simplex, Space
from lockquack.registry import require_known


class Locking(Operator):
    r"""Log-linear pooling, the weighted geometric mean of the models' densities, normalised.

    .. math:: q(y) \propto \prod_k \pi_k(y)^{w_k}, \qquad w \ge 0, \; \sum_k w_k = 1

    The pool of log-concave densities is log-concave, so it has one mode where a mixture can
    have several, and it lies between the extreme modes of its members. It does not hold for
    heavy tails: the equal pool of two Cauchy densities at ±5 has modes at ±4.9.

    Parameters
    ----------
    weights
        ``"simplex"``, or ``"nonnegative"`` to free their sum. A sum above one makes the pool
        narrower than its members, one below makes it wider, so that even a single model is
        recalibrated. The result then depends on the scale of the outcome: it does not commute
        with y → log y. A small sum of heavy-tailed densities may have no normaliser, which the
        Hyvärinen score does not notice; it is checked where the models can be evaluated.

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
    verb = "lock"
    needs_density = False
    normalised = False
    vanishes_with_any = True

    def __init__(self, weights: Literal["simplex", "nonnegative"] = "simplex") -> None:
        require_known("kind of weights", weights, ("simplex", "nonnegative"))
        # On the simplex the pool is below the mixture, which has a normaliser.
        self.on_simplex = self.always_integrable = weights == "simplex"

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {} if self.on_simplex else {"weights": "nonnegative"}

    def space(self, concentration: Array) -> Space:
        """Weights on the simplex, or not negative."""
        block = Simplex if self.on_simplex else Positive
        return Space((block("weights", concentration.size, concentration),))

    def mixture_above(self, x: Array, K: int) -> Array | None:
        """Coefficients of a mixture above the pool: geometric means are below arithmetic ones."""
        weights = self.weights(x, K)
        return weights if np.allclose(weights.sum(axis=0), 1.0, rtol=0, atol=1e-9) else None

    @override
    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        if (x < 0).any() or not np.allclose(x.sum(axis=0), 1.0, rtol=0, atol=1e-9):
            return super().log_norm_bounds(x, low, high)
        return power_mean_bounds(x, 0.0, low, high)

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        return log_linear_pool(jets, x)

    @override
    def tangents(self, jets: Jet, x: Array) -> Jet:
        return jets.times(column(x, jets.logp.ndim))

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        return tangent.times(x[member])
