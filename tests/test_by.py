"""Weights that depend on covariates: limits, labels, an independent solver, all that follows."""

from __future__ import annotations

from dataclasses import replace

import clarabel
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse
from scipy.interpolate import BSpline
from scipy.linalg import block_diag
from scipy.stats import norm

import lockquack as lq
from lockquack.errors import (
    IdentifiabilityWarning,
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    UnsupportedError,
)
from lockquack.fitting.shrinkage import beyond_constant
from lockquack.report import sections
from tests.helpers import lock, shown

N = 60
SIDE = np.where(np.arange(N) % 3 == 0, "left", "right")


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(3).uniform(-2, 2, size=N)


@pytest.fixture(scope="module")
def models(x):
    """Of these, the first is right on the left and the second on the right."""
    rng = np.random.default_rng(4)
    y = np.where(x < 0, -1.0, 1.0) + rng.normal(size=N)
    noise = 0.05 * rng.normal(size=(4, 50))
    return {
        "down": lq.from_family("normal", y=y, mu=noise - 1.0, sigma=1.0),
        "up": lq.from_family("normal", y=y, mu=noise + 1.0, sigma=1.0),
        "wide": lq.from_family("student_t", y=y, nu=5.0, mu=noise, sigma=1.5),
    }


@pytest.fixture(scope="module")
def counts(x):
    rng = np.random.default_rng(5)
    y = rng.poisson(np.where(x < 0, 2.0, 6.0))
    rate = 0.1 * rng.random((4, 50))
    return {
        "low": lq.from_family("poisson", y=y, mu=2.0 + rate),
        "high": lq.from_family("poisson", y=y, mu=6.0 + rate),
    }


CONVEX = {
    "lock": lambda m, **how: lock(m, prior=1.0, **how),
    "stack": lq.stack,
    "lock by log": lambda m, **how: lq.lock(m, rule="log", prior=1.0, **how),
}


@pytest.mark.parametrize("name", CONVEX)
def test_infinite_shrinkage_is_the_constant_fit(models, x, name):
    constant = CONVEX[name](models).weights.values
    for by in (x, SIDE):
        found = CONVEX[name](models, by=by, shrinkage=np.inf)
        np.testing.assert_allclose(
            found.weights.values, constant[:, None] + np.zeros(N), atol=1e-12
        )
        assert found.solution.converged
    near, nearer = (
        CONVEX[name](models, by=SIDE, shrinkage=each).weights.values for each in (1e6, 1e7)
    )
    limit = (10 * nearer - near) / 9  # the distance is in proportion to 1 / λ
    np.testing.assert_allclose(limit, constant[:, None] + np.zeros(N), atol=1e-8)


@pytest.mark.parametrize("name", CONVEX)
def test_without_shrinkage_every_group_is_alone(models, name):
    found = CONVEX[name](models, by=SIDE, shrinkage=0.0)
    constant = CONVEX[name](models)
    for side in ("left", "right"):
        alone = constant.fitter.refit((side == SIDE).astype(float), constant.solution.x)
        at = found.weights.values[:, side == SIDE]
        np.testing.assert_allclose(at, alone[:, None] + np.zeros(at.shape), atol=1e-8)


@pytest.mark.parametrize("by", [np.full(N, 3.5), ["all"] * N, lq.Features(np.ones((N, 1)))])
@pytest.mark.parametrize("name", CONVEX)
def test_one_function_is_the_constant_fit(models, name, by):
    found = CONVEX[name](models, by=by, shrinkage=1.0).weights.values
    constant = CONVEX[name](models).weights.values
    np.testing.assert_allclose(found, constant[:, None] + np.zeros(N), atol=1e-8)


