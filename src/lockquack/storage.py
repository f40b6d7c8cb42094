"""Reading and writing models and combinations."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from lockquack.errors import LockquackError, LockquackWarning
from lockquack.jets import Jet
from lockquack.observations import as_observations

if TYPE_CHECKING:
    from lockquack.combination import Combination

_FORMAT = 1


def read_tree(path: str | Path) -> xr.DataTree:
    """Read a NetCDF file or Zarr store with groups."""
    path = _existing(path)
    engine = _tree_engine(path)
    with xr.open_datatree(path, engine=engine) as tree:
        return tree.load()


def write_tree(tree: xr.DataTree, path: str | Path) -> None:
    """Write groups to NetCDF, or to Zarr if the path ends in ``.zarr``."""
    path = Path(path)
    if _tree_engine(path) == "zarr":
        tree.to_zarr(path, mode="w")
    else:
        tree.to_netcdf(path, engine="h5netcdf")


def save_combination(fit: Combination, path: str | Path) -> None:
    """Write a combination to NetCDF or Zarr; see :meth:`Combination.save`."""
    over_models = {"model": list(fit.names)}
    label = fit.observations.label_components
    solution = fit.solution
    dataset = xr.Dataset(
        {
            "weights": ("model", solution.x),
            "concentration": ("model", fit.problem.concentration),
            "mcse": ("model", fit.mcse),
            "unit": ("unit_component", fit.problem.unit),
            "y": fit.observations.to_dataarray(),
            "logp": fit.observations.label(fit.problem.jets.logp, over_models),
            "grad": label(fit.problem.jets.grad, over_models),
            "curv": label(fit.problem.jets.curv, over_models),
        },
        attrs={
            "lockquack_format": _FORMAT,
            "operator": fit.operator.name,
            "rule": fit.rule.name,
            "rule_options": json.dumps(fit.rule.options),
            "scores": fit.scores,
            "random_seed": fit.random_seed,
            "component_dim": fit.observations.component_dim or "",
            "obs_dims": json.dumps(fit.observations.dims),
            "objective": float(solution.objective),
            "gap": float(solution.gap),
            "objective_scale": float(solution.scale),
            "converged": int(bool(solution.converged)),
            "iterations": int(solution.iterations),
            "status": str(solution.status),
            "notes": json.dumps([[note.category.__name__, note.message] for note in fit.notes]),
        },
    )
    path = Path(path)
    if path.suffix == ".zarr":
        _require("zarr")
        dataset.to_zarr(path, mode="w")
    else:
        dataset.to_netcdf(path)


def load_combination(path: str | Path) -> Combination:
    """Read a combination; see :func:`lockquack.load`."""
    from lockquack import errors
    from lockquack.combination import Combination
    from lockquack.fitting import problem_for
    from lockquack.notes import Note
    from lockquack.operators import get_operator
    from lockquack.rules import RULES
    from lockquack.solvers.base import Solution

    path = _existing(path)
    engine = "zarr" if path.is_dir() else None
    with xr.open_dataset(path, engine=engine) as opened:
        dataset = opened.load()
    attrs = dataset.attrs
    if attrs.get("lockquack_format") != _FORMAT:
        raise LockquackError(f"{path} does not hold a combination that this version can read.")
    obs_dims = json.loads(attrs["obs_dims"])
    component_dim = attrs["component_dim"] or None
    observations = as_observations(
        dataset["y"].transpose(*obs_dims, ...), component_dim=component_dim
    )
    shape = (dataset.sizes["model"], observations.n, observations.d)
    arrays = [
        dataset[name].transpose("model", *obs_dims, ...).values for name in ("logp", "grad", "curv")
    ]
    jets = Jet(arrays[0].reshape(shape[:2]), arrays[1].reshape(shape), arrays[2].reshape(shape))
    operator = get_operator(attrs["operator"])
    rule = RULES[attrs["rule"]].from_options(json.loads(attrs["rule_options"]))
    notes = [
        Note(getattr(errors, category, LockquackWarning), message)
        for category, message in json.loads(attrs["notes"])
    ]
    return Combination(
        names=tuple(map(str, dataset["model"].values)),
        operator=operator,
        rule=rule,
        scores=attrs["scores"],
        observations=observations,
        problem=problem_for(operator, rule)(
            jets, dataset["unit"].values, dataset["concentration"].values
        ),
        solution=Solution(
            x=dataset["weights"].values,
            objective=np.array(attrs["objective"]),
            gap=np.array(attrs["gap"]),
            scale=np.array(attrs["objective_scale"]),
            converged=np.array(bool(attrs["converged"])),
            iterations=np.array(attrs["iterations"]),
            status=np.array(attrs["status"]),
        ),
        mcse=dataset["mcse"].values,
        notes=tuple(notes),
        random_seed=int(attrs["random_seed"]),
        models=None,
    )


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    return path


def _tree_engine(path: Path) -> str:
    engine = "zarr" if path.suffix == ".zarr" or path.is_dir() else "h5netcdf"
    _require(engine)
    return engine


def _require(engine: str) -> None:
    extra = {"zarr": "zarr", "h5netcdf": "netcdf"}[engine]
    if find_spec(engine) is None:
        raise ImportError(f"This needs {engine}: pip install 'lockquack[{extra}]'.")
