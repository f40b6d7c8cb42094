"""Random outcomes of any number, where a graph was written for one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lockquack.sources.pytensor_compiling import as_it_stands
from lockquack.sources.pytensor_rewriting import Variable, variables_of


def rows_along(grid: Sequence[int]) -> list[Variable]:
    """Make variables that hold the lengths of the axes of observations."""
    from pytensor.compile.sharedvalue import shared

    return [shared(np.int64(length)) for length in grid]


def resized(
    output: Variable | None, grid: Sequence[int], rows: Sequence[Variable]
) -> Variable | None:
    """Make random outcomes as many as given variables say, where their number was written down.

    A distribution that is observed at an array is made of random numbers of the array's shape. What
    PyTensor cannot make again stays as it is: densities do not depend on it.
    """
    if output is None:
        return None
    try:
        return _remade(output, grid, rows)
    except Exception:  # whatever PyTensor does with a user's distribution
        return output


def _remade(output: Variable, grid: Sequence[int], rows: Sequence[Variable]) -> Variable:
    from pytensor.tensor import stack
    from pytensor.tensor.basic import Alloc
    from pytensor.tensor.random.op import RandomVariable

    n = len(grid)
    made: dict[Variable, Variable] = {}
    for variable in variables_of([output]):
        made[variable] = variable
        if variable.owner is None:
            continue
        op, inputs = variable.owner.op, [made[parent] for parent in variable.owner.inputs]
        sizes = inputs[1:2] if isinstance(op, RandomVariable) else inputs[1:]
        if isinstance(op, RandomVariable | Alloc) and _written(sizes)[:n] == list(grid):
            if isinstance(op, Alloc):
                inputs[1 : 1 + n] = rows
            else:
                inputs[1] = stack([*rows, *_written(sizes)[n:]])
        if inputs != variable.owner.inputs:
            place = variable.owner.outputs.index(variable)
            made[variable] = op.make_node(*inputs).outputs[place]
    return made[output]


def _written(sizes: Sequence[Variable]) -> list[int]:
    """Read sizes that depend on nothing but numbers, in a row; empty if some do."""
    from pytensor.graph.basic import Constant

    leaves = [v for v in variables_of(sizes) if v.owner is None]
    if not all(isinstance(v, Constant) and v.data is not None for v in leaves):
        return []
    values = as_it_stands([], list(sizes))()
    return [int(number) for value in values for number in np.ravel(value)]
