"""Models with named axes, pymc.dims."""

from __future__ import annotations

import numpy as np

from tests.ppl.corpus.case import Corpus

CORPUS = Corpus("PyMC")
RNG = np.random.default_rng(10)
N = 6
X = RNG.normal(size=(N, 2))
Y = X @ [0.5, -0.3] + 0.5 * RNG.normal(size=N)
GROUP = np.arange(N) % 3
COORDS = {"obs": [f"o{i}" for i in range(N)], "predictor": ["a", "b"], "group": ["u", "v", "w"]}


def _observed(values, *dims):
    import pymc.dims as pmd

    return pmd.as_xtensor(values, dims=dims)


@CORPUS.case("named axes", "linear regression in pymc.dims", quick=True)
def dims_regression():
    import pymc as pm
    import pymc.dims as pmd

    with pm.Model(coords=COORDS) as model:
        x = pmd.Data("x", X, dims=("obs", "predictor"))
        beta = pmd.Normal("beta", 0, 1, dims="predictor")
        sigma = pmd.HalfNormal("sigma", 1.0)
        pmd.Normal(
            "y", x.dot(beta, dim="predictor"), sigma, observed=_observed(Y, "obs"), dims="obs"
        )
    return model


@CORPUS.case("named axes", "centred hierarchy in pymc.dims, groups by an index")
def dims_hierarchy():
    import pymc as pm
    import pymc.dims as pmd

    with pm.Model(coords=COORDS) as model:
        group = pmd.Data("group_idx", GROUP, dims="obs")
        mu, tau = pmd.Normal("mu", 0, 1), pmd.HalfNormal("tau", 1.0)
        effect = pmd.Normal("effect", mu, tau, dims="group")
        sigma = pmd.HalfNormal("sigma", 1.0)
        pmd.Normal("y", effect.isel(group=group), sigma, observed=_observed(Y, "obs"), dims="obs")
    return model


@CORPUS.case("named axes", "table of groups by predictors in pymc.dims")
def dims_table():
    import pymc as pm
    import pymc.dims as pmd

    table = RNG.normal(size=(3, 2))
    with pm.Model(coords=COORDS) as model:
        row = pmd.Normal("row", 0, 1, dims="group")
        column = pmd.Normal("column", 0, 1, dims="predictor")
        sigma = pmd.HalfNormal("sigma", 1.0)
        pmd.Normal(
            "y",
            row + column,
            sigma,
            observed=_observed(table, "group", "predictor"),
            dims=("group", "predictor"),
        )
    return model


@CORPUS.case("named axes", "effects that sum to zero, Student-t noise, in pymc.dims")
def dims_zero_sum():
    import pymc as pm
    import pymc.dims as pmd

    with pm.Model(coords=COORDS) as model:
        effect = pmd.ZeroSumNormal("effect", core_dims="group", dims="group")
        sigma = pmd.HalfNormal("sigma", 1.0)
        index = pmd.as_xtensor(GROUP, dims=("obs",))
        mu = effect.isel(group=index)
        pmd.StudentT("y", nu=4, mu=mu, sigma=sigma, observed=_observed(Y, "obs"), dims="obs")
    return model


@CORPUS.case(
    "named axes",
    "choices among categories in pymc.dims",
    goes_in="log",
    reason="counts and categories have no derivatives",
    says="is discrete",
)
def dims_categories():
    import pymc as pm
    import pymc.dims as pmd

    with pm.Model(coords=COORDS) as model:
        p = pmd.Dirichlet("p", pmd.as_xtensor(np.ones(3), dims=("group",)), core_dims="group")
        pmd.Categorical("y", p=p, core_dims="group", observed=_observed(GROUP, "obs"), dims="obs")
    return model


@CORPUS.case("named axes", "vectors with a covariance in pymc.dims")
def dims_vectors():
    import pymc as pm
    import pymc.dims as pmd

    table = RNG.normal(size=(N, 2))
    coords = {**COORDS, "predictor_bis": COORDS["predictor"]}
    with pm.Model(coords=coords) as model:
        mu = pmd.Normal("mu", 0, 1, dims="predictor")
        cov = pmd.as_xtensor(np.eye(2) + 0.3, dims=("predictor", "predictor_bis"))
        pmd.MvNormal(
            "y",
            mu,
            cov=cov,
            core_dims=("predictor", "predictor_bis"),
            observed=_observed(table, "obs", "predictor"),
            dims=("obs", "predictor"),
        )
    return model
