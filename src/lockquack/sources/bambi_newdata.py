"""Other rows for a Bambi model: which columns it needs, and what it knows of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lockquack.errors import LockquackError, ParameterError, ShapeError, unknown_name
from lockquack.jets import Numeric
from lockquack.numeric import and_more


def as_frame(model: Any, newdata: Any, columns: Mapping[str, Any]) -> pd.DataFrame | None:
    """Read other rows from a DataFrame, or from columns by name; None: those of the fit."""
    if newdata is None and not columns:
        return None
    if newdata is not None and not isinstance(newdata, pd.DataFrame | Mapping):
        raise ParameterError(
            f"newdata must be a DataFrame, one row for each observation; got a "
            f"{type(newdata).__name__}."
        )
    for name, given in columns.items():
        if name not in model.data.columns:
            if isinstance(given, pd.DataFrame):
                raise ParameterError(f"{name}= is a DataFrame: give it as newdata=.")
            raise unknown_name("column", name, sorted(needed_columns(model)))
    try:
        frame = pd.DataFrame(newdata if newdata is not None else {})
        given = {name: np.asarray(each) for name, each in columns.items()}
        return frame.assign(**given) if len(frame.columns) else pd.DataFrame(given)
    except ValueError as error:
        raise ShapeError(f"The columns of newdata differ in length. ({error})") from error


def require_outcomes(y: Any, own: Numeric) -> None:
    """Refuse a table of predictors in the place of the outcomes."""
    if isinstance(y, pd.DataFrame) and y.shape[1] != np.atleast_2d(own.T).shape[0]:
        raise ParameterError(
            f"The outcomes y are a DataFrame with the columns {', '.join(map(str, y))}. To predict "
            "the rows of a table, give it by name: newdata=."
        )


def needed_columns(model: Any) -> set[str]:
    """Columns of the data that the right sides of the formulas use."""
    terms = [term for design in _designs(model) for term in _terms(design)]
    return {name for term in terms for name in term.var_names} & set(model.data.columns)


def complete_rows(model: Any, response: set[str]) -> NDArray[np.bool_]:
    """Mark the rows of the data in which no variable of the formulas is missing."""
    used = needed_columns(model) | (response & set(model.data.columns))
    return np.asarray(model.data[sorted(used)].notna().all(axis=1))


def require_known(model: Any, newdata: pd.DataFrame) -> None:
    """Refuse rows without a column that is needed, with a missing value, or of an unseen group."""
    needed = sorted(needed_columns(model))
    missing = [name for name in needed if name not in newdata]
    if missing:
        raise ParameterError(
            f"newdata lacks the column {missing[0]!r}{and_more(len(missing) - 1)}, which the "
            f"formula {model.formula.main!r} uses; it has {', '.join(map(str, newdata))}."
        )
    for name in needed:
        gaps = np.flatnonzero(newdata[name].isna())
        if gaps.size:
            raise ParameterError(
                f"The column {name!r} of newdata has no value in row {gaps[0]}"
                f"{and_more(gaps.size - 1)}."
            )
    for name in _grouping(model) & set(needed):
        seen = pd.unique(model.data[name])
        unseen = [each for each in pd.unique(newdata[name]) if each not in set(seen)]
        if unseen:
            listed = ", ".join(map(str, seen[:10])) + (", …" if len(seen) > 10 else "")
            raise ParameterError(
                f"newdata has {unseen[0]!r} in the column {name!r}{and_more(len(unseen) - 1)}, "
                f"which the model was not fitted to: there are draws for {listed} only. Leave "
                "these rows out."
            )


def _grouping(model: Any) -> set[str]:
    """Columns whose levels have coefficients of their own."""
    names = {
        name
        for design in _designs(model)
        if design.group is not None
        for term in design.group.terms.values()
        for name in term.factor.var_names
    }
    levels = model.data.select_dtypes(exclude="number").columns
    return names | set(map(str, levels))


def _designs(model: Any) -> list[Any]:
    parts = getattr(model, "conditional_parameters", None)  # its name from Bambi 0.18 on
    parts = model.distributional_components if parts is None else parts
    return [part.design for part in parts.values()]


def _terms(design: Any) -> Iterator[Any]:
    for matrix in (design.common, design.group):
        if matrix is not None:
            yield from matrix.terms.values()


@contextmanager
def explaining(what: str) -> Iterator[None]:
    """Say what Bambi could not do, where it raises an error of its own.

    What it sets while it looks for new groups it does not set back when it fails.
    """
    from formulae import config

    unseen = config["EVAL_UNSEEN_CATEGORIES"]
    try:
        yield
    except LockquackError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ParameterError(f"Bambi cannot {what}: {reason}") from error
    finally:
        config["EVAL_UNSEEN_CATEGORIES"] = unseen
