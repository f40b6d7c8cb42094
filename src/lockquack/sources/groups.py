"""What the groups of an ArviZ container hold about an outcome, under whatever names."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import UnsupportedError
from lockquack.models.containers import (
    CURV_GROUP,
    GRAD_GROUP,
    LOGP_GROUP,
    OBSERVED_GROUP,
    PREDICTIVE_GROUP,
    STATISTICS_GROUP,
)
from lockquack.models.labels import labels_of, require_same_order, string_dims
from lockquack.models.observations import SAMPLE_DIMS
from lockquack.models.source import Source
from lockquack.words import MAKE_MODEL, Text, advice

#: Where ArviZ keeps predictions of observations that the model did not see.
_PREDICTIONS_GROUP = "predictions"
#: What the statistics of ArviZ's first versions, and Stan's programs, call log densities.
_LOGP_NAMES = ("log_likelihood", "log_lik")
#: How log densities are added to a container, by the library that made it.
_ADD_DENSITIES = {
    "pymc": "pm.compute_log_likelihood(idata, model=model)",
    "bambi": "model.compute_log_likelihood(idata)",
    "numpyro": "az.from_numpyro(mcmc, log_likelihood=True)",
    "cmdstanpy": "az.from_cmdstanpy(fit, log_likelihood='log_lik', observed_data={'y': y})",
    "stan": "az.from_pystan(fit, log_likelihood='log_lik', observed_data={'y': y})",
}


@dataclass(frozen=True)
class StoredOutcome:
    """The log densities of one outcome, and what goes with them."""

    #: What the outcome is called.
    name: str
    logp: xr.DataArray  # chain, draw and dimensions of the observations
    #: First and second, or none.
    derivatives: Sequence[xr.DataArray]
    #: What was observed, if it is known.
    y: xr.DataArray | None = None
    #: Outcomes that were drawn with the draws, or with others, if there are any.
    drawn: xr.DataArray | None = None

    @property
    def outcome_name(self) -> str | None:
        """What the outcome is called, unless only its log densities have a name."""
        return None if self.y is None and self.name in _LOGP_NAMES else self.name

    @property
    def component_dim(self) -> Hashable | None:
        """The dimension of the outcome that its log densities do not have."""
        if self.y is None:
            return None
        own = [dim for dim in self.y.dims if dim not in self.logp.dims]
        if len(own) > 1:
            raise UnsupportedError(
                f"The outcome {self.name!r} has the dimensions {self.y.dims}, its log likelihood "
                f"{self.logp.dims}: more than one dimension of an outcome is not supported."
            )
        return own[0] if own else None

    def of(self, y: xr.DataArray) -> StoredOutcome:
        """Return the same with what was observed, of whose dimensions only names may differ."""
        y = string_dims(y)
        parts = [_on_dims_of(part, y) for part in (self.logp, *self.derivatives)]
        drawn = None if self.drawn is None else _on_dims_of(self.drawn, y)
        return StoredOutcome(self.name, parts[0], parts[1:], y, drawn)

    def renamed(self, dims: Mapping[str, str]) -> StoredOutcome:
        """Return the same with other names of dimensions, whose labels are dropped."""

        def rename(array: xr.DataArray) -> xr.DataArray:
            return array.drop_vars(list(dims), errors="ignore").rename(dims)

        y, drawn = (None if part is None else rename(part) for part in (self.y, self.drawn))
        return StoredOutcome(
            self.name, rename(self.logp), [*map(rename, self.derivatives)], y, drawn
        )


def find_outcome(
    tree: xr.DataTree, var_name: str | None, *, outcomes_needed: bool
) -> StoredOutcome:
    """Find the log densities of an outcome, and what belongs to them."""
    groups = _derivative_groups(tree)
    densities = _log_likelihoods(tree)
    wanted = (*groups, *([OBSERVED_GROUP] if outcomes_needed or groups else []))
    for group in wanted:
        if group not in tree.children:
            raise _missing(group, tree)
    observed = _variables(tree, OBSERVED_GROUP)
    own = _choose_density(densities, observed, var_name)
    logp = with_draws(densities[own])
    name = own
    if own not in observed and not groups:
        name = _other_name(logp, observed, var_name) or own
    y = observed.get(name)
    if y is None and outcomes_needed:
        raise _not_in(OBSERVED_GROUP, own, list(observed))
    derivatives = [with_draws(_find(tree, group, own)) for group in groups]
    found = StoredOutcome(name, logp, derivatives, drawn=_drawn(tree, name))
    return found if y is None else found.of(y)


def outcomes_alone(
    tree: xr.DataTree, var_name: str | Sequence[str] | None, y: Any
) -> tuple[xr.DataArray, Any, bool] | None:
    """Find draws of an outcome that come without log densities, and what was observed.

    Also whether the model was fitted without these observations, as for ArviZ's ``predictions``.
    None where there are densities, or no draws.
    """
    found = [group for group in (PREDICTIVE_GROUP, _PREDICTIONS_GROUP) if group in tree.children]
    if LOGP_GROUP in tree.children or not found or not isinstance(var_name, str | None):
        return None
    drawn = _variables(tree, found[0])
    observed = _variables(tree, OBSERVED_GROUP) if found[0] == PREDICTIVE_GROUP else {}
    if var_name is None and len(observed) == 1 and set(observed) <= set(drawn):
        (var_name,) = observed
    name = choose_variable(list(drawn), found[0], var_name)
    outcomes, draws = observed.get(name) if y is None else y, with_draws(drawn[name])
    if isinstance(outcomes, xr.DataArray):
        outcomes = string_dims(outcomes)
        draws = _on_dims_of(draws, outcomes)
    return draws, outcomes, found[0] == _PREDICTIONS_GROUP


def choose_variable(names: Sequence[str], group: str, var_name: str | None) -> str:
    """Find the outcome among the variables of a group: the named one, or the only one."""
    if not names:
        raise UnsupportedError(f"The group {group!r} is empty; it must hold the outcome.")
    if var_name is None and len(names) == 1:
        return names[0]
    if var_name is None or var_name not in names:
        listed = ", ".join(names)
        got = "" if var_name is None else f", not {var_name!r}"
        raise UnsupportedError(
            "Say which outcome by ",
            advice("var_name= of lq.from_datatree", "--var-name"),
            f": one of {listed}{got}.",
        )
    return var_name


def with_draws(array: xr.DataArray) -> xr.DataArray:
    """Give an array the dimensions of chains and draws, of which one may be lost or both stacked.

    Stacked draws of which some were left out, so that chains differ in length, are one chain.
    """
    for dim in map(str, array.dims):
        levels = array.indexes[dim].names if dim in array.indexes else ()
        if set(SAMPLE_DIMS) <= set(levels):
            whole = array.unstack(dim)
            if whole.sizes["chain"] * whole.sizes["draw"] == array.sizes[dim]:
                return whole
            return array.reset_index(dim, drop=True).rename({dim: "draw"}).expand_dims("chain")
    if "sample" in array.dims and not set(SAMPLE_DIMS) & set(array.dims):
        array = array.rename(sample="draw")
    missing = [dim for dim in SAMPLE_DIMS if dim not in array.dims]
    return array.expand_dims(missing) if len(missing) == 1 else array


def _drawn(tree: xr.DataTree, name: str) -> xr.DataArray | None:
    """Find the outcomes that were drawn, by name or as Stan's programs usually call them."""
    group = _variables(tree, PREDICTIVE_GROUP)
    for each in (name, f"{name}_rep"):
        # Without labels of chains nobody knows to which of them the draws belong.
        if each in group and set(SAMPLE_DIMS) <= {*group[each].dims, *group[each].coords}:
            return with_draws(group[each])
    return None


