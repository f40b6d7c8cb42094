"""Pictures of a prediction: the arrays that :mod:`lockquack.plots` draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockquack.checks.models import require_same_observations
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.jets import Array
from lockquack.models.source import Source
from lockquack.operators.pool import PoolOfSome
from lockquack.plots import DensityPanel
from lockquack.prediction.panels import density_panel, locate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lockquack.prediction.prediction import Prediction

#: Quantiles of the outcomes at which observations are drawn, where none are asked for.
_TYPICAL = (0.125, 0.375, 0.625, 0.875)


def plot_density(
    self: Prediction,
    obs: Any = 0,
    others: Mapping[str, Any] | Iterable[Any] = (),
    *,
    models: bool = True,
    xlabel: str = "y",
    ax: Axes | None = None,
) -> Axes:
    """Draw what the models and the combination predict for an observation, and what came.

    For scalar outcomes, and for models whose density is known away from the observed values.

    Parameters
    ----------
    obs
        The observation: its position, its label (a string), or labels by dimension
        (``{"year": 2001}``).
    others
        Other combinations of these models, or predictions of the same observations, drawn over
        this one; a dict gives them names.
    models
        Whether to draw the models.
    xlabel
        What the outcome is called.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per model and combination.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> models = example_models()
    >>> ax = lq.lock(models).plot_density(obs=3, others=[lq.stack(models)])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['first', 'second', 'lock', 'stack', 'observed']
    """
    from lockquack.plots import plot_density

    (panel,) = density_panels(self, [obs], others, models)
    return plot_density(panel, weights=weight_of(self), xlabel=xlabel, ax=ax)


def plot_densities(
    self: Prediction,
    obs: Sequence[Any] | None = None,
    others: Mapping[str, Any] | Iterable[Any] = (),
    *,
    models: bool = True,
    xlabel: str = "y",
    axes: Sequence[Axes] | None = None,
) -> np.ndarray[Any, Any]:
    """Draw what is predicted for several observations, a small panel each.

    Parameters
    ----------
    obs
        The observations, each as for :meth:`plot_density`. By default four whose outcomes are
        spread over the range: at the odd eighths of their distribution.
    others, models, xlabel
        As for :meth:`plot_density`.
    axes
        Axes to draw on, one per observation of one figure; by default those of a new one.

    Returns
    -------
    numpy.ndarray
        The axes, one per observation.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> axes = lq.lock(example_models()).plot_densities([0, 7])
    >>> [ax.get_title(loc="left") for ax in axes]
    ['observation 0', 'observation 7']
    """
    from lockquack.plots import plot_densities

    chosen = typical(self.observations.values[:, 0]) if obs is None else list(obs)
    panels = density_panels(self, chosen, others, models)
    return plot_densities(panels, weights=weight_of(self), xlabel=xlabel, axes=axes)


def plot_pit(
    self: Prediction,
    others: Mapping[str, Any] | Iterable[Any] = (),
    *,
    models: bool = True,
    prob: float = 0.95,
    random_seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw how far the probability integral transform is from uniform.

    A line that leaves the band anywhere is not uniform, at the level 1 − ``prob``; the band is
    that of the test in :meth:`coverage`. Above zero on the left and below it on the right:
    predictions too narrow. The reverse: too wide. Above zero throughout: outcomes lower than
    predicted.

    Parameters
    ----------
    others
        Other combinations, or predictions of the same observations; a dict gives them names.
    models
        Whether to draw the models.
    prob
        Probability with which calibrated predictions stay in the band everywhere.
    random_seed
        For whole numbers; see :meth:`pit`.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per model and combination.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> ax = lq.lock(example_models()).plot_pit()
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['first', 'second', 'lock', '95 % band']
    """
    from lockquack.plots import plot_pit

    self._require_observed("plot_pit")
    if self.observations.d > 1:
        raise UnsupportedError(
            "The components of an outcome depend on each other, so there is no band for all "
            "of them together; fit.coverage() tests each by itself."
        )
    shown = with_others(self, others)
    drawn: dict[str, Array] = {}
    single: dict[str, Array] = {}
    if models:
        found = {name: each.pit(random_seed) for name, each in self._calibrated().items()}
        self._numbers.warn_of_pareto("calibration")
        drawn[self.label] = next(iter(found.values()))
        single = {name: found[name] for name in self.models}
    for name, prediction in shown.items():
        if name not in drawn:
            drawn[name] = prediction.pit(random_seed=random_seed).values.ravel()
    return plot_pit(single, drawn, weights=weight_of(self), prob=prob, ax=ax)


def with_others(
    prediction: Prediction, others: Mapping[str, Any] | Iterable[Any]
) -> dict[str, Prediction]:
    """Name a prediction and others, which may be combinations, by their labels."""
    if isinstance(others, Mapping):
        names: list[str] = [prediction.label, *others]
        given = list(others.values())
    else:
        given = list(others) if isinstance(others, Iterable) else [None]
        names = [prediction.label, *(getattr(each, "label", "") for each in given)]
    if not all(hasattr(each, "label") for each in given):
        raise ParameterError(
            "others must be combinations: a list of them, or a dict from names to them."
        )
    if len(set(names)) < len(names):
        raise ParameterError(
            "Some combinations have the same name; give others= as a dict from other names to "
            "combinations."
        )
    predictions = [
        each.predict(loo=prediction.loo) if hasattr(each, "predict") else each for each in given
    ]
    return dict(zip(names, [prediction, *predictions], strict=True))


def typical(outcomes: Array) -> list[int]:
    """Positions of observations whose outcomes are spread over the range."""
    order = np.argsort(outcomes, kind="stable")
    places = [int(q * (order.size - 1)) for q in _TYPICAL]
    return sorted({int(order[place]) for place in places})


def density_panels(
    prediction: Prediction,
    obs: Sequence[Any],
    others: Mapping[str, Any] | Iterable[Any] = (),
    models: bool = True,
) -> list[DensityPanel]:
    """Evaluate predictions of some observations where there is something to see."""
    shown = with_others(prediction, others)
    members: dict[str, Source] = {}
    for each in shown.values():
        for name, model in each.models.items():
            if not _same_draws(members.setdefault(name, model.source), model.source):
                raise ParameterError(
                    f"The combinations have different models called {name!r}; a picture of both "
                    "needs another name for one of them."
                )
    require_same_observations(members)
    places = {name: k for k, name in enumerate(members)}
    pools = {
        name: PoolOfSome(each.pool, tuple(places[m] for m in each.models))
        for name, each in shown.items()
    }
    positions = [locate(prediction.observations, each) for each in obs]
    return [
        density_panel(
            members,
            pools,
            position,
            prediction.observations,
            loo=prediction.loo,
            models=models,
            known=prediction.observed,
        )
        for position in positions
    ]


def weight_of(prediction: Prediction) -> dict[str, float]:
    """Weight of each model, the average where it differs between observations."""
    weights = prediction.pool.weights.reshape(prediction.pool.K, -1).mean(axis=1)
    return dict(zip(prediction.models, map(float, weights), strict=True))


def _same_draws(one: Source, other: Source) -> bool:
    """Whether two models are the same, as far as a few of their log densities tell."""
    some = 0, slice(0, 8), slice(0, 8)
    sizes = [(source.n_chains, source.n_draws, source.n_obs) for source in (one, other)]
    return one is other or (
        sizes[0] == sizes[1] and np.array_equal(one.logp(*some), other.logp(*some))
    )
