"""The pictures of a combination: the arrays that :mod:`lockquack.plots` draws."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from lockquack.combination.predicting import Predicting
from lockquack.errors import ParameterError, UnsupportedError, unknown_name
from lockquack.fitting.fitter import Fitter
from lockquack.jets import Array
from lockquack.operators import Linear
from lockquack.operators.pool import PoolOfSome
from lockquack.rules import LogScore, Rule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from lockquack.combination.combination import Combination
    from lockquack.models.source import Source
    from lockquack.plots import DensityPanel

#: Quantiles of the outcomes at which observations are drawn, where none are asked for.
_TYPICAL = (0.125, 0.375, 0.625, 0.875)


class Plotting(Predicting):
    """The methods of a combination that draw it."""

    method: str
    fitter: Fitter

    @property
    @abstractmethod
    def weights(self) -> xr.DataArray:
        """Weights of the models."""

    @property
    @abstractmethod
    def parameters(self) -> xr.Dataset:
        """Parameters besides the weights."""

    @property
    @abstractmethod
    def pointwise(self) -> xr.DataArray:
        """Scores of the combination and of the models at each observation."""

    @property
    @abstractmethod
    def rule(self) -> Rule:
        """The score that the parameters maximise."""

    @property
    @abstractmethod
    def _replicates(self) -> Array: ...

    def plot_weights(
        self,
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
            Probability of the intervals; half of it is drawn thicker.
        ax
            Axes to draw on, by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            One row per model.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> models = example_models()
        >>> ax = lq.lock(models).plot_weights([lq.stack(models)])
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['first', 'second']
        """
        from lockquack.plots import plot_weights

        shown = self._with_others(others)
        draws = {name: fit._weight_draws() for name, fit in shown.items()}
        return plot_weights(
            {name: fit.weights for name, fit in shown.items()},
            {name: each for name, each in draws.items() if each.notnull().all()},
            prob=prob,
            remarks=self._phases() if len(shown) == 1 else None,
            ax=ax,
        )

    def plot_density(
        self,
        obs: Any = 0,
        others: Mapping[str, Combination] | Iterable[Combination] = (),
        *,
        models: bool = True,
        loo: bool | None = None,
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
            Other combinations of these models, drawn over this one; a dict gives them names.
        models
            Whether to draw the models.
        loo
            Leave the observation out of the models that predict it; by default where the weights
            were fitted so.
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
        ['first', 'second', 'locking', 'stacking', 'observed']
        """
        from lockquack.plots import plot_density

        (panel,) = self._density_panels([obs], others, models, loo)
        return plot_density(panel, weights=self._weight_of(), xlabel=xlabel, ax=ax)

    def plot_densities(
        self,
        obs: Sequence[Any] | None = None,
        others: Mapping[str, Combination] | Iterable[Combination] = (),
        *,
        models: bool = True,
        loo: bool | None = None,
        xlabel: str = "y",
        axes: Sequence[Axes] | None = None,
    ) -> np.ndarray[Any, Any]:
        """Draw what is predicted for several observations, a small panel each.

        Parameters
        ----------
        obs
            The observations, each as for :meth:`plot_density`. By default four whose outcomes
            are spread over the range: at the odd eighths of their distribution.
        others, models, loo, xlabel
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
        >>> models = example_models()
        >>> axes = lq.lock(models).plot_densities([0, 7])
        >>> [ax.get_title(loc="left") for ax in axes]
        ['observation 0', 'observation 7']
        """
        from lockquack.plots import plot_densities

        chosen = self._typical() if obs is None else list(obs)
        panels = self._density_panels(chosen, others, models, loo)
        return plot_densities(panels, weights=self._weight_of(), xlabel=xlabel, axes=axes)

    def plot_pit(
        self,
        others: Mapping[str, Combination] | Iterable[Combination] = (),
        *,
        models: bool = True,
        loo: bool | None = None,
        prob: float = 0.95,
        random_seed: int = 0,
        progressbar: bool | None = None,
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
            Other combinations; a dict gives them names.
        models
            Whether to draw the models.
        loo
            Leave each observation out of the models that predict it; by default where the weights
            were fitted so.
        prob
            Probability with which calibrated predictions stay in the band everywhere.
        random_seed
            For whole numbers; see :meth:`pit`.
        progressbar
            Whether to show progress; by default in a terminal only.
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
        >>> ax = lq.lock(models).plot_pit()
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['first', 'second', 'locking', '95 % band']
        """
        from lockquack.plots import plot_pit

        if self.observations.d > 1:
            raise UnsupportedError(
                "The components of an outcome depend on each other, so there is no band for all "
                "of them together; fit.coverage() tests each by itself."
            )
        loo = self._leaves_out(loo)
        shown = self._with_others(others)
        drawn: dict[str, Array] = {}
        single: dict[str, Array] = {}
        if models:
            drawn[next(iter(shown))], single = self._pit_beside(loo, random_seed, progressbar)
        for name, fit in shown.items():
            if name not in drawn:
                pit = fit.pit(loo=loo, random_seed=random_seed, progressbar=progressbar)
                drawn[name] = pit.values
        return plot_pit(single, drawn, weights=self._weight_of(), prob=prob, ax=ax)

    def plot_scores(
        self, other: str | Combination, *, worst: int = 5, ax: Axes | None = None
    ) -> Axes:
        """Draw where this combination scores better than a model, or another combination, or worse.

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
        >>> from lockquack.testing import example_models
        >>> models = example_models()
        >>> ax = lq.lock(models).plot_scores("first", worst=2)
        >>> ax.get_ylabel()
        'difference in Hyvärinen score'
        """
        from lockquack.plots import plot_scores
        from lockquack.prediction.panels import short_name

        if isinstance(other, str):
            own, theirs, rule = self._beside_model(other)
        else:
            own, theirs, rule = self._beside_combination(other)
        return plot_scores(
            own - theirs,
            (self._label, other if isinstance(other, str) else other._label),
            labels=[short_name(self.observations, i) for i in range(self.observations.n)],
            worst=worst,
            score=f"{rule} score",
            ax=ax,
        )

    def report(self, path: str | Path = "report.html", **options: Any) -> Path:
        """Write all that is known of this combination into one page of HTML.

        The page needs nothing else: no network, no scripts. It says what was combined, the
        weights and how sure they are, scores and calibration beside those of the models, and
        what to do about each remark.

        Parameters
        ----------
        path
            Where to write it, by default ``report.html`` in the current directory.
        **options
            ``title``, ``methods``, ``obs``, ``thorough`` and others of
            :func:`lockquack.report.write_report`.

        Returns
        -------
        pathlib.Path
            The file.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> models = example_models()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = lq.lock(models).report(Path(folder) / "report.html", thorough=False)
        ...     page.name
        'report.html'
        """
        from lockquack.report import write_report

        own: Any = self
        return write_report(own, path, **options)

    @property
    def _label(self) -> str:
        """What a combination is called in a picture."""
        if self.method:
            return self.method
        if type(self.operator) is Linear and isinstance(self.rule, LogScore):
            return "stacking"
        return self.operator.name

    def _with_others(
        self, others: Mapping[str, Combination] | Iterable[Combination]
    ) -> dict[str, Combination]:
        """Name this combination and others; those called the same, by their rules as well."""
        own: Any = self
        given = others.values() if isinstance(others, Mapping) else others
        fits = [own, *given] if isinstance(given, Iterable) else [own, None]
        if any(not isinstance(fit, Plotting) for fit in fits):
            raise ParameterError(
                "others must be combinations: a list of them, or a dict from names to them."
            )
        if isinstance(others, Mapping):
            return {self._label: own, **others}
        counts = Counter(fit._label for fit in fits)
        names = [
            fit._label if counts[fit._label] == 1 else f"{fit._label} by {fit.rule.label}"
            for fit in fits
        ]
        if len(set(names)) < len(names):
            raise ParameterError(
                "Some combinations have the same operator and rule; give others= as a dict from "
                "names to combinations."
            )
        return dict(zip(names, fits, strict=True))

    def _leaves_out(self, loo: bool | None) -> bool:
        return self.scores == "loo" if loo is None else loo

    def _weight_of(self) -> dict[str, float]:
        return dict(zip(self.names, map(float, self.weights.values), strict=True))

    def _weight_draws(self) -> xr.DataArray:
        return xr.DataArray(self._replicates, dims=["draw", "model"])

    def _phases(self) -> dict[str, str]:
        """Phases in words, by model, where they are not all zero."""
        phases = self.parameters.get("phases")
        if phases is None:
            return {}
        units = np.round(phases.values / np.pi, 2) + 0.0  # without minus zeros
        return {name: f"phase {unit:.2f} π" for name, unit in zip(self.names, units, strict=True)}

    def _typical(self) -> list[int]:
        """Positions of observations whose outcomes are spread over the range."""
        order = np.argsort(self.observations.values[:, 0], kind="stable")
        places = [int(q * (order.size - 1)) for q in _TYPICAL]
        return sorted({int(order[place]) for place in places})

    def _density_panels(
        self,
        obs: Sequence[Any],
        others: Mapping[str, Combination] | Iterable[Combination],
        models: bool,
        loo: bool | None,
    ) -> list[DensityPanel]:
        from lockquack.checks.models import require_same_observations
        from lockquack.prediction.panels import density_panel, locate

        shown = self._with_others(others)
        members: dict[str, Source] = {}
        for fit in shown.values():
            for name, model in fit._require_models().items():
                source = model.source
                if not _same_draws(members.setdefault(name, source), source):
                    raise ParameterError(
                        f"The combinations have different models called {name!r}; a picture of "
                        "both needs another name for one of them."
                    )
        require_same_observations(members)
        places = {name: k for k, name in enumerate(members)}
        pools = {
            name: PoolOfSome(fit.pool, tuple(places[m] for m in fit.names))
            for name, fit in shown.items()
        }
        leaves_out = self._leaves_out(loo)
        positions = [locate(self.observations, each) for each in obs]
        return [
            density_panel(
                members, pools, position, self.observations, loo=leaves_out, models=models
            )
            for position in positions
        ]

    def _pit_beside(
        self, loo: bool, random_seed: int, progressbar: bool | None
    ) -> tuple[Array, dict[str, Array]]:
        """PIT values of the combination, and of the models, with one pass over the draws."""
        beside = self._side_by_side(loo, progressbar)
        if loo:
            self._warn_of_pareto("calibration")
        pit = {name: each.pit(random_seed) for name, each in beside.items()}
        return next(iter(pit.values())), {name: pit[name] for name in self.names}

    def _beside_model(self, name: str) -> tuple[Array, Array, str]:
        """Scores of the combination and of a model, and by which rule."""
        if name not in self.names:
            raise unknown_name("model", name, self.names)
        scored = self.pointwise.values.reshape(1 + len(self.names), -1)
        return scored[0], scored[1 + self.names.index(name)], self.rule.label

    def _beside_combination(self, other: Combination) -> tuple[Array, Array, str]:
        """Scores of this combination and of another, and by which rule."""
        if not np.array_equal(self.observations.values, other.observations.values):
            raise ParameterError("The two combinations are not of the same observations.")
        if self.rule == other.rule:
            own, theirs = self.pointwise.values[0], other.pointwise.values[0]
            return own.ravel(), theirs.ravel(), self.rule.label
        own, theirs = (fit.logpdf(loo=fit.scores == "loo").values for fit in (self, other))
        return own.ravel(), theirs.ravel(), LogScore.label


def _same_draws(one: Source, other: Source) -> bool:
    """Whether two models are the same, as far as a few of their log densities tell."""
    some = 0, slice(0, 8), slice(0, 8)
    sizes = [(model.n_chains, model.n_draws, model.n_obs) for model in (one, other)]
    return one is other or (
        sizes[0] == sizes[1] and np.array_equal(one.logp(*some), other.logp(*some))
    )
