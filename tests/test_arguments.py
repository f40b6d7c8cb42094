"""Arguments that are nothing of the kind are refused in words, not by whatever they break."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import lockquack as lq
from lockquack.errors import LockquackError, ParameterError, ShapeError, UnknownNameError
from lockquack.numeric import as_count, as_numeric
from tests.helpers import lock

SERIES = pd.Series([1.0, 2.0])


class Hostile:
    """Like a tensor that is not to be read: it has its own kind of error."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("detach it first")


@pytest.mark.parametrize("junk", [SERIES, np.zeros(2), pd.NA, None, 3])
def test_names_are_not_compared_with_arrays(junk, normals):
    fit = lock(normals)
    for refused in (
        lambda: lq.Locking(junk),
        lambda: lq.lock(normals, scores=junk),
        lambda: lq.select(normals, by=junk),
        lambda: lq.from_family(junk, y=[0.0], mu=0.0, sigma=1.0, weights=[1.0]),
        lambda: lq.compare(normals, junk if junk is not None else [None]),
        lambda: normals["left"].collapse(junk),
        lambda: fit.predict().interval(kind=junk),
        lambda: fit.sample(5, method=junk),
        lambda: lq.stan_code(junk),
    ):
        with pytest.raises(UnknownNameError, match=r"Unknown|by its name"):
            refused()


@pytest.mark.parametrize("junk", [SERIES, "1", 1j, [1.0], None, np.nan, 0.0, np.inf])
def test_positive_numbers(junk, normals):
    with pytest.raises(ParameterError, match="prior_sd must be one positive number"):
        lq.Hybrid(prior_sd=junk)
    if junk is not None:  # which asks for a calibrated one
        with pytest.raises(ParameterError, match="learning_rate must be one positive number"):
            lock(normals).posterior(5, learning_rate=junk)


def test_counts_that_fit_nowhere():
    with pytest.raises(ParameterError, match="n must be at most 2147483647"):
        as_count("n", 2**70)
    with pytest.raises(ParameterError, match="n must be a whole number from 1"):
        lq.example_models(0)


def test_what_another_library_refuses_to_convert(normals):
    with pytest.raises(LockquackError, match=r"y is not an array of numbers.*detach it first"):
        as_numeric("y", Hostile())
    with pytest.raises(ParameterError, match=r"by is not an array.*detach it first"):
        lq.stack(normals, by=Hostile())
    with pytest.raises(ParameterError, match="cv must be an array"):
        lq.compare(normals, ["equal"], cv=Hostile())


@pytest.mark.parametrize("members", [SERIES, 1, None, "ab", {"a": 1}, []])
def test_members_of_a_pool_of_pools(members):
    with pytest.raises(ParameterError, match="an operator and a list of members"):
        lq.Nested(lq.Linear(), members)


@pytest.mark.parametrize("path", [None, 3, ["a.nc"]])
def test_paths(path):
    with pytest.raises(LockquackError, match="The path of a file is a string or a Path; got"):
        lq.load(path)


def test_outcomes_without_components():
    with pytest.raises(ShapeError, match="y is empty"):
        lq.from_arrays(logp=np.zeros((1, 5, 2)), y=np.zeros((2, 0)))


def test_a_prior_may_be_a_number_in_any_wrapping(normals):
    expected = lock(normals, prior=2.0).weights
    for given in (np.float32(2), np.array(2.0), xr.DataArray(2.0)):
        np.testing.assert_array_equal(lock(normals, prior=given).weights, expected)


@pytest.mark.parametrize("by", [np.zeros((30, 0)), np.zeros((30, 2, 2))])
def test_covariates_of_another_shape(by, normals):
    with pytest.raises(ParameterError, match=r"by must be one value for each.*got the shape \(30"):
        lq.stack(normals, by=by)


@pytest.mark.parametrize("shrinkage", [SERIES, pd.NA, "much", -1.0])
def test_shrinkage_without_covariates(shrinkage, normals):
    with pytest.raises(ParameterError, match="shrinkage must be 'auto' or a number"):
        lq.stack(normals, shrinkage=shrinkage)
    with pytest.raises(ParameterError, match="give by="):
        lq.stack(normals, shrinkage=1.0)
