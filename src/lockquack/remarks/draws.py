"""Remarks on the models' draws: whether there are enough, and of enough chains."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from lockquack.errors import MonteCarloWarning
from lockquack.remarks.base import Remark, listed


@dataclass(frozen=True)
class SingleChain(Remark):
    """Models with a single chain."""

    code = "single-chain"
    category = MonteCarloWarning
    title = "A single chain"
    meaning = "One chain cannot show whether chains agree: its `mcse` may be too small."
    remedy = "Run at least two chains, better four."
    example = (("normal", "student"),)

    models: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"Only one chain for {listed(self.models)}: it cannot be checked whether chains agree, "
            "so the Monte Carlo standard errors (mcse) are unreliable."
        )


@dataclass(frozen=True)
class HardlyAnyDraws(Remark):
    """Models with too few draws to estimate a Monte Carlo error."""

    code = "hardly-any-draws"
    category = MonteCarloWarning
    title = "Hardly any draws"
    meaning = (
        "The Monte Carlo errors of the scores (`mcse`) are not known. They may be larger than all "
        "other errors, so no standard errors or intervals of the weights are shown either."
    )
    remedy = "Use at least 100 effective draws per chain."
    example = (("normal",),)

    models: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"Fewer than four draws per chain for {listed(self.models)}: the Monte Carlo standard "
            "errors (mcse) are not known, and weights have no standard errors."
        )


@dataclass(frozen=True)
class StuckChain(Remark):
    """Chains whose draws are all the same, beside others."""

    code = "stuck-chain"
    category = MonteCarloWarning
    title = "A stuck chain"
    meaning = (
        "All draws of a chain predict the same, and other chains predict something else: the "
        "sampler got stuck. The average over chains is not an average over the posterior."
    )
    remedy = "Leave the chain out, and find out why it is stuck: initial values, step size, priors."
    example = (("normal",),)

    models: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"A chain of {listed(self.models)} is stuck: all its draws predict the same, and "
            "other chains predict something else."
        )


@dataclass(frozen=True)
class Divergences(Remark):
    """Divergences that the sampler reported."""

    code = "divergences"
    category = MonteCarloWarning
    title = "Divergences"
    meaning = (
        "The sampler reported divergences (`diverging` in `sample_stats`). Its draws may miss a "
        "part of the posterior, and nothing computed from them, Monte Carlo errors included, "
        "shows how much that matters."
    )
    remedy = (
        "Sample again, with a larger `target_accept` (`adapt_delta`), another parametrisation, "
        "such as a non-centred one, or tighter priors. Then combine the models."
    )
    example = ((("normal", 37, 4000),),)

    #: Name of each model, its divergences, and of how many draws.
    models: tuple[tuple[str, int, int], ...]

    @property
    @override
    def subjects(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.models)

    def _message(self) -> str:
        each = ", ".join(f"{name!r} at {count} of {of} draws" for name, count, of in self.models)
        return (
            f"The sampler reported divergences, {each}: its draws may miss a part of the "
            "posterior, and the scores then miss it too."
        )


@dataclass(frozen=True)
class TooFewDraws(Remark):
    """Monte Carlo errors of scores that are large next to their sampling errors."""

    code = "too-few-draws"
    category = MonteCarloWarning
    title = "Too few draws"
    meaning = (
        "The error of a score that comes from the finite number of draws is more than a quarter of "
        "its error from the finite number of observations."
    )
    remedy = "Run longer chains, and thin less."
    example = (("normal", "student"), "normal", 2.1, 4.3)

    models: tuple[str, ...]
    worst: str
    mcse: float
    sampling_error: float

    def _message(self) -> str:
        return (
            f"Too few effective draws for {listed(self.models)}: the Monte Carlo error of the "
            f"score of {self.worst!r} is {self.mcse:.2g}; its sampling error is "
            f"{self.sampling_error:.2g}. Run longer chains."
        )


@dataclass(frozen=True)
class HandfulOfDraws(Remark):
    """Predictions that are averages over very few draws in effect."""

    code = "handful-of-draws"
    category = MonteCarloWarning
    title = "Predictions from a handful of draws"
    meaning = (
        "At some observations almost all draws give the outcome almost no density, or have almost "
        "no weight where an earlier fit predicts later observations, so the in-sample or held-out "
        "prediction is an average over a handful of draws."
    )
    remedy = (
        "Check these observations; use leave-one-out scores, or a likelihood with heavier tails; "
        "with `cross_validate(reuse=True)`, a lower limit of k̂, such as `reuse=0.5`."
    )
    example = (("normal",), "normal", 3.2)

    models: tuple[str, ...]
    worst: str
    #: Draws that carry the worst prediction, in effect.
    carrying: float

    def _message(self) -> str:
        others = [name for name in self.models if name != self.worst]
        also = f" Also affected: {listed(others)}." if others else ""
        return (
            f"At some observations the prediction of {self.worst!r} is effectively an average over "
            f"{self.carrying:.1f} draws; the others have almost no density or weight there.{also} "
            "Scores and mcse are unreliable."
        )


@dataclass(frozen=True)
class DependentDraws(Remark):
    """Log densities with few effective draws, found by ``lockquack check``."""

    code = "dependent-draws"
    category = MonteCarloWarning
    title = "Too few effective draws"
    meaning = (
        "Consecutive draws are correlated, or chains disagree, so averages over the draws of this "
        "model are as uncertain as over far fewer independent draws. `lockquack check` reports it."
    )
    remedy = "Run longer chains, or find out why they mix badly."
    example = (85.0, 100, 4)

    effective: float
    wanted: int
    chains: int

    def _message(self) -> str:
        return (
            f"The log density has only {self.effective:.0f} effective draws at its worst "
            f"observation; it should have {self.wanted} for each of {self.chains} chains. Run "
            "longer chains."
        )
