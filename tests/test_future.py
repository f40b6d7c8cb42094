"""Leave-future-out by weighted draws of few fits, and prequential scores: against closed forms."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import lockquack as lq
from lockquack.draws.psis import psis
from lockquack.errors import LockquackWarning, ParameterError, UnsupportedError
from lockquack.paper.scenarios import SCENARIOS, posterior_draws, sequential_predictions
from lockquack.parallel.cluster import cluster

N, FIRST = 60, 12
#: The level of the series changes: draws of the first fits do not do for the end.
Y = np.random.default_rng(4).normal(np.where(np.arange(N) < 30, 0.0, 4.0), 1.0)


def posterior(y):
    """Mean and variance of a normal's mean, known variance 1, prior N(0, 10)."""
    return y.sum() / (len(y) + 0.1), 1 / (len(y) + 0.1)


def fit_to(y, calls=None, draws=4000):
    def fit(train, test):
        if calls is not None:
            calls.append((len(train), len(test)))
        mean, variance = posterior(y[train])
        rng = np.random.default_rng(len(train))
        mu = rng.normal(mean, np.sqrt(variance), size=(4, draws))
        return lq.from_family("normal", y=y[test], mu=mu, sigma=1.0)

    return fit


def exact(splits, y=Y):
    """Means and standard deviations of the exact predictions, in the order of the data."""
    each = {i: posterior(y[train]) for train, test in splits for i in test}
    means, variances = np.array([each[i] for i in sorted(each)]).T
    return means, np.sqrt(1 + variances)


@pytest.fixture(scope="module")
def reused():
    calls = []
    folds = lq.leave_future_out(N, first=FIRST)
    model = lq.cross_validate(fit_to(Y, calls), n=N, folds=folds, reuse=0.5, y=Y)
    return model, calls


def test_few_fits_predict_what_brute_force_does(reused):
    model, calls = reused
    means, sds = exact(lq.leave_future_out(N, first=FIRST))
    jet = model.collapse("loo").jet
    # With k̂ below .5 the weights have a variance: a few hundredths at some 50 effective draws.
    np.testing.assert_allclose(jet.logp, stats.norm.logpdf(Y[FIRST:], means, sds), atol=0.12)
    np.testing.assert_allclose(jet.grad[:, 0], (means - Y[FIRST:]) / sds**2, atol=0.06)
    np.testing.assert_allclose(jet.curv[:, 0], -1 / sds**2, atol=0.06)
    assert calls[0] == (FIRST, N - FIRST)
    assert 2 < len(calls) < 12


def test_nothing_is_fitted_that_k_does_not_ask_for(reused):
    """Each fit is where the draws of the one before exceed the limit, and nowhere else."""
    model, calls = reused
    loo = model.loo()
    own = np.flatnonzero(loo.how == "held out") + FIRST
    assert [train for train, _ in calls] == own.tolist()
    assert np.isnan(loo.pareto_k[own - FIRST]).all()
    others = loo.how == "PSIS from an earlier fit"
    assert (loo.pareto_k[others] <= 0.5).all()
    assert others.sum() + len(own) == N - FIRST
    for before, at in pairwise(own):
        rest = fit_to(Y)(np.arange(before), np.arange(before, at)).source
        ratio = rest.all_logp(slice(0, at - before)).sum(axis=2)
        assert psis(-ratio[..., None])[1][0] > 0.5


def test_without_a_limit_that_is_reached_one_fit_does():
    calls = []
    y = np.random.default_rng(1).normal(size=N)
    folds = lq.leave_future_out(N, first=FIRST)
    model = lq.cross_validate(fit_to(y, calls), n=N, folds=folds, reuse=True)
    assert len(calls) == 1
    assert f"left out by: {N - FIRST - 1} PSIS from an earlier fit, 1 held out" in repr(model)


def test_every_use_of_weighted_draws(reused):
    model, _ = reused
    means, sds = exact(lq.leave_future_out(N, first=FIRST))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.stack({"one": model})
    p = fit.predict()
    np.testing.assert_allclose(p.logpdf(), model.loo().logp, rtol=1e-8)
    np.testing.assert_allclose(p.pit(), stats.norm.cdf(Y[FIRST:], means, sds), atol=0.03)
    np.testing.assert_allclose(p.quantile(0.9), stats.norm.ppf(0.9, means, sds), atol=0.08)
    drawn = p.sample(2000, random_seed=1)["posterior_predictive"]["y"]
    np.testing.assert_allclose(drawn.mean(["chain", "draw"]), means, atol=0.15)
    line = [each for each in repr(fit).splitlines() if each.startswith("How observations")]
    assert "PSIS from an earlier fit" in line[0]


