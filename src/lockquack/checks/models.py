"""What every model goes through before it is combined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from lockquack.checks.derivatives import check
from lockquack.draws.blocks import Kind
from lockquack.draws.collapse import require_known_scores
from lockquack.errors import (
    EdgeError,
    ObservationMismatchError,
    ParameterError,
    SmoothnessError,
    TransformError,
    naming,
)
from lockquack.jets import Array
from lockquack.models.labels import require_same_labels
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations, differing, in_brief
from lockquack.models.source import Source
from lockquack.remarks import Remark
from lockquack.remarks.draws import Divergences, SingleChain
from lockquack.remarks.likelihoods import GivenEarlierOutcomes, NotScored, OutcomesUnknown
from lockquack.remarks.support import DifferentSupports
from lockquack.rules import Rule
from lockquack.transforms import TRANSFORMS
from lockquack.words import BY_LOG_SCORE, STACKING, Text, advice

Sources = Mapping[str, Source]
R = TypeVar("R", bound=Rule)


def check_models(models: Mapping[str, Model], rule: Rule) -> list[Remark]:
    """Refuse models that cannot be combined by this rule; remark on what is merely unusual."""
    sources = sources_of(models)
    rule = suited_rule(rule, sources)
    if rule.needs_derivatives:
        for name, source in sources.items():
            with naming(f"Model {name!r}"):
                _require_smooth(source)
                source.require_derivatives()
    if rule.needs_density:
        for name, source in sources.items():
            with naming(f"Model {name!r}"):
                source.require_density()
    require_same_observations(sources)
    if rule.needs_derivatives:
        for name, source in sources.items():
            with naming(f"Model {name!r}"):
                _require_proper_edges(source, rule)
                if source.can.evaluate:
                    check(models[name]).require()
    return [
        *_remark_on_supports(sources),
        *_remark_on_outcomes(sources),
        *_remark_on_terms(sources),
        *_remark_on_chains(sources),
    ]


def suited_rule(rule: R, models: Sources) -> R:
    """Return the rule for the supports of these models: its coordinates may depend on them."""
    each = [model.likelihood for model in models.values()]
    if any(likelihood.is_circle for likelihood in each):  # nothing ends on a circle
        return rule.suited_to([(-np.inf, np.inf)])
    return rule.suited_to([likelihood.support for likelihood in each])


def kind_of_scores(models: Mapping[str, Model], asked: Kind) -> Kind:
    """Say of which predictions scores are: held-out, where no model saw the observations."""
    require_known_scores(asked)
    if asked == "prequential":
        _require_one_step_ahead(sources_of(models))
    held_out = [name for name, source in sources_of(models).items() if source.held_out]
    if held_out and asked == "in-sample":
        raise ParameterError(
            f"Model {held_out[0]!r} was fitted without the observations that it predicts, so it "
            "has no in-sample scores. Leave ",
            advice("scores=", "--scores"),
            " out.",
        )
    return "held-out" if asked == "loo" and len(held_out) == len(models) else asked


def _require_one_step_ahead(models: Sources) -> None:
    """Refuse models that predict observations from others than all before them."""
    others = [name for name, source in models.items() if not source.is_one_step_ahead]
    if others:
        raise ParameterError(
            f"Prequential scores need predictions of each observation from all before it; those "
            f"of model {others[0]!r} are not. Make it by cross_validate(fit, n=n, "
            "folds=lq.leave_future_out(n, first=...)), with reuse=True if it has draws.",
        )


def require_same_observations(models: Sources) -> None:
    """Refuse models of different outcomes, or of the same in another order."""
    known = [name for name, model in models.items() if model.observations.known]
    first = next(iter([*known, *models]))
    reference = models[first]
    for name, model in models.items():
        a, b = reference.observations, model.observations
        # Of scores without outcomes, the number is all that can be compared besides labels.
        if a.n != b.n or (a.d != b.d and b.known):
            raise ObservationMismatchError(
                f"Model {name!r} has {b.n} observations of {b.d} component(s), model {first!r} "
                f"has {a.n} of {a.d}. All models must describe the same observations"
                + _other_rows(a, b)
            )
        # Of rows that are merely numbered, nobody said that these are their labels.
        alike = a.numbered == b.numbered
        labels = {dim: own for dim, own in b.labels.items() if alike or dim not in b.coords}
        require_same_labels(f"Model {name!r}", labels, a.labels, of=f"model {first!r}")
        if b.known:
            _require_same_values(reference, model, first, name)
        _require_same_weights(reference, model, first, name)


def _other_rows(a: Observations, b: Observations) -> str:
    """Say what to do about models of other numbers of observations, or of components of these."""
    if a.d == b.d or a.n * a.d != b.n * b.d:
        return (
            ": where one leaves some out, such as missing outcomes, fit the others without these "
            "too."
        )
    return (
        ". If these are the same numbers, one model predicts vectors, the other each component "
        "by itself, which are different densities: make the latter a model of the vectors too, "
        "such as 'mv_normal' with diagonal covariances, or `from_arrays` with log densities "
        "summed over components."
    )


def _require_same_values(reference: Source, model: Source, first: str, name: str) -> None:
    expected, got = reference.observations.values, model.observations.values
    differs = differing(reference.observations, model.observations)
    if not differs.any():
        return
    at = int(np.flatnonzero(differs)[0])
    _suspect_transform(expected, got, first, name)
    _suspect_transform(got, expected, name, first)
    _suspect_rescaling(expected, got, first, name)
    same_set = np.allclose(np.sort(expected, axis=0), np.sort(got, axis=0), rtol=1e-6)
    hint = (
        " The same values appear in another order: reorder the observations of one model (y, and "
        "the observation axis of its parameters)."
        if same_set
        else ""
    )
    a, b = in_brief(expected[at]), in_brief(got[at])
    if a == b:  # they differ in later digits
        a, b = str(expected[at].tolist()), str(got[at].tolist())
    raise ObservationMismatchError(
        f"Models {first!r} and {name!r} have different outcomes at {differs.sum()} observations, "
        f"first at {reference.observations.describe(at)}: {a} and {b}.{hint}"
    )


def _require_same_weights(reference: Source, model: Source, first: str, name: str) -> None:
    expected, got = reference.case_weights, model.case_weights
    if expected is None and got is None:
        return
    if expected is None or got is None:
        has, lacks = (name, first) if expected is None else (first, name)
        raise ObservationMismatchError(
            f"Model {has!r} has case weights, model {lacks!r} has none. A total score can count "
            "an observation in one way only: ",
            advice("give weights= to all models, or to none", "give --case-weights"),
            ".",
        )
    differs = np.abs(expected - got) > 1e-6 * np.maximum(expected, got)
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        raise ObservationMismatchError(
            f"Models {first!r} and {name!r} have different case weights at {differs.sum()} "
            f"observations, first at {reference.observations.describe(at)}: {expected[at]:g} and "
            f"{got[at]:g}. A total score can count an observation in one way only: give all "
            "models the same weights."
        )


def _suspect_rescaling(y: Array, z: Array, first: str, name: str) -> None:
    slope = (y - y.mean(axis=0)).std(axis=0) / np.where(z.std(axis=0) > 0, z.std(axis=0), 1.0)
    if len(y) > 2 and np.allclose((z - z.mean(axis=0)) * slope, y - y.mean(axis=0), atol=0):
        raise TransformError(
            f"The outcomes of models {first!r} and {name!r} differ by a shift or a change of "
            "units, as after standardising. Bring both models to the same units first."
        )


def _suspect_transform(y: Array, z: Array, natural: str, transformed: str) -> None:
    for label, transform in TRANSFORMS.items():
        if label == "exp":  # the natural scale is the one that a log was taken of
            continue
        low, high = transform.domain
        if (y > low).all() and (y < high).all() and np.allclose(transform.forward(y), z, rtol=1e-5):
            raise TransformError(
                f"The outcome of model {transformed!r} is the {label} of that of {natural!r}. "
                "Densities of different variables cannot be combined: bring it to the scale of the "
                "other by ",
                advice(
                    f"transform={label!r} of the function that makes it",
                    f"--transform {transformed}={label}",
                ),
                ".",
            )


def _require_smooth(model: Source) -> None:
    likelihood = model.likelihood
    if likelihood.discrete:
        raise SmoothnessError(
            f"{likelihood.description} is discrete; the Hyvärinen score needs a density with "
            "derivatives with respect to the outcome. ",
            *_instead(model),
        )
    if likelihood.not_smooth:
        raise SmoothnessError(
            f"{likelihood.description} is not smooth in the outcome ({likelihood.not_smooth}), "
            "so its Hyvärinen score is not proper. ",
            *_instead(model),
        )


def _instead(model: Source) -> tuple[str | Text, ...]:
    """Name what such a model can be combined by: the log score, or a mixture if that is all."""
    uncountable = model.likelihood.discrete and model.n_components > 1
    if model.can.evaluate and not uncountable:
        return "Use the log score, ", BY_LOG_SCORE, "."
    return "Mix such models by the log score, as ", STACKING, " does."


def _require_proper_edges(model: Source, rule: Rule) -> None:
    for edge in model.likelihood.edges:
        if not rule.is_proper_at(edge):
            raise EdgeError(
                f"the density of {model.likelihood.description} does not vanish smoothly at "
                f"{edge.at:g} (it goes like distance^{edge.order:.3g}, more than 1 is needed), "
                "where the Hyvärinen score is not proper. Use the weighted score, ",
                advice(
                    "Hyvarinen(transform='log') for positive outcomes or 'logit' for bounded ones",
                    "--score-transform log for positive outcomes or logit for bounded ones",
                ),
                ", or the log score.",
            )


def _remark_on_supports(models: Sources) -> list[Remark]:
    known = {
        name: model.likelihood.support
        for name, model in models.items()
        if model.likelihood.support is not None
    }
    if len(set(known.values())) < 2:
        return []
    ends = ((name, float(low), float(high)) for name, (low, high) in known.items())
    return [DifferentSupports(tuple(ends))]


def _remark_on_outcomes(models: Sources) -> list[Remark]:
    """Say which models nobody could compare; of scores without draws everybody knows it."""
    unknown = tuple(
        name for name, each in models.items() if each.n_samples and not each.observations.known
    )
    return [OutcomesUnknown(unknown)] if unknown and len(models) > 1 else []


def _remark_on_terms(models: Sources) -> list[Remark]:
    """Say what the scored densities are of, where that is not all outcomes, one given the rest."""
    series = tuple(name for name, model in models.items() if model.likelihood.given_earlier)
    return [
        *([GivenEarlierOutcomes(series)] if series else []),
        *(
            NotScored(name, model.likelihood.not_scored)
            for name, model in models.items()
            if model.likelihood.not_scored
        ),
    ]


def _remark_on_chains(models: Sources) -> list[Remark]:
    single = tuple(name for name, model in models.items() if model.lacks_chains)
    diverged = tuple(
        (name, model.divergent, model.n_samples)
        for name, model in models.items()
        if model.divergent
    )
    return [
        *([SingleChain(single)] if single else []),
        *([Divergences(diverged)] if diverged else []),
    ]
