"""Likelihoods: mixtures, cut-off and censored outcomes, angles, shares, vectors of counts."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.numpyro.example import CORPUS, Example

RNG = np.random.default_rng(14)
N = 7
X = RNG.normal(size=N)
Y = RNG.normal(size=N)
POSITIVE = RNG.gamma(3.0, 0.5, size=N)
ANGLES = RNG.uniform(-np.pi, np.pi, size=N)


@CORPUS.case("mixture", "normal mixture, MixtureSameFamily")
def normal_mixture():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("components", 3):
            locs = numpyro.sample("locs", dist.Normal(0.0, 2.0))
            scales = numpyro.sample("scales", dist.LogNormal(0.0, 0.3))
        with numpyro.plate("data", len(y)):
            numpyro.sample(
                "y",
                dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(locs, scales)),
                obs=y,
            )

    return Example(model, {"y": Y})


@CORPUS.case("mixture", "outliers: MixtureGeneral of a normal and a Student-t", quick=True)
def outliers():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        share = numpyro.sample("share", dist.Beta(1.0, 4.0))
        weights = dist.Categorical(probs=jnp.stack([1 - share, share]))
        parts = [dist.Normal(b * x, 0.5), dist.StudentT(3.0, b * x, 2.0)]
        numpyro.sample("y", dist.MixtureGeneral(weights, parts), obs=y)

    return Example(model, {"x": X, "y": Y})


@CORPUS.case("mixture", "mixture of regressions whose shares depend on a covariate")
def mixture_of_experts():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        gate = numpyro.sample("gate", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample(
                "y",
                dist.MixtureSameFamily(
                    dist.Categorical(logits=x[:, None] * gate),
                    dist.Normal(x[:, None] * slopes, jnp.array([0.5, 1.5])),
                ),
                obs=y,
            )

    return Example(model, {"x": X, "y": Y})


@CORPUS.case("mixture", "mixture of bivariate normals")
def vector_mixture():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        locs = numpyro.sample("locs", dist.Normal(0.0, 2.0).expand([2, 2]).to_event(2))
        parts = dist.MultivariateNormal(locs, covariance_matrix=jnp.eye(2))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)

    return Example(model, {"y": RNG.normal(size=(N, 2))})


@CORPUS.case(
    "discrete latent variables",
    "mixture with an assignment for each observation, summed out",
    goes_in="no",
    reason="the sampler summed out a discrete latent site, so there are no draws of it",
    says="MixtureSameFamily",
    quick=True,
)
def enumerated_mixture():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(data):
        weights = numpyro.sample("weights", dist.Dirichlet(0.5 * jnp.ones(2)))
        with numpyro.plate("components", 2):
            locs = numpyro.sample("locs", dist.Normal(0.0, 10.0))
        with numpyro.plate("data", len(data)):
            assignment = numpyro.sample(
                "assignment", dist.Categorical(weights), infer={"enumerate": "parallel"}
            )
            numpyro.sample("obs", dist.Normal(locs[assignment], 1.0), obs=data)

    draws = {
        "weights": RNG.dirichlet(np.ones(2), size=(2, 3)),
        "locs": RNG.normal(size=(2, 3, 2)),
    }
    return Example(model, {"data": Y}, ("data",), ("obs",), draws=draws)


@CORPUS.case(
    "cut off",
    "truncated normal",
    goes_in="log",
    reason="the density does not vanish where it is cut off",
    says="cut off",
    quick=True,
)
def truncated():
    import numpyro
    import numpyro.distributions as dist

    def model(high, y=None):
        loc = numpyro.sample("loc", dist.Normal())
        scale = numpyro.sample("scale", dist.LogNormal(0, 0.3))
        with numpyro.plate("observations", len(y)):
            numpyro.sample("y", dist.TruncatedNormal(loc, scale, high=high), obs=y)

    return Example(model, {"high": 3.0, "y": Y})


@CORPUS.case(
    "cut off",
    "truncated Student-t with an unknown bound",
    goes_in="log",
    reason="the density does not vanish where it is cut off",
    says="cut off",
)
def unknown_bound():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        low = numpyro.sample("low", dist.Uniform(-6, -4))
        scale = numpyro.sample("scale", dist.LogNormal(0, 0.3))
        base = dist.StudentT(4.0, 0.0, scale)
        with numpyro.plate("observations", len(y)):
            numpyro.sample("y", dist.LeftTruncatedDistribution(base, low=low), obs=y)

    return Example(model, {"y": Y}, without_generator=True)


@CORPUS.case(
    "cut off",
    "uniform up to an unknown maximum (tanks)",
    goes_in="log",
    reason="the density jumps at a bound that is a parameter",
    says="jumps",
)
def german_tanks():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        top = numpyro.sample("top", dist.Pareto(6.0, 2.0))
        with numpyro.plate("tanks", len(y)):
            numpyro.sample("y", dist.Uniform(0.0, top), obs=y)

    return Example(model, {"y": POSITIVE})


@CORPUS.case(
    "cut off",
    "shifted log-normal response times: the support begins at a parameter, the density smoothly",
)
def shifted_lognormal():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        shift = numpyro.sample("shift", dist.Uniform(0.0, 0.1))
        b = numpyro.sample("b", dist.Normal(0.0, 0.3))
        base = dist.LogNormal(b * x, 0.5)
        with numpyro.plate("trials", len(y)):
            numpyro.sample(
                "y",
                dist.TransformedDistribution(base, dist.transforms.AffineTransform(shift, 1.0)),
                obs=y,
            )

    return Example(model, {"x": X, "y": POSITIVE + 0.2})


@CORPUS.case(
    "censored",
    "survival times, censored on the right",
    goes_in="log",
    reason="censored outcomes have a probability, not a density",
    says="atoms",
    quick=True,
)
def right_censored():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, censored, y):
        b = numpyro.sample("b", dist.Normal(0.0, 0.5))
        with numpyro.plate("patients", len(y)):
            numpyro.sample(
                "y",
                dist.RightCensoredDistribution(dist.Exponential(jnp.exp(b * x)), censored),
                obs=y,
            )

    arguments = {"x": X, "censored": (np.arange(N) % 3 == 0).astype(float), "y": POSITIVE}
    return Example(model, arguments)


@CORPUS.case(
    "censored",
    "events by a site, censored times by a factor",
    goes_in="no",
    reason="part of the likelihood is a factor that depends on the outcomes",
    says="depends on the outcomes",
)
def censored_by_factor():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(censored, y):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.3))
        with numpyro.plate("patients", len(y)), numpyro.handlers.mask(mask=~censored):
            numpyro.sample("y", dist.Exponential(rate), obs=y)
        numpyro.factor("censored", -jnp.sum(jnp.where(censored, rate * y, 0.0)))

    return Example(model, {"censored": np.arange(N) % 3 == 0, "y": POSITIVE})


@CORPUS.case(
    "joint density",
    "likelihood by numpyro.factor",
    goes_in="no",
    reason="a factor does not say what the outcomes are",
    says="no observed site",
)
def factor():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.factor("likelihood", dist.Normal(b * x, 1.0).log_prob(y).sum())

    return Example(model, {"x": X, "y": Y})


@CORPUS.case("circular", "angles, von Mises with a regression of the direction", quick=True)
def von_mises():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        a = numpyro.sample("a", dist.VonMises(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 0.5))
        kappa = numpyro.sample("kappa", dist.Gamma(4.0, 1.0))
        with numpyro.plate("animals", len(x)):
            numpyro.sample("y", dist.VonMises(a + 2 * jnp.arctan(b * x), kappa), obs=y)

    return Example(model, {"x": X, "y": ANGLES})


@CORPUS.case("circular", "mixture of von Mises distributions")
def von_mises_mixture():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
        with numpyro.plate("components", 2):
            loc = numpyro.sample("loc", dist.VonMises(0.0, 1.0))
            kappa = numpyro.sample("kappa", dist.Gamma(3.0, 1.0))
        with numpyro.plate("data", len(y)):
            numpyro.sample(
                "y",
                dist.MixtureSameFamily(dist.Categorical(weights), dist.VonMises(loc, kappa)),
                obs=y,
            )

    return Example(model, {"y": ANGLES})


@CORPUS.case(
    "shares and counts",
    "beta regression of proportions",
    goes_in="H of logit y",
    reason="its density need not vanish at 0 and 1",
    says="does not vanish smoothly at",
    quick=True,
)
def beta_regression():
    import jax
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 0.5))
        phi = numpyro.sample("phi", dist.Uniform(1.0, 3.0))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.BetaProportion(jax.nn.sigmoid(b * x), phi), obs=y)

    return Example(model, {"x": X, "y": RNG.beta(2.0, 2.0, size=N)})


@CORPUS.case(
    "shares and counts",
    "compositions, Dirichlet regression",
    goes_in="log",
    reason="components of a composition cannot vary on their own",
    says="simplex",
)
def dirichlet_regression():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 0.5).expand([3]).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Dirichlet(jnp.exp(1.0 + b * x[:, None])), obs=y)

    return Example(model, {"x": X, "y": RNG.dirichlet([2.0, 3.0, 4.0], size=N)})


@CORPUS.case(
    "shares and counts",
    "Dirichlet-multinomial counts",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def dirichlet_multinomial():
    import numpyro
    import numpyro.distributions as dist

    def model(total, y=None):
        concentration = numpyro.sample("c", dist.LogNormal(1.0, 0.3).expand([3]).to_event(1))
        with numpyro.plate("sites", len(total)):
            numpyro.sample("y", dist.DirichletMultinomial(concentration, total), obs=y)

    counts = RNG.multinomial(10, [0.2, 0.3, 0.5], size=N)
    return Example(model, {"total": counts.sum(axis=1), "y": counts})


@CORPUS.case(
    "shares and counts",
    "multinomial counts with a softmax",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def multinomial():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, total, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
        logits = jnp.concatenate([x[:, None] * b, jnp.zeros((len(x), 1))], axis=1)
        with numpyro.plate("districts", len(x)):
            numpyro.sample("y", dist.Multinomial(total, logits=logits), obs=y)

    counts = RNG.multinomial(10, [0.2, 0.3, 0.5], size=N)
    return Example(model, {"x": X, "total": 10, "y": counts})


@CORPUS.case(
    "shares and counts",
    "negative binomial with a hurdle at zero",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def zero_inflated_counts():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 0.5))
        gate = numpyro.sample("gate", dist.Beta(2.0, 2.0))
        base = dist.NegativeBinomial2(jnp.exp(b * x), 2.0)
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.ZeroInflatedDistribution(base, gate=gate), obs=y)

    return Example(model, {"x": X, "y": RNG.poisson(1.0, size=N)})


@CORPUS.case(
    "kinks",
    "quantile regression, asymmetric Laplace",
    goes_in="log",
    reason="the density has a kink at its mode",
    says="kink",
    quick=True,
)
def quantile_regression():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
        loc = b[0] + b[1] * x
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.AsymmetricLaplaceQuantile(loc, scale, quantile=0.8), obs=y)

    return Example(model, {"x": X, "y": Y})


@CORPUS.case("vector outcomes", "multivariate normal with a correlation matrix", quick=True)
def multivariate():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 0.3).expand([3]).to_event(1))
        corr = numpyro.sample("corr", dist.LKJCholesky(3, 1.0))
        with numpyro.plate("data", len(x)):
            numpyro.sample(
                "y",
                dist.MultivariateNormal(x[:, None] * b, scale_tril=jnp.diag(sigma) @ corr),
                obs=y,
            )

    return Example(model, {"x": X, "y": RNG.normal(size=(N, 3))})


@CORPUS.case("vector outcomes", "predator and prey, a differential equation, log-normal outcomes")
def predator_prey():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.experimental.ode import odeint

    def derivative(z, t, theta):
        u, v = z
        return jnp.stack([(theta[0] - theta[1] * v) * u, (-theta[2] + theta[3] * u) * v])

    def model(N, y=None):
        z_init = numpyro.sample("z_init", dist.LogNormal(jnp.log(10), 0.3).expand([2]))
        theta = numpyro.sample(
            "theta",
            dist.TruncatedNormal(
                low=0.0,
                loc=jnp.array([1.0, 0.05, 1.0, 0.05]),
                scale=jnp.array([0.1, 0.01, 0.1, 0.01]),
            ),
        )
        z = odeint(derivative, z_init, jnp.arange(float(N)), theta, rtol=1e-6, atol=1e-5)
        sigma = numpyro.sample("sigma", dist.LogNormal(-1, 0.3).expand([2]))
        numpyro.sample("y", dist.LogNormal(jnp.log(z), sigma), obs=y)

    return Example(model, {"N": 5, "y": RNG.gamma(10.0, 2.0, size=(5, 2))})
