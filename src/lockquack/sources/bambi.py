"""Models fitted by Bambi."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from lockquack.arithmetic import own_arithmetic
from lockquack.errors import ShapeError, UnsupportedError
from lockquack.families.base import Edge
from lockquack.jets import Numeric
from lockquack.models.containers import divergences, log_marginal_likelihood, stored_log_likelihood
from lockquack.models.model import Model
from lockquack.models.observations import SAMPLE_DIMS, as_observations
from lockquack.models.source import Source
from lockquack.models.transformed import on_natural_scale
from lockquack.sources.bambi_newdata import (
    as_frame,
    complete_rows,
    explaining,
    require_known,
    require_outcomes,
)
from lockquack.sources.bambi_response import Response, Rows
from lockquack.sources.libraries import library
from lockquack.sources.pymc import read_tree
from lockquack.sources.pymc_outcomes import ATOMS, parts_of
from lockquack.sources.pytensor_rewriting import Variable, rebuilt
from lockquack.sources.pytensor_sources import GraphSource, LogDensityGraph


@own_arithmetic
def from_bambi(
    model: Any,
    idata: Any,
    *,
    newdata: Any = None,
    transform: str | None = None,
    weights: Any = None,
) -> Model:
    r"""Take a model and its posterior from Bambi.

    .. math::

        \log f(y_i \mid \theta_s), \quad
        \partial_{y} \log f(y_i \mid \theta_s), \quad
        \partial^2_{y} \log f(y_i \mid \theta_s)

    The likelihood's parameters at each observation are those of ``model.predict``, and the
    derivatives in the **observed value** are PyTensor's. Two draws are compared with Bambi's own
    log likelihood. The parameters that differ between observations are held in memory, draws ×
    observations, as Bambi itself does.

    Do not use :func:`from_pymc` with ``model.backend.model``: Bambi stores the intercept for
    covariates that are not centred, its PyMC model needs that for centred ones.

    Discrete and hurdle families are accepted for the log score; they have no derivatives. Levels
    of a categorical or ordinal response count from 0, in Bambi's order. A ``censored`` response
    has log scores only: a censored outcome has a probability, not a density. A ``truncated`` or
    ``constrained`` one has its density between the bounds, where it ends abruptly. Of a
    ``weighted`` response the density is that of the family, and its weights are case weights.

    Parameters
    ----------
    model
        The ``bambi.Model``, as it was fitted.
    idata
        What ``model.fit`` returned: InferenceData or DataTree.
    newdata
        A DataFrame with the response and the predictors of other observations than those that
        the model was fitted to.
    transform
        ``"log"`` or another name of :func:`from_family` if the response is that function of the
        outcome, as in the formula ``log(y) ~ x``; see :func:`from_pymc`.
    weights
        Case weights: how often each observation counts; see :meth:`Model.with_weights`. None:
        those of a ``weighted`` response, if it is one.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives; its method
        ``with_data(y, newdata=...)`` gives the same posterior's predictions of other outcomes.
        Columns can be given by name instead, ``with_data(y, x=...)``.

    Examples
    --------
    >>> import bambi as bmb  # doctest: +SKIP
    >>> import lockquack as lq
    >>> model = bmb.Model("weight ~ height + (1|group)", data)  # doctest: +SKIP
    >>> lq.from_bambi(model, model.fit())  # doctest: +SKIP
    <Model Normal; chain: 4, draw: 1000, obs_id: 50, components: 1>
    """
    bmb = library("bambi", "bambi")
    if not isinstance(model, bmb.Model):
        raise UnsupportedError(f"from_bambi needs a bambi.Model; got a {type(model).__name__}.")
    if not model.built:
        raise UnsupportedError("The model was not built. Give the model that was fitted.")
    tree = read_tree(idata)
    fitted = _Fitted(model, tree["posterior"].to_dataset(), log_marginal_likelihood(tree))
    frame = as_frame(model, newdata, {})
    rows = fitted.response.original() if frame is None else fitted.response.at(frame)
    source = fitted.source(rows, frame)
    complete = complete_rows(model, fitted.response.names)
    if frame is None and not complete.all() and complete.sum() == source.n_obs:
        kept = source.observations.as_kept(np.flatnonzero(complete), complete.size)
        source = replace(source, observations=kept)
    fitted.require_agreement(source, frame)
    if frame is None and fitted.response.mark != "weighted":  # Bambi stores weighted ones so
        source = replace(source, stored=stored_log_likelihood(tree, fitted.response.stored_name))
    source = replace(source.named(fitted.response.name), divergent=divergences(tree))
    return Model(on_natural_scale(source, transform)).with_weights(
        rows.weights if weights is None else weights
    )


@dataclass(frozen=True)
class _Fitted:
    """A model of Bambi and its draws."""

    model: Any
    posterior: xr.Dataset
    log_marginal_likelihood: float | None

    @property
    def response(self) -> Response:
        """The left side of the formula."""
        return Response(self.model)

    @property
    def name(self) -> str:
        """Name of the likelihood."""
        return str(self.model.family.likelihood.name)

    def source(self, rows: Rows, newdata: Any) -> GraphSource:
        """Make the source at some outcomes and predictors."""
        observations = as_observations(rows.y)
        parameters = self._parameters(newdata)
        lengths = {each.shape[2] for each in parameters.values() if each.ndim > 2} - {1}
        for beside in (rows.trials, rows.lower, rows.upper):
            lengths |= set() if beside is None else {len(beside)}
        if lengths - {observations.n}:
            has, remedy = "newdata has", ""
            if newdata is None:
                has = "The model was fitted to"
                remedy = " Give the predictors of other rows as newdata=, a DataFrame."
            raise ShapeError(
                f"{has} {max(lengths)} rows; there are {observations.n} outcomes.{remedy}"
            )
        source = self._graph(parameters, rows).source(observations, self.rebuild)
        is_cut = self.response.is_cut and not source.likelihood.discrete
        return _cut_off(source, rows) if is_cut else source

    def rebuild(self, y: Any, /, newdata: Any = None, **columns: Any) -> Source:
        """Make the model at other outcomes and predictors."""
        frame = as_frame(self.model, newdata, columns)
        if frame is None:
            require_outcomes(y, np.asarray(self.response.original().y))
        again = replace(self, log_marginal_likelihood=None)
        return again.source(self.response.unmarked(y, frame), frame)

    def require_agreement(self, source: Source, newdata: Any) -> None:
        """Compare the first and the last draw of a chain with Bambi's own log likelihood.

        It does not know censored and truncated responses.
        """
        if self.response.mark in ("censored", "truncated"):
            return
        ends = sorted({0, source.n_draws - 1})
        some = self.posterior.isel(chain=[0], draw=ends)
        theirs = self._log_likelihood(some, newdata, source.observations.values)
        everything = slice(0, source.n_obs)
        ours = np.stack([source.logp(0, slice(at, at + 1), everything)[0] for at in ends])
        if not np.allclose(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True):
            worst = float(np.nanmax(np.abs(ours - theirs)))
            raise UnsupportedError(
                f"The log densities of {self.name} differ from Bambi's by up to {worst:.3g}: this "
                "version of Bambi is not understood. Use from_arrays with the log likelihood of "
                "model.compute_log_likelihood, and the log score."
            )

    def _parameters(self, newdata: Any) -> dict[str, Numeric]:
        """Draws of the arguments of the likelihood, (chain, draw, obs or 1, ...)."""
        if newdata is not None:
            require_known(self.model, newdata)
        with explaining("compute the parameters of the likelihood from these draws"):
            predicted = self._predicted(self.posterior, newdata)
            given, _ = self.model.family._make_dist_kwargs_and_coords(self.model, predicted)
        return {name: _over_draws(value) for name, value in given.items()}

    def _predicted(self, posterior: xr.Dataset, newdata: Any) -> xr.Dataset:
        """Draws with the parameters of the likelihood among them."""
        predicted = self.model.predict(
            _container(posterior), kind="response_params", data=newdata, inplace=False
        )
        found = predicted["posterior"]
        return found.to_dataset() if isinstance(found, xr.DataTree) else found

    def _graph(self, parameters: Mapping[str, Numeric], rows: Rows) -> LogDensityGraph:
        """Write the log density of one outcome, given the arguments of its likelihood."""
        import pymc as pm
        from pytensor.tensor import TensorType

        chains, draws = self.posterior.sizes["chain"], self.posterior.sizes["draw"]
        theta, arguments = {}, {}
        for name, values in parameters.items():
            arguments[name] = _variable(name, values.shape[2:], "float64")
            theta[arguments[name]] = np.broadcast_to(values, (chains, draws, *values.shape[2:]))
        data: dict[Variable, Numeric] = {}
        rv = self._random_variable(arguments, rows, data)
        discrete = np.dtype(rv.dtype).kind in "biu"
        y = TensorType(rv.dtype if discrete else "float64", (None,) * rv.type.ndim)("y")
        parts = parts_of(rv)
        return LogDensityGraph(
            y,
            rebuilt(pm.logp(rv, y), {}),
            theta,
            data,
            chains,
            draws,
            self._description(rows),
            tuple(part for part in parts if not part.startswith("Truncated")),
            discrete=discrete,
            has_atoms=not discrete and any(part.startswith(ATOMS) for part in parts),
            log_marginal_likelihood=self.log_marginal_likelihood,
            outcome=rebuilt(rv, {}),
        )

    def _random_variable(
        self, arguments: Mapping[str, Variable], rows: Rows, data: dict[Variable, Numeric]
    ) -> Variable:
        """Write the outcome as a random variable; what rows say of it goes into the data."""
        import pymc as pm
        from bambi.families.family import get_response_dist

        def beside(name: str, values: Numeric, dtype: str = "float64") -> Variable:
            data[_variable(name, values.shape, dtype)] = values.astype(dtype)
            return list(data)[-1]

        given = dict(arguments)
        if rows.trials is not None:
            given["n"] = beside("n", rows.trials, "int64")
        elif getattr(self.model.family, "KIND", "") == "Multivariate":
            given["n"] = beside("n", np.asarray(rows.y).sum(axis=1), "int64")
        rv = get_response_dist(self.model.family).dist(**given)
        if rows.lower is None or rows.upper is None:
            return rv

        def bound(name: str, ends: Numeric) -> Any:
            if np.isinf(ends).all():
                return None
            # Where a likelihood ends for all observations, its density is known to end there.
            same = self.response.is_cut and bool((ends == ends[0]).all())
            return ends[0] if same else beside(name, ends)

        kind = pm.Truncated if self.response.is_cut else pm.Censored
        lower, upper = bound("lower", rows.lower), bound("upper", rows.upper)
        return kind.dist(rv, lower=lower, upper=upper)

    def _description(self, rows: Rows) -> str:
        if rows.lower is None or rows.upper is None:
            return self.name
        if not self.response.is_cut:
            return f"Censored{self.name}"
        low, high = rows.lower, rows.upper
        if (low == low[0]).all() and (high == high[0]).all():
            return f"{self.name} between {low[0]:g} and {high[0]:g}"
        return f"{self.name} between bounds"

    def _log_likelihood(self, posterior: xr.Dataset, newdata: Any, y: Numeric) -> Numeric:
        """Let Bambi compute it for one chain, without waiting for a compiler, (draw, obs)."""
        import bambi as bmb
        import pytensor

        family = self.model.family
        # Families with trials read their outcomes themselves, and others do not know how: they
        # count the levels of other data anew, and forget by how much an outcome was scaled.
        reads = type(family).log_likelihood is not bmb.Family.log_likelihood
        given = {"data": newdata} if reads else {"data": None, "y": y[:, 0]}
        with (
            explaining(f"compute the log likelihood of {self.name}"),
            pytensor.config.change_flags(mode="FAST_COMPILE"),
        ):
            found = family.log_likelihood(self.model, self._predicted(posterior, newdata), **given)
        return np.asarray(found.transpose(*SAMPLE_DIMS, ...))[0]


def _variable(name: str, shape: tuple[int, ...], dtype: str) -> Variable:
    """Make a variable with an axis of observations, which may be one for all."""
    from pytensor.tensor import TensorType

    length, *rest = shape
    return TensorType(dtype, (None if length > 1 else 1, *rest))(name)


def _over_draws(given: Any) -> Numeric:
    """Give an argument of a likelihood axes of chains, draws and observations."""
    values = np.asarray(given, dtype=np.float64)
    return values if values.ndim > 2 else values.reshape(*values.shape, *(1,) * (3 - values.ndim))


def _cut_off(source: GraphSource, rows: Rows) -> GraphSource:
    """Return a source with its bounds in place of what was seen of them from outside."""
    likelihood, bounds = source.likelihood, (rows.lower, rows.upper)
    if any(each is not None and np.unique(each).size > 1 for each in bounds):
        why = "where it is cut off, and does not vanish, differs between observations"
        return replace(source, likelihood=replace(likelihood, not_smooth=why))
    edges = tuple(
        edge if each is None or np.isinf(each[0]) else Edge(float(each[0]), edge.order)
        for edge, each in zip(likelihood.edges, bounds, strict=True)
    )
    return replace(source, likelihood=replace(likelihood, edges=edges))


def _container(posterior: xr.Dataset) -> Any:
    """Hold draws in what the installed ArviZ calls InferenceData."""
    import arviz

    counted = {dim: np.arange(posterior.sizes[dim]) for dim in SAMPLE_DIMS}
    posterior = posterior.assign_coords(counted)  # Bambi looks for these labels
    if int(arviz.__version__.split(".")[0]) >= 1:
        return xr.DataTree.from_dict({"posterior": posterior})
    return arviz.InferenceData(posterior=posterior)
