"""Methods of a combination whose weights depend on covariates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr

from lockquack.errors import ParameterError, ShapeError, UnsupportedError, unknown_name
from lockquack.fitting.basis import Basis
from lockquack.fitting.gated import GatedFitter
from lockquack.fitting.recalibration import recalibrated
from lockquack.fitting.varying import VaryingFitter
from lockquack.jets import Array
from lockquack.models.design import CovariateValues, Design
from lockquack.models.observations import Observations
from lockquack.numeric import as_probability
from lockquack.operators.pool import Pool
from lockquack.remarks import warn
from lockquack.remarks.weights import UnseenGroups

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination


def weights_at(self: Combination, by: Any = None, *, prob: float = 0.9) -> xr.Dataset:
    """Weights at values of the covariates, with intervals from the Bayesian bootstrap.

    Where the shrinkage was chosen by cross-validation, every replicate chooses it again, by the
    held-out scores of the fit; a given one is kept. The functions of the covariates are kept
    always: the knots, the degree, the groups. Intervals of a softmax gate are of its posterior;
    groups that were not seen are then drawn from the population of groups.

    Parameters
    ----------
    by
        Covariates of other observations, given as for :func:`lock`, or by name: a DataFrame or a
        dict. Without, all groups, and a grid over the range of each number; where there are
        several covariates, the others are then held at the average of their functions.
    prob
        Probability of the intervals.

    Returns
    -------
    xarray.Dataset
        ``weight``, ``weight_se``, ``low`` and ``high``, over ``model`` and the covariate, or over
        ``row`` where there are several covariates.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> side = lq.Groups(np.where(np.arange(40) < 20, "left", "right"), name="side")
    >>> fit = lq.stack(lq.example_models(), by=side, shrinkage=5.0)
    >>> found = fit.weights_at()
    >>> dict(found.sizes), found["side"].values.tolist()
    ({'model': 2, 'side': 2}, ['left', 'right'])
    >>> fit.weights_at(["right"])["weight"].shape
    (2, 1)
    """
    design = require_design(self)
    if by is None:
        return _weights_there(self, design.over_each(), prob)
    _tell_of_unseen(self, design, by)
    return _weights_there(self, design.at(by), prob)


def weights_over(fit: Combination, covariate: str | None, prob: float) -> xr.Dataset:
    """Weights over the range of one covariate, by name; it may be left out if there is one."""
    design = require_design(fit)
    if covariate is None and len(design.terms) > 1:
        raise ParameterError(
            f"The weights depend on {design.title}; say over which to draw them, such as "
            f"{design.names[0]!r}."
        )
    name = design.names[0] if covariate is None else covariate
    if name not in design.names:
        raise unknown_name("covariate", name, design.names)
    return _weights_there(fit, design.over(name), prob)


def _weights_there(fit: Combination, at: CovariateValues, prob: float) -> xr.Dataset:
    share = as_probability("prob", prob)
    weights = pool_at(fit, at.basis).weights
    known = {"weight": weights, **_spread(fit, at.basis, share)}
    return _labelled(known, at, fit.names).assign_attrs(prob=share)


def require_design(fit: Combination) -> Design:
    """Return the covariates of a fit that has some."""
    if fit.design is None:
        raise UnsupportedError(
            "The weights of this combination do not depend on covariates; fit them with by=."
        )
    return fit.design


def pool_at(fit: Combination, basis: Basis) -> Pool:
    """Return the pool at other observations, where the functions of covariates are known."""
    parameters = _varied(fit).parameters_at(fit.solution.x, basis)
    return recalibrated(Pool(fit.operator, parameters, fit.objective.K), fit.recalibration)


def read_new(fit: Combination, by: Any, observations: Observations | None = None) -> Basis:
    """Read covariates of new observations."""
    design = require_design(fit)
    if by is None:
        raise ParameterError(
            f"The weights depend on {design.title}: give its values at the new observations, by=."
        )
    basis = design.basis(design.read(by, observations))
    if observations is not None and basis.share.shape[0] != observations.n:
        raise ShapeError(
            f"by is of {basis.share.shape[0]} observations, the new data are of {observations.n}."
        )
    _tell_of_unseen(fit, design, by)
    return basis


def what_varies(fit: Combination) -> str:
    """Say what the weights depend on, and whether the data ask for it."""
    return f"Weights by {require_design(fit).title}: {_varied(fit).worth_in_words}"


def _varied(fit: Combination) -> VaryingFitter | GatedFitter:
    return cast("VaryingFitter | GatedFitter", fit.fitter)


def _tell_of_unseen(fit: Combination, design: Design, by: Any) -> None:
    drawn = fit.fitter.parameter_draws is not None
    found = design.unseen(by)
    warn(*(UnseenGroups(name, labels, drawn) for name, labels in found.items()))


def _spread(fit: Combination, basis: Basis, prob: float) -> dict[str, Array]:
    """Find standard errors and ends of intervals of the weights."""
    draws = fit._parameter_draws
    shape = (len(fit.names), basis.share.shape[0])
    if draws is None:
        return {name: np.full(shape, np.nan) for name in ("weight_se", "low", "high")}
    there = _varied(fit).spread_draws(draws, basis)
    weights = np.stack([fit.operator.weights(x, fit.objective.K) for x in there])
    low, high = np.quantile(weights, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    return {"weight_se": weights.std(axis=0, ddof=1), "low": low, "high": high}


def spread_of_weights(fit: Combination, draws: Array) -> Array:
    """Find standard deviations of the weights at the observations, (K, n), of parameters."""
    # One draw after the other: at many observations they do not fit into memory together.
    first: Array | float = 0.0
    second: Array | float = 0.0
    for each in draws:
        apart = fit.objective.weights(each) - fit.pool.weights
        first, second = first + apart, second + apart**2
    variance = (second - first**2 / len(draws)) / (len(draws) - 1)
    return np.sqrt(np.maximum(variance, 0.0))


def _labelled(values: dict[str, Array], at: CovariateValues, names: tuple[str, ...]) -> xr.Dataset:
    dim = f"{at.dim}_" if at.dim == "model" else at.dim
    coords = {dim if name == at.dim else name: each for name, each in at.coords.items()}
    return xr.Dataset(
        {name: (("model", dim), each) for name, each in values.items()},
        coords={"model": list(names), **{name: (dim, each) for name, each in coords.items()}},
    )
