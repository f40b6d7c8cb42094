"""Models fitted by PyMC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.errors import LockquackError, ShapeError, UnsupportedError, unknown_name
from lockquack.jets import Numeric
from lockquack.models.containers import log_marginal_likelihood, stored_log_likelihood
from lockquack.models.model import Model
from lockquack.models.observations import COMPONENT_DIM, OBS_DIM, Observations, as_observations
from lockquack.numeric import as_numeric
from lockquack.sources.datatree import as_tree
from lockquack.sources.pytensor_rewriting import Variable, nearest, rebuilt, variables_of
from lockquack.sources.pytensor_sources import GraphSource, LogDensityGraph

#: Distributions in which single outcomes have positive probability.
ATOMS = ("Censored", "Hurdle", "DiracDelta")


def from_pymc(model: Any, idata: Any, *, var_name: str | None = None) -> Model:
    r"""Take a model and its posterior from PyMC, 5 or 6.

    .. math::

        \log f(y_i \mid \theta_s), \quad
        \partial_{y} \log f(y_i \mid \theta_s), \quad
        \partial^2_{y} \log f(y_i \mid \theta_s)

    come from the model's own graph, differentiated in the **observed value** by PyTensor, and
    are computed as they are read: nothing of size draws × observations is kept beyond 128 MB.

    Discrete, censored and hurdle likelihoods are accepted for the log score; they have no
    derivatives. A ``pm.CustomDist`` is taken to be smooth inside its support. Missing scalar
    outcomes are left out. Refused are likelihoods that do not factorise into observations (a
    marginal Gaussian process, ``pm.AR``), minibatches, likelihoods written as ``pm.Potential``,
    potentials that involve the outcome, simulators, and vectors with missing components.

    Parameters
    ----------
    model
        The ``pm.Model``, as it was sampled.
    idata
        InferenceData or DataTree with the group ``posterior``.
    var_name
        The observed variable that is predicted; needed if there are several.

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
    clone = _on_natural_scales(model)
    rv = _observed(clone, var_name)
    observed = np.asarray(clone.rvs_to_values[rv].eval())
    _require_separate(clone, rv, observed)
    reader = _Reader.of(clone, rv, tree["posterior"].to_dataset())
    graph = replace(
        reader.graph,
        log_marginal_likelihood=log_marginal_likelihood(tree),
        stored=stored_log_likelihood(tree, rv.name),
    )
    observations = reader.observations(observed, original=True)
    return Model(graph.source(observations, reader.rebuild))


def _require_pymc(model: Any, tree: xr.DataTree) -> None:
    import pymc as pm

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
    missing = [dim for dim in ("chain", "draw") if dim not in posterior.dims]
    if missing:
        raise ShapeError(
            f"The posterior has no dimension {missing[0]!r}; it has {tuple(posterior.dims)}."
        )
    return tree


@dataclass(frozen=True)
class _Reader:
    """What is needed to make the model at its own or at other observations."""

    graph: LogDensityGraph
    containers: Mapping[str, Variable]
    dims: tuple[str, ...]
    coords: Mapping[str, pd.Index[Any]]

    @classmethod
    def of(cls, model: Any, rv: Variable, posterior: xr.Dataset) -> _Reader:
        y, logp, outcome, theta, data = _graph(model, rv)
        parts = parts_of(rv, model.basic_RVs)
        graph = LogDensityGraph(
            y,
            logp,
            {v: _draws(posterior, model, name, v) for name, v in theta.items()},
            dict(data.values()),
            posterior.sizes["chain"],
            posterior.sizes["draw"],
            parts[0],
            parts[1:],
            discrete=y.dtype != "float64",
            has_atoms=any(part.startswith(ATOMS) for part in parts),
            outcome=outcome,
        )
        named = model.named_vars_to_dims.get(rv.name, ())
        dims = tuple(f"{rv.name}_dim_{i}" for i in range(y.ndim))
        if len(named) == y.ndim:
            dims = tuple(given or own for given, own in zip(named, dims, strict=True))
        elif logp.ndim == 1:
            dims = (OBS_DIM, COMPONENT_DIM)[: y.ndim]
        containers = {
            name: variable for name, (variable, _) in data.items() if name in model.named_vars
        }
        labels = {dim: model.coords.get(dim) for dim in dims}
        coords = {dim: pd.Index(each) for dim, each in labels.items() if each is not None}
        return cls(graph, containers, dims, coords)

    def rebuild(self, y: Any, /, **data: Any) -> GraphSource:
        """Make the model at other outcomes and values of its data containers."""
        values = dict(self.graph.data)
        for name, value in data.items():
            if name not in self.containers:
                raise self._unknown(name)
            variable = self.containers[name]
            values[variable] = _values(f"Data {name!r}", value, variable)
        observations = self.observations(y)
        graph = replace(self.graph, data=values)
        try:
            return graph.source(observations, self.rebuild)
        except (ValueError, IndexError) as error:
            if isinstance(error, LockquackError):
                raise
            raise ShapeError(
                f"The model does not fit {observations.sizes} new outcomes: its covariates, or "
                "parameters of each observation, have another length. Covariates that change "
                "must be pm.Data containers and be given here by name; there are "
                f"{', '.join(self.containers) or 'none'}. ({str(error).splitlines()[0]})"
            ) from error

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
        return as_observations(y, component_dim)

    def _unknown(self, name: str) -> LockquackError:
        if self.containers:
            return unknown_name("data container", name, self.containers)
        return UnsupportedError(
            f"The model has no pm.Data container, so {name!r} cannot be changed. Wrap covariates "
            f"in pm.Data({name!r}, ...) and sample again."
        )


