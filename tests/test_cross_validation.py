"""Fits to parts of the data as one model: against closed forms, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import lockquack as lq
from lockquack.errors import LockquackError, ParameterError, ShapeError, UnsupportedError
from tests.helpers import lock

N = 24
GROUPS = np.repeat(["a", "b", "c", "d"], [3, 9, 7, 5])[np.random.default_rng(5).permutation(N)]
FOLDS = {
    "four folds": 4,
    "groups": GROUPS,
    "the future": lq.leave_future_out(N, first=9),
    "two ahead": lq.leave_future_out(N, first=9, ahead=2),
    "blocks": lq.leave_future_out(N, first=8, ahead=4, step=4),
    "pairs in disorder": [([0, 1], [*range(23, 1, -1)]), ([5, 7, 9], [1, 0])],
}


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(3).normal(1.0, 1.3, size=N)


def posterior(y, variance=1.0, prior=10.0):
    """Mean and variance of a normal's mean, of which the variance is known."""
    precision = 1 / prior + len(y) / variance
    return y.sum() / variance / precision, 1 / precision


def exact(y, variance=1.0, calls=None):
    """Fit in closed form: the prediction is one density, its only draw."""

    def fit(train, test):
        if calls is not None:
            calls.append((train, test))
        mean, uncertainty = posterior(y[train], variance)
        sd = np.sqrt(variance + uncertainty)
        return lq.from_family("normal", y=y[test], mu=[[mean]], sigma=[[sd]])

    return fit


def drawn(y, draws=4000):
    """Fit by draws of the posterior."""

    def fit(train, test):
        rng = np.random.default_rng(len(train) + int(test[0]))
        mean, uncertainty = posterior(y[train])
        mu = rng.normal(mean, np.sqrt(uncertainty), size=(4, draws))
        return lq.from_family("normal", y=y[test], mu=mu, sigma=1.0)

    return fit


