"""Whether a pool of densities can be normalised: how it falls far out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.operators.pool import Pool
from lockquack.prediction.members import PredictiveDensity

#: Distances from the observed outcome, in units of the outcomes' spread, where the slope of the
#: log density is looked at. Nothing is known beyond the last.
_FAR = 10.0 ** np.arange(2, 7)
#: Observations that are looked at, spread over all of them.
_OBSERVATIONS = 20


def heaviest_tail(
    models: Mapping[str, Source], pool: Pool, limit: float | None = None
) -> tuple[int, float] | None:
    """Find an observation at which the pool is too heavy to have an integral.

    A density that falls like distance^s along a ray has an integral if s < −d, d the number of
    components; another ``limit`` is for other integrals. The slope of the log density in the log
    distance is looked at far out, in both directions of every component. Returns the observation
    and the worst slope, or None.
    """
    first = next(iter(models.values()))
    y = first.observations.values
    n, d = y.shape
    limit = -d if limit is None else limit
    spread = np.maximum(np.ptp(y, axis=0), np.abs(y).max(axis=0) * 1e-3 + 1e-300)
    worst: tuple[int, float] | None = None
    for i in np.unique(np.linspace(0, n - 1, _OBSERVATIONS).astype(int)).tolist():
        for j in range(d):
            for sign in (-1.0, 1.0):
                slope = _slope(models, pool.at(slice(i, i + 1)), i, sign * np.eye(d)[j] * spread)
                if slope >= limit and (worst is None or slope > worst[1]):
                    worst = i, slope
    return worst


def _slope(models: Mapping[str, Source], pool: Pool, observation: int, ray: Array) -> float:
    """Slope of the pool's log density in the log distance at the far end of a ray."""
    obs = slice(observation, observation + 1)
    row = np.zeros(1, dtype=np.intp)
    at = next(iter(models.values())).observations.values[obs] + _FAR[:, None] * ray
    logp = np.stack(
        [
            PredictiveDensity.of(m, obs, loo=False).logpdf_at(at[:, None], row)[:, 0]
            for m in models.values()
        ]
    )
    with np.errstate(invalid="ignore", over="ignore"):
        pooled = pool(logp, np.zeros(len(_FAR), dtype=np.intp))
    if np.isposinf(pooled[-1]):
        return np.inf  # a negative exponent of a density that is zero there
    if not np.isfinite(pooled[-1]):
        return -np.inf  # zero, or beyond what can be told from it
    return float((pooled[-1] - pooled[-2]) / np.log(_FAR[-1] / _FAR[-2]))
