"""Measures of predictions side by side."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.cli import main
from lockquack.errors import LockquackWarning
from lockquack.models.model import sources_of
from lockquack.operators import Linear, Locking
from lockquack.operators.pool import Pool
from lockquack.prediction.distribution import distribution_of
from lockquack.prediction.draws import WeightedDraws
from lockquack.quadrature.beta import BetaTransform
from lockquack.testing import example_models


def quiet(act, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return act(*args, **options)


def crps_of_normal(y, mu, sigma):
    """Gneiting and Raftery (2007), equation 21's closed form for normal distributions."""
    z = (y - mu) / sigma
    normal = stats.norm
    return sigma * (z * (2 * normal.cdf(z) - 1) + 2 * normal.pdf(z) - 1 / np.sqrt(np.pi))


def brute_force(y, quantile, n=100_000):
    """E|X − y| − ½ E|X − X'| over as many quantiles as need be."""
    u = (np.arange(n) + 0.5) / n
    x = quantile(u)
    apart = (x * (2 * u - 1)).mean()  # ½ E|X − X'| of sorted draws
    return np.abs(x - y).mean() - apart


def one(family, y, **parameters):
    draws = {name: np.full((1, 2), value) for name, value in parameters.items()}
    return {"a": lq.from_family(family, y=y, **draws)}


def pooled(models, x, operator=None, by=None):
    pool = Pool(operator or Linear(), np.asarray(x), len(models), by)
    return distribution_of(sources_of(models), pool)


@pytest.mark.parametrize("sigma", [0.01, 1.0, 300.0])
def test_crps_of_a_normal_has_a_closed_form(sigma):
    y = 2.0 + sigma * np.array([-30.0, -4.0, -1.0, 0.0, 0.3, 2.0, 6.0, 200.0])
    found = pooled(one("normal", y, mu=2.0, sigma=sigma), [1.0]).crps(y[None])[0]
    np.testing.assert_allclose(found, crps_of_normal(y, 2.0, sigma), rtol=1e-9)


def test_crps_of_a_locked_pool_of_normals_is_that_of_a_normal(rng):
    y = rng.normal(size=5)
    models = {
        "a": lq.from_family("normal", y=y, mu=np.zeros((1, 2)), sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=np.ones((1, 2)), sigma=1.0),
    }
    found = pooled(models, [0.5, 0.5], Locking())
    points = np.linspace(-3.0, 4.0, 15)[:, None] * np.ones(5)
    np.testing.assert_allclose(found.crps(points), crps_of_normal(points, 0.5, 1.0), rtol=1e-8)


@pytest.mark.parametrize(
    ("family", "parameters", "exact"),
    [
        ("student_t", {"nu": 3.0, "mu": 0.0, "sigma": 1.0}, stats.t(3)),
        ("gamma", {"alpha": 0.7, "beta": 2.0}, stats.gamma(0.7, scale=0.5)),
        ("exponential", {"lam": 2.0}, stats.expon(scale=0.5)),
        ("beta", {"alpha": 0.6, "beta": 3.0}, stats.beta(0.6, 3.0)),
    ],
)
def test_crps_of_other_distributions_is_a_mean_distance(family, parameters, exact):
    y = exact.ppf([0.02, 0.4, 0.97])
    found = pooled(one(family, y, **parameters), [1.0]).crps(y[None])[0]
    assert found == pytest.approx([brute_force(each, exact.ppf) for each in y], rel=5e-3)
    grid = exact.ppf(np.linspace(1e-9, 1 - 1e-9, 50_001))
    F = exact.cdf(grid)
    for each, score in zip(y, found, strict=True):
        integral = np.trapezoid(np.square(F - (grid >= each)), grid)
        assert score == pytest.approx(integral, rel=5e-3)


