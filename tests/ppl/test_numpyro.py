"""NumPyro models, against closed forms at the same draws."""

from __future__ import annotations

import os

import numpy as np
import pytest
import xarray as xr

# Compiling is most of what these tests do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
jax = pytest.importorskip("jax")
numpyro = pytest.importorskip("numpyro")

import jax.numpy as jnp  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.contrib.control_flow import scan  # noqa: E402
from numpyro.infer import HMC, MCMC, log_likelihood  # noqa: E402
from numpyro.infer.reparam import LocScaleReparam  # noqa: E402

import lockquack as lq  # noqa: E402
from lockquack.errors import (  # noqa: E402
    LockquackError,
    ParameterError,
    ShapeError,
    UnsupportedError,
)
from lockquack.sources.numpyro import from_numpyro  # noqa: E402
from tests.ppl.helpers import assert_same_outcomes  # noqa: E402

CHAINS, DRAWS, N = 2, 40, 9
SHAPE = (CHAINS, DRAWS)
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, 2))
BETA = RNG.normal(size=(*SHAPE, 2))
SIGMA = RNG.gamma(50, 0.02, size=SHAPE)
NU = RNG.gamma(20, 0.2, size=SHAPE)
ETA = np.einsum("csp,np->csn", BETA, X)
POSTERIOR = {"beta": BETA, "sigma": SIGMA, "nu": NU}


def assert_same(model, reference, rtol=1e-12):
    """Compare jets, with slack for the zeros of derivatives."""
    np.testing.assert_array_equal(model.observations.values, reference.observations.values)
    for chain in range(reference.n_chains):
        every = chain, slice(0, reference.n_draws), slice(0, reference.observations.n)
        expected = reference.source.logp(*every)
        np.testing.assert_allclose(model.source.logp(*every), expected, rtol=rtol, atol=rtol)
        for got, expected in zip(
            model.source.derivatives(*every), reference.source.derivatives(*every), strict=True
        ):
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def regression(likelihood):
    """A model with coefficients, a scale and a shape, whatever its likelihood."""

    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
        eta = numpyro.deterministic("eta", x @ beta)
        with numpyro.plate("obs", len(x)):
            numpyro.sample("y", likelihood(eta, sigma, nu), obs=y)

    return model


def fitted(likelihood, y, x=X, posterior=POSTERIOR):
    return from_numpyro(regression(likelihood), posterior, model_kwargs={"x": x, "y": y})


# The models of the textbooks

REAL, POSITIVE = RNG.normal(size=N), RNG.gamma(3.0, 0.5, size=N)
ALPHA = 2.0 + NU
REGRESSIONS = {
    "linear": (REAL, lambda eta, sigma, nu: dist.Normal(eta, sigma), "normal",
               {"mu": ETA, "sigma": SIGMA}),
    "Student-t with unknown nu": (
        REAL, lambda eta, sigma, nu: dist.StudentT(nu, eta, sigma), "student_t",
        {"mu": ETA, "sigma": SIGMA, "nu": NU}),
    "gamma": (
        POSITIVE, lambda eta, sigma, nu: dist.Gamma(2 + nu, (2 + nu) * jnp.exp(-eta)), "gamma",
        {"alpha": ALPHA, "beta": ALPHA[..., None] * np.exp(-ETA)}),
    "lognormal": (POSITIVE, lambda eta, sigma, nu: dist.LogNormal(eta, sigma), "lognormal",
                  {"mu": ETA, "sigma": SIGMA}),
    "one location for all": (REAL, lambda eta, sigma, nu: dist.Logistic(0.5, sigma), "logistic",
                             {"mu": 0.5, "s": SIGMA}),
}  # fmt: skip


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_are_their_closed_forms(name):
    y, likelihood, family, parameters = REGRESSIONS[name]
    model, reference = fitted(likelihood, y), lq.from_family(family, y=y, **parameters)
    assert_same(model, reference)
    assert [edge.at for edge in model.likelihood.edges] == [
        edge.at for edge in reference.likelihood.edges
    ]
    for got, expected in zip(model.likelihood.edges, reference.likelihood.edges, strict=True):
        if np.isfinite(expected.at):
            assert got.order == pytest.approx(expected.order, abs=1e-6)


