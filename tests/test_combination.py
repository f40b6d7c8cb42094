"""The result: tables, uncertainty, labels, files."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import lockquack as lq
from lockquack import errors
from lockquack.errors import (
    ConvergenceWarning,
    LockquackError,
    LockquackWarning,
    SupportWarning,
    UnsupportedError,
)
from lockquack.jets import stack_jets
from tests.helpers import lock, paper_models, shown


@pytest.fixture
def fit(normals):
    return lq.lock(normals)


def test_weights_are_labelled_and_sum_to_one(fit):
    assert isinstance(fit.weights, xr.DataArray)
    assert fit.weights.dims == ("model",)
    assert list(fit.weights["model"].values) == ["left", "right", "far"]
    assert float(fit.weights.sum()) == pytest.approx(1.0, abs=1e-14)


def test_nothing_in_it_changes(fit):
    with pytest.raises(AttributeError):
        fit.names = ()
    for array in (
        fit.solution.x,
        fit.mcse,
        fit.objective.densities.jets.grad,
        fit.observations.values,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 7.0
    before = fit.to_dataframe()
    for each in (fit.weights, fit.weights_se, fit.pointwise):
        each.values[:] = 7.0
    pd.testing.assert_frame_equal(fit.to_dataframe(), before)


def test_the_models_dict_may_change_afterwards(normals):
    fit = lq.lock(normals)
    expected = str(fit)
    normals.clear()
    assert fit.logpdf().size == 30
    assert str(fit) == expected


def test_table(fit):
    table = fit.to_dataframe()
    assert list(table.index) == ["[lock]", "left", "right", "far"]
    n = fit.observations.n
    s2 = fit.observations.values.var(ddof=1)
    jets = stack_jets([model.collapse().jet for model in fit.models.values()])
    pooled, left = fit.operator.pool(jets, fit.solution.x), jets[0]
    locked = -s2 * (2 * pooled.curv + pooled.grad**2)[:, 0]
    single = -s2 * (2 * left.curv + left.grad**2)[:, 0]
    assert table.loc["[lock]", "score"] == pytest.approx(locked.sum())
    assert table.loc["left", "score"] == pytest.approx(single.sum())
    assert table.loc["left", "score_se"] == pytest.approx(np.sqrt(n) * single.std(ddof=1))
    gap = single - locked
    assert table.loc["left", "diff"] == pytest.approx(gap.sum())
    assert table.loc["left", "diff_se"] == pytest.approx(np.sqrt(n) * gap.std(ddof=1))
    assert table.loc["left", "diff"] < 0
    assert (table["weight"].iloc[1:] == fit.solution.x).all()


def test_text_and_html(fit):
    text = str(fit)
    assert text.startswith("Locking, fitted by the leave-one-out Hyvärinen score (larger is")
    assert "Certified optimum: no other weights raise the score" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    for name in ("left", "right", "far"):
        assert name in text
        assert f"<th>{name}</th>" in fit._repr_html_()


def test_long_and_many_names_keep_the_table_readable(rng):
    y = rng.normal(size=20)
    models = {
        f"{'a rather long name for a model of something ' * (k == 0)}{k}": lq.from_family(
            "normal", y=y, mu=0.3 * rng.normal(size=(4, 20)), sigma=1 + 0.1 * k
        )
        for k in range(40)
    }
    text = str(lock(models))
    assert "… 10 more" in text
    assert max(map(len, text.splitlines())) <= 112


@pytest.mark.parametrize("name", [1, None, "", "[lock]", ("a", "b"), "caf\udce9"])
def test_model_names_are_strings(normals, name):
    with pytest.raises(LockquackError, match="Model names must be strings"):
        lq.lock({name: normals["left"]})


def test_html_is_escaped(normals):
    fit = lq.lock({"<b>": normals["left"], "a & b": normals["right"]})
    assert "<b>" not in fit._repr_html_().replace("&lt;b&gt;", "")


def test_a_solver_that_stopped_early_shows(normals, monkeypatch):
    from lockquack.fitting import quadratic
    from lockquack.solvers.simplex_qp import simplex_qp

    monkeypatch.setattr(
        quadratic,
        "simplex_qp",
        lambda Q, c, alpha: simplex_qp(Q, c, alpha, max_iter=1),
    )
    with pytest.warns(ConvergenceWarning, match="stopped early"):
        fit = lq.lock(normals)
    assert "NOT CONVERGED, iteration limit" in str(fit)


# Uncertainty


def test_bootstrap_is_deterministic_and_labelled(fit):
    a, b = fit.bootstrap(50, random_seed=1), fit.bootstrap(50, random_seed=1)
    xr.testing.assert_identical(a, b)
    assert a.dims == ("draw", "model")
    assert np.abs(a - fit.bootstrap(50, random_seed=2)).max() > 0
    np.testing.assert_allclose(a.sum("model"), 1.0)


def test_groups_of_replicates_are_independent_and_the_same_on_any_thread(fit, monkeypatch):
    from lockquack.combination import uncertainty

    whole = fit.bootstrap(200, random_seed=1)
    monkeypatch.setattr(uncertainty, "_NUMBERS_AT_ONCE", 100)
    groups = []
    for threads in ("1", "3"):
        monkeypatch.setenv("LOCKQUACK_NUM_THREADS", threads)
        groups.append(fit.bootstrap(200, random_seed=1))
    xr.testing.assert_identical(*groups)
    assert len(np.unique(groups[0].values[:, 0])) == 200
    np.testing.assert_allclose(groups[0].std("draw"), whole.std("draw"), rtol=0.3)


def test_standard_errors_in_scenario_three():
    # The true standard deviation of w1 over samples is .0375, the bootstrap's mean .0361.
    estimates, weights = [], []
    for replication in range(30):
        rng = np.random.default_rng([replication, 3])
        fit = lock(paper_models(rng.normal(4.0, np.sqrt(3.0), size=200), rng))
        estimates.append(fit.weights_se.values[0])
        weights.append(fit.solution.x[0])
    assert np.mean(estimates) == pytest.approx(0.0361, rel=0.15)
    assert np.std(weights, ddof=1) == pytest.approx(0.0375, rel=0.35)


# Labels


def test_pointwise_scores_come_back_on_the_grid(rng):
    y = xr.DataArray(
        rng.normal(size=(4, 3)), dims=("school", "year"), coords={"year": [2001, 2002, 2003]}
    )
    mu = 0.1 * rng.normal(size=(4, 100))
    fit = lq.lock(
        {
            "a": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
            "b": lq.from_family("normal", y=y, mu=mu, sigma=2.0),
        }
    )
    assert fit.pointwise.dims == ("model", "school", "year")
    assert list(fit.pointwise["model"].values) == ["[lock]", "a", "b"]
    assert fit.pointwise.sel(year=2002).sizes == {"model": 3, "school": 4}
    assert fit.logpdf().dims == ("school", "year")
    diagnostics = fit.diagnostics()
    assert diagnostics["pareto_k"].dims == ("model", "school", "year")
    assert set(diagnostics) == {"ess_grad", "ess_curv", "elpd", "pareto_k", "how"}
    assert (diagnostics["ess_grad"] > 100).all()
    np.testing.assert_allclose(
        diagnostics["elpd"].sel(model="a").sum(), fit.models["a"].loo().logp.sum()
    )


# Files


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_save_and_load(fit, tmp_path, suffix):
    path = tmp_path / f"fit{suffix}"
    fit.save(path)
    back = lq.load(path)
    assert shown(back) == shown(fit)
    pd.testing.assert_frame_equal(back.to_dataframe(), fit.to_dataframe())
    xr.testing.assert_identical(back.weights, fit.weights)
    xr.testing.assert_identical(back.bootstrap(10, random_seed=1), fit.bootstrap(10, random_seed=1))
    assert back.rule == fit.rule
    with pytest.raises(UnsupportedError, match="no models"):
        back.logpdf()


def test_save_and_load_keep_labels_notes_and_units(rng, tmp_path):
    y = xr.DataArray(
        rng.lognormal(size=(4, 3)),
        dims=("school", "year"),
        coords={"school": list("abcd"), "year": np.array(["2001", "2002", "2003"], "M8[Y]")},
    )
    mu = 0.1 * rng.normal(size=(4, 100))
    models = {
        "a": lq.from_family("normal", y=y, mu=mu + 1, sigma=1.0),
        "b": lq.from_family("lognormal", y=y, mu=mu, sigma=1.0),
    }
    with pytest.warns(SupportWarning):
        fit = lq.lock(models, scale=2.0, prior=[1.0, 2.0], scores="in-sample")
    fit.save(tmp_path / "fit.nc")
    back = lq.load(tmp_path / "fit.nc")
    assert shown(back) == shown(fit)
    assert back.remarks == fit.remarks != ()
    assert back.rule == lq.Hyvarinen(scale=2.0, transform="log")
    assert list(back.pointwise["school"].values) == list("abcd")
    np.testing.assert_array_equal(back.pointwise, fit.pointwise)


def test_save_and_load_of_a_vector_outcome(rng, tmp_path):
    y = rng.normal(size=(20, 2))
    models = {
        name: lq.from_family("mv_normal", y=y, mu=0.1 * rng.normal(size=(4, 50, 2)), cov=cov)
        for name, cov in (("a", np.eye(2)), ("b", np.eye(2) + 0.5))
    }
    fit = lock(models)
    fit.save(tmp_path / "fit.nc")
    assert shown(lq.load(tmp_path / "fit.nc")) == shown(fit)


def test_save_and_load_need_no_extras(fit, tmp_path, monkeypatch):
    from lockquack.files import formats

    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    fit.save(tmp_path / "fit.nc")
    assert (tmp_path / "fit.nc").read_bytes().startswith(b"CDF")
    assert shown(lq.load(tmp_path / "fit.nc")) == shown(fit)
    for write in (lambda: fit.save(tmp_path / "fit.zarr"), lambda: fit.models["left"].save("m.nc")):
        with pytest.raises(ImportError, match="pip install"):
            write()
    monkeypatch.undo()
    fit.save(tmp_path / "hdf5.nc")
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install"):
        lq.load(tmp_path / "hdf5.nc")


def test_other_files_are_refused(tmp_path):
    xr.Dataset({"a": 1.0}).to_netcdf(tmp_path / "other.nc")
    with pytest.raises(LockquackError, match="does not hold a combination"):
        lq.load(tmp_path / "other.nc")
    with pytest.raises(FileNotFoundError, match=r"nothere\.nc"):
        lq.load(tmp_path / "nothere.nc")


def test_models_and_results_can_be_pickled(fit):
    back = pickle.loads(pickle.dumps(fit))
    assert shown(back) == shown(fit)
    assert back.logpdf().shape == (30,)


def test_every_error_and_warning_has_our_base():
    kinds = [
        kind for kind in vars(errors).values() if getattr(kind, "__module__", "") == errors.__name__
    ]
    classes = [kind for kind in kinds if isinstance(kind, type)]
    assert len(classes) > 10
    for kind in classes:
        assert issubclass(kind, LockquackWarning | LockquackError)


def test_fits_can_be_pickled_even_after_they_were_asked():
    fit = lq.lock(lq.example_models())
    fit.pit()
    again = pickle.loads(pickle.dumps(fit))
    np.testing.assert_array_equal(again.weights, fit.weights)
    np.testing.assert_allclose(again.mean(), fit.predict().mean(), rtol=1e-12)
    np.testing.assert_allclose(again.cdf(fit.quantile(0.25)), 0.25, atol=1e-8)
