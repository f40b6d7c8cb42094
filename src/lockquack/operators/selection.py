"""Choosing one model, as a special case of combining."""

from __future__ import annotations

from lockquack.operators.linear import Linear


class Selection(Linear):
    r"""The prediction of the one model that scores best.

    .. math:: q(y) = \pi_{\hat k}(y), \qquad \hat k = \arg\max_k \sum_i \text{score}_i(\pi_k)

    A mixture whose weights are all on one model. It ignores how close the others came; the
    bootstrap tells how often each of them would have been chosen.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> lq.combine(example_models(), lq.Selection(), lq.LogScore()).weights.values
    array([0., 1.])
    """

    name = "selection"
    verb = "select"
    mixes = False
