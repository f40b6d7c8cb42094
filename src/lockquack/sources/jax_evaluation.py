"""Densities in JAX, differentiated in the outcome and compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.jets import Array, Jet, bare, join_jets
from lockquack.models.source import Abilities, Source, Subset
from lockquack.sources.density import DensitySource
from lockquack.sources.jax_precision import double_precision
from lockquack.sources.jax_sampling import Sampler

#: Numbers that one compiled call works on: its intermediate results stay in a core's cache.
_AT_ONCE = 2**16
#: Fewest outcomes, and fewest and most draws, of a compiled call: smaller requests are padded.
_FEWEST_OUTCOMES = 128
_FEWEST_DRAWS, _MOST_DRAWS = 16, 512
#: Chunks of draws that are remembered: the one being read and its predecessor.
_REMEMBERED = 2

#: Log densities of one draw: outcomes (p,) or (p, d), parameters, observations (p,) → (p,).
Density = Callable[[Any, Any, Any], Any]


class Evaluator:
    """A log density in JAX, compiled and evaluated with its derivatives in float64.

    For a draw's log densities ℓ_i(y_i), each a function of its own outcome only, one
    directional derivative gives all ∂ℓ_i, and the derivative of that derivative all ∂²ℓ_i; for
    vector outcomes one pair per component. Requests are padded to few different sizes, because
    each size is compiled once.
    """

    def __init__(
        self, density: Density, params: Any, d: int | None, *, repeats: bool = True
    ) -> None:
        self.density = density
        self.params = params  # a pytree of arrays (chain, draw, ...)
        self.d = d  # components of an outcome, None: it is a scalar
        self.repeats = repeats  # whether one observation may be asked for at several outcomes
        self._compiled: dict[bool, Callable[..., Any]] = {}

    def jets(
        self, y: Array, rows: NDArray[np.intp], chain: int, draws: slice, *, derivatives: bool
    ) -> Jet:
        """Jets (draws, p) of some draws at outcomes y, (p, d), of the observations rows, (p,)."""
        times = _occurrences(rows)
        if self.repeats or not times.any():
            return self._jets(y, rows, chain, draws, derivatives)
        parts = [
            (some, self._jets(y[some], rows[some], chain, draws, derivatives))
            for some in (np.flatnonzero(times == time) for time in range(times.max() + 1))
        ]
        order = np.argsort(np.concatenate([some for some, _ in parts]))
        return join_jets([jet for _, jet in parts], axis=1)[:, order]

    def _jets(
        self, y: Array, rows: NDArray[np.intp], chain: int, draws: slice, derivatives: bool
    ) -> Jet:
        import jax

        p = len(rows)
        at = np.minimum(np.arange(_padded(p)), p - 1)
        outcomes = y[at] if self.d is not None else y[at, 0]
        chosen = np.arange(*draws.indices(jax.tree.leaves(self.params)[0].shape[1]))
        step = self._padded_draws(chosen.size, p)
        parts = []
        for start in range(0, chosen.size, step):
            some = chosen[start : start + step]
            padded = np.pad(some, (0, step - some.size), mode="edge")
            theta = jax.tree.map(lambda draws, at=padded: draws[chain, at], self.params)
            with double_precision():
                result = self._function(derivatives)(outcomes, theta, rows[at])
            parts.append([np.asarray(part)[: some.size, :p] for part in result])
        joined = [
            np.concatenate(each) if len(parts) > 1 else each[0] for each in zip(*parts, strict=True)
        ]
        logp, *rest = joined
        if not derivatives:
            return bare(logp)
        grad, curv = (part.reshape(*logp.shape, -1) for part in rest)
        return Jet(logp, grad, curv)

    def draws_at_once(self, p: int) -> int:
        """Draws that a compiled call takes for p outcomes."""
        return min(max(_AT_ONCE // (_padded(p) * (self.d or 1)), 1), _MOST_DRAWS)

    def _padded_draws(self, count: int, p: int) -> int:
        """Round up to one of a few numbers of draws."""
        size = self.draws_at_once(p)
        while size >= 8 * count and size > _FEWEST_DRAWS:
            size //= 8
        return size

    def _function(self, derivatives: bool) -> Callable[..., Any]:
        import jax

        if derivatives not in self._compiled:
            one_draw = self._jet if derivatives else self._logp
            self._compiled[derivatives] = jax.jit(jax.vmap(one_draw, in_axes=(None, 0, None)))
        return self._compiled[derivatives]

    def _logp(self, y: Any, theta: Any, rows: Any) -> tuple[Any]:
        return (self.density(y, theta, rows),)

    def _jet(self, y: Any, theta: Any, rows: Any) -> tuple[Any, Any, Any]:
        import jax
        import jax.numpy as jnp

        def logp(at: Any) -> Any:
            return self.density(at, theta, rows)

        def along(direction: Any) -> tuple[Any, Any, Any]:
            step = jnp.broadcast_to(direction, y.shape)
            first = lambda at: jax.jvp(logp, (at,), (step,))  # noqa: E731
            (value, slope), (_, bend) = jax.jvp(first, (y,), (step,))
            return value, slope, bend

        if self.d is None:
            value, slope, bend = along(1.0)
        else:
            each = jax.vmap(along, out_axes=(None, -1, -1))
            value, slope, bend = each(jnp.eye(self.d))
        # Outside the support autodiff sees a constant.
        known = jnp.isfinite(value) if self.d is None else jnp.isfinite(value)[:, None]
        return value, jnp.where(known, slope, jnp.nan), jnp.where(known, bend, jnp.nan)


def _occurrences(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Count how often each value occurred before.

    Examples
    --------
    >>> _occurrences(np.array([4, 1, 4, 4, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(rows, kind="stable")
    _, start, counts = np.unique(rows[order], return_index=True, return_counts=True)
    times = np.empty_like(rows)
    times[order] = np.arange(len(rows)) - np.repeat(start, counts)
    return times


def _padded(count: int) -> int:
    """Round up to a power of two."""
    return max(_FEWEST_OUTCOMES, 1 << (count - 1).bit_length())


@dataclass(frozen=True, eq=False, repr=False)
class JaxSource(DensitySource):
    """Draws of the parameters of a density that JAX evaluates."""

    evaluator: Evaluator
    #: Makes the same posterior's source of other observations, from y and their data.
    rebuild: Callable[[Any, Mapping[str, Any]], Source]
    #: Names of the data that it takes there; None where these are not known.
    names: frozenset[str] | None = field(default=None, kw_only=True)
    #: Random outcomes, if there is a way to draw them.
    sampler: Sampler | None = field(default=None, kw_only=True)

    @property
    @override
    def can(self) -> Abilities:
        return replace(super().can, has_generator=self._can_draw)

    def _can_draw(self) -> bool:
        return self.sampler is not None and self.sampler.works

    @override
    def draw_outcomes(
        self, chain: int, draws: NDArray[np.intp], obs: Subset, rng: np.random.Generator
    ) -> Array:
        if self.sampler is None or not self.sampler.works:
            return super().draw_outcomes(chain, draws, obs, rng)
        rows = np.arange(self.n_obs)[obs]
        drawn = self.sampler.draw(chain, draws, rows, rng)
        return drawn.reshape(draws.size, rows.size, self.observations.d)

    @override
    def jets_at(self, y: Array, chain: int, draws: slice, obs: Subset, *, derivatives: bool) -> Jet:
        rows = np.arange(self.n_obs)[obs]
        jet = self.evaluator.jets(
            y.reshape(-1, y.shape[2]), np.tile(rows, len(y)), chain, draws, derivatives=derivatives
        )

        def points_first(part: Array) -> Array:
            split = part.reshape(len(part), len(y), rows.size, *part.shape[2:])
            return np.moveaxis(split, 1, 0)

        return Jet(*map(points_first, (jet.logp, jet.grad, jet.curv)))

    @override
    def with_data(self, y: Any, /, **data: Any) -> Source:
        return self.rebuild(y, data)

    @override
    def data_names(self) -> frozenset[str] | None:
        return self.names

    @override
    def _tile(self, chain: int, draws: slice, obs: slice, *, derivatives: bool) -> Jet:
        """Evaluate whole chunks of draws and remember them: passes read small tiles in order."""
        if draws.step not in (None, 1):
            return super()._tile(chain, draws, obs, derivatives=derivatives)
        start, stop, _ = draws.indices(self.n_draws)
        size = self.evaluator.draws_at_once(obs.stop - obs.start)
        parts = []
        for first in range(start - start % size, stop, size):
            chunk = self._chunk(chain, slice(first, first + size), obs, derivatives)
            parts.append(chunk[:, max(start - first, 0) : stop - first])
        return join_jets(parts, axis=1)

    def _chunk(self, chain: int, draws: slice, obs: slice, derivatives: bool) -> Jet:
        # Compiling costs more than derivatives in one number do: there is one function for both.
        derivatives = self.can.differentiate and (derivatives or self.evaluator.d is None)
        place = (chain, draws.start, obs.start, obs.stop)
        for key in ((place, True), (place, derivatives)):
            if key in self._last:
                return self._last[key]
        y = self.observations.values[None, obs]
        jet = self.jets_at(y, chain, draws, obs, derivatives=derivatives)
        while len(self._last) >= _REMEMBERED:
            del self._last[next(iter(self._last))]
        self._last[place, derivatives] = jet
        return jet
