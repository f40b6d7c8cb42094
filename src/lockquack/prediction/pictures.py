"""Methods of a prediction that draw it; :mod:`lockquack.plots` draws their arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lockquack.checks.models import require_same_observations
from lockquack.errors import ParameterError, UnsupportedError, unknown_name
from lockquack.jets import Array
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.operators.pool import PoolOfSome
from lockquack.plots import DensityPanel
from lockquack.prediction.curves import curves_of
from lockquack.totals import average

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
    xlabel: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictions of the models and the combination for an observation.

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
        What to call the outcome, by default its own name.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per model and combination.

    Examples
    --------
    >>> import lockquack as lq
    >>> models = lq.example_models()
    >>> ax = lq.lock(models).plot_density(obs=3, others=[lq.stack(models)])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['first', 'second', 'lock', 'stack', 'observed']
    """
    from lockquack.plots import plot_density

    (panel,) = density_panels(self, [obs], others, models)
    xlabel = xlabel or self.observations.outcome
    return plot_density(panel, weights=weight_of(self), xlabel=xlabel, ax=ax)


def plot_densities(
    self: Prediction,
    obs: Sequence[Any] | None = None,
    others: Mapping[str, Any] | Iterable[Any] = (),
    *,
    models: bool = True,
    xlabel: str | None = None,
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
    >>> axes = lq.lock(lq.example_models()).plot_densities([0, 7])
    >>> [ax.get_title(loc="left") for ax in axes]
    ['observation 0', 'observation 7']
    """
    from lockquack.plots import plot_densities

    chosen = typical(self.observations.values[:, 0]) if obs is None else list(obs)
    panels = density_panels(self, chosen, others, models)
    xlabel = xlabel or self.observations.outcome
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
    others, models, ax
        As for :meth:`plot_density`.
    prob
        Probability with which calibrated predictions stay in the band everywhere.
    random_seed
        For whole numbers; see :meth:`pit`.

    Returns
    -------
    matplotlib.axes.Axes
        With one line per model and combination.

    Examples
    --------
    >>> import lockquack as lq
    >>> ax = lq.lock(lq.example_models()).plot_pit()
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
        self._evaluation.warn_of_pareto("calibration")
        drawn[self.label] = next(iter(found.values()))
        single = {name: found[name] for name in self.models}
    for name, prediction in shown.items():
        if name not in drawn:
            drawn[name] = prediction.pit(random_seed=random_seed).values.ravel()
    return plot_pit(
        single,
        drawn,
        weights=weight_of(self),
        case_weights=self.observations.weights,
        prob=prob,
        ax=ax,
    )


def by_name(
    own: Any, others: Mapping[str, Any] | Iterable[Any], *, having: str = "label"
) -> dict[str, Any]:
    """Name a combination or prediction and others, by their labels or as they are given."""
    if not isinstance(others, Mapping):
        given = list(others) if isinstance(others, Iterable) else [None]
        named = [(getattr(each, "label", ""), each) for each in (own, *given)]
    else:
        named = [(own.label, own), *others.items()]
    if not all(hasattr(each, having) for _, each in named):
        raise ParameterError(
            "others must be combinations: a list of them, or a dict from names to them."
        )
    if len(dict(named)) < len(named):
        raise ParameterError(
            "Some combinations have the same name; give others= as a dict from other names to "
            "combinations."
        )
    return dict(named)


def with_others(
    prediction: Prediction, others: Mapping[str, Any] | Iterable[Any]
) -> dict[str, Prediction]:
    """Name a prediction and others; a combination stands for its own prediction."""
    return {
        name: each.predict(loo=prediction.loo) if hasattr(each, "predict") else each
        for name, each in by_name(prediction, others).items()
    }


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
    """Evaluate predictions of some observations over their bulk."""
    shown = with_others(prediction, others)
    for each in shown.values():
        each._evaluation.require_densities()
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
    observations = prediction.observations
    positions = [locate(observations, each) for each in obs]
    known = observations.values[:, 0] if prediction.observed else None
    curves = curves_of(members, pools, positions, known, loo=prediction.loo, models_too=models)
    return [
        DensityPanel(
            y=curve.y,
            models={name: curve.densities[name] for name in (members if models else ())},
            combinations={name: curve.densities[name] for name in pools},
            observed=None if known is None else float(known[position]),
            title=observations.describe(position),
            discrete=curve.discrete,
        )
        for position, curve in zip(positions, curves, strict=True)
    ]


def locate(observations: Observations, obs: Any) -> int:
    """Find the position of an observation, given by position, label, or label by dimension."""
    if isinstance(obs, int | np.integer) and not isinstance(obs, bool):
        if not -observations.n <= obs < observations.n:
            raise ParameterError(
                f"There is no observation {obs}: there are {observations.n}, from 0 on."
            )
        return int(obs) % observations.n
    labels = obs if isinstance(obs, Mapping) else {observations.dims[0]: obs}
    if set(labels) != set(observations.dims):
        raise ParameterError(
            f"An observation is given by its position, or by a label for each of its dimensions "
            f"{observations.dims}; got {obs!r}."
        )
    index = []
    for dim in observations.dims:
        known = observations.coords.get(dim, np.arange(observations.sizes[dim]))
        found = np.flatnonzero(known == labels[dim])
        if not found.size:
            raise unknown_name(f"{dim}", labels[dim], map(str, known))
        index.append(int(found[0]))
    return int(np.ravel_multi_index(index, observations.shape))


def short_name(observations: Observations, index: int) -> str:
    """Labels of an observation, or its position."""
    position = np.unravel_index(index, observations.shape)
    labels = [
        str(observations.coords[dim][i])
        for dim, i in zip(observations.dims, position, strict=True)
        if dim in observations.coords
    ]
    return ", ".join(labels) or str(index)


def weight_of(prediction: Prediction) -> dict[str, float]:
    """Weight of each model, the average where it differs between observations."""
    weights = prediction.pool.weights.reshape(prediction.pool.K, -1)
    counts = prediction.observations.weights if weights.shape[1] > 1 else None
    weights = average(weights, counts)
    return dict(zip(prediction.models, map(float, weights), strict=True))


def _same_draws(one: Source, other: Source) -> bool:
    """Whether two models are the same, as far as a few of their log densities tell."""
    some = 0, slice(0, 8), slice(0, 8)
    sizes = [(source.n_chains, source.n_draws, source.n_obs) for source in (one, other)]
    return one is other or (
        sizes[0] == sizes[1] and np.array_equal(one.logp(*some), other.logp(*some))
    )
