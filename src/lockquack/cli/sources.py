"""From files, and what the command line says about them, to models."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import xarray as xr

from lockquack.cli.files import ModelFiles, find_sources
from lockquack.errors import LockquackError, ParameterError, UnsupportedError, unknown_name
from lockquack.families import get_family
from lockquack.files.formats import read_tree
from lockquack.models.containers import (
    CONSTANT_GROUP,
    LOGP_GROUP,
    OBSERVED_GROUP,
    divergences,
    log_marginal_likelihood,
    stored_log_likelihood,
)
from lockquack.models.model import Model
from lockquack.models.observations import SAMPLE_DIMS, as_observations
from lockquack.models.source import Source
from lockquack.models.transformed import TransformedSource, on_natural_scale, preimages
from lockquack.sources.arrays import from_arrays
from lockquack.sources.csv import choose_outcome, read_columns, read_data, read_draws
from lockquack.sources.datatree import agreeing, case_weights
from lockquack.sources.family import from_family
from lockquack.sources.formula import Formula, parse_formula
from lockquack.sources.groups import choose_variable
from lockquack.sources.reading import as_model
from lockquack.sources.stan import CURV, GRAD, LOG_LIK, compare_log_lik, generated_quantities

_OF_MODEL = re.compile(r"(?:(?P<model>[^=()]+)=)?(?P<text>\w+(?:\(.*\))?)", re.DOTALL)

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """Observed outcomes from a file of their own, and what else is in it."""

    name: str
    y: xr.DataArray
    data: Mapping[str, xr.DataArray]


def read_models(options: Namespace) -> dict[str, Model]:
    """Read the models that the options of a command name."""
    sources = find_sources(options.files)
    about = read_model_options([source.name for source in sources], options)
    return {source.name: read_model(source, about[source.name], options) for source in sources}


@dataclass(frozen=True)
class ModelOptions:
    """What the options say about one model."""

    formula: Formula | None
    transform: str | None
    outcome: Outcome | None

    def __post_init__(self) -> None:
        if self.formula is not None and self.formula.transform and self.transform:
            raise ParameterError(
                f"--transform {self.transform} says that the outcomes in the file are "
                f"transformed, transform={self.formula.transform} in --family that they are not. "
                "Give one of them."
            )


def read_model_options(names: Sequence[str], options: Namespace) -> dict[str, ModelOptions]:
    """Read what the options say about each model."""
    formulas = read_formulas(options.family, names)
    transforms = _by_model(options.transform, names, str)
    outcome = read_outcome(options.y)
    return {name: ModelOptions(formulas.get(name), transforms.get(name), outcome) for name in names}


def read_model(source: ModelFiles, about: ModelOptions, options: Namespace) -> Model:
    """Read one model."""
    with _naming(source):
        weights = read_case_weights(options.case_weights, about.outcome)
        if source.is_csv:
            if isinstance(weights, str):
                known = about.outcome.data if about.outcome else ()
                raise unknown_name("column of --y", weights, known)
            return _from_csv(source, about, options).with_weights(weights)
        return _from_tree(source.paths[0], about, weights, options)


def read_formulas(given: Sequence[str], names: Sequence[str]) -> dict[str, Formula]:
    """Read ``[NAME=]FAMILY``; one without a name is for all models that have none of their own."""
    return _by_model(given, names, parse_formula)


def _by_model(given: Sequence[str], names: Sequence[str], read: Callable[[str], T]) -> dict[str, T]:
    """Read ``[NAME=]TEXT``, for one model or for all that have none of their own."""
    found: dict[str, T] = {}
    for text in given:
        parts = _OF_MODEL.fullmatch(text.strip())
        # What is not of this form is explained by the error of reading it.
        model, rest = (parts["model"], parts["text"]) if parts else (None, text)
        if model is not None and model not in names:
            raise unknown_name("model", model, names)
        value = read(rest)
        if model is not None:
            found[model] = value
        else:
            found = {name: found.get(name, value) for name in names}
    return found


def read_case_weights(given: str | None, outcome: Outcome | None) -> Any:
    """Read ``[FILE:]NAME``; a name that is not a column of ``--y`` is one in the model's file."""
    if given is None:
        return None
    if ":" in given or Path(given).exists():
        found = read_outcome(given)
        return None if found is None else found.y
    return outcome.data.get(given, given) if outcome is not None else given


def read_by(options: Namespace) -> dict[str, Any] | None:
    """Read ``[FILE:]NAME[,NAME...]``, columns of a CSV file; by default of that of ``--y``."""
    if options.by is None:
        return None
    path, _, names = options.by.rpartition(":")
    if not path:
        if options.y is None:
            raise ParameterError(f"Say where the columns of --by are: --by FILE:{options.by}.")
        path = options.y if Path(options.y).exists() else options.y.rpartition(":")[0]
    if not Path(path).exists():
        raise FileNotFoundError(f"There is no file {path}.")
    table = read_columns(Path(path), names.split(","))
    return {name: column.to_numpy() for name, column in table.items()}


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
    return Outcome(name, y.rename(name), data)


