"""From models to a combination: checks, the pass over draws, the fit, the remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from lockquack.checks.models import check_models, kind_of_scores, suited_rule
from lockquack.draws.blocks import Kind
from lockquack.errors import ParameterError, unknown_name
from lockquack.jets import Array
from lockquack.methods.examine import examine
from lockquack.methods.fitted import Fitted
from lockquack.methods.gather import Gathered, gather, unit_of
from lockquack.methods.method import Method, Varying
from lockquack.methods.solving import solve
from lockquack.models.design import Design, missing_numbers, read_by
from lockquack.models.leaving_out import lines_about_left_out
from lockquack.models.model import Model, already_said, sources_of
from lockquack.models.observations import Observations, agreed
from lockquack.models.source import Source
from lockquack.numeric import as_numeric
from lockquack.prediction.members import are_evaluable
from lockquack.prediction.monte_carlo import errors_of_distances
from lockquack.registry import require_known
from lockquack.remarks import warn
from lockquack.remarks.weights import MissingCovariate

#: How weights that depend on covariates are made: averages of weights that are on the simplex, or
#: a softmax.
SIMPLEX, SOFTMAX = "simplex", "softmax"


def fit(
    models: Mapping[str, Model],
    method: Method,
    *,
    prior: Any = None,
    scores: Kind = "loo",
    by: Any = None,
    shrinkage: float | Literal["auto"] = "auto",
    weights: str = SIMPLEX,
    random_seed: int = 0,
    progressbar: bool | None = None,
    quiet: bool = False,
) -> Fitted:
    """Check the models, collapse their draws, solve for the parameters, remark on the result.

    Unless it should be quiet, remarks are warned of.
    """
    require_seed(random_seed)
    remarks = check_models(models, method.rule)
    scores = kind_of_scores(models, scores)
    names = tuple(models)
    concentration = read_concentration(method.concentration if prior is None else prior, names)
    method = replace(method, rule=suited_rule(method.rule, sources_of(models))).for_models(names)
    observations = agreed(model.observations for model in models.values())
    require_known("kind of weights", weights, (SIMPLEX, SOFTMAX))
    if weights != SIMPLEX:
        _require_gate(by, shrinkage, prior)
    design, method = vary(method, by, shrinkage, observations, random_seed, weights)
    gathered = gather(models, method.operator, method.rule, scores, progressbar, int(random_seed))
    solved = solve(sources_of(models), method, gathered, concentration, loo=scores == "loo")
    unit = unit_of(method.rule, observations)
    mcse = _monte_carlo_errors(sources_of(models), method, gathered, unit, scores, int(random_seed))
    found = Fitted(
        names=names,
        scores=scores,
        label=method.label,
        observations=observations,
        fitter=solved.fitter,
        solution=solved.solution,
        mcse=mcse,
        remarks=(),
        random_seed=int(random_seed),
        models=dict(models),
        left_out_by=tuple(lines_about_left_out(sources_of(models), scores)),
        design=design,
    )
    missing = missing_numbers(by, observations).items()
    remarks += [MissingCovariate(name, count, observations.n) for name, count in missing]
    remarks += [*solved.remarks, *examine(found, solved.gathered)]
    if not quiet:
        warn(*remarks, already_said=already_said(models))
    return replace(found, remarks=tuple(remarks))


def vary(
    method: Method,
    by: Any,
    shrinkage: float | Literal["auto"],
    observations: Observations,
    random_seed: int,
    weights: str = SIMPLEX,
) -> tuple[Design | None, Method]:
    """Let the weights of a method depend on covariates of the observations, if there are any."""
    if by is None:
        if read_shrinkage(shrinkage) is not None:
            raise ParameterError("shrinkage is for weights that depend on covariates; give by=.")
        return None, method
    design, basis = read_by(by, observations)
    varying = Varying(basis, read_shrinkage(shrinkage), random_seed, weights == SOFTMAX)
    varied = method.varied(varying, design.names)
    _ = varied.kind  # refused before any work is done
    return design, varied


def _monte_carlo_errors(
    models: Mapping[str, Source],
    method: Method,
    gathered: Gathered,
    unit: Array,
    scores: Kind,
    random_seed: int,
) -> Array:
    """Monte Carlo standard errors of the models' total scores, (K,)."""
    rule, operator = method.rule, method.operator
    if not rule.is_by_distance:
        return np.array([rule.mcse(each, unit) for each in gathered.collapsed])
    return errors_of_distances(
        models,
        unit,
        loo=scores == "loo",
        random_seed=random_seed,
        by_draws=operator.of_densities and not are_evaluable(models),
    )


