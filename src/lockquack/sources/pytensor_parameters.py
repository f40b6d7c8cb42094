"""Parameters of a density, computed from draws by a PyTensor graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Numeric
from lockquack.models.source import Subset
from lockquack.sources.pytensor_compiling import Function, compiled
from lockquack.sources.pytensor_densities import AT_ONCE, Slot, batched
from lockquack.sources.pytensor_rewriting import Variable


class Parameters(Protocol):
    """Where the parameters of a density come from."""

    def tile(self, chain: int, draws: slice, obs: slice) -> list[Numeric]:
        """Values of each, (draw or 1, ...), cut to the observations where it has them first."""


@dataclass(frozen=True, eq=False)
class DrawParameters:
    """Parameters computed from draws of θ, and kept if they are small."""

    slots: tuple[Slot, ...]
    separable: bool
    grid: tuple[int, ...]
    theta: Mapping[Variable, Numeric]  # (chain, draw, ...)
    data: Mapping[Variable, Numeric]
    keep: bool
    functions: dict[str, Function]
    _kept: dict[int, list[Numeric]] = field(default_factory=dict, init=False)

    def tile(self, chain: int, draws: slice, obs: slice) -> list[Numeric]:
        """Values of each, (draw or 1, ...), cut to the observations where it has them first."""
        if not self.keep:
            return self._compute(chain, draws, obs)
        if chain not in self._kept:
            self._kept[chain] = self._whole_chain(chain)
        return [
            (value[draws] if slot.by_draw else value)[
                (slice(None), obs) if slot.by_observation and self.separable else ...
            ]
            for slot, value in zip(self.slots, self._kept[chain], strict=True)
        ]

    def _whole_chain(self, chain: int) -> list[Numeric]:
        n_draws = next(iter(self.theta.values())).shape[1] if self.theta else 1
        n = prod(self.grid)
        length = max(1, AT_ONCE // n)
        whole: list[Numeric] = []
        for start in range(0, n_draws, length):
            part = self._compute(chain, slice(start, start + length), slice(0, n))
            whole = whole or [
                np.empty((n_draws, *value.shape[1:]), value.dtype) if slot.by_draw else value
                for slot, value in zip(self.slots, part, strict=True)
            ]
            for slot, all_draws, value in zip(self.slots, whole, part, strict=True):
                if slot.by_draw:
                    all_draws[start : start + length] = value
        return whole

    def _compute(self, chain: int, draws: slice, obs: slice) -> list[Numeric]:
        if "parameters" not in self.functions:
            self.functions["parameters"] = self._compile()
        outputs = self.functions["parameters"](
            np.asarray(obs.start),
            np.asarray(obs.stop),
            *(np.ascontiguousarray(draw[chain, draws]) for draw in self.theta.values()),
            *self.data.values(),
        )
        return [
            self._cut(slot, np.asarray(out) if slot.by_draw else np.asarray(out)[None], obs)
            for slot, out in zip(self.slots, outputs, strict=True)
        ]

    def _cut(self, slot: Slot, value: Numeric, obs: slice) -> Numeric:
        """Take observations out of a grid; those in a row were taken out before."""
        n_dims = len(self.grid)
        if not (slot.by_observation and self.separable) or n_dims == 1:
            return value
        lead, tail = value.shape[:1], value.shape[1 + n_dims :]
        full = np.broadcast_to(value, (*lead, *self.grid, *tail))
        flat = full.reshape(*lead, -1, *(1,) * (n_dims - 1), *tail)
        return flat[:, obs]

    def _compile(self) -> Function:
        import pytensor.tensor as pt
        from pytensor.graph.replace import vectorize_graph

        start, stop = pt.lscalar("start"), pt.lscalar("stop")
        in_a_row = self.separable and len(self.grid) == 1
        outputs = [
            slot.origin[start:stop] if in_a_row and slot.by_observation else slot.origin
            for slot in self.slots
        ]
        many = {v: batched(v, None) for v in self.theta}
        outputs = vectorize_graph(outputs, many)
        return compiled([start, stop, *many.values(), *self.data], outputs, loops=True)


def window(obs: Subset, n: int) -> tuple[slice, NDArray[np.intp] | None]:
    """Return consecutive observations that hold the chosen ones, and where these are in them."""
    if isinstance(obs, slice):
        return slice(*obs.indices(n)), None
    if obs.size == 0:
        return slice(0, 0), None
    low = int(obs.min())
    return slice(low, int(obs.max()) + 1), obs - low
