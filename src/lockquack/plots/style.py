"""How pictures look: the palette of Okabe and Ito, and little ink besides the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from lockquack.jets import Array

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
#: Blue with much white.
PALE = "#A6CCE3"

#: Colours of the models that are told apart; more of them are grey.
_MODELS = (BLUE, ORANGE, SKY, PURPLE)
#: What a legend calls the grey ones.
_OTHERS = "other models"
#: Colours and lines of combinations, which are drawn over the models.
_COMBINATIONS = ((GREEN, "-"), (VERMILION, "--"), (BLACK, ":"), (PURPLE, "-."), (BLUE, "--"))
#: Sizes of letters, readable in a notebook and in a column of a paper.
TEXT, SMALL = 9.0, 8.0
#: Inches: a picture in a notebook.
WIDTH = 5.0
#: Width of an average letter, of its size.
_LETTER = 0.6
#: Share of the width that the name of a row may have.
_NAME = 0.38


def new_axes(ax: Axes | None, height: float) -> Axes:
    """Return the axes to draw on: the given ones, or those of a new figure of pyplot."""
    return new_grid(1, 1, height, WIDTH)[0, 0] if ax is None else ax


def new_grid(rows: int, columns: int, height: float, width: float) -> np.ndarray:
    """Return an array of axes, (rows, columns), in a new figure of pyplot."""
    require_matplotlib()
    from matplotlib import pyplot

    size = (width, height)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    del figure
    return axes


def require_matplotlib() -> None:
    """Say what to install, where matplotlib is missing."""
    try:
        import matplotlib as matplotlib
    except ImportError as error:
        raise ImportError(
            "Pictures need matplotlib, which is not installed: pip install 'lockquack[plots]'."
        ) from error


def remove_frame(axis: Axes) -> None:
    """Take away the frame above and to the right."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=TEXT)


def literal(name: str) -> str:
    """Escape dollar signs, so that matplotlib does not take a name for a formula."""
    return name.replace("$", r"\$")


def name_of(labels: Sequence[str] | None, i: int) -> str:
    """Return what an observation is called beside its point."""
    return str(i) if labels is None else literal(shortened(labels[i], 24))


def shortened(name: str, width: int) -> str:
    """Leave out the middle of a long name.

    Examples
    --------
    >>> shortened("regression on 12 splines", 12)
    'regress…ines'
    """
    if len(name) <= width:
        return name
    head = (width - 1) * 2 // 3
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


def short_names(names: Sequence[str], width: int) -> dict[str, str]:
    """Shorten names for a picture, so that they can still be told apart.

    Where they could not, what they have in common at the beginning goes instead.

    Examples
    --------
    >>> short_names(["regression on 3 splines", "regression on 9 splines"], 12).values()
    dict_values(['…3 splines', '…9 splines'])
    """
    shown = {name: shortened(name, width) for name in names}
    for alike in set(shown.values()):
        group = [name for name in names if shown[name] == alike]
        if len(group) > 1:
            head = _common_letters(group)
            shown |= {name: "…" + name[head:] for name in group}
            shown |= {
                name: short if len(short) <= width else f"{short[: width - 1]}…"
                for name, short in shown.items()
                if name in group
            }
    return {name: literal(short) for name, short in shown.items()}


def _common_letters(names: Sequence[str]) -> int:
    """Count the letters with which all names begin."""
    columns = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, columns))


def letters_across(axis: Axes) -> int:
    """Roughly how many small letters fit side by side into the figure of some axes."""
    inches = axis.figure.get_figure(root=True).get_size_inches()[0]
    return int(inches * 72 / (_LETTER * SMALL))


def model_colours(
    names: Sequence[str], weights: Mapping[str, float] | None = None
) -> dict[str, str]:
    """Choose a colour for each model: of many, those with most weight have one of their own.

    Examples
    --------
    >>> model_colours(["a", "b"])
    {'a': '#0072B2', 'b': '#E69F00'}
    """
    heaviest = sorted(names, key=lambda name: -abs((weights or {}).get(name, 0.0)))
    colours = iter(_MODELS)
    return {name: next(colours) if name in heaviest[: len(_MODELS)] else GREY for name in names}


