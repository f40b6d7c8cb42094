"""Models of which draws are all that is known, side by side: CRPS and energy score decide."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scoringrules
import xarray as xr

import lockquack as lq
from lockquack.cli import main
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.methods.folds import read_folds
from lockquack.methods.verdicts import judge

pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")

N, S = 90, 120


def regression(shift, spread, rng, x, y, **options):
    drawn = x + shift + spread * rng.normal(size=(2, S // 2, x.size))
    return lq.from_draws(drawn, y=y, held_out=True, **options)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    y = 3.0 * (x + rng.normal(size=N)) + 50.0
    models = {
        "low": regression(50 - 1.5, 3.0, rng, 3 * x, y),
        "high": regression(50 + 1.5, 3.0, rng, 3 * x, y),
        "vague": regression(50, 8.0, rng, 0 * x, y),
    }
    return models, y


@pytest.fixture(scope="module")
def table(case):
    return lq.compare(case[0], metrics=True)


def members(model):
    """Draws as scoringrules takes them, (obs, member)."""
    return model.source.outcome_draws.values.reshape(S, N).T


def test_crps_decides_by_itself_and_says_so(table):
    assert table.attrs["led_by"] == "crps"
    methods = ["stack by CRPS", "quantiles", "equal", "equal quantiles", "select by CRPS"]
    assert set(table.index) == {*methods, "low", "high", "vague"}
    assert table["crps"].is_monotonic_increasing
    assert table[["elpd", "hyvarinen", "p_loo"]].isna().all(axis=None)
    assert "smaller is better" in table.heading
    assert "known by draws of outcomes only" in repr(table)
    assert "CRPS decides" in repr(table)


def test_models_have_the_crps_that_scoringrules_has(case, table):
    models, y = case
    for name, model in models.items():
        each = scoringrules.crps_ensemble(y, members(model), estimator="nrg")
        best = scoringrules.crps_ensemble(y, members(models["low"]), estimator="nrg")
        assert table.loc[name, "crps"] == pytest.approx(each.mean(), rel=1e-9)
        if table.index[0] == "low":
            assert table.loc[name, "crps_diff"] == pytest.approx((each - best).mean(), abs=1e-9)


def test_held_out_scores_by_hand(case):
    """Fit to all folds but one, pool the members with these weights, score that one."""
    models, y = case
    by = lq.compare(models, ["stack by CRPS", "equal"], cv=5, random_seed=3)
    folds = read_folds(5, next(iter(models.values())).observations, 3)
    pooled = np.concatenate([members(model) for model in models.values()], axis=1)
    each = np.empty(N)
    for fold in folds:
        rest = np.setdiff1d(np.arange(N), fold)
        part = {
            name: lq.from_draws(members(model)[rest].T[None], y=y[rest], held_out=True)
            for name, model in models.items()
        }
        w = lq.combine(part, "linear", "crps").weights.values
        weights = np.tile(np.repeat(w, S) / S, (fold.size, 1))
        away = (weights * np.abs(pooled[fold] - y[fold, None])).sum(axis=1)
        apart = np.abs(pooled[fold][:, :, None] - pooled[fold][:, None])
        each[fold] = away - np.einsum("ij,ijk,ik->i", weights, apart, weights) / 2
    assert by.loc["stack by CRPS", "crps"] == pytest.approx(each.mean(), rel=1e-6)
    equal = scoringrules.crps_ensemble(y, pooled, estimator="nrg")
    assert by.loc["equal", "crps"] == pytest.approx(equal.mean(), rel=1e-9)
    apart = each - equal
    best_first = by.loc["equal", "crps_diff"] + by.loc["stack by CRPS", "crps_diff"]
    assert best_first == pytest.approx(abs(apart.mean()), rel=1e-5)
    errors = by.loc[["equal", "stack by CRPS"], "crps_dse"].max()
    assert errors == pytest.approx(apart.std(ddof=1) / np.sqrt(N), rel=1e-5)


def test_the_quantile_average_wins_where_models_are_right_but_for_a_shift(case, table):
    assert table.index[0] in ("quantiles", "equal quantiles")
    assert table.loc["quantiles", "crps"] < table.loc["stack by CRPS", "crps"]
    assert table.loc["quantiles", "width_0.9"] < table.loc["stack by CRPS", "width_0.9"]


def test_measures_are_those_of_the_same_predictions(case, table):
    models, _ = case
    fit = lq.combine(models, lq.Selection(), lq.CRPS())
    chosen = fit.weights.idxmax("model").item()
    measured = fit.metrics().loc[chosen]
    for column in ("coverage_0.9", "width_0.9", "rmse", "r2"):
        assert table.loc[chosen, column] == pytest.approx(measured[column])
    assert table.loc[chosen, "crps"] == pytest.approx(measured["crps"])


def test_a_model_with_densities_may_be_among_them(case):
    models, y = case
    rng = np.random.default_rng(2)
    density = lq.from_family("normal", y=y, mu=y.mean() + rng.normal(size=(2, 40)), sigma=4.0)
    found = lq.compare({"density": density, **models})
    assert found.attrs["led_by"] == "crps"
    assert found.loc["density", "verdict"] == "worse"
    for name in models:
        assert found.loc[name, "crps"] == pytest.approx(
            lq.compare(models, ["equal"]).loc[name, "crps"]
        )


def test_of_densities_the_log_score_decides_unless_told_otherwise(case):
    _, y = case
    rng = np.random.default_rng(2)
    models = {
        name: lq.from_family(
            "normal", y=y, mu=y.mean() + at + rng.normal(size=(2, 40)) / 9, sigma=sd
        )
        for name, at, sd in (("a", -2.0, 3.0), ("b", 1.5, 5.0))
    }
    methods = ["lock", "stack", "stack by CRPS"]
    usual, by_crps = lq.compare(models, methods), lq.compare(models, methods, rule="crps")
    assert usual.attrs["led_by"] == "elpd"
    assert "crps" not in usual
    assert by_crps.attrs["led_by"] == "crps"
    for column in ("elpd", "hyvarinen"):
        np.testing.assert_allclose(by_crps.loc[usual.index, column], usual[column], rtol=1e-6)
    measured = lq.compare(models, methods, metrics=True)
    np.testing.assert_allclose(
        by_crps.loc[usual.index, "crps"], measured.loc[usual.index, "crps"], rtol=1e-5
    )
    every = lq.compare(models, rule=lq.CRPS())
    assert {"quantiles", "equal quantiles", "select by CRPS", "lock", "quack"} <= set(every.index)
    assert every["crps"].notna().all()
    assert np.isnan(every.loc["quantiles", "elpd"])


def test_units_change_nothing_but_the_scores(case, table):
    models, y = case
    scaled = {
        name: lq.from_draws(members(model).T[None] * 1e3, y=y * 1e3, held_out=True)
        for name, model in models.items()
    }
    found = lq.compare(scaled)
    assert list(found.index) == list(table.index)
    assert list(found["verdict"]) == list(table["verdict"])
    np.testing.assert_allclose(found["crps"], 1e3 * table["crps"], rtol=1e-6)


def test_the_energy_score_decides_for_vectors():
    rng = np.random.default_rng(4)
    y = rng.normal(size=(40, 2))
    models = {
        name: lq.from_draws(at + rng.normal(size=(1, 60, 40, 2)), y=y, held_out=True)
        for name, at in (("near", 0.1), ("far", 1.5))
    }
    found = lq.compare(models, metrics=True)
    assert found.attrs["led_by"] == "energy"
    assert "energy score" in found.heading
    near = models["near"].source.outcome_draws.values[0] / y.std(
        axis=0, ddof=1
    )  # (member, obs, component)
    each = scoringrules.es_ensemble(y / y.std(axis=0, ddof=1), np.moveaxis(near, 0, 1))
    assert found.loc["near", "energy"] == pytest.approx(each.mean(), rel=1e-9)
    assert "quantiles" not in found.index
    assert found.loc["near", "crps"] < found.loc["far", "crps"]


def test_recalibrated_and_by_groups(case):
    models, _ = case
    groups = np.arange(N) % 2
    found = lq.compare(models, by=groups, recalibrated=True)
    assert {"stack by CRPS ~ covariate", "quantiles, recalibrated", "equal, recalibrated"} <= set(
        found.index
    )
    assert found["crps"].notna().all()


def test_what_cannot_be_is_said(case):
    models, y = case
    with pytest.raises(UnsupportedError, match=r"'stack'.*draws of outcomes.*'stack by CRPS'"):
        lq.compare(models, ["stack"])
    with pytest.raises(ParameterError, match="'crps', 'energy' or None"):
        lq.compare(models, rule="log")
    seen = {"a": lq.from_draws(members(models["low"]).T[None], y=y)}
    with pytest.raises(UnsupportedError, match="held_out=True"):
        lq.compare(seen)
    assert lq.compare(seen, scores="in-sample").attrs["led_by"] == "crps"


def test_the_report_shows_it(case, tmp_path):
    fit = lq.combine(case[0], "linear", "crps")
    said = fit.report(tmp_path / "report.html").read_text()
    assert "CRPS decides" in said
    assert "equal quantiles" in said


def test_the_picture_is_of_the_score_that_decides(table):
    assert "mean CRPS" in lq.plot_compare(table).get_xlabel()


@pytest.fixture
def files(tmp_path):
    """Predictions of ArviZ without log densities, and the outcomes that came true."""
    rng = np.random.default_rng(6)
    y = rng.normal(size=30)
    pd.DataFrame({"y": y}).to_csv(tmp_path / "y.csv", index=False)
    for name, at in (("p", 0.2), ("q", -0.8)):
        drawn = xr.Dataset({"y": (("chain", "draw", "day"), at + rng.normal(size=(2, 60, 30)))})
        xr.DataTree.from_dict({"predictions": drawn}).to_netcdf(tmp_path / f"{name}.nc")
    return [str(tmp_path / "p.nc"), str(tmp_path / "q.nc"), "--y", str(tmp_path / "y.csv:y")]


def test_the_command_line_takes_predictions_alone(files, capsys):
    assert main(["compare", *files, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["table"]["stack by CRPS"]["crps"] < found["table"]["q"]["crps"]
    assert main(["compare", *files]) == 0
    assert "CRPS decides" in capsys.readouterr().out
    assert main(["weights", *files]) == 0
    assert "--rule crps" in capsys.readouterr().err
    assert main(["weights", *files, "--operator", "quantiles", "--rule", "crps", "--csv"]) == 0
    assert "[quantiles]" in capsys.readouterr().out


def test_predictions_of_arviz_are_held_out(files):
    y = pd.read_csv(files[-1].removesuffix(":y"))["y"].to_numpy()
    fit = lq.combine(
        {"p": lq.from_draws(np.zeros((1, 5, 30)), y=y, held_out=True)}, "linear", "crps"
    )
    assert fit.predict(models={"p": files[0]}).mean().sizes == {"day": 30}


def test_a_thousandth_of_the_best_crps_is_noise():
    best = -np.random.default_rng(1).gamma(2.0, size=200)
    behind = best - 0.0009 * np.abs(best).mean()  # by the same everywhere: no standard error
    scores = np.stack([best, behind, 1.02 * best])
    doubtful = np.zeros(scores.shape, dtype=bool)
    found = judge(scores, doubtful, in_nats=False, are_distances=True)
    assert found == ["best", "noise", "worse"]
