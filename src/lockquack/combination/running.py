"""Locking weights from sums: for observations that come in parts, or are too many to hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.arithmetic import methods_in_own_arithmetic, own_arithmetic
from lockquack.checks.models import check_models, kind_of_scores, suited_rule
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.files.sums import read_sums, save_sums
from lockquack.fitting.sums import LockingSums, SummedLocking
from lockquack.fitting.uncertainty import FEWEST_OBSERVATIONS
from lockquack.jets import Array
from lockquack.methods.fit import read_concentration, require_seed
from lockquack.methods.gather import passes_for
from lockquack.methods.method import METHODS
from lockquack.methods.summing import Summed, sum_up, sums_of
from lockquack.models.model import Model, already_said, sources_of
from lockquack.models.observations import agreed
from lockquack.operators import Locking
from lockquack.operators.pool import Pool
from lockquack.prediction.prediction import Prediction
from lockquack.remarks import warn
from lockquack.report.table import KINDS, framed_html, framed_text
from lockquack.rules import Hyvarinen
from lockquack.solvers.base import Solution
from lockquack.sources.reading import as_models

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

#: Replicates behind the standard errors of the weights.
_REPLICATES = 400


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class RunningLock(Summed):
    r"""Locking weights by the Hyvärinen score, from sums over the observations.

    The score of a log-linear pool is linear in :math:`G_i G_i'` and :math:`C_i`, the products of
    the models' gradients and their curvatures at an observation. Their sums are all that is held:
    it does not grow with the observations, new ones are added exactly, and parts of the data that
    were summed in different places are added with ``+``. It never changes: :meth:`update`
    returns another.

    What is known of single observations only (:attr:`Combination.pointwise`, ``influence``,
    ``loo`` predictions) cannot be had; use :func:`lock` for that. Weights are the same.

    Made by :func:`running_lock`, or by :meth:`Combination.update`.

    Attributes
    ----------
    names
        The models' names.
    rule
        The Hyvärinen score, in the coordinates that it takes.
    scores
        Which predictions are scored: leave-one-out, in-sample, or held-out.
    sums
        The sums.
    concentration
        The prior's, for each model.

    Examples
    --------
    >>> import lockquack as lq
    >>> whole = lq.lock(lq.example_models())
    >>> running = lq.running_lock(lq.example_models())
    >>> bool(abs(running.weights - whole.weights).max() < 1e-12)
    True
    >>> twice = running.update(lq.example_models())
    >>> twice.n_obs, (running + running).n_obs
    (80, 80)
    """

    @property
    def n_obs(self) -> int:
        """Number of observations so far."""
        return self.sums.outcomes.count

    @property
    def weights(self) -> xr.DataArray:
        """Weights of the models, their exponents in the pool."""
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
        """The log-linear pool with these weights."""
        return Pool(Locking(), self.solution.x, len(self.names))

    def update(
        self,
        models: Mapping[str, Any],
        *,
        forget: float = 0.0,
        progressbar: bool | None = None,
    ) -> RunningLock:
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
        RunningLock
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
        more = _sum_models(
            {name: read[name] for name in self.names}, self.rule, self.scores, progressbar
        )
        self._require_same_components(more)
        return replace(self, sums=self.sums.times(1.0 - forget) + more)

    def __add__(self, other: RunningLock) -> RunningLock:
        if not isinstance(other, RunningLock):
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
            METHODS["lock"].label,
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
        total = self.sums.totals(pools, self._unit)
        errors = np.array(self.sums.errors(pools, self._unit))
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
                "mcse": [np.nan, *self.sums.mcse(self._unit)],
            },
            index=pd.Index([f"[{METHODS['lock'].label}]", *self.names], name="model"),
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
    def load(cls, path: str | Path) -> RunningLock:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        path
            The file or store.

        Returns
        -------
        RunningLock
            The same sums, to which observations can be added.
        """
        found = read_sums(path)
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
            f"{Locking().title}, fitted by the {KINDS[self.scores]} {self.rule.label} "
            f"score{of_what} (larger is better), from sums over the observations",
            f"models: {len(self.names)}   observations: {self.n_obs}   "
            f"counted: {self.sums.outcomes.weight:.6g}   unit of {self.rule.of_what}: {units}",
        ]

    @property
    def _certificate(self) -> str:
        return self._fitter.certificate(self.solution)

    @property
    def _fitter(self) -> SummedLocking:
        return SummedLocking.of(self.sums, self.rule, self._unit, self.concentration)

    @cached_property
    def _unit(self) -> Array:
        return self.rule.unit_by(self.sums.outcomes.deviation(), self.n_obs)

    @cached_property
    def _replicates(self) -> Array:
        if self.n_obs < FEWEST_OBSERVATIONS:
            return np.full((2, len(self.names)), np.nan)
        rng = np.random.default_rng(self.random_seed)
        return self.sums.replicates(self.concentration, self._unit, _REPLICATES, rng)

    def _require_same_components(self, more: LockingSums) -> None:
        if more.n_components != self.sums.n_components:
            raise ParameterError(
                f"The outcomes so far have {self.sums.n_components} component(s), the new ones "
                f"{more.n_components}."
            )

    def _over_models(self, values: Array) -> xr.DataArray:
        return xr.DataArray(
            values.copy(), dims=["model"], coords={"model": list(self.names)}, name="weights"
        )


