"""Models from arrays, families and ArviZ containers: the same model by every route."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import (
    EdgeError,
    LockquackError,
    NonFiniteError,
    ParameterError,
    ShapeError,
    SmoothnessError,
    SupportError,
    UnknownNameError,
    UnsupportedError,
)
from lockquack.families import FAMILIES, Edge, Mixture
from lockquack.families.base import Range
from lockquack.jets import Jet
from lockquack.models.likelihood import Likelihood

C, D, N = 3, 40, 7


def whole_jet(model) -> Jet:
    """Every draw's jet, (chain, draw, obs...)."""
    everything = slice(0, model.n_draws), slice(0, model.observations.n)
    tiles = [model.source.derivatives(c, *everything) for c in range(model.n_chains)]
    return Jet(
        np.stack([model.source.logp(c, *everything) for c in range(model.n_chains)]),
        np.stack([g for g, _ in tiles]),
        np.stack([h for _, h in tiles]),
    )


def assert_same_jets(a, b, rtol=1e-13):
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(
            getattr(whole_jet(a), part), getattr(whole_jet(b), part), rtol=rtol, atol=1e-14
        )


@pytest.fixture
def mu(rng):
    return rng.normal(size=(C, D))


@pytest.fixture
def sigma(rng):
    return rng.gamma(5.0, 0.2, size=(C, D))


@pytest.fixture
def y(rng):
    return rng.normal(size=N)


# Families


PARAMETERS = {
    "normal": {"mu": 0.3, "sigma": 1.4},
    "student_t": {"nu": 4.0, "mu": 0.3, "sigma": 1.4},
    "logistic": {"mu": 0.3, "s": 1.4},
    "lognormal": {"mu": 0.3, "sigma": 0.4},
    "gamma": {"alpha": 3.0, "beta": 1.4},
    "beta": {"alpha": 3.0, "beta": 2.4},
    "skew_normal": {"mu": 0.3, "sigma": 1.4, "alpha": 3.0},
    "gumbel": {"mu": 0.3, "beta": 1.4},
    "exponential": {"lam": 1.4},
    "half_normal": {"sigma": 1.4},
    "weibull": {"alpha": 2.4, "beta": 1.4},
    "inverse_gamma": {"alpha": 3.0, "beta": 1.4},
    "von_mises": {"mu": 0.3, "kappa": 1.4},
    "mv_normal": {"mu": np.array([0.3, 1.0]), "cov": np.array([[1.4, 0.3], [0.3, 2.0]])},
    "mv_student_t": {
        "nu": 4.0,
        "mu": np.array([0.3, 1.0]),
        "scale": np.array([[1.4, 0.3], [0.3, 2.0]]),
    },
}


@pytest.mark.parametrize("name", [name for name in FAMILIES if not FAMILIES[name].discrete])
def test_every_family_through_the_adapter(name, rng):
    family = FAMILIES[name]
    low, high = family.support
    y = rng.uniform(max(low, -2.0), min(high, 3.0), size=(N, 2) if family.multivariate else N)
    drawn = {
        key: np.asarray(value) * np.exp(0.1 * rng.normal(size=(C, D, *[1] * np.ndim(value))))
        for key, value in PARAMETERS[name].items()
    }
    model = lq.from_family(name, y=y, **drawn)
    for chain, draw in ((0, 0), (2, 17)):
        p = {key: value[chain, draw] for key, value in drawn.items()}
        expected = family.jet(y, p)
        got = whole_jet(model)
        np.testing.assert_allclose(got.logp[chain, draw], expected.logp, rtol=1e-12)
        np.testing.assert_allclose(got.grad[chain, draw], expected.grad, rtol=1e-12)
        np.testing.assert_allclose(got.curv[chain, draw], expected.curv, rtol=1e-12)
    assert model.likelihood.support == family.support
    assert model.source.can.evaluate
    assert model.source.can.differentiate


def test_parameters_broadcast_in_every_documented_shape(y, mu, sigma):
    full = lq.from_family(
        "normal",
        y=y,
        mu=np.broadcast_to(mu[..., None], (C, D, N)),
        sigma=np.broadcast_to(sigma[..., None], (C, D, N)),
    )
    assert_same_jets(lq.from_family("normal", y=y, mu=mu, sigma=sigma), full)
    x = np.linspace(0, 1, N)
    assert_same_jets(
        lq.from_family("normal", y=y, mu=x, sigma=sigma),
        lq.from_family("normal", y=y, mu=np.broadcast_to(x, (C, D, N)), sigma=sigma),
    )
    assert_same_jets(
        lq.from_family("normal", y=y, mu=0.5, sigma=sigma),
        lq.from_family("normal", y=y, mu=np.full((C, D, 1), 0.5), sigma=sigma),
    )


def test_dataarrays_are_read_by_name(y, mu, sigma):
    labelled_y = xr.DataArray(y, dims="school", coords={"school": list("abcdefg")})
    shifted = mu[..., None] + np.arange(N)
    given = xr.DataArray(shifted, dims=("chain", "draw", "school")).transpose(
        "school", "draw", "chain"
    )
    model = lq.from_family(
        "normal", y=labelled_y, mu=given, sigma=xr.DataArray(sigma, dims=("chain", "draw")).T
    )
    assert_same_jets(model, lq.from_family("normal", y=y, mu=shifted, sigma=sigma))
    assert model.observations.describe(2) == "observation 2 (school=c)"
    constant = xr.DataArray(np.arange(N) * 1.0, dims="school")
    assert_same_jets(
        lq.from_family("normal", y=labelled_y, mu=constant, sigma=sigma),
        lq.from_family("normal", y=y, mu=np.arange(N) * 1.0, sigma=sigma),
    )


