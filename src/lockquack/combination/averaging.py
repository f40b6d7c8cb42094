"""Draws of a quantity that models share, mixed by their weights."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from lockquack.errors import (
    NonFiniteError,
    ParameterError,
    UnsupportedError,
    naming,
    unknown_name,
)
from lockquack.jets import Array
from lockquack.models.observations import SAMPLE_DIMS
from lockquack.numeric import as_count, as_generator, as_numeric
from lockquack.sampling.samplers import systematic

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination


def average(
    self: Combination,
    quantity: Mapping[str, Any],
    *,
    n: int = 1000,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataArray:
    r"""Mix the models' posterior draws of a quantity that they share, such as an effect.

    .. math:: p(\delta) = \sum_k w_k \, p_k(\delta \mid y)

    A mixture draws a model first and then everything else from it, so it is a distribution of
    parameters as well as of outcomes. Other pools are densities of outcomes only: their
    :math:`\prod_k \pi_k(y)^{w_k}` belongs to no model and says nothing about parameters.

    The weights were fitted to predict outcomes; they are not probabilities that a model is true,
    so neither is the mixture a posterior. Do not average quantities that mean different things in
    different models, such as a coefficient with and without adjustment.

    Parameters
    ----------
    quantity
        Model name → draws: a DataArray with dimensions ``chain`` and ``draw``, such as
        ``idata.posterior["effect"]``, one that ``az.extract`` has stacked, or an array (chain,
        draw, …). It may be called otherwise in each model. Labels decide; dimensions that ArviZ
        named after the variable, ``effect_dim_0``, go by their order. Models without weight may be
        left out.
    n
        Number of draws.
    random_seed
        Seed or generator.

    Returns
    -------
    xarray.DataArray
        Draws with dimensions ``chain`` (one), ``draw`` and those of the quantity. The coordinate
        ``model`` says which model each came from.

    Examples
    --------
    >>> import numpy as np
    >>> import lockquack as lq
    >>> fit = lq.stack(lq.example_models())
    >>> rng = np.random.default_rng(1)
    >>> effect = {"first": rng.normal(1.0, 0.1, (4, 250)), "second": rng.normal(2.0, 0.1, (4, 250))}
    >>> draws = fit.average(effect, n=2000, random_seed=1)
    >>> dict(draws.sizes), float(draws.mean().round(2))
    ({'chain': 1, 'draw': 2000}, 1.61)
    """
    if not self.operator.normalised:
        raise UnsupportedError(
            f"{self.operator!r} pools densities of outcomes, and no parameters belong to the "
            "result. Only mixtures average parameters and effects: use stack, pseudo_bma or bma."
        )
    if self.recalibration is not None:
        raise UnsupportedError(
            "Recalibration transforms densities of outcomes, and no parameters belong to the "
            "result. Average them by the mixture before it was recalibrated."
        )
    if self.pool.varies:
        raise UnsupportedError(
            "The weights differ between observations, so a quantity that belongs to no observation "
            "has none. Fit the mixture without by=."
        )
    n, rng = as_count("n", n), as_generator(random_seed)
    draws = _aligned(_read(quantity, self.names, self.pool.weights))
    weights = np.array([self.pool.weights[self.names.index(name)] for name in draws])
    owners = systematic(weights / weights.sum(), n, rng)
    counts = np.bincount(owners, minlength=weights.size).tolist()
    parts = []
    for (name, values), count in zip(draws.items(), counts, strict=True):
        flat = values.stack(sample=SAMPLE_DIMS, create_index=False).transpose("sample", ...)
        chosen = rng.choice(flat.sizes["sample"], size=count, replace=count > flat.sizes["sample"])
        parts.append(flat.isel(sample=chosen).assign_coords(model=("sample", [name] * count)))
    mixed = xr.concat(parts, dim="sample", join="exact").isel(sample=rng.permutation(n))
    found = mixed.rename(sample="draw").assign_coords(draw=np.arange(n)).expand_dims(chain=[0])
    return found.rename(next(iter(draws.values())).name)


def _read(
    quantity: Mapping[str, Any], names: tuple[str, ...], weights: Array
) -> dict[str, xr.DataArray]:
    """Read the draws of every model with weight, labelled."""
    if not isinstance(quantity, Mapping):
        raise ParameterError(
            "quantity must be a dict from model name to draws; got a "
            f"{type(quantity).__name__}. Write {{'{names[0]}': idata.posterior['effect'], ...}}."
        )
    unknown = [name for name in quantity if name not in names]
    if unknown:
        raise unknown_name("model in quantity", unknown[0], names)
    used = [name for name, weight in zip(names, weights, strict=True) if weight > 0]
    missing = [name for name in used if name not in quantity]
    if missing:
        share = weights[names.index(missing[0])]
        raise ParameterError(
            f"Model {missing[0]!r} has a weight of {share:.3g}, but the quantity has no draws of "
            "it. A model that has no such quantity cannot be averaged over: leave it out of the "
            "mixture and fit the others."
        )
    found = {}
    for name in used:
        with naming(f"The draws of model {name!r}"):
            found[name] = _labelled(quantity[name])
    return found


def _labelled(values: Any) -> xr.DataArray:
    if isinstance(values, Mapping) or hasattr(values, "data_vars") or hasattr(values, "posterior"):
        raise ParameterError(
            "They hold more than one quantity; choose one, such as idata.posterior['effect']."
        )
    if not isinstance(values, xr.DataArray):
        array = as_numeric("the quantity", values, ParameterError)
        if array.ndim < 2:
            raise ParameterError(f"They must be (chain, draw, …); got the shape {array.shape}.")
        rest = [f"quantity_dim_{i}" for i in range(array.ndim - 2)]
        values = xr.DataArray(array, dims=[*SAMPLE_DIMS, *rest])
    values = _unstacked(values)
    if not set(SAMPLE_DIMS) <= set(values.dims):
        raise ParameterError(f"They need dimensions chain and draw; got {values.dims}.")
    if not np.isfinite(values.values).all():
        raise NonFiniteError("They hold NaN or infinite values.")
    return values.drop_vars(SAMPLE_DIMS, errors="ignore")


def _unstacked(values: xr.DataArray) -> xr.DataArray:
    """Undo ``az.extract``, which stacks chains and draws into one dimension."""
    for dim, index in values.indexes.items():
        if set(index.names) == set(SAMPLE_DIMS) and dim in values.dims:
            plain = values.drop_vars([dim, *SAMPLE_DIMS])
            return plain.rename({dim: "draw"}).expand_dims("chain")
    return values


def _aligned(draws: dict[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Bring the quantities of all models into one order of labels."""
    first_name, first = next(iter(draws.items()))
    rest = first.isel(chain=0, draw=0)
    found = {}
    for name, values in draws.items():
        named = _named_like(values, first)
        own = named.isel(chain=0, draw=0)
        difference = _difference(own, rest)
        if difference:
            raise ParameterError(
                f"The quantity of model {name!r} has {difference[0]}, that of model "
                f"{first_name!r} {difference[1]}: they are not the same quantity."
            )
        found[name] = named.reindex_like(rest) if named.indexes else named
    return found


