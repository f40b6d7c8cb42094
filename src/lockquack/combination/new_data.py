"""The models of a combination at other observations."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from lockquack.checks.models import require_models, require_same_observations
from lockquack.errors import ParameterError, UnsupportedError, unknown_name
from lockquack.jets import Array
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations


def move_models(
    models: Mapping[str, Model],
    y: Any,
    data: Mapping[str, Any],
    names: tuple[str, ...],
    observations: Observations,
) -> dict[str, Model]:
    """Take models to other observations: their outcomes, if known, and data about them.

    ``names`` are those of all models, which a dict in the data may speak of.
    """
    outcomes = _stand_ins(models, data, names, observations) if y is None else y
    moved = {}
    for name, model in models.items():
        try:
            moved[name] = model.with_data(outcomes, **_own(data, name, names))
        except (ParameterError, UnsupportedError) as error:
            raise error.within(f"Model {name!r}", _misspelt(data, names)) from error
    return moved


def require_new_models(
    given: Mapping[str, Model], used: Mapping[str, Model], names: tuple[str, ...]
) -> dict[str, Model]:
    """Choose those with weight among models made for other observations."""
    require_models(given)
    unknown = [name for name in given if name not in names]
    if unknown:
        raise unknown_name("model", unknown[0], names)
    missing = [name for name in used if name not in given]
    if missing:
        raise ParameterError(f"There is no new model {missing[0]!r}, which has weight.")
    moved = {name: given[name] for name in used}
    require_same_observations(sources_of(moved))
    return moved


def _stand_ins(
    models: Mapping[str, Model],
    data: Mapping[str, Any],
    names: tuple[str, ...],
    observations: Observations,
) -> Array:
    """Outcomes for observations of which only covariates are known: some observed ones."""
    sizes: set[int] = set()
    for name, model in models.items():
        sizes |= model.source.numbers_of_rows(_own(data, name, names))
    if len(sizes) != 1:
        got = f"could be {' or '.join(map(str, sorted(sizes)))}" if sizes else "is not said"
        raise ParameterError(
            f"The number of new observations {got} by the data, {', '.join(data) or 'none'}; "
            "give y, or an xarray of it, as well."
        )
    values = observations.values
    chosen = values[np.arange(sizes.pop()) % len(values)]
    return chosen if observations.component_dim is not None else chosen[:, 0]


def _own(data: Mapping[str, Any], name: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return what data has for one model: dicts by the models' names have something for each."""
    result = {}
    for key, given in data.items():
        if isinstance(given, Mapping) and given and set(given) <= set(names):
            if name in given:
                result[key] = given[name]
        else:
            result[key] = given
    return result


def _misspelt(data: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Suggest the model whose name is like that of a key of a dict."""
    keys = [str(key) for given in data.values() if isinstance(given, Mapping) for key in given]
    for key in keys:
        near = get_close_matches(key, names, n=1)
        if near and key not in names:
            return f" Did you mean {near[0]!r} by {key!r}?"
    strange = [key for key in keys if key not in names]
    if strange and len(strange) < len(keys):
        return f" There is no model {strange[0]!r}; there are {', '.join(names)}."
    return ""
