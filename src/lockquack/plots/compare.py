"""Methods side by side, as ArviZ draws models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lockquack.arithmetic import own_arithmetic
from lockquack.draws.diagnostics import NOISE_ERRORS
from lockquack.errors import ParameterError
from lockquack.plots.style import (
    BLACK,
    BLUE,
    GREY,
    PALE,
    SMALL,
    TEXT,
    name_rows,
    new_axes,
    write_beside,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@own_arithmetic
def plot_compare(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the table of :func:`compare`: each method's difference to the best, with its error.

    The same picture with every version of ArviZ, whose own ``az.plot_compare`` takes this table
    too, and draws those of ``az.compare``, which have no verdicts. Points are differences in total
    score to the best method with two paired standard errors on either side; hollow
    points are noise, pale ones unclear.

    Parameters
    ----------
    table
        What :func:`compare` returned.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One row per method and model, the best on top.

    Examples
    --------
    >>> import lockquack as lq
    >>> models = lq.example_models()
    >>> ax = lq.plot_compare(lq.compare(models, ["lock", "stack", "select"]))
    >>> ax.get_yticklabels()[0].get_text()
    'lock'
    """
    _require_verdicts(table)
    name, diff, error = _leading(table)
    known = table[table[diff].notna()]
    ax = new_axes(ax, 0.8 + 0.24 * len(known))
    rows = np.arange(len(known))
    ax.axvline(0.0, color=GREY, lw=0.8, ls="--", zorder=1)
    reach = NOISE_ERRORS * known[error]
    ax.hlines(rows, known[diff] - reach, known[diff] + reach, color=BLUE, lw=1.3)
    for verdict, fill in (("best", BLACK), ("noise", "white"), ("unclear", PALE), ("worse", BLUE)):
        chosen, edge = known["verdict"] == verdict, BLACK if verdict == "best" else BLUE
        ax.plot(known.loc[chosen, diff], rows[chosen], "o", ms=5.5, mfc=fill, mec=edge, zorder=3)
    for row, verdict in zip(rows, known["verdict"], strict=True):
        write_beside(ax, float(row), verdict)
    name_rows(ax, [str(name) for name in known.index])
    ax.tick_params(axis="x", labelsize=SMALL)
    ax.set_xlabel(f"held-out {name}, difference to the best ± {NOISE_ERRORS:g} se", fontsize=TEXT)
    return ax


def _require_verdicts(table: Any) -> None:
    if not isinstance(table, pd.DataFrame) or "verdict" not in table:
        raise ParameterError(
            "plot_compare draws what lq.compare(models) returns, and this has no column 'verdict'; "
            f"got {type(table).__name__}. What az.compare returns, az.plot_compare draws."
        )


#: Scores by which a table may be ranked, the first that it has: name, difference, its error.
_RANKED_BY = (
    ("mean CRPS", "crps_diff", "crps_dse"),
    ("mean energy score", "energy_diff", "energy_dse"),
    ("log score", "elpd_diff", "dse"),
)


def _leading(table: pd.DataFrame) -> tuple[str, str, str]:
    for name, diff, error in _RANKED_BY:
        if diff in table and table[diff].notna().any():
            return name, diff, error
    return "Hyvärinen score", "hyvarinen_diff", "hyvarinen_dse"
