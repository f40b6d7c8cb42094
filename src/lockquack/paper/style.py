"""How the figures are written; their colours are those of all pictures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")


def save(figure: Figure, folder: Path, name: str, formats: Iterable[str]) -> list[Path]:
    """Write a figure in each format; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{extension}" for extension in formats]
    for path in paths:
        # Without dates, the same numbers give the same file.
        metadata = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(path, dpi=110, metadata=metadata[path.suffix[1:]])
    return paths
