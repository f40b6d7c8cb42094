"""The outcomes of a PyMC model: their log density as a graph on plain variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.errors import UnsupportedError
from lockquack.jets import Numeric
from lockquack.sources.pytensor_rewriting import (
    Variable,
    nearest,
    rebuilt,
    terms_of,
    variables_of,
)

#: Distributions in which single outcomes have positive probability.
ATOMS = ("Censored", "Hurdle", "DiracDelta")


@dataclass(frozen=True)
class Outcome:
    """One observed variable: where its axes belong, and its log density at a free value."""

    rv: Variable
    observed: Numeric
    y: Variable
    logp: Variable
    #: Names of its axes, where the model has them.
    dims: tuple[str | None, ...]
    #: Whether the log density has the terms of which one density of all outcomes is the sum.
    joint: bool
    #: The ``pm.Data`` container that the outcomes are observed in, if it is one.
    container: Variable | None
    #: Which rows have outcomes, (row,); None: all.
    seen: NDArray[np.bool_] | None = None

    @property
    def name(self) -> str:
        """Its name in the model."""
        return str(self.rv.name)

    @property
    def discrete(self) -> bool:
        """Whether only whole numbers are possible."""
        return is_discrete(self.rv)


def is_discrete(rv: Variable) -> bool:
    """Whether only whole numbers are possible."""
    return np.dtype(rv.dtype).kind in "biu"


@dataclass(frozen=True)
class OutcomeGraph:
    """Log density and random outcomes on plain variables."""

    y: Variable  # grid of observations, then components if there are any
    logp: Variable  # grid of observations
    #: None if outcomes cannot be drawn.
    random: Variable | None
    theta: Mapping[str, Variable]
    data: Mapping[str, tuple[Variable, Numeric]]
    #: Those of the data that have a name in the model.
    containers: tuple[str, ...]
    #: Variables that hold lengths of axes, with the names of these.
    lengths: Mapping[Variable, str]


def outcomes_of(model: Any, rvs: Sequence[Variable]) -> list[Outcome]:
    """Let PyMC write the log densities of some variables at free values."""
    from pytensor.tensor import TensorType

    free = [
        TensorType(rv.dtype if is_discrete(rv) else "float64", (None,) * rv.type.ndim)("y")
        for rv in rvs
    ]
    observed = [np.asarray(model.rvs_to_values[rv].eval()) for rv in rvs]
    values = [_with_axes_of(rv, y) for rv, y in zip(rvs, free, strict=True)]
    with _at_values(model, dict(zip(rvs, values, strict=True))):
        logps = model.logp(vars=list(rvs), sum=False)
    found = []
    for rv, known, y, logp in zip(rvs, observed, free, logps, strict=True):
        logp = rebuilt(_plain_log_density(rv, logp), _linked(model, rv, rvs, free))
        _require_observations(rv, y, logp)
        joint = logp.ndim == 0
        # Where values are missing, PyMC gives the observed ones a name of their own.
        whole = model.named_vars.get(rv.name.removesuffix("_observed"), rv)
        named = model.named_vars_to_dims.get(whole.name) or ()
        seen = _seen(rv, whole)
        dims = tuple(named) if len(named) == y.ndim else (None,) * y.ndim
        logp = terms_of(logp) if joint else logp
        found.append(Outcome(rv, known, y, logp, dims, joint, _container(model, rv), seen))
    return found


def _seen(rv: Variable, whole: Variable) -> NDArray[np.bool_] | None:
    """Read from the graph of an outcome with imputed values which of its rows are observed.

    Those of a grid are in its order. None where no values are imputed.
    """
    from pytensor.graph.basic import Constant

    for variable in variables_of([whole]):
        node = variable.owner
        if node is None or len(node.inputs) != 3 or node.inputs[1] is not rv:
            continue
        mask = node.inputs[2]
        if isinstance(mask, Constant) and mask.dtype == "bool":
            return np.asarray(mask.data).ravel()
    return None


def _linked(
    model: Any, rv: Variable, rvs: Sequence[Variable], values: Sequence[Variable]
) -> dict[Variable, Variable]:
    """Replace the containers of the other outcomes, which one may be given, by their values."""
    holders = {
        other: (_container(model, other), value) for other, value in zip(rvs, values, strict=True)
    }
    return {
        holder: value.astype(holder.dtype)
        for other, (holder, value) in holders.items()
        if other is not rv and holder is not None
    }


def graph_of(
    model: Any,
    y: Variable,
    logp: Variable,
    random: Variable | None,
    rows: Mapping[Variable, str],
) -> OutcomeGraph:
    """Find what a log density begins with: parameters, by name, and data.

    Some ``rows`` hold the lengths of axes, besides those of the model that do.
    """
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.tensor import TensorType
    from pytensor.tensor.random.type import RandomType

    names = {model.rvs_to_values[rv]: rv.name for rv in model.free_RVs}
    axes = {length: dim for dim, length in model.dim_lengths.items()} | dict(rows)
    theta: dict[str, Variable] = {}
    data: dict[str, tuple[Variable, Numeric]] = {}
    plain: dict[Variable, Variable] = {}
    made: dict[Variable, Variable] = {}
    for leaf, variable in _leaves([logp] if random is None else [logp, random]):
        known = leaf in names or isinstance(leaf, SharedVariable)
        if not known or isinstance(leaf.type, RandomType):
            continue
        if leaf not in made:
            made[leaf] = TensorType(leaf.dtype, leaf.type.shape)(leaf.name)
            if leaf in names:
                theta[names[leaf]] = made[leaf]
            else:
                # An axis may be called like a container.
                name = f"data {len(data)}" if leaf in axes or not leaf.name else leaf.name
                data[name] = made[leaf], np.asarray(leaf.get_value())
        plain[variable] = made[leaf]
    drawn = None if random is None else rebuilt(random, plain)
    containers = tuple(name for name in data if name in model.named_vars)
    lengths = {made[length]: dim for length, dim in axes.items() if length in made}
    return OutcomeGraph(y, rebuilt(logp, plain), drawn, theta, data, containers, lengths)


def container_of(model: Any, rvs: Sequence[Variable]) -> str | None:
    """Name the ``pm.Data`` container that the outcomes are observed in, if it is one."""
    found = [_container(model, rv) for rv in rvs]
    return None if len(found) > 1 or found[0] is None else str(found[0].name)


def _container(model: Any, rv: Variable) -> Variable | None:
    """Return the ``pm.Data`` container that holds the values of an outcome, if one does."""
    from pytensor.compile.sharedvalue import SharedVariable

    value = model.rvs_to_values[rv]
    is_one = isinstance(value, SharedVariable) and value.name in model.named_vars
    return value if is_one and not has_dims(value) else None


def random_outcomes(model: Any, rvs: Sequence[Variable]) -> list[Variable] | None:
    """Write the outcomes as random variables, given values of all others; None if PyTensor fails.

    The densities do not depend on them.
    """
    others = [other for other in model.rvs_to_values if other not in rvs]
    parents = {v: model.rvs_to_values[v] for rv in rvs for v in nearest(others, rv)}
    try:
        drawn = [rebuilt(rv, parents) for rv in rvs]
        return [
            _lowered(rebuilt(each, _linked(model, rv, rvs, drawn)))
            for rv, each in zip(rvs, drawn, strict=True)
        ]
    except Exception:  # whatever PyTensor does with a graph that it cannot make again
        return None


@contextmanager
def _at_values(model: Any, values: Mapping[Variable, Variable]) -> Iterator[None]:
    """Let some variables of a model have other values for a while."""
    before = dict(model.rvs_to_values), dict(model.values_to_rvs)
    for rv, value in values.items():
        model.values_to_rvs.pop(model.rvs_to_values[rv], None)
        model.rvs_to_values[rv] = value
        model.values_to_rvs[value] = rv
    try:
        yield
    finally:
        model.rvs_to_values, model.values_to_rvs = before


def _with_axes_of(rv: Variable, y: Variable) -> Variable:
    """Name the axes of a value as a variable of pymc.dims wants it."""
    if not has_dims(rv):
        return y
    from pytensor.xtensor.basic import xtensor_from_tensor

    return xtensor_from_tensor(y, dims=rv.type.dims)


def _plain_log_density(rv: Variable, logp: Variable) -> Variable:
    """Return a log density as a plain tensor, its axes in the order of the outcome's."""
    from pymc.pytensorf import rvs_in_graph

    if has_dims(logp):
        dims = [dim for dim in rv.type.dims if dim in logp.type.dims]
        if tuple(dims) != tuple(rv.type.dims[: len(dims)]):
            raise UnsupportedError(
                f"{rv.name!r} has the dimensions {rv.type.dims}; put those of one outcome last."
            )
        logp = _lowered(logp.transpose(*dims))
    if rvs_in_graph([logp]):
        raise UnsupportedError(
            f"PyMC cannot write the log density of {rv.name!r}: random variables remain in it. "
            "Compute the densities yourself and use from_arrays."
        )
    return logp


