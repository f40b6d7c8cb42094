"""Stacking: weights against stored answers and the peers' known failures."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize, special

import lockquack as lq
from lockquack.errors import IdentifiabilityWarning, LockquackWarning, ParetoWarning
from tests.helpers import paper_models
from tests.test_mixture_proportions import Problem, clarabel_weights, regression


def stack(models, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return lq.stack(models, **options)


def from_logp(logp, y):
    """A model known by its log densities alone; stacking asks for nothing else."""
    shape = logp.shape
    return lq.from_arrays(logp=logp, grad=np.zeros(shape), curv=np.zeros(shape), y=y)


@pytest.mark.parametrize(("kind", "stored"), [("loo", "loo"), ("in-sample", "in_sample")])
def test_stored_stacking_weights(family, kind, stored):
    for scale, answers in family.answers["scales"].items():
        models = family.models(scale)
        groups = [
            {entry.split(" (")[0] for entry in group} for group in family.answers["duplicates"]
        ]
        for subset in answers["sets"].values():
            expected = subset["stacking"][stored]
            fit = stack({name: models[name] for name in subset["models"]}, scores=kind)
            assert -fit.solution.objective == pytest.approx(expected["log_score"], abs=1e-6)
            assert fit.solution.relative_gap < 1e-9
            weights = dict(zip(subset["models"], expected["weights"], strict=True))
            alike = [group & set(weights) for group in groups]
            single = [{name} for name in weights if not any(name in group for group in alike)]
            for names in [*single, *[group for group in alike if group]]:
                got = sum(float(fit.weights.sel(model=name)) for name in names)
                assert got == pytest.approx(sum(weights[name] for name in names), abs=2e-5)


def test_weights_maximise_the_written_objective(rng):
    y = rng.normal(1.0, 2.0, size=80)
    mu = 0.1 * rng.normal(size=(4, 200))
    models = {
        name: lq.from_family("normal", y=y, mu=mu + shift, sigma=sd)
        for name, shift, sd in (("a", -1.0, 1.0), ("b", 1.0, 2.0), ("c", 3.0, 1.5))
    }
    fit = stack(models, prior=1.5)
    p = np.stack([model.loo().logp for model in models.values()])

    def objective(free):
        w = np.exp(free) / np.exp(free).sum()
        return -special.logsumexp(p.T, axis=1, b=w).sum() - 0.5 * np.log(w).sum()

    best = optimize.minimize(objective, np.zeros(3), tol=1e-12)
    np.testing.assert_allclose(fit.weights, special.softmax(best.x), atol=1e-5)
    assert fit.solution.objective == pytest.approx(best.fun, rel=1e-10)


@pytest.mark.parametrize("shift", [-800.0, 800.0, 1e5])
def test_a_constant_in_logp_changes_nothing(rng, shift):
    y = rng.normal(size=40)
    logp = [rng.normal(size=(4, 100, 40)) * s - 1 for s in (0.3, 0.5)]
    rows = shift + rng.normal(size=40)
    fits = [
        stack({str(k): from_logp(part + by, y) for k, part in enumerate(logp)})
        for by in (0.0, rows)
    ]
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-6)
    assert float(fits[1].weights.sum()) == pytest.approx(1.0, abs=1e-12)


def test_stacking_in_the_papers_third_scenario():
    # The population optimum of the linear pool is .815 there.
    weights = []
    for replication in range(20):
        rng = np.random.default_rng([replication, 17])
        y = rng.normal(4.0, np.sqrt(3.0), size=200)
        weights.append(stack(paper_models(y, rng)).solution.x[0])
    assert np.mean(weights) == pytest.approx(0.82, abs=0.03)


def test_scores_are_elpds(rng):
    y = rng.normal(size=30)
    mu = 0.2 * rng.normal(size=(4, 200))
    models = {
        "a": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.5),
    }
    fit = stack(models)
    table = fit.to_dataframe()
    assert table.loc["a", "score"] == pytest.approx(models["a"].loo().logp.sum())
    assert str(fit).startswith("Linear, fitted by the leave-one-out log score")
    assert "unit of y" not in str(fit)
    # The pool needs no normaliser: its density follows from those of the models.
    mixed = special.logsumexp(
        np.stack([m.loo().logp for m in models.values()]), axis=0, b=fit.solution.x[:, None]
    )
    np.testing.assert_allclose(fit.logpdf(loo=True), mixed, rtol=1e-12)
    assert table.loc["[stack]", "score"] == pytest.approx(mixed.sum())
    np.testing.assert_array_equal(fit.predict().log_norm(), 0.0)


def test_only_densities_are_needed(rng):
    y = rng.normal(size=20)
    models = {str(k): from_logp(0.3 * rng.normal(size=(4, 50, 20)), y) for k in range(3)}
    fit = stack(models)
    assert fit.solution.converged
    assert np.isfinite(fit.logpdf(loo=True)).all()


def test_bootstrap_and_files(rng, tmp_path):
    y = rng.normal(size=60)
    mu = 0.1 * rng.normal(size=(4, 100))
    models = {
        "a": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.0),
    }
    fit = stack(models)
    draws = fit.bootstrap(300, random_seed=1)
    np.testing.assert_allclose(draws.sum("model"), 1.0)
    # Sandwich: the slope of the score in w and its bend give the standard error.
    p = np.exp(np.stack([m.loo().logp for m in models.values()]))
    slope = (p[0] - p[1]) / (fit.solution.x @ p)
    sandwich = slope.std() * np.sqrt(60) / np.square(slope).sum()
    assert float(draws.std("draw")[0]) == pytest.approx(sandwich, rel=0.2)
    fit.save(tmp_path / "stack.nc")
    assert str(lq.load(tmp_path / "stack.nc")) == str(fit)


@pytest.mark.parametrize("kind", ["loo", "in-sample"])
def test_mcse_of_the_log_score(rng, kind):
    y = rng.normal(size=20)
    estimates, scores = [], []
    for _ in range(60):
        mu = 0.3 * rng.normal(size=(4, 250))
        model = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
        collapsed = model.passes.predict(kind, density=True)
        estimates.append(lq.LogScore().mcse(collapsed, np.ones(1)))
        scores.append(collapsed.jet.logp.sum())
    assert np.mean(estimates) == pytest.approx(np.std(scores, ddof=1), rel=0.25)


def test_remarks(rng):
    y = np.append(rng.normal(size=20), 40.0)
    mu, sigma = rng.normal(scale=0.5, size=(4, 500)), np.exp(0.4 * rng.normal(size=(4, 500)))
    model = lq.from_family("normal", y=y, mu=mu, sigma=2 * sigma)
    with pytest.warns(ParetoWarning, match="'a' are unreliable at 8 obs") as caught:
        fit = lq.stack({"a": model})
    assert ParetoWarning in {remark.category for remark in fit.remarks}
    assert {w.filename for w in caught} == {__file__}
    y = rng.normal(size=50)
    mu = 0.1 * rng.normal(size=(4, 500))
    same = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    other = lq.from_family("normal", y=y, mu=mu + 1.0, sigma=0.5)
    with pytest.warns(IdentifiabilityWarning, match="'a', 'again' cannot be distinguished"):
        lq.stack({"a": same, "again": same, "other": other})


def test_discrete_likelihoods_can_be_stacked(rng):
    y = rng.poisson(3.0, size=30)
    rate = rng.gamma(300, 0.01, size=(4, 100, 1))
    from scipy.stats import poisson

    models = {
        name: lq.from_arrays(
            logp=poisson.logpmf(y, rate * factor),
            grad=np.zeros((4, 100, 30)),
            curv=np.zeros((4, 100, 30)),
            y=y,
            likelihood="poisson",
        )
        for name, factor in (("right", 1.0), ("wrong", 3.0))
    }
    assert stack(models).weights.sel(model="right") > 0.9
    with pytest.raises(lq.errors.SmoothnessError, match="'right'.*discrete"):
        lq.lock(models)


# Where other software is known to fail


def test_the_order_of_models_and_observations_does_not_matter(rng):
    logp = rng.normal(size=(6, 4, 100, 80)) * np.array([0.1, 0.2, 0.3] * 2)[:, None, None, None]
    logp -= rng.gamma(2.0, size=(6, 1, 1, 80))
    y = rng.normal(size=80)
    models, shuffled = rng.permutation(6), rng.permutation(80)
    fit = stack({str(k): from_logp(logp[k], y) for k in range(6)})
    again = stack({str(k): from_logp(logp[k][..., shuffled], y[shuffled]) for k in models})
    assert fit.solution.objective == pytest.approx(float(again.solution.objective), rel=1e-12)
    for name in fit.names:
        assert fit.weights.sel(model=name) == pytest.approx(
            float(again.weights.sel(model=name)), abs=1e-8
        )


def test_one_row_at_minus_900_is_a_row_like_any_other(rng):
    # exp(−900) is zero in float64: exponentiated, the row would make every weight as good.
    y = rng.normal(size=40)
    logp = [rng.normal(size=(4, 100, 40)) * s - rng.gamma(2.0, size=40) for s in (0.1, 0.3)]
    low = np.where(np.arange(40) == 7, -900.0, 0.0)
    fits = [
        stack({str(k): from_logp(part + by, y) for k, part in enumerate(logp)}) for by in (0.0, low)
    ]
    assert 0.1 < fits[0].solution.x[0] < 0.9
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-8)


@pytest.mark.parametrize("shift", [0.0, -800.0])
def test_weights_of_54_models_sum_to_one(rng, shift):
    y = rng.normal(size=200)
    models = {}
    for k in range(54):
        mu = rng.normal() + 0.5 * rng.normal(size=200) + 0.1 * rng.normal(size=(4, 25, 1))
        logp = -0.5 * np.square((y - mu) / (0.5 + k / 54)) - np.log(0.5 + k / 54)
        models[f"m{k}"] = from_logp(logp + shift, y)
    fit = stack(models)
    assert float(fit.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert (fit.weights >= 0).all()
    assert fit.solution.converged
    assert fit.solution.relative_gap < 1e-12


def test_a_hundred_models_reach_the_optimum_of_another_solver():
    n, K = 300, 100
    p = Problem(regression(np.random.default_rng(1), K, n), np.ones(n), np.zeros(K))
    solution, (theirs, solved) = p.solve(), clarabel_weights(p)
    assert solved
    assert p.f(solution.x) == pytest.approx(p.f(theirs), abs=1e-7)
    assert p.f(solution.x) <= p.f(theirs)
