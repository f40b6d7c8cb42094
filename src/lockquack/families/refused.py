"""Likelihoods that are not offered, with the reason and what to use instead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockquack.families.base import Edge
from lockquack.words import WEIGHTED_BY_LOG, Text, advice

_LOG_SCORE = advice(
    "Give its log densities by from_arrays(logp=..., likelihood=...) and use the log score.",
    "Leave out --family, so that the log densities in the file are taken, and use the log score.",
)
_WEIGHTED = Text(
    "Give its derivatives ",
    advice("by from_arrays", "in the file"),
    " and use ",
    WEIGHTED_BY_LOG,
    ", or use the log score.",
)


@dataclass(frozen=True)
class Refused:
    """Why a likelihood is not offered."""

    reason: str
    instead: str
    discrete: bool = False
    #: Why its Hyvärinen score is not proper, whatever its parameters; empty: it may be.
    not_smooth: str = ""
    #: Where its support ends and how it behaves there, whatever its parameters.
    edges: tuple[Edge, ...] = ()


def _discrete(name: str) -> Refused:
    return Refused(
        f"{name} is discrete, so it has no derivatives with respect to the outcome",
        _LOG_SCORE,
        discrete=True,
    )


def _rough(where: str, instead: str = _LOG_SCORE) -> Refused:
    return Refused(where, instead, not_smooth=where)


_HALF = Refused(
    "its density does not vanish at 0", _WEIGHTED, edges=(Edge(0.0, 0.0), Edge(np.inf, 0.0))
)

_REFUSED = {
    "betabinomial": _discrete("the beta-binomial"),
    "hypergeometric": _discrete("the hypergeometric"),
    "categorical": _discrete("the categorical"),
    "multinomial": _discrete("the multinomial"),
    "dirichletmultinomial": _discrete("the Dirichlet-multinomial"),
    "laplace": _rough(
        "its density has a kink at its centre", "Use student_t or logistic, or the log score."
    ),
    "doubleexponential": _rough(
        "it is the Laplace, whose density has a kink at its centre",
        "Use student_t or logistic, or the log score.",
    ),
    "triangular": _rough("its density has kinks", "Use beta on a scaled y, or the log score."),
    "asymmetriclaplace": _rough(
        "its density has a kink at its mode", "Use skew_normal, or the log score."
    ),
    "uniform": _rough(
        "its density jumps at both ends", "Use beta on a scaled y, or the log score."
    ),
    # Its edge is not at 0, so a weight that vanishes at 0 does not help.
    "pareto": _rough("its density does not vanish at its smallest value"),
}


_PREFIXES = {
    "truncated": _rough("its density does not vanish where it is cut off"),
    "half": _HALF,
    "censored": _rough("it has atoms where outcomes are censored"),
    "hurdle": _rough("it has an atom at 0"),
    "zeroinflated": _discrete("this zero-inflated likelihood"),
    "discrete": _discrete("it"),
    "ordered": _discrete("an ordered likelihood"),
    "bernoulli": _discrete("the Bernoulli"),
}


def letters_of(name: str) -> str:
    """Reduce a name to its letters and digits, so that spellings do not matter."""
    return "".join(filter(str.isalnum, name.lower()))


def find_refused(name: str) -> Refused | None:
    """Look up a likelihood that is not offered, however its name is spelt.

    Examples
    --------
    >>> find_refused("HalfCauchy") is find_refused("half_cauchy")
    True
    >>> find_refused("normal")
    """
    spelling = letters_of(name)
    for prefix, why in _PREFIXES.items():
        if spelling.startswith(prefix) and spelling not in _REFUSED:
            return why
    return _REFUSED.get(spelling)