def _values(what: str, given: Any, variable: Variable) -> Numeric:
    values = np.asarray(as_numeric(what, given), dtype=variable.dtype)
    if values.ndim != variable.ndim:
        raise ShapeError(f"{what} must have {variable.ndim} dimensions; got {values.shape}.")
    return values


def _draws(posterior: xr.Dataset, model: Any, name: str, variable: Variable) -> Numeric:
    """Read the draws of one variable of the model, (chain, draw, ...)."""
    if name not in posterior:
        raise UnsupportedError(
            f"The posterior lacks the variable {name!r} of the model; it has "
            f"{', '.join(map(str, posterior.data_vars))}. Give the model that was sampled and all "
            "of its draws."
        )
    dims = model[name].type.dims if _has_dims(model[name]) else (...,)
    values = posterior[name].transpose("chain", "draw", *dims).values
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


def _graph(
    model: Any, rv: Variable
) -> tuple[
    Variable, Variable, Variable | None, dict[str, Variable], dict[str, tuple[Variable, Numeric]]
]:
    """Build log density and random outcomes on plain variables.

    Returns y, logp, outcomes (None if they cannot be drawn), θ by name, and data by name with
    values.
    """
    from pymc.pytensorf import rvs_in_graph
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.tensor import TensorType
    from pytensor.tensor.random.type import RandomType

    discrete = np.dtype(rv.dtype).kind in "biu"
    y = TensorType(rv.dtype if discrete else "float64", (None,) * rv.type.ndim)("y")
    names = {value: free.name for free, value in model.rvs_to_values.items() if free is not rv}
    outcome = _random_outcome(model, rv)
    logp = _log_density(model, rv, y)
    if rvs_in_graph([logp]):
        raise UnsupportedError(
            f"PyMC cannot say the log density of {rv.name!r}: random variables remain in it. "
            "Compute the densities yourself and use from_arrays."
        )
    _require_observations(rv, y, logp)
    theta: dict[str, Variable] = {}
    data: dict[str, tuple[Variable, Numeric]] = {}
    plain: dict[Variable, Variable] = {}
    for leaf, variable in _leaves([logp] if outcome is None else [logp, outcome]):
        if isinstance(leaf.type, RandomType):
            continue
        if leaf in names or isinstance(leaf, SharedVariable):
            plain[variable] = TensorType(leaf.dtype, leaf.type.shape)(leaf.name)
        if leaf in names:
            theta[names[leaf]] = plain[variable]
        elif isinstance(leaf, SharedVariable):
            name = leaf.name or f"data {len(data)}"
            data[name] = plain[variable], np.asarray(leaf.get_value())
    random = None if outcome is None else rebuilt(outcome, plain)
    return y, rebuilt(logp, plain), random, theta, data


def _random_outcome(model: Any, rv: Variable) -> Variable | None:
    """Write the outcome as a random variable, given values of the others; None if PyTensor fails.

    The density does not depend on it.
    """
    from pytensor.graph.replace import graph_replace

    parents = nearest([other for other in model.rvs_to_values if other is not rv], rv)
    try:
        (outcome,) = graph_replace([rv], {v: model.rvs_to_values[v] for v in parents})
        return _lowered(outcome)
    except Exception:  # whatever PyTensor does with a graph that it cannot make again
        return None


def _log_density(model: Any, rv: Variable, y: Variable) -> Variable:
    """Let PyMC write the log density of one variable at a free value."""
    value = y
    if _has_dims(rv):
        from pytensor.xtensor.basic import xtensor_from_tensor

        value = xtensor_from_tensor(y, dims=rv.type.dims)
    model.values_to_rvs.pop(model.rvs_to_values[rv], None)
    model.rvs_to_values[rv] = value
    model.values_to_rvs[value] = rv
    (logp,) = model.logp(vars=[rv], sum=False)
    if not _has_dims(logp):
        return logp
    dims = [dim for dim in rv.type.dims if dim in logp.type.dims]
    if tuple(dims) != tuple(rv.type.dims[: len(dims)]):
        raise UnsupportedError(
            f"{rv.name!r} has the dimensions {rv.type.dims}; put those of one outcome last."
        )
    return _lowered(logp.transpose(*dims))


def _lowered(variable: Variable) -> Variable:
    """Write a variable of pymc.dims as a plain tensor."""
    if not _has_dims(variable):
        return variable
    from pytensor.graph.rewriting.utils import rewrite_graph
    from pytensor.xtensor.basic import tensor_from_xtensor

    return rewrite_graph(tensor_from_xtensor(variable), include=("lower_xtensor",))


