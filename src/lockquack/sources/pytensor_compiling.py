"""PyTensor graphs as functions of arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from lockquack.jets import Array, Numeric
from lockquack.sources.pytensor_rewriting import Variable


@dataclass(frozen=True)
class Function:
    """A function of arrays."""

    run: Callable[..., list[Numeric]]
    #: Positions of the inputs of which nothing but the shape matters.
    shapes_only: frozenset[int]

    def __call__(self, *values: Numeric) -> list[Numeric]:
        """Evaluate it."""
        return self.run(*values)


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
        "SolveTriangular",
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

    plain = interpreted(inputs, outputs)
    graph = plain.maker.fgraph
    run = _by_numpy(graph, loops)
    if run is None:
        interpret = pytensor.config.mode == "FAST_COMPILE"
        run = plain if interpret else _made(inputs, outputs, "NUMBA")
    return Function(run, _shapes_only(graph))


def _shapes_only(graph: Any) -> frozenset[int]:
    """Find the inputs that a graph does nothing with but look at their lengths."""
    return frozenset(
        k
        for k, variable in enumerate(graph.inputs)
        if all(
            type(getattr(node, "op", None)).__name__ == "Shape_i"
            for node, _ in graph.clients[variable]
        )
    )


def _by_numpy(graph: Any, loops: bool) -> Callable[..., list[Numeric]] | None:
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
    inverse = np.linalg.inv(part(matrix)).swapaxes(-1, -2)
    if inverse.ndim > 2 and inverse.shape[-3] == 1:  # the same for all outcomes of a draw
        return (np.matmul(vector, inverse[..., 0, :, :]),)
    return (np.matmul(vector[..., None, :], inverse)[..., 0, :],)


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


def interpreted(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
    """Make a function that Python evaluates, after PyTensor has simplified the graph."""
    from pytensor.compile.mode import Mode

    # The last would write powers in a way that numpy has no function for.
    leave_out = ("fusion", "inplace", "BlasOpt", "local_pow_to_nested_squaring")
    mode = Mode("py", "fast_run").excluding(*leave_out)
    return _made(inputs, outputs, mode)


def _made(inputs: Sequence[Variable], outputs: Sequence[Variable], mode: Any) -> Any:
    import pytensor

    return pytensor.function(
        list(inputs), list(outputs), mode=mode, on_unused_input="ignore", trust_input=True
    )


def as_it_stands(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
    """Make a function that Python evaluates, of a graph that is not simplified."""
    import pytensor
    from pytensor.compile.mode import Mode

    return pytensor.function(
        list(inputs), list(outputs), mode=Mode("py", None), on_unused_input="ignore"
    )
