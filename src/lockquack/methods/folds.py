"""Which observations are held out together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lockquack.errors import ParameterError
from lockquack.fitting.shrinkage import deal_folds
from lockquack.models.observations import Observations, row_values
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
        return deal_folds(np.random.default_rng(random_seed), n, int(cv))
    labels = row_values("cv", cv, observations)
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
