"""The models of a combination at other observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from lockquack.errors import LockquackError, ParameterError, SupportError, unknown_name
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.observations import Observations


def move_models(
    used: Mapping[str, Model],
    y: Any,
    data: Mapping[str, Any],
    models: Mapping[str, Model],
    observations: Observations,
    number: int | None = None,
) -> dict[str, Model]:
    """Take models to other observations: their outcomes, if known, and data about them.

    Only models that are used are moved. Data go to those that have them by that name; what none
    of all ``models`` has is an error. Where the data leave open how many observations there are,
    ``number`` says so.
    """
    own = _own(models, data)
    _require_covariates(used, data, models)
    if y is not None:
        return _moved(used, y, own, data, tuple(models))
    tried = [_placeholder_outcomes(used, own, observations, number)]
    # Which outcomes are possible may depend on the data, such as the number of trials.
    usual = [*np.quantile(observations.values, [0.0, 0.5, 1.0], method="nearest"), 0, 1]
    tried += [np.full_like(tried[0], value) for value in usual]
    for outcomes in tried:
        try:
            return _moved(used, outcomes, own, data, tuple(models))
        except SupportError as error:
            impossible = error
    raise impossible


def _moved(
    used: Mapping[str, Model],
    outcomes: Any,
    own: Mapping[str, Mapping[str, Any]],
    data: Mapping[str, Any],
    names: tuple[str, ...],
) -> dict[str, Model]:
    """Take models to observations with these outcomes."""
    moved = {}
    for name, model in used.items():
        try:
            moved[name] = model.with_data(outcomes, **own[name])
        except LockquackError as error:
            raise error.within(f"Model {name!r}", _suggest_name(data, names)) from error
    return moved


def require_used(
    given: Mapping[str, Model], used: Sequence[str], names: tuple[str, ...]
) -> dict[str, Model]:
    """Check the names of models; return those that have weight."""
    unknown = [name for name in given if name not in names]
    if unknown:
        raise unknown_name("model", unknown[0], names)
    missing = [name for name in used if name not in given]
    if missing:
        raise ParameterError(
            f"models= lacks {missing[0]!r}, which has weight in the combination. Give it too."
        )
    return {name: given[name] for name in used}


def _placeholder_outcomes(
    models: Mapping[str, Model],
    own: Mapping[str, Mapping[str, Any]],
    observations: Observations,
    number: int | None,
) -> Array:
    """Take observed outcomes for those of new observations, which are not known."""
    sizes: dict[str, set[int]] = {}
    for name, model in models.items():
        if not model.source.can.predict_alone:
            raise ParameterError(
                f"Model {name!r} predicts an outcome from earlier ones: give these, as y, with the "
                "new data."
            )
        sizes[name] = model.source.numbers_of_rows(own[name])
    is_possible = all(number in each for each in sizes.values() if each)
    count = number if number is not None and is_possible else _one_number(sizes, own)
    values = observations.values
    chosen = values[np.arange(count) % len(values)]
    return chosen if observations.component_dim is not None else chosen[:, 0]


def _one_number(sizes: Mapping[str, set[int]], own: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the number of new observations by which all models go."""
    said = set().union(*sizes.values())
    if len(said) == 1:
        return said.pop()
    if not said:
        given = ", ".join(dict.fromkeys(key for data in own.values() for key in data))
        raise ParameterError(
            "The data do not tell how many new observations there are "
            f"({given or 'none were given'}); give y as well."
        )
    each = ", and ".join(
        f"{' or '.join(map(str, sorted(numbers)))} by the data, {', '.join(own[name])}, of model "
        f"{name!r}"
        for name, numbers in sizes.items()
        if numbers
    )
    raise ParameterError(
        f"The number of new observations could be {each}. Give data of one length, or y as well."
    )


def _own(models: Mapping[str, Model], data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what data has for each model: all that it has by that name.

    Dicts by the models' names have something for each of these. What no model has goes to those
    that have the like, or to all: they say best what they have instead.
    """
    known = {name: model.source.data_names() for name, model in models.items()}
    result: dict[str, dict[str, Any]] = {name: {} for name in models}
    for key, given in data.items():
        if isinstance(given, Mapping) and given and set(given) <= set(models):
            for name in given:
                result[name][key] = given[name]
            continue
        having = [name for name, keys in known.items() if keys is None or key in keys]
        for name in having or _with_similar(known, key) or models:
            result[name][key] = given
    return result


def _require_covariates(
    used: Mapping[str, Model], data: Mapping[str, Any], models: Mapping[str, Model]
) -> None:
    """Refuse covariates by the models' names that leave out a model with a regression."""
    x = data.get("x")
    if not isinstance(x, Mapping) or not x:
        return
    # Of families, only those with a regression have both.
    regressions = [
        name
        for name, model in used.items()
        if {"x", "offset"} <= (model.source.data_names() or frozenset())
    ]
    missing = [name for name in regressions if name not in x]
    given = [name for name in x if name in models]
    if given and missing and len(given) == len(x):
        wanted = ", ".join(f"{name!r}: …" for name in [*given, *missing])
        raise ParameterError(
            f"x was given for model {given[0]!r} but not for {missing[0]!r}, which also has a "
            f"regression. Give x={{{wanted}}}."
        )
    strange = [str(key) for key in x if key not in models]
    if given and strange:
        near = get_close_matches(strange[0], missing or list(models), n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ParameterError(
            f"x has the key {strange[0]!r}, which is neither a model ({', '.join(models)}) nor a "
            f"regression parameter.{hint}"
        )


def _with_similar(known: Mapping[str, frozenset[str] | None], key: str) -> list[str]:
    """Return the models that have data whose name is nearest to one that none has."""
    names = set().union(*(keys or () for keys in known.values()))
    near = get_close_matches(key, sorted(names), n=1)
    return [name for name, keys in known.items() if near and keys and near[0] in keys]


def _suggest_name(data: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Suggest which model a misspelt key of a dict means."""
    keys = [str(key) for given in data.values() if isinstance(given, Mapping) for key in given]
    for key in keys:
        near = get_close_matches(key, names, n=1)
        if near and key not in names:
            return f" Did you mean {near[0]!r} by {key!r}?"
    strange = [key for key in keys if key not in names]
    if strange and len(strange) < len(keys):
        return f" There is no model {strange[0]!r}; there are {', '.join(names)}."
    return ""
