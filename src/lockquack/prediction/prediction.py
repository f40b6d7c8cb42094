"""The combination as an ordinary predictive distribution, with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from lockquack.errors import (
    ParameterError,
    ShapeError,
    unknown_name,
)
from lockquack.jets import Array
from lockquack.models.labels import from_pandas, labels_of, require_same_labels
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations
from lockquack.models.source import Source
from lockquack.numeric import as_count, as_generator, as_numeric
from lockquack.operators import Operator
from lockquack.operators.pool import Pool
from lockquack.prediction.calibration import Calibrated, look_at, uniformity
from lockquack.prediction.drawn import DrawnDistribution
from lockquack.prediction.examine import examine_density, examine_draws
from lockquack.prediction.members import are_discrete, require_evaluable
from lockquack.prediction.pooled import (
    Normalised,
    PooledDistribution,
    at_observed,
    mix,
    observed_densities,
)
from lockquack.prediction.stored import WeightedDraws, stored_mixture
from lockquack.prediction.streamed import distribution_of
from lockquack.prediction.vectors import (
    NormalisedBySampling,
    log_densities,
    modes,
    normalise_by_draws,
    sample_each,
)
from lockquack.quadrature.intervals import IntervalKind
from lockquack.remarks import warn
from lockquack.sampling.samplers import SAMPLERS, Drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Draws from which the components of vector outcomes are known.
_DRAWS = 4000
_BOUNDS = ["lower", "upper"]


@dataclass(frozen=True, eq=False, repr=False)
class Distribution:
    """A combination's prediction of some observations: a distribution for each.

    Made by :meth:`Combination.distribution` and :meth:`Combination.at`. Scalar outcomes are
    handled by quadrature, to about eight digits; vector outcomes by Monte Carlo. Densities of
    these have errors that are reported; distribution functions, quantiles, intervals and moments
    are those of their components, each by itself, in 4000 draws. Of models that are known at the
    observed outcomes only, mixtures have these by the predictive draws that the models came with.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> fit = lq.lock(example_models())
    >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
    >>> new.mean().round(1).values
    array([ 0.9, -0.5])
    """

    models: Mapping[str, Model]
    pool: Pool
    observations: Observations
    loo: bool = False
    #: Whether the outcomes are known; otherwise they stand in for what is predicted.
    observed: bool = True
    random_seed: int = 0
    progressbar: bool | None = None
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        kind = "leave-one-out" if self.loo else "predictive"
        sizes = ", ".join(f"{dim}: {size}" for dim, size in self.observations.sizes.items())
        return f"<Distribution {self.operator!r} of {', '.join(self.models)}; {kind}; {sizes}>"

    @property
    def operator(self) -> Operator:
        """How the densities are pooled."""
        return self.pool.operator

    @property
    def _sources(self) -> dict[str, Source]:
        return sources_of(self.models)

    @property
    def scalar(self) -> bool:
        """Whether outcomes are single numbers."""
        return self.observations.d == 1

    def logpdf(self, y: Any = None) -> xr.DataArray:
        r"""Log density, :math:`\log \tilde q(y) - \log \int \tilde q`.

        Parameters
        ----------
        y
            Outcomes, by default the observed ones: one number, one outcome per observation, or
            points × observations.

        Returns
        -------
        xarray.DataArray
            Log densities, with a dimension ``point`` for several outcomes of each observation.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> new.logpdf(0.0).round(2).values
        array([-1.37, -1.08])
        """
        if y is None:
            self._require_observed("logpdf")
            normalised = self.normalised()
            return self.observations.label(normalised.logp.copy(), name="logpdf")
        points, leading = self._points(y)
        normalised = self.normalised()
        if self.scalar:
            return self._label(self.pooled.logpdf(points), leading, "logpdf")
        outcomes = points.reshape(len(points), *self.observations.values.shape)
        pooled = log_densities(self._sources, self.pool, outcomes, loo=self.loo)
        values = pooled - normalised.log_norm
        return self.observations.label(values[0] if leading is None else values, leading, "logpdf")

    def log_norm(self) -> xr.DataArray:
        """Log of the normaliser of the pool at each observation.

        Its attribute ``max_error`` is the largest relative error of a normaliser; all of them are
        the coordinate ``error``.

        Returns
        -------
        xarray.DataArray
            One number per observation.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> bool((new.log_norm() <= 0).all())
        True
        """
        normalised = self.normalised()
        result = self.observations.label(normalised.log_norm.copy(), name="log_norm")
        error = self.observations.label(normalised.relative_error.copy())
        result = result.assign_coords(error=(error.dims, error.values))
        if isinstance(normalised, NormalisedBySampling):
            k_hat = self.observations.label(normalised.importance_k)
            result = result.assign_coords(pareto_k=(k_hat.dims, k_hat.values))
        result.attrs["max_error"] = float(normalised.relative_error.max())
        return result

    def cdf(self, y: Any = None) -> xr.DataArray:
        """Probability of at most y, by default at the observed outcomes; see :meth:`logpdf`.

        Parameters
        ----------
        y
            Outcomes, as for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            Probabilities.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> new.cdf(0.0).round(2).values
        array([0.17, 0.7 ])
        """
        if y is None:
            self._require_observed("cdf")
        points, leading = self._points(y)
        return self._label(self.marginals.cdf(points), leading, "cdf")

    def quantile(self, p: ArrayLike) -> xr.DataArray:
        """Outcomes below which there is probability p, along a dimension ``quantile``.

        Parameters
        ----------
        p
            Probabilities, one or several.

        Returns
        -------
        xarray.DataArray
            Outcomes with dimensions ``quantile`` and those of the observations.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> new.quantile(0.5).round(1).values
        array([ 0.9, -0.5])
        """
        wanted = np.asarray(as_numeric("p", p, ParameterError), dtype=np.float64)
        if wanted.ndim > 1 or not ((wanted >= 0) & (wanted <= 1)).all():
            raise ParameterError(f"p must be one or more probabilities between 0 and 1; got {p!r}.")
        values = self.marginals.quantile(np.atleast_1d(wanted))
        return self._label(values, {"quantile": wanted} if wanted.ndim else None, "quantile")

    def interval(self, prob: float = 0.9, *, kind: IntervalKind = "central") -> xr.DataArray:
        """Return the ends of an interval of that probability, along a dimension ``ci_bound``.

        ``kind="central"`` leaves the same probability on both sides; ``"hdi"`` is the shortest
        interval. Where the density has several modes, a set of several intervals would be
        shorter still. Of whole numbers, an interval has at least that probability.

        Parameters
        ----------
        prob
            Probability of the interval.
        kind
            ``"central"`` or ``"hdi"``, the shortest.

        Returns
        -------
        xarray.DataArray
            ``ci_bound`` is ``lower`` and ``upper``.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> new.interval(0.9, kind="hdi").sizes["ci_bound"]
        2
        """
        return self._label(self.marginals.interval(prob, kind), {"ci_bound": _BOUNDS}, "interval")

    def mean(self) -> xr.DataArray:
        """Mean at each observation; NaN or infinite where tails are too heavy to have one.

        Returns
        -------
        xarray.DataArray
            One number per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> new.mean().round(1).values
        array([ 0.9, -0.5])
        """
        return self._label(self.marginals.mean()[None], None, "mean")

    def var(self) -> xr.DataArray:
        """Variance at each observation; infinite where tails are too heavy to have one.

        Returns
        -------
        xarray.DataArray
            One number per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> bool((new.var() > 1).all())
        True
        """
        return self._label(self.marginals.var()[None], None, "var")

    def plot_density(
        self, obs: Any = 0, *, models: bool = True, xlabel: str = "y", ax: Axes | None = None
    ) -> Axes:
        """Draw the density at an observation, with those of the models, and what came, if known.

        For scalar outcomes; see :meth:`Combination.plot_density`.

        Parameters
        ----------
        obs
            The observation: its position, its label (a string), or labels by dimension.
        models
            Whether to draw the models.
        xlabel
            What the outcome is called.
        ax
            Axes to draw on, by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            With one line per model and one for the combination.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> ax = fit.distribution().plot_density(obs=3, xlabel="height")
        >>> ax.get_xlabel()
        'height'
        """
        from lockquack.plots import plot_density
        from lockquack.prediction.panels import density_panel, locate

        panel = density_panel(
            self._sources,
            {self.operator.name: self.pool},
            locate(self.observations, obs),
            self.observations,
            loo=self.loo,
            models=models,
            known=self.observed,
        )
        return plot_density(panel, xlabel=xlabel, ax=ax)

    def mode(self) -> xr.DataArray:
        """Outcome of the highest density at each observation.

        Returns
        -------
        xarray.DataArray
            One outcome per observation.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> new.mode().round(1).values
        array([ 0.9, -0.5])
        """
        if self.scalar:
            return self._label(self.pooled.mode()[None], None, "mode")
        highest = modes(self._sources, self.pool, self._draws(), loo=self.loo)
        return self._label(highest.reshape(1, -1), None, "mode")

    def sample(
        self,
        n: int = 1000,
        *,
        method: str = "auto",
        random_seed: int | np.random.Generator | None = None,
    ) -> xr.DataTree:
        """Draw outcomes at each observation; see :meth:`Combination.sample`.

        Parameters
        ----------
        n
            Draws for each observation.
        method, random_seed
            As for :meth:`Combination.sample`.

        Returns
        -------
        xarray.DataTree
            As :meth:`Combination.sample` returns it.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> draws = new.sample(100, random_seed=1)
        >>> dict(draws["posterior_predictive"]["y"].sizes)
        {'chain': 1, 'draw': 100, 'obs_id': 2}
        """
        n, rng = as_count("n", n), as_generator(random_seed)
        if method not in ("auto", "inverse-cdf", *SAMPLERS):
            raise unknown_name("sampling method", method, ("auto", "inverse-cdf", *SAMPLERS))
        if method == "inverse-cdf" or (method == "auto" and self.scalar):
            self.normalised()
            draws = self.pooled.sample(n, rng)[..., None]
            return self._tree(draws, "inverse-cdf", {})
        require_evaluable(self._sources, "the combination cannot be sampled", vectors=True)
        drawn = sample_each(
            self._sources,
            self.pool,
            n,
            method,
            loo=self.loo,
            rng=rng,
            progressbar=self.progressbar,
        )
        warn(*examine_draws(drawn, self.observations))
        return self._tree(np.stack([each.y for each in drawn], axis=1), method, _statistics(drawn))

    def pit(self, *, random_seed: int | np.random.Generator | None = 0) -> xr.DataArray:
        """Probability integral transform of the observed outcomes; see :meth:`Combination.pit`.

        Parameters
        ----------
        random_seed
            As for :meth:`Combination.pit`.

        Returns
        -------
        xarray.DataArray
            One number between 0 and 1 per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at([0.0, 0.0], x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> bool((new.pit() == new.cdf(0.0)).all())
        True
        """
        self._require_observed("pit")
        marginals = self.marginals
        if self.scalar:
            self.normalised()
        found = look_at(marginals, self.observations.values.reshape(1, -1))
        values = Calibrated(found).pit(random_seed)
        return self._label(values[None], None, "pit")

    @property
    def pooled(self) -> PooledDistribution:
        """The numbers behind it, without labels; for scalar outcomes."""
        if "pooled" not in self._known:
            self._known["pooled"] = distribution_of(
                self._sources,
                self.pool,
                loo=self.loo,
                progressbar=self.progressbar,
            )
        return self._known["pooled"]

    @property
    def marginals(self) -> PooledDistribution | DrawnDistribution | WeightedDraws:
        """The distributions of outcomes, or of their components, without labels."""
        if not all(source.can.evaluate for source in self._sources.values()):
            if "stored" not in self._known:
                mixture = stored_mixture(self._sources, self.pool, loo=self.loo)
                self._known["stored"] = mixture
            return self._known["stored"]
        if self.scalar:
            return self.pooled
        if "drawn" not in self._known:
            flat = self._draws().reshape(_DRAWS, -1)
            self._known["drawn"] = DrawnDistribution.of(flat)
        return self._known["drawn"]

    def _draws(self) -> Array:
        """Draws of vector outcomes, (draw, n, d)."""
        if "draws" not in self._known:
            tree = self.sample(_DRAWS, random_seed=self.random_seed)
            (predicted,) = tree["posterior_predictive"].to_dataset().data_vars.values()
            shape = _DRAWS, *self.observations.values.shape
            self._known["draws"] = predicted.values.reshape(shape)
        return self._known["draws"]

    def normalised(self) -> Normalised:
        """Log densities at the outcomes and normalisers; warns of what is wrong, once.

        Returns
        -------
        Normalised or NormalisedBySampling
            Arrays over observations: ``logp``, ``log_norm`` and its ``relative_error``.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> new = fit.at(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
        >>> new.normalised().log_norm.shape
        (2,)
        """
        if "normalised" not in self._known:
            result = self._normalise()
            self._known["normalised"] = result
            warn(*examine_density(self._sources, result, self.observations))
        return self._known["normalised"]

    def _normalise(self) -> Normalised:
        if self.operator.normalised:
            return mix(self.models, self.pool, loo=self.loo, progressbar=self.progressbar)
        if self.scalar:
            pooled = self.pooled
            logp = observed_densities(self.models, loo=self.loo, progressbar=self.progressbar)
            return at_observed(pooled, logp)
        require_evaluable(self._sources, "the combination cannot be normalised", vectors=True)
        return normalise_by_draws(
            self.models,
            self.pool,
            loo=self.loo,
            rng=np.random.default_rng(self.random_seed),
            progressbar=self.progressbar,
        )

    def _require_observed(self, what: str) -> None:
        if not self.observed:
            raise ParameterError(
                f"The outcomes of these observations are not known; give them: {what}(y)."
            )

    def _points(self, y: Any) -> tuple[Array, dict[str, Any] | None]:
        """Read outcomes as (point, n × d); None for the leading dimension where there is none."""
        if y is None:
            return self.observations.values.reshape(1, -1), None
        if isinstance(y, xr.DataArray):
            return self._labelled_points(y)
        if isinstance(y, pd.Series) and len(self.observations.dims) == 1:
            (own_dim,) = self.observations.dims
            self._require_own(from_pandas(y.rename_axis(None), own_dim, ""))
        values = as_numeric("y", y).astype(np.float64)
        n, size = self.observations.n, self.observations.values.size
        own = () if self.scalar else (self.observations.d,)
        shapes = (n, *own), (*self.observations.shape, *own)
        if values.ndim == 0 or values.shape in shapes:
            return np.broadcast_to(values.reshape(1, -1), (1, size)), None
        if values.shape[1:] in shapes:
            return values.reshape(-1, size), {"point": None}
        if values.shape[1:] == (1, *own):
            several = np.broadcast_to(values, (len(values), n, *own))
            return several.reshape(-1, size), {"point": None}
        raise ShapeError(
            f"y has the shape {values.shape}; there are {n} observations of "
            f"{self.observations.d} component(s). Give one number, one outcome per observation, "
            "or points × observations; the same points for all: y[:, None]."
        )

    def _labelled_points(self, y: xr.DataArray) -> tuple[Array, dict[str, Any] | None]:
        grid = self._label(np.zeros((1, self.observations.values.size)), None, "")
        dims = grid.dims
        extra = [str(dim) for dim in y.dims if dim not in dims]
        if len(extra) > 1:
            raise ShapeError(f"y has more than one dimension besides {dims}: {extra}.")
        self._require_own(y)
        as_numeric("y", y.values)
        grid, y = xr.broadcast(*xr.align(grid, y, join="override", exclude=extra))
        values = y.transpose(*extra, *dims).values.astype(np.float64)
        if not extra:
            return values.reshape(1, -1), None
        labels = y.coords[extra[0]].values if extra[0] in y.coords else None
        return values.reshape(len(values), -1), {extra[0]: labels}

    def _require_own(self, y: xr.DataArray) -> None:
        """Refuse outcomes that are, by their labels, those of others or in another order."""
        sizes = self.observations.sizes
        wrong = [dim for dim in sizes if y.sizes.get(dim, sizes[dim]) != sizes[dim]]
        if wrong:
            raise ShapeError(
                f"y has {y.sizes[wrong[0]]} values along {wrong[0]!r}; the combination has "
                f"{sizes[wrong[0]]} observations there."
            )
        require_same_labels("y", labels_of(y), self.observations.labels, of="the combination")

    def _label(self, values: Array, leading: dict[str, Any] | None, name: str) -> xr.DataArray:
        """Label (point, n × d); without a leading dimension there is one point."""
        if leading is None:
            values = values[0]
        if self.scalar:
            return self.observations.label(values, leading, name)
        shape = *values.shape[:-1], *self.observations.values.shape
        return self.observations.label_components(values.reshape(shape), leading, name)

    def _tree(self, draws: Array, method: str, statistics: Mapping[str, Array]) -> xr.DataTree:
        """Hold draws (draw, obs, component) as ArviZ does."""
        from lockquack import __version__

        name = "y" if "y" not in self.observations.dims else "outcome"
        leading = {"chain": np.arange(1), "draw": np.arange(len(draws))}
        attrs = {
            "inference_library": "lockquack",
            "inference_library_version": __version__,
            "combination": repr(self.operator),
            "models": ", ".join(self.models),
            "sampling_method": method,
            "leave_one_out": int(self.loo),
        }
        for statistic, values in statistics.items():
            if values.dtype.kind == "f" and not np.isnan(values).all():
                worst = np.nanmax if statistic in ("pareto_k", "log_norm_error") else np.nanmin
                attrs[f"worst_{statistic}"] = float(worst(values))
        # ArviZ takes whole numbers for continuous unless their type says what they are.
        whole = are_discrete(self._sources)
        kind = np.int64 if whole and np.isfinite(draws).all() else np.float64
        predicted = self.observations.label_components(draws[None].astype(kind), leading, name)
        groups = {"posterior_predictive": xr.Dataset({name: predicted}, attrs=attrs)}
        if self.observed:
            observed = self.observations.to_dataarray(name).astype(kind)
            groups["observed_data"] = xr.Dataset({name: observed})
        if statistics:
            each = {key: self.observations.label(value) for key, value in statistics.items()}
            groups["sampling_stats"] = xr.Dataset(each)
        return xr.DataTree.from_dict(groups)


def read_probabilities(probs: ArrayLike) -> tuple[float, ...]:
    """Read one or more probabilities; whether they are some is seen where they are used."""
    wanted = np.atleast_1d(np.asarray(as_numeric("probs", probs, ParameterError), np.float64))
    if wanted.ndim > 1 or wanted.size == 0:
        raise ParameterError(f"probs must be one or more probabilities; got {probs!r}.")
    return tuple(wanted.tolist())


def coverage_table(
    calibrated: Mapping[str, Calibrated],
    outcomes: Array,
    probs: Sequence[float],
    random_seed: int,
) -> pd.DataFrame:
    """Share of outcomes (n, d) within intervals, and uniformity, by prediction.

    The components of an outcome depend on each other: each has a test of its own, and the
    smallest p-value counts, times their number.
    """
    y, d = outcomes.reshape(-1), outcomes.shape[1]
    table = {}
    for name, each in calibrated.items():
        shares = zip(probs, each.coverage(y).tolist(), strict=True)
        pit = each.pit(random_seed).reshape(outcomes.shape)
        smallest = min(uniformity(component) for component in pit.T)
        table[name] = {
            **{f"{prob:g}": share for prob, share in shares},
            f"width_{probs[-1]:g}": float(each.widths()[-1]),
            "uniformity_p": min(1.0, d * smallest),
        }
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("model")


def _statistics(drawn: list[Drawn] | Any) -> dict[str, Array]:
    names = ("acceptance", "ess", "pareto_k", "log_norm", "log_norm_error")
    numbers = {name: np.array([getattr(each, name) for each in drawn]) for name in names}
    return {**numbers, "method": np.array([each.method for each in drawn])}
