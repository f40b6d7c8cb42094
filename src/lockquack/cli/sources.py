"""From files, and what the command line says about them, to models."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xarray as xr

from lockquack.cli.files import ModelFiles, find_sources
from lockquack.errors import LockquackError, UnsupportedError, unknown_name
from lockquack.families import get_family
from lockquack.files.formats import read_tree
from lockquack.models.containers import LOGP_GROUP, log_marginal_likelihood, stored_log_likelihood
from lockquack.models.model import Model
from lockquack.sources.arrays import from_arrays
from lockquack.sources.csv import choose_outcome, read_data, read_draws
from lockquack.sources.datatree import choose_variable, from_datatree
from lockquack.sources.family import from_family
from lockquack.sources.formula import Formula, on_observations, parse_formula
from lockquack.sources.stan import CURV, GRAD, LOG_LIK, compare_log_lik, generated_quantities

_OBSERVED = "observed_data"
_FAMILY = re.compile(r"(?:(?P<model>[^=()]+)=)?(?P<formula>\w+(?:\(.*\))?)", re.DOTALL)


@dataclass(frozen=True)
class Outcome:
    """Observed outcomes from a file of their own, and what else is in it."""

    name: str
    y: xr.DataArray
    data: Mapping[str, xr.DataArray]


def read_models(options: Namespace) -> dict[str, Model]:
    """Read the models that the options of a command name."""
    sources = find_sources(options.files)
    formulas = read_formulas(options.family, [source.name for source in sources])
    outcome = read_outcome(options.y)
    return {
        source.name: read_model(source, formulas.get(source.name), outcome, options)
        for source in sources
    }


def read_model(
    source: ModelFiles, formula: Formula | None, outcome: Outcome | None, options: Namespace
) -> Model:
    """Read one model."""
    with _naming(source):
        if source.is_csv:
            return _from_csv(source, formula, outcome, options)
        return _from_tree(source.paths[0], formula, outcome, options)


def read_formulas(given: Sequence[str], names: Sequence[str]) -> dict[str, Formula]:
    """Read ``[NAME=]FAMILY``; one without a name is for all models that have none of their own."""
    formulas: dict[str, Formula] = {}
    for text in given:
        parts = _FAMILY.fullmatch(text.strip())
        # What is not of this form is explained by the error of parse_formula.
        model, formula = (parts["model"], parts["formula"]) if parts else (None, text)
        if model is not None and model not in names:
            raise unknown_name("model", model, names)
        parsed = parse_formula(formula)
        if model is not None:
            formulas[model] = parsed
        else:
            formulas = {name: formulas.get(name, parsed) for name in names}
    return formulas


def read_outcome(given: str | None) -> Outcome | None:
    """Read ``FILE[:NAME]``."""
    if given is None:
        return None
    path, name = Path(given), None
    if not path.exists() and ":" in given:
        file, name = given.rsplit(":", 1)
        path = Path(file)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    data = read_data(path)
    name, y = choose_outcome(data, name, path)
    return Outcome(name, y, data)


def _from_csv(
    source: ModelFiles, formula: Formula | None, outcome: Outcome | None, options: Namespace
) -> Model:
    if outcome is None:
        raise UnsupportedError(
            "A CSV file of draws does not hold the observed outcomes. Give them: --y FILE:COLUMN."
        )
    draws = read_draws(source.paths, options.chains)
    log_lik = options.var_name or LOG_LIK
    if formula is not None:
        model = _by_formula(formula, outcome.y, {**outcome.data, **draws})
        if log_lik in draws and not options.ignore_log_lik:
            compare_log_lik(model.source, log_lik, draws[log_lik].values)
        return model
    if log_lik not in draws and options.var_name is None:
        draws = _matrix(draws, outcome.y.sizes[outcome.y.dims[0]]) or draws
    found = generated_quantities(draws, log_lik, GRAD, CURV)
    values: dict[str, Any] = {name: array.values for name, array in found.items()}
    return from_arrays(y=outcome.y.values, **values)


def _matrix(draws: Mapping[str, xr.DataArray], n: int) -> dict[str, xr.DataArray] | None:
    """Take a table of as many columns as there are outcomes for the log densities, in order."""
    columns = [array for array in draws.values() if array.ndim == 2]
    if len(columns) == n == len(draws):
        return {LOG_LIK: xr.concat(columns, "obs").transpose("chain", "draw", "obs")}
    arrays = [array for array in draws.values() if array.ndim == 3]
    if len(draws) == 1 and arrays and arrays[0].shape[2] == n:
        return {LOG_LIK: arrays[0]}
    return None


def _from_tree(
    path: Path, formula: Formula | None, outcome: Outcome | None, options: Namespace
) -> Model:
    if formula is None and outcome is None:
        return from_datatree(path, var_name=options.var_name)
    tree = read_tree(path)
    if outcome is not None and _OBSERVED not in tree.children:
        name = options.var_name or _only(tree, LOGP_GROUP) or outcome.name
        tree[_OBSERVED] = xr.DataTree(xr.Dataset({name: outcome.y}))
    if formula is None:
        return from_datatree(tree, var_name=options.var_name)
    for group in ("posterior", _OBSERVED):
        if group not in tree.children:
            raise UnsupportedError(
                f"There is no group {group!r}, which a family needs; there are "
                f"{', '.join(tree.children)}."
            )
    name = choose_variable(tree, _OBSERVED, options.var_name)
    y, variables = tree[_OBSERVED].to_dataset()[name], dict(outcome.data if outcome else {})
    for group in ("constant_data", "posterior"):
        if group in tree.children:
            variables |= {str(k): v for k, v in tree[group].to_dataset().data_vars.items()}
    model = _by_formula(formula, y, variables)
    if not options.ignore_log_lik:
        _compare(model, tree, name)
    evidence = log_marginal_likelihood(tree)
    return Model(replace(model.source, log_marginal_likelihood=evidence))


def _compare(model: Model, tree: xr.DataTree, name: str) -> None:
    """Compare the family's log densities with those in the file, if there are any."""
    stored = stored_log_likelihood(tree, name)
    if stored is not None:
        compare_log_lik(model.source, f"{LOGP_GROUP}/{name}", stored.values)


def _by_formula(formula: Formula, y: xr.DataArray, variables: Mapping[str, xr.DataArray]) -> Model:
    parameters = formula.evaluate(
        {name: on_observations(array, y) for name, array in variables.items()}
    )
    vector = get_family(formula.family).multivariate and y.ndim > 1
    return from_family(
        formula.family,
        y=y,
        transform=formula.transform,
        component_dim=y.dims[-1] if vector else None,
        **parameters,
    )


def _only(tree: xr.DataTree, group: str) -> str | None:
    """Name of the only variable of a group."""
    names = list(tree[group].data_vars) if group in tree.children else []
    return str(names[0]) if len(names) == 1 else None


@contextmanager
def _naming(source: ModelFiles) -> Iterator[None]:
    """Put the file's name in front of any error raised inside."""
    try:
        yield
    except LockquackError as error:
        if any(str(path) in error.places for path in source.paths):
            raise
        raise error.within(source.title) from error
