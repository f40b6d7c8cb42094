"""The combination as a normalised density, one per observation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from lockquack.density.quadrature import Components, Integral, Line, Rows, integrate
from lockquack.errors import SupportError, UnsupportedError
from lockquack.jets import Array, log_sum_exp
from lockquack.operators import Operator
from lockquack.predictive import Predictive
from lockquack.progress import progress_bar
from lockquack.psis import psis

#: Multiples of a component's spread, either side of its location, where the line is cut.
_MULTIPLES = np.array([-7.0, -4.5, -2.2, 0.0, 2.2, 4.5, 7.0])
#: Spreads of the narrowest component that break points keep from each other.
_GAP = 2.0
#: Ratio of the extent of all modes to the width of one from which a ladder joins them.
_LADDER = 4.0
#: Mass of a component that may go missing before a closer look.
_MISSING = 1e-8
#: Numbers that evaluating draws on nodes holds at once: they should stay in a core's cache.
_NUMBERS_AT_ONCE = 2**15
_DRAWS_AT_ONCE = 200


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
    weights: Array,
    *,
    loo: bool,
    progressbar: bool | None = None,
) -> Normalised:
    """Normalise the pool by quadrature at each observation and evaluate it there.

    Every model must be able to say its density anywhere. With ``loo``, draws are weighted by
    Pareto-smoothed importance sampling.
    """
    _require_line(models)
    first = next(iter(models.values()))
    parts = []
    with progress_bar(first.n_obs, "normalising", progressbar) as advance:
        for obs in first.observation_slices():
            members = [_Member.of(model, obs, loo) for model in models.values()]
            parts.append(_normalise_slice(members, operator, weights, _support(models)))
            advance(obs.stop - obs.start)
    return Normalised(
        *(
            np.concatenate([getattr(part, field.name) for part in parts], axis=-1)
            for field in fields(Normalised)
        )
    )


def mix(
    models: Mapping[str, Predictive],
    operator: Operator,
    weights: Array,
    *,
    loo: bool,
    progressbar: bool | None = None,
) -> Normalised:
    """Evaluate a pool that needs no normaliser; densities at the observations are enough."""
    if loo:
        each = [model.loo(progressbar=progressbar) for model in models.values()]
        logp, pareto_k = np.stack([m.logp for m in each]), np.stack([m.pareto_k for m in each])
    else:
        passes = [m.collapse("in-sample", progressbar=progressbar) for m in models.values()]
        logp = np.stack([each.jet.logp for each in passes])
        pareto_k = np.zeros_like(logp)
    pooled = operator.pool_density(logp, weights)
    nothing = np.zeros_like(pooled)
    return Normalised(pooled, nothing, nothing, np.zeros_like(logp), pareto_k)


@dataclass(frozen=True)
class _Member:
    """One model's predictive densities at a slice of the observations."""

    model: Predictive
    obs: slice
    log_weights: Array | None  # (chain, draw, obs), normalised; None: equal
    pareto_k: Array  # (obs,)

    @classmethod
    def of(cls, model: Predictive, obs: slice, loo: bool) -> _Member:
        if not loo:
            return cls(model, obs, None, np.zeros(obs.stop - obs.start))
        return cls(model, obs, *psis(model.all_logp(obs)))

    def logpdf(self, y: Array, rows: Rows) -> Array:
        """Predictive log densities at points (point, row) of some rows of the slice."""
        result = np.empty_like(y)
        step = max(1, _NUMBERS_AT_ONCE // (len(y) * _DRAWS_AT_ONCE))
        for start in range(0, rows.size, step):
            some = slice(start, start + step)
            result[:, some] = self._logpdf(y[:, some], rows[some])
        return result

    def _logpdf(self, y: Array, rows: Rows) -> Array:
        model = self.model
        totals = []
        for chain in range(model.n_chains):
            for start in range(0, model.n_draws, _DRAWS_AT_ONCE):
                draws = slice(start, min(start + _DRAWS_AT_ONCE, model.n_draws))
                with np.errstate(over="ignore"):  # far out in the tails
                    logp = model.logp_at(y[..., None], chain, draws, rows + self.obs.start)
                if self.log_weights is not None:
                    logp = logp + self.log_weights[chain, draws][:, rows]
                totals.append(log_sum_exp(logp, axis=1))
        total = log_sum_exp(np.stack(totals))
        return total if self.log_weights is not None else total - np.log(model.n_samples)


def densities_on(
    models: Mapping[str, Predictive],
    operator: Operator,
    weights: Array,
    grid: Array,
    observation: int,
    *,
    loo: bool = False,
) -> tuple[Array, Array]:
    """Log densities on a grid for one observation: of the models, (K, point), and of the pool."""
    _require_line(models)
    obs = slice(observation, observation + 1)
    members = [_Member.of(model, obs, loo) for model in models.values()]
    each = _components(members)(grid[:, None], np.zeros(1, dtype=np.intp))[..., 0]
    integral, _ = _log_norm(members, operator, weights, _support(models))
    return each, operator.pool_density(each, weights) - integral.log_value


def _components(members: list[_Member]) -> Components:
    return lambda y, rows: np.stack([member.logpdf(y, rows) for member in members])


def _log_norm(
    members: list[_Member], operator: Operator, weights: Array, support: tuple[float, float]
) -> tuple[Integral, Array]:
    """Integrate the pool; return also how much of each component's mass was not found.

    A density integrates to one, so what is missing tells when the break points were too few;
    then more are laid.
    """

    def attempt(detailed: bool) -> tuple[Integral, Array]:
        line = Line(_breaks(members, support, detailed=detailed), support)
        integral = integrate(
            _components(members), lambda logp: operator.pool_density(logp, weights), line
        )
        missing = np.abs(1.0 - np.exp(integral.log_masses))
        for k, member in enumerate(members):
            model = member.model
            if not model.is_complete or model.likelihood.support != support:
                missing[k] = 0.0  # part of it lies where the pool is zero
        return integral, missing

    integral, missing = attempt(detailed=False)
    return attempt(detailed=True) if (missing > _MISSING).any() else (integral, missing)


def _normalise_slice(
    members: list[_Member], operator: Operator, weights: Array, support: tuple[float, float]
) -> Normalised:
    integral, missing = _log_norm(members, operator, weights, support)
    observed = members[0].model.observations.values[members[0].obs, 0]
    each = _components(members)(observed[None], np.arange(observed.size))[:, 0]
    logp = operator.pool_density(each, weights) - integral.log_value
    pareto_k = np.stack([member.pareto_k for member in members])
    return Normalised(logp, integral.log_value, integral.relative_error, missing, pareto_k)


def _breaks(members: list[_Member], support: tuple[float, float], *, detailed: bool) -> Array:
    """Choose break points (row, break) from where the components have their mass.

    Around each mode they follow its spread. Where modes differ much in width or place, they
    grow from there like powers of two to the extent of all: a panel is never so long that its
    nodes miss what happens at its end. Those too close to their neighbour are put onto it,
    which leaves an empty panel.
    """
    bulks = _bulks(members, detailed)  # (mode, multiple, row)
    low, high = bulks.min(axis=1), bulks.max(axis=1)
    extent = np.ptp(bulks, axis=(0, 1))
    width = np.where(high > low, high - low, extent)
    ratio = float((extent / width).max())
    doublings = int(np.ceil(np.log2(ratio))) if ratio > _LADDER else 0
    ladder = width * (2.0 ** np.arange(1, doublings + 1)[:, None, None] - 1.0)
    rungs = (bulks, high + ladder, low - ladder)
    points = np.concatenate([each.reshape(-1, extent.size) for each in rungs])
    # A break point on the very edge leaves no tail to map: keep a hair of the extent away.
    hair = 1e-3 * extent
    points = np.clip(points, low.min(axis=0) - extent, high.max(axis=0) + extent)
    points = np.sort(np.clip(points, support[0] + hair, support[1] - hair), axis=0)
    gap = _GAP / np.ptp(_MULTIPLES) * width.min(axis=0)
    for k in range(1, len(points)):
        points[k] = np.where(points[k] - points[k - 1] < gap, points[k - 1], points[k])
    return points.T


def _bulks(members: list[_Member], detailed: bool) -> Array:
    """Outcomes around each mode of each component, (mode, multiple, row)."""
    points = np.concatenate(
        [member.model.bulks(member.obs, _MULTIPLES, detailed=detailed) for member in members]
    )
    # A bulk that reaches beyond the range of a transform has no image there.
    missing = ~np.isfinite(points)
    middle = np.nanmedian(np.where(missing, np.nan, points), axis=1, keepdims=True)
    return np.where(missing, middle, points)


def _support(models: Mapping[str, Predictive]) -> tuple[float, float]:
    known = [m.likelihood.support for m in models.values() if m.likelihood.support is not None]
    low = max((low for low, _ in known), default=-np.inf)
    high = min((high for _, high in known), default=np.inf)
    if low >= high:
        raise SupportError("The models with weight have no outcome in common; nothing is left.")
    return low, high


def _require_line(models: Mapping[str, Predictive]) -> None:
    for name, model in models.items():
        if not model.evaluable:
            raise UnsupportedError(
                f"Model {name!r} is known at the observed outcomes only, so the combination "
                "cannot be normalised. Make it with from_family or a PPL adapter."
            )
        if model.observations.d > 1:
            raise UnsupportedError(
                f"Model {name!r} has an outcome with {model.observations.d} components; "
                "quadrature normalises scalar outcomes only."
            )
