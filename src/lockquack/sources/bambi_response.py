"""The response of a Bambi model: what its rows say of their outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lockquack.errors import ParameterError, UnsupportedError
from lockquack.jets import Numeric

#: What a response may be marked as in a formula, besides plain.
_MARKS = ("censored", "truncated", "constrained", "weighted")
#: How ``censored`` calls its statuses, and how Bambi numbers them.
_STATUS = {"left": -1, "none": 0, "right": 1}


@dataclass(frozen=True)
class Rows:
    """What some rows say of their outcomes, besides the covariates."""

    #: Outcomes as the likelihood has them, (row,) or (row, component); None: not known.
    y: Any
    #: Trials of each row, of binomial families.
    trials: Numeric | None = None
    #: Where the likelihood is cut off, or where outcomes are censored, (row,); ±inf: nowhere.
    lower: Numeric | None = None
    upper: Numeric | None = None
    #: Case weights, (row,).
    weights: Numeric | None = None


@dataclass(frozen=True)
class Response:
    """The left side of a formula, in either version of Bambi."""

    model: Any

    @property
    def term(self) -> Any:
        """Bambi's term, which moved between its versions."""
        if hasattr(self.model, "response_term"):
            return self.model.response_term
        return self.model.response_component.term

    @property
    def name(self) -> str:
        """The response as it is written in the formula, such as ``"p(y, n)"``."""
        return str(self.term.name)

    @property
    def names(self) -> set[str]:
        """Names of the variables in it."""
        return set(self.term.term.var_names)

    @property
    def stored_name(self) -> str:
        """What it is called among stored log likelihoods."""
        return str(self.term.alias or self.term.name)

    @property
    def mark(self) -> str:
        """Which of ``censored``, ``truncated``, ``constrained`` and ``weighted`` it is, or none."""
        return next((mark for mark in _MARKS if getattr(self.term, f"is_{mark}", False)), "")

    @property
    def is_cut(self) -> bool:
        """Whether the likelihood is cut off at bounds."""
        return self.mark in ("truncated", "constrained")

    @property
    def has_trials(self) -> bool:
        """Whether outcomes are successes among trials."""
        return bool(self._component.kind == "proportion")

    @property
    def is_categoric(self) -> bool:
        """Whether outcomes are levels, which the likelihood counts from 0."""
        return bool(self._component.kind == "categoric")

    @property
    def levels(self) -> list[Any]:
        """Levels of a categorical outcome, in the order in which they are counted."""
        return list(self.term.levels or self._component.levels)

    @property
    def _component(self) -> Any:
        return self.term.term.components[0]

    def original(self) -> Rows:
        """Return what the rows say that the model was fitted to."""
        columns = np.asarray(self.term.data)
        if self.has_trials:
            return Rows(columns[:, 0], trials=columns[:, 1])
        if not self.mark:
            return Rows(columns[:, 0] if columns.ndim == 2 and columns.shape[1] == 1 else columns)
        y = columns[:, 0]
        if self.mark == "weighted":
            return Rows(y, weights=columns[:, 1])
        if self.is_cut:
            return Rows(y, lower=columns[:, 1], upper=columns[:, 2])
        if columns.shape[1] > 2:
            raise UnsupportedError(
                f"The response {self.name!r} is censored to intervals, which PyMC cannot evaluate."
            )
        return self._censored(y, columns[:, 1])

    def at(self, newdata: pd.DataFrame) -> Rows:
        """Return what other rows say, the outcomes among it."""
        if self.is_categoric:
            return Rows(self._codes(newdata))
        if not self.has_trials and not self.mark:
            return Rows(self._evaluated(newdata))
        return self.beside(self._argument(0, "", newdata), newdata)

    def beside(self, y: Any, newdata: pd.DataFrame | None) -> Rows:
        """Return what other rows say of given outcomes; without data, the rows of the fit."""
        if newdata is None:
            return self._with_outcomes(y)
        if self.has_trials:
            return Rows(y, trials=self._argument(1, "trials", newdata))
        if self.mark == "weighted":
            return Rows(y, weights=self._argument(1, "weights", newdata))
        if self.is_cut:
            lower = self._argument(1, "lb", newdata, default=-np.inf)
            return Rows(y, lower=lower, upper=self._argument(2, "ub", newdata, default=np.inf))
        if self.mark == "censored":
            return self._censored(y, self._statuses(newdata))
        return Rows(y)

    def unmarked(self, y: Any, newdata: pd.DataFrame | None) -> Rows:
        """Return what is needed to predict other rows.

        Case weights belong to a fit. Where the status of a censored response is not said, its
        outcome is seen: what is predicted is the time itself, not when it stopped being watched.
        """
        if newdata is not None and self.mark == "weighted":
            return Rows(y)
        if newdata is not None and self.mark == "censored" and not self._has_status(newdata):
            return Rows(y)
        return self.beside(y, newdata)

    def _with_outcomes(self, y: Any) -> Rows:
        rows = self.original()
        if self.mark == "censored":
            return self._censored(y, np.asarray(self.term.data)[:, 1])
        return Rows(y, trials=rows.trials, lower=rows.lower, upper=rows.upper)

    def _censored(self, y: Any, status: Numeric) -> Rows:
        """Turn statuses into bounds: a censored outcome lies at its bound."""
        values = np.asarray(y, dtype=np.float64)
        if values.shape != status.shape:
            return Rows(y, lower=status)  # of another length, which is refused
        lower = np.where(status == _STATUS["left"], values, -np.inf)
        return Rows(y, lower=lower, upper=np.where(status == _STATUS["right"], values, np.inf))

    def _statuses(self, newdata: pd.DataFrame) -> Numeric:
        given = self._argument(-1, "", newdata)
        unknown = [str(each) for each in np.unique(given) if each not in _STATUS]
        if unknown:
            raise ParameterError(
                f"The status of the response {self.name!r} is {unknown[0]!r} in newdata; it must "
                f"be one of {', '.join(_STATUS)}."
            )
        return np.array([_STATUS[each] for each in given])

    def _has_status(self, newdata: pd.DataFrame) -> bool:
        try:
            self._component.call.args[-1].eval(newdata, self._component.env)
        except KeyError:
            return False
        return True

    def _codes(self, newdata: pd.DataFrame) -> Numeric:
        """Count the levels of other rows as those of the fit were counted."""
        values = np.asarray(self._evaluated(newdata))
        if self.term.success is not None:
            self._require_levels(values)
            return (values == self.term.success).astype(np.int64)
        self._require_levels(values)
        return np.asarray(pd.Categorical(values, categories=self.levels).codes, dtype=np.int64)

    def _require_levels(self, values: Numeric) -> None:
        unknown = sorted({str(each) for each in values} - set(map(str, self.levels)))
        if unknown:
            raise ParameterError(
                f"The response {self.name!r} has the level {unknown[0]!r} in newdata, which the "
                f"model does not know; it knows {', '.join(map(str, self.levels))}."
            )

    def _evaluated(self, newdata: pd.DataFrame) -> Any:
        """Evaluate a plain response at other rows, with what transforms of it remember."""
        component = self._component
        with self._naming_columns():
            if not hasattr(component, "call"):
                return np.asarray(newdata[component.name])
            found = component.call.eval(newdata, component.env)
        return np.asarray(getattr(found, "data", found) if self.is_categoric else found)

    def _argument(
        self, position: int, keyword: str, newdata: pd.DataFrame, default: float | None = None
    ) -> Numeric:
        """Evaluate one argument of the response at other rows."""
        call, env = self._component.call, self._component.env
        if keyword in call.kwargs:
            found = call.kwargs[keyword]
        elif position < len(call.args):
            found = call.args[position]
        else:
            return np.full(len(newdata), default)
        with self._naming_columns():
            values = np.asarray(found.eval(newdata, env))
        return np.broadcast_to(values, (len(newdata),)) if values.ndim == 0 else values

    def _naming_columns(self) -> _NamingColumns:
        return _NamingColumns(self.name)


@dataclass(frozen=True)
class _NamingColumns:
    """Says which column is missing."""

    response: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, KeyError):
            raise ParameterError(
                f"newdata must hold the column {error.args[0]!r} as well, which the response "
                f"{self.response!r} needs."
            ) from error
