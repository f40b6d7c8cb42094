"""PyMC models, against closed forms at the same draws."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import xarray as xr
from scipy import stats

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")

import pytensor
import pytensor.tensor as pt

import lockquack as lq
from lockquack.errors import (
    DerivativeError,
    EdgeError,
    LockquackError,
    LockquackWarning,
    ShapeError,
    SmoothnessError,
    SupportError,
    UnknownNameError,
    UnsupportedError,
)
from lockquack.sources import pytensor_parameters, pytensor_sources
from lockquack.sources.pymc import from_pymc
from tests.ppl.helpers import assert_same_jets, assert_same_outcomes, container, not_compiled

# What PyMC and its dependencies warn of is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error::lockquack.errors.LockquackWarning"),
]

DEFAULT_MODE = pytensor.config.mode
CHAINS, DRAWS = 2, 13
SHAPE = (CHAINS, DRAWS)
RNG = np.random.default_rng(1)
X = RNG.normal(size=(5, 2))
Y = np.array([0.4, 1.1, 2.3, 0.7, 1.6])
BETA = RNG.normal(0.3, 0.1, size=(*SHAPE, 2))
MU = np.einsum("csp,np->csn", BETA, X)
SIGMA = RNG.gamma(50, 0.02, size=SHAPE)
EVERYTHING = slice(0, DRAWS), slice(0, len(Y))


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


@pytest.fixture
def compiled(_not_compiled):
    """Compile, for tests that are about the compiled functions themselves."""
    with pytensor.config.change_flags(mode=DEFAULT_MODE):
        yield


def linear(y=Y):
    with pm.Model() as model:
        x = pm.Data("x", X)
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        pm.Normal("y", x @ beta, sigma, observed=y)
    return model, {"beta": BETA, "sigma": SIGMA}


def student_t():
    nu = RNG.gamma(20, 0.2, size=SHAPE)
    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        pm.StudentT("y", nu=pm.Gamma("nu", 2, 0.1), mu=X @ beta, sigma=sigma, observed=Y)
    exact = lq.from_family("student_t", y=Y, nu=nu, mu=MU, sigma=SIGMA)
    return model, {"beta": BETA, "sigma": SIGMA, "nu": nu}, exact


def eight_schools():
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mu, tau = RNG.normal(5, 2, size=SHAPE), RNG.gamma(9, 0.5, size=SHAPE)
    z = RNG.normal(size=(*SHAPE, 8))
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        m, t = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        effect = pm.Normal("z", dims="school")
        theta = pm.Deterministic("theta", m + t * effect, dims="school")
        pm.Normal("obs", theta, sigma, observed=y, dims="school")
    theta = mu[..., None] + tau[..., None] * z
    exact = lq.from_family("normal", y=y, mu=theta, sigma=sigma)
    return model, {"mu": mu, "tau": tau, "z": z, "theta": 0 * z}, exact


def gamma_regression():
    alpha = RNG.gamma(80, 0.05, size=SHAPE)
    with pm.Model() as model:
        beta, shape = pm.Normal("beta", shape=2), pm.HalfNormal("alpha", 5)
        pm.Gamma("y", alpha=shape, beta=shape * pt.exp(-(X @ beta)), observed=Y)
    exact = lq.from_family("gamma", y=Y, alpha=alpha, beta=alpha[..., None] * np.exp(-MU))
    return model, {"beta": BETA, "alpha": alpha}, exact


def lognormal_regression():
    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        pm.LogNormal("y", X @ beta, sigma, observed=Y)
    exact = lq.from_family("lognormal", y=Y, mu=MU, sigma=SIGMA)
    return model, {"beta": BETA, "sigma": SIGMA}, exact


def mv_normal():
    y = RNG.normal(size=(4, 3))
    x = RNG.normal(size=4)
    slope, scale = RNG.normal(size=(*SHAPE, 3)), RNG.gamma(50, 0.02, size=SHAPE)
    correlation = 0.5 * np.eye(3) + 0.5
    with pm.Model() as model:
        b, s = pm.Normal("slope", shape=3), pm.HalfNormal("scale")
        pm.MvNormal("y", x[:, None] * b, cov=s * correlation, observed=y)
    mu = x[:, None] * slope[:, :, None]
    cov = scale[..., None, None, None] * correlation
    exact = lq.from_family("mv_normal", y=y, mu=mu, cov=np.broadcast_to(cov, (*SHAPE, 4, 3, 3)))
    return model, {"slope": slope, "scale": scale}, exact


def mixture():
    w = np.broadcast_to([0.3, 0.7], (*SHAPE, 2))
    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        parts = [pm.Normal.dist(X @ beta, sigma), pm.StudentT.dist(nu=5.0, mu=1.0, sigma=sigma)]
        pm.Mixture("y", w=[0.3, 0.7], comp_dists=parts, observed=Y)
    parts = [
        ("normal", {"mu": MU, "sigma": SIGMA}),
        ("student_t", {"nu": 5.0, "mu": 1.0, "sigma": SIGMA}),
    ]
    exact = lq.from_family("mixture", y=Y, weights=w, components=parts)
    return model, {"beta": BETA, "sigma": SIGMA}, exact


def on_a_grid():
    """Outcomes of schools in years, effects of both."""
    y = RNG.normal(size=(2, 3))
    a, b = RNG.normal(size=(*SHAPE, 2)), RNG.normal(size=(*SHAPE, 3))
    with pm.Model(coords={"school": ["a", "b"], "year": [1, 2, 3]}) as model:
        school, year = pm.Normal("a", dims="school"), pm.Normal("b", dims="year")
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", school[:, None] + year, sigma, observed=y, dims=("school", "year"))
    mu = a[..., None] + b[:, :, None]
    grid = xr.DataArray(y, dims=("school", "year"))
    exact = lq.from_family(
        "normal",
        y=grid,
        mu=xr.DataArray(mu, dims=("chain", "draw", "school", "year")),
        sigma=xr.DataArray(SIGMA, dims=("chain", "draw")),
    )
    return model, {"a": a, "b": b, "sigma": SIGMA}, exact


CLOSED_FORMS = [
    student_t,
    eight_schools,
    gamma_regression,
    lognormal_regression,
    mv_normal,
    mixture,
    on_a_grid,
]


@pytest.mark.parametrize("make", CLOSED_FORMS)
def test_the_jets_are_those_of_the_closed_form(make):
    model, draws, exact = make()
    got = from_pymc(model, container(draws))
    assert_same_jets(got, exact)
    assert got.source.density.separable
    if exact.observations.d == 1:
        ends = [edge.at for edge in exact.likelihood.edges]
        assert [edge.at for edge in got.likelihood.edges] == ends
        orders = [edge.order for edge in exact.likelihood.edges]
        assert [edge.order for edge in got.likelihood.edges] == pytest.approx(orders, rel=0.05)


@pytest.mark.usefixtures("compiled")
def test_compiled_functions_give_the_same():
    model, draws, exact = student_t()
    got = from_pymc(model, container(draws))
    assert_same_jets(got, exact)
    again = from_pymc(model, container(draws))
    assert again.source.density.functions.keys() == {"logp"}  # found, not compiled again
    again.source.derivatives(0, *EVERYTHING)
    assert again.source.density.functions["jet"] is got.source.density.functions["jet"]


def test_a_stored_log_likelihood_is_compared():
    model, draws = linear()
    logp = stats.norm.logpdf(Y, MU, SIGMA[..., None])

    def stored(values):
        group = xr.Dataset({"y": (("chain", "draw", "y_dim_0"), values)})
        return from_pymc(model, container(draws, log_likelihood=group))

    report = lq.check(stored(logp), thorough=True)
    assert report.ok
    assert ("stored log likelihood", "observed") in report.to_dataframe().index
    other = stored(logp[..., ::-1])  # as if the outcomes had been in another order
    assert lq.check(other).worst.what == "stored log likelihood"
    with pytest.raises(DerivativeError, match="Model 'a': .* stored with the draws .*sampled"):
        lq.lock({"a": other})
    with pytest.raises(ShapeError, match="has 4 values in each draw; the model has 5"):
        lq.check(stored(logp[..., 1:]))


def test_the_log_density_is_that_of_pymc():
    model, draws, _ = student_t()
    idata = container(draws)
    theirs = pm.compute_log_likelihood(
        idata,
        model=model,
        extend_inferencedata=False,
        progressbar=False,
        compile_kwargs={"mode": "FAST_COMPILE"},
    )
    got = from_pymc(model, idata).source.all_logp(slice(0, 5))
    np.testing.assert_allclose(got, theirs["y"].values, rtol=1e-12)


@pytest.mark.parametrize("make", [student_t, on_a_grid, mv_normal])
def test_what_is_too_large_to_keep_is_computed_as_it_is_read(make, monkeypatch):
    monkeypatch.setattr(pytensor_sources, "_KEEP", 0)
    for module in (pytensor_sources, pytensor_parameters):  # so that draws come in pieces
        monkeypatch.setattr(module, "AT_ONCE", 7)
    model, draws, exact = make()
    got = from_pymc(model, container(draws))
    assert not got.source.parameters.keep
    assert_same_jets(got, exact)
    some = np.array([3, 1])
    y = np.stack([exact.observations.values[some]] * 2) + 0.1
    expected = exact.source.jets_at(y, 1, slice(0, 6, 2), some, derivatives=True)
    jet = got.source.jets_at(y, 1, slice(0, 6, 2), some, derivatives=True)
    for name in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(jet, name), getattr(expected, name), rtol=1e-9)


def test_a_graph_that_cannot_be_cut_is_evaluated_as_a_whole():
    # As many coefficients as observations: which axis is which, shapes do not tell.
    y = np.array([0.3, 0.9, 0.6])
    coef = RNG.normal(-1.0, 0.1, size=(*SHAPE, 3))

    def logp(value, coef):
        return pt.dot(pt.stack([value, value**2, value**4], axis=1), coef.ravel())

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("coef", shape=3), logp=logp, signature="(p)->()", observed=y)
    got = from_pymc(model, container({"coef": coef}))
    assert not got.source.density.separable
    everything = slice(0, DRAWS), slice(0, 3)
    powers = np.stack([y, y**2, y**4], axis=1)
    np.testing.assert_allclose(got.source.logp(1, *everything), coef[1] @ powers.T)
    grad, curv = got.source.derivatives(1, *everything)
    slopes, bends = np.stack([y**0, 2 * y, 4 * y**3]), np.stack([0 * y, 2 * y**0, 12 * y**2])
    np.testing.assert_allclose(grad[..., 0], coef[1] @ slopes)
    np.testing.assert_allclose(curv[..., 0], coef[1] @ bends)
    some, points = np.array([2, 0]), np.array([[[0.1], [0.2]]])
    np.testing.assert_allclose(
        got.source.logp_at(points, 0, slice(0, 3), some)[0, :, 1],
        coef[0, :3] @ np.array([0.2, 0.2**2, 0.2**4]),
    )


def test_both_containers_are_read():
    model, draws = linear()
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(
                {k: (("chain", "draw", "p")[: v.ndim], v) for k, v in draws.items()}
            )
        }
    )
    got = from_pymc(model, tree)
    expected = from_pymc(model, container(draws))
    np.testing.assert_array_equal(
        got.source.logp(0, *EVERYTHING), expected.source.logp(0, *EVERYTHING)
    )
    assert repr(got) == "<Model Normal; chain: 2, draw: 13, obs_id: 5, components: 1>"


def test_outcomes_have_the_labels_of_the_model():
    model, draws, _ = eight_schools()
    observations = from_pymc(model, container(draws)).observations
    assert observations.coords["school"].tolist() == list("ABCDEFGH")
    model, draws, _ = on_a_grid()
    assert from_pymc(model, container(draws)).observations.sizes == {"school": 2, "year": 3}


def test_models_of_pymc_dims():
    pmd = pytest.importorskip("pymc.dims")
    with pm.Model(coords={"obs": list("abcde"), "x": [0, 1]}) as model:
        x = pmd.Data("X", X, dims=("obs", "x"))
        beta, sigma = pmd.Normal("beta", dims=("x",)), pmd.HalfNormal("sigma")
        outcome = pmd.as_xtensor(Y, dims=("obs",))
        pmd.Normal("y", x.dot(beta, dim="x"), sigma, dims=("obs",), observed=outcome)
    draws = {"beta": BETA, "sigma": SIGMA}
    idata = container(draws)
    posterior = idata["posterior"] if isinstance(idata, xr.DataTree) else idata.posterior
    posterior = (posterior.to_dataset() if isinstance(idata, xr.DataTree) else posterior).rename(
        beta_dim_0="x"
    )
    got = from_pymc(model, xr.DataTree.from_dict({"posterior": posterior}))
    assert_same_jets(got, lq.from_family("normal", y=Y, mu=MU, sigma=SIGMA))
    assert got.observations.coords["obs"].tolist() == list("abcde")


# New data


def test_the_same_posterior_at_other_covariates_and_outcomes():
    model, draws = linear()
    got = from_pymc(model, container(draws))
    x, y = RNG.normal(size=(3, 2)), np.array([-1.0, 0.0, 1.0])
    mu = np.einsum("csp,np->csn", BETA, x)
    assert_same_jets(got.with_data(y, x=x), lq.from_family("normal", y=y, mu=mu, sigma=SIGMA))
    # The first model did not change, and other outcomes need no other covariates.
    exact = lq.from_family("normal", y=Y, mu=MU, sigma=SIGMA)
    assert_same_jets(got, exact)
    assert_same_jets(got.with_data(Y + 1), lq.from_family("normal", y=Y + 1, mu=MU, sigma=SIGMA))


def test_new_data_that_do_not_fit():
    model, draws = linear()
    got = from_pymc(model, container(draws))
    with pytest.raises(UnknownNameError, match="Unknown data container 'X'. Did you mean 'x'?"):
        got.with_data(Y, X=X)
    with pytest.raises(ShapeError, match="container 'x' was not given: it still has the 5 values"):
        got.with_data(np.zeros(3))
    with pytest.raises(ShapeError, match="y has 2 dimensions"):
        got.with_data(np.zeros((3, 1)))
    with pytest.raises(ShapeError, match="Data 'x' must have 2 dimensions"):
        got.with_data(Y, x=np.zeros(5))
    model, draws, _ = student_t()
    with pytest.raises(UnsupportedError, match=r"Wrap covariates in pm.Data\('x'"):
        from_pymc(model, container(draws)).with_data(Y, x=X)


def test_a_model_can_be_evaluated_anywhere():
    model, draws, exact = gamma_regression()
    got = from_pymc(model, container(draws))
    y = np.array([-1.0, 0.01, 3.0, 1e6])[:, None, None] + np.zeros((4, 2, 1))
    some = np.array([4, 0])
    np.testing.assert_allclose(
        got.source.logp_at(y, 1, slice(2, 5), some),
        exact.source.logp_at(y, 1, slice(2, 5), some),
        rtol=1e-9,
    )


def mixture_of_known_shares():
    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        parts = [pm.Normal.dist(X @ beta, sigma), pm.Normal.dist(X @ beta + 9, sigma)]
        pm.Mixture("y", w=[0.3, 0.7], comp_dists=parts, observed=Y)
    exact = lq.from_family(
        "mixture",
        y=Y,
        weights=np.array([0.3, 0.7]),
        components=[("normal", {"mu": MU + shift, "sigma": SIGMA}) for shift in (0.0, 9.0)],
    )
    return model, {"beta": BETA, "sigma": SIGMA}, exact


def heavy_tailed_vectors():
    y = np.stack([Y, -Y], axis=1)
    with pm.Model() as model:
        pm.MvStudentT("y", nu=4, mu=pm.Normal("beta", shape=2), scale=np.eye(2), observed=y)
    exact = lq.from_family("mv_student_t", y=y, nu=4.0, mu=BETA, scale=np.eye(2))
    return model, {"beta": BETA}, exact


def counts():
    y = np.array([0, 3, 1, 4, 2])
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=2)
        pm.NegativeBinomial("y", mu=pt.exp(X @ beta), alpha=3.0, observed=y)
    return model, {"beta": BETA}, lq.from_family("negative_binomial", y=y, mu=np.exp(MU), alpha=3.0)


@pytest.mark.parametrize(
    "make",
    [
        student_t,
        eight_schools,
        gamma_regression,
        mv_normal,
        mixture_of_known_shares,
        heavy_tailed_vectors,
        counts,
    ],
)
def test_outcomes_are_drawn_as_from_the_closed_form(make):
    model, draws, exact = make()
    assert_same_outcomes(from_pymc(model, container(draws)), exact)


def test_outcomes_are_drawn_at_other_covariates():
    model, draws = linear()
    x = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 0.5]])
    moved = from_pymc(model, container(draws)).with_data(np.zeros(3), x=x)
    mu = np.einsum("csp,np->csn", BETA, x)
    exact = lq.from_family("normal", y=np.zeros(3), mu=mu, sigma=SIGMA)
    assert_same_outcomes(moved, exact, obs=(2, 1))


def test_second_derivatives_that_are_the_same_everywhere_are_computed_once():
    # Locations differ between observations, the covariance does not; of the t it does matter.
    y = np.stack([Y, -Y], axis=1)
    chol = np.array([[1.0, 0.0], [0.4, 0.8]])
    with pm.Model() as normal:
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        pm.MvNormal("y", X * beta, chol=sigma * chol, observed=y)
    with pm.Model() as student:
        beta, sigma = pm.Normal("beta", shape=2), pm.HalfNormal("sigma")
        pm.MvStudentT("y", nu=5, mu=X * beta, chol=sigma * chol, observed=y)
    mu, chols = BETA[:, :, None] * X, SIGMA[..., None, None] * chol
    for model, exact, constant in (
        (normal, lq.from_family("mv_normal", y=y, mu=mu, chol=chols), True),
        (student, lq.from_family("mv_student_t", y=y, nu=5.0, mu=mu, chol=chols), False),
    ):
        got = from_pymc(model, container({"beta": BETA, "sigma": SIGMA}))
        assert_same_jets(got, exact)
        assert got.source.density._is_constant(got.source.density.functions["bend"]) == constant
        points = np.stack([y, y[::-1] + 0.1])
        where = 0, slice(0, 5), np.array([4, 0, 2, 1, 3])
        ours, theirs = (
            each.source.jets_at(points, *where, derivatives=True) for each in (got, exact)
        )
        np.testing.assert_allclose(ours.curv, theirs.curv, rtol=1e-9)


def test_what_has_no_generator_says_so():
    with pm.Model() as model:
        mu = pm.Normal("beta", shape=2)[0]
        pm.CustomDist("y", mu, logp=lambda y, mu: -((y - mu) ** 2), observed=Y)
    got = from_pymc(model, container({"beta": BETA}))
    assert not got.source.can.draw
    with pytest.raises(UnsupportedError, match="no generator of random numbers"):
        got.source.draw_outcomes(0, np.arange(3), slice(0, 2), np.random.default_rng(1))


def test_pools_are_normalised():
    model, draws, exact = gamma_regression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        options = {"prior": 1.5, "progressbar": False}
        other = lq.from_family("lognormal", y=Y, mu=MU, sigma=SIGMA)
        ours = lq.lock({"a": from_pymc(model, container(draws)), "b": other}, **options)
        theirs = lq.lock({"a": exact, "b": other}, **options)
        np.testing.assert_allclose(ours.weights, theirs.weights, rtol=1e-6)
        np.testing.assert_allclose(ours.logpdf(), theirs.logpdf(), rtol=1e-6, atol=1e-9)


# What has no Hyvärinen score


def scalar_model(make, y=Y):
    with pm.Model() as model:
        a, s = pm.Normal("a"), pm.HalfNormal("s")
        make(a, s, y)
    return model, container({"a": BETA[..., 0], "s": SIGMA})


COUNTS = np.array([0.0, 3.0, 1.0, 2.0, 7.0])
CONTINUOUS_BUT = {
    "exponential": (lambda a, s, y: pm.Exponential("y", s, observed=y), EdgeError, "at 0"),
    "half-normal": (lambda a, s, y: pm.HalfNormal("y", s, observed=y), EdgeError, "at 0"),
    "half-Cauchy": (lambda a, s, y: pm.HalfCauchy("y", s, observed=y), EdgeError, "at 0"),
    "gamma": (lambda a, s, y: pm.Gamma("y", 1.8, s, observed=y), EdgeError, r"distance\^0.8"),
    "weibull": (lambda a, s, y: pm.Weibull("y", 1.5, s, observed=y), EdgeError, r"distance\^0.5"),
    "beta": (lambda a, s, y: pm.Beta("y", 3.0, 1.5, observed=y / 3), EdgeError, "at 1"),
    "uniform": (lambda a, s, y: pm.Uniform("y", a - 2, 5, observed=y), SmoothnessError, "jumps"),
    "truncated": (
        lambda a, s, y: pm.Truncated("y", pm.StudentT.dist(nu=4, mu=a, sigma=s), 0, observed=y),
        EdgeError,
        "at 0",
    ),
    "Laplace": (lambda a, s, y: pm.Laplace("y", a, s, observed=y), SmoothnessError, "kink"),
    "custom": (
        lambda a, s, y: pm.CustomDist(
            "y",
            a,
            s,
            dist=lambda a, s, size: pt.abs(pm.Normal.dist(0 * a, s, size=size)),
            observed=y,
        ),
        EdgeError,
        "at 0",
    ),
    "mixture": (
        lambda a, s, y: pm.Mixture(
            "y", [0.5, 0.5], [pm.Normal.dist(a, s), pm.Laplace.dist(a, s)], observed=y
        ),
        SmoothnessError,
        "kink",
    ),
    "Rice": (
        lambda a, s, y: pm.Rice("y", nu=1.0, sigma=s, observed=y),
        SmoothnessError,
        "not known to the library",
    ),
    "censored": (
        lambda a, s, y: pm.Censored(
            "y", pm.Normal.dist(a, s), None, 1.6, observed=np.minimum(y, 1.6)
        ),
        SmoothnessError,
        "atoms",
    ),
    "hurdle": (
        lambda a, s, y: pm.HurdleGamma("y", 0.5, 2, s, observed=np.where(y > 1, y, 0)),
        SmoothnessError,
        "atom",
    ),
    "Poisson": (
        lambda a, s, y: pm.Poisson("y", 2 * s, observed=COUNTS),
        SmoothnessError,
        "discrete",
    ),
    "zero-inflated": (
        lambda a, s, y: pm.ZeroInflatedPoisson("y", 0.8, 2 * s, observed=COUNTS),
        SmoothnessError,
        "discrete",
    ),
    "ordered": (
        lambda a, s, y: pm.OrderedLogistic(
            "y", a * np.arange(5.0), [0.0, 1.0], observed=[0, 1, 2, 1, 0]
        ),
        SmoothnessError,
        "discrete",
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS_BUT)
def test_likelihoods_without_a_hyvarinen_score_still_have_log_densities(name):
    make, error, match = CONTINUOUS_BUT[name]
    model, idata = scalar_model(make)
    got = from_pymc(model, idata)
    with pytest.raises(error, match=match):
        lq.lock({"a": got, "b": got}, rule=lq.Hyvarinen(transform=None))
    assert np.isfinite(got.loo().logp).all()
    if name in ("Poisson", "zero-inflated", "ordered", "censored", "hurdle", "Rice"):
        assert not got.source.can.differentiate


def test_counts_can_be_stacked_and_summed():
    model, idata = scalar_model(CONTINUOUS_BUT["Poisson"][0])
    got = from_pymc(model, idata)
    exact = lq.from_family("poisson", y=COUNTS, mu=2 * SIGMA)
    np.testing.assert_allclose(got.loo().logp, exact.loo().logp, rtol=1e-9)
    assert got.source.can.evaluate
    halves = np.full((1, 5, 1), 0.5)
    assert np.isneginf(got.source.logp_at(halves, 0, slice(0, 2), slice(0, 5))).all()


def test_censored_outcomes_have_pymcs_log_density():
    model, idata = scalar_model(CONTINUOUS_BUT["censored"][0])
    got = from_pymc(model, idata)
    a, s = BETA[..., :1], SIGMA[..., None]
    inside = stats.norm.logpdf(Y, a, s)
    expected = np.where(Y >= 1.6, stats.norm.logsf(1.6, a, s), inside)
    # PyMC holds the bound in single precision.
    np.testing.assert_allclose(got.source.all_logp(slice(0, 5)), expected, rtol=1e-6)
    assert not got.source.can.evaluate


def test_missing_outcomes_are_left_out():
    y = np.array([0.4, np.nan, 2.3, 0.7, 1.6])
    model, draws = linear(y)
    with warnings.catch_warnings():
        draws["y_unobserved"] = np.zeros((*SHAPE, 1))
        got = from_pymc(model, container(draws), var_name="y")
    seen = ~np.isnan(y)
    exact = lq.from_family("normal", y=y[seen], mu=MU[..., seen], sigma=SIGMA)
    assert_same_jets(got, exact)


# Refusals


def gp(a, s, y):
    process = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, 1.0))
    process.marginal_likelihood("y", X=np.arange(5.0)[:, None], y=y, sigma=s)


def potential(a, s, y):
    outcome = pm.Normal("y", a, s, observed=y)
    pm.Potential("penalty", -(outcome**2).sum())


def hidden_potential(a, s, y):
    pm.Normal("y", a, s, observed=y)
    pm.Potential("penalty", a * y.sum() - (s * pt.as_tensor(y)).sum())


def downstream(a, s, y):
    outcome = pm.Normal("y", a, s, observed=y)
    pm.Normal("z", outcome, s, observed=y)


def after(a, s, y, lag=1):
    def logp(value, a, s):
        later = pt.concatenate([value[lag:], np.zeros(lag)])
        return pm.logp(pm.Normal.dist(a * later, s), value)

    pm.CustomDist("y", a, s, logp=logp, observed=y)


REFUSALS = {
    "Gaussian process": (gp, "does not factorise"),
    "a later outcome": (after, "later one, so the likelihood does not factorise"),
    "an outcome two later": (partial(after, lag=2), "does not factorise"),
    "an outcome four later": (partial(after, lag=4), "does not factorise"),
    "one vector": (
        lambda a, s, y: pm.MvNormal("y", np.zeros(5) + a, np.eye(5) + s, observed=y),
        "one joint density .* one outcome, a vector",
    ),
    "potential": (potential, "'penalty' involves the outcome 'y'"),
    "potential of a copy": (hidden_potential, "'penalty' involves the outcome 'y'"),
    "another outcome": (downstream, "'z' involves the outcome 'y'"),
    "no outcome": (
        lambda a, s, y: pm.Potential("y", -a * y.sum()),
        "no observed variable.*CustomDist",
    ),
    "minibatch": (
        lambda a, s, y: pm.Normal("y", a, s, observed=pm.Minibatch(y, batch_size=2), total_size=5),
        "minibatches",
    ),
    "total_size": (lambda a, s, y: pm.Normal("y", a, s, observed=y, total_size=50), "total_size"),
    "simulator": (
        lambda a, s, y: pm.Simulator(
            "y", lambda rng, a, size: rng.normal(a, 1, size), a, observed=y
        ),
        "no density",
    ),
    "missing component": (
        lambda a, s, y: pm.MvNormal(
            "y", pt.stack([a, a]), np.eye(2), observed=[[1, np.nan], [2, 3]]
        ),
        "missing and imputed",
    ),
    "matrices": (
        lambda a, s, y: pm.MatrixNormal(
            "y", mu=np.zeros((2, 2)) + a, rowcov=np.eye(2), colcov=np.eye(2), observed=np.eye(2)
        ),
        "does not factorise",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_understood_is_refused(name):
    make, match = REFUSALS[name]
    model, idata = scalar_model(make)
    with pytest.raises(UnsupportedError, match=match):
        from_pymc(model, idata, var_name="y" if name == "another outcome" else None)


def test_one_of_several_outcomes_is_asked_for():
    def two(a, s, y):
        pm.Normal("y", a, s, observed=y)
        pm.Normal("z", a, 2 * s, observed=y + 1)

    model, idata = scalar_model(two)
    with pytest.raises(UnsupportedError, match=r"by var_name=: one of y, z\."):
        from_pymc(model, idata)
    with pytest.raises(UnsupportedError, match="one of y, z, not 'w'"):
        from_pymc(model, idata, var_name="w")
    exact = lq.from_family("normal", y=Y + 1, mu=BETA[..., 0], sigma=2 * SIGMA)
    assert_same_jets(from_pymc(model, idata, var_name="z"), exact)


def test_draws_of_another_model_are_refused():
    model, draws = linear()
    with pytest.raises(UnsupportedError, match="lacks the variable 'sigma'"):
        from_pymc(model, container({"beta": BETA}))
    with pytest.raises(ShapeError, match=r"'beta' with shape \(3,\) in each draw"):
        from_pymc(model, container({**draws, "beta": np.zeros((*SHAPE, 3))}))
    with pytest.raises(UnsupportedError, match="no group 'posterior'"):
        from_pymc(model, xr.DataTree.from_dict({"prior": xr.Dataset()}))
    with pytest.raises(LockquackError, match="Cannot read"):
        from_pymc(model, 3)
    with pytest.raises(UnsupportedError, match="needs a pm.Model; got a str"):
        from_pymc("model", container(draws))


def test_impossible_outcomes_are_refused():
    model, idata = scalar_model(lambda a, s, y: pm.LogNormal("y", a, s, observed=y - 1))
    with pytest.raises(SupportError, match="observation 0, where y is"):
        from_pymc(model, idata)


def test_the_evidence_of_sequential_monte_carlo_is_kept():
    model, draws = linear()
    chains = xr.Dataset({"log_marginal_likelihood": ("chain", np.array([-3.0, -3.0]))})
    got = from_pymc(model, container(draws, sample_stats=chains))
    assert got.log_marginal_likelihood == pytest.approx(-3.0)
    assert got.with_data(Y).log_marginal_likelihood is None


def test_a_sampled_model_is_locked_and_stacked():
    rng = np.random.default_rng(3)
    y = 1.0 + rng.standard_t(2, size=25)
    with pm.Model() as model:
        mu, sigma, nu = pm.Normal("mu", 0, 5), pm.HalfNormal("sigma", 5), pm.Gamma("nu", 2, 0.5)
        pm.StudentT("y", nu=nu, mu=mu, sigma=sigma, observed=y)
        idata = pm.sample(60, tune=80, chains=2, cores=1, random_seed=1, progressbar=False)
    scale = np.sqrt(np.square(y - y.mean()).sum() / rng.chisquare(24, size=(2, 60)))
    centre = y.mean() + scale / 5 * rng.normal(size=(2, 60))
    models = {
        "student": from_pymc(model, idata),
        "normal": lq.from_family("normal", y=y, mu=centre, sigma=scale),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        locked, stacked = lq.lock(models), lq.stack(models)
        density = locked.logpdf()
    for fit in (locked, stacked):
        assert float(fit.weights.sum()) == pytest.approx(1.0)
        assert float(fit.weights.sel(model="student")) > 0.5
    assert np.isfinite(density).all()


# Models as people write them: priors with random parents, values to begin from

GROUP = np.arange(len(Y)) % 3


def centred():
    with pm.Model() as model:
        effect = pm.Normal("effect", pm.Normal("mu"), pm.HalfNormal("tau"), shape=3)
        pm.Normal("y", effect[GROUP], pm.HalfNormal("sigma"), observed=Y)
    return model


def varying_slopes():
    with pm.Model() as model:
        spread = pm.Exponential.dist(1.0)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=spread)
        line = pm.MvNormal("line", pm.Normal("mu", shape=2), chol=chol, shape=(3, 2))
        mu = line[GROUP, 0] + line[GROUP, 1] * X[:, 0]
        pm.Normal("y", mu, pm.Exponential("sigma", 1.0), observed=Y)
    return model


def random_walk():
    with pm.Model() as model:
        first = pm.Normal.dist(0, 1)
        level = pm.GaussianRandomWalk(
            "level", sigma=pm.Exponential("step", 1.0), init_dist=first, shape=len(Y)
        )
        pm.Normal("y", level, 1.0, observed=Y)
    return model


def stochastic_volatility():
    with pm.Model() as model:
        first = pm.Normal.dist(0, 1)
        level = pm.GaussianRandomWalk(
            "level", sigma=pm.Exponential("step", 10.0), init_dist=first, shape=len(Y)
        )
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT("y", nu=nu + 2, mu=0.0, lam=pt.exp(-2 * level), observed=Y)
    return model


def with_initial_values():
    with pm.Model() as model:
        mu = pm.Normal("mu", initval=0.5)
        pm.Normal("y", mu, pm.HalfNormal("sigma", initval=1.0), observed=Y)
    return model


def prior_draws(model):
    variables = model.free_RVs
    drawn = pm.draw(variables, draws=CHAINS * DRAWS, random_seed=1)
    return container(
        {
            v.name: np.asarray(values).reshape(*SHAPE, *values.shape[1:])
            for v, values in zip(variables, drawn, strict=True)
        }
    )


@pytest.mark.parametrize(
    "make",
    [centred, varying_slopes, random_walk, stochastic_volatility, with_initial_values],
    ids=lambda make: make.__name__,
)
def test_priors_with_random_parents_and_initial_values(make):
    model = make()
    idata = prior_draws(model)
    found = from_pymc(model, idata)
    logp = model.compile_logp(vars=model.observed_RVs, sum=False)
    values = {v.name: idata["posterior"][v.name].values for v in model.free_RVs}
    for chain, draw in ((0, 0), (1, 7)):
        point = {
            model.rvs_to_values[v].name: unconstrained(model, v, values[v.name][chain, draw])
            for v in model.free_RVs
        }
        (expected,) = logp(point)
        got = found.source.logp(chain, slice(draw, draw + 1), slice(0, len(Y)))[0]
        np.testing.assert_allclose(got, expected, rtol=1e-10)
    assert lq.check(found, thorough=True).ok
    assert found.source.can.draw
    assert found.source.draw_outcomes(
        0, np.arange(3), np.arange(len(Y)), np.random.default_rng(0)
    ).shape == (3, len(Y), 1)


def unconstrained(model, rv, value):
    """Bring a draw to the scale on which PyMC's own log density takes it."""
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return value
    return transform.forward(pt.as_tensor(value), *rv.owner.inputs).eval()
