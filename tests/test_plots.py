"""Pictures say what the numbers are; how they look was looked at."""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import ParameterError
from lockquack.paper import plot_operators
from lockquack.plots import plot_compare, plot_pit, plot_weights, plot_weights_at
from lockquack.plots.style import GREY, model_colours, short_names
from lockquack.prediction.pictures import locate
from lockquack.quadrature.uniformity import ecdf_band, uniformity

mpl.use("Agg")
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def models():
    """Three models of thirty outcomes, all of them possible."""
    rng = np.random.default_rng(5)
    y, mu = rng.normal(1.0, 2.0, size=30), rng.normal(0.0, 0.2, size=(4, 200))
    return {
        "left": lq.from_family("normal", y=y, mu=mu, sigma=2.0),
        "right": lq.from_family("normal", y=y, mu=mu + 2.0, sigma=2.0),
        "far": lq.from_family("student_t", y=y, nu=50.0, mu=mu + 5.0, sigma=3.0),
    }


@pytest.fixture(scope="module")
def fit(models):
    return lq.lock(models, random_seed=1)


@pytest.fixture(scope="module")
def stacked(models):
    return lq.stack(models)


def legend(ax):
    found = ax.get_legend() or ax.figure.legends[0]
    return [text.get_text() for text in found.get_texts()]


def test_weights_are_points_with_intervals(fit):
    ax = fit.plot_weights(prob=0.8)
    (points,) = (line for line in ax.lines if line.get_marker() == "o")
    np.testing.assert_allclose(points.get_xdata(), fit.weights)
    wide, thick = (np.array(each.get_segments())[:, :, 0] for each in ax.collections)
    np.testing.assert_allclose(wide.T, np.quantile(fit._replicates, [0.1, 0.9], axis=0))
    np.testing.assert_allclose(thick.T, np.quantile(fit._replicates, [0.25, 0.75], axis=0))
    assert [text.get_text() for text in ax.texts] == [f"{w:.2f}" for w in fit.weights.values]
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first model is on top"


def test_weights_of_several_combinations(fit, stacked, models):
    ax = fit.plot_weights({"mixture": stacked, "even": lq.equal(models)})
    assert legend(ax) == ["lock", "mixture", "even"]
    by_colour = {line.get_color(): line.get_xdata() for line in ax.lines}
    assert len(by_colour) == 3
    np.testing.assert_allclose(list(by_colour.values())[2], 1 / 3)
    assert len(ax.collections) == 4, "equal weights have no intervals"


def test_phases_are_said_below_names(models):
    quacked = lq.quack({name: models[name] for name in ("left", "right")})
    labels = [label.get_text() for label in quacked.plot_weights().get_yticklabels()]
    assert all("phase" in label for label in labels)
    assert not any("-0.00" in label for label in labels)


def test_combinations_that_are_called_the_same(fit, models):
    by_log = lq.combine(models, lq.Locking(), lq.LogScore())
    assert legend(fit.plot_weights([by_log])) == ["lock", "lock by log"]
    with pytest.raises(lq.errors.ParameterError, match="dict from other names"):
        fit.plot_weights([fit])
    others = [lq.select(models), lq.stack(models), lq.equal(models)]
    assert legend(fit.plot_weights(others)) == ["lock", "select", "stack", "equal"]
    with pytest.raises(lq.errors.ParameterError, match="must be combinations"):
        fit.plot_weights(["left"])


def curve(ax, name):
    place = legend(ax).index(name)
    handle = ax.get_legend().legend_handles[place]
    (line,) = (
        each
        for each in ax.lines
        if (each.get_color(), each.get_linewidth()) == (handle.get_color(), handle.get_linewidth())
    )
    return line.get_xdata(), line.get_ydata()


def test_densities_are_those_of_the_distributions(fit, stacked, models):
    ax = fit.plot_density(2, [stacked], loo=False)
    assert legend(ax) == ["left", "right", "far", "lock", "stack", "observed"]
    for name, of in (("lock", fit), ("stack", stacked)):
        y, density = curve(ax, name)
        at = of.predict()._evaluation.pooled.logpdf(np.tile(y[:, None], fit.observations.n))[:, 2]
        np.testing.assert_allclose(density, np.exp(at), rtol=1e-6, atol=1e-12)
    y, density = curve(ax, "left")
    draws = models["left"]
    exact = np.exp(draws.source.logp_at(y[:, None, None], 0, slice(0, 200), slice(2, 3)))
    for chain in (1, 2, 3):
        exact += np.exp(draws.source.logp_at(y[:, None, None], chain, slice(0, 200), slice(2, 3)))
    np.testing.assert_allclose(density, exact.mean(axis=1)[:, 0] / 4, rtol=1e-9)
    assert 0.99 < np.trapezoid(density, y) < 1.0


