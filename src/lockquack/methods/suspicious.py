"""Numbers that do not look like what they are taken for: what to remark on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lockquack.draws.collapse import Collapsed
from lockquack.jets import Array
from lockquack.methods.fitted import Fitted
from lockquack.methods.summing import scored_outcomes
from lockquack.methods.suspicious_outcomes import ENOUGH, examine_outcomes
from lockquack.models.model import sources_of
from lockquack.models.source import Source
from lockquack.remarks.base import Remark
from lockquack.remarks.draws import StuckChain
from lockquack.remarks.numbers import (
    InconsistentDerivatives,
    LooksLike,
    SuspectDerivatives,
    SuspectLogDensity,
    TooMuchMass,
)

#: Standard errors above zero at which gradients count as pointing the wrong way.
_CLEARLY = 4.0
#: Skewness of log densities over observations; that of a normal density is −2.8.
_SKEWED = 1.0
#: Observations at which one draw of a model is looked at.
_LOOKED_AT = 10_000
#: Departure of what is known at an outcome from the line through its neighbours, in units of its
#: range, up to which it is a function of the outcome.
_SMOOTH = 0.05
#: Mass between the outcomes that no density has, and departure of gradients from what curvatures
#: say, as a share of their changes, that is not the distance of the outcomes.
_MASS, _DEPARTURE = 1.1, 0.3
#: Range of what blocks of a chain predict, in units of the range over all chains: rounding.
_STILL = 1e-9


def examine_numbers(fit: Fitted, collapsed: Sequence[Collapsed]) -> list[Remark]:
    """Remark on outcomes, arrays and chains that look wrong."""
    sources = sources_of(fit.models or {})
    arrays = {name: source for name, source in sources.items() if not source.can.evaluate}
    stored = [k for k, name in enumerate(sources) if name in arrays]
    discrete = any(source.likelihood.discrete for source in sources.values())
    names = [fit.names[k] for k, each in enumerate(collapsed) if _has_stuck_chain(each)]
    return [
        *(_examine_outcomes(fit) if not discrete else ()),
        *_examine_gradients(fit, stored),
        *(_examine_functions(fit, arrays) if not discrete else ()),
        *_examine_log_densities(fit, stored),
        *([StuckChain(tuple(names))] if names else ()),
    ]


def _examine_outcomes(fit: Fitted) -> list[Remark]:
    rule, jets = fit.rule, fit.objective.jets
    known = jets.grad[..., 0] if rule.needs_derivatives else jets.logp
    return examine_outcomes(fit.observations, fit.names, known, densities=rule.needs_density)


def _examine_gradients(fit: Fitted, stored: Sequence[int]) -> list[Remark]:
    """Remark on gradients that grow with the outcome, of models without a density elsewhere."""
    rule, y = fit.rule, fit.observations.values
    if not rule.needs_derivatives or y.shape[1] > 1 or len(y) < ENOUGH:
        return []
    z = scored_outcomes(rule, y)[:, 0]
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


def _examine_functions(fit: Fitted, stored: Mapping[str, Source]) -> list[Remark]:
    """Remark on arrays of models without covariates, whose numbers are functions of the outcome.

    There the density of a draw can be integrated between the outcomes, and derivatives be compared
    with each other.
    """
    observations = fit.observations
    if observations.d > 1 or not observations.known:
        return []
    some = slice(0, min(observations.n, _LOOKED_AT))
    at, first = np.unique(observations.values[some, 0], return_index=True)
    if at.size < max(ENOUGH, some.stop / 2):
        return []
    remarks: list[Remark] = []
    for name, source in stored.items():
        if fit.rule.needs_density and source.n_draws:
            mass = _mass(at, source.logp(0, slice(0, 1), some)[0, first])
            remarks += [TooMuchMass((name,), mass)] if mass > _MASS else []
        if fit.rule.needs_derivatives:
            grad, curv = source.derivatives(0, slice(0, 1), some)
            off = _departure(at, grad[0, first, 0], curv[0, first, 0])
            remarks += [InconsistentDerivatives((name,), off)] if off > _DEPARTURE else []
    return remarks


def _mass(at: Array, logp: Array) -> float:
    """Return what a density has at least between sorted places; 0 if it is not one function.

    It has no less than the lower of its values at both ends, unless it has a gap between them.
    """
    if not _is_function(at, logp):
        return 0.0
    with np.errstate(over="ignore"):
        return float((np.exp(np.minimum(logp[1:], logp[:-1])) * np.diff(at)).sum())


def _is_function(at: Array, values: Array) -> bool:
    """Whether values at sorted places look like those of one smooth function."""
    if not np.isfinite(values).all():
        return False
    share = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
    between = values[:-2] + share * (values[2:] - values[:-2])
    size = float(np.subtract(*np.quantile(values, [0.95, 0.05])))
    return bool(np.median(np.abs(values[1:-1] - between)) <= _SMOOTH * size)


def _departure(at: Array, grad: Array, curv: Array) -> float:
    """Return how far gradients depart from what curvatures say, as a share of their changes.

    Over the bulk of the outcomes; 0 if they are not functions of the outcome. Between two of them
    a gradient changes by no less than the smaller curvature there and no more than the larger.
    """
    if not (_is_function(at, grad) and np.isfinite(curv).all()):
        return 0.0
    inner = slice(at.size // 20, at.size - at.size // 20)
    at, grad, curv = at[inner], grad[inner], curv[inner]
    ends, changes = np.diff(at) * np.sort([curv[1:], curv[:-1]], axis=0), np.diff(grad)
    outside = np.maximum(ends[0] - changes, changes - ends[1]).clip(min=0.0)
    size = max(float(np.abs(ends).mean(axis=0).sum()), float(np.abs(changes).sum()))
    return float(outside.sum()) / size if size > 0 else 0.0


def _looks_like(logp: Array) -> LooksLike | None:
    """Say what numbers look like that should be log densities; None: like these."""
    if logp.size < ENOUGH or not np.isfinite(logp).all() or (logp < 0).any():
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
    each = collapsed.effect.sum(axis=2) if collapsed.effect.size else collapsed.log_effect
    if each.shape[0] < 2 or each.shape[1] < 2 or not np.isfinite(each).all():
        return False
    jet, whole = collapsed.jet, float(np.ptp(each))
    terms = (np.square(jet.grad), jet.curv) if collapsed.effect.size else (jet.logp,)
    rounding = _STILL * float(sum(np.abs(term).sum() for term in terms))
    return whole > rounding and bool((np.ptp(each, axis=1) <= _STILL * whole).any())
