"""The paper's experiments: their numbers, their pictures, and the command that makes them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad

import lockquack as lq
from lockquack import cli
from lockquack.errors import LockquackWarning, ParameterError
from lockquack.families import get_family
from lockquack.jets import log_sum_exp
from lockquack.paper import comparison, demo, experiments, figures, overfitting, sampling
from lockquack.paper.comparison import closed_form_densities, line_of
from lockquack.paper.methods import PAPER, TITLES, fit
from lockquack.paper.runner import Runner
from lockquack.paper.scenarios import (
    SCENARIOS,
    Density,
    log_marginal_likelihoods,
    loo_predictions,
    models_at,
    posterior_draws,
    predictions,
)

ROOT = Path(__file__).parents[1]


# The two models.


@pytest.fixture
def y(rng):
    return rng.normal(0.5, 1.2, 25)


def test_predictions_integrate_the_posterior(y):
    """Against quadrature over the parameters, written from the models' definitions."""
    normal = stats.norm
    post_mean = y.sum() / (y.size + 0.1)
    post = normal(post_mean, np.sqrt(1 / (y.size + 0.1)))
    variance = stats.invgamma(0.05 + y.size / 2, scale=0.05 + np.square(y).sum() / 2)
    for at in (-1.0, 0.3, 2.0):
        first = quad(lambda m, at=at: normal.pdf(at, m, 1) * post.pdf(m), -3, 4, limit=200)[0]
        second = quad(
            lambda v, at=at: normal.pdf(at, 0, np.sqrt(v)) * variance.pdf(v), 0.1, 20, limit=200
        )[0]
        found = [np.exp(each.logp(np.array(at))) for each in predictions(y)]
        np.testing.assert_allclose(found, [first, second], rtol=1e-6)


def test_leave_one_out_is_the_prediction_without(y):
    for i in (0, 7):
        rest = predictions(np.delete(y, i))
        for left_out, refitted in zip(loo_predictions(y), rest, strict=True):
            a, b = left_out.jet(y)[i], refitted.jet(y[i])
            np.testing.assert_allclose(a.logp, b.logp)
            np.testing.assert_allclose(a.grad, b.grad)
            np.testing.assert_allclose(a.curv, b.curv)


def test_marginal_likelihoods_are_products_of_predictions(y):
    """p(y) = Π p(y_i | y_<i), from the prior predictive on."""
    first = stats.norm.logpdf(y[0], 0, np.sqrt(11.0))
    second = stats.t.logpdf(y[0], 0.1)
    for i in range(1, y.size):
        before = predictions(y[:i])
        first += before[0].logp(y[i])
        second += before[1].logp(y[i])
    np.testing.assert_allclose(log_marginal_likelihoods(y), [first, second], rtol=1e-10)


def test_draws_agree_with_the_closed_form(y, rng):
    models = models_at(y, posterior_draws(y, rng, (4, 5000)))
    for model, exact in zip(models.values(), loo_predictions(y), strict=True):
        jet, truth = model.passes.predict("loo", density=True).jet, exact.jet(y)
        np.testing.assert_allclose(jet.logp, truth.logp, atol=0.02)
        np.testing.assert_allclose(jet.grad, truth.grad, atol=0.05)
        np.testing.assert_allclose(jet.curv, truth.curv, atol=0.05)


def test_the_trapezoidal_line_integrates_to_rounding(y):
    line = line_of(predictions(y), 1)
    assert log_sum_exp(line.logp + line.log_measure, axis=1) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("scenario", SCENARIOS[2:], ids=lambda s: f"scenario {s.number}")
