"""Draws in CSV files, as CmdStan writes them or people from R do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.errors import LockquackError, ShapeError, UnsupportedError, unknown_name
from lockquack.jets import Array
from lockquack.models.observations import OBS_DIM

#: What a column of chains is called: by R's posterior, by hand.
_CHAIN = (".chain", "chain", "chain__")
#: Columns that number the draws, or that R adds.
_COUNTERS = (".iteration", ".draw", "iteration", "draw", "iter__", "draw__", "Unnamed: 0", "")
#: One element of an array: log_lik[3] (posterior), log_lik.3 (CmdStan), log_lik.3. (data.frame).
_ELEMENT = re.compile(r"(?P<name>.+?)[\[.](?P<index>\d+(?:[,.]\d+)*)[\].]?")


def is_cmdstan(path: Path) -> bool:
    """Whether CmdStan wrote this file: it begins with comments about the run."""
    with path.open(errors="replace") as file:
        return file.readline().startswith("#")


def cmdstan_run(path: Path) -> tuple[str, str]:
    """Name of the program and number of the chain, from the comments of a CmdStan file."""
    found = {"model": "", "id": ""}
    with path.open(errors="replace") as file:
        for line in file:
            if not line.startswith("#"):
                break
            key, _, value = line.lstrip("# ").partition("=")
            if key.strip() in found and not found[key.strip()]:
                found[key.strip()] = value.replace("(Default)", "").strip()
    return found["model"].removesuffix("_model"), found["id"]


def read_draws(paths: Sequence[Path], chains: int | None = None) -> dict[str, xr.DataArray]:
    """Read the variables of one model, (chain, draw, ...).

    Parameters
    ----------
    paths
        Files of one model. Several are its chains.
    chains
        Without a column of chains: how many follow each other in the rows of one file.
    """
    if any(map(is_cmdstan, paths)):
        return _read_cmdstan(paths)
    tables = [_read_table(path) for path in paths]
    if len(paths) > 1:
        return _variables([_without_counters(table) for table in tables])
    (table,) = tables
    column = next((name for name in _CHAIN if name in table), None)
    if column is not None:
        parts = [part for _, part in table.groupby(column, sort=False)]
        return _variables([_without_counters(part) for part in parts])
    rows = _without_counters(table)
    if len(rows) % (chains or 1):
        wrong = ShapeError(f"There are {len(rows)} rows, which are not {chains} equal chains.")
        raise wrong.within(str(paths[0]))
    length = len(rows) // (chains or 1)
    return _variables([rows[i : i + length] for i in range(0, len(rows), length)])


def read_data(path: Path) -> dict[str, xr.DataArray]:
    """Read outcomes and covariates: the columns of a CSV file, or the data of a Stan program."""
    if path.suffix != ".json":
        return {str(name): xr.DataArray(column, dims=OBS_DIM) for name, column in _columns(path)}
    try:
        given = json.loads(path.read_text())
    except ValueError as error:
        raise LockquackError(f"This is not JSON ({error}).").within(str(path)) from error
    if not isinstance(given, Mapping):
        wrong = LockquackError("The file must hold names and values, as data for Stan do.")
        raise wrong.within(str(path))
    arrays = {name: np.asarray(value) for name, value in given.items()}
    return {
        name: xr.DataArray(array, dims=[f"{name}_dim_{i}" for i in range(array.ndim)])
        for name, array in arrays.items()
        if array.dtype.kind in "biuf"
    }


def choose_outcome(
    data: Mapping[str, xr.DataArray], name: str | None, path: Path
) -> tuple[str, xr.DataArray]:
    """Find the outcome: by its name, or ``y``, or the only column."""
    if name is None:
        name = "y" if "y" in data else next(iter(data)) if len(data) == 1 else None
    if name is None:
        raise UnsupportedError(
            f"{path} holds {', '.join(data)}; say which is the outcome: {path}:NAME."
        )
    if name not in data:
        raise unknown_name(f"column of {path}", name, data)
    return name, data[name]


def _columns(path: Path) -> list[tuple[Any, Array]]:
    table = _read_table(path)
    numeric = table.select_dtypes("number")
    return [(name, numeric[name].to_numpy()) for name in numeric if name not in _COUNTERS]


def _read_table(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except (ValueError, UnicodeDecodeError) as error:
        wrong = LockquackError(f"This is not a table of numbers ({error}).")
        raise wrong.within(str(path)) from error
    if table.empty:
        raise LockquackError("There are no rows.").within(str(path))
    return table


def _without_counters(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=[name for name in table if name in (*_COUNTERS, *_CHAIN)])


def _read_cmdstan(paths: Sequence[Path]) -> dict[str, xr.DataArray]:
    try:
        import cmdstanpy
    except ImportError as error:
        raise ImportError(
            f"{paths[0]} was written by CmdStan, which needs cmdstanpy: "
            "pip install 'lockquack[cli]'."
        ) from error
    from lockquack.sources.stan import cmdstanpy_variables

    try:
        fit = cmdstanpy.from_csv([str(path) for path in sorted(paths)])
    except ValueError as error:
        raise LockquackError(" ".join(str(error).split())).within(str(paths[0])) from error
    variables = cmdstanpy_variables(fit)
    return {name: _labelled(name, variables[name]) for name in variables}


def _variables(chains: Sequence[pd.DataFrame]) -> dict[str, xr.DataArray]:
    """Gather columns into arrays, (chain, draw, ...)."""
    lengths = {len(chain) for chain in chains}
    if len(lengths) > 1:
        raise ShapeError(f"The chains have different lengths: {sorted(lengths)}.")
    try:
        values = np.stack([chain.to_numpy(np.float64) for chain in chains])
    except ValueError as error:
        raise LockquackError(f"The draws must be numbers ({error}).") from error
    elements: dict[str, dict[tuple[int, ...], int]] = {}
    for at, column in enumerate(map(str, chains[0].columns)):
        name, index = _element(column)
        elements.setdefault(name, {})[index] = at
    variables = {}
    for name, places in elements.items():
        shape = _shape(places)
        if shape is None:  # names that merely end like an index
            columns = {str(chains[0].columns[at]): values[:, :, at] for at in places.values()}
            variables.update(columns)
            continue
        order = [places[tuple(i + 1 for i in index)] for index in np.ndindex(*shape)]
        variables[name] = values[:, :, order].reshape(*values.shape[:2], *shape)
    return {name: _labelled(name, array) for name, array in variables.items()}


def _element(column: str) -> tuple[str, tuple[int, ...]]:
    """Split log_lik[3] into a name and an index."""
    found = _ELEMENT.fullmatch(column)
    if found is None:
        return column, ()
    return found["name"], tuple(int(i) for i in re.split("[,.]", found["index"]))


def _shape(places: Mapping[tuple[int, ...], int]) -> tuple[int, ...] | None:
    """Shape of the array that these elements, counted from 1, make up; None: they do not."""
    if len({len(index) for index in places}) > 1 or any(0 in index for index in places):
        return None
    shape = tuple(map(max, zip(*places, strict=True)))
    return shape if int(np.prod(shape)) == len(places) else None


def _labelled(name: str, values: Array) -> xr.DataArray:
    own = [f"{name}_dim_{i}" for i in range(values.ndim - 2)]
    return xr.DataArray(values, dims=["chain", "draw", *own])
