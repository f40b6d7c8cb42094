"""Reading and writing combinations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse

from lockquack.errors import LockquackError
from lockquack.files.formats import FORMAT_KEY, is_combination, read_dataset, write
from lockquack.fitting.basis import Basis, Term
from lockquack.fitting.densities import Densities, places_of
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.fitters import fitter_for, varying_fitter_for
from lockquack.fitting.objective import Objective
from lockquack.fitting.shrinkage import Choice
from lockquack.fitting.varying import VaryingFitter
from lockquack.jets import Array, Jet
from lockquack.methods.fitted import Fitted
from lockquack.methods.method import METHODS, Varying
from lockquack.models.design import Design
from lockquack.models.observations import Observations, as_observations, unknown_outcomes
from lockquack.operators import Operator
from lockquack.quadrature.nodes import Nodes, join_nodes
from lockquack.remarks import read_remark
from lockquack.rules import RULES
from lockquack.rules.wishes import WISHES
from lockquack.solvers.base import Solution

_FORMAT = 3
#: What begins the names of all that is in a file, so that no dimension of the user's is called so.
_OWN = "lockquack_"
_PARAMETER, _OBS, _PART, _SHARE, _ROW = (
    f"{_OWN}{name}" for name in ("parameter", "observation", "part", "entry", "row")
)


def save_fit(fit: Fitted, path: str | Path) -> None:
    """Write a combination to NetCDF or Zarr; see :meth:`Combination.save`."""
    solution = fit.solution
    options = {name: np.asarray(each).tolist() for name, each in fit.fitter.options.items()}
    dataset = xr.Dataset(
        {f"{_OWN}{name}": value for name, value in _arrays(fit).items()},
        coords={"model": list(fit.names)},
        attrs={
            FORMAT_KEY: _FORMAT,
            "operator": json.dumps(fit.operator.describe()),
            "rule": fit.rule.name,
            "rule_options": json.dumps(fit.rule.options),
            "scores": fit.scores,
            "label": fit.label,
            "fitter_options": json.dumps(options),
            "random_seed": json.dumps(fit.random_seed, default=int),  # of any size, or None
            "component_dim": fit.observations.component_dim or "",
            "outcome": fit.observations.name or "",
            "obs_dims": json.dumps(fit.observations.dims),
            "objective": float(solution.objective),
            "gap": float(solution.gap),
            "objective_scale": float(solution.scale),
            "converged": int(bool(solution.converged)),
            "iterations": int(solution.iterations),
            "status": str(solution.status),
            "starts": json.dumps(solution.starts),
            "stationarity": solution.stationarity,
            "remarks": json.dumps([remark.record() for remark in fit.remarks]),
            "by": json.dumps(_covariates(fit)),
        },
    )
    write(dataset, path)


def _covariates(fit: Fitted) -> dict[str, Any] | None:
    """All that is known of covariates that the weights depend on, but the covariates themselves."""
    if fit.design is None or not isinstance(fit.fitter, VaryingFitter):
        return None
    choice, basis = fit.fitter.choice, fit.fitter.objective.basis
    return {
        "design": fit.design.describe(),
        "terms": [[term.size, term.likeness] for term in basis.terms],
        "shrinkage": fit.fitter.objective.shrinkage,
        "choice": None if choice is None else vars(choice),
    }


def _arrays(fit: Fitted) -> dict[str, Any]:
    """All arrays of a combination; those over observations are flat, whatever the user's grid."""
    densities = fit.objective.densities
    arrays: dict[str, Any] = {
        # One for all observations, or one for each.
        "parameters": ((_PARAMETER, _OBS)[: fit.solution.x.ndim], fit.solution.x),
        "concentration": ("model", fit.objective.concentration),
        "mcse": ("model", fit.mcse),
        "y": fit.observations.to_dataarray(),
        "logp": (("model", _OBS), densities.jets.logp),
    }
    if densities.jets.grad.size:
        arrays["grad"] = (("model", _OBS, _PART), densities.jets.grad)
        arrays["curv"] = (("model", _OBS, _PART), densities.jets.curv)
    if fit.observations.weights is not None:
        arrays["case_weights"] = (_OBS, fit.observations.weights)
    if isinstance(fit.fitter, VaryingFitter):
        share = fit.fitter.objective.basis.share
        arrays["share"] = (_SHARE, share.data)
        arrays["share_function"] = (_SHARE, share.indices)
        arrays["share_start"] = (_ROW, share.indptr)
    for wish, groups in densities.tables.items():
        nodes, place = join_nodes(groups), f"{_OWN}{wish.name}"
        arrays[f"{wish.name}_logp"] = (("model", place, _OBS), nodes.logp)
        arrays[f"{wish.name}_log_measure"] = ((place, _OBS), nodes.log_measure)
    return arrays


