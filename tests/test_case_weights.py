"""Case weights: whole ones do what repeated observations do, and all of them what is promised."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import lockquack as lq
from lockquack.cli import main
from lockquack.errors import (
    IdentifiabilityWarning,
    LockquackWarning,
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    UnknownNameError,
)
from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.formulas import bootstrap_counts
from lockquack.fitting.uncertainty import expand_around
from lockquack.methods.method import METHODS
from lockquack.operators import OPERATORS
from lockquack.quadrature.uniformity import uniformity
from lockquack.rules import RULES
from lockquack.totals import error_of_total, standard_deviation
from tests.helpers import shown
from tests.test_fitting import PAIRS, N, named, pose

TIMES = np.random.default_rng(3).integers(0, 4, size=N)
REPEATED = np.repeat(np.arange(N), TIMES)


def counted(densities, weights):
    return replace(densities, case_weights=np.asarray(weights, dtype=float))


def pair_of(pair, evidence):
    return pose(pair, evidence=evidence)


def test_every_operator_is_paired_with_every_rule():
    operators, rules = ({p[i] for p in PAIRS} for i in (2, 1))
    assert {type(operator) for operator in operators} >= set(OPERATORS.values())
    assert rules == set(RULES)


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_whole_weights_are_repetitions(pair):
    plain = pose(pair)
    weighted = pair_of(pair, counted(plain.objective.densities, TIMES))
    repeated = pair_of(pair, plain.objective.densities.at(REPEATED))
    got, expected = weighted.solve(), repeated.solve()
    x = expected.x
    np.testing.assert_allclose(got.objective, expected.objective, rtol=1e-9)
    ours, theirs = weighted.objective, repeated.objective
    np.testing.assert_allclose(ours.weights(got.x), ours.weights(x), atol=2e-4)
    # Opposite phases, and phases that differ by a constant, are the same density.
    np.testing.assert_allclose(ours.scores(got.x), ours.scores(x), atol=1e-3)
    assert ours.n_counted == theirs.n_obs
    assert ours.total(ours.scores(x)) == pytest.approx(theirs.total(theirs.scores(x)), rel=1e-11)
    # Countings take the place of the weights, whatever these are.
    counts = np.random.default_rng(4).random((2, N))
    # A search that is not convex takes models in the order of their totals, which weights change.
    rtol = 1e-6 if isinstance(weighted, ConvexFitter) else 5e-5
    for fit in (lambda each: each.refit(counts[0], x), lambda each: each.refit_many(counts, x)):
        np.testing.assert_allclose(fit(weighted), fit(plain), rtol=rtol, atol=1e-6)
    if weighted.is_optimum:
        bends = (expand_around(each, x).hessian for each in (ours, theirs))
        np.testing.assert_allclose(*bends, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pair", [p for p in PAIRS if isinstance(pose(p), ConvexFitter)], ids=named)
def test_slopes_and_bends_of_convex_problems(pair):
    plain = pose(pair)
    weighted = pair_of(pair, counted(plain.objective.densities, TIMES))
    repeated = pair_of(pair, plain.objective.densities.at(REPEATED))
    w = np.full(plain.objective.K, 1.0 / plain.objective.K)
    np.testing.assert_allclose(weighted.weight_slopes(w), repeated.weight_slopes(w), rtol=1e-9)
    np.testing.assert_allclose(
        weighted.half_hessian(w), repeated.half_hessian(w), rtol=1e-9, atol=1e-9
    )
    step = np.eye(w.size)[0] - np.eye(w.size)[1]
    ours, theirs = (each.score_range(w, step, -0.2, 0.2) for each in (weighted, repeated))
    assert ours == pytest.approx(theirs, rel=1e-9)


# Models


RNG = np.random.default_rng(11)
OUTCOMES = RNG.gamma(4.0, 0.8, size=24)
X = RNG.normal(size=24)
WHOLE = RNG.integers(0, 4, size=24)
AGAIN = np.repeat(np.arange(24), WHOLE)
REAL = RNG.gamma(2.0, size=24)


def models(rows=slice(None), **options):
    """Make three models of some rows of the same data, with their posteriors as they are."""
    rng = np.random.default_rng(12)
    slope, level = rng.normal(0.3, 0.1, size=(2, 4, 100, 1))
    y, x = OUTCOMES[rows], X[rows]
    mu = 3.0 + level + slope * x
    return {
        "normal": lq.from_family("normal", y=y, mu=mu, sigma=1.6, **options),
        "t": lq.from_family("student_t", y=y, nu=4.0, mu=3.2 + level[..., 0], sigma=1.2, **options),
        "logistic": lq.from_family("logistic", y=y, mu=3.5 + slope * x, s=1.1, **options),
    }


@pytest.fixture(autouse=True)
def _without_remarks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        yield


def fit_by(label, given):
    method = METHODS.get(label, METHODS["stack"])
    if label == "mix by H":
        return lq.combine(given, "linear", "hyvarinen")
    if label in ("BMA", "select by ML"):
        return lq.bma(given, [0.0, 0.5, 0.2])
    if label.startswith("pseudo"):
        return lq.pseudo_bma(given, bootstrap=label.endswith("+"))
    if label == "equal":
        return lq.equal(given)
    return lq.combine(given, method.operator, method.rule)


@pytest.mark.parametrize(
    "label", [m for m, method in METHODS.items() if not method.rule.is_for_discrete]
)
def test_every_method_takes_whole_weights_for_repetitions(label):
    weighted, repeated = fit_by(label, models(weights=WHOLE)), fit_by(label, models(AGAIN))
    np.testing.assert_allclose(weighted.mcse, repeated.mcse, rtol=1e-6)
    got, expected = (fit.objective.total(fit._scored) for fit in (weighted, repeated))
    np.testing.assert_allclose(got[1:], expected[1:], rtol=1e-6)
    if label != "pseudo-BMA+":  # an average over a bootstrap, which is not one of repetitions
        np.testing.assert_allclose(weighted.weights, repeated.weights, atol=1e-4)
        np.testing.assert_allclose(got[0], expected[0], rtol=1e-6)


@pytest.mark.parametrize("scores", ["loo", "in-sample", "held-out"])
def test_monte_carlo_errors_are_those_of_the_weighted_total(scores):
    for rule in ("hyvarinen", "log"):
        weighted = lq.combine(models(weights=WHOLE), "linear", rule, scores=scores)
        repeated = lq.combine(models(AGAIN), "linear", rule, scores=scores)
        np.testing.assert_allclose(weighted.mcse, repeated.mcse, rtol=1e-8)


@pytest.mark.parametrize("label", ["lock", "stack", "mix by H"])
def test_an_observation_of_weight_zero_might_as_well_not_be_there(label):
    weights = np.where(WHOLE > 0, REAL, 0.0)
    some = WHOLE > 0
    with_zeros = fit_by(label, models(weights=weights))
    without = fit_by(label, models(some, weights=weights[some]))
    bootstrapped = ["weight_se", "weight_5%", "weight_95%"]  # other random numbers
    got, expected = (
        each.to_dataframe().drop(columns=bootstrapped) for each in (with_zeros, without)
    )
    pd.testing.assert_frame_equal(got, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(with_zeros.sandwich(), without.sandwich(), rtol=1e-3, atol=1e-6)
    left, right = (each.coverage([0.5, 0.9]) for each in (with_zeros, without))
    pd.testing.assert_frame_equal(left, right, rtol=1e-4)


def test_twice_the_weights_make_nothing_more_certain():
    def fit(factor):
        draws = np.random.default_rng(1).normal(size=(2, 4, 50)) / 10
        apart = {
            name: lq.from_family(
                "normal", y=OUTCOMES, mu=centre + each, sigma=1.6, weights=factor * REAL
            )
            for name, centre, each in zip("ab", (2.0, 5.0), draws, strict=True)
        }
        return lq.lock(apart, prior=1.0, scale=1.0)

    once, twice = fit(1.0), fit(2.0)
    assert 0.05 < once.weights[0] < 0.95
    a, b = once.to_dataframe(), twice.to_dataframe()
    same = ["weight", "weight_se", "weight_5%", "weight_95%"]
    np.testing.assert_allclose(a[same], b[same], atol=1e-7)
    double = ["score", "score_se", "diff", "diff_se", "mcse", "elpd", "elpd_se"]
    np.testing.assert_allclose(2 * a[double], b[double], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(once.sandwich(), twice.sandwich(), rtol=1e-4, atol=1e-8)
    rates = [each.posterior(5, random_seed=1).attrs["learning_rate"] for each in (once, twice)]
    assert rates[0] == pytest.approx(2 * rates[1], rel=1e-4)


@pytest.mark.parametrize("few", [np.r_[1e5, np.ones(59)], np.r_[np.ones(5), np.zeros(55)]])
def test_nearly_all_weight_on_a_few_shows_no_errors(few):
    """The others do not show how much the few vary."""
    rng = np.random.default_rng(2)
    y, noise = rng.normal(size=60), 0.05 * rng.normal(size=(2, 100))
    models = {
        name: lq.from_family("normal", y=y, mu=noise + at, sigma=1.0, weights=few)
        for name, at in (("a", 0.2), ("b", -0.6))
    }
    with pytest.warns(IdentifiabilityWarning, match="By their case weights, .* are worth [15],"):
        fit = lq.stack(models)
    assert np.isnan(fit.weights_se).all()
    assert fit.to_dataframe()["diff_se"].isna().all()
    table = lq.compare(models, ["stack", "equal"])
    assert not {"worse", "noise"} & set(table["verdict"])


def test_bootstrap_counts_are_weights_times_exponential_numbers():
    counts = bootstrap_counts(np.random.default_rng(5), 20_000, 24, REAL)
    np.testing.assert_allclose(counts.sum(axis=1), REAL.sum())
    np.testing.assert_allclose(counts.mean(axis=0), REAL, rtol=0.1)
    raw = np.random.default_rng(5).standard_exponential((20_000, 24)) * REAL
    np.testing.assert_allclose(counts[:, 1] / counts[:, 0], raw[:, 1] / raw[:, 0])
    # What it says of a total is what its standard error says, but for a factor of m / (m - 1).
    weights = np.tile(REAL, 50)
    values, counts = RNG.normal(size=1200), bootstrap_counts(RNG, 2000, 1200, weights)
    expected = error_of_total(values, weights, ddof=0)
    assert (counts @ values).std() == pytest.approx(float(expected), rel=0.05)


def test_bootstrap_and_sandwich_agree_on_the_spread_of_weights():
    rng = np.random.default_rng(6)
    n = 400
    y, weights = rng.normal(0.5, 1.3, size=n), rng.gamma(1.5, size=n)
    draws = np.zeros((2, 4))
    fit = lq.lock(
        {
            "a": lq.from_family("normal", y=y, mu=draws, sigma=1.0, weights=weights),
            "b": lq.from_family("normal", y=y, mu=draws + 1.0, sigma=1.5, weights=weights),
        }
    )
    drawn = fit.bootstrap(2000, random_seed=1).std("draw")
    np.testing.assert_allclose(np.sqrt(np.diag(fit.sandwich())), drawn, rtol=0.1)


def test_standard_errors_are_those_of_a_survey():
    values, weights = RNG.normal(size=(3, 50)), RNG.gamma(2.0, size=50)
    mean = np.average(values, axis=1, weights=weights)
    squares = [np.sum(weights**2 * (row - m) ** 2) for row, m in zip(values, mean, strict=True)]
    expected = np.sqrt(50 / 49 * np.array(squares))
    np.testing.assert_allclose(error_of_total(values, weights), expected)
    np.testing.assert_allclose(
        error_of_total(values, np.ones(50)), np.sqrt(50) * values.std(axis=1, ddof=1)
    )
    assert np.isnan(error_of_total(values, np.eye(50)[0])).all()


def test_the_unit_of_the_outcome_is_weighted():
    y = OUTCOMES[:, None]
    np.testing.assert_allclose(
        standard_deviation(y, WHOLE.astype(float)), y[AGAIN].std(axis=0, ddof=1)
    )
    # Weights that add up to one are no sample of size one.
    normalised = REAL / REAL.sum()
    variance = np.average((y[:, 0] - np.average(y[:, 0], weights=REAL)) ** 2, weights=REAL)
    np.testing.assert_allclose(standard_deviation(y, normalised), np.sqrt(variance * 24 / 23))
    units = [
        fit.rule.unit(fit.observations.values, fit.observations.weights)
        for fit in (lq.lock(models(weights=WHOLE)), lq.lock(models(AGAIN)))
    ]
    np.testing.assert_allclose(*units)


def test_folds_of_a_comparison_are_weighted():
    folds = np.arange(24) % 4
    methods = ["lock", "stack", "pseudo-BMA", "select", "equal"]
    got = lq.compare(models(weights=WHOLE), methods, cv=folds)
    expected = lq.compare(models(AGAIN), methods, cv=folds[AGAIN])
    columns = ["elpd", "elpd_diff", "hyvarinen", "hyvarinen_diff", "weight[t]"]
    pd.testing.assert_frame_equal(got[columns], expected[columns], rtol=1e-5, atol=1e-5)
    twice = lq.compare(models(weights=2 * WHOLE), ["stack", "equal"], cv=folds)
    once = got.loc[["stack", "equal"]]
    np.testing.assert_allclose(
        twice.loc[once.index, ["elpd", "se"]], 2 * once[["elpd", "se"]], rtol=1e-6
    )
    one = np.eye(24)[3]
    with pytest.raises(ParameterError, match="One fold of cv holds all observations"):
        lq.compare(models(weights=one), methods, cv=folds, hyvarinen=lq.Hyvarinen(scale=1.0))


def test_coverage_is_that_of_repetitions():
    got = lq.stack(models(weights=WHOLE)).coverage([0.5, 0.9])
    expected = lq.stack(models(AGAIN)).coverage([0.5, 0.9])
    columns = ["0.5", "0.9", "width_0.9"]
    pd.testing.assert_frame_equal(got[columns], expected[columns], rtol=1e-5)


def test_uniformity_of_weighted_numbers():
    pit = np.random.default_rng(7).random(60)
    assert uniformity(pit, np.full(60, 3.0)) == uniformity(pit)
    some = np.arange(60) < 40
    assert uniformity(pit, some.astype(float)) == uniformity(pit[some])
    # Under the hypothesis the level is kept, whatever the weights.
    rng = np.random.default_rng(8)
    weights = rng.gamma(0.7, size=80)
    rejected = np.mean([uniformity(rng.random(80), weights) < 0.1 for _ in range(400)])
    assert 0.05 < rejected < 0.15
    crowded = np.where(weights > np.quantile(weights, 0.7), 0.5, rng.random(80))
    assert uniformity(crowded, weights) < 0.01 < uniformity(crowded, 1.0 * (crowded != 0.5))


# What is shown, saved and refused


def test_the_table_says_so():
    fit = lq.lock(models(weights=WHOLE))
    assert f"case weights: sum {WHOLE.sum()}" in repr(fit)
    assert "case weights" in fit._repr_html_()
    assert "case weights" not in repr(lq.lock(models()))
    np.testing.assert_array_equal(fit.pointwise["case_weights"], WHOLE)
    total = (fit.pointwise * fit.pointwise["case_weights"]).sum("obs_id")
    np.testing.assert_allclose(total, fit.to_dataframe()["score"])


def test_pictures_show_what_counts():
    pytest.importorskip("matplotlib")
    fit = lq.stack(models(weights=WHOLE))
    ax = fit.plot_scores("t")
    assert ax.get_ylabel() == "difference in log score × case weight"
    table = fit.to_dataframe().loc["t"]
    total = f"{-table['diff']:+.1f} ± {table['diff_se']:.1f}".replace("-", "−")
    assert ax.get_title(loc="left").endswith(total)
    lines = [lq.stack(m).plot_pit().lines for m in (models(weights=WHOLE), models(AGAIN))]
    for ours, theirs in zip(*lines, strict=True):
        at = np.linspace(0, 1, 5)
        both = (np.interp(at, line.get_xdata(), line.get_ydata()) for line in (ours, theirs))
        np.testing.assert_allclose(*both, atol=0.1)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_models_and_combinations_remember_them(tmp_path, suffix):
    given = models(weights=REAL)
    for name, model in given.items():
        model.save(tmp_path / f"{name}{suffix}")
        again = lq.from_datatree(tmp_path / f"{name}{suffix}")
        np.testing.assert_array_equal(again.observations.weights, REAL)
        plain = lq.from_datatree(tmp_path / f"{name}{suffix}", weights=np.ones(24))
        assert plain.observations.weights is None
    fit = lq.lock(given)
    fit.save(tmp_path / f"fit{suffix}")
    again = lq.load(tmp_path / f"fit{suffix}")
    pd.testing.assert_frame_equal(again.to_dataframe(), fit.to_dataframe())
    assert shown(again) == shown(fit)


@pytest.mark.parametrize("chunks", [(2, 50, 7), (4, 100, 10), (1, 30, 24)])
def test_draws_in_chunks_are_weighted_alike(chunks):
    da = pytest.importorskip("dask.array")
    made = {}
    for lazy in (False, True):
        made[lazy] = {}
        for name, model in models().items():
            source, everything = model.source, slice(0, 24)
            grad, curv = source.all_derivatives(everything)
            arrays = {
                "logp": source.all_logp(everything),
                "grad": grad[..., 0],
                "curv": curv[..., 0],
            }
            if lazy:
                arrays = {key: da.from_array(value, chunks) for key, value in arrays.items()}
            made[lazy][name] = lq.from_arrays(y=OUTCOMES, weights=REAL, **arrays)
    for verb in (lq.lock, lq.stack):
        held, chunked = (verb(each).to_dataframe() for each in made.values())
        pd.testing.assert_frame_equal(chunked, held, rtol=1e-9)


def test_other_weights_are_refused():
    given = models(weights=REAL)
    given["t"] = given["t"].with_weights(REAL[::-1])
    with pytest.raises(ObservationMismatchError, match="'normal' and 't' have different case w"):
        lq.stack(given)
    given["t"] = models()["t"]
    with pytest.raises(ObservationMismatchError, match="'normal' has case weights, model 't' has"):
        lq.lock(given)
    ones = {name: model.with_weights(np.ones(24)) for name, model in models().items()}
    ones["t"] = models()["t"]
    assert lq.stack(ones).observations.weights is None


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (-REAL, ParameterError, "not negative; the weight of observation 0 is -"),
        (np.where(X > 1, np.nan, 1.0), ParameterError, "must be finite"),
        (np.zeros(24), ParameterError, "All case weights are zero"),
        (np.ones(23), ShapeError, r"for each of 24 observations.*got the shape \(23,\)"),
        (2.0, ShapeError, r"got the shape \(\)"),
        (["a"] * 24, ParameterError, "weights is not numeric"),
    ],
)
def test_what_are_no_weights(weights, error, message):
    with pytest.raises(error, match=message):
        models(weights=weights)


def test_labels_decide():
    index = pd.Index([f"p{i}" for i in range(24)])
    y, weights = pd.Series(OUTCOMES, index), pd.Series(REAL, index)
    draws = np.zeros((2, 4))
    model = lq.from_family("normal", y=y, mu=draws, sigma=1.0, weights=weights)
    np.testing.assert_array_equal(model.observations.weights, REAL)
    for shuffled in (weights[::-1], xr.DataArray(weights[::-1], dims="obs_id")):
        with pytest.raises(ObservationMismatchError, match="another order"):
            lq.from_family("normal", y=y, mu=draws, sigma=1.0, weights=shuffled)
    # An index that counts is none, unless it counts in another order.
    counted = pd.Series(REAL)
    plain = lq.from_family("normal", y=OUTCOMES, mu=draws, sigma=1.0)
    np.testing.assert_array_equal(plain.with_weights(counted).observations.weights, REAL)
    with pytest.raises(ObservationMismatchError, match="another order"):
        plain.with_weights(counted.sort_values())
    grid = xr.DataArray(OUTCOMES.reshape(4, 6), dims=("school", "year"))
    turned = xr.DataArray(REAL.reshape(4, 6), dims=("school", "year")).T
    model = lq.from_family("normal", y=grid, mu=draws, sigma=1.0, weights=turned)
    np.testing.assert_array_equal(model.observations.weights, REAL)


def test_weights_of_a_mixture_are_its_own():
    parts = [("normal", {"mu": 0.0, "sigma": 1.0}), ("normal", {"mu": 3.0, "sigma": 2.0})]
    shares = np.tile([0.3, 0.7], (2, 4, 1))
    model = lq.from_family("mixture", y=OUTCOMES, weights=shares, components=parts)
    assert model.observations.weights is None
    np.testing.assert_array_equal(model.with_weights(REAL).observations.weights, REAL)


def test_names_in_a_container():
    tree = models()["t"].to_datatree()
    tree["constant_data"] = xr.DataTree(xr.Dataset({"w": ("w_dim_0", REAL)}))
    model = lq.from_datatree(tree, weights="w")
    np.testing.assert_array_equal(model.observations.weights, REAL)
    assert lq.from_datatree(tree).observations.weights is None
    with pytest.raises(UnknownNameError, match="variable with case weights 'v'"):
        lq.from_datatree(tree, weights="v")


def test_the_command_line(tmp_path, capsys):
    for name, model in models().items():
        tree = model.to_datatree()
        tree["constant_data"] = xr.DataTree(xr.Dataset({"w": ("w_dim_0", REAL)}))
        tree.to_netcdf(tmp_path / f"{name}.nc")
    pd.DataFrame({"y": OUTCOMES, "w": REAL}).to_csv(tmp_path / "data.csv", index=False)
    files = [str(tmp_path / f"{name}.nc") for name in models()]
    expected = lq.stack(models(weights=REAL))
    for weights in ("w", f"{tmp_path}/data.csv:w"):
        options = ["--operator", "linear", "--json", "--case-weights", weights, "--quiet"]
        assert main(["weights", *files, *options]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["case_weights"] == pytest.approx(REAL.sum())
        np.testing.assert_allclose(list(record["weights"].values()), expected.weights, atol=1e-6)
    assert main(["compare", *files, "--case-weights", "w", "--methods", "stack", "--quiet"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"(case weights: sum {REAL.sum():.6g})" in said
    assert main(["weights", *files, "--case-weights", "v", "--quiet"]) == 2
    assert "variable with case weights 'v'" in capsys.readouterr().err


@pytest.mark.parametrize("weights", [None, np.ones(3)])
def test_equal_numbers_do_not_vary(weights):
    """Their mean is rounded, and their distances from it are not zero."""
    values = np.full((3, 1), 0.1)
    assert standard_deviation(values, weights) == 0.0


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_what_does_not_count_may_be_as_unlikely_as_it_likes():
    """An outcome that all weight deems impossible, next to the others, overflowed."""
    y = np.append(np.zeros(20) + np.linspace(-1, 1, 20), 60.0)
    weights = (y < 50).astype(float)
    mu = 0.01 * np.arange(40.0).reshape(2, 20)
    models = {
        "narrow": lq.from_family("normal", y=y, mu=mu, sigma=0.5, weights=weights),
        "wide": lq.from_family("student_t", y=y, nu=2.0, mu=mu, sigma=9.0, weights=weights),
    }
    few = {name: model.source.restrict(slice(0, 20)) for name, model in models.items()}
    fit, alone = lq.stack(models), lq.stack({k: lq.Model(v) for k, v in few.items()})
    np.testing.assert_allclose(fit.weights, alone.weights, atol=1e-9)
    by = np.arange(21) % 2
    fit = lq.stack(models, by=lq.Groups(by), shrinkage=0.0)
    assert np.isfinite(fit.weights).all()
