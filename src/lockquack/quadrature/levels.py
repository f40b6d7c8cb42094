r"""Quantiles of distributions at equal steps of probability, and their distance to an outcome.

With quantiles :math:`q_l` at the levels :math:`\tau_l = (l + \frac12) / L` the continuous ranked
probability score is twice the mean pinball loss,

.. math:: \frac2L \sum_l \rho_{\tau_l}(y - q_l), \qquad \rho_\tau(r) = \max\{\tau r, (\tau - 1) r\}.

Of an average of quantiles it is convex in the weights: :math:`y - q_l` is linear in these where
they sum to one, :math:`y - q_l = -\sum_k w_k (q_{kl} - y)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lockquack.jets import Array
from lockquack.quadrature.nodes import Table

#: Number of levels.
COUNT = 100
#: Levels nearest to an outcome from which the density there is estimated.
_NEAREST = 10
#: Smallest distance of these, in units of the spread of a prediction: where all are one value, the
#: score has a corner.
_CORNER = 1e-3


def levels_of(count: int) -> Array:
    """Return levels at equal steps of probability.

    Examples
    --------
    >>> levels_of(4)
    array([0.125, 0.375, 0.625, 0.875])
    """
    return (np.arange(count) + 0.5) / count


@dataclass(frozen=True)
class Levels(Table):
    """By how much quantiles of K models exceed n outcomes, in units of these."""

    excess: Array  # (K, level, n)

    axes: ClassVar[dict[str, str]] = {"excess": "kmn"}

    @property
    def level(self) -> Array:
        """The levels, (level, 1)."""
        return levels_of(self.excess.shape[1])[:, None]

    def averaged(self, weights: Array) -> Array:
        """Excess of an average with weights (K,), or (K, n) where they differ: (level, n)."""
        if weights.ndim == 1:
            return np.tensordot(weights, self.excess, axes=1)
        return np.einsum("kn,kmn->mn", weights, self.excess)

    def distance(self, excess: Array) -> Array:
        """Score quantiles by how much they exceed the outcomes, (level, n) → (n,)."""
        loss = np.maximum(-self.level * excess, (1.0 - self.level) * excess)
        return np.asarray(2.0 * loss.mean(axis=0))

    def slopes(self, weights: Array) -> Array:
        """Slopes of the score of an average in the weights, (K, n)."""
        average = self.averaged(weights)
        # Where a probability sits on the outcome, there is a corner: the slope is that inwards.
        inwards = (average == 0) & (self.excess.sum(axis=0) > 0)
        above = ((average > 0) | inwards) - self.level
        return np.einsum("mn,kmn->kn", above, self.excess) * (2.0 / len(self.level))

    def hessians(self, weights: Array) -> Array:
        r"""Hessians of the score in the weights, (K, K, n), where the density is that nearby.

        With the density f of the average at the outcome and the models' excess there,
        :math:`2 f e_j e_k`; f from the distance of the nearest quantiles.
        """
        average = self.averaged(weights)
        away, count = np.abs(average), min(_NEAREST, len(average))
        nearest = np.argpartition(away, count - 1, axis=0)[:count]
        reach = np.take_along_axis(away, nearest, axis=0).max(axis=0)
        reach = np.maximum(reach, _CORNER * np.ptp(average, axis=0) + 1e-300)
        near = np.take_along_axis(self.excess, nearest[None], axis=1)
        found = np.einsum("jmn,kmn->jkn", near, near, optimize=True)
        return found / (len(average) * reach)
