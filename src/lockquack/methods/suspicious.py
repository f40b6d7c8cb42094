"""Numbers that do not look like what they are taken for: what to remark on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.methods.fitted import Fitted
from lockquack.models.model import sources_of
from lockquack.models.observations import Observations
from lockquack.remarks.base import Remark
from lockquack.remarks.draws import StuckChain
from lockquack.remarks.numbers import (
    CoarseOutcomes,
    LooksLike,
    RepeatedOutcome,
    SuspectDerivatives,
    SuspectLogDensity,
)

#: Observations from which a pattern among them is looked for.
_ENOUGH = 20
#: Standard errors above zero at which gradients count as pointing the wrong way.
_CLEARLY = 4.0
#: Skewness of log densities over observations; that of a normal density is −2.8.
_SKEWED = 1.0
#: Share of the outcomes that is one value, and how many times as often as the next it occurs.
_REPEATED, _APART = 0.2, 3
#: Outcomes among which it is looked for.
_LOOKED_AT = 10_000
#: Rounding of the outcomes, in units of their standard deviation, that is too coarse.
_COARSE = 1e-3
#: Range of what blocks of a chain predict, in units of the range over all chains: rounding.
_STILL = 1e-9


def examine_numbers(fit: Fitted, collapsed: Sequence[Collapsed]) -> list[Remark]:
    """Remark on outcomes, arrays and chains that look wrong."""
    sources = sources_of(fit.models or {})
    stored = [k for k, source in enumerate(sources.values()) if not source.can.evaluate]
    discrete = any(source.likelihood.discrete for source in sources.values())
    names = [fit.names[k] for k, each in enumerate(collapsed) if _has_stuck_chain(each)]
    return [
        *(_examine_outcomes(fit.observations) if not discrete else ()),
        *_examine_gradients(fit, stored),
        *_examine_log_densities(fit, stored),
        *([StuckChain(tuple(names))] if names else ()),
    ]


def _examine_outcomes(observations: Observations) -> list[Remark]:
    y = observations.values
    if not observations.known or observations.d > 1 or observations.n < _ENOUGH:
        return []
    remarks: list[Remark] = []
    some = y[:: -(-len(y) // _LOOKED_AT)]
    values, counts = np.unique(some, return_counts=True)
    order = np.argsort(-counts)
    if values.size > 1 and counts[order[0]] >= max(
        _REPEATED * some.size, _APART * counts[order[1]]
    ):
        value = float(values[order[0]])
        remarks.append(RepeatedOutcome(value, int((y == value).sum()), len(y)))
    largest, spread = float(np.abs(y).max()), float(y.std())
    if float(np.spacing(largest)) > _COARSE * spread > 0:
        remarks.append(CoarseOutcomes(largest, float(np.spacing(largest)), spread))
    return remarks


def _examine_gradients(fit: Fitted, stored: Sequence[int]) -> list[Remark]:
    """Remark on gradients that grow with the outcome, of models without a density elsewhere."""
    rule, y = fit.rule, fit.observations.values
    if not rule.needs_derivatives or y.shape[1] > 1 or len(y) < _ENOUGH:
        return []
    z = (y if rule.coordinates is None else rule.coordinates.forward(y))[:, 0]
    found: dict[int, float] = {}
    for k in stored:
        grad = fit.objective.jets.grad[k, :, 0]
        products = (z - z.mean()) * (grad - grad.mean())
        error = products.std(ddof=1) / np.sqrt(len(z))
        if products.mean() > _CLEARLY * error:
            found[k] = float(products.mean() / error) if error > 0 else np.inf
    names = tuple(fit.names[k] for k in found)
    return [SuspectDerivatives(names, max(found.values()))] if found else []


def _examine_log_densities(fit: Fitted, stored: Sequence[int]) -> list[Remark]:
    logp = fit.objective.jets.logp
    kinds: dict[LooksLike, list[str]] = {}
    for k in stored:
        looks = _looks_like(logp[k])
        if looks is not None:
            kinds.setdefault(looks, []).append(fit.names[k])
    return [SuspectLogDensity(tuple(names), looks) for looks, names in kinds.items()]


def _looks_like(logp: Array) -> LooksLike | None:
    """Say what numbers look like that should be log densities; None: like these."""
    if logp.size < _ENOUGH or not np.isfinite(logp).all() or (logp < 0).any():
        return None
    spread = logp.std()
    if spread == 0:
        return None
    if (logp <= 1).all():
        return "probabilities"
    skewness = float(np.mean(((logp - logp.mean()) / spread) ** 3))
    return "minus the log densities" if skewness > _SKEWED else None


def _has_stuck_chain(collapsed: Collapsed) -> bool:
    """Whether some chain predicts the same throughout, and others something else."""
    each = collapsed.influence.sum(axis=2) if collapsed.influence.size else collapsed.log_influence
    if each.shape[0] < 2 or each.shape[1] < 2 or not np.isfinite(each).all():
        return False
    jet, whole = collapsed.jet, float(np.ptp(each))
    terms = (np.square(jet.grad), jet.curv) if collapsed.influence.size else (jet.logp,)
    rounding = _STILL * float(sum(np.abs(term).sum() for term in terms))
    return whole > rounding and bool((np.ptp(each, axis=1) <= _STILL * whole).any())