#: Whole numbers, which does not make their distribution discrete.
SCHOOLS_Y = np.array([28, 8, -3, 7, -1, 1, 18, 12])
SCHOOLS_SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def test_eight_schools_centred_or_not():
    mu, tau = RNG.normal(4, 3, size=SHAPE), RNG.gamma(3, 1, size=SHAPE)
    offset = RNG.normal(size=(*SHAPE, 8))
    theta = mu[..., None] + tau[..., None] * offset
    reference = lq.from_family("normal", y=SCHOOLS_Y, mu=theta, sigma=SCHOOLS_SIGMA)
    arguments = {"sigma": SCHOOLS_SIGMA, "y": SCHOOLS_Y}
    draws = {"mu": mu, "tau": tau, "theta": theta}
    centred = from_numpyro(schools, draws, model_kwargs=arguments)
    assert_same(centred, reference)
    moved = handlers.reparam(schools, config={"theta": LocScaleReparam(0)})
    # θ itself is computed from the rest, so wrong draws of it do no harm.
    draws = {"mu": mu, "tau": tau, "theta_decentered": offset, "theta": 0 * theta}
    assert_same(from_numpyro(moved, draws, model_kwargs=arguments), reference)
    with pytest.raises(LockquackError, match="'sigma'\\] changed.*a latent value of its own"):
        centred.with_data(SCHOOLS_Y[:3], sigma=SCHOOLS_SIGMA[:3])


COV = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])


@pytest.mark.parametrize("n", [N, 3])
def test_vector_outcomes(n):
    """As many observations as components: which axis is which cannot be told from its length."""
    y, chol = RNG.normal(size=(n, 3)), np.linalg.cholesky(COV)
    model = fitted(
        lambda eta, sigma, nu: dist.MultivariateNormal(eta[:, None], scale_tril=sigma * chol),
        y,
        X[:n],
    )
    mu = np.repeat(ETA[:, :, :n, None], 3, axis=-1)
    assert_same(model, lq.from_family("mv_normal", y=y, mu=mu, chol=SIGMA[..., None, None] * chol))


@pytest.mark.parametrize("location", [np.arange(3.0), 0.0])
def test_independent_components(location):
    """Plates repeat the distribution of one outcome."""
    y = RNG.normal(size=(N, 3))
    model = fitted(lambda eta, sigma, nu: dist.Normal(location, sigma).expand([3]).to_event(1), y)
    chol = SIGMA[..., None, None] * np.eye(3)
    mu = np.broadcast_to(location, 3)
    assert_same(model, lq.from_family("mv_normal", y=y, mu=np.tile(mu, (N, 1)), chol=chol))


def random_mixture():
    y = RNG.normal(size=N)
    shares = np.array([0.3, 0.7])
    model = fitted(
        lambda eta, sigma, nu: dist.MixtureSameFamily(
            dist.Categorical(jnp.array(shares)),
            dist.Normal(eta[:, None] + jnp.array([0.0, 9.0]), sigma[None, None]),
        ),
        y,
    )
    parts = [("normal", {"mu": ETA + shift, "sigma": SIGMA}) for shift in (0.0, 9.0)]
    return model, lq.from_family("mixture", y=y, weights=shares, components=parts)


def random_components():
    """An event put together from numbers that a plate repeats."""
    y = RNG.normal(size=(N, 3))
    model = fitted(lambda eta, sigma, nu: dist.Normal(0.5, sigma).expand([3]).to_event(1), y)
    chol = SIGMA[..., None, None] * np.eye(3)
    return model, lq.from_family("mv_normal", y=y, mu=np.full((N, 3), 0.5), chol=chol)


def random_square():
    """As many observations as components: all outcomes are drawn together."""
    y, chol = RNG.normal(size=(3, 3)), np.linalg.cholesky(COV)
    model = fitted(
        lambda eta, sigma, nu: dist.MultivariateNormal(eta[:, None], scale_tril=sigma * chol),
        y,
        X[:3],
    )
    mu = np.repeat(ETA[:, :, :3, None], 3, axis=-1)
    return model, lq.from_family("mv_normal", y=y, mu=mu, chol=SIGMA[..., None, None] * chol)


def random_counts():
    y = RNG.poisson(2.0, size=N)
    model = fitted(lambda eta, sigma, nu: dist.Poisson(sigma), y)
    return model, lq.from_family("poisson", y=y, mu=SIGMA)


@pytest.mark.parametrize("make", [random_mixture, random_components, random_square, random_counts])
def test_outcomes_are_drawn_as_from_the_closed_form(make):
    assert_same_outcomes(*make(), repeats=60)


