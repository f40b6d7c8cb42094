"""Densities as PyTensor graphs, differentiated in the outcome and compiled.

A log density log f(y | θ, data) is cut where the outcome comes in. What does not depend on y, the
*parameters* (a regression's mean, a scale, its logarithm), is computed once for every draw; what
does depend on it is a small function of y and the parameters, one observation at a time, which
can be evaluated at any outcome of any observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from lockquack.jets import Array, Jet, Numeric, bare
from lockquack.sources.pytensor_compiling import Function, compiled
from lockquack.sources.pytensor_rewriting import Variable

#: Outcomes that one call of a compiled function works on: they should stay in a core's cache.
AT_ONCE = 2**15


@dataclass(frozen=True)
class Slot:
    """One parameter of a density."""

    variable: Variable  # what stands for it in the density
    origin: Variable  # how it comes from θ and data
    #: Whether its first axes are those of the observations.
    by_observation: bool
    #: Whether it differs between draws.
    by_draw: bool


@dataclass(frozen=True, eq=False)
class Density:
    """A log density as a function of outcomes and parameters, compiled when first used."""

    y: Variable  # grid of observations, then the component of a vector outcome
    logp: Variable  # grid of observations
    slots: tuple[Slot, ...]
    #: Whether observations can be taken out of the grid one by one.
    separable: bool
    #: Whether the log density of an observation depends on the outcomes of earlier ones.
    in_series: bool = False
    functions: dict[str, Function] = field(default_factory=dict)

    @property
    def is_vector(self) -> bool:
        """Whether an outcome has components."""
        return bool(self.y.ndim > self.logp.ndim)

    def jets(
        self,
        y: Array,
        values: Sequence[Numeric],
        n_draws: int,
        grid: tuple[int, ...],
        *,
        derivatives: bool,
        which: Array | None = None,
    ) -> Jet:
        """Evaluate at outcomes (point, obs, d) with parameters (draw or 1, ...).

        ``grid`` is the shape that the observations have in the graph. In a series, derivatives
        are those of the observations with 1 in ``which``, each in its own outcome; no two of
        them may depend on each other's.
        """
        tail = y.shape[2:] if self.is_vector else ()
        points = y.reshape(len(y), 1, *grid, *tail).astype(self.y.dtype)
        arguments = [points, *(value[None] for value in values)]
        chosen = [] if which is None else [which.reshape(grid)]
        shape = (len(y), n_draws, *grid)

        def read(out: Numeric, event: tuple[int, ...]) -> Array:
            full = np.broadcast_to(np.asarray(out, np.float64), (*shape, *event))
            return full.reshape(len(y), n_draws, y.shape[1], *event)

        if not derivatives:
            logp = read(self._function("logp")(*arguments)[0], ())
            if np.dtype(self.y.dtype).kind != "f":  # what was not a whole number was made one
                logp = np.where((y == np.floor(y)).all(axis=2)[:, None], logp, -np.inf)
            return bare(logp)
        if not self.is_vector:
            outputs = self._function("jet")(*arguments, *chosen)
            logp, grad, curv = (read(out, ()) for out in outputs)
            return Jet(logp, grad[..., None], curv[..., None])
        first = self._function("gradient")(*arguments, *chosen)
        bend = self._function("bend")
        if self.separable and self._is_constant(bend):  # evaluate one outcome for all
            arguments = [points[:1, :, :1]]
            for slot, value in zip(self.slots, values, strict=True):
                arguments.append(value[None, :, :1] if slot.by_observation else value[None])
        bends = (bend(unit, *arguments, *chosen)[0] for unit in np.eye(*tail))
        curv = np.stack([read(out, tail)[..., j] for j, out in enumerate(bends)], axis=-1)
        return Jet(read(first[0], ()), read(first[1], tail), curv)

    def _is_constant(self, bend: Function) -> bool:
        """Whether the second derivatives are the same at all outcomes and observations."""
        places = (k for k, slot in enumerate(self.slots) if slot.by_observation)
        return bend.shapes_only.issuperset({1, *(2 + k for k in places)})

    def _function(self, name: str) -> Function:
        if name not in self.functions:
            self.functions[name] = self._compile(name)
        return self.functions[name]

    @cached_property
    def differentiable(self) -> bool:
        """Whether PyTensor knows the derivatives of everything in it."""
        from pytensor.gradient import NullTypeGradError
        from pytensor.graph.utils import MethodNotDefined

        try:
            return len(self._derivatives) == 2
        except (MethodNotDefined, NotImplementedError, NullTypeGradError, TypeError, ValueError):
            return False

    @cached_property
    def _unit(self) -> Variable:
        """Unit vector along which the second derivatives of a vector outcome are taken."""
        import pytensor.tensor as pt

        return pt.vector("unit", dtype="float64")

    @cached_property
    def _which(self) -> Variable:
        """Ones at the observations of a series whose derivatives are taken, zeros elsewhere."""
        from pytensor.tensor import TensorType

        return TensorType("float64", self.logp.type.shape)("which")

    @cached_property
    def _derivatives(self) -> tuple[Variable, Variable]:
        """Gradient, and the gradient of its sum, or of its part along the unit vector."""
        import pytensor.tensor as pt

        chosen = self.logp * self._which if self.in_series else self.logp
        grad = pt.grad(chosen.sum(), self.y, disconnected_inputs="ignore")
        # The gradient of a sum would hold on to the sum, for its shape.
        along = pt.zeros_like(self.y) + (self._unit if self.is_vector else 1.0)
        if self.in_series:
            along *= self._which[..., None] if self.is_vector else self._which
        bend = pt.grad(None, self.y, known_grads={grad: along}, disconnected_inputs="ignore")
        return grad, bend

    def _compile(self, name: str) -> Function:
        from pytensor.graph.replace import vectorize_graph

        outputs = [self.logp]
        if name == "bend":
            outputs = [self._derivatives[1]]
        elif name != "logp":
            outputs += self._derivatives[: 1 if name == "gradient" else 2]
        many = {self.y: batched(self.y, None, 1)}
        for slot in self.slots:
            many[slot.variable] = batched(slot.variable, 1, None if slot.by_draw else 1)
        inputs = ([self._unit] if name == "bend" else []) + list(many.values())
        inputs += [self._which] if self.in_series and name != "logp" else []
        return compiled(inputs, vectorize_graph(outputs, many), loops=False)


def batched(variable: Variable, *lead: int | None) -> Variable:
    """Make a variable with more axes in front."""
    from pytensor.tensor import TensorType

    return TensorType(variable.dtype, (*lead, *variable.type.shape))()