@pytest.mark.parametrize("folds", FOLDS)
def test_held_out_predictions_are_those_of_brute_force(y, folds):
    calls = []
    model = lq.cross_validate(exact(y, calls=calls), n=N, folds=FOLDS[folds])
    expected, places = {}, []
    for train, test in calls:
        assert not set(train) & set(test)
        mean, uncertainty = posterior(y[train])
        for i in test:
            expected[i] = mean, 1 + uncertainty
            places.append(i)
    places = np.sort(places)
    means, variances = np.array([expected[i] for i in places]).T
    found = model.collapse("loo").jet
    np.testing.assert_allclose(
        found.logp, stats.norm.logpdf(y[places], means, np.sqrt(variances)), rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(found.grad[:, 0], (means - y[places]) / variances, atol=1e-10)
    np.testing.assert_allclose(found.curv[:, 0], -1 / variances, atol=1e-10)
    np.testing.assert_array_equal(model.observations.values[:, 0], y[places])


@pytest.mark.parametrize("folds", ["four folds", "groups", "the future"])
def test_draws_agree_with_the_closed_form(y, folds):
    by_draws = lq.cross_validate(drawn(y), n=N, folds=FOLDS[folds]).collapse("loo").jet
    closed = lq.cross_validate(exact(y), n=N, folds=FOLDS[folds]).collapse("loo").jet
    # The predictive density averages densities with an sd of at most .11 of their mean.
    np.testing.assert_allclose(by_draws.logp, closed.logp, atol=0.02)
    np.testing.assert_allclose(by_draws.grad, closed.grad, atol=0.02)


def test_the_folds_of_a_number_and_of_classes(y):
    calls = []
    classes = np.arange(N) % 3 == 0
    lq.cross_validate(exact(y, calls=calls), n=N, folds=4, stratify=classes)
    assert len(calls) == 4
    assert sorted(np.concatenate([test for _, test in calls])) == list(range(N))
    assert [classes[test].sum() for _, test in calls] == [2, 2, 2, 2]
    again, other = [], []
    lq.cross_validate(exact(y, calls=again), n=N, folds=4, stratify=classes)
    lq.cross_validate(exact(y, calls=other), n=N, folds=4, stratify=classes, random_seed=1)
    assert all(np.array_equal(a[1], b[1]) for a, b in zip(calls, again, strict=True))
    assert not all(np.array_equal(a[1], b[1]) for a, b in zip(calls, other, strict=True))


def test_it_is_held_out_everywhere(y):
    """No option to remember, no remark on draws that were never weighted."""
    models = {
        "narrow": lq.cross_validate(exact(y), n=N, folds=6),
        "wide": lq.cross_validate(exact(y, variance=3.0), n=N, folds=6),
    }
    fit = lock(models)
    assert fit.scores == "held-out"
    jets = [model.collapse("loo").jet for model in models.values()]
    grad = fit.weights.values @ np.stack([jet.grad[:, 0] for jet in jets])
    curv = fit.weights.values @ np.stack([jet.curv[:, 0] for jet in jets])
    pooled = fit.pointwise.isel(model=0).values
    unit = np.var(y, ddof=1)
    np.testing.assert_allclose(pooled, -unit * (2 * curv + grad**2), rtol=1e-10)
    stacked = lq.stack(models)
    assert stacked.scores == "held-out"
    held_out = np.log(stacked.weights.values @ np.exp([jet.logp for jet in jets]))
    np.testing.assert_allclose(stacked.predict().logpdf(), held_out, rtol=1e-10)


def test_densities_elsewhere_and_outcomes_are_those_of_the_fold(y):
    calls = []
    model = lq.cross_validate(exact(y, calls=calls), n=N, folds=FOLDS["groups"])
    fit = lq.equal({"only": model})
    means, sds = np.empty(N), np.empty(N)
    for train, test in calls:
        mean, uncertainty = posterior(y[train])
        means[test], sds[test] = mean, np.sqrt(1 + uncertainty)
    p = fit.predict()
    np.testing.assert_allclose(p.cdf(), stats.norm.cdf(y, means, sds), atol=1e-9)
    np.testing.assert_allclose(p.quantile(0.9), stats.norm.ppf(0.9, means, sds), rtol=1e-6)
    outcomes = p.sample(4000, random_seed=1)["posterior_predictive"]["y"]
    np.testing.assert_allclose(outcomes.mean(["chain", "draw"]), means, atol=0.12)


def test_fits_may_run_at_the_same_time(y):
    one, two = (
        lq.cross_validate(exact(y), n=N, folds=5, threads=threads).collapse("loo").jet
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one.logp, two.logp)


def test_scikit_learns_splitters_and_regressors():
    """Whatever has a predictive mean and standard deviation."""
    sklearn = pytest.importorskip("sklearn.linear_model")
    from sklearn.model_selection import KFold

    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 3))
    y = X @ [1.0, -0.5, 0.0] + rng.normal(size=40)

    def of(columns):
        def fit(train, test):
            regression = sklearn.BayesianRidge().fit(X[np.ix_(train, columns)], y[train])
            mean, sd = regression.predict(X[np.ix_(test, columns)], return_std=True)
            return lq.from_family("normal", y=y[test], mu=mean[None, None], sigma=sd[None, None])

        return fit

    splits = list(KFold(5, shuffle=True, random_state=1).split(X))
    models = {
        "both": lq.cross_validate(of([0, 1]), n=40, folds=splits),
        "neither": lq.cross_validate(of([2]), n=40, folds=splits),
    }
    assert lq.stack(models).weights.sel(model="both") > 0.9


def test_labels_and_case_weights_are_kept_in_order(y):
    import pandas as pd

    series = pd.Series(y, index=[f"row {i}" for i in range(N)], name="height")
    counts = np.arange(1.0, N + 1)

    def fit(train, test):
        return lq.from_family(
            "normal", y=series.iloc[test], mu=[[0.0]], sigma=[[1.0]], weights=counts[test]
        )

    observations = lq.cross_validate(fit, n=N, folds=GROUPS).observations
    assert observations.name == "height"
    np.testing.assert_array_equal(observations.weights, counts)
    np.testing.assert_array_equal(observations.coords[observations.dims[0]], series.index)
    future = lq.cross_validate(exact(y), n=N, folds=FOLDS["the future"]).observations
    np.testing.assert_array_equal(future.coords["obs_id"], np.arange(9, N))


WRONG = {
    "one fold": (1, "between 2 and 24 folds"),
    "too many": (25, "between 2 and 24 folds"),
    "too few labels": (GROUPS[:-1], "labels of the 24 observations"),
    "one group": (["a"] * N, "All labels in folds are the same"),
    "fitted to and predicted": ([([0, 1], [1, 2])], "Observation 1 is fitted to and predicted"),
    "twice": ([([0], [1, 2]), ([0], [2, 3])], "Observation 2 is in 2 folds"),
    "beyond the data": ([([0], [24])], "from 0 to 23; got 24 to 24"),
    "fractions": ([([0], [0.5])], "whole numbers"),
    "nothing to fit to": ([([], [1])], "whole numbers"),
}


@pytest.mark.parametrize("folds", WRONG)
def test_folds_that_are_none(y, folds):
    given, message = WRONG[folds]
    with pytest.raises(ParameterError, match=message):
        lq.cross_validate(exact(y), n=N, folds=given)


