"""Averages of quantiles: what they are of normals, and whether their weights are the best."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

import lockquack as lq
from lockquack.errors import LockquackError, ParameterError, UnsupportedError
from lockquack.fitting.formulas import bootstrap_counts
from lockquack.quadrature.levels import COUNT, levels_of
from lockquack.quadrature.pairs import pairs_of_numbers
from lockquack.solvers.quantile_proportions import pinball, quantile_proportions

ONE = np.zeros((1, 1))
LEVELS = levels_of(COUNT)
pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(1).normal(size=60)


def normals(y, *parameters):
    return {
        f"m{k}": lq.from_family("normal", y=y, mu=ONE + mu, sigma=sd)
        for k, (mu, sd) in enumerate(parameters)
    }


def test_normals_average_to_a_normal(y):
    average = lq.average_quantiles(normals(y, (-2.0, 1.0), (3.0, 2.0)), [0.6, 0.4])
    expected = stats.norm(0.6 * -2.0 + 0.4 * 3.0, 0.6 * 1.0 + 0.4 * 2.0).ppf(LEVELS)
    found = average.predict().quantile(LEVELS)
    np.testing.assert_allclose(found, np.tile(expected[:, None], y.size), rtol=1e-6)


def test_averages_of_shifted_models_are_as_wide_as_these(y):
    models = normals(y, (-2.0, 1.0), (2.0, 1.0))
    average = lq.average_quantiles(models, "equal")
    mixture = lq.combine(models, lq.Linear(), lq.CRPS())
    np.testing.assert_allclose(average.predict().var(), 1.0, rtol=0.05)
    assert float(mixture.predict().var().min()) > 4.0


def test_crps_is_the_pinball_loss_over_all_levels(y):
    average = lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)))

    def crps_at(levels):
        drawn = average.predict().quantile(levels).values
        return pairs_of_numbers([drawn], [np.ones_like(drawn)], y)[0, 0]

    np.testing.assert_allclose(average.predict().crps(), crps_at(levels_of(1100)), rtol=1e-9)
    expected = crps_at(LEVELS)  # at which it was fitted
    scores = average.pointwise.sel(model="[quantiles]")  # in units of the outcome's spread
    np.testing.assert_allclose(-scores * y.std(ddof=1), expected, rtol=1e-9)
    assert average.to_dataframe()["diff"].max() == 0.0


def test_weights_are_the_best_of_all(y):
    models = normals(y, (-1.0, 1.0), (1.5, 1.4), (0.2, 3.0))
    average = lq.average_quantiles(models)
    assert bool(average.solution.converged)
    w, rng = average.weights.values, np.random.default_rng(2)
    each = stats.norm([[-1.0], [1.5], [0.2]], [[1.0], [1.4], [3.0]]).ppf(LEVELS)

    def crps(weights):
        return 2 * pinball(y[:, None] - weights @ each, LEVELS).mean(axis=1).sum()

    best = float(average.solution.objective) * y.std(ddof=1)
    assert crps(w) == pytest.approx(best, rel=1e-6)
    for other in rng.dirichlet(np.ones(3), size=200):
        assert crps(0.98 * w + 0.02 * other) >= best * (1 - 1e-6)


def test_the_linear_programme_against_its_primal():
    rng = np.random.default_rng(3)
    x, y, level = rng.normal(size=(80, 3)), rng.normal(size=80), rng.random(80)
    counts = rng.random(80)
    found = quantile_proportions(x, y, level, counts)
    # w, and the parts of the residuals above and below zero.
    cost = np.concatenate([np.zeros(3), counts * level, counts * (1 - level)])
    equal = np.block([[x, np.eye(80), -np.eye(80)], [np.ones((1, 3)), np.zeros((1, 160))]])
    primal = optimize.linprog(cost, A_eq=equal, b_eq=np.append(y, 1.0), bounds=(0, None))
    assert float(found.objective) == pytest.approx(primal.fun, rel=1e-9)
    np.testing.assert_allclose(found.x, primal.x[:3], atol=1e-7)
    assert counts @ pinball(y - x @ found.x, level) == pytest.approx(float(found.objective))


def test_many_terms_are_solved_by_those_that_matter(monkeypatch):
    rng = np.random.default_rng(6)
    x = np.sort(rng.normal(size=(40, 400, 4)), axis=0) + rng.normal(size=(400, 4))
    y, level = np.tile(rng.normal(size=400), 40), np.repeat(levels_of(40), 400)
    terms = x.reshape(-1, 4), y, level, np.ones(y.size)
    whole = quantile_proportions(*terms)
    monkeypatch.setattr("lockquack.solvers.quantile_proportions._MANY", 100)
    monkeypatch.setattr("lockquack.solvers.quantile_proportions._SOME", 500)
    found = quantile_proportions(*terms)
    assert bool(found.converged)
    assert float(found.objective) == pytest.approx(float(whole.objective), rel=1e-9)
    np.testing.assert_allclose(found.x, whole.x, atol=1e-6)


def test_outcomes_far_from_zero_change_nothing(y):
    near = lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)))
    far = lq.average_quantiles(normals(y + 1e6, (1e6 - 1.0, 1.0), (1e6 + 1.5, 1.4)))
    np.testing.assert_allclose(far.weights, near.weights, atol=1e-5)


def test_case_weights_are_repetitions():
    rng = np.random.default_rng(4)
    y, times = rng.normal(size=30), rng.integers(0, 3, size=30)
    draws = [rng.normal(at, 1.0, size=(1, 200, 30)) for at in (-0.5, 0.8)]
    chosen = np.repeat(np.arange(30), times)
    weighted, repeated = (
        {
            f"m{k}": lq.from_draws(d[..., rows], y=y[rows], held_out=True, weights=w)
            for k, d in enumerate(draws)
        }
        for rows, w in ((np.arange(30), times), (chosen, None))
    )
    got, expected = map(lq.average_quantiles, (weighted, repeated))
    np.testing.assert_allclose(got.weights, expected.weights, atol=1e-8)


def test_the_average_is_a_distribution_like_others(y, tmp_path):
    average = lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)))
    p = average.predict(loo=True)
    assert p.coverage([0.9]).index.tolist() == ["[quantiles]", "[stack]", "m0", "m1"]
    np.testing.assert_allclose(p.cdf(p.quantile(0.25).values), 0.25, atol=0.011)
    assert stats.kstest(p.pit(), p.cdf(y)).pvalue > 0.9  # the same numbers, and no warning of ties
    drawn = p.sample(4000, random_seed=1)["posterior_predictive"]["y"]
    np.testing.assert_allclose(drawn.mean(("chain", "draw")), p.mean(), atol=0.1)
    for refused in (p.logpdf, p.mode, p.log_norm, average.sandwich):
        with pytest.raises(UnsupportedError):
            refused()
    average.save(tmp_path / "average.nc")
    again = lq.load(tmp_path / "average.nc")
    np.testing.assert_array_equal(again.weights, average.weights)
    np.testing.assert_allclose(again.weights_se, average.weights_se)
    assert "Calibration" in average.report(tmp_path / "r.html").read_text()


@pytest.mark.parametrize("zero_inflated", [False, True])
def test_replicates_of_the_bootstrap_are_those_of_the_linear_programme(zero_inflated):
    rng = np.random.default_rng(3)
    x = rng.normal(size=80)
    y, *draws = (
        np.maximum(each, 0.0) if zero_inflated else each
        for each in (
            x + rng.normal(size=80),
            *(x + at + rng.normal(size=(1, 200, 80)) for at in (-0.6, 0.2, 0.9)),
        )
    )
    models = {f"m{k}": lq.from_draws(each, y=y, held_out=True) for k, each in enumerate(draws)}
    fit = lq.average_quantiles(models)
    counts = bootstrap_counts(rng, 12, y.size)
    found = fit.fitter.refit_many(counts, fit.solution.x)
    exact = np.stack([fit.fitter.refit(each, fit.solution.x) for each in counts])
    np.testing.assert_allclose(found, exact, atol=0.02)
    np.testing.assert_allclose(found.std(axis=0), exact.std(axis=0), rtol=0.05)


def test_slopes_are_differences_of_scores(y):
    fit = lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)))
    w, step = np.array([0.3, 0.7]), np.array([1e-6, -1e-6])
    apart = fit.objective.scores(w + step) - fit.objective.scores(w - step)
    slopes = fit.fitter.slopes_each(w)
    np.testing.assert_allclose(-apart / 2e-6, slopes[0] - slopes[1], rtol=1e-4, atol=0.03)


def test_combine_knows_it_by_name(y):
    models = normals(y, (-1.0, 1.0), (1.5, 1.4))
    by_name = lq.combine(models, "quantiles", "crps")
    np.testing.assert_array_equal(by_name.weights, lq.average_quantiles(models).weights)
    with pytest.raises(UnsupportedError, match="average of quantiles has no log score"):
        lq.combine(models, "quantiles", "log")
    with pytest.raises(UnsupportedError, match="flat prior"):
        lq.combine(models, "quantiles", "crps", prior=2.0)
    with pytest.raises(ParameterError, match="pool of pools"):
        lq.Nested(lq.Locking(), [lq.Quantiles(), 0])


def test_equal_and_given_weights_are_kept_in_files(y, tmp_path):
    models = normals(y, (-1.0, 1.0), (1.5, 1.4))
    for given, expected in (("equal", [0.5, 0.5]), ({"m1": 0.3, "m0": 0.7}, [0.7, 0.3])):
        fit = lq.average_quantiles(models, given)
        fit.save(tmp_path / "fit.nc")
        np.testing.assert_allclose(fit.weights, expected)
        again = lq.load(tmp_path / "fit.nc")
        assert type(again.fitter) is type(fit.fitter)
        np.testing.assert_array_equal(again.weights, fit.weights)
        np.testing.assert_array_equal(again.pointwise, fit.pointwise)


def test_forecasts_of_what_is_to_come(y):
    rng = np.random.default_rng(5)
    draws = {"a": rng.normal(-1, 1, size=(1, 200, 60)), "b": rng.normal(1, 1, size=(1, 200, 60))}
    past = {k: lq.from_draws(each, y=y, held_out=True) for k, each in draws.items()}
    average = lq.average_quantiles(past)
    new = average.predict(models={k: lq.from_draws(each[..., :4]) for k, each in draws.items()})
    np.testing.assert_allclose(new.quantile(0.3), average.predict().quantile(0.3)[:4])


@pytest.mark.parametrize(
    ("weights", "match"),
    [("best", "'equal' or None"), ([0.5, 0.6], "sum to one"), ({"m0": 1.0}, "says nothing")],
)
def test_what_are_no_weights_is_refused(weights, match, y):
    with pytest.raises(LockquackError, match=match):
        lq.average_quantiles(normals(y, (-1.0, 1.0), (1.5, 1.4)), weights)


def test_vectors_have_no_quantiles():
    y = np.random.default_rng(1).normal(size=(12, 2))
    model = lq.from_draws(np.zeros((1, 9, 12, 2)), y=y, held_out=True)
    with pytest.raises(UnsupportedError, match="EnergyScore"):
        lq.average_quantiles({"a": model, "b": model})


def test_averages_of_normal_quantiles_are_normal_far_out_too(rng):
    y = rng.normal(size=20)
    models = {
        "a": lq.from_family("normal", y=y, mu=np.zeros(20), sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=np.ones(20), sigma=3.0),
    }
    levels = np.array([0.01, 0.05, 0.5, 0.95, 0.99])
    found = lq.average_quantiles(models, [0.5, 0.5]).predict().quantile(levels)
    exact = stats.norm(0.5, 2.0).ppf(levels)
    np.testing.assert_allclose(found.values, np.repeat(exact[:, None], 20, axis=1), atol=0.05)
