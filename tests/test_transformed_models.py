"""Models of a function of the outcome, brought to the outcome: whatever their source."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import ParameterError, SupportError
from lockquack.models.transformed import TransformedSource, on_natural_scale
from lockquack.transforms import TRANSFORMS, get_transform


def outcomes(name):
    if name == "logit":
        return np.array([0.01, 0.03, 0.2, 0.5, 0.71, 0.9, 0.99])
    if name == "exp":
        return np.array([-3.0, -1.2, -0.3, 0.1, 0.8, 1.0, 1.3])
    return np.array([0.1, 0.3, 0.6, 1.0, 1.7, 3.0, 5.0])


def of_transformed(name, y, mu, sigma, wrap=np.asarray):
    """A normal model of a function of y, as arrays."""
    z = (get_transform(name).forward(y) - mu[..., None]) / sigma
    parts = {
        "logp": stats.norm.logpdf(z) - np.log(sigma),
        "grad": -z / sigma,
        "curv": np.full(z.shape, -1 / sigma**2),
    }
    return {part: wrap(values) for part, values in parts.items()}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("lazy", [False, True])
def test_arrays_of_a_function_of_y_are_the_family_of_it(name, lazy, rng):
    y, mu = outcomes(name), 0.2 * rng.normal(size=(3, 50))
    mu = mu + get_transform(name).forward(y).mean()
    wrap = (lambda values: da.from_array(values, (2, 20, 3))) if lazy else np.asarray
    parts = of_transformed(name, y, mu, 0.7, wrap=wrap)
    arrays = lq.from_arrays(y=y, transform=name, **parts)
    family = lq.from_family("normal", y=y, transform=name, mu=mu, sigma=0.7)
    np.testing.assert_array_equal(arrays.observations.values, family.observations.values)
    everything = slice(0, len(y))
    np.testing.assert_allclose(
        arrays.source.all_logp(everything), family.source.all_logp(everything), rtol=1e-10
    )
    for kind in ("loo", "in-sample"):
        got, want = (m.passes.predict(kind, density=True) for m in (arrays, family))
        for part in ("logp", "grad", "curv"):
            np.testing.assert_allclose(
                getattr(got.jet, part), getattr(want.jet, part), rtol=1e-9, atol=1e-11
            )
    assert arrays.likelihood.description == f"arrays of {name} y"
    back = lq.from_datatree(arrays.to_datatree())  # on the scale of y, with the Jacobian
    np.testing.assert_allclose(back.source.all_logp(everything), family.source.all_logp(everything))
    np.testing.assert_array_equal(back.observations.values, family.observations.values)


def test_a_log_normal_by_another_name_is_the_log_normal(rng):
    y, mu = rng.lognormal(size=20), 0.2 * rng.normal(size=(2, 100))
    log = lq.from_arrays(y=y, transform="log", **of_transformed("log", y, mu, 0.7))
    named = lq.from_family("lognormal", y=y, mu=mu, sigma=0.7)
    for kind in ("loo", "in-sample"):
        got, want = log.collapse(kind).jet, named.collapse(kind).jet
        np.testing.assert_allclose(got.grad, want.grad, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(got.curv, want.curv, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(log.loo().logp, named.loo().logp, rtol=1e-10)
    assert log.likelihood.support == named.likelihood.support


@pytest.mark.parametrize("lazy", [False, True])
def test_case_weights_count_on_either_scale(lazy, rng):
    y, mu = rng.lognormal(size=20), 0.2 * rng.normal(size=(2, 100))
    counts = rng.integers(0, 3, size=20)
    wrap = (lambda values: da.from_array(values, (1, 40, 7))) if lazy else np.asarray
    parts = of_transformed("log", y, mu, 0.7, wrap=wrap)
    log = lq.from_arrays(y=y, transform="log", weights=counts, **parts)
    named = lq.from_family("lognormal", y=y, mu=mu, sigma=0.7, weights=counts)
    for kind in ("loo", "in-sample"):
        got, want = (each.passes.predict(kind, density=True) for each in (log, named))
        assert got.mcse(np.ones(1)) == pytest.approx(want.mcse(np.ones(1)), rel=1e-8)
        assert got.mcse_logp() == pytest.approx(want.mcse_logp(), rel=1e-8)


def test_without_derivatives_there_is_the_jacobian_still(rng):
    y, mu = rng.lognormal(size=20), 0.2 * rng.normal(size=(2, 100))
    logp = of_transformed("log", y, mu, 0.7)["logp"]
    bare = lq.from_arrays(logp=logp, y=y, transform="log")
    assert not bare.source.can.differentiate
    np.testing.assert_allclose(bare.source.all_logp(slice(0, 20)), logp - np.log(y))


def test_vectors_are_transformed_component_by_component(rng):
    y, mu = rng.lognormal(size=(9, 2)), 0.2 * rng.normal(size=(2, 40, 2))
    cov = np.array([[1.0, 0.4], [0.4, 0.8]])
    model = lq.from_family("mv_normal", y=y, transform="log", mu=mu, cov=cov)
    z, chain = np.log(y), 1
    exact = [stats.multivariate_normal.logpdf(z, m, cov) - z.sum(axis=1) for m in mu[chain]]
    np.testing.assert_allclose(model.source.logp(chain, slice(0, 40), slice(0, 9)), exact)
    lq.check(model, thorough=True).require()


def test_the_marginal_likelihood_and_stored_draws_come_along(rng):
    y = rng.lognormal(size=8)
    parts = of_transformed("log", y, 0.1 * rng.normal(size=(2, 30)), 1.0)
    drawn = xr.DataArray(rng.normal(size=(2, 30, 8)), dims=("chain", "draw", "obs_id"))
    plain = lq.from_arrays(y=np.log(y), **parts).source
    source = replace(plain, log_marginal_likelihood=-12.0, outcome_draws=drawn)
    brought = on_natural_scale(source, "log")
    assert brought.log_marginal_likelihood == pytest.approx(-12.0 - np.log(y).sum())
    np.testing.assert_allclose(brought.outcome_draws, np.exp(drawn))
    np.testing.assert_allclose(brought.observations.values[:, 0], y)


def test_new_outcomes_are_given_on_their_natural_scale(rng):
    x, y = rng.normal(size=(15, 1)), rng.lognormal(size=15)
    coef, scale = rng.normal(size=(2, 60, 1)), 0.8
    log = lq.from_family(
        "normal", y=y, transform="log", mu=lq.linear_predictor(x, coef), sigma=scale
    )
    named = lq.from_family("lognormal", y=y, mu=lq.linear_predictor(x, coef), sigma=scale)
    series = pd.Series([0.5, 2.0], index=["a", "b"], name="size")
    new, expected = (m.with_data(series, x=[[0.0], [1.0]]) for m in (log, named))
    np.testing.assert_allclose(
        new.source.all_logp(slice(0, 2)), expected.source.all_logp(slice(0, 2))
    )
    assert new.observations.coords["obs_id"].tolist() == ["a", "b"]
    with pytest.raises(SupportError, match=r"transform 'log' needs values in \(0, inf\); 1 .*-1"):
        log.with_data([-1.0, 2.0], x=[[0.0], [1.0]])


def test_new_data_go_to_the_model_that_has_them(rng):
    x, y = rng.normal(size=(30, 1)), rng.lognormal(size=30)
    mu = lq.linear_predictor(x, 0.1 * rng.normal(size=(2, 60, 1)))
    plain = lq.from_family("normal", y=y, mu=mu, sigma=0.8).source
    log = lq.from_family("normal", y=y, transform="log", mu=mu, sigma=0.8)
    assert log.source.data_names() == plain.data_names() == {"mu", "sigma", "x", "offset"}
    nu = rng.uniform(3, 9, size=30)
    beside = lq.from_family(
        "student_t", y=y, transform="log", mu=0.1 * rng.normal(size=(2, 60)), sigma=1.0, nu=nu
    )
    fit = lq.stack({"log": log, "beside": beside})
    new = fit.predict([0.5, 2.0], x=[[0.0], [1.0]], nu=[4.0, 5.0])
    assert np.isfinite(new.logpdf()).all()


def test_what_is_known_of_draws_and_quantiles_is_so_on_either_scale(rng):
    z = rng.normal(size=(1, 40, 5))
    drawn = lq.from_draws(z, y=rng.normal(size=5)).source
    source = on_natural_scale(drawn, "log")
    assert isinstance(source, TransformedSource)
    assert source.known_where == drawn.known_where == "is known by draws of outcomes only"
    assert not source.is_sample
    with pytest.raises(lq.errors.UnsupportedError) as plain:
        drawn.require_density()
    with pytest.raises(lq.errors.UnsupportedError) as transformed:
        source.require_density()
    assert str(transformed.value) == str(plain.value)


@pytest.mark.parametrize(
    ("name", "z", "message"),
    [
        ("sqrt", [-1.0, 1.0], r"'sqrt', which says that the model is of sqrt y, needs values in"),
        ("log", [0.0, 800.0], r"'log', undone, needs values in \(0, inf\).*inf"),
    ],
)
def test_outcomes_that_no_y_has_are_refused(name, z, message):
    source = lq.from_arrays(logp=np.zeros((1, 3, 2)), y=z).source
    with pytest.raises(SupportError, match=message):
        on_natural_scale(source, name)


def test_what_is_not_a_transform_is_refused():
    counts = lq.from_family("poisson", y=[1, 2], mu=1.0).source
    with pytest.raises(ParameterError, match="poisson is discrete"):
        on_natural_scale(counts, "log")
    with pytest.raises(ParameterError, match=r"given by its name.*got a ufunc"):
        lq.from_arrays(logp=np.zeros((1, 3, 2)), y=[1, 2], transform=np.log)
    with pytest.raises(SupportError, match=r"transform 'log' needs values in \(0, inf\)"):
        lq.from_arrays(logp=np.zeros((1, 3, 2)), y=[-1, 2], transform="log")
