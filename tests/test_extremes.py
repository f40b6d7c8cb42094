"""Numbers whose squares overflow or vanish are refused, not computed with."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import lockquack as lq
from lockquack.errors import LikelihoodWarning, NonFiniteError, ParameterError, SupportError

rng = np.random.default_rng(5)
Y, DRAWS = rng.normal(size=6), rng.normal(size=(2, 40)) / 9
ARRAYS = {"logp": np.full((2, 40, 6), -1.0), "grad": np.zeros((2, 40, 6))}
ARRAYS["curv"] = ARRAYS["logp"]


def normals(unit):
    y, mu = unit * Y, unit * DRAWS
    return {
        "near": lq.from_family("normal", y=y, mu=mu, sigma=unit),
        "wide": lq.from_family("normal", y=y, mu=mu + unit, sigma=2 * unit),
    }


@pytest.mark.parametrize("unit", [1e200, 1e-200, 1e300, 5e-324])
def test_outcomes_whose_squares_are_no_numbers(unit):
    with pytest.raises(SupportError, match="largest outcome is .* Change the units of y"):
        normals(unit)
    with pytest.raises(SupportError, match="largest outcome"):
        lq.from_arrays(y=unit * Y, **ARRAYS)


@pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("unit", [1e65, 1e-65])
def test_other_units_change_nothing(unit):
    expected, found = lq.lock(normals(1.0)), lq.lock(normals(unit))
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)
    np.testing.assert_allclose(found.predict().cdf(), expected.predict().cdf(), rtol=1e-6)
    score = found.logpdf() + np.log(unit)
    np.testing.assert_allclose(score, expected.logpdf(), rtol=1e-9)


def test_outcomes_may_be_zero():
    lq.from_family("normal", y=np.zeros(6), mu=DRAWS, sigma=1.0)


@pytest.mark.parametrize("large", [1e308, -1e308, 1e200])
@pytest.mark.parametrize("name", ["logp", "grad", "curv"])
@pytest.mark.parametrize("lazy", [False, True])
def test_log_densities_that_nobody_has(name, large, lazy):
    values = ARRAYS[name].copy()
    values[1, 3, 4] = large
    if lazy:
        values = da.from_array(values)
    said = rf"{name} is {large:g}.* at chain 1, draw 3, observation 4. No .* is that large"
    with pytest.raises(NonFiniteError, match=said.replace("+", r"\+")):
        lq.lock({"one": lq.from_arrays(y=Y, **{**ARRAYS, name: values})}, scores="in-sample")


def test_a_density_too_large_for_a_number_is_remarked_on_and_nothing_else():
    rng = np.random.default_rng(0)
    y, mu = rng.normal(size=30), 0.05 * rng.normal(size=(2, 50, 1))
    models = {
        name: lq.from_arrays(logp=800 - np.square(y - mu - at) / 2, y=y)
        for name, at in (("a", 0.0), ("b", 0.5))
    }
    with pytest.warns(LikelihoodWarning) as caught:
        lq.stack(models)
    assert {each.category for each in caught} == {LikelihoodWarning}


def test_values_that_cancel_are_noticed():
    values = ARRAYS["grad"].copy()
    values[0, :2, 0] = 1e308, -1e308
    wide = np.concatenate([values, ARRAYS["grad"]], axis=1)[:, :40]  # does not lie together
    for layout in (values, np.asfortranarray(values), wide, values.astype(">f8")):
        with pytest.raises(NonFiniteError, match=r"grad is 1e\+308"):
            lq.from_arrays(y=Y, **{**ARRAYS, "grad": layout})


@pytest.mark.parametrize("value", [1e200, -1e200])
def test_parameters_that_are_too_large(value):
    mu = DRAWS.copy()
    mu[1, 7] = value
    with pytest.raises(ParameterError, match="'mu' must be at most 1e.100 in size.*draw 7"):
        lq.from_family("normal", y=Y, mu=mu, sigma=1.0)
    regression = lq.linear_predictor(np.ones((6, 1)), np.full((2, 40, 1), value))
    model = lq.from_family("normal", y=Y, mu=regression, sigma=1.0)
    with pytest.raises(ParameterError, match="'mu'.* at most 1e.100 in size"):
        lq.stack({"far": model})


def test_scales_that_are_too_small():
    with pytest.raises(ParameterError, match="'sigma' must be at least 1e-100; it is 1e-200"):
        lq.from_family("normal", y=Y, mu=DRAWS, sigma=1e-200)
