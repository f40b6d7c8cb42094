"""Time series: states that are draws, and terms that are given earlier outcomes."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.numpyro.example import CORPUS, Example

RNG = np.random.default_rng(13)
T = 8
Y = np.cumsum(RNG.normal(size=T)) * 0.5
GIVEN_EARLIER = {
    "remark": "given-earlier-outcomes",
    "reason": "each density is given the earlier outcomes",
}


@CORPUS.case("time series", "stochastic volatility, a random walk of log variances")
def stochastic_volatility():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(returns):
        step = numpyro.sample("sigma", dist.Exponential(50.0))
        s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step, num_steps=len(returns)))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)

    return Example(model, {"returns": Y}, ("returns",), ("r",))


@CORPUS.case("time series", "local level and trend, the states are sampled inside a scan")
def local_linear_trend():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y):
        level = numpyro.sample("level_0", dist.Normal(0, 1))
        slope = numpyro.sample("slope_0", dist.Normal(0, 0.3))
        noise = numpyro.sample("noise", dist.LogNormal(-0.5, 0.3))
        drift = numpyro.sample("drift", dist.LogNormal(-1, 0.3))

        def step(carry, _):
            level, slope = carry
            slope = numpyro.sample("slope", dist.Normal(slope, drift))
            level = numpyro.sample("level", dist.Normal(level + slope, drift))
            numpyro.sample("y", dist.Normal(level, noise))
            return (level, slope), level

        with numpyro.handlers.condition(data={"y": y}):
            scan(step, (level, slope), jnp.arange(len(y)))

    return Example(model, {"y": jnp.asarray(Y)})


@CORPUS.case("time series", "random walk from increments, cumulative sum")
def random_walk():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        drift = numpyro.sample("drift", dist.LogNormal(-1, 0.3))
        with numpyro.plate("time", len(y)):
            steps = numpyro.sample("steps", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(jnp.cumsum(drift * steps), 0.5), obs=y)

    return Example(model, {"y": Y})


@CORPUS.case(
    "time series",
    "autoregression of order 2 by scan, the first two values are data",
    **GIVEN_EARLIER,
    quick=True,
)
def autoregression():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y):
        a1 = numpyro.sample("alpha_1", dist.Normal(0, 1))
        a2 = numpyro.sample("alpha_2", dist.Normal(0, 1))
        const = numpyro.sample("const", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))

        def transition(carry, _):
            last, before = carry
            mean = const + a1 * last + a2 * before
            now = numpyro.sample("y", dist.Normal(mean, sigma))
            return (now, last), mean

        with numpyro.handlers.condition(data={"y": y[2:]}):
            _, mu = scan(transition, (y[1], y[0]), jnp.arange(len(y) - 2))
        numpyro.deterministic("mu", mu)

    return Example(model, {"y": jnp.asarray(Y)}, kept=np.arange(2, T), series=True)


@CORPUS.case(
    "time series",
    "autoregression in a for loop: sites y_2, y_3, …, one for each time",
    **GIVEN_EARLIER,
)
def autoregression_by_loop():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        a1 = numpyro.sample("alpha_1", dist.Normal(0, 1))
        const = numpyro.sample("const", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))
        last = y[0]
        for t in range(1, len(y)):
            last = numpyro.sample(f"y_{t}", dist.Normal(const + a1 * last, sigma), obs=y[t])

    sites = tuple(f"y_{t}" for t in range(1, T))
    return Example(model, {"y": Y}, sites=sites, site="y_*", kept=np.arange(1, T), series=True)


@CORPUS.case("time series", "autoregression with the lag as a covariate", **GIVEN_EARLIER)
def lag_as_covariate():
    import numpyro
    import numpyro.distributions as dist

    def model(before, y):
        rho = numpyro.sample("rho", dist.Uniform(-1, 1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))
        with numpyro.plate("time", len(y)):
            numpyro.sample("y", dist.Normal(rho * before, sigma), obs=y)

    return Example(model, {"before": Y[:-1], "y": Y[1:]}, series=True)


@CORPUS.case(
    "time series",
    "exponential smoothing (Holt and Winters), y read inside the scan",
    **GIVEN_EARLIER,
)
def holt_winters():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y, n_seasons):
        a = numpyro.sample("level_smoothing", dist.Beta(2, 2))
        b = numpyro.sample("trend_smoothing", dist.Beta(2, 2))
        c = numpyro.sample("seasonality_smoothing", dist.Beta(2, 2)) * (1 - a)
        noise = numpyro.sample("noise", dist.LogNormal(0, 0.3))
        level = numpyro.sample("level_init", dist.Normal(0, 1))
        trend = numpyro.sample("trend_init", dist.Normal(0, 1))
        with numpyro.plate("n_seasons", n_seasons):
            seasons = numpyro.sample("seasonality_init", dist.Normal(0, 1))

        def transition(carry, t):
            level, trend, seasons = carry
            new_level = a * (y[t] - seasons[0]) + (1 - a) * (level + trend)
            new_trend = b * (new_level - level) + (1 - b) * trend
            new_season = c * (y[t] - level - trend) + (1 - c) * seasons[0]
            numpyro.sample("pred", dist.Normal(level + trend + seasons[0], noise))
            return (new_level, new_trend, jnp.append(seasons[1:], new_season)), None

        with numpyro.handlers.condition(data={"pred": y}):
            scan(transition, (level, trend, seasons), jnp.arange(len(y)))

    return Example(model, {"y": jnp.asarray(Y), "n_seasons": 3}, sites=("pred",), series=True)


@CORPUS.case(
    "time series", "GARCH: the variance follows the squares of earlier outcomes", **GIVEN_EARLIER
)
def garch():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(r):
        a = numpyro.sample("a", dist.Uniform(0.1, 0.5))
        b = numpyro.sample("b", dist.Uniform(0.1, 0.5))
        first = numpyro.sample("first", dist.LogNormal(0, 0.3))

        def step(carry, now):
            variance = carry
            now = numpyro.sample("r", dist.Normal(0.0, jnp.sqrt(variance)), obs=now)
            return 0.2 + a * now**2 + b * variance, None

        scan(step, first, r)

    return Example(model, {"r": Y}, ("r",), ("r",), series=True)


@CORPUS.case(
    "time series", "several autoregressions side by side, series in columns", **GIVEN_EARLIER
)
def panel():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y):
        with numpyro.plate("series", y.shape[1]):
            rho = numpyro.sample("rho", dist.Uniform(-1, 1))

        def step(last, now):
            with numpyro.plate("series", y.shape[1]):
                now = numpyro.sample("y", dist.Normal(rho * last, 1.0), obs=now)
            return now, None

        scan(step, jnp.zeros(y.shape[1]), y)

    return Example(model, {"y": RNG.normal(size=(5, 2))}, series=True)


@CORPUS.case(
    "time series", "vector autoregression, an outcome is the vector of one time", **GIVEN_EARLIER
)
def vector_autoregression():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y):
        k = y.shape[1]
        c = numpyro.sample("c", dist.Normal(0, 1).expand([k]).to_event(1))
        phi = numpyro.sample("Phi", dist.Normal(0, 0.5).expand([k, k]).to_event(2))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3).expand([k]).to_event(1))
        omega = numpyro.sample("L_omega", dist.LKJCholesky(k, concentration=1.0))
        root = sigma[..., None] * omega

        def transition(last, t):
            now = numpyro.sample(
                "y", dist.MultivariateNormal(c + jnp.dot(phi, last), scale_tril=root)
            )
            return now, None

        with numpyro.handlers.condition(data={"y": y[1:]}):
            scan(transition, y[0], jnp.arange(len(y) - 1))

    return Example(
        model, {"y": jnp.asarray(RNG.normal(size=(5, 2)))}, kept=np.arange(1, 5), series=True
    )


@CORPUS.case(
    "time series",
    "states smoothed by the outcomes that come later",
    goes_in="no",
    reason="the density of an outcome is given later outcomes, so the terms have no product",
    says="later",
)
def centred_smoothing():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        w = numpyro.sample("w", dist.Uniform(0, 1))
        around = (jnp.roll(y, 1) + jnp.roll(y, -1)) / 2
        numpyro.sample("y", dist.Normal(w * around, 1.0), obs=y)

    return Example(model, {"y": Y})


@CORPUS.case(
    "time series",
    "outcomes centred by their own mean inside the model",
    goes_in="no",
    reason="the density of an outcome depends on itself through the mean",
    says="itself",
)
def centred_by_own_mean():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(y.mean() + b * x, 1.0), obs=y)

    return Example(model, {"x": RNG.normal(size=T), "y": Y})


@CORPUS.case(
    "discrete latent variables",
    "hidden Markov model, states summed out",
    goes_in="no",
    reason="the sampler summed out a discrete latent site, so there are no draws of it",
    says="of which there are no draws",
)
def hidden_markov():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.control_flow import scan

    def model(y):
        with numpyro.plate("states", 2):
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)))
            mean = numpyro.sample("mean", dist.Normal(0, 1))

        def transition(state, now):
            state = numpyro.sample(
                "state", dist.Categorical(rows[state]), infer={"enumerate": "parallel"}
            )
            numpyro.sample("y", dist.Normal(mean[state], 1.0), obs=now)
            return state, None

        scan(transition, 0, y)

    draws = {
        "rows": RNG.dirichlet(np.ones(2), size=(2, 3, 2)),
        "mean": RNG.normal(size=(2, 3, 2)),
    }
    return Example(model, {"y": Y}, draws=draws)


@CORPUS.case("time series", "observed Gaussian random walk, one event", **GIVEN_EARLIER)
def observed_walk():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        scale = numpyro.sample("scale", dist.LogNormal(0, 0.3))
        numpyro.sample("y", dist.GaussianRandomWalk(scale, num_steps=len(y)), obs=y)

    return Example(model, {"y": Y}, one_event=True)


@CORPUS.case(
    "time series", "stochastic differential equation by EulerMaruyama, one event", **GIVEN_EARLIER
)
def euler_maruyama():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(t, y):
        pull = numpyro.sample("pull", dist.LogNormal(0, 0.3))
        spread = numpyro.sample("spread", dist.LogNormal(0, 0.3))

        def drift_and_spread(x, t):
            return -pull * x, spread * (1 + 0.1 * jnp.sin(t))

        first = dist.Normal(0.0, 1.0)
        numpyro.sample("y", dist.EulerMaruyama(t, drift_and_spread, first), obs=y)

    return Example(model, {"t": np.linspace(0.0, 2.0, T), "y": Y}, one_event=True)


@CORPUS.case(
    "joint density",
    "Gaussian state space, the whole series is one event",
    goes_in="no",
    reason="all outcomes are one event: there are no single observations",
    says="are one event",
)
def state_space():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        rho = numpyro.sample("rho", dist.Uniform(0, 1))
        numpyro.sample(
            "y",
            dist.GaussianStateSpace(len(y), rho * jnp.eye(1), covariance_matrix=jnp.eye(1)),
            obs=jnp.asarray(y),
        )

    return Example(model, {"y": Y[:, None]})
