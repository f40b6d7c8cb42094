"""Leaving out each observation: against fitting again by brute force, for every pair."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_wine

import lockquack as lq
from lockquack.errors import InfluenceWarning, LockquackWarning, ParameterError, UnsupportedError
from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.influence import (
    changes_of,
    deciding,
    delete_roughly,
    moves,
    outstanding,
    rough_changes,
    shortlist,
)
from lockquack.fitting.linear_log_score import LinearLogScore
from lockquack.operators import Hoelder, Linear, Superposition
from lockquack.remarks.weights import FewDecide
from tests.test_fitting import CONVEX, PAIRS, named, pose

#: Without some observations these have optima that are not near any for all observations.
MANY_OPTIMA = [
    ("density", "hyvarinen", Hoelder(), 3),
    ("density", "hyvarinen", Hoelder(-1), 3),
]
SOME = np.array([0, 17])


def without(fitter, i):
    """Pose the same problem without an observation."""
    keep = np.delete(np.arange(fitter.objective.n_obs), i)
    return replace(fitter, objective=fitter.objective.at(keep))


@pytest.mark.parametrize("pair", PAIRS, ids=named)
def test_leaving_one_out_is_fitting_again(pair):
    fitter = pose(pair)
    x = fitter.solve().x
    for i, found in zip(SOME, fitter.without_each(SOME, x), strict=True):
        rest = without(fitter, i)
        again = rest.solve()
        value = rest.objective.value
        if pair in MANY_OPTIMA:  # as good as going downhill from the solution for all
            nearby = rest.refit(rest.objective.counts, x)
            assert value(found) <= value(nearby) + 1e-9 * float(again.scale)
            continue
        if fitter.is_optimum:
            assert value(found) == pytest.approx(value(again.x), abs=1e-9 * float(again.scale))
        weights = (rest.objective.weights(each) for each in (found, again.x))
        np.testing.assert_allclose(*weights, atol=1e-7 if pair in CONVEX else 1e-4)


def test_a_model_without_weight_may_gain_some():
    # Without a prior the third model has no weight; a search that begins there would stay there.
    fitter = pose(("density", "hyvarinen", Linear(), 3), concentration=1.0)
    x = fitter.solve().x
    assert (x == 0).any()
    each = fitter.without_each(np.arange(fitter.objective.n_obs), x)
    gained = np.flatnonzero((each[:, x == 0] > 0.01).any(axis=1))
    assert gained.size
    again = without(fitter, gained[0]).solve().x
    np.testing.assert_allclose(each[gained[0]], again, atol=1e-5)


def test_an_observation_that_outweighs_all_others_leaves_no_rounding_behind():
    fitter = pose(("density", "hyvarinen", lq.Locking(), 3))
    densities = fitter.objective.densities
    for part in (densities.jets.grad, densities.jets.curv):
        part[:, 5] *= 1e11
    x = fitter.solve().x
    (found,) = fitter.without_each(np.array([5]), x)
    np.testing.assert_allclose(found, without(fitter, 5).solve().x, atol=1e-9)


@pytest.mark.parametrize("pair", CONVEX, ids=named)
def test_slopes_and_bends_of_each_add_up(pair):
    fitter = pose(pair)
    w = fitter.solve().x
    np.testing.assert_allclose(fitter.slopes_each(w).sum(axis=1), fitter.weight_slopes(w))
    bends = fitter.hessians_each(w).sum(axis=2)
    np.testing.assert_allclose(bends, 2 * fitter.half_hessian(w), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("pair", CONVEX, ids=named)
def test_to_first_order_it_is_the_derivative_in_the_count(pair):
    fitter = pose(pair)
    x = fitter.solve().x
    rough, step = rough_changes(fitter, x), 1e-4
    for i in SOME:
        counts = fitter.objective.counts.copy()
        counts[i] -= step
        change = (fitter.refit(counts, x) - x) / step
        active = x > 1e-3
        np.testing.assert_allclose(rough[active, i], change[active], atol=2e-3 + 0.02 * rough.max())


def plain(y, mu, sigma=1.0, family="normal", **more):
    shape = (2, 20, np.size(y))
    return lq.from_family(family, y=y, mu=np.broadcast_to(mu, shape), sigma=sigma, **more)


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(3)
    y = rng.normal(size=60)
    return {"left": plain(y, -0.7), "right": plain(y, 0.9, 1.3), "wide": plain(y, 0.0, 2.0)}


def test_the_differences_are_scored_by_weights_fitted_without(models):
    fit = lq.lock(models)
    found = fit.influence(against="wide")
    wide = fit.pointwise.sel(model="wide").values
    for i in (0, 31):
        rest = without(fit.fitter, i)
        own = fit.objective.at(np.array([i])).scores(rest.solve().x)[0]
        assert float(found.differences[i]) == pytest.approx(own - wide[i])
    total, se = found.total
    assert total == pytest.approx(float(found.differences.sum()))
    assert se == pytest.approx(float(found.differences.std(ddof=1)) * np.sqrt(60))
    # The table flatters the combination: its weights know what they are scored on.
    assert total < -fit.to_dataframe().loc["wide", "diff"]
    table = found.to_dataframe()
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["moved"].is_monotonic_decreasing
    gone = np.sort(found.differences.values)[::-1]
    assert gone[found.reversing :].sum() <= 0 < gone[found.reversing - 1 :].sum()
    assert 1 <= found.effective <= 60


def test_case_weights_are_left_out_whole():
    rng = np.random.default_rng(5)
    y, w = rng.normal(size=30), rng.integers(0, 4, size=30).astype(float)
    models = {"a": plain(y, -0.8, weights=w), "b": plain(y, 0.7, 1.2, weights=w)}
    repeated = np.repeat(np.arange(30), w.astype(int))
    fit = lq.lock(models)
    changes = fit.influence().changes.values
    assert np.abs(changes[:, w == 0]).max() < 1e-12
    i = int(np.flatnonzero(w == 3)[0])
    rest = repeated[repeated != i]
    grad = fit.objective.jets.grad[:, rest, 0]
    Q, c = grad @ grad.T, fit.objective.jets.curv[:, rest, 0].sum(axis=1)
    grid = np.linspace(0.0005, 0.9995, 20001)
    pairs = np.stack([grid, 1 - grid])
    value = np.einsum("jn,jk,kn->n", pairs, Q, pairs) + 2 * c @ pairs
    best = grid[np.argmin(value - 0.01 * np.log(pairs).sum(axis=0))]
    assert float(fit.weights[0]) + changes[0, i] == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("make", ["lock", "stack", "select", "pseudo_bma"])
def test_many_observations_are_left_out_roughly_and_those_that_matter_exactly(
    make, models, monkeypatch
):
    fit = getattr(lq, make)(models)
    every = fit.influence(exact=True)
    monkeypatch.setattr(type(fit.fitter), "most_deletions", 0)
    some = fit.influence()
    assert every.exact.all()
    assert some.exact.all() or 8 <= int(some.exact.sum()) <= 50
    np.testing.assert_allclose(some.changes, every.changes, atol=2e-3)
    np.testing.assert_allclose(some.differences, every.differences, atol=0.02)
    chosen = some.exact.values
    exactly = every.changes.values[:, chosen]
    np.testing.assert_allclose(some.changes.values[:, chosen], exactly, atol=1e-12)


def test_smooth_problems_have_a_rough_way_too():
    fitter = pose(("density", "log", Superposition(), 2))
    x = fitter.solve().x
    exact = changes_of(fitter, x, fitter.without_each(np.arange(40), x))
    rough = delete_roughly(fitter, x)
    assert not rough.exact.any()
    np.testing.assert_allclose(rough.changes, exact, atol=0.01)


def test_pseudo_bma_plus_uses_the_same_replicates(models):
    fit = lq.pseudo_bma(models)
    found = fit.influence()
    i = int(found.moved.values.argmax())
    alone = without(fit.fitter, i).formula()
    np.testing.assert_allclose(found.weights[:, i], alone, atol=0.02)
    copy = replace(fit.fitter, objective=replace(fit.objective))
    counted_out = copy.without_each(np.array([i]), fit.solution.x)[0]
    np.testing.assert_allclose(counted_out, found.weights[:, i])


def test_what_cannot_be_left_out_is_refused(models):
    with pytest.raises(UnsupportedError, match="nothing to leave out"):
        lq.equal(models).influence()
    with pytest.raises(lq.errors.LockquackError, match="'wdie'.*'wide'"):
        lq.lock(models).influence(against="wdie")
    one = {name: plain([0.3], mu) for name, mu in (("a", 0.0), ("b", 1.0))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.lock(one, rule=lq.Hyvarinen(scale=1.0))
    with pytest.raises(ParameterError, match="at least two"):
        fit.influence()


# One observation


def gibbs(z, X, nu, rng, shape=(2, 150), warmup=100):
    """Draw from a regression with normal errors (nu None), or with Student-t errors."""
    n, p = X.shape
    beta, sigma = np.empty((*shape, p)), np.empty(shape)
    for chain in range(shape[0]):
        weight, variance = np.ones(n), z.var()
        for t in range(-warmup, shape[1]):
            V = np.linalg.inv((X.T * weight) @ X)
            b = (
                V @ (X.T @ (weight * z))
                + np.linalg.cholesky(V) @ rng.normal(size=p) * variance**0.5
            )
            residual = z - X @ b
            variance = float(weight @ residual**2) / rng.chisquare(n)
            if nu is not None:
                weight = rng.gamma((nu + 1) / 2, 2 / (nu + residual**2 / variance))
            if t >= 0:
                beta[chain, t], sigma[chain, t] = b, variance**0.5
    return beta @ X.T, sigma


@pytest.fixture(scope="module")
def wine():
    """Normal, Student-t and log-normal regressions of the colour intensity of 178 wines."""
    data = load_wine()
    colour = data.feature_names.index("color_intensity")
    y, rest = data.data[:, colour], np.delete(data.data, colour, axis=1)
    X = np.column_stack([np.ones(len(y)), (rest - rest.mean(axis=0)) / rest.std(axis=0)])
    rng, models = np.random.default_rng(1), {}
    for name, z, nu in (("normal", y, None), ("student_t", y, 4.0), ("lognormal", np.log(y), None)):
        mu, sigma = gibbs(z, X, nu, rng)
        more = {} if nu is None else {"nu": nu}
        models[name] = lq.from_family(name, y=y, mu=mu, sigma=sigma, **more)
    return models


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_one_wine_decides_by_the_plain_score_and_not_by_that_of_its_logarithm(wine):
    fit = lq.lock(wine, rule=lq.Hyvarinen(transform=None))
    (remark,) = [each for each in fit.remarks if each.code == FewDecide.code]
    assert remark.observations == ("observation 119",)
    assert remark.category is InfluenceWarning
    found = fit.influence()
    assert found.deciding == [119]
    assert found.remarks == [remark]
    np.testing.assert_allclose(fit.weights, [0.03, 0.28, 0.69], atol=0.06)
    np.testing.assert_allclose(found.weights[:, 119], [0, 0, 1], atol=0.01)
    # In its own coordinates, the default, the score depends on no single observation.
    fit = lq.lock(wine)
    assert fit.influence().deciding == []
    assert FewDecide.code not in [each.code for each in fit.remarks]
    assert float(fit.influence().moved.max()) < 0.2


def test_an_outlier_is_named_by_its_label():
    rng = np.random.default_rng(2)
    y = rng.normal(size=50)
    y[20] = 9.0
    named_y = pd.Series(y, index=pd.Index([f"house {i}" for i in range(50)], name="place"))
    models = {"narrow": plain(named_y, 0.0), "shifted": plain(named_y, 1.2, 1.1)}
    with pytest.warns(InfluenceWarning, match=r"without observation 20 \(place=house 20\)"):
        fit = lq.lock(models)
    found = fit.influence()
    assert found.deciding == [20]
    assert "house 20" in repr(found)
    assert "house 20" in found._repr_html_()
    assert found.moved.idxmax().item() == "house 20"
    assert "FewDecide" not in repr(found)
    assert "One of 50 observations largely determines" in repr(found)


def test_regular_observations_decide_nothing():
    rng, said = np.random.default_rng(8), 0
    for _ in range(40):
        y = rng.normal(size=100)
        models = {"a": plain(y, -0.5), "b": plain(y, 0.5, 1.1), "c": plain(y, 0.2, 1.5)}
        said += any(each.code == FewDecide.code for each in lq.lock(models).remarks)
    assert said <= 1


#: Outcomes that are skewed and nothing else, and families that people fit to them.
ORDINARY = {
    "lognormal": lambda rng, n: np.exp(0.5 * rng.normal(size=n)),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "gamma": lambda rng, n: rng.gamma(3.0, size=n),
}


def fitted_to(y, rng):
    """Make log-normal, gamma and Weibull models whose draws are around the best parameters."""

    def spread(value):
        return value * np.exp(0.7 / np.sqrt(len(y)) * rng.normal(size=(2, 20)))

    z = np.log(y)
    (a, _, scale), (k, _, width) = (
        each.fit(y, floc=0) for each in (stats.gamma, stats.weibull_min)
    )
    mu = z.mean() + z.std() / np.sqrt(len(y)) * rng.normal(size=(2, 20))
    return {
        "lognormal": lq.from_family("lognormal", y=y, mu=mu, sigma=spread(z.std())),
        "gamma": lq.from_family("gamma", y=y, alpha=spread(a), beta=spread(1 / scale)),
        "weibull": lq.from_family("weibull", y=y, alpha=spread(k), beta=spread(width)),
    }


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
@pytest.mark.parametrize(("make", "rate"), [(lq.lock, 0.1), (lq.stack, 0.05)])
def test_skewed_observations_are_rarely_said_to_decide(make, rate):
    """Some of them move much weight, because these models are much alike: no reason to worry."""
    moving, said, tries = 0, 0, 25
    for seed in range(tries):
        for draw in ORDINARY.values():
            rng = np.random.default_rng(seed)
            fit = make(fitted_to(draw(rng, 40), rng))
            moved, _, _ = shortlist(fit.fitter, fit.solution.x)
            moving += outstanding(moved).size > 0
            said += any(each.code == FewDecide.code for each in fit.remarks)
    assert said <= rate * 3 * tries
    assert moving >= 3 * said


def test_an_observation_decides_where_the_others_contradict_it():
    """Of a single weight: where it moves that by two standard errors of the others."""
    y = np.append(np.random.default_rng(0).normal(size=400), 0.0)
    fit = lq.lock({"left": plain(y, -1.0), "right": plain(y, 1.0)}, prior=1.0)
    last, moved = np.array([400]), np.append(np.zeros(400), 1.0)
    without = fit.fitter.without_each(last, fit.solution.x)
    # The pool is N(m, 1) with m = 2w - 1, its score 2 - (y - m)^2, for w the weight of "right".
    w = without[0, 1]
    slopes = 4.0 * (y[:-1] - (2.0 * w - 1.0))
    error = np.sqrt(np.square(slopes).sum()) / (8.0 * 400)
    for far, expected in ((1.9, []), (-1.9, []), (2.1, [400]), (-2.1, [400])):
        pulled = np.array([1.0 - w - far * error, w + far * error])
        assert deciding(fit.fitter, pulled, moved, last, without).tolist() == expected


@pytest.mark.parametrize(
    "pair", [p for p in CONVEX if p[2] in (lq.Locking(), lq.Linear())], ids=named
)
def test_the_look_at_a_fit_finds_what_all_deletions_find(pair):
    fitter = pose(pair)
    assert isinstance(fitter, ConvexFitter)
    x = fitter.solve().x
    exact = changes_of(fitter, x, fitter.without_each(np.arange(40), x))
    moved, close, found = shortlist(fitter, x)
    assert set(np.flatnonzero(moves(exact) > 0.11)) <= set(close)
    np.testing.assert_allclose(changes_of(fitter, x, found), exact[:, close], atol=1e-12)
    np.testing.assert_allclose(moved[close], moves(exact)[close], atol=1e-12)
    assert outstanding(moved).tolist() == outstanding(moves(exact)).tolist()


def test_the_look_does_not_fit_again_where_nothing_moves(models, monkeypatch):
    fit = lq.stack(models)
    monkeypatch.setattr(LinearLogScore, "refit_many", None)
    shortlist(fit.fitter, fit.solution.x)


def test_many_observations_are_looked_at_in_groups(monkeypatch):
    fitter = pose(("density", "hyvarinen", lq.Locking(), 3))
    fitter.objective.densities.tables.clear()
    x = fitter.solve().x
    together = shortlist(fitter, x)
    monkeypatch.setattr("lockquack.fitting.influence._AT_ONCE", 7)
    for whole, parts in zip(together, shortlist(fitter, x), strict=True):
        np.testing.assert_allclose(parts, whole, atol=1e-14)


def test_standing_out_takes_size_and_share():
    assert outstanding(np.array([0.3, 0.1, 0.1])).tolist() == [0]
    assert outstanding(np.array([0.2, 0.0, 0.0])).tolist() == []  # too little
    assert outstanding(np.full(10, 0.3)).tolist() == []  # no more than others
    assert outstanding(np.array([0.0, 0.4, 0.5])).tolist() == [2]


# Around it


def test_it_is_a_dataset_and_a_picture(models):
    found = lq.lock(models).influence()
    data = found.to_dataset()
    assert set(data) == {"weights", "changes", "moved", "differences", "exact"}
    assert data["weights"].dims == ("model", "obs_id")
    assert data["exact"].dtype == bool
    np.testing.assert_allclose(data["weights"].sum("model"), 1.0)
    ax = found.plot(worst=3)
    assert len(ax.texts) == 3
    assert len(ax.get_legend().get_texts()) == 3
    texts = {text.get_text() for text in ax.texts}
    assert texts == set(found.to_dataframe(3).index)


def test_a_loaded_fit_knows_its_influence(models, tmp_path):
    fit = lq.lock(models)
    fit.save(tmp_path / "fit.nc")
    again = lq.load(tmp_path / "fit.nc").influence()
    np.testing.assert_allclose(again.changes, fit.influence().changes, atol=1e-12)


def test_a_report_has_a_section(models, tmp_path):
    page = lq.lock(models).report(tmp_path / "r.html", thorough=False).read_text(encoding="utf-8")
    assert '<section id="influence"' in page
    assert 'id="influence-' in page
    page = lq.equal(models).report(tmp_path / "r.html", thorough=False).read_text(encoding="utf-8")
    assert "nothing to leave out" in page


@pytest.fixture
def folder(tmp_path, models):
    for name, model in models.items():
        model.save(tmp_path / f"{name}.nc")
    return tmp_path


def test_the_command_line_shows_it(run, models):
    files = [f"{name}.nc" for name in models]
    status, said, _ = run("weights", *files, "--influence", "2")
    top = lq.lock(models).influence().to_dataframe(2)
    assert status == 0
    assert said.count("Without observation") == 2
    assert f"Without observation {top.index[0]}: left" in said
    _, said, _ = run("weights", *files, "--influence", "--json")
    record = json.loads(said)["influence"]
    assert len(record) == 5
    assert record[top.index[0]]["moved"] == pytest.approx(top["moved"].iloc[0], abs=1e-6)


# Groups


def conditional_scores(y, mean, cov, parts):
    """Sum the Hyvärinen and log scores of each part of a normal vector given the rest."""
    h = log = 0.0
    for part in parts:
        rest = np.setdiff1d(np.arange(len(y)), part)
        gain = cov[np.ix_(part, rest)] @ np.linalg.inv(cov[np.ix_(rest, rest)])
        given = mean[part] + gain @ (y[rest] - mean[rest])
        spread = cov[np.ix_(part, part)] - gain @ cov[np.ix_(rest, part)]
        precision = np.linalg.inv(spread)
        grad = precision @ (given - y[part])
        h += grad @ grad - 2 * np.trace(precision)
        log += stats.multivariate_normal.logpdf(y[part], given, spread)
    return h, log


def test_the_hyvarinen_score_of_new_groups_is_that_of_new_observations():
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(5), [1, 2, 3, 4, 2])
    same = group[:, None] == group
    cov = np.eye(12) + 0.8 * same + 0.3  # effects of groups, and of all together
    y = rng.multivariate_normal(np.zeros(12), cov)
    each = [np.array([i]) for i in range(12)]
    groups = [np.flatnonzero(group == g) for g in range(5)]
    h_each, log_each = conditional_scores(y, np.zeros(12), cov, each)
    h_groups, log_groups = conditional_scores(y, np.zeros(12), cov, groups)
    assert h_groups == pytest.approx(h_each, rel=1e-12)
    assert abs(log_groups - log_each) > 0.5
