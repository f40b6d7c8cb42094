"""What a report says: everything is computed here, before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from lockquack.errors import LockquackError, LockquackWarning, UnsupportedError
from lockquack.jets import Array
from lockquack.methods.compare import compare
from lockquack.methods.comparison import Comparison
from lockquack.models.design import ReadCovariates
from lockquack.models.model import sources_of
from lockquack.parallel.threads import small_products
from lockquack.plots import DensityPanel
from lockquack.prediction.calibration import coverage_table
from lockquack.prediction.examine import examine_pareto
from lockquack.prediction.pictures import density_panels, typical
from lockquack.remarks import Remark, remark_of
from lockquack.remarks.densities import HighParetoK
from lockquack.report.picker import worth_a_look

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination
    from lockquack.combination.influence import Influence
    from lockquack.fitting.varying import VaryingFitter
    from lockquack.rules import Hyvarinen

#: Probabilities of the intervals whose coverage is counted.
PROBABILITIES = (0.5, 0.8, 0.9, 0.95)
#: Draws × observations × models up to which everything is computed unless told otherwise.
_AFFORDABLE = 3e7


@dataclass(frozen=True)
class Missing:
    """Something that the report cannot show, and why."""

    why: str


@dataclass(frozen=True)
class Calibration:
    """How well intervals cover, and the probabilities of the outcomes."""

    coverage: pd.DataFrame
    #: Name → probability integral transform; empty for vector outcomes.
    models: Mapping[str, Array]
    combinations: Mapping[str, Array]


@dataclass(frozen=True)
class Choice:
    """Observations among which the reader chooses, and their predictions."""

    positions: Sequence[int]
    panels: Sequence[DensityPanel]


@dataclass(frozen=True)
class Contents:
    """All numbers of a report."""

    fit: Combination
    influence: Influence | Missing
    comparison: Comparison | Missing
    calibration: Calibration | Missing
    #: Predictions that are drawn, and those among which the reader chooses.
    densities: Sequence[DensityPanel] | Missing
    choice: Choice | Missing
    #: Largest Pareto k̂ of each model, its limit, and how often it is above.
    pareto: pd.DataFrame | Missing
    remarks: Sequence[Remark]


@dataclass
class _Gatherer:
    """Computes one part after the other; collects remarks instead of warning."""

    fit: Combination
    progressbar: bool | None
    remarks: list[Remark] = field(default_factory=list)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", LockquackWarning)
            yield
        for each in caught:
            remark = remark_of(each.message)
            if remark is not None:
                self.remarks.append(remark)
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

    def influence(self) -> Influence | Missing:
        try:
            return self.fit.influence(progressbar=self.progressbar)
        except LockquackError as error:
            return Missing(error.text)

    def comparison(self, methods: Any, cv: Any, why_not: str) -> Comparison | Missing:
        if methods is not None and not len(methods):
            return Missing("No methods were asked for.")
        if why_not:
            return Missing(why_not)
        rule = self.fit.rule
        try:
            models = self.fit._require_models()
            with self.collecting():
                return compare(
                    models,
                    methods,
                    cv=cv,
                    by=_covariates(self.fit),
                    rule=rule if rule.is_by_distance else None,
                    hyvarinen=cast("Hyvarinen", rule) if rule.needs_derivatives else None,
                    scores=self.fit.scores,
                    recalibrated=self.fit.recalibration is not None,
                    metrics=True,
                    random_seed=self.fit.random_seed,
                    progressbar=self.progressbar,
                )
        except LockquackError as error:
            if methods is not None:  # the caller's mistake, not a limit of the models
                raise
            return Missing(error.text)

    def calibration(self, why_not: str) -> Calibration | Missing:
        if why_not:
            return Missing(why_not)
        fit = self.fit
        try:
            with self.collecting():
                prediction = fit.predict(loo=fit.scores == "loo", progressbar=self.progressbar)
                beside = prediction._calibrated(PROBABILITIES)
        except LockquackError as error:
            return Missing(error.text)
        coverage = coverage_table(beside, fit.observations, PROBABILITIES, fit.random_seed)
        pit = {}
        if fit.observations.d == 1:
            pit = {name: each.pit(0) for name, each in beside.items()}
        together = {name: name.strip("[]") for name in pit if name not in fit.names}
        return Calibration(
            coverage,
            {name: values for name, values in pit.items() if name not in together},
            {label: pit[name] for name, label in together.items() if name in pit},
        )

    def densities(
        self, shown: Sequence[Any], positions: Sequence[int]
    ) -> tuple[Sequence[DensityPanel] | Missing, Choice | Missing]:
        """Predictions that are drawn, and those at positions among which the reader chooses."""
        fit = self.fit
        try:
            with self.collecting():
                prediction = fit.predict(loo=fit.scores == "loo")
                panels = density_panels(prediction, [*shown, *positions])
        except UnsupportedError as error:
            return Missing(error.text), Missing(error.text)
        return panels[: len(shown)], Choice(positions, panels[len(shown) :])

    def pareto(self, why_not: str) -> pd.DataFrame | Missing:
        if self.fit.scores != "loo":
            return Missing("The scores are not leave-one-out.")
        if why_not:
            return Missing(why_not)
        models, observations = self.fit._require_models(), self.fit.observations
        k_hat = np.stack([m.loo(progressbar=self.progressbar).pareto_k for m in models.values()])
        if not any(isinstance(remark, HighParetoK) for remark in self.fit.remarks):
            self.remarks += examine_pareto(sources_of(models), k_hat, observations, "report")
        k_hat = np.where(np.isnan(k_hat), -np.inf, k_hat)  # nothing was weighted there
        limits = np.array([model.source.pareto_limit for model in models.values()])
        return pd.DataFrame(
            {
                "largest": k_hat.max(axis=1),
                "limit": limits,
                "above": (k_hat > limits[:, None]).sum(axis=1),
                "worst": [observations.describe(int(i)) for i in k_hat.argmax(axis=1)],
            },
            index=list(models),
        )


def gather_contents(
    fit: Combination,
    *,
    methods: Any,
    cv: Any,
    obs: Iterable[Any] | None,
    thorough: bool | None,
    progressbar: bool | None,
) -> Contents:
    """Compute all parts of a report; a part that cannot be computed is replaced by the reason."""
    gatherer = _Gatherer(fit, progressbar)
    why_not = _why_not(fit, thorough)
    with small_products():
        influence = gatherer.influence()
        comparison = gatherer.comparison(methods, cv, why_not)
        calibration = gatherer.calibration(why_not)
        shown = typical(fit.observations.values[:, 0]) if obs is None else list(obs)
        known = None if isinstance(influence, Missing) else influence
        densities, choice = gatherer.densities(shown, [] if why_not else worth_a_look(fit, known))
        if why_not:
            choice = densities if isinstance(densities, Missing) else Missing(why_not)
        pareto = gatherer.pareto(why_not)
    of_influence = [] if isinstance(influence, Missing) else influence.remarks
    all_remarks = [*fit.remarks, *of_influence, *gatherer.remarks]
    remarks = {each.topic: each for each in reversed(all_remarks)}
    said = list(remarks.values())[::-1]
    return Contents(fit, influence, comparison, calibration, densities, choice, pareto, said)


def _why_not(fit: Combination, thorough: bool | None) -> str:
    """Return why the slow parts are left out; empty if they are not."""
    if fit.models is None:
        return (
            "The combination was read from a file, which holds its weights and scores but not "
            "the draws of its models. Fit it again from the models for this part."
        )
    work = sum(float(model.source.n_samples) * model.source.n_obs for model in fit.models.values())
    if thorough is False:
        return "It takes long and was not asked for."
    if thorough is None and work > _AFFORDABLE:
        return (
            f"It was left out because it takes long: the models have {work:.2g} values, draws "
            "times observations. Ask for it: fit.report(path, thorough=True)."
        )
    return ""


def best_model(fit: Combination) -> str:
    """Return the name of the model with the largest total score."""
    return str(fit.to_dataframe()["score"].iloc[1:].idxmax())


def _covariates(fit: Combination) -> ReadCovariates | None:
    """Return what the weights depend on, so that the same methods are compared with and without."""
    if fit.design is None:
        return None
    return ReadCovariates(fit.design, cast("VaryingFitter", fit.fitter).objective.basis)