@pytest.mark.parametrize("folds", ["two ahead", "blocks", "scikit-learn"])
def test_any_folds_that_grow(folds):
    from sklearn.model_selection import TimeSeriesSplit

    splits = {
        "two ahead": lq.leave_future_out(N, first=FIRST, ahead=2),
        "blocks": lq.leave_future_out(N, first=FIRST, ahead=6, step=6),
        "scikit-learn": list(TimeSeriesSplit(5).split(Y)),
    }[folds]
    calls = []
    model = lq.cross_validate(fit_to(Y, calls), n=N, folds=splits, reuse=True)
    means, sds = exact(splits)
    places = np.sort(np.concatenate([test for _, test in splits]))
    logp = stats.norm.logpdf(Y[places], means, sds)
    # Averages over observations: those with k̂ near .7 are off by tenths.
    np.testing.assert_allclose(model.loo().logp.mean(), logp.mean(), atol=0.03)
    np.testing.assert_array_equal(model.observations.values[:, 0], Y[places])
    assert len(calls) <= len(splits)


def test_an_interruption_costs_no_fit_twice(tmp_path):
    def interrupted(calls, at=None):
        fit = fit_to(Y, calls)

        def counting(train, test):
            if len(calls) == at:
                raise RuntimeError("interrupted")
            return fit(train, test)

        return counting

    options = {"n": N, "folds": lq.leave_future_out(N, first=FIRST), "y": Y, "reuse": 0.5}
    first, second, third = [], [], []
    with pytest.raises(RuntimeError, match="interrupted"):
        lq.cross_validate(interrupted(first, at=2), folder=tmp_path / "fits", **options)
    resumed = lq.cross_validate(interrupted(second), folder=tmp_path / "fits", **options)
    lq.cross_validate(interrupted(third), folder=tmp_path / "fits", **options)
    whole = lq.cross_validate(fit_to(Y, calls := []), **options)
    assert len(first) == 2
    assert first + second == calls
    assert third == []
    np.testing.assert_array_equal(resumed.loo().logp, whole.loo().logp)
    with pytest.raises(ParameterError, match="not of the same folds"):
        lq.cross_validate(interrupted([]), folder=tmp_path / "fits", **options | {"reuse": False})


def test_terms_given_earlier_outcomes_are_what_is_wanted_of_the_past():
    """A remark on leave-one-out of a series is out of place where nothing later was seen."""

    def fit(train, test):
        source = fit_to(Y)(train, test).source
        series = replace(source.likelihood, given_earlier=True)
        return lq.Model(replace(source, likelihood=series))

    def remarked(folds, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LockquackWarning)
            found = lq.stack({"a": lq.cross_validate(fit, n=N, folds=folds, **options)})
        return any(remark.code == "given-earlier-outcomes" for remark in found.remarks)

    assert remarked(5)
    assert not remarked(lq.leave_future_out(N, first=40))
    assert not remarked(lq.leave_future_out(N, first=40, ahead=3), reuse=True)


def test_the_workers_of_a_cluster_fit_where_needed(tmp_path):
    y = np.random.default_rng(1).normal(size=N)

    def fit(train, test):
        from distributed import get_worker

        assert get_worker() is not None
        (tmp_path / f"{len(train)}").touch()
        mu = np.random.default_rng(1).normal(y[train].mean(), 0.2, size=(4, 100))
        return lq.from_family("normal", y=y[test], mu=mu, sigma=1.0)

    with cluster(workers=1):
        model = lq.cross_validate(fit, n=N, folds=lq.leave_future_out(N, first=50), reuse=10.0)
    assert [each.name for each in tmp_path.iterdir()] == ["50"]
    assert model.observations.n == 10


def test_weights_of_draws_are_not_lost(reused, tmp_path):
    with pytest.raises(UnsupportedError, match="cannot be written"):
        reused[0].save(tmp_path / "model.nc")
    with pytest.raises(UnsupportedError, match="cannot be split into chains"):
        lq.split_chains(reused[0])


def test_what_is_refused():
    def closed(train, test):
        return lq.from_family("normal", y=Y[test], mu=[[0.0]], sigma=1.0)

    with pytest.raises(ParameterError, match="all rows of the one before"):
        lq.cross_validate(fit_to(Y), n=N, folds=5, reuse=True)
    folds = lq.leave_future_out(N, first=FIRST)
    with pytest.raises(UnsupportedError, match="no draws that could be weighted"):
        lq.cross_validate(closed, n=N, folds=folds, reuse=True)
    with pytest.raises(ParameterError, match="reuse must be one positive number"):
        lq.cross_validate(fit_to(Y), n=N, folds=folds, reuse="yes")


# Prequential scores


