"""Densities as PyTensor graphs, differentiated in the outcome and compiled.

A log density log f(y | θ, data) is cut where the outcome comes in. What does not depend on y, the
*parameters* (a regression's mean, a scale, its logarithm), is computed once for every draw; what
does depend on it is a small function of y and the parameters, one observation at a time, which
can be evaluated at any outcome of any observation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lockquack.adapters.evaluable import DensityPredictive, described
from lockquack.errors import UnsupportedError
from lockquack.jets import Array, Jet, Numeric
from lockquack.observations import Observations
from lockquack.predictive import Likelihood, Predictive, Selection

#: A symbolic variable of PyTensor, which is not typed.
Variable = Any
Function = Callable[..., list[Numeric]]
#: Numbers that one call of a compiled function works on: they should stay in a core's cache.
_AT_ONCE = 2**15
#: Bytes of parameters that are kept rather than computed again.
_KEEP = 2**27
#: Operations on whole arrays, with no loop in Python.
_ARRAY_OPS = frozenset(
    [
        "DimShuffle",
        "Sum",
        "Prod",
        "Max",
        "Min",
        "All",
        "Any",
        "CAReduce",
        "Subtensor",
        "AdvancedSubtensor",
        "AdvancedSubtensor1",
        "Reshape",
        "Alloc",
        "MakeVector",
        "Join",
        "Split",
        "Shape",
        "Shape_i",
        "ScalarFromTensor",
        "TensorFromScalar",
        "SpecifyShape",
        "ARange",
        "Dot",
        "Dot22",
        "Dot22Scalar",
        "Gemv",
        "Gemm",
        "BatchedDot",
        "ExtractDiag",
        "Unbroadcast",
        "DeepCopyOp",
        "Assert",
        "IncSubtensor",
        "SetSubtensor",
        "AdvancedIncSubtensor",
        "AdvancedSetSubtensor",
    ]
)


def variables_of(outputs: Iterable[Variable]) -> list[Variable]:
    """All variables that a graph consists of, each after those that it depends on."""
    order: dict[Variable, None] = {}
    stack = [(variable, False) for variable in outputs]
    while stack:
        variable, done = stack.pop()
        if variable in order:
            continue
        if done or variable.owner is None:
            order[variable] = None
        else:
            stack.append((variable, True))
            stack.extend((parent, False) for parent in variable.owner.inputs)
    return list(order)


def dependent_on(roots: Iterable[Variable], outputs: Iterable[Variable]) -> set[Variable]:
    """Return the variables of a graph through which its outputs depend on the roots."""
    found = set(roots)
    for variable in variables_of(outputs):
        if variable.owner is not None and any(v in found for v in variable.owner.inputs):
            found.add(variable)
    return found


def simplified(logp: Variable, y: Variable) -> Variable:
    """Remove checks of parameters, and what fixes the number of observations.

    Draws of a posterior pass the checks. A log density already has the shape of y, to which a
    random variable of given size expands it once more.
    """
    from pytensor.raise_op import CheckAndRaise
    from pytensor.tensor.basic import Alloc
    from pytensor.tensor.shape import SpecifyShape

    on_y = dependent_on([y], [logp])

    def superfluous(variable: Variable) -> bool:
        op, inner = variable.owner.op, variable.owner.inputs[0]
        fixes = isinstance(op, Alloc | SpecifyShape) and inner in on_y
        return isinstance(op, CheckAndRaise) or (fixes and inner.ndim == variable.ndim)

    return rebuilt(logp, {}, superfluous)


def rebuilt(
    output: Variable,
    new: Mapping[Variable, Variable],
    superfluous: Callable[[Variable], bool] = lambda variable: False,
) -> Variable:
    """Make a graph again with other variables, whose shapes may be less known.

    A superfluous variable is replaced by the first that it is made of, an operation that is a
    graph itself by that graph.
    """
    from pytensor.compile.builders import OpFromGraph

    made = dict(new)
    for variable in variables_of([output]):
        if variable in made:
            continue
        made[variable] = variable
        if variable.owner is None:
            continue
        op, inputs = variable.owner.op, [made[parent] for parent in variable.owner.inputs]
        place = variable.owner.outputs.index(variable)
        if superfluous(variable):
            made[variable] = inputs[0]
        elif isinstance(op, OpFromGraph):
            inner = dict(zip(op.inner_inputs, inputs, strict=True))
            made[variable] = rebuilt(op.inner_outputs[place], inner, superfluous)
        elif inputs != variable.owner.inputs:
            made[variable] = op(*inputs, return_list=True)[place]
    return made[output]


def parameters_of(logp: Variable, y: Variable) -> list[Variable]:
    """Return the largest parts of a graph that do not depend on y, single constants aside."""
    from pytensor.graph.basic import Constant

    on_y = dependent_on([y], [logp])
    parents = [
        parent
        for child in variables_of([logp])
        if child in on_y and child.owner is not None
        for parent in child.owner.inputs
    ]

    def is_plain(variable: Variable) -> bool:
        leaves = [v for v in variables_of([variable]) if v.owner is None]
        return all(isinstance(v, Constant) and np.size(v.data) == 1 for v in leaves)

    return [v for v in dict.fromkeys(parents) if v not in on_y and not is_plain(v)]


def compiled(inputs: Sequence[Variable], outputs: Sequence[Variable], *, loops: bool) -> Function:
    """Compile a function, or find the one that was compiled for the same graph before.

    All models with the same likelihood share the functions of its density.
    """
    from pytensor.graph.basic import equal_computations

    for known_inputs, known_outputs, function in _COMPILED:
        same = len(known_inputs) == len(inputs) and len(known_outputs) == len(outputs)
        same = same and all(a.type == b.type for a, b in zip(known_inputs, inputs, strict=True))
        if same and equal_computations(list(outputs), known_outputs, list(inputs), known_inputs):
            return function
    function = _compile(inputs, outputs, loops=loops)
    _COMPILED.append((list(inputs), list(outputs), function))
    return function


#: What was compiled last: inputs, outputs, function.
_COMPILED: deque[tuple[list[Variable], list[Variable], Function]] = deque(maxlen=64)


def _compile(inputs: Sequence[Variable], outputs: Sequence[Variable], *, loops: bool) -> Function:
    """Let PyTensor simplify a graph and then, where that can be done, let numpy evaluate it.

    Ufuncs of whole arrays take no longer than compiled code takes next to all else, and there is
    nothing to wait for: Numba needs seconds, and up to a minute where it has not seen an
    operation before. Loops over small matrices are Numba's; ``loops`` tells that they are short
    enough for Python. PyTensor's mode ``FAST_COMPILE`` is respected: nothing is compiled then.
    """
    import pytensor
    from pytensor.compile.mode import Mode

    def make(mode: Any) -> Any:
        return pytensor.function(
            list(inputs), list(outputs), mode=mode, on_unused_input="ignore", trust_input=True
        )

    plain = make(Mode("py", "fast_run").excluding("fusion", "inplace", "BlasOpt"))
    by_numpy = _by_numpy(plain.maker.fgraph, loops)
    if by_numpy is not None:
        return by_numpy
    return plain if pytensor.config.mode == "FAST_COMPILE" else make("NUMBA")


def _by_numpy(graph: Any, loops: bool) -> Function | None:
    """Evaluate a graph node after node, without what PyTensor checks in between."""
    place = {v: k for k, v in enumerate(dict.fromkeys([*graph.inputs, *graph.variables]))}
    start: list[Any] = [getattr(variable, "data", None) for variable in place]
    steps = []
    for node in graph.toposort():
        function = _numpy_function(node, loops)
        if function is None:
            return None
        sources = [place[variable] for variable in node.inputs]
        steps.append((function, sources, [place[variable] for variable in node.outputs]))
    inputs, outputs = ([place[v] for v in each] for each in (graph.inputs, graph.outputs))

    def run(*values: Numeric) -> list[Numeric]:
        held = start.copy()
        for k, value in zip(inputs, values, strict=True):
            held[k] = value
        with np.errstate(all="ignore"):
            for function, sources, targets in steps:
                results = function(*(held[k] for k in sources))
                for k, result in zip(targets, results, strict=True):
                    held[k] = result
        return [held[k] for k in outputs]

    return run


def _numpy_function(node: Any, loops: bool) -> Callable[..., Sequence[Any]] | None:
    """Return what numpy does in place of a node, or None where that would be slow."""
    op = node.op
    name = type(op).__name__
    if name == "Elemwise":
        return _ufunc(node)
    core: Any = getattr(op, "core_op", None)
    if type(core).__name__ == "SolveTriangular" and core.b_ndim == 1 and not core.unit_diagonal:
        return partial(_solve_triangular, np.tril if core.lower else np.triu)
    if name not in _ARRAY_OPS and not (loops and name == "Blockwise"):
        return None

    def perform(*values: Any) -> list[Any]:
        results: list[list[Any]] = [[None] for _ in node.outputs]
        op.perform(node, list(values), results)
        return [result[0] for result in results]

    return perform


def _solve_triangular(part: Callable[[Array], Array], matrix: Array, vector: Array) -> tuple[Array]:
    """Solve many small triangular systems; few matrices, of the draws, have many right sides."""
    return (np.einsum("...ij,...j->...i", np.linalg.inv(part(matrix)), vector),)


def _ufunc(node: Any) -> Callable[..., Sequence[Any]] | None:
    """Return numpy's or scipy's function for an operation on elements, if there is one."""
    from pytensor.tensor.utils import import_func_from_string

    scalar, dtype = node.op.scalar_op, np.dtype(node.outputs[0].dtype)
    name = type(scalar).__name__
    if name == "Cast":
        return lambda value: (np.asarray(value).astype(dtype),)
    if name in _BY_NAME:
        function = _BY_NAME[name]
    elif node.op.nfunc_spec and name in ("Add", "Mul"):
        binary = import_func_from_string(node.op.nfunc_spec[0])
        function = binary if len(node.inputs) == 2 else lambda *values: reduce(binary, values)
    elif node.op.nfunc_spec and scalar.nin == len(node.inputs):
        function = import_func_from_string(node.op.nfunc_spec[0])
    else:
        return None
    if dtype.kind == "f" and all(np.dtype(v.dtype).kind in "biu" for v in node.inputs):
        # Functions of short integers would be in half precision.
        return lambda *values: (function(*(np.asarray(value, dtype) for value in values)),)
    return lambda *values: (function(*values),)


def _log1mexp(x: Array) -> Array:
    return np.where(x > -np.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def _second(first: Numeric, second: Numeric) -> Numeric:
    return np.broadcast_to(second, np.broadcast_shapes(np.shape(first), np.shape(second)))


_BY_NAME: dict[str, Callable[..., Any]] = {
    "Second": _second,
    "Clip": np.clip,
    "Identity": np.array,
    "Log1mexp": _log1mexp,
    "Softplus": lambda x: np.logaddexp(0.0, x),
}


def evaluated(outputs: Sequence[Variable], values: Mapping[Variable, Numeric]) -> list[Numeric]:
    """Evaluate a graph once, as it stands."""
    import pytensor
    from pytensor.compile.mode import Mode

    inputs = list(values)
    function = pytensor.function(
        inputs, list(outputs), mode=Mode("py", None), on_unused_input="ignore"
    )
    return [np.asarray(out) for out in function(*(values[v] for v in inputs))]


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
