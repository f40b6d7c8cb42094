"""What every model goes through before it is combined."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockquack.checks.derivatives import check
from lockquack.errors import (
    EdgeError,
    LockquackError,
    ObservationMismatchError,
    SmoothnessError,
    TransformError,
    naming,
)
from lockquack.jets import Array
from lockquack.models.labels import require_same_labels
from lockquack.models.model import Model, sources_of
from lockquack.models.source import Source
from lockquack.remarks import Remark
from lockquack.remarks.draws import SingleChain
from lockquack.remarks.support import DifferentSupports
from lockquack.rules import Rule
from lockquack.transforms import TRANSFORMS
from lockquack.words import advice

Sources = Mapping[str, Source]


def check_models(models: Mapping[str, Model], rule: Rule) -> list[Remark]:
    """Refuse models that cannot be combined by this rule; remark on what is merely unusual."""
    require_models(models)
    sources = sources_of(models)
    if rule.needs_derivatives:
        for name, source in sources.items():
            with naming(f"Model {name!r}"):
                _require_smooth(source)
                source.require_derivatives()
    require_same_observations(sources)
    if rule.needs_derivatives:
        for name, source in sources.items():
            with naming(f"Model {name!r}"):
                _require_borne_edges(source, rule)
                if source.can.evaluate:
                    check(models[name]).require()
    return [*_supports(sources), *_chains(sources)]


def require_models(models: Mapping[str, Model]) -> None:
    """Refuse what is not a dict of name → model."""
    if not isinstance(models, Mapping):
        raise LockquackError(
            f"models must be a dict of name → model, got {type(models).__name__}. "
            "Example: lock({'a': from_arrays(...), 'b': from_family(...)})."
        )
    if not models:
        raise LockquackError("There are no models to combine.")
    for name, model in models.items():
        if not isinstance(name, str) or not name or name.startswith("["):
            raise LockquackError(
                f"Model names must be strings, not empty and not beginning with '['; got {name!r}."
            )
        if not isinstance(model, Model):
            raise LockquackError(
                f"Model {name!r} is a {type(model).__name__}. Make it a model first, with "
                "from_arrays, from_family or from_datatree."
            )


def require_same_observations(models: Sources) -> None:
    """Refuse models of different outcomes, or of the same in another order."""
    (first, reference), *others = models.items()
    for name, model in others:
        a, b = reference.observations, model.observations
        if a.values.shape != b.values.shape:
            raise ObservationMismatchError(
                f"Model {name!r} has {b.n} observations of {b.d} component(s), model {first!r} "
                f"has {a.n} of {a.d}. All models must describe the same observations."
            )
        require_same_labels(f"Model {name!r}", b.labels, a.labels, of=f"model {first!r}")
        _require_same_values(reference, model, first, name)


def _require_same_values(reference: Source, model: Source, first: str, name: str) -> None:
    expected, got = reference.observations.values, model.observations.values
    # Outcomes stored in single precision by one tool and double by another are the same.
    tolerance = 1e-6 * (np.abs(expected) + np.ptp(expected, axis=0))
    differs = (np.abs(expected - got) > tolerance).any(axis=1)
    if not differs.any():
        return
    at = int(np.flatnonzero(differs)[0])
    _suspect_transform(expected, got, first, name)
    _suspect_transform(got, expected, name, first)
    _suspect_rescaling(expected, got, first, name)
    same_set = np.allclose(np.sort(expected, axis=0), np.sort(got, axis=0), rtol=1e-6)
    hint = " The same values appear in another order: reorder the draws." if same_set else ""
    raise ObservationMismatchError(
        f"Models {first!r} and {name!r} have different outcomes at {differs.sum()} observations, "
        f"first at {reference.observations.describe(at)}: {expected[at].tolist()} and "
        f"{got[at].tolist()}.{hint}"
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
                "Densities of different variables cannot be combined: make the model with y on "
                "its natural scale and ",
                advice(f"transform={label!r}", f'--family "...(..., transform={label})"'),
                ".",
            )


def _require_smooth(model: Source) -> None:
    likelihood = model.likelihood
    if likelihood.discrete:
        raise SmoothnessError(
            f"{likelihood.description} is discrete; the Hyvärinen score needs a density with "
            "derivatives in the outcome. Use the log score."
        )
    if likelihood.not_smooth:
        raise SmoothnessError(
            f"{likelihood.description} is not smooth in the outcome ({likelihood.not_smooth}), "
            "so its Hyvärinen score is not proper. Use the log score."
        )


def _require_borne_edges(model: Source, rule: Rule) -> None:
    for edge in model.likelihood.edges:
        if not rule.bears(edge):
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


def _supports(models: Sources) -> list[Remark]:
    known = {
        name: model.likelihood.support
        for name, model in models.items()
        if model.likelihood.support is not None
    }
    if len(set(known.values())) < 2:
        return []
    ends = ((name, float(low), float(high)) for name, (low, high) in known.items())
    return [DifferentSupports(tuple(ends))]


def _chains(models: Sources) -> list[Remark]:
    single = tuple(name for name, model in models.items() if model.n_chains < 2)
    return [SingleChain(single)] if single else []
