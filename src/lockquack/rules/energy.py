"""Scores of distributions by distances: CRPS and energy score. They need no densities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.operators.base import Operator
from lockquack.rules.base import Pooled
from lockquack.rules.scaled import ScaledRule
from lockquack.rules.wishes import DISTANCES, DISTRIBUTION, LEVELS, Wish


@dataclass(frozen=True)
class EnergyScore(ScaledRule):
    r"""Energy score of a mixture, from predictive draws; for vectors too. Larger is better.

    .. math:: -\Bigl(E|X - y| - \tfrac12 E|X - X'|\Bigr)
       = -\sum_k w_k E|X_k - y| + \tfrac12 \sum_{jk} w_j w_k E|X_j - X_k'|

    with Euclidean distances in units of the outcome's components, and :math:`X_k`, :math:`X_k'`
    independent draws of model k. It is quadratic in the weights of a mixture, so that these come
    with a certificate. It needs draws and no densities: of simulators, of censored, mixed or
    discrete outcomes. One outcome, however far out, has a bounded influence on the weights.

    It is for mixtures: of other pools, draws of the models tell nothing. Of more than a thousand
    draws of a model, a thousand at equal distances are used. It sees errors of means better than
    those of correlations. For single numbers it is the :class:`CRPS`.

    Parameters
    ----------
    scale
        The unit of the outcome, one number or one per component; 1 for the outcome's own. None:
        the standard deviation of what was observed.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(size=(40, 2))
    >>> models = {
    ...     "near": lq.from_draws(rng.normal(size=(1, 200, 40, 2)), y=y, held_out=True),
    ...     "far": lq.from_draws(3 + rng.normal(size=(1, 200, 40, 2)), y=y, held_out=True),
    ... }
    >>> fit = lq.combine(models, lq.Linear(), lq.EnergyScore())
    >>> fit.weights.round(1).to_series().to_dict()
    {'near': 1.0, 'far': 0.0}

    References
    ----------
    Gneiting, Raftery (2007), Strictly proper scoring rules, prediction, and estimation, JASA 102.
    """

    name = "energy"
    label = "energy"
    short = "ES"
    wishes: ClassVar[tuple[Wish, ...]] = (DISTANCES,)
    is_for_mixtures = True
    is_by_distance = True

    @override
    def factor(self, unit: Array) -> Array:
        return 1.0 / unit

    @override
    def score(self, pooled: Pooled) -> Array:
        return -_distance(pooled)

    @override
    def slopes(self, pooled: Pooled, tangent: Pooled) -> Array:
        return -_distance(tangent)

    @override
    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        return float("nan")  # not known


@dataclass(frozen=True)
class CRPS(EnergyScore):
    r"""Continuous ranked probability score, larger is better.

    .. math:: -\int \bigl(F(t) - 1[t \ge y]\bigr)^2 dt
       = -\Bigl(E|X - y| - \tfrac12 E|X - X'|\Bigr)

    in units of the outcome's spread, with the distribution function F of the prediction. Of a
    mixture it is :math:`-w'Qw` with
    :math:`Q_{jk} = \int (F_j(t) - 1[t \ge y]) (F_k(t) - 1[t \ge y])\, dt`, a quadratic
    programme with a certificate. Where all models can be evaluated anywhere, their distribution
    functions are integrated; elsewhere predictive draws are sorted, which need no densities:
    those of simulators, of censored, mixed or discrete outcomes. Leave-one-out draws have
    Pareto-smoothed weights. Pools other than mixtures need densities; their problem is not convex.

    One outcome, however far out, has a bounded influence on the weights, unlike on those by the
    log score or the Hyvärinen score. In turn the score hardly sees what a model says of rare
    outcomes: do not trust it with tails.

    Parameters
    ----------
    scale
        The unit of the outcome; 1 for the outcome's own. None: the standard deviation of what was
        observed. It does not change the weights, except next to a prior that is not flat.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> fit = lq.combine(example_models(), lq.Linear(), lq.CRPS())
    >>> fit.weights.round(1).to_series().to_dict()
    {'first': 0.4, 'second': 0.6}

    References
    ----------
    Gneiting, Raftery (2007), Strictly proper scoring rules, prediction, and estimation, JASA 102.
    """

    name = "crps"
    label = "CRPS"
    short = "CRPS"
    wishes: ClassVar[tuple[Wish, ...]] = (DISTANCES, DISTRIBUTION, LEVELS)
    is_for_mixtures = False
    takes_quantiles = True

    @override
    def wishes_for(self, operator: Operator) -> tuple[Wish, ...]:
        if not operator.of_densities:
            return (LEVELS,)
        return (DISTANCES,) if operator.normalised else (DISTRIBUTION,)


def _distance(pooled: Pooled) -> Array:
    (known,) = pooled.known.values()
    return known
