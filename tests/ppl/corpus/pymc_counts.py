"""Counts, choices and categories."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(2)
N = 7
X = RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(0.5 + 0.3 * X))
MANY_ZEROS = COUNTS * RNG.binomial(1, 0.6, size=N)
CHOICE = RNG.binomial(1, 0.5, size=N)
GRADE = RNG.integers(0, 4, size=N)
TRIALS = RNG.integers(5, 12, size=N)
HITS = RNG.binomial(TRIALS, 0.4)
SPREAD_OVER = RNG.multinomial(9, [0.2, 0.3, 0.5], size=N)
DISCRETE = {
    "goes_in": "log",
    "reason": "counts and categories have no derivatives",
    "says": "is discrete",
}


@CORPUS.case("counts and categories", "logistic regression", quick=True, **DISCRETE)
def logistic_regression():
    import pymc as pm

    with pm.Model() as model:
        x = pm.Data("x", X)
        p = pm.math.invlogit(pm.Normal("alpha", 0, 1.5) + pm.Normal("beta", 0, 1) * x)
        pm.Bernoulli("y", p=p, observed=CHOICE)
    return model


@CORPUS.case("counts and categories", "logistic regression by logit_p", **DISCRETE)
def bernoulli_logit():
    import pymc as pm

    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.Normal("alpha", 0, 1.5) + 0.3 * X, observed=CHOICE)
    return model


@CORPUS.case("counts and categories", "successes out of trials, binomial", **DISCRETE)
def binomial_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        p = pm.math.invlogit(beta[0] + beta[1] * X)
        pm.Binomial("y", n=TRIALS, p=p, observed=HITS)
    return model


@CORPUS.case("counts and categories", "batting averages, beta-binomial", **DISCRETE)
def beta_binomial():
    import pymc as pm

    with pm.Model() as model:
        alpha, beta = pm.Gamma("alpha", 4, 2), pm.Gamma("beta", 4, 2)
        pm.BetaBinomial("y", alpha=alpha, beta=beta, n=TRIALS, observed=HITS)
    return model


@CORPUS.case("counts and categories", "Poisson regression with an exposure", **DISCRETE)
def poisson_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        pm.Poisson("y", mu=TRIALS * pm.math.exp(beta[0] + beta[1] * X), observed=COUNTS)
    return model


@CORPUS.case("counts and categories", "negative binomial regression", **DISCRETE)
def negative_binomial_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        alpha = pm.Exponential("alpha", 0.5)
        mu = pm.math.exp(beta[0] + beta[1] * X)
        pm.NegativeBinomial("y", mu=mu, alpha=alpha, observed=COUNTS)
    return model


@CORPUS.case("counts and categories", "zero-inflated Poisson regression", quick=True, **DISCRETE)
def zero_inflated_poisson():
    import pymc as pm

    with pm.Model() as model:
        psi = pm.Beta("psi", 2, 2)
        mu = pm.math.exp(pm.Normal("beta", 0, 0.5) + 0.2 * X)
        pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=MANY_ZEROS)
    return model


@CORPUS.case("counts and categories", "zero-inflated negative binomial", **DISCRETE)
def zero_inflated_negative_binomial():
    import pymc as pm

    with pm.Model() as model:
        psi, mu = pm.Beta("psi", 2, 2), pm.Gamma("mu", 4, 2)
        pm.ZeroInflatedNegativeBinomial("y", psi=psi, mu=mu, alpha=2.0, observed=MANY_ZEROS)
    return model


@CORPUS.case("counts and categories", "zero-inflated binomial, capture histories", **DISCRETE)
def zero_inflated_binomial():
    import pymc as pm

    with pm.Model() as model:
        psi, p = pm.Beta("psi", 2, 2), pm.Beta("p", 2, 2)
        pm.ZeroInflatedBinomial("y", psi=psi, n=TRIALS, p=p, observed=HITS)
    return model


@CORPUS.case("counts and categories", "hurdle Poisson", **DISCRETE)
def hurdle_poisson():
    import pymc as pm

    with pm.Model() as model:
        psi, mu = pm.Beta("psi", 2, 2), pm.Gamma("mu", 4, 2)
        pm.HurdlePoisson("y", psi=psi, mu=mu, observed=MANY_ZEROS)
    return model


@CORPUS.case("counts and categories", "trials until success, geometric", **DISCRETE)
def geometric():
    import pymc as pm

    with pm.Model() as model:
        pm.Geometric("y", p=pm.Beta("p", 2, 2), observed=COUNTS + 1)
    return model


@CORPUS.case("counts and categories", "ordered logistic regression with cutpoints", **DISCRETE)
def ordered_logistic():
    import pymc as pm

    with pm.Model() as model:
        cutpoints = pm.Normal(
            "cutpoints",
            [-1.0, 0.0, 1.0],
            0.3,
            transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 0.0, 1.0],
        )
        pm.OrderedLogistic("y", eta=pm.Normal("beta") * X, cutpoints=cutpoints, observed=GRADE)
    return model


@CORPUS.case("counts and categories", "ordered probit, cutpoints from a Dirichlet", **DISCRETE)
def ordered_probit():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(4))
        cutpoints = 3 * pt.cumsum(share)[:-1] - 1.5
        pm.OrderedProbit("y", eta=pm.Normal("beta") * X, cutpoints=cutpoints, observed=GRADE)
    return model


@CORPUS.case("counts and categories", "softmax regression of categories", **DISCRETE)
def softmax_regression():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", shape=3), pm.Normal("beta", shape=3)
        eta = pt.concatenate([np.zeros((N, 1)), alpha + X[:, None] * beta], axis=1)
        pm.Categorical("y", p=pm.math.softmax(eta, axis=1), observed=GRADE)
    return model


@CORPUS.case("counts and categories", "categorical by logits", **DISCRETE)
def categorical_logits():
    import pymc as pm

    with pm.Model() as model:
        pm.Categorical("y", logit_p=pm.Normal("eta", shape=4), observed=GRADE)
    return model


@CORPUS.case("counts and categories", "choices among alternatives with utilities", **DISCRETE)
def discrete_choice():
    import pymc as pm

    price = RNG.gamma(4, 0.5, size=(N, 3))
    with pm.Model(coords={"alternative": ["gas", "oil", "heat pump"]}) as model:
        beta = pm.Normal("beta", 0, 1)
        taste = pm.Normal("taste", 0, 1, dims="alternative")
        utility = pm.Deterministic("utility", taste + beta * price)
        p = pm.math.softmax(utility, axis=1)
        pm.Categorical("choice", p=p, observed=GRADE % 3)
    return model


@CORPUS.case("counts and categories", "multinomial counts of several forests", **DISCRETE)
def multinomial():
    import pymc as pm

    coords = {"forest": range(N), "tree": ["pine", "oak", "elm"]}
    with pm.Model(coords=coords) as model:
        share = pm.Dirichlet("share", np.ones(3), dims="tree")
        pm.Multinomial("y", n=9, p=share, observed=SPREAD_OVER, dims=("forest", "tree"))
    return model


@CORPUS.case("counts and categories", "Dirichlet-multinomial counts", **DISCRETE)
def dirichlet_multinomial():
    import pymc as pm

    with pm.Model() as model:
        share, conc = pm.Dirichlet("share", np.ones(3)), pm.LogNormal("conc", 1, 0.5)
        pm.DirichletMultinomial("y", n=9, a=share * conc, observed=SPREAD_OVER)
    return model


@CORPUS.case(
    "counts and categories",
    "one table of binned counts",
    goes_in="no",
    reason="one vector is one observation: there is nothing to leave out",
    says="one joint density",
)
def binned_counts():
    import pymc as pm

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        edges = pm.math.exp(pm.logcdf(pm.Normal.dist(mu, sigma), np.array([-1.0, 0.0, 1.0])))
        edges = pm.math.concatenate([[0.0], edges, [1.0]])
        pm.Multinomial("y", n=20, p=edges[1:] - edges[:-1], observed=[3, 7, 6, 4])
    return model


@CORPUS.case("counts and categories", "answers to items, two-parameter logistic IRT", **DISCRETE)
def item_response():
    import pymc as pm

    answers = RNG.binomial(1, 0.6, size=(4, 3))
    with pm.Model(coords={"person": range(4), "item": range(3)}) as model:
        ability = pm.Normal("ability", 0, 1, dims="person")
        difficulty = pm.Normal("difficulty", 0, 1, dims="item")
        discrimination = pm.LogNormal("discrimination", 0, 0.3, dims="item")
        eta = discrimination * (ability[:, None] - difficulty)
        pm.Bernoulli("y", logit_p=eta, observed=answers, dims=("person", "item"))
    return model


@CORPUS.case("counts and categories", "Bradley-Terry: who wins against whom", **DISCRETE)
def bradley_terry():
    import pymc as pm

    first, second = np.array([0, 0, 1, 2, 3, 1]), np.array([1, 2, 2, 3, 0, 3])
    with pm.Model() as model:
        strength = pm.ZeroSumNormal("strength", sigma=pm.HalfNormal("tau", 1.0), shape=4)
        eta = strength[first] - strength[second]
        pm.Bernoulli("y", logit_p=eta, observed=[1, 0, 1, 1, 0, 0])
    return model


@CORPUS.case("counts and categories", "recaptures of marked animals by site", **DISCRETE)
def capture_recapture():
    import pymc as pm

    caught = RNG.binomial(1, 0.4, size=(5, 4))
    with pm.Model() as model:
        size = pm.Poisson("size", 12)
        p = pm.Beta("p", 2, 2, shape=4)
        pm.Binomial("y", n=size + 5, p=p, observed=caught.sum(axis=0))
    return model


@CORPUS.case("counts and categories", "occupancy: detections given a latent state", **DISCRETE)
def occupancy():
    import pymc as pm

    seen = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]])
    with pm.Model() as model:
        present = pm.Bernoulli("present", pm.Beta("psi", 2, 2), shape=4)
        p = pm.Beta("p", 2, 2)
        pm.Bernoulli("y", 0.01 + 0.98 * present[:, None] * p, observed=seen)
    return model


@CORPUS.case("counts and categories", "coal mining disasters, changepoint with switch", **DISCRETE)
def changepoint():
    import pymc as pm

    years = np.arange(N)
    with pm.Model() as model:
        switchpoint = pm.DiscreteUniform("switchpoint", lower=0, upper=N - 1)
        early, late = pm.Exponential("early", 1.0), pm.Exponential("late", 1.0)
        rate = pm.math.switch(switchpoint >= years, early, late)
        pm.Poisson("disasters", rate + 0.1, observed=COUNTS)
    return model
