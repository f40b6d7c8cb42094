"""The result of combining models."""

from __future__ import annotations

import html
import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.collapse import Kind
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.fitting import Problem
from lockquack.jets import Array
from lockquack.notes import Note, density_notes
from lockquack.observations import Observations
from lockquack.operators import Operator
from lockquack.predictive import Predictive
from lockquack.progress import progress_bar
from lockquack.rules import Rule
from lockquack.solvers.base import Solution

if TYPE_CHECKING:
    from lockquack.density.pooled import Normalised

#: Bootstrap replicates behind the standard errors in the table.
_REPLICATES = 400
#: Models that the printed table shows.
_ROWS_SHOWN = 30
#: Numbers that a group of bootstrap replicates may hold at once.
_NUMBERS_AT_ONCE = 2**22
_KINDS: dict[Kind, str] = {
    "loo": "leave-one-out",
    "in-sample": "in-sample",
    "held-out": "held-out",
}


@dataclass(frozen=True, eq=False, repr=False)
class Combination:
    """Several models combined into one prediction.

    Made by :func:`lock` and its relatives. Nothing in it changes. Printed, it is a table: one
    row for the combination, one for each model.

    Attributes
    ----------
    names
        The models' names, in the order in which they were given.
    operator, rule, scores
        How the densities are pooled, by which score, and of which predictions.
    solution
        Objective, certified gap, status and number of steps of the solver.
    mcse
        Monte Carlo standard error of each model's total score.
    notes
        What to know before trusting it; each was warned of when it was fitted.
    models
        The models, or None after :func:`load`.
    """

    names: tuple[str, ...]
    operator: Operator
    rule: Rule
    scores: Kind
    observations: Observations
    problem: Problem
    solution: Solution
    mcse: Array  # (K,)
    notes: tuple[Note, ...]
    random_seed: int
    models: Mapping[str, Predictive] | None

    def __post_init__(self) -> None:
        jets = self.problem.jets
        for array in (self.solution.x, self.mcse, jets.logp, jets.grad, jets.curv):
            array.setflags(write=False)

    @property
    def weights(self) -> xr.DataArray:
        """Weights of the models."""
        return self._over_models(self.solution.x, "weights")

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
        """
        if n < 1:
            raise ParameterError(f"The number of bootstrap draws must be at least 1; got {n}.")
        rng = np.random.default_rng(random_seed)
        K, n_obs = len(self.names), self.observations.n
        at_once = max(1, _NUMBERS_AT_ONCE // max(n_obs, K * K))
        draws = np.empty((n, K))
        with progress_bar(n, "bootstrap", progressbar) as advance:
            for start in range(0, n, at_once):
                size = min(at_once, n - start)
                counts = rng.standard_exponential((size, n_obs))
                counts *= n_obs / counts.sum(axis=1, keepdims=True)
                draws[start : start + size] = self.problem.resolve(counts).x
                advance(size)
        return xr.DataArray(
            draws,
            dims=["draw", "model"],
            coords={"draw": np.arange(n), "model": list(self.names)},
            name="weights",
        )

    def logpdf(self, *, loo: bool = False, progressbar: bool | None = None) -> xr.DataArray:
        r"""Log density of the combination, normalised, at each observation.

        .. math:: \log q(y_i) = \log \tilde q(y_i) - \log \int \tilde q(y) \, dy

        The integral is one-dimensional quadrature for each observation.

        Parameters
        ----------
        loo
            Leave each observation out of the models that predict it, by Pareto-smoothed
            importance weights. A warning tells where those are unreliable.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        xarray.DataArray
            One log density per observation. Its sum is the total log score.
        """
        normalised = self._normalise(loo, progressbar)
        return self.observations.label(normalised.logp.copy(), name="logpdf")

    def log_norm(self, *, loo: bool = False, progressbar: bool | None = None) -> xr.DataArray:
        """Log of the normaliser of the pool at each observation; see :meth:`logpdf`."""
        normalised = self._normalise(loo, progressbar)
        return self.observations.label(normalised.log_norm.copy(), name="log_norm")

    def diagnostics(self, *, progressbar: bool | None = None) -> xr.Dataset:
        """Examine each model's draws at each observation; takes longer than the fit itself.

        Returns
        -------
        xarray.Dataset
            ``ess_grad`` and ``ess_curv``, the effective sample sizes of the two averages behind
            the leave-one-out Hyvärinen score; ``elpd`` and ``pareto_k``, the leave-one-out log
            score by PSIS and the tail index that tells whether to trust it. The Hyvärinen
            score does not depend on the latter.
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

        Columns: ``weight`` and its standard error; ``score``, the total over observations,
        larger is better, and its standard error; ``diff``, the score minus the combination's,
        and its standard error, paired over observations; ``mcse``, the part of the score's
        error that is due to the finite number of draws. The combination is scored on the
        observations that its weights were fitted to, which flatters it a little.
        """
        scored = self._scored
        behind = scored - scored[0]
        return pd.DataFrame(
            {
                "weight": [np.nan, *self.solution.x],
                "weight_se": [np.nan, *self._weights_se],
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
        """
        from lockquack.storage import save_combination

        save_combination(self, path)

    def __repr__(self) -> str:
        lines = [*self._header(), "", self._formatted().to_string(), "", self._certificate()]
        for note in self.notes:
            lines += textwrap.wrap(f"Note: {note.message}", 88, subsequent_indent="  ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "<br>".join(map(html.escape, self._header()))
        table = self._formatted().to_html(border=0, justify="right")
        table = table.replace("<table ", '<table style="text-align: right" ', 1)
        notes = "".join(f"<li>{html.escape(note.message)}</li>" for note in self.notes)
        foot = html.escape(self._certificate())
        return f"<p>{head}</p>{table}<p>{foot}</p>" + (f"<ul>{notes}</ul>" if notes else "")

    @cached_property
    def _scored(self) -> Array:
        """Scores of the combination and of each model, (1 + K, n)."""
        return score_all(self.operator, self.rule, self.problem, self.solution.x)

    @cached_property
    def _weights_se(self) -> Array:
        if self.observations.n < 2:
            return np.full(len(self.names), np.nan)
        replicates = _REPLICATES if len(self.names) <= 50 else _REPLICATES // 4
        draws = self.bootstrap(replicates, random_seed=self.random_seed)
        return draws.values.std(axis=0, ddof=1)

    @property
    def _rows(self) -> list[str]:
        return [f"[{self.operator.name}]", *self.names]

    def _over_models(self, values: Array, name: str) -> xr.DataArray:
        return xr.DataArray(
            values.copy(), dims=["model"], coords={"model": list(self.names)}, name=name
        )

    def _require_models(self) -> Mapping[str, Predictive]:
        if self.models is None:
            raise UnsupportedError(
                "A combination read from a file has no models; fit it again from the models to "
                "evaluate or diagnose them."
            )
        return self.models

    @cached_property
    def _densities(self) -> dict[bool, Normalised]:
        """Normalised densities, in-sample and leave-one-out, once they were asked for."""
        return {}

    def _normalise(self, loo: bool, progressbar: bool | None) -> Normalised:
        if loo not in self._densities:
            from lockquack.density.pooled import mix, normalise

            used = self.solution.x > 0
            models = {
                name: model
                for keep, (name, model) in zip(used, self._require_models().items(), strict=True)
                if keep
            }
            evaluate = mix if self.operator.normalised else normalise
            result = evaluate(
                models, self.operator, self.solution.x[used], loo=loo, progressbar=progressbar
            )
            self._densities[loo] = result
            for note in density_notes(models, result, self.observations):
                warnings.warn(note.message, note.category, stacklevel=3)
        return self._densities[loo]

    def _header(self) -> list[str]:
        concentration = np.unique(self.problem.concentration)
        prior = f"{concentration[0]:g}" if concentration.size == 1 else "by model"
        units = ", ".join(f"{s:.4g}" for s in self.problem.unit)
        unit = f"   unit of y: {units}" if self.rule.needs_derivatives else ""
        return [
            f"{self.operator.name.capitalize()}, fitted by the {_KINDS[self.scores]} "
            f"{self.rule.label} score (larger is better)",
            f"models: {len(self.names)}   observations: {self.observations.n}   "
            f"prior: Dirichlet({prior}){unit}",
        ]

    def _formatted(self) -> pd.DataFrame:
        """Round for reading; of very many models, show those with most weight."""
        table = self.to_dataframe()
        if len(self.names) > _ROWS_SHOWN:
            most = table["weight"].iloc[1:].nlargest(_ROWS_SHOWN).index
            table = table.loc[[table.index[0], *most]]
        shown = pd.DataFrame(
            {name: [_rounded(str(name), value) for value in table[name]] for name in table},
            index=[_shortened(str(name)) for name in table.index],
        )
        if len(self.names) > _ROWS_SHOWN:
            rest = pd.DataFrame(
                "", index=[f"… {len(self.names) - _ROWS_SHOWN} more"], columns=shown.columns
            )
            shown = pd.concat([shown, rest])
        return shown

    def _certificate(self) -> str:
        solution = self.solution
        state = "Certified" if solution.converged else f"NOT CONVERGED, {solution.status}"
        return (
            f"{state}: within {float(solution.gap):.1e} of the best objective, "
            f"{float(solution.relative_gap):.0e} of its size; {int(solution.iterations)} steps"
        )


def _rounded(column: str, value: float) -> str:
    if np.isnan(value):
        return ""
    if abs(value) >= 1e7:
        return f"{value:.3e}"
    return f"{value:.{ {'weight': 3, 'weight_se': 3, 'mcse': 2}.get(column, 1) }f}"


def _shortened(name: str, width: int = 28) -> str:
    return name if len(name) <= width else f"{name[: width - 9]}…{name[-8:]}"


def score_all(operator: Operator, rule: Rule, problem: Problem, weights: Array) -> Array:
    """Score the pool and then each of its models at every observation, (1 + K, n)."""
    pooled = operator.pool(problem.jets, weights)
    return np.stack([rule.score(jet, problem.unit) for jet in (pooled, *problem.jets)])


def load(path: str | Path) -> Combination:
    """Read a combination that :meth:`Combination.save` wrote.

    Everything but the models' draws is there: weights, scores, table, notes, bootstrap.
    """
    from lockquack.storage import load_combination

    return load_combination(path)


def _se_of_total(values: Array) -> Array:
    """Estimate the standard error of the sum over the last axis, seen as a sample."""
    n = values.shape[-1]
    if n < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(np.sqrt(n) * values.std(axis=-1, ddof=1))
