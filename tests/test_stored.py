"""Mixtures of models that are known by stored predictive draws, against ArviZ and numpy."""

from __future__ import annotations

import warnings

import arviz_stats
import numpy as np
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import NonFiniteError, UnsupportedError
from lockquack.prediction.draws import WeightedDraws

N, DRAWS = 25, 400


def container(logp, drawn, y, dims=("obs",)):
    """What a sampler leaves: log densities and one predicted outcome for each draw."""
    sample = {"chain": np.arange(logp.shape[0]), "draw": np.arange(logp.shape[1])}
    labels = {"obs": [f"person {i}" for i in range(N)]}
    joint = xr.Dataset({"mu": (("chain", "draw"), logp[..., 0])}, sample)
    return xr.DataTree.from_dict(
        {
            "posterior": joint,
            "log_likelihood": xr.Dataset(
                {"y": (("chain", "draw", "obs"), logp)}, {**sample, **labels}
            ),
            "posterior_predictive": xr.Dataset(
                {"y": (("chain", "draw", *dims), drawn)}, {**sample, **labels}
            ),
            "observed_data": xr.Dataset({"y": (dims, y)}, labels),
        }
    )


def with_draws(tree, drawn):
    """The model in a container, but for other predictive draws."""
    return lq.from_datatree(
        xr.DataTree.from_dict({**tree.to_dict(), "/posterior_predictive": drawn})
    )


@pytest.fixture(scope="module")
def given():
    """Two normal models, as containers and as models that can be evaluated anywhere.

    One chain, for which ArviZ takes the draws as independent, as lockquack does.
    """
    rng = np.random.default_rng(3)
    y = rng.normal(0.0, 1.2, size=N)
    trees, families = {}, {}
    for name, shift, sigma in (("left", -0.6, 1.0), ("right", 0.8, 1.3)):
        mu = shift + 0.2 * rng.normal(size=(1, DRAWS))
        logp = stats.norm.logpdf(y, mu[..., None], sigma)
        trees[name] = container(logp, rng.normal(mu[..., None], sigma, size=logp.shape), y)
        families[name] = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    return trees, families


@pytest.fixture(scope="module")
def models(given):
    return {name: lq.from_datatree(tree) for name, tree in given[0].items()}


