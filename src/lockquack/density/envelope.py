r"""Mixtures above a pool: what makes rejection sampling exact.

Every pool here is bounded by a mixture of its members, :math:`q(y) \le \sum_k c_k \pi_k(y)`:
a weighted power mean of order at most one by the arithmetic mean of the same weights, a
superposition of K members by K times it (Cauchy and Schwarz), a power mean of higher order by
the sum of its terms. A draw from the mixture is accepted with probability
:math:`q / \sum_k c_k \pi_k`, on average :math:`Z / \sum_k c_k`.
"""

from __future__ import annotations

import numpy as np

from lockquack.jets import Array
from lockquack.operators import Hoelder, Linear, Locking, Operator, Superposition
from lockquack.operators.hybrid import SignedLocking
from lockquack.operators.nested import Composite, CompositeOperator


def dominating_mixture(operator: Operator, x: Array, K: int) -> Array | None:
    """Coefficients c of a mixture above the pool, (K,), or None where there is no such bound."""
    if isinstance(operator, CompositeOperator):
        return _of_composite(operator.composite(K), x, K)
    if isinstance(operator, Linear):
        return operator.weights(x, K)
    if isinstance(operator, Superposition):
        weights = operator.weights(x, K)
        return weights * np.count_nonzero(weights)
    if isinstance(operator, Hoelder):
        weights, order = operator.weights(x, K), float(operator.parameters(x, K)["power"])
        return weights if order <= 1 else weights ** (1.0 / order)
    if isinstance(operator, Locking) and not isinstance(operator, SignedLocking):
        weights = operator.weights(x, K)
        return weights if np.isclose(weights.sum(), 1.0, rtol=0, atol=1e-9) else None
    return None


def _of_composite(composite: Composite, x: Array, K: int) -> Array | None:
    """Bound the outer pool by a mixture of its members, and each member by one of the models."""
    outer, inner = composite.split(x, K)
    above = dominating_mixture(composite.outer, outer, len(composite.members))
    if above is None:
        return None
    total = np.zeros(K)
    for share, member, part in zip(above, composite.members, inner, strict=True):
        within: Array | None = np.ones(1)
        if member.operator is not None:
            within = dominating_mixture(member.operator, part, member.models.size)
        if within is None:
            return None
        total[member.models] += share * within
    return total
