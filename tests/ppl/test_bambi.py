"""Bambi models, against closed forms and Bambi's own log likelihood at the same draws."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    bmb = pytest.importorskip("bambi")

import lockquack as lq
from lockquack.errors import (
    EdgeError,
    LockquackWarning,
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    SmoothnessError,
    UnknownNameError,
    UnsupportedError,
)
from lockquack.sources.bambi import _container, from_bambi
from lockquack.sources.pymc import from_pymc
from tests.ppl.helpers import assert_same_jets, assert_same_outcomes, not_compiled

# What Bambi and its dependencies warn of is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::lockquack.errors.LockquackWarning"),
]

SHAPE = (2, 13)
RNG = np.random.default_rng(1)
N = 12
DATA = pd.DataFrame(
    {
        "x": RNG.normal(3.0, 1.0, size=N),  # far from centred
        "g": np.repeat(["a", "b", "c"], 4),
        "y": RNG.gamma(3.0, size=N),
        "count": RNG.poisson(3.0, size=N),
        "successes": RNG.integers(0, 5, size=N),
        "trials": np.full(N, 6),
        "share": RNG.uniform(0.1, 0.9, size=N),
        "kind": np.tile(["u", "v", "w"], 4),
        "weight": RNG.uniform(size=N),
        "status": ["none"] * N,
    }
)
Y, X = DATA["y"].to_numpy(), DATA["x"].to_numpy()
INTERCEPT, SLOPE = RNG.normal(0.5, 0.1, size=SHAPE), RNG.normal(0.2, 0.05, size=SHAPE)
ETA = INTERCEPT[..., None] + SLOPE[..., None] * X
SIGMA = RNG.gamma(50, 0.02, size=SHAPE)
COEFFICIENTS = {"Intercept": INTERCEPT, "x": SLOPE}


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


def fitted(formula, draws, family="gaussian", data=DATA, coords=None, **options):
    """Build a model and hold made-up draws as ``fit`` would return them."""
    model = bmb.Model(formula, data, family=family, **options)
    model.build()
    posterior = xr.Dataset(
        {
            name: value if isinstance(value, tuple) else (("chain", "draw"), value)
            for name, value in draws.items()
        },
        coords=coords,
    )
    return model, _container(posterior)


def gaussian():
    model, idata = fitted("y ~ x", {**COEFFICIENTS, "sigma": SIGMA})
    return model, idata, lq.from_family("normal", y=Y, mu=ETA, sigma=SIGMA)


def student_t():
    nu = RNG.gamma(20, 0.2, size=SHAPE)
    model, idata = fitted("y ~ x", {**COEFFICIENTS, "sigma": SIGMA, "nu": nu}, family="t")
    return model, idata, lq.from_family("student_t", y=Y, nu=nu, mu=ETA, sigma=SIGMA)


def gamma():
    alpha = RNG.gamma(80, 0.05, size=SHAPE)
    model, idata = fitted("y ~ x", {**COEFFICIENTS, "alpha": alpha}, family="gamma", link="log")
    rate = alpha[..., None] * np.exp(-ETA)
    return model, idata, lq.from_family("gamma", y=Y, alpha=alpha, beta=rate)


def groups():
    effect = RNG.normal(size=(*SHAPE, 3))
    draws = {
        **COEFFICIENTS,
        "sigma": SIGMA,
        "1|g_sigma": SIGMA,
        "1|g": (("chain", "draw", "g__factor_dim"), effect),
    }
    model, idata = fitted("y ~ x + (1|g)", draws, coords={"g__factor_dim": ["a", "b", "c"]})
    mu = ETA + effect[..., np.repeat([0, 1, 2], 4)]
    return model, idata, lq.from_family("normal", y=Y, mu=mu, sigma=SIGMA)


def distributional():
    draws = {**COEFFICIENTS, "sigma_Intercept": INTERCEPT, "sigma_x": -SLOPE}
    model, idata = fitted(bmb.Formula("y ~ x", "sigma ~ x"), draws)
    sigma = np.exp(INTERCEPT[..., None] - SLOPE[..., None] * X)
    return model, idata, lq.from_family("normal", y=Y, mu=ETA, sigma=sigma)


@pytest.mark.parametrize("make", [gaussian, student_t, gamma, groups, distributional])
def test_the_jets_are_those_of_the_closed_form(make):
    model, idata, exact = make()
    got = from_bambi(model, idata)
    assert_same_jets(got, exact)
    assert [edge.at for edge in got.likelihood.edges] == [e.at for e in exact.likelihood.edges]


@pytest.mark.parametrize("make", [student_t, groups])
def test_outcomes_are_drawn_as_from_the_closed_form(make):
    model, idata, exact = make()
    assert_same_outcomes(from_bambi(model, idata), exact, obs=(11, 3))


def test_lognormal():
    if "lognormal" not in bmb.defaults.families.BUILTIN_FAMILIES:
        pytest.skip("this version of Bambi has no log-normal family")
    model, idata = fitted("y ~ x", {**COEFFICIENTS, "sigma": SIGMA}, family="lognormal")
    assert_same_jets(
        from_bambi(model, idata), lq.from_family("lognormal", y=Y, mu=ETA, sigma=SIGMA)
    )


def test_the_pymc_model_behind_is_not_mistaken_for_the_same():
    model, idata, _ = gaussian()
    posterior = idata["posterior"] if isinstance(idata, xr.DataTree) else idata.posterior
    posterior.attrs["modeling_interface"] = "bambi"
    with pytest.raises(UnsupportedError, match="Use from_bambi"):
        from_pymc(model.backend.model, idata)


def test_a_version_that_is_not_understood_is_noticed(monkeypatch):
    model, idata, _ = gaussian()
    monkeypatch.setattr(
        "lockquack.sources.bambi._Fitted._log_likelihood",
        lambda self, posterior, newdata, y: np.zeros((2, N)),
    )
    with pytest.raises(UnsupportedError, match="differ from Bambi's by up to"):
        from_bambi(model, idata)


# New data


def test_the_same_posterior_at_other_rows():
    model, idata, exact = groups()
    some = DATA.iloc[[1, 5, 6, 11]]
    got = from_bambi(model, idata, newdata=some)
    rows = np.array([1, 5, 6, 11])
    np.testing.assert_array_equal(got.observations.values[:, 0], Y[rows])
    np.testing.assert_allclose(
        got.source.all_logp(slice(0, 4)), exact.source.all_logp(slice(0, N))[..., rows], rtol=1e-9
    )


def test_other_outcomes_at_other_covariates():
    model, idata, _ = gaussian()
    got = from_bambi(model, idata)
    x, y = np.array([0.0, 10.0]), np.array([1.0, -2.0])
    mu = INTERCEPT[..., None] + SLOPE[..., None] * x
    moved = got.with_data(y, newdata=pd.DataFrame({"x": x}))
    assert_same_jets(moved, lq.from_family("normal", y=y, mu=mu, sigma=SIGMA))
    with pytest.raises(ShapeError, match="newdata has 2 rows; there are 3 outcomes"):
        got.with_data(np.zeros(3), newdata=pd.DataFrame({"x": x}))
    with pytest.raises(ParameterError, match="must hold the column 'y' as well"):
        from_bambi(model, idata, newdata=pd.DataFrame({"x": x}))
    assert_same_jets(got.with_data(y, x=x), moved)
    assert_same_jets(got.with_data(Y), gaussian()[2])


def test_missing_outcomes_are_those_that_bambi_drops():
    data = DATA.assign(y=DATA["y"].where(DATA.index != 3))
    draws = {**COEFFICIENTS, "sigma": SIGMA}
    model, idata = fitted("y ~ x", draws, data=data, dropna=True)
    seen = np.arange(N) != 3
    exact = lq.from_family("normal", y=Y[seen], mu=ETA[..., seen], sigma=SIGMA)
    got = from_bambi(model, idata)
    assert_same_jets(got, exact)
    assert got.observations.describe(5) == "observation 6"
    assert (
        got.observations.label(Y[seen]).coords["obs_id"].values.tolist()
        == DATA.index[seen].tolist()
    )
    assert f"left out: 1 of {N}" in repr(got)
    predictors = data.assign(x=data["x"].where(data.index != 7), unused=np.nan)
    got = from_bambi(*fitted("y ~ x", draws, data=predictors, dropna=True))
    assert got.observations.kept.rows.tolist() == sorted(set(range(N)) - {3, 7})


def test_a_table_of_predictors_is_called_newdata():
    model, idata, _ = gaussian()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.equal({"a": from_bambi(model, idata)})
    table = pd.DataFrame({"x": [1.0, 2.0], "g": ["a", "b"]})
    for wrong in (lambda: fit.predict(table), lambda: fit.predict(data=table)):
        with pytest.raises(ParameterError, match="newdata="):
            wrong()
    with pytest.raises(ShapeError, match=r"fitted to 12 rows; there are 2 outcomes.* newdata="):
        fit.predict(table[["x"]])
    assert fit.predict(newdata=table).mean().sizes == {"obs_id": 2}


@pytest.mark.parametrize("name", ["bambi", "pymc"])
def test_libraries_that_are_not_installed(monkeypatch, name):
    model, idata, _ = gaussian()
    monkeypatch.setitem(sys.modules, name, None)
    make = {"bambi": from_bambi, "pymc": from_pymc}[name]
    with pytest.raises(ImportError, match=rf"needs {name}.* pip install 'lockquack\[{name}\]'"):
        make(model, idata)


# What has no Hyvärinen score


def test_edges_are_noticed():
    mean = {"Intercept": INTERCEPT, "x": SLOPE}
    model, idata = fitted("y ~ x", mean, family="exponential", link="log")
    got = from_bambi(model, idata)
    with pytest.raises(EdgeError, match="at 0"):
        lq.lock({"a": got, "b": got}, rule=lq.Hyvarinen(transform=None))
    kappa = {"Intercept": 0 * INTERCEPT, "x": 0 * SLOPE, "kappa": np.full(SHAPE, 3.0)}
    model, idata = fitted("share ~ x", kappa, family="beta")
    got = from_bambi(model, idata)
    with pytest.raises(EdgeError, match=r"distance\^0.5"):
        lq.lock({"a": got, "b": got}, rule=lq.Hyvarinen(transform=None))


def test_counts_have_log_densities():
    draws = {"Intercept": INTERCEPT, "x": SLOPE}
    model, idata = fitted("count ~ x", draws, family="poisson")
    got = from_bambi(model, idata)
    exact = lq.from_family("poisson", y=DATA["count"], mu=np.exp(ETA))
    np.testing.assert_allclose(got.loo().logp, exact.loo().logp, rtol=1e-9)
    assert not got.source.can.differentiate
    with pytest.raises(SmoothnessError, match="discrete"):
        lq.lock({"a": got, "b": got})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        assert float(lq.stack({"a": got, "b": exact}).weights.sum()) == pytest.approx(1.0)


def test_families_with_more_than_one_column():
    draws = {"Intercept": INTERCEPT - 1.0, "x": SLOPE}
    model, idata = fitted("p(successes, trials) ~ x", draws, family="binomial")
    got = from_bambi(model, idata)
    p = 1 / (1 + np.exp(1.0 - ETA))
    exact = lq.from_family("binomial", y=DATA["successes"], n=6, p=p)
    np.testing.assert_allclose(
        got.source.all_logp(slice(0, N)), exact.source.all_logp(slice(0, N)), rtol=1e-9
    )
    assert got.likelihood.discrete
    columns = (("chain", "draw", "kind_reduced_dim"), np.zeros((*SHAPE, 2)))
    model, idata = fitted(
        "kind ~ x",
        {"Intercept": columns, "x": columns},
        family="categorical",
        coords={"kind_reduced_dim": ["v", "w"]},
    )
    got = from_bambi(model, idata)
    np.testing.assert_allclose(got.source.all_logp(slice(0, N)), -np.log(3))
    assert got.likelihood.discrete


def test_new_trials_come_with_new_rows():
    draws = {"Intercept": INTERCEPT - 1.0, "x": SLOPE}
    model, idata = fitted("p(successes, trials) ~ x", draws, family="binomial")
    got = from_bambi(model, idata)
    x, trials = np.array([0.0, 2.0, 3.0]), np.array([1, 20, 3])
    p = 1 / (1 + np.exp(1.0 - INTERCEPT[..., None] - SLOPE[..., None] * x))
    y = np.array([1, 7, 0])
    moved = got.with_data(y, x=x, trials=trials)
    exact = lq.from_family("binomial", y=y, n=trials, p=p)
    np.testing.assert_allclose(
        moved.source.all_logp(slice(0, 3)), exact.source.all_logp(slice(0, 3)), rtol=1e-9
    )
    assert_same_outcomes(moved, exact, obs=(1, 2))
    with pytest.raises(ParameterError, match="must hold the column 'trials' as well"):
        got.with_data(y, x=x)


def quiet(verb, models, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return verb(models, **options)


def of_kinds(formula="kind ~ x", shift=0.0):
    """Make a categorical model and its probabilities at any covariates."""
    dims = ("chain", "draw", "kind_reduced_dim")
    level, slope = np.random.default_rng(3).normal(size=(2, *SHAPE, 2)) + shift
    draws = {"Intercept": (dims, level), "x": (dims, slope)}
    model, idata = fitted(
        formula, draws, family="categorical", coords={"kind_reduced_dim": ["v", "w"]}
    )

    def probabilities(x):
        eta = level[..., None, :] + slope[..., None, :] * np.asarray(x)[:, None]
        weights = np.exp(np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1))
        return weights / weights.sum(axis=-1, keepdims=True)

    return from_bambi(model, idata), probabilities


def test_categories_are_predicted_at_new_rows():
    (first, p), (second, q) = of_kinds(), of_kinds(shift=0.3)
    fit = quiet(lq.stack, {"first": first, "second": second})
    x = np.array([0.5, -1.0])
    new = fit.predict(x=x)
    w = fit.weights.values
    mixed = w[0] * p(x).mean(axis=(0, 1)) + w[1] * q(x).mean(axis=(0, 1))  # (row, level)
    for level in range(3):
        np.testing.assert_allclose(np.exp(new.logpdf(level)), mixed[:, level], rtol=1e-8)
    np.testing.assert_allclose(new.cdf(1.0), mixed[:, :2].sum(axis=1), rtol=1e-8)
    drawn = new.sample(4000, random_seed=1)["posterior_predictive"]["kind"].values[0]
    shares = [(drawn == level).mean(axis=0) for level in range(3)]
    np.testing.assert_allclose(np.transpose(shares), mixed, atol=0.03)
    # Log-linear pools of categories are sums over all of them.
    locked = quiet(lq.lock, {"first": first, "second": second}, rule="log")
    total = sum(np.exp(locked.predict(x=x).logpdf(level)) for level in range(3))
    np.testing.assert_allclose(total, 1.0)


def test_levels_are_counted_as_in_the_fit():
    model, _ = of_kinds()
    assert model.likelihood.support == (0.0, 2.0)
    dims = ("chain", "draw", "kind_reduced_dim")
    columns = (dims, np.random.default_rng(3).normal(size=(*SHAPE, 2)))
    built, idata = fitted(
        "kind ~ x", {"Intercept": columns, "x": columns}, family="categorical",
        coords={"kind_reduced_dim": ["v", "w"]},
    )  # fmt: skip
    rows = DATA.iloc[[2, 5]]  # only the last level, w
    moved = from_bambi(built, idata, newdata=rows)
    np.testing.assert_array_equal(moved.observations.values[:, 0], [2, 2])
    everything = from_bambi(built, idata).source.all_logp(slice(0, N))
    np.testing.assert_allclose(moved.source.all_logp(slice(0, 2)), everything[..., [2, 5]])
    with pytest.raises(ParameterError, match="has the level 'q' in newdata.*knows u, v, w"):
        from_bambi(built, idata, newdata=rows.assign(kind="q"))


def test_counts_of_several_kinds_at_new_rows():
    dims = ("chain", "draw", "c(count, successes, trials)_reduced_dim")
    columns = (dims, np.random.default_rng(4).normal(size=(*SHAPE, 2)))
    model, idata = fitted(
        "c(count, successes, trials) ~ x",
        {"Intercept": columns, "x": columns},
        family="multinomial",
        coords={dims[2]: ["successes", "trials"]},
    )
    got = from_bambi(model, idata)
    x, y = np.array([0.2, -0.3]), np.array([[1, 2, 3], [0, 0, 4]])
    eta = columns[1][..., None, :] * (1 + x[:, None])
    weights = np.exp(np.concatenate([np.zeros((*SHAPE, 2, 1)), eta], axis=-1))
    p = weights / weights.sum(axis=-1, keepdims=True)
    expected = stats.multinomial(y.sum(axis=1), p).logpmf(y)
    moved = got.with_data(y, x=x)
    np.testing.assert_allclose(moved.source.all_logp(slice(0, 2)), expected, rtol=1e-8)


# Marked responses


def test_censored_outcomes_have_log_scores_only():
    data = DATA.assign(status=np.where(DATA.index % 3 == 0, "right", "none"))
    draws = {**COEFFICIENTS, "sigma": SIGMA}
    model, idata = fitted("censored(y, status) ~ x", draws, data=data)
    got = from_bambi(model, idata)
    assert not got.source.can.differentiate
    with pytest.raises(SmoothnessError, match="atoms where outcomes are censored"):
        lq.lock({"a": got, "b": got})
    fit = quiet(lq.stack, {"a": got, "b": got})
    assert np.isfinite(fit.pointwise).all()
    # Where nobody says that a new outcome is censored, it is predicted itself.
    x = np.array([0.0, 3.0])
    mu = INTERCEPT[..., None] + SLOPE[..., None] * x
    exact = lq.from_family("normal", y=np.ones(2), mu=mu, sigma=SIGMA)
    assert_same_jets(got.with_data(np.ones(2), x=x), exact)
    said = got.with_data(np.ones(2), x=x, status=["right", "left"])
    of = stats.norm(mu, SIGMA[..., None])
    both = np.stack([of.logsf(1)[..., 0], of.logcdf(1)[..., 1]], axis=-1)
    np.testing.assert_allclose(said.source.all_logp(slice(0, 2)), both, rtol=1e-7)
    with pytest.raises(ParameterError, match="is 'dead' in newdata; it must be one of left"):
        got.with_data(np.ones(2), x=x, status=["right", "dead"])


def test_truncated_outcomes_have_their_edges():
    draws = {**COEFFICIENTS, "sigma": SIGMA}
    model, idata = fitted("truncated(y, lb=0) ~ x", draws)
    got = from_bambi(model, idata)
    assert got.likelihood.support == (0.0, np.inf)
    assert got.likelihood.description == "Normal between 0 and inf"
    with pytest.raises(EdgeError, match="does not vanish smoothly at 0"):
        lq.lock({"a": got, "b": got}, rule=lq.Hyvarinen(transform=None))
    fit = quiet(lq.lock, {"a": got, "b": gamma_model()}, rule=lq.Hyvarinen(transform="log"))
    assert np.isfinite(fit.logpdf()).all()
    probability = fit.predict().cdf(1e-9)
    np.testing.assert_allclose(probability, 0.0, atol=1e-6)


def gamma_model():
    return from_bambi(*gamma()[:2])


def test_weighted_responses_have_case_weights():
    draws = {**COEFFICIENTS, "sigma": SIGMA}
    model, idata = fitted("weighted(y, weight) ~ x", draws)
    got, exact = from_bambi(model, idata), gaussian()[2]
    assert_same_jets(got, exact)
    weights = DATA["weight"].to_numpy()
    np.testing.assert_array_equal(got.observations.weights, weights)
    with pytest.raises(ObservationMismatchError, match="'a' has case weights, model 'b' has none"):
        lq.lock({"a": got, "b": exact})
    fit = quiet(lq.lock, {"a": got, "b": student_t()[2].with_weights(weights)})
    assert f"case weights: sum {weights.sum():.6g}" in repr(fit)
    np.testing.assert_array_equal(
        from_bambi(model, idata, weights=np.arange(N)).observations.weights, np.arange(N)
    )
    rows = DATA.iloc[[3, 4]]
    again = from_bambi(model, idata, newdata=rows)
    np.testing.assert_array_equal(again.observations.weights, rows["weight"])
    assert got.with_data([1.0, 2.0], newdata=rows).observations.weights is None


# Refusals


def test_rows_that_cannot_be_predicted():
    model, idata, _ = groups()
    fit = quiet(lq.lock, {"grouped": from_bambi(model, idata), "other": groups()[2]})
    x = [1.0, 2.0]
    unseen = pd.DataFrame({"x": x, "g": ["a", "d"]})
    got = from_bambi(model, idata)
    with pytest.raises(ParameterError, match="newdata has 'd' in the column 'g'.*a, b, c only"):
        got.with_data([0.0, 1.0], newdata=unseen)
    with pytest.raises(ParameterError, match=r"^Model 'grouped'.*newdata has 'd' in the column"):
        fit.predict(newdata={"grouped": unseen})
    with pytest.raises(ParameterError, match="newdata lacks the column 'g', which the formula"):
        got.with_data([0.0, 1.0], newdata=unseen[["x"]])
    with pytest.raises(ParameterError, match="column 'x' of newdata has no value in row 1"):
        got.with_data([0.0, 1.0], newdata=unseen.assign(x=[1.0, np.nan], g="a"))
    with pytest.raises(ShapeError, match="newdata has 2 rows; there are 3 outcomes"):
        got.with_data(np.zeros(3), newdata=unseen.assign(g="a"))
    with pytest.raises(ShapeError, match="The model was fitted to 12 rows; there are 3 outcomes"):
        got.with_data(np.zeros(3))
    with pytest.raises(ShapeError, match="differ in length"):
        got.with_data(np.zeros(3), x=np.zeros(3), g=["a"] * 2)
    with pytest.raises(UnknownNameError, match="Unknown column 'X'"):
        got.with_data(np.zeros(3), X=np.zeros(3), g=["a"] * 3)
    with pytest.raises(ParameterError, match="newdata must be a DataFrame"):
        got.with_data(np.zeros(3), newdata=np.zeros(3))
    # Bambi leaves its own setting changed when it fails half way.
    from formulae import config

    assert config["EVAL_UNSEEN_CATEGORIES"] == "error"


def test_other_objects_are_refused():
    model, idata, _ = gaussian()
    with pytest.raises(UnsupportedError, match="needs a bambi.Model; got a Model"):
        from_bambi(model.backend.model, idata)
    with pytest.raises(UnsupportedError, match="not built"):
        from_bambi(bmb.Model("y ~ x", DATA), idata)


def test_a_fitted_model_is_locked():
    model = bmb.Model("y ~ x", DATA)
    idata = model.fit(draws=60, tune=100, chains=2, cores=1, random_seed=1, progressbar=False)
    got = from_bambi(model, idata)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.lock({"a": got, "b": from_bambi(*gaussian()[:2])})
        assert np.isfinite(fit.logpdf()).all()
