"""The models' predictive densities at any outcome, and break points for integrating them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lockquack.errors import SupportError, UnsupportedError
from lockquack.jets import Array, Jet, log_sum_exp, power_pool, stack_jets
from lockquack.kernels.choice import kernels_for, predictive_sums
from lockquack.models.source import Source
from lockquack.quadrature.grid import Components, Line, Rows
from lockquack.transforms import LogDistance, Logit, unbounded
from lockquack.words import NAME_ITS_LIKELIHOOD, STACKING

#: Multiples of a component's spread, either side of its location, where the line is cut.
MULTIPLES = np.array([-7.0, -3.5, 0.0, 3.5, 7.0])
#: Spreads of the narrowest component that break points keep from each other.
_GAP = 2.5
#: Ratio of the extent of all modes to the width of one from which a ladder joins them.
_LADDER = 4.0
#: Spreads that a mode keeps from an edge.
_INSIDE = 1e-3
#: Numbers that evaluating draws on nodes holds at once: they should stay in a core's cache.
_NUMBERS_AT_ONCE = 2**16
#: Points at which a density is looked at, or a few times as many.
_POINTS = 100
#: Outcomes at which a density is evaluated at once: sums along many draws take less than along few.
_MOST_POINTS = 2**8
#: Times that outcomes which a transform cannot have are drawn again.
_MOST_REDRAWS = 1000


@dataclass(frozen=True)
class PredictiveDensity:
    """One model's predictive densities at a slice of the observations."""

    source: Source
    obs: slice
    log_weights: Array | None  # (chain, draw, obs), normalised; None: equal
    pareto_k: Array  # (obs,)

    @classmethod
    def of(cls, source: Source, obs: slice, loo: bool) -> PredictiveDensity:
        """Predict some observations, each left out of its own prediction or not."""
        source = source.left_out() if loo else source
        return cls(source, obs, *source.draw_weights(obs, loo=loo))

    def logpdf(self, y: Array, rows: Rows) -> Array:
        """Predictive log densities at scalar outcomes (point, row) of some rows of the slice."""
        return self.logpdf_at(y[..., None], rows)

    def logpdf_at(self, y: Array, rows: Rows) -> Array:
        """Predictive log densities at outcomes (point, row, component) → (point, row).

        NaN where an outcome is.
        """
        if self._compiled is not None:
            return self._compiled(y[..., 0], rows)
        result = np.full(y.shape[:2], np.nan)
        known = np.asarray(~np.isnan(y).any(axis=2))
        # Row by row, so that sums over draws run along the memory.
        for i in range(rows.size):
            some = known[:, i]
            if some.any():
                result[some, i] = self._logpdf(y[some, i : i + 1], rows[i : i + 1])[:, 0]
        return result

    @cached_property
    def _compiled(self) -> Callable[[Array, Rows], Array] | None:
        """Predictive log densities in one compiled loop, where the family is known to it."""
        log_sums = predictive_sums(self._n_numbers)
        if log_sums is None or self.source.observations.d > 1:
            return None
        split = self.source.split(self.obs)
        if split is None:
            return None
        constant = split.constant
        if self.log_weights is None:
            constant = constant - np.log(self.source.n_samples)
        else:
            weights = np.moveaxis(self.log_weights, 2, 0)
            constant = constant + weights.reshape(-1, self.source.n_samples)

        def evaluate(y: Array, rows: Rows) -> Array:
            base, *others = split.of_outcome(np.ascontiguousarray(y))
            base = np.where(np.isnan(y), np.nan, base)
            return log_sums(split.formula, others, base, rows, constant, split.parameters)

        return evaluate

    @property
    def _n_numbers(self) -> int:
        return self.source.n_samples * self.source.n_obs * _POINTS

    def _logpdf(self, y: Array, rows: Rows) -> Array:
        if len(y) > _MOST_POINTS:
            parts = [y[at : at + _MOST_POINTS] for at in range(0, len(y), _MOST_POINTS)]
            return np.concatenate([self._logpdf(part, rows) for part in parts])
        kernels = kernels_for(self._n_numbers)
        totals = []
        for chain, draws in self._blocks(len(y)):
            with np.errstate(over="ignore"):  # far out in the tails
                logp = self.source.logp_at(y, chain, draws, rows + self.obs.start)
            if self.log_weights is not None:
                logp = logp + self.log_weights[chain, draws][:, rows]
            totals.append(kernels.log_sum_members(logp))
        total = log_sum_exp(np.stack(totals))
        return total if self.log_weights is not None else total - np.log(self.source.n_samples)

    def jet_at(self, y: Array, row: int) -> Jet:
        """Predictive jet at outcomes (point, component) of one row of the slice, (point,)."""
        at = np.array([self.obs.start + row])
        blocks = []
        for chain, draws in self._blocks(y.size):
            jet = self.source.jets_at(y[:, None], chain, draws, at, derivatives=True)
            weight = np.zeros((1, 1, 1))
            if self.log_weights is not None:
                weight = self.log_weights[chain, draws, row][None, :, None]
            blocks.append(power_pool(jet, weight, 1.0, axis=1)[:, 0])
        pooled = power_pool(stack_jets(blocks), np.zeros((1, 1)), 1.0)
        if self.log_weights is None:
            pooled = replace(pooled, logp=pooled.logp - np.log(self.source.n_samples))
        return pooled

    def draw(self, n: int, row: int, rng: np.random.Generator) -> Array:
        """Draw outcomes from the prediction of one row of the slice, (n, component)."""
        source = self.source
        shares = None
        if self.log_weights is not None:
            shares = np.exp(self.log_weights[..., row]).ravel()
            shares /= shares.sum()
        at = np.array([self.obs.start + row])
        outcomes = np.full((n, source.observations.d), np.nan)
        for _ in range(_MOST_REDRAWS):
            missing = np.flatnonzero(np.isnan(outcomes).any(axis=1))
            if not missing.size:
                return outcomes
            chosen = rng.choice(source.n_samples, size=missing.size, p=shares)
            chain, draw = np.divmod(chosen, source.n_draws)
            for c in np.unique(chain):
                mine = chain == c
                outcomes[missing[mine]] = source.draw_outcomes(int(c), draw[mine], at, rng)[:, 0]
        raise UnsupportedError(
            f"{source.likelihood.description} hardly ever draws an outcome that its transform "
            "can have."
        )

    def _blocks(self, n_points: int) -> Iterator[tuple[int, slice]]:
        """Cut the draws of each chain into blocks of equal size that fit the cache."""
        n_draws = self.source.n_draws
        pieces = -(-n_draws * n_points // _NUMBERS_AT_ONCE)
        step = -(-n_draws // pieces)
        for chain in range(self.source.n_chains):
            for start in range(0, n_draws, step):
                yield chain, slice(start, min(start + step, n_draws))


def predictive_densities(
    models: Iterable[Source], obs: slice, *, loo: bool
) -> list[PredictiveDensity]:
    """Return the predictive densities of all models at some observations."""
    return [PredictiveDensity.of(model, obs, loo) for model in models]


def log_components(models: Iterable[Source], obs: slice, y: Array, *, loo: bool) -> Array:
    """Log densities of all models at outcomes (point, obs) → (K, point, obs)."""
    return LaterComponents(tuple(models), obs, loo)(y, np.arange(y.shape[1]))


@dataclass(frozen=True, eq=False)
class LaterComponents:
    """Log densities of models at some observations, whose draws are weighted when first asked."""

    models: Sequence[Source]
    obs: slice
    loo: bool

    @cached_property
    def _components(self) -> Components:
        return components(predictive_densities(self.models, self.obs, loo=self.loo))

    def __call__(self, y: Array, rows: Rows) -> Array:
        """Evaluate all models at outcomes (point, row) → (K, point, row)."""
        return self._components(y, rows)


def components(members: Sequence[PredictiveDensity]) -> Components:
    """Stack the members' log densities, (K, point, row)."""
    return _Components(tuple(members))


@dataclass(frozen=True)
class _Components:
    """What :func:`components` returns; it can be pickled, which a function inside one cannot."""

    members: tuple[PredictiveDensity, ...]

    def __call__(self, y: Array, rows: Rows) -> Array:
        return np.stack([member.logpdf(y, rows) for member in self.members])


def support_of(models: Mapping[str, Source], *, of_all: bool) -> tuple[float, float]:
    """Return the ends of the support of all models together: intersection or union."""
    inner, outer = (max, min) if of_all else (min, max)
    known = [m.likelihood.support or (-np.inf, np.inf) for m in models.values()]
    low, high = inner(low for low, _ in known), outer(high for _, high in known)
    if low > high or (low == high and not are_discrete(models)):
        raise SupportError("The models with weight have no outcome in common; nothing is left.")
    return low, high


def are_discrete(models: Mapping[str, Source]) -> bool:
    """Whether the outcomes are discrete; models of both kinds together are refused."""
    discrete = [name for name, model in models.items() if model.likelihood.discrete]
    if 0 < len(discrete) < len(models):
        other = next(name for name in models if name not in discrete)
        raise UnsupportedError(
            f"Model {discrete[0]!r} is discrete and model {other!r} has a density; probabilities "
            "and densities cannot be pooled or compared. Combine models of one kind."
        )
    return bool(discrete)


def remedies(model: Source) -> tuple[str, ...]:
    """Say what to do where the density of a model is not known at every outcome."""
    if model.can.draw:  # made by an adapter already
        return ("Mix such models, as ", STACKING, " does: mixtures are drawn from the models.")
    return (NAME_ITS_LIKELIHOOD,)


def are_evaluable(models: Mapping[str, Source]) -> bool:
    """Whether all models have scalar outcomes and densities that are known anywhere."""
    return all(model.has_quadrature for model in models.values())


def require_evaluable(models: Mapping[str, Source], what: str, *, vectors: bool = False) -> None:
    """Refuse models without densities away from the data, or with vector outcomes.

    With ``vectors``, vector outcomes are allowed.
    """
    for name, model in models.items():
        if not model.can.evaluate:
            raise UnsupportedError(
                f"Model {name!r} {model.known_where}, so ",
                what,
                ". ",
                *remedies(model),
            )
        if model.observations.d > 1 and not vectors:
            raise UnsupportedError(
                f"Model {name!r} has an outcome with {model.observations.d} components, so ",
                what,
                ": quadrature is for scalar outcomes only.",
            )


def lay_line(
    members: Sequence[PredictiveDensity], support: tuple[float, float], *, detailed: bool
) -> tuple[Line, Array]:
    """Choose break points from where the components have their mass; return also the modes.

    Modes are (mode, multiple, row), on the scale on which the line is whole, as break points are.
    Around each mode these follow its spread. Where modes differ much in width or place, they grow
    from there like powers of two to the extent of all: a panel is never so long that its nodes
    miss what happens at its end. Those too close to their neighbour are put onto it, which leaves
    an empty panel.
    """
    scale = unbounded(support)
    bulks = _bulks(members, detailed)  # (mode, multiple, row)
    if scale is not None:
        bulks = _on_scale(bulks, scale)
    low, high = bulks.min(axis=1), bulks.max(axis=1)
    extent = np.ptp(bulks, axis=(0, 1))
    width = np.where(high > low, high - low, extent)
    ratio = float((extent / width).max())
    doublings = int(np.ceil(np.log2(ratio))) if ratio > _LADDER else 0
    ladder = width * (2.0 ** np.arange(1, doublings + 1)[:, None, None] - 1.0)
    rungs = (bulks, high + ladder, low - ladder)
    points = np.concatenate([each.reshape(-1, extent.size) for each in rungs])
    points = np.sort(np.clip(points, low.min(axis=0) - extent, high.max(axis=0) + extent), axis=0)
    gap = _GAP / np.ptp(MULTIPLES) * width.min(axis=0)
    for k in range(1, len(points)):
        points[k] = np.where(points[k] - points[k - 1] < gap, points[k - 1], points[k])
    edges = _inner_edges(members, support)
    if scale is not None:
        edges = scale.forward(edges)
    points = np.concatenate([points, np.tile(edges[:, None], extent.size)])
    return Line(np.sort(points, axis=0).T, support, edges), bulks


def tails_to_try(
    members: Sequence[PredictiveDensity], support: tuple[float, float]
) -> tuple[bool, ...]:
    """Say whether to take the tails for heavy, or in which order to try both.

    On the whole line the likelihoods tell. Elsewhere it depends on parameters.
    """
    if unbounded(support) is not None:
        return False, True
    edges = [edge for member in members for edge in member.source.likelihood.edges]
    return (not edges or any(edge.order < np.inf for edge in edges),)


def _on_scale(bulks: Array, scale: LogDistance | Logit) -> Array:
    """Bring places around modes (mode, multiple, row) to the scale that makes the line whole.

    A spread that is large next to the distance of its mode to an edge counts as its logarithm.
    """
    low, high = scale.domain
    middle = bulks[:, MULTIPLES.size // 2]
    reach = np.maximum(bulks.max(axis=1) - middle, middle - bulks.min(axis=1))
    spread = reach / MULTIPLES.max()  # on the side that no edge cut off
    spread = np.where(spread > 0, spread, _INSIDE * np.ptp(bulks, axis=(0, 1)))
    inside = np.clip(middle, low + _INSIDE * spread, high - _INSIDE * spread)
    z = scale.forward(inside)
    width = np.arcsinh(spread * np.exp(-scale.log_stretch(z)))
    return z[:, None] + MULTIPLES[:, None] * width[:, None]


def _inner_edges(members: Sequence[PredictiveDensity], support: tuple[float, float]) -> Array:
    """Return where the support of a component ends inside that of the pool."""
    known = [member.source.likelihood.support or () for member in members]
    return np.array(sorted({at for ends in known for at in ends if support[0] < at < support[1]}))


def _bulks(members: Sequence[PredictiveDensity], detailed: bool) -> Array:
    """Outcomes around each mode of each component, (mode, multiple, row)."""
    points = np.concatenate(
        [member.source.bulks(member.obs, MULTIPLES, detailed=detailed) for member in members]
    )
    # A bulk that reaches beyond the range of a transform has no image there.
    missing = ~np.isfinite(points)
    middle = np.nanmedian(np.where(missing, np.nan, points), axis=1, keepdims=True)
    return np.where(missing, middle, points)
