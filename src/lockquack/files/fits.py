"""Reading and writing combinations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse

from lockquack.errors import FileError, naming
from lockquack.files.contents import (
    DAMAGED,
    Contents,
    making_sense_of,
    read_kind,
    require_unchanged,
    signed,
)
from lockquack.files.formats import FORMAT_KEY, is_combination, read_dataset, write
from lockquack.fitting.basis import Basis, Term
from lockquack.fitting.densities import Densities, ranks_of
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.fitters import fitter_for, varying_fitter_for
from lockquack.fitting.formulas import GivenWeights
from lockquack.fitting.gate import GatedObjective
from lockquack.fitting.gated import GatedFitter
from lockquack.fitting.objective import Objective
from lockquack.fitting.recalibration import RECALIBRATED, BetaFit, Recalibration
from lockquack.fitting.shrinkage import NOTHING_HELD_OUT, HeldOut
from lockquack.jets import Array, Jet
from lockquack.methods.fitted import Fitted
from lockquack.methods.method import METHODS, Varying
from lockquack.models.design import Design
from lockquack.models.observations import Observations, as_observations, unknown_outcomes
from lockquack.operators import Operator
from lockquack.quadrature.nodes import Table, join_tables
from lockquack.remarks import Remark, read_remark
from lockquack.rules import RULES, Rule
from lockquack.rules.wishes import WISHES, Wish
from lockquack.solvers.base import Solution

_FORMAT = 6
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
            "ways": json.dumps(fit.left_out_by),
            "by": json.dumps(_covariates(fit)),
            "recalibration": json.dumps(_recalibration(fit)),
        },
    )
    write(signed(dataset), path)


def _covariates(fit: Fitted) -> dict[str, Any] | None:
    """All that is known of covariates that the weights depend on, but the covariates themselves."""
    basis = fit.fitter.basis
    if fit.design is None or basis is None:
        return None
    terms = [[term.size, term.likeness] for term in basis.terms]
    return {"design": fit.design.describe(), "terms": terms, **fit.fitter.record}


def _recalibration(fit: Fitted) -> dict[str, Any] | None:
    """All that is known of how a combination was recalibrated, but what differs by observation."""
    found = fit.recalibration
    if found is None:
        return None
    beta = found.beta
    return {
        "a": beta.a,
        "b": beta.b,
        "cov": beta.cov.tolist(),
        "p_value": beta.p_value,
        "before": found.before,
        "after": found.after,
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
    for name, values in fit.fitter.arrays.items():
        arrays[name] = (tuple(f"{_OWN}{name}_{axis}" for axis in range(values.ndim)), values)
    basis = fit.fitter.basis
    if basis is not None:
        arrays["share"] = (_SHARE, basis.share.data)
        arrays["share_function"] = (_SHARE, basis.share.indices)
        arrays["share_start"] = (_ROW, basis.share.indptr)
    if fit.recalibration is not None:
        arrays["recalibrated_scores"] = (_OBS, fit.recalibration.scores)
        arrays["recalibration_gains"] = (_OBS, fit.recalibration.beta.gains)
    if fit._saved_log_scores is not None:
        arrays["log_scores"] = ((f"{_OWN}predictor", _OBS), fit._saved_log_scores)
    for wish, groups in densities.tables.items():
        table = join_tables(groups)
        for name, axes in table.axes.items():
            arrays[f"{wish.name}_{name}"] = (_dims(wish, axes), getattr(table, name))
    return arrays


def read_fit(path: str | Path) -> Fitted:
    """Read a combination; see :func:`lockquack.load`."""
    dataset = read_dataset(path)
    with naming(str(path)):
        _require_known(dataset.attrs)
        fitted = _rebuild(Contents(dataset, _OWN), _names(dataset))
        require_unchanged(dataset)
    return fitted


def _require_known(attrs: Mapping[Any, Any]) -> None:
    """Refuse what is no combination, or one that this version cannot read."""
    if not is_combination(attrs):
        raise FileError(
            "This does not hold a combination. Models are read by lq.from_datatree, the sums of "
            "running_lock by lq.RunningLock.load."
        )
    version = attrs[FORMAT_KEY]
    if isinstance(version, int | np.integer) and version > _FORMAT:
        raise FileError(
            f"A later version of lockquack wrote this, in the format {version}; this version reads "
            f"the format {_FORMAT}. Install the later version, or fit again."
        )
    if not isinstance(version, int | np.integer) or version != _FORMAT:
        raise FileError(
            f"This combination is in the format {version}; this version of lockquack reads the "
            f"format {_FORMAT}. Fit again."
        )


def _names(dataset: xr.Dataset) -> tuple[str, ...]:
    if "model" not in dataset.coords:
        raise FileError(f"The names of the models are not there. {DAMAGED}")
    with making_sense_of("the names of the models"):
        return tuple(map(str, dataset["model"].values.tolist()))


def _rebuild(contents: Contents, names: tuple[str, ...]) -> Fitted:
    observations = _observations(contents)
    fitter = _fitter(contents, _objective(contents, names, observations.n))
    starts = contents.json("starts")
    return Fitted(
        names=names,
        scores=contents.attribute("scores", read_kind),
        label=contents.text("label"),
        observations=observations,
        fitter=fitter,
        solution=Solution(
            x=_parameters(contents, fitter.objective),
            objective=contents.number("objective"),
            gap=contents.number("gap"),
            scale=contents.number("objective_scale"),
            converged=contents.number("converged") != 0,
            iterations=contents.number("iterations").astype(int),
            status=np.array(contents.text("status")),
            starts=None if starts is None else tuple(starts),
            stationarity=float(contents.number("stationarity")),
        ),
        mcse=contents.array("mcse", (len(names),)),
        remarks=contents.attribute("remarks", _read_remarks),
        random_seed=contents.json("random_seed"),
        models=None,
        left_out_by=tuple(map(str, contents.json("ways"))),
        design=contents.attribute("by", _read_design),
        recalibration=_read_recalibration(contents, observations.n),
        _saved_log_scores=_read_log_scores(contents, (1 + len(names), observations.n)),
    )


def _read_log_scores(contents: Contents, shape: tuple[int, int]) -> Array | None:
    """Read log scores beside the scores of the fit, which a file need not hold."""
    return contents.array("log_scores", shape) if "log_scores" in contents.arrays else None


def _read_recalibration(contents: Contents, n_obs: int) -> Recalibration | None:
    known = contents.json("recalibration")
    if known is None:
        return None
    scores, gains = (
        contents.array(name, (n_obs,)) for name in ("recalibrated_scores", "recalibration_gains")
    )
    with making_sense_of("the attribute 'recalibration'"):
        a, b, p_value, before, after = (
            float(known[name]) for name in ("a", "b", "p_value", "before", "after")
        )
        cov = np.array(known["cov"], dtype=np.float64).reshape(2, 2)
        if not (a > 0 and b > 0):
            raise ValueError
        return Recalibration(BetaFit(a, b, cov, gains, p_value), scores, before, after)


def _observations(contents: Contents) -> Observations:
    contents.array("y")
    component_dim, outcome = contents.text("component_dim"), contents.text("outcome")
    dims = contents.json("obs_dims")
    with making_sense_of("the observations"):
        y = contents.arrays["y"].transpose(*dims, ...).rename(outcome or None)
        if not y.notnull().all():
            return unknown_outcomes(y)
        observations = as_observations(y, component_dim or None)
        if "case_weights" not in contents.arrays:
            return observations
        return observations.weighted(contents.array("case_weights", (observations.n,)))


def _objective(contents: Contents, names: tuple[str, ...], n_obs: int) -> Objective:
    """Rebuild what the parameters minimise."""
    shape = (len(names), n_obs)
    logp = contents.array("logp", shape)
    grad = curv = np.zeros((*shape, 0))
    if {"grad", "curv"} & contents.arrays.keys():
        curv = contents.array("curv")
        grad = contents.array("grad", (*shape, *curv.shape[2:]))
    tables = {
        wish: (_table(contents, wish, shape),)
        for name, wish in WISHES.items()
        if {f"{name}_{each}" for each in wish.table.axes} & contents.arrays.keys()
    }
    weights = contents.array("case_weights") if "case_weights" in contents.arrays else None
    return Objective(
        contents.attribute("operator", _read_operator),
        _rule(contents),
        Densities(Jet(logp, grad, curv), tables, weights, ranks_of(names)),
        contents.array("concentration", shape[:1]),
    )


def _table(contents: Contents, wish: Wish, shape: tuple[int, int]) -> Table:
    """Read what was found for a wish; where arrays have an axis in common, it is of one size."""
    sizes, arrays = dict(zip("kn", shape, strict=True)), {}
    for name, axes in sorted(wish.table.axes.items(), key=lambda each: len(each[1])):
        found = contents.array(f"{wish.name}_{name}")
        with making_sense_of(f"the array {wish.name}_{name}"):
            sizes = {**dict(zip(axes, found.shape, strict=True)), **sizes}
        expected = tuple(sizes[axis] for axis in axes)
        arrays[name] = contents.array(f"{wish.name}_{name}", expected)
    return wish.table(**arrays)


def _dims(wish: Wish, axes: str) -> tuple[str, ...]:
    """Name the axes of a table; a second axis of models has a name of its own."""
    names = {"k": "model", "n": _OBS, "m": f"{_OWN}{wish.name}"}
    return tuple(
        names[axis] if axis not in axes[:at] else f"{_OWN}{wish.name}_other"
        for at, axis in enumerate(axes)
    )


def _parameters(contents: Contents, objective: Objective) -> Array:
    """Read the parameters, one for all observations or one for each; refuse what are none."""
    x: Array = contents.array("parameters")
    with making_sense_of("the parameters"):
        complaint = objective.space.complaint(x)
    if complaint or x.shape[1:] not in ((), (objective.n_obs,)):
        raise FileError(
            f"These are no parameters of {objective.operator}: {complaint or 'the shape is wrong'}"
            f" (of shape {x.shape}, summing to {x.sum():g}). {DAMAGED}"
        )
    return x


def _fitter(contents: Contents, objective: Objective) -> Fitter:
    options, known = contents.json("fitter_options"), contents.json("by")
    if known is not None:
        with making_sense_of("the attribute 'by'"):
            return _varying_fitter(objective, known, contents, options)
    method = METHODS.get(contents.text("label").removesuffix(RECALIBRATED))
    kind = (method and method.fitter) or fitter_for(objective.operator, objective.rule)
    kind = GivenWeights if set(options) == set(GivenWeights.wants) else kind
    with making_sense_of("the attribute 'fitter_options'"):
        given = {name: np.array(v) if isinstance(v, list) else v for name, v in options.items()}
        return kind(objective, **given)


def _varying_fitter(
    objective: Objective, known: Mapping[str, Any], contents: Contents, options: Mapping[str, Any]
) -> Fitter:
    """Rebuild the objective of weights that depend on covariates."""
    terms = tuple(Term(size, likeness) for size, likeness in known["terms"])
    shape = (objective.n_obs, sum(term.size for term in terms))
    parts = tuple(map(contents.array, ("share", "share_function", "share_start")))
    basis = Basis(sparse.csr_array(parts, shape=shape), terms)
    if "gate" in known:
        draws, start = contents.array("gates"), contents.array("gate_start")
        gated = GatedObjective(**objective.common_fields(), basis=basis)
        return GatedFitter.from_record(gated, start, draws, known["gate"])
    varying = Varying(basis, known["shrinkage"])
    fitter = varying.pose(objective, varying_fitter_for(objective.operator, objective.rule))
    seed = options["folds_seed"]
    held_out = None if seed is None else _read_held_out(contents)
    return replace(fitter, folds_seed=seed, held_out=held_out)


def _read_held_out(contents: Contents) -> HeldOut:
    """Read the scores that λ was chosen by; of too few observations there are none."""
    if "held_out" not in contents.arrays:
        return NOTHING_HELD_OUT
    grid, rows = contents.array("shrinkages"), contents.array("held_out_rows")
    apart = contents.array("held_out", (grid.size, rows.size))
    return HeldOut(grid, apart, rows.astype(np.intp))


def _rule(contents: Contents) -> Rule:
    kind = contents.attribute("rule", RULES.__getitem__)
    return contents.attribute("rule_options", lambda text: kind.from_options(json.loads(text)))


def _read_operator(text: str) -> Operator:
    return Operator.from_description(json.loads(text))


def _read_remarks(text: str) -> tuple[Remark, ...]:
    return tuple(map(read_remark, json.loads(text)))


def _read_design(text: str) -> Design | None:
    known = json.loads(text)
    return None if known is None else Design.from_description(known["design"])
