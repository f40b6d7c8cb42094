"""Outcomes: missing values, several sites, sites that depend on each other."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.numpyro.example import CORPUS, Example

RNG = np.random.default_rng(15)
N = 7
X = RNG.normal(size=N)
Y = RNG.normal(size=N)
Z = RNG.normal(size=N)
OBSERVED = np.array([True, True, False, True, True, False, True])


@CORPUS.case("missing values", "missing outcomes under handlers.mask")
def masked_outcomes():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        known = ~np.isnan(y)
        with numpyro.plate("data", len(x)), numpyro.handlers.mask(mask=known):
            numpyro.sample("y", dist.Normal(b * x, 1.0), obs=jnp.where(known, y, 0.0))

    y = np.where(OBSERVED, Y, np.nan)
    return Example(model, {"x": X, "y": y}, kept=np.flatnonzero(OBSERVED), concrete=True)


@CORPUS.case("missing values", "missing outcomes imputed, obs_mask", quick=True)
def imputed_outcomes():
    import numpyro
    import numpyro.distributions as dist

    def model(x, known, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y, obs_mask=known)

    arguments = {"x": X, "known": OBSERVED, "y": np.where(OBSERVED, Y, 0.0)}
    return Example(model, arguments, sites=("y_observed",), kept=np.flatnonzero(OBSERVED))


@CORPUS.case("missing values", "missing covariates imputed, the outcome is another site")
def imputed_covariates():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        missing = np.flatnonzero(np.isnan(x))
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        imputed = numpyro.sample("imputed", dist.Normal(mu, 1).expand([len(missing)]).mask(False))
        x = jnp.asarray(x).at[missing].set(imputed)
        numpyro.sample("x", dist.Normal(mu, 1), obs=x)
        b = numpyro.sample("b", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)

    return Example(model, {"x": np.where(OBSERVED, X, np.nan), "y": Y}, site="y")


@CORPUS.case(
    "missing values",
    "the site of the imputed covariate as outcome",
    goes_in="no",
    reason="some of its values are draws: they are no outcomes",
    says="depend on the draws",
)
def imputed_covariates_as_outcomes():
    from dataclasses import replace

    return replace(imputed_covariates(), outcome=("x",), sites=("x",), site="x")


@CORPUS.case(
    "joint density",
    "an outcome computed from parameters (CUPED)",
    goes_in="no",
    reason="what is observed changes from draw to draw",
    says="depend on the draws",
)
def adjusted_outcomes():
    import numpyro
    import numpyro.distributions as dist

    def model(treatment, before, after):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
        numpyro.sample("after", dist.Normal(theta * before, 1.0), obs=after)
        effect = numpyro.sample("effect", dist.Normal(0, 1))
        adjusted = numpyro.deterministic("adjusted", after - theta * before)
        numpyro.sample("y", dist.Normal(effect * treatment, 1.0), obs=adjusted)

    arguments = {"treatment": np.arange(N) % 2, "before": X, "after": Y}
    return Example(model, arguments, ("after",), site="y")


@CORPUS.case("several outcomes", "two independent outcomes, one of them")
def one_of_two():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None, z=None):
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)
            numpyro.sample("z", dist.StudentT(4.0, -b * x, 2.0), obs=z)

    return Example(model, {"x": X, "y": Y, "z": Z}, ("z",), ("z",), site="z")


@CORPUS.case("several outcomes", "two independent outcomes, scored jointly")
def two_together():
    from dataclasses import replace

    both = ("y", "z")
    return replace(one_of_two(), outcome=both, sites=both, site=["y", "z"], joint=True)


@CORPUS.case(
    "several outcomes",
    "mediation, scored jointly: the second outcome depends on the first",
)
def mediation():
    import numpyro
    import numpyro.distributions as dist

    def model(x, m, y):
        a, b, c = (numpyro.sample(name, dist.Normal(0, 1)) for name in "abc")
        with numpyro.plate("data", len(x)):
            m = numpyro.sample("m", dist.Normal(a * x, 1.0), obs=m)
            numpyro.sample("y", dist.Normal(b * m + c * x, 0.5), obs=y)

    both = ("m", "y")
    return Example(model, {"x": X, "m": Z, "y": Y}, both, both, ["m", "y"], joint=True)


@CORPUS.case(
    "several outcomes",
    "mediation, the mediator alone",
    goes_in="no",
    reason="another outcome depends on it: score both jointly",
    says="depends on the outcomes at the site",
)
def mediator_alone():
    from dataclasses import replace

    return replace(mediation(), outcome=("m",), sites=("m",), site="m", joint=False)


@CORPUS.case("several outcomes", "mediation, the last outcome given the mediator")
def mediated():
    from dataclasses import replace

    return replace(mediation(), outcome=("y",), sites=("y",), site="y", joint=False)


@CORPUS.case(
    "several outcomes",
    "instrumental variable: a component of the outcome is a covariate of the other one",
    goes_in="no",
    reason="the mean of an outcome is computed from it: write the density for from_jax",
    says="computed from that outcome itself",
)
def instrumental_variable():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(instrument, education, wage):
        a, b = (numpyro.sample(name, dist.Normal(0, 0.5)) for name in "ab")
        corr = numpyro.sample("corr", dist.LKJ(2, 2))
        mean = jnp.stack([a * education, b * instrument], axis=-1)
        both = jnp.stack([wage, education], axis=-1)
        numpyro.sample("both", dist.MultivariateNormal(mean, corr), obs=both)

    return Example(model, {"instrument": X, "education": Z, "wage": Y}, sites=("both",))


@CORPUS.case(
    "several outcomes",
    "a number and a count of each person, scored jointly",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def number_and_count():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None, z=None):
        b = numpyro.sample("b", dist.Normal(0, 0.5))
        with numpyro.plate("people", len(x)):
            numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)
            numpyro.sample("z", dist.Poisson(jnp.exp(b * x)), obs=z)

    both = ("y", "z")
    arguments = {"x": X, "y": Y, "z": RNG.poisson(1.0, size=N)}
    return Example(model, arguments, both, both, ["y", "z"], joint=True)


@CORPUS.case("several outcomes", "groups of different sizes in a loop, sites one after the other")
def groups_in_a_loop():
    import numpyro
    import numpyro.distributions as dist

    def model(y, sizes):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        start = 0
        for name, size in sizes.items():
            effect = numpyro.sample(f"effect_{name}", dist.Normal(mu, 1))
            with numpyro.plate(f"data_{name}", size):
                numpyro.sample(f"y_{name}", dist.Normal(effect, 1.0), obs=y[start : start + size])
            start += size

    arguments = {"y": Y, "sizes": {"a": 3, "b": 4}}
    return Example(model, arguments, sites=("y_a", "y_b"), site=["y_a", "y_b"])


@CORPUS.case("several outcomes", "one site for each observation, y_0, y_1, …", quick=True)
def site_for_each():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        for i in range(len(y)):
            numpyro.sample(f"y_{i}", dist.Normal(b * x[i], 1.0), obs=y[i])

    sites = tuple(f"y_{i}" for i in range(N))
    return Example(model, {"x": X, "y": Y}, sites=sites, site=list(sites))


@CORPUS.case("several outcomes", "a Delta site that only records a value")
def recorded_value():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y=None):
        b = numpyro.sample("b", dist.Normal(0, 1))
        mean = b * x
        numpyro.sample("mean", dist.Delta(mean), obs=mean)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    return Example(model, {"x": X, "y": Y})