def _require_observations(rv: Variable, y: Variable, logp: Variable) -> None:
    if y.ndim == 0:
        raise UnsupportedError(f"{rv.name!r} is a single number; at least a vector is needed.")
    if y.ndim - max(logp.ndim, 1) > 1:
        raise UnsupportedError(
            f"One outcome of {rv.name!r} has {y.ndim - logp.ndim} dimensions; scalars and vectors "
            "are supported."
        )


def _lowered(variable: Variable) -> Variable:
    """Write a variable of pymc.dims as a plain tensor."""
    if not has_dims(variable):
        return variable
    from pytensor.graph.rewriting.utils import rewrite_graph
    from pytensor.xtensor.basic import tensor_from_xtensor

    return rewrite_graph(tensor_from_xtensor(variable), include=("lower_xtensor",))


def has_dims(variable: Variable) -> bool:
    """Whether it is a variable of pymc.dims, with named axes."""
    return hasattr(variable.type, "dims")


def _leaves(outputs: Iterable[Variable]) -> list[tuple[Variable, Variable]]:
    """Find what a graph begins with, each with the plain tensor that is made of it first."""
    variables = variables_of(outputs)
    leaves = [(v, v) for v in variables if v.owner is None and not has_dims(v)]
    parents = [(v.owner.inputs[0], v) for v in variables if v.owner is not None]
    return leaves + [(v, tensor) for v, tensor in parents if v.owner is None and has_dims(v)]


