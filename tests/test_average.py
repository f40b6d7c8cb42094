"""Draws of a shared quantity, mixed by the weights of a linear pool."""

import warnings

import numpy as np
import pytest
import xarray as xr

import lockquack as lq
from lockquack.errors import (
    LockquackError,
    LockquackWarning,
    NonFiniteError,
    ParameterError,
    UnsupportedError,
)


@pytest.fixture
def fit():
    return lq.stack(lq.example_models())


def effects(rng, shape=(4, 2500), **more):
    dims = ["chain", "draw", *(["arm"] if len(shape) > 2 else [])]
    return {
        name: xr.DataArray(rng.normal(mean, 0.1, size=shape), dims=dims, name="effect", **more)
        for name, mean in (("first", 1.0), ("second", 3.0))
    }


def test_shares_and_moments_are_those_of_the_mixture(fit, rng):
    draws = fit.average(effects(rng), n=5_000, random_seed=1)
    w = fit.weights.values
    assert draws.name == "effect"
    assert draws.dims == ("chain", "draw")
    share = float((draws["model"] == "first").mean())
    assert abs(share - w[0]) <= 1 / 5_000  # shared out, not drawn at random
    mean = w @ [1.0, 3.0]
    assert float(draws.mean()) == pytest.approx(mean, abs=0.01)
    assert float(draws.var()) == pytest.approx(
        0.01 + w @ (np.array([1.0, 3.0]) - mean) ** 2, rel=0.02
    )


def test_draws_of_a_model_are_its_own_and_the_seed_decides(fit, rng):
    given = effects(rng, (2, 30))
    once, again = (fit.average(given, n=200, random_seed=3) for _ in range(2))
    xr.testing.assert_identical(once, again)
    for name, values in given.items():
        own = once.where(once["model"] == name, drop=True)
        assert np.isin(own.values, values.values).all()


def test_labels_decide_and_models_without_weight_may_be_left_out(rng):
    given = effects(rng, (2, 40, 3), coords={"arm": ["a", "b", "c"]})
    given["second"] = given["second"].isel(arm=[2, 0, 1]) + xr.DataArray(
        [0.0, 10.0, 20.0], coords={"arm": ["a", "b", "c"]}
    )
    draws = lq.equal(lq.example_models()).average(given, n=400, random_seed=1)
    by_arm = draws.where(draws["model"] == "second").mean(("chain", "draw"))
    np.testing.assert_allclose(by_arm.sel(arm=["a", "b", "c"]), [3.0, 13.0, 23.0], atol=0.1)
    chosen = lq.select(lq.example_models())
    name = chosen.weights.idxmax().item()
    assert set(chosen.average({name: given[name]}, n=10)["model"].values.tolist()) == {name}


def test_plain_arrays_do(fit, rng):
    given = {name: each.values for name, each in effects(rng, (2, 50, 2)).items()}
    assert fit.average(given, n=70).dims == ("chain", "draw", "quantity_dim_0")


def test_only_mixtures_average_parameters(rng):
    for other in (lq.lock(lq.example_models()), lq.combine(lq.example_models(), "hoelder", "log")):
        with pytest.raises(UnsupportedError, match="Only mixtures"):
            other.average(effects(rng))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda q: q | {"third": q["first"]}, LockquackError, "third"),
        (lambda q: {"first": q["first"]}, ParameterError, "'second' has a weight"),
        (lambda q: q | {"second": q["second"] * np.nan}, NonFiniteError, "second"),
        (lambda q: q | {"second": q["second"].values[0]}, ParameterError, r"\(chain, draw"),
        (lambda q: q | {"second": q["second"].expand_dims(arm=3)}, ParameterError, "same quantity"),
        (lambda q: q["first"], ParameterError, "dict from model name"),
        (lambda q: q | {"second": q["second"].rename(draw="d")}, ParameterError, "chain and draw"),
    ],
)
def test_what_is_wrong_is_said(fit, rng, change, error, words):
    with pytest.raises(error, match=words):
        fit.average(change(effects(rng)))


def test_other_labels_are_another_quantity(fit, rng):
    given = effects(rng, (2, 20, 2), coords={"arm": ["a", "b"]})
    given["second"] = given["second"].assign_coords(arm=["a", "c"])
    with pytest.raises(ParameterError, match="not the same quantity"):
        fit.average(given)


def test_dimensions_that_arviz_named_go_by_their_order(fit, rng):
    # As az.from_dict makes them: dimensions called after the variable, counted from 0.
    def given(name, shape):
        dims = ["chain", "draw", f"{name}_dim_0"]
        coords = {f"{name}_dim_0": np.arange(shape[-1])}
        return xr.DataArray(rng.normal(size=shape), dims=dims, coords=coords, name=name)

    effect, b = given("effect", (4, 25, 3)), given("b", (2, 50, 3))
    found = fit.average({"first": effect, "second": b}, n=50, random_seed=1)
    assert dict(found.sizes) == {"chain": 1, "draw": 50, "effect_dim_0": 3}
    from_second = found.isel(chain=0).where(found["model"] == "second", drop=True)
    drawn = {tuple(row) for row in b.values.reshape(-1, 3)}
    assert all(tuple(row) in drawn for row in from_second.values)
    assert fit.average({"first": effect.values, "second": b}, n=9).sizes["quantity_dim_0"] == 3
    with pytest.raises(ParameterError, match="the shape"):
        fit.average({"first": effect, "second": given("b", (2, 50, 4))})
    with pytest.raises(ParameterError, match="same quantity"):
        fit.average({"first": effect, "second": b.rename(b_dim_0="county")})


def test_stacked_draws_are_draws(fit, rng):
    given = effects(rng)
    stacked = {name: each.stack(sample=("chain", "draw")) for name, each in given.items()}
    plain, found = (fit.average(each, n=200, random_seed=2) for each in (given, stacked))
    np.testing.assert_array_equal(plain.values, found.values)


@pytest.mark.parametrize("kind", ["dataset", "tree", "dict"])
def test_containers_are_refused_in_words(fit, rng, kind):
    def whole(values):
        dataset = xr.Dataset({"effect": values})
        tree = xr.DataTree.from_dict({"posterior": dataset})
        return {"dataset": dataset, "tree": tree, "dict": {"effect": values}}[kind]

    with pytest.raises(ParameterError, match=r"choose one, such as idata.posterior\['effect'\]"):
        fit.average({name: whole(values) for name, values in effects(rng).items()})


def test_recalibrated_mixtures_have_no_parameters(fit, rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        recalibrated = fit.recalibrated()
    with pytest.raises(UnsupportedError, match="before it was recalibrated"):
        recalibrated.average(effects(rng))
