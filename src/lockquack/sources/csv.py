"""Draws in CSV files, as CmdStan writes them or people from R do."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.errors import LockquackError, ShapeError, UnsupportedError, unknown_name
from lockquack.jets import Array
from lockquack.models.observations import OBS_DIM
from lockquack.numeric import and_more
from lockquack.sources.formula import COUNTED_FROM

#: What a column of chains is called: by R's posterior, by hand.
_CHAIN = (".chain", "chain", "chain__")
#: Columns that number the draws, or that R adds.
_COUNTERS = (".iteration", ".draw", "iteration", "draw", "iter__", "draw__", "Unnamed: 0", "")
#: One element of an array: log_lik[3] (posterior), log_lik.3 (CmdStan), log_lik.3. (data.frame).
_ELEMENT = re.compile(r"(?P<name>.+?)[\[.](?P<index>\d+(?:[,.]\d+)*)[\].]?")


#: What CmdStan writes between the warm-up and the draws.
_ADAPTED = "# Adaptation terminated"
#: The column in which CmdStan tells the step size, which no longer changes after the warm-up.
_STEP_SIZE = "stepsize__"


def is_cmdstan(path: Path) -> bool:
    """Whether CmdStan wrote this file: it begins with comments about the run."""
    with path.open(errors="replace") as file:
        return file.readline().startswith("#")


def cmdstan_run(path: Path) -> tuple[str, str]:
    """Name of the program and number of the chain, from the comments of a CmdStan file."""
    settings = _settings(path)
    return settings.get("model", "").removesuffix("_model"), settings.get("id", "")


def _settings(path: Path) -> dict[str, str]:
    """Read the comments with which CmdStan begins, ``key = value``; the first of a key counts."""
    found: dict[str, str] = {}
    with path.open(errors="replace") as file:
        for line in file:
            if not line.startswith("#"):
                break
            key, sign, value = line.lstrip("# ").partition("=")
            if sign:
                found.setdefault(key.strip(), value.replace("(Default)", "").strip())
    return found


def read_draws(paths: Sequence[Path], chains: int | None = None) -> dict[str, xr.DataArray]:
    """Read the variables of one model, (chain, draw, ...).

    Elements of arrays are counted from 1, as the names of their columns are.

    Parameters
    ----------
    paths
        Files of one model. Several are its chains.
    chains
        Without a column of chains: how many follow each other in the rows of one file.
    """
    if len({_header(path) for path in paths}) == 1 and all(map(_is_complete_run, paths)):
        return _read_cmdstan(paths)
    tables = {path: _read_chain(path) for path in paths}
    if len(tables) > 1:
        return _variables(_alike(tables))
    ((path, table),) = tables.items()
    column = next((name for name in _CHAIN if name in table), None)
    if column is not None:
        parts = {f"chain {label}": part for label, part in table.groupby(column, sort=False)}
        return _variables({name: _without_counters(part) for name, part in parts.items()})
    rows = _without_counters(table)
    if len(rows) % (chains or 1):
        raise ShapeError(
            f"There are {len(rows)} rows, which cannot be {chains} chains of the same length.",
            places=(str(path),),
        )
    length = len(rows) // (chains or 1)
    starts = range(0, len(rows), length)
    return _variables({f"rows from {i}": rows[i : i + length] for i in starts})


def _header(path: Path) -> str:
    """Read the line with the names of the columns."""
    with path.open(errors="replace") as file:
        return next((line.strip() for line in file if not line.startswith("#")), "")


def _is_complete_run(path: Path) -> bool:
    """Whether CmdStan wrote the file and nobody took away its comments; then cmdstanpy reads it."""
    settings = _settings(path)
    return "model" in settings and settings.get("method") != "generate_quantities"


def _read_chain(path: Path) -> pd.DataFrame:
    """Read the draws of a file, without those of the warm-up that were saved."""
    table = _read_table(path, comments=True)
    draws = table[_rows_of_warmup(path, table) :]
    if draws.empty:
        raise LockquackError("All rows are of the warm-up; there are no draws.").within(str(path))
    missing = draws[-2:].isna().to_numpy()
    if missing[-1, -1] and not missing[0, -1]:
        wrong = LockquackError(
            f"The last line is not complete: {missing[-1].sum()} of {draws.shape[1]} values are "
            "missing. The run was stopped or goes on; leave the line out, or wait."
        )
        raise wrong.within(str(path))
    return draws


def _rows_of_warmup(path: Path, table: pd.DataFrame) -> int:
    """Count the rows that CmdStan wrote before its adaptation ended.

    A comment says where that was. Where comments are gone, the step size tells: it is the same in
    all draws, and changes from row to row before.
    """
    rows = -1  # the first line has the names of the columns
    with path.open(errors="replace") as file:
        for line in file:
            if line.startswith(_ADAPTED):
                return max(rows, 0)
            rows += not line.startswith("#")
    if _STEP_SIZE not in table:
        return 0
    steps = table[_STEP_SIZE].to_numpy()
    changes = np.flatnonzero(np.diff(steps) != 0)
    # A step size that is still another one in the last rows is drawn at random for each.
    is_settled = changes.size and changes[-1] + 1 < len(steps) - 1
    return int(changes[-1]) + 1 if is_settled else 0


def _alike(tables: Mapping[Path, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Put the columns of all chains into the same order; refuse a file that has others."""
    chains = {path: _without_counters(table) for path, table in tables.items()}
    kinds = Counter(frozenset(map(str, chain.columns)) for chain in chains.values())
    usual = kinds.most_common(1)[0][0]
    example = next(path for path, chain in chains.items() if set(map(str, chain)) == usual)
    for path, chain in chains.items():
        other = sorted(usual.symmetric_difference(map(str, chain.columns)))
        if other:
            where = "only here" if other[0] in set(map(str, chain.columns)) else "not here"
            raise ShapeError(
                f"{path} is no chain of the same model as {example}: the column {other[0]!r} is "
                f"{where}{and_more(len(other) - 1)}. Move the file away, or say which files belong "
                "together: NAME='FILES*.csv'."
            )
    order = list(chains[example].columns)
    return {str(path): chain[order] for path, chain in chains.items()}


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


