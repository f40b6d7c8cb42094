"""Regressions: linear, generalised linear, sparse, with neural networks and smooth functions."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.numpyro.example import CORPUS, Example

RNG = np.random.default_rng(11)
N = 8
X = RNG.normal(size=N)
Y = 0.5 * X + RNG.normal(size=N)
COUNTS = RNG.poisson(2.0, size=N)
POSITIVE = RNG.gamma(3.0, 0.5, size=N)


@CORPUS.case(
    "regression", "linear regression with two predictors, one of them optional", quick=True
)
def divorce():
    import numpyro
    import numpyro.distributions as dist

    def model(marriage=None, age=None, divorce=None):
        a = numpyro.sample("a", dist.Normal(0.0, 0.2))
        effect = 0.0
        if marriage is not None:
            effect += numpyro.sample("bM", dist.Normal(0.0, 0.5)) * marriage
        if age is not None:
            effect += numpyro.sample("bA", dist.Normal(0.0, 0.5)) * age
        sigma = numpyro.sample("sigma", dist.Exponential(1.0))
        numpyro.sample("obs", dist.Normal(a + effect, sigma), obs=divorce)

    arguments = {"marriage": X, "age": RNG.normal(size=N), "divorce": Y}
    return Example(model, arguments, ("divorce",), ("obs",))


@CORPUS.case("regression", "measurement error in the outcome: latent true values")
def divorce_with_measurement_error():
    import numpyro
    import numpyro.distributions as dist

    def model(age, error, divorce=None):
        a = numpyro.sample("a", dist.Normal(0.0, 0.2))
        slope = numpyro.sample("b", dist.Normal(0.0, 0.5))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("state", len(age)):
            true = numpyro.sample("true", dist.Normal(a + slope * age, sigma))
            numpyro.sample("obs", dist.Normal(true, error), obs=divorce)

    arguments = {"age": X, "error": np.full(N, 0.3), "divorce": Y}
    return Example(model, arguments, ("divorce",), ("obs",))


@CORPUS.case("regression", "robust regression, Student-t with unknown degrees of freedom")
def robust_regression():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]))
        nu = numpyro.sample("nu", dist.Gamma(5, 1.0))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))
        mu = numpyro.deterministic("mu", beta[0] + beta[1] * x)
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.StudentT(2 + nu, mu, sigma), obs=y)

    return Example(model, {"x": X, "y": Y})


@CORPUS.case("regression", "all outcomes in one event, .to_event(1)")
def one_event_of_all():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))
        numpyro.sample("y", dist.Normal(slope * x, sigma).to_event(1), obs=y)

    return Example(model, {"x": X, "y": Y}, one_event=True)


@CORPUS.case("regression", "horseshoe prior, normal outcomes")
def horseshoe():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(X, Y):
        lambdas = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(X.shape[1])))
        tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
        unscaled = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(X.shape[1])))
        betas = numpyro.deterministic("betas", tau * lambdas * unscaled)
        precision = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
        numpyro.sample("Y", dist.Normal(jnp.dot(X, betas), 1.0 / jnp.sqrt(precision)), obs=Y)

    return Example(model, {"X": RNG.normal(size=(N, 3)), "Y": Y}, ("Y",), ("Y",))


@CORPUS.case("regression", "neural network of two layers; outcomes of shape (n, 1)")
def neural_network():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(X, Y, hidden):
        n, p = X.shape
        w1 = numpyro.sample("w1", dist.Normal(jnp.zeros((p, hidden)), jnp.ones((p, hidden))))
        w2 = numpyro.sample("w2", dist.Normal(jnp.zeros((hidden, 1)), jnp.ones((hidden, 1))))
        z = jnp.tanh(X @ w1) @ w2
        sigma = 1.0 / jnp.sqrt(numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0)))
        with numpyro.plate("data", n):
            numpyro.sample("Y", dist.Normal(z, sigma).to_event(1), obs=Y)

    arguments = {"X": RNG.normal(size=(N, 2)), "Y": Y[:, None], "hidden": 3}
    return Example(model, arguments, ("Y",), ("Y",))


@CORPUS.case("regression", "Gaussian process in its weight-space form (Hilbert space)")
def hilbert_space_process():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def basis(x, m, length):
        j = jnp.arange(1, m + 1)
        roots = jnp.pi * j / (2 * length)
        return jnp.sin(roots * (x[:, None] + length)) / jnp.sqrt(length), roots

    def model(x, m, length, y=None):
        alpha = numpyro.sample("alpha", dist.InverseGamma(12, 10))
        scale = numpyro.sample("length", dist.InverseGamma(6, 6))
        noise = numpyro.sample("noise", dist.InverseGamma(12, 10))
        phi, roots = basis(x, m, length)
        spectrum = alpha * jnp.sqrt(scale) * jnp.exp(-0.25 * (scale * roots) ** 2)
        with numpyro.plate("basis", m):
            beta = numpyro.sample("beta", dist.Normal(0, 1))
        f = numpyro.deterministic("f", phi @ (spectrum * beta))
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Normal(f, noise), obs=y)

    return Example(model, {"x": X, "m": 5, "length": 4.0, "y": Y})


@CORPUS.case("regression", "latent Gaussian process, its values at the data are draws")
def latent_process():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(X, Y):
        var = numpyro.sample("var", dist.LogNormal(0.0, 0.5))
        length = numpyro.sample("length", dist.LogNormal(0.0, 0.5))
        noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))
        k = var * jnp.exp(-0.5 * ((X[:, None] - X) / length) ** 2) + 1e-5 * jnp.eye(len(X))
        z = numpyro.sample("z", dist.Normal(jnp.zeros(len(X)), 1.0))
        f = jnp.linalg.cholesky(k) @ z
        numpyro.sample("Y", dist.Normal(f, noise), obs=Y)

    return Example(model, {"X": X, "Y": Y}, ("Y",), ("Y",))


@CORPUS.case(
    "joint density",
    "Gaussian process whose values were integrated out",
    goes_in="no",
    reason="all outcomes are one event of a multivariate normal: there are no single observations",
    says="are one event",
    quick=True,
)
def marginal_process():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(X, Y):
        var = numpyro.sample("kernel_var", dist.LogNormal(0.0, 10.0))
        noise = numpyro.sample("kernel_noise", dist.LogNormal(0.0, 10.0))
        length = numpyro.sample("kernel_length", dist.LogNormal(0.0, 10.0))
        k = var * jnp.exp(-0.5 * ((X[:, None] - X) / length) ** 2)
        k += (noise + 1e-6) * jnp.eye(len(X))
        numpyro.sample(
            "Y",
            dist.MultivariateNormal(loc=jnp.zeros(len(X)), covariance_matrix=k),
            obs=Y,
        )

    return Example(model, {"X": X, "Y": Y}, ("Y",), ("Y",))


@CORPUS.case("regression", "gamma regression with a log link")
def gamma_regression():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(0.0, 0.5))
        b = numpyro.sample("b", dist.Normal(0.0, 0.5))
        shape = numpyro.sample("shape", dist.Uniform(2.5, 5.0))
        numpyro.sample("y", dist.Gamma(shape, shape / jnp.exp(a + b * x)), obs=y)

    return Example(model, {"x": X, "y": POSITIVE})


@CORPUS.case("regression", "regression of log y, as a transformed distribution")
def log_transformed():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(0.0, 0.5))
        sigma = numpyro.sample("sigma", dist.LogNormal(-1, 0.3))
        base = dist.Normal(a * x, sigma)
        with numpyro.plate("N", len(x)):
            numpyro.sample(
                "y", dist.TransformedDistribution(base, dist.transforms.ExpTransform()), obs=y
            )

    return Example(model, {"x": X, "y": POSITIVE})


@CORPUS.case("regression", "flat priors, ImproperUniform and dist.Delta for a fixed parameter")
def flat_priors():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.distributions import constraints

    def model(x, y=None):
        a = numpyro.sample("a", dist.ImproperUniform(constraints.real, (), ()))
        log_sigma = numpyro.sample("log_sigma", dist.ImproperUniform(constraints.real, (), ()))
        fixed = numpyro.sample("fixed", dist.Delta(2.0))
        numpyro.sample("y", dist.Normal(a + fixed * x, jnp.exp(log_sigma)), obs=y)

    rng = np.random.default_rng(5)
    draws = {
        "a": rng.normal(size=(2, 3)),
        "log_sigma": rng.normal(size=(2, 3)),
        "fixed": np.full((2, 3), 2.0),
    }
    return Example(model, {"x": X, "y": Y}, draws=draws)


@CORPUS.case("regression", "variance that depends on a covariate, plate and scale by exp")
def unequal_variances():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(data, y=None):
        with numpyro.handlers.scope(prefix="location"):
            a = numpyro.sample("a", dist.Normal(0, 1))
        with numpyro.handlers.scope(prefix="spread"):
            b = numpyro.sample("a", dist.Normal(0, 0.2))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(a * data["x"], jnp.exp(b * data["x"])), obs=y)

    return Example(model, {"data": {"x": X}, "y": Y})


@CORPUS.case(
    "counts and classes",
    "Poisson regression with exposure",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def poisson_regression():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, exposure, y=None):
        b = numpyro.sample("b", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Poisson(exposure * jnp.exp(b[0] + b[1] * x)), obs=y)

    return Example(model, {"x": X, "exposure": np.full(N, 2.0), "y": COUNTS})


@CORPUS.case(
    "counts and classes",
    "zero-inflated Poisson regression",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def zero_inflated_poisson():
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(X, Y):
        b1 = numpyro.sample("b1", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
        b2 = numpyro.sample("b2", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
        q = jax.nn.sigmoid(jnp.dot(X, b1[:, None])).reshape(-1)
        lam = jnp.exp(jnp.dot(X, b2[:, None]).reshape(-1))
        with numpyro.plate("obs", X.shape[0]):
            numpyro.sample("Y", dist.ZeroInflatedPoisson(gate=q, rate=lam), obs=Y)

    counts = COUNTS.copy()
    counts[:3] = 0
    return Example(model, {"X": RNG.normal(size=(N, 2)), "Y": counts}, ("Y",), ("Y",))


@CORPUS.case(
    "counts and classes",
    "ordinal regression with ordered cutpoints",
    goes_in="log",
    reason="classes have no derivatives",
    says="discrete",
    quick=True,
)
def ordinal():
    import numpyro
    import numpyro.distributions as dist

    def model(X, Y, n_classes, concentration=5.0):
        with numpyro.plate("betas", 1):
            beta = numpyro.sample("b_X_eta", dist.Normal(0, 2))
        cuts = numpyro.sample(
            "c_y",
            dist.TransformedDistribution(
                dist.Dirichlet(np.full(n_classes, concentration)),
                dist.transforms.SimplexToOrderedTransform(0.0),
            ),
        )
        with numpyro.plate("obs", X.shape[0]):
            numpyro.sample("Y", dist.OrderedLogistic(X * beta, cuts), obs=Y)

    return Example(model, {"X": X, "Y": COUNTS % 3, "n_classes": 3}, ("Y",), ("Y",))


@CORPUS.case(
    "counts and classes",
    "softmax regression of classes",
    goes_in="log",
    reason="classes have no derivatives",
    says="discrete",
)
def softmax():
    import numpyro
    import numpyro.distributions as dist

    def model(X, classes, y=None):
        with numpyro.plate("class", classes):
            a = numpyro.sample("a", dist.Normal(0, 1))
            b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("data", len(X)):
            numpyro.sample("y", dist.Categorical(logits=a + b * X[:, None]), obs=y)

    return Example(model, {"X": X, "classes": 3, "y": COUNTS % 3})
