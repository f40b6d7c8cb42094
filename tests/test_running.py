"""Locking from sums that add, against locking from all observations at once."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import lockquack as lq
from lockquack.errors import LockquackError, NonFiniteError, ParameterError, UnsupportedError
from lockquack.parallel.cluster import cluster


def regressions(x, y, draws, **more):
    slope, level, sigma = draws
    return {
        "slope": lq.from_family("normal", y=y, mu=slope[..., None] * x, sigma=sigma, **more),
        "level": lq.from_family("student_t", y=y, nu=5.0, mu=level, sigma=1.3 * sigma, **more),
        "wide": lq.from_family("normal", y=y, mu=0.0, sigma=3.0 * sigma, **more),
    }


@pytest.fixture
def data(rng):
    x = rng.normal(size=240)
    y = 1.0 + x + rng.standard_t(4, size=240)
    draws = (
        rng.normal(1.0, 0.1, size=(4, 100)),
        rng.normal(1.0, 0.1, size=(4, 100)),
        np.exp(rng.normal(0.0, 0.05, size=(4, 100))),
    )
    return x, y, draws


def part(data, which, **more):
    x, y, draws = data
    return regressions(x[which], y[which], draws, **more)


def same_table(running, fit, rtol=1e-10):
    """All but what is random: standard errors and intervals of the weights."""
    chosen = ["weight", "score", "score_se", "diff", "diff_se", "mcse"]
    mine, whole = (each.to_dataframe()[chosen] for each in (running, fit))
    pd.testing.assert_frame_equal(mine, whole, rtol=rtol, atol=1e-9)


def test_one_part_is_lock(data):
    models = part(data, slice(None))
    running, fit = lq.running_lock(models), lq.lock(models)
    np.testing.assert_allclose(running.weights, fit.weights, rtol=1e-12, atol=1e-13)
    same_table(running, fit)
    assert running.n_obs == 240
    assert running.solution.converged


def test_parts_whose_outcomes_have_other_spreads_are_the_whole(data):
    order = np.argsort(data[1])  # small outcomes first
    fit = lq.lock(part(data, order))
    running = lq.running_lock(part(data, order[:10]))
    for which in (order[10:11], order[11:150], order[150:]):
        running = running.update(part(data, which))
    np.testing.assert_allclose(running.weights, fit.weights, rtol=1e-12, atol=1e-12)
    same_table(running, fit)


def test_parts_add_in_any_order(data):
    pieces = [lq.running_lock(part(data, slice(k, None, 3))) for k in range(3)]
    a, b, c = pieces
    fit = lq.lock(part(data, slice(None)))
    for total in (a + b + c, c + (a + b), (b + c) + a):
        np.testing.assert_allclose(total.weights, fit.weights, rtol=1e-12, atol=1e-12)
        same_table(total, fit)


def test_a_fit_of_all_observations_goes_on(data):
    begun = lq.lock(part(data, slice(0, 100)))
    same_table(begun.update(part(data, slice(100, None))), lq.lock(part(data, slice(None))))


def test_what_is_forgotten_counts_less(data):
    running = lq.running_lock(part(data, slice(0, 140)))
    running = running.update(part(data, slice(140, None)), forget=0.75)
    weights = np.where(np.arange(240) < 140, 0.25, 1.0)
    same_table(running, lq.lock(part(data, slice(None), weights=weights)))


def test_case_weights_of_parts(data, rng):
    weights = rng.integers(0, 4, size=240).astype(float)
    running = lq.running_lock(part(data, slice(0, 90), weights=weights[:90]))
    running = running.update(part(data, slice(90, None), weights=weights[90:]))
    same_table(running, lq.lock(part(data, slice(None), weights=weights)))


def positive(y, draws):
    return {
        "gamma": lq.from_family("gamma", y=y, alpha=2.0 * draws, beta=draws),
        "lognormal": lq.from_family("lognormal", y=y, mu=np.log(draws), sigma=0.8),
    }


def test_positive_outcomes_are_scored_in_coordinates_of_the_line(rng):
    y, draws = rng.gamma(2.0, size=120), np.exp(rng.normal(0.0, 0.1, size=(2, 80)))
    fit = lq.lock(positive(y, draws))
    running = lq.running_lock(positive(y[:50], draws)).update(positive(y[50:], draws))
    assert running.rule.of_what == fit.rule.of_what == "log y"
    same_table(running, fit)
    assert "of log y" in repr(running)


def vectors(y, draws):
    eye = np.eye(2)
    return {
        "zero": lq.from_family("mv_normal", y=y, mu=draws, cov=eye),
        "wide": lq.from_family("mv_normal", y=y, mu=draws + 0.5, cov=4.0 * eye),
    }


def test_vector_outcomes_with_units_of_their_own(rng):
    y, draws = rng.normal(size=(60, 2)) * [1.0, 3.0], 0.1 * rng.normal(size=(2, 50, 2))
    running = lq.running_lock(vectors(y[:20], draws)).update(vectors(y[20:], draws))
    same_table(running, lq.lock(vectors(y, draws)))


def test_a_posterior_that_was_drawn_again(data, rng):
    """Other draws, even of another number: the scores add, and so do the Monte Carlo errors."""
    x, y, draws = data
    again = tuple(rng.choice(each.ravel(), size=(2, 75)) for each in draws)
    first = lq.running_lock(regressions(x[:120], y[:120], draws))
    second = lq.running_lock(regressions(x[120:], y[120:], again))
    merged = first + second
    factor = merged._factor
    expected = np.hypot(first.sums.mcse(factor), second.sums.mcse(factor))
    np.testing.assert_allclose(merged.sums.mcse(factor), expected, rtol=1e-12)
    np.testing.assert_allclose(merged.to_dataframe()["mcse"][1:], expected, rtol=1e-12)


def test_standard_errors_of_the_weights_are_those_of_the_bootstrap(rng):
    y = rng.normal(1.0, 1.5, size=2_000)
    mu = rng.normal(1.0, 0.05, size=(2, 50))
    models = {
        "narrow": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "wide": lq.from_family("normal", y=y, mu=mu, sigma=3.0),
        "left": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=1.5),
    }
    exact = lq.lock(models).bootstrap(2_000, random_seed=1)
    running = lq.running_lock(models)
    # 400 replicates: the error of a standard deviation is 3.5 %.
    np.testing.assert_allclose(running.weights_se, exact.std("draw", ddof=1), rtol=0.15)
    table = running.to_dataframe().iloc[1:]
    low, high = exact.quantile([0.05, 0.95], "draw").values
    spread = running.weights_se.values
    np.testing.assert_allclose(table["weight_5%"], low, atol=0.4 * spread.max())
    np.testing.assert_allclose(table["weight_95%"], high, atol=0.4 * spread.max())


def test_few_observations_have_no_standard_errors(data):
    table = lq.running_lock(part(data, slice(0, 5))).to_dataframe()
    assert table[["weight_se", "weight_5%", "score_se", "diff_se"]].isna().all(axis=None)


@pytest.mark.parametrize("name", ["sums.nc", "sums.zarr"])
def test_saved_sums_go_on(data, tmp_path, name):
    running = lq.running_lock(part(data, slice(0, 100)), prior=1.5, random_seed=7)
    running.save(tmp_path / name)
    again = lq.RunningLock.load(tmp_path / name)
    pd.testing.assert_frame_equal(again.to_dataframe(), running.to_dataframe())
    more = part(data, slice(100, None))
    pd.testing.assert_frame_equal(
        again.update(more).to_dataframe(), running.update(more).to_dataframe()
    )
    with pytest.raises(LockquackError, match="RunningLock.load"):
        lq.load(tmp_path / name)
    pd.testing.assert_frame_equal(
        pickle.loads(pickle.dumps(running)).to_dataframe(), running.to_dataframe()
    )


def test_a_combination_is_not_read_as_sums(data, tmp_path):
    lq.lock(part(data, slice(0, 50))).save(tmp_path / "fit.nc")
    with pytest.raises(LockquackError, match=r"read by lq\.load"):
        lq.RunningLock.load(tmp_path / "fit.nc")


def test_predictions_are_those_of_the_pool(data):
    models = part(data, slice(0, 60))
    running, fit = lq.running_lock(models), lq.lock(models)
    np.testing.assert_allclose(running.predict(models).mean(), fit.predict().mean(), rtol=1e-9)
    with pytest.raises(ParameterError, match="'wide' is missing"):
        running.predict({name: models[name] for name in ("slope", "level")})


def test_workers_give_the_same_sums(data):
    models = part(data, slice(None))
    here = lq.running_lock(models)
    with cluster(workers=1):
        there = lq.running_lock(models)
    pd.testing.assert_frame_equal(there.to_dataframe(), here.to_dataframe())


def test_lazy_draws_give_the_same_sums(rng):
    y = rng.normal(size=50)
    grad, curv = rng.normal(size=(2, 4, 100, 50))
    held = {"a": (grad, curv - 3.0), "b": (0.5 * grad + 0.2, curv - 2.0)}

    def models(wrap):
        return {
            name: lq.from_arrays(logp=wrap(g), grad=wrap(g), curv=wrap(c), y=y)
            for name, (g, c) in held.items()
        }

    lazy = lq.running_lock(models(lambda a: da.from_array(a, chunks=(2, 50, 20))))
    same_table(lazy, lq.running_lock(models(np.asarray)))


def test_other_models_scores_and_operators_are_refused(data):
    models = part(data, slice(0, 60))
    running = lq.running_lock(models)
    with pytest.raises(ParameterError, match="weights are of the models slope, level, wide"):
        running.update({name: models[name] for name in ("slope", "level")})
    with pytest.raises(ParameterError, match="from 0 to below 1"):
        running.update(models, forget=1.0)
    with pytest.raises(ParameterError, match="prior differ"):
        running + lq.running_lock(models, prior=2.0)
    with pytest.raises(UnsupportedError, match="can be fitted from sums"):
        lq.running_lock(models, rule=lq.LogScore())
    with pytest.raises(UnsupportedError, match="can be updated"):
        lq.stack(models).update(models)
    with pytest.raises(TypeError):
        running + 1


def test_the_order_of_models_in_a_part_does_not_matter(data):
    running = lq.running_lock(part(data, slice(0, 100)))
    more = part(data, slice(100, None))
    backwards = dict(reversed(more.items()))
    pd.testing.assert_frame_equal(
        running.update(backwards).to_dataframe(), running.update(more).to_dataframe()
    )


# Mixtures by CRPS


def drawn(part, seed=5):
    """Draws of two models, of some of sixty observations."""
    rng = np.random.default_rng(seed)
    y = rng.normal(0.2, 1.5, size=60)
    draws = {
        "low": rng.normal(-1.0, 1.0, size=(2, 50, 60)),
        "high": rng.normal(1.0, 1.4, (2, 50, 60)),
    }
    return {
        name: lq.from_draws(each[..., part], y=y[part], held_out=True)
        for name, each in draws.items()
    }


def test_parts_of_a_mixture_by_crps_add_up_to_the_whole():
    whole = lq.combine(drawn(slice(None)), lq.Linear(), lq.CRPS())
    first, last = drawn(slice(0, 25)), drawn(slice(25, None))
    begun = lq.running_stack(first)
    fits = [
        begun.update(last),
        begun + lq.running_stack(last),
        lq.combine(first, lq.Linear(), lq.CRPS()).update(last),
    ]
    expected = whole.to_dataframe()
    for each in fits:
        np.testing.assert_allclose(each.weights, whole.weights, atol=1e-9)
        table = each.to_dataframe()
        for column in ("score", "score_se", "diff", "diff_se"):
            np.testing.assert_allclose(table[column], expected[column], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(table["weight_se"], expected["weight_se"], rtol=0.2)
        assert each.n_obs == 60


def test_a_mixture_that_forgets_is_that_of_case_weights():
    faded = lq.running_stack(drawn(slice(0, 25)), rule=lq.CRPS(scale=1.0)).update(
        drawn(slice(25, None)), forget=0.4
    )
    weights = np.append(np.full(25, 0.6), np.ones(35))
    weighted = {name: each.with_weights(weights) for name, each in drawn(slice(None)).items()}
    expected = lq.combine(weighted, lq.Linear(), lq.CRPS(scale=1.0))
    np.testing.assert_allclose(faded.weights, expected.weights, atol=1e-9)


def test_a_running_mixture_is_saved_and_predicts(tmp_path):
    running = lq.running_stack(drawn(slice(0, 25)))
    running.save(tmp_path / "running.nc")
    again = lq.RunningStack.load(tmp_path / "running.nc")
    np.testing.assert_array_equal(again.weights, running.weights)
    assert again.rule == running.rule
    assert "stack by CRPS" in repr(again)
    np.testing.assert_allclose(
        again.predict(drawn(slice(25, 30))).mean(), running.predict(drawn(slice(25, 30))).mean()
    )
    with pytest.raises(LockquackError, match="not for a RunningLock"):
        lq.RunningLock.load(tmp_path / "running.nc")
    with pytest.raises(LockquackError, match="Only mixtures by CRPS"):
        lq.running_stack(drawn(slice(0, 25)), rule=lq.EnergyScore())


def test_draws_that_dask_holds_are_mixed_where_they_are(rng, monkeypatch):
    y = rng.normal(size=50)
    held = {"a": rng.normal(size=(2, 60, 50)) - 0.4, "b": rng.normal(size=(2, 60, 50)) + 0.7}

    def models(wrap):
        return {
            name: lq.from_draws(wrap(each), y=y, held_out=True, weights=np.arange(50) % 3)
            for name, each in held.items()
        }

    here = lq.running_stack(models(np.asarray))
    lazy = models(lambda a: da.from_array(a, chunks=(1, 30, 20)))
    with monkeypatch.context() as only:
        only.setattr("lockquack.methods.summing.map_observations", None)  # dask does it all
        there = lq.running_stack(lazy)
    same_table(there, here)
    np.testing.assert_allclose(
        there.weights, lq.combine(lazy, lq.Linear(), lq.CRPS()).weights, atol=1e-9
    )
    held["b"][1, 3, 40] = np.inf
    with pytest.raises(NonFiniteError, match="'b'"):
        lq.running_stack(models(lambda a: da.from_array(a, chunks=(1, 30, 20))))


@pytest.mark.filterwarnings("ignore::lockquack.errors.ParetoWarning")
def test_workers_mix_as_this_process_does(data):
    models = part(data, slice(None))
    here = lq.running_stack(models)
    with cluster(workers=1):
        there = lq.running_stack(models)
    pd.testing.assert_frame_equal(there.to_dataframe(), here.to_dataframe())
    np.testing.assert_allclose(
        here.weights, lq.combine(models, lq.Linear(), lq.CRPS()).weights, atol=1e-7
    )
