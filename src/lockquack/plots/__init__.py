"""Pictures, one file each. They draw arrays; :class:`Combination` has methods that make these.

Needs matplotlib: ``pip install 'lockquack[plots]'``.
"""

from lockquack.plots.compare import plot_compare
from lockquack.plots.densities import DensityPanel, plot_densities, plot_density
from lockquack.plots.influence import plot_influence
from lockquack.plots.pit import plot_pit
from lockquack.plots.scores import plot_scores
from lockquack.plots.weights import plot_weights
from lockquack.plots.weights_at import plot_weights_at

__all__ = [
    "DensityPanel",
    "plot_compare",
    "plot_densities",
    "plot_density",
    "plot_influence",
    "plot_pit",
    "plot_scores",
    "plot_weights",
    "plot_weights_at",
]
