"""Every way to combine models by its name: formulas, peers, and what all results share."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import optimize, special, stats

import lockquack as lq
from lockquack import demo
from lockquack.errors import (
    IdentifiabilityWarning,
    ParameterError,
    UnknownNameError,
    UnsupportedError,
)
from lockquack.fitting.limits import log_score_bounds
from tests.helpers import normalise, shown, unheard

# Few draws and few observations are noted; the tests here are not about that.
pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")


@pytest.fixture(scope="module", autouse=True)
def few_replicates():
    """Tables with rough standard errors, which nothing here looks at, are made faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockquack.combination.combination._REPLICATES", 40)
        yield


def normal_models(n=25, shape=(4, 50), seed=4):
    """Three overlapping normal models of n outcomes."""
    rng = np.random.default_rng(seed)
    y = rng.normal(0.3, 1.3, size=n)
    mu = 0.15 * rng.normal(size=shape)
    sigma = np.exp(0.1 * rng.normal(size=shape))
    return {
        "left": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=sigma),
        "right": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=sigma),
        "wide": lq.from_family("normal", y=y, mu=mu, sigma=2.0 * sigma),
    }


@pytest.fixture(scope="module")
def trio():
    return normal_models()


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(3)
    y = rng.poisson(3.0, size=25)
    rate = rng.gamma(60.0, 1 / 60, size=(4, 50))
    return {
        "low": lq.from_family("poisson", y=y, mu=2.0 * rate),
        "high": lq.from_family("negative_binomial", y=y, mu=4.0 * rate, alpha=5.0),
    }


def elpds(models):
    return np.array([model.loo().logp.sum() for model in models.values()])


def from_arrays_of(models):
    """The same models without their densities elsewhere."""
    return {name: lq.from_datatree(model.to_datatree()) for name, model in models.items()}


# Bayesian model averaging

EVIDENCE = {"left": -40.0, "right": -41.5, "wide": -39.2}


def test_bma_weights_are_posterior_probabilities(trio):
    expected = special.softmax(list(EVIDENCE.values()))
    np.testing.assert_allclose(lq.bma(trio, EVIDENCE).weights, expected, rtol=1e-12)
    prior = {"left": 0.2, "right": 0.7, "wide": 0.1}
    joint = np.array(list(prior.values())) * np.exp(list(EVIDENCE.values()))
    fit = lq.bma(trio, EVIDENCE, model_prior=prior)
    np.testing.assert_allclose(fit.weights, joint / joint.sum(), rtol=1e-12)
    # Neither a common factor of the likelihoods nor the sum of the prior matters.
    shifted = {name: value - 5e4 for name, value in EVIDENCE.items()}
    again = lq.bma(trio, shifted, model_prior=[20.0, 70.0, 10.0])
    np.testing.assert_allclose(again.weights, fit.weights, rtol=1e-9)


@pytest.mark.parametrize("kind", [dict, pd.Series, lambda d: pd.Series(d).to_xarray()])
def test_bma_reads_labels_in_any_order(trio, kind):
    turned = kind({name: EVIDENCE[name] for name in ("wide", "left", "right")})
    expected = lq.bma(trio, list(EVIDENCE.values())).weights
    np.testing.assert_array_equal(lq.bma(trio, turned).weights, expected)


def test_bma_finds_marginal_likelihoods_in_sample_stats(trio):
    trees = {name: model.to_datatree() for name, model in trio.items()}
    for name, tree in trees.items():
        # As PyMC leaves them: a series per chain, whose last number is the estimate.
        series = np.array([[np.nan, -90.0, EVIDENCE[name] + e] for e in (0.3, -0.3)])
        tree["sample_stats"] = xr.DataTree(
            xr.Dataset({"log_marginal_likelihood": (("chain", "stage"), series)})
        )
    models = {name: lq.from_datatree(tree) for name, tree in trees.items()}
    np.testing.assert_allclose(
        lq.bma(models).weights, special.softmax(list(EVIDENCE.values())), rtol=1e-9
    )
    assert lq.select(models, "marginal_likelihood").weights.sel(model="wide") == 1.0
    given = lq.bma(models, {"left": 0.0, "right": 0.0, "wide": 0.0}).weights
    np.testing.assert_allclose(given, 1 / 3)


