"""Arguments of a NumPyro model for other observations, and what can be wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lockquack.errors import (
    LockquackError,
    ParameterError,
    ShapeError,
    first_line,
    unknown_name,
)
from lockquack.jets import Numeric
from lockquack.sources.jax_indices import stays_inside
from lockquack.sources.numpyro_sites import Draw, Program, Sites, run

#: New indices of an argument that are tried one by one, to name the one that is too large.
_MOST_STRANGE = 16


def name_of(model: Program) -> str:
    """Return what the user calls the model: the function inside all handlers."""
    while hasattr(model, "fn") and callable(model.fn):
        model = model.fn
    while hasattr(model, "func"):
        model = model.func
    return str(getattr(model, "__name__", type(model).__name__))


def arguments_of(model: Program) -> frozenset[str] | None:
    """Names of the arguments that a model takes; None where it takes any, or hides them."""
    try:
        parameters = inspect.signature(model).parameters
    except (TypeError, ValueError):
        return None
    kinds = {each.kind for each in parameters.values()}
    return None if inspect.Parameter.VAR_KEYWORD in kinds else frozenset(parameters)


def require_arguments(model: Program, changed: Mapping[str, Any]) -> None:
    """Refuse arguments that the model does not have."""
    known = arguments_of(model)
    if known is None:
        return
    for name in changed:
        if name not in known:
            raise unknown_name(f"argument of the model {name_of(model)!r}", name, known)


def require_same_length(
    model: Program, y: Numeric, changed: Mapping[str, Any], old: Mapping[str, Any], n_old: int
) -> None:
    """Refuse new arguments of the observations that are not as many as the outcomes."""
    for name, value in changed.items():
        belongs = name in old and np.ndim(old[name]) > 0 and len(old[name]) == n_old
        if belongs and np.ndim(value) > 0 and len(value) != len(y):
            raise ShapeError(
                f"{name} has {len(value)} rows and the outcomes are {len(y)}; for the model "
                f"{name_of(model)!r} they must be as many."
            )


def does_not_run(
    model: Program,
    error: Exception,
    y: Numeric,
    changed: Mapping[str, Any],
    kwargs: Mapping[str, Any],
    n_old: int,
) -> LockquackError:
    """Say what is probably missing, where a model does not run with new arguments."""
    title = name_of(model)
    forgotten = [
        name
        for name, value in kwargs.items()
        if name not in changed and np.ndim(value) > 0 and len(value) == n_old != len(y)
    ]
    if forgotten:
        return ParameterError(
            f"The argument(s) {', '.join(map(repr, forgotten))} of the model {title!r} are still "
            f"those of the {n_old} old observations; the new ones are {len(y)}. Give them too: "
            f"{forgotten[0]}=..."
        )
    return LockquackError(
        f"The model {title!r} does not run with the arguments {list(changed)} changed: "
        f"{first_line(error)}. "
        "Change all arguments that belong to the new outcomes. Where each observation, or each "
        "new group, has a latent value of its own, there are no draws of it."
    )


def require_draws(model: Program, sites: Sites, draw: Draw) -> None:
    """Refuse arguments with which the model has more, or fewer, latent values than were drawn."""
    for name, value in draw.items():
        shape = sites[name].shape if name in sites else None
        if shape is not None and shape != np.shape(value):
            raise ShapeError(
                f"With these arguments the latent site {name!r} of the model {name_of(model)!r} "
                f"has the shape {shape}; the draws of it have {np.shape(value)}. Of groups that "
                "the model was not fitted to there are no draws. If it counts its groups in the "
                "data, as by len(np.unique(group)), make their number an argument of its own, so "
                "that it stays the same."
            )


def require_seen_groups(
    model: Program,
    draw: Draw,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    changed: Sequence[str],
) -> None:
    """Refuse indices of groups that there are no draws of: JAX takes the last group instead."""
    indices = {
        name: np.asarray(new[name])
        for name in changed
        if np.ndim(new[name]) > 0 and np.asarray(new[name]).dtype.kind in "iu"
    }
    if not indices:
        return
    # A negative index counts from the end: not what −1 for an unknown group means.
    far = {
        name: np.where((given < 0) & (np.min(old.get(name, 0)) >= 0), np.iinfo(np.int32).max, given)
        for name, given in indices.items()
    }
    if _stays_inside(model, draw, {**new, **far}) or not _stays_inside(model, draw, old):
        return
    strange = [
        (name, value)
        for name, given in far.items()
        for value in np.setdiff1d(given, np.asarray(old.get(name, ())))[:_MOST_STRANGE]
        if not _stays_inside(model, draw, {**new, **_only(value, name, far, old)})
    ]
    listed = ", ".join(
        f"{name} = {indices[name][far[name] == value][0]}" for name, value in strange[:1]
    )
    raise ParameterError(
        f"The model {name_of(model)!r} was not fitted to the group {listed or list(changed)}, so "
        "there are no draws of its latent values. Predict groups that were seen, or write the "
        "model so that a new group is drawn from its prior."
    )


def _only(
    value: Any, name: str, given: Mapping[str, Numeric], old: Mapping[str, Any]
) -> dict[str, Numeric]:
    """Keep one of the new indices, and put one that was seen in place of all others."""
    seen = {each: np.ravel(np.asarray(old.get(each, 0)))[0] for each in given}
    return {
        each: np.where((each == name) & (values == value), values, seen[each])
        for each, values in given.items()
    }


def _stays_inside(model: Program, draw: Draw, kwargs: Mapping[str, Any]) -> bool:
    import jax

    def distributions(draw: Draw) -> list[Any]:
        trace = run(model, draw, kwargs)
        # A plate has a function as well, of which nothing is an array.
        return [jax.tree.leaves(site["fn"]) for site in trace.values() if site["type"] == "sample"]

    return stays_inside(distributions, dict(draw))
