"""Reading and writing models and combinations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import xarray as xr

from lockquack.errors import LockquackError, LockquackWarning
from lockquack.jets import Jet
from lockquack.observations import as_observations

if TYPE_CHECKING:
    from lockquack.combination import Combination

_FORMAT = 1
_FORMAT_KEY = "lockquack_format"
#: What a file of a combination holds besides the dimensions of its observations.
_VARIABLES = (
    "weights",
    "concentration",
    "mcse",
    "unit",
    "unit_component",
    "y",
    "logp",
    "grad",
    "curv",
)

T = TypeVar("T", xr.Dataset, xr.DataTree)
Engine = Literal["zarr", "h5netcdf", "scipy"]


def read_tree(path: str | Path) -> xr.DataTree:
    """Read a NetCDF file or Zarr store with groups."""
    return _read(xr.open_datatree, _existing(path))


def write_tree(tree: xr.DataTree, path: str | Path) -> None:
    """Write groups to NetCDF, or to Zarr if the path ends in ``.zarr``."""
    _write(tree, Path(path))


def save_combination(fit: Combination, path: str | Path) -> None:
    """Write a combination to NetCDF or Zarr; see :meth:`Combination.save`."""
    over_models = {"model": list(fit.names)}
    label = fit.observations.label_components
    solution = fit.solution
    named = _variable_names(fit.observations.dims, fit.observations.component_dim)
    dataset = xr.Dataset(
        {
            named["weights"]: ("model", solution.x),
            named["concentration"]: ("model", fit.problem.concentration),
            named["mcse"]: ("model", fit.mcse),
            named["unit"]: (named["unit_component"], fit.problem.unit),
            named["y"]: fit.observations.to_dataarray(),
            named["logp"]: fit.observations.label(fit.problem.jets.logp, over_models),
            named["grad"]: label(fit.problem.jets.grad, over_models),
            named["curv"]: label(fit.problem.jets.curv, over_models),
        },
        attrs={
            _FORMAT_KEY: _FORMAT,
            "operator": fit.operator.name,
            "rule": fit.rule.name,
            "rule_options": json.dumps(fit.rule.options),
            "scores": fit.scores,
            "random_seed": json.dumps(fit.random_seed, default=int),  # of any size, or None
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
    _write(dataset, Path(path))


def load_combination(path: str | Path) -> Combination:
    """Read a combination; see :func:`lockquack.load`."""
    from lockquack import errors
    from lockquack.combination import Combination
    from lockquack.fitting import problem_for
    from lockquack.notes import Note
    from lockquack.operators import get_operator
    from lockquack.rules import RULES
    from lockquack.solvers.base import Solution

    dataset = _read(xr.open_dataset, _existing(path))
    attrs = dataset.attrs
    if attrs.get(_FORMAT_KEY) != _FORMAT:
        hint = "" if is_combination(attrs) else " Models are read by lq.from_datatree."
        raise LockquackError(
            f"{path} does not hold a combination that this version can read.{hint}"
        )
    obs_dims = json.loads(attrs["obs_dims"])
    component_dim = attrs["component_dim"] or None
    named = _variable_names(obs_dims, component_dim)
    observations = as_observations(
        dataset[named["y"]].transpose(*obs_dims, ...), component_dim=component_dim
    )
    shape = (dataset.sizes["model"], observations.n, observations.d)
    arrays = [
        dataset[named[name]].transpose("model", *obs_dims, ...).values
        for name in ("logp", "grad", "curv")
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
            jets, dataset[named["unit"]].values, dataset[named["concentration"]].values
        ),
        solution=Solution(
            x=dataset[named["weights"]].values,
            objective=np.array(attrs["objective"]),
            gap=np.array(attrs["gap"]),
            scale=np.array(attrs["objective_scale"]),
            converged=np.array(bool(attrs["converged"])),
            iterations=np.array(attrs["iterations"]),
            status=np.array(attrs["status"]),
        ),
        mcse=dataset[named["mcse"]].values,
        notes=tuple(notes),
        random_seed=json.loads(str(attrs["random_seed"])),
        models=None,
    )


def is_combination(attrs: Mapping[Any, Any]) -> bool:
    """Whether a file with these attributes holds a combination, of this version or another."""
    return _FORMAT_KEY in attrs


def _variable_names(obs_dims: Iterable[str], component_dim: str | None) -> dict[str, str]:
    """Names in the file, other than those of the dimensions, which users choose."""
    taken = {*obs_dims, component_dim}

    def free(name: str) -> str:
        return free(f"{name}_") if name in taken else name

    return {name: free(name) for name in _VARIABLES}


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    return path


def _read(opener: Callable[..., T], path: Path) -> T:
    engine = _engine(path, flat=opener is xr.open_dataset)
    # Stores with and without consolidated metadata are read alike, and neither is remarked on.
    options = {"consolidated": False} if engine == "zarr" else {}
    try:
        with opener(path, engine=engine, **options) as opened:
            return opened.load()
    except (OSError, TypeError, ValueError, KeyError) as error:
        if engine == "scipy":
            raise ImportError(
                f"{path} needs h5netcdf, if it is a NetCDF file: pip install 'lockquack[netcdf]'."
            ) from error
        raise LockquackError(
            f"{path} is not a NetCDF file or Zarr store that can be read "
            f"({type(error).__name__}: {error})."
        ) from error


def _write(data: xr.Dataset | xr.DataTree, path: Path) -> None:
    engine = _engine(path, flat=isinstance(data, xr.Dataset))
    if engine == "zarr":
        # The third format has no settled specification of strings yet.
        data.to_zarr(path, mode="w", zarr_format=2)
    elif isinstance(data, xr.Dataset):
        data.to_netcdf(path, engine=engine)
    else:
        data.to_netcdf(path, engine="h5netcdf")


def _engine(path: Path, *, flat: bool) -> Engine:
    """Choose what reads and writes a path; scipy is always there, but knows no groups."""
    if path.suffix == ".zarr" or path.is_dir():
        return _installed("zarr", "zarr", path)
    if flat and find_spec("h5netcdf") is None:
        return "scipy"
    return _installed("h5netcdf", "netcdf", path)


def _installed(engine: Engine, extra: str, path: Path) -> Engine:
    if find_spec(engine) is None:
        raise ImportError(f"{path} needs {engine}: pip install 'lockquack[{extra}]'.")
    return engine