@pytest.mark.parametrize(
    ("evidence", "prior", "error", "message"),
    [
        (None, None, ParameterError, "'left' is not known.*log_marginal_likelihood=.*sample_smc"),
        ({"left": 0.0, "right": 0.0}, None, ParameterError, "says nothing about model 'wide'"),
        ({**EVIDENCE, "wiide": 0.0}, None, UnknownNameError, "Did you mean 'wide'"),
        ([0.0, 1.0], None, ParameterError, "one finite number for each of 3 models"),
        ([0.0, np.nan, 1.0], None, ParameterError, "finite"),
        (EVIDENCE, [0.5, 0.5, 0.0], ParameterError, "positive"),
        (EVIDENCE, {"left": 1.0}, ParameterError, "model_prior says nothing about"),
    ],
)
def test_bma_says_what_is_missing(trio, evidence, prior, error, message):
    with pytest.raises(error, match=message):
        lq.bma(trio, evidence, model_prior=prior)


# Pseudo-BMA


def test_pseudo_bma_is_the_softmax_of_elpd(trio):
    fit = lq.pseudo_bma(trio, bootstrap=False)
    np.testing.assert_allclose(fit.weights, special.softmax(elpds(trio)), rtol=1e-10)


def test_pseudo_bma_plus_is_its_bootstrap_mean(trio):
    fit = lq.pseudo_bma(trio, random_seed=5)
    logp = np.stack([model.loo().logp for model in trio.values()])
    n = logp.shape[1]
    u = np.random.default_rng(1).dirichlet(np.ones(n), size=20_000) * n
    replicates = special.softmax(u @ logp.T, axis=1)
    error = replicates.std(axis=0) / np.sqrt(1000)
    assert (np.abs(fit.weights.values - replicates.mean(axis=0)) < 4 * error + 1e-6).all()
    np.testing.assert_array_equal(fit.weights, lq.pseudo_bma(trio, random_seed=5).weights)
    assert np.abs(fit.weights - lq.pseudo_bma(trio, random_seed=6).weights).max() > 0