def draw_models(
    axis: Axes,
    x: Array,
    lines: Mapping[str, Array],
    weights: Mapping[str, float] | None,
    **style: Any,
) -> dict[str, Artist]:
    """Draw a thin line for each model, grey ones below the others; return what a legend shows."""
    colours = model_colours(list(lines), weights)
    handles: dict[str, Artist] = {}
    for name in sorted(lines, key=lambda name: colours[name] != GREY):
        grey = colours[name] == GREY
        lw, ms = (0.8, 2.2) if grey else (1.3, 3.2)
        (drawn,) = axis.plot(x, lines[name], color=colours[name], lw=lw, ms=ms, **style)
        handles[_OTHERS if grey else name] = drawn
    return {name: handles[name] for name in (*lines, _OTHERS) if name in handles}


def combination_styles(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Choose a colour and a kind of line for each combination."""
    return {name: _COMBINATIONS[k % len(_COMBINATIONS)] for k, name in enumerate(names)}


def legend_above(axis: Axes, handles: Mapping[str, Artist], *, whole_figure: bool = False) -> None:
    """Put a legend above axes, or above all axes of their figure, in columns that have room."""
    across = letters_across(axis)
    labels = short_names(list(handles), across // 2 - 6)
    columns = across // (max(map(len, labels.values())) + 6)
    owner = axis.figure if whole_figure else axis
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    if whole_figure:
        place = {"loc": "outside upper left"}
    owner.legend(
        list(handles.values()),
        list(labels.values()),
        ncols=max(1, min(len(handles), columns)),
        frameon=False,
        fontsize=SMALL,
        handlelength=1.6,
        columnspacing=1.2,
        **place,
    )


def name_rows(axis: Axes, names: Sequence[str], below: Mapping[str, str] | None = None) -> None:
    """Label rows by names, from top to bottom, with a second line below some of them."""
    short = short_names(names, int(_NAME * letters_across(axis)))
    labels = [f"{short[name]}\n{(below or {}).get(name, '')}".rstrip() for name in names]
    axis.set_yticks(np.arange(len(names)), labels)
    axis.set_ylim(len(names) - 0.5, -0.5)
    remove_frame(axis)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)


def write_beside(axis: Axes, row: float, text: str, colour: str = BLACK) -> None:
    """Write text to the right of the axes, beside a row."""
    axis.annotate(
        text, (1.0, row), (5, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        va="center", fontsize=SMALL, annotation_clip=False, color=colour,
    )  # fmt: skip


def whole_ticks(axis: Axes) -> None:
    """Put ticks of the horizontal axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def label_points(ax: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write beside points, each label where it covers none that is there already, if it can.

    Call it last: where labels are free depends on the limits of the axes.
    """
    ax.autoscale_view()
    figure = ax.get_figure(root=True)
    assert figure is not None, "axes are drawn on one"
    to_points = 72.0 / figure.dpi
    frame = ax.get_window_extent()
    edges = frame.x0 * to_points, frame.x1 * to_points
    taken: list[tuple[float, float, float, float]] = []
    for x, y, text in points:
        across, up = ax.transData.transform((x, y)) * to_points
        boxes = {
            (side, step): _label_box(across, up, side, step, len(text))
            for step in _STEPS
            for side in (1, -1)
        }
        inside = {at: box for at, box in boxes.items() if edges[0] <= box[0] < box[2] <= edges[1]}
        free = [at for at, box in inside.items() if not any(_overlap(box, b) for b in taken)]
        side, step = (free or list(inside) or list(boxes))[0]
        taken.append(boxes[side, step])
        ax.annotate(
            text, (x, y), (4 * side, step * SMALL), textcoords="offset points",
            ha="left" if side > 0 else "right", va="center", fontsize=SMALL,
        )  # fmt: skip


#: Where a label is tried, in lines above a point.
_STEPS = (0.0, 1.1, -1.1, 2.2, -2.2, 3.3, -3.3)


def _label_box(
    across: float, up: float, side: int, step: float, letters: int
) -> tuple[float, float, float, float]:
    """Return the left, lower, right and upper end of a label, in points."""
    near, far = across + 4 * side, across + side * (4 + 0.62 * SMALL * letters)
    middle = up + step * SMALL
    return min(near, far), middle - 0.5 * SMALL, max(near, far), middle + 0.5 * SMALL


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
