"""What to remark on when a combination is evaluated or sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lockquack.draws.diagnostics import pareto_k_threshold
from lockquack.jets import Array
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.prediction.pooled import Normalised
from lockquack.prediction.vectors import NormalisedBySampling
from lockquack.remarks.base import Remark
from lockquack.remarks.densities import (
    Affected,
    HighParetoK,
    UncertainNormaliser,
    UnreliableDraws,
    WrongNormaliser,
)
from lockquack.sampling.samplers import Drawn

#: Relative error of a normaliser, and missing mass of a component, that are still harmless.
_QUADRATURE_ERROR = 1e-6
#: Largest Monte Carlo error of a log normaliser, and its Pareto k̂, that are not remarked on.
_LARGE_ERROR, _LARGE_K = 0.05, 0.7


def examine_pareto(
    models: Mapping[str, Source],
    pareto_k: Iterable[Array],
    observations: Observations,
    affected: Affected,
) -> list[Remark]:
    """Remark on leave-one-out densities that importance sampling cannot give."""
    remarks: list[Remark] = []
    for (name, model), k_hat in zip(models.items(), pareto_k, strict=True):
        limit = pareto_k_threshold(model.n_samples)
        bad = int((k_hat > limit).sum())
        if bad:
            worst = int(k_hat.argmax())
            place = observations.describe(worst)
            largest = float(k_hat[worst])
            remarks.append(HighParetoK(name, bad, float(limit), largest, place, affected))
    return remarks


def examine_quadrature(wrong: Array, observations: Observations) -> list[Remark]:
    """Remark on normalisers whose relative error, or missing mass, is not small."""
    wrong = np.where(np.isnan(wrong), np.inf, wrong)
    bad = int((wrong > _QUADRATURE_ERROR).sum())
    if not bad:
        return []
    worst = int(wrong.argmax())
    return [WrongNormaliser(bad, float(wrong[worst]), observations.describe(worst))]


def examine_density(
    models: Mapping[str, Source], result: Normalised, observations: Observations
) -> list[Remark]:
    """Remark on a normalised density."""
    if isinstance(result, NormalisedBySampling):
        exact = replace(result, relative_error=np.zeros_like(result.relative_error))
        return [
            *_examine_quadrature_of(models, exact, observations),
            *_examine_sampling_of(result, observations),
        ]
    return _examine_quadrature_of(models, result, observations)


def _examine_quadrature_of(
    models: Mapping[str, Source], result: Normalised, observations: Observations
) -> list[Remark]:
    wrong = np.maximum(result.relative_error, result.missing.max(axis=0))
    return [
        *examine_pareto(models, result.pareto_k, observations, "density"),
        *examine_quadrature(np.where(np.isfinite(result.logp), wrong, np.inf), observations),
    ]


def _examine_sampling_of(result: NormalisedBySampling, observations: Observations) -> list[Remark]:
    error, k_hat = result.relative_error, result.importance_k
    bad = (error > _LARGE_ERROR) | (k_hat > _LARGE_K)
    if not bad.any():
        return []
    worst = int(np.where(bad, k_hat, -np.inf).argmax())
    place = observations.describe(worst)
    return [UncertainNormaliser(int(bad.sum()), float(error[worst]), float(k_hat[worst]), place)]


def examine_draws(drawn: Sequence[Drawn], observations: Observations) -> list[Remark]:
    """Remark on draws from the combination, one set for each observation."""
    bad = [i for i, each in enumerate(drawn) if not each.reliable]
    if not bad:
        return []
    worst = min(bad, key=lambda i: drawn[i].ess)
    each = drawn[worst]
    k_hat = None if np.isnan(each.pareto_k) else float(each.pareto_k)
    place = observations.describe(worst)
    return [UnreliableDraws(len(bad), each.method, float(each.ess), k_hat, place)]