def test_counts_by_the_pairwise_score(counts):
    rule = lq.PairwiseScore()
    found = lq.lock(counts, rule=rule, by=SIDE, shrinkage=0.0, prior=1.0)
    constant = lq.lock(counts, rule=rule, prior=1.0)
    alone = constant.fitter.refit((SIDE == "left").astype(float), constant.solution.x)
    np.testing.assert_allclose(found.weights_at(["left"])["weight"].values[:, 0], alone, atol=1e-8)


def test_an_independent_solver_agrees(rng):
    """Twenty splines and ten models, locked by the Hyvärinen score."""
    n, K, B, shrinkage = 300, 10, 20, 2.0
    x, y = rng.uniform(size=n), rng.normal(size=n)
    mu, sigma = rng.normal(size=(K, n)), rng.uniform(0.8, 2.0, size=K)
    models = {
        f"m{k}": lq.from_family("normal", y=y, mu=mu[k][None, None], sigma=sigma[k])
        for k in range(K)
    }
    fit = lock(models, by=lq.Spline(x, df=B, name="x"), shrinkage=shrinkage, prior=1.0, scale=1.0)
    (term,) = fit.design.terms
    share = BSpline.design_matrix(x, np.array(term.knots), term.degree).toarray()
    grad = -(y - mu) / sigma[:, None] ** 2
    Q = np.einsum("ia,ib,ji,ki->ajbk", share, share, grad, grad, optimize=True)
    steps = np.diff(np.eye(B), axis=0)
    Q = Q.reshape(B * K, B * K) + shrinkage * np.kron(steps.T @ steps, np.eye(K))
    c = np.einsum("ia,k->ak", share, -1 / sigma**2)
    expected = share @ by_clarabel(Q, c)
    np.testing.assert_allclose(fit.weights.values.T, expected, atol=1e-7)
    assert (fit.weights.values == 0).any()


