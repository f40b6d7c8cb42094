"""Models fitted by Bambi."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import ParameterError, ShapeError, UnsupportedError
from lockquack.jets import Numeric
from lockquack.models.containers import log_marginal_likelihood, stored_log_likelihood
from lockquack.models.model import Model
from lockquack.models.observations import as_observations
from lockquack.models.source import Source
from lockquack.sources.arrays import from_arrays
from lockquack.sources.pymc import ATOMS, parts_of, read_tree
from lockquack.sources.pytensor_rewriting import rebuilt
from lockquack.sources.pytensor_sources import LogDensityGraph


def from_bambi(model: Any, idata: Any, *, newdata: Any = None) -> Model:
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

    Discrete and hurdle families are accepted for the log score; they have no derivatives. Refused
    are responses that are ``censored``, ``truncated``, ``constrained`` or ``weighted`` in the
    formula, which Bambi's log likelihood does not know.

    Parameters
    ----------
    model
        The ``bambi.Model``, as it was fitted.
    idata
        What ``model.fit`` returned: InferenceData or DataTree.
    newdata
        A DataFrame with the response and the predictors of other observations than those that
        the model was fitted to.

    Returns
    -------
    Model
        A model for :func:`lockquack.lock` and its relatives; its method
        ``with_data(y, newdata=...)`` gives the same posterior's predictions of other outcomes.

    Examples
    --------
    >>> import bambi as bmb  # doctest: +SKIP
    >>> import lockquack as lq
    >>> model = bmb.Model("weight ~ height + (1|group)", data)  # doctest: +SKIP
    >>> lq.from_bambi(model, model.fit())  # doctest: +SKIP
    <Model Normal; chain: 4, draw: 1000, obs_id: 50, components: 1>
    """
    import bambi as bmb

    if not isinstance(model, bmb.Model):
        raise UnsupportedError(f"from_bambi needs a bambi.Model; got a {type(model).__name__}.")
    if not model.built:
        raise UnsupportedError("The model was not built. Give the model that was fitted.")
    tree = read_tree(idata)
    fitted = _Fitted(model, tree["posterior"].to_dataset(), log_marginal_likelihood(tree))
    fitted.require_plain_response()
    stored = stored_log_likelihood(tree, fitted.term.name) if newdata is None else None
    y = fitted.response(newdata)
    return Model(fitted.source(y, newdata, original=True, stored=stored))


