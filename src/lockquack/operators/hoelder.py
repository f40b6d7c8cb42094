"""The Hölder pool: power means of any order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import override

from lockquack.errors import ParameterError
from lockquack.jets import Array, Jet, Numeric, PoolDerivatives, join_jets, stack_jets
from lockquack.operators.base import Operator, Positions, common
from lockquack.operators.power import PowerPool, log_column, power_mean_bounds
from lockquack.operators.space import Interval, Space

#: Bounds of an estimated order; beyond, the pool is nearly the largest or smallest member.
_BOUND = 8.0
#: Orders this close to 0 are log-linear: (1/p) log Σ w π^p would be rounding error.
_ZERO = 1e-8
#: Largest logarithm of a negative power of a density: more stands for infinity.
_HUGE = 1e300


class Hoelder(PowerPool):
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
        self.normalised = self.p == 1.0
        self.vanishes_with_any = self.p is not None and self.p <= 0
        self.mixes = self.p is None or self.p > 0

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {} if self.p is None else {"p": self.p}

    def space(self, concentration: Array) -> Space:
        """Weights on the simplex, and the order if it is estimated."""
        weights = super().space(concentration)
        if self.p is not None:
            return weights
        order = Interval("power", 1, -_BOUND, _BOUND, first=(0.5, 0.05, 1.0, -1.0, 2.0))
        return Space((*weights.blocks, order))

    @override
    def terms(self, jets: Jet, x: Array) -> tuple[Jet, Numeric, float]:
        weights, order = self._split(x)
        lowest = _lowest(jets, order)
        if lowest is not None:
            jets = replace(jets, logp=np.maximum(jets.logp, lowest))
        return jets, log_column(weights, jets.logp.ndim), order

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        return self._with_zeros(super().pool(jets, x), jets, x)

    @override
    def expand(self, jets: Jet, x: Array) -> tuple[Jet, Jet]:
        pooled, tangents = super().expand(jets, x)
        return self._with_zeros(pooled, jets, x), tangents

    @override
    def by_parameter(self, slopes: PoolDerivatives) -> Jet:
        if self.p is not None:
            return slopes.by_log_coef
        return join_jets([slopes.by_log_coef, stack_jets([slopes.by_power])])

    def mixture_above(self, x: Array, K: int) -> Array:
        """Coefficients of a mixture above the pool: means of lower order, or the sum of terms."""
        weights, order = self._split(x)
        return weights if order <= 1 else weights ** (1.0 / order)

    @override
    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        return power_mean_bounds(*self._split(x), low, high)

    def parameters(self, x: Array, K: int) -> dict[str, Array]:
        """Return the order."""
        return {"power": np.asarray(self._split(x)[1])}

    @override
    def select(self, models: Positions, K: int) -> tuple[Operator, Positions]:
        return self, models if self.p is not None else np.append(models, K)

    def _with_zeros(self, pooled: Jet, jets: Jet, x: Array) -> Jet:
        lowest = _lowest(jets, self._split(x)[1])
        if lowest is None:
            return pooled
        return replace(pooled, logp=np.where(pooled.logp <= 0.5 * lowest, -np.inf, pooled.logp))

    def _split(self, x: Array) -> tuple[Array, float]:
        weights, order = (x, self.p) if self.p is not None else (x[:-1], common(x[-1]))
        return weights, 0.0 if abs(order) < _ZERO else order


def _lowest(jets: Jet, order: float) -> float | None:
    """Return what stands for log 0 where negative powers of it would be infinite."""
    if order >= 0 or jets.logp.min(initial=np.inf) > -np.inf:  # by one reading
        return None
    return -_HUGE / max(1.0, -order)