def read_columns(path: Path, names: Sequence[str]) -> dict[str, pd.Series[Any]]:
    """Read columns of any kind of a CSV file, by name."""
    table = _read_table(path)
    unknown = [name for name in names if name not in table]
    if unknown:
        raise unknown_name(f"column of {path}", unknown[0], [str(name) for name in table])
    return {name: table[name] for name in names}


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


def _read_table(path: Path, *, comments: bool = False) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, comment="#" if comments else None)
    except (ValueError, UnicodeDecodeError) as error:
        wrong = LockquackError(f"This is not a table of numbers ({error}).")
        raise wrong.within(str(path)) from error
    if table.empty:
        raise LockquackError("There are no rows.").within(str(path))
    if table.shape[1] == 1 and ";" in str(table.columns[0]):
        wrong = LockquackError("Its columns are separated by ';'. Write them with commas.")
        raise wrong.within(str(path))
    return table


def _without_counters(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out what counts the draws, and what the sampler says about itself (``lp__``)."""
    known = (*_COUNTERS, *_CHAIN)
    left_out = [name for name in table if name in known or str(name).endswith("__")]
    return table.drop(columns=left_out)


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
        at = next((path for path in paths if str(path) in str(error)), paths[0])
        wrong = LockquackError(
            "cmdstanpy cannot read it: ", " ".join(str(error.__cause__ or error).split())
        )
        raise wrong.within(str(at)) from error
    variables = cmdstanpy_variables(fit)
    return {name: _labelled(name, variables[name]) for name in variables}


def _variables(chains: Mapping[str, pd.DataFrame]) -> dict[str, xr.DataArray]:
    """Gather columns into arrays, (chain, draw, ...)."""
    if len({len(chain) for chain in chains.values()}) > 1:
        each = ", ".join(f"{name}: {len(chain)}" for name, chain in chains.items())
        raise ShapeError(
            f"The chains have different numbers of draws ({each}). Cut the longer ones, or wait "
            "for the others to end."
        )
    try:
        values = np.stack([chain.to_numpy(np.float64) for chain in chains.values()])
    except ValueError as error:
        raise LockquackError(f"The draws must be numbers ({error}).") from error
    _require_different(list(chains), values)
    names = [str(column) for column in next(iter(chains.values())).columns]
    elements: dict[str, dict[tuple[int, ...], int]] = {}
    for at, column in enumerate(names):
        name, index = _element(column)
        elements.setdefault(name, {})[index] = at
    variables = {}
    for name, places in elements.items():
        shape = _shape(places)
        if shape is None:  # names that merely end like an index
            variables.update({names[at]: values[:, :, at] for at in places.values()})
            continue
        order = [places[tuple(i + 1 for i in index)] for index in np.ndindex(*shape)]
        variables[name] = values[:, :, order].reshape(*values.shape[:2], *shape)
    return {name: _labelled(name, array) for name, array in variables.items()}


def _require_different(names: Sequence[str], values: Array) -> None:
    """Refuse chains that are copies of each other."""
    for i, j in combinations(range(len(names)), 2):
        if np.ptp(values[i], axis=0).any() and np.array_equal(values[i], values[j], equal_nan=True):
            raise LockquackError(
                f"{names[i]} and {names[j]} hold the same draws: one is a copy. Give each chain "
                "once."
            )


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
    attrs = {COUNTED_FROM: 1}
    return xr.DataArray(values, dims=["chain", "draw", *own], attrs=attrs)
