"""The distribution of some of the outcomes of a NumPyro model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockquack.sources.jax_precision import double_precision
from lockquack.sources.jax_sampling import Random
from lockquack.sources.numpyro_dependence import Coupling
from lockquack.sources.numpyro_entries import Entries, log_density
from lockquack.sources.numpyro_outcomes import Part
from lockquack.sources.numpyro_sites import Draw, layers
from lockquack.sources.probing import find_dependence

#: Numbers that are worked on at once where all outcomes are evaluated for each one of them.
_AT_ONCE = 2**12


@dataclass(frozen=True)
class OutcomeDensity:
    """Log densities, and random outcomes, of some observations.

    There are three ways. Where the distributions of single observations can be cut out of those
    at the sites, and this reproduces the log densities of the whole, they are. Otherwise all are
    evaluated, with the outcomes that are asked for in place of the observed ones: those of
    different observations at once or, where densities depend on earlier outcomes, one by one.
    """

    entries: Entries
    coupling: Coupling
    can_be_cut: bool = False

    def tried(self, draws: Sequence[Draw]) -> OutcomeDensity:
        """Find out by some draws which way it goes."""
        import jax
        import jax.numpy as jnp

        outcome, entries = self.entries.outcome, self.entries
        if self.coupling.within:
            return self
        rows = np.append(np.arange(outcome.kept.size)[::-1], 0)
        everything = np.array(outcome.rows, dtype=np.float64)
        observed = everything[outcome.kept][rows]

        def both(theta: Draw) -> tuple[Any, Any]:
            whole = entries.total(entries.terms(theta, everything))
            return whole[outcome.kept[rows]], self._by_rows(jnp.asarray(observed), theta, rows)

        if outcome.beside or len(outcome.parts) == 1:
            with double_precision():
                pair = jax.jit(both)
                if all(_agree(pair, draw) for draw in draws):
                    return replace(self, can_be_cut=True)
        return self._looked_through(draws[0])

    def _looked_through(self, theta: Draw) -> OutcomeDensity:
        """Find out whether log densities at given distributions depend on other outcomes."""
        outcome, entries = self.entries.outcome, self.entries
        trace = entries.run(theta)
        shape = np.shape(outcome.rows)[1:]

        def logp(y: Any) -> Any:
            with double_precision():
                terms = entries.terms_of(trace, y.reshape(len(y), *shape))
                return np.asarray(entries.total(terms))

        rows = np.asarray(outcome.rows, dtype=np.float64).reshape(len(outcome.rows), -1)
        discrete = all(np.dtype(part.dtype).kind in "biu" for part in outcome.parts)
        dependence = find_dependence(logp, rows, discrete=discrete)
        dependence.require_factors()
        if not dependence.on_earlier:
            return self
        return replace(self, coupling=replace(self.coupling, earlier=True, inside=True))

    @property
    def allows_repeats(self) -> bool:
        """Whether any observations may be asked for at once, one of them several times."""
        return self.can_be_cut or self._one_at_a_time

    @property
    def _one_at_a_time(self) -> bool:
        return self.coupling.inside or (self.coupling.within and self.coupling.earlier)

    def density(self, y: Any, theta: Draw, rows: Any) -> Any:
        """Log densities of some observations, each a function of its own outcome."""
        if self.can_be_cut:
            return self._by_rows(y, theta, rows)
        return (self._one_by_one if self._one_at_a_time else self._together)(y, theta, rows)

    @property
    def random(self) -> list[Random]:
        """Ways to draw random outcomes of some observations, the better one first."""
        if self._one_at_a_time:
            return []
        if self.coupling.within:
            return [self._random_in_turn]
        return [self._random_rows, self._random_whole] if self.can_be_cut else [self._random_whole]

    def _random_rows(self, key: Any, theta: Draw, rows: Any) -> Any:
        cut = self._cut(theta, rows)
        # What all observations share has no axis yet.
        drawn = [cut(part).expand((len(rows),)).sample(own) for part, own in self._keys(key)]
        return self._joined(drawn)

    def _random_whole(self, key: Any, theta: Draw, rows: Any) -> Any:
        import jax.numpy as jnp

        outcome, trace = self.entries.outcome, self.entries.run(theta)
        at = jnp.asarray(outcome.kept)[rows]
        drawn = []
        for part, own_key in self._keys(key):
            fn = part.distribution(trace)
            drawn.append(fn.expand(part.lead).sample(own_key).reshape(-1, *part.event_shape))
        if outcome.beside:
            return self._joined([each[at] for each in drawn])
        return jnp.concatenate(drawn)[at]

    def _random_in_turn(self, key: Any, theta: Draw, rows: Any) -> Any:
        """Draw components in the order of the model, each given those that were drawn before."""
        import jax.numpy as jnp

        everything = self._everything
        order = list(self.entries.run(theta))
        for part, own_key in sorted(self._keys(key), key=lambda pair: order.index(pair[0].site)):
            fn = part.distribution(self.entries.run(theta, everything))
            drawn = fn.expand(part.lead).sample(own_key).reshape(len(everything), -1)
            everything = everything.at[:, part.columns].set(drawn)
        return everything[jnp.asarray(self.entries.outcome.kept)[rows]]

    def _keys(self, key: Any) -> list[tuple[Part, Any]]:
        import jax

        parts = self.entries.outcome.parts
        keys = [key] if len(parts) == 1 else list(jax.random.split(key, len(parts)))
        return list(zip(parts, keys, strict=True))

    def _joined(self, drawn: Sequence[Any]) -> Any:
        """Put components side by side."""
        import jax.numpy as jnp

        if not self.entries.outcome.beside:
            return drawn[0]
        return jnp.concatenate([each.reshape(len(each), -1) for each in drawn], axis=1)

    def _by_rows(self, y: Any, theta: Draw, rows: Any) -> Any:
        cut, total = self._cut(theta, rows), 0.0
        for part in self.entries.outcome.parts:
            own = y if part.columns is None else y[:, part.columns]
            if part.columns is not None and not part.event_shape:
                own = own[:, 0]
            total = total + log_density(cut(part), own.astype(part.dtype))
        return total

    def _cut(self, theta: Draw, rows: Any) -> Callable[[Part], Any]:
        """Make the distributions of some observations at the sites."""
        import jax.numpy as jnp

        outcome, trace = self.entries.outcome, self.entries.run(theta)
        at = jnp.asarray(outcome.kept)[rows]
        return lambda part: _select(part.distribution(trace), outcome.grid, at)

    def _together(self, y: Any, theta: Draw, rows: Any) -> Any:
        """Put all outcomes into their places at once: no observation may be there twice."""
        import jax.numpy as jnp

        at = jnp.asarray(self.entries.outcome.kept)[rows]
        return self._whole(theta, self._everything.at[at].set(y))[at]

    def _one_by_one(self, y: Any, theta: Draw, rows: Any) -> Any:
        import jax
        import jax.numpy as jnp

        everything = self._everything

        def one(pair: tuple[Any, Any]) -> Any:
            at, row = pair
            return self._whole(theta, everything.at[row].set(at))[row]

        pairs = (y, jnp.asarray(self.entries.outcome.kept)[rows])
        return jax.lax.map(one, pairs, batch_size=max(1, _AT_ONCE // everything.size))

    @property
    def _everything(self) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(self.entries.outcome.rows, dtype=np.float64)

    def _whole(self, theta: Draw, at: Any) -> Any:
        """Log densities of all observations."""
        given = at if self.coupling.within else None
        return self.entries.total(self.entries.terms(theta, at, given))


def _agree(pair: Callable[[Draw], tuple[Any, Any]], theta: Draw) -> bool:
    try:
        whole, part = pair(theta)
    except Exception:  # whatever a distribution does when its arrays have another shape
        return False
    return np.shape(whole) == np.shape(part) and np.allclose(
        whole, part, rtol=1e-10, atol=1e-10, equal_nan=True
    )


def _select(fn: Any, grid: tuple[int, ...], rows: Any) -> Any:
    """Make the distribution of some observations from the arrays that the whole one consists of.

    An array belongs to the observations if its first axes broadcast to theirs.
    """
    import jax
    import jax.numpy as jnp

    k, n = len(grid), math.prod(grid)

    def is_lead(shape: tuple[int, ...]) -> bool:
        return all(size in (1, whole) for size, whole in zip(shape, grid, strict=True))

    def take(leaf: Any) -> Any:
        shape = (1,) * (k - jnp.ndim(leaf)) + jnp.shape(leaf)
        if not is_lead(shape[:k]):
            return leaf
        if shape[:k] == (1,) * k:
            return jnp.reshape(leaf, shape[k - 1 :] if jnp.ndim(leaf) >= k else jnp.shape(leaf))
        rest = shape[k:]
        return jnp.broadcast_to(jnp.reshape(leaf, shape), grid + rest).reshape(n, *rest)[rows]

    part = jax.tree.map(take, fn)
    for layer in layers(part):
        batch = layer.batch_shape
        if len(batch) >= k and is_lead(batch[:k]):
            layer._batch_shape = (len(rows), *batch[k:])
    return part
