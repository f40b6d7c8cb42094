"""Looking at PyTensor graphs and making them again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

#: A symbolic variable of PyTensor, which is not typed.
Variable = Any


def variables_of(outputs: Iterable[Variable], until: Collection[Variable] = ()) -> list[Variable]:
    """All variables that a graph consists of, each after those that it depends on.

    What some of them depend on may be left out, by naming these in ``until``.
    """
    order: dict[Variable, None] = {}
    stack = [(variable, False) for variable in outputs]
    while stack:
        variable, done = stack.pop()
        if variable in order:
            continue
        if done or variable.owner is None or variable in until:
            order[variable] = None
        else:
            stack.append((variable, True))
            stack.extend((parent, False) for parent in variable.owner.inputs)
    return list(order)


def nearest(candidates: Iterable[Variable], output: Variable) -> list[Variable]:
    """Return those on which the output depends directly, not only through another of them."""
    wanted, found, seen = set(candidates), [], set()
    stack = list(output.owner.inputs) if output.owner is not None else []
    while stack:
        variable = stack.pop()
        if variable in seen:
            continue
        seen.add(variable)
        if variable in wanted:
            found.append(variable)
        elif variable.owner is not None:
            stack.extend(variable.owner.inputs)
    return found


def dependent_on(roots: Iterable[Variable], outputs: Iterable[Variable]) -> set[Variable]:
    """Return the variables of a graph through which its outputs depend on the roots."""
    found = set(roots)
    for variable in variables_of(outputs):
        if variable.owner is not None and any(v in found for v in variable.owner.inputs):
            found.add(variable)
    return found


def checks_in(output: Variable) -> list[Variable]:
    """Return the variables of a graph that are there to demand something of others."""
    from pytensor.raise_op import CheckAndRaise

    return [
        variable
        for variable in variables_of([output])
        if variable.owner is not None and isinstance(variable.owner.op, CheckAndRaise)
    ]


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
    graph itself by that graph, a loop whose steps do not need each other by one step for all.
    """
    from pytensor.compile.builders import OpFromGraph
    from pytensor.scan.op import Scan

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
        elif isinstance(op, Scan) and _steps_are_independent(op):
            made[variable] = rebuilt(_all_steps(op, inputs, place), {}, superfluous)
        elif inputs != variable.owner.inputs:
            made[variable] = op.make_node(*inputs).outputs[place]
    return made[output]


def _steps_are_independent(op: Any) -> bool:
    """Whether no step of a loop uses what another one made."""
    return len(op.inner_outputs) == op.info.n_nit_sot and not op.info.as_while


def _all_steps(op: Any, inputs: Sequence[Variable], place: int) -> Variable:
    """Write all steps of a loop at once: they become the first axis."""
    from pytensor.graph.replace import vectorize_graph

    fixed = zip(op.inner_non_seqs(op.inner_inputs), op.outer_non_seqs(inputs), strict=True)
    steps = {inner: inner.type() for inner in op.inner_seqs(op.inner_inputs)}
    one = rebuilt(op.inner_outputs[place], {**dict(fixed), **steps})
    n_steps = inputs[0]
    along = zip(steps.values(), op.outer_seqs(inputs), strict=True)
    return vectorize_graph(one, {step: each[:n_steps] for step, each in along})


def drawn_with(mark: Variable, outcome: Variable) -> Variable:
    """Make every random number of a graph depend on a mark, which is zero.

    A graph for many draws has a random number for each of them only where the draws come in, as
    marks for many draws do everywhere.
    """
    from pytensor.tensor.random.op import RandomVariable

    made: dict[Variable, Variable] = {}
    for variable in variables_of([outcome]):
        made[variable] = variable
        if variable.owner is None:
            continue
        op, inputs = variable.owner.op, [made[parent] for parent in variable.owner.inputs]
        if isinstance(op, RandomVariable):
            inputs[2] = inputs[2] + mark.astype(inputs[2].dtype)
        if inputs != variable.owner.inputs:
            place = variable.owner.outputs.index(variable)
            made[variable] = op.make_node(*inputs).outputs[place]
    return made[outcome]


def lengths_of(output: Variable, roots: Iterable[Variable]) -> list[Variable]:
    """Return the largest parts of a graph that depend on its roots, but only on their shapes."""
    from pytensor.tensor.shape import Shape, Shape_i

    on_values: set[Variable] = set(roots)
    on_shape: set[Variable] = set()
    variables = variables_of([output])
    for variable in variables:
        if variable.owner is None:
            continue
        inputs = set(variable.owner.inputs)
        if isinstance(variable.owner.op, Shape | Shape_i):
            on_shape |= {variable} if inputs & (on_values | on_shape) else set()
        elif inputs & on_values:
            on_values.add(variable)
        elif inputs & on_shape:
            on_shape.add(variable)
    parents = {v for child in on_values if child.owner is not None for v in child.owner.inputs}
    return [v for v in variables if v in on_shape and v in parents]


def terms_of(logp: Variable) -> Variable:
    """Take a number apart into the terms that it is the sum of, (term,)."""
    import pytensor.tensor as pt
    from pytensor.raise_op import CheckAndRaise
    from pytensor.scalar.basic import Add
    from pytensor.tensor.basic import Alloc
    from pytensor.tensor.elemwise import Elemwise
    from pytensor.tensor.math import Sum

    node = logp.owner
    if node is not None:
        if isinstance(node.op, CheckAndRaise | Alloc) and node.inputs[0].ndim == 0:
            return terms_of(node.inputs[0])
        if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Add):
            return pt.concatenate([terms_of(each) for each in node.inputs])
        if isinstance(node.op, Sum) and node.inputs[0].ndim == 1:
            return node.inputs[0]
    return logp[None]


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
