"""The combination as a normalised density, one per observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lockquack.collapse import Kind
from lockquack.density.members import components, members_at
from lockquack.density.nodes import lay_nodes
from lockquack.jets import Array
from lockquack.operators import Operator
from lockquack.predictive import Predictive


@dataclass(frozen=True)
class Normalised:
    """Log density of the pool at each observation, what normalised it, and how well."""

    logp: Array  # (n,)
    log_norm: Array  # (n,)
    relative_error: Array  # (n,), of the normaliser
    missing: Array  # (K, n): mass of each component that the quadrature did not see
    pareto_k: Array  # (K, n), zero unless leave-one-out


def normalise(
    models: Mapping[str, Predictive],
    operator: Operator,
    x: Array,
    *,
    loo: bool,
    progressbar: bool | None = None,
) -> Normalised:
    """Normalise the pool at each observation and evaluate it there.

    Every model must be able to say its density anywhere. With ``loo``, draws are weighted by
    Pareto-smoothed importance sampling.
    """

    def pool(logp: Array) -> Array:
        return operator.pool_density(logp, x)

    laid = lay_nodes(
        models, loo=loo, pools=[pool], of_all=operator.vanishes_with_any, progressbar=progressbar
    )
    norms = [part.log_norm(pool) for part in laid]
    log_norm = np.concatenate([value for value, _ in norms])
    at_observed = observed_densities(models, loo=loo, progressbar=progressbar)
    return Normalised(
        pool(at_observed) - log_norm,
        log_norm,
        np.concatenate([error for _, error in norms]),
        np.concatenate([part.missing for part in laid], axis=-1),
        np.concatenate([part.pareto_k for part in laid], axis=-1),
    )


def mix(
    models: Mapping[str, Predictive],
    operator: Operator,
    x: Array,
    *,
    loo: bool,
    progressbar: bool | None = None,
) -> Normalised:
    """Evaluate a pool that needs no normaliser; densities at the observations are enough."""
    logp = observed_densities(models, loo=loo, progressbar=progressbar)
    pareto_k = np.zeros_like(logp)
    if loo:
        pareto_k = np.stack([model.loo().pareto_k for model in models.values()])
    pooled = operator.pool_density(logp, x)
    nothing = np.zeros_like(pooled)
    return Normalised(pooled, nothing, nothing, np.zeros_like(logp), pareto_k)


def observed_densities(
    models: Mapping[str, Predictive], *, loo: bool, progressbar: bool | None = None
) -> Array:
    """Log predictive densities of the models at the observed outcomes, (K, n)."""
    kind: Kind = "loo" if loo else "in-sample"
    return np.stack(
        [
            model.predict(kind, density=True, derivatives=False, progressbar=progressbar).jet.logp
            for model in models.values()
        ]
    )


def densities_on(
    models: Mapping[str, Predictive],
    operator: Operator,
    x: Array,
    grid: Array,
    observation: int,
    *,
    loo: bool = False,
) -> tuple[Array, Array]:
    """Log densities on a grid for one observation: of the models, (K, point), and of the pool."""

    def pool(logp: Array) -> Array:
        return operator.pool_density(logp, x)

    obs = slice(observation, observation + 1)
    of_all = operator.vanishes_with_any
    laid = lay_nodes(models, loo=loo, pools=[pool], slices=[obs], of_all=of_all)
    evaluate = components(members_at(models, obs, loo=loo))
    each = evaluate(grid[:, None], np.zeros(1, dtype=np.intp))[..., 0]
    return each, pool(each) - laid[0].log_norm(pool)[0]
