"""How the figures look: one palette, that of Okabe and Ito, and little ink besides the data."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"

FORMATS = ("png", "pdf", "svg")


def plain(axis: Axes) -> None:
    """Take away the frame and leave a faint grid along the values."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=9)


def save(figure: Figure, folder: Path, name: str, formats: Iterable[str]) -> list[Path]:
    """Write a figure in each format; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{extension}" for extension in formats]
    for path in paths:
        # Without dates, the same numbers give the same file.
        metadata = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(path, dpi=110, metadata=metadata[path.suffix[1:]])
    return paths
