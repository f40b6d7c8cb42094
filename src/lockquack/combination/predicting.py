"""What a combination does as a predictive distribution."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from lockquack.draws.blocks import Kind
from lockquack.errors import LockquackWarning, ParameterError, UnsupportedError, unknown_name
from lockquack.jets import Array
from lockquack.models.model import Model, sources_of
from lockquack.models.observations import Observations
from lockquack.operators import Operator
from lockquack.operators.pool import OneModel, Pool
from lockquack.remarks import warn
from lockquack.remarks.densities import Affected

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination
    from lockquack.prediction.calibration import Calibrated
    from lockquack.prediction.prediction import Distribution
    from lockquack.quadrature.intervals import HasIntervals, IntervalKind

#: The linear pool of all models with weights by stacking, in a table of several predictions.
_STACK = "[stacking]"


class Predicting(ABC):
    """The methods of a combination that evaluate, sample and check its predictions."""

    observations: Observations
    names: tuple[str, ...]
    scores: Kind
    random_seed: int

    @property
    @abstractmethod
    def operator(self) -> Operator:
        """How the densities are pooled."""

    @abstractmethod
    def _require_models(self) -> Mapping[str, Model]: ...

    @abstractmethod
    def _used(self) -> tuple[Mapping[str, Model], Pool]: ...

    def distribution(self, *, loo: bool = False, progressbar: bool | None = None) -> Distribution:
        """Return the prediction of the observations themselves, as a :class:`Distribution`.

        What it computes it remembers; the methods of the combination use it.

        Parameters
        ----------
        loo
            Leave each observation out of the models that predict it, by Pareto-smoothed
            importance weights.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        Distribution
            With the methods of this combination: ``logpdf``, ``cdf``, ``quantile``, ``sample``…

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.distribution(loo=True).mean().round(1).values[:3]
        array([ 0.9, -1.1,  0.8])
        """
        self._require_seen(loo)
        if loo not in self._distributions:
            from lockquack.prediction.prediction import Distribution

            models, pool = self._used()
            self._distributions[loo] = Distribution(
                models,
                pool,
                self.observations,
                loo=loo,
                random_seed=self.random_seed,
                progressbar=progressbar,
            )
        return self._distributions[loo]

    def at(self, y: Any = None, *, progressbar: bool | None = None, **data: Any) -> Distribution:
        """Predict other observations.

        Parameters
        ----------
        y
            The outcomes there, where they are known.
        progressbar
            Whether to show progress; by default in a terminal only.
        **data
            What the models need to know about these observations, as their ``with_data`` takes
            it: for :func:`from_family` covariates ``x`` or parameters by name. A dict by the
            models' names gives each model its own.

        Returns
        -------
        Distribution
            With the methods of this combination: ``logpdf``, ``cdf``, ``quantile``, ``sample``…

        Examples
        --------
        >>> import numpy as np
        >>> import lockquack as lq
        >>> rng = np.random.default_rng(1)
        >>> x = rng.normal(size=(40, 1))
        >>> y = x[:, 0] + rng.normal(size=40)
        >>> slope, level = 1 + 0.2 * rng.normal(size=(2, 4, 250, 1))
        >>> models = {
        ...     "slope": lq.from_family("normal", y=y, mu=lq.linear_predictor(x, slope), sigma=1.0),
        ...     "level": lq.from_family("normal", y=y, mu=0.2 * level[..., 0], sigma=1.5),
        ... }
        >>> new = lq.lock(models).at(x={"slope": [[0.0], [2.0]]})
        >>> new.mean().round(1).values
        array([0., 2.])
        """
        from lockquack.prediction.prediction import Distribution

        models, pool = self._used()
        outcomes = self._stand_ins(models, data) if y is None else y
        moved = {}
        for name, model in models.items():
            own = _own(data, name, self.names)
            try:
                moved[name] = model.with_data(outcomes, **own)
            except (ParameterError, UnsupportedError) as error:
                hint = _misspelt(data, self.names)
                raise error.within(f"Model {name!r}", hint) from error
        observations = next(iter(moved.values())).observations
        return Distribution(
            moved,
            pool,
            observations,
            observed=y is not None,
            random_seed=self.random_seed,
            progressbar=progressbar,
        )

    def predict_at(
        self, models: Mapping[str, Model], *, progressbar: bool | None = None
    ) -> Distribution:
        """Predict other observations with the same models made for these.

        For sources that cannot be taken to new data by themselves.

        Parameters
        ----------
        models
            A model of the new observations for each name of this combination; those without
            weight may be left out.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        Distribution
            The prediction of the new observations.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> others = example_models(5, random_seed=2)  # the same kind of models at other data
        >>> fit.predict_at(others).mean().sizes["obs_id"]
        5
        """
        from lockquack.checks.models import require_models, require_same_observations
        from lockquack.prediction.prediction import Distribution

        used, pool = self._used()
        require_models(models)
        unknown = [name for name in models if name not in self.names]
        if unknown:
            raise unknown_name("model", unknown[0], self.names)
        missing = [name for name in used if name not in models]
        if missing:
            raise ParameterError(f"There is no new model {missing[0]!r}, which has weight.")
        moved = {name: models[name] for name in used}
        require_same_observations(sources_of(moved))
        return Distribution(
            moved,
            pool,
            next(iter(moved.values())).observations,
            random_seed=self.random_seed,
            progressbar=progressbar,
        )

    def logpdf(
        self, y: Any = None, *, loo: bool = False, progressbar: bool | None = None, **data: Any
    ) -> xr.DataArray:
        r"""Log density of the combination, normalised, at each observation.

        .. math:: \log q(y_i) = \log \tilde q(y_i) - \log \int \tilde q(y) \, dy

        The integral is one-dimensional quadrature for each observation; for vector outcomes it is
        found by importance sampling, with an error that :meth:`log_norm` reports.

        Parameters
        ----------
        y
            Outcomes, by default the observed ones. One number, one per observation, or
            (point, observation); or outcomes of other observations, see :meth:`at`.
        loo
            Leave each observation out of the models that predict it, by Pareto-smoothed
            importance weights. A warning tells where those are unreliable.
        progressbar
            Whether to show progress; by default in a terminal only.
        **data
            Covariates of other observations; see :meth:`at`.

        Returns
        -------
        xarray.DataArray
            One log density per observation. At the observed outcomes, its sum is the total log
            score.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> float(fit.logpdf(loo=True).sum().round(1))
        -57.5
        >>> fit.logpdf([[0.0], [1.0]]).sizes  # two outcomes at each observation
        Frozen({'point': 2, 'obs_id': 40})
        """
        if data or self._are_others(y):
            _refuse_loo(loo)
            return self.at(y, progressbar=progressbar, **data).logpdf()
        return self.distribution(loo=loo, progressbar=progressbar).logpdf(y)

    def log_norm(self, *, loo: bool = False, progressbar: bool | None = None) -> xr.DataArray:
        """Log of the normaliser of the pool at each observation; see :meth:`logpdf`.

        The coordinate ``error`` is the relative error of each normaliser: a bound from quadrature,
        or a Monte Carlo standard error for vector outcomes, whose Pareto k̂ is the coordinate
        ``pareto_k``.

        Parameters
        ----------
        loo, progressbar
            As for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            One number per observation.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> log_norm = fit.log_norm()
        >>> bool((log_norm <= 0).all()), bool((log_norm["error"] < 1e-6).all())
        (True, True)
        """
        return self.distribution(loo=loo, progressbar=progressbar).log_norm()

    def cdf(
        self, y: Any = None, *, loo: bool = False, progressbar: bool | None = None, **data: Any
    ) -> xr.DataArray:
        """Probability of at most y at each observation; parameters as for :meth:`logpdf`.

        Parameters
        ----------
        y, loo, progressbar, **data
            As for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            Probabilities, as :meth:`logpdf` returns densities.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.cdf(0.0).round(2).values[:3]
        array([0.18, 0.86, 0.21])
        """
        if data or self._are_others(y):
            _refuse_loo(loo)
            return self.at(y, progressbar=progressbar, **data).cdf()
        return self.distribution(loo=loo, progressbar=progressbar).cdf(y)

    def quantile(
        self, p: ArrayLike, *, loo: bool = False, progressbar: bool | None = None
    ) -> xr.DataArray:
        """Outcomes below which there is probability p, along a dimension ``quantile``.

        Parameters
        ----------
        p
            Probabilities, one or several.
        loo, progressbar
            As for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            Outcomes with dimensions ``quantile`` and those of the observations.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.quantile([0.1, 0.5]).round(1).values[:, :3]
        array([[-0.4, -2.4, -0.5],
               [ 0.9, -1.1,  0.8]])
        """
        return self.distribution(loo=loo, progressbar=progressbar).quantile(p)

    def interval(
        self,
        prob: float = 0.9,
        *,
        kind: IntervalKind = "central",
        loo: bool = False,
        progressbar: bool | None = None,
    ) -> xr.DataArray:
        """Return the ends of an interval of that probability, along a dimension ``ci_bound``.

        ``kind="central"`` leaves the same probability on both sides; ``"hdi"`` is the shortest
        interval (not a union of several, where the density has several modes).

        Parameters
        ----------
        prob
            Probability of the interval.
        kind
            ``"central"`` or ``"hdi"``.
        loo, progressbar
            As for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            ``ci_bound`` is ``lower`` and ``upper``.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.interval(0.9).round(1).values[:, :3]
        array([[-0.7, -2.8, -0.9],
               [ 2.6,  0.6,  2.5]])
        """
        return self.distribution(loo=loo, progressbar=progressbar).interval(prob, kind=kind)

    def mean(self, *, loo: bool = False, progressbar: bool | None = None) -> xr.DataArray:
        """Mean at each observation; NaN or infinite where tails are too heavy to have one.

        Parameters
        ----------
        loo, progressbar
            As for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            One number per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.mean().round(1).values[:3]
        array([ 0.9, -1.1,  0.8])
        """
        return self.distribution(loo=loo, progressbar=progressbar).mean()

    def var(self, *, loo: bool = False, progressbar: bool | None = None) -> xr.DataArray:
        """Variance at each observation; infinite where tails are too heavy to have one.

        Parameters
        ----------
        loo, progressbar
            As for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            One number per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.var().round(2).values[:3]
        array([1.02, 1.04, 1.01])
        """
        return self.distribution(loo=loo, progressbar=progressbar).var()

    def mode(self, *, loo: bool = False, progressbar: bool | None = None) -> xr.DataArray:
        """Outcome of the highest density at each observation.

        A log-linear pool of log-concave densities has one mode, between the outermost modes of
        the models. Heavy tails can have several: the equal pool of Cauchy densities at ±5 has
        modes at ±4.9.

        Parameters
        ----------
        loo, progressbar
            As for :meth:`logpdf`.

        Returns
        -------
        xarray.DataArray
            One outcome per observation.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.mode().round(1).values[:3]
        array([ 0.9, -1.1,  0.8])
        """
        return self.distribution(loo=loo, progressbar=progressbar).mode()

    def sample(
        self,
        n: int = 1000,
        *,
        method: str = "auto",
        loo: bool = False,
        random_seed: int | np.random.Generator | None = None,
        progressbar: bool | None = None,
    ) -> xr.DataTree:
        r"""Draw outcomes from the combination at each observation.

        Parameters
        ----------
        n
            Draws for each observation.
        method
            ``"auto"`` inverts the distribution function of scalar outcomes; for vectors it takes
            the first of the following that does well.

            - ``"inverse-cdf"``, scalar outcomes only: exact to the error of the quadrature.
            - ``"rejection"``: exact. Draws from a mixture :math:`\sum_k c_k \pi_k` above the pool
              are accepted with probability :math:`q / \sum_k c_k \pi_k`; on the simplex the
              geometric mean is below the arithmetic one. Slow where the models disagree.
            - ``"importance"``: resampled by Pareto-smoothed weights from a Student t distribution
              around the moments of the pool, with a fifth of the models' mixture.
            - ``"smc"``: tempered sequential Monte Carlo with moves along the gradient of the pool.
            - ``"mixture-is"``: the paper's proposal, the equal mixture of the models, resampled.
        loo
            Leave each observation out of the models that predict it.
        random_seed
            Seed or generator.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        xarray.DataTree
            ``posterior_predictive`` (one chain, draws, observations) and ``observed_data``, as
            ArviZ takes them; ``sampling_stats`` where there are diagnostics for each observation:
            ``acceptance``, ``ess``, ``pareto_k``, ``log_norm`` and its error. A warning tells
            where they are bad.

        Examples
        --------
        >>> import numpy as np
        >>> import lockquack as lq
        >>> rng = np.random.default_rng(1)
        >>> y, mu = rng.normal(size=20), 0.1 * rng.normal(size=(4, 250))
        >>> models = {
        ...     "narrow": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        ...     "wide": lq.from_family("student_t", y=y, nu=4.0, mu=mu, sigma=1.5),
        ... }
        >>> draws = lq.lock(models).sample(500, random_seed=1)
        >>> dict(draws["posterior_predictive"]["y"].sizes)
        {'chain': 1, 'draw': 500, 'obs_id': 20}
        """
        distribution = self.distribution(loo=loo, progressbar=progressbar)
        return distribution.sample(n, method=method, random_seed=random_seed)

    def pit(
        self,
        *,
        loo: bool | None = None,
        random_seed: int | np.random.Generator | None = 0,
        progressbar: bool | None = None,
    ) -> xr.DataArray:
        """Probability integral transform: how much of each prediction lies below its outcome.

        If the predictions are right, it is uniform; :meth:`coverage` tests that. Do not read it
        in-sample, ``loo=False``: each outcome then had a say in its own prediction, and the values
        crowd in the middle.

        Mixtures of models that are known at the observed outcomes only have it if the models came
        with predictive draws (see :func:`from_datatree`): it is the share of these, by weight.

        Parameters
        ----------
        loo
            Leave each observation out of the models that predict it; by default unless the
            observations are held out, ``scores="held-out"``.
        random_seed
            For whole numbers, whose value is drawn between F(y − 1) and F(y), which makes it
            uniform; None takes the middle, which is not.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        xarray.DataArray
            One number between 0 and 1 per observation, or per component of one.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> pit = fit.pit()
        >>> bool(((pit > 0) & (pit < 1)).all())
        True
        """
        distribution = self.distribution(loo=self._saw(loo), progressbar=progressbar)
        return distribution.pit(random_seed=random_seed)

    def coverage(
        self,
        probs: ArrayLike = (0.5, 0.8, 0.9, 0.95),
        *,
        kind: IntervalKind = "central",
        loo: bool | None = None,
        random_seed: int = 0,
        progressbar: bool | None = None,
    ) -> pd.DataFrame:
        """Tell how well intervals cover: of the combination, of stacking, and of each model.

        Parameters
        ----------
        probs
            Probabilities of the intervals.
        kind
            ``"central"`` or ``"hdi"``.
        loo
            Leave each observation out of the models that predict it; by default as for
            :meth:`pit`.
        random_seed
            For the probabilities of whole numbers; see :meth:`pit`.
        progressbar
            Whether to show progress; by default in a terminal only.

        Returns
        -------
        pandas.DataFrame
            A row for the combination, the linear pool with weights by stacking, and each model.
            Columns: the share of outcomes inside the intervals of each probability, the mean
            width of the last, and ``uniformity_p``, the p-value of the hypothesis that the
            probability integral transform is uniform [1]_. Shares have a standard error of
            √(p (1 − p) / n). Vector outcomes are looked at component by component.

        Examples
        --------
        >>> import lockquack as lq
        >>> from lockquack.testing import example_models
        >>> fit = lq.lock(example_models())
        >>> fit.coverage([0.9])[["0.9"]].round(2)
                     0.9
        model
        [locking]   0.92
        [stacking]  0.95
        first       0.82
        second      0.85

        References
        ----------
        .. [1] Säilynoja, Bürkner and Vehtari (2022). Graphical test for discrete uniformity and
           its applications in goodness-of-fit evaluation and multiple sample comparison.
           Statistics and Computing 32(32). arXiv:2103.10522.
        """
        from lockquack.prediction.prediction import coverage_table, read_probabilities

        wanted, loo = read_probabilities(probs), self._saw(loo)
        beside = self._side_by_side(loo, progressbar, wanted, kind)
        if loo:
            self._warn_of_pareto("intervals")
        return coverage_table(beside, self.observations.values, wanted, random_seed)

    @cached_property
    def _distributions(self) -> dict[bool, Distribution]:
        """Predictions of the observations, in-sample and leave-one-out, once asked for."""
        return {}

    def _saw(self, loo: bool | None) -> bool:
        """Whether the models saw the observations, so that calibration has to leave them out."""
        return self.scores != "held-out" if loo is None else loo

    def _require_seen(self, loo: bool) -> None:
        """Refuse to leave out of the models what was never in them."""
        if loo and self.scores == "held-out":
            raise ParameterError(
                "These observations were not used to fit the models (scores='held-out'), so they "
                "cannot be left out of them; drop loo=True."
            )

    def _warn_of_pareto(self, affected: Affected) -> None:
        """Warn of models whose leave-one-out predictions are unreliable."""
        from lockquack.prediction.examine import examine_pareto

        models = self._require_models()
        pareto_k = np.stack([model.loo().pareto_k for model in models.values()])
        warn(*examine_pareto(sources_of(models), pareto_k, self.observations, affected))

    def _side_by_side(
        self,
        loo: bool,
        progressbar: bool | None,
        probs: Sequence[float] = (),
        kind: IntervalKind = "central",
    ) -> dict[str, Calibrated]:
        """Look at the outcomes with the combination, with stacking and with the models."""
        from lockquack.combination.verbs import stack
        from lockquack.prediction.calibration import Calibrated, look_at
        from lockquack.prediction.streamed import ask_side_by_side

        self._require_seen(loo)
        models, y = self._require_models(), self.observations.values.reshape(1, -1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LockquackWarning)
            stacked = stack(models, scores=self.scores, progressbar=progressbar)
        question = partial(look_at, probs=probs, kind=kind)
        sources = sources_of(models)
        if self.observations.d > 1 or not all(each.can.evaluate for each in sources.values()):
            drawn = self._drawn_side_by_side(stacked, loo)
            return {name: Calibrated(question(each, y)) for name, each in drawn.items()}
        names = [f"[{self.operator.name}]", _STACK, *self.names]
        answers = ask_side_by_side(
            sources,
            [self.pool, stacked.pool, *map(OneModel, range(len(models)))],
            question,
            y,
            loo=loo,
            what="coverage cannot be computed",
            progressbar=progressbar,
        )
        return {name: Calibrated(each) for name, each in zip(names, answers, strict=True)}

    def _drawn_side_by_side(self, stacked: Combination, loo: bool) -> dict[str, HasIntervals]:
        from lockquack.operators import Linear
        from lockquack.prediction.prediction import Distribution

        each = {
            name: Distribution(
                {name: model}, Pool(Linear(), np.ones(1), 1), self.observations, loo=loo
            )
            for name, model in self._require_models().items()
        }
        predictions = {
            f"[{self.operator.name}]": self.distribution(loo=loo),
            _STACK: stacked.distribution(loo=loo),
            **each,
        }
        return {name: prediction.marginals for name, prediction in predictions.items()}

    @property
    @abstractmethod
    def pool(self) -> Pool:
        """The operator with its fitted parameters."""

    def _are_others(self, y: Any) -> bool:
        """Whether outcomes are in number, or by their dimension, those of other observations."""
        if y is None:
            return False
        dims = self.observations.to_dataarray().dims
        if isinstance(y, xr.DataArray) and y.dims != dims:
            return False
        own = 1 if self.observations.d == 1 else 2
        return np.ndim(y) == own and len(y) not in (1, self.observations.n)

    def _stand_ins(self, models: Mapping[str, Model], data: Mapping[str, Any]) -> Array:
        """Outcomes for observations of which only covariates are known: some observed ones."""
        sizes: set[int] = set()
        for name, model in models.items():
            sizes |= model.source.numbers_of_rows(_own(data, name, self.names))
        if len(sizes) != 1:
            got = f"could be {' or '.join(map(str, sorted(sizes)))}" if sizes else "is not said"
            raise ParameterError(
                f"The number of new observations {got} by the data, {', '.join(data) or 'none'}; "
                "give y, or an xarray of it, as well."
            )
        values = self.observations.values
        chosen = values[np.arange(sizes.pop()) % len(values)]
        return chosen if self.observations.component_dim is not None else chosen[:, 0]


def _own(data: Mapping[str, Any], name: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return what data has for one model: dicts by the models' names have something for each."""
    result = {}
    for key, given in data.items():
        if isinstance(given, Mapping) and given and set(given) <= set(names):
            if name in given:
                result[key] = given[name]
        else:
            result[key] = given
    return result


def _misspelt(data: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Suggest the model whose name is like that of a key of a dict."""
    keys = [str(key) for given in data.values() if isinstance(given, Mapping) for key in given]
    for key in keys:
        near = get_close_matches(key, names, n=1)
        if near and key not in names:
            return f" Did you mean {near[0]!r} by {key!r}?"
    strange = [key for key in keys if key not in names]
    if strange and len(strange) < len(keys):
        return f" There is no model {strange[0]!r}; there are {', '.join(names)}."
    return ""


def _refuse_loo(loo: bool) -> None:
    if loo:
        raise ParameterError("Other observations cannot be left out of the models; drop loo=True.")
