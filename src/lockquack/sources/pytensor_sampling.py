"""Random outcomes of a distribution that is a PyTensor graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.jets import Numeric
from lockquack.sources.pytensor_compiling import interpreted
from lockquack.sources.pytensor_densities import AT_ONCE, Slot, batched
from lockquack.sources.pytensor_parameters import DrawParameters, window
from lockquack.sources.pytensor_rewriting import (
    Variable,
    dependent_on,
    drawn_with,
    lengths_of,
    rebuilt,
    variables_of,
)

#: Draws or observations, by position.
Positions = NDArray[np.intp]


class Generator(ABC):
    """Where random outcomes come from."""

    @abstractmethod
    def draw(
        self, chain: int, draws: Positions, obs: Positions, rng: np.random.Generator
    ) -> Numeric:
        """Draw one outcome for each draw and observation, (draws, obs) or (draws, obs, d)."""


@dataclass(frozen=True, eq=False)
class PlainGenerator(Generator):
    """Outcomes of a distribution that numpy can draw from, at any observation."""

    op: Any
    #: Parameters of the distribution, in its order; each has axes for observations first.
    parameters: DrawParameters
    n_core: tuple[int, ...]  # axes of one value of each

    @override
    def draw(
        self, chain: int, draws: Positions, obs: Positions, rng: np.random.Generator
    ) -> Numeric:
        first = int(draws.min())
        near, inside = window(obs, prod(self.parameters.grid))
        tile = self.parameters.tile(chain, slice(first, int(draws.max()) + 1), near)
        values = []
        for slot, n_core, value in zip(self.parameters.slots, self.n_core, tile, strict=True):
            core = value.shape[value.ndim - n_core :]
            value = value[draws - first] if slot.by_draw else value
            value = value[:, inside] if slot.by_observation and inside is not None else value
            values.append(value.reshape(len(value), -1, *core))
        # One of them tells how many outcomes there are; copies of one number are no outcomes.
        shape = (draws.size, obs.size, *values[0].shape[2:])
        values[0] = np.broadcast_to(values[0], shape)
        return np.asarray(self.op.rng_fn(rng, *values, None))


def plain_generator(
    outcome: Variable,
    theta: Mapping[Variable, Numeric],
    data: Mapping[Variable, Numeric],
    grid: tuple[int, ...],
    at_draw: Callable[[Sequence[Variable]], list[Numeric]],
    keep_below: float,
) -> PlainGenerator | None:
    """Draw by numpy, if the outcome is one random variable of parameters and nothing else."""
    from pytensor.tensor.random.op import RandomVariable

    op = outcome.owner.op
    if not isinstance(op, RandomVariable):
        return None
    origins = []
    for parameter, n_core in zip(outcome.owner.inputs[2:], op.ndims_params, strict=True):
        missing = len(grid) - (parameter.ndim - n_core)
        if missing < 0:
            return None
        origins.append(parameter.dimshuffle(*["x"] * missing, *range(parameter.ndim)))
    values = at_draw(origins)
    if any(
        size not in (1, whole)
        for value in values
        for size, whole in zip(value.shape[: len(grid)], grid, strict=True)
    ):
        return None
    on_theta = dependent_on(theta, origins)
    slots = tuple(
        Slot(origin, origin, prod(value.shape[: len(grid)]) > 1, origin in on_theta)
        for origin, value in zip(origins, values, strict=True)
    )
    keep = sum(value.nbytes for value in values) <= keep_below
    parameters = DrawParameters(slots, True, grid, theta, data, keep, {})
    return _working(
        PlainGenerator(op, parameters, tuple(op.ndims_params)), outcome.ndim - len(grid)
    )


@dataclass(frozen=True, eq=False)
class GraphGenerator(Generator):
    """Outcomes drawn by a function made of the graph of all outcomes."""

    function: Callable[..., Any]
    n_rngs: int
    theta: Mapping[Variable, Numeric]
    data: Mapping[Variable, Numeric]
    grid: tuple[int, ...]


class WholeGenerator(GraphGenerator):
    """Outcomes of a distribution that must be drawn at all observations together."""

    @override
    def draw(
        self, chain: int, draws: Positions, obs: Positions, rng: np.random.Generator
    ) -> Numeric:
        length = max(1, AT_ONCE // prod(self.grid))
        parts = []
        for start in range(0, draws.size, length):
            some = draws[start : start + length]
            (drawn,) = self.function(
                *rng.spawn(self.n_rngs),  # PyTensor draws from copies
                np.zeros(some.size),
                *(values[chain, some] for values in self.theta.values()),
                *self.data.values(),
            )
            event = drawn.shape[1 + len(self.grid) :]
            parts.append(drawn.reshape(some.size, prod(self.grid), *event)[:, obs])
        return np.concatenate(parts)


def whole_generator(
    outcome: Variable,
    theta: Mapping[Variable, Numeric],
    data: Mapping[Variable, Numeric],
    grid: tuple[int, ...],
    at_draw: Callable[[Sequence[Variable]], list[Numeric]],
) -> WholeGenerator | None:
    """Draw by the graph of the outcomes, if it can be drawn from for many draws at once."""
    from pytensor.graph.replace import vectorize_graph
    from pytensor.tensor import constant, scalar

    rngs = _generators_in(outcome)
    mark = scalar("mark", dtype="float64")
    many = {v: batched(v, None) for v in (mark, *theta)}
    try:
        # How much is drawn does not depend on the draw, but PyTensor would look for it there.
        lengths = lengths_of(outcome, [*rngs, *theta])
        known = {v: constant(size) for v, size in zip(lengths, at_draw(lengths), strict=True)}
        random = drawn_with(mark, rebuilt(outcome, {**rngs, **known}))
        function = interpreted(
            [*rngs.values(), *many.values(), *data], vectorize_graph([random], many)
        )
    except Exception:  # whatever PyTensor does with a graph that has no version for many draws
        return None
    generator = WholeGenerator(function, len(rngs), theta, data, grid)
    return _working(generator, outcome.ndim - len(grid))


class LoopingGenerator(GraphGenerator):
    """Outcomes of a distribution that must be drawn draw by draw."""

    @override
    def draw(
        self, chain: int, draws: Positions, obs: Positions, rng: np.random.Generator
    ) -> Numeric:
        drawn = [
            self.function(
                *rng.spawn(self.n_rngs),
                *(np.asarray(values[chain, draw]) for values in self.theta.values()),
                *self.data.values(),
            )[0]
            for draw in draws
        ]
        event = drawn[0].shape[len(self.grid) :]
        return np.stack([one.reshape(prod(self.grid), *event)[obs] for one in drawn])


def looping_generator(
    outcome: Variable,
    theta: Mapping[Variable, Numeric],
    data: Mapping[Variable, Numeric],
    grid: tuple[int, ...],
) -> LoopingGenerator | None:
    """Draw by the graph of the outcomes as it stands."""
    rngs = _generators_in(outcome)
    try:
        function = interpreted([*rngs.values(), *theta, *data], [rebuilt(outcome, rngs)])
    except Exception:  # whatever PyTensor does with a user's distribution
        return None
    generator = LoopingGenerator(function, len(rngs), theta, data, grid)
    return _working(generator, outcome.ndim - len(grid))


def _generators_in(outcome: Variable) -> dict[Variable, Variable]:
    """Find the generators of random numbers in a graph, each with a variable to replace it."""
    from pytensor.tensor.random.type import RandomType

    leaves = [v for v in variables_of([outcome]) if v.owner is None]
    return {v: v.type() for v in leaves if isinstance(v.type, RandomType)}


G = TypeVar("G", bound=Generator)


def _working(generator: G, n_event: int) -> G | None:
    """Try a generator: a user's distribution may have none, or one of another shape."""
    draws, obs = np.zeros(2, dtype=np.intp), np.zeros(3, dtype=np.intp)
    try:
        drawn = generator.draw(0, draws, obs, np.random.default_rng(0))
    except Exception:  # whatever a user's function does
        return None
    return generator if drawn.shape[:2] == (2, 3) and drawn.ndim == 2 + n_event else None
