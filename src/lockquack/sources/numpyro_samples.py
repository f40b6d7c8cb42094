"""The draws that a NumPyro model is given, and the arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from lockquack.errors import (
    LockquackError,
    ParameterError,
    ShapeError,
    UnsupportedError,
    first_line,
)
from lockquack.jets import Numeric
from lockquack.models.containers import divergences, stored_log_likelihood
from lockquack.sources.jax import read_draws
from lockquack.sources.jax_precision import own_arrays
from lockquack.sources.numpyro_sites import Draw, Program, Sites, look
from lockquack.sources.parameters import samples_first

#: How JAX says that a loop does not go on with the types with which it begins.
_TYPES_OF_A_LOOP = r"has type (\w+)\[.*?output carry.*?has type (\w+)\["
#: Latent sites → their values in all draws, (chain, draw, ...), or in one.
Draws = Mapping[str, Numeric]


def float64(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Copy arrays, real ones in double: nothing that a model computes from them is single."""
    import jax

    return {name: jax.tree.map(own_arrays, value) for name, value in kwargs.items()}


def read_samples(model: Program, samples: Any, kwargs: Mapping[str, Any]) -> tuple[Draws, Sites]:
    """Return the draws of the latent sites, (chain, draw, ...), and all sites."""
    given, layouts = _as_dict(samples)
    problems = []
    for grouped in layouts:
        draws = {name: values if grouped else values[None] for name, values in given.items()}
        try:
            sites = _first_look(model, draws, kwargs)
        except Exception as error:
            problems.append(error)
            continue
        return read_draws({name: draws[name] for name in _latents(sites)}), sites
    problem = next((each for each in problems if isinstance(each, LockquackError)), problems[0])
    if isinstance(problem, LockquackError):
        raise problem
    raise _does_not_run(model, given, kwargs, problem) from problem


def _does_not_run(
    model: Program, draws: Draws, kwargs: Mapping[str, Any], problem: Exception
) -> LockquackError:
    """Say in plain words why a model does not run, where that can be found out."""
    missing = _without_draws(model, kwargs, draws)
    if missing:
        return _no_draws(missing, draws)
    if "carry" in str(problem) and (types := re.search(_TYPES_OF_A_LOOP, str(problem))):
        return UnsupportedError(
            f"A loop of the model (scan) begins with numbers of type {types[1]} and goes on with "
            f"{types[2]} in double precision, in which everything is computed here. Let it begin "
            "without a type of its own: jnp.zeros(3) in place of jnp.zeros(3, dtype=jnp.float32), "
            "or dtype=y.dtype."
        )
    shapes = ", ".join(f"{name}: {values.shape}" for name, values in draws.items())
    return LockquackError(
        f"The model does not run with these draws ({shapes}) and the arguments "
        f"{list(kwargs) or 'none'}: {first_line(problem)}. Give all its arguments by model_kwargs=."
    )


def _without_draws(model: Program, kwargs: Mapping[str, Any], draws: Draws) -> list[str]:
    """Find latent sites of which there are no draws, in the session's own precision."""
    import jax
    from numpyro import handlers

    found: dict[str, Any] = {}

    def find() -> None:
        found.update(handlers.trace(handlers.seed(model, 0)).get_trace(**kwargs))

    try:
        jax.eval_shape(find)
    except Exception:  # a model that does not run there either
        return []
    return [
        name
        for name, site in found.items()
        if site["type"] == "sample" and not site["is_observed"] and name not in draws
    ]


def _no_draws(missing: Sequence[str], draws: Mapping[str, Any]) -> ParameterError:
    return ParameterError(
        f"The model has the latent site(s) {', '.join(map(repr, missing))}, of which there are no "
        f"draws; there are draws of {', '.join(draws) or 'nothing'}. Give the model as it was "
        "fitted, with its handlers. A discrete latent site that was summed out must be written as "
        "a mixture, MixtureSameFamily."
    )


