"""Weights by a softmax of covariates: slopes, exact integrals, and all that follows."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit

import lockquack as lq
from lockquack.errors import IdentifiabilityWarning, ParameterError, UnsupportedError
from lockquack.fitting import gated
from lockquack.fitting.basis import features, groups, splines, together
from lockquack.fitting.formulas import bootstrap_counts
from lockquack.fitting.gate import GatedObjective
from lockquack.fitting.gated import GatedFitter
from lockquack.fitting.objective import Objective
from lockquack.report import sections
from lockquack.solvers.differences import central_differences

N = 40
SIDE = np.where(np.arange(N) % 2 == 0, "left", "right")
OPERATORS = [
    lq.Linear(),
    lq.Locking(),
    lq.Superposition(),
    lq.Hybrid(),
    lq.Hoelder(),
    lq.Hoelder(-1.0),
    lq.Nested(lq.Locking(), [(lq.Linear(), ["first", "second"]), "second"]),
]


def gate_of(objective, basis):
    names = ("operator", "rule", "densities", "concentration")
    return GatedObjective(**{name: getattr(objective, name) for name in names}, basis=basis)


@pytest.fixture(scope="module")
def models():
    """Of these, the first is right on the left and the second on the right."""
    rng = np.random.default_rng(4)
    y = np.where(SIDE == "left", -0.7, 0.7) + rng.normal(size=N)
    noise = 0.05 * rng.normal(size=(4, 50))
    return {
        "down": lq.from_family("normal", y=y, mu=noise - 0.7, sigma=1.0),
        "up": lq.from_family("normal", y=y, mu=noise + 0.7, sigma=1.0),
    }


@pytest.fixture(scope="module")
def fit(models):
    return lq.stack(models, by=lq.Groups(SIDE, name="side"), weights="softmax", random_seed=1)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")  # of the constant fit
@pytest.mark.parametrize(
    ("operator", "rule"),
    [
        *[(operator, rule) for operator in OPERATORS for rule in (lq.LogScore(), lq.Hyvarinen())],
        (lq.Linear(), lq.CRPS()),
    ],
    ids=repr,
)
def test_slopes_are_those_of_finite_differences(operator, rule):
    models = lq.example_models()
    fit = lq.combine(models, operator, rule)
    rng = np.random.default_rng(2)
    spline = splines(rng.uniform(size=N), np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), 2)
    basis = together([spline, groups(np.arange(N) % 3, 3)])
    target = gate_of(fit.objective, basis).posterior(0.7, fit.solution.x)
    t = target.start + 0.3 * rng.normal(size=target.start.size)
    value, slopes = target.log_density(t)
    differences = central_differences(lambda z: np.array([target.log_density(z)[0]]), t).ravel()
    np.testing.assert_allclose(slopes, differences, rtol=1e-5, atol=1e-5)
    assert np.isfinite(value)


def exact_weights(p, group, counts=None):
    """Integrate the first weight of each of two groups over the posterior of its gate.

    Observations may count more or less often than once. Given μ and σ the groups are independent,
    so it is two integrals in one over the plane.
    """
    mu, by_mu = hermegauss(40)
    sigma = (np.arange(160) + 0.5) / 40
    u, by_u = hermegauss(60)
    shape = mu[:, None, None] + sigma[:, None] * u  # (μ, σ, u)
    weight = expit(shape)
    inner = []
    for g in range(2):
        inside = group == g
        often = np.ones(len(group)) if counts is None else counts
        likelihood = np.ones_like(weight)
        for first, second, count in zip(*p[:, inside], often[inside], strict=True):
            likelihood *= (weight * first + (1 - weight) * second) ** count
        inner.append((likelihood @ by_u, (likelihood * weight) @ by_u))
    outer = by_mu[:, None] * np.exp(-0.5 * sigma**2)
    norm = (outer * inner[0][0] * inner[1][0]).sum()
    return np.array(
        [
            (outer * inner[0][1] * inner[1][0]).sum() / norm,
            (outer * inner[0][0] * inner[1][1]).sum() / norm,
        ]
    )


def test_posterior_means_are_integrals(models, fit):
    p = np.exp([model.loo().logp for model in models.values()])
    exact = exact_weights(p, (SIDE == "right").astype(int))
    draws = np.stack([fit.objective.weights(x)[0, :2] for x in fit.fitter.flat])
    error = draws.std(axis=0) / np.sqrt(fit.fitter.sampled.ess)
    np.testing.assert_array_less(np.abs(fit.weights.values[0, :2] - exact), 4 * error)
    assert exact[0] - exact[1] > 0.2  # there is something to find


def test_leaving_one_out_by_importance_is_the_integral_without_it(models, fit):
    p = np.exp([model.loo().logp for model in models.values()])
    here = np.array([0, 1, 7])
    scores, high = gated._without_each(fit.fitter, fit.objective.at(here), fit.solution.x)
    assert not high.any()
    for i, score in zip(here, scores, strict=True):
        group = (SIDE == "right").astype(int)
        weight = exact_weights(p, group, 1.0 - np.eye(N)[i])[group[i]]
        expected = np.log(weight * p[0, i] + (1 - weight) * p[1, i])
        assert score == pytest.approx(expected, abs=0.02)


def changes_without(p, i):
    """Change of the first weight of each group without an observation, by quadrature."""
    group = (SIDE == "right").astype(int)
    return exact_weights(p, group, 1.0 - np.eye(N)[i]) - exact_weights(p, group)


def test_influence_is_the_integral_without_each_observation(models, fit):
    p = np.exp([model.loo().logp for model in models.values()])
    found = fit.influence()
    assert not found.exact.any()
    assert "importance weights of the posterior's draws" in found.lines[1]
    np.testing.assert_allclose(found.changes.sum("model"), 0.0, atol=1e-12)
    some = np.arange(0, N, 3)
    expected = np.array([changes_without(p, i).mean() for i in some])  # groups are of one size
    apart = found.changes.values[0, some] - expected
    assert np.sqrt(np.square(apart).mean()) < 0.2 * np.sqrt(np.square(expected).mean())
    scores, _ = gated._without_each(fit.fitter, fit.objective, fit.solution.x)
    alone = fit.pointwise.sel(model=found.against).values
    np.testing.assert_allclose(found.differences.values, scores - alone, rtol=1e-9)
    assert found.plot() is not None
    assert "Influence of single" in str(sections.influence(SimpleNamespace(influence=found)))


def test_what_is_drawn_again_is_the_integral_too(models, fit, monkeypatch):
    monkeypatch.setattr(gated, "_DRAWS", 100)
    p = np.exp([model.loo().logp for model in models.values()])
    some = np.array([0, 7])
    fitter = fit.fitter.exactly()
    assert fitter.is_exact(some).all()
    for i, x in zip(some, fitter.without_each(some, fit.solution.x), strict=True):
        expected = exact_weights(p, (SIDE == "right").astype(int), 1.0 - np.eye(N)[i])
        spread = 4 * fit.weights_se.values[0, :2] / np.sqrt(200)
        np.testing.assert_array_less(np.abs(x[0, :2] - expected), spread)


def test_weights_that_cannot_be_relied_on_are_drawn_again(models, fit, monkeypatch):
    """Outcomes that count a hundred times move the posterior away from its draws."""
    p = np.exp([model.loo().logp for model in models.values()])
    worst = np.argsort(p[1] / p[0] * np.where(SIDE == "left", 1.0, -1.0))[-2:]
    counts = np.ones(N) + 100.0 * np.eye(N)[worst]
    _, reliable = fit.fitter._refits.importance(counts)
    assert not reliable.any()
    monkeypatch.setattr(gated, "_SHORTLY", (2, 200))
    for u, x in zip(counts, fit.fitter.refit_many(counts, fit.solution.x), strict=True):
        expected = exact_weights(p, (SIDE == "right").astype(int), u)
        np.testing.assert_allclose(x[0, :2], expected, atol=0.03)


def test_bootstrap_replicates_are_integrals(models, fit):
    p = np.exp([model.loo().logp for model in models.values()])
    draws = fit.bootstrap(30, random_seed=5)
    assert dict(draws.sizes) == {"draw": 30, "model": 2, "obs_id": N}
    np.testing.assert_allclose(draws.sum("model"), 1.0)
    group = (SIDE == "right").astype(int)
    counts = bootstrap_counts(np.random.default_rng(5), 30, N)
    exact = np.stack([exact_weights(p, group, u) for u in counts])
    apart = draws.values[:, 0, :2] - exact
    assert np.sqrt(np.square(apart).mean()) < 0.2 * exact.std(axis=0).mean()
    np.testing.assert_allclose(draws.values[:, 0, :2].std(axis=0), exact.std(axis=0), rtol=0.15)


def test_an_observation_that_does_not_count_moves_nothing(models, fit):
    counts = np.ones(N)
    counts[3] = 0.0
    densities = replace(fit.objective.densities, case_weights=counts)
    fitter = replace(fit.fitter, objective=replace(fit.objective, densities=densities))
    (found,) = fitter.without_each(np.array([3]), fit.solution.x)
    np.testing.assert_allclose(found, fit.solution.x, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_coordinates_of_a_gate_lead_back_to_it(operator):
    fit = lq.combine(lq.example_models(), operator, lq.LogScore())
    basis = groups(np.arange(N) % 3, 3)
    sampler = gate_of(fit.objective, basis)._sampler(1.0, fit.solution.x)
    size = sum(sampler.objective.sizes) + sampler.chart.directions.shape[1]
    x = sampler.natural(0.3 * np.random.default_rng(1).normal(size=size))
    np.testing.assert_allclose(sampler.natural(sampler.free(x)), x, atol=1e-8)


def test_a_mixture_of_mean_weights_is_the_posterior_predictive(fit):
    scores = np.stack([fit.objective.scores(x) for x in fit.fitter.flat])
    predictive = np.log(np.exp(scores).mean(axis=0))
    np.testing.assert_allclose(fit.pointwise.values[0], predictive, rtol=1e-12)


def test_everything_after_the_weights(fit, tmp_path):
    assert fit.weights.shape == fit.weights_se.shape == (2, N)
    np.testing.assert_allclose(fit.weights.sum("model"), 1.0)
    table = fit.to_dataframe()
    assert (table["weight_5%"] < table["weight"])[1:].all()
    assert (table["weight_95%"] > table["weight"])[1:].all()
    fit.save(tmp_path / "fit.nc")
    again = lq.load(tmp_path / "fit.nc")
    for other in (again, pickle.loads(pickle.dumps(fit))):
        np.testing.assert_array_equal(other.weights, fit.weights)
        xr.testing.assert_identical(other.weights_at(), fit.weights_at())
        assert repr(other) == repr(fit)
    said = " ".join(repr(fit).split())
    assert "posterior mean weights by the leave-one-out log score" in said
    assert "drawn from its posterior. It is worth +" in said
    assert "4 chains of 300 draws by NUTS, 0 divergences" in said
    assert fit.pit(loo=True).sizes == {"obs_id": N}
    assert fit.sample(5, random_seed=1)["posterior_predictive/y"].sizes["obs_id"] == N
    assert fit.plot_weights_at() is not None
    assert "intervals of 90 % from the posterior" in str(sections.weights(fit))
    assert fit.plot_weights() is not None


def test_an_unseen_group_is_one_of_the_population(fit):
    with pytest.warns(IdentifiabilityWarning, match="'middle'; they are drawn from the pop"):
        at = fit.weights_at(["left", "right", "middle"])
    np.testing.assert_allclose(at["weight"].values[:, :2], fit.weights.values[:, :2], rtol=1e-12)
    mu, sigma = (fit.fitter.flat[:, i] for i in (0, 1))
    u, by_u = hermegauss(30)
    population = (expit(mu[:, None] + sigma[:, None] * u) @ by_u / by_u.sum()).mean()
    error = 4 * at["weight_se"].values[0, 2] / np.sqrt(len(mu))
    assert at["weight"].values[0, 2] == pytest.approx(population, abs=error)
    assert (at["weight_se"].values[0, 2] > at["weight_se"].values[0, :2]).all()


@pytest.mark.filterwarnings("ignore:The draws:lockquack.errors.ConvergenceWarning")  # so few
def test_draws_of_the_posterior_are_drawn_anew(fit):
    draws = fit.posterior(200, chains=2, random_seed=3)
    assert dict(draws.sizes) == {"chain": 2, "draw": 200, "model": 2, "obs_id": N}
    mean = draws.mean(["chain", "draw"]).values
    np.testing.assert_allclose(mean, fit.weights.values, atol=0.1)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda fit: fit.sandwich(), "fit.posterior"),
        (lambda fit: fit.posterior(2, prior=0.5), "effects"),
    ],
)
def test_what_cannot_be_done_says_what_can(fit, ask, says):
    with pytest.raises((UnsupportedError, ParameterError), match=says):
        ask(fit)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "give by="),
        ({"by": SIDE, "shrinkage": 1.0}, "leave shrinkage out"),
        ({"by": SIDE, "prior": 2.0}, "leave prior out"),
    ],
)
def test_what_does_not_go_with_a_softmax(models, how, says):
    with pytest.raises(ParameterError, match=says):
        lq.stack(models, weights="softmax", **how)


def test_weights_that_do_not_sum_to_one_have_no_softmax(models):
    with pytest.raises(UnsupportedError, match="sum to one"):
        lq.combine(models, lq.Locking("nonnegative"), by=SIDE, weights="softmax")
    with pytest.raises(lq.errors.UnknownNameError, match="softmax"):
        lq.stack(models, by=SIDE, weights="softmux")


def test_models_of_one_kind_have_the_weights_of_the_prior():
    """Where all models predict the same, every gate is as good: equal weights on average."""
    y = np.random.default_rng(1).normal(size=N)
    one = lq.from_family("normal", y=y, mu=np.zeros((2, 20)), sigma=1.0)
    objective = Objective(lq.Linear(), lq.LogScore(), _densities(one), np.ones(2))
    fitter = GatedFitter(gate_of(objective, groups(np.arange(N) % 4, 4)), 1.0, np.full(2, 0.5), 0)
    weights = fitter.solve().x
    np.testing.assert_allclose(weights, 0.5, atol=0.05)


def _densities(model):
    from lockquack.fitting.densities import Densities
    from lockquack.jets import bare

    return Densities(bare(np.repeat(model.loo().logp[None], 2, axis=0)))


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
@pytest.mark.parametrize(
    ("operator", "rule"), [(lq.Superposition(), lq.LogScore()), (lq.Locking(), lq.Hyvarinen())]
)
def test_what_is_common_scores_best_with_the_mean_weights(models, monkeypatch, operator, rule):
    monkeypatch.setattr(gated, "_DRAWS", 60)
    fit = lq.combine(models, operator, rule, by=SIDE, weights="softmax")
    x, width = fit.solution.x, fit.objective.heads + 1
    assert (x[width:] == x[width:, :1]).all()
    rest = fit.objective.rest
    z = rest.free(x[width:, 0])

    def value(z):
        at = rest.natural(z)
        whole = np.concatenate([x[:width], np.repeat(at[:, None], N, axis=1)])
        return np.array([fit.objective.scores(whole).sum() + rest.log_prior(at)])

    slopes = central_differences(value, z).ravel()
    np.testing.assert_allclose(slopes, 0.0, atol=1e-2 * abs(value(z)[0]))
    assert fit.fitter.rate == 1.0 if rule.is_log_likelihood else fit.fitter.rate > 0
    assert set(fit.parameters) == set(lq.combine(models, operator, rule).parameters)
    (again,) = fit.fitter.refit_many(fit.objective.counts[None], x)  # the same counts
    np.testing.assert_allclose(fit.objective.weights(again), fit.weights, atol=1e-3)
    scores = [fit.objective.scores(each).sum() for each in (again, x)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_case_weights_count_like_repetitions(models):
    """The log density is the same, so the draws are."""
    objective = lq.stack(models).objective
    basis = groups((SIDE == "right").astype(np.intp), 2)
    twice = np.repeat(np.arange(N), 2)
    weighted = replace(
        objective, densities=replace(objective.densities, case_weights=np.full(N, 2.0))
    )
    one = gate_of(weighted, basis).posterior(1.0, np.full(2, 0.5))
    other = gate_of(objective.at(twice), basis.at(twice)).posterior(1.0, np.full(2, 0.5))
    t = np.array([0.3, -0.2, 0.4, -1.0])
    for a, b in zip(one.log_density(t), other.log_density(t), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_functions_of_one_covariate_enter_as_they_are():
    rows = np.random.default_rng(2).dirichlet(np.ones(3), size=N)
    objective = gate_of(lq.stack(lq.example_models()).objective, features(rows))
    x = np.array([0.2, 0.5, 1.0, -1.0, 0.3])  # μ, σ, three effects
    weights = objective.weights(x)
    np.testing.assert_allclose(weights[0], expit(0.2 + rows @ x[2:]), rtol=1e-12)


def test_compare_has_gates_beside_other_weights(models, monkeypatch):
    monkeypatch.setattr(gated, "_DRAWS", 100)
    by, folds = lq.Groups(SIDE, name="side"), np.arange(N) // 10
    table = lq.compare(models, ["stack"], by=by, weights="softmax", cv=folds, random_seed=1)
    assert set(table.index) == {"stack", "stack ~ side", "stack ~ softmax(side)", *models}
    p = np.exp([model.loo().logp for model in models.values()])
    group, expected = (SIDE == "right").astype(int), 0.0
    for fold in range(4):
        weight = exact_weights(p, group, (folds != fold) * 1.0)[group]
        mixed = np.log(weight * p[0] + (1 - weight) * p[1])
        expected += mixed[folds == fold].sum()
    assert table["elpd"]["stack ~ softmax(side)"] == pytest.approx(expected, abs=0.3)
    with pytest.raises(ParameterError, match="give by="):
        lq.compare(models, ["stack"], weights="softmax")


@pytest.mark.parametrize("kind", [{"shrinkage": 3.0}, {"weights": "softmax"}])
def test_the_report_has_influences_of_weights_that_vary(models, fit, kind, tmp_path):
    found = fit if "weights" in kind else lq.lock(models, by=SIDE, **kind)
    found.report(tmp_path / "page.html", methods=[])
    page = (tmp_path / "page.html").read_text()
    assert "Change of each weight when one observation is left out" in page


def test_the_command_line(models, tmp_path, capsys, monkeypatch):
    from lockquack.cli import main

    monkeypatch.setattr(gated, "_DRAWS", 50)
    y = next(iter(models.values())).observations.values[:, 0]
    pd.DataFrame({"y": y, "side": SIDE}).to_csv(tmp_path / "data.csv", index=False)
    rng = np.random.default_rng(7)
    for name, at in (("down", -0.7), ("up", 0.7)):
        draws = pd.DataFrame({"mu": at + 0.05 * rng.normal(size=200), ".chain": np.arange(200) % 4})
        draws.to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / f"{name}.csv") for name in ("down", "up")]
    given = ["--y", f"{tmp_path / 'data.csv'}:y", "--family", "normal(mu=mu, sigma=1)"]
    how = ["--operator", "linear", "--by", "side", "--weights", "softmax"]
    assert main(["weights", *files, *given, *how, "--influence", "2"]) == 0
    said = capsys.readouterr().out
    assert "a softmax, drawn from its posterior" in " ".join(said.split())
    assert said.count("Without observation") == 2
    how = ["--methods", "stack", "--by", "side", "--weights", "softmax", "--cv", "2"]
    assert main(["compare", *files, *given, *how]) == 0
    assert "stack ~ softmax(side)" in capsys.readouterr().out
