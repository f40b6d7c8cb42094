"""Which observations are held out together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from lockquack.errors import ParameterError
from lockquack.models.labels import from_pandas, labels_of, require_same_labels, string_dims
from lockquack.models.observations import Observations
from lockquack.numeric import and_more

Fold = NDArray[np.intp]


def read_folds(cv: Any, observations: Observations, random_seed: int) -> list[Fold]:
    """Read a number of folds, which are then drawn, or the fold of each observation.

    Examples
    --------
    >>> from lockquack.models.observations import as_observations
    >>> y = as_observations([0.5, 1.5, 2.5])
    >>> [fold.tolist() for fold in read_folds(["a", "b", "a"], y, random_seed=0)]
    [[0, 2], [1]]
    >>> read_folds([0, 1, np.nan], y, random_seed=0)
    Traceback (most recent call last):
    lockquack.errors.ParameterError: cv has no fold for observation 2. ...
    """
    n = observations.n
    if isinstance(cv, int | np.integer):
        if not cv >= 2:
            raise ParameterError(f"cv must be at least 2 folds; got {cv}.")
        order = np.random.default_rng(random_seed).permutation(n)
        return [np.sort(part) for part in np.array_split(order, min(int(cv), n))]
    labels = _labels_of_folds(cv, observations)
    if labels.shape != (n,):
        raise ParameterError(
            f"cv must be a number of folds or the fold of each of {n} observations; got the "
            f"shape {labels.shape}."
        )
    codes, known = pd.factorize(labels, use_na_sentinel=True)
    missing = np.flatnonzero(codes < 0)
    if missing.size:
        raise ParameterError(
            f"cv has no fold for {observations.describe(int(missing[0]))}"
            f"{and_more(missing.size - 1)}. Give every observation one, or drop those without."
        )
    if len(known) < 2:
        raise ParameterError("cv puts all observations into one fold; at least two are needed.")
    return [np.flatnonzero(codes == code) for code in range(len(known))]


def _labels_of_folds(cv: Any, observations: Observations) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Bring the folds into the order of the observations' table."""
    if len(observations.dims) == 1:
        cv = _table_as_objects(cv, observations.dims[0])
    if isinstance(cv, xr.DataArray):
        cv = string_dims(cv)
        require_same_labels("cv", labels_of(cv), observations.index)
        if set(cv.dims) == set(observations.dims):
            cv = cv.transpose(*observations.dims).values.reshape(-1)
    try:
        labels = np.array(cv, dtype=object)
    except Exception as reason:  # whatever the classes of other libraries raise
        raise ParameterError(f"cv must be a number of folds or an array; got {cv!r}.") from reason
    if isinstance(cv, np.ma.MaskedArray):
        labels[np.ma.getmaskarray(cv)] = None
    return labels


def _table_as_objects(cv: Any, dim: str) -> Any:
    is_column = isinstance(cv, pd.DataFrame) and cv.shape[1] == 1
    given = cv.iloc[:, 0] if is_column else cv
    return from_pandas(given, dim, "", named=False) if isinstance(given, pd.Series) else given