def test_observations_on_a_grid(rng, mu, sigma):
    grid = rng.normal(size=(2, 3))
    y = xr.DataArray(grid, dims=("school", "year"), coords={"year": [2001, 2002, 2003]})
    offset = xr.DataArray(rng.normal(size=(3, 2)), dims=("year", "school"))
    draws = xr.DataArray(mu, dims=("chain", "draw"))
    model = lq.from_family("normal", y=y, mu=draws + offset, sigma=sigma)
    flat = lq.from_family(
        "normal",
        y=grid.ravel(),
        mu=mu[..., None] + offset.transpose("school", "year").values.ravel(),
        sigma=sigma,
    )
    assert_same_jets(model, flat)
    labelled = model.observations.label(np.arange(6.0))
    assert labelled.dims == ("school", "year")
    assert labelled.sel(school=1, year=2003) == 5


def test_regression_by_covariates_equals_the_materialised_one(rng, y, sigma):
    X, beta, alpha = rng.normal(size=(N, 2)), rng.normal(size=(C, D, 2)), rng.normal(size=(C, D))
    offset = rng.normal(size=N)
    eta = alpha[..., None] + beta @ X.T + offset
    by_rows = lq.linear_predictor(X, beta, intercept=alpha, offset=offset)
    assert_same_jets(
        lq.from_family("normal", y=y, mu=by_rows, sigma=sigma),
        lq.from_family("normal", y=y, mu=eta, sigma=sigma),
    )
    labelled = lq.linear_predictor(
        pd.DataFrame(X),
        xr.DataArray(beta, dims=("chain", "draw", "covariate")).transpose("covariate", ...),
        intercept=xr.DataArray(alpha, dims=("chain", "draw")).T,
        offset=offset,
    )
    assert_same_jets(
        lq.from_family("normal", y=y, mu=labelled, sigma=sigma),
        lq.from_family("normal", y=y, mu=eta, sigma=sigma),
    )
    for link, inverse in {"log": np.exp, "inverse": lambda e: 1 / e, "sqrt": np.square}.items():
        if link == "inverse":
            continue
        positive = np.exp(y)
        by_link = lq.linear_predictor(X, beta, intercept=alpha, offset=offset, link=link)
        assert_same_jets(
            lq.from_family("gamma", y=positive, alpha=4.0, beta=by_link),
            lq.from_family("gamma", y=positive, alpha=4.0, beta=inverse(eta)),
        )
    assert by_rows.range() == Range(eta.min(), eta.max())


def test_regression_of_a_vector_outcome(rng):
    X, beta = rng.normal(size=(N, 2)), rng.normal(size=(C, D, 2, 3))
    intercept = rng.normal(size=(C, D, 3))
    y, cov = rng.normal(size=(N, 3)), np.eye(3) + 0.4
    eta = np.einsum("np,cdpj->cdnj", X, beta) + intercept[:, :, None]
    mu = lq.linear_predictor(X, beta, intercept=intercept)
    assert_same_jets(
        lq.from_family("mv_normal", y=y, mu=mu, cov=cov),
        lq.from_family("mv_normal", y=y, mu=eta, chol=np.linalg.cholesky(cov)),
        rtol=1e-11,
    )


def test_nothing_of_size_draws_times_observations_is_kept(rng):
    import tracemalloc

    n, S = 16_000, 2000
    X, beta = rng.normal(size=(n, 3)), rng.normal(size=(4, S // 4, 3))
    y = rng.normal(size=n)
    tracemalloc.start()
    model = lq.from_family("normal", y=y, mu=lq.linear_predictor(X, beta), sigma=1.0)
    model.collapse()
    model.collapse("in-sample")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.25 * n * S * 8


def test_a_model_of_log_y_is_the_lognormal(rng, mu, sigma):
    y = rng.lognormal(size=N)
    assert_same_jets(
        lq.from_family("normal", y=y, transform="log", mu=mu, sigma=sigma),
        lq.from_family("lognormal", y=y, mu=mu, sigma=sigma),
        rtol=1e-11,
    )


def test_mass_that_no_outcome_accounts_for_is_known(rng, mu, sigma):
    y = rng.lognormal(size=N)
    assert lq.from_family(
        "normal", y=y, transform="log", mu=mu, sigma=sigma
    ).source.can.integrate_to_one
    assert not lq.from_family(
        "normal", y=y, transform="sqrt", mu=mu, sigma=sigma
    ).source.can.integrate_to_one
    assert not lq.from_family(
        "normal", y=y, transform="exp", mu=mu, sigma=sigma
    ).source.can.integrate_to_one
    assert lq.from_family(
        "lognormal", y=y, transform="exp", mu=mu, sigma=sigma
    ).source.can.integrate_to_one


def test_mixtures_and_nested_mixtures(rng, y, mu, sigma):
    w = rng.dirichlet([2.0, 3.0], size=(C, D))
    parts = [
        ("normal", {"mu": mu, "sigma": sigma}),
        ("student_t", {"nu": 5.0, "mu": mu + 1, "sigma": sigma}),
    ]
    model = lq.from_family("mixture", y=y, weights=w, components=parts)
    a = stats.norm.pdf(y, mu[..., None], sigma[..., None])
    b = stats.t.pdf(y, 5.0, mu[..., None] + 1, sigma[..., None])
    np.testing.assert_allclose(
        whole_jet(model).logp, np.log(w[..., :1] * a + w[..., 1:] * b), rtol=1e-12
    )
    nested = lq.from_family(
        "mixture",
        y=y,
        weights=np.broadcast_to([1.0, 0.0], (C, D, 2)),
        components=[("mixture", {"weights": w, "components": parts}), parts[0]],
    )
    assert_same_jets(nested, model)
    lq.check(model, thorough=True).require()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mu": 0.0, "sigm": 1.0}, "Component 1: Family 'normal' takes .* Did you mean 'sigma'"),
        ({"mu": 0.0, "sigma": -1.0}, "'component 1: sigma' must be positive; it is -1"),
        ({"mu": 0.0, "sigma": np.ones((C, D, N + 1))}, "'component 1: sigma' has shape"),
        ({"mu": 0.0, "sigma": np.ones((1, D))}, r"differ .*component 1: sigma: \(1, 40\)"),
    ],
)
def test_parameters_of_a_mixture_go_by_the_names_of_its_components(y, mu, given, message):
    parts = [("normal", {"mu": mu, "sigma": 1.0}), ("normal", given)]
    with pytest.raises(ParameterError, match=message):
        lq.from_family("mixture", y=y, weights=[0.5, 0.5], components=parts)
    good = [parts[0], parts[0]]
    with pytest.raises(ParameterError, match=r"'weights' .*\(chain, draw, 2\)"):
        lq.from_family("mixture", y=y, weights=[0.2, 0.3, 0.5], components=good)
    with pytest.raises(ParameterError, match="weights and components; got .*tau"):
        lq.from_family("mixture", y=y, weights=[0.5, 0.5], components=good, tau=1.0)
    with pytest.raises(UnsupportedError, match="Component 0: Family 'laplace' is not offered"):
        lq.from_family("mixture", y=y, weights=[1.0], components=[("laplace", {"mu": 0.0})])