def predictive_draws(found: StoredOutcome, source: Source) -> xr.DataArray | None:
    """Return the outcomes that were drawn with the draws; None if there is not one for each."""
    if found.drawn is None:
        return None
    drawn = found.drawn.transpose(*SAMPLE_DIMS, ...)
    outcomes = source.observations.to_dataarray()
    if set(drawn.dims[2:]) != set(outcomes.dims) and drawn.shape[2:] == outcomes.shape:
        # PyMC numbers dimensions without a name anew.
        drawn = drawn.rename(dict(zip(drawn.dims[2:], outcomes.dims, strict=True)))
    sizes = {"chain": source.n_chains, "draw": source.n_draws, **outcomes.sizes}
    if dict(drawn.sizes) != sizes:
        return None
    expected = labels_of(outcomes)
    if any(
        not np.array_equal(own, expected.get(dim, own)) for dim, own in labels_of(drawn).items()
    ):
        return None
    return drawn.transpose(*sizes)


def _variables(tree: xr.DataTree, group: str) -> dict[str, xr.DataArray]:
    if group not in tree.children:
        return {}
    return {str(name): array for name, array in tree[group].to_dataset().data_vars.items()}


def _derivative_groups(tree: xr.DataTree) -> tuple[str, ...]:
    """Both groups of derivatives if there is one of them, else none."""
    groups = (GRAD_GROUP, CURV_GROUP)
    return groups if any(group in tree.children for group in groups) else ()


def _log_likelihoods(tree: xr.DataTree) -> dict[str, xr.DataArray]:
    """Log densities by the outcomes' names."""
    if LOGP_GROUP in tree.children:
        return _variables(tree, LOGP_GROUP)
    before = _variables(tree, STATISTICS_GROUP).get("log_likelihood")
    if before is None:
        raise _missing(LOGP_GROUP, tree)
    return {"log_likelihood": before}  # as ArviZ kept them before it had a group for them


