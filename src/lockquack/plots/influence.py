"""What the weights would be without each observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lockquack.jets import Array
from lockquack.operators.base import Positions
from lockquack.plots.style import (
    BLACK,
    SMALL,
    TEXT,
    label_points,
    legend_above,
    model_colours,
    name_of,
    new_axes,
    remove_frame,
    whole_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


def plot_influence(
    changes: Mapping[str, Array],
    *,
    labels: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    worst: int = 5,
    ax: Axes | None = None,
) -> Axes:
    """Draw how much the weight of each model changes without each observation.

    Parameters
    ----------
    changes
        Name of a model → weight without each observation minus that with all.
    labels
        What the observations are called, by default their positions.
    weights
        Weights with all observations: of many models, those with most have colours.
    worst
        How many observations to label: those that move most weight.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        A point per observation and model, observations in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from lockquack.plots import plot_influence
    >>> moved = np.array([0.01, -0.2, 0.0])
    >>> ax = plot_influence({"spline": moved, "tree": -moved}, worst=1)
    >>> [text.get_text() for text in ax.texts]
    ['1']
    """
    together = np.stack([np.asarray(each, dtype=np.float64) for each in changes.values()])
    n = together.shape[1]
    ax = new_axes(ax, 2.8)
    size = float(np.clip(60 / np.sqrt(n), 2.0, 4.5))
    ax.axhline(0.0, color=BLACK, lw=0.6)
    handles: dict[str, Line2D] = {}
    for (name, colour), each in zip(
        model_colours(list(changes), weights).items(), together, strict=True
    ):
        (handles[name],) = ax.plot(each, "o", ms=size, mew=0, color=colour, alpha=0.8)
    moved = np.abs(together).sum(axis=0) / 2
    ax.set_xlabel("observation that is left out", fontsize=TEXT)
    ax.set_ylabel("change of the weight without it", fontsize=TEXT)
    whole_ticks(ax)
    ax.margins(x=0.04, y=0.1)
    remove_frame(ax)
    ax.tick_params(labelsize=SMALL)
    legend_above(ax, handles)
    _label(ax, together, np.argsort(-moved, kind="stable")[:worst], labels)
    return ax


def _label(ax: Axes, changes: Array, chosen: Positions, labels: Sequence[str] | None) -> None:
    """Write beside the largest change of each chosen observation."""
    points = []
    for i in chosen.tolist():
        height = float(changes[np.abs(changes[:, i]).argmax(), i])
        if height != 0.0:
            ax.vlines(i, changes[:, i].min(), changes[:, i].max(), color=BLACK, lw=0.4, zorder=1)
            points.append((float(i), height, name_of(labels, i)))
    label_points(ax, points)
