"""What a score that looks at densities near the observations only cannot see.

The Hyvärinen score, and the pairwise score of counts, need no normaliser. So they do not notice
mass that lies where nothing was observed. What they miss shows in the log score, which is known
within bounds without a normaliser: see :meth:`lockquack.operators.pool.Pool.log_norm_bounds`.
"""

from __future__ import annotations

import numpy as np

from lockquack.fitting.objective import Objective
from lockquack.jets import Array, bare
from lockquack.operators.space import Mask

#: Difference of total log scores, in nats, that nobody should make anything of, and how many of
#: its standard errors it must be as well.
SMALL, _ERRORS = 4.0, 2.0
#: Smallest weight of a model that is worth asking whether the score sees it.
_WORTH_SEEING = 0.05
#: Share in the pool, in units of the weight, below which a model is not seen.
_NEGLIGIBLE = 0.01


def needs_no_normaliser(objective: Objective) -> bool:
    """Whether the fit can be misled: the rule never sees the normaliser of a pool that varies.

    Log-linear pools are not concerned. A far model pulls their mode away from the observations,
    which the score sees; and their log densities, for which leave-one-out weights would have to be
    computed, are not even needed. Pools that may have no normaliser at all are examined elsewhere.
    """
    operator = objective.operator
    varies = operator.needs_density and operator.always_integrable
    return varies and not objective.rule.needs_normaliser


def log_score_bounds(objective: Objective, x: Array) -> tuple[Array, Array]:
    """Bounds on the log score of a pool at each observation, (n,), from densities there alone."""
    logq = objective.operator.pool_density(objective.jets.logp, objective.parameters(x))
    least, most = objective.pool(x).log_norm_bounds
    return logq - most, logq - least


def summed(objective: Objective, scores: Array) -> float:
    """Sum log scores, minus infinity among them, over the observations that count."""
    counted = objective.counts > 0
    with np.errstate(invalid="ignore"):
        return float((scores[counted] * objective.counts[counted]).sum())


def best_alone(objective: Objective) -> int:
    """Return the model with the largest total log score."""
    return int(np.argmax([summed(objective, logp) for logp in objective.jets.logp]))


def falls_short(scores: Array, alone: Array, counts: Array, error: float = 0.0) -> bool:
    """Whether log scores are clearly below those of a model alone.

    ``counts`` is how often each observation counts, ``error`` what the total may be off by.
    Clearly means by more than four nats, and by more than two standard errors of the difference,
    paired over the observations.
    """
    counted = counts > 0
    counts = counts[counted]
    behind = np.where(np.isposinf(scores), np.inf, scores - alone)[counted]
    total, n = float((behind * counts).sum()), float(counts.sum())
    if not np.isfinite(total):
        return total < 0
    se = float(np.sqrt(np.square(behind - total / n) @ counts))
    return total + error < -max(SMALL, _ERRORS * se)


def shares(objective: Objective, x: Array) -> Array:
    """Elasticities of the pool at each observation in each model's density, (K, n).

    In a mixture they are the shares of the models. They add up to one where exponents do.
    """
    jets, unit = bare(objective.jets.logp), bare(np.ones((1, objective.n_obs)))
    x = objective.parameters(x)
    parts = [objective.operator.push(jets, x, k, unit).logp for k in range(objective.K)]
    return np.concatenate(parts)


def unseen(objective: Objective, x: Array) -> Mask:
    """Which models have a weight that the score does not depend on, (K,).

    Those have next to no share in the pool at any of the observations, so that another weight
    would change nothing there, and the prior alone determines it.
    """
    weights = objective.mean_weights(x)
    if not needs_no_normaliser(objective) or objective.K < 2:
        return np.zeros(objective.K, dtype=np.bool_)
    seen = objective.total(np.abs(shares(objective, x))) / objective.n_counted
    return np.asarray((weights >= _WORTH_SEEING) & (seen < _NEGLIGIBLE * weights))


def cost_of(hidden: Mask, weights: Array, n_obs: float) -> float:
    """Log score that models without a share cost the others: the mass that they take."""
    return -n_obs * float(np.log1p(-min(float(weights[hidden].sum()), 1.0 - 1e-300)))
