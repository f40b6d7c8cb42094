"""Hierarchies: groups, nested groups, crossed groups, correlated effects."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.numpyro.example import CORPUS, Example

RNG = np.random.default_rng(12)
SCHOOLS_Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SCHOOLS_SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
AT_BATS, HITS = np.array([45, 45, 45, 40, 38]), np.array([18, 17, 16, 12, 9])
GROUP = np.array([0, 0, 0, 1, 1, 2, 2, 2])
X = RNG.normal(size=8)
Y = RNG.normal(size=8)


def _schools(J, sigma, y=None):
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", J):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


@CORPUS.case("hierarchy", "eight schools, centred", quick=True)
def eight_schools_centred():
    arguments = {"J": 8, "sigma": SCHOOLS_SIGMA, "y": SCHOOLS_Y}
    return Example(_schools, arguments, sites=("obs",))


@CORPUS.case("hierarchy", "eight schools, with the reparam handler")
def eight_schools_reparametrised():
    from numpyro.handlers import reparam
    from numpyro.infer.reparam import LocScaleReparam

    model = reparam(_schools, config={"theta": LocScaleReparam(0)})
    arguments = {"J": 8, "sigma": SCHOOLS_SIGMA, "y": SCHOOLS_Y}
    return Example(model, arguments, sites=("obs",))


@CORPUS.case("hierarchy", "eight schools, a transformed distribution with TransformReparam")
def eight_schools_transformed():
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.reparam import TransformReparam

    def model(J, sigma, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with (
            numpyro.plate("J", J),
            numpyro.handlers.reparam(config={"theta": TransformReparam()}),
        ):
            theta = numpyro.sample(
                "theta",
                dist.TransformedDistribution(
                    dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(mu, tau)
                ),
            )
            numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)

    arguments = {"J": 8, "sigma": SCHOOLS_SIGMA, "y": SCHOOLS_Y}
    return Example(model, arguments, sites=("obs",))


@CORPUS.case(
    "hierarchy",
    "baseball: hits as binomial counts with a beta prior",
    goes_in="log",
    reason="counts have no derivatives",
    says="discrete",
)
def baseball():
    import numpyro
    import numpyro.distributions as dist

    def partially_pooled(at_bats, hits=None):
        m = numpyro.sample("m", dist.Uniform(0, 1))
        kappa = numpyro.sample("kappa", dist.Pareto(1, 1.5))
        with numpyro.plate("num_players", at_bats.shape[0]):
            phi = numpyro.sample("phi", dist.Beta(m * kappa, (1 - m) * kappa))
            return numpyro.sample("obs", dist.Binomial(at_bats, probs=phi), obs=hits)

    return Example(partially_pooled, {"at_bats": AT_BATS, "hits": HITS}, ("hits",), ("obs",))


@CORPUS.case("hierarchy", "lung capacity: intercepts and slopes by patient, integers as data")
def lung_capacity():
    import numpyro
    import numpyro.distributions as dist

    def model(patient_code, weeks, fvc_obs=None):
        mu_a = numpyro.sample("μ_α", dist.Normal(0.0, 500.0))
        sigma_a = numpyro.sample("σ_α", dist.HalfNormal(100.0))
        mu_b = numpyro.sample("μ_β", dist.Normal(0.0, 3.0))
        sigma_b = numpyro.sample("σ_β", dist.HalfNormal(3.0))
        with numpyro.plate("plate_i", len(np.unique(patient_code))):
            a = numpyro.sample("α", dist.Normal(mu_a, sigma_a))
            b = numpyro.sample("β", dist.Normal(mu_b, sigma_b))
        sigma = numpyro.sample("σ", dist.HalfNormal(100.0))
        with numpyro.plate("data", len(patient_code)):
            estimate = a[patient_code] + b[patient_code] * weeks
            numpyro.sample("obs", dist.Normal(estimate, sigma), obs=fvc_obs)

    weeks = np.arange(8)
    fvc = np.round(2000 - 20.0 * weeks + 100 * Y)
    arguments = {"patient_code": GROUP, "weeks": weeks, "fvc_obs": fvc}
    return Example(model, arguments, ("fvc_obs",), ("obs",))


@CORPUS.case("hierarchy", "varying slopes with a correlation matrix (LKJ), non-centred")
def correlated_slopes():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(group, x, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, jnp.array([2.0, 1.0])))
        sigma = numpyro.sample("sigma", dist.HalfNormal(jnp.ones(2)))
        corr = numpyro.sample("L_Rho", dist.LKJCholesky(2, concentration=2))
        z = numpyro.sample("z", dist.Normal(jnp.zeros((len(np.unique(group)), 2)), 1))
        v = mu + (sigma[..., None] * corr @ z.T).T
        noise = numpyro.sample("noise", dist.LogNormal(-0.5, 0.3))
        numpyro.sample("y", dist.Normal(v[group, 0] + v[group, 1] * x, noise), obs=y)

    return Example(model, {"group": GROUP, "x": X, "y": Y})


@CORPUS.case("hierarchy", "varying slopes with a correlation matrix (LKJ), centred")
def correlated_slopes_centred():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(group, x, y=None):
        a = numpyro.sample("a", dist.Normal(0, 2))
        b = numpyro.sample("b", dist.Normal(0, 0.5))
        spread = numpyro.sample("spread", dist.Exponential(1).expand([2]))
        rho = numpyro.sample("Rho", dist.LKJ(2, concentration=2))
        cov = jnp.outer(spread, spread) * rho
        effects = numpyro.sample(
            "effects", dist.MultivariateNormal(jnp.stack([a, b]), cov).expand([3])
        )
        noise = numpyro.sample("noise", dist.LogNormal(-0.5, 0.3))
        numpyro.sample("y", dist.Normal(effects[group, 0] + effects[group, 1] * x, noise), obs=y)

    return Example(model, {"group": GROUP, "x": X, "y": Y})


@CORPUS.case("hierarchy", "two crossed factors as a grid of two plates")
def two_plates():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        rows, columns = y.shape
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))
        with numpyro.plate("school", rows, dim=-2):
            a = numpyro.sample("a", dist.Normal(0, 1))
        with numpyro.plate("year", columns, dim=-1):
            b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("school", rows, dim=-2), numpyro.plate("year", columns, dim=-1):
            numpyro.sample("y", dist.Normal(a + b, sigma), obs=y)

    return Example(model, {"y": RNG.normal(size=(3, 4))})


@CORPUS.case("hierarchy", "plate_stack and a grid of three dimensions")
def three_plates():
    import numpyro
    import numpyro.distributions as dist

    def model(y):
        with numpyro.plate("a", 2, dim=-3):
            a = numpyro.sample("alpha", dist.Normal(0, 1))
        with numpyro.plate("c", 2, dim=-1):
            c = numpyro.sample("gamma", dist.Normal(0, 1))
        with numpyro.plate_stack("grid", y.shape):
            numpyro.sample("y", dist.Normal(a + c, 1.0), obs=y)

    return Example(model, {"y": RNG.normal(size=(2, 3, 2))})


@CORPUS.case("hierarchy", "a model inside another one, with scope")
def nested_model():
    import numpyro
    import numpyro.distributions as dist
    from numpyro.handlers import scope

    def effects(n):
        tau = numpyro.sample("tau", dist.LogNormal(0, 0.3))
        with numpyro.plate("groups", n):
            return numpyro.sample("effect", dist.Normal(0, tau))

    def model(group, item, y=None):
        by_group = scope(effects, prefix="group")(3)
        by_item = scope(effects, prefix="item")(4)
        numpyro.sample("y", dist.Normal(by_group[group] + by_item[item], 0.5), obs=y)

    return Example(model, {"group": GROUP, "item": np.arange(8) % 4, "y": Y})


@CORPUS.case("hierarchy", "a table in a data frame, with a categorical column")
def data_frame():
    import numpyro
    import numpyro.distributions as dist
    import pandas as pd

    def model(data, y):
        codes = data["county"].cat.codes.to_numpy()
        with numpyro.plate("county", data["county"].nunique()):
            a = numpyro.sample("a", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))
        with numpyro.plate("home", len(data)):
            numpyro.sample("y", dist.Normal(a[codes] + data["floor"].to_numpy(), sigma), obs=y)

    county = pd.Categorical(np.array(["anoka", "cass", "lake"])[GROUP])
    table = pd.DataFrame({"county": county, "floor": np.arange(8) % 2 * 1.0})
    return Example(model, {"data": table, "y": Y})


@CORPUS.case(
    "discrete latent variables",
    "annotators and true classes (Dawid and Skene), classes summed out",
    goes_in="no",
    reason="the sampler summed out a discrete latent site, so there are no draws of it",
    says="of which there are no draws",
)
def annotators():
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(annotations):
        classes, (items, positions) = 2, annotations.shape
        with numpyro.plate("class", classes):
            zeta = numpyro.sample("zeta", dist.Dirichlet(jnp.ones(classes)))
        pi = numpyro.sample("pi", dist.Dirichlet(jnp.ones(classes)))
        with numpyro.plate("item", items, dim=-2):
            c = numpyro.sample("c", dist.Categorical(pi), infer={"enumerate": "parallel"})
            with numpyro.plate("position", positions):
                numpyro.sample("y", dist.Categorical(zeta[c]), obs=annotations)

    draws = {
        "zeta": RNG.dirichlet(np.ones(2), size=(2, 3, 2)),
        "pi": RNG.dirichlet(np.ones(2), size=(2, 3)),
    }
    annotations = RNG.integers(0, 2, size=(4, 3))
    return Example(model, {"annotations": annotations}, ("annotations",), draws=draws)


@CORPUS.case(
    "not each observation once",
    "subsampled plate, as for stochastic variational inference",
    goes_in="no",
    reason="the model sees some of the observations only",
    says="subsampled, 3 of 8",
)
def subsampled():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.plate("N", len(y), subsample_size=3):
            batch_x, batch_y = numpyro.subsample(x, 0), numpyro.subsample(y, 0)
            numpyro.sample("y", dist.Normal(b * batch_x, 1.0), obs=batch_y)

    return Example(model, {"x": X, "y": Y})


@CORPUS.case(
    "not each observation once",
    "likelihood raised to a power by handlers.scale",
    goes_in="no",
    reason="the draws are of another posterior, to which all outcomes contribute less than once",
    says="is scaled by 0.5",
)
def power_posterior():
    import numpyro
    import numpyro.distributions as dist

    def model(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        with numpyro.handlers.scale(scale=0.5):
            numpyro.sample("y", dist.Normal(b * x, 1.0), obs=y)

    return Example(model, {"x": X, "y": Y})


@CORPUS.case("not each observation once", "survey weights by handlers.scale", quick=True)
def survey_weights():
    import numpyro
    import numpyro.distributions as dist

    def model(x, weight, y=None):
        b = numpyro.sample("b", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.LogNormal(0, 0.3))
        with numpyro.plate("people", len(x)), numpyro.handlers.scale(scale=weight):
            numpyro.sample("y", dist.Normal(b * x, sigma), obs=y)

    return Example(model, {"x": X, "weight": RNG.uniform(0.5, 2.0, size=8), "y": Y})
