"""The methods that are compared: the paper's six, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lockquack.fitting.densities import Densities
from lockquack.jets import Array
from lockquack.methods.gather import Gathered
from lockquack.methods.method import METHODS
from lockquack.operators import Operator
from lockquack.paper.scenarios import MODELS

#: Selection by H as the paper's reference has it (Shao et al. 2019): observations are predicted
#: from those before them, not from all others.
SEQUENTIAL = "select by sequential H"
#: What the figures call the methods: the paper's in its order, then ours.
TITLES = {
    "select by ML": "selection, marginal lik.",
    "BMA": "BMA",
    "select": "selection, LOO elpd",
    "stack": "stacking",
    "select by H": "selection, H",
    SEQUENTIAL: "selection, sequential H",
    "lock": "locking, H",
    "lock by log": "locking, log score",
    "quack": "quacking, log score",
    "hybrid": "hybrid, H",
    "hoelder": "Hölder, log score",
}
OURS = ("lock by log", "quack", "hybrid", "hoelder")
PAPER = tuple(name for name in TITLES if name not in (*OURS, SEQUENTIAL))


@dataclass(frozen=True)
class FittedPool:
    """An operator with the parameters that a method found."""

    operator: Operator
    x: Array
    weights: Array  # (K,)
    converged: bool
    #: Parameters besides the weights, by name.
    parameters: Mapping[str, float] = field(default_factory=dict)


def fit(name: str, densities: Densities, log_marginal_likelihood: Array) -> FittedPool:
    """Fit a method, by the same problems and solvers as ``lq.lock`` and its relatives."""
    method = METHODS["select by H" if name == SEQUENTIAL else name].for_models(MODELS)
    told = {"log_probability": log_marginal_likelihood}
    method = replace(method, options={key: told[key] for key in method.kind.wants})
    concentration = np.full(densities.n_models, method.concentration)
    fitter = method.pose(Gathered(densities, ()), concentration)
    solution = fitter.solve()
    return FittedPool(
        method.operator,
        solution.x,
        fitter.objective.weights(solution.x),
        bool(solution.converged),
        _scalars(method.operator, solution.x),
    )


def _scalars(operator: Operator, x: Array) -> dict[str, float]:
    """Reduce the parameters to single numbers: the phase between the models, the order, w₀."""
    found = operator.parameters(x, len(MODELS))
    result = {name: float(value) for name, value in found.items() if value.ndim == 0}
    if "phases" in found:
        result["phase"] = float(np.ptp(found["phases"]))
    return result
