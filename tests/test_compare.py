"""All methods side by side: held-out scores by hand, standard errors, what is left out."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import lockquack as lq
from lockquack.draws.psis import psis
from lockquack.errors import (
    EdgeError,
    ParameterError,
    ParetoWarning,
    UnknownNameError,
    UnsupportedError,
)
from lockquack.methods.method import METHODS
from lockquack.methods.verdicts import LEVEL, differences, judge, simultaneous_limit

pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")

N, SHAPE = 40, (4, 25)


class Normals:
    """Two normal models of N outcomes, with draws at hand and held-out scores done by hand."""

    def __init__(self):
        rng = np.random.default_rng(12)
        self.y = rng.normal(0.2, 1.3, size=N)
        mu = 0.2 * rng.normal(size=SHAPE)
        self.draws = {"left": (mu - 1.0, 1.0), "right": (mu + 1.0, 1.5)}
        self.models = {
            name: lq.from_family("normal", y=self.y, mu=mu, sigma=sigma)
            for name, (mu, sigma) in self.draws.items()
        }
        self.folds = np.arange(N) % 4
        self.loo = np.stack([model.loo().logp for model in self.models.values()])
        self.jets = [model.collapse().jet for model in self.models.values()]

    def subset(self, chosen):
        """The models at some observations only, from arrays of the same draws."""
        models = {}
        for name, (mu, sigma) in self.draws.items():
            z = (self.y[chosen] - mu[..., None]) / sigma
            models[name] = lq.from_arrays(
                logp=stats.norm.logpdf(z) - np.log(sigma),
                grad=-z / sigma,
                curv=np.full(z.shape, -(sigma**-2.0)),
                y=self.y[chosen],
            )
        return models

    def weights(self, fit):
        """Weights for each observation, fitted to the other folds from scratch, (2, N)."""
        w = np.empty((2, N))
        for fold in range(4):
            w[:, self.folds == fold] = fit(self.subset(self.folds != fold)).weights.values[:, None]
        return w

    def locked_log_score(self, w):
        """Log density of the locked leave-one-out predictions, normalised on a grid, (N,)."""
        grid = np.linspace(-12, 12, 500)
        on_grid = []
        for mu, sigma in self.draws.values():
            logp = stats.norm.logpdf(self.y, mu[..., None], sigma)
            log_weights = psis(logp)[0].reshape(-1, N)
            at = stats.norm.logpdf(grid[:, None], mu.ravel(), sigma)
            on_grid.append(special.logsumexp(at[:, :, None] + log_weights, axis=1))  # (grid, N)
        pooled = np.einsum("kn,kgn->gn", w, np.stack(on_grid))
        log_norm = special.logsumexp(pooled, axis=0) + np.log(grid[1] - grid[0])
        return (w * self.loo).sum(axis=0) - log_norm

    def hyvarinen(self, w):
        """Score of the locked predictions in units of the outcome, larger is better, (N,)."""
        grad, curv = (
            sum(w[k] * getattr(jet, name)[:, 0] for k, jet in enumerate(self.jets))
            for name in ("grad", "curv")
        )
        return -self.y.var(ddof=1) * (2 * curv + grad**2)


@pytest.fixture(scope="module")
def normals():
    return Normals()


@pytest.fixture(scope="module")
def table(normals):
    return lq.compare(normals.models, cv=normals.folds)


def methods_of(table):
    return table[table["kind"] == "method"]


def as_arrays(models):
    return {name: lq.from_datatree(model.to_datatree()) for name, model in models.items()}


# Held-out scores


def test_stacking_by_hand(normals, table):
    w = normals.weights(lq.stack)
    scores = special.logsumexp(normals.loo, axis=0, b=w)
    row = table.loc["stack"]
    assert row["elpd"] == row["elpd_loo"] == pytest.approx(scores.sum(), abs=1e-6)
    assert row["se"] == pytest.approx(np.sqrt(N) * scores.std(ddof=1), rel=1e-6)


def test_locking_by_hand(normals, table):
    # The unit of the score is that of all outcomes, whichever are held out.
    w = normals.weights(lambda models: lq.lock(models, scale=normals.y.std(ddof=1)))
    row = table.loc["lock"]
    assert row["elpd"] == pytest.approx(normals.locked_log_score(w).sum(), abs=1e-5)
    assert row["hyvarinen"] == pytest.approx(normals.hyvarinen(w).sum(), abs=1e-6)


def test_paired_standard_errors_by_hand(normals):
    both = methods_of(lq.compare(normals.models, ["lock", "stack"], cv=normals.folds))
    locked = normals.locked_log_score(
        normals.weights(lambda models: lq.lock(models, scale=normals.y.std(ddof=1)))
    )
    stacked = special.logsumexp(normals.loo, axis=0, b=normals.weights(lq.stack))
    gap = locked - stacked
    worse = "stack" if gap.sum() > 0 else "lock"
    assert both.index[1] == worse
    assert both.loc[worse, "elpd_diff"] == pytest.approx(-abs(gap.sum()), abs=1e-5)
    assert both.loc[worse, "dse"] == pytest.approx(np.sqrt(N) * gap.std(ddof=1), abs=1e-5)
    assert both["dse"].iloc[0] == both["elpd_diff"].iloc[0] == 0.0


def test_methods_without_a_fit_have_the_scores_of_all_observations(normals):
    # Nothing is fitted to the other folds, so every fold has the same weights.
    evidence = {"right": -3.0, "left": -2.0}
    names = ["equal", "BMA", "select by ML"]
    found = lq.compare(normals.models, names, log_marginal_likelihood=evidence)
    for name, w in zip(names, ([0.5, 0.5], special.softmax([-2.0, -3.0]), [1.0, 0.0]), strict=True):
        scores = special.logsumexp(normals.loo, axis=0, b=np.array(w)[:, None])
        assert found.loc[name, "elpd"] == pytest.approx(scores.sum(), abs=1e-9)


def test_selection_by_hand(normals, table):
    scores = np.empty(N)
    for fold in range(4):
        out = normals.folds == fold
        scores[out] = normals.loo[normals.loo[:, ~out].sum(axis=1).argmax()][out]
    assert table.loc["select", "elpd"] == pytest.approx(scores.sum(), abs=1e-9)


FUNCTIONS = {
    "lock": lq.lock,
    "lock by log": lambda m: lq.lock(m, rule="log"),
    "quack": lq.quack,
    "hybrid": lambda m: lq.combine(m, "hybrid"),
    "hoelder": lambda m: lq.combine(m, "hoelder", "log"),
    "stack": lq.stack,
    "pseudo-BMA+": lq.pseudo_bma,
    "pseudo-BMA": lambda m: lq.pseudo_bma(m, bootstrap=False),
    "select": lq.select,
    "select by H": lambda m: lq.select(m, "hyvarinen"),
    "equal": lq.equal,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_weights_are_those_of_the_function_of_that_name(normals, table, name):
    expected = FUNCTIONS[name](normals.models).weights
    found = table.loc[name, ["weight[left]", "weight[right]"]].to_numpy(dtype=float)
    np.testing.assert_allclose(found, expected, atol=1e-4)


# The table


def test_all_methods_that_the_models_allow(table):
    beside = {"quack by H", "lock by pairs", "BMA", "select by ML"}
    assert (
        set(methods_of(table).index)
        == {name for name, each in METHODS.items() if each.is_default} - beside
    )
    assert set(table.index[table["kind"] == "model"]) == {"left", "right"}
    assert table.attrs["left_out"] == {}
    assert list(table.columns) == [
        *("rank", "elpd", "elpd_diff", "dse", "p_worse", "verdict", "flags"),
        *("hyvarinen", "hyvarinen_diff", "hyvarinen_dse", "bad_k", "kind", "p_loo"),
        *("weight[left]", "weight[right]", "se", "elpd_loo", "scale"),
    ]
    np.testing.assert_allclose(table[["weight[left]", "weight[right]"]].sum(axis=1), 1.0)


def test_models_stand_beside_the_methods(normals, table):
    for k, (name, model) in enumerate(normals.models.items()):
        row = table.loc[name]
        assert row["elpd"] == pytest.approx(normals.loo[k].sum(), abs=1e-9)
        fitted = model.collapse("in-sample", derivatives=False).jet.logp
        assert row["p_loo"] == pytest.approx((fitted - normals.loo[k]).sum(), abs=1e-9)
        w = np.eye(2)[k][:, None] * np.ones(N)
        assert row["hyvarinen"] == pytest.approx(normals.hyvarinen(w).sum(), abs=1e-9)
    assert methods_of(table)["p_loo"].isna().all()


def test_a_model_that_is_called_like_a_method(normals):
    models = dict(zip(["lock", "right"], normals.models.values(), strict=True))
    found = lq.compare(models, ["lock", "stack"])
    assert set(found.index) == {"lock", "stack", "lock (model)", "right"}


def test_best_first(table):
    assert table["rank"].tolist() == list(range(len(table)))
    assert (np.diff(table["elpd"]) <= 0).all()
    np.testing.assert_allclose(table["elpd_diff"], table["elpd"] - table["elpd"].iloc[0])
    assert (table["hyvarinen_diff"] <= 0).all()
    assert table["hyvarinen_diff"].max() == 0.0
    rest = table.iloc[1:]
    expected = stats.norm.cdf(-rest["elpd_diff"] / rest["dse"])
    np.testing.assert_allclose(rest["p_worse"], expected)


# Verdicts


def scores_that_differ_by(total, se, n=400):
    """Two rows of scores whose totals differ by that much, with that paired standard error."""
    noise = np.linspace(-1, 1, n)
    return np.stack([np.zeros(n), total / n + noise * se / (np.sqrt(n) * noise.std(ddof=1))])


@pytest.mark.parametrize(
    ("total", "se", "verdict"),
    [
        (-0.05, 0.001, "noise"),  # a tenth of a nat is nothing, however sure
        (-3.0, 2.0, "noise"),
        (-3.0, 1.0, "unclear"),  # below four nats the standard error is not to be trusted
        (-30.0, 10.0, "worse"),
        (-30.0, 20.0, "noise"),
    ],
)
def test_verdicts_on_a_single_difference(total, se, verdict):
    scores = scores_that_differ_by(total, se)
    found = differences(scores)
    assert (found.total[1], found.se[1]) == (pytest.approx(total), pytest.approx(se))
    doubtful = np.zeros(scores.shape, dtype=bool)
    assert judge(scores, doubtful) == ["best", verdict]
    assert judge(np.vstack([scores, np.full(400, np.nan)]), np.zeros((3, 400), dtype=bool))[2] == (
        "not known"
    )


def test_the_hyvarinen_score_has_no_limits_in_nats():
    doubtful = np.zeros((2, 400), dtype=bool)
    assert judge(scores_that_differ_by(-3.0, 1.0), doubtful, in_nats=False)[1] == "worse"
    assert judge(scores_that_differ_by(-0.05, 0.001), doubtful, in_nats=False)[1] == "worse"


def test_few_observations_have_no_verdicts(rng):
    scores = np.array([0.0, -5.0, -9.0])[:, None] + 1e-3 * rng.normal(size=(3, 12))
    assert judge(scores, np.zeros((3, 12), dtype=bool)) == ["best", "worse", "worse"]
    few = scores[:, :9]
    assert judge(few, np.zeros((3, 9), dtype=bool)) == ["best", "unclear", "unclear"]
    assert np.isnan(differences(few).se).all()
    counts = np.append(np.zeros(6), np.ones(6))  # those without weight do not count
    assert "worse" not in judge(scores, np.zeros((3, 12), dtype=bool), case_weights=counts)


def test_what_rests_on_doubtful_observations_is_unclear(rng):
    scores = np.stack([np.zeros(200), 0.5 * rng.normal(size=200)])
    scores[1, :20] -= 3.0
    doubtful = np.zeros(scores.shape, dtype=bool)
    assert judge(scores, doubtful) == ["best", "worse"]
    doubtful[1, :20] = True
    assert judge(scores, doubtful) == ["best", "unclear"]
    assert judge(scores, doubtful[::-1]) == ["best", "unclear"]
    scores[1, 20:] -= 0.5
    assert judge(scores, doubtful) == ["best", "worse"]


def test_the_limit_for_ten_equal_rows_is_that_of_the_studentised_range(rng):
    limit = simultaneous_limit(rng.normal(size=(10, 2000)))
    assert limit == pytest.approx(
        stats.studentized_range.ppf(1 - LEVEL, 10, 1999) / 2**0.5, rel=0.03
    )
    alike = rng.normal(size=2000) + 1e-3 * rng.normal(size=(10, 2000))
    assert simultaneous_limit(alike) == pytest.approx(limit, rel=0.05)
    assert simultaneous_limit(np.zeros((3, 50))) == 2.0


def equally_good_models(rng, rows=10, n=120):
    """Regressions on one covariate each, of an outcome that depends on all in the same way."""
    x = rng.normal(size=(rows, n))
    y = x.sum(axis=0) + rng.normal(size=n)
    scale = np.sqrt(rows)
    draws = rng.normal(size=(2, 60))
    models = {}
    for k in range(rows):
        slope = (x[k] @ y) / (x[k] @ x[k]) + draws * scale / np.sqrt(x[k] @ x[k])
        sigma = scale * np.sqrt(n / rng.chisquare(n, size=(2, 60)))
        models[f"x{k}"] = lq.from_family("normal", y=y, mu=slope[..., None] * x[k], sigma=sigma)
    return models


def test_equally_good_models_are_rarely_called_worse():
    # Calling worse what is two standard errors below the best would be wrong in half the tables.
    tables, at_two, worse = 120, 0, 0
    for seed in range(tables):
        rng = np.random.default_rng(seed)
        scores = np.stack([model.loo().logp for model in equally_good_models(rng).values()])
        found = differences(scores)
        at_two += bool((-found.total > 2 * found.se).any())
        worse += "worse" in judge(scores, np.zeros(scores.shape, dtype=bool), random_seed=seed)
    assert at_two > 0.4 * tables
    # 5 % of them on average; more than 13 of 120 have a probability of 1 %.
    assert worse <= 13


def test_a_worse_model_is_called_so_among_many(rng):
    models = equally_good_models(rng)
    y = models["x0"].observations.values[:, 0]
    models["far"] = lq.from_family(
        "normal", y=y, mu=6.0 + 0.1 * rng.normal(size=(2, 60)), sigma=3.0
    )
    scores = np.stack([model.loo().logp for model in models.values()])
    verdicts = judge(scores, np.zeros(scores.shape, dtype=bool))
    assert verdicts[-1] == "worse"
    assert "worse" not in verdicts[:-1]


# What is recommended


def test_the_simplest_that_cannot_be_told_from_the_best(rng):
    y = rng.normal(size=150)
    mu = 0.1 * rng.normal(size=(4, 50))
    good = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    same = lq.from_family("normal", y=y, mu=mu, sigma=1.02)
    far = lq.from_family("normal", y=y, mu=mu + 5.0, sigma=1.0)
    found = lq.compare({"good": good, "same": same, "far": far}, ["lock", "stack", "select"])
    assert found.recommended in ("good", "same")
    assert found.loc[found.recommended, "verdict"] in ("best", "noise")
    assert f"model {found.recommended} alone" in str(found).splitlines()[1]


def test_a_combination_is_recommended_where_no_model_will_do(rng):
    y = rng.normal(size=150)
    mu = 0.1 * rng.normal(size=(4, 50))
    models = {
        "left": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=1.0),
        "right": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.0),
    }
    found = lq.compare(models, ["lock", "stack", "select", "hybrid"])
    assert found.recommended == "lock"
    assert found.loc[["stack", "select", "left", "right"], "verdict"].unique().tolist() == ["worse"]
    # Equal weights would do as well here, and are simpler than mixtures; but they mix.
    assert lq.compare(models, ["equal", "stack"]).recommended == "equal"


def test_the_printed_table_fits_a_page(table):
    lines = str(table).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1].startswith("Recommended: ")
    assert lines[-1] == "Standard errors of fewer than 100 observations are rough."
    assert "Recommended: " in table._repr_html_()
    assert type(table[["elpd"]]) is pd.DataFrame
    many = pd.DataFrame(np.ones((1, 30)), columns=[f"weight[model {k}]" for k in range(30)])
    wide = table.join(pd.concat([many] * len(table), ignore_index=True).set_axis(table.index))
    widened = type(table)(wide)
    widened.attrs = {**table.attrs, "names": tuple(f"model {k}" for k in range(30))}
    assert max(map(len, str(widened).splitlines())) <= 100
    assert "w(model 29)" in widened._repr_html_()


def test_differences_that_round_to_nothing_have_no_sign(rng):
    y = rng.normal(size=30)
    models = {
        name: lq.from_family("normal", y=y, mu=np.full((2, 30), mu), sigma=1.0)
        for name, mu in (("a", 0.0), ("b", 1e-5))
    }
    table = lq.compare(models, ["stack"])
    assert table["elpd_diff"].min() < 0.0
    assert set(table.rounded()["diff"]) == {"0.0"}


def test_weights_share_a_column_where_each_would_not_fit(rng):
    y = rng.normal(size=120)
    names = [f"a model with a name of its own, {k}" for k in range(3)]
    models = {
        name: lq.from_family("normal", y=y, mu=0.1 * rng.normal(size=(4, 50)), sigma=1.0 + k)
        for k, name in enumerate(names)
    }
    found = lq.compare(models, ["stack", "equal"])
    shown = found.rounded()
    assert shown.loc["equal", "weights"] == "0.33 0.33 0.33"
    assert shown.loc[names[1], "weights"] == "0.00 1.00 0.00"
    assert f"Weights of {', '.join(names)}, in this order." in " ".join(str(found).split())
    assert "in this order" not in found._repr_html_()


def test_pareto_warnings_as_stack_raises_them(rng):
    y = np.append(rng.normal(size=30), 15.0)
    mu, sigma = 0.4 * rng.normal(size=(4, 100)), np.exp(0.3 * rng.normal(size=(4, 100)))
    models = {
        "thin": lq.from_family("normal", y=y, mu=mu, sigma=1.5 * sigma),
        "fat": lq.from_family("student_t", y=y, nu=3.0, mu=0.1 * mu, sigma=1.0),
    }
    with pytest.warns(ParetoWarning, match="'thin'"):
        found = lq.compare(models, ["select", "equal"])
    assert "k̂" in found.loc["equal", "flags"]


def test_clear_differences_are_called_so(rng):
    y = rng.normal(size=60)
    mu = 0.1 * rng.normal(size=(4, 50))
    models = {
        "good": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "bad": lq.from_family("normal", y=y, mu=mu + 5.0, sigma=1.0),
        "good again": lq.from_family("normal", y=y, mu=mu, sigma=1.02),
    }
    found = lq.compare(models, ["stack", "equal", "select", "pseudo-BMA+"])
    assert found.loc[["equal", "bad"], "verdict"].tolist() == ["worse", "worse"]
    assert set(found.drop(["equal", "bad"])["verdict"]) <= {"best", "noise"}


def test_bad_k_counts_observations_of_models_with_weight(rng):
    y = np.append(rng.normal(size=30), 15.0)
    mu, sigma = 0.4 * rng.normal(size=(4, 100)), np.exp(0.3 * rng.normal(size=(4, 100)))
    models = {
        "thin": lq.from_family("normal", y=y, mu=mu, sigma=1.5 * sigma),
        "fat": lq.from_family("student_t", y=y, nu=3.0, mu=0.1 * mu, sigma=1.0),
    }
    high = models["thin"].loo().pareto_k > 1 - 1 / np.log10(400)
    assert high.sum() >= 1
    found = lq.compare(models, ["select", "equal"], cv=5)
    assert found.loc["select", ["weight[fat]", "bad_k"]].tolist() == [1.0, 0]
    assert found.loc["equal", "bad_k"] == high.sum()


def test_arviz_plots_the_table(table):
    pytest.importorskip("matplotlib").use("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of ArviZ, and of its use of other libraries
        az = pytest.importorskip("arviz")
        if az.__version__.startswith("0."):
            axes = az.plot_compare(table.copy())
            labels = [label.get_text() for label in axes.get_yticklabels()]
        else:
            shown = az.plot_compare(table.copy(), backend="matplotlib")
            az.plot_compare(table.copy(), relative_scale=False, backend="matplotlib")
            axes = shown.viz["plot"].item()
            labels = [label.get_text() for label in axes.get_yticklabels()]
    assert [label for label in labels if label] == list(table.index)


# Folds and seeds


def test_the_seed_decides_on_the_folds(normals):
    def elpd(**options):
        return methods_of(lq.compare(normals.models, ["stack", "pseudo-BMA+"], **options))

    pd.testing.assert_frame_equal(elpd(random_seed=1), elpd(random_seed=1))
    assert (elpd(random_seed=1)["elpd"] != elpd(random_seed=2)["elpd"]).all()
    # With one fold for each observation there is nothing to draw.
    one, two = (
        lq.compare(normals.models, ["stack"], cv=1000, random_seed=seed)["elpd"] for seed in (1, 2)
    )
    np.testing.assert_allclose(one, two, rtol=1e-9)


def test_folds_by_label(normals):
    by_number = lq.compare(normals.models, ["stack"], cv=normals.folds)
    by_name = lq.compare(normals.models, ["stack"], cv=np.array(list("abcd"))[normals.folds])
    pd.testing.assert_frame_equal(by_number, by_name)


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (1, "at least 2 folds"),
        (-3, "at least 2 folds"),
        (np.zeros(N), "all observations into one fold"),
        (np.arange(7), "fold of each of 40 observations"),
        (2.5, "a number of folds"),
        ("ten", "a number of folds"),
    ],
)
def test_bad_folds(normals, cv, message):
    with pytest.raises(ParameterError, match=message):
        lq.compare(normals.models, ["stack"], cv=cv)


# Which methods


def test_pairs_of_ones_own(normals):
    found = lq.compare(
        normals.models,
        {
            "harmonic": (lq.Hoelder(-1), lq.LogScore()),
            "as ever": ("locking", "hyvarinen"),
            "by name": "lock",
            "averaged": "BMA",
        },
        cv=normals.folds,
        log_marginal_likelihood=[0.0, -1.0],
    )
    assert set(methods_of(found).index) == {"harmonic", "as ever", "by name", "averaged"}
    assert found.loc["as ever", "elpd"] == pytest.approx(found.loc["by name", "elpd"], abs=1e-6)
    assert found.loc["averaged", "weight[left]"] == pytest.approx(special.expit(1.0))


def test_misspelt_and_odd_methods(normals):
    models = normals.models
    for methods in (["stack", "pseudo-BMA++"], {"mine": "pseudo-BMA++"}):
        with pytest.raises(UnknownNameError, match=r"Did you mean 'pseudo-BMA\+'"):
            lq.compare(models, methods)
    with pytest.raises(UnknownNameError, match="Did you mean 'lock'"):
        lq.compare(models, "locks")
    with pytest.raises(UnknownNameError, match="Did you mean 'locking'"):
        lq.compare(models, {"mine": ("loking", "log")})
    with pytest.raises(ParameterError, match="'mine' must be a pair of operator and rule"):
        lq.compare(models, {"mine": ("locking", "log", "loo")})
    with pytest.raises(ParameterError, match="'left' is not known"):
        lq.compare(models, ["BMA"])
    with pytest.raises(UnsupportedError, match="None of the methods"):
        lq.compare(models, [])
    with pytest.raises(UnknownNameError, match="Did you mean 'in-sample'"):
        lq.compare(models, scores="insample")


def test_the_form_of_the_hyvarinen_score_is_not_a_name(normals):
    with pytest.raises(ParameterError, match="must be a Hyvarinen, such as .* got 'log'"):
        lq.compare(normals.models, hyvarinen="log")


def test_marginal_likelihoods_bring_their_methods(normals):
    # Given, or found in the models.
    given = lq.compare(normals.models, ["BMA"], log_marginal_likelihood=[-1.0, -3.0])
    assert given.loc["BMA", "weight[left]"] == pytest.approx(special.expit(2.0))
    from dataclasses import replace

    arrays = {
        name: lq.Model(replace(model.source, log_marginal_likelihood=-1.0 - 2.0 * k))
        for k, (name, model) in enumerate(as_arrays(normals.models).items())
    }
    found = lq.compare(arrays, cv=2)
    assert found.loc["BMA", "weight[left]"] == pytest.approx(special.expit(2.0))
    assert found.loc["select by ML", "weight[left]"] == 1.0


# What models do not allow


def test_arrays_have_no_normaliser(normals):
    found = lq.compare(as_arrays(normals.models), cv=normals.folds)
    left_out = found.attrs["left_out"]
    assert set(left_out) == {"lock by log", "quack", "hoelder"}
    for reason in left_out.values():
        assert reason.startswith("Model 'left' is known at the observed outcomes only, so pools")
    # Pools without a log score come last, and keep their Hyvärinen score.
    last = found.loc[["lock", "quack by H", "hybrid"]]
    assert last["elpd"].isna().all()
    assert (last["verdict"] == "not known").all()
    assert last["hyvarinen"].notna().all()
    assert set(found.index[-3:]) == set(last.index)
    with pytest.raises(UnsupportedError, match="Method 'quack': Model 'left' is known at"):
        lq.compare(as_arrays(normals.models), ["quack"])


def test_the_hyvarinen_score_decides_where_there_is_no_other(normals, table):
    found = lq.compare(as_arrays(normals.models), ["lock", "quack by H"], cv=normals.folds)
    assert methods_of(found)["elpd"].isna().all()
    assert str(found).splitlines()[3].split()[:3] == ["H", "diff", "se"]
    assert (np.diff(found["hyvarinen"]) <= 0).all()
    assert found["verdict"].iloc[0] == "best"
    assert found["verdict"].iloc[1] in ("noise", "unclear", "worse")
    assert found.loc["lock", "hyvarinen"] == pytest.approx(table.loc["lock", "hyvarinen"])


def test_counts_have_no_hyvarinen_score(rng):
    y = rng.poisson(3.0, size=25)
    rate = rng.gamma(60.0, 1 / 60, size=(4, 25))
    models = {
        "low": lq.from_family("poisson", y=y, mu=2.0 * rate),
        "high": lq.from_family("poisson", y=y, mu=4.0 * rate),
    }
    found = lq.compare(models, cv=3)
    assert set(found.attrs["left_out"]) == {"lock", "hybrid", "select by H"}
    assert all("poisson is discrete" in reason for reason in found.attrs["left_out"].values())
    assert "lock by pairs" in found.index
    assert found["hyvarinen"].isna().all()
    assert found["elpd"].notna().all()
    with pytest.raises(UnsupportedError, match="Method 'lock': .*discrete"):
        lq.compare(models, ["lock"])


def test_vector_outcomes_have_no_normaliser(rng):
    y = rng.normal(size=(15, 2))
    models = {
        name: lq.from_family("mv_normal", y=y, mu=0.1 * rng.normal(size=(4, 25, 2)) + m, cov=cov)
        for name, m, cov in (("a", 0.5, np.eye(2)), ("b", -0.5, np.eye(2) + 0.5))
    }
    found = lq.compare(models, cv=3)
    assert set(found.attrs["left_out"]) == {"lock by log", "quack", "hoelder"}
    assert all("2 components" in reason for reason in found.attrs["left_out"].values())
    assert found["hyvarinen"].notna().all()


def test_pools_with_an_edge_are_left_out(rng):
    # A mixture of a density on the line and one on its positive half jumps at zero.
    y = rng.lognormal(1.0, 0.6, size=25)
    mu = 0.1 * rng.normal(size=(4, 25))
    models = as_arrays(
        {
            "normal": lq.from_family("normal", y=y, mu=3 * mu + 3.5, sigma=2.2),
            "lognormal": lq.from_family("lognormal", y=y, mu=mu + 1.0, sigma=0.6),
        }
    )
    plain = lq.Hyvarinen(transform=None)
    found = lq.compare(models, cv=2, hyvarinen=plain)
    assert "does not vanish smoothly at 0" in found.attrs["left_out"]["quack by H"]
    with pytest.raises(EdgeError, match="Method 'quack by H'"):
        lq.compare(models, ["quack by H"], hyvarinen=plain)


def test_one_form_of_the_hyvarinen_score_for_all(rng):
    y = rng.gamma(3.0, size=25)
    mu = 0.1 * rng.normal(size=(4, 25))
    models = {
        "gamma": lq.from_family("gamma", y=y, alpha=3 * np.exp(mu), beta=1.0),
        "lognormal": lq.from_family("lognormal", y=y, mu=mu + 1.0, sigma=0.6),
    }
    weighted, none = lq.Hyvarinen(transform="log"), lq.Hyvarinen(transform=None)
    names = ["lock", "stack", "lock by log"]
    plain = lq.compare(models, names, cv=3, hyvarinen=none).loc[names]
    found = lq.compare(models, names, cv=3, hyvarinen=weighted).loc[names]
    pd.testing.assert_frame_equal(found, lq.compare(models, names, cv=3).loc[names])
    np.testing.assert_allclose(
        found.loc["lock", ["weight[gamma]", "weight[lognormal]"]].to_numpy(dtype=float),
        lq.lock(models, rule=weighted).weights,
        atol=1e-6,
    )
    # It is a matter of the Hyvärinen score alone.
    np.testing.assert_allclose(found["elpd"].iloc[1:], plain["elpd"].iloc[1:], atol=1e-6)
    with pytest.raises(ParameterError, match="by hyvarinen="):
        lq.compare(models, {"mine": ("locking", none)}, cv=3)
