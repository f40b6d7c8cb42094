"""Random outcomes by JAX, compiled for many draws at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array
from lockquack.sources.jax_precision import double_precision

#: Random outcomes of one draw: a key, parameters, observations (p,) → (p,) or (p, d).
Random = Callable[[Any, Any, Any], Any]

#: Numbers, and draws at most, that are drawn at once.
_AT_ONCE, _MOST_DRAWS = 2**16, 512


class Sampler:
    """Random outcomes of draws of parameters, in float64.

    Of several ways to draw them, the first that works is taken.
    """

    def __init__(self, ways: Sequence[Random], params: Any, d: int | None) -> None:
        self.ways = ways
        self.params = params  # a pytree of arrays (chain, draw, ...)
        self.d = d  # components of an outcome, None: it is a scalar

    @cached_property
    def works(self) -> bool:
        """Whether outcomes of the right shape can be drawn."""
        return self._random is not None

    @cached_property
    def _random(self) -> Random | None:
        return next((way for way in self.ways if self._fits(way)), None)

    def _fits(self, way: Random) -> bool:
        """Try two numbers of observations: one may be right by accident."""
        import jax

        event = () if self.d is None else (self.d,)
        draw = jax.tree.map(lambda draws: draws[0, 0], self.params)
        for count in (3, 4):
            try:
                with double_precision():
                    key, rows = jax.random.key(0), np.zeros(count, dtype=np.intp)
                    shape = jax.eval_shape(way, key, draw, rows).shape
            except Exception:  # whatever a distribution without a generator does
                return False
            if shape != (count, *event):
                return False
        return True

    def draw(
        self, chain: int, draws: NDArray[np.intp], rows: NDArray[np.intp], rng: np.random.Generator
    ) -> Array:
        """Draw one outcome for each draw and observation, (draws, obs) or (draws, obs, d).

        Requests are padded to few different sizes, because each size is compiled once.
        """
        import jax

        n_rows, n_draws = (1 << (size - 1).bit_length() for size in (rows.size, draws.size))
        padded_rows = np.pad(rows, (0, n_rows - rows.size), mode="edge")
        step = max(1, min(n_draws, _MOST_DRAWS, _AT_ONCE // n_rows))
        parts = []
        for start in range(0, draws.size, step):
            some = draws[start : start + step]
            padded = np.pad(some, (0, step - some.size), mode="edge")
            theta = jax.tree.map(lambda draws, at=padded: draws[chain, at], self.params)
            with double_precision():
                keys = jax.random.split(jax.random.key(int(rng.integers(2**63))), step)
                drawn = self._function(keys, theta, padded_rows)
            parts.append(np.asarray(drawn, dtype=np.float64)[: some.size, : rows.size])
        return np.concatenate(parts)

    @cached_property
    def _function(self) -> Callable[..., Any]:
        import jax

        return jax.jit(jax.vmap(self._random, in_axes=(0, 0, None)))