def test_what_has_no_generator_says_so():
    class Bare(dist.Distribution):
        arg_constraints = {"mu": dist.constraints.real}  # noqa: RUF012
        support = dist.constraints.real

        def __init__(self, mu):
            self.mu = mu
            super().__init__(batch_shape=jnp.shape(mu))

        def log_prob(self, value):
            return dist.Normal(self.mu, 1.0).log_prob(value)

    model = fitted(lambda eta, sigma, nu: Bare(eta), REAL)
    assert not model.source.can.draw
    with pytest.raises(UnsupportedError, match="no generator of random numbers"):
        model.source.draw_outcomes(0, np.arange(3), slice(0, 2), np.random.default_rng(1))


def test_mixtures_and_time_series():
    draws = {"level": RNG.normal(size=SHAPE), "rho": RNG.uniform(size=SHAPE)}

    def autoregression(y):
        level = numpyro.sample("level", dist.Normal(0, 1))
        rho = numpyro.sample("rho", dist.Uniform(0, 1))

        def step(previous, now):
            now = numpyro.sample("y", dist.Normal(level + rho * previous, 1.0), obs=now)
            return now, None

        scan(step, 0.0, y)

    model = from_numpyro(autoregression, draws, model_kwargs={"y": REAL})
    lag = np.append(0.0, REAL[:-1])
    mu = draws["level"][..., None] + draws["rho"][..., None] * lag
    assert_same(model, lq.from_family("normal", y=REAL, mu=mu, sigma=1.0))

    def mixture(eta, sigma, nu):
        weights = dist.Categorical(jnp.array([0.3, 0.7]))
        return dist.MixtureGeneral(weights, [dist.Normal(eta, sigma), dist.StudentT(nu, 0.0, 2.0)])

    reference = lq.from_family(
        "mixture",
        y=REAL,
        weights=np.broadcast_to([0.3, 0.7], (*SHAPE, 2)),
        components=[
            ("normal", {"mu": ETA, "sigma": SIGMA}),
            ("student_t", {"nu": NU, "mu": 0.0, "sigma": 2.0}),
        ],
    )
    assert_same(fitted(mixture, REAL), reference)


def test_grids_have_the_names_of_their_plates():
    y = RNG.normal(size=(4, 3))

    def model(y):
        effect = numpyro.sample("effect", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("year", 3, dim=-1), numpyro.plate("school", 4, dim=-2):
            numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)

    effect = RNG.normal(size=(*SHAPE, 3))
    got = from_numpyro(model, {"effect": effect}, model_kwargs={"y": y})
    assert got.observations.sizes == {"school": 4, "year": 3}
    grid = xr.DataArray(y, dims=("school", "year"))
    mu = xr.DataArray(effect, dims=("chain", "draw", "year"))
    assert_same(got, lq.from_family("normal", y=grid, mu=mu, sigma=1.0))


def test_a_distribution_that_cannot_be_cut_into_observations():
    """Its location is no part of what JAX sees of it."""
    model = fitted(lambda eta, sigma, nu: dist.Levy(-1.0, sigma), POSITIVE)
    z = POSITIVE + 1.0
    grad, curv = model.source.derivatives(1, slice(0, DRAWS), slice(0, N))
    c = SIGMA[1][:, None]
    np.testing.assert_allclose(grad[..., 0], c / (2 * z**2) - 1.5 / z, rtol=1e-11)
    np.testing.assert_allclose(curv[..., 0], 1.5 / z**2 - c / z**3, rtol=1e-10)
    twice = np.stack([POSITIVE[[4, 4]], POSITIVE[[4, 4]] + 1.0])[..., None]
    logp = model.source.logp_at(twice, 1, slice(0, 5), np.array([4, 4]))
    np.testing.assert_allclose(logp[0, :, 0], model.source.logp(1, slice(0, 5), slice(4, 5))[:, 0])
    np.testing.assert_array_equal(logp[..., 0], logp[..., 1])


# Draws from everywhere


def linear(eta, sigma, nu):
    return dist.Normal(eta, sigma)


