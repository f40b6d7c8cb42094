"""The logarithmic score."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.rules.base import Pooled, Rule
from lockquack.rules.wishes import INTEGRAL


@dataclass(frozen=True)
class LogScore(Rule):
    r"""Logarithmic score of a normalised density, larger is better.

    .. math:: \log q(y) = \log \tilde q(y) - \log \int \tilde q(z) \, dz

    Its total over leave-one-out predictions is the expected log predictive density, elpd.
    Mixtures need no integral. For other pools it is a quadrature for each observation (scalar
    outcomes), a sum over all outcomes (discrete ones), or a closed form in the overlaps of the
    models (superposition); the models must be able to give their density anywhere.

    Leave-one-out densities come from Pareto-smoothed importance sampling; where Pareto k̂ is
    high they are unreliable, and a note says so.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> fit = lq.lock(example_models(), rule=lq.LogScore())
    >>> fit.weights.round(1).to_series().to_dict()
    {'first': 0.4, 'second': 0.6}

    References
    ----------
    Vehtari, Gelman, Gabry (2017), Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC, Statistics and Computing 27, arXiv:1507.04544.
    """

    name = "log"
    label = "log"
    short = "log"
    wishes = (INTEGRAL,)
    needs_density = True
    is_log_likelihood = True

    @override
    def score(self, pooled: Pooled) -> Array:
        return pooled.jet.logp - pooled.known[INTEGRAL]

    @override
    def slopes(self, pooled: Pooled, tangent: Pooled) -> Array:
        return tangent.jet.logp - tangent.known[INTEGRAL]

    @override
    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        return collapsed.mcse_logp()