def test_methods_are_those_of_the_library(scenario, rng):
    """The paper's comparison from closed forms, and what users get from draws."""
    y = rng.normal(scenario.mean, np.sqrt(scenario.variance), 60)
    evidence = closed_form_densities(loo_predictions(y), y)
    log_evidence = log_marginal_likelihoods(y)
    models = models_at(y, posterior_draws(y, rng, (4, 250)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fits = {
            "lock": lq.lock(models),
            "lock by log": lq.lock(models, rule="log", prior=1.0),
            "stack": lq.stack(models),
            "BMA": lq.bma(models, log_evidence),
            "select by H": lq.select(models, "hyvarinen"),
        }
    for name, found in fits.items():
        exact = fit(name, evidence, log_evidence).weights
        tolerance = 0.02 if scenario.number == 3 else 0.25  # alike models: loose weights
        np.testing.assert_allclose(found.weights, exact, atol=tolerance, err_msg=name)


# The comparison: math within its Monte Carlo error, against independent runs.


@pytest.fixture(scope="module")
def compared():
    """The paper's methods (and locking by the log score) in 25 replications of each scenario."""
    rows = []
    for seed in np.random.SeedSequence(2023).spawn(25):
        for scenario, child in zip(SCENARIOS, seed.spawn(4), strict=True):
            rng = np.random.default_rng(child)
            spread = np.sqrt(scenario.variance)
            y, new = rng.normal(scenario.mean, spread, 200), rng.normal(scenario.mean, spread, 50)
            evidence = closed_form_densities(loo_predictions(y), y)
            test = comparison.closed_form_test(predictions(y), new, scenario.truth.jet(new))
            for name in (*PAPER, "lock by log"):
                found = fit(name, evidence, log_marginal_likelihoods(y))
                rows.append(comparison._row(scenario, "closed form", "loo", name, found, test))
    table = pd.DataFrame(rows)
    table["behind"] = table["log_score"] - table["log_score_truth"]
    return table.groupby(["method", "scenario"])[["w1", "behind"]].mean()


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("BMA", (1.0, 0.0, 1.0, 0.66)),
        ("stack", (0.99, 0.02, 0.82, 0.45)),
        ("lock", (0.97, 0.004, 0.31, 0.75)),
    ],
)
def test_mean_weights(compared, method, expected):
    found = compared.loc[method, "w1"]
    np.testing.assert_allclose(found[:3], expected[:3], atol=0.03)
    assert found[4] == pytest.approx(expected[3], abs=0.2)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("select by ML", (-0.1, -0.0, -23, -0.2)),
        ("select", (-0.1, -0.0, -23, -0.2)),
        ("BMA", (-0.1, -0.0, -23, -0.1)),
        ("stack", (-0.2, -0.1, -12, -0.15)),
        ("select by H", (-0.1, -0.0, -46, -0.2)),
        ("lock", (-0.2, -0.0, -2, -0.13)),
    ],
)
def test_mean_log_scores(compared, method, expected):
    found = compared.loc[method, "behind"]
    np.testing.assert_allclose(found[[1, 2, 4]], np.take(expected, [0, 1, 3]), atol=0.35)
    assert found[3] == pytest.approx(expected[2], abs=3.5)


def test_locking_wins_where_both_models_are_wrong_and_ties_elsewhere(compared):
    gain = compared.loc["lock", "behind"] - compared.loc["stack", "behind"]
    assert gain[3] > 7
    assert (gain[[1, 2, 4]].abs() < 0.35).all()


def test_the_population_optimum_of_scenario_3():
    """With very much data: .3077 by H, .3366 by the log score, .815 mixing."""
    grid = np.linspace(4 - 8 * np.sqrt(3), 4 + 8 * np.sqrt(3), 4001)
    # Equal probabilities, as quantiles: a data set that is the population.
    y = stats.norm.ppf((np.arange(4000) + 0.5) / 4000, 4, np.sqrt(3))
    exact = Density.of("normal", mu=4.0, sigma=1.0), Density.of("normal", mu=0.0, sigma=np.sqrt(19))
    evidence = closed_form_densities(exact, y)
    found = {name: fit(name, evidence, np.zeros(2)).weights[0] for name in ("lock", "stack")}
    assert found["lock"] == pytest.approx(0.3077, abs=0.002)
    assert found["stack"] == pytest.approx(0.815, abs=0.003)
    small = closed_form_densities(exact, y[::20])
    assert fit("lock by log", small, np.zeros(2)).weights[0] == pytest.approx(0.337, abs=0.01)
    pooled = 0.3077 * exact[0].logp(grid) + 0.6923 * exact[1].logp(grid)
    share = np.exp(pooled - log_sum_exp(pooled))
    mean = share @ grid
    assert mean == pytest.approx(3.576, abs=0.002)
    assert share @ (grid - mean) ** 2 == pytest.approx(2.906, abs=0.003)


# Over-fitting.


def test_regression_against_refitting_without_each_observation(rng):
    """Leave-one-out from all observations, and from a posterior that never saw the one."""
    X, y = rng.normal(size=(12, 9)), rng.normal(size=12)
    whole = overfitting.predict(X, y)
    lattice = overfitting.Lattice.build()
    for i in (0, 5):
        rest = np.delete(np.arange(12), i)
        weight = overfitting.Marginal.of(X[rest], y[rest]).log_weight(lattice).ravel()
        jets = [predicted_jet(X, y, rest, i, *node) for node in nodes_of(lattice)]
        logp, grad, curv = np.array(jets).T
        share = np.exp(weight - log_sum_exp(weight))
        inner = share * np.exp(logp)
        density = inner.sum()
        first = (inner * grad).sum() / density
        second = (inner * (curv + grad**2)).sum() / density
        assert whole.loo.logp[i] == pytest.approx(np.log(density), abs=1e-4)
        assert whole.loo.grad[i, 0] == pytest.approx(first, rel=1e-3, abs=1e-4)
        assert whole.loo.curv[i, 0] == pytest.approx(second - first**2, rel=1e-3, abs=1e-4)
    assert whole.edge < 1e-3


