"""Draw docs/images/why.png, the picture of the README: mixing and locking the same densities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lockquack.operators import Linear, Locking, Superposition
from lockquack.paper.demo import GRID, combine, component_curves
from lockquack.plots.style import BLUE, GREEN, GREY, ORANGE

PANELS = (
    ("two models predict y", None),
    ("mixed: Σ w π", combine("", Linear(), np.array([0.5, 0.5]))),
    ("locked: Π π$^w$", combine("", Locking(), np.array([0.5, 0.5]))),
    ("quacked: |Σ √(w π) e$^{iα}$|²", combine("", Superposition([0.0, 0.5]), np.full(2, 0.5))),
)


def draw(path: Path) -> None:
    """Write the picture."""
    # Two by two, so that the titles can be read on a telephone.
    figure = Figure(figsize=(6, 2.7), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for axis, (title, curve) in zip(axes, PANELS, strict=True):
        for part, colour in zip(component_curves(), (BLUE, ORANGE), strict=True):
            axis.plot(GRID, part.density, color=GREY if curve else colour, lw=1 if curve else 2)
        if curve:
            axis.fill_between(GRID, curve.density, color=GREEN, alpha=0.25, lw=0)
            axis.plot(GRID, curve.density, color=GREEN, lw=2)
        axis.set_title(title, loc="left", fontsize=15)
        axis.set_xlim(-4.5, 4.5)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[["top", "left", "right"]].set_visible(False)
    axes[0].set_ylim(bottom=0)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "docs" / "images" / "why.png")
