"""The combination as an ordinary predictive distribution, with labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from lockquack.arithmetic import methods_in_own_arithmetic
from lockquack.errors import ParameterError
from lockquack.jets import Array
from lockquack.models.model import Model
from lockquack.models.observations import Observations
from lockquack.numeric import as_count, as_generator, as_numeric
from lockquack.operators.pool import Pool
from lockquack.prediction import pictures, scoring
from lockquack.prediction.calibration import (
    Calibrated,
    coverage_table,
    intervals_and_cdf,
    read_probabilities,
)
from lockquack.prediction.evaluation import Evaluation
from lockquack.prediction.outcomes import label_points, posterior_predictive, read_points
from lockquack.prediction.vectors import NormalisedBySampling, log_densities, modes
from lockquack.quadrature.intervals import IntervalKind
from lockquack.registry import require_known
from lockquack.sampling.samplers import SAMPLERS, Drawn

_BOUNDS = ["lower", "upper"]


@methods_in_own_arithmetic
@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """A combination's prediction of some observations: a distribution for each.

    Made by :meth:`Combination.predict`; results are cached. Scalar outcomes are handled by
    quadrature, to about eight digits. Vector outcomes are handled by Monte Carlo: errors of
    densities are reported; distribution functions, quantiles, intervals and moments are those of
    each component, from 4000 draws. A mixture of models whose densities are not known everywhere
    uses the predictive draws stored with the models, or one outcome drawn for each of their
    draws.

    Attributes
    ----------
    models
        The models of these observations.
    label
        What the combination is called in tables and pictures.
    loo
        Whether each observation is left out of the models that predict it.
    observed
        Whether the outcomes are known.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> new = fit.predict(x={"first": [[0.0], [1.0]], "second": [[1.0], [-1.0]]})
    >>> new.mean().round(1).values
    array([ 0.9, -0.5])
    """

    models: Mapping[str, Model]
    pool: Pool
    observations: Observations
    label: str
    loo: bool = False
    observed: bool = True
    random_seed: int = 0
    progressbar: bool | None = None
    #: Other pools of these models that are calibrated beside it, by label.
    rivals: Callable[[], Mapping[str, Pool]] | None = None

    def __repr__(self) -> str:
        kind = "leave-one-out" if self.loo else "predictive"
        sizes = ", ".join(f"{dim}: {size}" for dim, size in self.observations.sizes.items())
        return f"<Prediction {self.pool.operator!r} of {', '.join(self.models)}; {kind}; {sizes}>"

    def logpdf(self, y: Any = None) -> xr.DataArray:
        r"""Log density, :math:`\log \tilde q(y) - \log \int \tilde q`, at each observation.

        The integral is one-dimensional quadrature for each observation; for vector outcomes it is
        found by importance sampling, with an error that :meth:`log_norm` reports. A warning tells
        where leave-one-out densities are unreliable.

        Parameters
        ----------
        y
            Outcomes, by default the observed ones: one number, one outcome per observation, or
            points × observations.

        Returns
        -------
        xarray.DataArray
            Log densities, with a dimension ``point`` for several outcomes of each observation. At
            the observed outcomes, their sum is the total log score.

        Examples
        --------
        >>> import lockquack as lq
        >>> fit = lq.lock(lq.example_models())
        >>> float(fit.logpdf(loo=True).sum().round(1))
        -57.5
        >>> fit.predict().logpdf([[0.0], [1.0]]).sizes  # two outcomes at each observation
        Frozen({'point': 2, 'obs_id': 40})
        """
        if y is None:
            self._require_observed("logpdf")
            return self.observations.label(self._evaluation.normalised.logp.copy(), name="logpdf")
        points, leading = read_points(y, self.observations)
        log_norm = self._evaluation.normalised.log_norm
        if self._evaluation.is_scalar:
            return self._label(self._evaluation.pooled.logpdf(points), leading, "logpdf")
        outcomes = points.reshape(len(points), *self.observations.values.shape)
        values = log_densities(*self._evaluation.used, outcomes, loo=self.loo) - log_norm
        return self.observations.label(values[0] if leading is None else values, leading, "logpdf")

    def log_norm(self) -> xr.DataArray:
        """Log of the normaliser of the pool at each observation.

        The coordinate ``error`` is the relative error of each: an estimate from quadrature, or a
        Monte Carlo standard error for vector outcomes, whose Pareto k̂ is the coordinate
        ``pareto_k``. The attribute ``max_error`` is the largest.

        Returns
        -------
        xarray.DataArray
            One number per observation.

        Examples
        --------
        >>> import lockquack as lq
        >>> log_norm = lq.lock(lq.example_models()).predict().log_norm()
        >>> bool((log_norm <= 0).all()), bool((log_norm["error"] < 1e-6).all())
        (True, True)
        """
        normalised = self._evaluation.normalised
        known = {"error": normalised.relative_error}
        if isinstance(normalised, NormalisedBySampling):
            known["pareto_k"] = normalised.importance_k
        result = self.observations.label(normalised.log_norm.copy(), name="log_norm")
        for name, each in known.items():
            result = result.assign_coords({name: self.observations.label(each.copy())})
        result.attrs["max_error"] = float(normalised.relative_error.max())
        return result

    def cdf(self, y: Any = None) -> xr.DataArray:
        """Probability of at most y, by default at the observed outcomes.

        Parameters
        ----------
        y
            Outcomes, as for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            Probabilities, as :meth:`logpdf` returns densities.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.lock(lq.example_models()).predict().cdf(0.0).round(2).values[:3]
        array([0.18, 0.86, 0.21])
        """
        if y is None:
            self._require_observed("cdf")
        points, leading = read_points(y, self.observations)
        return self._label(self._evaluation.marginals.cdf(points), leading, "cdf")

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
        >>> lq.lock(lq.example_models()).predict().quantile([0.1, 0.5]).round(1).values[:, :3]
        array([[-0.4, -2.4, -0.5],
               [ 0.9, -1.1,  0.8]])
        """
        wanted = np.asarray(as_numeric("p", p, ParameterError), dtype=np.float64)
        if wanted.ndim > 1 or not ((wanted >= 0) & (wanted <= 1)).all():
            raise ParameterError(f"p must be one or more probabilities between 0 and 1; got {p!r}.")
        values = self._evaluation.marginals.quantile(np.atleast_1d(wanted))
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
        >>> lq.lock(lq.example_models()).interval(0.9).round(1).values[:, :3]
        array([[-0.7, -2.8, -0.9],
               [ 2.6,  0.6,  2.5]])
        """
        ends = self._evaluation.marginals.interval(prob, kind)
        return self._label(ends, {"ci_bound": _BOUNDS}, "interval")

    def mean(self) -> xr.DataArray:
        """Mean at each observation; NaN or infinite where tails are too heavy, with a warning.

        Returns
        -------
        xarray.DataArray
            One number per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.lock(lq.example_models()).predict(loo=True).mean().round(1).values[:3]
        array([ 0.9, -1.1,  0.8])
        """
        return self._label(self._evaluation.mean[None], None, "mean")

    def var(self) -> xr.DataArray:
        """Variance at each observation; infinite where tails are too heavy, with a warning.

        Returns
        -------
        xarray.DataArray
            One number per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.lock(lq.example_models()).predict().var().round(2).values[:3]
        array([1.02, 1.04, 1.01])
        """
        return self._label(self._evaluation.var[None], None, "var")

    def mode(self) -> xr.DataArray:
        """Outcome of the highest density at each observation.

        A log-linear pool of log-concave densities has one mode, between the outermost modes of
        the models. Heavy tails can have several: the equal pool of Cauchy densities at ±5 has
        modes at ±4.9.

        Returns
        -------
        xarray.DataArray
            One outcome per observation.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.lock(lq.example_models()).predict().mode().round(1).values[:3]
        array([ 0.9, -1.1,  0.8])
        """
        if self._evaluation.is_scalar:
            return self._label(self._evaluation.pooled.mode()[None], None, "mode")
        highest = modes(*self._evaluation.used, self._evaluation.draws, loo=self.loo)
        return self._label(highest.reshape(1, -1), None, "mode")

    def sample(
        self,
        n: int = 1000,
        *,
        method: str = "auto",
        random_seed: int | np.random.Generator | None = None,
    ) -> xr.DataTree:
        r"""Draw outcomes from the combination at each observation.

        Parameters
        ----------
        n
            Draws for each observation.
        method
            ``"auto"`` inverts the distribution function of scalar outcomes; for vectors it takes
            the first of the following that does well. Mixtures of models whose densities
            are not known everywhere are drawn from the predictive draws that these came with, in
            ArviZ's ``posterior_predictive``, or by their own generators, each observation by
            itself.

            - ``"inverse-cdf"``, scalar outcomes only: exact to the error of the quadrature.
            - ``"rejection"``: exact. Draws from a mixture :math:`\sum_k c_k \pi_k` above the pool
              are accepted with probability :math:`q / \sum_k c_k \pi_k`; on the simplex the
              geometric mean is below the arithmetic one. Slow where the models disagree.
            - ``"importance"``: resampled by Pareto-smoothed weights from a Student t distribution
              around the moments of the pool, with a fifth of the models' mixture.
            - ``"smc"``: tempered sequential Monte Carlo with moves along the gradient of the pool.
            - ``"mixture-is"``: the paper's proposal, the equal mixture of the models, resampled.
        random_seed
            Seed or generator.

        Returns
        -------
        xarray.DataTree
            ArviZ's groups ``posterior_predictive`` (one chain, draws, observations) and
            ``observed_data``; ``sampling_stats`` where there are diagnostics for each observation:
            ``acceptance``, ``ess``, ``pareto_k``, ``log_norm`` and its error. A warning tells
            where they are bad. ``az.summary`` of every ArviZ takes
            ``draws["posterior_predictive"].to_dataset()``; the tree itself is for ArviZ 1.0 and
            later.

        Examples
        --------
        >>> import lockquack as lq
        >>> draws = lq.lock(lq.example_models()).sample(500, random_seed=1)
        >>> dict(draws["posterior_predictive"]["y"].sizes)
        {'chain': 1, 'draw': 500, 'obs_id': 40}
        """
        n, rng = as_count("n", n), as_generator(random_seed)
        require_known("sampling method", method, ("auto", "inverse-cdf", *SAMPLERS))
        drawn: Sequence[Drawn] = ()
        if method == "auto" and not self._evaluation.is_evaluable:
            draws, method = self._evaluation.mixed(n, rng), "draws of the models"
        elif method == "inverse-cdf" or (method == "auto" and self._evaluation.is_scalar):
            _ = self._evaluation.normalised  # warns of what is wrong with it
            draws, method = self._evaluation.pooled.sample(n, rng)[..., None], "inverse-cdf"
        else:
            drawn = self._evaluation.drawn(n, method, rng)
            draws = np.stack([each.y for each in drawn], axis=1)
        about = {
            "combination": repr(self.pool.operator),
            "models": ", ".join(self.models),
            "sampling_method": method,
            "leave_one_out": int(self.loo),
        }
        sources, _ = self._evaluation.used
        return posterior_predictive(
            draws, drawn, sources, self.observations, observed=self.observed, attrs=about
        )

    def pit(self, *, random_seed: int | np.random.Generator | None = 0) -> xr.DataArray:
        """Probability integral transform: how much of each prediction lies below its outcome.

        If the predictions are right, it is uniform; :meth:`coverage` tests that. Do not use it
        in-sample, ``loo=False``: each outcome is then part of its own prediction, and the values
        crowd in the middle.

        Parameters
        ----------
        random_seed
            For whole numbers, whose value is drawn between F(y − 1) and F(y), which makes it
            uniform; None takes the middle, which is not.

        Returns
        -------
        xarray.DataArray
            One number between 0 and 1 per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> pit = lq.lock(lq.example_models()).pit()
        >>> bool(((pit > 0) & (pit < 1)).all())
        True
        """
        self._require_observed("pit")
        marginals = self._evaluation.marginals
        if self._evaluation.is_scalar and self._evaluation.knows_density:
            _ = self._evaluation.normalised  # warns of what is wrong with it
        found = intervals_and_cdf(marginals, self.observations.values.reshape(1, -1))
        return self._label(Calibrated(found).pit(random_seed)[None], None, "pit")

    def coverage(
        self,
        probs: ArrayLike = (0.5, 0.8, 0.9, 0.95),
        *,
        kind: IntervalKind = "central",
        random_seed: int = 0,
    ) -> pd.DataFrame:
        """Compare coverage of intervals of the combination, of stacking, and of each model.

        Parameters
        ----------
        probs
            Probabilities of the intervals.
        kind
            ``"central"`` or ``"hdi"``.
        random_seed
            For the probabilities of whole numbers; see :meth:`pit`.

        Returns
        -------
        pandas.DataFrame
            A row for the combination, the linear pool with weights by stacking, and each model.
            Columns: the share of outcomes inside the intervals of each probability, the mean
            width of the last, and ``uniformity_p``, the p-value of the hypothesis that the
            probability integral transform is uniform [1]_. Shares have a standard error of
            √(p (1 − p) / n). Of whole numbers intervals contain more than they promise even if
            predictions are right, as both ends belong to them; ``uniformity_p``, of randomised
            transforms, has no such excess. Vector outcomes are compared component by component.
            With case weights, shares and means are weighted, and the test and this standard error
            are those of n = (Σ w)² / Σ w² observations.

        Examples
        --------
        >>> import lockquack as lq
        >>> lq.lock(lq.example_models()).coverage([0.9])[["0.9"]].round(2)
                  0.9
        model
        [lock]   0.92
        [stack]  0.95
        first    0.82
        second   0.85

        References
        ----------
        .. [1] Säilynoja, Bürkner and Vehtari (2022). Graphical test for discrete uniformity and
           its applications in goodness-of-fit evaluation and multiple sample comparison.
           Statistics and Computing 32(32). arXiv:2103.10522.
        """
        self._require_observed("coverage")
        wanted = read_probabilities(probs)
        found = self._calibrated(wanted, kind)
        self._evaluation.warn_of_pareto("intervals")
        return coverage_table(found, self.observations, wanted, random_seed)

    crps = scoring.crps
    plot_density = pictures.plot_density
    plot_densities = pictures.plot_densities
    plot_pit = pictures.plot_pit

    @cached_property
    def _evaluation(self) -> Evaluation:
        return Evaluation(
            self.models,
            self.pool,
            self.observations,
            self.loo,
            self.random_seed,
            self.progressbar,
        )

    def _calibrated(
        self, probs: Sequence[float] = (), kind: IntervalKind = "central"
    ) -> dict[str, Calibrated]:
        """Calibrate the combination, its rivals and the models by the outcomes."""
        pools = {self.label: self.pool}
        rivals = self.rivals() if self.rivals is not None else {}
        pools |= {label: pool for label, pool in rivals.items() if label not in pools}
        bracketed = {f"[{label}]": pool for label, pool in pools.items()}
        return self._evaluation.calibrated(bracketed, probs, kind)

    def _require_observed(self, what: str) -> None:
        if not self.observed:
            raise ParameterError(
                f"The outcomes of these observations are not known; give them: {what}(y)."
                if what in ("logpdf", "cdf")
                else f"The outcomes of these observations are not known, which {what} needs; give "
                "them: fit.predict(y, ...)."
            )

    def _label(self, values: Array, leading: dict[str, Any] | None, name: str) -> xr.DataArray:
        return label_points(values, leading, name, self.observations)
