"""Two densities under every operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockquack.paper.demo import combined_curves, component_curves
from lockquack.paper.figures import demo_figure
from lockquack.plots.style import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_operators(weight: float = 0.5, mixture_exponent: float = 0.5) -> Figure:
    """Draw two normal densities and what every operator makes of them.

    The demonstration of the paper; ``lockquack paper demo`` writes it, and a page to play with.

    Parameters
    ----------
    weight
        Weight of the first density.
    mixture_exponent
        Exponent of the mixture in the hybrid.

    Returns
    -------
    matplotlib.figure.Figure
        One panel for the densities and one for each combination.

    Examples
    --------
    >>> from lockquack.paper.operators import plot_operators
    >>> figure = plot_operators(weight=0.3)
    >>> [ax.get_title(loc="left") for ax in figure.axes][:3]
    ['two densities', 'linear pool', 'locking']
    """
    require_matplotlib()
    return demo_figure(component_curves(), combined_curves(weight, mixture_exponent))