def _first_look(model: Program, draws: Draws, kwargs: Mapping[str, Any]) -> Sites:
    first = {name: values[0, 0] for name, values in draws.items()}
    sites = look(model, first, kwargs)
    if not any(site.observed for site in sites.values()):
        raise UnsupportedError(
            "The model has no observed site. Give its outcomes among model_kwargs=, such as "
            "model_kwargs={'x': x, 'y': y}; a likelihood written with numpyro.factor needs "
            "lq.from_jax, because it does not say what the outcomes are."
        )
    latents = _latents(sites)
    missing = [name for name in latents if name not in first]
    if missing:
        raise _no_draws(missing, first)
    if not latents:
        raise ParameterError("The model has no latent sites, so there is nothing to average over.")
    first = {name: first[name] for name in latents}
    sites = look(model, first, kwargs)
    require_fitting(sites, first)
    return sites


def _latents(sites: Sites) -> list[str]:
    return [name for name, site in sites.items() if not site.observed]


def require_fitting(sites: Sites, draw: Draw) -> None:
    """Refuse draws of another shape than the model's sites have."""
    for name, value in draw.items():
        shape = sites[name].shape if name in sites else None
        if shape is not None and shape != np.shape(value):
            raise ShapeError(
                f"A draw of the latent site {name!r} has shape {np.shape(value)}; with these "
                f"arguments the model needs {shape}. Draws must be (chain, draw, ...) or, without "
                "chains, (draw, ...), and of new groups there are none."
            )


def _as_dict(samples: Any) -> tuple[dict[str, Numeric], tuple[bool, ...]]:
    """Return the draws by site, and whether they may be grouped by chain, may be flat."""
    may_be_flat = isinstance(samples, dict)
    if hasattr(samples, "get_samples"):
        try:
            samples = samples.get_samples(group_by_chain=True)
        except AssertionError as error:
            raise LockquackError(
                f"The {type(samples).__name__} has no draws yet: {first_line(error)}."
            ) from error
    elif not may_be_flat:
        samples = _posterior(samples)
    # Beside arguments in double, single draws would make carries of loops change their type.
    draws = {str(name): own_arrays(np.asarray(values)) for name, values in samples.items()}
    leading = {values.shape[:2] for values in draws.values()}
    if len(leading) == 1 and len(next(iter(leading))) == 2:
        return draws, (True, False) if may_be_flat else (True,)
    return draws, (False,)


def _posterior(samples: Any) -> Mapping[str, Any]:
    from arviz_base import convert_to_datatree

    if isinstance(samples, xr.Dataset):
        posterior = samples
    else:
        try:
            posterior = convert_to_datatree(samples)["posterior"].to_dataset()
        except (KeyError, TypeError, ValueError) as error:
            raise LockquackError(
                f"Cannot read draws from a {type(samples).__name__}; give the MCMC object, a dict "
                f"of draws by site, or an ArviZ container with a posterior. ({error})"
            ) from error
    return {str(name): samples_first(str(name), draws) for name, draws in posterior.items()}


def read_divergences(samples: Any) -> int:
    """Count the draws at which the sampler noted a divergence; 0 where that is not known."""
    if hasattr(samples, "get_extra_fields"):
        return int(np.count_nonzero(samples.get_extra_fields().get("diverging", 0)))
    if isinstance(samples, dict | xr.Dataset) or hasattr(samples, "get_samples"):
        return 0
    from arviz_base import convert_to_datatree

    return divergences(convert_to_datatree(samples))


def read_log_likelihood(samples: Any, site: str) -> Any:
    """Find the log likelihood that came with the draws in a container, or None."""
    from arviz_base import convert_to_datatree

    if isinstance(samples, dict | xr.Dataset) or hasattr(samples, "get_samples"):
        return None
    return stored_log_likelihood(convert_to_datatree(samples), site)
