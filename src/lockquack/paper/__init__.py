"""The experiments of the paper, run again: ``lockquack paper``.

One file per concept: the two models and their closed-form predictions (:mod:`scenarios`), the
methods (:mod:`methods`), sampling, over-fitting, the demonstration of operators, figures, and
the runner that spreads replications over processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    >>> from lockquack.paper import plot_operators
    >>> figure = plot_operators(weight=0.3)
    >>> [ax.get_title(loc="left") for ax in figure.axes][:3]
    ['two densities', 'linear pool', 'locking']
    """
    from lockquack.plots.style import require_matplotlib

    require_matplotlib()
    from lockquack.paper.demo import combined_curves, component_curves
    from lockquack.paper.figures import demo_figure

    return demo_figure(component_curves(), combined_curves(weight, mixture_exponent))
