"""Methods of a combination that tell how uncertain its weights are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from lockquack.errors import ParameterError, UnsupportedError
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.formulas import bootstrap_counts
from lockquack.fitting.limits import unseen
from lockquack.fitting.resampling import Resampling
from lockquack.fitting.uncertainty import weight_jacobian, with_draws_of_prior
from lockquack.jets import Array
from lockquack.methods.fit import read_concentration
from lockquack.numeric import as_count, as_generator, as_positive, cut
from lockquack.parallel.mapping import map_observations
from lockquack.parallel.progress import progress_bar
from lockquack.remarks import warn
from lockquack.remarks.solver import PosteriorDoubtful
from lockquack.sampling.nuts import assess

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination

#: Numbers that a group of bootstrap replicates may hold at once.
_NUMBERS_AT_ONCE = 2**22
#: Numbers that a result may have at most.
_MOST_NUMBERS = 2**28


def bootstrap(
    self: Combination,
    n: int = 1000,
    *,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool | None = None,
) -> xr.DataArray:
    r"""Draw weights by the Bayesian bootstrap.

    .. math:: w^{(b)} = \arg\max_w \sum_i u_i^{(b)} \text{score}_i(w) + \log\text{prior}(w),
        \qquad u^{(b)} \sim n \cdot \text{Dirichlet}(1, \ldots, 1)

    The observations are treated as exchangeable. The Monte Carlo error of the models' own draws
    is not included (see ``mcse``). With case weights, the counts are proportional to these times
    exponential random numbers, with the same sum. Weights that the score cannot see are drawn
    from their prior.

    Weights of a softmax gate are means of its posterior, for the counts of each replicate: their
    spread is how much other data would have changed them, which need not be that of the posterior.
    The gate's draws are weighted by importance; where that is not reliable, some are drawn anew.

    Parameters
    ----------
    n
        Number of draws.
    random_seed
        Seed or generator.
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    xarray.DataArray
        Weights with dimensions ``draw`` and ``model``; at each observation where they depend on
        covariates. How much these are pulled together is chosen again in every draw, by the
        held-out scores of the fit, where it was chosen; if it was given, it stays as it is.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> draws = fit.bootstrap(200, random_seed=1)
    >>> dict(draws.sizes), draws.std("draw").round(2).values
    ({'draw': 200, 'model': 2}, array([0.11, 0.11]))
    """
    first = as_generator(random_seed)
    if self.design is not None:
        _require_room(as_count("n", n), len(self.names) * self.observations.n)
    found = draw_parameters(self, n, first, progressbar)
    draws = np.stack([self.objective.weights(each) for each in found])
    if self.design is None:
        hidden = unseen(self.objective, self.solution.x)
        if hidden.any():
            draws = with_draws_of_prior(draws, hidden, self.objective.concentration, first)
    return self._labelled(draws, {"draw": np.arange(n)}, "weights")


def draw_parameters(
    fit: Combination, n: int, first: np.random.Generator, progressbar: bool | None = None
) -> Array:
    """Draw parameters by the Bayesian bootstrap, (draw, P)."""
    n = as_count("n", n)
    K, n_obs = len(fit.names), fit.observations.n
    groups = cut(slice(0, n), max(1, _NUMBERS_AT_ONCE // max(n_obs, K * K)))
    # A stream of random numbers per group: where it is drawn does not matter then.
    streams = [first, *(first.spawn(len(groups) - 1) if len(groups) > 1 else ())]
    resampling = Resampling(fit.fitter, fit.solution.x)
    parts = []
    with progress_bar(n, "bootstrap", progressbar) as advance:
        for part in map_observations(_replicate, (resampling,), groups, streams):
            parts.append(part)
            advance(len(part))
    return np.concatenate(parts)


def sandwich(self: Combination) -> xr.DataArray:
    r"""Covariance of the weights by the sandwich formula, :math:`J^{-1} I J^{-1} / n`.

    J is the curvature of the mean score and prior at the solution, I the variance of its
    slopes, both among the weights that are not exactly zero. It holds whether or not a model
    is true. Do not trust it where weights are close to 0 or 1: there the distribution is not
    normal, and :meth:`bootstrap` is better. It is NaN for weights that the score cannot see, and
    for models that were left out.

    Returns
    -------
    xarray.DataArray
        Covariances with dimensions ``model`` and ``model_``.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> fit.sandwich().round(3).values
    array([[ 0.011, -0.011],
           [-0.011,  0.011]])
    """
    _require_optimum(self)
    _require_constant(self)
    jacobian = weight_jacobian(self.objective, self.solution.x)
    names, K = list(self.names), len(self.names)
    covariance = jacobian @ self._curvature.sandwich() @ jacobian.T
    unknown = unseen(self.objective, self.solution.x)
    unknown[self.operator.left_out(K)] = True
    covariance[unknown], covariance[:, unknown] = np.nan, np.nan
    return xr.DataArray(
        covariance,
        dims=["model", "model_"],
        coords={"model": names, "model_": names},
        name="covariance",
    )


def posterior(
    self: Combination,
    n: int = 1000,
    *,
    learning_rate: float | None = None,
    prior: Any = None,
    chains: int = 4,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    r"""Draw weights from the generalised posterior, by the no-U-turn sampler.

    .. math:: p(w \mid y) \propto \text{prior}(w)\, \exp\bigl(\eta \textstyle\sum_i
        \text{score}_i(w)\bigr)

    A score is not a log likelihood, so the learning rate η need not be 1. By default it is
    calibrated, :math:`\eta = \mathrm{tr}(J I^{-1} J) / \mathrm{tr}(J)`: the posterior then
    has about the spread of :meth:`sandwich` where no weight is near zero. J and I are of the
    scores alone where the weights are all that is fitted, and the prior does not bend them. The
    models are as they are: their own uncertainty is
    in their predictions, and is not drawn along. Needs nutpie: ``pip install 'lockquack[nuts]'``.

    Weights that depend on covariates have the calibration of constant weights, and λ counts as
    part of the score: it stays as it is, η times. Where λ is infinite, constant weights are drawn.
    Weights by a softmax are drawn anew, from the posterior that their fit has drawn from.

    Parameters
    ----------
    n
        Number of draws per chain.
    learning_rate
        η, or None to calibrate it. With 1 and the log score of a mixture, the posterior is that of
        Bayes' rule.
    prior
        Concentration of the Dirichlet prior, positive, given as for :func:`lock`; by default that
        of the fit. It may be below 1 here, where nothing is maximised.
    chains
        Number of chains.
    random_seed
        Seed or generator.

    Returns
    -------
    xarray.DataArray
        Weights with dimensions ``chain``, ``draw`` and ``model``, as ArviZ takes them; at each
        observation where they depend on covariates. Its attributes are ``learning_rate``,
        ``divergences``, ``rhat``, the largest of the weights, and ``ess``, the smallest; a warning
        says when these are a reason for doubt.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> draws = fit.posterior(100, random_seed=1)
    >>> draws.dims, draws.attrs["learning_rate"] > 0, draws.attrs["divergences"]
    (('chain', 'draw', 'model'), True, 0)
    """
    n, chains = as_count("n", n), as_count("chains", chains)
    if self.fitter.parameter_draws is None:
        _require_optimum(self)
    elif prior is not None:
        raise ParameterError("The prior of a softmax gate is that of its effects; drop prior=.")
    if self.design is not None:
        _require_room(n * chains, len(self.names) * self.observations.n)
    rng, eta = as_generator(random_seed), _learning_rate(self, learning_rate)
    target = _with_prior(self, prior).posterior(eta, self.solution.x)
    draws, divergences = target.draw(chains, n, rng)
    weights = np.stack([[self.objective.weights(x) for x in chain] for chain in draws])
    sampled = assess(weights.reshape(chains, n, -1), divergences)
    if not sampled.is_reliable:
        warn(PosteriorDoubtful(**vars(sampled)))
    leading = {"chain": np.arange(chains), "draw": np.arange(n)}
    attributes = {name: getattr(sampled, name) for name in ("divergences", "rhat", "ess")}
    found = self._labelled(weights, leading, "weights")
    return found.assign_attrs(learning_rate=eta, **attributes)


def _learning_rate(fit: Combination, given: float | None) -> float:
    if given is not None:
        return as_positive("learning_rate", given)
    eta = fit.fitter.learning_rate(fit.solution.x)
    if not (np.isfinite(eta) and eta > 0):
        raise ParameterError(
            f"The learning rate must be positive; it is {eta:g}. Nothing varies if one model "
            "has all the weight; use bootstrap, or give learning_rate=."
        )
    return eta


def _with_prior(fit: Combination, prior: Any) -> Fitter:
    """Return how the parameters were fitted, with another prior if one is given."""
    if prior is None:
        return fit.fitter
    concentration = read_concentration(prior, fit.names, for_a_mode=False)
    return replace(fit.fitter, objective=replace(fit.objective, concentration=concentration))


def _replicate(
    resamplings: Sequence[Resampling], replicates: slice, rng: np.random.Generator
) -> Array:
    """Find the parameters for some replicates of the observations, (replicate, P)."""
    (again,) = resamplings
    fitter, objective = again.fitter, again.fitter.objective
    counts = bootstrap_counts(
        rng, replicates.stop - replicates.start, objective.n_obs, objective.case_weights
    )
    return fitter.replicates(counts, again.x)


def _require_room(n: int, numbers: int) -> None:
    if n * numbers > _MOST_NUMBERS:
        raise ParameterError(
            f"{n} draws of the weights at all observations are {n * numbers:.1e} numbers. Draw "
            "fewer, or ask for intervals at some values of the covariates: fit.weights_at(by)."
        )


def _require_optimum(fit: Combination) -> None:
    fit.fitter.require("expansion")
    if not fit.fitter.is_optimum:
        raise UnsupportedError(
            "These weights are not the optimum of a smooth score, around which it could be "
            "expanded. Use fit.bootstrap()."
        )


def _require_constant(fit: Combination) -> None:
    if fit.design is not None:
        raise UnsupportedError(
            "Weights that depend on covariates are shrunk towards common ones, which this formula "
            "leaves out. Use fit.posterior(), or fit.weights_at() for intervals."
        )
