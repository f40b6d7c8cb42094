"""The models' predictive densities anywhere, and where on the line to look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lockquack.density.quadrature import Components, Rows
from lockquack.errors import SupportError, UnsupportedError
from lockquack.jets import Array, log_sum_exp
from lockquack.predictive import Predictive
from lockquack.psis import psis

#: Multiples of a component's spread, either side of its location, where the line is cut.
MULTIPLES = np.array([-7.0, -4.5, -2.2, 0.0, 2.2, 4.5, 7.0])
#: Spreads of the narrowest component that break points keep from each other.
_GAP = 2.0
#: Ratio of the extent of all modes to the width of one from which a ladder joins them.
_LADDER = 4.0
#: Numbers that evaluating draws on nodes holds at once: they should stay in a core's cache.
_NUMBERS_AT_ONCE = 2**15
_DRAWS_AT_ONCE = 200


@dataclass(frozen=True)
class Member:
    """One model's predictive densities at a slice of the observations."""

    model: Predictive
    obs: slice
    log_weights: Array | None  # (chain, draw, obs), normalised; None: equal
    pareto_k: Array  # (obs,)

    @classmethod
    def of(cls, model: Predictive, obs: slice, loo: bool) -> Member:
        """Look at a model at some observations, each left out of its own prediction or not."""
        if not loo:
            return cls(model, obs, None, np.zeros(obs.stop - obs.start))
        return cls(model, obs, *psis(model.all_logp(obs)))

    def logpdf(self, y: Array, rows: Rows) -> Array:
        """Predictive log densities at scalar outcomes (point, row) of some rows of the slice."""
        return self.logpdf_at(y[..., None], rows)

    def logpdf_at(self, y: Array, rows: Rows) -> Array:
        """Predictive log densities at outcomes (point, row, component) → (point, row)."""
        result = np.empty(y.shape[:2])
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
                    logp = model.logp_at(y, chain, draws, rows + self.obs.start)
                if self.log_weights is not None:
                    logp = logp + self.log_weights[chain, draws][:, rows]
                totals.append(log_sum_exp(logp, axis=1))
        total = log_sum_exp(np.stack(totals))
        return total if self.log_weights is not None else total - np.log(model.n_samples)


def members_at(models: Mapping[str, Predictive], obs: slice, *, loo: bool) -> list[Member]:
    """Look at all models at some observations."""
    return [Member.of(model, obs, loo) for model in models.values()]


def components(members: Sequence[Member]) -> Components:
    """Stack the members' log densities, (K, point, row)."""
    return lambda y, rows: np.stack([member.logpdf(y, rows) for member in members])


def support_of(models: Mapping[str, Predictive], *, of_all: bool) -> tuple[float, float]:
    """Outcomes that all models, or any of them, deem possible, as far as is known."""
    inner, outer = (max, min) if of_all else (min, max)
    known = [m.likelihood.support or (-np.inf, np.inf) for m in models.values()]
    low, high = inner(low for low, _ in known), outer(high for _, high in known)
    if low > high or (low == high and not are_discrete(models)):
        raise SupportError("The models with weight have no outcome in common; nothing is left.")
    return low, high


def are_discrete(models: Mapping[str, Predictive]) -> bool:
    """Whether the outcomes are discrete; a model of either kind beside one of the other fails."""
    kinds = {model.likelihood.discrete for model in models.values()}
    if len(kinds) > 1:
        raise UnsupportedError(
            "Some models are discrete and others have densities; their pool is neither."
        )
    return kinds.pop()


def require_evaluable(models: Mapping[str, Predictive], what: str) -> None:
    """Refuse models that are known at the observed outcomes only, or have several components."""
    for name, model in models.items():
        if not model.evaluable:
            raise UnsupportedError(
                f"Model {name!r} is known at the observed outcomes only, so {what}. Make it with "
                "from_family or a PPL adapter."
            )
        if model.observations.d > 1:
            raise UnsupportedError(
                f"Model {name!r} has an outcome with {model.observations.d} components, so "
                f"{what}: quadrature is for scalar outcomes only."
            )


def break_points(
    members: Sequence[Member], support: tuple[float, float], *, detailed: bool
) -> Array:
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
    gap = _GAP / np.ptp(MULTIPLES) * width.min(axis=0)
    for k in range(1, len(points)):
        points[k] = np.where(points[k] - points[k - 1] < gap, points[k - 1], points[k])
    edges = _inner_edges(members, support)
    return np.sort(np.concatenate([points, np.tile(edges[:, None], extent.size)]), axis=0).T


def _inner_edges(members: Sequence[Member], support: tuple[float, float]) -> Array:
    """Places inside the support where that of a component ends."""
    known = [member.model.likelihood.support or () for member in members]
    return np.array(sorted({at for ends in known for at in ends if support[0] < at < support[1]}))


def _bulks(members: Sequence[Member], detailed: bool) -> Array:
    """Outcomes around each mode of each component, (mode, multiple, row)."""
    points = np.concatenate(
        [member.model.bulks(member.obs, MULTIPLES, detailed=detailed) for member in members]
    )
    # A bulk that reaches beyond the range of a transform has no image there.
    missing = ~np.isfinite(points)
    middle = np.nanmedian(np.where(missing, np.nan, points), axis=1, keepdims=True)
    return np.where(missing, middle, points)
