"""The ways to combine models, by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from lockquack.combination.combination import Combination
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError, unknown_name
from lockquack.fitting.fitters import FORMULAS
from lockquack.jets import Array
from lockquack.methods.fit import Plan, by_model, fit
from lockquack.models.model import Model
from lockquack.numeric import as_numeric
from lockquack.operators import (
    Linear,
    Locking,
    Operator,
    Selection,
    Superposition,
    get_operator,
)
from lockquack.rules import RULES, Hyvarinen, LogScore, Rule, get_rule

Models = Mapping[str, Model]
Prior = float | Sequence[float] | Mapping[str, float]


def lock(
    models: Models,
    *,
    rule: Rule | str = "hyvarinen",
    weights: Literal["simplex", "nonnegative"] = "simplex",
    prior: Prior = 1.01,
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
    model is true. The Hyvärinen score is not for likelihoods that are discrete, have kinks, or do
    not vanish at an edge of their support: such models are refused, and the message names
    another rule.

    Parameters
    ----------
    models
        Name → model, as made by :func:`from_arrays`, :func:`from_family` or
        :func:`from_datatree`, all of the same observations.
    rule
        The score: ``"hyvarinen"``, ``"log"`` (exact, with a normaliser for each observation;
        also for counts), or a rule such as ``Hyvarinen(transform="log")`` for positive outcomes.
    weights
        ``"nonnegative"`` frees the sum of the weights; see :class:`Locking`.
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
    plan = Plan(Locking(weights), _with_scale(get_rule(rule), scale))
    return fit(
        models, plan, prior=prior, scores=scores, random_seed=random_seed, progressbar=progressbar
    )


def stack(
    models: Models,
    *,
    prior: Prior = 1.0,
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
    return fit(
        models,
        Plan(Linear(), LogScore()),
        prior=prior,
        scores=scores,
        random_seed=random_seed,
        progressbar=progressbar,
    )


def combine(
    models: Models,
    operator: Operator | str = "locking",
    rule: Rule | str = "hyvarinen",
    *,
    prior: Prior = 1.01,
    scores: Kind = "loo",
    scale: ArrayLike | None = None,
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    """Combine models by an operator, with weights fitted by a rule.

    Convex pairs are certified. For the others the table says how many of several starts agree on
    the solution; few is a reason for doubt.

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
    >>> from lockquack.testing import example_models
    >>> fit = lq.combine(example_models(), lq.Hoelder(-1), lq.LogScore())
    >>> fit.weights.round(1).to_series().to_dict()
    {'first': 0.3, 'second': 0.7}

    Names do as well, and a misspelt one is noticed:

    >>> lq.combine({}, "loking")
    Traceback (most recent call last):
    lockquack.errors.UnknownNameError: Unknown operator 'loking'. Did you mean 'locking'? ...
    """
    plan = Plan(get_operator(operator), _with_scale(get_rule(rule), scale))
    return fit(
        models, plan, prior=prior, scores=scores, random_seed=random_seed, progressbar=progressbar
    )


def quack(
    models: Models,
    *,
    rule: Rule | str | None = None,
    phases: ArrayLike | None = None,
    prior: Prior = 1.01,
    scores: Kind = "loo",
    scale: ArrayLike | None = None,
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by quantum superposition, with fitted weights and phases.

    .. math:: q(y) \propto \Bigl|\sum_k \sqrt{w_k\, \pi_k(y)}\, e^{i\alpha_k}\Bigr|^2

    By default the rule is the log score where all models can be evaluated away from the observed
    outcomes (the normaliser is then a closed form), and the Hyvärinen score otherwise; the
    table says which. The problem is not convex: the table says how many starts agree.

    Phases of models that hardly overlap, or that get next to no weight, mean nothing.

    Parameters
    ----------
    models
        Name → model, all of the same observations.
    rule
        The score, or None to choose as above.
    phases
        None to fit the phases; or given angles, such as 0 for all.
    prior, scores, scale, random_seed, progressbar
        As for :func:`lock`.

    Returns
    -------
    Combination
        Its ``parameters`` hold the phases.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> rng = np.random.default_rng(1)
    >>> y = rng.normal(0.0, 1.0, size=100) + np.where(rng.random(100) < 0.5, -2.0, 2.0)
    >>> draws = rng.normal(size=(4, 100)) / 10
    >>> fit = lq.quack({
    ...     "left": lq.from_family("normal", y=y, mu=draws - 1.0, sigma=1.5),
    ...     "right": lq.from_family("normal", y=y, mu=draws + 1.0, sigma=1.5),
    ... })
    >>> bool(abs(fit.parameters["phases"]).max() > 1.0)  # what they share is taken out
    True

    References
    ----------
    Yao, Carvalho, Mesquita, McLatchie (2023), arXiv:2305.07334.
    """
    chosen = _rule_for_superposition(models) if rule is None else get_rule(rule)
    if rule is None and not chosen.needs_derivatives:
        scale = None  # it belongs to the score that was not chosen
    plan = Plan(Superposition(phases), _with_scale(chosen, scale))
    return fit(
        models, plan, prior=prior, scores=scores, random_seed=random_seed, progressbar=progressbar
    )


