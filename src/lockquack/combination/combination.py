"""The result of combining models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.combination.plotting import Plotting
from lockquack.combination.table import as_html, as_text
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.formulas import bootstrap_counts
from lockquack.fitting.objective import Objective
from lockquack.fitting.resampling import Resampling
from lockquack.fitting.uncertainty import Curvature, draw_posterior, expand_around, weight_jacobian
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.observations import Observations
from lockquack.numeric import as_count, as_generator, cut
from lockquack.operators import Operator
from lockquack.operators.pool import Pool
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.remarks import Remark
from lockquack.rules import Rule
from lockquack.solvers.base import Solution

#: Bootstrap replicates behind the standard errors in the table.
_REPLICATES = 400
#: Numbers that a group of bootstrap replicates may hold at once.
_NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class Combination(Plotting):
    """Several models combined into one prediction.

    Made by :func:`lock` and its relatives. Nothing in it changes. Printed, it is a table: one
    row for the combination, one for each model.

    Attributes
    ----------
    names
        The models' names, in the order in which they were given.
    scores
        Of which predictions the scores are: leave-one-out, in-sample, or held-out.
    method
        What the way to the weights is called, where operator and rule do not say it.
    solution
        Objective, certified gap or agreement of starts, status and number of steps.
    mcse
        Monte Carlo standard error of each model's total score.
    remarks
        What to know before trusting it; each was warned of when it was fitted. A remark has a
        ``message``, a ``code``, a ``category`` of warnings, and a ``title``, a ``meaning`` and a
        ``remedy`` in plain words.
    models
        The models, or None after :func:`load`.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> fit = lq.lock(example_models())
    >>> fit.weights.round(2).to_series().to_dict()
    {'first': 0.36, 'second': 0.64}
    >>> fit.names, fit.operator, fit.scores
    (('first', 'second'), Locking(), 'loo')
    """

    names: tuple[str, ...]
    scores: Kind
    method: str
    observations: Observations
    fitter: Fitter
    solution: Solution
    mcse: Array  # (K,)
    remarks: tuple[Remark, ...]
    random_seed: int
    models: Mapping[str, Model] | None

    def __post_init__(self) -> None:
        jets = self.objective.jets
        for array in (self.solution.x, self.mcse, jets.logp, jets.grad, jets.curv):
            array.setflags(write=False)

    @property
    def objective(self) -> Objective:
        """What the parameters minimise."""
        return self.fitter.objective

    @property
    def operator(self) -> Operator:
        """How the densities are pooled."""
        return self.objective.operator

    @property
    def rule(self) -> Rule:
        """The score that the parameters maximise."""
        return self.objective.rule

    @property
    def weights(self) -> xr.DataArray:
        """Weights of the models, their shares in the pool."""
        return self._over_models(self._weights, "weights")

    @property
    def parameters(self) -> xr.Dataset:
        """Parameters besides the weights, such as phases, exponents, the order of a Hölder pool."""
        K = len(self.names)
        variables = {}
        for name, values in self.operator.parameters(self.solution.x, K).items():
            dims = ["model"] if values.shape == (K,) else [f"{name}_dim"] * values.ndim
            variables[name] = (dims, values.copy())
        return xr.Dataset(variables, coords={"model": list(self.names)})

    @property
    def weights_se(self) -> xr.DataArray:
        """Standard errors of the weights, by the Bayesian bootstrap over observations."""
        return self._over_models(self._weights_se, "weights_se")

    @property
    def pointwise(self) -> xr.DataArray:
        """Score of each model and of the combination at each observation, larger is better.

        The combination, called like its operator in brackets, comes first. Its own score is
        that of the observations to which the weights were fitted, so slightly optimistic.
        """
        return self.observations.label(self._scored.copy(), {"model": self._rows}, "score")

    def bootstrap(
        self,
        n: int = 1000,
        *,
        random_seed: int | np.random.Generator | None = None,
        progressbar: bool | None = None,
    ) -> xr.DataArray:
        r"""Draw weights by the Bayesian bootstrap.

        .. math:: w^{(b)} = \arg\max_w \sum_i u_i^{(b)} \text{score}_i(w) + \log\text{prior}(w),
            \qquad u^{(b)} \sim n \cdot \text{Dirichlet}(1, \ldots, 1)

        It takes the observations as exchangeable; the uncertainty of each model's own draws is
        not in it (see ``mcse``).

        Parameters
        ----------
        n
            Number of draws.
        random_seed
            Seed or generator.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        xarray.DataArray
            Weights with dimensions ``draw`` and ``model``.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> draws = fit.bootstrap(200, random_seed=1)
        >>> dict(draws.sizes), draws.std("draw").round(2).values
        ({'draw': 200, 'model': 2}, array([0.11, 0.11]))
        """
        n = as_count("n", n)
        K, n_obs = len(self.names), self.observations.n
        groups = cut(slice(0, n), max(1, _NUMBERS_AT_ONCE // max(n_obs, K * K)))
        first = as_generator(random_seed)
        # A stream of random numbers per group: where it is drawn does not matter then.
        streams = [first, *(first.spawn(len(groups) - 1) if len(groups) > 1 else ())]
        resampling = Resampling(self.fitter, self.solution.x)
        parts = []
        with progress_bar(n, "bootstrap", progressbar) as advance:
            for part in map_observations(_replicate, (resampling,), groups, streams):
                parts.append(part)
                advance(len(part))
        draws = np.concatenate(parts)
        return xr.DataArray(
            draws,
            dims=["draw", "model"],
            coords={"draw": np.arange(n), "model": list(self.names)},
            name="weights",
        )

    def sandwich(self) -> xr.DataArray:
        r"""Covariance of the weights by the sandwich formula, :math:`J^{-1} I J^{-1} / n`.

        J is the curvature of the mean score and prior at the solution, I the variance of its
        slopes, both among the weights that are not exactly zero. It holds whether or not a model
        is true. Do not trust it where weights are close to 0 or 1: there the distribution is not
        normal, and :meth:`bootstrap` is better.

        Returns
        -------
        xarray.DataArray
            Covariances with dimensions ``model`` and ``model_``.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.sandwich().round(3).values
        array([[ 0.011, -0.011],
               [-0.011,  0.011]])
        """
        if not self.fitter.is_optimum:
            raise UnsupportedError("These weights are not the optimum of a smooth score.")
        jacobian = weight_jacobian(self.objective, self.solution.x)
        names = list(self.names)
        return xr.DataArray(
            jacobian @ self._curvature.sandwich() @ jacobian.T,
            dims=["model", "model_"],
            coords={"model": names, "model_": names},
            name="covariance",
        )

    def posterior(
        self,
        n: int = 1000,
        *,
        learning_rate: float | None = None,
        chains: int = 4,
        random_seed: int | np.random.Generator | None = None,
    ) -> xr.DataArray:
        r"""Draw weights from the generalised posterior.

        .. math:: p(w \mid y) \propto \text{prior}(w)\, \exp\bigl(\eta \textstyle\sum_i
            \text{score}_i(w)\bigr)

        A score is no log likelihood, so the learning rate η is not 1 by nature. By default it is
        calibrated, :math:`\eta = \mathrm{tr}(J I^{-1} J) / \mathrm{tr}(J)`: the posterior then
        has about the spread of :meth:`sandwich`.

        Parameters
        ----------
        n
            Number of draws per chain.
        learning_rate
            η, or None to calibrate it.
        chains
            Number of chains.
        random_seed
            Seed or generator.

        Returns
        -------
        xarray.DataArray
            Weights with dimensions ``chain``, ``draw`` and ``model``, as ArviZ takes them. Its
            attribute ``learning_rate`` is η.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> draws = fit.posterior(100, random_seed=1)
        >>> draws.dims, draws.attrs["learning_rate"] > 0
        (('chain', 'draw', 'model'), True)
        """
        n, chains = as_count("n", n), as_count("chains", chains)
        if not self.fitter.is_optimum:
            raise UnsupportedError("These weights are not the optimum of a smooth score.")
        eta = self._curvature.learning_rate() if learning_rate is None else float(learning_rate)
        if not (np.isfinite(eta) and eta > 0):
            raise ParameterError(
                f"The learning rate must be positive; it is {eta:g}. Nothing varies if one model "
                "has all the weight; use bootstrap."
            )
        rng = as_generator(random_seed)
        draws = draw_posterior(self.fitter, self.solution.x, eta, chains, n, rng)
        weights = np.apply_along_axis(self.objective.weights, -1, draws)
        return xr.DataArray(
            weights,
            dims=["chain", "draw", "model"],
            coords={"chain": range(chains), "draw": range(n), "model": list(self.names)},
            name="weights",
            attrs={"learning_rate": eta},
        )

    def diagnostics(self, *, progressbar: bool | None = None) -> xr.Dataset:
        """Examine each model's draws at each observation; takes longer than the fit itself.

        Parameters
        ----------
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        xarray.Dataset
            ``ess_grad`` and ``ess_curv``, the effective sample sizes of the two averages behind
            the leave-one-out Hyvärinen score; ``elpd`` and ``pareto_k``, the leave-one-out log
            score by PSIS and the tail index that tells whether to trust it. The Hyvärinen
            score does not depend on the latter.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> found = fit.diagnostics()
        >>> bool((found["pareto_k"] < 0.7).all()), bool((found["ess_grad"] > 400).all())
        (True, True)
        """
        parts = []
        for model in self._require_models().values():
            loo = model.loo(progressbar=progressbar)
            part = model.ess().rename(grad="ess_grad", curv="ess_curv")
            part["elpd"] = self.observations.label(loo.logp)
            part["pareto_k"] = self.observations.label(loo.pareto_k)
            parts.append(part)
        model_index = pd.Index(list(self.names), name="model")
        return xr.concat(parts, dim=model_index, join="override")

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table: one row for the combination, then one for each model.

        The combination is scored on the observations that its weights were fitted to, which
        flatters it a little.

        Returns
        -------
        pandas.DataFrame
            Columns: ``weight``, its standard error and the ends of its 90 % interval, by the
            Bayesian bootstrap; ``score``, the total over observations, larger is better, and its
            standard error; ``diff``, the score minus the combination's, and its standard error,
            paired over observations; ``mcse``, the part of the score's error that is due to the
            finite number of draws.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.to_dataframe()[["weight", "score", "diff"]].round(1)
                   weight  score  diff
        model
        [locking]     NaN  111.2   0.0
        first         0.4   15.5 -95.7
        second        0.6   80.4 -30.9
        """
        scored = self._scored
        behind = scored - scored[0]
        return pd.DataFrame(
            {
                "weight": [np.nan, *self._weights],
                "weight_se": [np.nan, *self._weights_se],
                "weight_5%": [np.nan, *self._weights_interval[0]],
                "weight_95%": [np.nan, *self._weights_interval[1]],
                "score": scored.sum(axis=1),
                "score_se": _se_of_total(scored),
                "diff": behind.sum(axis=1),
                "diff_se": _se_of_total(behind),
                "mcse": [np.nan, *self.mcse],
            },
            index=pd.Index(self._rows, name="model"),
        )

    def save(self, path: str | Path) -> None:
        """Write to NetCDF, or to Zarr if the path ends in ``.zarr``; read with :func:`load`.

        The models' draws are not part of it, only their jets at the observations.

        Parameters
        ----------
        path
            Where to write. A file that is there is replaced, and so is a store that lockquack
            wrote; any other folder that is not empty is refused.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(f"{folder}/fit.nc")
        ...     again = lq.load(f"{folder}/fit.nc")
        >>> bool((again.weights == fit.weights).all())
        True
        """
        from lockquack.files.storage import save_combination

        save_combination(self, path)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    @cached_property
    def _weights(self) -> Array:
        return self.objective.weights(self.solution.x)

    @cached_property
    def _scored(self) -> Array:
        """Scores of the combination and of each model, (1 + K, n)."""
        return self.objective.all_scores(self.solution.x)

    @cached_property
    def _curvature(self) -> Curvature:
        return expand_around(self.objective, self.solution.x)

    @cached_property
    def _replicates(self) -> Array:
        """Bootstrap draws behind the table, (replicate, K); NaN where there are none."""
        K = len(self.names)
        if self.observations.n < 2 or not self.fitter.resamples:
            return np.full((2, K), np.nan)
        few = K > 50 or not self.fitter.refits_cheaply
        replicates = _REPLICATES // 4 if few else _REPLICATES
        return self.bootstrap(replicates, random_seed=self.random_seed).values

    @property
    def _weights_se(self) -> Array:
        return np.asarray(self._replicates.std(axis=0, ddof=1))

    @property
    def _weights_interval(self) -> Array:
        return np.asarray(np.quantile(self._replicates, [0.05, 0.95], axis=0))

    @property
    def _rows(self) -> list[str]:
        return [f"[{self.operator.name}]", *self.names]

    def _over_models(self, values: Array, name: str) -> xr.DataArray:
        return xr.DataArray(
            values.copy(), dims=["model"], coords={"model": list(self.names)}, name=name
        )

    def _require_models(self) -> Mapping[str, Model]:
        if self.models is None:
            raise UnsupportedError(
                "A combination read from a file has no models; fit it again from the models to "
                "evaluate or diagnose them."
            )
        return self.models

    @property
    def pool(self) -> Pool:
        """The operator with its fitted parameters."""
        return self.objective.pool(self.solution.x)

    def _used(self) -> tuple[Mapping[str, Model], Pool]:
        """Models that have weight, and the pool of them."""
        models = self._require_models()
        pool, keep = self.pool.without_unused()
        kept = zip(keep, models.items(), strict=True)
        return {name: model for use, (name, model) in kept if use}, pool


def _replicate(
    resamplings: Sequence[Resampling], replicates: slice, rng: np.random.Generator
) -> Array:
    """Find the weights of some replicates of the observations, (replicate, K)."""
    (again,) = resamplings
    fitter = again.fitter
    counts = bootstrap_counts(rng, replicates.stop - replicates.start, fitter.objective.n_obs)
    found = fitter.refit_many(counts, again.x)
    return np.stack([fitter.objective.weights(each) for each in found])


def load(path: str | Path) -> Combination:
    """Read a combination that :meth:`Combination.save` wrote.

    Everything but the models' draws is there: weights, scores, table, remarks, bootstrap.

    Parameters
    ----------
    path
        The file or store.

    Returns
    -------
    Combination
        Its ``models`` are None: it cannot be evaluated at other outcomes.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> fit = lq.lock(example_models())
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(f"{folder}/fit.nc")
    ...     lq.load(f"{folder}/fit.nc").names
    ('first', 'second')
    """
    from lockquack.files.storage import load_combination

    return load_combination(path)


def _se_of_total(values: Array) -> Array:
    """Estimate the standard error of the sum over the last axis, seen as a sample."""
    n = values.shape[-1]
    if n < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(np.sqrt(n) * values.std(axis=-1, ddof=1))
