"""Calibration: the distribution of PIT values, which should be uniform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from lockquack.errors import ParameterError
from lockquack.jets import Array
from lockquack.numeric import as_probability
from lockquack.plots.style import (
    BLACK,
    GREY,
    SMALL,
    TEXT,
    combination_styles,
    draw_models,
    legend_above,
    new_axes,
    remove_frame,
)
from lockquack.quadrature.uniformity import ecdf_band
from lockquack.totals import effective_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_pit(
    models: Mapping[str, Array],
    combinations: Mapping[str, Array],
    *,
    weights: Mapping[str, float] | None = None,
    case_weights: Array | None = None,
    prob: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw how far the distribution of PIT values is from uniform, with a simultaneous band.

    How to read it: :meth:`Prediction.plot_pit`.

    Parameters
    ----------
    models, combinations
        Name → probabilities F(y), one per observation, as :meth:`Combination.pit` returns them.
    weights, ax
        As for :func:`plot_density`.
    case_weights
        How often each observation counts; once by default.
    prob
        Probability with which independent uniform numbers stay in the band everywhere.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per model and combination.

    Examples
    --------
    >>> import numpy as np
    >>> from lockquack.plots import plot_pit
    >>> rng = np.random.default_rng(1)
    >>> ax = plot_pit({"narrow": rng.beta(0.5, 0.5, 100)}, {"locking": rng.random(100)})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['narrow', 'locking', '95 % band']
    """
    n = _common_size([*models.values(), *combinations.values()])
    ax = new_axes(ax, 2.9)
    n = max(1, round(effective_number(case_weights, n)))
    places, low, high = ecdf_band(n, as_probability("prob", prob))
    at = np.concatenate([[0.0], places, [1.0]])
    lower, upper = np.pad(low - places, 1), np.pad(high - places, 1)
    band = ax.fill_between(at, lower, upper, color=GREY, alpha=0.25, lw=0)
    ax.axhline(0.0, color=BLACK, lw=0.6)
    apart = {name: _difference(pit, places, case_weights) for name, pit in models.items()}
    handles = draw_models(ax, at, apart, weights)
    for name, (colour, ls) in combination_styles(list(combinations)).items():
        line = _difference(combinations[name], places, case_weights)
        (handles[name],) = ax.plot(at, line, color=colour, ls=ls, lw=2.2)
    legend_above(ax, {**handles, f"{100 * prob:g} % band": band})
    ax.set_xlim(0, 1)
    remove_frame(ax)
    ax.tick_params(labelsize=SMALL)
    ax.set_xlabel("probability integral transform (PIT)", fontsize=TEXT)
    ax.set_ylabel("ECDF − uniform", fontsize=TEXT)
    return ax


def _difference(pit: Array, places: Array, case_weights: Array | None) -> Array:
    """Return the empirical distribution function minus the uniform one; zero at both ends."""
    order = np.argsort(pit, axis=None)
    counts = np.ones(order.size) if case_weights is None else case_weights[order]
    below = np.searchsorted(np.ravel(pit)[order], places, side="right")
    return np.pad(np.cumsum(counts)[below - 1] * (below > 0) / counts.sum() - places, 1)


def _common_size(series: Iterable[Array]) -> int:
    sizes = {np.size(each) for each in series}
    if len(sizes) != 1:
        raise ParameterError(
            f"All predictions must be of the same observations; got series of lengths "
            f"{sorted(sizes)}."
        )
    return sizes.pop()
