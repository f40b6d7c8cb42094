"""Models fitted by PyMC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import LockquackError, ShapeError, UnsupportedError, in_brief
from lockquack.jets import Numeric
from lockquack.models.containers import (
    divergences,
    log_marginal_likelihood,
    stored_log_likelihood,
)
from lockquack.models.likelihood import Likelihood
from lockquack.models.model import Model
from lockquack.models.observations import SAMPLE_DIMS, Observations, as_observations
from lockquack.models.transformed import on_natural_scale
from lockquack.numeric import as_numeric
from lockquack.sources.datatree import as_tree
from lockquack.sources.libraries import library
from lockquack.sources.probing import is_lagged
from lockquack.sources.pymc_data import Containers
from lockquack.sources.pymc_outcomes import (
    ATOMS,
    Outcome,
    container_of,
    graph_of,
    has_dims,
    outcomes_of,
    parts_of,
    random_outcomes,
)
from lockquack.sources.pymc_refusals import (
    chosen_outcomes,
    data_in,
    holds_copy,
    not_scored,
    require_separate,
)
from lockquack.sources.pymc_together import Arranged, arranged
from lockquack.sources.pytensor_resizing import resized, rows_along
from lockquack.sources.pytensor_rewriting import Variable
from lockquack.sources.pytensor_sources import GraphSource, LogDensityGraph


@own_arithmetic
def from_pymc(
    model: Any,
    idata: Any,
    *,
    var_name: str | Sequence[str] | None = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    r"""Take a model and its posterior from PyMC, 5 or 6.

    .. math::

        \log f(y_i \mid \theta_s), \quad
        \partial_{y} \log f(y_i \mid \theta_s), \quad
        \partial^2_{y} \log f(y_i \mid \theta_s)

    come from the model's own graph, differentiated in the **observed value** by PyTensor, and
    are computed as they are read: nothing of size draws × observations is kept beyond 128 MB.

    Discrete, censored and hurdle likelihoods are accepted for the log score; they have no
    derivatives. A ``pm.CustomDist`` is taken to be smooth inside its support. Missing scalar
    outcomes are left out, and the others keep their numbers or labels. Series such as ``pm.AR``
    are taken term by term, :math:`p(y_t \mid y_{<t}, \theta)`, which the result remarks on. Refused
    are likelihoods that do not factorise (a marginal Gaussian process), minibatches, likelihoods
    written as ``pm.Potential``, potentials that involve the outcome, simulators, and vectors with
    missing components.

    Parameters
    ----------
    model
        The ``pm.Model``, as it was sampled.
    idata
        InferenceData or DataTree with the group ``posterior``.
    var_name
        The observed variable that is predicted; needed if there are several. A list of them is
        one outcome, the vector of these variables at each observation.
    transform
        ``"log"`` or another name of :func:`from_family` if the observed variable is that function
        of the outcome, as in ``observed=np.log(y)``. The model is brought to the outcome itself:
        the Jacobian enters the density and both derivatives.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives; its method ``with_data(y, **data)``
        gives the same posterior's predictions at other values of ``pm.Data`` containers.

    Examples
    --------
    >>> import pymc as pm  # doctest: +SKIP
    >>> import lockquack as lq
    >>> with pm.Model() as model:  # doctest: +SKIP
    ...     pm.Normal("y", pm.Normal("mu", 0, 5), pm.HalfNormal("sigma", 5), observed=y)
    ...     idata = pm.sample()
    >>> lq.from_pymc(model, idata)  # doctest: +SKIP
    <Model Normal; chain: 4, draw: 1000, obs_id: 8, components: 1>
    """
    tree = read_tree(idata)
    _require_pymc(model, tree)
    try:
        source = _source_of(model, tree, var_name)
    except LockquackError:
        raise
    except Exception as error:  # whatever PyTensor does with what users write
        raise UnsupportedError(
            "PyMC or PyTensor cannot evaluate the density of the observed variable: "
            f"{in_brief(error)}. If pm.compute_log_likelihood(idata) can, give its result to "
            "from_arrays and use the log score."
        ) from error
    return Model(on_natural_scale(source, transform)).with_weights(weights)


def _source_of(model: Any, tree: xr.DataTree, var_name: str | Sequence[str] | None) -> GraphSource:
    clone = _on_natural_scales(model)
    rvs = chosen_outcomes(clone, var_name)
    for rv in rvs:
        require_separate(clone, rv, rvs)
    reader = _Reader.of(clone, rvs, tree["posterior"].to_dataset())
    graph = replace(
        reader.graph,
        log_marginal_likelihood=log_marginal_likelihood(tree),
        stored=_stored(tree, reader.outcomes, reader.containers.shape),
    )
    source = replace(reader.source(graph), divergent=divergences(tree))
    if len(reader.outcomes) > 1:
        return source
    # Where values are missing, PyMC gives the observed ones a name of their own.
    return source.named(reader.outcomes[0].name.removesuffix("_observed"))


def _require_pymc(model: Any, tree: xr.DataTree) -> None:
    pm = library("pymc", "pymc")
    if not isinstance(model, pm.Model):
        raise UnsupportedError(
            f"from_pymc needs a pm.Model; got a {type(model).__name__}. For a model of Bambi, use "
            "from_bambi."
        )
    if tree["posterior"].attrs.get("modeling_interface") == "bambi":
        raise UnsupportedError(
            "These draws are Bambi's, whose intercept is not that of its PyMC model. Use "
            "from_bambi(model, idata) with the bambi.Model."
        )


def _on_natural_scales(model: Any) -> Any:
    """Clone a model, its parameters on the scales on which they are drawn."""
    from pymc.model.transform.conditioning import remove_value_transforms

    # Where a sampler begins is of no interest here, and PyMC does not clone it.
    without = object.__new__(type(model))
    vars(without).update(vars(model))
    without.rvs_to_initial_values = dict.fromkeys(model.rvs_to_initial_values)
    return remove_value_transforms(without)


def read_tree(idata: Any) -> xr.DataTree:
    """Read what a sampler returned, which must hold draws."""
    tree = as_tree(idata)
    if "posterior" not in tree.children:
        raise UnsupportedError(
            f"There is no group 'posterior'; there are {', '.join(tree.children) or 'none'}."
        )
    posterior = tree["posterior"].to_dataset()
    missing = [dim for dim in SAMPLE_DIMS if dim not in posterior.dims]
    if missing:
        raise ShapeError(
            f"The posterior has no dimension {missing[0]!r}; it has {tuple(posterior.dims)}."
        )
    return tree


@dataclass(frozen=True)
class _Reader:
    """What is needed to make the model at its own or at other observations."""

    outcomes: tuple[Outcome, ...]
    graph: LogDensityGraph
    containers: Containers
    observed: Numeric
    dims: tuple[str, ...]
    coords: Mapping[str, pd.Index[Any]]
    #: Which rows have outcomes, (row,); None: all.
    seen: NDArray[np.bool_] | None

    @classmethod
    def of(cls, model: Any, rvs: Sequence[Variable], posterior: xr.Dataset) -> _Reader:
        outcomes = tuple(outcomes_of(model, rvs))
        whole = arranged(outcomes, random_outcomes(model, rvs))
        grid = tuple(whole.observed.shape[: whole.logp.ndim])
        rows = rows_along(grid)
        random = resized(whole.random, grid, rows)
        axes = dict(zip(rows, whole.dims, strict=False))
        written = graph_of(model, whole.y, whole.logp, random, axes)
        components = None
        if len(outcomes) > 1:
            components = {rv.name: cls.of(model, [rv], posterior).source().likelihood for rv in rvs}
        parts = _cut_named([part for rv in rvs for part in parts_of(rv, model.basic_RVs)])
        graph = LogDensityGraph(
            whole.y,
            written.logp,
            {v: _draws(posterior, model, name, v) for name, v in written.theta.items()},
            dict(written.data.values()),
            posterior.sizes["chain"],
            posterior.sizes["draw"],
            parts[0],
            tuple(parts[1:]),
            discrete=all(each.discrete for each in outcomes),
            has_atoms=any(part.startswith(ATOMS) for part in parts) or _is_mixed(outcomes),
            known=_known(model, outcomes, whole, components),
            checked=bool(model.check_bounds),
            joint=any(outcome.joint for outcome in outcomes),
            outcome=written.random,
        )
        labels = {dim: model.coords.get(dim) for dim in whole.dims}
        labels |= {} if whole.components is None else {whole.dims[-1]: whole.components}
        seen = _seen_rows(outcomes)
        if seen is not None and (rows_of := labels[whole.dims[0]]) is not None:
            labels[whole.dims[0]] = np.asarray(rows_of)[seen]
        return cls(
            outcomes,
            graph,
            Containers.of(written, grid, whole.dims, container_of(model, rvs)),
            whole.observed,
            whole.dims,
            {dim: pd.Index(each) for dim, each in labels.items() if each is not None},
            seen,
        )

    def source(self, graph: LogDensityGraph | None = None) -> GraphSource:
        """Make the model at the observations that it was sampled with."""
        return self._made(graph or self.graph, self.observations(self.observed, original=True))

    def rebuild(self, y: Any, /, **data: Any) -> GraphSource:
        """Make the model at other outcomes and values of its data containers."""
        observations = self.observations(y)
        outcomes = observations.to_dataarray().values
        values = {**self.graph.data, **self.containers.read(data, outcomes)}
        try:
            return self._made(replace(self.graph, data=values), observations, original=False)
        except LockquackError:
            raise
        except Exception as error:  # whatever PyTensor does with arrays that do not fit
            if self.seen is not None:
                raise self._masked() from error
            raise self.containers.explain(error, data, observations) from error

    def _masked(self) -> UnsupportedError:
        """Say why a model with imputed outcomes cannot be taken to other rows."""
        rows = np.asarray(self.seen)
        return UnsupportedError(
            f"PyMC imputed {np.sum(~rows)} missing outcomes: the model takes {rows.sum()} of "
            f"{rows.size} rows, which is part of it, so that it cannot predict other rows. Build "
            f"the same model from the {rows.sum()} rows with outcomes, and give it to from_pymc "
            "with the same draws, which need not be drawn again."
        )

    def _made(
        self, graph: LogDensityGraph, observations: Observations, *, original: bool = True
    ) -> GraphSource:
        source = graph.source(observations, self.rebuild, original=original)
        containers = self.containers
        names = containers.names | ({containers.outcome} if containers.outcome else set())
        return replace(source, names=names, count_rows=containers.numbers_of_rows)

    def observations(self, y: Any, *, original: bool = False) -> Observations:
        """Label outcomes; those of the model itself have its coordinates."""
        component_dim = self.dims[-1] if self.graph.y.ndim > self.graph.logp.ndim else None
        if not isinstance(y, xr.DataArray | pd.Series | pd.DataFrame):
            values = as_numeric("y", y)
            if values.ndim != len(self.dims):
                raise ShapeError(
                    f"y has {values.ndim} dimensions; the model's outcome has {len(self.dims)}, "
                    f"{self.dims}."
                )
            y = xr.DataArray(values, dims=self.dims, coords=self.coords if original else None)
        read = as_observations(y, component_dim)
        if self.seen is None or not original:
            return read
        return read.as_kept(np.flatnonzero(self.seen), self.seen.size)


def _seen_rows(outcomes: Sequence[Outcome]) -> NDArray[np.bool_] | None:
    """Return the rows with outcomes, which must be the same for all variables; None: all."""
    each = [outcome.seen for outcome in outcomes]
    known = [seen for seen in each if seen is not None]
    if known and not (len(known) == len(each) and all((known[0] == seen).all() for seen in known)):
        raise UnsupportedError(
            f"The variables {', '.join(o.name for o in outcomes)} have missing outcomes in "
            "different rows, so that no row of the others belongs to each. Drop incomplete rows "
            "before sampling."
        )
    return each[0]


def _known(
    model: Any,
    outcomes: Sequence[Outcome],
    whole: Arranged,
    components: Mapping[str, Likelihood] | None,
) -> Likelihood:
    """Tell what the density itself does not show."""
    rows = np.asarray(whole.observed, np.float64).reshape(len(whole.observed), -1)
    lagged = any(is_lagged(values, rows) for values in data_in(whole.logp))
    facts = Likelihood("") if components is None else Likelihood.of_components(components)
    copied = [
        f"{holder.name!r} holds a copy of the values of {each.name!r}, which stays as it is where "
        "the derivatives are taken; use the variable itself"
        for each in outcomes
        for holder in outcomes
        if holder is not each
        and holds_copy(holder.rv, each.observed, model.basic_RVs, linked=each.container)
    ]
    return replace(
        facts,
        given_earlier=facts.given_earlier or lagged,
        not_scored=not_scored(model),
        not_smooth=facts.not_smooth or "".join(copied[:1]),
    )


def _cut_named(parts: Sequence[str]) -> list[str]:
    """Call what is truncated by what it is between its bounds, which are found by looking.

    Examples
    --------
    >>> _cut_named(["TruncatedNormal"]), _cut_named(["Truncated", "Gamma"])
    (['Normal between bounds'], ['Gamma between bounds', 'Gamma'])
    """
    first, *others = parts
    if not first.startswith("Truncated"):
        return list(parts)
    inner = first.removeprefix("Truncated") or next(iter(others), "Density")
    return [f"{inner} between bounds", *others]


def _is_mixed(outcomes: Sequence[Outcome]) -> bool:
    """Whether some components are whole numbers and others are not."""
    return len({outcome.discrete for outcome in outcomes}) > 1


def _stored(tree: xr.DataTree, outcomes: Sequence[Outcome], grid: tuple[int, ...]) -> Any:
    """Read the log likelihoods that came with the draws, (chain, draw, ...observations)."""
    each = [stored_log_likelihood(tree, outcome.name) for outcome in outcomes]
    if any(values is None for values in each) or any(outcome.joint for outcome in outcomes):
        return None  # of a joint density, there is one number for all
    if len(each) == 1:
        return each[0]
    arrays = [np.asarray(values) for values in each]
    return sum(values.reshape(*values.shape[:2], *grid, -1).sum(axis=-1) for values in arrays)


def _draws(posterior: xr.Dataset, model: Any, name: str, variable: Variable) -> Numeric:
    """Read the draws of one variable of the model, (chain, draw, ...)."""
    if name not in posterior:
        raise UnsupportedError(
            f"The posterior lacks the variable {name!r} of the model; it has "
            f"{', '.join(map(str, posterior.data_vars))}. Give the model that was sampled and all "
            "of its draws."
        )
    dims = model[name].type.dims if has_dims(model[name]) else (...,)
    values = posterior[name].transpose(*SAMPLE_DIMS, *dims).values
    expected = tuple(variable.type.shape)
    fits = len(expected) == values.ndim - 2 and all(
        a is None or a == b for a, b in zip(expected, values.shape[2:], strict=True)
    )
    if not fits:
        raise ShapeError(
            f"The posterior has {name!r} with shape {values.shape[2:]} in each draw, the model "
            f"with shape {expected}. Give the model that was sampled."
        )
    return np.asarray(values, dtype=variable.dtype)
