"""Predictive densities of single observations, and the observed outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lockquack.jets import Array
from lockquack.plots.style import (
    BLACK,
    SMALL,
    TEXT,
    WIDTH,
    combination_styles,
    draw_models,
    legend_above,
    literal,
    new_axes,
    new_grid,
    remove_frame,
    shortened,
    whole_ticks,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Most outcomes that are drawn as stems; more of them are drawn as a line.
_STEMS = 60


@dataclass(frozen=True)
class DensityPanel:
    """Predictions of one observation on a grid of outcomes."""

    y: Array  # (m,), ascending
    models: Mapping[str, Array]  # name → density or probability, (m,)
    combinations: Mapping[str, Array]
    observed: float | None = None
    title: str = ""
    discrete: bool = False


def plot_density(
    panel: DensityPanel,
    *,
    weights: Mapping[str, float] | None = None,
    xlabel: str = "y",
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw predictions of one observation: models thin, combinations thick, the outcome dotted.

    Densities of continuous outcomes are curves; of whole numbers, models are small points and
    combinations stems.

    Parameters
    ----------
    panel
        The densities.
    weights
        Weights of the models: of more than four, those with most weight have a colour each.
    xlabel
        What the outcome is called.
    legend
        Whether to say above the axes what is what.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per model and combination.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from lockquack.plots import DensityPanel, plot_density
    >>> y = np.linspace(-4, 6, 200)
    >>> models = {"left": stats.norm(0, 1).pdf(y), "right": stats.norm(2, 1).pdf(y)}
    >>> panel = DensityPanel(y, models, {"locking": stats.norm(1, 1).pdf(y)}, observed=0.7)
    >>> ax = plot_density(panel)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['left', 'right', 'locking', 'observed']
    """
    ax = new_axes(ax, 2.8)
    handles = _draw(ax, panel, weights)
    ax.set_xlabel(literal(xlabel), fontsize=TEXT)
    if legend:
        legend_above(ax, handles)
    elif panel.title:
        ax.set_title(literal(panel.title), loc="left", fontsize=TEXT)
    return ax


def plot_densities(
    panels: Sequence[DensityPanel],
    *,
    weights: Mapping[str, float] | None = None,
    xlabel: str = "y",
    axes: Sequence[Axes] | None = None,
) -> np.ndarray:
    """Draw predictions of several observations, a small panel each, under one legend.

    Parameters
    ----------
    panels
        The densities; see :func:`plot_density`.
    weights
        Weights of the models.
    xlabel
        What the outcome is called.
    axes
        Axes to draw on, one per panel of one figure; by default those of a new one.

    Returns
    -------
    numpy.ndarray
        The axes, one per panel.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from lockquack.plots import DensityPanel, plot_densities
    >>> y = np.arange(12.0)
    >>> panels = [
    ...     DensityPanel(y, {"a": stats.poisson(m).pmf(y)}, {}, m, f"week {m}", discrete=True)
    ...     for m in (2, 4, 6)
    ... ]
    >>> [ax.get_title(loc="left") for ax in plot_densities(panels)]
    ['week 2', 'week 4', 'week 6']
    """
    chosen = list(_grid_for(len(panels))) if axes is None else list(axes)
    handles: dict[str, Artist] = {}
    for ax, panel in zip(chosen, panels, strict=True):
        handles |= _draw(ax, panel, weights)
        ax.set_title(literal(shortened(panel.title, 40)), loc="left", fontsize=TEXT)
    for k, ax in enumerate(chosen):
        # Those with nothing below them.
        if k + _columns(len(chosen)) >= len(chosen):
            ax.set_xlabel(literal(xlabel), fontsize=TEXT)
    legend_above(chosen[0], handles, whole_figure=True)
    return np.array(chosen, dtype=object)


def _columns(count: int) -> int:
    return 1 if count == 1 else 2 if count in (2, 4) else 3


def _grid_for(count: int) -> np.ndarray:
    columns = _columns(count)
    rows = -(-count // columns)
    width = WIDTH if columns < 3 else 1.3 * WIDTH
    axes = new_grid(rows, columns, 0.7 + 1.55 * rows, width).ravel()
    for spare in axes[count:]:
        spare.remove()
    return axes[:count]


def _draw(ax: Axes, panel: DensityPanel, weights: Mapping[str, float] | None) -> dict[str, Artist]:
    points = panel.discrete and len(panel.y) <= _STEMS
    marks = {"ls": "", "marker": "o"} if points else {}
    handles = draw_models(ax, panel.y, panel.models, weights, **marks)
    for k, (name, (colour, ls)) in enumerate(combination_styles(list(panel.combinations)).items()):
        density = panel.combinations[name]
        if points:
            shift = 0.22 * (k - (len(panel.combinations) - 1) / 2)
            ax.vlines(panel.y + shift, 0, density, color=colour, lw=1.6, zorder=2.5)
            (handles[name],) = ax.plot(
                panel.y + shift, density, "s", color=colour, ms=3.6, zorder=3
            )
        else:
            if k == 0:
                ax.fill_between(panel.y, density, color=colour, alpha=0.2, lw=0)
            (handles[name],) = ax.plot(panel.y, density, color=colour, ls=ls, lw=2.2)
    if panel.observed is not None:
        handles["observed"] = ax.axvline(panel.observed, color=BLACK, lw=1.0, ls=(0, (1, 1.5)))
    ax.set_ylim(bottom=0)
    ax.set_yticks([])
    if panel.discrete:
        whole_ticks(ax)
    remove_frame(ax)
    ax.tick_params(labelsize=SMALL)
    ax.spines["left"].set_visible(False)
    return handles
