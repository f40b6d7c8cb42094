"""What to remark on when a combination is evaluated or sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from lockquack.jets import Array
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.prediction.pooled import Normalised
from lockquack.prediction.vectors import NormalisedBySampling
from lockquack.remarks.base import Remark
from lockquack.remarks.densities import (
    Affected,
    HighParetoK,
    NoMoment,
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
    """Remark on leave-one-out densities with a high Pareto k̂."""
    # Where nothing was weighted there is no k̂.
    known = [np.where(np.isnan(each), -np.inf, each) for each in pareto_k]
    k_hat = dict(zip(models, known, strict=True))
    limits = {name: model.pareto_limit for name, model in models.items()}
    counts = {name: int((k_hat[name] > limits[name]).sum()) for name in models}
    bad = tuple(name for name, count in counts.items() if count)
    if not bad:
        return []
    worst = max(bad, key=lambda name: float(k_hat[name].max()))
    at = int(k_hat[worst].argmax())
    return [
        HighParetoK(
            models=bad,
            counts=tuple(counts[name] for name in bad),
            limit=float(min(limits[name] for name in bad)),
            worst=float(k_hat[worst][at]),
            worst_model=worst,
            observation=observations.describe(at),
            affected=affected,
        )
    ]


def examine_quadrature(wrong: Array, observations: Observations) -> list[Remark]:
    """Remark on normalisers whose relative error, or missing mass, is not small."""
    wrong = np.where(np.isnan(wrong), np.inf, wrong)
    bad = int((wrong > _QUADRATURE_ERROR).sum())
    if not bad:
        return []
    worst = int(wrong.argmax())
    return [WrongNormaliser(bad, float(wrong[worst]), observations.describe(worst))]


def examine_moment(moment: str, values: Array, observations: Observations) -> list[Remark]:
    """Remark on means or variances (n × d,) that are not finite."""
    missing = np.flatnonzero(~np.isfinite(values.reshape(observations.n, -1)).all(axis=1))
    if not missing.size:
        return []
    return [NoMoment(moment, missing.size, observations.describe(int(missing[0])))]


def examine_density(
    models: Mapping[str, Source], result: Normalised, observations: Observations
) -> list[Remark]:
    """Remark on a normalised density."""
    wrong, by_sampling = result.missing.max(axis=0), list[Remark]()
    if isinstance(result, NormalisedBySampling):
        by_sampling = _examine_sampling(result, observations)
    else:
        wrong = np.maximum(result.relative_error, wrong)
    return [
        *examine_pareto(models, result.pareto_k, observations, "density"),
        *examine_quadrature(np.where(np.isfinite(result.logp), wrong, np.inf), observations),
        *by_sampling,
    ]


def _examine_sampling(result: NormalisedBySampling, observations: Observations) -> list[Remark]:
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
