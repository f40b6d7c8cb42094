"""Reading and writing combinations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from lockquack.errors import LockquackError, LockquackWarning
from lockquack.files.formats import FORMAT_KEY, is_combination, read_dataset, write
from lockquack.fitting.base import Problem
from lockquack.fitting.evidence import Evidence
from lockquack.fitting.formulas import ModelAveraging, PseudoBMAPlus
from lockquack.fitting.problems import FORMULAS, problem_for
from lockquack.jets import Array, Jet
from lockquack.models.observations import as_observations
from lockquack.operators import describe, from_description
from lockquack.quadrature.nodes import Nodes, join_nodes
from lockquack.rules import RULES
from lockquack.solvers.base import Solution

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

_FORMAT = 2
#: What a file of a combination holds besides the dimensions of its observations.
_VARIABLES = (
    "parameters",
    "concentration",
    "mcse",
    "y",
    "logp",
    "grad",
    "curv",
    "node_logp",
    "node_log_measure",
    "neighbours",
    "log_evidence",
)

#: Dimensions of the file, named so that no observation dimension is called the same.
_PARAMETER, _OBS, _PART, _NODE, _NEIGHBOUR = (
    f"lockquack_{name}" for name in ("parameter", "observation", "part", "node", "neighbour")
)


def save_combination(fit: Combination, path: str | Path) -> None:
    """Write a combination to NetCDF or Zarr; see :meth:`Combination.save`."""
    solution = fit.solution
    named = _variable_names(fit.observations.dims, fit.observations.component_dim)
    dataset = xr.Dataset(
        {named[name]: value for name, value in _arrays(fit).items()},
        coords={"model": list(fit.names)},
        attrs={
            FORMAT_KEY: _FORMAT,
            "operator": json.dumps(describe(fit.operator)),
            "rule": fit.rule.name,
            "rule_options": json.dumps(fit.rule.options),
            "scores": fit.scores,
            "method": fit.method,
            "random_seed": json.dumps(fit.random_seed, default=int),  # of any size, or None
            "component_dim": fit.observations.component_dim or "",
            "obs_dims": json.dumps(fit.observations.dims),
            "objective": float(solution.objective),
            "gap": float(solution.gap),
            "objective_scale": float(solution.scale),
            "converged": int(bool(solution.converged)),
            "iterations": int(solution.iterations),
            "status": str(solution.status),
            "starts": json.dumps(solution.starts),
            "stationarity": solution.stationarity,
            "notes": json.dumps([[note.category.__name__, note.message] for note in fit.notes]),
        },
    )
    write(dataset, path)


def _arrays(fit: Combination) -> dict[str, Any]:
    """All arrays of a combination; those over observations are flat, whatever the user's grid."""
    evidence = fit.problem.evidence
    arrays: dict[str, Any] = {
        "parameters": (_PARAMETER, fit.solution.x),
        "concentration": ("model", fit.problem.concentration),
        "mcse": ("model", fit.mcse),
        "y": fit.observations.to_dataarray(),
        "logp": (("model", _OBS), evidence.jets.logp),
    }
    if evidence.jets.grad.size:
        arrays["grad"] = (("model", _OBS, _PART), evidence.jets.grad)
        arrays["curv"] = (("model", _OBS, _PART), evidence.jets.curv)
    if evidence.nodes:
        nodes = join_nodes(evidence.nodes)
        arrays["node_logp"] = (("model", _NODE, _OBS), nodes.logp)
        arrays["node_log_measure"] = ((_NODE, _OBS), nodes.log_measure)
    if evidence.neighbours is not None:
        arrays["neighbours"] = (("model", _NEIGHBOUR, _OBS), evidence.neighbours)
    if isinstance(fit.problem, ModelAveraging):
        arrays["log_evidence"] = ("model", fit.problem.log_evidence)
    return arrays


def load_combination(path: str | Path) -> Combination:
    """Read a combination; see :func:`lockquack.load`."""
    from lockquack import errors
    from lockquack.combination.combination import Combination
    from lockquack.remarks.notes import Note

    dataset = read_dataset(path)
    attrs = dataset.attrs
    if attrs.get(FORMAT_KEY) != _FORMAT:
        hint = "" if is_combination(attrs) else " Models are read by lq.from_datatree."
        raise LockquackError(
            f"{path} does not hold a combination that this version can read.{hint}"
        )
    obs_dims = json.loads(attrs["obs_dims"])
    component_dim = attrs["component_dim"] or None
    named = _variable_names(obs_dims, component_dim)
    arrays = {name: dataset[key] for name, key in named.items() if key in dataset.variables}
    starts = json.loads(attrs["starts"])
    return Combination(
        names=tuple(map(str, dataset["model"].values)),
        scores=attrs["scores"],
        method=attrs["method"],
        observations=as_observations(
            arrays["y"].transpose(*obs_dims, ...), component_dim=component_dim
        ),
        problem=_problem(attrs, {name: array.values for name, array in arrays.items()}),
        solution=Solution(
            x=arrays["parameters"].values,
            objective=np.array(attrs["objective"]),
            gap=np.array(attrs["gap"]),
            scale=np.array(attrs["objective_scale"]),
            converged=np.array(bool(attrs["converged"])),
            iterations=np.array(attrs["iterations"]),
            status=np.array(attrs["status"]),
            starts=None if starts is None else tuple(starts),
            stationarity=float(attrs["stationarity"]),
        ),
        mcse=arrays["mcse"].values,
        notes=tuple(
            Note(getattr(errors, category, LockquackWarning), message)
            for category, message in json.loads(attrs["notes"])
        ),
        random_seed=json.loads(str(attrs["random_seed"])),
        models=None,
    )


def _problem(attrs: Mapping[str, Any], arrays: Mapping[str, Array]) -> Problem:
    """Set up the problem of a stored combination again."""
    operator = from_description(json.loads(attrs["operator"]))
    rule = RULES[attrs["rule"]].from_options(json.loads(attrs["rule_options"]))
    bare = np.zeros((*arrays["logp"].shape, 0))
    jets = Jet(arrays["logp"], arrays.get("grad", bare), arrays.get("curv", bare))
    nodes: tuple[Nodes, ...] = ()
    if "node_logp" in arrays:
        nodes = (Nodes(arrays["node_logp"], arrays["node_log_measure"]),)
    evidence = Evidence(jets, nodes, arrays.get("neighbours"))
    kind = FORMULAS[attrs["method"]] if attrs["method"] else problem_for(operator, rule)
    options: dict[str, Any] = {}
    if issubclass(kind, ModelAveraging):
        options["log_evidence"] = arrays["log_evidence"]
    if issubclass(kind, PseudoBMAPlus):
        options["random_seed"] = json.loads(str(attrs["random_seed"]))
    return kind(operator, rule, evidence, arrays["concentration"], **options)


def _variable_names(obs_dims: Iterable[str], component_dim: str | None) -> dict[str, str]:
    """Names in the file, other than those of the dimensions, which users choose."""
    taken = {*obs_dims, component_dim}

    def free(name: str) -> str:
        return free(f"{name}_") if name in taken else name

    return {name: free(name) for name in _VARIABLES}