def test_heavy_tails_are_cut():
    y, mu = np.linspace(-1.0, 1.0, 20), 0.1 * np.random.default_rng(1).normal(size=(4, 50))
    cauchy = lq.from_family("student_t", y=y, nu=1.0, mu=mu, sigma=1.0)
    grid, density = curve(lq.lock({"cauchy": cauchy}).plot_density(3, models=False), "lock")
    assert 30 < np.ptp(grid) < 45, "the 0.2 % quantiles are 318 apart"
    assert density.max() == pytest.approx(1 / np.pi, rel=0.05)


def test_densities_leave_out_by_default(fit):
    loo, inside = (
        curve(fit.plot_density(0, models=False, loo=loo), "lock") for loo in (None, False)
    )
    assert not np.allclose(loo[0], inside[0])
    again = fit.logpdf(np.tile(loo[0][:, None], fit.observations.n), loo=True).values[:, 0]
    np.testing.assert_allclose(np.log(loo[1]), again, rtol=1e-6)


def test_densities_elsewhere_have_no_outcome(rng):
    x = rng.normal(size=(20, 1))
    y = x[:, 0] + rng.normal(size=20)
    slope, level = 1 + 0.1 * rng.normal(size=(2, 4, 100, 1))
    models = {
        "slope": lq.from_family("normal", y=y, mu=lq.linear_predictor(x, slope), sigma=1.0),
        "level": lq.from_family("normal", y=y, mu=0.2 * level[..., 0], sigma=1.5),
    }
    new = lq.lock(models).predict(x={"slope": [[0.0], [3.0]]})
    ax = new.plot_density(1)
    assert legend(ax) == ["slope", "level", "lock"]
    y, density = curve(ax, "lock")
    np.testing.assert_allclose(np.log(density), new.logpdf(y[:, None]).values[:, 1], rtol=1e-6)
    observed = lq.lock(models).predict(loo=True).plot_density(1, models=False)
    assert legend(observed) == ["lock", "observed"]


def test_several_observations(fit):
    axes = fit.plot_densities([0, 3, -1], xlabel="height in $")
    assert [ax.get_title(loc="left") for ax in axes] == [
        f"observation {i}" for i in (0, 3, 29)
    ]  # fmt: skip
    assert len(fit.plot_densities()) == 4
    marks = [ax.lines[-1].get_xdata()[0] for ax in axes]
    np.testing.assert_allclose(marks, fit.observations.values[[0, 3, 29], 0])
    axes[0].figure.canvas.draw()  # the dollar is no mathematics


def test_counts_are_stems(rng):
    y = rng.poisson(4.0, size=25).astype(float)
    mu = 4.0 + 0.2 * rng.normal(size=(2, 100))
    models = {
        "poisson": lq.from_family("poisson", y=y, mu=mu),
        "wide": lq.from_family("negative_binomial", y=y, mu=mu, alpha=2.0),
    }
    fit = lq.combine(models, lq.Locking(), lq.LogScore())
    ax = fit.plot_density(1)
    (stems,) = ax.collections
    tops = np.array([segment[1] for segment in stems.get_segments()])
    expected = fit.logpdf(np.tile(tops[:, :1], 25), loo=True).values[:, 1]
    np.testing.assert_allclose(tops[:, 1], np.exp(expected), rtol=1e-6)
    assert all(float(tick).is_integer() for tick in ax.get_xticks())
    assert legend(fit.plot_pit(random_seed=3))[-1] == "95 % band"


def test_what_has_no_density_elsewhere_cannot_be_drawn(fit):
    arrays = {n: lq.from_datatree(m.to_datatree()) for n, m in fit.models.items()}
    known = lq.lock(arrays)
    with pytest.raises(lq.errors.UnsupportedError, match="densities cannot be drawn"):
        known.plot_density(0)
    assert known.plot_weights().get_xlabel() == "weight"
    assert known.plot_scores("left").get_title(loc="left").startswith("lock − left")