def nodes_of(lattice):
    return [(sigma, tau) for sigma in lattice.sigma for tau in lattice.inverse_lambda]


def predicted_jet(X, y, rest, i, sigma, inverse_lambda):
    """Condition a joint normal, coefficients integrated; the textbook way."""
    K = 100.0 * X @ X.T + 2.5**2 * inverse_lambda + sigma**2 * np.eye(len(y))
    slope = np.linalg.solve(K[np.ix_(rest, rest)], K[rest, i])
    mean, variance = slope @ y[rest], K[i, i] - slope @ K[rest, i]
    jet = get_family("normal").jet(y[i], {"mu": mean, "sigma": np.sqrt(variance)})
    return jet.logp.item(), jet.grad.item(), jet.curv.item()


def test_a_finer_grid_changes_nothing(rng):
    X, y = overfitting.simulate(rng)
    for p in (3, 60, 90):
        coarse = overfitting.predict(X[:, :p], y)
        fine = overfitting.predict(X[:, :p], y, overfitting.Lattice.build(2.0))
        for a, b in ((coarse.loo, fine.loo), (coarse.in_sample, fine.in_sample)):
            np.testing.assert_allclose(a.logp, b.logp, atol=1e-3)
            np.testing.assert_allclose(a.curv, b.curv, atol=1e-4)


def regression_draws(X, y, n_draws, rng):
    """Draw from the posterior of a regression, independently, and make a model of the draws."""
    lattice = overfitting.Lattice.build()
    weight = overfitting.Marginal.of(X, y).log_weight(lattice).ravel()
    nodes = nodes_of(lattice)
    chosen = rng.choice(len(nodes), size=n_draws, p=np.exp(weight - log_sum_exp(weight)))
    Z = np.column_stack([np.ones(len(y)), X])
    size = Z.shape[1]
    beta, sigma = np.empty((n_draws, size)), np.empty(n_draws)
    for s, (scale, tau) in enumerate(nodes[k] for k in chosen):
        prior = np.array([1 / (2.5**2 * tau), *[1e-2] * (size - 1)])
        precision = Z.T @ Z / scale**2 + np.diag(prior)
        root = np.linalg.cholesky(precision)
        mean = np.linalg.solve(precision, Z.T @ y / scale**2)
        beta[s] = mean + np.linalg.solve(root.T, rng.normal(size=size))
        sigma[s] = scale
    mu = lq.linear_predictor(Z, beta.reshape(4, -1, size))
    return lq.from_family("normal", y=y, mu=mu, sigma=sigma.reshape(4, -1))


def test_predictions_against_draws(rng):
    X, y = overfitting.simulate(rng)
    exact = overfitting.predict(X[:, :5], y)
    model = regression_draws(X[:, :5], y, 800, rng)
    for kind, truth in (("in-sample", exact.in_sample), ("loo", exact.loo)):
        jet = model.passes.predict(kind, density=True).jet
        np.testing.assert_allclose(jet.logp, truth.logp, atol=0.1)
        np.testing.assert_allclose(jet.grad, truth.grad, atol=0.15)
        assert jet.curv.mean() == pytest.approx(truth.curv.mean(), abs=0.03)


def test_h_from_draws_is_right_where_pareto_k_is_not():
    """Ninety covariates: PSIS is off by .5 per observation, the Hyvärinen score by little."""
    rng = np.random.default_rng(0)
    X, y = overfitting.simulate(rng)
    exact = overfitting.predict(X[:, :90], y)
    model = regression_draws(X[:, :90], y, 800, rng)
    loo = model.loo()
    assert (loo.pareto_k > 0.7).sum() > 50
    assert loo.logp.mean() > exact.loo.logp.mean() + 0.4
    drawn = overfitting._hyvarinen(model.collapse("loo").jet)
    assert drawn == pytest.approx(overfitting._hyvarinen(exact.loo), abs=0.06)


# Sampling.