def bma(
    models: Models,
    log_marginal_likelihood: Any = None,
    *,
    model_prior: Any = None,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by Bayesian model averaging.

    .. math:: q(y) = \sum_k w_k \pi_k(y), \qquad
        w_k \propto p(M_k)\, p(\text{data} \mid M_k)

    The weights are the models' posterior probabilities if one of them is true. They depend on
    the priors of the parameters, and with much data nearly all weight goes to one model, be it
    good or only the least bad. Marginal likelihoods are hard to estimate; mind their error.

    Parameters
    ----------
    models
        Name → model, all of the same observations.
    log_marginal_likelihood
        Log marginal likelihood of each model, by name or in the models' order. None: as found in
        ``sample_stats`` of models read by :func:`from_datatree`, where PyMC's ``sample_smc``
        leaves them.
    model_prior
        Prior probabilities of the models, by name or in their order; equal by default.
    scores
        Which predictions the table scores; the weights do not depend on it.
    random_seed, progressbar
        As for :func:`lock`.

    Returns
    -------
    Combination
        The mixture with these weights.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.random.default_rng(1).normal(size=20)
    >>> draws = np.random.default_rng(2).normal(size=(4, 100)) / 5
    >>> models = {
    ...     "a": lq.from_family("normal", y=y, mu=draws, sigma=1.0),
    ...     "b": lq.from_family("normal", y=y, mu=draws + 0.5, sigma=1.0),
    ... }
    >>> lq.bma(models, {"a": -30.0, "b": -31.1}).weights.round(2).to_series().to_dict()
    {'a': 0.75, 'b': 0.25}

    References
    ----------
    Hoeting, Madigan, Raftery, Volinsky (1999), Bayesian model averaging: a tutorial, Statistical
    Science 14.
    """
    return _by_formula(
        models,
        "BMA",
        Linear(),
        scores,
        random_seed,
        progressbar,
        {"log_probability": log_evidence(models, log_marginal_likelihood, model_prior)},
    )


def pseudo_bma(
    models: Models,
    *,
    bootstrap: bool = True,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by pseudo-BMA, with or without the Bayesian bootstrap.

    .. math:: q(y) = \sum_k w_k \pi_k(y), \qquad w_k \propto \exp(\text{elpd}_k)

    With the bootstrap (pseudo-BMA+) the weights are averages over Dirichlet weights of the
    observations, which accounts for the error of elpd. Both look at one model at a time, so they
    split the weight among similar models; :func:`stack` does not.

    Parameters
    ----------
    models
        Name → model, all of the same observations.
    bootstrap
        Whether to use the Bayesian bootstrap.
    scores, progressbar
        As for :func:`lock`.
    random_seed
        Seed of the bootstrap.

    Returns
    -------
    Combination
        The mixture with these weights.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.random.default_rng(1).normal(size=50)
    >>> draws = np.random.default_rng(2).normal(size=(4, 100)) / 7
    >>> models = {
    ...     "a": lq.from_family("normal", y=y, mu=draws, sigma=1.0),
    ...     "b": lq.from_family("normal", y=y, mu=draws + 0.4, sigma=1.0),
    ... }
    >>> plain = lq.pseudo_bma(models, bootstrap=False).weights
    >>> bool(plain.max() > lq.pseudo_bma(models).weights.max())
    True

    References
    ----------
    Yao, Vehtari, Simpson, Gelman (2018), Using stacking to average Bayesian predictive
    distributions, Bayesian Analysis 13, arXiv:1704.02030.
    """
    name = "pseudo-BMA+" if bootstrap else "pseudo-BMA"
    options = {"random_seed": random_seed} if bootstrap else {}
    return _by_formula(models, name, Linear(), scores, random_seed, progressbar, options)


def select(
    models: Models,
    by: str | Rule = "log",
    *,
    log_marginal_likelihood: Any = None,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Choose the one model that scores best.

    .. math:: q(y) = \pi_{\hat k}(y), \qquad \hat k = \arg\max_k \sum_i \text{score}_i(\pi_k)

    Choosing ignores how close the others came; ``fit.bootstrap()`` tells how often each model
    would have been chosen.

    Parameters
    ----------
    models
        Name → model, all of the same observations.
    by
        ``"log"`` (leave-one-out elpd), ``"hyvarinen"``, another rule, or
        ``"marginal_likelihood"``.
    log_marginal_likelihood
        For the last of these, as for :func:`bma`.
    scores, random_seed, progressbar
        As for :func:`lock`.

    Returns
    -------
    Combination
        The chosen model, as a mixture with all weight on it.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.random.default_rng(1).normal(size=50)
    >>> draws = np.random.default_rng(2).normal(size=(4, 100)) / 7
    >>> fit = lq.select({
    ...     "good": lq.from_family("normal", y=y, mu=draws, sigma=1.0),
    ...     "bad": lq.from_family("normal", y=y, mu=draws + 3.0, sigma=1.0),
    ... })
    >>> fit.weights.to_series().to_dict()
    {'good': 1.0, 'bad': 0.0}
    """
    if by == "marginal_likelihood":
        return _by_formula(
            models,
            "selection by marginal likelihood",
            Selection(),
            scores,
            random_seed,
            progressbar,
            {"log_probability": log_evidence(models, log_marginal_likelihood, None)},
        )
    if isinstance(by, str) and by not in RULES:
        raise unknown_name("rule", by, [*RULES, "marginal_likelihood"])
    if log_marginal_likelihood is not None:
        raise ParameterError("Give log_marginal_likelihood with by='marginal_likelihood' only.")
    return fit(
        models,
        Plan(Selection(), get_rule(by)),
        scores=scores,
        random_seed=random_seed,
        progressbar=progressbar,
    )


def equal(
    models: Models,
    *,
    scores: Kind = "loo",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by mixing them in equal parts, :math:`q = \frac1K \sum_k \pi_k`.

    Nothing is fitted, so nothing is over-fitted: with few observations it is hard to beat.

    Parameters
    ----------
    models
        Name → model, all of the same observations.
    scores, random_seed, progressbar
        As for :func:`lock`; they concern the table only.

    Returns
    -------
    Combination
        The mixture with equal weights.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> y = np.random.default_rng(1).normal(size=20)
    >>> draws = np.random.default_rng(2).normal(size=(4, 100)) / 5
    >>> model = lq.from_family("normal", y=y, mu=draws, sigma=1.0)
    >>> lq.equal({"a": model, "b": model}).weights.to_series().to_dict()
    {'a': 0.5, 'b': 0.5}
    """
    return _by_formula(models, "equal", Linear(), scores, random_seed, progressbar)


def _by_formula(
    models: Models,
    name: str,
    operator: Operator,
    scores: Kind,
    random_seed: int,
    progressbar: bool | None,
    options: Mapping[str, Any] | None = None,
) -> Combination:
    plan = Plan(operator, LogScore(), name, FORMULAS[name], options or {})
    return fit(
        models,
        plan,
        scores=scores,
        random_seed=random_seed,
        progressbar=progressbar,
    )


def _rule_for_superposition(models: Models) -> Rule:
    """Choose the log score where densities are known anywhere on a line, and H elsewhere."""
    known = isinstance(models, Mapping) and all(
        isinstance(model, Model) and model.source.can.evaluate and model.observations.d == 1
        for model in models.values()
    )
    return LogScore() if known else Hyvarinen()


def log_evidence(models: Models, given: Any, model_prior: Any) -> Array:
    """Log marginal likelihoods plus log prior probabilities, (K,)."""
    names = tuple(models) if isinstance(models, Mapping) else ()
    if given is None:
        found = {name: getattr(m, "log_marginal_likelihood", None) for name, m in models.items()}
        missing = [name for name, value in found.items() if value is None]
        if missing:
            raise ParameterError(
                f"The marginal likelihood of model {missing[0]!r} is not known. Give "
                "log_marginal_likelihood={name: value, ...}; PyMC's sample_smc estimates it."
            )
        given = list(found.values())
    log_ml = _per_model("log_marginal_likelihood", given, names)
    if model_prior is None:
        return log_ml
    probability = _per_model("model_prior", model_prior, names)
    if not (probability > 0).all():
        raise ParameterError(f"model_prior must be positive probabilities; got {model_prior!r}.")
    return log_ml + np.log(probability)


def _per_model(what: str, given: Any, names: tuple[str, ...]) -> Array:
    values = as_numeric(what, by_model(what, given, names), ParameterError)
    if values.shape != (len(names),) or not np.isfinite(values).all():
        raise ParameterError(
            f"{what} must be one finite number for each of {len(names)} models; got {given!r}."
        )
    return values.astype(np.float64)


def _with_scale(rule: Rule, scale: ArrayLike | None) -> Rule:
    return rule if scale is None else rule.with_scale(scale)
