"""Remarks on where densities end, and on pools that may not have a normaliser."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from lockquack.errors import EdgeWarning, SupportWarning
from lockquack.remarks.base import Remark
from lockquack.words import WEIGHTED_BY_LOG, Text


@dataclass(frozen=True)
class SlowEdge(Remark):
    """Densities that vanish at an edge of the support, but so slowly that H has no variance."""

    code = "slow-edge"
    category = EdgeWarning
    title = "Densities that vanish slowly at an edge"
    meaning = (
        "They vanish fast enough for the score to be proper, but so slowly that it has no "
        "variance: single observations near the edge can dominate it, and standard errors are too "
        "small."
    )
    remedy = (
        "Use `Hyvarinen()`, `Hyvarinen(transform='log')` or `'logit'`, which scores the outcome on "
        "the log (logit) scale, where there is no edge."
    )
    example = ((0.0,),)

    edges: tuple[float, ...]

    def _message(self) -> str:
        return Text(
            f"Near {', '.join(f'{at:g}' for at in self.edges)} the score has no finite variance, "
            "because the densities fall to zero too slowly there, like a low power of the "
            "distance. The standard errors of scores and weights are too small. With ",
            WEIGHTED_BY_LOG,
            ", or a model for a transformed outcome, there is no such edge.",
        )


@dataclass(frozen=True)
class DifferentSupports(Remark):
    """Models under which different outcomes are possible."""

    code = "different-supports"
    category = SupportWarning
    title = "Models that allow different outcomes"
    meaning = (
        "A mixture allows every outcome that one of the models allows, a log-linear pool only "
        "those that all models with positive weight allow."
    )
    remedy = "Decide which outcomes are possible, and use models with that support."
    example = ((("normal", float("-inf"), float("inf")), ("gamma", 0.0, float("inf"))),)

    #: Name and both ends.
    supports: tuple[tuple[str, float, float], ...]

    @property
    @override
    def subjects(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.supports)

    def _message(self) -> str:
        each = "; ".join(f"{name!r} on ({low:g}, {high:g})" for name, low, high in self.supports)
        return (
            f"The models have different supports: {each}. A mixture allows every outcome that one "
            "of them allows, a log-linear pool only those that all models with positive weight "
            "allow."
        )


@dataclass(frozen=True)
class NormaliserUnchecked(Remark):
    """A pool that may not have a normaliser, of models whose tails are not known."""

    code = "normaliser-unchecked"
    category = SupportWarning
    title = "The pool may have no normalising constant"
    meaning = (
        "The weights need not sum to one, and the models are known at the observed outcomes only: "
        "whether the pool can be normalised was not checked."
    )
    remedy = "Keep the weights on the simplex, or make the models with `from_family` or an adapter."
    example = ("normal",)

    model: str

    def _message(self) -> str:
        return (
            f"Model {self.model!r} is known at the observed outcomes only, so it could not be "
            "checked whether the pool can be normalised: with heavy tails and a small sum of "
            "weights it may not be."
        )
