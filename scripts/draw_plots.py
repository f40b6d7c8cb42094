"""Draw the pictures of docs/images/plots again: python scripts/draw_plots.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np

import lockquack as lq
from lockquack.demo import diabetes_models

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "plots"


def main() -> None:
    """Fit the diabetes models by three methods and draw everything once."""
    mpl.use("Agg")
    from matplotlib.axes import Axes

    models = diabetes_models()
    fit, stacked, quacked = lq.lock(models), lq.stack(models), lq.quack(models)
    methods = ["quack", "hoelder", "lock", "stack", "pseudo-BMA+", "select", "equal"]
    progression = "disease progression"
    pictures: dict[str, Callable[[], Axes | np.ndarray]] = {
        "weights": lambda: fit.plot_weights([stacked, quacked]),
        "density": lambda: fit.plot_density(78, [stacked], xlabel=progression),
        "densities": lambda: fit.plot_densities([3, 78, 123, 322], xlabel=progression),
        "pit": lambda: fit.plot_pit([stacked]),
        "scores": lambda: fit.plot_scores(stacked),
        "compare": lambda: lq.plot_compare(lq.compare(models, methods)),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        drawn = draw()
        figure = (drawn.flat[0] if isinstance(drawn, np.ndarray) else drawn).figure
        figure.savefig(FOLDER / f"{name}.png", dpi=130, metadata={"Software": None})
        print(FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