def test_exact_draws_come_from_the_locked_density():
    sampled = sampling.sample_locked(SCENARIOS[2], np.random.default_rng(5), 4000)
    row = sampled.row()
    # Kolmogorov's distance exceeds 1.95 / √n once in a thousand.
    assert row["distance_exact"] < 1.95 / np.sqrt(4000)
    assert row["acceptance"] == pytest.approx(row["normaliser"], abs=0.03)
    assert 0.5 < row["importance_ess"] / 4000 < 0.9
    assert row["distance_importance"] < 0.06


# Running.


def one_number(seed):
    return [{"value": float(np.random.default_rng(seed).random())}]


class Killed(BaseException):
    """What a process does not survive."""


def test_replications_depend_on_the_seed_only(tmp_path):
    a = Runner(tmp_path / "a", seed=3).run("numbers", one_number, 4)
    b = Runner(tmp_path / "b", seed=3, workers=2).run("numbers", one_number, 4)
    c = Runner(tmp_path / "c", seed=4).run("numbers", one_number, 4)
    pd.testing.assert_frame_equal(a, b)
    assert a["value"].nunique() == 4
    assert not set(a["value"]) & set(c["value"])
    d = Runner(tmp_path / "a", seed=3).run("others", one_number, 4)
    assert not set(a["value"]) & set(d["value"])


def test_an_interrupted_run_goes_on(tmp_path):
    done = []

    def dies_at_the_third(seed):
        if len(done) == 2:
            raise Killed
        done.append(seed.spawn_key[-1])
        return one_number(seed)

    runner = Runner(tmp_path, seed=1)
    with pytest.raises(Killed):
        runner.run("numbers", dies_at_the_third, 5)
    assert done == [0, 1]
    kept = list(tmp_path.rglob("*.json"))
    assert len(kept) == 2

    def counted(seed):
        done.append(seed.spawn_key[-1])
        return one_number(seed)

    table = runner.run("numbers", counted, 5)
    assert done == [0, 1, 2, 3, 4], "finished replications are not computed again"
    pd.testing.assert_frame_equal(
        table, Runner(tmp_path / "anew", seed=1).run("numbers", one_number, 5)
    )
    runner.run("numbers", counted, 6)
    assert done[-1] == 5


def test_runner_refuses_what_makes_no_sense(tmp_path):
    with pytest.raises(ParameterError, match="seed"):
        Runner(tmp_path, seed=-1)
    with pytest.raises(ParameterError, match="worker"):
        Runner(tmp_path, workers=0)
    with pytest.raises(ParameterError, match="replication"):
        Runner(tmp_path).run("numbers", one_number, 0)


def test_a_cluster_without_dask_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("lockquack.paper.runner.find_spec", lambda name: None)
    with pytest.raises(lq.errors.LockquackError, match="pip install .lockquack.dask"):
        Runner(tmp_path, cluster="tcp://127.0.0.1:1").run("numbers", one_number, 1)