def test_a_real_run_is_numpyros_own_log_likelihood():
    """Its draws are single precision; what is computed from them is not."""

    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        with numpyro.plate("obs", len(x)):
            numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)

    x, arguments = X[:, 0], {"x": X[:, 0], "y": REAL}
    mcmc = MCMC(
        HMC(model, num_steps=4, trajectory_length=None),
        num_warmup=50,
        num_samples=25,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), **arguments)
    assert not jax.config.jax_enable_x64
    from_run = from_numpyro(model, mcmc, model_kwargs=arguments)
    assert jnp.ones(1).dtype == "float32"
    assert (from_run.n_chains, from_run.n_draws) == (2, 25)

    draws = {name: np.asarray(d, np.float64) for name, d in mcmc.get_samples(True).items()}
    mu = draws["slope"][..., None] * x
    assert_same(from_run, lq.from_family("normal", y=REAL, mu=mu, sigma=draws["sigma"]))
    with jax.enable_x64(True):
        copies = {name: values.copy() for name, values in arguments.items()}
        theirs = log_likelihood(model, draws, batch_ndims=2, **copies)["y"]
    np.testing.assert_allclose(from_run.source.all_logp(slice(0, N)), theirs, rtol=1e-12)

    flat = from_numpyro(model, mcmc.get_samples(), model_kwargs=arguments)
    assert (flat.n_chains, flat.n_draws) == (1, 50)
    joined = from_run.source.all_logp(slice(0, N)).reshape(1, 50, N)
    np.testing.assert_allclose(flat.source.all_logp(slice(0, N)), joined, rtol=1e-12)


def test_draws_come_from_arviz_too():
    posterior = xr.Dataset(
        {
            "beta": (("chain", "draw", "beta_dim_0"), BETA),
            "sigma": (("draw", "chain"), SIGMA.T),
            "nu": (("chain", "draw"), NU),
            "eta": (("chain", "draw", "eta_dim_0"), ETA),
        }
    )
    arviz = pytest.importorskip("arviz")
    containers = [posterior, xr.DataTree.from_dict({"posterior": posterior})]
    if arviz.__version__.startswith("0."):
        containers.append(arviz.InferenceData(posterior=posterior))
    reference = lq.from_family("normal", y=REAL, mu=ETA, sigma=SIGMA)
    for given in containers:
        assert_same(fitted(linear, REAL, posterior=given), reference)
    with pytest.raises(LockquackError, match="Cannot read draws from a int"):
        fitted(linear, REAL, posterior=3)


def test_single_and_double_precision_live_side_by_side():
    """JAX alone fails on arrays that it met in the other precision."""
    x, y = X[:, 0].copy(), REAL.copy()

    def model():
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)

    class Held:
        def __init__(self):
            self.x, self.y = x, y

        def model(self):
            slope = numpyro.sample("slope", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(slope * self.x, 1.0), obs=self.y)

    slope = RNG.normal(size=SHAPE)
    reference = lq.from_family("normal", y=y, mu=slope[..., None] * x, sigma=1.0)
    for given in (model, Held().model, handlers.condition(model, {"y": y})):
        log_likelihood(given, {"slope": slope.astype(np.float32)}, batch_ndims=2)
        assert_same(from_numpyro(given, {"slope": slope}), reference)
        log_likelihood(given, {"slope": slope.astype(np.float32)}, batch_ndims=2)


# New observations


def test_with_data_uses_new_arguments_and_no_stale_draws():
    draws = POSTERIOR | {"eta": ETA, "y": np.zeros((*SHAPE, N))}
    model = fitted(linear, REAL, posterior=draws)
    x, y = RNG.normal(size=(4, 2)), RNG.normal(size=4)
    labelled = xr.DataArray(y, dims="day", coords={"day": [3, 4, 5, 6]})
    mu = np.einsum("csp,np->csn", BETA, x)
    new = model.with_data(labelled, x=x)
    assert_same(new, lq.from_family("normal", y=y, mu=mu, sigma=SIGMA))
    assert new.observations.dims == ("day",)
    assert_same(model.with_data(REAL, x=X), model)
    with pytest.raises(ParameterError, match="'x' of the model .* are still those of the 9 old"):
        model.with_data(y)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_new_arguments_go_to_the_models_that_have_them():
    def line(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)

    def groups(g, y=None):
        effect = numpyro.sample("effect", dist.Normal(0, 1).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(effect[g], 1.0), obs=y)

    x, g = X[:, 0], np.arange(N) % 3
    slope, effect = RNG.normal(size=SHAPE), RNG.normal(size=(*SHAPE, 3))
    models = {
        "line": from_numpyro(line, {"slope": slope}, model_kwargs={"x": x, "y": REAL}),
        "groups": from_numpyro(groups, {"effect": effect}, model_kwargs={"g": g, "y": REAL}),
    }
    fit = lq.equal(models)
    new = fit.predict(x=np.array([0.5, 1.0]), g=np.array([2, 0]))
    both = [slope.mean() * np.array([0.5, 1.0]), effect.mean(axis=(0, 1))[[2, 0]]]
    np.testing.assert_allclose(new.mean(), np.mean(both, axis=0), atol=1e-6)
    with pytest.raises(LockquackError, match="'z'"):
        fit.predict(z=x)
    with pytest.raises(LockquackError, match="'groups'.*group g = 3"):
        fit.predict(x=x[:2], g=np.array([0, 3]))


