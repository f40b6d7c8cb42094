"""The distribution of some of the observations at a site of a NumPyro model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lockquack.adapters.jax_evaluation import Density
from lockquack.adapters.jax_precision import double_precision
from lockquack.adapters.numpyro_outcomes import Outcome
from lockquack.adapters.numpyro_sites import Draw, layers

#: Numbers that are worked on at once where all outcomes are evaluated for each one of them.
_AT_ONCE = 2**12


def density(
    distribution: Callable[[Draw], Any], outcome: Outcome, draws: Sequence[Draw]
) -> Density:
    """Make the log densities of some observations a function of their outcomes.

    The distribution of those observations alone is made from the arrays of the whole. Where that
    does not reproduce the log densities of the whole, all of them are evaluated for each one.
    """
    import jax
    import jax.numpy as jnp

    def logp(fn: Any, y: Any) -> Any:
        y = y.astype(outcome.dtype)
        return jnp.where(fn.support(y), fn.log_prob(y), -jnp.inf)

    def by_rows(y: Any, theta: Draw, rows: Any) -> Any:
        at = jnp.asarray(outcome.kept)[rows]
        return logp(_select(distribution(theta), outcome.grid, at), y)

    def one_by_one(y: Any, theta: Draw, rows: Any) -> Any:
        fn, everything = distribution(theta), jnp.asarray(outcome.rows, dtype=np.float64)

        def one(pair: tuple[Any, Any]) -> Any:
            at, row = pair
            moved = everything.at[row].set(at).reshape(outcome.values.shape)
            return logp(fn, moved).reshape(-1)[row]

        pairs = (y, jnp.asarray(outcome.kept)[rows])
        return jax.lax.map(one, pairs, batch_size=max(1, _AT_ONCE // everything.size))

    rows = np.append(np.arange(outcome.kept.size)[::-1], 0)
    observed = np.asarray(outcome.rows[outcome.kept][rows], dtype=np.float64)
    all_outcomes = np.array(outcome.values, dtype=np.float64)

    def both(theta: Draw) -> tuple[Any, Any]:
        whole = logp(distribution(theta), jnp.asarray(all_outcomes)).reshape(-1)
        return whole[outcome.kept[rows]], by_rows(jnp.asarray(observed), theta, rows)

    with double_precision():
        pair = jax.jit(both)
        return by_rows if all(_agree(pair, draw) for draw in draws) else one_by_one


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