def test_observations_by_label():
    y = xr.DataArray(
        np.arange(6.0).reshape(2, 3),
        coords={"school": ["a", "b"], "year": [2001, 2002, 2003]},
        dims=["school", "year"],
    )
    grid = lq.from_family("normal", y=y, mu=np.zeros((1, 4)), sigma=1.0).observations
    assert locate(grid, {"year": 2002, "school": "b"}) == 4
    with pytest.raises(lq.errors.ParameterError, match="label for each"):
        locate(grid, "b")
    with pytest.raises(lq.errors.ParameterError, match="there are 6"):
        locate(grid, 6)
    line = lq.from_family("normal", y=y[:, 0], mu=np.zeros((1, 4)), sigma=1.0).observations
    with pytest.raises(lq.errors.UnknownNameError, match="school 'c'"):
        locate(line, "c")


def test_pit_lines_and_band(fit, stacked):
    ax = fit.plot_pit([stacked])
    with pytest.raises(lq.errors.ParameterError, match="between 0 and 1"):
        ecdf_band(30, 1.0)
    assert legend(ax) == ["left", "right", "far", "lock", "stack", "95 % band"]
    places = np.pad(ecdf_band(30)[0], 1, constant_values=(0, 1))
    x, drawn = curve(ax, "lock")
    share = (fit.pit().values[:, None] <= places).mean(axis=0)
    np.testing.assert_allclose(x, places)
    np.testing.assert_allclose(drawn[1:-1], (share - places)[1:-1])
    far = curve(ax, "far")[1]
    low = np.pad(ecdf_band(30)[1] - ecdf_band(30)[0], 1)
    high = np.pad(ecdf_band(30)[2] - ecdf_band(30)[0], 1)
    assert ((far < low) | (far > high)).any(), "a bad model is outside"


@pytest.mark.parametrize("n", [5, 40, 300])
def test_bands_are_those_of_the_test_of_uniformity(n, rng):
    inside = 0
    for bend in np.linspace(0.5, 1.5, 300):
        pit = rng.random(n) ** bend
        places, low, high = ecdf_band(n, 0.9)
        share = (pit[:, None] <= places).mean(axis=0)
        within = ((low <= share) & (share <= high)).all()
        assert within == (uniformity(pit) > 0.1)
        inside += within
    assert 0 < inside < 300


def test_bands_cover(rng):
    places, low, high = ecdf_band(50, 0.95)
    share = (rng.random((4000, 50, 1)) <= places).mean(axis=1)
    within = ((low <= share) & (share <= high)).all(axis=1)
    assert stats.binomtest(int(within.sum()), 4000, 0.95).pvalue > 1e-3


def test_scores_between_two(fit, stacked, models):
    ax = fit.plot_scores("left", worst=3)
    scored = fit.pointwise.values
    behind = scored[0] - scored[1]
    drawn = {x: y for line in ax.lines[1:] for x, y in zip(*line.get_data(), strict=True)}
    np.testing.assert_allclose([drawn[i] for i in range(30)], behind)
    labelled = {int(text.get_text()) for text in ax.texts}
    assert labelled == set(np.argsort(behind)[:3].tolist())
    total = float(ax.get_title(loc="left").split()[3].replace("−", "-"))
    assert total == pytest.approx(behind.sum(), abs=0.06)

    ax = fit.plot_scores(stacked)
    assert ax.get_ylabel() == "difference in log score"
    gap = fit.logpdf(loo=True).sum() - stacked.logpdf(loo=True).sum()
    total = float(ax.get_title(loc="left").split()[3].replace("−", "-"))
    assert total == pytest.approx(float(gap), abs=0.06)
    assert stacked.plot_scores(lq.equal(models)).get_title(loc="left").startswith("stack − eq")
    with pytest.raises(lq.errors.UnknownNameError, match="left"):
        fit.plot_scores("lfet")


def test_compare_is_drawn_best_on_top(models):
    table = lq.compare(models, ["stack", "equal", "lock"])
    ax = plot_compare(table)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(table.index)
    assert [text.get_text() for text in ax.texts] == list(table["verdict"])
    points = np.concatenate([line.get_xdata() for line in ax.lines if line.get_marker() == "o"])
    np.testing.assert_allclose(np.sort(points), np.sort(table["elpd_diff"]))


def test_tables_of_arviz_are_left_to_arviz():
    theirs = pd.DataFrame({"elpd_diff": [0.0, -1.0], "dse": [0.0, 1.0]}, index=["a", "b"])
    for table in (theirs, "table"):
        with pytest.raises(ParameterError, match=r"lq\.compare.*az\.plot_compare"):
            plot_compare(table)