def _choose_density(
    densities: dict[str, xr.DataArray], observed: dict[str, xr.DataArray], var_name: str | None
) -> str:
    """Name the log densities of an outcome, which may be called otherwise if they are the only."""
    if var_name in observed and len(densities) == 1:
        (only,) = densities
        # Those of another outcome are not this one's.
        if only not in observed:
            return only
    return choose_variable(list(densities), LOGP_GROUP, var_name)


def _other_name(
    logp: xr.DataArray, observed: dict[str, xr.DataArray], var_name: str | None
) -> str | None:
    """Find the outcome that log densities of another name are of: the one of their shape."""
    shape = tuple(size for dim, size in logp.sizes.items() if dim not in SAMPLE_DIMS)
    if var_name in observed:
        return var_name
    same = [name for name, y in observed.items() if y.shape == shape]
    return same[0] if len(same) == 1 else None


def _on_dims_of(array: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Call the dimensions of draws like those of the outcome, where only their names differ."""
    array = string_dims(array)
    own = [str(dim) for dim in array.dims if dim not in SAMPLE_DIMS]
    theirs = [str(dim) for dim in y.dims]
    if set(own) <= set(theirs) or len(own) > len(theirs):
        return array
    new = dict(zip(own, theirs, strict=False))
    if any(array.sizes[mine] != y.sizes[dim] for mine, dim in new.items()):
        return array
    for mine, dim in new.items():
        if mine != dim and mine in array.indexes and dim in y.indexes:
            name = str(array.name)
            require_same_order(name, labels_of(array)[mine], labels_of(y)[dim], of=str(y.name))
    changed = {mine: dim for mine, dim in new.items() if mine != dim}
    return array.drop_vars([dim for dim in changed if dim in array.coords]).rename(changed)


def _find(tree: xr.DataTree, group: str, name: str) -> xr.DataArray:
    variables = _variables(tree, group)
    if name not in variables:
        raise _not_in(group, name, list(variables))
    return variables[name]


def _not_in(group: str, name: str, present: Sequence[str]) -> UnsupportedError:
    remedy = Text("Give all groups the same variable names.")
    if group == OBSERVED_GROUP and len(present) > 1:
        remedy = Text(
            "Say which of them is the outcome, by ",
            advice("var_name= of lq.from_datatree", "--var-name"),
            ".",
        )
    return UnsupportedError(
        f"The group {group!r} does not hold the outcome {name!r}, of which there are log "
        f"densities; it holds {', '.join(present) or 'nothing'}. ",
        remedy,
    )


def _missing(group: str, tree: xr.DataTree) -> UnsupportedError:
    present = ", ".join(tree.children) or "none"
    if not tree.children and tree.data_vars:
        return UnsupportedError(
            f"This is one group of a container, with {', '.join(map(str, tree.data_vars))}. Give "
            "the container that it belongs to."
        )
    remedy: Text | str = ""
    if group == LOGP_GROUP:
        remedy = how_to_add_densities(tree)
    elif group == OBSERVED_GROUP:
        remedy = Text(
            "Give the outcomes, by ", advice("lq.from_datatree(idata, y=y)", "--y FILE:NAME"), "."
        )
    else:
        remedy = (
            "The Hyvärinen score needs the first and the second derivatives of the log likelihood "
            "in the outcome. Add the missing group, or leave out both and use the log score."
        )
    return UnsupportedError(f"There is no group {group!r}; there are {present}. ", remedy)


def how_to_add_densities(tree: xr.DataTree, *, or_draws: bool = True) -> Text:
    """Say how to have log densities, for the library that made the container."""
    posterior = tree["posterior"].to_dataset() if "posterior" in tree.children else xr.Dataset()
    library = str(
        posterior.attrs.get("modeling_interface") or posterior.attrs.get("inference_library", "")
    ).lower()
    inside = [name for name in _LOGP_NAMES if name in posterior]
    if inside:
        return Text(
            f"The posterior holds {inside[0]!r}: say that these are the log densities where the "
            f"container is made, az.from_cmdstanpy(fit, log_likelihood={inside[0]!r}, "
            "observed_data={'y': y})."
        )
    add = _ADD_DENSITIES.get(library, _ADD_DENSITIES["pymc"])
    make = MAKE_MODEL.get(library, MAKE_MODEL["pymc"])
    drawn = or_draws and PREDICTIVE_GROUP in tree.children
    by_draws = (
        ""
        if not drawn
        else (
            " Its predictive draws alone can be mixed by CRPS: lq.from_draws("
            "idata.posterior_predictive['y'], y=y)."
        )
    )
    whose = "" if library in _ADD_DENSITIES else ", with PyMC"
    return Text(
        f"Add the log densities where the model was fitted{whose}: {add}. ",
        advice(
            f"Or make the model with {make}, which computes them and can be locked too.",
            "Or name the likelihood by --family, which computes them.",
        ),
        advice(by_draws, ""),
    )