@dataclass(frozen=True)
class _Fitted:
    """A model of Bambi and its draws."""

    model: Any
    posterior: xr.Dataset
    log_marginal_likelihood: float | None

    @property
    def term(self) -> Any:
        """The response, which moved between versions of Bambi."""
        if hasattr(self.model, "response_term"):
            return self.model.response_term
        return self.model.response_component.term

    @property
    def name(self) -> str:
        """Name of the likelihood."""
        return str(self.model.family.likelihood.name)

    def require_plain_response(self) -> None:
        """Refuse formulas whose likelihood is not that of the family."""
        for kind in ("censored", "truncated", "constrained", "weighted"):
            if getattr(self.term, f"is_{kind}", False):
                raise UnsupportedError(
                    f"The response {self.term.name!r} is {kind}, which Bambi's log likelihood "
                    "leaves out. Write the model in PyMC and use from_pymc, or give its log "
                    "densities to from_arrays."
                )

    def response(self, newdata: Any) -> Numeric:
        """Outcomes, (obs,) or (obs, component), as the likelihood has them."""
        from bambi.utils import response_evaluate_new_data

        if newdata is None:
            values = np.asarray(self.term.data)
        else:
            try:
                values = np.asarray(response_evaluate_new_data(self.model, newdata))
            except (KeyError, NameError) as error:
                raise ParameterError(
                    f"newdata must hold the response {self.term.name!r} as well; or give the "
                    f"outcomes by with_data(y, newdata=...). ({error})"
                ) from error
        # Successes come with the number of trials.
        trials = "Binomial" in self.name and not self.name.endswith("NegativeBinomial")
        return values[:, 0] if values.ndim == 2 and (trials or values.shape[1] == 1) else values

    def source(self, y: Any, newdata: Any, *, original: bool, stored: Any = None) -> Source:
        """Make the source at some outcomes; ``original`` tells that Bambi evaluates them too."""
        parameters = self._parameters(newdata)
        if parameters is None:
            return self._from_log_likelihood(y, newdata, original=original)
        graph = replace(self._graph(parameters), stored=stored)
        observations = as_observations(y)
        n = {values.shape[2] for values in graph.theta.values()} - {1}
        if n - {observations.n}:
            raise ShapeError(f"newdata has {max(n)} rows; there are {observations.n} outcomes.")
        source = graph.source(observations, self.rebuild)
        if original:
            self._require_agreement(source, newdata)
        return source

    def rebuild(self, y: Any, /, *, newdata: Any) -> Source:
        """Make the model at other outcomes and predictors."""
        again = replace(self, log_marginal_likelihood=None)
        return again.source(y, newdata, original=False)

    def _parameters(self, newdata: Any) -> dict[str, Numeric] | None:
        """Draws of the arguments of the likelihood, (chain, draw, obs or 1) or constants.

        None where Bambi computes this family's log likelihood in another way.
        """
        import bambi as bmb

        family = self.model.family
        if type(family).log_likelihood is not bmb.Family.log_likelihood:
            return None
        predicted = self.model.predict(
            _container(self.posterior), kind="response_params", data=newdata, inplace=False
        )
        posterior = _dataset(predicted)
        given, _ = family._make_dist_kwargs_and_coords(self.model, posterior)
        values = {name: np.asarray(value, dtype=np.float64) for name, value in given.items()}
        return values if all(value.ndim <= 3 for value in values.values()) else None

    def _graph(self, parameters: Mapping[str, Numeric]) -> LogDensityGraph:
        """Write the log density of one outcome, given the arguments of its likelihood."""
        import pymc as pm
        from bambi.families.family import get_response_dist
        from pytensor.tensor import TensorType

        chains, draws = self.posterior.sizes["chain"], self.posterior.sizes["draw"]
        theta = {}
        for name, values in parameters.items():
            length = values.shape[2] if values.ndim == 3 else 1
            shape = (None if length > 1 else 1,)
            full = np.broadcast_to(
                values if values.ndim == 3 else values[..., None], (chains, draws, length)
            )
            theta[name] = TensorType("float64", shape)(name), full
        rv = get_response_dist(self.model.family).dist(
            **{name: variable for name, (variable, _) in theta.items()}
        )
        if self.term.is_constrained:
            low, high = (
                float(end) if np.isfinite(end) else None
                for end in np.asarray(self.term.data)[0, 1:]
            )
            rv = pm.Truncated.dist(rv, lower=low, upper=high)
        discrete = np.dtype(rv.dtype).kind in "biu"
        y = TensorType(rv.dtype if discrete else "float64", (None,))("y")
        parts = parts_of(rv)
        return LogDensityGraph(
            y,
            rebuilt(pm.logp(rv, y), {}),
            dict(theta.values()),
            {},
            chains,
            draws,
            parts[0],
            parts[1:],
            discrete=discrete,
            has_atoms=any(part.startswith(ATOMS) for part in parts),
            log_marginal_likelihood=self.log_marginal_likelihood,
            outcome=rebuilt(rv, {}),
        )

    def _log_likelihood(self, posterior: xr.Dataset, newdata: Any) -> xr.DataArray:
        """Let Bambi compute it, without waiting for a compiler."""
        import pytensor

        try:
            with pytensor.config.change_flags(mode="FAST_COMPILE"):
                computed = self.model.compute_log_likelihood(
                    _container(posterior), data=newdata, inplace=False
                )
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise UnsupportedError(
                f"Bambi cannot compute the log likelihood of {self.name} here: "
                f"{str(error).splitlines()[0]}"
            ) from error
        group = _dataset(computed, "log_likelihood")
        return group[next(iter(group.data_vars))].transpose("chain", "draw", ...)

    def _require_agreement(self, source: Source, newdata: Any) -> None:
        """Compare the first and the last draw of a chain with Bambi's own log likelihood."""
        ends = sorted({0, source.n_draws - 1})
        theirs = self._log_likelihood(self.posterior.isel(chain=[0], draw=ends), newdata).values
        everything = slice(0, source.n_obs)
        ours = np.stack([source.logp(0, slice(at, at + 1), everything)[0] for at in ends])
        if not np.allclose(ours, theirs[0], rtol=1e-6, atol=1e-6, equal_nan=True):
            worst = float(np.nanmax(np.abs(ours - theirs[0])))
            raise UnsupportedError(
                f"The log densities of {self.name} differ from Bambi's by up to {worst:.3g}: this "
                "version of Bambi is not understood. Use from_arrays with the log likelihood of "
                "model.compute_log_likelihood, and the log score."
            )

    def _from_log_likelihood(self, y: Any, newdata: Any, *, original: bool) -> Source:
        if not original:
            raise UnsupportedError(
                f"Bambi computes the log likelihood of {self.name} at the outcomes in newdata "
                "only. Use from_bambi(model, idata, newdata=...) with the response in it."
            )
        logp = self._log_likelihood(self.posterior, newdata).values
        return from_arrays(logp=logp, y=y, likelihood=self.name).source


def _container(posterior: xr.Dataset) -> Any:
    """Hold draws in what the installed ArviZ calls InferenceData."""
    import arviz

    counted = {dim: np.arange(posterior.sizes[dim]) for dim in ("chain", "draw")}
    posterior = posterior.assign_coords(counted)  # Bambi looks for these labels
    if int(arviz.__version__.split(".")[0]) >= 1:
        return xr.DataTree.from_dict({"posterior": posterior})
    return arviz.InferenceData(posterior=posterior)


def _dataset(container: Any, group: str = "posterior") -> xr.Dataset:
    found = container[group]
    return found.to_dataset() if isinstance(found, xr.DataTree) else found
