"""Log scores in the table of a fit by another score: the numbers, or why there are none."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats

import lockquack as lq
from lockquack.combination import log_scores
from lockquack.models.passes import Passes
from lockquack.prediction import nodes
from lockquack.words import in_shell
from tests.helpers import lock

N, SHAPE = 30, (4, 50)


@pytest.fixture
def models(rng):
    y = rng.normal(1.0, 1.5, size=N)
    mu = 1.0 + 0.2 * rng.normal(size=SHAPE)
    return {
        "narrow": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "wide": lq.from_family("normal", y=y, mu=0.0, sigma=2.0 + 0.1 * rng.normal(size=SHAPE)),
    }


def elpd_line(fit):
    return [line for line in str(fit).splitlines() if line.startswith("elpd")]


@pytest.mark.parametrize("scores", ["loo", "in-sample", "held-out"])
@pytest.mark.parametrize("rule", [lq.Hyvarinen(), lq.CRPS()], ids=repr)
def test_models_and_mixtures_have_their_log_scores(models, rule, scores):
    fit = lq.combine(models, lq.Linear(), rule, scores=scores)
    alone = np.stack(
        [model.passes.predict(scores, density=True).jet.logp for model in models.values()]
    )
    mixed = np.log(fit.weights.values @ np.exp(alone))
    expected = np.vstack([mixed, alone])
    table = fit.to_dataframe()
    np.testing.assert_allclose(table["elpd"], expected.sum(axis=1))
    np.testing.assert_allclose(table["elpd_se"], np.sqrt(N) * expected.std(axis=1, ddof=1))
    assert not elpd_line(fit)


def test_densities_of_y_are_scored_whatever_the_coordinates_of_h(rng):
    y = rng.lognormal(size=N)
    mu = 0.1 * rng.normal(size=SHAPE)
    models = {
        "lognormal": lq.from_family("lognormal", y=y, mu=mu, sigma=1.0),
        "exact": lq.from_family("lognormal", y=y, mu=0.0, sigma=0.8),
    }
    fit = lq.combine(models, lq.Linear(), lq.Hyvarinen(transform="log"))
    logp = stats.lognorm(0.8).logpdf(y)
    assert fit.to_dataframe()["elpd"]["exact"] == pytest.approx(logp.sum())
    np.testing.assert_allclose(fit.to_dataframe()["elpd"], fit.metrics()["elpd"].drop("[stack]"))


def test_case_weights_count(models):
    y, weights = models["wide"].observations.values[:, 0], np.arange(N) % 3
    given = {"y": y, "mu": np.zeros(SHAPE), "weights": weights}
    fit = lq.lock({str(s): lq.from_family("normal", sigma=s, **given) for s in (1.0, 3.0)})
    fit.logpdf(loo=True)
    np.testing.assert_allclose(fit.to_dataframe()["elpd"], fit.metrics()["elpd"].drop("[stack]"))


def test_a_locked_pool_has_one_once_it_is_normalised(models):
    fit = lq.lock(models)
    before = fit.to_dataframe()["elpd"]
    assert np.isnan(before["[lock]"])
    assert np.isfinite(before[1:]).all()
    assert elpd_line(fit) == [
        "elpd of [lock]: not computed yet; call fit.logpdf(loo=True) and print the fit again."
    ]
    logp = fit.logpdf(loo=True)
    assert fit.to_dataframe()["elpd"]["[lock]"] == pytest.approx(float(logp.sum()))
    assert not elpd_line(fit)
    assert f"{float(logp.sum()):.1f}" in str(fit)
    assert f"<td>{float(logp.sum()):.1f}</td>" in fit._repr_html_()


@pytest.mark.parametrize("asked", ["compare", "metrics", "another rule"])
def test_nodes_that_others_laid_are_used(models, asked):
    fit = lq.lock(models)
    if asked == "compare":
        lq.compare(models, ["lock", "stack"])
    elif asked == "metrics":
        fit.metrics()
    else:
        lq.lock(models, rule="log")
    shown = fit.to_dataframe()["elpd"]["[lock]"]
    assert shown == pytest.approx(float(fit.logpdf(loo=True).sum()), abs=1e-6)


def test_printing_evaluates_no_density_elsewhere(models, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nodes are laid")

    monkeypatch.setattr(nodes, "_lay_anew", refuse)
    assert "not computed yet" in str(lq.lock(models))


@pytest.mark.filterwarnings("ignore::lockquack.errors.CalibrationWarning")
def test_recalibrated_pools_have_their_own(models):
    fit = lq.lock(models).recalibrated()
    fit.logpdf(loo=True)
    np.testing.assert_allclose(
        fit.to_dataframe()["elpd"].iloc[0], fit.metrics()["elpd"].iloc[0], rtol=1e-6
    )


def test_what_takes_long_is_left_out_until_it_is_known(models, monkeypatch):
    monkeypatch.setattr(log_scores, "_AFFORDABLE", 0)
    fit = lq.lock(models)
    monkeypatch.setattr(Passes, "_by_psis", None)
    assert "elpd" not in fit.to_dataframe()
    assert elpd_line(fit)[0].startswith("elpd: not computed, because")
    monkeypatch.undo()
    monkeypatch.setattr(log_scores, "_AFFORDABLE", 0)
    expected = [model.loo().logp.sum() for model in models.values()]
    np.testing.assert_allclose(fit.to_dataframe()["elpd"][1:], expected)


def test_pools_that_cannot_be_normalised_say_so(rng):
    y, logp = rng.normal(size=N), rng.normal(size=(*SHAPE, N))
    grad, curv = rng.normal(size=(*SHAPE, N)), -np.ones((*SHAPE, N))
    models = {
        name: lq.from_arrays(logp=logp, grad=grad + shift, curv=curv, y=y)
        for name, shift in (("a", 0.0), ("b", 0.3))
    }
    with pytest.warns(lq.errors.LockquackWarning):
        fit = lq.lock(models)
    assert elpd_line(fit)[0].startswith("elpd of [lock]: not available: normalising")
    assert np.isfinite(fit.to_dataframe()["elpd"][1:]).all()


def test_a_table_is_printed_where_leave_one_out_densities_are_refused(rng):
    y, few = rng.normal(size=N), (4, 3)
    models = {
        name: lq.from_family("normal", y=y, mu=centre + rng.normal(size=few), sigma=1.0)
        for name, centre in (("a", 0.0), ("b", 1.0))
    }
    fit = lock(models)
    assert "elpd" not in fit.to_dataframe()
    assert elpd_line(fit)[0].startswith("elpd: unknown. Leave-one-out densities need at least 25")


def test_the_log_score_is_not_shown_twice(models):
    fit = lq.stack(models)
    assert "elpd" not in fit.to_dataframe()
    assert not elpd_line(fit)


def test_files_keep_what_is_known(models, tmp_path):
    fit = lq.lock(models)
    fit.save(tmp_path / "before.nc")
    fit.logpdf(loo=True)
    fit.save(tmp_path / "after.nc")
    before, after = (lq.load(tmp_path / f"{name}.nc") for name in ("before", "after"))
    assert str(after) == str(fit)
    assert elpd_line(before) == ["elpd of [lock]: not computed before the fit was saved."]
    np.testing.assert_array_equal(before.to_dataframe()["elpd"][1:], fit.to_dataframe()["elpd"][1:])


def test_what_is_known_stays_known(models):
    fit = lq.lock(models)
    lq.lock(models, rule="log")
    assert not elpd_line(fit)
    assert str(pickle.loads(pickle.dumps(fit))) == str(fit)


def test_the_command_line_has_its_own_words(models):
    (line,) = lq.lock(models)._missing_log_scores
    assert in_shell(line) == "elpd of [lock]: not computed yet; use lockquack compare."