def test_fits_that_are_not_of_one_model(y):
    fit, more = drawn(y, 5), drawn(y, 6)
    with pytest.raises(ShapeError, match=r"\(4, 5, 1\) and \(4, 6, 1\)"):
        lq.from_folds([([0], fit([1], [0])), ([1], more([0], [1]))])
    with pytest.raises(ShapeError, match=r"Fold 0: There are 2 positions, and its model is of 1"):
        lq.from_folds([([0, 1], fit([1], [0]))])
    with pytest.raises(LockquackError, match="at least one"):
        lq.from_folds([])


@pytest.mark.parametrize("bad", [{"first": -1}, {"first": N}, {"first": 3, "ahead": 0}])
def test_series_without_a_future(bad):
    with pytest.raises(ParameterError, match="leave_future_out needs|must be a whole number from"):
        lq.leave_future_out(N, **bad)


def test_the_splits_of_scikit_learn_are_folds(rng):
    from sklearn.model_selection import GroupKFold, KFold

    y, groups = rng.normal(size=12), np.repeat([4, 9, 2], 4)
    for splitter, given in ((KFold(3), {}), (GroupKFold(3), {"groups": groups})):
        left_out = []

        def fit(train, test, left_out=left_out):
            left_out.append(test)
            return lq.from_family("normal", y=y[test], mu=y[train].mean(), sigma=1.0)

        lq.cross_validate(fit, n=12, folds=splitter.split(y[:, None], **given))
        expected = [test for _, test in splitter.split(y[:, None], **given)]
        assert all(map(np.array_equal, left_out, expected))


def test_numbers_are_dealt_so_that_every_fold_has_small_and_large_ones(y):
    calls = []
    lq.cross_validate(exact(y, calls=calls), n=N, folds=4, stratify=y)
    # Of every four neighbours in size, each fold has one.
    fours = np.argsort(np.argsort(y)) // 4
    assert all(sorted(fours[test]) == list(range(6)) for _, test in calls)


def test_splitters_and_masks(y):
    from sklearn.model_selection import GroupKFold, TimeSeriesSplit

    calls = []
    lq.cross_validate(exact(y, calls=calls), n=N, folds=TimeSeriesSplit(3))
    assert [test.tolist() for _, test in calls] == [
        list(range(6 * k, 6 * k + 6)) for k in (1, 2, 3)
    ]
    with pytest.raises(ParameterError, match=r"GroupKFold cannot split .* folds=splitter\.split"):
        lq.cross_validate(exact(y), n=N, folds=GroupKFold(3))
    calls.clear()
    late = np.arange(N) >= 20
    lq.cross_validate(exact(y, calls=calls), n=N, folds=[(~late, late)])
    assert [test.tolist() for _, test in calls] == [[20, 21, 22, 23]]


def test_held_out_predictions_stay_so_in_files(y, tmp_path):
    pytest.importorskip("h5netcdf")
    model = lq.cross_validate(drawn(y, 50), n=N, folds=4)
    for name in ("model.nc", "model.zarr"):
        model.save(tmp_path / name)
        read = lq.from_datatree(tmp_path / name, lazy=False)
        np.testing.assert_allclose(read.loo().logp, model.loo().logp, rtol=1e-12)
        assert set(read.loo().how) == {"held out"}
        assert lq.equal({"read": read}).scores == "held-out"


def test_which_fit_should_predict_new_data(y):
    fit = lq.equal({"a": lq.cross_validate(drawn(y, 50), n=N, folds=4)})
    with pytest.raises(UnsupportedError, match="made of 4 fits to parts of the data"):
        fit.predict([0.0], x=[[1.0]])


@pytest.mark.filterwarnings("ignore::lockquack.errors.MonteCarloWarning")
def test_predictive_draws_are_enough_for_the_crps(y):
    """What a fold draws stays with its observations, whatever their order."""
    outcomes = np.random.default_rng(9).normal(y, 1.0, size=(4, 200, N))

    def fit(train, test):
        return lq.from_draws(outcomes[:, :, test], y=y[test])

    model = lq.cross_validate(fit, n=N, folds=GROUPS)
    np.testing.assert_array_equal(model.source.outcome_draws.values.reshape(4, 200, N), outcomes)
    whole = lq.from_draws(outcomes, y=y, held_out=True)
    found, expected = (
        lq.combine({"m": each}, lq.Linear(), lq.CRPS()).to_dataframe()["score"].iloc[0]
        for each in (model, whole)
    )
    assert found == pytest.approx(expected, rel=1e-12)
    with pytest.raises(UnsupportedError, match="outcomes are all that is known"):
        lq.stack({"m": model})