@own_arithmetic
def running_lock(
    models: Mapping[str, Any],
    *,
    rule: Hyvarinen | None = None,
    prior: Any = None,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> RunningLock:
    """Combine models by log-linear pooling, holding sums over the observations only.

    The weights are those of :func:`lock`. Use it for observations that come in parts, or that are
    so many that 16 bytes for each and every model do not fit into memory: groups of observations
    are read one after the other, on threads or by the workers of a dask cluster, and only
    K × K sums come back.

    Standard errors and intervals of the weights are those of the Bayesian bootstrap in the limit
    of many observations, where its sums are normal.

    Parameters
    ----------
    models
        Name → model, as for :func:`lock`.
    rule
        A :class:`Hyvarinen` score; by default in the coordinates that the supports of the models
        ask for.
    prior
        Concentration of the Dirichlet prior on the weights, as for :func:`lock`.
    scores
        ``"loo"``, ``"in-sample"`` or ``"held-out"``.
    random_seed
        Seed of the bootstrap behind the standard errors.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    RunningLock
        The weights, their uncertainty and the scores; more observations can be added.

    Examples
    --------
    Ten parts of a stream, one after the other:

    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> mu = rng.normal(1.0, 0.1, size=(4, 100))
    >>> def models(y):
    ...     return {
    ...         "narrow": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
    ...         "wide": lq.from_family("normal", y=y, mu=mu, sigma=3.0),
    ...     }
    >>> fit = lq.running_lock(models(rng.normal(1.0, 1.5, size=100)))
    >>> for _ in range(9):
    ...     fit = fit.update(models(rng.normal(1.0, 1.5, size=100)))
    >>> fit.n_obs, fit.weights.round(1).to_series().to_dict()
    (1000, {'narrow': 0.3, 'wide': 0.7})
    """
    require_seed(random_seed)
    read = as_models(models)
    rule = Hyvarinen() if rule is None else rule
    if not isinstance(rule, Hyvarinen):
        raise UnsupportedError(
            "Only locking by the Hyvärinen score can be fitted from sums over the observations; "
            f"got {rule!r}. Use lock or combine for other scores."
        )
    sources = sources_of(read)
    concentration = read_concentration(
        METHODS["lock"].concentration if prior is None else prior, tuple(read)
    )
    scores = kind_of_scores(read, scores)
    rule = suited_rule(rule, sources)
    sums = _sum_models(read, rule, scores, progressbar)
    return RunningLock(tuple(read), rule, scores, sums, concentration, int(random_seed))


def update(
    self: Combination,
    models: Mapping[str, Any],
    *,
    forget: float = 0.0,
    progressbar: bool | None = None,
) -> RunningLock:
    """Add observations to a lock by the Hyvärinen score, without reading the old ones again.

    Parameters
    ----------
    models, forget, progressbar
        As for :meth:`RunningLock.update`.

    Returns
    -------
    RunningLock
        The weights of all observations together, from sums; it can be updated again.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> fit.update(lq.example_models()).n_obs
    80
    """
    if not isinstance(self.rule, Hyvarinen) or self.operator != Locking():
        raise UnsupportedError(
            "Only locking by the Hyvärinen score can be updated, because sums over the "
            f"observations are enough for it; this is {self.operator!r} by the {self.rule.label} "
            "score. Fit all observations again."
        )
    if self.design is not None:
        raise UnsupportedError(
            f"The weights depend on {self.design.says}, and sums over all observations know "
            "nothing of it. Fit all observations again, or lock without by=."
        )
    own = self._require_models()
    passes = [passes_for(model, self.rule) for model in own.values()]
    found = [each.predict(self.scores, density=False) for each in passes]
    source = next(iter(own.values())).source
    sums = sums_of(found, self.rule, source, slice(0, source.n_obs))
    begun = RunningLock(
        self.names, self.rule, self.scores, sums, self.objective.concentration, self.random_seed
    )
    return begun.update(models, forget=forget, progressbar=progressbar)


def _sum_models(
    models: Mapping[str, Model], rule: Hyvarinen, scores: Kind, progressbar: bool | None
) -> LockingSums:
    """Check models, remark on them, and sum over their observations."""
    warn(*check_models(models, rule), already_said=already_said(models))
    return sum_up(models, rule, scores, progressbar)
