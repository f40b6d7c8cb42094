"""Combinations in files that something has happened to."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

import lockquack as lq
from lockquack.errors import LockquackError
from tests.fuzz.pairs import CONVEX, fit_or_none
from tests.fuzz.worlds import worlds

fuzzed = pytest.mark.fuzzed
DAMAGES = (
    "drop variable",
    "drop attribute",
    "NaN",
    "negative",
    "not weights",
    "cut",
    "text",
    "type",
)


def damage_fit(stored, how, rng):
    """Change something in a saved combination that only this library should write."""
    variables, attrs = sorted(map(str, stored.data_vars)), sorted(map(str, stored.attrs))
    name, key = str(rng.choice(variables)), str(rng.choice(attrs))
    parameters = stored["lockquack_parameters"]
    match how:
        case "drop variable":
            return stored.drop_vars(name)
        case "drop attribute":
            del stored.attrs[key]
        case "NaN":
            stored[name] = stored[name] * np.nan
        case "negative":
            stored["lockquack_parameters"] = -parameters
        case "not weights":
            stored["lockquack_parameters"] = parameters + rng.uniform(0.1, 2.0)
        case "cut":
            return stored.isel({str(rng.choice(sorted(map(str, stored.sizes)))): slice(0, 1)})
        case "text":
            stored.attrs[key] = "{"
        case "type":
            stored.attrs[key] = [1.5, 2.5]
    return stored


@fuzzed(2)
@given(
    world=worlds(models=(2, 3), n=(3, 6)),
    pair=st.sampled_from(CONVEX),
    how=st.sampled_from(DAMAGES),
    suffix=st.sampled_from([".nc", ".zarr"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_damaged_fits_are_refused_by_name(world, pair, how, suffix, seed):
    """Or what is damaged does not matter to the numbers."""
    fit = fit_or_none(world.models(), *pair)
    assume(fit is not None)
    with tempfile.TemporaryDirectory() as folder:
        path, spoilt = Path(folder, f"fit{suffix}"), Path(folder, f"damaged{suffix}")
        fit.save(path)
        reader = {"engine": "zarr", "consolidated": False} if suffix == ".zarr" else {}
        with xr.open_dataset(path, **reader) as stored:
            changed = damage_fit(stored.load(), how, np.random.default_rng(seed))
        if suffix == ".zarr":
            changed.to_zarr(spoilt, zarr_format=2)
        else:
            changed.to_netcdf(spoilt, engine="h5netcdf")
        try:
            again = lq.load(spoilt)
        except LockquackError as error:
            message = str(error)
        else:
            message = str(spoilt)
            np.testing.assert_array_equal(again.weights, fit.weights)
            repr(again)
    assert str(spoilt) in message
