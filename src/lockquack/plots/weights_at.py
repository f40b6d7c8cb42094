"""Weights over a covariate, or over groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from lockquack.plots.style import (
    SMALL,
    TEXT,
    legend_above,
    model_colours,
    name_rows,
    new_axes,
    remove_frame,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Groups that are drawn as points with intervals; more are a map of colours.
_MOST_ROWS = 30
#: Share of the height of a row that the weights of several models spread over.
_SPREAD = 0.6


def plot_weights_at(at: xr.Dataset, *, ax: Axes | None = None) -> Axes:
    """Draw weights that depend on a covariate.

    Over a number they are lines with bands; of two models whose weights sum to one, only the first
    has a band, for the other's is its mirror image. Over groups they are points with intervals, or,
    of more than thirty groups, a map: a row for each group, a column for each model, dark where the
    weight is large.

    Parameters
    ----------
    at
        ``weight``, ``low`` and ``high`` over ``model`` and one covariate, such as
        :meth:`Combination.weights_at` returns.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The covariate, or the groups, and the weights.

    Examples
    --------
    >>> import xarray as xr
    >>> from lockquack.plots import plot_weights_at
    >>> age, left = [20.0, 40.0, 60.0], [0.2, 0.5, 0.9]
    >>> weight = xr.DataArray(
    ...     [left, [1 - w for w in left]], coords={"model": ["a", "b"], "age": age},
    ...     dims=["model", "age"],
    ... )
    >>> ax = plot_weights_at(xr.Dataset({"weight": weight, "low": weight, "high": weight}))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('age', 'weight')
    """
    (dim,) = (str(dim) for dim in at["weight"].dims if dim != "model")
    values = at[dim].values
    if values.dtype.kind in "iuf" and dim in at.coords:
        return _draw_curves(at, dim, ax)
    names = [str(value) for value in values]
    if len(names) <= _MOST_ROWS:
        return _draw_rows(at, dim, names, ax)
    return _draw_map(at, dim, ax)


def _draw_curves(at: xr.Dataset, dim: str, ax: Axes | None) -> Axes:
    at = at.dropna(dim, subset=[dim]).sortby(dim) if dim in at else at
    ax, with_band = new_axes(ax, 2.8), _with_band(at)
    handles: dict[str, Artist] = {}
    for name, colour in _colours(at, dim).items():
        one = at.sel(model=name)
        if name in with_band:
            ax.fill_between(one[dim], one["low"], one["high"], color=colour, alpha=0.2, lw=0)
        (handles[name],) = ax.plot(one[dim], one["weight"], color=colour, lw=1.6)
    ax.set_ylim(-0.02, 1.02)
    remove_frame(ax)
    ax.set_xlabel(dim, fontsize=TEXT)
    ax.set_ylabel("weight", fontsize=TEXT)
    legend_above(ax, handles)
    return ax


def _draw_rows(at: xr.Dataset, dim: str, names: list[str], ax: Axes | None) -> Axes:
    colours = _colours(at, dim)
    ax = new_axes(ax, 0.95 + (0.16 + 0.09 * len(colours)) * len(names))
    offsets = _SPREAD * (np.arange(len(colours)) - (len(colours) - 1) / 2) / len(colours)
    handles: dict[str, Artist] = {}
    for offset, (name, colour) in zip(offsets, colours.items(), strict=True):
        one, rows = at.sel(model=name), np.arange(len(names)) + offset
        ax.hlines(rows, one["low"], one["high"], color=colour, lw=1.2, zorder=2)
        (handles[name],) = ax.plot(one["weight"], rows, "o", ms=4, color=colour, mec="white",
                                   mew=0.5, zorder=3)  # fmt: skip
    ax.set_xlim(-0.02, 1.02)
    name_rows(ax, names)
    ax.grid(axis="x", lw=0.4, alpha=0.4)
    ax.set_axisbelow(True)
    ax.set_xlabel(f"weight by {dim}", fontsize=TEXT)
    legend_above(ax, handles)
    return ax


def _draw_map(at: xr.Dataset, dim: str, ax: Axes | None) -> Axes:
    ax = new_axes(ax, 4.2)
    models = [str(name) for name in at["model"].values]
    # Groups that weigh the models alike are neighbours.
    weights = at["weight"].transpose(dim, "model").values
    weights = weights[np.argsort(weights[:, weights.mean(axis=0).argmax()])]
    image = ax.imshow(weights, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks(np.arange(len(models)), [shortened(name, 12) for name in models], fontsize=SMALL)
    ax.set_yticks([])
    ax.set_ylabel(f"{len(weights)} groups of {dim}, sorted", fontsize=TEXT)
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label("weight", fontsize=TEXT)
    return ax


def _with_band(at: xr.Dataset) -> list[str]:
    """Name the models whose intervals say something that no other's does."""
    names = [str(name) for name in at["model"].values]
    if len(names) != 2:
        return names
    low, high = (at[end].transpose("model", ...).values for end in ("low", "high"))
    is_mirrored = np.allclose(low[0] + high[1], 1.0) and np.allclose(high[0] + low[1], 1.0)
    return names[:1] if is_mirrored else names


def _colours(at: xr.Dataset, dim: str) -> dict[str, str]:
    mean = at["weight"].mean(dim)
    names = [str(name) for name in at["model"].values]
    return model_colours(names, dict(zip(names, mean.values.tolist(), strict=True)))
