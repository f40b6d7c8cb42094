"""Methods of a prediction that score outcomes, besides its log density."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xarray as xr

from lockquack.prediction.outcomes import read_points

if TYPE_CHECKING:
    from lockquack.prediction.prediction import Prediction


def crps(self: Prediction, y: Any = None) -> xr.DataArray:
    r"""Continuous ranked probability score at each observation; smaller is better.

    .. math:: \int \bigl(F(t) - 1[t \ge y]\bigr)^2 dt
        = \mathrm{E} |X - y| - \tfrac12 \mathrm{E} |X - X'|

    It has the unit of the outcome, and is the absolute error where the prediction is a point.
    Unlike the log score it grows with the distance of an outlier only, not with its square.
    Vector outcomes are scored component by component, from draws.

    Parameters
    ----------
    y
        Outcomes, as for :meth:`logpdf`; by default the observed ones.

    Returns
    -------
    xarray.DataArray
        Scores, as :meth:`logpdf` returns densities; infinite where tails are so heavy that it
        does not exist.

    Examples
    --------
    >>> import lockquack as lq
    >>> float(lq.lock(lq.example_models()).predict(loo=True).crps().mean().round(2))
    0.59
    """
    if y is None:
        self._require_observed("crps")
    points, leading = read_points(y, self.observations)
    return self._label(self._evaluation.marginals.crps(points), leading, "crps")
