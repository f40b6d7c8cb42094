"""Regressions of numbers: linear, robust, positive, bounded, skewed, circular."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(1)
N = 7
X = RNG.normal(size=N)
Z = RNG.normal(size=(N, 3))
Y = 1.0 + 0.5 * X + 0.4 * RNG.normal(size=N)
POSITIVE = np.exp(0.3 * X + 0.3 * RNG.normal(size=N))
SHARE = 1 / (1 + np.exp(-X + 0.3 * RNG.normal(size=N)))
EDGE_AT_ZERO = "its density need not vanish at 0"


@CORPUS.case("regression", "linear regression with coords and dims", quick=True)
def linear_regression():
    import pymc as pm

    coords = {"predictor": ["a", "b", "c"], "person": [f"p{i}" for i in range(N)]}
    with pm.Model(coords=coords) as model:
        design = pm.Data("X", Z, dims=("person", "predictor"))
        intercept = pm.Normal("intercept", 1.0, 1.0)
        beta = pm.Normal("beta", 0.0, 1.0, dims="predictor")
        sigma = pm.HalfNormal("sigma", 1.0)
        mu = pm.Deterministic("mu", intercept + design @ beta, dims="person")
        pm.Normal("y", mu, sigma, observed=Y, dims="person")
    return model


@CORPUS.case("regression", "regression whose outcomes and covariates are pm.Data containers")
def data_containers():
    import pymc as pm

    with pm.Model() as model:
        x = pm.Data("x", X)
        y = pm.Data("y_data", Y)
        alpha, beta = pm.Normal("alpha", 0, 1), pm.Normal("beta", 0, 1)
        pm.Normal("y", alpha + beta * x, pm.Exponential("sigma", 1.0), observed=y, shape=x.shape)
    return model


@CORPUS.case("regression", "robust regression, Student-t with unknown degrees of freedom")
def robust_regression():
    import pymc as pm

    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 1), pm.Normal("beta", 0, 1)
        nu = pm.Deterministic("nu", pm.Exponential("nu_minus_one", 1 / 29) + 1)
        sigma = pm.HalfCauchy("sigma", 1.0)
        pm.StudentT("y", nu=nu, mu=alpha + beta * X, sigma=sigma, observed=Y)
    return model


@CORPUS.case("regression", "regression with a spread that depends on a covariate")
def varying_spread():
    import pymc as pm

    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 1), pm.Normal("beta", 0, 1, shape=2)
        log_sigma = pm.Normal("log_sigma", 0, 0.5) + beta[1] * X
        pm.Normal("y", alpha + beta[0] * X, pm.math.exp(log_sigma), observed=Y)
    return model


@CORPUS.case("regression", "horseshoe: shrinkage by local and global scales")
def horseshoe():
    import pymc as pm

    with pm.Model() as model:
        tau, lam = pm.HalfCauchy("tau", 0.5), pm.HalfCauchy("lam", 1.0, shape=3)
        z = pm.Normal("z", 0, 1, shape=3)
        beta = pm.Deterministic("beta", z * tau * lam)
        pm.Normal("y", pm.math.dot(Z, beta), pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case("regression", "lasso: coefficients with Laplace priors")
def lasso():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Laplace("beta", 0, pm.HalfNormal("spread", 1.0), shape=3)
        pm.Normal("y", pm.math.dot(Z, beta), pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case("regression", "starting values for the sampler, initval=")
def initial_values():
    import pymc as pm

    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0, 1, initval=0.3)
        sigma = pm.HalfNormal("sigma", 1.0, initval=1.0)
        pm.Normal("y", alpha, sigma, observed=Y)
    return model


@CORPUS.case("regression", "log-normal regression")
def lognormal_regression():
    import pymc as pm

    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 1), pm.Normal("beta", 0, 1)
        pm.LogNormal("y", alpha + beta * X, pm.HalfNormal("sigma", 1.0), observed=POSITIVE)
    return model


@CORPUS.case(
    "regression",
    "gamma regression with a log link",
    goes_in="H of log y",
    reason=EDGE_AT_ZERO,
    says="does not vanish smoothly at 0",
)
def gamma_regression():
    import pymc as pm

    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 0.5), pm.Normal("beta", 0, 0.5)
        mu = pm.math.exp(alpha + beta * X)
        pm.Gamma("y", mu=mu, sigma=pm.HalfNormal("sigma", 1.0), observed=POSITIVE)
    return model


@CORPUS.case(
    "regression",
    "exponential waiting times",
    goes_in="H of log y",
    reason=EDGE_AT_ZERO,
    says="does not vanish smoothly at 0",
)
def exponential_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        pm.Exponential("y", lam=pm.math.exp(beta[0] + beta[1] * X), observed=POSITIVE)
    return model


@CORPUS.case(
    "regression",
    "Weibull regression, accelerated failure times",
    goes_in="H of log y",
    reason=EDGE_AT_ZERO,
    says="does not vanish smoothly at 0",
)
def weibull_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        shape = pm.Gamma("shape", 4, 4)
        pm.Weibull("y", alpha=shape, beta=pm.math.exp(beta[0] + beta[1] * X), observed=POSITIVE)
    return model


@CORPUS.case("regression", "inverse Gaussian (Wald) regression")
def wald_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        lam = pm.Gamma("lam", 4, 2)
        pm.Wald("y", mu=pm.math.exp(beta[0] + beta[1] * X), lam=lam, observed=POSITIVE)
    return model


@CORPUS.case("regression", "inverse gamma outcomes")
def inverse_gamma():
    import pymc as pm

    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 6, 2)
        pm.InverseGamma("y", alpha=alpha, beta=pm.Gamma("beta", 4, 2), observed=POSITIVE)
    return model


@CORPUS.case(
    "regression",
    "beta regression of shares",
    goes_in="H of logit y",
    reason="its density need not vanish at 0 and 1",
    says="does not vanish smoothly at",
)
def beta_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        mu = pm.math.invlogit(beta[0] + beta[1] * X)
        kappa = pm.Gamma("kappa", 4, 0.5)
        pm.Beta("y", alpha=mu * kappa, beta=(1 - mu) * kappa, observed=SHARE)
    return model


@CORPUS.case("regression", "logit-normal shares")
def logit_normal():
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.LogitNormal("y", mu=mu + X, sigma=pm.HalfNormal("sigma", 1.0), observed=SHARE)
    return model


@CORPUS.case("regression", "skew-normal noise")
def skew_normal():
    import pymc as pm

    with pm.Model() as model:
        mu, alpha = pm.Normal("mu", 0, 1), pm.Normal("alpha", 0, 2)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.SkewNormal("y", mu=mu + 0.5 * X, sigma=sigma, alpha=alpha, observed=Y)
    return model


@CORPUS.case("regression", "reaction times, ex-Gaussian")
def ex_gaussian():
    import pymc as pm

    with pm.Model() as model:
        mu, nu = pm.Normal("mu", 0.5, 0.5), pm.Gamma("nu", 4, 4)
        sigma = pm.Gamma("sigma", 4, 8)
        pm.ExGaussian("y", mu=mu + 0.1 * X, sigma=sigma, nu=nu, observed=POSITIVE)
    return model


@CORPUS.case("regression", "directions, von Mises")
def von_mises():
    import pymc as pm

    angles = np.arctan2(X, Z[:, 0])
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 0.5), pm.Normal("beta", 0, 0.5)
        mu = 2 * pm.math.arctan(alpha + beta * Z[:, 1])
        pm.VonMises("y", mu=mu, kappa=pm.Gamma("kappa", 4, 2), observed=angles)
    return model


@CORPUS.case("regression", "annual maxima, Gumbel")
def gumbel():
    import pymc as pm

    with pm.Model() as model:
        mu = pm.Normal("mu", 1, 1)
        pm.Gumbel("y", mu=mu + 0.2 * X, beta=pm.HalfNormal("beta", 1.0), observed=Y)
    return model


@CORPUS.case("regression", "logistic noise")
def logistic_noise():
    import pymc as pm

    with pm.Model() as model:
        mu, s = pm.Normal("mu", 1, 1), pm.HalfNormal("s", 1.0)
        pm.Logistic("y", mu=mu + 0.2 * X, s=s, observed=Y)
    return model


@CORPUS.case("regression", "Cauchy noise")
def cauchy():
    import pymc as pm

    with pm.Model() as model:
        pm.Cauchy("y", pm.Normal("alpha", 0, 1), pm.HalfNormal("beta", 1.0), observed=Y)
    return model


@CORPUS.case(
    "regression",
    "median regression, asymmetric Laplace",
    goes_in="log",
    reason="its density has a kink at the quantile",
    says="kink",
)
def quantile_regression():
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        b = pm.HalfNormal("b", 1.0)
        pm.AsymmetricLaplace("y", mu=beta[0] + beta[1] * X, b=b, q=0.5, observed=Y)
    return model


@CORPUS.case(
    "regression",
    "Laplace noise",
    goes_in="log",
    reason="its density has a kink at its centre",
    says="kink",
)
def laplace_noise():
    import pymc as pm

    with pm.Model() as model:
        pm.Laplace("y", pm.Normal("mu", 0, 1), pm.HalfNormal("b", 1.0), observed=Y)
    return model


@CORPUS.case(
    "regression",
    "half-normal outcomes",
    goes_in="H of log y",
    reason="its density does not vanish at 0",
    says="does not vanish smoothly at 0",
)
def half_normal():
    import pymc as pm

    with pm.Model() as model:
        pm.HalfNormal("y", pm.HalfNormal("sigma", 2.0), observed=POSITIVE)
    return model


@CORPUS.case(
    "regression",
    "Pareto tails",
    goes_in="log",
    reason="its density does not vanish at its smallest value",
    says="smallest value",
)
def pareto():
    import pymc as pm

    with pm.Model() as model:
        pm.Pareto("y", alpha=pm.Gamma("alpha", 4, 2), m=0.1, observed=POSITIVE)
    return model


@CORPUS.case(
    "regression",
    "shares of several parts, Dirichlet",
    goes_in="log",
    reason="its outcomes lie on a simplex, where components cannot vary on their own",
    says="simplex",
)
def dirichlet():
    import pymc as pm

    parts = np.random.default_rng(2).dirichlet([2.0, 3.0, 4.0], size=N)
    with pm.Model() as model:
        pm.Dirichlet("y", a=pm.Gamma("a", 4, 2, shape=3), observed=parts)
    return model
