"""The Hölder pool: power means of any order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from typing_extensions import override

from lockquack.errors import ParameterError
from lockquack.jets import (
    Array,
    Jet,
    join_jets,
    power_pool,
    power_pool_derivatives,
    push_through_pool,
    stack_jets,
)
from lockquack.operators.base import Operator, common
from lockquack.operators.power import log_column
from lockquack.operators.space import Interval, Mask, Simplex, Space

#: Bounds of an estimated order; beyond, the pool is nearly the largest or smallest member.
_BOUND = 8.0
#: Orders this close to 0 are log-linear: (1/p) log Σ w π^p would be rounding error.
_ZERO = 1e-8
#: Largest logarithm of a negative power of a density: more stands for infinity.
_HUGE = 1e300


class Hoelder(Operator):
    r"""Power mean of densities of a fixed or an estimated order.

    .. math:: q(y) \propto \Bigl(\sum_k w_k \pi_k(y)^p\Bigr)^{1/p},
        \qquad w \ge 0, \; \sum_k w_k = 1

    One family from the harmonic pool (p = −1) through the log-linear one (p → 0, locking) to the
    mixture (p = 1). An order below 1 favours outcomes on which the models agree.

    Parameters
    ----------
    p
        The order, any finite number; ``None`` to estimate it together with the weights, between
        −8 and 8. Its estimate needs many observations, and models that differ.

    Examples
    --------
    >>> import numpy as np
    >>> density = np.log([[0.2], [0.8]])
    >>> harmonic = Hoelder(-1).pool_density(density, np.array([0.5, 0.5]))
    >>> np.exp(harmonic).round(3).item()
    0.32
    """

    name = "hoelder"
    needs_density = True

    def __init__(self, p: float | None = None) -> None:
        if p is not None and not (isinstance(p, int | float | np.number) and math.isfinite(p)):
            raise ParameterError(
                f"The order of a Hölder pool must be a finite number, or None to estimate it; "
                f"got {p!r}."
            )
        self.p = None if p is None else float(p)

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {} if self.p is None else {"p": self.p}

    @property
    def normalised(self) -> bool:  # type: ignore[override]
        """Whether the pool is the mixture."""
        return self.p == 1.0

    @property
    def vanishes_with_any(self) -> bool:  # type: ignore[override]
        """Whether the pool is zero wherever one of its members is."""
        return self.p is not None and self.p <= 0

    @property
    def mixes(self) -> bool:  # type: ignore[override]
        """Whether the pool may be close to a mixture."""
        return self.p is None or self.p > 0

    def space(self, concentration: Array) -> Space:
        """Weights on the simplex, and the order if it is estimated."""
        weights = Simplex("weights", concentration.size, concentration)
        if self.p is not None:
            return Space((weights,))
        order = Interval("power", 1, -_BOUND, _BOUND, first=(0.5, 0.05, 1.0, -1.0, 2.0))
        return Space((weights, order))

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        weights, order = self._split(x)
        bounded = _without_infinity(jets, order)
        pooled = power_pool(bounded, log_column(weights, jets.logp.ndim), order)
        if bounded is jets:
            return pooled
        logp = np.where(pooled.logp <= 0.5 * bounded.logp.min(), -np.inf, pooled.logp)
        return Jet(logp, pooled.grad, pooled.curv)

    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate the pool in the logarithms of the weights and in the order."""
        weights, order = self._split(x)
        jets = _without_infinity(jets, order)
        slopes = power_pool_derivatives(jets, log_column(weights, jets.logp.ndim), order)
        if self.p is not None:
            return slopes.by_log_coef
        return join_jets([slopes.by_log_coef, stack_jets([slopes.by_power])])

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        weights, order = self._split(x)
        jets = _without_infinity(jets, order)
        return push_through_pool(jets, log_column(weights, jets.logp.ndim), order, member, tangent)

    def mixture_above(self, x: Array, K: int) -> Array:
        """Coefficients of a mixture above the pool: means of lower order, or the sum of terms."""
        weights, order = self._split(x)
        return weights if order <= 1 else weights ** (1.0 / order)

    def parameters(self, x: Array, K: int) -> dict[str, Array]:
        """Return the order."""
        return {"power": np.asarray(self._split(x)[1])}

    @override
    def restrict(self, x: Array, keep: Mask) -> tuple[Operator, Array]:
        return self, np.concatenate([x[: keep.size][keep], x[keep.size :]])

    def _split(self, x: Array) -> tuple[Array, float]:
        weights, order = (x, self.p) if self.p is not None else (x[:-1], common(x[-1]))
        return weights, 0.0 if abs(order) < _ZERO else order


def _without_infinity(jets: Jet, order: float) -> Jet:
    """Keep negative powers of densities that are zero from being infinite."""
    if order >= 0 or not np.isneginf(jets.logp).any():
        return jets
    return Jet(np.maximum(jets.logp, -_HUGE / max(1.0, -order)), jets.grad, jets.curv)