def parts_of(rv: Variable, own: Iterable[Variable] = ()) -> tuple[str, ...]:
    """Name the outcome's distribution, and those that it is made of; others are the model's own."""
    own = set(own) - {rv}
    names = []
    stack = [rv]
    while stack:
        variable = stack.pop()
        if variable in own or variable.owner is None:
            continue
        op = variable.owner.op
        name = (getattr(op, "_print_name", None) or ("",))[0]
        if name.startswith("CustomDist"):  # whose name goes on, and whose graph is the user's
            name = "CustomDist"
            stack.extend(getattr(op, "inner_outputs", ()))
        if name:
            names.append(name)
        stack.extend(variable.owner.inputs)
    names += _lumps_in(rv)
    return tuple(dict.fromkeys(names)) or (type(rv.owner.op).__name__,)


#: What PyTensor does to random numbers that takes away their density, as names of distributions.
_LUMPED = {
    "RoundHalfToEven": "DiscreteRounding",
    "RoundHalfAwayFromZero": "DiscreteRounding",
    "Floor": "DiscreteRounding",
    "Ceil": "DiscreteRounding",
    "Trunc": "DiscreteRounding",
    "Clip": "Censored",
}


def _lumps_in(rv: Variable) -> list[str]:
    """Find out whether an outcome is made of random numbers by rounding or cutting them."""
    from pytensor.tensor.random.op import RandomVariable

    found, stack = [], [rv]
    while stack:
        variable = stack.pop()
        if variable.owner is None or isinstance(variable.owner.op, RandomVariable):
            continue  # what its parameters are made of does not matter
        op = variable.owner.op
        name = type(getattr(op, "scalar_op", None)).__name__
        found += [_LUMPED[name]] if name in _LUMPED else []
        inner = getattr(op, "inner_outputs", None)
        stack.extend(inner or variable.owner.inputs)
    return found