def test_crps_of_a_cauchy_exists_although_its_mean_does_not():
    y = np.array([-2.0, 0.0, 5.0])
    found = pooled(one("student_t", y, nu=1.0, mu=0.0, sigma=1.0), [1.0]).crps(y[None])[0]
    t = np.tan(np.pi * (np.linspace(1e-6, 1 - 1e-6, 2_000_001) - 0.5))
    F = stats.cauchy.cdf(t)
    # The integral of F² beyond the ends is 1 / (π² |t|) each.
    exact = [np.trapezoid(np.square(F - (t >= each)), t) + 2 / (np.pi**2 * t[-1]) for each in y]
    assert found == pytest.approx(exact, rel=1e-4)


def test_crps_of_recalibrated_predictions_is_that_of_their_quantiles():
    y, by = np.array([-1.0, 0.2, 3.0]), BetaTransform(0.5, 0.8)
    found = pooled(one("normal", y, mu=0.0, sigma=1.0), [1.0], by=by).crps(y[None])[0]

    def quantile(u):
        return stats.norm.ppf(stats.beta(0.5, 0.8).ppf(u))

    assert found == pytest.approx([brute_force(each, quantile) for each in y], rel=1e-3)


@pytest.mark.parametrize("y", [-2.0, 0.0, 3.0, 3.4, 40.0])
def test_crps_of_counts_is_a_sum(y):
    rate, k = 4.0, np.arange(0, 200)
    found = pooled(one("poisson", np.array([3]), mu=rate), [1.0]).crps(np.array([[y]]))[0, 0]
    t = np.concatenate([[-5.0], np.unique(np.append(k, y))])
    steps = np.square(stats.poisson(rate).cdf(t[:-1]) - (t[:-1] >= y))
    assert found == pytest.approx((steps * np.diff(t)).sum(), rel=1e-9)


def test_crps_of_weighted_draws_is_the_double_sum(rng):
    draws, weights, y = rng.normal(size=(30, 2)), rng.random((30, 2)), rng.normal(size=(3, 2))
    share = weights / weights.sum(axis=0)
    found = WeightedDraws.of(draws, weights).crps(y)
    for k in range(2):
        apart = np.abs(draws[:, None, k] - draws[None, :, k])
        for j in range(3):
            exact = share[:, k] @ np.abs(draws[:, k] - y[j, k])
            exact -= share[:, k] @ apart @ share[:, k] / 2
            assert found[j, k] == pytest.approx(exact, rel=1e-12)


def test_metrics_are_what_their_names_say(rng):
    models = example_models()
    fit = lq.lock(models)
    table = fit.metrics(prob=0.8)
    assert list(table.index) == ["[lock]", "[stack]", "first", "second"]
    for label, each in {"[lock]": fit, "[stack]": lq.stack(models)}.items():
        row, prediction = table.loc[label], each.predict(loo=True)
        y, mean = fit.observations.values[:, 0], prediction.mean().values
        low, high = prediction.interval(0.8).values
        assert row["elpd"] == pytest.approx(float(prediction.logpdf().sum()), abs=1e-6)
        assert row["crps"] == pytest.approx(float(prediction.crps().mean()), rel=1e-7)
        assert row["coverage_0.8"] == pytest.approx(((low <= y) & (y <= high)).mean())
        assert row["width_0.8"] == pytest.approx((high - low).mean(), rel=1e-7)
        assert row["rmse"] == pytest.approx(np.sqrt(np.square(y - mean).mean()), rel=1e-7)
        share = np.square(y - mean).sum() / np.square(y - y.mean()).sum()
        assert row["r2"] == pytest.approx(1 - share, rel=1e-6)
    scores = fit.to_dataframe()["score"]
    assert table.loc["[lock]", "hyvarinen"] == pytest.approx(scores["[lock]"], rel=1e-3)
    assert table.loc["first", "elpd"] == pytest.approx(
        lq.stack(models).to_dataframe()["score"]["first"], abs=1e-9
    )