def test_logp_elsewhere(y, mu, sigma):
    model = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    grid = np.stack([y - 1, y + 2])[..., None]
    got = model.source.logp_at(grid, 1, slice(3, 9), slice(2, 5))
    expected = stats.norm.logpdf(grid[:, None, 2:5, 0], mu[1, 3:9][:, None], sigma[1, 3:9][:, None])
    # The points are those of the chosen observations.
    got = model.source.logp_at(grid[:, 2:5], 1, slice(3, 9), slice(2, 5))
    np.testing.assert_allclose(got, expected, rtol=1e-13)
    by_index = model.source.logp_at(grid[:, [4, 2]], 1, slice(3, 9), np.array([4, 2]))
    np.testing.assert_allclose(by_index, expected[:, :, [2, 0]], rtol=1e-13)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"family": "norml"}, UnknownNameError, "Did you mean 'normal'"),
        ({"transform": "lgo"}, UnknownNameError, "Did you mean 'log'"),
        ({"family": ["normal"]}, UnknownNameError, "by its name, such as 'normal'; got a list"),
        ({"transform": np.log}, ParameterError, "by its name, such as 'log'; got a ufunc"),
        ({"sigma": None}, ParameterError, "'sigma' is None"),
        ({"sigma": [[1.0, 2.0], [3.0]]}, ParameterError, "'sigma' .* rows differ in length"),
        ({"mu": np.zeros((0, D))}, ParameterError, "differ"),
        ({"mu": 0.0, "sigma": np.ones((C, 0))}, ParameterError, "'sigma' has 3 chains of 0 draws"),
        ({"mu": 0.0, "sigma": np.ones((0, D, N))}, ParameterError, "0 chains of 40 draws"),
        ({"mu": np.zeros((D, N))}, ParameterError, r"\(40, 7\).*40 chains of 7 draws.*\[None\]"),
        ({"mu": np.zeros(D)}, ParameterError, r"For a single chain.*array\[None\]"),
        ({"mu": pd.Series(np.zeros(D))}, ParameterError, "40 values for 7 observations"),
        ({"sigm": 1.0, "sigma": ...}, ParameterError, "Did you mean 'sigma' by 'sigm'"),
        ({"sd": 1.0, "sigma": ...}, ParameterError, "got mu, sd. Missing: sigma. Unknown: sd.$"),
        ({"y": np.zeros((N, 1))}, ShapeError, r"y\[:, 0\]"),
        ({"component_dim": "side"}, ShapeError, "no dimension 'side'"),
        ({"mu": "zero"}, ParameterError, "'mu' is not numeric"),
        ({"tau": 1.0}, ParameterError, "takes the parameters mu, sigma; got"),
        ({"mu": np.zeros((C, D + 1))}, ParameterError, r"differ in \(chain, draw\)"),
        ({"mu": np.zeros((C, D, N + 1))}, ParameterError, "'mu' has shape"),
        ({"mu": np.zeros(N + 1)}, ParameterError, "'mu' has shape"),
        (
            {"mu": xr.DataArray(np.zeros((C, D, N + 1)), dims=("chain", "draw", "mu_dim_0"))},
            ParameterError,
            "'mu' has 8 values along 'mu_dim_0'; there are 7 observations",
        ),
        ({"y": np.zeros((2, 3, 4))}, ShapeError, "DataArray"),
        ({"y": np.zeros((N, 2))}, ShapeError, r'shape \(obs,\).*dims=\("school", "year"\)'),
        ({"y": []}, ShapeError, "empty"),
        ({"y": [0.1, np.nan, 0.3, 0.4, 0.5, 0.6, 0.7]}, NonFiniteError, "observation 1"),
        ({"transform": "log", "y": np.linspace(-1, 1, N)}, SupportError, r"\(0, inf\)"),
        (
            {"family": "gamma", "mu": ..., "sigma": ..., "alpha": 3.0, "beta": 1.0},
            SupportError,
            "observation",
        ),
    ],
)
def test_bad_family_input(y, mu, sigma, changes, error, message):
    given = {"family": "normal", "y": y, "mu": mu, "sigma": sigma, **changes}
    given = {key: value for key, value in given.items() if value is not ...}
    with pytest.raises(error, match=message):
        lq.from_family(given.pop("family"), **given)


