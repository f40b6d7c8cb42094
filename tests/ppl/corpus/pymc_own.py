"""Draws from the prior of a PyMC model, and what PyMC itself computes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.ppl.helpers import container

Array = NDArray[np.float64]
CHAINS, DRAWS = 2, 4
SHAPE = (CHAINS, DRAWS)


def parts(built: Any) -> tuple[Any, dict[str, Any]]:
    """Return a model of the corpus and what is said with it: ``var_name``, perhaps ``draws``."""
    model, said = built if isinstance(built, tuple) else (built, {})
    return model, dict(said)


def prior_draws(model: Any, given: Mapping[str, Array]) -> dict[str, Array]:
    """Draw all parameters forward, (chain, draw, ...), but for those that are given."""
    import pymc as pm

    wanted = [v for v in model.free_RVs if v.name not in given]
    drawn = pm.draw(wanted, draws=CHAINS * DRAWS, random_seed=1, mode="FAST_COMPILE")
    values = {
        v.name: np.asarray(each).reshape(*SHAPE, *np.shape(each)[1:])
        for v, each in zip(wanted, drawn, strict=True)
    }
    return {**values, **given}


def posterior(model: Any, draws: Mapping[str, Array]) -> Any:
    """Hold draws as ``pm.sample`` returns them, with the model's names of axes."""
    named = {}
    for name, values in draws.items():
        dims = model.named_vars_to_dims.get(name) or ()
        own = [f"{name}_dim_{i}" for i in range(values.ndim - 2)]
        axes = [given or other for given, other in zip(dims, own, strict=True)] if dims else own
        named[name] = ("chain", "draw", *axes), values
    return container(named)


def outcomes(model: Any, var_name: str | Sequence[str] | None) -> list[Any]:
    """Return the observed variables that are scored."""
    if var_name is None:
        return list(model.observed_RVs)
    names = [var_name] if isinstance(var_name, str) else list(var_name)
    known = {v.name: v for v in model.observed_RVs}
    return [known.get(name, known.get(f"{name}_observed")) for name in names]


def own_log_likelihood(model: Any, rvs: Sequence[Any], idata: Any) -> list[Array]:
    """Let PyMC compute the log densities of each variable, (chain, draw, ...)."""
    import pymc as pm

    group = pm.compute_log_likelihood(
        idata,
        var_names=[v.name for v in rvs],
        model=model,
        extend_inferencedata=False,
        progressbar=False,
        compile_kwargs={"mode": "FAST_COMPILE"},
    )
    return [group[v.name].values for v in rvs]


def own_density(
    model: Any, rvs: Sequence[Any], draws: Mapping[str, Array]
) -> Callable[[Array], Array]:
    """Make a function of outcomes (obs, component) by PyMC's own log density, term by term.

    The observed values of PyMC's graph are replaced by variables, and nothing else. Where PyMC
    has one density of all outcomes, its result has no axis for observations.
    """
    from pymc.model.transform.conditioning import remove_value_transforms
    from pytensor.compile.sharedvalue import shared
    from pytensor.graph.replace import graph_replace

    plain = remove_value_transforms(model)
    ours = [plain[v.name] for v in rvs]
    values = [plain.rvs_to_values[v] for v in ours]
    observed = [np.asarray(v.eval()) for v in values]
    moved = [shared(value, shape=value.shape, name="outcomes") for value in observed]
    new = [_with_axes_of(old, each) for old, each in zip(values, moved, strict=True)]
    logp = graph_replace(
        plain.logp(vars=ours, sum=False), dict(zip(values, new, strict=True)), strict=False
    )
    names = [plain.values_to_rvs[v].name for v in plain.value_vars]
    function = plain.compile_fn(
        logp,
        inputs=plain.value_vars,
        mode="FAST_COMPILE",
        point_fn=False,
        on_unused_input="ignore",
    )

    def density(y: Array) -> Array:
        start = 0
        for variable, old in zip(moved, observed, strict=True):
            width = old.size // len(y)
            part = y[:, start : start + width]
            variable.set_value(part.reshape(old.shape).astype(old.dtype))
            start += width
        result = []
        for at in np.ndindex(SHAPE):
            terms = [np.asarray(term) for term in function(*(draws[name][at] for name in names))]
            if terms[0].ndim:
                terms = [term.reshape(len(y), -1).sum(axis=1) for term in terms]
            result.append(sum(terms))
        return np.asarray(result).reshape(*SHAPE, *np.shape(result[0]))

    return density


def _with_axes_of(old: Any, new: Any) -> Any:
    """Give a variable the named axes that the other one has, in pymc.dims."""
    if not hasattr(old.type, "dims"):
        return new
    from pytensor.xtensor.basic import xtensor_from_tensor

    return xtensor_from_tensor(new, dims=old.type.dims)
