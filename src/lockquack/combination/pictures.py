"""Methods of a combination that draw its weights and scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from lockquack.combination.varying import weights_over
from lockquack.errors import ParameterError, unknown_name
from lockquack.jets import Array
from lockquack.prediction.pictures import by_name, short_name
from lockquack.rules import LogScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lockquack.combination.combination import Combination


def plot_weights(
    self: Combination,
    others: Mapping[str, Combination] | Iterable[Combination] = (),
    *,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Draw the weights with intervals from the Bayesian bootstrap over observations.

    Phases, where there are some, are written below the models' names. A weight is a share in
    the pool, not the probability that a model is true.

    Parameters
    ----------
    others
        Other combinations, drawn beside this one; a dict gives them names.
    prob
        Probability of the intervals; those of 50 % are drawn thicker.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One row per model.

    Examples
    --------
    >>> import lockquack as lq
    >>> models = lq.example_models()
    >>> ax = lq.lock(models).plot_weights([lq.stack(models)])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['first', 'second']
    """
    from lockquack.plots import plot_weights

    shown: dict[str, Combination] = by_name(self, others, having="weights")
    draws = {
        name: xr.DataArray(fit._replicates, dims=["draw", "model"])
        for name, fit in shown.items()
        if not np.isnan(fit._replicates).any()
    }
    return plot_weights(
        {name: fit._over_models(fit._weights, "weights") for name, fit in shown.items()},
        draws,
        prob=prob,
        remarks=_phases(self) if len(shown) == 1 else None,
        ax=ax,
    )


def plot_weights_at(
    self: Combination, covariate: str | None = None, *, prob: float = 0.9, ax: Axes | None = None
) -> Axes:
    """Draw how the weights depend on a covariate, with intervals from the Bayesian bootstrap.

    Lines with bands over a number; points, or a map, over groups.

    Parameters
    ----------
    covariate
        Which one, where there are several; the others are then at the average of their functions.
    prob
        Probability of the intervals.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The covariate, or the groups, and the weights.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> age = lq.Spline(np.linspace(20, 70, 40), name="age")
    >>> fit = lq.lock(lq.example_models(), by=age, shrinkage=1.0)
    >>> fit.plot_weights_at().get_xlabel()
    'age'
    """
    from lockquack.plots import plot_weights_at

    return plot_weights_at(weights_over(self, covariate, prob), ax=ax)


def plot_scores(
    self: Combination, other: str | Combination, *, worst: int = 5, ax: Axes | None = None
) -> Axes:
    """Draw score differences to a model, or to another combination, at each observation.

    Scores are those of the rule by which it was fitted. A combination that was fitted by
    another rule is compared by the log score, which needs models whose density is known
    away from the observed values.

    Parameters
    ----------
    other
        Name of one of the models, or a combination of the same observations.
    worst
        How many observations to label: those at which this combination loses most.
    ax
        Axes to draw on, by default those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One point per observation.

    Examples
    --------
    >>> import lockquack as lq
    >>> models = lq.example_models()
    >>> ax = lq.lock(models).plot_scores("first", worst=2)
    >>> ax.get_ylabel()
    'difference in Hyvärinen score'
    """
    from lockquack.plots import plot_scores

    if isinstance(other, str):
        own, theirs, rule = _beside_model(self, other)
    else:
        own, theirs, rule = _beside_combination(self, other)
    return plot_scores(
        own - theirs,
        (self.label, other if isinstance(other, str) else other.label),
        labels=[short_name(self.observations, i) for i in range(self.observations.n)],
        case_weights=self.observations.weights,
        worst=worst,
        score=f"{rule} score",
        ax=ax,
    )


def _phases(fit: Combination) -> dict[str, str]:
    """Write each model's phase, where the pool has phases."""
    phases = fit.parameters.get("phases")
    if phases is None:
        return {}
    units = np.round(phases.values / np.pi, 2) + 0.0  # without minus zeros
    return {name: f"phase {unit:.2f} π" for name, unit in zip(fit.names, units, strict=True)}


def _beside_model(fit: Combination, name: str) -> tuple[Array, Array, str]:
    """Return scores of a combination and of one of its models, and the name of the rule."""
    if name not in fit.names:
        raise unknown_name("model", name, fit.names)
    scored = fit.pointwise.values.reshape(1 + len(fit.names), -1)
    return scored[0], scored[1 + fit.names.index(name)], fit.rule.label


def _beside_combination(fit: Combination, other: Combination) -> tuple[Array, Array, str]:
    """Return scores of two combinations, and the name of the rule."""
    if not np.array_equal(fit.observations.values, other.observations.values):
        raise ParameterError(
            "The two combinations are not of the same observations, so their scores cannot be "
            "compared one by one."
        )
    if fit.rule == other.rule:
        own, theirs = fit.pointwise.values[0], other.pointwise.values[0]
        return own.ravel(), theirs.ravel(), fit.rule.label
    own, theirs = (each.logpdf(loo=each.scores == "loo").values for each in (fit, other))
    return own.ravel(), theirs.ravel(), LogScore.label