@pytest.mark.parametrize(
    "given",
    [
        {"weights": np.full((C, D, 2), 0.5)},
        {"weights": np.full((C, D, 2), 0.5), "components": "normal"},
        {"weights": np.full((C, D, 2), 0.5), "components": [("normal",), ("normal",)]},
        {"components": [("normal", {"mu": 0.0, "sigma": 1.0})]},
    ],
)
def test_bad_mixtures(y, given):
    with pytest.raises(ParameterError, match=r"components|weights"):
        lq.from_family("mixture", y=y, **given)


@pytest.mark.parametrize(("bad", "wanted"), [(np.nan, "finite"), (-1.0, "positive")])
def test_a_bad_draw_is_found_where_it_is(y, mu, sigma, bad, wanted):
    sigma[1, 3] = bad
    said = rf"'sigma' must be {wanted}; it is {bad:g} at chain 1, draw 3\."
    with pytest.raises(ParameterError, match=said):
        lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    each = np.ones((C, D, N))
    each[2, 5, 4] = bad
    with pytest.raises(ParameterError, match=r"at chain 2, draw 5, observation 4\."):
        lq.from_family("normal", y=y, mu=mu, sigma=each)
    with pytest.raises(ParameterError, match=rf"it is {bad:g} at observation 4\."):
        lq.from_family("normal", y=y, mu=mu, sigma=each[2, 5])
    with pytest.raises(ParameterError, match=rf"it is {bad:g}\."):
        lq.from_family("normal", y=y, mu=mu, sigma=bad)


def test_the_domain_comes_before_the_edges(rng):
    y, alpha = rng.gamma(2.0, size=N), np.full((C, D), 3.0)
    alpha[0, 1] = -1.0  # an edge of order −2: the density would be said to diverge at 0
    with pytest.raises(ParameterError, match="'alpha' must be positive; it is -1 at chain 0"):
        lq.from_family("gamma", y=y, alpha=alpha, beta=1.0)


def test_a_bad_draw_of_a_regression_is_found_when_it_is_read(y, mu):
    sigma = lq.linear_predictor(np.ones((N, 1)), np.full((C, D, 1), -1.0))
    model = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    with pytest.raises(ParameterError, match=r"Model 'bad': .*'sigma'.*positive"):
        lq.lock({"bad": model})
    with pytest.raises(ParameterError, match=r"'alpha' must be positive; .* is -1.*link='log'"):
        lq.from_family("gamma", y=np.exp(y), alpha=sigma, beta=1.0)


MATRIX = np.eye(2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mu": np.zeros((C, D, 1)), "cov": MATRIX}, r"'mu' .*\(3, 40, 1\).*\(chain, draw, 2\)"),
        ({"mu": np.zeros((C, D)), "cov": MATRIX}, r"'mu' .*lacks its own axes.*\(2,\)"),
        ({"mu": np.zeros((D, 2)), "cov": MATRIX}, r"'mu' .*single chain.*array\[None\]"),
        ({"mu": np.zeros(2), "cov": np.eye(3)}, r"'cov' .*\(chain, draw, 2, 2\)"),
        ({"mu": np.zeros(2), "cov": np.ones((C, D))}, r"'cov' .*\(2, 2\)"),
        ({"mu": xr.DataArray(np.zeros(3), dims="side"), "cov": MATRIX}, r"'side': 3.*\(2,\)"),
        ({"mu": xr.DataArray(np.zeros((C, D)), dims=("chain", "draw")), "cov": MATRIX}, r"\(2,\)"),
        (
            {"mu": lq.linear_predictor(np.zeros((N, 1)), np.zeros((C, D, 1, 3))), "cov": MATRIX},
            r"coef of shape \(3, 40, 1, 3\).*\(3, 40, 1, 2\)",
        ),
        (
            {"mu": lq.linear_predictor(np.zeros((N, 1)), np.zeros((C, D, 1))), "cov": MATRIX},
            r"\(3, 40, 1, 2\)",
        ),
    ],
)
def test_sizes_of_vector_parameters(given, message):
    with pytest.raises(ParameterError, match=message):
        lq.from_family("mv_normal", y=np.zeros((N, 2)), **given)


def test_event_shapes():
    mixture = Mixture([Mixture([FAMILIES["mv_normal"]] * 3), FAMILIES["mv_student_t"]])
    shapes = {"weights": (2,), "0.weights": (3,), "0.2.cov": (5, 5), "1.mu": (5,), "1.nu": ()}
    assert {name: mixture.event_shape(name, 5) for name in shapes} == shapes
    assert mixture.event_shape("1.chol", 5) == (5, 5)