def _has_dims(variable: Variable) -> bool:
    """Whether it is a variable of pymc.dims, with named axes."""
    return hasattr(variable.type, "dims")


def _leaves(outputs: Iterable[Variable]) -> list[tuple[Variable, Variable]]:
    """Find what a graph begins with, each with the plain tensor that is made of it first."""
    variables = variables_of(outputs)
    leaves = [(v, v) for v in variables if v.owner is None and not _has_dims(v)]
    parents = [(v.owner.inputs[0], v) for v in variables if v.owner is not None]
    return leaves + [(v, tensor) for v, tensor in parents if v.owner is None and _has_dims(v)]


def _observed(model: Any, var_name: str | None) -> Variable:
    names = sorted(rv.name for rv in model.observed_RVs)
    if not names:
        hint = (
            " Its potentials may hold the likelihood, but they do not tell which value was "
            "observed: write it as pm.CustomDist(..., logp=..., observed=y)."
            if model.potentials
            else ""
        )
        raise UnsupportedError(f"The model has no observed variable.{hint}")
    if var_name is None and len(names) == 1:
        return model.observed_RVs[0]
    for candidate in (var_name, f"{var_name}_observed"):  # the latter where values are missing
        if candidate in names:
            return model[candidate]
    listed = ", ".join(names)
    got = "" if var_name is None else f", not {var_name!r}"
    raise UnsupportedError(f"Say which observed variable by var_name=: one of {listed}{got}.")


def _require_observations(rv: Variable, y: Variable, logp: Variable) -> None:
    if logp.ndim == 0 and y.ndim > 0:
        raise UnsupportedError(
            f"The likelihood of {rv.name!r} is one joint density of all outcomes: it does not "
            "factorise into observations, which leave-one-out needs. Condition on what ties them "
            "together: a latent process (pm.gp.Latent), or earlier outcomes as covariates."
        )
    if y.ndim == 0:
        raise UnsupportedError(f"{rv.name!r} is a single number; at least a vector is needed.")
    if y.ndim - logp.ndim > 1:
        raise UnsupportedError(
            f"One outcome of {rv.name!r} has {y.ndim - logp.ndim} dimensions; scalars and vectors "
            "are supported."
        )


def _require_separate(model: Any, rv: Variable, observed: Numeric) -> None:
    """Refuse what makes p(y | θ) something else than the density of one variable."""
    inside = [type(v.owner.op).__name__ for v in variables_of([rv]) if v.owner is not None]
    value = variables_of([model.rvs_to_values[rv]])
    inside += [type(v.owner.op).__name__ for v in value if v.owner is not None]
    if any("Minibatch" in name for name in inside):
        raise UnsupportedError(
            f"{rv.name!r} is observed in minibatches, or scaled by total_size. Build the model "
            "with all data, under the same names, and give that with the same posterior."
        )
    if any("PartialObserved" in name for name in inside):
        raise UnsupportedError(
            f"Components of vector outcomes of {rv.name!r} are missing and imputed, so an outcome "
            "is partly parameter. Drop incomplete outcomes before sampling."
        )
    if any("Simulator" in name for name in inside):
        raise UnsupportedError(f"{rv.name!r} is simulated and has no density.")
    for other in (*model.potentials, *model.basic_RVs):
        if other is not rv and _involves(other, rv, observed, is_rv=other in model.basic_RVs):
            raise UnsupportedError(
                f"{other.name!r} involves the outcome {rv.name!r}, so the density of an outcome "
                "is not that of this variable alone. Write all that involves the outcome as one "
                "pm.CustomDist(..., logp=..., observed=...)."
            )


def _involves(other: Variable, rv: Variable, observed: Numeric, *, is_rv: bool) -> bool:
    """Whether a variable depends on the outcome or, for potentials, on a copy of its values."""
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.basic import Constant

    for variable in variables_of([other]):
        if variable is rv:
            return True
        if is_rv or variable.owner is not None or observed.size < 2:
            continue
        if isinstance(variable, Constant):
            value = variable.data
        elif isinstance(variable, SharedVariable):
            value = variable.get_value(borrow=True)
        else:
            continue
        if np.shape(value) == observed.shape and np.array_equal(value, observed):
            return True
    return False


def parts_of(rv: Variable, own: Iterable[Variable] = ()) -> tuple[str, ...]:
    """Name the outcome's distribution, and those that it is made of; others are the model's own."""
    own = set(own) - {rv}
    names = []
    stack = [rv]
    while stack:
        variable = stack.pop()
        if variable in own or variable.owner is None:
            continue
        op = variable.owner.op
        name = (getattr(op, "_print_name", None) or ("",))[0]
        if name.startswith("CustomDist"):  # whose name goes on, and whose graph is the user's
            name = "CustomDist"
            stack.extend(getattr(op, "inner_outputs", ()))
        if name:
            names.append(name)
        stack.extend(variable.owner.inputs)
    return tuple(dict.fromkeys(names)) or (type(rv.owner.op).__name__,)
