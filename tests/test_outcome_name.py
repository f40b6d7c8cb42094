"""The outcome keeps the name that users gave it, from the model to files, tables and pictures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import lockquack as lq

MU = np.random.default_rng(1).normal(size=(4, 200)) / 5


def model(y, shift=0.0):
    return lq.from_family("normal", y=y, mu=MU + shift, sigma=1.0)


@pytest.fixture
def y(rng):
    return xr.DataArray(rng.normal(size=12), dims="school", name="height")


@pytest.fixture
def fit(y):
    return lq.lock({"a": model(y), "b": model(y, 0.5)})


def test_draws_and_outcomes_are_called_so(fit, y):
    drawn = fit.sample(5, random_seed=1)
    assert list(drawn["posterior_predictive"].data_vars) == ["height"]
    np.testing.assert_array_equal(drawn["observed_data"]["height"], y)
    assert list(fit.predict(np.zeros(2)).sample(5).children["observed_data"].data_vars) == [
        "height"
    ]


def test_files_keep_it(fit, y, tmp_path):
    fit.save(tmp_path / "fit.nc")
    assert lq.load(tmp_path / "fit.nc").observations.name == "height"
    for name in ("model.nc", "model.zarr"):
        fit.models["a"].save(tmp_path / name)
        again = lq.from_datatree(tmp_path / name)
        assert again.observations.name == "height"
        assert list(again.to_datatree()["log_likelihood"].data_vars) == ["height"]
    assert list(fit.models["a"].to_datatree("z")["observed_data"].data_vars) == ["z"]


def test_pictures_tables_and_reports_show_it(fit, tmp_path):
    assert fit.plot_density().get_xlabel() == "height"
    assert fit.plot_densities([0, 1])[-1].get_xlabel() == "height"
    assert fit.plot_density(xlabel="cm").get_xlabel() == "cm"
    shown = " ".join(repr(fit).split())
    assert "outcome: height" in shown
    assert "unit of height" in shown
    page = fit.report(tmp_path / "page.html", methods=()).read_text(encoding="utf-8")
    assert "unit of height" in page


def test_a_series_names_it_too_and_an_array_does_not(y):
    assert model(pd.Series(y.values, name="weight")).observations.outcome == "weight"
    assert model(pd.Series(y.values, name=3)).observations.outcome == "y"
    unnamed = lq.lock({"a": model(y.values)})
    assert unnamed.observations.outcome == "y"
    assert "outcome:" not in repr(unnamed)


def test_the_first_model_that_names_it_decides(y):
    models = {"a": model(y.values), "b": model(y.rename("size"), 0.5), "c": model(y, -0.5)}
    fit = lq.stack({"a": models["a"], "b": models["b"], "c": models["c"]}, scores="in-sample")
    assert fit.observations.name == "size"
    reordered = lq.stack({"c": models["c"], "b": models["b"]}, scores="in-sample")
    assert reordered.observations.name == "height"


def test_a_name_that_a_dimension_has_is_not_used_twice():
    y = xr.DataArray(np.array([-1.0, 0.0, 1.5]), dims="height", name="height")
    assert model(y).observations.outcome == "y"
    drawn = lq.equal({"a": model(y.rename(None).rename(height="y"))}).sample(3)
    assert list(drawn["posterior_predictive"].data_vars) == ["outcome"]
