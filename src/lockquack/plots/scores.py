"""At which observations one prediction beats another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lockquack.jets import Array
from lockquack.plots.style import (
    BLACK,
    BLUE,
    SMALL,
    TEXT,
    VERMILION,
    label_points,
    letters_across,
    literal,
    name_of,
    new_axes,
    remove_frame,
    shortened,
    whole_ticks,
)
from lockquack.totals import error_of_total

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_scores(
    differences: Array,
    names: tuple[str, str],
    *,
    labels: Sequence[str] | None = None,
    case_weights: Array | None = None,
    worst: int = 5,
    score: str = "score",
    ax: Axes | None = None,
) -> Axes:
    """Draw score differences between two predictions, observation by observation.

    Parameters
    ----------
    differences
        Score of the first prediction minus that of the second, one per observation.
    names
        What the two are called.
    labels
        What the observations are called, by default their positions.
    case_weights
        How often each observation counts; once by default. Differences are drawn times these.
    worst
        How many observations to label: those at which the first prediction loses most.
    score
        Which score it is.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One point per observation, in their order. The title says the total and its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> from lockquack.plots import plot_scores
    >>> ax = plot_scores(np.array([0.2, -1.0, 0.3, 0.1]), ("locking", "tree"), worst=1)
    >>> ax.get_title(loc="left"), [text.get_text() for text in ax.texts]
    ('locking − tree: −0.4 ± 1.2', ['1'])
    """
    apart = np.asarray(differences, dtype=np.float64).ravel()
    values = apart if case_weights is None else apart * case_weights
    n = values.size
    ax = new_axes(ax, 2.8)
    place = np.arange(n)
    size = float(np.clip(60 / np.sqrt(n), 2.4, 5.0))
    ax.axhline(0.0, color=BLACK, lw=0.6)
    for chosen, colour in ((values >= 0, BLUE), (values < 0, VERMILION)):
        ax.plot(place[chosen], values[chosen], "o", ms=size, mew=0, color=colour, alpha=0.8)
    lowest = np.argsort(values, kind="stable")[:worst]
    lowest = np.sort(lowest[values[lowest] < 0])
    error = f" ± {error_of_total(apart, case_weights):.1f}" if n > 1 else ""
    total = f"{values.sum():+.1f}".replace("-", "−")
    room = max(10, letters_across(ax) // 2 - 14)
    first, second = (literal(shortened(name, room)) for name in names)
    ax.set_title(f"{first} − {second}: {total}{error}", loc="left", fontsize=TEXT)
    ax.set_xlabel("observation", fontsize=TEXT)
    times = "" if case_weights is None else " × case weight"
    ax.set_ylabel(f"difference in {score}{times}", fontsize=TEXT)
    whole_ticks(ax)
    ax.margins(x=0.03, y=0.08)
    remove_frame(ax)
    ax.tick_params(labelsize=SMALL)
    label_points(ax, [(float(i), float(values[i]), name_of(labels, int(i))) for i in lowest])
    return ax
