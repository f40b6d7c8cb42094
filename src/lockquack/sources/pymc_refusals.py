"""What makes the outcomes of a PyMC model something else than the density of its variables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from lockquack.errors import UnsupportedError
from lockquack.jets import Numeric
from lockquack.sources.pytensor_compiling import as_it_stands
from lockquack.sources.pytensor_rewriting import Variable, dependent_on, variables_of


def chosen_outcomes(model: Any, var_name: str | Sequence[str] | None) -> list[Variable]:
    """Find the observed variables that are predicted, by name or because there is only one."""
    known = {rv.name: rv for rv in model.observed_RVs}
    if not known:
        hint = (
            " Its potentials may hold the likelihood, but they do not tell which value was "
            "observed: write it as pm.CustomDist(..., logp=..., observed=y)."
            if model.potentials
            else ""
        )
        raise UnsupportedError(f"The model has no observed variable.{hint}")
    if var_name is None and len(known) == 1:
        return list(known.values())
    names = [var_name] if var_name is None or isinstance(var_name, str) else list(var_name)
    found = []
    for name in names:
        here = [each for each in (name, f"{name}_observed") if each in known]  # where some lack
        if not here:
            got = "" if name is None else f", not {name!r}"
            raise UnsupportedError(
                f"Say which observed variable by var_name=: one of {', '.join(sorted(known))}"
                f"{got}. Several that describe the same observations are one outcome, a vector: "
                "var_name=[...]."
            )
        found.append(known[here[0]])
    if not found or len(set(found)) < len(found):
        raise UnsupportedError(f"var_name= must name each variable once; got {var_name!r}.")
    return found


def require_separate(model: Any, rv: Variable, among: Sequence[Variable]) -> None:
    """Refuse what makes p(y | θ) something else than the density of the chosen variables."""
    value = model.rvs_to_values[rv]
    inside = [type(v.owner.op).__name__ for v in variables_of([rv, value]) if v.owner is not None]
    if any("Minibatch" in name for name in inside):
        raise UnsupportedError(
            f"{rv.name!r} is observed in minibatches, or scaled by total_size. Build the model "
            "with all data, under the same names, and give that with the same posterior."
        )
    if any("PartialObserved" in name for name in inside):
        raise UnsupportedError(
            f"Components of vector outcomes of {rv.name!r} are missing and imputed, so an outcome "
            "is partly parameter. Drop incomplete outcomes before sampling."
        )
    if any("Simulator" in name for name in inside):
        raise UnsupportedError(f"{rv.name!r} is simulated and has no density.")
    observed = np.asarray(value.eval())
    for other in model.potentials:
        if _depends_on(other, rv) or holds_copy(other, observed, model.basic_RVs):
            raise UnsupportedError(
                f"{other.name!r} involves the outcome {rv.name!r}, so the density of an outcome "
                "is not that of this variable alone. Write all that involves the outcome as one "
                "pm.CustomDist(..., logp=..., observed=...)."
            )
    for other in model.basic_RVs:
        if other not in among and (_depends_on(other, rv) or _repeats(model, other, rv)):
            jointly = [each.name for each in (*among, other)]
            raise UnsupportedError(
                f"{other.name!r} involves the outcome {rv.name!r}, so the density of an outcome "
                "is not that of this variable alone. "
                + (
                    f"Score both jointly: var_name={jointly!r}."
                    if other in model.observed_RVs
                    else "Write all that involves the outcome as one pm.CustomDist(..., "
                    "logp=..., observed=...)."
                )
            )


def not_scored(model: Any) -> tuple[str, ...]:
    """Name the potentials that hold data besides the parameters, as those of censored outcomes."""
    return tuple(each.name for each in model.potentials if _holds_data(each, model.basic_RVs))


def holds_copy(
    other: Variable,
    observed: Numeric,
    rvs: Sequence[Variable],
    *,
    linked: Variable | None = None,
) -> bool:
    """Whether a graph holds the values of an outcome, as a constant or in a container.

    What its random variables depend on does not count, nor does a container that is linked to
    the outcome.
    """
    return observed.size > 1 and any(
        values.shape == observed.shape and np.array_equal(values, observed)
        for variable, values in arrays_of([other], {rv for rv in rvs if rv is not other})
        if variable is not linked
    )


def arrays_of(
    outputs: Iterable[Variable], until: Collection[Variable] = ()
) -> list[tuple[Variable, Numeric]]:
    """Return the data of a graph: constants and containers, with their values."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.basic import Constant

    found = []
    for variable in variables_of(outputs, until):
        if isinstance(variable, Constant) and isinstance(variable.data, np.ndarray):
            found.append((variable, variable.data))
        elif isinstance(variable, SharedVariable):
            value = variable.get_value(borrow=True)
            if isinstance(value, np.ndarray):
                found.append((variable, value))
    return found


def data_in(output: Variable) -> list[Numeric]:
    """Return all arrays of data in a graph: as they were given, and computed of these alone."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.basic import Constant
    from pytensor.tensor.random.type import RandomType

    variables = variables_of([output])
    free = [
        v
        for v in variables
        if v.owner is None
        and (not isinstance(v, Constant | SharedVariable) or isinstance(v.type, RandomType))
    ]
    on_free = dependent_on(free, [output])
    computed = [
        v
        for v in variables
        if v.owner is not None and v not in on_free and getattr(v, "ndim", 0) > 0
    ]
    given = [values for _, values in arrays_of([output])]
    return given + [np.asarray(values) for values in as_it_stands([], computed)()]


def _repeats(model: Any, other: Variable, rv: Variable) -> bool:
    """Whether another outcome is given the values of this one, not as a variable but as data."""
    if other not in model.observed_RVs:
        return False
    observed = np.asarray(model.rvs_to_values[rv].eval())
    return np.unique(observed).size > 3 and holds_copy(other, observed, model.basic_RVs)


def _depends_on(other: Variable, rv: Variable) -> bool:
    return other is not rv and any(v is rv for v in variables_of([other]))


def _holds_data(potential: Variable, rvs: Sequence[Variable]) -> bool:
    """Whether a potential is made of arrays that are not just indices or shapes."""
    graph = variables_of([potential], set(rvs))
    large = [v for v, values in arrays_of([potential], set(rvs)) if values.size > 1]
    return any(not _is_index(v, graph) for v in large)


def _is_index(variable: Variable, graph: Sequence[Variable]) -> bool:
    """Whether an array is used only to say which elements of others are meant, or how many."""
    from pytensor.scalar.basic import Cast
    from pytensor.tensor.basic import Alloc
    from pytensor.tensor.elemwise import DimShuffle, Elemwise
    from pytensor.tensor.shape import Reshape, SpecifyShape

    names = {variable}
    for each in graph:
        if each.owner is None or not names & set(each.owner.inputs):
            continue
        op, inputs = each.owner.op, each.owner.inputs
        if isinstance(op, DimShuffle) or (
            isinstance(op, Elemwise) and isinstance(op.scalar_op, Cast)
        ):
            names.add(each)
        elif inputs[0] in names or not (
            "Subtensor" in type(op).__name__ or isinstance(op, Alloc | Reshape | SpecifyShape)
        ):
            return False
    return True
