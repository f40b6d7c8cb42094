"""Time: random walks, volatility, autoregressions, recursions."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(4)
T = 8
Y = np.cumsum(0.4 * RNG.normal(size=T))
TIME = np.linspace(0, 1, T)
IN_SERIES = {
    "remark": "given-earlier-outcomes",
    "reason": "each density is given the earlier outcomes",
}


@CORPUS.case("time series", "local level: latent Gaussian random walk", quick=True)
def local_level():
    import pymc as pm

    with pm.Model() as model:
        step = pm.Exponential("step", 2.0)
        level = pm.GaussianRandomWalk("level", sigma=step, init_dist=pm.Normal.dist(0, 1), shape=T)
        pm.Normal("y", level, pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case("time series", "rolling regression: intercept and slope walk at random")
def rolling_regression():
    import pymc as pm

    x = RNG.normal(size=T)
    with pm.Model(coords={"time": np.arange(T)}) as model:
        start = pm.Normal.dist(0, 1)
        sd_alpha, sd_beta = pm.Exponential("sd_alpha", 5.0), pm.Exponential("sd_beta", 5.0)
        alpha = pm.GaussianRandomWalk("alpha", sigma=sd_alpha, init_dist=start, dims="time")
        beta = pm.GaussianRandomWalk("beta", sigma=sd_beta, init_dist=start, dims="time")
        pm.Normal("y", alpha + beta * x, pm.HalfNormal("sigma", 1.0), observed=Y, dims="time")
    return model


@CORPUS.case("time series", "stochastic volatility of returns")
def stochastic_volatility():
    import pymc as pm

    with pm.Model(coords={"time": np.arange(T)}) as model:
        step = pm.Exponential("step", 10)
        volatility = pm.GaussianRandomWalk(
            "volatility", sigma=step, init_dist=pm.Normal.dist(0, 1), dims="time"
        )
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT(
            "returns", nu=nu + 2, mu=0, lam=np.exp(-2 * volatility), observed=Y, dims="time"
        )
    return model


@CORPUS.case("time series", "structural series: latent AR(1), trend and season")
def structural_series():
    import pymc as pm

    with pm.Model() as model:
        rho = pm.Uniform("rho", -0.9, 0.9)
        ar = pm.AR(
            "ar", [0.0, rho], sigma=0.3, constant=True, init_dist=pm.Normal.dist(0, 1), shape=T
        )
        trend = pm.Normal("slope", 0, 1) * TIME
        season = pm.Normal("season", 0, 0.5, shape=4)[np.arange(T) % 4]
        pm.Normal("y", ar + trend + season, pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case("time series", "trend with changepoints and Fourier terms, after Prophet")
def prophet():
    import pymc as pm

    places = np.array([0.3, 0.7])
    after = (TIME[:, None] > places).astype(float)
    waves = np.stack([f(2 * np.pi * TIME) for f in (np.sin, np.cos)], axis=1)
    with pm.Model() as model:
        k, m = pm.Normal("k", 0, 1), pm.Normal("m", 0, 1)
        delta = pm.Laplace("delta", 0, 0.5, shape=2)
        growth = k + pm.math.dot(after, delta)
        offset = m + pm.math.dot(after, -places * delta)
        season = pm.math.dot(waves, pm.Normal("fourier", 0, 0.5, shape=2))
        pm.Normal("y", growth * TIME + offset + season, pm.HalfNormal("sigma", 0.5), observed=Y)
    return model


@CORPUS.case("time series", "autoregression with the lag as a covariate", **IN_SERIES)
def lag_as_covariate():
    import pymc as pm

    with pm.Model() as model:
        before = pm.Data("before", Y[:-1])
        mu = pm.Normal("alpha", 0, 1) + pm.Normal("rho", 0, 0.5) * before
        pm.Normal("y", mu, pm.HalfNormal("sigma", 1.0), observed=Y[1:])
    return model


@CORPUS.case("time series", "autoregression, pm.AR", quick=True, **IN_SERIES)
def autoregression():
    import pymc as pm

    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.3, shape=3)
        start = pm.Normal.dist(0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.AR("y", rho, sigma=sigma, constant=True, init_dist=start, observed=Y)
    return model


@CORPUS.case("time series", "observed random walk with drift", **IN_SERIES)
def observed_walk():
    import pymc as pm

    with pm.Model() as model:
        drift, sigma = pm.Normal("drift", 0, 0.3), pm.HalfNormal("sigma", 1.0)
        pm.GaussianRandomWalk("y", drift, sigma, init_dist=pm.Normal.dist(0, 1), observed=Y)
    return model


@CORPUS.case("time series", "GARCH(1, 1)", **IN_SERIES)
def garch():
    import pymc as pm

    with pm.Model() as model:
        omega, alpha = pm.HalfNormal("omega", 0.5), pm.Beta("alpha", 2, 4)
        beta = pm.Beta("beta", 2, 4)
        pm.GARCH11("y", omega, alpha, beta * (1 - alpha), initial_vol=0.5, observed=Y)
    return model


@CORPUS.case("time series", "stochastic differential equation, Euler-Maruyama", **IN_SERIES)
def euler_maruyama():
    import pymc as pm

    with pm.Model() as model:
        lam, sigma = pm.Normal("lam", -0.5, 0.3), pm.HalfNormal("sigma", 1.0)
        pm.EulerMaruyama(
            "y",
            0.1,
            lambda x, lam, sigma: (lam * x, sigma),
            (lam, sigma),
            init_dist=pm.Normal.dist(0, 1),
            observed=Y,
        )
    return model


@CORPUS.case("time series", "AR(2) from a generative graph: CustomDist around a scan", **IN_SERIES)
def autoregression_by_scan():
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt
    from pymc.pytensorf import collect_default_updates

    def step(before_last, last, rho, sigma):
        y = rho[0] * last + rho[1] * before_last + pm.Normal.dist(0, sigma)
        return y, collect_default_updates([y])

    def series(start, rho, sigma, size):
        result = pytensor.scan(
            step,
            outputs_info=[{"initial": start, "taps": [-2, -1]}],
            non_sequences=[rho, sigma],
            n_steps=T - 2,
            strict=True,
        )
        return result[0] if isinstance(result, tuple | list) else result

    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.3, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.CustomDist("y", pt.as_tensor(Y[:2]), rho, sigma, dist=series, observed=Y[2:])
    return model


@CORPUS.case("time series", "autoregression written as a CustomDist with its own logp", **IN_SERIES)
def autoregression_by_logp():
    import pymc as pm
    import pytensor.tensor as pt

    def logp(y, rho, sigma):
        before = pt.concatenate([[0.0], y[:-1]])
        return pm.logp(pm.Normal.dist(rho * before, sigma), y)

    with pm.Model() as model:
        rho, sigma = pm.Uniform("rho", -1, 1), pm.HalfNormal("sigma", 1.0)
        pm.CustomDist("y", rho, sigma, logp=logp, observed=Y)
    return model


@CORPUS.case("time series", "panel of several series with a lag each", **IN_SERIES)
def panel_with_lag():
    import pymc as pm
    import pytensor.tensor as pt

    panel = RNG.normal(size=(5, 4))

    def logp(y, rho, sigma):
        before = pt.concatenate([pt.zeros((1, 4)), y[:-1]])
        return pm.logp(pm.Normal.dist(rho * before, sigma), y)

    with pm.Model(coords={"time": range(5), "unit": range(4)}) as model:
        rho, sigma = pm.Uniform("rho", -1, 1), pm.HalfNormal("sigma", 1.0)
        pm.CustomDist("y", rho, sigma, logp=logp, observed=panel, dims=("time", "unit"))
    return model


@CORPUS.case("time series", "vector autoregression with lags as data", **IN_SERIES)
def vector_autoregression():
    import pymc as pm

    table = RNG.normal(size=(T, 2))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 1, shape=2)
        lag = pm.Normal("lag", 0, 0.3, shape=(2, 2))
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
        mean = intercept + pm.math.dot(table[:-1], lag.T)
        pm.MvNormal("y", mu=mean, chol=chol, observed=table[1:])
    return model


@CORPUS.case("time series", "vector autoregression, lags cut out of one container", **IN_SERIES)
def lags_of_a_container():
    import pymc as pm

    table = RNG.normal(size=(T, 2))
    coords = {"lag": [1, 2], "equation": ["x", "y"], "on": ["x", "y"], "time": range(2, T)}
    with pm.Model(coords=coords) as model:
        lag = pm.Normal("lags", 0, 0.3, dims=("equation", "lag", "on"))
        series = pm.Data("series", table)
        terms = [
            sum((lag[j, k] * series[1 - k : -1 - k]).sum(axis=-1) for k in range(2))
            for j in range(2)
        ]
        mean = pm.Normal("intercept", 0, 1, dims="equation") + pm.math.stack(terms, axis=-1)
        sigma = pm.HalfNormal("sigma", 1.0, dims="equation")
        pm.Normal("y", mean, sigma, observed=series[2:], dims=("time", "equation"))
    return model


@CORPUS.case(
    "time series",
    "moving average by the observed series on both sides",
    goes_in="no",
    reason="each density depends on later outcomes too: their product is no joint density",
    says="depends on the outcome of a later one",
)
def smoother_of_itself():
    import pymc as pm
    import pytensor.tensor as pt

    def logp(y, rho, sigma):
        around = pt.concatenate([y[1:2], y[2:] + y[:-2], y[-2:-1]])
        return pm.logp(pm.Normal.dist(rho * around, sigma), y)

    with pm.Model() as model:
        rho, sigma = pm.Uniform("rho", -0.4, 0.4), pm.HalfNormal("sigma", 1.0)
        pm.CustomDist("y", rho, sigma, logp=logp, observed=Y)
    return model


@CORPUS.case("time series", "several series, each one observation: vectors of pm.AR")
def series_as_vectors():
    import pymc as pm

    table = RNG.normal(size=(4, 3))
    with pm.Model() as model:
        rho, sigma = pm.Uniform("rho", -1, 1), pm.HalfNormal("sigma", 1.0)
        start = pm.Normal.dist(0, 1, shape=(4, 1))
        pm.AR("y", rho[None], sigma=sigma, init_dist=start, observed=table)
    return model
