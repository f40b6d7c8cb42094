"""Several observed variables, and outcomes that are vectors."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(7)
N = 6
X = RNG.normal(size=N)
M = 0.6 * X + 0.5 * RNG.normal(size=N)
Y = 0.7 * M + 0.2 * X + 0.5 * RNG.normal(size=N)
TABLE = RNG.normal(size=(N, 3))
COUNTS = RNG.poisson(2.0, size=N)


@CORPUS.case("several outcomes", "mediation: the mediator is observed and has a model")
def mediation():
    import pymc as pm

    with pm.Model(coords={"obs_id": np.arange(N)}) as model:
        a, b, direct = (pm.Normal(name, 0, 1) for name in ("a", "b", "direct"))
        m = pm.Normal("m", a * X, pm.HalfNormal("sigma_m", 1.0), observed=M, dims="obs_id")
        sigma = pm.HalfNormal("sigma_y", 1.0)
        pm.Normal("y", b * m + direct * X, sigma, observed=Y, dims="obs_id")
    return model, {"var_name": "y"}


@CORPUS.case("several outcomes", "mediator and outcome scored jointly", quick=True)
def mediation_jointly():
    model, _ = mediation()
    return model, {"var_name": ["m", "y"]}


@CORPUS.case(
    "several outcomes",
    "the mediator alone, on which the outcome depends",
    goes_in="no",
    reason="another observed variable depends on it: score both jointly",
    says="'y' involves the outcome 'm'",
)
def mediator_alone():
    model, _ = mediation()
    return model, {"var_name": "m"}


@CORPUS.case("several outcomes", "full luxury Bayes: every variable of a graph observed")
def causal_graph():
    import pymc as pm

    with pm.Model() as model:
        age = pm.Normal("age", pm.Normal("mu_age", 0, 1), 1.0, observed=X)
        marriage = pm.Normal("marriage", pm.Normal("b_am", 0, 1) * age, 1.0, observed=M)
        mu = pm.Normal("b_ad", 0, 1) * age + pm.Normal("b_md", 0, 1) * marriage
        pm.Normal("divorce", mu, pm.HalfNormal("sigma", 1.0), observed=Y)
    return model, {"var_name": ["age", "marriage", "divorce"]}


@CORPUS.case("several outcomes", "structural equations: indicators of latent constructs")
def structural_equations():
    import pymc as pm

    coords = {"obs": range(N), "indicator": ["a", "b", "c"], "latent": ["u", "v"]}
    with pm.Model(coords=coords) as model:
        latent = pm.Normal("eta", 0, 1, dims=("obs", "latent"))
        load = pm.Normal("load", 1, 0.3, dims="indicator")
        mu = latent[:, [0, 0, 1]] * load
        psi = pm.HalfNormal("psi", 1.0, dims="indicator")
        pm.Normal("likelihood", mu, psi, observed=TABLE, dims=("obs", "indicator"))
    return model


@CORPUS.case("several outcomes", "structural equations with the latents integrated out")
def marginal_structural_equations():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model(coords={"obs": range(N), "indicator": ["a", "b", "c"]}) as model:
        load = pm.Normal("load", 1, 0.3, dims="indicator")
        psi = pm.HalfNormal("psi", 1.0, dims="indicator")
        cov = pt.outer(load, load) + pt.diag(psi**2 + 0.1)
        pm.MvNormal("y", mu=np.zeros(3), cov=cov, observed=TABLE, dims=("obs", "indicator"))
    return model


@CORPUS.case("several outcomes", "vectors with a covariance from LKJCholeskyCov", quick=True)
def covariance():
    import pymc as pm

    with pm.Model(coords={"obs_id": range(N), "axis": ["x", "y", "z"]}) as model:
        chol, _, _ = pm.LKJCholeskyCov(
            "chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0), compute_corr=True
        )
        mu = pm.Normal("mu", 0, 1, dims="axis")
        pm.MvNormal("y", mu, chol=chol, observed=TABLE, dims=("obs_id", "axis"))
    return model


@CORPUS.case("several outcomes", "seemingly unrelated regressions")
def unrelated_regressions():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(2, 3))
        sd = pm.Exponential.dist(1.0)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=sd)
        pm.MvNormal("y", mu=beta[0] + X[:, None] * beta[1], chol=chol, observed=TABLE)
    return model


@CORPUS.case("several outcomes", "heavy-tailed vectors, MvStudentT")
def multivariate_student():
    import pymc as pm

    with pm.Model() as model:
        nu, mu = pm.Gamma("nu", 4, 0.5), pm.Normal("mu", 0, 1, shape=3)
        scale = np.eye(3) + 0.3
        pm.MvStudentT("y", nu=nu + 2, mu=mu, scale=scale, observed=TABLE)
    return model


@CORPUS.case("several outcomes", "measurement error in outcome and covariate")
def measurement_error():
    import pymc as pm

    with pm.Model() as model:
        true_m = pm.Normal("M", 0, 1, shape=N)
        pm.Normal("M_star", true_m, 0.3, observed=M)
        mu = pm.Normal("alpha", 0, 0.3) + pm.Normal("beta", 0, 0.5) * true_m
        true_d = pm.Normal("D", mu, pm.Exponential("sigma", 1.0), shape=N)
        pm.Normal("D_star", true_d, 0.2, observed=Y)
    return model, {"var_name": "D_star"}


@CORPUS.case("several outcomes", "both measurements scored jointly")
def measurement_error_jointly():
    model, _ = measurement_error()
    return model, {"var_name": ["M_star", "D_star"]}


@CORPUS.case(
    "several outcomes",
    "scores of both teams jointly",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def both_teams():
    import pymc as pm

    with pm.Model(coords={"match": range(N)}) as model:
        attack = pm.Normal("attack", 0, 0.3, shape=2)
        home, away = COUNTS, COUNTS[::-1]
        pm.Poisson("home", pm.math.exp(attack[0] + 0.2), observed=home, dims="match")
        pm.Poisson("away", pm.math.exp(attack[1]), observed=away, dims="match")
    return model, {"var_name": ["home", "away"]}


@CORPUS.case(
    "several outcomes",
    "a number and a count of each person jointly",
    goes_in="log",
    reason="one of the components is discrete",
    says="component 'visits'",
)
def number_and_count():
    import pymc as pm

    with pm.Model() as model:
        frailty = pm.Normal("frailty", 0, 1, shape=N)
        pm.Normal("score", frailty, 1.0, observed=Y)
        pm.Poisson("visits", pm.math.exp(0.5 * frailty), observed=COUNTS)
    return model, {"var_name": ["score", "visits"]}


@CORPUS.case(
    "several outcomes",
    "a number and a waiting time jointly",
    goes_in="log",
    reason="the density of one of the components does not vanish at 0",
    says="component 'time'",
)
def number_and_time():
    import pymc as pm

    with pm.Model() as model:
        frailty = pm.Normal("frailty", 0, 1, shape=N)
        pm.Normal("score", frailty, 1.0, observed=Y)
        pm.Exponential("time", pm.math.exp(0.5 * frailty), observed=np.abs(M) + 0.1)
    return model, {"var_name": ["score", "time"]}


@CORPUS.case("several outcomes", "an outcome and several items of each person jointly")
def outcome_and_items():
    import pymc as pm

    with pm.Model(coords={"person": range(N), "item": range(3)}) as model:
        ability = pm.Normal("ability", 0, 1, dims="person")
        load = pm.Normal("load", 1, 0.3, dims="item")
        pm.Normal("items", ability[:, None] * load, 0.5, observed=TABLE, dims=("person", "item"))
        pm.Normal("score", ability, 1.0, observed=Y, dims="person")
    return model, {"var_name": ["score", "items"]}


@CORPUS.case(
    "several outcomes",
    "two groups of different size jointly",
    goes_in="no",
    reason="the variables have no observations in common",
    says="have no observations in common",
)
def two_groups_jointly():
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        pm.Normal("drug", mu[0], 1.0, observed=Y)
        pm.Normal("placebo", mu[1], 1.0, observed=M[:4])
    return model, {"var_name": ["drug", "placebo"]}


@CORPUS.case("several outcomes", "one of two groups of different size")
def one_of_two_groups():
    model, _ = two_groups_jointly()
    return model, {"var_name": "placebo"}


@CORPUS.case(
    "several outcomes",
    "mediator and outcome jointly, the mediator's values given again as data",
    goes_in="log",
    reason="derivatives in the mediator do not reach the copy of its values",
    says="copy of the values",
)
def mediation_by_copy():
    import pymc as pm

    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1)
        pm.Normal("m", a * X, 1.0, observed=M)
        pm.Normal("y", b * M, 1.0, observed=Y)
    return model, {"var_name": ["m", "y"]}


def _mediation_by_container():
    import pymc as pm

    with pm.Model() as model:
        x, m = pm.Data("x", X), pm.Data("mediator", M)
        a, b, c = (pm.Normal(name, 0, 1) for name in "abc")
        pm.Normal("m", a * x, 1.0, observed=m)
        pm.Normal("y", b * m + c * x, 1.0, observed=pm.Data("outcome", Y))
    return model


@CORPUS.case(
    "several outcomes", "mediator and outcome jointly, both given the mediator's pm.Data container"
)
def mediation_by_container():
    return _mediation_by_container(), {"var_name": ["m", "y"]}


@CORPUS.case(
    "several outcomes",
    "a mediator alone, whose values are data of another outcome",
    goes_in="no",
    reason="another outcome's density depends on it: leave both out, by scoring them jointly",
    says="Score both jointly: var_name=['m', 'y']",
)
def mediator_in_a_container():
    return _mediation_by_container(), {"var_name": "m"}


@CORPUS.case(
    "several outcomes",
    "points of both teams of a match, Poisson",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def points_of_both():
    import pymc as pm

    home, away = np.array([0, 1, 2, 0, 2]), np.array([1, 2, 0, 2, 1])
    points = RNG.poisson(3.0, size=(2, 5))
    with pm.Model(coords={"team": ["A", "B", "C"], "match": range(5)}) as model:
        first, second = pm.Data("home", home, dims="match"), pm.Data("away", away, dims="match")
        attack = pm.Normal("attack", 0, pm.HalfNormal("sd_attack", 0.5), dims="team")
        defence = pm.Normal("defence", 0, pm.HalfNormal("sd_defence", 0.5), dims="team")
        attack, defence = attack - attack.mean(), defence - defence.mean()
        at_home = pm.math.exp(1.0 + pm.Normal("advantage") + attack[first] + defence[second])
        elsewhere = pm.math.exp(1.0 + attack[second] + defence[first])
        pm.Poisson("home_points", at_home, observed=points[0], dims="match")
        pm.Poisson("away_points", elsewhere, observed=points[1], dims="match")
    return model, {"var_name": ["home_points", "away_points"]}


@CORPUS.case("several outcomes", "a generative graph, intervened on by pm.do and observed")
def intervened():
    import pymc as pm

    with pm.Model(coords={"unit": range(len(Y))}) as graph:
        confounder = pm.Normal("z", 0, 1, dims="unit")
        treated = pm.Normal("x", pm.Normal("a") * confounder, 1.0, dims="unit")
        pm.Normal("y", pm.Normal("b") * treated + confounder, pm.HalfNormal("s"), dims="unit")
    return pm.observe(pm.do(graph, {"x": X}), {"y": Y})


@CORPUS.case("several outcomes", "confirmatory factors: loadings fixed by set_subtensor")
def confirmatory_factors():
    import pymc as pm
    import pytensor.tensor as pt

    n, items = 4, RNG.normal(3.0, 1.0, size=(4, 6))
    with pm.Model(coords={"person": range(n), "item": range(6), "factor": ["a", "b"]}) as model:
        free = pm.Normal("free", 1, 0.5, shape=(2, 3))
        loadings = pt.set_subtensor(free[:, 0], 1.0)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        score = pm.MvNormal("score", 0, chol=chol, dims=("person", "factor"))
        level, noise = pm.Normal("level", 3, 1, dims="item"), pm.InverseGamma("noise", 5, 10)
        each = [level[j] + score[:, j // 3] * loadings[j // 3, j % 3] for j in range(6)]
        pm.Normal("y", pm.math.stack(each).T, noise, observed=items, dims=("person", "item"))
    return model