def test_metrics_count_cases_as_often_as_they_count(rng):
    y, counts = rng.normal(size=12), np.array([0, 1, 2, 3] * 3)
    mu = 0.1 * rng.normal(size=(2, 40))

    def fit(y, weights=None):
        models = {
            "a": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
            "b": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.5),
        }
        if weights is not None:
            models = {name: m.with_weights(weights) for name, m in models.items()}
        return quiet(lq.stack, models)

    weighted = quiet(fit(y, counts).metrics)
    repeated = quiet(fit(np.repeat(y, counts)).metrics)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-5)


def test_metrics_of_a_recalibrated_combination_say_before_and_after(rng):
    y = 2.0 * rng.normal(size=60)
    mu = 0.05 * rng.normal(size=(2, 50))
    models = {
        "a": lq.from_family("normal", y=y, mu=mu - 0.1, sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=mu + 0.1, sigma=1.0),
    }
    fit = quiet(quiet(lq.lock, models).recalibrated)
    table = quiet(fit.metrics)
    assert list(table.index[:2]) == ["[lock, recalibrated]", "[lock]"]
    assert table["crps"].iloc[0] < table["crps"].iloc[1]
    assert table["elpd"].iloc[0] == pytest.approx(float(fit.logpdf(loo=True).sum()), abs=1e-6)
    assert table["hyvarinen"].iloc[0] == pytest.approx(fit.to_dataframe()["score"].iloc[0])


def test_metrics_of_models_known_by_draws_and_of_vectors(rng):
    y = rng.normal(size=(20, 2))
    mu = np.zeros((4, 25, 2)) + 0.1 * rng.normal(size=(4, 25, 2))
    models = {
        "a": lq.from_family("mv_normal", y=y, mu=mu, cov=np.eye(2)),
        "b": lq.from_family("mv_normal", y=y, mu=mu + 0.5, cov=np.eye(2)),
    }
    table = quiet(quiet(lq.lock, models).metrics)
    each = [crps_of_normal(y[:, j], 0.0, 1.0).mean() for j in (0, 1)]
    assert table.loc["a", "crps"] == pytest.approx(np.mean(each), rel=0.05)
    assert table.loc["[lock]", "coverage_0.9"] == pytest.approx(0.9, abs=0.12)
    stored = {}
    for name, model in example_models().items():
        tree = model.to_datatree()
        shape = (model.n_chains, model.n_draws, 40)
        drawn = xr.Dataset({"y": (("chain", "draw", "obs_id"), rng.normal(size=shape))})
        parts = {key: tree[key].to_dataset() for key in ("log_likelihood", "observed_data")}
        stored[name] = lq.from_datatree(
            xr.DataTree.from_dict({**parts, "posterior_predictive": drawn})
        )
    table = quiet(quiet(lq.stack, stored).metrics)
    assert np.isfinite(table.drop(columns="hyvarinen")).all().all()
    assert table["hyvarinen"].isna().all()


def test_the_rule_and_the_prediction_agree_on_crps(rng):
    # Two ways to the same integral: the rule's quadratic form, and the pool's own panels.
    fit = quiet(lq.combine, example_models(), lq.Linear(), lq.CRPS(scale=1.0))
    total = fit.to_dataframe()["score"].iloc[0]
    assert total == pytest.approx(-float(fit.predict(loo=True).crps().sum()), rel=1e-9)
    found = quiet(fit.recalibrated)
    again = -float(found.predict(loo=True).crps().sum())
    assert found.to_dataframe()["score"].iloc[0] == pytest.approx(again, rel=1e-9)


def test_predictive_draws_alone_are_measured_and_recalibrated(rng):
    y = 2.0 * rng.normal(size=80)
    models = {
        name: lq.from_draws(rng.normal(mu, 1.0, size=(4, 250, 80)), y=y, held_out=True)
        for name, mu in (("a", -0.2), ("b", 0.2))
    }
    found = quiet(quiet(lq.combine, models, lq.Linear(), lq.CRPS()).recalibrated)
    table = quiet(found.metrics)
    assert table[["elpd", "hyvarinen"]].isna().all().all()
    assert table["coverage_0.9"].iloc[0] == pytest.approx(0.9, abs=0.08)
    assert table["coverage_0.9"].iloc[1] < 0.8
    assert table["crps"].iloc[0] < table["crps"].iloc[1]