def arviz_weights(models, method):
    """Weights by ArviZ of either generation, from its own PSIS with r_eff = 1."""
    trees = {name: model.to_datatree() for name, model in models.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 0.23 announces its successor, and uses an old pandas
        az = pytest.importorskip("arviz")
        old = az.__version__.startswith("0.")
        if old:
            trees = {name: az.InferenceData.from_datatree(tree) for name, tree in trees.items()}
        elpd = {name: az.loo(tree, pointwise=True, reff=1.0) for name, tree in trees.items()}
        options = {"seed": 1} if old else {"round_to": "none"}
        table = az.compare(elpd, method=method, **options)
    return table.loc[list(models), "weight"].to_numpy(dtype=float)


def test_pseudo_bma_weights_are_those_of_arviz():
    rng = np.random.default_rng(1)
    y, mu = rng.normal(size=60), 0.1 * rng.normal(size=(4, 250))
    models = {
        name: lq.from_family("normal", y=y, mu=mu + shift, sigma=sigma)
        for name, shift, sigma in (("a", -0.1, 1.2), ("b", 0.0, 1.0), ("c", 0.2, 1.0))
    }
    plain = lq.pseudo_bma(models, bootstrap=False).weights
    np.testing.assert_allclose(plain, arviz_weights(models, "pseudo-BMA"), atol=1e-4)
    plus = lq.pseudo_bma(models)
    # Both are means over 1000 replicates, of which the bootstrap tells the spread.
    error = plus.bootstrap(1000, random_seed=1).std("draw").values * np.sqrt(2 / 1000)
    theirs = arviz_weights(models, "BB-pseudo-BMA")
    assert (np.abs(plus.weights.values - theirs) < 4 * error + 1e-4).all()


# Choosing one, or all alike


def test_select_takes_the_best_total_score(trio):
    by_log = lq.select(trio)
    assert by_log.solution.x.tolist() == np.eye(3)[elpds(trio).argmax()].tolist()
    h = [model.collapse().jet for model in trio.values()]
    totals = [float((2 * jet.curv + jet.grad**2).sum()) for jet in h]
    by_h = lq.select(trio, "hyvarinen")
    assert by_h.solution.x.tolist() == np.eye(3)[np.argmin(totals)].tolist()
    by_evidence = lq.select(trio, "marginal_likelihood", log_marginal_likelihood=EVIDENCE)
    assert by_evidence.solution.x.tolist() == [0.0, 0.0, 1.0]
    # The chosen model's own score is that of the combination.
    assert by_log.to_dataframe()["score"].iloc[0] == pytest.approx(elpds(trio).max())


@pytest.mark.parametrize("by", ["log", "hyvarinen", "marginal_likelihood"])
def test_select_takes_the_first_of_equals(trio, by):
    options = {"log_marginal_likelihood": [-3.0, -3.0]} if by == "marginal_likelihood" else {}
    fit = lq.select({"a": trio["left"], "b": trio["left"]}, by, **options)
    assert fit.solution.x.tolist() == [1.0, 0.0]


def test_select_tells_how_often_each_would_have_been_chosen(trio):
    logp = np.stack([model.loo().logp for model in trio.values()])
    draws = lq.select(trio).bootstrap(2000, random_seed=1)
    assert set(np.unique(draws)) <= {0.0, 1.0}
    u = np.random.default_rng(2).dirichlet(np.ones(25), size=20_000)
    often = np.bincount((u @ logp.T).argmax(axis=1), minlength=3) / 20_000
    np.testing.assert_allclose(draws.mean("draw"), often, atol=0.04)


def test_select_asks_for_evidence_where_it_is_used(trio):
    with pytest.raises(ParameterError, match="by='marginal_likelihood' only"):
        lq.select(trio, log_marginal_likelihood=EVIDENCE)
    with pytest.raises(ParameterError, match="not known"):
        lq.select(trio, "marginal_likelihood")
    with pytest.raises(UnknownNameError, match="Did you mean 'hyvarinen'"):
        lq.select(trio, "hyvarinnen")


def test_equal_weights(trio):
    fit = lq.equal(trio)
    np.testing.assert_array_equal(fit.weights, 1 / 3)
    mixed = special.logsumexp([m.loo().logp for m in trio.values()], axis=0) - np.log(3)
    np.testing.assert_allclose(fit.pointwise.sel(model="[equal]"), mixed, rtol=1e-12)
    with pytest.raises(UnsupportedError, match="nothing to resample"):
        fit.bootstrap()


# Quacking chooses its rule


def test_quack_uses_the_log_score_where_densities_are_known_on_a_line(trio, counts):
    for models in (trio, counts):
        assert lq.quack(models, phases=0).rule == lq.LogScore()
    assert "log score" in str(lq.quack(trio, phases=0)).splitlines()[0]


def test_quack_uses_the_hyvarinen_score_for_arrays_and_vectors(trio, rng):
    arrays = lq.quack(from_arrays_of(trio), scale=2.0)
    assert arrays.rule == lq.Hyvarinen(scale=2.0, transform=None)
    assert "Hyvärinen score" in str(arrays).splitlines()[0]
    y = rng.normal(size=(20, 2))
    vectors = {
        name: lq.from_family("mv_normal", y=y, mu=0.1 * rng.normal(size=(4, 50, 2)) + m, cov=cov)
        for name, m, cov in (("a", 0.5, np.eye(2)), ("b", -0.5, np.eye(2) + 0.5))
    }
    assert lq.quack(vectors).rule == lq.Hyvarinen(transform=None)
    # One model that is not evaluable is enough.
    mixed = {**trio, "left": from_arrays_of(trio)["left"]}
    assert lq.quack(mixed).rule == lq.Hyvarinen(transform=None)


@pytest.mark.parametrize("apart", [1.0, 2.0, 3.0, 6.0])
@pytest.mark.parametrize("by", [None, np.repeat(["a", "b"], 20)])
def test_quack_of_arrays_is_certain_to_be_no_worse_than_a_model(rng, apart, by):
    """Known without a normaliser; with it, the log score is what the bounds say."""
    y = rng.normal(size=40)
    mu = 0.05 * rng.normal(size=(2, 50))
    models = {
        name: lq.from_family("normal", y=y, mu=mu + m, sigma=1.0 + m / 6)
        for name, m in (("right", 0.0), ("beside", apart))
    }
    fit = lq.quack(from_arrays_of(models), by=by)
    least, most = log_score_bounds(fit.objective, fit.solution.x)
    alone = lq.stack(models).pointwise.sel(model="right").values
    assert least.sum() >= alone.sum() - 4.0
    assert {"uncertain-pool", "misled-score"} & {remark.code for remark in fit.remarks}
    exact = normalise(models, fit.operator, fit.pool.x, loo=True).logp
    assert (exact >= least - 1e-6).all()
    assert (exact <= most + 1e-6).all()


def test_given_phases_are_kept(trio):
    fit = lq.quack(trio, phases=0)
    assert fit.operator == lq.Superposition(0)
    np.testing.assert_array_equal(fit.parameters["phases"], 0.0)
    assert fit.solution.x.size == 3
    free = lq.quack(trio)
    assert free.solution.x.size == 6
    assert free.solution.objective <= fit.solution.objective + 1e-6
    turned = lq.quack(trio, phases=[0.0, 1.0, -0.5])
    at = np.array([0.0, 1.0, -0.5])
    relative = at - at[turned.solution.x.argmax()]
    np.testing.assert_allclose(np.abs(turned.parameters["phases"]), np.abs(relative), atol=1e-12)
    with pytest.raises(ParameterError, match="2 phases and 3 models"):
        lq.quack(trio, phases=[0.0, 1.0])


# Locking by the exact log score, and with a free sum


def test_locking_by_the_log_score_is_the_maximum_of_the_normalised_pool(rng):
    # Known normals: the pool is normal too, its precision and mean are weighted averages.
    y = rng.normal(0.5, 1.5, size=60)
    at, sd = np.array([-1.0, 2.0]), np.array([1.0, 2.0])
    models = {
        str(k): lq.from_family("normal", y=y, mu=np.full((2, 10), at[k]), sigma=sd[k])
        for k in range(2)
    }

    def minus(w):
        share = np.array([w, 1 - w]) / sd**2
        return -stats.norm.logpdf(y, share @ at / share.sum(), share.sum() ** -0.5).sum()

    best = optimize.minimize_scalar(minus, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    fit = lq.lock(models, rule="log", prior=1.0, scores="held-out")
    assert 0.05 < best.x < 0.95
    assert fit.solution.x[0] == pytest.approx(best.x, abs=1e-5)
    assert fit.solution.objective == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(
        fit.pointwise.sel(model="[lock by log]").sum(), float(fit.logpdf().sum()), rtol=1e-8
    )


@pytest.mark.parametrize(("s", "truth"), [(1.0, 2.0), (3.0, 1.0)])
def test_a_free_sum_recalibrates_a_single_model(rng, s, truth):
    # N(0, s²)^w is N(0, s²/w). H = −2w/s² + w²y²/s⁴ is least at w = s² / mean(y²).
    y = rng.normal(0.0, truth, size=300)
    model = {"only": lq.from_family("normal", y=y, mu=np.zeros((2, 20)), sigma=s)}
    for rule, tolerance in (("hyvarinen", 1e-7), ("log", 1e-4)):
        fit = lq.lock(model, rule=rule, weights="nonnegative", prior=1.0, scores="held-out")
        w = fit.solution.x[0]
        # The closed form is the same for the log score: both match the second moment.
        assert w == pytest.approx(s**2 / np.mean(y**2), rel=tolerance)
        assert s / np.sqrt(w) == pytest.approx(truth, rel=0.1)
        np.testing.assert_allclose(
            fit.logpdf(), stats.norm.logpdf(y, 0.0, s / np.sqrt(w)), atol=1e-6
        )
    assert lq.lock(model).solution.x.tolist() == [1.0]


# Names


@pytest.mark.parametrize("operator", ["linear", "locking", "superposition", "hoelder"])
def test_combine_resolves_names(trio, operator):
    fit = lq.combine(trio, operator, "hyvarinen")
    assert fit.operator.name == operator
    assert fit.rule == lq.Hyvarinen(transform=None)
    assert fit.solution.converged


def test_misspelt_names(trio):
    for call, near in (
        (lambda: lq.combine(trio, "superpositon"), "superposition"),
        (lambda: lq.combine(trio, "hoelder", "hyvarinnen"), "hyvarinen"),
        (lambda: lq.lock(trio, rule="pairwize"), "pairwise"),
        (lambda: lq.lock(trio, weights="non-negative"), "nonnegative"),
        (lambda: lq.quack(trio, rule="hyvärinen"), "hyvarinen"),
    ):
        with pytest.raises(UnknownNameError, match=f"Did you mean '{near}'"):
            call()
    with pytest.raises(UnsupportedError, match="no scale"):
        lq.lock(trio, rule="log", scale=2.0)
    with pytest.raises(UnsupportedError, match="discrete outcomes"):
        lq.lock(trio, rule="pairwise")


# What all results share

NESTED = lq.Nested(lq.Locking(), [(lq.Linear(), ["left", "right"]), "wide"])
METHODS = {
    "lock": lq.lock,
    "lock by log": lambda m: lq.lock(m, rule="log"),
    "lock, free sum": lambda m: lq.lock(m, weights="nonnegative"),
    "lock by log, free sum": lambda m: lq.lock(m, rule="log", weights="nonnegative"),
    "stack": lq.stack,
    "quack": lq.quack,
    "quack, zero phases": lambda m: lq.quack(m, phases=0),
    "quack by H": lambda m: lq.quack(m, rule="hyvarinen"),
    "hybrid": lambda m: lq.combine(m, "hybrid"),
    "hybrid, signed": lambda m: lq.combine(m, lq.Hybrid(signed=True, prior_sd=0.3)),
    "hoelder": lambda m: lq.combine(m, "hoelder", "log"),
    "hoelder by H": lambda m: lq.combine(m, lq.Hoelder(0.5)),
    "linear by H": lambda m: lq.combine(m, "linear"),
    "nested": lambda m: lq.combine(m, NESTED),
    "nested by log": lambda m: lq.combine(m, NESTED, "log"),
    "pseudo-BMA+": lambda m: lq.pseudo_bma(m, random_seed=7),
    "pseudo-BMA": lambda m: lq.pseudo_bma(m, bootstrap=False),
    "BMA": lambda m: lq.bma(m, EVIDENCE),
    "select": lq.select,
    "select by H": lambda m: lq.select(m, "hyvarinen"),
    "select by ML": lambda m: lq.select(m, "marginal_likelihood", log_marginal_likelihood=EVIDENCE),
    "equal": lq.equal,
}
PARAMETERS = {
    "quack": {"phases"},
    "quack, zero phases": {"phases"},
    "quack by H": {"phases"},
    "hybrid": {"mixture_exponent", "exponents", "mixture_weights"},
    "hybrid, signed": {"mixture_exponent", "exponents", "mixture_weights"},
    "hoelder": {"power"},
    "hoelder by H": {"power"},
}
FREE_SUM = {"lock, free sum", "lock by log, free sum", "hybrid, signed"}
NOT_RESAMPLED = {"BMA", "select by ML", "equal"}


@pytest.fixture(scope="module")
def fits(trio):
    """Results, made when first asked for."""
    made = {}

    def fit(name):
        if name not in made:
            made[name] = METHODS[name](trio)
        return made[name]

    return fit


@pytest.mark.parametrize("name", METHODS)
def test_weights_and_parameters(fits, name):
    fit = fits(name)
    assert list(fit.weights["model"].values) == ["left", "right", "wide"]
    if name in FREE_SUM:
        assert np.isfinite(fit.weights).all()
    else:
        assert float(fit.weights.sum()) == pytest.approx(1.0, abs=1e-9)
        assert (fit.weights >= 0).all()
    found = set(map(str, fit.parameters.data_vars))
    assert found >= PARAMETERS.get(name, set())
    if not name.startswith("nested"):
        assert found == PARAMETERS.get(name, set())


@pytest.mark.parametrize("name", METHODS)
def test_text_and_html_show_every_model(fits, name):
    text, page = str(fits(name)), fits(name)._repr_html_()
    for model in ("left", "right", "wide"):
        assert model in text
        assert f"<th>{model}</th>" in page
    assert "nan" not in text.lower()
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("name", METHODS)
def test_bootstrap_is_deterministic(fits, name):
    fit = fits(name)
    if name in NOT_RESAMPLED:
        with pytest.raises(UnsupportedError):
            fit.bootstrap(3)
        assert np.isnan(fit.weights_se).all()
        return
    draws = fit.bootstrap(5, random_seed=1)
    xr.testing.assert_identical(draws, fit.bootstrap(5, random_seed=1))
    assert np.abs(draws - fit.bootstrap(5, random_seed=2)).max() > 0
    if name not in FREE_SUM:
        np.testing.assert_allclose(draws.sum("model"), 1.0, atol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_files_bring_everything_back(fits, name, tmp_path):
    fit = fits(name)
    fit.save(tmp_path / "fit.nc")
    back = lq.load(tmp_path / "fit.nc")
    assert shown(back) == shown(fit)
    assert back._repr_html_().split("<br>elpd")[0] == fit._repr_html_().split("<br>elpd")[0]
    assert (back.operator, back.rule, back.label) == (fit.operator, fit.rule, fit.label)
    xr.testing.assert_identical(back.weights, fit.weights)
    xr.testing.assert_identical(back.parameters, fit.parameters)
    if name not in NOT_RESAMPLED:
        again = back.bootstrap(5, random_seed=1)
        xr.testing.assert_allclose(again, fit.bootstrap(5, random_seed=1), atol=1e-9)


@pytest.mark.parametrize("rule", ["log", "pairwise"])
def test_files_of_counts(counts, rule, tmp_path):
    fit = lq.lock(counts, rule=rule)
    fit.save(tmp_path / "fit.nc")
    back = lq.load(tmp_path / "fit.nc")
    assert shown(back) == shown(fit)
    again = back.bootstrap(5, random_seed=1)
    xr.testing.assert_allclose(again, fit.bootstrap(5, random_seed=1), atol=1e-9)


# Real data


def exact_loo_predictives():
    """Student-t leave-one-out predictives of the demonstration's regressions, in closed form."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    y, n = data.target, len(data.target)
    for columns in demo._COLUMNS.values():
        chosen = [data.feature_names.index(column) for column in columns]
        X = np.column_stack([np.ones(n), data.data[:, chosen]])
        V = np.linalg.inv(X.T @ X)
        leverage = np.einsum("ij,jk,ik->i", X, V, X)
        r = y - X @ V @ X.T @ y
        df = n - 1 - X.shape[1]
        s2 = (r @ r - r**2 / (1 - leverage)) / df
        yield stats.t(df, y - r / (1 - leverage), np.sqrt(s2 / (1 - leverage)))


def test_pools_of_the_diabetes_regressions(monkeypatch):
    # Exact scores: locking −2414.73, superposition −2418.15; a thousand draws move them by .1.
    monkeypatch.setattr(demo, "_DRAWS", 250)
    models = demo.diabetes_models()
    y = models["body"].observations.values[:, 0]
    exact = list(exact_loo_predictives())
    at_y = np.stack([p.logpdf(y) for p in exact])
    grid = np.linspace(y.min() - 700, y.max() + 700, 300)[:, None]
    on_grid, log_step = np.stack([p.logpdf(grid) for p in exact]), np.log(grid[1, 0] - grid[0, 0])

    def log_score(operator, x):
        norm = special.logsumexp(operator.pool_density(on_grid, x), axis=0) + log_step
        return (operator.pool_density(at_y, x) - norm).sum()

    added = lq.quack(models, phases=0)
    assert added.pointwise.sel(model="[quack by log]").sum() == pytest.approx(-2418.2, abs=0.3)
    assert log_score(added.operator, added.solution.x) == pytest.approx(-2418.15, abs=0.05)
    locked = lq.lock(models)
    assert log_score(locked.operator, locked.solution.x) == pytest.approx(-2414.73, abs=0.05)
    # What normalises the superposition normalises the log-linear pool as well.
    by_draws = replace(added.objective, operator=locked.operator).scores(locked.solution.x)
    assert by_draws.sum() == pytest.approx(-2414.8, abs=0.3)


def test_mixtures_of_the_diabetes_regressions():
    models = demo.diabetes_models()
    stacked, best = lq.stack(models), lq.select(models)
    assert stacked.pointwise.sel(model="[stack]").sum() == pytest.approx(-2421.7, abs=0.1)
    assert best.pointwise.sel(model="[select]").sum() == pytest.approx(-2439.6, abs=0.1)
    assert best.weights.sel(model="body") == 1.0


def test_models_that_are_alike_are_noted_by_pools_that_are_not_convex(rng):
    y, mu = rng.normal(size=40), 0.1 * rng.normal(size=(2, 100))
    models = {
        "one": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "again": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "other": lq.from_family("normal", y=y, mu=mu + 0.8, sigma=1.5),
    }
    for operator, rule in ((lq.Superposition(0), lq.LogScore()), (lq.Hybrid(), lq.Hyvarinen())):
        with pytest.warns(IdentifiabilityWarning, match="'one', 'again' cannot be distinguished"):
            lq.combine(unheard(models), operator, rule)


@pytest.mark.parametrize(
    ("method", "what"), [("equal", "The scores"), ("stack", "Scores and weights")]
)
def test_what_rests_on_unreliable_densities_is_said(method, what):
    rng = np.random.default_rng(2)
    y = np.append(rng.normal(size=9), 9.0)
    mu = y.mean() + rng.normal(size=(4, 100)) / np.sqrt(10)
    models = {str(s): lq.from_family("normal", y=y, mu=mu, sigma=s) for s in (0.9, 1.0)}
    with pytest.warns(lq.errors.ParetoWarning, match=f"{what} depend on these values"):
        getattr(lq, method)(models)
