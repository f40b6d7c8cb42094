"""Draws held in memory as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from lockquack.jets import Array, Numeric, all_finite
from lockquack.models.source import Abilities, Source


@dataclass(frozen=True, eq=False, repr=False)
class ArraySource(Source):
    """Draws held as three arrays; the derivatives have no components where there are none."""

    logp_draws: Numeric  # (chain, draw, obs)
    grad_draws: Numeric  # (chain, draw, obs, component or 0)
    curv_draws: Numeric  # (chain, draw, obs, component or 0)

    @property
    @override
    def can(self) -> Abilities:
        has_derivatives = self.grad_draws.shape[-1] > 0
        _, draw, obs = (self.grad_draws if has_derivatives else self.logp_draws).strides[:3]
        held = (self.logp_draws, self.grad_draws, self.curv_draws)
        return Abilities(
            differentiate=has_derivatives,
            be_shared=True,
            be_sent=False,
            read_in_place=all(array.dtype == np.float64 for array in held),
            read_along_draws=abs(draw) < abs(obs),
        )

    @override
    def logp(self, chain: int, draws: slice, obs: slice) -> Array:
        return _float64(self.logp_draws[chain, draws, obs])

    @override
    def derivatives(self, chain: int, draws: slice, obs: slice) -> tuple[Array, Array]:
        self.require_derivatives()
        return (
            _float64(self.grad_draws[chain, draws, obs]),
            _float64(self.curv_draws[chain, draws, obs]),
        )


def first_not_finite(array: Numeric) -> tuple[float, tuple[int, int, int]] | None:
    """Find a value in (chain, draw, obs, ...) that is not finite, and where it is."""
    if all_finite(array):
        return None
    for chain, draw in np.ndindex(array.shape[:2]):
        bad = np.argwhere(~np.isfinite(array[chain, draw]))
        if len(bad):
            first = tuple(bad[0].tolist())
            return float(array[chain, draw][first]), (chain, draw, first[0])
    return None


def _float64(tile: Numeric) -> Array:
    return np.asarray(tile, dtype=np.float64)
