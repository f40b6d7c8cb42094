"""The distribution of some of the observations at a site of a NumPyro model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.jets import Numeric
from lockquack.sources.jax_precision import double_precision
from lockquack.sources.jax_sampling import Random
from lockquack.sources.numpyro_outcomes import Outcome, changed
from lockquack.sources.numpyro_sites import Draw, layers
from lockquack.sources.probing import separating

#: Numbers that are worked on at once where all outcomes are evaluated for each one of them.
_AT_ONCE = 2**12


@dataclass(frozen=True)
class SiteDistribution:
    """The distribution of the outcomes at a site, of all or some of them.

    That of some observations alone is made from the arrays of the whole. Where that does not
    reproduce the log densities of the whole, the whole is used for each one.
    """

    #: That of all outcomes, given a draw.
    given: Callable[[Draw], Any]
    outcome: Outcome
    can_be_cut: bool = False

    def tried(self, draws: Sequence[Draw]) -> SiteDistribution:
        """Find out by some draws whether it can be cut into observations."""
        import jax
        import jax.numpy as jnp

        outcome = self.outcome
        rows = np.append(np.arange(outcome.kept.size)[::-1], 0)
        observed = np.asarray(outcome.rows[outcome.kept][rows], dtype=np.float64)
        all_outcomes = np.array(outcome.values, dtype=np.float64)

        def both(theta: Draw) -> tuple[Any, Any]:
            whole = self._logp(self.given(theta), jnp.asarray(all_outcomes)).reshape(-1)
            return whole[outcome.kept[rows]], self._by_rows(jnp.asarray(observed), theta, rows)

        with double_precision():
            pair = jax.jit(both)
            if all(_agree(pair, draw) for draw in draws):
                return replace(self, can_be_cut=True)
            self._require_factors(draws[0])
            return self

    def _require_factors(self, theta: Draw) -> None:
        """Change some outcomes: the log densities of all others must stay as they are."""
        y, rows = self.outcome.values, self.outcome.rows
        elsewhere, fn = changed(y).reshape(rows.shape), self.given(theta)

        def logp(at: Numeric) -> Numeric:
            return np.asarray(self._logp(fn, np.asarray(at, np.float64))).reshape(-1)

        before = logp(y)
        for some in separating(len(rows)):
            moved = np.where(some.reshape(-1, *[1] * (rows.ndim - 1)), elsewhere, rows)
            after = logp(moved.reshape(y.shape))
            if not np.allclose(before[~some], after[~some], rtol=1e-10, atol=1e-10, equal_nan=True):
                raise UnsupportedError(
                    "The log density of one observation depends on the outcome of another, so the "
                    "likelihood does not factorise. Give earlier outcomes as data."
                )

    def density(self, y: Any, theta: Draw, rows: Any) -> Any:
        """Log densities of some observations, each a function of its own outcome."""
        return (self._by_rows if self.can_be_cut else self._one_by_one)(y, theta, rows)

    @property
    def random(self) -> list[Random]:
        """Ways to draw random outcomes of some observations, the better one first."""
        return [self._random_rows, self._random_whole] if self.can_be_cut else [self._random_whole]

    def _random_rows(self, key: Any, theta: Draw, rows: Any) -> Any:
        import jax.numpy as jnp

        at = jnp.asarray(self.outcome.kept)[rows]
        fn = _select(self.given(theta), self.outcome.grid, at)
        return fn.expand((len(rows),)).sample(key)  # what all observations share has no axis yet

    def _random_whole(self, key: Any, theta: Draw, rows: Any) -> Any:
        import jax.numpy as jnp

        fn = self.given(theta)
        whole = fn.expand(self.outcome.grid).sample(key)
        return whole.reshape(-1, *fn.event_shape)[jnp.asarray(self.outcome.kept)[rows]]

    def _logp(self, fn: Any, y: Any) -> Any:
        import jax.numpy as jnp

        y = y.astype(self.outcome.dtype)
        return jnp.where(fn.support(y), fn.log_prob(y), -jnp.inf)

    def _by_rows(self, y: Any, theta: Draw, rows: Any) -> Any:
        import jax.numpy as jnp

        at = jnp.asarray(self.outcome.kept)[rows]
        return self._logp(_select(self.given(theta), self.outcome.grid, at), y)

    def _one_by_one(self, y: Any, theta: Draw, rows: Any) -> Any:
        import jax
        import jax.numpy as jnp

        fn = self.given(theta)
        everything = jnp.asarray(self.outcome.rows, dtype=np.float64)

        def one(pair: tuple[Any, Any]) -> Any:
            at, row = pair
            moved = everything.at[row].set(at).reshape(self.outcome.values.shape)
            return self._logp(fn, moved).reshape(-1)[row]

        pairs = (y, jnp.asarray(self.outcome.kept)[rows])
        return jax.lax.map(one, pairs, batch_size=max(1, _AT_ONCE // everything.size))


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
