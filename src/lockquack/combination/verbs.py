"""The functions that combine models: ``lock``, ``quack`` and ``combine``; and ``load``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from lockquack.arithmetic import own_arithmetic
from lockquack.combination.combination import Combination
from lockquack.draws.blocks import Kind
from lockquack.files.fits import read_fit
from lockquack.methods.bench import distance_for, why_no_densities
from lockquack.methods.fit import fit
from lockquack.methods.method import Method, method_for
from lockquack.models.model import Model, sources_of
from lockquack.operators import Locking, Operator, Superposition, get_operator
from lockquack.prediction.members import are_evaluable
from lockquack.rules import Rule, get_rule
from lockquack.sources.reading import as_models

#: Name → model, or what :func:`lockquack.sources.reading.as_model` makes one of.
Models = Mapping[str, Any]
Prior = float | Sequence[float] | Mapping[str, float]
Shrinkage = float | Literal["auto"]
Gate = Literal["simplex", "softmax"]


@own_arithmetic
def lock(
    models: Models,
    *,
    rule: Rule | str = "hyvarinen",
    weights: Literal["simplex", "nonnegative", "softmax"] = "simplex",
    prior: Prior | None = None,
    scores: Kind = "loo",
    scale: ArrayLike | None = None,
    by: Any = None,
    shrinkage: Shrinkage = "auto",
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
    model is true. For positive and bounded outcomes the score is that of log y or logit y. The
    Hyvärinen score is not for likelihoods that are discrete or have kinks: such models are
    refused, and the message names another rule.

    Parameters
    ----------
    models
        Name → model, all for the same observations: as made by :func:`from_pymc`,
        :func:`from_family` and their relatives; or an InferenceData or DataTree of ArviZ, the path
        of a NetCDF file or Zarr store, an ``ELPDData``, as they are, where these hold enough.
    rule
        The score: ``"hyvarinen"``, ``"log"`` (exact, with a normaliser for each observation;
        also for counts), or a rule such as ``Hyvarinen(transform=None)``, which scores y itself.
    weights
        ``"nonnegative"`` frees the sum of the weights; see :class:`Locking`. ``"softmax"``, with
        ``by``, makes them a softmax of functions of the covariates under hierarchical priors, which
        is sampled; the combination then has the posterior means of the weights. Needs nutpie:
        ``pip install 'lockquack[nuts]'``.
    prior
        Concentration of the Dirichlet prior on the weights, at least 1: one number for all
        models, one for each in their order, or by name (dict, Series, DataArray). By default
        1.01. At 1 the prior is flat and weights can be exactly zero.
    scores
        ``"loo"`` for leave-one-out, ``"in-sample"``, or ``"held-out"`` if the observations were
        not used to fit the models; ``"prequential"`` is the same where each is predicted from all
        before it, and refused where a model does otherwise.
    scale
        Unit of the outcome, one number or one per component; by default its standard deviation.
    by
        Covariates that the weights may depend on, one value for each observation: an array,
        Series, DataFrame or DataArray (numbers become splines, anything else groups), or
        :class:`Groups`, :class:`Spline` and :class:`Features`, added with ``+``: the weights of
        several covariates are averaged, so leave out those without information. They are shrunk
        towards common weights by an amount that cross-validation chooses.
    shrinkage
        How much they are shrunk: ``"auto"``, or λ in units of the score; 0 fits every
        group alone, infinity is one weight for all.
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
    is_gate = isinstance(weights, str) and weights == "softmax"  # an array is neither
    method = _method(Locking("simplex" if is_gate else weights), rule, scale)  # type: ignore[arg-type]
    gate: Gate = "softmax" if is_gate else "simplex"
    return combine_by(
        models,
        method,
        prior=prior,
        scores=scores,
        random_seed=random_seed,
        progressbar=progressbar,
        by=by,
        shrinkage=shrinkage,
        weights=gate,
    )


@own_arithmetic
def combine(
    models: Models,
    operator: Operator | str = "locking",
    rule: Rule | str | None = None,
    *,
    prior: Prior | None = None,
    scores: Kind = "loo",
    scale: ArrayLike | None = None,
    by: Any = None,
    shrinkage: Shrinkage = "auto",
    weights: Gate = "simplex",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    """Combine models by an operator, with weights fitted by a rule.

    Convex pairs are certified. For the others the table says how many of several starts agree on
    the solution; few is a reason for doubt.

    Parameters
    ----------
    models
        As for :func:`lock`.
    operator
        How the densities are pooled: an operator or its name.
    rule
        The score that the weights maximise: a rule or its name. By default the one that usually
        goes with the operator: ``"hyvarinen"`` for locking and the hybrid, ``"crps"`` for averages
        of quantiles, else ``"log"``; for mixtures of models of which one has no densities
        ``"crps"``, or ``"energy"`` for vectors.
    prior
        As for :func:`lock`; by default 1 for the mixture by the log score, which is then
        :func:`stack`, and 1.01 for all others.
    scores, scale, by, shrinkage, random_seed, progressbar
        As for :func:`lock`.
    weights
        ``"simplex"``, as the operator has it, or ``"softmax"`` as for :func:`lock`.

    Returns
    -------
    Combination
        The weights, their uncertainty, the scores and the certificate.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.combine(lq.example_models(), lq.Hoelder(-1), lq.LogScore())
    >>> fit.weights.round(1).to_series().to_dict()
    {'first': 0.3, 'second': 0.7}

    Names do as well, and a misspelt one is noticed:

    >>> lq.combine({}, "loking")
    Traceback (most recent call last):
    lockquack.errors.UnknownNameError: Unknown operator 'loking'. Did you mean 'locking'? ...
    """
    operator = get_operator(operator)
    models = as_models(models)
    if rule is None and operator.normalised:
        rule = rule_without_densities(models)
    method = _method(operator, rule, scale)
    return combine_by(
        models,
        method,
        prior=prior,
        scores=scores,
        random_seed=random_seed,
        progressbar=progressbar,
        by=by,
        shrinkage=shrinkage,
        weights=weights,
    )


@own_arithmetic
def quack(
    models: Models,
    *,
    rule: Rule | str | None = None,
    phases: ArrayLike | None = None,
    prior: Prior | None = None,
    scores: Kind = "loo",
    scale: ArrayLike | None = None,
    by: Any = None,
    shrinkage: Shrinkage = "auto",
    weights: Gate = "simplex",
    random_seed: int = 0,
    progressbar: bool | None = None,
) -> Combination:
    r"""Combine models by quantum superposition, with fitted weights and phases.

    .. math:: q(y) \propto \Bigl|\sum_k \sqrt{w_k\, \pi_k(y)}\, e^{i\alpha_k}\Bigr|^2

    By default the rule is the log score where all models can be evaluated away from the observed
    outcomes (the normaliser is then a closed form), and the Hyvärinen score otherwise; the
    table says which. The problem is not convex: the table says how many starts agree.

    For models that cannot be evaluated elsewhere, only bounds on the normaliser, and so on the log
    score, are known. Unless you ask for the Hyvärinen score by name, the result is then the best
    pool whose log score is certainly not more than 4 below that of the best model alone, if
    necessary that model itself; a remark says so.

    Phases of models that hardly overlap, or that get almost no weight, mean nothing.

    Parameters
    ----------
    models
        As for :func:`lock`.
    rule
        The score, or None to choose as above.
    phases
        None to fit the phases; or given angles, such as 0 for all.
    prior, scores, scale, by, shrinkage, random_seed, progressbar
        As for :func:`lock`.
    weights
        As for :func:`combine`.

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
    >>> bool(abs(fit.parameters["phases"]).max() > 1.0)  # what they share cancels
    True

    References
    ----------
    Yao, Carvalho, Mesquita, McLatchie (2023), arXiv:2305.07334.
    """
    models = as_models(models)
    chosen = rule is None
    if rule is None:
        rule = "log" if are_evaluable(sources_of(models)) else "hyvarinen"
        scale = None if rule == "log" else scale  # it belongs to the score that was not chosen
    method = replace(_method(Superposition(phases), rule, scale), must_beat_best_model=chosen)
    return combine_by(
        models,
        method,
        prior=prior,
        scores=scores,
        random_seed=random_seed,
        progressbar=progressbar,
        by=by,
        shrinkage=shrinkage,
        weights=weights,
    )


@own_arithmetic
def load(path: str | Path) -> Combination:
    """Read a combination that :meth:`Combination.save` wrote.

    Everything but the models' draws is there: weights, scores, table, remarks, bootstrap.

    Parameters
    ----------
    path
        The file or store.

    Returns
    -------
    Combination
        Its ``models`` are None: it cannot be evaluated at other outcomes.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fit.save(f"{folder}/fit.nc")
    ...     lq.load(f"{folder}/fit.nc").names
    ('first', 'second')
    """
    return Combination._of(read_fit(path))


def rule_without_densities(models: Mapping[str, Model]) -> Rule | None:
    """Return the rule for mixtures of models of which one has no densities; None: all have some."""
    sources = sources_of(models)
    return distance_for(sources) if why_no_densities(sources) else None


def _method(operator: Operator, rule: Rule | str | None, scale: ArrayLike | None) -> Method:
    method = method_for(operator, None if rule is None else get_rule(rule))
    return method if scale is None else replace(method, rule=method.rule.with_scale(scale))


def combine_by(
    models: Models,
    method: Method,
    *,
    prior: Prior | None = None,
    scores: Kind,
    random_seed: int,
    progressbar: bool | None,
    by: Any = None,
    shrinkage: Shrinkage = "auto",
    weights: Gate = "simplex",
) -> Combination:
    """Combine models, of whatever kind, by a method."""
    return Combination._of(
        fit(
            as_models(models),
            method,
            prior=prior,
            scores=scores,
            by=by,
            shrinkage=shrinkage,
            weights=weights,
            random_seed=random_seed,
            progressbar=progressbar,
        )
    )
