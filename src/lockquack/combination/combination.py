"""The result of combining models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from lockquack.arithmetic import methods_in_own_arithmetic
from lockquack.checks.models import require_same_observations
from lockquack.combination import (
    averaging,
    diagnosing,
    measuring,
    pictures,
    recalibrating,
    running,
    uncertainty,
    varying,
)
from lockquack.combination.influence import influence
from lockquack.combination.log_scores import find_log_scores
from lockquack.combination.new_data import move_models, require_used
from lockquack.combination.shortcut import shortcut
from lockquack.combination.table import to_dataframe
from lockquack.combination.varying import read_new
from lockquack.draws.blocks import HELD_OUT
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.files.fits import save_fit
from lockquack.fitting.recalibration import RECALIBRATED
from lockquack.fitting.uncertainty import Curvature, are_too_few, expand_around
from lockquack.jets import Array
from lockquack.methods.fit import fit as fit_models
from lockquack.methods.fitted import Fitted
from lockquack.methods.method import METHODS
from lockquack.models.model import Model, sources_of
from lockquack.operators.pool import Pool
from lockquack.prediction.prediction import Prediction
from lockquack.remarks.draws import HardlyAnyDraws
from lockquack.remarks.weights import ModelsAlike
from lockquack.report import write_report
from lockquack.report.table import as_html, as_text
from lockquack.sources.reading import as_models

#: Bootstrap replicates behind the standard errors in the table.
_REPLICATES = 400


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Combination(Fitted):
    """Several models combined into one prediction.

    Made by :func:`lock` and its relatives; it never changes. Printed, it is a table: one row for
    the combination, one for each model.

    Attributes
    ----------
    names
        The models' names, in the order in which they were given.
    scores
        Which predictions are scored: leave-one-out, in-sample, held-out, or prequential.
    label
        What the method is called, in tables and pictures too.
    solution
        Objective, certified gap or agreement of starts, status and number of steps.
    mcse
        Monte Carlo standard error of each model's total score.
    remarks
        What to know before trusting the fit; each was also a warning. A remark has a
        ``message``, a ``code``, a ``category`` of warnings, and a ``title``, a ``meaning`` and a
        ``remedy`` in plain words.
    models
        The models, or None after :func:`load`.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> fit.weights.round(2).to_series().to_dict()
    {'first': 0.36, 'second': 0.64}
    >>> fit.names, fit.operator, fit.scores
    (('first', 'second'), Locking(), 'loo')
    """

    @classmethod
    def _of(cls, fitted: Fitted) -> Combination:
        """Make a combination of what a method found."""
        return cls(**{field.name: getattr(fitted, field.name) for field in fields(fitted)})

    @property
    def weights(self) -> xr.DataArray:
        """Weights of the models, their shares in the pool; at each observation, if they differ."""
        return self._over_models(self.pool.weights, "weights")

    @property
    def parameters(self) -> xr.Dataset:
        """Parameters besides the weights, such as phases, exponents, the order of a Hölder pool."""
        K = len(self.names)
        variables = {}
        for name, values in self.pool.parameters.items():
            dims = ["model"] if values.shape == (K,) else [f"{name}_dim"] * values.ndim
            variables[name] = (dims, values.copy())
        return xr.Dataset(variables, coords={"model": list(self.names)})

    @property
    def weights_se(self) -> xr.DataArray:
        """Standard errors of the weights, by the Bayesian bootstrap over observations.

        Those of a softmax gate are standard deviations of its posterior. NaN for models that were
        left out, and where observations or draws are too few to tell.
        """
        draws = self._parameter_draws
        if draws is None:
            return self._over_models(self._weights_se, "weights_se")
        return self._over_models(varying.spread_of_weights(self, draws), "weights_se")

    @property
    def what_varies(self) -> str:
        """What the weights depend on, and whether the data ask for it, in a sentence."""
        return varying.what_varies(self)

    @property
    def pointwise(self) -> xr.DataArray:
        """Score of each model and of the combination at each observation, larger is better.

        The combination, its label in brackets, comes first. Its own score is
        that of the observations to which the weights were fitted, so slightly optimistic. Where
        there are case weights, they are a coordinate: totals are sums of scores times these.
        """
        scores = self.observations.label(self._scored.copy(), {"model": self._rows}, "score")
        if self.observations.weights is None:
            return scores
        weights = self.observations.label(self.observations.weights.copy())
        return scores.assign_coords(case_weights=weights)

    weights_at = varying.weights_at
    bootstrap = uncertainty.bootstrap
    sandwich = uncertainty.sandwich
    posterior = uncertainty.posterior
    update = running.update
    recalibrated = recalibrating.recalibrated
    metrics = measuring.metrics
    average = averaging.average
    to_dataframe = to_dataframe
    influence = influence
    diagnostics = diagnosing.diagnostics

    def predict(
        self,
        y: Any = None,
        *,
        loo: bool = False,
        by: Any = None,
        models: Mapping[str, Any] | None = None,
        progressbar: bool | None = None,
        **data: Any,
    ) -> Prediction:
        """Predict the observations, in-sample or leave-one-out, or new ones.

        Parameters
        ----------
        y
            Outcomes of other observations, where they are known.
        loo
            Leave each observation out of the models that predict it, by Pareto-smoothed
            importance weights. Not for other observations.
        by
            Covariates of other observations, where the weights depend on some: given as for
            :func:`lock`, or by name.
        models
            The same models made for other observations, by name, for sources that cannot be taken
            to new data by themselves; those without weight may be left out. With ``y`` or data,
            the models of the fit, where it was read from a file.
        progressbar
            Whether to show progress; by default in a terminal only.
        **data
            What the models need to know about other observations, as their ``with_data`` takes
            it: for :func:`from_family` covariates ``x`` or parameters by name. Each goes to the
            models that have something of that name. A dict by the models' names gives each model
            its own.

        Returns
        -------
        Prediction
            The combination as a distribution: ``logpdf``, ``cdf``, ``quantile``, ``sample``…

        Examples
        --------
        >>> import numpy as np
        >>> import lockquack as lq
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=(40, 1))
        >>> y = x[:, 0] + rng.normal(size=40)
        >>> slope, level = 1 + 0.2 * rng.normal(size=(2, 4, 250, 1))
        >>> models = {
        ...     "slope": lq.from_family("normal", y=y, mu=lq.linear_predictor(x, slope), sigma=1.0),
        ...     "level": lq.from_family("normal", y=y, mu=0.2 * level[..., 0], sigma=1.5),
        ... }
        >>> fit = lq.lock(models)
        >>> fit.predict(loo=True).mean().sizes["obs_id"]
        40
        >>> fit.predict(x={"slope": [[0.0], [2.0]]}).mean().round(1).values
        array([0., 2.])
        """
        if y is None and models is None and not data and by is None:
            return self._of_own_observations(loo, progressbar)
        if loo:
            raise ParameterError(
                "Other observations cannot be left out of the models; drop loo=True."
            )
        pool, keep = self._pool_at(by).without_unused()
        names = [name for name, use in zip(self.names, keep, strict=True) if use]
        if models is None or y is not None or data:
            own = self._require_models() if models is None else as_models(models)
            used = require_used(own, names, self.names)
            number = pool.x.shape[1] if pool.varies else None
            moved = move_models(used, y, data, own, self.observations, number)
        else:
            moved = require_used(as_models(models), names, self.names)
            require_same_observations(sources_of(moved))
        observations = next(iter(moved.values())).observations
        if self.design is not None:
            read_new(self, by, observations)  # must fit together
        return Prediction(
            moved,
            pool,
            replace(observations, name=self.observations.name),
            self.label,
            observed=y is not None or (models is not None and observations.known),
            random_seed=self.random_seed,
            progressbar=progressbar,
            rivals=partial(self._rivals, tuple(moved)),
        )

    logpdf = shortcut(Prediction.logpdf)
    cdf = shortcut(Prediction.cdf)
    quantile = shortcut(Prediction.quantile)
    mean = shortcut(Prediction.mean)
    interval = shortcut(Prediction.interval)
    sample = shortcut(Prediction.sample)
    pit = shortcut(Prediction.pit, calibrates=True)
    coverage = shortcut(Prediction.coverage, calibrates=True)
    plot_density = shortcut(Prediction.plot_density, calibrates=True)
    plot_densities = shortcut(Prediction.plot_densities, calibrates=True)
    plot_pit = shortcut(Prediction.plot_pit, calibrates=True)
    plot_weights = pictures.plot_weights
    plot_weights_at = pictures.plot_weights_at
    plot_scores = pictures.plot_scores
    report = write_report

    def save(self, path: str | Path) -> None:
        """Write to NetCDF, or to Zarr if the path ends in ``.zarr``; read with :func:`load`.

        The models' draws are not part of it, only their jets at the observations, and what was
        known of log scores beside them.

        Parameters
        ----------
        path
            Where to write. A file or Zarr store that lockquack wrote is replaced, and so is an
            empty one; any other is refused.

        Examples
        --------
        >>> import lockquack as lq
        >>> fit = lq.lock(lq.example_models())
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(f"{folder}/fit.nc")
        ...     again = lq.load(f"{folder}/fit.nc")
        >>> bool((again.weights == fit.weights).all())
        True
        """
        save_fit(replace(self, _saved_log_scores=find_log_scores(self).values), path)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def _pool_at(self, by: Any) -> Pool:
        """Return the pool at other observations."""
        if self.design is None and by is None:
            return self.pool
        return varying.pool_at(self, varying.read_new(self, by))

    def _of_own_observations(self, loo: bool, progressbar: bool | None) -> Prediction:
        if loo and self.scores in HELD_OUT:
            raise ParameterError(
                f"These observations were not used to fit the models (scores={self.scores!r}), so "
                "they cannot be left out of them; drop loo=True."
            )
        if loo not in self._predictions:
            self._predictions[loo] = Prediction(
                self._require_models(),
                self.pool,
                self.observations,
                self.label,
                loo=loo,
                random_seed=self.random_seed,
                progressbar=progressbar,
                rivals=partial(self._rivals, self.names),
            )
        return self._predictions[loo]

    @cached_property
    def _predictions(self) -> dict[bool, Prediction]:
        """Predictions of the observations, in-sample and leave-one-out, once asked for."""
        return {}

    def _rivals(self, names: tuple[str, ...]) -> dict[str, Pool]:
        """Return the stacking of the models, unless it needs densities, or others, not there.

        And the combination before it was recalibrated, if it was.
        """
        keep, found = np.isin(self.names, names), {}
        if self.recalibration is not None and keep.all():
            plain = replace(self.pool, recalibration=None)
            found[self.label.removesuffix(RECALIBRATED)] = plain
        if not all(model.source.can.know_density for model in self._require_models().values()):
            return found
        stacked = self._stacked.pool
        if stacked.weights[~keep].any():
            return found
        pool = Pool(stacked.operator, stacked.x[keep], int(keep.sum()))
        return {**found, self._stacked.label: pool}

    @cached_property
    def _stacked(self) -> Fitted:
        return fit_models(self._require_models(), METHODS["stack"], scores=self.scores, quiet=True)

    @cached_property
    def _weights(self) -> Array:
        """Weights of the models, averages over the observations where they differ."""
        return self.objective.mean_weights(self.solution.x)

    @cached_property
    def _scored(self) -> Array:
        """Scores of the combination and of each model, (1 + K, n)."""
        scores = self.objective.all_scores(self.solution.x)
        if self.recalibration is not None:
            scores[0] = self.recalibration.scores
        return scores

    @cached_property
    def _curvature(self) -> Curvature:
        return expand_around(self.objective, self.solution.x)

    @cached_property
    def _replicates(self) -> Array:
        """Bootstrap draws behind the table, (replicate, K); NaN where there are none."""
        K = len(self.names)
        draws = self._parameter_draws
        if draws is None and not self._has_errors:
            return np.full((2, K), np.nan)
        if draws is not None:
            weights = np.stack([self.objective.mean_weights(each) for each in draws])
        else:
            weights = self.bootstrap(self._n_replicates, random_seed=self.random_seed).values
        weights[:, self.operator.left_out(K)] = np.nan
        return weights

    @cached_property
    def _parameter_draws(self) -> Array | None:
        """Draws of the parameters of weights that depend on covariates.

        They are of the bootstrap, or of the posterior of a softmax gate.
        """
        if self.fitter.parameter_draws is not None:
            return self.fitter.parameter_draws
        if self.design is None or not self._has_errors:
            return None
        rng = np.random.default_rng(self.random_seed)
        return uncertainty.draw_parameters(self, self._n_replicates, rng)

    @property
    def _n_replicates(self) -> int:
        few = len(self.names) > 50 or not self.fitter.refits_cheaply
        return _REPLICATES // 4 if few else _REPLICATES

    @property
    def _has_errors(self) -> bool:
        """Whether observations and draws are enough for standard errors of the weights."""
        hardly_any_draws = any(isinstance(remark, HardlyAnyDraws) for remark in self.remarks)
        return self.fitter.resamples and not (self._has_few_observations or hardly_any_draws)

    @cached_property
    def _complete_log_scores(self) -> list[Array]:
        """Log scores of the combination and of each model, (1 + K, n), once all are known."""
        return []

    @property
    def _missing_log_scores(self) -> list[str]:
        """Which log scores the table has not, in words."""
        why_not = find_log_scores(self).why_not
        return [why_not] if why_not else []

    @property
    def _has_few_observations(self) -> bool:
        """Whether there are too few observations for standard errors."""
        return are_too_few(self.observations.n, self.observations.weights)

    @property
    def _weights_se(self) -> Array:
        return np.where(self._are_interchangeable, np.nan, self._replicates.std(axis=0, ddof=1))

    @property
    def _weights_interval(self) -> Array:
        ends = np.quantile(self._replicates, [0.05, 0.95], axis=0)
        return np.where(self._are_interchangeable, np.nan, ends)

    @property
    def _are_interchangeable(self) -> NDArray[np.bool_]:
        """Which models share a weight with others like them, so that its errors mean nothing."""
        groups = [remark.models for remark in self.remarks if isinstance(remark, ModelsAlike)]
        return np.isin(self.names, [name for group in groups for name in group])

    @property
    def _weights_range(self) -> dict[str, list[float]]:
        """Smallest and largest weight of each model at any observation, where they differ."""
        if not self.pool.varies:
            return {}
        weights = self.pool.weights
        ends = {"weight_min": weights.min(axis=1), "weight_max": weights.max(axis=1)}
        return {name: [np.nan, *each.tolist()] for name, each in ends.items()}

    @property
    def _rows(self) -> list[str]:
        return [f"[{self.label}]", *self.names]

    def _over_models(self, values: Array, name: str) -> xr.DataArray:
        return self._labelled(values.copy(), {}, name)

    def _labelled(self, values: Array, leading: Mapping[str, Any], name: str) -> xr.DataArray:
        """Label values over models and, where there are any, observations."""
        leading = {**leading, "model": list(self.names)}
        if values.ndim > len(leading):
            return self.observations.label(values, leading, name)
        return xr.DataArray(values, coords=leading, dims=list(leading), name=name)

    def _require_models(self) -> Mapping[str, Model]:
        if self.models is None:
            raise UnsupportedError(
                "A combination read from a file has no models. Give them to predict, as models=, "
                "beside the new data, or fit it again from the models to evaluate or diagnose them."
            )
        return self.models