def by_clarabel(Q, c):
    B, K = c.shape
    sums = np.kron(np.eye(B), np.ones((1, K)))
    A = sparse.csc_matrix(np.vstack([sums, -np.eye(B * K)]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    cones = [clarabel.ZeroConeT(B), clarabel.NonnegativeConeT(B * K)]
    b = np.concatenate([np.ones(B), np.zeros(B * K)])
    P = sparse.csc_matrix(np.triu(2 * Q))
    found = clarabel.DefaultSolver(P, 2 * c.ravel(), A, b, cones, settings).solve()
    return np.array(found.x).reshape(B, K)


@pytest.mark.parametrize("shrinkage", [0.3, 5.0])
def test_an_independent_solver_agrees_on_stacking(rng, shrinkage):
    """Twenty splines and ten models, mixed by the log score: exponential cones."""
    n, K, B = 150, 10, 20
    x, y = rng.uniform(size=n), rng.normal(size=n)
    mu, sigma = rng.normal(size=(K, n)), rng.uniform(0.8, 2.0, size=K)
    models = {
        f"m{k}": lq.from_family("normal", y=y, mu=mu[k][None, None], sigma=sigma[k])
        for k in range(K)
    }
    fit = lq.stack(models, by=lq.Spline(x, df=B, name="x"), shrinkage=shrinkage, scores="held-out")
    (term,) = fit.design.terms
    share = BSpline.design_matrix(x, np.array(term.knots), term.degree).toarray()
    p = norm.pdf(y, mu, sigma[:, None])
    expected = share @ stacked_by_clarabel(share, p / p.max(axis=0), shrinkage)
    np.testing.assert_allclose(fit.weights.values.T, expected, atol=1e-7)


def stacked_by_clarabel(share, p, shrinkage):
    """Maximise Σ t_i minus the shrinkage; (t_i, 1, Σ_bk φ_ib v_bk p_ik) are in cones."""
    (n, B), K = share.shape, len(p)
    steps = np.diff(np.eye(B), axis=0)
    pull = np.kron(2 * shrinkage * steps.T @ steps, np.eye(K))
    mixed = np.einsum("ib,ki->ibk", share, p).reshape(n, B * K)
    sums = np.hstack([np.kron(np.eye(B), np.ones((1, K))), np.zeros((B, n))])
    signs = np.hstack([-np.eye(B * K), np.zeros((B * K, n))])
    cones = np.zeros((n, 3, B * K + n))
    cones[np.arange(n), 0, B * K + np.arange(n)] = -1.0
    cones[:, 2, : B * K] = -mixed
    A = sparse.csc_matrix(np.vstack([sums, signs, cones.reshape(3 * n, -1)]))
    b = np.concatenate([np.ones(B), np.zeros(B * K), np.tile([0.0, 1.0, 0.0], n)])
    P = sparse.csc_matrix(np.triu(block_diag(pull, np.zeros((n, n)))))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    kinds = [clarabel.ZeroConeT(B), clarabel.NonnegativeConeT(B * K)]
    kinds += [clarabel.ExponentialConeT()] * n
    aim = np.concatenate([np.zeros(B * K), -np.ones(n)])
    found = clarabel.DefaultSolver(P, aim, A, b, kinds, settings).solve()
    return np.array(found.x)[: B * K].reshape(B, K)


def test_cross_validation_finds_what_there_is_and_no_more(models, x):
    fit = lq.stack(models, by=pd.Series(x, name="x"))
    assert fit.label == "stack ~ x"
    at = fit.weights_at([-2.0, 2.0])["weight"]
    assert at.sel(model="down").values[0] > 0.8
    assert at.sel(model="up").values[1] > 0.8
    assert "over constant weights" in repr(fit)
    nothing = np.random.default_rng(1).permutation(x)
    assert "do not ask for it" in repr(lq.stack(models, by=nothing))


def members(rng, y):
    noise = 0.05 * rng.normal(size=(2, 100))
    return {
        "a": lq.from_family("normal", y=y, mu=noise + 0.3, sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=noise - 0.3, sigma=1.3),
    }


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
@pytest.mark.parametrize("name", ["stack", "lock"])
def test_groups_of_one_observation_are_no_reason_to_vary(name):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        models = members(rng, rng.normal(size=100))
        fit = getattr(lq, name)(models, by=lq.Groups(np.arange(100)))
        assert "do not ask for it" in repr(fit)


def test_a_better_average_is_no_reason_to_vary():
    """It is a constant too."""
    scores, averages = np.array([[-1.0, -1.0], [-2.0, -4.0]]), np.array([[-1.0, -1.5], [-9.0, 0.0]])
    apart = beyond_constant(scores, averages, np.ones(2))
    np.testing.assert_array_equal(apart, [[0.0, 0.5], [0.0, 0.0]])


def test_pairs_of_observations_that_go_together_are_one():
    rng = np.random.default_rng(0)
    pair = np.arange(100) // 2
    y = np.where(rng.random(50) < 0.5, -1.0, 1.0)[pair] + rng.normal(size=100)
    noise = 0.05 * rng.normal(size=(2, 100))
    models = {
        "low": lq.from_family("normal", y=y, mu=noise - 1.0, sigma=1.0),
        "high": lq.from_family("normal", y=y, mu=noise + 1.0, sigma=1.0),
    }
    assert np.isfinite(lq.stack(models, by=lq.Groups(pair)).fitter.choice.shrinkage)


@pytest.mark.filterwarnings("ignore:Only:lockquack.errors.LikelihoodWarning")
def test_case_weights_count_like_repetitions(models, x):
    twice = np.repeat(np.arange(N), np.arange(N) % 3)
    y = next(iter(models.values())).observations.values[:, 0]
    noise = 0.05 * np.random.default_rng(8).normal(size=(4, 50))
    once, repeated = (
        {
            "a": lq.from_family("normal", y=outcomes, mu=noise - 1.0, sigma=1.0),
            "b": lq.from_family("normal", y=outcomes, mu=noise + 1.0, sigma=1.0),
        }
        for outcomes in (y, y[twice])
    )
    weighted = {name: model.with_weights(np.arange(N) % 3) for name, model in once.items()}
    by = lq.Spline(x)
    # Knots are quantiles of the different numbers, so they are the same.
    found = lq.stack(weighted, by=by, shrinkage=2.0)
    expected = lq.stack(repeated, by=x[twice], shrinkage=2.0)
    places = [-1.0, 0.0, 1.5]
    np.testing.assert_allclose(
        found.weights_at(places)["weight"], expected.weights_at(places)["weight"], atol=1e-7
    )


def test_labels_decide(models, x):
    y = pd.Series(next(iter(models.values())).observations.values[:, 0])
    y.index = pd.Index([f"p{i}" for i in range(N)], name="person")
    noise = 0.05 * np.random.default_rng(8).normal(size=(4, 50))
    named = {
        "a": lq.from_family("normal", y=y, mu=noise - 1.0, sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=noise + 1.0, sigma=1.0),
    }
    by = pd.Series(x, index=y.index, name="x")
    fit = lq.stack(named, by=by, shrinkage=1.0)
    assert fit.weights.dims == ("model", "person")
    for given in (by.to_frame(), xr.DataArray(by), by.to_numpy(), {"x": by}):
        same = lq.stack(named, by=given, shrinkage=1.0)
        np.testing.assert_array_equal(same.weights, fit.weights)
    with pytest.raises(ObservationMismatchError, match="another order"):
        lq.stack(named, by=by.iloc[::-1])
    with pytest.raises(ShapeError, match="one value for each of 60 observations"):
        lq.stack(named, by=x[:-1])


def test_kinds_of_covariates(models, x):
    table = pd.DataFrame({"x": x, "side": SIDE, "flag": x > 1, "code": pd.Categorical(SIDE)})
    fit = lq.stack(models, by=table, shrinkage=1.0)
    kinds = [term.kind for term in fit.design.terms]
    assert kinds == ["spline", "groups", "groups", "groups"]
    parts = lq.Spline(x, name="x") + lq.Groups(SIDE, name="side")
    two = lq.stack(models, by=parts, shrinkage=1.0)
    again = lq.stack(models, by=table[["x", "side"]], shrinkage=1.0)
    np.testing.assert_array_equal(two.weights, again.weights)
    found = two.weights_at(pd.DataFrame({"side": ["left"], "x": [0.3]}))
    np.testing.assert_allclose(
        found["weight"], two.weights_at(lq.Spline([0.3]) + lq.Groups(["left"]))["weight"]
    )
    assert set(two.weights_at()["covariate"].values) == {"x", "side"}


def test_missing_and_unseen(models, x):
    side = SIDE.astype(object)
    side[:7] = None
    fit = lq.stack(models, by=side, shrinkage=0.5)
    assert fit.weights_at()["covariate"].values.tolist() == ["left", "right", "missing"]
    with pytest.warns(IdentifiabilityWarning, match="'middle'"):
        unseen = fit.weights_at(["middle"])["weight"].values[:, 0]
    np.testing.assert_allclose(unseen, fit.weights_at()["weight"].values.mean(axis=1), atol=1e-12)
    holes = x.copy()
    holes[:7] = np.nan
    with pytest.warns(IdentifiabilityWarning, match="At 7 of 60 observations covariate is missing"):
        smooth = lq.stack(models, by=holes, shrinkage=0.5)
    functions = smooth.fitter.objective.functions(smooth.solution.x)
    np.testing.assert_allclose(smooth.weights.values[:, 0], functions.mean(axis=0), atol=1e-12)
    far = smooth.weights_at([-9.0, np.nanmin(holes)])["weight"].values
    np.testing.assert_allclose(far[:, 0], far[:, 1], atol=1e-12)


NOT_CONVEX = [
    lq.Superposition(),
    lq.Hoelder(),
    lq.Hybrid(),
    lq.Locking("nonnegative"),
    lq.Nested(lq.Locking(), [(lq.Linear(), ["down", "up"]), "up"]),
]


@pytest.mark.parametrize("operator", NOT_CONVEX, ids=repr)
def test_other_operators(models, operator):
    models = {name: models[name] for name in ("down", "up")}
    rule = lq.Hyvarinen() if operator == lq.Locking("nonnegative") else lq.LogScore()
    constant = lq.combine(models, operator, rule, prior=1.01)
    same = lq.combine(models, operator, rule, by=SIDE, shrinkage=np.inf, prior=1.01)
    expected = constant.weights.values[:, None] + np.zeros(N)
    np.testing.assert_allclose(same.weights.values, expected, atol=1e-8)
    fit = lq.combine(models, operator, rule, by=SIDE, shrinkage=0.1, prior=1.01)
    assert fit.solution.converged
    assert fit.pointwise.values[0].sum() > constant.pointwise.values[0].sum()
    assert set(fit.parameters) == set(constant.parameters)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")  # of the constant fit
@pytest.mark.parametrize("rule", [lq.LogScore(), lq.Hyvarinen()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("operator", [lq.Locking(), lq.Linear(), *NOT_CONVEX], ids=repr)
def test_slopes_are_those_of_finite_differences(models, x, operator, rule):
    models = {name: models[name] for name in ("down", "up")}
    by = lq.Spline(x, df=3) + lq.Groups(SIDE)
    objective = lq.combine(models, operator, rule, by=by, shrinkage=np.inf).objective
    over = replace(objective, shrinkage=2.0)
    z = over.space.starts(1)[0] + 0.3 * np.random.default_rng(1).normal(size=over.space.size)
    value, slopes = over.expand_free(z)
    assert value == pytest.approx(over.value(over.space.natural(z)))
    steps = 1e-5 * np.eye(z.size)
    differences = [
        (over.expand_free(z + step)[0] - over.expand_free(z - step)[0]) / 2e-5 for step in steps
    ]
    np.testing.assert_allclose(slopes, differences, rtol=1e-5, atol=1e-5)


def test_everything_after_the_weights(models, x, tmp_path):
    fit = lq.lock(models, by=pd.Series(x, name="x"), shrinkage=1.0, random_seed=1)
    assert fit.weights.shape == fit.weights_se.shape == (3, N)
    assert fit.bootstrap(7, random_seed=1).dims == ("draw", "model", "obs_id")
    table = fit.to_dataframe()
    np.testing.assert_allclose(table["weight"].iloc[1:], fit.weights.mean("obs_id"))
    assert (table["weight_min"] <= table["weight"])[1:].all()
    fit.save(tmp_path / "fit.nc")
    again = lq.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.weights, fit.weights)
    xr.testing.assert_allclose(again.weights_at(), fit.weights_at())
    assert shown(again) == shown(fit)
    assert fit.pit(loo=True).sizes == {"obs_id": N}
    assert fit.sample(5, random_seed=1)["posterior_predictive/y"].sizes["obs_id"] == N
    with pytest.raises(UnsupportedError, match="posterior"):
        fit.sandwich()
    with pytest.raises(UnsupportedError, match="without by="):
        fit.update(models)
    assert fit.posterior(2, chains=1, learning_rate=1.0).sizes["obs_id"] == N


def test_predictions_at_new_covariates(x):
    rng = np.random.default_rng(6)
    X = x[:, None]
    y = np.where(x < 0, -1.0, 1.0) + 0.5 * rng.normal(size=N)
    slope = 1.0 + 0.05 * rng.normal(size=(2, 50, 1))
    models = {
        "line": lq.from_family("normal", y=y, mu=lq.linear_predictor(X, slope), sigma=1.0),
        "steep": lq.from_family("normal", y=y, mu=lq.linear_predictor(X, 2 * slope), sigma=1.0),
    }
    fit = lq.stack(models, by=pd.Series(x, name="x"), shrinkage=0.5)
    new = np.array([[-1.5], [0.0], [1.5]])
    there = fit.predict(x=new, by=new[:, 0])
    weights = fit.weights_at(new[:, 0])["weight"].values
    expected = weights[0] * slope.mean() * new[:, 0] + weights[1] * 2 * slope.mean() * new[:, 0]
    np.testing.assert_allclose(there.mean(), expected, atol=1e-6)
    with pytest.raises(ParameterError, match="by="):
        fit.predict(x=new)
    with pytest.raises(ShapeError, match="each of 3 observations"):
        fit.predict(x=new, by=new[:2, 0])
    with pytest.raises(UnsupportedError, match="by="):
        lq.stack(models).predict(x=new, by=new[:, 0])


def test_covariates_tell_how_many_new_observations_there_are(models, x):
    """Models without data of their own say nothing of it."""
    fit = lq.stack(models, by=pd.Series(x, name="x"), shrinkage=0.5)
    at = np.array([-1.0, 0.0, 1.0, 1.5])
    weights = fit.weights_at(at)["weight"].values
    means = [each.predict(y=np.zeros(4)).mean().values for each in map(lq.equal, _alone(models))]
    found = fit.predict(by=at).mean().values
    np.testing.assert_allclose(found, np.einsum("ki,ki->i", weights, np.stack(means)), atol=1e-6)


def _alone(models):
    return [{name: model} for name, model in models.items()]


def test_compare_has_both(models, x):
    table = lq.compare(models, ["stack", "lock", "equal"], by=pd.Series(x, name="x"), cv=5)
    assert {"stack", "lock", "equal", "stack ~ x", "lock ~ x"} <= set(table.index)
    assert "equal ~ x" not in table.index
    assert table.loc["stack ~ x", "elpd"] > table.loc["stack", "elpd"] + 4
    weights = [table.loc["stack ~ x", f"weight[{name}]"] for name in models]
    assert sum(weights) == pytest.approx(1.0)


def test_compare_chooses_the_shrinkage_without_the_fold(models, x):
    """What is held out has no part in its own score: refit by hand."""
    fold = np.arange(N) % 3
    by = pd.Series(x, name="x")
    table = lq.compare(models, ["stack"], by=by, cv=fold)
    elpd = 0.0
    whole = lq.stack(models, by=by)
    for f in range(3):
        counts = (fold != f).astype(float)
        found = whole.fitter.refit(counts, whole.solution.x)
        elpd += whole.objective.at(np.flatnonzero(fold == f)).scores(found).sum()
    assert table.loc["stack ~ x", "elpd"] == pytest.approx(elpd, abs=1e-6)


def test_pictures_and_report(models, x):
    curves = lq.stack(models, by=pd.Series(x, name="x"), shrinkage=1.0)
    assert curves.plot_weights_at().get_xlabel() == "x"
    assert curves.plot_weights().get_xlabel() == "weight"
    sides = lq.stack(models, by=lq.Spline(x, name="x") + lq.Groups(SIDE, "side"), shrinkage=1.0)
    names = [label.get_text() for label in sides.plot_weights_at("side").get_yticklabels()]
    assert names == ["left", "right"]
    with pytest.raises(ParameterError, match="say over which"):
        sides.plot_weights_at()
    towns = lq.stack(models, by=lq.Groups(np.arange(N) % 40, "town"), shrinkage=1.0)
    assert towns.plot_weights_at().get_xlabel() == "town"  # numbers, drawn as such
    many = lq.Groups([f"t{i % 40}" for i in range(N)], "town")
    mapped = lq.stack(models, by=many, shrinkage=1.0).plot_weights_at()
    assert mapped.get_ylabel() == "40 groups of town, sorted"
    page = str(sections.weights(sides))
    assert "Weights by x" in page
    assert "Weights by side" in page


def test_influence_leaves_each_observation_out(models):
    fit = lq.lock(models, by=SIDE, shrinkage=0.5)
    found = fit.influence()
    assert bool(found.exact.all())
    counts = np.ones(N)
    counts[7] = 0.0
    without = fit.fitter.again(counts, fit.solution.x)
    expected = fit.objective.mean_weights(without) - fit.objective.mean_weights(fit.solution.x)
    np.testing.assert_allclose(found.changes.values[:, 7], expected, atol=1e-5)
    own = fit.objective.at(np.array([7])).scores(without)[0]
    np.testing.assert_allclose(found.deletions.scores[7], own, atol=1e-4)


def test_dask_and_threads_change_nothing(x):
    dask = pytest.importorskip("dask.array")
    rng = np.random.default_rng(9)
    y, mu = rng.normal(size=N), rng.normal(size=(2, 2, 100, N))
    fits = []
    for wrap in (np.asarray, lambda a: dask.from_array(a, chunks=(2, 50, 20))):
        dims = ["chain", "draw", "obs_id"]
        models = {
            name: lq.from_family("normal", y=y, mu=xr.DataArray(wrap(m), dims=dims), sigma=s)
            for name, m, s in (("a", mu[0], 1.0), ("b", mu[1], 2.0))
        }
        fits.append(lq.lock(models, by=x, shrinkage=1.0))
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-12)


def test_the_command_line(models, x, tmp_path, capsys):
    from lockquack.cli import main

    y = next(iter(models.values())).observations.values[:, 0]
    pd.DataFrame({"y": y, "x": x, "side": SIDE}).to_csv(tmp_path / "data.csv", index=False)
    rng = np.random.default_rng(7)
    for name, at in (("down", -1.0), ("up", 1.0)):
        draws = pd.DataFrame({"mu": at + 0.05 * rng.normal(size=200), ".chain": np.arange(200) % 4})
        draws.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / f"{name}.csv") for name in ("down", "up")]
    given = ["--y", f"{tmp_path / 'data.csv'}:y", "--family", "normal(mu=mu, sigma=1)"]
    assert main(["weights", *files, *given, "--operator", "linear", "--by", "x,side"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Weights by x (5 splines of degree 2) and side (2 groups)" in said
    by = ["--by", f"{tmp_path / 'data.csv'}:x", "--methods", "stack"]
    assert main(["compare", *files, *given, *by]) == 0
    assert "stack ~ x" in capsys.readouterr().out
    assert main(["weights", *files, *given, "--by", "county"]) == 2
    assert "county" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"by": "county"}, ParameterError, "give the values"),
        ({"shrinkage": 1.0}, ParameterError, "give by="),
        ({"by": SIDE, "shrinkage": -1.0}, ParameterError, "from 0"),
        ({"by": pd.date_range("2020-01-01", periods=N)}, ParameterError, "dates"),
        ({"by": lq.Spline(SIDE)}, ParameterError, "lq.Groups"),
        ({"by": lq.Features(np.ones((N, 2)))}, ParameterError, "sum to one"),
        ({"by": np.full(N, np.inf)}, lq.errors.NonFiniteError, "infinite"),
    ],
)
def test_what_is_refused(models, how, error, says):
    with pytest.raises(error, match=says):
        lq.stack(models, **how)
    with pytest.raises(UnsupportedError, match="cannot depend on covariates"):
        lq.combine(models, lq.Selection(), lq.LogScore(), by=SIDE)


def test_a_report_compares_weights_that_vary_with_constant_ones(tmp_path):
    side = lq.Groups(np.where(np.arange(40) < 20, "left", "right"), name="side")
    fit = lq.stack(lq.example_models(), by=side, shrinkage=1.0)
    page = fit.report(tmp_path / "report.html", methods=["stack"], cv=4).read_text("utf-8")
    assert "its range by side" in page
    assert page.count("stack ~ side") > 3  # among others, a row of the comparison
