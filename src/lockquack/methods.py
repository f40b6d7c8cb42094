"""From models to a combination: checks, the pass over draws, the fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from lockquack.checks import check_models, naming
from lockquack.collapse import Kind
from lockquack.combination import Combination, score_all
from lockquack.errors import ParameterError, UnsupportedError, unknown_name
from lockquack.fitting import problem_for
from lockquack.jets import Array, stack_jets
from lockquack.notes import (
    Note,
    convergence_notes,
    examine_edges,
    identifiability_notes,
    monte_carlo_notes,
    pareto_notes,
)
from lockquack.numeric import as_numeric
from lockquack.operators import Linear, Locking, Operator, get_operator
from lockquack.predictive import Predictive
from lockquack.rules import Hyvarinen, LogScore, Rule, get_rule


def lock(
    models: Mapping[str, Predictive],
    *,
    prior: float | Sequence[float] | Mapping[str, float] = 1.01,
    scores: Kind = "loo",
    scale: ArrayLike | None = None,
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by log-linear pooling, with weights fitted by the Hyvärinen score.

    .. math::

        q(y) \propto \prod_k \pi_k(y)^{w_k}, \qquad
        \hat w = \arg\min_{w \in \Delta} \sum_i s^2 \bigl(2 \partial^2 \log q_{-i}(y_i)
            + (\partial \log q_{-i}(y_i))^2\bigr) - \log \text{prior}(w)

    The score is that of the leave-one-out prediction of each observation, which needs neither
    a normalising constant nor importance weights. The problem is convex, and the result carries
    a certificate of how far it can be from the optimum.

    Weights say how much each model contributes to the pool; they are not probabilities that a
    model is true. Do not use it with likelihoods that are discrete, have kinks, or do not
    vanish at an edge of their support: such models are refused.

    Parameters
    ----------
    models
        Name → model, as made by :func:`from_arrays`, :func:`from_family` or
        :func:`from_datatree`, all of the same observations.
    prior
        Concentration of the Dirichlet prior on the weights, at least 1: one number for all
        models, one for each in their order, or by name (dict, Series, DataArray). At 1 the
        prior is flat and weights can be exactly zero.
    scores
        ``"loo"`` for leave-one-out, ``"in-sample"``, or ``"held-out"`` if the observations were
        not used to fit the models.
    scale
        Unit of the outcome, one number or one per component; by default its standard deviation.
    random_seed
        Seed of the Bayesian bootstrap behind the standard errors of the weights.
    progressbar
        Whether to show progress; by default in a terminal only, and only if it takes a while.

    Returns
    -------
    Combination
        The weights, their uncertainty, the scores and the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(1.0, 1.5, size=100)
    >>> draws = rng.normal(size=(4, 500)) / 10
    >>> fit = lq.lock({
    ...     "narrow": lq.from_family("normal", y=y, mu=draws + 1.0, sigma=1.0),
    ...     "wide": lq.from_family("normal", y=y, mu=draws + 1.0, sigma=3.0),
    ... })
    >>> fit.weights.round(2).to_series().to_dict()
    {'narrow': 0.55, 'wide': 0.45}

    References
    ----------
    Yao, Carvalho, Mesquita, McLatchie (2023), Locking and Quacking: Stacking Bayesian model
    predictions by log-pooling and superposition, arXiv:2305.07334.
    """
    return _fit(models, Locking(), Hyvarinen(), prior, scores, scale, random_seed, progressbar)


