"""Families of likelihoods; the continuous ones with exact derivatives in the observation."""

from __future__ import annotations

from lockquack.errors import UnknownNameError, UnsupportedError, unknown_name
from lockquack.families.base import Edge, Family, Parameters, Range, worst_edges
from lockquack.families.bernoulli import Bernoulli
from lockquack.families.beta import Beta
from lockquack.families.binomial import Binomial
from lockquack.families.exponential import Exponential
from lockquack.families.gamma import Gamma
from lockquack.families.geometric import Geometric
from lockquack.families.gumbel import Gumbel
from lockquack.families.half_normal import HalfNormal
from lockquack.families.inverse_gamma import InverseGamma
from lockquack.families.logistic import Logistic
from lockquack.families.lognormal import LogNormal
from lockquack.families.mixture import Mixture
from lockquack.families.mv_normal import MvNormal
from lockquack.families.mv_student_t import MvStudentT
from lockquack.families.negative_binomial import NegativeBinomial
from lockquack.families.normal import Normal
from lockquack.families.poisson import Poisson
from lockquack.families.refused import find_refused, letters_of
from lockquack.families.skew_normal import SkewNormal
from lockquack.families.student_t import StudentT
from lockquack.families.von_mises import VonMises
from lockquack.families.weibull import Weibull
from lockquack.families.zero_inflated import ZeroInflatedNegativeBinomial, ZeroInflatedPoisson

_ON_THE_LINE = (Normal(), StudentT(), Logistic(), SkewNormal(), Gumbel())
_POSITIVE = (LogNormal(), Gamma(), Exponential(), HalfNormal(), Weibull(), InverseGamma())
_BOUNDED = (Beta(), VonMises())
_VECTORS = (MvNormal(), MvStudentT())
_WHOLE_NUMBERS = (Poisson(), NegativeBinomial(), Binomial(), Bernoulli(), Geometric())
_WITH_MORE_ZEROS = (ZeroInflatedPoisson(), ZeroInflatedNegativeBinomial())
#: The families that a name alone determines. A mixture is made of them.
FAMILIES: dict[str, Family] = {
    family.name: family
    for group in (_ON_THE_LINE, _POSITIVE, _BOUNDED, _VECTORS, _WHOLE_NUMBERS, _WITH_MORE_ZEROS)
    for family in group
}


def find_family(name: str) -> Family | None:
    """Look up a family that is offered, however its name is spelt.

    Examples
    --------
    >>> find_family("NegativeBinomial").name
    'negative_binomial'
    >>> find_family("laplace")
    """
    offered = {letters_of(known): family for known, family in FAMILIES.items()}
    return offered.get(letters_of(name))


def get_family(name: str) -> Family:
    """Look up a family by name.

    Examples
    --------
    >>> get_family("gamma").support
    (0.0, inf)
    """
    if not isinstance(name, str):
        raise UnknownNameError(
            f"A family is given by its name, such as 'normal'; got a {type(name).__name__}."
        )
    if name == Mixture.name:
        return Mixture([])  # which says what it needs
    if name not in FAMILIES:
        refused = find_refused(name) if find_family(name) is None else None
        if refused is not None:
            raise UnsupportedError(
                f"Family {name!r} is not offered: {refused.reason}. ", refused.instead
            )
        raise unknown_name("family", name, [*FAMILIES, Mixture.name])
    return FAMILIES[name]


__all__ = [
    "FAMILIES",
    "Edge",
    "Family",
    "Mixture",
    "Parameters",
    "Range",
    "find_family",
    "get_family",
    "worst_edges",
]