def test_compare_without_log_scores(models):
    arrays = {n: lq.from_datatree(m.to_datatree()) for n, m in models.items()}
    table = lq.compare(arrays, ["lock"])
    assert "Hyvärinen" in plot_compare(table).get_xlabel()


def test_operators_are_those_of_the_paper():
    assert len(plot_operators(0.3).axes) == 9


def test_axes_that_are_given_are_used(fit):
    figure, axes = plt.subplots(1, 4)
    plots = (
        fit.plot_weights(ax=axes[0]),
        fit.plot_density(0, ax=axes[1]),
        fit.plot_pit(models=False, ax=axes[2]),
        fit.plot_scores("left", ax=axes[3]),
    )
    assert all(drawn is ax for drawn, ax in zip(plots, axes, strict=True))
    assert plt.get_fignums() == [figure.number]


def test_many_models_share_grey():
    names = [f"m{k}" for k in range(12)]
    colours = model_colours(names, dict(zip(names, range(12), strict=True)))
    assert [name for name in names if colours[name] != GREY] == ["m8", "m9", "m10", "m11"]
    assert len(set(colours.values())) == 5
    pit = {name: np.linspace(0.01, 0.99, 20) for name in names}
    assert legend(plot_pit(pit, {})).count("other models") == 1


def test_long_names_stay_apart():
    names = [f"a very long name of a regression, number {k} of 12, with splines" for k in range(12)]
    shown = short_names([*names, "short"], 20)
    assert len(set(shown.values())) == 13
    assert max(map(len, shown.values())) <= 20
    weights = xr.DataArray([0.5, 0.5], coords={"model": ["$a$", "<b>$"]}, dims="model")
    ax = plot_weights({"locking": weights})
    ax.figure.canvas.draw()
    assert ax.get_yticklabels()[0].get_text() == r"\$a\$"


def test_a_band_that_mirrors_another_is_not_drawn():
    left, x = np.array([0.2, 0.6, 0.9]), [0.0, 1.0, 2.0]

    def bands(*weights):
        coords = {"model": [f"m{k}" for k in range(len(weights))], "x": x}
        weight = xr.DataArray(np.stack(weights), coords=coords, dims=["model", "x"])
        ax = plot_weights_at(xr.Dataset({"weight": weight, "low": weight, "high": weight}))
        assert len(ax.lines) == len(weights)
        return len(ax.collections)

    assert bands(left, 1 - left) == 1
    assert bands(left, left) == 2, "weights that need not sum to one"
    assert bands(left, (1 - left) / 2, (1 - left) / 2) == 3


@pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning")
def test_one_observation():
    y, mu = np.array([0.4]), 0.1 * np.random.default_rng(1).normal(size=(4, 50))
    models = {str(d): lq.from_family("normal", y=y, mu=mu + d, sigma=1.0) for d in (-1, 1)}
    with pytest.warns(lq.errors.MonteCarloWarning, match="Too few effective draws"):
        fit = lq.combine(models, lq.Locking(), lq.LogScore())
    assert fit.plot_weights().collections[:] == []
    assert fit.plot_scores("1").get_xlabel() == "observation"
    assert len(fit.plot_densities()) == 1
    assert fit.plot_pit().get_xlim() == (0, 1)


def test_without_matplotlib(fit, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'lockquack\[plots\]'"):
        fit.plot_weights()


def test_models_of_one_name_must_be_the_same_in_one_picture(rng):
    y, mu = rng.normal(size=6), 0.1 * rng.normal(size=(2, 60))
    one, again, other = (
        lq.equal({"a": lq.from_family("normal", y=y, mu=mu + shift, sigma=1.0)})
        for shift in (0.0, 0.0, 1.0)
    )
    one.plot_density(0, {"again": again})
    with pytest.raises(lq.errors.ParameterError, match="different models called 'a'"):
        one.plot_density(0, {"other": other})


def test_labels_of_neighbours_do_not_cover_each_other():
    from lockquack.plots import plot_influence, plot_scores

    changes = np.zeros(80)
    changes[[34, 35, 36, 37, 79]] = [-0.070, -0.071, -0.072, -0.073, -0.07]
    drawn = [plot_influence({"a": changes, "b": -changes}), plot_scores(changes, ("a", "b"))]
    for ax in drawn:
        figure = ax.get_figure()
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) == 5
        assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
        assert all(box.x1 <= ax.get_window_extent().x1 + 1 for box in boxes)
