"""The logarithmic score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockquack.collapse import Collapsed
from lockquack.jets import Array, Jet
from lockquack.rules.base import Rule


@dataclass(frozen=True)
class LogScore(Rule):
    r"""Logarithmic score of a normalised density, larger is better.

    .. math:: \log q(y)

    Its total over leave-one-out predictions is the expected log predictive density, elpd.
    Leave-one-out densities come from Pareto-smoothed importance sampling; where Pareto k̂ is
    high they are unreliable, and a note says so.

    References
    ----------
    Vehtari, Gelman, Gabry (2017), Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC, Statistics and Computing 27, arXiv:1507.04544.
    """

    name = "log"
    label = "log"
    needs_normaliser = True
    needs_derivatives = False
    needs_density = True

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, as JSON can hold it."""
        return {}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> LogScore:
        """Make it again from its options."""
        return cls(**options)

    def unit(self, y: Array) -> Array:
        """Units of the outcome, which do not matter: all 1."""
        return np.ones(y.shape[1])

    def score(self, jet: Jet, unit: Array) -> Array:
        """Score each observation: jets of shape (..., n) give (..., n)."""
        return jet.logp

    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        """Monte Carlo standard error of the total score of a model."""
        return collapsed.mcse_logp()
