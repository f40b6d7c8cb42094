"""How uncertain weights are: bootstrap, sandwich, generalised posterior."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import xarray as xr
from arviz_stats.base import array_stats

import lockquack as lq
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.sampling.nuts import assess
from tests.helpers import lock, paper_models

pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")


def two_sides(n=400, shape=(4, 50), seed=8, apart=1.0):
    """Two models on both sides of the truth, so that all weights are well inside."""
    rng = np.random.default_rng(seed)
    y = rng.normal(0.1, 1.2, size=n)
    mu = rng.normal(size=shape) / np.sqrt(n)
    return {
        "left": lq.from_family("normal", y=y, mu=mu - apart, sigma=1.0),
        "right": lq.from_family("normal", y=y, mu=mu + apart, sigma=1.0),
    }


OPERATORS = {
    "stacking": (lq.Linear(), "log"),
    "locking": (lq.Locking(), "log"),
    "superposition": (lq.Superposition(0), "log"),
    "hoelder by H": (lq.Hoelder(0.5), "hyvarinen"),
    "locking by H": (lq.Locking(), "hyvarinen"),
}


def standard_deviation(covariance):
    return np.sqrt(np.diag(covariance))


# Scenario 3 of the paper: the true standard deviation of w1 over samples is .0375


def test_all_three_agree_in_scenario_three():
    found = {"bootstrap": [], "sandwich": [], "calibrated": [], "η = 1": []}
    for replication in range(8):
        rng = np.random.default_rng([replication, 31])
        y = rng.normal(4.0, np.sqrt(3.0), size=200)
        fit = lock(paper_models(y, rng), scale=1.0)  # η = 1 means something in given units only
        options = {"chains": 1, "random_seed": replication}
        found["bootstrap"].append(fit.weights_se.values[0])
        found["sandwich"].append(standard_deviation(fit.sandwich())[0])
        found["calibrated"].append(float(fit.posterior(400, **options).std(("chain", "draw"))[0]))
        plain = fit.posterior(400, learning_rate=1.0, **options)
        found["η = 1"].append(float(plain.std(("chain", "draw"))[0]))
    sd = {name: np.mean(values) for name, values in found.items()}
    for name in ("bootstrap", "sandwich", "calibrated"):
        assert sd[name] == pytest.approx(0.0361, rel=0.15), name
    assert sd["η = 1"] == pytest.approx(0.0305, rel=0.15)


# The bootstrap


@pytest.mark.parametrize("name", ["stacking", "locking", "superposition", "hoelder by H"])
def test_replicates_are_optima_of_the_reweighted_score(name):
    fit = lq.combine(two_sides(n=40), *OPERATORS[name])
    problem, x = fit.fitter, fit.solution.x
    counts = 40 * np.random.default_rng(6).dirichlet(np.ones(40), size=5)
    for u, found in zip(counts, problem.refit_many(counts, x), strict=True):
        best = problem.objective.value(found, u)
        for step in (1e-3, -1e-3):
            assert best <= problem.objective.value(found + step * np.array([1.0, -1.0]), u)
        assert best == pytest.approx(problem.objective.value(problem.refit(u, x), u), abs=1e-6)


# The sandwich


def test_sandwich_of_the_quadratic_programme_in_closed_form():
    # K = 2, d = (1, −1): the score of w + t d has the slope −2 (curv·d + grad·w grad·d) in t.
    models = two_sides()
    fit = lq.lock(models, prior=1.0)
    y = fit.observations.values[:, 0]
    jets = [model.collapse().jet for model in models.values()]
    g, h = (np.stack([getattr(jet, name)[:, 0] for jet in jets]) for name in ("grad", "curv"))
    g, h = g * y.std(ddof=1), h * y.var(ddof=1)
    slope = 2 * (h[0] - h[1] + (fit.solution.x @ g) * (g[0] - g[1]))
    bend = 2 * np.square(g[0] - g[1]).sum()
    variance = np.square(slope - slope.mean()).sum() / bend**2
    expected = variance * np.array([[1.0, -1.0], [-1.0, 1.0]])
    np.testing.assert_allclose(fit.sandwich(), expected, rtol=1e-5)


@pytest.mark.parametrize("name", OPERATORS)
def test_sandwich_and_bootstrap_agree_on_well_behaved_data(name):
    fit = lq.combine(two_sides(n=250), *OPERATORS[name], prior=1.0)
    covariance = fit.sandwich()
    assert covariance.dims == ("model", "model_")
    np.testing.assert_allclose(covariance.sum("model"), 0.0, atol=1e-8)
    assert 0.2 < fit.solution.x[0] < 0.8
    se = fit.bootstrap(200, random_seed=1).std("draw").values
    np.testing.assert_allclose(standard_deviation(covariance), se, rtol=0.2)


def test_sandwich_stays_on_the_face_of_the_solution(rng):
    y = rng.normal(size=100)
    mu = 0.1 * rng.normal(size=(4, 50))
    models = {
        "left": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=1.0),
        "right": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.0),
        "far": lq.from_family("normal", y=y, mu=mu + 3.0, sigma=0.3),
    }
    fit = lq.lock(models, prior=1.0)
    assert fit.solution.x[2] == 0.0
    without = lq.lock({name: models[name] for name in ("left", "right")}, prior=1.0)
    covariance = fit.sandwich().values
    np.testing.assert_allclose(covariance[2], 0.0, atol=1e-14)
    np.testing.assert_allclose(covariance[:2, :2], without.sandwich(), rtol=1e-6)
    # Where one model has all weight nothing varies.
    near = {
        name: lq.from_family("normal", y=y, mu=mu + shift, sigma=1.0)
        for name, shift in (("near", 0.5), ("beyond", 3.0))
    }
    alone = lq.lock(near, prior=1.0)
    assert alone.solution.x.tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(alone.sandwich(), 0.0)
    # The posterior goes on inside: its scores have slopes there, though no weight varies.
    assert 0.1 < alone.posterior(1, chains=1, random_seed=1).attrs["learning_rate"] < 10
    given = alone.posterior(50, learning_rate=1.0, random_seed=1)
    np.testing.assert_allclose(given.sum("model"), 1.0)
    assert given.sel(model="near").mean() > 0.9


# The posterior against integration on a grid


def moments(log_density, grid):
    p = np.exp(log_density - log_density.max())
    mean = (p * grid).sum() / p.sum()
    return mean, np.sqrt((p * np.square(grid - mean)).sum() / p.sum())


def assert_moments(draws, mean, sd):
    """Compare with the moments that draws should have, within four Monte Carlo errors."""
    ess = float(array_stats.ess(draws, chain_axis=0, draw_axis=1))
    assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(ess)
    assert abs(draws.std() / sd - 1) < 4 / np.sqrt(ess)
    assert float(array_stats.rhat(draws, chain_axis=0, draw_axis=1)) < 1.02


@pytest.mark.parametrize(("n", "prior"), [(400, 1.01), (10, 1.5)])
@pytest.mark.parametrize("eta", [1.0, None])
def test_posterior_of_two_locked_models(n, prior, eta):
    # prior(w) exp(−η H(w)) on [0, 1], with H quadratic in the weight.
    models = two_sides(n=n)
    fit = lock(models, prior=prior)
    draws = fit.posterior(500, learning_rate=eta, random_seed=2)
    assert draws.dims == ("chain", "draw", "model")
    eta = draws.attrs["learning_rate"]
    y = fit.observations.values[:, 0]
    jets = [model.collapse().jet for model in models.values()]
    g, h = (np.stack([getattr(jet, name)[:, 0] for jet in jets]) for name in ("grad", "curv"))
    w = np.linspace(0, 1, 4001)[1:-1]
    both = np.stack([w, 1 - w])
    total = (2 * both.T @ h + np.square(both.T @ g)).sum(axis=1) * y.var(ddof=1)
    mean, sd = moments((prior - 1) * np.log(both).sum(axis=0) - eta * total, w)
    assert_moments(draws.values[..., 0], mean, sd)
    np.testing.assert_allclose(draws.sum("model"), 1.0, atol=1e-12)


def test_the_calibrated_rate_is_the_ratio_of_bend_and_spread():
    # One free direction: η = J / I, and 1/(ηJ) is the sandwich's variance.
    fit = lq.lock(two_sides(), prior=1.0)
    eta = fit.posterior(1, chains=1, random_seed=0).attrs["learning_rate"]
    grad = fit.objective.densities.jets.grad[..., 0]
    bend = 2 * np.square(grad[0] - grad[1]).sum()
    assert float(fit.sandwich()[0, 0]) == pytest.approx(1 / (eta * bend), rel=1e-4)


def test_posterior_of_two_stacked_models():
    models = two_sides(n=60)
    fit = lq.stack(models)
    p = np.exp(np.stack([model.loo().logp for model in models.values()]))
    w = np.linspace(0, 1, 2001)
    total = np.log(w[:, None] * p[0] + (1 - w[:, None]) * p[1]).sum(axis=1)
    draws = fit.posterior(250, learning_rate=1.0, random_seed=3)
    assert_moments(draws.values[..., 0], *moments(total, w))


def test_posterior_of_a_free_sum(rng):
    # w^(a − 1) exp(−η (Q w² + 2 c w)) on w > 0.
    y = rng.normal(0.0, 2.0, size=40)
    models = {"only": lq.from_family("normal", y=y, mu=np.zeros((2, 20)), sigma=1.0)}
    fit = lock(models, weights="nonnegative", prior=2.0, scale=1.0, scores="held-out")
    w = np.linspace(0, 2, 8001)[1:]
    log_density = np.log(w) - (np.square(y).sum() * w**2 - 2 * y.size * w)
    draws = fit.posterior(500, learning_rate=1.0, random_seed=4)
    assert_moments(draws.values[..., 0], *moments(log_density, w))


def test_posterior_of_an_estimated_order():
    # A flat prior on the order between −8 and 8, integrated with the weight on a grid.
    fit = lq.combine(two_sides(n=12, seed=3), lq.Hoelder(), "log", prior=1.0)
    draws = fit.posterior(300, learning_rate=0.3, random_seed=5)
    w, p = np.linspace(0, 1, 31), np.linspace(-8, 8, 31)
    w, p = (each[1:] - np.diff(each) / 2 for each in (w, p))
    total = np.array([[fit.objective.scores(np.array([a, 1 - a, b])).sum() for a in w] for b in p])
    assert_moments(draws.values[..., 0], *moments(0.3 * total, w[None, :]))


def test_a_mixture_of_two_under_jeffreys_prior_is_the_integral_of_its_density():
    # α^(−½) (1 − α)^(−½) Π_i (α p_i1 + (1 − α) p_i2); α = sin² φ makes the prior flat in φ.
    models = two_sides(n=15, apart=0.3)
    p = np.exp(np.stack([model.loo().logp for model in models.values()]))
    alpha = np.square(np.sin((np.arange(4000) + 0.5) * np.pi / 8000))
    total = np.log(alpha[:, None] * p[0] + (1 - alpha[:, None]) * p[1]).sum(axis=1)
    draws = lq.stack(models).posterior(500, prior=0.5, learning_rate=1.0, random_seed=6)
    assert_moments(draws.values[..., 0], *moments(total, alpha))
    assert draws.attrs["divergences"] == 0
    assert draws.attrs["rhat"] < 1.02
    assert draws.attrs["ess"] > 200


def test_posterior_of_weights_in_groups_without_shrinkage_is_that_of_every_group():
    models, side = two_sides(n=60), np.repeat(["a", "b"], 30)
    fit = lq.stack(models, by=side, shrinkage=0.0)
    draws = fit.posterior(300, learning_rate=1.0, random_seed=7)
    assert draws.dims == ("chain", "draw", "model", "obs_id")
    p = np.exp(np.stack([model.loo().logp for model in models.values()]))
    w = np.linspace(0, 1, 2001)
    for group, obs in ((p[:, :30], 0), (p[:, 30:], 59)):
        total = np.log(w[:, None] * group[0] + (1 - w[:, None]) * group[1]).sum(axis=1)
        assert_moments(draws.values[:, :, 0, obs], *moments(total, w))


def test_posterior_of_shrunk_weights_is_the_integral_over_both_groups():
    models, side = two_sides(n=60), np.repeat(["a", "b"], 30)
    fit = lq.lock(models, by=side, shrinkage=40.0, prior=1.0)
    draws = fit.posterior(300, learning_rate=0.5, random_seed=8)
    jets = fit.objective.jets
    w = np.linspace(0, 1, 401)
    totals = []
    for rows in (slice(0, 30), slice(30, 60)):
        g, h = jets.grad[:, rows, 0], jets.curv[:, rows, 0]
        both = np.stack([w, 1 - w], axis=1)
        totals.append(-(2 * both @ h + np.square(both @ g)).sum(axis=1))
    # λ Σ_b |v_b − v̄|² of two weights that differ by d: both models, half a square each.
    apart = 40.0 * np.square(w[:, None] - w[None])
    log_density = 0.5 * (totals[0][:, None] + totals[1][None] - apart)
    assert_moments(draws.values[:, :, 0, 0], *moments(log_density, w[:, None]))


def test_posterior_of_constant_weights_by_a_covariate_is_that_of_constant_weights():
    models, side = two_sides(n=60), np.repeat(["a", "b"], 30)
    varying = lq.stack(models, by=side, shrinkage=np.inf).posterior(50, random_seed=1)
    constant = lq.stack(models).posterior(50, random_seed=1)
    assert varying.attrs["learning_rate"] == pytest.approx(constant.attrs["learning_rate"])
    np.testing.assert_allclose(varying.isel(obs_id=0), constant, atol=1e-8)
    np.testing.assert_allclose(varying.isel(obs_id=59), constant, atol=1e-8)


@pytest.mark.parametrize(
    ("operator", "rule"),
    [
        (lq.Linear(), "log"),
        (lq.Locking(), "hyvarinen"),
        (lq.Locking("nonnegative"), "hyvarinen"),
        (lq.Superposition(), "log"),
        (lq.Superposition(), "hyvarinen"),
        (lq.Hoelder(), "log"),
        (lq.Hybrid(), "hyvarinen"),
    ],
)
@pytest.mark.parametrize("by", [None, np.repeat(["a", "b"], 10)])
def test_slopes_of_the_posterior_are_differences(operator, rule, by):
    if by is not None and not operator.on_simplex:
        by = None
    shrunk = {} if by is None else {"by": by, "shrinkage": 3.0}
    fit = lq.combine(two_sides(n=20), operator, rule, prior=1.3, **shrunk)
    target = fit.fitter.posterior(0.7, fit.solution.x)
    t = target.start + 0.2 * np.random.default_rng(2).normal(size=target.start.size)
    value, slopes = target.log_density(t)
    steps = 1e-5 * np.eye(t.size)
    rises = [target.log_density(t + e)[0] - target.log_density(t - e)[0] for e in steps]
    np.testing.assert_allclose(slopes, np.array(rises) / 2e-5, rtol=1e-5, atol=1e-5)
    assert np.isfinite(value)


def test_chains_that_cannot_be_trusted_are_said_to_be_so():
    good = np.random.default_rng(0).normal(size=(4, 500, 2))
    assert assess(good, 0).is_reliable
    assert not assess(good, 1).is_reliable
    assert not assess(good + np.arange(4)[:, None, None], 0).is_reliable
    assert not assess(np.cumsum(good, axis=1), 0).is_reliable
    assert assess(np.ones((4, 500, 1)), 0).is_reliable  # one model alone


def test_without_nutpie_a_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nutpie", None)
    with pytest.raises(ImportError, match=r"pip install 'lockquack\[nuts\]'"):
        lq.lock(two_sides(n=30)).posterior(10)


# What is refused, and the table


def test_formulas_have_neither():
    models = two_sides(n=30)
    for fit in (
        lq.equal(models),
        lq.pseudo_bma(models),
        lq.bma(models, [0.0, 1.0]),
        lq.select(models),
        lq.select(models, "marginal_likelihood", log_marginal_likelihood=[0.0, 1.0]),
    ):
        for call in (fit.sandwich, fit.posterior):
            with pytest.raises(UnsupportedError, match="not the optimum of a smooth score"):
                call()


def test_bad_arguments():
    fit = lq.lock(two_sides(n=30))
    for call in (
        lambda: fit.bootstrap(0),
        lambda: fit.posterior(0),
        lambda: fit.posterior(chains=0),
        lambda: fit.posterior(learning_rate=-1.0),
        lambda: fit.posterior(learning_rate=np.nan),
        lambda: fit.posterior(prior=0.0),
        lambda: fit.posterior(prior=[0.5, 0.5, 0.5]),
    ):
        with pytest.raises(ParameterError):
            call()


def test_posterior_is_deterministic_and_survives_a_file(tmp_path):
    fit = lq.lock(two_sides(n=50))
    first = fit.posterior(20, random_seed=1)
    xr.testing.assert_identical(first, fit.posterior(20, random_seed=1))
    fit.save(tmp_path / "fit.nc")
    back = lq.load(tmp_path / "fit.nc")
    xr.testing.assert_allclose(back.posterior(20, random_seed=1), first, atol=1e-8)
    np.testing.assert_allclose(back.sandwich(), fit.sandwich(), rtol=1e-8)


@pytest.mark.parametrize("make", [lq.lock, lq.stack, lambda m: lq.quack(m, phases=0)])
def test_intervals_of_the_table_are_bootstrap_quantiles(make):
    fit = make(two_sides(n=80))
    table = fit.to_dataframe().iloc[1:]
    assert (table["weight_5%"] <= table["weight"]).all()
    assert (table["weight"] <= table["weight_95%"]).all()
    convex = fit.solution.starts is None
    draws = fit.bootstrap(400 if convex else 100, random_seed=fit.random_seed)
    for column, q in (("weight_5%", 0.05), ("weight_95%", 0.95)):
        np.testing.assert_allclose(table[column], draws.quantile(q, "draw"), atol=1e-12)
    np.testing.assert_allclose(table["weight_se"], draws.std("draw", ddof=1), atol=1e-12)
    # Other replicates tell the same, to the error of a quantile.
    again = fit.bootstrap(300, random_seed=99).quantile([0.05, 0.95], "draw")
    tolerance = 0.5 * table["weight_se"].max()
    np.testing.assert_allclose(table["weight_5%"], again.sel(quantile=0.05), atol=tolerance)
    np.testing.assert_allclose(table["weight_95%"], again.sel(quantile=0.95), atol=tolerance)


@pytest.mark.parametrize("make", [lq.lock, lq.stack])
def test_a_weight_near_zero_does_not_make_the_scores_count_more(make):
    """The prior bends without bound there, which made learning rates of hundreds of it."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=100)
    mu = 0.02 * rng.normal(size=(4, 50))
    for far in (1.0, 2.0, 4.0):
        models = {
            "right": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
            "off": lq.from_family("normal", y=y, mu=mu + far, sigma=1.0),
        }
        fit = make(models, prior=1.01)
        eta = fit.posterior(1, chains=1, random_seed=1).attrs["learning_rate"]
        if make is lq.stack:
            # The scores are log likelihoods: at any weights I is J, and Bayes' rule is calibrated.
            assert eta == pytest.approx(1.0)
        else:
            # -H of N(m, 1) is 2 - (y - m)²: J and I are sums over y that need no weights.
            m = far * float(fit.weights.sel(model="off"))
            scale = y.var(ddof=1)
            expected = 2 * len(y) / (4 * np.square(y - m).sum() * scale)
            assert eta == pytest.approx(expected, rel=0.05)
