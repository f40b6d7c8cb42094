"""Mixtures of distributions, with the labels summed out or drawn."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(5)
N = 7
Y = np.concatenate([RNG.normal(-1.5, 0.4, 3), RNG.normal(1.5, 0.4, 4)])
X = RNG.normal(size=N)
COUNTS = np.array([0, 1, 0, 7, 9, 6, 2])


@CORPUS.case("mixture", "normal mixture with ordered means", quick=True)
def normal_mixture():
    import pymc as pm

    with pm.Model(coords={"cluster": range(2)}) as model:
        mu = pm.Normal(
            "mu",
            [-1.0, 1.0],
            0.3,
            transform=pm.distributions.transforms.ordered,
            initval=np.array([-1.0, 1.0]),
            dims="cluster",
        )
        sigma = pm.HalfNormal("sigma", 1.0, dims="cluster")
        weights = pm.Dirichlet("w", np.ones(2), dims="cluster")
        pm.NormalMixture("y", w=weights, mu=mu, sigma=sigma, observed=Y)
    return model


@CORPUS.case("mixture", "Dirichlet process mixture by stick-breaking")
def stick_breaking():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 2.0)
        beta = pm.Beta("beta", 1.0, alpha, shape=4)
        rest = pt.concatenate([[1.0], pt.extra_ops.cumprod(1 - beta)[:-1]])
        w = pm.Deterministic("w", beta * rest / (beta * rest).sum())
        tau, lam = pm.Gamma("tau", 2.0, 2.0, shape=4), pm.Gamma("lam", 5.0, 1.0, shape=4)
        mu = pm.Normal("mu", 0, tau=lam * tau, shape=4)
        pm.NormalMixture("y", w, mu, tau=lam * tau, observed=Y)
    return model


@CORPUS.case("mixture", "stick-breaking weights of PyMC")
def stick_breaking_weights():
    import pymc as pm

    with pm.Model() as model:
        w = pm.StickBreakingWeights("w", alpha=pm.Gamma("alpha", 2.0, 2.0), K=3)
        mu = pm.Normal("mu", 0, 1, shape=4)
        pm.NormalMixture("y", w, mu, sigma=0.7, observed=Y)
    return model


@CORPUS.case("mixture", "density regression: weights that depend on a covariate")
def dependent_weights():
    import pymc as pm

    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", shape=3), pm.Normal("beta", shape=3)
        w = pm.math.softmax(alpha + beta * X[:, None], axis=1)
        gamma, delta = pm.Normal("gamma", shape=3), pm.Normal("delta", shape=3)
        sigma = pm.HalfNormal("sigma", 1.0, shape=3)
        pm.NormalMixture("y", w, gamma + delta * X[:, None], sigma=sigma, observed=Y)
    return model


@CORPUS.case("mixture", "outliers: a narrow and a wide normal around one line")
def outliers():
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("alpha") + pm.Normal("beta") * X
        share = pm.Beta("share", 1, 9)
        parts = [
            pm.Normal.dist(mu, pm.HalfNormal("sigma", 0.5)),
            pm.Normal.dist(mu, pm.HalfNormal("wide", 3.0) + 1),
        ]
        pm.Mixture("y", w=pm.math.stack([1 - share, share]), comp_dists=parts, observed=Y)
    return model


@CORPUS.case("mixture", "mixture of a normal and a Student-t")
def mixture_of_kinds():
    import pymc as pm

    with pm.Model() as model:
        mu, w = pm.Normal("mu", 0, 1, shape=2), pm.Dirichlet("w", np.ones(2))
        parts = [pm.Normal.dist(mu[0], 0.7), pm.StudentT.dist(nu=4, mu=mu[1], sigma=1.0)]
        pm.Mixture("y", w=w, comp_dists=parts, observed=Y)
    return model


@CORPUS.case("mixture", "labels drawn, not summed out")
def latent_labels():
    import pymc as pm

    with pm.Model() as model:
        label = pm.Categorical("label", p=pm.Dirichlet("w", np.ones(2)), shape=N)
        mu = pm.Normal("mu", [-1.0, 1.0], 0.5)
        pm.Normal("y", mu[label], pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case(
    "mixture",
    "mixture of Poissons",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def poisson_mixture():
    import pymc as pm

    with pm.Model() as model:
        w, rate = pm.Dirichlet("w", np.ones(2)), pm.Gamma("rate", 4, 1, shape=2)
        pm.Mixture("y", w, pm.Poisson.dist(rate), observed=COUNTS)
    return model


@CORPUS.case(
    "mixture",
    "mixture of a normal and an exponential",
    goes_in="log",
    reason="its components end at different places",
    says="different places",
)
def mixture_with_another_support():
    import pymc as pm

    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        parts = [pm.Normal.dist(pm.Normal("mu"), 1.0), pm.Exponential.dist(1.0)]
        pm.Mixture("y", w=w, comp_dists=parts, observed=Y)
    return model


@CORPUS.case("mixture", "mixture of multivariate normals")
def vector_mixture():
    import pymc as pm

    points = RNG.normal(size=(5, 2))
    with pm.Model() as model:
        w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", shape=(2, 2))
        parts = [pm.MvNormal.dist(mu[k], cov=np.eye(2) * (1 + k)) for k in range(2)]
        pm.Mixture("y", w=w, comp_dists=parts, observed=points)
    return model


@CORPUS.case(
    "mixture",
    "stick-breaking cut so early that weights do not add up to one",
    goes_in="no",
    reason="PyMC has no density for such weights, though its formula has a value",
    says="sum(weights) == 1 is demanded",
)
def sticks_left_over():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        broken = pm.Beta("broken", 1.0, 3.0, shape=3)
        left = pt.concatenate([np.ones(1), pt.cumprod(1 - broken)[:-1]])
        mu = pm.Normal("mu", 0, 1, shape=3)
        pm.NormalMixture("y", broken * left, mu, sigma=1.0, observed=Y)
    return model


@CORPUS.case(
    "mixture",
    "amounts that are often exactly 0: a DiracDelta and a normal",
    goes_in="log",
    reason="0 has a probability, not a density",
    says="atoms",
)
def point_and_normal():
    import pymc as pm

    with pm.Model() as model:
        share = pm.Beta("share", 2, 2)
        parts = [pm.DiracDelta.dist(0.0), pm.Normal.dist(pm.Normal("mu"), 1.0)]
        weights = pm.math.stack([1 - share, share])
        pm.Mixture("y", weights, parts, observed=np.where(np.median(Y) < Y, Y, 0.0))
    return model
