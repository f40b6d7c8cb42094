"""Models of which predictive draws, or quantiles, are all that is known."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import (
    LockquackError,
    NonFiniteError,
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    UnsupportedError,
)

N = 40
LEVELS = np.array([0.01, 0.025, *np.arange(0.05, 0.96, 0.05), 0.975, 0.99])


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(1).gamma(2.0, size=N)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(2)
    return {"low": rng.gamma(1.0, size=(4, 250, N)), "high": rng.gamma(3.0, size=(4, 250, N))}


@pytest.fixture(scope="module")
def fit(arrays, y):
    models = {name: lq.from_draws(each, y=y, held_out=True) for name, each in arrays.items()}
    return lq.combine(models, lq.Linear(), lq.CRPS())


def test_the_mixture_is_the_distribution_of_the_draws(fit, arrays):
    w = fit.weights.values
    drawn = [each.reshape(1000, N) for each in arrays.values()]
    p = fit.predict()
    expected = sum(k * (each <= 1.5).mean(axis=0) for k, each in zip(w, drawn, strict=True))
    np.testing.assert_allclose(p.cdf(1.5), expected, atol=1e-12)
    means = sum(k * each.mean(axis=0) for k, each in zip(w, drawn, strict=True))
    np.testing.assert_allclose(p.mean(), means, rtol=1e-12)
    np.testing.assert_allclose(p.cdf(p.quantile(0.3).values), 0.3, atol=2e-3)
    low, high = p.interval(0.8).transpose("ci_bound", ...).values
    np.testing.assert_allclose(p.cdf(high).values - p.cdf(low).values, 0.8, atol=3e-3)
    some = p.sample(4000, random_seed=1)["posterior_predictive"]["y"]
    np.testing.assert_allclose(some.mean(("chain", "draw")), means, atol=0.2)


def test_it_is_calibrated_as_any_other(fit, y):
    pit = fit.predict().pit()
    np.testing.assert_allclose(pit, fit.predict().cdf(y), atol=1e-12)
    table = fit.predict().coverage([0.5, 0.9])
    assert set(table.index) == {"[stack by CRPS]", "low", "high"}


def test_log_densities_beside_draws_make_a_model_as_arviz_has_it(y):
    rng = np.random.default_rng(3)
    mu = rng.normal(2.0, 0.2, size=(4, 100, 1))
    logp, drawn = stats.norm(mu, 1.4).logpdf(y), rng.normal(mu, 1.4, size=(4, 100, N))
    tree = xr.DataTree.from_dict(
        {
            "log_likelihood": xr.Dataset({"y": (("chain", "draw", "obs"), logp)}),
            "posterior_predictive": xr.Dataset({"y": (("chain", "draw", "obs"), drawn)}),
            "observed_data": xr.Dataset({"y": ("obs", y)}),
        }
    )
    other = lq.from_family("normal", y=y, mu=rng.normal(1.0, 0.1, size=(4, 100)), sigma=2.0)
    ours = lq.from_draws(drawn, y=y, log_lik=logp)
    fits = [
        lq.combine({"a": a, "other": other}, lq.Linear(), lq.CRPS(), random_seed=5)
        for a in (tree, ours)
    ]
    np.testing.assert_array_equal(fits[0].weights, fits[1].weights)
    assert float(lq.stack({"a": ours, "other": other}).weights[0]) > 0


def test_labels_decide_and_any_order_of_dimensions_will_do(arrays, y):
    names = [f"d{i}" for i in range(N)]
    outcomes = xr.DataArray(y, dims="day", coords={"day": names}, name="rain")
    given = xr.DataArray(
        arrays["low"], dims=("chain", "draw", "day"), coords={"day": names}
    ).transpose("day", "draw", "chain")
    model = lq.from_draws(given, y=outcomes, held_out=True)
    np.testing.assert_array_equal(model.source.outcome_draws.values, arrays["low"])
    assert model.observations.outcome == "rain"
    with pytest.raises(LockquackError, match="day"):
        lq.from_draws(given.isel(day=slice(None, None, -1)), y=outcomes)


def test_what_is_to_come_needs_no_outcomes(fit, arrays):
    new = fit.predict(models={k: lq.from_draws(each[..., :3]) for k, each in arrays.items()})
    np.testing.assert_allclose(new.mean(), fit.predict().mean()[:3])
    with pytest.raises(ParameterError, match="not known"):
        new.pit()


def test_draws_of_a_transformed_outcome_are_brought_back(arrays, y):
    plain = lq.from_draws(arrays["low"], y=y)
    of_log = lq.from_draws(np.log(arrays["low"]), y=y, transform="log")
    np.testing.assert_allclose(of_log.source.outcome_draws, plain.source.outcome_draws)
    np.testing.assert_allclose(of_log.observations.values, plain.observations.values)


def test_case_weights_count(arrays, y):
    times = np.random.default_rng(4).integers(0, 3, size=N)
    weighted = {k: lq.from_draws(v, y=y, held_out=True, weights=times) for k, v in arrays.items()}
    chosen = np.repeat(np.arange(N), times)
    repeated = {
        k: lq.from_draws(v[..., chosen], y=y[chosen], held_out=True) for k, v in arrays.items()
    }
    got, expected = (lq.combine(m, lq.Linear(), lq.CRPS(scale=1)) for m in (weighted, repeated))
    np.testing.assert_allclose(got.weights, expected.weights, atol=1e-9)


def test_saved_fits_are_read_without_the_models(fit, tmp_path):
    fit.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(lq.load(tmp_path / "fit.nc").weights, fit.weights)


def test_predictive_draws_without_log_densities_are_pointed_here(y):
    tree = xr.DataTree.from_dict(
        {
            "posterior_predictive": xr.Dataset({"y": (("chain", "draw", "n"), np.ones((2, 9, N)))}),
            "observed_data": xr.Dataset({"y": ("n", y)}),
        }
    )
    with pytest.raises(UnsupportedError, match=r"lq\.CRPS\(\).*pm\.compute_log_likelihood"):
        lq.stack({"a": tree, "b": tree})
    with pytest.raises(UnsupportedError, match=r"lq\.from_draws\(idata\.posterior_predictive"):
        lq.from_datatree(tree)
    with pytest.raises(UnsupportedError, match="scores='held-out'"):
        lq.compare({"a": tree, "b": tree})
    assert lq.compare({"a": tree, "b": tree}, scores="held-out").attrs["led_by"] == "crps"


# Quantiles


def normal_quantiles(y, mu, sd, levels=LEVELS):
    return lq.from_quantiles(levels, stats.norm(mu, sd).ppf(levels[:, None]) * np.ones(N), y=y)


def test_quantiles_stand_for_their_distribution(y):
    model = normal_quantiles(y, 2.0, 1.5)
    fit = lq.combine({"a": model}, lq.Linear(), lq.CRPS(scale=1))
    z = (y - 2.0) / 1.5
    expected = 1.5 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5)
    np.testing.assert_allclose(-fit.objective.model_scores()[0], expected, rtol=0.01)
    p = fit.predict()
    for level in (0.025, 0.5, 0.9):
        np.testing.assert_allclose(p.quantile(level), stats.norm(2.0, 1.5).ppf(level), atol=0.02)


def test_tails_are_normal_and_stay_in_the_support(y):
    outside = normal_quantiles(y, 2.0, 1.5).source.outcome_draws.values[0, :, 0]
    levels = (np.arange(500) + 0.5) / 500
    far = (levels < 0.01) | (levels > 0.99)
    np.testing.assert_allclose(outside[far], stats.norm(2.0, 1.5).ppf(levels[far]), rtol=1e-9)
    values = stats.norm(2.0, 1.5).ppf(LEVELS[:, None]) * np.ones(N)
    inside = lq.from_quantiles(LEVELS, values, y=y, support=(0, np.inf))
    assert inside.source.outcome_draws.values.min() == 0.0


def test_quantiles_of_a_table_and_of_xarray(y):
    values = stats.norm(2.0, 1.5).ppf(LEVELS[:, None]) * np.ones(N)
    plain = lq.from_quantiles(LEVELS, values, y=y).source.outcome_draws.values
    table = pd.DataFrame(values, index=LEVELS)
    labelled = xr.DataArray(values.T, dims=("obs", "quantile"), coords={"quantile": LEVELS})
    for given in (table, labelled):
        np.testing.assert_array_equal(
            lq.from_quantiles(LEVELS, given, y=y).source.outcome_draws.values, plain
        )


# What cannot be done is said


@pytest.mark.parametrize("verb", [lq.lock, lq.stack, lq.pseudo_bma])
def test_what_needs_densities_is_refused(verb, arrays, y):
    models = {name: lq.from_draws(each, y=y, held_out=True) for name, each in arrays.items()}
    with pytest.raises(UnsupportedError, match=r"lq\.CRPS\(\)"):
        verb(models)


def test_other_pools_are_refused(arrays, y):
    models = {name: lq.from_draws(each, y=y, held_out=True) for name, each in arrays.items()}
    with pytest.raises(UnsupportedError, match="draws tell of mixtures only"):
        lq.combine(models, lq.Locking(), lq.CRPS())


def test_a_density_is_refused(fit):
    with pytest.raises(UnsupportedError, match="outcomes are all that is known"):
        fit.predict().logpdf()


def test_draws_that_saw_the_observations_must_say_so(arrays, y):
    models = {name: lq.from_draws(each, y=y) for name, each in arrays.items()}
    with pytest.raises(UnsupportedError, match=r"Model 'low'.*held_out=True"):
        lq.combine(models, lq.Linear(), lq.CRPS())
    assert lq.combine(models, lq.Linear(), lq.CRPS(), scores="held-out").weights.sum() == 1.0


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda y: lq.from_draws(np.zeros((9, N)), y=y), ShapeError, "add its axis"),
        (lambda y: lq.from_draws(np.zeros((1, 9, N - 1)), y=y), ShapeError, "to go with y"),
        (lambda y: lq.from_draws(np.full((1, 9, N), np.nan), y=y), NonFiniteError, "draw 0"),
        (lambda y: lq.from_draws(np.zeros((1, 0, N)), y=y), ShapeError, "none"),
        (
            lambda y: lq.from_draws(np.zeros((1, 9, N)), y=y, log_lik=np.zeros((1, 8, N))),
            ShapeError,
            "one outcome for each",
        ),
        (lambda y: lq.from_quantiles([0.5], np.zeros((1, N)), y=y), ParameterError, "two or more"),
        (lambda y: lq.from_quantiles([0.5, 1.5], np.zeros((2, N)), y=y), ParameterError, "between"),
        (lambda y: lq.from_quantiles([0.1, 0.9], np.zeros((N, 2)), y=y), ShapeError, "come first"),
        (
            lambda y: lq.from_quantiles([0.1, 0.9], np.stack([y + 1, y]), y=y),
            ParameterError,
            "cannot cross",
        ),
    ],
)
def test_bad_input_is_refused_in_words(make, error, match, y):
    with pytest.raises(error, match=match):
        make(y)


def test_a_table_of_quantiles_and_outcomes_must_have_the_same_labels(y):
    days = pd.date_range("2024-01-01", periods=N)
    levels = [0.1, 0.5, 0.9]
    table = pd.DataFrame(np.sort(np.ones((3, N)) * [[0.0], [1.0], [2.0]]), levels, days)
    outcomes = pd.Series(y, days)
    assert lq.from_quantiles(levels, table, y=outcomes).n_draws == 500
    with pytest.raises(ObservationMismatchError, match="another order"):
        lq.from_quantiles(levels, table, y=outcomes[::-1])
    with pytest.raises(ObservationMismatchError):
        lq.from_quantiles(levels, table, y=outcomes.set_axis(days + pd.Timedelta(days=1)))
    with pytest.raises(ParameterError, match="rows of values are labelled"):
        lq.from_quantiles([0.2, 0.5, 0.8], table, y=outcomes)


def test_stacked_draws_and_draws_without_chains_are_read(y):
    drawn = xr.DataArray(np.zeros((2, 5, N)), dims=["chain", "draw", "n"])
    stacked = drawn.assign_coords(chain=[0, 1], draw=range(5)).stack(sample=["chain", "draw"])
    assert lq.from_draws(stacked, y=y).n_chains == 2
    assert lq.from_draws(drawn[0], y=y).n_chains == 1
    with pytest.raises(ShapeError, match=r"array\.T\[None\]"):
        lq.from_draws(np.zeros((N, 7)), y=y)


def test_a_mixture_needs_no_rule_where_there_is_only_one(arrays, y):
    models = {name: lq.from_draws(each, y=y, held_out=True) for name, each in arrays.items()}
    fit = lq.combine(models, "linear")
    assert fit.rule == lq.CRPS()
    assert lq.equal(models).weights.values.tolist() == [0.5, 0.5]
    assert lq.combine(lq.example_models(), "selection").rule == lq.LogScore()


@pytest.mark.parametrize("kind", ["normal", "poisson"])
def test_a_prediction_that_is_known_exactly_is_not_one_random_outcome(rng, kind):
    # A mean and a standard deviation are a single draw of the parameters.
    y = rng.poisson(4.0, size=60) if kind == "poisson" else rng.normal(size=60)
    exact = {
        "normal": lambda: lq.from_family("normal", y=y, mu=np.zeros(60), sigma=1.0),
        "poisson": lambda: lq.from_family("poisson", y=y, mu=np.full(60, 4.0)),
    }[kind]()
    drawn = rng.normal(3.0, 2.0, size=(2, 300, 60))
    models = {"exact": exact, "drawn": lq.from_draws(drawn, y=y, held_out=True)}
    fit = lq.combine(models, lq.Linear(), lq.CRPS())
    alone = lq.combine({"exact": exact}, lq.Linear(), lq.CRPS())
    score = fit.to_dataframe().loc["exact", "score"]
    assert score == pytest.approx(alone.to_dataframe().loc["exact", "score"], rel=2e-3)
    assert fit.metrics().loc["exact", "crps"] == pytest.approx(
        alone.metrics().loc["exact", "crps"], rel=2e-3
    )
    # The mean of the mixture, too, is no random number.
    mean = lq.equal(models).predict().mean().values
    centre = 0.0 if kind == "normal" else 4.0
    np.testing.assert_allclose(mean, (centre + drawn.mean(axis=(0, 1))) / 2, atol=0.15)


def test_energy_scores_of_exact_predictions_are_those_of_many_draws(rng):
    y = rng.normal(size=(40, 2))

    def exact(mean, variance):
        return lq.from_family("mv_normal", y=y, mu=np.full(2, mean), cov=variance * np.eye(2))

    def drawn(mean, variance):
        outcomes = mean + np.sqrt(variance) * rng.normal(size=(2, 400, 40, 2))
        return lq.from_draws(outcomes, y=y, held_out=True)

    tables = [
        lq.combine({"a": of(0.0, 1.0), "b": of(0.5, 2.0)}, lq.Linear(), lq.EnergyScore())
        for of in (exact, drawn)
    ]
    scores = [each.to_dataframe()["score"].to_numpy() for each in tables]
    np.testing.assert_allclose(scores[0], scores[1], rtol=0.03)


def test_quantiles_and_outcomes_that_cannot_be_are_refused():
    levels, y = [0.1, 0.5, 0.9], np.array([1.0, 2.0])
    values = np.array([[-0.9, 1.0], [-0.5, 2.0], [2.0, 3.0]])
    with pytest.raises(lq.errors.ParameterError, match="quantiles of 1 observation"):
        lq.from_quantiles(levels, values, y=y, support=(0, np.inf))
    with pytest.raises(lq.errors.ParameterError, match="outcomes of 1 observation"):
        lq.from_quantiles(
            levels, np.sort(np.abs(values), axis=0), y=y * [1.0, -1.0], support=(0, np.inf)
        )


def test_fits_of_any_family_can_be_pickled_once_used_and_loaded_ones_predict(rng, tmp_path):
    def models(y):
        mu = 0.05 * np.random.default_rng(1).normal(size=(2, 200))
        return {
            "t": lq.from_family("student_t", y=y, nu=5.0, mu=mu, sigma=1.0),
            "normal": lq.from_family("normal", y=y, mu=mu, sigma=1.2),
        }

    fit = lq.lock(models(rng.normal(size=30)))
    used = fit.interval()
    xr.testing.assert_equal(pickle.loads(pickle.dumps(fit)).interval(), used)
    fit.save(tmp_path / "fit.nc")
    new = models(np.zeros(3))
    found = lq.load(tmp_path / "fit.nc").predict(models=new).mean()
    xr.testing.assert_allclose(found, fit.predict(models=new).mean())
