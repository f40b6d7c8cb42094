"""Bambi models, against closed forms and Bambi's own log likelihood at the same draws."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    bmb = pytest.importorskip("bambi")

import lockquack as lq
from lockquack.errors import (
    EdgeError,
    LockquackWarning,
    ParameterError,
    ShapeError,
    SmoothnessError,
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
        lambda self, posterior, newdata: xr.DataArray(np.zeros((1, 2, N))),
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
    with pytest.raises(ParameterError, match="must hold the response 'y' as well"):
        from_bambi(model, idata, newdata=pd.DataFrame({"x": x}))


def test_missing_outcomes_are_those_that_bambi_drops():
    data = DATA.assign(y=DATA["y"].where(DATA.index != 3))
    draws = {**COEFFICIENTS, "sigma": SIGMA}
    model, idata = fitted("y ~ x", draws, data=data, dropna=True)
    seen = np.arange(N) != 3
    exact = lq.from_family("normal", y=Y[seen], mu=ETA[..., seen], sigma=SIGMA)
    assert_same_jets(from_bambi(model, idata), exact)


# What has no Hyvärinen score


def test_edges_are_noticed():
    mean = {"Intercept": INTERCEPT, "x": SLOPE}
    model, idata = fitted("y ~ x", mean, family="exponential", link="log")
    got = from_bambi(model, idata)
    with pytest.raises(EdgeError, match="at 0"):
        lq.lock({"a": got, "b": got})
    kappa = {"Intercept": 0 * INTERCEPT, "x": 0 * SLOPE, "kappa": np.full(SHAPE, 3.0)}
    model, idata = fitted("share ~ x", kappa, family="beta")
    with pytest.raises(EdgeError, match=r"distance\^0.5"):
        lq.lock({"a": from_bambi(model, idata), "b": from_bambi(model, idata)})


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


# Refusals


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ("censored(y, status)", "censored"),
        ("truncated(y, lb=0)", "truncated"),
        ("constrained(y, lb=0, ub=50)", "constrained"),
        ("weighted(y, weight)", "weighted"),
    ],
)
def test_changed_responses_are_refused(response, kind):
    model, idata = fitted(f"{response} ~ x", {**COEFFICIENTS, "sigma": SIGMA})
    with pytest.raises(UnsupportedError, match=f"is {kind}, which Bambi's log likelihood"):
        from_bambi(model, idata)


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
