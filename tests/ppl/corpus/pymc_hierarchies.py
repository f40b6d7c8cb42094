"""Groups of observations: centred and not, varying slopes, crossed effects."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(3)
N = 8
GROUP = np.array([0, 1, 2, 0, 1, 2, 0, 1])
X = RNG.normal(size=N)
Y = 0.5 * GROUP + 0.3 * X + 0.4 * RNG.normal(size=N)
EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@CORPUS.case("hierarchy", "eight schools, centred", quick=True)
def eight_schools_centred():
    import pymc as pm

    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Normal("obs", theta, ERROR, observed=EFFECT, dims="school")
    return model


@CORPUS.case("hierarchy", "eight schools, not centred")
def eight_schools_non_centred():
    import pymc as pm

    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * z, dims="school")
        pm.Normal("obs", theta, ERROR, observed=EFFECT, dims="school")
    return model


@CORPUS.case("hierarchy", "radon: varying intercepts with a predictor of the county")
def radon():
    import pymc as pm

    coords = {"county": ["a", "b", "c"], "obs_id": np.arange(N)}
    with pm.Model(coords=coords) as model:
        floor = pm.Data("floor", (X > 0).astype(float), dims="obs_id")
        county = pm.Data("county_idx", GROUP, dims="obs_id")
        uranium = pm.Data("uranium", np.array([0.1, -0.4, 0.6]), dims="county")
        gamma = pm.Normal("gamma", 0, 1, shape=2)
        sigma_a = pm.Exponential("sigma_a", 1.0)
        alpha = pm.Normal("alpha", gamma[0] + gamma[1] * uranium, sigma_a, dims="county")
        beta = pm.Normal("beta", 0, 1)
        theta = pm.Deterministic("theta", alpha[county] + beta * floor, dims="obs_id")
        pm.Normal("y", theta, pm.Exponential("sigma", 1.0), observed=Y, dims="obs_id")
    return model


@CORPUS.case("hierarchy", "correlated intercepts and slopes, LKJ prior")
def varying_slopes():
    import pymc as pm

    with pm.Model() as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        mu = pm.Normal("mu", 0, 1, shape=2)
        line = pm.MvNormal("line", mu, chol=chol, shape=(3, 2))
        sigma = pm.Exponential("sigma", 1.0)
        pm.Normal("y", line[GROUP, 0] + line[GROUP, 1] * X, sigma, observed=Y)
    return model


@CORPUS.case("hierarchy", "correlated effects, not centred: chol @ z")
def varying_slopes_non_centred():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model(coords={"group": range(3), "effect": ["intercept", "slope"]}) as model:
        sd = pm.Exponential.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd, compute_corr=True)
        z = pm.Normal("z", 0, 1, dims=("effect", "group"))
        line = pm.Deterministic("line", pt.dot(chol, z).T, dims=("group", "effect"))
        sigma = pm.Exponential("sigma", 1.0)
        pm.Normal("y", line[GROUP, 0] + line[GROUP, 1] * X, sigma, observed=Y)
    return model


@CORPUS.case("hierarchy", "groups within groups, each centred on the next")
def nested_groups():
    import pymc as pm

    parent = np.array([0, 0, 1])
    with pm.Model() as model:
        top = pm.Normal("top", 0, pm.HalfNormal("tau_top", 1.0), shape=2)
        middle = pm.Normal("middle", top[parent], pm.HalfNormal("tau", 1.0))
        pm.Normal("y", middle[GROUP], pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case("hierarchy", "crossed effects that sum to zero")
def crossed_effects():
    import pymc as pm

    other = np.arange(N) % 2
    with pm.Model(coords={"a": range(3), "b": range(2)}) as model:
        a = pm.ZeroSumNormal("effect_a", sigma=1.0, dims="a")
        b = pm.ZeroSumNormal("effect_b", sigma=pm.HalfNormal("tau", 1.0), dims="b")
        mu = pm.Normal("mu", 0, 1) + a[GROUP] + b[other]
        pm.Normal("y", mu, pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case("hierarchy", "BEST: two groups with means, spreads and shared tails")
def best():
    import pymc as pm

    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1, shape=2)
        spread = pm.Uniform("spread", 0.2, 3, shape=2)
        nu = pm.Exponential("nu_minus_one", 1 / 29) + 1
        group = GROUP % 2
        pm.StudentT("y", nu=nu, mu=mean[group], lam=spread[group] ** -2, observed=Y)
    return model


@CORPUS.case("hierarchy", "tables of schools by years, effects of both")
def two_way_table():
    import pymc as pm

    table = RNG.normal(size=(2, 3))
    with pm.Model(coords={"school": ["a", "b"], "year": [1, 2, 3]}) as model:
        school = pm.Normal("school_effect", 0, 1, dims="school")
        year = pm.Normal("year_effect", 0, pm.HalfNormal("tau", 1.0), dims="year")
        mu = school[:, None] + year
        pm.Normal("y", mu, pm.HalfNormal("sigma", 1.0), observed=table, dims=("school", "year"))
    return model


@CORPUS.case("hierarchy", "a parameter with bounds that are parameters")
def bounds_with_random_parents():
    import pymc as pm

    with pm.Model() as model:
        low = pm.Normal("low", -2, 0.1)
        theta = pm.Uniform("theta", low, low + 4, shape=3)
        sd = pm.TruncatedNormal("sd", 1.0, 0.3, lower=0.1)
        pm.Normal("y", theta[GROUP], sd, observed=Y)
    return model


@CORPUS.case(
    "hierarchy",
    "home advantage and strengths in rugby",
    goes_in="no",
    reason="several observed variables: say which one, or give a list of them",
    says="Say which observed variable by var_name=",
)
def rugby():
    import pymc as pm

    home, away = np.array([0, 1, 2, 1]), np.array([1, 2, 0, 0])
    with pm.Model(coords={"team": range(3)}) as model:
        attack = pm.Normal("attack", 0, pm.HalfNormal("sd_attack", 0.5), dims="team")
        defence = pm.ZeroSumNormal("defence", 0.5, dims="team")
        advantage = pm.Normal("advantage", 0.2, 0.1)
        theta_home = pm.math.exp(2 + advantage + attack[home] + defence[away])
        theta_away = pm.math.exp(2 + attack[away] + defence[home])
        pm.Poisson("home_points", theta_home, observed=[12, 20, 7, 15])
        pm.Poisson("away_points", theta_away, observed=[9, 14, 22, 3])
    return model


@CORPUS.case("hierarchy", "factor analysis: loadings and latent factors")
def factor_analysis():
    import pymc as pm

    table = RNG.normal(size=(4, 5))
    with pm.Model(coords={"column": range(4), "row": range(5), "factor": range(2)}) as model:
        loading = pm.Normal("loading", dims=("column", "factor"))
        factor = pm.Normal("factors", dims=("factor", "row"))
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", loading @ factor, sigma, observed=table, dims=("column", "row"))
    return model