def read_fit(path: str | Path) -> Fitted:
    """Read a combination; see :func:`lockquack.load`."""
    dataset = read_dataset(path)
    attrs = dataset.attrs
    if attrs.get(FORMAT_KEY) != _FORMAT:
        hint = "" if is_combination(attrs) else " Models are read by lq.from_datatree."
        raise LockquackError(
            f"{path} does not hold a combination that this version can read.{hint}"
        )
    obs_dims = json.loads(attrs["obs_dims"])
    arrays = {str(name).removeprefix(_OWN): array for name, array in dataset.data_vars.items()}
    starts = json.loads(attrs["starts"])
    names = tuple(map(str, dataset["model"].values))
    return Fitted(
        names=names,
        scores=attrs["scores"],
        label=attrs["label"],
        observations=_observations(arrays, obs_dims, attrs),
        fitter=_fitter(attrs, names, {name: array.values for name, array in arrays.items()}),
        solution=Solution(
            x=arrays["parameters"].values,
            objective=np.array(attrs["objective"]),
            gap=np.array(attrs["gap"]),
            scale=np.array(attrs["objective_scale"]),
            converged=np.array(bool(attrs["converged"])),
            iterations=np.array(attrs["iterations"]),
            status=np.array(attrs["status"]),
            starts=None if starts is None else tuple(starts),
            stationarity=float(attrs["stationarity"]),
        ),
        mcse=arrays["mcse"].values,
        remarks=tuple(map(read_remark, json.loads(attrs["remarks"]))),
        random_seed=json.loads(str(attrs["random_seed"])),
        models=None,
        design=_design(attrs),
    )


def _observations(
    arrays: Mapping[str, xr.DataArray], dims: Sequence[str], attrs: Mapping[str, Any]
) -> Observations:
    y = arrays["y"].transpose(*dims, ...).rename(attrs.get("outcome") or None)
    if not y.notnull().all():
        return unknown_outcomes(y)
    observations = as_observations(y, attrs["component_dim"] or None)
    if "case_weights" not in arrays:
        return observations
    return observations.weighted(arrays["case_weights"].values)


def _design(attrs: Mapping[str, Any]) -> Design | None:
    known = json.loads(attrs.get("by", "null"))
    return None if known is None else Design.from_description(known["design"])


def _varying_fitter(
    objective: Objective, known: Mapping[str, Any], arrays: Mapping[str, Array], seed: int | None
) -> Fitter:
    """Rebuild the objective of weights that depend on covariates."""
    terms = tuple(Term(size, likeness) for size, likeness in known["terms"])
    shape = (objective.n_obs, sum(term.size for term in terms))
    parts = (arrays["share"], arrays["share_function"], arrays["share_start"])
    basis = Basis(sparse.csr_array(parts, shape=shape), terms)
    varying = Varying(basis, known["shrinkage"])
    fitter = varying.pose(objective, varying_fitter_for(objective.operator, objective.rule))
    choice = known["choice"]
    if choice is not None:
        choice = Choice.from_record(choice)
    return replace(fitter, folds_seed=seed, choice=choice)


def _fitter(
    attrs: Mapping[str, Any], names: tuple[str, ...], arrays: Mapping[str, Array]
) -> Fitter:
    """Rebuild the objective and its fitter."""
    operator = Operator.from_description(json.loads(attrs["operator"]))
    rule = RULES[attrs["rule"]].from_options(json.loads(attrs["rule_options"]))
    bare = np.zeros((*arrays["logp"].shape, 0))
    jets = Jet(arrays["logp"], arrays.get("grad", bare), arrays.get("curv", bare))
    tables = {
        wish: (Nodes(arrays[f"{name}_logp"], arrays[f"{name}_log_measure"]),)
        for name, wish in WISHES.items()
        if f"{name}_logp" in arrays
    }
    densities = Densities(jets, tables, arrays.get("case_weights"), places_of(names))
    options = json.loads(attrs["fitter_options"])
    objective = Objective(operator, rule, densities, arrays["concentration"])
    known = json.loads(attrs.get("by", "null"))
    if known is not None:
        return _varying_fitter(objective, known, arrays, options["folds_seed"])
    method = METHODS.get(attrs["label"])
    kind = (method and method.fitter) or fitter_for(operator, rule)
    return kind(
        objective,
        **{name: np.array(v) if isinstance(v, list) else v for name, v in options.items()},
    )