def stack(
    models: Mapping[str, Predictive],
    *,
    prior: float | Sequence[float] | Mapping[str, float] = 1.0,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by mixing, with weights fitted by the log score: Bayesian stacking.

    .. math::

        q(y) = \sum_k w_k \pi_k(y), \qquad
        \hat w = \arg\max_{w \in \Delta} \sum_i \log \sum_k w_k \pi_{k,-i}(y_i)

    The leave-one-out densities come from Pareto-smoothed importance sampling; do not trust the
    weights where a note says that Pareto k̂ is high. The problem is concave; the result carries
    a bound on its distance to the optimum.

    Parameters
    ----------
    models
        Name → model, all of the same observations. Their log densities are all that is used.
    prior
        Concentration of the Dirichlet prior on the weights, as for :func:`lock`; flat by
        default, so that weights can be exactly zero.
    scores, random_seed, progressbar
        As for :func:`lock`.

    Returns
    -------
    Combination
        The weights, their uncertainty, the scores and the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = np.concatenate([rng.normal(-3, 1, size=30), rng.normal(3, 1, size=70)])
    >>> draws = rng.normal(size=(4, 500)) / 10
    >>> fit = lq.stack({
    ...     "left": lq.from_family("normal", y=y, mu=draws - 3.0, sigma=1.0),
    ...     "right": lq.from_family("normal", y=y, mu=draws + 3.0, sigma=1.0),
    ... })
    >>> fit.weights.round(2).to_series().to_dict()
    {'left': 0.3, 'right': 0.7}

    References
    ----------
    Yao, Vehtari, Simpson, Gelman (2018), Using stacking to average Bayesian predictive
    distributions, Bayesian Analysis 13, arXiv:1704.02030.
    """
    return _fit(models, Linear(), LogScore(), prior, scores, None, random_seed, progressbar)


def combine(
    models: Mapping[str, Predictive],
    operator: Operator | str = "locking",
    rule: Rule | str = "hyvarinen",
    *,
    prior: float | Sequence[float] | Mapping[str, float] = 1.01,
    scores: Kind = "loo",
    scale: ArrayLike | None = None,
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    """Combine models by an operator, with weights fitted by a rule.

    Parameters
    ----------
    models
        Name → model, all of the same observations.
    operator
        How the densities are pooled: an operator or its name.
    rule
        The score that the weights maximise: a rule or its name.
    prior, scores, scale, random_seed, progressbar
        As for :func:`lock`.

    Returns
    -------
    Combination
        The weights, their uncertainty, the scores and the certificate.

    Examples
    --------
    >>> import lockquack as lq
    >>> lq.combine({}, "loking")
    Traceback (most recent call last):
    lockquack.errors.UnknownNameError: Unknown operator 'loking'. Did you mean 'locking'? ...
    """
    return _fit(
        models,
        get_operator(operator),
        get_rule(rule),
        prior,
        scores,
        scale,
        random_seed,
        progressbar,
    )


def _fit(
    models: Mapping[str, Predictive],
    operator: Operator,
    rule: Rule,
    prior: Any,
    scores: Kind,
    scale: ArrayLike | None,
    random_seed: int,
    progressbar: bool | None,
) -> Combination:
    """Check the models, collapse their draws, solve for the weights, and remark on the result."""
    rule = _with_scale(rule, scale)
    problem_type = problem_for(operator, rule)
    if scores not in get_args(Kind):
        raise unknown_name("kind of scores", scores, get_args(Kind))
    if not isinstance(random_seed, int | np.integer) or random_seed < 0:
        raise ParameterError(f"random_seed must be an integer from 0; got {random_seed!r}.")
    notes = check_models(models, rule)
    names = tuple(models)
    concentration = _concentration(prior, names)
    observations = models[names[0]].observations
    unit = rule.unit(observations.values)
    density = rule.needs_density or operator.needs_density
    collapsed = []
    for name, model in models.items():
        with naming(name):
            collapsed.append(model.predict(scores, density=density, progressbar=progressbar))
    problem = problem_type(stack_jets([each.jet for each in collapsed]), unit, concentration)
    solution = problem.solve()
    mcse = np.array([rule.mcse(each, unit) for each in collapsed])
    scored = score_all(operator, rule, problem, solution.x)
    notes += [
        *convergence_notes(solution),
        *(examine_edges(models, solution.x) if rule.needs_derivatives else []),
        *(_pareto_notes(models) if density and scores == "loo" else []),
        *monte_carlo_notes(names, collapsed, mcse, scored),
        *identifiability_notes(names, problem, solution, mcse, scored),
    ]
    for note in notes:
        warnings.warn(note.message, note.category, stacklevel=3)
    return Combination(
        names=names,
        operator=operator,
        rule=rule,
        scores=scores,
        observations=observations,
        problem=problem,
        solution=solution,
        mcse=mcse,
        notes=tuple(notes),
        random_seed=int(random_seed),
        models=dict(models),
    )


def _pareto_notes(models: Mapping[str, Predictive]) -> list[Note]:
    observations = next(iter(models.values())).observations
    pareto_k = [model.loo().pareto_k for model in models.values()]
    return pareto_notes(models, pareto_k, observations, "Scores and weights rest on them.")


def _with_scale(rule: Rule, scale: ArrayLike | None) -> Rule:
    if scale is None:
        return rule
    if not isinstance(rule, Hyvarinen):
        raise UnsupportedError(f"{rule!r} has no scale; only the Hyvärinen score does.")
    if rule.scale is not None:
        raise ParameterError(f"There are two scales, {rule!r} and scale={scale!r}; give one.")
    return replace(rule, scale=scale)


def _concentration(prior: Any, names: tuple[str, ...]) -> Array:
    """Read the prior as one concentration per model; labels decide where there are any."""
    if isinstance(prior, xr.DataArray):
        prior = prior.to_series()
    if isinstance(prior, pd.Series):
        prior = prior.to_dict()
    if isinstance(prior, Mapping):
        unknown = [name for name in prior if name not in names]
        if unknown:
            raise unknown_name("model in prior", unknown[0], names)
        missing = [name for name in names if name not in prior]
        if missing:
            raise ParameterError(f"The prior says nothing about model {missing[0]!r}.")
        prior = [prior[name] for name in names]
    values = as_numeric("prior", prior, ParameterError)
    if values.shape not in ((), (len(names),)):
        raise ParameterError(
            f"prior must be one concentration or {len(names)}, one per model; got the shape "
            f"{values.shape}."
        )
    if not (np.isfinite(values).all() and (values >= 1).all()):
        raise ParameterError(
            f"The Dirichlet concentrations of the prior must be finite and at least 1, or the "
            f"problem would not be convex; got {prior}. Use 1 for a flat prior."
        )
    return np.broadcast_to(values, (len(names),)).astype(np.float64)
