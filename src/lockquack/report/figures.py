"""Figures as parts of a page: scalable, with letters that can be searched, light and dark."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING

from lockquack.plots.style import BLACK, BLUE, GREEN, SKY, VERMILION, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches: wide enough for a screen, and still readable on a telephone.
_WIDTH = 4.7
#: Colours of the pictures, which the page lightens on a dark screen.
_COLOURS = {
    BLACK: "currentColor",
    "#FFFFFF": "var(--paper)",
    BLUE: "var(--blue)",
    GREEN: "var(--green)",
    VERMILION: "var(--vermilion)",
    SKY: "var(--sky)",
}


def page_colour(colour: str) -> str:
    """Return the name under which the page knows a colour of the pictures, if it has one."""
    return _COLOURS.get(colour, colour)


def draw_inline(
    name: str, draw: Callable[[list[Axes]], object], height: float, rows: int = 1, columns: int = 1
) -> str:
    """Draw on new axes and return them as an SVG element.

    The name begins all ids of the element, so that several of them can stand on one page.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings = {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9.0}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
        draw(axes)
        figure.patch.set_visible(False)
        for axis in axes:
            axis.patch.set_visible(False)
            for spine in axis.spines.values():  # on the edges of the axes, which are in it
                spine.set_in_layout(False)
        written = StringIO()
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return _as_element(written.getvalue(), name)


def _as_element(svg: str, name: str) -> str:
    """Take the element out of an SVG file; it scales with the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    for colour, instead in _COLOURS.items():
        svg = re.sub(f"{colour}\\b", instead, svg, flags=re.IGNORECASE)
    return svg.strip()
