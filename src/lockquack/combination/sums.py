"""Weights from sums: for observations that come in parts, or are too many to hold."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeGuard

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.arithmetic import methods_in_own_arithmetic
from lockquack.checks.models import check_models
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError
from lockquack.files.sums import read_sums, save_sums
from lockquack.fitting.sums import QuadraticSums, SummedFitter
from lockquack.fitting.uncertainty import FEWEST_OBSERVATIONS
from lockquack.jets import Array
from lockquack.methods.summing import Summed
from lockquack.models.model import Model, already_said
from lockquack.models.observations import agreed
from lockquack.operators import Operator
from lockquack.operators.pool import Pool
from lockquack.prediction.prediction import Prediction
from lockquack.remarks import warn
from lockquack.report.table import KINDS, framed_html, framed_text
from lockquack.rules import Rule
from lockquack.rules.scaled import ScaledRule
from lockquack.solvers.base import Solution
from lockquack.sources.reading import as_models

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

#: Replicates behind the standard errors of the weights.
_REPLICATES = 400


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Running(Summed):
    """Weights by a score that is quadratic in them, from sums over the observations."""

    operator: ClassVar[Operator]
    #: What the method is called, by which score, and how observations are summed for it.
    label: ClassVar[str]
    scored_by: ClassVar[type[ScaledRule]]
    summed_by: ClassVar[Callable[..., QuadraticSums]]

    @classmethod
    def sum_over(
        cls, models: Mapping[str, Model], rule: Rule, scores: Kind, progressbar: bool | None
    ) -> QuadraticSums:
        """Check models, remark on them, and sum over their observations."""
        warn(*check_models(models, rule), already_said=already_said(models))
        return cls.summed_by(models, rule, scores, progressbar)

    @classmethod
    def is_for(cls, rule: Rule, operator: Operator) -> TypeGuard[ScaledRule]:
        """Whether such sums are enough for a rule and pools by an operator."""
        return type(rule) is cls.scored_by and operator == cls.operator

    @staticmethod
    @abstractmethod
    def sums_behind(fit: Combination) -> QuadraticSums:
        """Sum over the observations of a fit that such sums are enough for."""

    @property
    def n_obs(self) -> int:
        """Number of observations so far."""
        return self.sums.outcomes.count

    @property
    def weights(self) -> xr.DataArray:
        """Weights of the models in the pool."""
        return self._over_models(self.solution.x)

    @property
    def weights_se(self) -> xr.DataArray:
        """Standard errors of the weights, by a Bayesian bootstrap of the sums."""
        return self._over_models(self._replicates.std(axis=0, ddof=1))

    @cached_property
    def solution(self) -> Solution:
        """Weights, objective and certified gap."""
        return self._fitter.solve()

    @property
    def pool(self) -> Pool:
        """The pool with these weights."""
        return Pool(self.operator, self.solution.x, len(self.names))

    def update(
        self,
        models: Mapping[str, Any],
        *,
        forget: float = 0.0,
        progressbar: bool | None = None,
    ) -> Self:
        """Add observations, exactly: the result is that of all observations at once.

        Parameters
        ----------
        models
            The same models, by name, at other observations; fitted again or not.
        forget
            Share of what is known so far that is forgotten first: with 0.01 each time, old
            observations count less and less. By default nothing is.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        RunningLock or RunningStack
            The weights with the new observations.

        Examples
        --------
        >>> import lockquack as lq
        >>> running = lq.running_lock(lq.example_models())
        >>> running.update(lq.example_models(), forget=0.5).n_obs
        80
        """
        if not (isinstance(forget, int | float | np.number) and 0 <= forget < 1):
            raise ParameterError(f"forget must be a share, from 0 to below 1; got {forget!r}.")
        read = as_models(models)
        if set(read) != set(self.names):
            raise ParameterError(
                f"These weights are of the models {', '.join(self.names)}; got "
                f"{', '.join(read)}. Give the same models at the new observations."
            )
        same = {name: read[name] for name in self.names}
        more = self.sum_over(same, self.rule, self.scores, progressbar)
        self._require_same_components(more)
        return replace(self, sums=self.sums.times(1.0 - forget) + more)

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        same = {
            "models": (self.names, other.names),
            "score": (self.rule, other.rule),
            "scores": (self.scores, other.scores),
            "prior": (tuple(self.concentration), tuple(other.concentration)),
        }
        for what, (mine, theirs) in same.items():
            if mine != theirs:
                raise ParameterError(
                    f"Only parts of one analysis can be added; the {what} differ: {mine} and "
                    f"{theirs}."
                )
        self._require_same_components(other.sums)
        return replace(self, sums=self.sums + other.sums)

    def predict(self, models: Mapping[str, Any], *, progressbar: bool | None = None) -> Prediction:
        """Predict observations of the models that are given, by the pool with these weights.

        Parameters
        ----------
        models
            The models, by name, at the observations that are to be predicted.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        Prediction
            The combination as a distribution: ``logpdf``, ``quantile``, ``sample``…

        Examples
        --------
        >>> import lockquack as lq
        >>> running = lq.running_lock(lq.example_models())
        >>> running.predict(lq.example_models()).mean().sizes["obs_id"]
        40
        """
        read = as_models(models)
        missing = [name for name in self.names if name not in read]
        if missing:
            raise ParameterError(f"The model {missing[0]!r} is missing from models.")
        used = {name: read[name] for name in self.names}
        observations = agreed(model.observations for model in used.values())
        return Prediction(
            used,
            self.pool,
            observations,
            self.label,
            random_seed=self.random_seed,
            progressbar=progressbar,
        )

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table: one row for the combination, then one for each model.

        Returns
        -------
        pandas.DataFrame
            The columns of :meth:`Combination.to_dataframe`.

        Examples
        --------
        >>> import lockquack as lq
        >>> running = lq.running_lock(lq.example_models())
        >>> running.to_dataframe()[["weight", "score", "diff"]].round(1)
                   weight  score  diff
        model
        [lock]        NaN  111.2   0.0
        first         0.4   15.5 -95.7
        second        0.6   80.4 -30.9
        """
        pools = np.concatenate([self.solution.x[None], np.eye(len(self.names))])
        total = self.sums.totals(pools, self._factor)
        errors = np.array(self.sums.errors(pools, self._factor))
        if self.n_obs < FEWEST_OBSERVATIONS:
            errors[:] = np.nan
        low, high = np.quantile(self._replicates, [0.05, 0.95], axis=0)
        return pd.DataFrame(
            {
                "weight": [np.nan, *self.solution.x],
                "weight_se": [np.nan, *self.weights_se.values],
                "weight_5%": [np.nan, *low],
                "weight_95%": [np.nan, *high],
                "score": total,
                "score_se": errors[0],
                "diff": total - total[0],
                "diff_se": errors[1],
                "mcse": [np.nan, *self.sums.mcse(self._factor)],
            },
            index=pd.Index([f"[{self.label}]", *self.names], name="model"),
        )

    def save(self, path: str | Path) -> None:
        """Write to NetCDF, or to Zarr if the path ends in ``.zarr``; read with :meth:`load`.

        Parameters
        ----------
        path
            Where to write, as for :meth:`Combination.save`.

        Examples
        --------
        >>> import lockquack as lq
        >>> running = lq.running_lock(lq.example_models())
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     running.save(f"{folder}/running.nc")
        ...     again = lq.RunningLock.load(f"{folder}/running.nc")
        >>> again.update(lq.example_models()).n_obs
        80
        """
        save_sums(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        path
            The file or store.

        Returns
        -------
        RunningLock or RunningStack
            The same sums, to which observations can be added.
        """
        found = read_sums(path)
        if not cls.is_for(found.rule, cls.operator):
            raise ParameterError(
                f"These sums are for the {found.rule.label} score, not for a {cls.__name__}."
            )
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    def __repr__(self) -> str:
        return framed_text(self._header, self.to_dataframe(), [self._certificate])

    def _repr_html_(self) -> str:
        return framed_html(self._header, self.to_dataframe(), [self._certificate])

    @property
    def _header(self) -> list[str]:
        of_what = "" if self.rule.of_what == "y" else f" of {self.rule.of_what}"
        units = ", ".join(f"{unit:.4g}" for unit in self._unit)
        return [
            f"{self.operator.title}, fitted by the {KINDS[self.scores]} {self.rule.label} "
            f"score{of_what} (larger is better), from sums over the observations",
            f"models: {len(self.names)}   observations: {self.n_obs}   "
            f"counted: {self.sums.outcomes.weight:.6g}   unit of {self.rule.of_what}: {units}",
        ]

    @property
    def _certificate(self) -> str:
        return self._fitter.certificate(self.solution)

    @property
    def _fitter(self) -> SummedFitter:
        return SummedFitter.of(
            self.sums, self.operator, self.rule, self._factor, self.concentration
        )

    @cached_property
    def _unit(self) -> Array:
        return self.rule.unit_by(self.sums.outcomes.deviation(), self.n_obs)

    @property
    def _factor(self) -> Array:
        return self.rule.factor(self._unit)

    @cached_property
    def _replicates(self) -> Array:
        if self.n_obs < FEWEST_OBSERVATIONS:
            return np.full((2, len(self.names)), np.nan)
        rng = np.random.default_rng(self.random_seed)
        return self.sums.replicates(self.concentration, self._factor, _REPLICATES, rng)

    def _require_same_components(self, more: QuadraticSums) -> None:
        if more.n_components != self.sums.n_components:
            raise ParameterError(
                f"The outcomes so far have {self.sums.n_components} component(s), the new ones "
                f"{more.n_components}."
            )

    def _over_models(self, values: Array) -> xr.DataArray:
        return xr.DataArray(
            values.copy(), dims=["model"], coords={"model": list(self.names)}, name="weights"
        )
