"""The functions that mix models, or choose one: ``stack``, ``bma``, ``select`` and others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lockquack.arithmetic import own_arithmetic
from lockquack.combination.combination import Combination
from lockquack.combination.verbs import (
    Gate,
    Models,
    Prior,
    Shrinkage,
    combine_by,
    rule_without_densities,
)
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError, unknown_name
from lockquack.methods.fit import log_probabilities
from lockquack.methods.method import METHODS, method_for
from lockquack.operators import Selection
from lockquack.rules import RULES, Rule, get_rule
from lockquack.sources.reading import as_models


@own_arithmetic
def stack(
    models: Models,
    *,
    prior: Prior | None = None,
    scores: Kind = "loo",
    by: Any = None,
    shrinkage: Shrinkage = "auto",
    weights: Gate = "simplex",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by mixing, with weights fitted by the log score: Bayesian stacking.

    .. math::

        q(y) = \sum_k w_k \pi_k(y), \qquad
        \hat w = \arg\max_{w \in \Delta} \sum_i \log \sum_k w_k \pi_{k,-i}(y_i)

    The leave-one-out densities come from Pareto-smoothed importance sampling, as in [1]_; do not
    trust the weights where a note says that Pareto k̂ is high. The problem is concave; the result
    carries a bound on its distance to the optimum.

    Parameters
    ----------
    models
        As for :func:`lock`; only their log densities are used, so files and results of
        ArviZ's ``loo`` are enough.
    prior
        Concentration of the Dirichlet prior on the weights, as for :func:`lock`; flat by
        default, so that weights can be exactly zero.
    scores, by, shrinkage, random_seed, progressbar
        As for :func:`lock`.
    weights
        ``"softmax"``, with ``by``, is hierarchical stacking [2]_: weights are a softmax of
        functions of the covariates, whose effects have a normal prior of unknown spread, and are
        drawn from their posterior. The combination has the posterior means of the weights, which
        for a mixture are exactly the posterior predictive. Needs nutpie.

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
    .. [1] Yao, Vehtari, Simpson, Gelman (2018), Using stacking to average Bayesian predictive
       distributions, Bayesian Analysis 13, arXiv:1704.02030.
    .. [2] Yao, Pirš, Vehtari, Gelman (2021), Bayesian hierarchical stacking: some models are
       (somewhere) useful, Bayesian Analysis 17, arXiv:2101.08954.
    """
    stacking = METHODS["stack"]
    return combine_by(
        models,
        stacking,
        prior=prior,
        scores=scores,
        random_seed=random_seed,
        progressbar=progressbar,
        by=by,
        shrinkage=shrinkage,
        weights=weights,
    )


@own_arithmetic
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
        As for :func:`lock`.
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
    >>> import lockquack as lq
    >>> fit = lq.bma(lq.example_models(), {"first": -30.0, "second": -31.1})
    >>> fit.weights.round(2).to_series().to_dict()
    {'first': 0.75, 'second': 0.25}

    References
    ----------
    Hoeting, Madigan, Raftery, Volinsky (1999), Bayesian model averaging: a tutorial, Statistical
    Science 14.
    """
    models = as_models(models)
    known = log_probabilities(models, log_marginal_likelihood, model_prior)
    method = replace(METHODS["BMA"], options={"log_probability": known})
    return combine_by(
        models, method, scores=scores, random_seed=random_seed, progressbar=progressbar
    )


@own_arithmetic
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
        As for :func:`lock`.
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
    >>> import lockquack as lq
    >>> models = lq.example_models()
    >>> plain = lq.pseudo_bma(models, bootstrap=False).weights
    >>> bool(plain.max() > lq.pseudo_bma(models).weights.max())
    True

    References
    ----------
    Yao, Vehtari, Simpson, Gelman (2018), Using stacking to average Bayesian predictive
    distributions, Bayesian Analysis 13, arXiv:1704.02030.
    """
    method = METHODS["pseudo-BMA"]
    if bootstrap:
        method = replace(METHODS["pseudo-BMA+"], options={"random_seed": random_seed})
    return combine_by(
        models, method, scores=scores, random_seed=random_seed, progressbar=progressbar
    )


@own_arithmetic
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

    With ``by="hyvarinen", scores="prequential"`` it is the choice by the sequential H-score of
    Shao et al. [1]_, for which each observation is predicted from all before it. It depends on
    their order and on the prior, and, as they show, finds the model that is nearest to the truth
    in its own divergence as observations come. Such models are made by :func:`cross_validate` with
    ``folds=leave_future_out(n, first=...)``; all of them need the same ``first``.

    Parameters
    ----------
    models
        As for :func:`lock`.
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
    >>> import lockquack as lq
    >>> lq.select(lq.example_models()).weights.to_series().to_dict()
    {'first': 0.0, 'second': 1.0}

    References
    ----------
    .. [1] Shao, Jacob, Ding, Tarokh (2019), Bayesian model comparison with the Hyvärinen score:
       computation and consistency, Journal of the American Statistical Association 114,
       arXiv:1711.00136.
    """
    models = as_models(models)
    if isinstance(by, str) and by == "marginal_likelihood":
        known = log_probabilities(models, log_marginal_likelihood, None)
        method = replace(METHODS["select by ML"], options={"log_probability": known})
    elif isinstance(by, str) and by not in RULES:
        raise unknown_name("rule", by, [*RULES, "marginal_likelihood"])
    elif log_marginal_likelihood is not None:
        raise ParameterError("Give log_marginal_likelihood with by='marginal_likelihood' only.")
    else:
        method = method_for(Selection(), get_rule(by))
    return combine_by(
        models, method, scores=scores, random_seed=random_seed, progressbar=progressbar
    )


@own_arithmetic
def equal(
    models: Models, *, scores: Kind = "loo", random_seed: int = 0, progressbar: bool | None = None
) -> Combination:
    r"""Combine models by mixing them in equal parts, :math:`q = \frac1K \sum_k \pi_k`.

    Nothing is fitted, so nothing is over-fitted: with few observations it is hard to beat.

    Parameters
    ----------
    models
        As for :func:`lock`.
    scores, random_seed, progressbar
        As for :func:`lock`; they concern the table only, which has log scores, or CRPS where a
        model has no densities.

    Returns
    -------
    Combination
        The mixture with equal weights.

    Examples
    --------
    >>> import lockquack as lq
    >>> lq.equal(lq.example_models()).weights.to_series().to_dict()
    {'first': 0.5, 'second': 0.5}
    """
    read = as_models(models)
    method = replace(METHODS["equal"], rule=rule_without_densities(read) or METHODS["equal"].rule)
    return combine_by(read, method, scores=scores, random_seed=random_seed, progressbar=progressbar)
