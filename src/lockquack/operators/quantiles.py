"""The average of quantiles, beside the pools of densities."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from lockquack.jets import Array, Jet
from lockquack.operators.base import Operator
from lockquack.operators.space import Simplex, Space


class Quantiles(Operator):
    r"""The average of the models' quantiles (Vincentization).

    .. math:: F^{-1}(\tau) = \sum_k w_k F_k^{-1}(\tau), \qquad w \ge 0, \; \sum_k w_k = 1

    Where models disagree about the place and agree about the spread, the average lies between them
    and is as wide as they are; a mixture of them is wider. So it suits models that are each right
    but for a shift, and is too narrow where their disagreement is what is not known. It needs
    quantiles only, those of draws too, and is fitted by :class:`CRPS`. What it makes of densities
    at an outcome depends on these everywhere, so it has neither a log score nor a Hyvärinen score.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.combine(lq.example_models(), lq.Quantiles(), lq.CRPS())
    >>> fit.weights.round(1).to_series().to_dict()
    {'first': 0.4, 'second': 0.6}

    References
    ----------
    Lichtendahl, Grushka-Cockayne and Winkler (2013). Is it better to average probabilities or
    quantiles? Management Science 59(7).
    """

    name = "quantiles"
    verb = "average quantiles"
    needs_density = False
    normalised = False
    of_densities = False

    @override
    def space(self, concentration: Array) -> Space:
        return Space((Simplex("weights", concentration.size, concentration),))

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        return jets[0].times(np.array(np.nan))  # densities at the outcome do not tell

    @override
    def tangents(self, jets: Jet, x: Array) -> Jet:
        return jets.times(np.array(np.nan))

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        return tangent.times(np.array(np.nan))
