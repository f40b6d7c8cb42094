"""Methods side by side, as ArviZ draws models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from lockquack.draws.diagnostics import NOISE_ERRORS
from lockquack.plots.style import (
    BLACK,
    BLUE,
    GREY,
    SMALL,
    TEXT,
    letters_across,
    new_axes,
    plain,
    short_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_compare(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the table of :func:`compare`: each method's difference to the best, with its error.

    The same picture with every version of ArviZ, whose own ``az.plot_compare`` takes the table
    too. Points are differences in total score to the best method with two paired standard errors
    on either side, the limit of what :func:`compare` calls noise; hollow points are noise.

    Parameters
    ----------
    table
        What :func:`compare` returned.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One row per method, the best on top.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> models = example_models()
    >>> ax = lq.plot_compare(lq.compare(models, ["lock", "stack", "select"]))
    >>> ax.get_yticklabels()[0].get_text()
    'lock'
    """
    by_log = table["elpd_diff"].notna().any()
    diff, error = ("elpd_diff", "dse") if by_log else ("hyvarinen_diff", "hyvarinen_dse")
    known = table[table[diff].notna()]
    ax = new_axes(ax, 0.8 + 0.24 * len(known))
    rows = np.arange(len(known))
    best = known["verdict"] == "best"
    noise = known["verdict"] == "noise"
    ax.axvline(0.0, color=GREY, lw=0.8, ls="--", zorder=1)
    reach = NOISE_ERRORS * known[error]
    ax.hlines(rows, known[diff] - reach, known[diff] + reach, color=BLUE, lw=1.3)
    for chosen, fill in ((best, BLACK), (noise, "white"), (~best & ~noise, BLUE)):
        edge = BLACK if fill == BLACK else BLUE
        ax.plot(known.loc[chosen, diff], rows[chosen], "o", ms=5.5, mfc=fill, mec=edge, zorder=3)
    for row, verdict in zip(rows, known["verdict"], strict=True):
        ax.annotate(
            verdict, (1.0, float(row)), (5, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", fontsize=SMALL, annotation_clip=False,
        )  # fmt: skip
    names = short_names([str(name) for name in known.index], int(0.38 * letters_across(ax)))
    ax.set_yticks(rows, list(names.values()))
    ax.set_ylim(len(known) - 0.5, -0.5)
    plain(ax)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=SMALL)
    name = "held-out log score" if by_log else "held-out Hyvärinen score"
    ax.set_xlabel(f"{name}, difference to the best ± {NOISE_ERRORS:g} se", fontsize=TEXT)
    return ax
