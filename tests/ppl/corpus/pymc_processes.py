"""Functions of covariates: Gaussian processes, splines, networks, equations, maps."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(8)
N = 7
X = np.sort(RNG.uniform(size=N))
Y = np.sin(5 * X) + 0.3 * RNG.normal(size=N)
COUNTS = RNG.poisson(2.0, size=N)
JOINT = {
    "goes_in": "no",
    "reason": "all outcomes have one joint density",
    "says": "one joint density",
}


@CORPUS.case("process", "latent Gaussian process", quick=True)
def latent_process():
    import pymc as pm

    with pm.Model() as model:
        ell, eta = pm.Gamma("ell", 4, 4), pm.HalfNormal("eta", 1.0)
        gp = pm.gp.Latent(cov_func=eta**2 * pm.gp.cov.Matern52(1, ell))
        f = gp.prior("f", X=X[:, None])
        pm.StudentT("y", nu=4, mu=f, sigma=pm.HalfNormal("sigma", 1.0), observed=Y)
    return model


@CORPUS.case(
    "process",
    "classification by a latent Gaussian process",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def latent_process_classification():
    import pymc as pm

    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, pm.Gamma("ell", 4, 4)))
        f = gp.prior("f", X=X[:, None], reparameterize=False)
        pm.Bernoulli("y", p=pm.math.invlogit(f), observed=COUNTS % 2)
    return model


@CORPUS.case("process", "Hilbert space approximation of a Gaussian process")
def hilbert_space_process():
    import pymc as pm

    with pm.Model(coords={"obs_id": range(N)}) as model:
        x = pm.Data("x", X[:, None])
        cov = pm.gp.cov.Matern52(1, ls=pm.Gamma("ell", 4, 4))
        gp = pm.gp.HSGP(m=[5], c=2.0, cov_func=cov)
        f = gp.prior("f", X=x, dims="obs_id")
        pm.Normal("y", f, pm.HalfNormal("sigma", 1.0), observed=Y, dims="obs_id")
    return model


@CORPUS.case("process", "marginal Gaussian process", **JOINT)
def marginal_process():
    import pymc as pm

    with pm.Model() as model:
        gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, pm.Gamma("ell", 4, 4)))
        sigma = pm.HalfNormal("sigma", 1.0)
        gp.marginal_likelihood("y", X=X[:, None], y=Y, sigma=sigma)
    return model


@CORPUS.case("process", "phylogenetic regression: one normal of all outcomes", **JOINT)
def phylogenetic_regression():
    import pymc as pm
    import pytensor.tensor as pt

    distance = np.abs(X[:, None] - X)
    with pm.Model() as model:
        rho = pm.Gamma("rho", 4, 2)
        cov = pt.exp(-rho * distance) + 0.1 * np.eye(N)
        pm.MvNormal("y", mu=pm.Normal("alpha") + X, cov=cov, observed=Y)
    return model


@CORPUS.case("process", "B-splines with a penalised walk of coefficients")
def splines():
    import pymc as pm
    from scipy.interpolate import BSpline

    knots = np.concatenate([[0.0] * 4, [0.5], [1.0] * 4])
    basis = BSpline.design_matrix(X, knots, 3).toarray()
    with pm.Model(coords={"spline": range(basis.shape[1])}) as model:
        tau = pm.HalfNormal("tau", 1.0)
        w = pm.Normal("w", 0, tau, dims="spline")
        mu = pm.Deterministic("mu", pm.math.dot(basis, w.T))
        pm.Normal("y", mu, pm.Exponential("sigma", 1.0), observed=Y)
    return model


@CORPUS.case("process", "neural network with a hidden layer")
def neural_network():
    import pymc as pm

    with pm.Model() as model:
        first = pm.Normal("first", 0, 1, shape=(1, 4))
        second = pm.Normal("second", 0, 1, shape=4)
        hidden = pm.math.tanh(pm.math.dot(X[:, None], first))
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", pm.math.dot(hidden, second), sigma, observed=Y)
    return model


@CORPUS.case("process", "matrix factorisation of ratings")
def matrix_factorisation():
    import pymc as pm

    user, film = np.array([0, 0, 1, 2, 2, 3]), np.array([0, 2, 1, 0, 1, 2])
    with pm.Model() as model:
        u, v = pm.Normal("u", 0, 1, shape=(4, 2)), pm.Normal("v", 0, 1, shape=(3, 2))
        mu = (u[user] * v[film]).sum(axis=1)
        pm.Normal("rating", mu, pm.HalfNormal("sigma", 1.0), observed=[3.0, 4, 2, 5, 1, 3])
    return model


@CORPUS.case("process", "differential equation solved by steps in a scan")
def differential_equation():
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    with pm.Model() as model:
        rate, start = pm.LogNormal("rate", 0, 0.3), pm.LogNormal("start", 0, 0.3)
        result = pytensor.scan(
            lambda state, rate: state + 0.1 * rate * state * (1 - state / 3),
            outputs_info=[start],
            non_sequences=[rate],
            n_steps=N,
        )
        path = result[0] if isinstance(result, tuple | list) else result
        sigma = pm.HalfNormal("sigma", 0.5)
        pm.LogNormal("y", pt.log(path), sigma, observed=np.exp(0.3 * Y))
    return model


@CORPUS.case(
    "process",
    "disease map with an ICAR prior",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def disease_map():
    import pymc as pm

    near = np.eye(N, k=1) + np.eye(N, k=-1)
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=near.astype(int))
        pm.Poisson("y", pm.math.exp(0.5 + 0.3 * phi), observed=COUNTS)
    return model, {"draws": {"phi": 0.5 * np.random.default_rng(1).normal(size=(2, 4, N))}}


@CORPUS.case("process", "spatial effects with a proper CAR prior, a Potential on the parameters")
def spatial_effects():
    import pymc as pm

    near = np.eye(N, k=1) + np.eye(N, k=-1)
    first, second = np.arange(N - 1), np.arange(1, N)
    with pm.Model() as model:
        phi = pm.CAR("phi", np.zeros(N), W=near, alpha=pm.Beta("alpha", 2, 2), tau=1.0)
        # Neighbours are indices, not data: nothing is left out of the scores.
        pm.Potential("smooth", -0.5 * ((phi[first] - phi[second]) ** 2).sum())
        pm.Normal("y", phi, pm.HalfNormal("sigma", 1.0), observed=Y)
    return model
