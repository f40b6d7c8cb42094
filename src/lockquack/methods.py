"""From models to a combination: checks, the pass over draws, the fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from lockquack.checks import Note, check_models, naming
from lockquack.collapse import Kind
from lockquack.combination import Combination
from lockquack.errors import (
    ConvergenceWarning,
    IdentifiabilityWarning,
    MonteCarloWarning,
    ParameterError,
    UnsupportedError,
    unknown_name,
)
from lockquack.fitting import Problem, problem_for
from lockquack.identifiability import confusable
from lockquack.jets import Array, stack_jets
from lockquack.operators import Locking, Operator, get_operator
from lockquack.predictive import Predictive
from lockquack.rules import Hyvarinen, Rule, get_rule
from lockquack.solvers.base import Solution

#: Share of the sampling error that the Monte Carlo error may reach before it is a concern.
_MCSE_SHARE = 0.25


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
        Concentration of the Dirichlet prior on the weights, at least 1, for all models or for
        each. At 1 the prior is flat and weights can be exactly zero.
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
    return combine(
        models,
        Locking(),
        Hyvarinen(),
        prior=prior,
        scores=scores,
        scale=scale,
        random_seed=random_seed,
        progressbar=progressbar,
        _stacklevel=3,
    )


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
    _stacklevel: int = 2,
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
    operator, rule = get_operator(operator), _with_scale(get_rule(rule), scale)
    problem_type = problem_for(operator, rule)
    if scores not in get_args(Kind):
        raise unknown_name("kind of scores", scores, get_args(Kind))
    notes = check_models(models, rule)
    names = tuple(models)
    collapsed = []
    for name, model in models.items():
        with naming(name):
            collapsed.append(model.collapse(scores, progressbar=progressbar))
    observations = models[names[0]].observations
    unit = rule.unit(observations.values)
    problem = problem_type(
        stack_jets([each.jet for each in collapsed]), unit, _concentration(prior, names)
    )
    solution = problem.solve()
    mcse = np.array([each.mcse(unit) for each in collapsed])
    scored = rule.score(problem.jets, unit)
    notes += _notes(problem, solution, mcse, scored, names)
    for note in notes:
        warnings.warn(note.message, note.category, stacklevel=_stacklevel)
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
        random_seed=random_seed,
        models=dict(models),
    )


def _with_scale(rule: Rule, scale: ArrayLike | None) -> Rule:
    if scale is None:
        return rule
    if not isinstance(rule, Hyvarinen):
        raise UnsupportedError(f"{rule!r} has no scale; only the Hyvärinen score does.")
    values = np.asarray(scale, dtype=np.float64)
    return replace(rule, scale=tuple(values.ravel().tolist()))


def _concentration(prior: Any, names: tuple[str, ...]) -> Array:
    """Read the prior as one concentration per model."""
    if isinstance(prior, Mapping):
        unknown = [name for name in prior if name not in names]
        if unknown:
            raise unknown_name("model in prior", unknown[0], names)
        missing = [name for name in names if name not in prior]
        if missing:
            raise ParameterError(f"The prior says nothing about model {missing[0]!r}.")
        prior = [prior[name] for name in names]
    values = np.asarray(prior, dtype=np.float64)
    if values.shape not in ((), (len(names),)):
        raise ParameterError(
            f"prior must be one concentration or {len(names)}, one per model; got {values.size}."
        )
    if not (np.isfinite(values).all() and (values >= 1).all()):
        raise ParameterError(
            f"Dirichlet concentrations below 1 make the problem non-convex; got {prior}. Use 1 "
            "for a flat prior."
        )
    return np.broadcast_to(values, (len(names),)).copy()


def _notes(
    problem: Problem, solution: Solution, mcse: Array, scored: Array, names: tuple[str, ...]
) -> list[Note]:
    notes = []
    if not solution.converged:
        notes.append(
            Note(
                ConvergenceWarning,
                f"The solver stopped early ({solution.status}): the objective may be up to "
                f"{float(solution.gap):.2g} from its optimum, {float(solution.relative_gap):.2g} "
                "of its size.",
            )
        )
    spread = np.sqrt(scored.shape[1]) * scored.std(axis=1)
    noisy = np.flatnonzero((mcse > _MCSE_SHARE * spread) & (spread > 0))
    if noisy.size:
        worst = max(noisy, key=lambda k: mcse[k] / spread[k])
        notes.append(
            Note(
                MonteCarloWarning,
                f"Too few effective draws for {', '.join(repr(names[k]) for k in noisy)}: the "
                f"Monte Carlo error of the score of {names[worst]!r} is {mcse[worst]:.2g}, its "
                f"sampling error {spread[worst]:.2g}. Draw longer chains.",
            )
        )
    # What too few draws hide is said above; it does not make models alike.
    trusted = np.where(mcse > _MCSE_SHARE * spread, 0.0, mcse)
    for group in confusable(problem, solution.x, trusted, float(solution.scale)):
        listed = ", ".join(repr(names[k]) for k in group)
        notes.append(
            Note(
                IdentifiabilityWarning,
                f"The models {listed} cannot be told apart: moving weight among them changes the "
                f"score by less than its Monte Carlo error. Together they have weight "
                f"{solution.x[list(group)].sum():.3f}; how it is split among them means nothing.",
            )
        )
    return notes
