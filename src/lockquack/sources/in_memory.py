"""Draws held in memory as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from typing_extensions import override

from lockquack.arithmetic import LARGEST
from lockquack.errors import NonFiniteError
from lockquack.jets import Array, Numeric
from lockquack.models.source import Abilities, Source
from lockquack.numeric import all_within


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
    def one_chain(self, chain: int) -> Self:
        only = slice(chain, chain + 1)
        return replace(
            self,
            n_chains=1,
            logp_draws=self.logp_draws[only],
            grad_draws=self.grad_draws[only],
            curv_draws=self.curv_draws[only],
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


def first_unusable(name: str, array: Numeric) -> tuple[float, tuple[int, int, int]] | None:
    """Find a value in (chain, draw, obs, ...) that is not finite, or too large; and where it is."""
    limit = LARGEST[name]
    if all_within(array, limit):
        return None
    for chain, draw in np.ndindex(array.shape[:2]):
        bad = np.argwhere(~(np.abs(array[chain, draw]) <= limit))
        if len(bad):
            first = tuple(bad[0].tolist())
            return float(array[chain, draw][first]), (chain, draw, first[0])
    return None


def unusable(name: str, value: float, where: str) -> NonFiniteError:
    """Say what is wrong with a value that cannot be computed with."""
    why = ""
    if np.isfinite(value):
        what = "log density" if name == "logp" else "derivative of a log density"
        why = f" No {what} is that large, and powers of it would overflow: check how it was made."
    elif name == "logp" and value == -np.inf:
        why = (
            " The model gives this outcome density 0 at that draw. Check the support and the data, "
            "or drop the observation from all models."
        )
    return NonFiniteError(f"{name} is {value} at {where}.{why}")


def _float64(tile: Numeric) -> Array:
    return np.asarray(tile, dtype=np.float64)