def test_a_cluster_runs_them(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        there = Runner(tmp_path / "there", cluster=cluster.scheduler_address)
        here = Runner(tmp_path / "here")
        pd.testing.assert_frame_equal(
            there.run("numbers", one_number, 3), here.run("numbers", one_number, 3)
        )


# The command line, and pictures.


@pytest.fixture(scope="module")
def quick_comparison():
    """Make a comparison table as the experiment does, from one fast method under all names."""
    rows = _rows_of("lock")
    return [
        {**row, "method": name, "route": route, "scores": "loo"}
        for route in ("closed form", "draws")
        for name in TITLES
        for row in rows
    ]


def _rows_of(name):
    rows = []
    for scenario in SCENARIOS:
        rng = np.random.default_rng(scenario.number)
        y = rng.normal(scenario.mean, np.sqrt(scenario.variance), 40)
        new = rng.normal(scenario.mean, np.sqrt(scenario.variance), 10)
        found = fit(name, closed_form_densities(loo_predictions(y), y), np.zeros(2))
        test = comparison.closed_form_test(predictions(y), new, scenario.truth.jet(new))
        rows.append(comparison._row(scenario, "closed form", "loo", name, found, test))
    return rows


def test_command_line_writes_tables_and_figures(tmp_path, monkeypatch, capsys, quick_comparison):
    monkeypatch.setattr(comparison, "replicate", lambda seed: quick_comparison)
    quick = overfitting.replicate
    monkeypatch.setattr(overfitting, "replicate", lambda seed: quick(seed, (1, 50, 100)))
    arguments = ["paper", "--replications", "2", "--seed", "5", "--workers", "1"]
    assert cli.main([*arguments, "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for name in experiments.EXPERIMENTS:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
        assert f"{name}.png" in printed
    table = pd.read_csv(tmp_path / "comparison.csv")
    assert set(table["method"]) == set(TITLES)
    assert table["replication"].nunique() == 2
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "comparison.parquet"), table, check_dtype=False
    )
    assert len(pd.read_csv(tmp_path / "overfitting.csv")) == 6
    assert pd.read_csv(tmp_path / "sampling.csv")["scenario"].tolist() == [1, 2, 3, 4]
    assert (tmp_path / "demo.html").read_text() == demo.page()


def test_figures_in_other_formats(tmp_path):
    assert cli.main(["paper", "demo", "--output", str(tmp_path), "--format", "pdf,svg"]) == 0
    assert (tmp_path / "demo.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "demo.svg").read_bytes().startswith(b"<?xml")
    assert not (tmp_path / "demo.png").exists()


def test_one_whole_replication_of_the_comparison():
    seed = np.random.SeedSequence(1)
    rows = comparison.compare_methods(SCENARIOS[0], np.random.default_rng(seed))
    table = pd.DataFrame(rows)
    assert table["converged"].all()
    assert set(table.loc[table["route"] == "closed form", "method"]) == set(TITLES)
    assert set(table.loc[table["route"] == "draws", "method"]) == set(PAPER)
    assert len(json.dumps(rows)) > 0
    wide = table.pivot_table(index=["scores", "method"], columns="route", values="log_score")
    wide = wide.dropna()
    np.testing.assert_allclose(wide["draws"], wide["closed form"], atol=0.1)


def test_python_m_lockquack(tmp_path):
    command = [sys.executable, "-m", "lockquack", "paper", "demo", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "superposition, α = π" in done.stdout
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_figures_say_which_scenario(quick_comparison):
    figure = figures.weights_figure(pd.DataFrame(quick_comparison))
    assert [axis.get_title(loc="left") for axis in figure.axes] == [s.title for s in SCENARIOS]


# The page.


def test_curves_are_densities_and_special_cases_agree():
    step = demo.GRID[1] - demo.GRID[0]
    curves = {curve.title: curve for curve in demo.combined_curves(0.3, 0.0)}
    for curve in curves.values():
        assert curve.density.sum() * step == pytest.approx(1.0, abs=1e-9)
    same = {"hybrid": "locking", demo.phase_title(0.5): "linear pool"}
    for one, other in same.items():
        np.testing.assert_allclose(curves[one].density, curves[other].density, atol=1e-12)
    whole = {curve.title: curve for curve in demo.combined_curves(0.3, 1.0)}
    np.testing.assert_allclose(whole["hybrid"].density, whole["linear pool"].density, atol=1e-12)


MOVES = """
<script>
const readings = [];
function read(label) {
  const paths = ["linear", "locking", "superposition", "hybrid"].map(id =>
    document.getElementById(id).getAttribute("d"));
  const cells = [...document.querySelectorAll("#table tr")].map(row => row.cells[2].textContent);
  readings.push({label, paths, cells});
}
function move(id, value) {
  const slider = document.getElementById(id);
  slider.value = value;
  slider.dispatchEvent(new Event("input", {bubbles: true}));
}
read("start");
move("weight", 0.3); read("weight");
move("phase", 1); read("phase");
move("exponent", 1); read("exponent");
const holder = document.createElement("pre");
holder.id = "readings";
holder.textContent = JSON.stringify(readings);
document.body.append(holder);
</script>
"""


def test_page_in_a_browser(browser, tmp_path):
    """Moving the sliders changes the curves, to what the library computes."""
    page = demo.page()
    assert not re.search(r"""(?:src|href)\s*=|@import|https?:""", page), "it works offline"
    (tmp_path / "page.html").write_text(page.replace("</body>", MOVES + "</body>"))
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
        f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    text = re.search(r'<pre id="readings">(.*?)</pre>', done.stdout, re.DOTALL)[1]
    start, weight, phase, exponent = json.loads(text)
    assert start["paths"] != weight["paths"]
    moved = [a != b for a, b in zip(weight["paths"], phase["paths"], strict=True)]
    assert moved == [False, False, True, False], "the phase moves the superposition alone"
    moved = [a != b for a, b in zip(phase["paths"], exponent["paths"], strict=True)]
    assert moved == [False, False, False, True]
    assert exponent["paths"][3] == exponent["paths"][0], "with w₀ = 1 the hybrid is the mixture"
    curves = {curve.title: curve.normaliser for curve in demo.combined_curves(0.3, 1.0)}
    ours = [curves[t] for t in ("linear pool", "locking", demo.phase_title(1.0), "hybrid")]
    np.testing.assert_allclose([float(cell) for cell in exponent["cells"]], ours, atol=1e-4)