def test_a_vector_outcome_without_its_component_dimension():
    y = xr.DataArray(np.zeros((N, 2)), dims=("time", "side"))
    with pytest.raises(ShapeError, match="component_dim='side'"):
        lq.from_family("mv_normal", y=y, mu=np.zeros(2), cov=MATRIX)
    with pytest.raises(ShapeError, match="column"):
        lq.from_family("mv_normal", y=np.zeros(N), mu=np.zeros(2), cov=MATRIX)


def test_names_decide_what_is_a_draw(rng):
    """As many chains and draws as schools and years: names tell them apart, places do not."""
    values, table = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    y = xr.DataArray(values, dims=("school", "year"))
    by_draw = lq.from_family(
        "normal", y=y, mu=xr.DataArray(table, dims=("chain", "draw")), sigma=1.0
    )
    assert (by_draw.n_chains, by_draw.n_draws) == (2, 3)
    np.testing.assert_allclose(
        whole_jet(by_draw).grad[..., 0], table[..., None] - values.ravel(), rtol=1e-14
    )
    by_place = lq.from_family(
        "normal", y=y, mu=xr.DataArray(table, dims=("school", "year")), sigma=1.0
    )
    np.testing.assert_allclose(
        whole_jet(by_place).grad[0, 0, :, 0], (table - values).ravel(), rtol=1e-14
    )
    with pytest.raises(ParameterError, match=r"could be \(chain, draw\) or the grid .*DataArray"):
        lq.from_family("normal", y=y, mu=table, sigma=1.0)


def test_a_parameter_of_some_dimensions_is_broadcast_over_the_others(rng):
    y = xr.DataArray(rng.normal(size=(2, 3)), dims=("school", "year"))
    school = xr.DataArray(rng.normal(size=(D, 2, C)), dims=("draw", "school", "chain"))
    year = xr.DataArray(rng.normal(size=3), dims="year")
    whole = (school + year + 0 * y).transpose("chain", "draw", "school", "year")
    for mu in (school, year, school + year):
        full = (mu + 0 * whole).transpose("chain", "draw", "school", "year")
        assert_same_jets(
            lq.from_family("normal", y=y, mu=mu, sigma=np.ones((C, D))),
            lq.from_family("normal", y=y, mu=full, sigma=1.0),
        )
    for unknown in ({"school": "county"}, {"school": "county", "year": "month"}):
        with pytest.raises(ParameterError, match=r"'county'.*\('school', 'year'\)"):
            lq.from_family("normal", y=y, mu=whole.rename(unknown), sigma=1.0)
    with pytest.raises(ParameterError, match=r"'school': 1.*'school': 2"):
        lq.from_family("normal", y=y, mu=school[:, :1], sigma=1.0)
    with pytest.raises(ParameterError, match=r"dims=\('school', ...\)"):
        lq.from_family("normal", y=y, mu=np.zeros(2), sigma=1.0)
    with pytest.raises(ParameterError, match=r"lacks 'chain'.*expand_dims\('chain'\)"):
        lq.from_family("normal", y=y, mu=school[..., 0], sigma=1.0)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("categorical", "discrete.*from_arrays.*log score"),
        ("beta_binomial", "discrete"),
        ("zero_inflated_binomial", "discrete"),
        ("DiscreteUniform", "discrete"),
        ("laplace", "kink.*student_t"),
        ("asymmetric_laplace", "kink.*skew_normal"),
        ("uniform", "jumps.*beta"),
        ("pareto", "smallest value.*from_arrays.*log score"),
        ("truncated_normal", "cut off.*from_arrays.*log score"),
    ],
)
def test_likelihoods_that_are_not_offered_say_why(y, mu, name, reason):
    with pytest.raises(UnsupportedError, match=f"'{name}' is not offered.*{reason}") as caught:
        lq.from_family(name, y=y, mu=mu)
    assert "Did you mean" not in str(caught.value)
    parts = array_parts(lq.from_family("normal", y=y, mu=mu, sigma=1.0))
    model = lq.from_arrays(**parts, y=y, likelihood=name)
    assert f"Model {name};" in repr(model)
    with pytest.raises(SmoothnessError, match=f"{name} is (discrete|not smooth)"):
        lq.lock({"refused": model})


@pytest.mark.parametrize("name", ["half-cauchy", "HalfStudentT", "exponential", "HalfNormal"])
def test_a_name_tells_of_an_edge_at_0(y, mu, name):
    parts = array_parts(lq.from_family("normal", y=np.exp(y), mu=mu, sigma=1.0))
    model = lq.from_arrays(**parts, y=np.exp(y), likelihood=name)
    assert model.likelihood.support == (0.0, np.inf)
    assert model.likelihood.order_at(0.0) == 0.0
    bounded = lq.from_arrays(**parts, y=np.exp(y), likelihood=name, support=(0.0, np.inf))
    assert bounded.likelihood == model.likelihood  # a support does not make it vanish
    with pytest.raises(EdgeError, match="does not vanish smoothly at 0"):
        lq.lock({"edge": model}, rule=lq.Hyvarinen(transform=None))