def closed_form(y, model):
    """The paper's models, each observation predicted from those before it by a fit of its own."""

    def fit(train, test):
        if model == "M1":
            mean, variance = posterior(y[train])
            return lq.from_family("normal", y=y[test], mu=[[mean]], sigma=[[np.sqrt(1 + variance)]])
        nu = 0.1 + len(train)
        scale = np.sqrt((0.1 + np.square(y[train]).sum()) / nu)
        return lq.from_family("student_t", y=y[test], nu=[[nu]], mu=[[0.0]], sigma=[[scale]])

    return fit


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: f"scenario {each.number}")
def test_sequential_h_is_that_of_the_closed_form(scenario):
    """Σ_t 2 ∂² log p(y_t | y_<t) + (∂ log p(y_t | y_<t))², the first by the prior."""
    y = np.random.default_rng(scenario.number).normal(
        scenario.mean, np.sqrt(scenario.variance), size=40
    )
    folds = lq.leave_future_out(len(y), first=0)
    models = {
        name: lq.cross_validate(closed_form(y, name), n=len(y), folds=folds)
        for name in ("M1", "M2")
    }
    t = np.arange(len(y))
    before, squares = np.cumsum(y) - y, np.cumsum(y**2) - y**2
    variance = 1 + 1 / (t + 0.1)
    score = (before / (t + 0.1) - y) / variance
    first = -2 / variance + score**2
    nu, scale2 = 0.1 + t, 0.1 + squares  # ν s² of the Student t
    grad = -(nu + 1) * y / (scale2 + y**2)
    curv = -(nu + 1) * (scale2 - y**2) / (scale2 + y**2) ** 2
    expected = np.array([first, 2 * curv + grad**2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.select(models, lq.Hyvarinen(scale=1.0), scores="prequential")
    np.testing.assert_allclose(fit.pointwise.sel(model=["M1", "M2"]).values, -expected, atol=1e-10)
    assert fit.weights.values.argmax() == np.argmin(expected.sum(axis=1))
    assert fit.scores == "prequential"
    assert "one-step-ahead Hyvärinen score" in repr(fit)
    # What the paper's experiment computes.
    for density, h in zip(sequential_predictions(y), expected, strict=True):
        jet = density.jet(y)
        np.testing.assert_allclose((2 * jet.curv + jet.grad**2)[:, 0], h, atol=1e-10)


def test_sequential_h_from_draws_of_few_fits():
    y = np.random.default_rng(7).normal(4.0, np.sqrt(3.0), size=80)

    def fit(name):
        def of_draws(train, test):
            draws = posterior_draws(y[train], np.random.default_rng(len(train)), (4, 2000))
            return lq.from_family("normal", y=y[test], **draws[name])

        return of_draws

    folds = lq.leave_future_out(len(y), first=20)
    by_draws, exactly = (
        {
            name: lq.cross_validate(of(name), n=len(y), folds=folds, reuse=reuse)
            for name in ("M1", "M2")
        }
        for of, reuse in ((fit, True), (lambda name: closed_form(y, name), False))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        found, expected = (
            lq.select(models, "hyvarinen", scores="prequential") for models in (by_draws, exactly)
        )
    assert found.weights.values.argmax() == expected.weights.values.argmax()
    table = found.to_dataframe()
    apart = table["score"] - expected.to_dataframe()["score"]
    assert (apart.abs()[1:] < 5 * table["mcse"][1:] + 0.01 * table["score"].abs()[1:]).all()


def test_prequential_scores_are_of_nothing_else(reused):
    folds = {
        "the rest": 5,
        "two ahead": lq.leave_future_out(N, first=FIRST, ahead=2),
        "blocks": lq.leave_future_out(N, first=FIRST, ahead=2, step=2),
    }
    others = {name: lq.cross_validate(fit_to(Y), n=N, folds=given) for name, given in folds.items()}
    for model in (*others.values(), lq.example_models()["first"]):
        with pytest.raises(ParameterError, match="from all before it; those of model 'one'"):
            lq.stack({"one": model}, scores="prequential")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.stack({"one": reused[0]}, scores="prequential")
    with pytest.raises(ParameterError, match="scores='prequential'"):
        fit.predict(loo=True)


def test_sums_over_observations_see_the_weights_too(reused):
    """A running lock of weighted draws is the lock of them."""
    folds = lq.leave_future_out(N, first=FIRST)

    def wide(train, test):
        mean, variance = posterior(Y[train])
        mu = np.random.default_rng(len(train)).normal(mean, np.sqrt(variance), size=(4, 4000))
        return lq.from_family("normal", y=Y[test], mu=mu, sigma=2.5)

    models = {
        "narrow": reused[0],
        "wide": lq.cross_validate(wide, n=N, folds=folds, reuse=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        expected = lq.lock(models).weights
    np.testing.assert_allclose(lq.running_lock(models).weights, expected, atol=1e-6)