def quietly(method, *args, **options):
    """Combine without being told that there is one chain, which is told once of a model."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Only one chain", lq.errors.MonteCarloWarning)
        return method(*args, **options)


def test_pit_is_the_mixture_of_those_of_arviz(given, models):
    fit = quietly(lq.stack, models)
    assert fit.weights.min() > 0.1
    known = [arviz_stats.loo_pit(tree)["y"] for tree in given[0].values()]
    pit = fit.pit()
    np.testing.assert_allclose(pit, fit.weights.values @ np.stack(known), atol=1e-10)
    assert pit.coords["obs"].values[3] == "person 3"
    chosen = quietly(lq.select, models)
    np.testing.assert_allclose(chosen.pit(), known[int(chosen.weights.values.argmax())], atol=1e-10)


def test_it_is_about_that_of_the_densities(given, models):
    by_draws, by_density = quietly(lq.equal, models), quietly(lq.equal, given[1])
    error = 4 / np.sqrt(DRAWS)
    for loo in (False, True):
        np.testing.assert_allclose(by_draws.pit(loo=loo), by_density.pit(loo=loo), atol=error)
    np.testing.assert_allclose(by_draws.predict().mean(), by_density.predict().mean(), atol=error)
    np.testing.assert_allclose(by_draws.predict().var(), by_density.predict().var(), rtol=error)
    np.testing.assert_allclose(
        by_draws.coverage([0.5])["0.5"], by_density.coverage([0.5])["0.5"], atol=0.13
    )


@pytest.mark.parametrize("p", [0.0, 0.05, 0.5, 0.9, 1.0])
def test_quantiles_are_those_of_numpy(p, rng):
    draws, weights = rng.normal(size=(60, 3)), rng.exponential(size=(60, 3))
    found = WeightedDraws.of(draws, weights, whole=False)
    expected = [
        np.quantile(column, p, weights=weight, method="inverted_cdf")
        for column, weight in zip(draws.T, weights.T, strict=True)
    ]
    np.testing.assert_array_equal(found.quantile(np.array([p]))[0], expected)
    assert (found.cdf(np.array([expected]))[0] >= p - 1e-12).all()
    np.testing.assert_allclose(found.mean(), np.average(draws, weights=weights, axis=0))
    spread = np.average((draws - found.mean()) ** 2, weights=weights, axis=0)
    np.testing.assert_allclose(found.var(), spread)


def test_the_shortest_interval_is_the_shortest(rng):
    draws, weights = rng.gamma(2.0, size=(40, 2)), rng.exponential(size=(40, 2))
    found = WeightedDraws.of(draws, weights, whole=False)
    low, high = found.interval(0.7, "hdi")
    for column in range(2):
        y, w = draws[:, column], weights[:, column] / weights[:, column].sum()
        ends = [(a, b) for a in y for b in y if w[(a <= y) & (y <= b)].sum() >= 0.7]
        assert high[column] - low[column] == min(b - a for a, b in ends)
        assert (low[column], high[column]) in ends


def test_counts_are_drawn_between_the_ends_of_a_step():
    rng = np.random.default_rng(5)
    y, rate = rng.poisson(3.0, size=N), rng.gamma(300, 0.01, size=(2, 50, 1))
    drawn = rng.poisson(rate, size=(2, 50, N))
    fit = lq.equal({"counts": lq.from_datatree(container(stats.poisson.logpmf(y, rate), drawn, y))})
    below, equal = (drawn < y).mean(axis=(0, 1)), (drawn == y).mean(axis=(0, 1))
    np.testing.assert_allclose(fit.pit(loo=False, random_seed=None), below + equal / 2)
    random = fit.pit(loo=False, random_seed=1)
    assert ((below <= random) & (random <= below + equal)).all()
    assert (np.abs(random - below - equal / 2) > 1e-6).any()


def test_components_of_vectors_each_have_their_own(rng):
    y, mu = rng.normal(size=(N, 2)), 0.1 * rng.normal(size=(2, 60, 1, 2))
    logp = stats.norm.logpdf(y, mu).sum(axis=-1)
    drawn = mu + rng.normal(size=(2, 60, N, 2))
    tree = container(logp, drawn, y, ("obs", "side"))
    pit = lq.equal({"pairs": lq.from_datatree(tree)}, scores="in-sample").pit(loo=False)
    assert pit.dims == ("obs", "side")
    np.testing.assert_allclose(pit, (drawn <= y).mean(axis=(0, 1)))


def test_dimensions_in_another_order_or_without_names(given, models):
    tree = given[0]["left"]
    drawn = tree["posterior_predictive"].to_dataset()
    for other in (
        drawn.transpose("obs", "draw", "chain"),
        drawn.drop_vars("obs").rename(obs="y_dim_2"),  # as PyMC calls it
    ):
        found = with_draws(tree, other).source.outcome_draws
        np.testing.assert_array_equal(found, models["left"].source.outcome_draws)


def test_notebooks_say_that_there_are_draws(given, models):
    assert "predictive draws" in models["left"]._repr_html_()
    assert "predictive draws" not in given[1]["left"]._repr_html_()


def test_a_file_keeps_them_and_its_report_shows_calibration(given, tmp_path):
    paths = {name: tmp_path / f"{name}.nc" for name in given[0]}
    for name, tree in given[0].items():
        tree.to_netcdf(paths[name], engine="h5netcdf")
    read = {
        "left": lq.from_datatree(paths["left"]),
        "right": lq.from_datatree(paths["right"], lazy=True),
    }
    fit = quietly(lq.stack, read)
    expected = quietly(lq.stack, {name: lq.from_datatree(tree) for name, tree in given[0].items()})
    np.testing.assert_allclose(fit.pit(), expected.pit(), atol=1e-6)
    page = fit.report(tmp_path / "report.html", methods=()).read_text(encoding="utf-8")
    assert "Calibration is not known" not in page
    assert "probability integral transform" in page


@pytest.mark.filterwarnings("ignore::lockquack.errors.InfluenceWarning")
def test_other_pools_are_refused_and_it_is_said_why(given):
    models = {}
    for name, model in given[1].items():
        drawn = given[0][name]["posterior_predictive"].to_dataset()
        models[name] = with_draws(model.to_datatree(), drawn.drop_vars("obs"))
    fit = quietly(lq.lock, models)
    for ask in (fit.pit, fit.coverage):
        with pytest.raises(UnsupportedError, match=r"cannot be normalised.*mixtures only"):
            ask()
    np.testing.assert_array_equal(quietly(lq.equal, models).pit().shape, (N,))


@pytest.mark.parametrize("what", ["no group", "no chains", "thinned", "of others"])
def test_models_without_them_are_refused(given, models, what):
    tree = given[0]["left"]
    drawn = tree["posterior_predictive"].to_dataset()
    left = {
        "no group": lambda: lq.from_datatree(
            tree.filter(lambda n: n.name != "posterior_predictive")
        ),
        "no chains": lambda: with_draws(tree, drawn.isel(chain=0, drop=True)),
        "thinned": lambda: with_draws(tree, drawn.isel(draw=slice(None, None, 2))),
        "of others": lambda: with_draws(tree, drawn.assign_coords(obs=drawn["obs"].values[::-1])),
    }[what]()
    assert left.source.outcome_draws is None
    fit = quietly(lq.equal, {"left": left, "right": models["right"]})
    with pytest.raises(UnsupportedError, match="Model 'left' .*, and it has no predictive draws"):
        fit.pit()


def test_a_model_that_can_draw_stands_beside_stored_draws(given, models):
    """Its own generator takes the place of stored draws, at as many draws."""
    assert given[1]["left"].source.outcome_draws is None
    fit, stored = (
        quietly(lq.equal, {"left": left, "right": models["right"]})
        for left in (given[1]["left"], models["left"])
    )
    draws = given[1]["left"].source.n_samples
    np.testing.assert_allclose(fit.pit(), stored.pit(), atol=3 / np.sqrt(draws))


def test_draws_that_are_not_finite_are_refused(given, models):
    drawn = given[0]["left"]["posterior_predictive"].to_dataset()
    missing = with_draws(given[0]["left"], drawn.where(drawn["draw"] > 0))
    fit = quietly(lq.equal, {"left": missing, "right": models["right"]})
    with pytest.raises(NonFiniteError, match="'left' are not all finite"):
        fit.pit()