def _named_like(values: xr.DataArray, first: xr.DataArray) -> xr.DataArray:
    """Name dimensions that nobody named as those of the first model are named."""
    own, theirs = _unnamed_dims(values), _unnamed_dims(first)
    if own == theirs or len(own) != len(theirs):
        return values
    return values.drop_vars(own, errors="ignore").rename(dict(zip(own, theirs, strict=True)))


def _unnamed_dims(values: xr.DataArray) -> list[str]:
    """Return the dimensions that ArviZ, or this module, named after a variable and counted."""
    dims = [str(dim) for dim in values.dims if dim not in SAMPLE_DIMS]
    counted = [
        dim not in values.coords or np.array_equal(values[dim], np.arange(values.sizes[dim]))
        for dim in dims
    ]
    by_default = {f"{name}_dim_{i}" for name in (values.name, "quantity") for i in range(len(dims))}
    return [dim for dim, each in zip(dims, counted, strict=True) if each and dim in by_default]


def _difference(own: xr.DataArray, rest: xr.DataArray) -> tuple[str, str] | None:
    """Say in what two quantities differ, if they do: in shape, or in labels."""
    if dict(own.sizes) != dict(rest.sizes):
        shapes = [
            f"the shape {dict(each.sizes)}" if each.ndim else "one number a draw"
            for each in (own, rest)
        ]
        return shapes[0], shapes[1]
    for dim in set(own.indexes) & set(rest.indexes):
        labels, others = list(own.indexes[dim]), list(rest.indexes[dim])
        if labels != others and (set(labels) != set(others) or len(set(labels)) < len(labels)):
            return f"the labels {reprlib.repr(labels)} along {dim!r}", f"has {reprlib.repr(others)}"
    return None