def _require_gate(by: Any, shrinkage: Any, prior: Any) -> None:
    """Refuse what does not go with weights by a softmax."""
    if by is None:
        raise ParameterError(
            "weights='softmax' is for weights that depend on covariates; give by=. The posterior "
            "of constant weights is fit.posterior()."
        )
    if read_shrinkage(shrinkage) is not None:
        raise ParameterError(
            "weights='softmax' finds out by itself how much weights differ, under its prior; "
            "leave shrinkage out."
        )
    if prior is not None:
        raise ParameterError(
            "weights='softmax' has the hierarchical prior of its effects in place of a Dirichlet "
            "prior; leave prior out."
        )


def read_shrinkage(shrinkage: Any) -> float | None:
    """Read λ; None where it is to be chosen."""
    if isinstance(shrinkage, str) and shrinkage == "auto":
        return None
    if not isinstance(shrinkage, int | float | np.number) or not shrinkage >= 0:
        raise ParameterError(
            f"shrinkage must be 'auto' or a number from 0 to infinity; got {shrinkage!r}."
        )
    return float(shrinkage)


def require_seed(random_seed: Any) -> None:
    """Refuse a seed that is not a non-negative integer."""
    if not isinstance(random_seed, int | np.integer) or random_seed < 0:
        raise ParameterError(f"random_seed must be an integer from 0; got {random_seed!r}.")


def read_concentration(prior: Any, names: tuple[str, ...], *, for_a_mode: bool = True) -> Array:
    """Read the prior as one concentration per model; labels decide where there are any.

    Below 1 it has no mode inside, and is for drawing only.
    """
    values = as_numeric("prior", by_model("prior", prior, names), ParameterError)
    if values.shape not in ((), (len(names),)):
        raise ParameterError(
            f"prior must be one concentration or {len(names)}, one per model; got the shape "
            f"{values.shape}."
        )
    if not for_a_mode:
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ParameterError(
                f"The Dirichlet concentrations of the prior must be finite and positive; got "
                f"{prior}."
            )
    elif not (np.isfinite(values).all() and (values >= 1).all()):
        raise ParameterError(
            f"The Dirichlet concentrations of the prior must be finite and at least 1, or the "
            f"problem would not be convex; got {prior}. Use 1 for a flat prior."
        )
    return np.broadcast_to(values, (len(names),)).astype(np.float64)


def by_model(what: str, given: Any, names: tuple[str, ...]) -> Any:
    """Bring values that are labelled with the models' names into their order."""
    if isinstance(given, xr.DataArray):
        given = given.to_series() if given.ndim else given.values
    if isinstance(given, pd.Series):
        given = given.to_dict()
    if not isinstance(given, Mapping):
        return given
    unknown = [name for name in given if name not in names]
    if unknown:
        raise unknown_name(f"model in {what}", unknown[0], names)
    missing = [name for name in names if name not in given]
    if missing:
        raise ParameterError(f"The {what} says nothing about model {missing[0]!r}.")
    return [given[name] for name in names]


def log_probabilities(models: Mapping[str, Model], given: Any, model_prior: Any) -> Array:
    """Log marginal likelihoods plus log prior probabilities, (K,)."""
    names = tuple(models)
    if given is None:
        found = {name: model.log_marginal_likelihood for name, model in models.items()}
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
