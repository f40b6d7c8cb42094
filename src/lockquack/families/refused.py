"""Likelihoods that people look for and do not find here, with the reason and a way out."""

from __future__ import annotations

from dataclasses import dataclass

_COUNTS = "Give its log densities by from_arrays and use the log score."
_LOG = "Model log y, by transform='log', for all models, or use the log score."


@dataclass(frozen=True)
class Refused:
    """Why a likelihood is not offered."""

    reason: str
    instead: str
    discrete: bool = False
    #: Why its Hyvärinen score is not proper, whatever its parameters; empty: it may be.
    not_smooth: str = ""


def _discrete(name: str) -> Refused:
    return Refused(
        f"{name} is discrete, so it has no derivatives in the outcome", _COUNTS, discrete=True
    )


def _rough(where: str, instead: str) -> Refused:
    return Refused(where, instead, not_smooth=where)


_REFUSED = {
    "poisson": _discrete("the Poisson"),
    "binomial": _discrete("the binomial"),
    "bernoulli": _discrete("the Bernoulli"),
    "negativebinomial": _discrete("the negative binomial"),
    "betabinomial": _discrete("the beta-binomial"),
    "geometric": _discrete("the geometric"),
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
    "exponential": _rough("it is the gamma with alpha=1, whose density does not vanish at 0", _LOG),
    "halfnormal": _rough("its density does not vanish at 0", _LOG),
    "halfcauchy": _rough("its density does not vanish at 0", _LOG),
    "pareto": _rough("its density does not vanish at its smallest value", _LOG),
    "weibull": Refused(
        "its derivatives are not written yet",
        "Use gamma or lognormal, or compute them and use from_arrays.",
    ),
}


_PREFIXES = {
    "truncated": _rough("its density does not vanish where it is cut off", _LOG),
    "half": _rough("its density does not vanish at 0", _LOG),
    "censored": _rough("it has atoms where outcomes are censored", "Use the log score."),
    "hurdle": _rough("it has an atom at 0", "Use the log score."),
    "zeroinflated": _discrete("a zero-inflated likelihood"),
    "discrete": _discrete("it"),
    "ordered": _discrete("an ordered likelihood"),
    "bernoulli": _discrete("the Bernoulli"),
}


def find_refused(name: str) -> Refused | None:
    """Look up a likelihood that is not offered, however its name is spelt.

    Examples
    --------
    >>> find_refused("HalfNormal") is find_refused("half_normal")
    True
    >>> find_refused("normal")
    """
    plain = "".join(filter(str.isalnum, name.lower()))
    for prefix, why in _PREFIXES.items():
        if plain.startswith(prefix) and plain not in _REFUSED:
            return why
    return _REFUSED.get(plain)
