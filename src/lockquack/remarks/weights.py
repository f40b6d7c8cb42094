"""Remarks on weights and other parameters that the observations do not determine."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from lockquack.errors import IdentifiabilityWarning, InfluenceWarning
from lockquack.remarks.base import Remark, listed
from lockquack.words import LOG_SCORE, Text

#: Models whose weights are named, those that change most.
_MOST_NAMED = 3


@dataclass(frozen=True)
class ModelsAlike(Remark):
    """Models that the score cannot tell apart."""

    code = "models-alike"
    category = IdentifiabilityWarning
    title = "Models that predict the same"
    meaning = (
        "The scores of these models, and of their pools, differ by less than their Monte Carlo "
        "error. The sum of their weights is meaningful; how it is split among them is not, so "
        "standard errors and intervals of their weights are left blank."
    )
    remedy = "Leave one of them out, or report the sum of their weights."
    example = (("normal", "student"), 0.62)

    models: tuple[str, ...]
    #: Of all of them together.
    weight: float

    def _message(self) -> str:
        return (
            f"The models {listed(self.models)} cannot be distinguished: their scores, and those "
            "of their pools, differ by less than their Monte Carlo error. Together they have "
            f"weight {self.weight:.3f}; how it is split among them is arbitrary."
        )


@dataclass(frozen=True)
class WeightsUndetermined(Remark):
    """Shifts of weight that leave the score as it is."""

    code = "weights-undetermined"
    category = IdentifiabilityWarning
    title = "Weights that are not determined"
    meaning = "Some shifts of weight within this group of models do not change the score."
    remedy = "Leave some of them out, or report sums of their weights."
    example = (("linear", "quadratic", "spline"),)

    models: tuple[str, ...]

    @property
    @override
    def subjects(self) -> tuple[str, ...]:
        return ()  # it is about their weights in this pool

    def _message(self) -> str:
        return (
            f"The weights of {listed(self.models)} are not determined individually: some shifts "
            "of weight among these models leave the score unchanged within its Monte Carlo error. "
            "Other splits predict equally well."
        )


@dataclass(frozen=True)
class FewObservations(Remark):
    """Too few observations for standard errors."""

    code = "few-observations"
    category = IdentifiabilityWarning
    title = "Too few observations for standard errors"
    meaning = (
        "So few observations do not show how much weights and scores would vary with other data. "
        "In simulations, 90 % intervals contained the right weight in one of three cases with two "
        "observations, and in fewer than three of four with fewer than ten. So standard errors and "
        "intervals are left blank; `fit.bootstrap()` still draws weights."
    )
    remedy = (
        "Use `lq.pseudo_bma`, or `lq.equal` if no model is clearly bad; or use more observations."
    )
    example = (2, 10)

    #: By their case weights: of equal weights, how many would say as much.
    count: int
    wanted: int
    weighted: bool = False

    def _message(self) -> str:
        observations = (
            f"By their case weights, the observations are worth {self.count}"
            if self.weighted
            else f"There are {self.count} observation(s)"
        )
        return (
            f"{observations}, too few for standard errors and intervals, "
            f"which need at least {self.wanted}. A few other observations could change "
            "these weights completely."
        )


@dataclass(frozen=True)
class FewDecide(Remark):
    """One or a few observations that decide the weights."""

    code = "few-decide"
    category = InfluenceWarning
    title = "A few observations decide"
    meaning = (
        "Without one of these observations, at least a quarter of the weight would go to other "
        "models, and the other observations support that: by their scores alone, the weights "
        "fitted without it are better by a standard error or more. At least two fifths of the "
        "variance of the weights come from it, so their standard errors are unreliable."
    )
    remedy = (
        "Look at the observation: is it correct, and should the models describe it? "
        "`fit.influence()` shows the influence of every observation. If an outcome near an edge "
        "of the support decides, use `Hyvarinen()`, which scores log y or logit y where needed."
    )
    example = (("observation 119",), 178, (("normal", 0.28, 0.0), ("lognormal", 0.72, 1.0)))

    observations: tuple[str, ...]
    count: int
    #: Name of each model, its weight, and that without the first of the observations.
    weights: tuple[tuple[str, float, float], ...]

    @property
    @override
    def subjects(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.weights)

    def _message(self) -> str:
        first, *more = self.observations
        most = sorted(self.weights, key=lambda each: -abs(each[2] - each[1]))[:_MOST_NAMED]
        changes = ", ".join(
            f"{name!r} {without:.2f} instead of {full:.2f}" for name, full, without in most
        )
        few = "One" if not more else str(len(self.observations))
        also = f"; {', '.join(more)} also matter{'' if more[1:] else 's'}" if more else ""
        return (
            f"{few} of {self.count} observations largely determine{'' if more else 's'} the "
            f"weights: without {first}, they would be {changes}{also}."
        )


@dataclass(frozen=True)
class MissingCovariate(Remark):
    """A number that the weights depend on, and that is missing at some observations."""

    code = "missing-covariate"
    category = IdentifiabilityWarning
    title = "A covariate that is missing at some observations"
    meaning = (
        "The weights depend on a covariate that is missing (NaN) at these observations. They get "
        "the weights averaged over all its values, which assumes that it is missing at random."
    )
    remedy = (
        "Impute the missing values, leave these observations out of all models, or make them "
        "a group of their own: `by=lq.Groups(np.isnan(x))`."
    )
    example = ("age", 12, 300)

    covariate: str
    missing: int
    count: int

    def _message(self) -> str:
        return (
            f"At {self.missing} of {self.count} observations {self.covariate} is missing; their "
            "weights are averaged over all its values."
        )


@dataclass(frozen=True)
class UnseenGroups(Remark):
    """Groups to which no observation belonged when the weights were fitted."""

    code = "unseen-groups"
    category = IdentifiabilityWarning
    title = "Groups without observations in the fit"
    meaning = (
        "The weights depend on a covariate, and these groups were not in the data of the fit. They "
        "get the mean of the weights of all groups that were; where weights are drawn from a "
        "posterior, the weights of a new group drawn from the population of groups."
    )
    remedy = "Check for misspelt labels. If the groups are new, nothing needs to be done."
    example = ("county", ("Lake", "Cook"))

    covariate: str
    groups: tuple[str, ...]
    #: Whether their weights are drawn from the population of groups.
    drawn: bool = False

    def _message(self) -> str:
        used = (
            "they are drawn from the population of groups"
            if self.drawn
            else "the mean of the weights of all groups is used"
        )
        return (
            f"The weights were fitted without observations of {self.covariate} "
            f"{listed(self.groups)}; {used} there."
        )


@dataclass(frozen=True)
class ModesApart(Remark):
    """A mixture of models that do not overlap, by a score that hardly sees their proportions."""

    code = "modes-apart"
    category = IdentifiabilityWarning
    title = "Separate modes"
    meaning = (
        "The Hyvärinen score of a mixture hardly depends on the proportions of separate modes."
    )
    remedy = "Fit the weights by the log score: `rule='log'`, or `lq.stack`."
    example = ()

    def _message(self) -> str:
        return Text(
            "The models hardly overlap: at most observations one of them has nearly all the "
            "density. The Hyvärinen score of a mixture hardly depends on the proportions of "
            "separate modes, so these weights mean little. Use ",
            LOG_SCORE,
            " for them.",
        )


@dataclass(frozen=True)
class ParameterAtBound(Remark):
    """A parameter of the pool that ended at the end of its range."""

    code = "parameter-at-bound"
    category = IdentifiabilityWarning
    title = "A parameter at its bound"
    meaning = "The power p of the Hölder pool is not identified by the data."
    remedy = "Fix it, such as `Hoelder(-1)`, or fit by the log score."
    example = ("power", -10.0)

    parameter: str
    value: float

    def _message(self) -> str:
        return (
            f"The {self.parameter} of the pool is at its bound ({self.value:.3g}): the data do not "
            "identify it. Fix it, or use another rule."
        )


@dataclass(frozen=True)
class PhasesAtCap(Remark):
    """Phases as far apart as the Hyvärinen score may be allowed to set them."""

    code = "phases-at-cap"
    category = IdentifiabilityWarning
    title = "Phases at their cap"
    meaning = (
        "Larger phase differences would create a zero in the density, which the Hyvärinen score "
        "wrongly rewards."
    )
    remedy = "Fit by the log score, which needs no cap, or fix the phases."
    example = ()

    def _message(self) -> str:
        return Text(
            "Phase differences are at their cap of .99 π. Larger ones would create a zero in the "
            "density, which the Hyvärinen score wrongly rewards. ",
            LOG_SCORE,
            " needs no cap.",
        )