def test_rows_without_a_mean_are_named(rng):
    y = rng.standard_t(2, size=30)
    mu = 0.1 * rng.normal(size=(2, 30))
    nu = rng.uniform(0.7, 3.0, size=(2, 30))
    models = {
        "t": lq.from_family("student_t", y=y, nu=nu, mu=mu, sigma=1.0),
        "normal": lq.from_family("normal", y=y, mu=mu, sigma=2.0),
    }
    table = quiet(lq.compare, models, ["equal"], metrics=True)
    assert "for a mean: " in repr(table)
    named = table.without_mean.rpartition(": ")[2].rstrip(".").split(", ")
    assert sorted(named) == ["equal", "t"]
    assert quiet(lq.compare, models, ["equal"]).without_mean == ""


def test_compare_measures_what_was_held_out(rng):
    y = 2.0 * rng.normal(size=60)
    mu = 0.05 * rng.normal(size=(2, 50))
    models = {
        "a": lq.from_family("normal", y=y, mu=mu - 0.5, sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=mu + 0.5, sigma=1.0),
    }
    folds = np.arange(60) % 3
    table = quiet(lq.compare, models, ["stack", "equal"], cv=folds, recalibrated=True, metrics=True)
    crps, elpd = np.empty(60), np.empty(60)
    for fold in range(3):
        # What compare does, by hand: fit to two thirds, recalibrate, score the rest.
        train, test = folds != fold, folds == fold

        def part(keep):
            return {
                n: lq.from_family("normal", y=y[keep], mu=mu + s, sigma=1.0)
                for n, s in (("a", -0.5), ("b", 0.5))
            }

        fit = quiet(quiet(lq.stack, part(train)).recalibrated)
        prediction = fit.predict(models=part(test))
        crps[test], elpd[test] = prediction.crps().values, prediction.logpdf().values
    row = table.loc["stack, recalibrated"]
    # There each model's predictions of the rest are leave-one-out, which hardly matters here.
    assert row["crps"] == pytest.approx(crps.mean(), rel=1e-2)
    assert row["elpd"] == pytest.approx(elpd.sum(), abs=0.5)
    assert table.index[0].endswith(", recalibrated")
    alone = quiet(lq.stack, models).metrics()
    assert table.loc["a", "crps"] == pytest.approx(alone.loc["a", "crps"], rel=1e-9)
    assert {"crps", "coverage_0.9", "width_0.9", "rmse", "r2"} <= set(table.rounded())
    assert np.isfinite(table["hyvarinen"]).all()
    assert list(quiet(lq.compare, models, ["stack"]).columns) == [
        name for name in table.columns if name not in table.attrs["metrics"]
    ]


def test_the_command_line_asks_for_them(tmp_path, capsys):
    for name, model in example_models().items():
        model.save(tmp_path / f"{name}.nc")
    paths = [str(tmp_path / f"{name}.nc") for name in example_models()]
    assert main(["compare", *paths, "--methods", "stack", "--metrics", "--recalibrated"]) == 0
    out = capsys.readouterr().out
    assert "stack, recalibrated" in out
    assert "crps" in out


def test_recalibrated_energy_scores_are_in_the_units_of_the_others(rng):
    """Of single numbers the energy score is CRPS in units of their spread, recalibrated or not."""
    y = 10.0 * rng.normal(size=40)
    mu = rng.normal(size=(2, 50))
    models = {
        name: lq.from_family("normal", y=y, mu=mu, sigma=s) for name, s in (("a", 10), ("b", 20))
    }
    crps, energy = (
        quiet(lq.compare, models, ["equal"], rule=rule, recalibrated=True)[rule]
        for rule in ("crps", "energy")
    )
    np.testing.assert_allclose(energy * y.std(ddof=1), crps[energy.index], rtol=1e-9)
