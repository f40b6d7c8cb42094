"""Locking weights: the paper's scenarios, invariances, priors, degenerate cases."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

import lockquack as lq
from lockquack.errors import (
    IdentifiabilityWarning,
    MonteCarloWarning,
    ParameterError,
    ScaleError,
    UnknownNameError,
    UnsupportedError,
)
from lockquack.fitting.fitters import FITTERS, fitter_for
from lockquack.jets import Jet
from lockquack.operators.base import Operator
from lockquack.rules.base import Rule
from tests.helpers import densities_of, lock, paper_models, pose_pair, unheard


def regressions(rng, n=60, K=3, S=(4, 100), units=1.0):
    """K regressions of the same outcome on different covariates."""
    X = rng.normal(size=(n, K))
    y = X.sum(axis=1) + rng.normal(size=n)
    models = {}
    for k in range(K):
        beta = 1.0 + 0.1 * rng.normal(size=(*S, 1))
        sigma = np.exp(0.3 + 0.05 * rng.normal(size=S))
        mu = lq.linear_predictor(units * X[:, [k]], beta)
        models[f"m{k}"] = lq.from_family("normal", y=units * y, mu=mu, sigma=units * sigma)
    return models


# The paper's experiment (math: two models, four truths), by posterior draws.

SCENARIOS = {"sc1": (1, 1), "sc2": (0, 5), "sc3": (4, 3), "sc4": (0, 1)}
MEAN_W1 = {"sc1": (0.97, 0.02), "sc2": (0.004, 0.02), "sc3": (0.31, 0.02), "sc4": (0.75, 0.1)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_mean_weight_in_the_papers_scenarios(scenario):
    mean, variance = SCENARIOS[scenario]
    weights = []
    for replication in range(100):
        rng = np.random.default_rng([replication, 2023])
        y = rng.normal(mean, np.sqrt(variance), size=200)
        weights.append(lock(paper_models(y, rng)).solution.x[0])
    expected, tolerance = MEAN_W1[scenario]
    assert np.mean(weights) == pytest.approx(expected, abs=tolerance)


def test_population_optimum_of_scenario_three(rng):
    # A single large sample: the optimum is .3077, its standard deviation about .0375 √(200/n).
    y = rng.normal(4.0, np.sqrt(3.0), size=40_000)
    fit = lock(paper_models(y, rng, shape=(2, 50)))
    assert fit.solution.x[0] == pytest.approx(0.3077, abs=0.01)


# Against an independent optimiser


def test_weights_minimise_the_written_objective(rng):
    models = regressions(rng, K=4)
    fit = lock(models, prior=1.5)
    y = next(iter(models.values())).observations.values
    jets = [model.collapse().jet for model in models.values()]
    g = np.stack([jet.grad[:, 0] for jet in jets])
    h = np.stack([jet.curv[:, 0] for jet in jets])
    s2 = y.var(ddof=1)

    def objective(free):
        w = np.exp(free) / np.exp(free).sum()
        return (s2 * (2 * w @ h + (w @ g) ** 2)).sum() - 0.5 * np.log(w).sum()

    best = optimize.minimize(objective, np.zeros(4), tol=1e-12)
    w = np.exp(best.x) / np.exp(best.x).sum()
    np.testing.assert_allclose(fit.solution.x, w, atol=1e-5)
    assert fit.solution.objective == pytest.approx(best.fun, rel=1e-10)


# Invariances


@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3, 1e6])
def test_units_of_the_outcome_do_not_matter(factor):
    base = lock(regressions(np.random.default_rng(1)))
    scaled = lock(regressions(np.random.default_rng(1), units=factor))
    np.testing.assert_allclose(scaled.weights, base.weights, atol=1e-6)
    np.testing.assert_allclose(scaled.weights_se, base.weights_se, atol=1e-6)
    np.testing.assert_allclose(scaled.pointwise, base.pointwise, rtol=1e-6)
    np.testing.assert_allclose(scaled.mcse, base.mcse, rtol=1e-6)


def vector_models(rng, units):
    n, shape = 50, (4, 100)
    y = rng.normal(size=(n, 3))
    models = {}
    for k, rho in enumerate((0.0, 0.5)):
        cov = (1 - rho) * np.eye(3) + rho
        mu = (k - 0.5) * np.array([1.0, -1.0, 0.5]) + 0.1 * rng.normal(size=(*shape, 3))
        models[f"m{k}"] = lq.from_family(
            "mv_normal", y=y * units, mu=mu * units, cov=cov * units * units[:, None]
        )
    return models


def test_each_component_of_a_vector_outcome_has_its_own_unit():
    same = lock(vector_models(np.random.default_rng(3), np.ones(3)))
    mixed = lock(vector_models(np.random.default_rng(3), np.array([1e-3, 1.0, 1e4])))
    assert 0.05 < same.solution.x[0] < 0.95
    np.testing.assert_allclose(mixed.weights, same.weights, atol=1e-8)
    np.testing.assert_allclose(mixed.mcse, same.mcse, rtol=1e-8)


def test_the_default_unit_is_the_standard_deviation(rng):
    models = regressions(rng)
    y = models["m0"].observations.values[:, 0]
    np.testing.assert_allclose(
        lock(models).weights, lock(models, scale=y.std(ddof=1)).weights, atol=1e-12
    )
    assert np.abs(lock(models).weights - lock(models, scale=1e-3).weights).max() > 0.01


def test_permuting_models_permutes_weights(rng):
    models = regressions(rng, K=4)
    turned = {name: models[name] for name in reversed(models)}
    a, b = lock(models), lock(turned)
    for name in models:
        assert a.weights.sel(model=name) == pytest.approx(float(b.weights.sel(model=name)))
        assert a.weights_se.sel(model=name) == pytest.approx(float(b.weights_se.sel(model=name)))


def test_a_constant_in_logp_changes_nothing(rng):
    n, shape = 20, (4, 50, 20)
    y = rng.normal(size=n)
    given = [
        {"logp": rng.normal(size=shape), "grad": rng.normal(size=shape), "curv": -np.ones(shape)}
        for _ in range(2)
    ]
    for scores in ("loo", "in-sample"):
        fits = [
            lock(
                {
                    str(k): lq.from_arrays(**{**part, "logp": part["logp"] - shift}, y=y)
                    for k, part in enumerate(given)
                },
                scores=scores,
            )
            for shift in (0.0, 800.0)
        ]
        np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-9)


@pytest.mark.parametrize("K", [1, 2, 8, 200])
def test_any_number_of_models(rng, K):
    fit = lock(regressions(rng, K=K, S=(2, 20)))
    assert float(fit.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert (fit.solution.x > 0).all()
    assert fit.solution.converged
    if K == 1:
        assert fit.solution.x.tolist() == [1.0]


def test_one_observation_needs_a_scale():
    models = {
        name: lq.from_family("normal", y=[0.3], mu=np.full((2, 10), mu), sigma=1.0)
        for name, mu in (("a", 0.0), ("b", 1.0))
    }
    with pytest.raises(ScaleError, match="scale="):
        lq.lock(models)
    fit = lock(models, scale=1.0, prior=1.0)
    # One observation between two models: the pool is centred on it.
    assert fit.weights.sel(model="b") == pytest.approx(0.3)
    assert fit.weights_se.isnull().all()


def test_an_outcome_that_does_not_vary_needs_a_scale(rng):
    model = lq.from_family("normal", y=np.ones(5), mu=rng.normal(size=(4, 10)), sigma=1.0)
    with pytest.raises(ScaleError, match="does not vary"):
        lq.lock({"a": model})
    for bad in (0.0, -1.0, np.inf, [1.0, 2.0]):
        with pytest.raises(ScaleError):
            lock({"a": model}, scale=bad)


# Priors


def test_flat_prior_allows_exact_zeros(rng):
    y = rng.normal(-0.5, 1.0, size=50)
    mu = 0.1 * rng.normal(size=(4, 100))
    models = {
        "near": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "beyond": lq.from_family("normal", y=y, mu=mu + 3.0, sigma=1.0),
    }
    assert lock(models, prior=1.0).solution.x.tolist() == [1.0, 0.0]
    assert lock(models, prior=[1.0, 1.01]).solution.x[1] > 0.0
    assert lock(models).solution.x[1] > 0.0


def test_strong_prior_pulls_to_its_mean(normals):
    fit = lock(normals, prior={"left": 3e6, "right": 1e6, "far": 1e6})
    np.testing.assert_allclose(fit.weights, [0.6, 0.2, 0.2], atol=1e-3)
    by_list = lock(normals, prior=[3e6, 1e6, 1e6])
    np.testing.assert_array_equal(fit.weights, by_list.weights)
    labelled = pd.Series({"far": 1e6, "right": 1e6, "left": 3e6}).rename_axis("model")
    for prior in (labelled, labelled.to_xarray()):
        np.testing.assert_array_equal(lock(normals, prior=prior).weights, fit.weights)


@pytest.mark.parametrize(
    ("prior", "error", "message"),
    [
        (0.5, ParameterError, "at least 1"),
        (np.nan, ParameterError, "at least 1"),
        ([1.0, 1.0], ParameterError, "one per model"),
        ("flat", ParameterError, "numeric"),
        ({"left": 1.0, "right": 1.0}, ParameterError, "'far'"),
        ({"left": 1.0, "rigth": 1.0, "far": 1.0}, UnknownNameError, "Did you mean 'right'"),
    ],
)
def test_bad_priors(normals, prior, error, message):
    with pytest.raises(error, match=message):
        lq.lock(normals, prior=prior)


# Models that cannot be told apart


def test_duplicates_share_their_weight_and_are_noted(rng):
    models = regressions(rng)
    twice = {**models, "again": models["m1"]}
    single, double = lock(models), lock(twice)
    assert double.weights.sel(model="m1") == pytest.approx(
        float(double.weights.sel(model="again")), abs=1e-8
    )
    assert float(double.weights.sel(model=["m1", "again"]).sum()) == pytest.approx(
        float(single.weights.sel(model="m1")), abs=0.01
    )
    with pytest.warns(IdentifiabilityWarning, match="'m1', 'again' cannot be distinguished"):
        lq.lock(unheard(twice))
    table = double.to_dataframe()[["weight_se", "weight_5%", "weight_95%"]]
    assert table.loc[["m1", "again"]].isna().all(axis=None)  # no point that looks like certainty
    assert table.drop(["[lock]", "m1", "again"]).notna().all(axis=None)
    with pytest.warns(IdentifiabilityWarning):
        lq.lock(unheard(twice), prior=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lq.lock(models)


def test_a_model_between_two_others_is_noted(rng):
    n, shape = 40, (4, 200, 40)
    y = rng.normal(size=n)
    mu = 0.05 * rng.normal(size=(4, 200, 1))
    parts = [(np.broadcast_to(mu + c - y, shape), -np.ones(shape)) for c in (-0.8, 0.8)]
    middle = tuple((a + b) / 2 for a, b in zip(*parts, strict=True))
    models = {
        name: lq.from_arrays(logp=np.zeros(shape), grad=grad, curv=curv, y=y)
        for name, (grad, curv) in zip(("left", "right", "middle"), (*parts, middle), strict=True)
    }
    with pytest.warns(IdentifiabilityWarning, match="'left', 'right', 'middle' are not determ"):
        lq.lock(models)


@pytest.mark.parametrize("S", [100, 1000])
def test_duplicates_by_other_draws_are_noted(S):
    # The same regression from two samplers, and another one; residuals are orthogonal to X, so
    # a model's own score hides the noise that moves weight between the two.
    found = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, S])
        x = rng.normal(size=(300, 2))
        y = x.sum(axis=1) + rng.normal(size=300)

        def model(column, x=x, y=y, rng=rng):
            X = np.column_stack([np.ones(300), x[:, column]])
            V = np.linalg.inv(X.T @ X)
            sigma = np.sqrt(np.square(y - X @ V @ X.T @ y).sum() / rng.chisquare(298, (4, S)))
            beta = (
                V @ X.T @ y
                + sigma[..., None] * rng.normal(size=(4, S, 2)) @ np.linalg.cholesky(V).T
            )
            return lq.from_family("normal", y=y, mu=lq.linear_predictor(X, beta), sigma=sigma)

        fit = lock({"a": model(0), "again": model(0), "other": model(1)})
        seen = [r for r in fit.remarks if r.category is IdentifiabilityWarning]
        found += [(r.code, r.models) for r in seen] == [("models-alike", ("a", "again"))]
    assert found >= 19


def test_a_model_between_two_others_is_noted_at_a_flat_prior_too(rng):
    y = rng.normal(size=100)
    mu = {
        name: c + 0.02 * rng.normal(size=(4, 250))
        for name, c in (("a", -1.0), ("b", 1.0), ("mid", 0.0))
    }
    models = {name: lq.from_family("normal", y=y, mu=m, sigma=1.0) for name, m in mu.items()}
    with pytest.warns(IdentifiabilityWarning, match="'a', 'b', 'mid' are not determined"):
        lq.lock(models, prior=1.0)


def test_small_weights_of_different_models_are_left_alone():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        remarks = lock(regressions(rng, n=50, K=6, S=(4, 250))).remarks
        assert not [r for r in remarks if r.category is IdentifiabilityWarning]


def test_collinear_models_are_not_called_alike(rng):
    # Centred normals: only Σ w / σ² matters. The models differ, their weights are not unique.
    y = rng.normal(0, 1.5, size=300)
    models = {
        str(sd): lq.from_family("normal", y=y, mu=np.zeros((4, 100)), sigma=sd)
        for sd in (1.0, 1.4, 2.0, 3.0)
    }
    with pytest.warns(IdentifiabilityWarning) as caught:
        lq.lock(models)
    assert [w.message.remark.code for w in caught] == ["weights-undetermined"]


def test_one_model_that_many_others_make_up_for_is_no_division_by_zero(rng):
    # As above with so many models that each gives little for what one of them takes.
    y = rng.normal(0, 1.5, size=300)
    models = {
        f"{sd:.2f}": lq.from_family("normal", y=y, mu=np.zeros((4, 100)), sigma=sd)
        for sd in np.linspace(1.0, 3.0, 40)
    }
    with pytest.warns(IdentifiabilityWarning) as caught:
        lq.lock(models)
    assert "weights-undetermined" in [w.message.remark.code for w in caught]


# Notes


def test_few_and_sticky_draws_are_noted(rng):
    y = rng.normal(size=200)
    walk = np.cumsum(0.3 * rng.normal(size=(2, 40)), axis=1)
    models = {
        "sticky": lq.from_family("normal", y=y, mu=walk, sigma=1.0),
        "fine": lq.from_family("normal", y=y, mu=0.05 * rng.normal(size=(4, 500)), sigma=1.2),
    }
    with pytest.warns(MonteCarloWarning, match="'sticky'"):
        lq.lock(models)


def test_a_prediction_that_rests_on_few_draws_is_noted(rng):
    y = np.array([3.0, 0.0])
    models = {"narrow": lq.from_family("normal", y=y, mu=rng.normal(size=(4, 200)), sigma=0.01)}
    with pytest.warns(MonteCarloWarning) as caught:
        lq.lock(models, scores="held-out", scale=1.0)
    assert "handful-of-draws" in [w.message.remark.code for w in caught]


def test_a_flat_score_is_no_alarm(rng):
    # A very wide model scores almost the same everywhere; its Monte Carlo error is tiny too.
    y = rng.normal(size=100)
    mu = rng.normal(0, 0.05, (4, 100))
    sigma = np.exp(rng.normal(0, 0.05, (4, 100)))
    models = {
        "good": lq.from_family("normal", y=y, mu=mu, sigma=sigma),
        "wide": lq.from_family("normal", y=y, mu=mu, sigma=30 * sigma),
    }
    assert lq.lock(models).remarks == ()


def test_too_few_draws_for_any_error_are_noted(rng):
    y = rng.normal(size=30)
    models = {"two": lq.from_family("normal", y=y, mu=0.1 * rng.normal(size=(2, 2)), sigma=1.0)}
    with pytest.warns(MonteCarloWarning, match="Fewer than four draws per chain for 'two'"):
        fit = lq.lock(models)
    with pytest.raises(UnsupportedError, match="at least 25 draws"):
        fit.logpdf(loo=True)


@pytest.mark.parametrize("seed", [None, -1, "x", 1.5])
def test_bad_seeds_are_noticed_at_once(normals, seed):
    with pytest.raises(ParameterError, match="random_seed"):
        lq.lock(normals, random_seed=seed)


def test_a_single_chain_is_noted_and_the_warning_points_here(rng):
    y = rng.normal(size=50)
    mu = 0.05 * rng.normal(size=(1, 500))
    models = {"one": lq.from_family("normal", y=y, mu=mu, sigma=1.0)}
    for call in (lambda: lq.lock(unheard(models)), lambda: lq.combine(unheard(models))):
        with pytest.warns(MonteCarloWarning, match="one chain for 'one'") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]


# The verbs


def test_combine_takes_objects_and_names(normals):
    by_name = lq.combine(normals, "locking", "hyvarinen")
    by_object = lq.combine(normals, lq.Locking(), lq.Hyvarinen())
    by_verb = lq.lock(normals)
    by_class = lq.combine(normals, lq.Locking, lq.Hyvarinen)
    np.testing.assert_array_equal(by_name.weights, by_class.weights)
    np.testing.assert_array_equal(by_name.weights, by_object.weights)
    np.testing.assert_array_equal(by_name.weights, by_verb.weights)


def test_the_scale_is_given_once(normals):
    assert lock(normals, scale=2.0).rule == lq.Hyvarinen(scale=2.0, transform=None)
    with pytest.raises(ParameterError, match="two scales"):
        lq.combine(normals, "locking", lq.Hyvarinen(2.0), scale=5.0)
    with pytest.raises(ScaleError, match="scale"):
        lq.lock(normals, scale="sd")


def test_misspelt_names_suggest_the_near_one(normals):
    with pytest.raises(UnknownNameError, match="Did you mean 'locking'"):
        lq.combine(normals, "loking")
    with pytest.raises(UnknownNameError, match="Did you mean 'hyvarinen'"):
        lq.combine(normals, "locking", "hyvaerinen")
    with pytest.raises(UnknownNameError, match="Did you mean 'in-sample'"):
        lq.lock(normals, scores="insample")
    with pytest.raises(UnknownNameError, match="Did you mean 'loo'"):
        lq.lock(normals, scores="LOO")
    with pytest.raises(UnknownNameError, match="Unknown operator"):
        lq.combine(normals, ["locking"])


def test_every_registered_pair_is_an_operator_and_a_rule():
    for (operator, rule), problem in FITTERS.items():
        assert issubclass(operator, Operator)
        assert issubclass(rule, Rule)
        assert fitter_for(operator(), rule()) is problem


def test_in_sample_and_held_out_scores_differ_from_loo(rng):
    models = regressions(rng, n=15, S=(4, 50))
    loo, inside = lock(models), lock(models, scores="in-sample")
    outside = lock(models, scores="held-out")
    assert np.abs(loo.weights - inside.weights).max() > 1e-4
    np.testing.assert_array_equal(inside.weights, outside.weights)


def test_bootstrap_batches_solve_the_reweighted_problem(rng):
    K, n = 3, 40
    jets = Jet(np.zeros((K, n)), rng.normal(size=(K, n, 2)), -rng.gamma(2.0, size=(K, n, 2)))

    def problem(jets):
        return pose_pair(lq.Locking(), lq.Hyvarinen(), densities_of(jets), np.full(K, 1.01))

    counts = rng.exponential(size=(5, n))
    solution = problem(jets).solve().x
    for row, weights in zip(counts, problem(jets).refit_many(counts, solution), strict=True):
        # Repeating an observation u times is the same as weighing it by u.
        root = np.sqrt(row)[None, :, None]
        scaled = Jet(jets.logp, jets.grad * root, jets.curv * root**2)
        np.testing.assert_allclose(weights, problem(scaled).solve().x, atol=1e-9)


def test_bootstrapping_holds_less_than_its_input(rng):
    import tracemalloc

    K, n, replicates = 10, 30_000, 40
    jets = Jet(np.zeros((K, n)), rng.normal(size=(K, n, 1)), -rng.gamma(2.0, size=(K, n, 1)))
    problem = pose_pair(lq.Locking(), lq.Hyvarinen(), densities_of(jets), np.full(K, 1.01))
    x, counts = problem.solve().x, rng.exponential(size=(replicates, n))
    tracemalloc.start()
    problem.refit_many(counts, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Neither replicates × observations × models, nor observations × models².
    assert peak < jets.grad.nbytes + jets.curv.nbytes + counts.nbytes
    assert peak < 8 * n * K * (K + 1) / 2
