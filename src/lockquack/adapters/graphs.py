"""Densities as PyTensor graphs, differentiated in the outcome and compiled.

A log density log f(y | θ, data) is cut where the outcome comes in. What does not depend on y, the
*parameters* (a regression's mean, a scale, its logarithm), is computed once for every draw; what
does depend on it is a small function of y and the parameters, one observation at a time, which
can be evaluated at any outcome of any observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lockquack.adapters.compiling import Function, compiled, evaluated
from lockquack.adapters.evaluable import DensityPredictive, described
from lockquack.adapters.rewriting import (
    Variable,
    dependent_on,
    parameters_of,
    rebuilt,
    simplified,
)
from lockquack.errors import UnsupportedError
from lockquack.jets import Array, Jet, Numeric
from lockquack.observations import Observations
from lockquack.predictive import Likelihood, Predictive, Selection

#: Numbers that one call of a compiled function works on: they should stay in a core's cache.
_AT_ONCE = 2**15
#: Bytes of parameters that are kept rather than computed again.
_KEEP = 2**27


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
    ) -> Jet:
        """Evaluate at outcomes (point, obs, d) with parameters (draw or 1, ...).

        ``grid`` is the shape that the observations have in the graph.
        """
        tail = y.shape[2:] if self.is_vector else ()
        points = y.reshape(len(y), 1, *grid, *tail).astype(self.y.dtype)
        arguments = [points, *(value[None] for value in values)]
        shape = (len(y), n_draws, *grid)

        def read(out: Numeric, event: tuple[int, ...]) -> Array:
            full = np.broadcast_to(np.asarray(out, np.float64), (*shape, *event))
            return full.reshape(len(y), n_draws, y.shape[1], *event)

        if not derivatives:
            logp = read(self._function("logp")(*arguments)[0], ())
            if np.dtype(self.y.dtype).kind != "f":  # what was not a whole number was made one
                logp = np.where((y == np.floor(y)).all(axis=2)[:, None], logp, -np.inf)
            nothing = np.empty((*logp.shape, 0))
            return Jet(logp, nothing, nothing)
        if not self.is_vector:
            logp, grad, curv = (read(out, ()) for out in self._function("jet")(*arguments))
            return Jet(logp, grad[..., None], curv[..., None])
        first = self._function("gradient")(*arguments)
        bend = self._function("bend")
        curv = np.stack(
            [read(bend(unit, *arguments)[0], tail)[..., j] for j, unit in enumerate(np.eye(*tail))],
            axis=-1,
        )
        return Jet(read(first[0], ()), read(first[1], tail), curv)

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
    def _derivatives(self) -> tuple[Variable, Variable]:
        """Gradient, and the gradient of its sum, or of its part along the unit vector."""
        import pytensor.tensor as pt

        grad = pt.grad(self.logp.sum(), self.y, disconnected_inputs="ignore")
        along = (grad * self._unit if self.is_vector else grad).sum()
        return grad, pt.grad(along, self.y, disconnected_inputs="ignore")

    def _compile(self, name: str) -> Function:
        from pytensor.graph.replace import vectorize_graph

        outputs = [self.logp]
        if name == "bend":
            outputs = [self._derivatives[1]]
        elif name != "logp":
            outputs += self._derivatives[: 1 if name == "gradient" else 2]
        batched = {self.y: _batched(self.y, None, 1)}
        for slot in self.slots:
            batched[slot.variable] = _batched(slot.variable, 1, None if slot.by_draw else 1)
        inputs = ([self._unit] if name == "bend" else []) + list(batched.values())
        return compiled(inputs, vectorize_graph(outputs, batched), loops=False)


def _batched(variable: Variable, *lead: int | None) -> Variable:
    """Make a variable with more axes in front."""
    from pytensor.tensor import TensorType

    return TensorType(variable.dtype, (*lead, *variable.type.shape))()


class Parameters(Protocol):
    """Where the parameters of a density come from."""

    def tile(self, chain: int, draws: slice, obs: slice) -> list[Numeric]:
        """Values of each, (draw or 1, ...), cut to the observations where it has them first."""


@dataclass(frozen=True, eq=False, repr=False)
class GraphPredictive(DensityPredictive):
    """Draws of a density's parameters, and the density as compiled functions."""

    density: Density
    parameters: Parameters
    #: Makes the same model at other outcomes and data.
    rebuild: Callable[..., Predictive]

    def with_data(self, y: Any, /, **data: Any) -> Predictive:
        """Return the same posterior at other observations.

        Parameters
        ----------
        y
            The outcomes there, in the shape that the model has them.
        **data
            What else is different there: for PyMC the values of ``pm.Data`` containers by name,
            for Bambi ``newdata=``, a DataFrame.

        Returns
        -------
        Predictive
            A model of those observations.
        """
        return self.rebuild(y, **data)

    def jets_at(
        self, y: Array, chain: int, draws: slice, obs: Selection, *, derivatives: bool
    ) -> Jet:
        """Evaluate the density of some draws and observations at any outcomes."""
        window, inside = _window(obs, self.n_obs)
        if not self.density.separable:
            return self._whole(y, chain, draws, obs, derivatives=derivatives)
        values = self.parameters.tile(chain, draws, window)
        slots = self.density.slots
        values = [
            value[:, inside] if slot.by_observation and inside is not None else value
            for value, slot in zip(values, slots, strict=True)
        ]
        grid = (y.shape[1], *(1,) * (self.density.logp.ndim - 1))
        return self._in_pieces(y, values, grid, draws, derivatives=derivatives)

    def _whole(
        self, y: Array, chain: int, draws: slice, obs: Selection, *, derivatives: bool
    ) -> Jet:
        """Evaluate at all observations, where a graph does not let single ones be taken out."""
        everywhere = np.repeat(self.observations.values[None], len(y), axis=0)
        everywhere[:, obs] = y
        values = self.parameters.tile(chain, draws, slice(0, self.n_obs))
        grid = self.observations.shape
        jet = self._in_pieces(everywhere, values, grid, draws, derivatives=derivatives)
        return jet[:, :, obs]

    def _in_pieces(
        self,
        y: Array,
        values: Sequence[Numeric],
        grid: tuple[int, ...],
        draws: slice,
        *,
        derivatives: bool,
    ) -> Jet:
        n_draws = len(range(*draws.indices(self.n_draws)))
        length = max(1, _AT_ONCE // y.size)
        jets = [
            self.density.jets(
                y,
                [value[start : start + length] if len(value) > 1 else value for value in values],
                min(length, n_draws - start),
                grid,
                derivatives=derivatives,
            )
            for start in range(0, n_draws, length)
        ]
        return jets[0] if len(jets) == 1 else _joined(jets)


def _joined(jets: Sequence[Jet]) -> Jet:
    """Join along the draws."""
    return Jet(
        np.concatenate([jet.logp for jet in jets], axis=1),
        np.concatenate([jet.grad for jet in jets], axis=1),
        np.concatenate([jet.curv for jet in jets], axis=1),
    )


def _window(obs: Selection, n: int) -> tuple[slice, NDArray[np.intp] | None]:
    """Return consecutive observations that hold the chosen ones, and where these are in them."""
    if isinstance(obs, slice):
        return slice(*obs.indices(n)), None
    if obs.size == 0:
        return slice(0, 0), None
    low = int(obs.min())
    return slice(low, int(obs.max()) + 1), obs - low


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
        length = max(1, _AT_ONCE // n)
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
        batched = {v: _batched(v, None) for v in self.theta}
        outputs = vectorize_graph(outputs, batched)
        return compiled([start, stop, *batched.values(), *self.data], outputs, loops=True)


@dataclass(frozen=True, eq=False)
class Source:
    """A log density of observations given draws of θ, as a graph: what adapters build."""

    y: Variable  # grid of observations, then the component of a vector outcome
    logp: Variable  # grid of observations
    theta: Mapping[Variable, Numeric]  # what it depends on, (chain, draw, ...)
    data: Mapping[Variable, Numeric]
    n_chains: int
    n_draws: int
    name: str
    #: Names of the distributions inside, such as those of a mixture.
    parts: tuple[str, ...]
    discrete: bool
    has_atoms: bool
    log_marginal_likelihood: float | None = None
    #: What was compiled for other data of the same model.
    cache: dict[Any, Any] = field(default_factory=dict)

    def predictive(
        self, observations: Observations, rebuild: Callable[..., Predictive]
    ) -> GraphPredictive:
        """Cut and compile it, and compare two of its draws with the graph as it stands.

        Raises
        ------
        UnsupportedError
            Where the log density of one observation depends on the outcome of another.
        """
        self._require_factors(observations)
        for separable in (True, False):
            model = self._cut(observations, separable, rebuild)
            if self._agrees(model):
                return described(model, self.name, self.parts)
        raise UnsupportedError(
            f"The log density of {self.name} cannot be evaluated for many draws at once. Compute "
            "it and its derivatives yourself and use from_arrays."
        )

    def _simple(self) -> tuple[Variable, list[Variable]]:
        """Return the log density without what is superfluous, and what in it is free of y."""
        if "simple" not in self.cache:
            simple = simplified(self.logp, self.y)
            self.cache["simple"] = simple, parameters_of(simple, self.y)
        return self.cache["simple"]

    def _cut(
        self, observations: Observations, separable: bool, rebuild: Callable[..., Predictive]
    ) -> GraphPredictive:
        simple, origins = self._simple()
        values = self._at_draw(origins, 0)
        grid = observations.shape
        on_grid = tuple(separable and _lies_on(value.shape, grid) for value in values)
        if (separable, on_grid) not in self.cache:
            on_theta = dependent_on(self.theta, origins)
            slots = tuple(
                Slot(_standing_for(v, len(grid) if on else 0), v, on, v in on_theta)
                for v, on in zip(origins, on_grid, strict=True)
            )
            logp = rebuilt(simple, {slot.origin: slot.variable for slot in slots})
            self.cache[separable, on_grid] = Density(self.y, logp, slots, separable), {}
        density, functions = self.cache[separable, on_grid]
        slots = density.slots
        size = sum(value.nbytes for slot, value in zip(slots, values, strict=True) if slot.by_draw)
        keep = size * self.n_chains * self.n_draws <= _KEEP
        return GraphPredictive(
            observations,
            self.n_chains,
            self.n_draws,
            Likelihood(self.name, discrete=self.discrete),
            density,
            DrawParameters(slots, separable, grid, self.theta, self.data, keep, functions),
            rebuild,
            has_atoms=self.has_atoms,
            differentiable=self.discrete or density.differentiable,
            log_marginal_likelihood=self.log_marginal_likelihood,
        )

    def _at_draw(
        self, outputs: Sequence[Variable], draw: int, y: Numeric | None = None
    ) -> list[Numeric]:
        given = {variable: draws[0, draw] for variable, draws in self.theta.items()}
        if y is not None:
            given[self.y] = y.astype(self.y.dtype)
        return evaluated(outputs, {**given, **self.data})

    def _logp(self, observations: Observations, y: Array, draw: int) -> Numeric:
        """Log density of one draw at outcomes (obs, d) by the graph in one piece, (obs,)."""
        components = y.shape[1:] if self.y.ndim > self.logp.ndim else ()
        grid = y.reshape(*observations.shape, *components)
        (logp,) = self._at_draw(self._simple()[:1], draw, grid)
        return np.broadcast_to(logp, observations.shape).ravel()

    def _require_factors(self, observations: Observations) -> None:
        """Change some outcomes: the log densities of all others must stay as they are."""
        y = observations.values
        changed = y.copy()
        some = np.arange(len(y)) % 2 == 0
        changed[some] = y[some][::-1] if self.discrete else y[some] * (1 + 1e-3) + 1e-3 * y.std()
        before, after = (self._logp(observations, each, 0)[~some] for each in (y, changed))
        if not np.array_equal(before, after, equal_nan=True):
            raise UnsupportedError(
                "The log density of one observation depends on the outcome of another, so the "
                "likelihood does not factorise. Give earlier outcomes as covariates."
            )

    def _agrees(self, model: GraphPredictive) -> bool:
        """Compare some log densities of the first and the last draw with the whole graph's."""
        y = model.observations.values
        obs = np.array([len(y) - 1, 0][: max(1, len(y) - 1)])
        for draw in {0, model.n_draws - 1}:
            expected = self._logp(model.observations, y, draw)[obs]
            try:
                got = model.logp_at(y[None, obs], 0, slice(draw, draw + 1), obs)[0, 0]
            except (ValueError, IndexError, TypeError, AssertionError):
                return False
            if not np.allclose(got, expected, rtol=1e-8, atol=1e-8, equal_nan=True):
                return False
        return True


def _standing_for(variable: Variable, n_free: int) -> Variable:
    """Make a variable of the same kind, of which so many first axes may have any length."""
    from pytensor.tensor import TensorType

    return TensorType(variable.dtype, ((None,) * n_free + tuple(variable.type.shape)[n_free:]))()


def _lies_on(shape: tuple[int, ...], grid: tuple[int, ...]) -> bool:
    """Whether an array's first axes are those of the grid, where they are not broadcast."""
    lead = shape[: len(grid)]
    fits = len(lead) == len(grid) and all(a in (1, b) for a, b in zip(lead, grid, strict=True))
    return fits and prod(lead) > 1