def test_half_families_that_are_not_offered_say_why(y, mu):
    said = r"'half-cauchy' .*not vanish at 0.*from_arrays .*Hyvarinen\(transform='log'\).*log score"
    with pytest.raises(UnsupportedError, match=said):
        lq.from_family("half-cauchy", y=y, beta=mu)


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("Poisson", "poisson"),
        ("Binomial", "binomial"),
        ("Bernoulli", "bernoulli"),
        ("NegativeBinomial", "negative_binomial"),
        ("Exponential", "exponential"),
        ("half-normal", "half_normal"),
        ("Weibull", "weibull"),
    ],
)
def test_another_spelling_of_a_family_is_recognised(y, mu, name, offered):
    with pytest.raises(UnknownNameError, match=f"Did you mean '{offered}'"):
        lq.from_family(name, y=y, mu=mu)
    parts = array_parts(lq.from_family("normal", y=y, mu=mu, sigma=1.0))
    likelihood = lq.from_arrays(**parts, y=y, likelihood=name).likelihood
    assert likelihood.discrete == FAMILIES[offered].discrete
    if name == "Weibull":  # its density may vanish at 0: that depends on its shape
        assert likelihood == Likelihood("Weibull")


@pytest.mark.parametrize(
    ("X", "coef", "options", "message"),
    [
        (np.zeros((N, 3)), np.zeros((C, D, 2)), {}, "same p"),
        (np.zeros(N), np.zeros((C, D, 2)), {}, "same p"),
        (np.zeros((N, 2)), np.zeros((C, D, 2)), {"intercept": np.zeros(D)}, "intercept"),
        (np.zeros((N, 2)), np.zeros((C, D, 2)), {"link": "logg"}, "Did you mean 'log'"),
        (np.zeros((N + 1, 2)), np.zeros((C, D, 2)), {}, "rows"),
        (np.zeros((N, 2)), np.zeros((C, D, 2)), {"offset": np.zeros(N + 1)}, "offset.*one per row"),
        (np.zeros((N, 2)), np.zeros((C, D, 2)), {"offset": [np.nan] * N}, "offset .* at row 0"),
        (
            np.diag(np.full(N, np.nan))[:, :2],
            np.zeros((C, D, 2)),
            {},
            "X .* nan at row 0, column 0",
        ),
        (np.zeros((N, 2)), np.full((C, D, 2), np.inf), {}, "coef .* inf at chain 0, draw 0"),
        (np.zeros((N, 2)), np.zeros((C, 0, 2)), {}, "'mu' has 3 chains of 0 draws"),
        (np.zeros((N, 2)), np.zeros((C, D, 2)), {"link": np.exp}, "Unknown link"),
    ],
)
def test_bad_regressions(y, X, coef, options, message):
    with pytest.raises(LockquackError, match=message):
        lq.from_family("normal", y=y, mu=lq.linear_predictor(X, coef, **options), sigma=1.0)


def test_a_regression_is_shown_in_one_line():
    shown = repr(lq.linear_predictor(np.zeros((N, 2)), np.zeros((C, D, 2)), link="log"))
    assert shown == "<LinearPredictor, log link; chain: 3, draw: 40, obs: 7, covariates: 2>"


# Arrays


def array_parts(model):
    jet = whole_jet(model)
    return {"logp": jet.logp, "grad": jet.grad[..., 0], "curv": jet.curv[..., 0]}


def test_arrays_carry_the_same_model(y, mu, sigma):
    model = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    assert_same_jets(lq.from_arrays(**array_parts(model), y=y), model)


def test_labelled_arrays_in_any_order(y, mu, sigma):
    model = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    labelled = {
        key: xr.DataArray(value, dims=("chain", "draw", "person")).transpose("person", ...)
        for key, value in array_parts(model).items()
    }
    assert_same_jets(lq.from_arrays(**labelled, y=y), model)
    assert lq.from_arrays(**labelled, y=y).observations.dims == ("person",)
    with pytest.raises(ShapeError, match="child"):
        lq.from_arrays(**labelled, y=xr.DataArray(y, dims="child"))


def test_arrays_of_a_vector_outcome(rng):
    y, cov = rng.normal(size=(N, 2)), np.eye(2) + 0.3
    mu = rng.normal(size=(C, D, 2))
    model = lq.from_family("mv_normal", y=y, mu=mu, cov=cov)
    jet = whole_jet(model)
    assert_same_jets(lq.from_arrays(logp=jet.logp, grad=jet.grad, curv=jet.curv, y=y), model)


def test_arrays_with_a_support(y, mu, sigma):
    parts = array_parts(lq.from_family("normal", y=y, mu=mu, sigma=sigma))
    low = y.min() - 1
    bounded = lq.from_arrays(**parts, y=y, support=(low, np.inf))
    assert bounded.likelihood.support == (low, np.inf)
    for bad in ((1.0, 0.0), (0.0, 0.0), (0.0,), 3.0, "real", (np.nan, 1.0)):
        with pytest.raises(SupportError, match="support"):
            lq.from_arrays(**parts, y=y, support=bad)
    at = int(np.flatnonzero(y <= 0)[0])
    with pytest.raises(
        SupportError, match=rf"support needs values in \(0, inf\).*observation {at}"
    ):
        lq.from_arrays(**parts, y=y, support=(0.0, np.inf))


def test_the_missing_axis_of_arrays_is_named(rng):
    y, logp, full = rng.normal(size=(N, 2)), np.zeros((C, D, N)), np.zeros((C, D, N, 2))
    lq.from_arrays(logp=logp, grad=full, curv=full, y=y)
    with pytest.raises(ShapeError, match="grad .*axis of the 2 components"):
        lq.from_arrays(logp=logp, grad=full[..., 0], curv=full, y=y)
    with pytest.raises(ShapeError, match=r"curv .*single chain.*array\[None\]"):
        lq.from_arrays(logp=logp, grad=full, curv=full[0], y=y)
    with pytest.raises(ShapeError, match="logp has 3 chains of 0 draws"):
        lq.from_arrays(logp=logp[:, :0], grad=full[:, :0], curv=full[:, :0], y=y)
    with pytest.raises(LockquackError, match="likelihood must be a name; got a int"):
        lq.from_arrays(logp=logp, grad=full, curv=full, y=y, likelihood=3)


