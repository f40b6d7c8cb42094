"""The pairwise conditional score of discrete outcomes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from typing_extensions import override

from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.rules.base import Pooled, Rule
from lockquack.rules.wishes import NEIGHBOURS


@dataclass(frozen=True)
class PairwiseScore(Rule):
    r"""Conditional log score of a discrete outcome against its neighbours, larger is better.

    .. math:: -\sum_{z = y \pm 1} \log\Bigl(1 + \frac{q(z)}{q(y)}\Bigr)

    Each term is the log probability of y, given that the outcome is y or z. It is to counts what
    the Hyvärinen score is to densities: proper, and free of the normalising constant, which the
    exact :class:`LogScore` sums for every trial of the weights. Like it, it sees the shape near
    each observation only. Outcomes that are impossible under every model have no term.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y, rate = rng.poisson(3.0, size=40), 2.0 + 0.1 * rng.random((4, 100))
    >>> fit = lq.lock(
    ...     {
    ...         "low": lq.from_family("poisson", y=y, mu=rate),
    ...         "high": lq.from_family("poisson", y=y, mu=rate + 2.0),
    ...     },
    ...     rule=lq.PairwiseScore(),
    ... )
    >>> bool(fit.solution.converged)
    True

    References
    ----------
    Dawid, Musio (2014), Theory and applications of proper scoring rules, Metron 72,
    arXiv:1401.0398.
    """

    name = "pairwise"
    label = "pairwise conditional"
    short = "pairs"
    needs_density = True
    wishes = (NEIGHBOURS,)
    is_for_discrete = True

    @override
    def score(self, pooled: Pooled) -> Array:
        return np.asarray(-np.logaddexp(0.0, _rise(pooled)).sum(axis=0))

    @override
    def slopes(self, pooled: Pooled, tangent: Pooled) -> Array:
        share = expit(_rise(pooled))
        with np.errstate(invalid="ignore"):
            return -np.where(share > 0, share * _rise(tangent), 0.0).sum(axis=-2)

    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        """Not known."""
        return float("nan")


def _rise(pooled: Pooled) -> Array:
    """Log of q(z)/q(y) for each neighbour z, (..., neighbour, n)."""
    return pooled.known[NEIGHBOURS] - pooled.jet.logp[..., None, :]
