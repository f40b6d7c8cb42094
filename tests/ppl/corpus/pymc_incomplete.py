"""Outcomes that are censored, truncated, mixed with zeros or missing."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(6)
N = 8
X = RNG.normal(size=N)
TIMES = RNG.gamma(3.0, 0.5, size=N)
LIMIT = 2.0
CENSORED = np.array([False, True, False, False, True, False, False, True])
Y = 0.5 * X + RNG.normal(size=N)
ATOMS = {
    "goes_in": "log",
    "reason": "outcomes at the bounds have a probability, not a density",
    "says": "atom",
}
NOT_SCORED = {
    "remark": "not-scored",
    "reason": "only the events are scored: a potential does not tell its outcomes",
}


@CORPUS.case("censored and missing", "censored regression, pm.Censored", quick=True, **ATOMS)
def censored_regression():
    import pymc as pm

    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", 0, 1, shape=2), pm.HalfNormal("sigma", 1.0)
        latent = pm.Normal.dist(beta[0] + beta[1] * X, sigma)
        pm.Censored("y", latent, lower=-1.0, upper=1.0, observed=np.clip(Y, -1.0, 1.0))
    return model


@CORPUS.case("censored and missing", "survival times, Weibull, censored on the right", **ATOMS)
def censored_weibull():
    import pymc as pm

    upper = np.where(CENSORED, TIMES, np.inf)
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 4, 4)
        beta = pm.math.exp(pm.Normal("mu", 0, 0.5) + pm.Normal("slope", 0, 0.5) * X)
        latent = pm.Weibull.dist(alpha=alpha, beta=beta)
        pm.Censored("y", latent, lower=None, upper=upper, observed=TIMES)
    return model


@CORPUS.case(
    "censored and missing",
    "survival times, censored ones as a Potential",
    **{**NOT_SCORED, "goes_in": "H of log y", "says": "does not vanish smoothly at 0"},
)
def weibull_with_potential():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 4, 4)
        beta = pm.math.exp(pm.Normal("mu", 0, 0.5))
        pm.Weibull("events", alpha=alpha, beta=beta, observed=TIMES[~CENSORED])
        pm.Potential("censored", -((pt.as_tensor(TIMES[CENSORED]) / beta) ** alpha))
    return model


@CORPUS.case(
    "censored and missing", "log survival times, Gumbel, censoring by logcdf", **NOT_SCORED
)
def gumbel_with_potential():
    import pymc as pm

    log_time = np.log(TIMES)
    with pm.Model() as model:
        beta, s = pm.Normal("beta", 0, 1, shape=2), pm.HalfNormal("s", 1.0)
        eta = beta[0] + beta[1] * X
        pm.Gumbel("events", eta[~CENSORED], s, observed=log_time[~CENSORED])
        latent = pm.Gumbel.dist(eta[CENSORED], s)
        survival = pm.math.log1mexp(pm.logcdf(latent, log_time[CENSORED]))
        pm.Potential("censored", survival)
    return model


@CORPUS.case("censored and missing", "censored outcomes imputed as parameters")
def imputed_censored():
    import pymc as pm

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0)
        seen = Y[Y < 0.5]
        pm.TruncatedNormal("above", mu=mu, sigma=sigma, lower=0.5, shape=int((Y >= 0.5).sum()))
        pm.Normal("y", mu, sigma, observed=seen)
    return model


@CORPUS.case(
    "censored and missing",
    "Cox model as a Poisson of intervals",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def piecewise_exponential():
    import pymc as pm

    death = (RNG.uniform(size=(4, 3)) < 0.3).astype(int)
    exposure = RNG.uniform(0.2, 1.0, size=(4, 3))
    with pm.Model(coords={"interval": range(3)}) as model:
        baseline = pm.Gamma("baseline", 2, 2, dims="interval")
        hazard = pm.math.exp(pm.Normal("beta") * X[:4, None]) * baseline
        pm.Poisson("y", mu=exposure * hazard, observed=death)
    return model


@CORPUS.case(
    "censored and missing",
    "truncated regression, pm.Truncated",
    goes_in="H of logit y",
    reason="its density does not vanish where it is cut off",
    says="does not vanish smoothly at -3",
)
def truncated_regression():
    import pymc as pm

    with pm.Model() as model:
        beta, sigma = pm.Normal("beta", 0, 1, shape=2), pm.HalfNormal("sigma", 1.0)
        latent = pm.Normal.dist(beta[0] + beta[1] * X, sigma + 0.1)
        pm.Truncated("y", latent, lower=-3.0, upper=3.0, observed=np.clip(Y, -2.9, 2.9))
    return model


@CORPUS.case(
    "censored and missing",
    "truncated where each observation has a bound of its own",
    goes_in="log",
    reason="where it is cut off, and does not vanish, differs between observations",
    says="ends at a place that depends",
)
def truncated_at_own_bounds():
    import pymc as pm

    lower = Y - RNG.uniform(0.5, 1.0, size=N)
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0) + 0.5
        pm.Truncated("y", pm.Normal.dist(mu, sigma), lower=lower, observed=Y)
    return model


@CORPUS.case(
    "censored and missing",
    "counts without zeros, a truncated Poisson",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def truncated_counts():
    import pymc as pm

    with pm.Model() as model:
        rate = pm.math.exp(pm.Normal("a", 1, 0.3) + pm.Normal("b", 0, 0.3) * X)
        pm.Truncated("y", pm.Poisson.dist(rate), lower=1, observed=RNG.poisson(3.0, size=N) + 1)
    return model


@CORPUS.case(
    "censored and missing",
    "counts of deaths as a truncated normal",
    goes_in="H of log y",
    reason="its density does not vanish where it is cut off",
    says="does not vanish smoothly at 0",
)
def truncated_normal():
    import pymc as pm

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 1, 1), pm.HalfNormal("sigma", 1.0)
        pm.TruncatedNormal("y", mu=mu, sigma=sigma, lower=0, observed=TIMES)
    return model


@CORPUS.case(
    "censored and missing",
    "rain: zeros and gamma amounts, HurdleGamma",
    goes_in="log",
    reason="0 has a probability, not a density",
    says="atom",
)
def hurdle_gamma():
    import pymc as pm

    with pm.Model() as model:
        psi, alpha = pm.Beta("psi", 2, 2), pm.Gamma("alpha", 4, 2)
        pm.HurdleGamma("y", psi, alpha, 2.0, observed=np.where(TIMES > 1, TIMES, 0.0))
    return model


@CORPUS.case(
    "censored and missing",
    "spending: zeros and log-normal amounts",
    goes_in="log",
    reason="0 has a probability, not a density",
    says="atom",
)
def hurdle_lognormal():
    import pymc as pm

    with pm.Model() as model:
        psi, mu = pm.Beta("psi", 2, 2), pm.Normal("mu", 0, 1)
        pm.HurdleLogNormal("y", psi, mu + X, 1.0, observed=np.where(TIMES > 1, TIMES, 0.0))
    return model


@CORPUS.case("censored and missing", "missing outcomes, imputed by PyMC")
def missing_outcomes():
    import pymc as pm

    y = Y.copy()
    y[[1, 4]] = np.nan
    with pm.Model() as model:
        mu = pm.Normal("alpha", 0, 1) + pm.Normal("beta", 0, 1) * X
        pm.Normal("y", mu, pm.HalfNormal("sigma", 1.0), observed=y)
    return model, {"var_name": "y"}


@CORPUS.case("censored and missing", "missing covariates, imputed by PyMC", quick=True)
def missing_covariates():
    import pymc as pm

    x = np.where(CENSORED, np.nan, X)
    with pm.Model() as model:
        covariate = pm.Normal("x", pm.Normal("mu_x", 0, 1), 1.0, observed=x)
        mu = pm.Normal("alpha", 0, 1) + pm.Normal("beta", 0, 1) * covariate
        pm.Normal("y", mu, pm.HalfNormal("sigma", 1.0), observed=Y)
    return model, {"var_name": "y"}


@CORPUS.case("censored and missing", "several covariates with holes, imputed in a table")
def missing_table():
    import pymc as pm

    table = RNG.normal(size=(N, 2))
    table[2, 0] = table[5, 1] = np.nan
    with pm.Model(coords={"person": range(N), "covariate": ["a", "b"]}) as model:
        mean = pm.Normal("mean", 0, 1, dims="covariate")
        filled = pm.Normal("xk", mean, 1.0, observed=table, dims=("person", "covariate"))
        beta = pm.Normal("beta", 0, 1, dims="covariate")
        pm.Normal("y", filled @ beta, pm.HalfNormal("sigma", 1.0), observed=Y, dims="person")
    return model, {"var_name": "y"}


@CORPUS.case(
    "censored and missing",
    "vectors with missing components",
    goes_in="no",
    reason="an outcome is partly a parameter where components are missing",
    says="missing and imputed",
)
def missing_components():
    import pymc as pm

    table = RNG.normal(size=(4, 2))
    table[1, 0] = np.nan
    with pm.Model() as model:
        pm.MvNormal("y", pm.Normal("mu", shape=2), np.eye(2), observed=table)
    return model


@CORPUS.case(
    "censored and missing",
    "rounded measurements, CustomDist around pt.round",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def rounded():
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1.0) + 0.2
        pm.CustomDist(
            "y",
            mu,
            sigma,
            dist=lambda mu, sigma, size: pt.round(pm.Normal.dist(mu, sigma, size=size)),
            observed=np.round(Y),
        )
    return model
