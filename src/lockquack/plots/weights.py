"""Weights with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from lockquack.numeric import as_probability
from lockquack.plots.style import (
    BLACK,
    TEXT,
    combination_styles,
    legend_above,
    name_rows,
    new_axes,
    write_beside,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

#: Share of the height of a row that the weights of several combinations spread over.
_SPREAD = 0.6
#: Probability of the inner intervals.
_INNER = 0.5


def plot_weights(
    weights: Mapping[str, xr.DataArray],
    draws: Mapping[str, xr.DataArray] | None = None,
    *,
    prob: float = 0.9,
    remarks: Mapping[str, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw weights of models as points, with intervals.

    Parameters
    ----------
    weights
        Name of a combination → its weights, over ``model``.
    draws
        The same for draws of the weights, over ``draw`` and ``model``, such as
        :meth:`Combination.bootstrap` returns.
    prob
        Probability of the intervals; those of 50 % are drawn thicker.
    remarks
        What to say about a model below its name, such as its phase.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One row per model, from top to bottom.

    Examples
    --------
    >>> import xarray as xr
    >>> from lockquack.plots import plot_weights
    >>> weights = xr.DataArray([0.7, 0.3], coords={"model": ["spline", "tree"]}, dims="model")
    >>> ax = plot_weights({"locking": weights})
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['spline', 'tree']
    """
    names = list(dict.fromkeys(str(m) for each in weights.values() for m in each["model"].values))
    per_row = 0.26 * max(1.0, 0.62 * len(weights)) + (0.12 if remarks else 0.0)
    ax = new_axes(ax, 0.75 + per_row * len(names) + (0.2 if len(weights) > 1 else 0.0))
    offsets = _SPREAD * (np.arange(len(weights)) - (len(weights) - 1) / 2) / len(weights)
    handles: dict[str, Line2D] = {}
    for offset, (label, (colour, _)) in zip(
        offsets, combination_styles(list(weights)).items(), strict=True
    ):
        series = weights[label]
        rows = np.array([names.index(str(name)) for name in series["model"].values]) + offset
        if draws is not None and label in draws:
            _draw_intervals(ax, rows, draws[label].transpose("draw", "model"), prob, colour)
        (handles[label],) = ax.plot(
            series.values, rows, "o", ms=5, color=colour, mec="white", mew=0.6, zorder=3
        )
        for row, value in zip(rows, series.values, strict=True):
            write_beside(ax, row, f"{value:.2f}", colour if len(weights) > 1 else BLACK)
    low, high = ax.get_xlim()
    ax.set_xlim(min(-0.02, low), max(1.02, high))
    name_rows(ax, names, remarks)
    ax.grid(axis="x", lw=0.4, alpha=0.4)
    ax.set_axisbelow(True)
    ax.set_xlabel("weight", fontsize=TEXT)
    if len(weights) > 1:
        legend_above(ax, handles)
    return ax


def _draw_intervals(
    ax: Axes, rows: np.ndarray, draws: xr.DataArray, prob: float, colour: str
) -> None:
    prob = as_probability("prob", prob)
    for share, width in ((prob, 1.2), (min(prob, _INNER), 3.0)):
        low, high = np.quantile(draws.values, [(1 - share) / 2, (1 + share) / 2], axis=0)
        ax.hlines(rows, low, high, color=colour, lw=width, zorder=2)
