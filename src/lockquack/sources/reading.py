"""Whatever users put into a dict of models, as models: the one place that reads it.

A model of this library stays as it is. An InferenceData or DataTree of ArviZ, the path of a NetCDF
file or Zarr store, and an ``ELPDData`` become models with what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from lockquack.errors import LockquackError, ParameterError, UnsupportedError, naming
from lockquack.models.containers import LOGP_GROUP
from lockquack.models.model import Model
from lockquack.sources.datatree import read_container
from lockquack.sources.elpd import from_elpd, is_elpd
from lockquack.words import MAKE_MODEL

#: How to make a model of arrays, whosever they are.
_OF_ARRAYS = dict.fromkeys(
    ("numpy", "dask", "jax", "xarray", "pandas"),
    "lq.from_arrays(logp=..., y=y) of its log densities, (chain, draw, observation)",
)
#: Columns of the table that ArviZ makes of several models, in any of its versions.
_COMPARED = {"rank", "weight", "se", "dse"}


def as_models(models: Any) -> dict[str, Model]:
    """Read a dict of name → model, InferenceData, DataTree, path or ELPDData.

    A DataTree whose groups are such containers is a dict of them too.
    """
    given = _named(models)
    if not given:
        raise LockquackError("There are no models to combine.")
    for name in given:
        if not isinstance(name, str) or not name or name.startswith("[") or not _is_text(name):
            raise LockquackError(
                "Model names must be strings that can be written in UTF-8, not empty and not "
                f"beginning with '['; got {name!r}."
            )
    found = {}
    for name, each in given.items():
        if not _is_readable(each):
            raise LockquackError(f"Model {name!r} is a {type(each).__name__}. {_remedy(each)}")
        with naming(f"Model {name!r}"):
            found[name] = as_model(each)
    return found


def _is_text(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def as_model(
    given: Any,
    *,
    var_name: str | Sequence[str] | None = None,
    y: Any = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    """Read one model; see :func:`lockquack.from_datatree` for the options.

    Outcomes are read if they are there; log scores do without.
    """
    if isinstance(given, Model):
        return given
    if is_elpd(given):
        return from_elpd(given, y=y, transform=transform).with_weights(weights)
    if not _is_readable(given):
        raise ParameterError(
            "This must be one model, as lockquack makes it, an InferenceData, a DataTree, an "
            "ELPDData, or the path of a NetCDF file or Zarr store; got "
            f"{type(given).__name__}. {_remedy(given)}"
        )
    if isinstance(given, str | Path):
        _require_one_file(Path(given))
    return read_container(given, var_name, y, transform, weights, outcomes_needed=False)


def _is_readable(given: Any) -> bool:
    return isinstance(given, Model | str | Path) or is_container(given) or is_elpd(given)


def is_container(given: Any) -> bool:
    """Whether this is a DataTree, or the InferenceData of ArviZ before 1.0."""
    return isinstance(given, xr.DataTree) or any(
        each.__name__ == "InferenceData" for each in type(given).__mro__
    )


def _named(models: Any) -> Mapping[Any, Any]:
    """Return models by name, or say why these are none."""
    if isinstance(models, xr.DataTree) and models.children:
        inside = models.children
        if all(LOGP_GROUP in child.children for child in inside.values()):
            return inside
    # Containers of ArviZ are mappings too, from names of groups.
    if isinstance(models, Mapping) and not is_container(models) and not is_elpd(models):
        return models
    raise LockquackError(
        f"models must be a dict of name → model, got {type(models).__name__}. {_hint(models)}"
        "Example: lock({'a': from_arrays(...), 'b': from_family(...)}) or stack({'a': idata, "
        "'b': 'b.nc'})."
    )


def _require_one_file(path: Path) -> None:
    """Refuse draws that come without what they are of."""
    folder = path.is_dir() and not any((path / name).exists() for name in _ZARR)
    if path.suffix == ".csv" or (folder and any(path.glob("*.csv"))):
        raise UnsupportedError(
            f"{path} holds draws as CSV, without the outcomes that they are of. Use "
            "lq.from_cmdstanpy(cmdstanpy.from_csv(path), y=y), or the command line: lockquack "
            f"weights {path} --y FILE:COLUMN."
        )


#: What a Zarr store holds beside its groups.
_ZARR = (".zgroup", ".zmetadata", "zarr.json")


def _hint(given: Any) -> str:
    """Say what to give in place of something that ArviZ made of models, or a part of one."""
    if isinstance(given, pd.DataFrame) and set(given.columns) >= _COMPARED:
        return (
            "A table of az.compare has no draws: give the dict that it was made of, as in "
            "lq.stack(idatas), whose weights are like those of the table. "
        )
    if isinstance(given, xr.Dataset) or (isinstance(given, xr.DataTree) and not given.is_root):
        return "If it is a group of a container, such as idata.log_likelihood, give all of idata. "
    return ""


def _remedy(given: Any) -> str:
    """Say how to make a model of something else, or what to give in its place."""
    hint = _hint(given)
    if hint:
        return hint.strip()
    library = type(given).__module__.split(".")[0]
    how = {**MAKE_MODEL, **_OF_ARRAYS, "lockquack": "lq.Model(source)"}.get(library)
    return f"Make it a model first: {how or 'by lq.from_pymc, lq.from_family or their like'}."