def test_a_sampler_that_was_not_run_has_no_draws():
    mcmc = MCMC(HMC(two_sites), num_warmup=1, num_samples=1)
    with pytest.raises(LockquackError, match="The MCMC has no draws yet"):
        from_numpyro(two_sites, mcmc, model_kwargs={"y": REAL})


def test_a_model_may_be_given_its_outcomes_by_a_handler():
    def model(x):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope * x, 1.0))

    slope = RNG.normal(size=SHAPE)
    x = X[:, 0]
    got = from_numpyro(
        handlers.condition(model, {"y": REAL}), {"slope": slope}, model_kwargs={"x": x}
    )
    assert_same(got, lq.from_family("normal", y=REAL, mu=slope[..., None] * x, sigma=1.0))


# Masks

MASK = np.array([True, False, True, True, False, True, True, True, True])


def masked(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("obs", len(x)), handlers.mask(mask=MASK):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def imputed(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y, obs_mask=MASK)


@pytest.mark.parametrize(("model", "site"), [(masked, None), (imputed, None), (imputed, "y")])
def test_masked_outcomes_are_left_out(model, site):
    y, x = np.where(MASK, REAL, np.nan if model is masked else 0.0), X[:, 0]
    draws = {"slope": RNG.normal(size=SHAPE), "y_unobserved": RNG.normal(size=(*SHAPE, N))}
    if model is masked:
        del draws["y_unobserved"]
    got = from_numpyro(model, draws, model_kwargs={"x": x, "y": y}, site=site)
    mu = draws["slope"][..., None] * x[MASK]
    assert_same(got, lq.from_family("normal", y=REAL[MASK], mu=mu, sigma=1.0))
    np.testing.assert_array_equal(got.observations.coords["obs_id"], np.flatnonzero(MASK))


def test_masks_that_leave_no_whole_outcomes_are_refused():
    def changing(y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope, 1.0).mask(y > slope), obs=y)

    def components(y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        mask = np.arange(6).reshape(3, 2) > 0
        numpyro.sample("y", dist.Normal(slope, 1.0).expand([3, 2]).mask(mask).to_event(1), obs=y)

    def nothing(y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with handlers.mask(mask=False):
            numpyro.sample("y", dist.Normal(slope, 1.0), obs=y)

    draws = {"slope": np.linspace(-1.0, 1.0, 20).reshape(2, 10)}
    for model, y, says in (
        (changing, REAL, "differs between draws"),
        (components, np.ones((3, 2)), "masked components"),
        (nothing, REAL, "All outcomes of the site 'y' are masked"),
    ):
        with pytest.raises(UnsupportedError, match=says):
            from_numpyro(model, draws, model_kwargs={"y": y})


# Likelihoods that scores refuse

UNIT = RNG.beta(2, 2, size=N)
COUNTS = RNG.poisson(2.0, size=N)
REFUSED = {
    "kink": (REAL, lambda eta, sigma, nu: dist.Laplace(eta, sigma)),
    "kink at its mode": (REAL, lambda eta, sigma, nu: dist.AsymmetricLaplaceQuantile(eta, sigma)),
    "kink at its centre": (
        REAL,
        lambda eta, sigma, nu: dist.TransformedDistribution(
            dist.Laplace(0.0, 1.0), dist.transforms.AffineTransform(eta, sigma)
        ),
    ),
    "jumps": (UNIT, lambda eta, sigma, nu: dist.Uniform(-sigma, 1.0 + sigma)),
    "cut off": (POSITIVE, lambda eta, sigma, nu: dist.TruncatedNormal(eta, sigma, low=0.0)),
    "censored": (
        POSITIVE,
        lambda eta, sigma, nu: dist.LeftCensoredDistribution(dist.Normal(eta, sigma), COUNTS > 2),
    ),
    "atom at 0": (POSITIVE, lambda eta, sigma, nu: dist.HurdleGamma(0.2 + 0 * eta, 3.0, nu)),
    "bounded": (
        np.abs(RNG.normal(size=(N, 2))),
        lambda eta, sigma, nu: dist.Gamma(3.0, jnp.exp(eta)[:, None] * jnp.ones(2)).to_event(1),
    ),
    "simplex": (
        RNG.dirichlet([1.0, 2.0, 3.0], size=N),
        lambda eta, sigma, nu: dist.Dirichlet(jnp.exp(eta)[:, None] * jnp.ones(3)),
    ),
    "edge at 0": (POSITIVE, lambda eta, sigma, nu: dist.Exponential(jnp.exp(eta))),
    "edge at 0 ": (POSITIVE, lambda eta, sigma, nu: dist.HalfNormal(jnp.exp(eta))),
    "edge at 0  ": (POSITIVE, lambda eta, sigma, nu: dist.Gamma(1.0 + 0 * nu, jnp.exp(eta))),
    "edge at 0   ": (UNIT, lambda eta, sigma, nu: dist.Beta(1.5 + 0 * nu, 3.0)),
    "edge at 0    ": (
        POSITIVE,
        lambda eta, sigma, nu: dist.MixtureGeneral(
            dist.Categorical(jnp.array([0.5, 0.5])),
            [dist.Gamma(1.5, 1.0 / sigma), dist.LogNormal(eta, sigma)],
        ),
    ),
    "edge at -3.14159": (REAL, lambda eta, sigma, nu: dist.VonMises(eta, sigma)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_score_must_refuse_is_known(reason):
    if reason == "atom at 0" and not hasattr(dist, "HurdleGamma"):
        pytest.skip("this NumPyro has no such distribution")
    y, likelihood = REFUSED[reason]
    known = fitted(likelihood, y).likelihood
    if reason.startswith("edge"):
        at = [f"edge at {edge.at:g}" for edge in known.edges if edge.order <= 1]
        assert reason.strip() in at
    else:
        assert reason.strip() in known.not_smooth


DISCRETE = {
    "Poisson": (COUNTS, lambda eta, sigma, nu: dist.Poisson(jnp.exp(eta))),
    "Bernoulli": (COUNTS % 2, lambda eta, sigma, nu: dist.Bernoulli(logits=eta)),
    "Categorical": (
        COUNTS % 2,
        lambda eta, sigma, nu: dist.Categorical(logits=jnp.stack([eta, -eta], axis=-1)),
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_sites_have_log_densities_only(name):
    y, likelihood = DISCRETE[name]
    model = fitted(likelihood, y)
    assert model.likelihood.description == name
    assert model.likelihood.discrete
    assert not model.source.can.differentiate
    with jax.enable_x64(True):
        theirs = log_likelihood(regression(likelihood), POSTERIOR, batch_ndims=2, x=X, y=y)["y"]
    np.testing.assert_allclose(model.source.all_logp(slice(0, N)), theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_models_are_combined_as_their_closed_forms_are():
    def student(eta, sigma, nu):
        return dist.StudentT(nu, eta, sigma)

    models = {"normal": fitted(linear, REAL), "student": fitted(student, REAL)}
    parameters = {"y": REAL, "mu": ETA, "sigma": SIGMA}
    closed = {
        "normal": lq.from_family("normal", **parameters),
        "student": lq.from_family("student_t", **parameters, nu=NU),
    }
    for method in (lq.lock, lq.stack):
        weights, expected = method(models).weights, method(closed).weights
        np.testing.assert_allclose(weights, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(lq.lock(models).logpdf(), lq.lock(closed).logpdf(), rtol=1e-6)


# What cannot be a model


def two_sites(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("first", dist.Normal(mu, 1.0), obs=y)
    numpyro.sample("second", dist.Normal(mu, 2.0), obs=y + 1.0)
    numpyro.factor("prior", -(mu**2))


def test_one_of_several_sites():
    mu = RNG.normal(size=SHAPE)
    model = from_numpyro(two_sites, {"mu": mu}, model_kwargs={"y": REAL}, site="second")
    assert_same(model, lq.from_family("normal", y=REAL + 1.0, mu=mu, sigma=2.0))


def subsampled(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("obs", len(y), subsample_size=3):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=numpyro.subsample(y, 0))


def scaled(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with handlers.scale(scale=0.5):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def process(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.MultivariateNormal(mu, jnp.eye(len(y))), obs=y)


def broadcast(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu * jnp.ones((len(y), 1)), 1.0), obs=y)


def only_a_factor(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.factor("likelihood", -((y - mu) ** 2).sum())


def summed_out(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    group = numpyro.sample("group", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
    numpyro.sample("y", dist.Normal(mu + group, 1.0), obs=y)


def penalised(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    numpyro.factor("penalty", -mu * (y**2).sum())


def downstream(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    y = numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    numpyro.sample("z", dist.Normal(y, 1.0), obs=jnp.zeros(N))


class Tied(dist.Distribution):
    """Log densities that depend on the outcome before."""

    arg_constraints = {"mu": dist.constraints.real}  # noqa: RUF012
    support = dist.constraints.real

    def __init__(self, mu):
        self.mu = mu
        super().__init__(batch_shape=(N,))

    def log_prob(self, value):
        before = jnp.concatenate([jnp.zeros(1), value[:-1]])
        return dist.Normal(self.mu * before, 1.0).log_prob(value)


def moving_average(y):
    numpyro.sample("y", Tied(numpyro.sample("mu", dist.Normal(0, 1))), obs=y)


def test_terms_that_are_given_earlier_outcomes_are_taken_and_said():
    model = from_numpyro(
        moving_average, {"mu": RNG.normal(size=SHAPE)}, model_kwargs={"y": RNG.normal(size=N)}
    )
    assert model.likelihood.given_earlier


def typed_loop(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))

    def step(last, now):
        return numpyro.sample("y", dist.Normal(mu * last, 1.0), obs=now), None

    scan(step, jnp.zeros((), dtype=jnp.float32), y)


def summed_out_in_a_loop(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))

    def step(state, now):
        state = numpyro.sample(
            "state", dist.Bernoulli(0.2 + 0.6 * state), infer={"enumerate": "parallel"}
        )
        numpyro.sample("y", dist.Normal(mu * state, 1.0), obs=now)
        return state, None

    scan(step, jnp.array(0, dtype=jnp.int32), y)


def broken(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))

    class Broken(dist.Normal):
        def log_prob(self, value):
            raise NotImplementedError("no density yet")

    numpyro.sample("y", Broken(mu, 1.0), obs=y)


def no_latents(y):
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


def unfinished(y, x):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu * x, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "error", "says"),
    [
        (two_sites, UnsupportedError, "site\\(s\\) 'first', 'second'. Say which one"),
        (subsampled, UnsupportedError, "'obs' is subsampled, 3 of 9"),
        (scaled, UnsupportedError, "'y' is scaled by 0.5 .*Draw with a scale of 1"),
        (process, UnsupportedError, "one event .* \\(MultivariateNormal\\).*a joint one"),
        (
            broadcast,
            ShapeError,
            "\\(9,\\); its distribution has the shape \\(9, 1\\).*give them the same",
        ),
        (only_a_factor, UnsupportedError, "no observed site.*lq.from_jax"),
        (penalised, UnsupportedError, "'penalty' depends on the outcomes at the site 'y'"),
        (summed_out, ParameterError, "'group', of which there are no draws.*MixtureSameFamily"),
        (typed_loop, UnsupportedError, "begins with numbers of type float32 and goes on with fl"),
        (summed_out_in_a_loop, ParameterError, "'state', of which there are no draws"),
        (broken, LockquackError, "site 'y' of the model 'broken' cannot be .*: no density yet"),
        (no_latents, ParameterError, "no latent sites"),
        (unfinished, LockquackError, "does not run.*argument: 'x'.*by model_kwargs="),
    ],
)
def test_what_is_no_model_of_observations_is_refused(model, error, says):
    with pytest.raises(error, match=says):
        from_numpyro(model, {"mu": RNG.normal(size=SHAPE)}, model_kwargs={"y": REAL})


def test_an_outcome_that_others_depend_on_is_refused():
    draws = {"mu": RNG.normal(size=SHAPE)}
    with pytest.raises(UnsupportedError, match="'z' depends on the outcomes at the site 'y'"):
        from_numpyro(downstream, draws, model_kwargs={"y": REAL}, site="y")


def test_scales_that_differ_are_case_weights():
    weight = RNG.uniform(0.5, 2.0, size=N)

    def model(x, weight, y, z=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("people", len(x)):
            with handlers.scale(scale=weight), handlers.mask(mask=MASK):
                numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)
            if z is not None:
                numpyro.sample("z", dist.Normal(slope * x, 1.0).mask(MASK), obs=z)

    x, slope = X[:, 0], RNG.normal(size=SHAPE)
    arguments = {"x": x, "weight": weight, "y": REAL}
    got = from_numpyro(model, {"slope": slope}, model_kwargs=arguments)
    mu = slope[..., None] * x[MASK]
    assert_same(got, lq.from_family("normal", y=REAL[MASK], mu=mu, sigma=1.0))
    np.testing.assert_array_equal(got.observations.weights, weight[MASK])
    given = from_numpyro(model, {"slope": slope}, model_kwargs=arguments, weights=weight[MASK] + 1)
    np.testing.assert_array_equal(given.observations.weights, weight[MASK] + 1)
    arguments["z"] = REAL
    with pytest.raises(UnsupportedError, match="'y', 'z' have different scales"):
        from_numpyro(model, {"slope": slope}, model_kwargs=arguments, site=["y", "z"])


def test_few_new_outcomes_are_not_taken_for_covariates_that_are_the_same_numbers():
    def model(actor, treatment, left=None):
        a = numpyro.sample("a", dist.Normal(0, 1).expand([3]).to_event(1))
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("left", dist.Bernoulli(logits=a[actor] + b[treatment]), obs=left)

    draws = {"a": RNG.normal(size=(*SHAPE, 3)), "b": RNG.normal(size=(*SHAPE, 2))}
    data = {"actor": np.arange(N) % 3, "treatment": np.arange(N) // 2 % 2}
    # A covariate that happens to be the same is none of the outcomes either.
    fitted = from_numpyro(model, draws, model_kwargs=data | {"left": data["treatment"].copy()})
    y = np.array([0, 1, 1])
    new = fitted.with_data(y, actor=y, treatment=y)
    assert new.likelihood.description == "Bernoulli"
    logit = draws["a"][..., y] + draws["b"][..., y]
    expected = lq.from_family("bernoulli", y=y, p=1 / (1 + np.exp(-logit)))
    np.testing.assert_allclose(
        new.source.all_logp(slice(0, 3)), expected.source.all_logp(slice(0, 3))
    )
    with pytest.raises(ParameterError, match="not fitted to the group actor = 3, so"):
        fitted.with_data(y, actor=np.array([1, 3, 1]), treatment=y)


def test_a_mediator_is_drawn_before_what_depends_on_it():
    def model(x, m, y):
        a, b = (numpyro.sample(name, dist.Normal(0, 1)) for name in "ab")
        numpyro.sample("m", dist.Normal(a * x, 1.0), obs=m)
        numpyro.sample("y", dist.Normal(b * m, 0.5), obs=y)

    a, b = RNG.normal(size=(2, *SHAPE))
    arguments = {"x": X[:, 0], "m": POSITIVE, "y": REAL}
    both = from_numpyro(model, {"a": a, "b": b}, model_kwargs=arguments, site=["y", "m"])
    mu_m = a[..., None] * X[:, 0]
    mu = np.stack([b[..., None] * mu_m, mu_m], axis=-1)
    cov = np.stack(
        [np.stack([b**2 + 0.25, b], axis=-1), np.stack([b, np.ones_like(b)], axis=-1)], axis=-2
    )
    y = np.stack([REAL, POSITIVE], axis=1)
    exact = lq.from_family("mv_normal", y=y, mu=mu, cov=cov)
    assert_same(both, exact, rtol=1e-9)
    assert_same_outcomes(both, exact, repeats=60)


def test_all_outcomes_in_one_event_are_the_same_as_one_by_one():
    def model(x, known, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope * x, 1.0).mask(known).to_event(1), obs=y)

    x, slope = X[:, 0], RNG.normal(size=SHAPE)
    arguments = {"x": x, "known": MASK, "y": REAL}
    got = from_numpyro(model, {"slope": slope}, model_kwargs=arguments)
    mu = slope[..., None] * x[MASK]
    assert_same(got, lq.from_family("normal", y=REAL[MASK], mu=mu, sigma=1.0))


def test_a_lag_among_the_covariates_is_said():
    def model(before, y):
        rho = numpyro.sample("rho", dist.Uniform(-1, 1))
        numpyro.sample("y", dist.Normal(rho * before, 1.0), obs=y)

    rho, panel = RNG.uniform(size=SHAPE), RNG.normal(size=(9, 2))
    for y in (REAL, panel):
        for before, lagged in ((y[:-1], True), (y[:-1][::-1], False)):
            arguments = {"before": before, "y": y[1:]}
            got = from_numpyro(model, {"rho": rho}, model_kwargs=arguments)
            assert got.likelihood.given_earlier == lagged


def test_forgotten_outcomes_are_asked_for():
    with pytest.raises(UnsupportedError, match="no observed site. Give its outcomes among"):
        from_numpyro(regression(linear), POSTERIOR, model_kwargs={"x": X})


def test_a_site_that_is_not_observed_is_named():
    with pytest.raises(UnsupportedError, match="'z' is none of them"):
        from_numpyro(two_sites, {"mu": np.ones(SHAPE)}, model_kwargs={"y": REAL}, site="z")