def _from_csv(source: ModelFiles, about: ModelOptions, options: Namespace) -> Model:
    formula, outcome, transform = about.formula, about.outcome, about.transform
    if outcome is None:
        raise UnsupportedError(
            "A CSV file of draws does not hold the observed outcomes. Give them: --y FILE:COLUMN."
        )
    draws = read_draws(source.paths, options.chains)
    log_lik = options.var_name or LOG_LIK
    if formula is not None:
        model = _by_formula(formula, outcome.y, {**outcome.data, **draws}, transform)
        if log_lik in draws and not options.ignore_log_lik:
            compare_log_lik(_as_fitted(model, transform), log_lik, draws[log_lik].values)
        return model
    if log_lik not in draws and options.var_name is None:
        draws = _matrix(draws, outcome.y.sizes[outcome.y.dims[0]]) or draws
    found = generated_quantities(draws, log_lik, GRAD, CURV)
    values: dict[str, Any] = {name: array.values for name, array in found.items()}
    model = from_arrays(y=outcome.y.values, transform=transform, **values)
    return Model(model.source.named(outcome.name))


def _matrix(draws: Mapping[str, xr.DataArray], n: int) -> dict[str, xr.DataArray] | None:
    """Take a table of as many columns as there are outcomes for the log densities, in order."""
    columns = [array for array in draws.values() if array.ndim == 2]
    if len(columns) == n == len(draws):
        return {LOG_LIK: xr.concat(columns, "obs").transpose(*SAMPLE_DIMS, "obs")}
    arrays = [array for array in draws.values() if array.ndim == 3]
    if len(draws) == 1 and arrays and arrays[0].shape[2] == n:
        return {LOG_LIK: arrays[0]}
    return None


def _from_tree(path: Path, about: ModelOptions, weights: Any, options: Namespace) -> Model:
    formula, outcome, transform = about.formula, about.outcome, about.transform
    if formula is None:
        y = None if outcome is None else outcome.y
        return as_model(path, var_name=options.var_name, y=y, transform=transform, weights=weights)
    tree = read_tree(path)
    name, y = _outcomes(tree, about, options.var_name)
    variables = dict(outcome.data if outcome else {})
    for group in (CONSTANT_GROUP, "posterior"):
        if group in tree.children:
            variables |= {str(k): v for k, v in tree[group].to_dataset().data_vars.items()}
    model = _by_formula(formula, y, variables, transform)
    fitted = _as_fitted(model, transform)
    if not options.ignore_log_lik:
        _compare(fitted, tree, name)
    fitted = replace(
        fitted,
        log_marginal_likelihood=log_marginal_likelihood(tree),
        divergent=divergences(tree),
    )
    natural = on_natural_scale(fitted, transform, model.observations)
    return Model(natural).with_weights(case_weights(tree, weights))


def _outcomes(
    tree: xr.DataTree, about: ModelOptions, var_name: str | None
) -> tuple[str, xr.DataArray]:
    """Find the outcomes of a model with a family, and what they are called in the file."""
    outcome, transform = about.outcome, about.transform
    if outcome is not None and OBSERVED_GROUP not in tree.children:
        return var_name or _only(tree, LOGP_GROUP) or outcome.name, outcome.y
    for group in ("posterior", OBSERVED_GROUP):
        if group not in tree.children:
            raise UnsupportedError(
                f"There is no group {group!r}, which a family needs; there are "
                f"{', '.join(tree.children)}."
            )
    observed = tree[OBSERVED_GROUP].to_dataset()
    name = choose_variable([*map(str, observed.data_vars)], OBSERVED_GROUP, var_name)
    y = observed[name]
    if outcome is not None:
        agreeing(as_observations(outcome.y), as_observations(y), transform)
    if transform is not None:
        y = preimages(as_observations(y), transform).to_dataarray().rename(None)
    return name, y


def _compare(source: Source, tree: xr.DataTree, name: str) -> None:
    """Compare the family's log densities with those in the file, if there are any."""
    stored = stored_log_likelihood(tree, name)
    if stored is not None:
        compare_log_lik(source, f"{LOGP_GROUP}/{name}", stored.values)


def _as_fitted(model: Model, transform: str | None) -> Source:
    """Return the source on the scale on which the model was fitted, as its log densities are."""
    source = model.source
    return source.source if transform and isinstance(source, TransformedSource) else source


def _by_formula(
    formula: Formula,
    y: xr.DataArray,
    variables: Mapping[str, xr.DataArray],
    transform: str | None,
) -> Model:
    parameters = formula.evaluate(variables, y)
    vector = get_family(formula.family).multivariate and y.ndim > 1
    return from_family(
        formula.family,
        y=y,
        transform=formula.transform or transform,
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
