"""Predictions of one observation at a time, which the reader of a page chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from lockquack.jets import Array
from lockquack.plots import DensityPanel
from lockquack.plots.style import combination_styles, model_colours
from lockquack.report.figures import page_colour

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination
    from lockquack.combination.influence import Influence

#: Observations to choose from: all, or so many; and how many of them because they decide.
_MOST, _DECISIVE = 120, 30
#: Points of a curve, and the height of the highest in whole numbers.
_POINTS, _HEIGHT = 100, 999


def worth_a_look(fit: Combination, influence: Influence | None) -> list[int]:
    """Positions of the observations to choose from: of many, those that decide and some others.

    Those that decide move the weights most when they are left out; the others are spread evenly
    over the range of the outcomes.
    """
    n = fit.observations.n
    if n <= _MOST:
        return list(range(n))
    decisive: set[int] = set()
    if influence is not None:
        moved = influence.moved.values.ravel()
        decisive = set(np.argsort(-moved, kind="stable")[:_DECISIVE].tolist())
    order = np.argsort(fit.observations.values[:, 0], kind="stable")
    spread = order[np.linspace(0, n - 1, _MOST - len(decisive)).astype(int)]
    return sorted(decisive | set(spread.tolist()))


def picker(
    panels: Sequence[DensityPanel],
    weights: Array,
    overall: Mapping[str, float],
    outcome: str,
    n: int,
) -> str:
    """Write what chooses an observation, its picture, and the script that draws it.

    The weights are those of the models at each of the observations, (K, panels); the overall ones
    decide which models have a colour. There are n observations in all.

    It is hidden until the script runs, so that a page without scripts, or on paper, has none.
    """
    options = "".join(
        f'<option value="{k}">{escape(panel.title)}</option>' for k, panel in enumerate(panels)
    )
    known = {
        "curves": _curves(panels[0], overall),
        "outcome": outcome,
        "panels": [_as_numbers(panel, each) for panel, each in zip(panels, weights.T, strict=True)],
    }
    some = "" if len(panels) == n else f" ({len(panels)} of {n})"
    page = files("lockquack.report").joinpath("picker.js").read_text(encoding="utf-8")
    return (
        '<div id="picker" hidden>'
        f'<p class="choose"><label for="picker-obs">Observation{escape(some)}</label> '
        f'<select id="picker-obs">{options}</select> '
        '<button type="button" id="picker-back">Previous</button> '
        '<button type="button" id="picker-on">Next</button></p>'
        '<figure><svg id="picker-picture" role="img" viewBox="0 0 640 300"></svg>'
        '<figcaption id="picker-said" aria-live="polite"></figcaption></figure>'
        '<div class="table"><table id="picker-table"></table></div></div>'
        f'<script type="application/json" id="picker-data">{as_script(known)}</script>'
        f"<script>{page}</script>"
    )


def as_script(known: Mapping[str, Any]) -> str:
    r"""Write data so that nothing in a name can end the element that holds it.

    Examples
    --------
    >>> as_script({"name": "</script>"})
    '{"name":"\\u003c/script>"}'
    """
    written = json.dumps(known, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return written.replace("<", "\\u003c")


def _curves(panel: DensityPanel, weights: Mapping[str, float]) -> list[dict[str, Any]]:
    """Names and looks of the curves, in the order of their numbers."""
    colours = model_colours(list(panel.models), weights)
    styles = combination_styles(list(panel.combinations))
    models = [{"name": name, "colour": page_colour(colour)} for name, colour in colours.items()]
    pools = [
        {"name": name, "colour": page_colour(colour), "pool": True}
        for name, (colour, _) in styles.items()
    ]
    return [*models, *pools]


def _as_numbers(panel: DensityPanel, weights: Array) -> dict[str, Any]:
    """Curves as whole numbers relative to the highest, and what each says of the outcome."""
    curves = np.stack([*panel.models.values(), *panel.combinations.values()])
    step = max(1, -(-len(panel.y) // _POINTS))
    top = float(curves.max()) or 1.0
    return {
        "title": panel.title,
        "weights": weights.round(3).tolist(),
        "y": [float(f"{value:.6g}") for value in panel.y[[0, -1]]],
        "step": float(panel.y[step] - panel.y[0]) if panel.discrete and len(panel.y) > step else 0,
        "observed": panel.observed,
        "discrete": panel.discrete,
        "curves": np.rint(_HEIGHT * curves[:, ::step] / top).astype(int).tolist(),
        "at": [_log_at(panel, curve) for curve in curves],
        "interval": [_middle(panel, curve) for curve in curves],
    }


def _log_at(panel: DensityPanel, curve: Array) -> str:
    """Log density at the outcome, as text; nothing where there is none."""
    if panel.observed is None:
        return ""
    with np.errstate(divide="ignore"):
        value = float(np.interp(panel.observed, panel.y, np.log(curve)))
    return f"{value:.2f}".replace("-", "−") if np.isfinite(value) else "−∞"


def _middle(panel: DensityPanel, curve: Array) -> str:
    """Middle 90 % of a curve, as text."""
    steps = np.ones(len(panel.y)) if panel.discrete else np.gradient(panel.y)
    below = np.cumsum(curve * steps)
    if not below[-1] > 0:
        return ""
    ends = np.searchsorted(below / below[-1], [0.05, 0.95])
    low, high = panel.y[np.minimum(ends, len(panel.y) - 1)]
    return f"{low:.3g} to {high:.3g}".replace("-", "−")