@pytest.mark.parametrize("name", ["logp", "grad", "curv"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_located(y, mu, sigma, name, bad):
    parts = array_parts(lq.from_family("normal", y=y, mu=mu, sigma=sigma))
    parts[name][2, 11, 4] = bad
    with pytest.raises(NonFiniteError, match=f"{name} is {bad} at chain 2, draw 11, observation 4"):
        lq.from_arrays(**parts, y=y)


def test_large_finite_values_are_let_through(y, mu, sigma):
    parts = array_parts(lq.from_family("normal", y=y, mu=mu, sigma=sigma))
    lq.from_arrays(**{**parts, "logp": np.full((C, D, N), -1e99)}, y=y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logp": np.zeros((D, N))}, "add its axis"),
        ({"grad": np.zeros((C, D, N + 1))}, "grad must have shape"),
        ({"curv": np.zeros((C, D + 1, N))}, "curv has 3 chains of 41 draws"),
        ({"y": np.zeros(N - 1)}, "logp must have shape"),
        ({"logp": xr.DataArray(np.zeros((D, N)), dims=("draw", "obs_id"))}, "chain"),
    ],
)
def test_bad_arrays(y, mu, sigma, changes, message):
    parts = array_parts(lq.from_family("normal", y=y, mu=mu, sigma=sigma))
    with pytest.raises(ShapeError, match=message):
        lq.from_arrays(**{**parts, "y": y, **changes})


def test_arrays_cannot_be_evaluated_elsewhere(y, mu, sigma):
    model = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    arrays = lq.from_arrays(**array_parts(model), y=y)
    assert not arrays.source.can.evaluate
    with pytest.raises(UnsupportedError, match="from_family"):
        arrays.source.logp_at(np.zeros((1, N, 1)), 0, slice(0, 1), slice(0, N))


# ArviZ containers


@pytest.fixture
def labelled(rng, mu, sigma):
    y = xr.DataArray(
        np.exp(rng.normal(size=N)), dims="school", coords={"school": [f"s{i}" for i in range(N)]}
    )
    return lq.from_family("normal", y=y, transform="log", mu=mu, sigma=sigma)


@pytest.fixture
def vector(rng):
    y = xr.DataArray(
        rng.normal(size=(N, 2)), dims=("time", "side"), coords={"side": ["left", "right"]}
    )
    mu = rng.normal(size=(C, D, 2))
    return lq.from_family("mv_normal", y=y, component_dim="side", mu=mu, cov=np.eye(2) + 0.3)


@pytest.mark.parametrize("which", ["labelled", "vector"])
def test_container_round_trip(which, request):
    model = request.getfixturevalue(which)
    back = lq.from_datatree(model.to_datatree())
    assert_same_jets(back, model)
    assert back.likelihood == model.likelihood
    xr.testing.assert_identical(back.observations.to_dataarray(), model.observations.to_dataarray())


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
@pytest.mark.parametrize("which", ["labelled", "vector"])
def test_file_round_trip(which, suffix, request, tmp_path):
    model = request.getfixturevalue(which)
    path = tmp_path / f"model{suffix}"
    model.save(path)
    back = lq.from_datatree(str(path))
    assert_same_jets(back, model)
    assert back.likelihood == model.likelihood
    np.testing.assert_array_equal(
        back.observations.to_dataarray().values, model.observations.to_dataarray().values
    )


def test_saved_models_are_combined_in_another_process(normals, tmp_path):
    for name, model in normals.items():
        model.save(tmp_path / f"{name}.nc")
    script = (
        "import sys, lockquack as lq\n"
        "models = {p: lq.from_datatree(f'{sys.argv[1]}/{p}.nc') for p in sys.argv[2:]}\n"
        "print(*lq.lock(models).weights.values.tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), *normals],
        capture_output=True,
        text=True,
        check=True,
    )
    weights = [float(word) for word in done.stdout.split()]
    np.testing.assert_allclose(weights, lq.lock(normals).weights, rtol=1e-9)


def test_inference_data(labelled):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
        container = getattr(arviz, "InferenceData", xr.DataTree)
    if container is xr.DataTree:
        # ArviZ 1 has no container of its own any more: its containers are DataTrees.
        assert issubclass(arviz.convert_to_datatree(labelled.to_datatree()).__class__, xr.DataTree)
        return
    tree = labelled.to_datatree()
    groups = {name: tree[name].to_dataset() for name in tree.children}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = container(**groups)
    assert_same_jets(lq.from_datatree(data), labelled)


def test_what_is_missing_from_a_container_is_said(labelled, tmp_path):
    tree = labelled.to_datatree()
    with pytest.raises(
        UnsupportedError, match="no group 'observed_data'; there are log_likelihood"
    ):
        lq.from_datatree(xr.DataTree.from_dict({k: tree[k] for k in ("log_likelihood",)}))
    for lacking in ("log_likelihood_grad", "log_likelihood_curv"):
        rest = {name: tree[name] for name in tree.children if name != lacking}
        with pytest.raises(UnsupportedError, match=f"no group '{lacking}'.*second derivatives"):
            lq.from_datatree(xr.DataTree.from_dict(rest))
    with pytest.raises(UnsupportedError, match="no group 'log_likelihood'"):
        lq.from_datatree(xr.DataTree())
    with pytest.raises(FileNotFoundError, match=r"nothere\.nc"):
        lq.from_datatree(tmp_path / "nothere.nc")
    with pytest.raises(LockquackError, match="int"):
        lq.from_datatree(3)
    groups = {name: child.to_dataset() for name, child in tree.children.items()}
    for name in ("observed_data", "log_likelihood_grad", "log_likelihood_curv"):
        other = {**groups, name: groups[name].rename(y="z")}
        with pytest.raises(UnsupportedError, match=f"'{name}' does not hold .*'y'.*it holds z"):
            lq.from_datatree(xr.DataTree.from_dict(other))
    with pytest.raises(UnsupportedError, match="'log_likelihood' is empty"):
        lq.from_datatree(xr.DataTree.from_dict({**groups, "log_likelihood": xr.Dataset()}))


def test_files_that_are_something_else(normals, tmp_path):
    text, folder = tmp_path / "notes.nc", tmp_path / "folder"
    text.write_text("not a file of numbers\n")
    folder.mkdir()
    (folder / "inside.txt").write_text("nor this\n")
    for path in (text, folder):
        for read in (lq.from_datatree, lq.load):
            with pytest.raises(
                LockquackError, match=rf"{path.name}: This is not a NetCDF file or Zarr"
            ):
                read(path)
    for suffix in (".nc", ".zarr"):
        fit, model = tmp_path / f"fit{suffix}", tmp_path / f"model{suffix}"
        lq.lock(normals).save(fit)
        normals["left"].save(model)
        with pytest.raises(UnsupportedError, match=rf"{fit.name}: .*combination.*lq\.load"):
            lq.from_datatree(fit)
        with pytest.raises(LockquackError, match=rf"{model.name}: .*lq\.from_datatree"):
            lq.load(model)
        with pytest.raises(UnsupportedError, match=rf"{model.name}: .*not 'z'"):
            lq.from_datatree(model, var_name="z")


@pytest.mark.parametrize(("suffix", "extra"), [(".nc", "netcdf"), (".zarr", "zarr")])
def test_a_missing_library_is_named_with_the_way_to_get_it(
    suffix, extra, normals, tmp_path, monkeypatch
):
    path = tmp_path / f"fit{suffix}"
    fit = lq.lock(normals)
    fit.save(path)
    monkeypatch.setattr("lockquack.files.formats.find_spec", lambda name: None)
    # A combination can always be written to NetCDF, in the format that scipy knows.
    uses = [lq.load, lq.from_datatree, normals["left"].save, *[fit.save] * (suffix == ".zarr")]
    for use in uses:
        with pytest.raises(ImportError, match=rf"fit{suffix} needs .*lockquack\[{extra}\]"):
            use(path)


def test_zarr_stores_keep_zeros_and_are_readable_by_others(y, mu, sigma, tmp_path):
    labelled = xr.DataArray(y, dims="obs", coords={"obs": np.arange(N)})
    model = lq.from_family("normal", y=labelled, mu=np.zeros((C, D)), sigma=1.0)
    model.save(tmp_path / "model.zarr")
    with xr.open_datatree(tmp_path / "model.zarr", engine="zarr") as tree:
        assert tree["observed_data"]["obs"].values.tolist() == list(range(N))
    assert_same_jets(lq.from_datatree(tmp_path / "model.zarr"), model)


def test_one_of_several_outcomes_is_chosen_by_name(labelled):
    first, second = labelled.to_datatree("a"), labelled.to_datatree("b")
    both = xr.DataTree.from_dict(
        {g: xr.merge([first[g].to_dataset(), second[g].to_dataset()]) for g in first.children}
    )
    with pytest.raises(UnsupportedError, match="one of a, b"):
        lq.from_datatree(both)
    with pytest.raises(UnsupportedError, match="not 'c'"):
        lq.from_datatree(both, var_name="c")
    assert_same_jets(lq.from_datatree(both, var_name="b"), labelled)


def test_edges_are_remembered(rng, tmp_path):
    y = rng.gamma(2.0, size=N)
    model = lq.from_family("gamma", y=y, alpha=np.full((2, 10), 1.5), beta=1.0)
    model.save(tmp_path / "gamma.nc")
    back = lq.from_datatree(Path(tmp_path / "gamma.nc"))
    assert back.likelihood.edges == (Edge(0.0, 0.5), Edge(np.inf, 1.0))


@pytest.mark.parametrize(("shape", "meant"), [((20, 60), r"array\[None\]"), ((60, 400), "array.T")])
def test_draws_and_observations_in_place_of_chains_and_draws_are_refused(shape, meant):
    """Both used to be read as so many chains."""
    y, mu = np.zeros(60), np.zeros(shape)
    with pytest.raises(ParameterError, match=rf"chains of \d+ draws.*{meant}"):
        lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    chains = lq.from_family("normal", y=y, mu=mu[..., None], sigma=1.0)
    assert f"chain: {shape[0]}, draw: {shape[1]}" in repr(chains)


@pytest.mark.parametrize(
    ("missing", "made"),
    [
        ("jax", lambda draws, y: lq.from_jax(lambda y, p: p["a"] * y, draws, y=y)),
        ("numpyro", lambda draws, y: lq.from_numpyro(print, draws, model_kwargs={"y": y})),
    ],
)
def test_a_library_that_is_not_installed_is_named(missing, made, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"pip install 'lockquack\[{missing}\]'"):
        made({"a": np.ones((2, 3))}, np.zeros(3))
