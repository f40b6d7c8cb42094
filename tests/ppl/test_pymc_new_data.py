"""PyMC models at another number of observations: densities by scipy, and outcomes drawn there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pm = pytest.importorskip("pymc")

import lockquack as lq
from lockquack.errors import NonFiniteError, ParameterError, ShapeError, UnknownNameError
from lockquack.sources import pytensor_resizing
from tests.ppl.corpus import pymc_own as own
from tests.ppl.helpers import not_compiled

pytestmark = pytest.mark.filterwarnings("ignore")
N, M = 6, 3
RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=N), RNG.normal(size=N)
NEW = RNG.normal(size=M)
#: PyMC 5 lets a container be called like an axis.
NAMES = ["x", "row"] if pm.__version__.startswith("5") else ["x"]


@pytest.fixture(autouse=True)
def _not_compiled():
    with not_compiled():
        yield


def mixture(mu, dims):
    pm.NormalMixture(
        "y", np.full(2, 0.5), pm.math.stack([mu, mu + 1], axis=-1), 1.0, observed=Y, dims=dims
    )
    return lambda y, mu: np.log((stats.norm.pdf(y, mu) + stats.norm.pdf(y, mu + 1)) / 2)


def censored(mu, dims):
    pm.Censored(
        "y", pm.Normal.dist(mu, 1.0), lower=None, upper=1.0, observed=np.minimum(Y, 1.0), dims=dims
    )
    return lambda y, mu: np.where(y < 1, stats.norm.logpdf(y, mu), stats.norm.logsf(1, mu))


def by_hand(mu, dims):
    pm.CustomDist(
        "y", mu, dist=lambda mu, size: pm.Normal.dist(mu, size=size) + 1, observed=Y, dims=dims
    )
    return lambda y, mu: stats.norm.logpdf(y - 1, mu)


@pytest.mark.parametrize("likelihood", [mixture, censored, by_hand])
@pytest.mark.parametrize("dims", ["row", None])
@pytest.mark.parametrize("name", NAMES)
def test_another_number_of_rows(likelihood, name, dims):
    with pm.Model(coords={"row": range(N)}) as model:
        slope = pm.Normal("slope")
        logp = likelihood(slope * pm.Data(name, X), dims)
    draws = own.prior_draws(model, {})
    fit = lq.equal({"a": lq.from_pymc(model, own.posterior(model, draws))}, scores="in-sample")
    y = np.array([0.3, 1.0, -2.0])
    moved = fit.models["a"].with_data(y, **{name: NEW})
    mu = draws["slope"][..., None] * NEW
    np.testing.assert_allclose(moved.source.all_logp(slice(0, M)), logp(y, mu), rtol=1e-7)
    drawn = fit.predict(**{name: NEW}).sample(7, random_seed=1)["posterior_predictive"]["y"]
    assert dict(drawn.sizes) == {"chain": 1, "draw": 7, dims or "obs_id": M}
    assert np.isfinite(drawn).all()


def test_vectors_at_another_number_of_rows():
    with pm.Model() as model:
        mu = pm.Data("x", X)[:, None] * pm.Normal("slopes", shape=2)
        pm.MvStudentT("y", nu=5, mu=mu, scale=np.eye(2), observed=RNG.normal(size=(N, 2)))
    draws = own.prior_draws(model, {})
    fit = lq.equal({"a": lq.from_pymc(model, own.posterior(model, draws))}, scores="in-sample")
    drawn = fit.predict(x=[1e6] * M).sample(7, random_seed=1)["posterior_predictive"]["y"]
    assert drawn.shape == (1, 7, M, 2)
    # Where outcomes are is where the new covariate puts them.
    slopes = draws["slopes"].reshape(-1, 2)
    distance = np.abs(drawn.values[0, :, :, None] / 1e6 - slopes).max(axis=-1).min(axis=-1)
    assert (distance < 1e-3).all()


def test_several_outcomes_at_another_number_of_rows():
    with pm.Model(coords={"row": range(N)}) as model:
        x, slope = pm.Data("x", X, dims="row"), pm.Normal("slope")
        pm.Poisson("count", pm.math.exp(slope * x), observed=np.arange(N) % 3, dims="row")
        pm.Normal("y", slope * x, 1.0, observed=Y, dims="row")
    draws = own.prior_draws(model, {})
    found = lq.from_pymc(model, own.posterior(model, draws), var_name=["count", "y"])
    mu = draws["slope"][..., None] * NEW
    y = np.stack([[2.0, 0.0, 1.0], [0.1, -1.0, 2.0]], axis=1)
    expected = stats.poisson.logpmf(y[:, 0], np.exp(mu)) + stats.norm.logpdf(y[:, 1], mu)
    moved = found.with_data(y, x=NEW)
    np.testing.assert_allclose(moved.source.all_logp(slice(0, M)), expected, rtol=1e-7)
    drawn = lq.equal({"a": found}, scores="in-sample").predict(x=NEW).sample(7, random_seed=1)
    (values,) = drawn["posterior_predictive"].data_vars.values()
    assert values.shape == (1, 7, M, 2)
    counts = values.values[..., 0]
    assert (counts == np.round(counts)).all()
    assert (counts >= 0).all()


def test_what_is_wrong_with_new_data_is_said_by_name():
    groups = np.arange(N) % 2
    models = {}
    for name in ("one line", "lines"):
        with pm.Model() as model:
            x = pm.Data("x", X)
            level = pm.Normal("level", shape=2)[pm.Data("group", groups)] if name == "lines" else 0
            pm.Normal("y", level + pm.Normal("slope") * x, 1.0, observed=Y)
        draws = own.prior_draws(model, {})
        models[name] = lq.from_pymc(model, own.posterior(model, draws))
    fit = lq.equal(models, scores="in-sample")
    known = {"x": NEW, "group": np.array([0, 1, 1])}
    assert fit.predict(**known).mean().shape == (M,)
    for changed, kind, said in (
        ({"group": np.array([0, 2, 1])}, ParameterError, "'lines'.*'group' has the value 2"),
        ({"group": np.array([0.0, 0.5, 1.0])}, ParameterError, "'lines'.*the value 0.5.*whole"),
        ({"x": np.array([0.0, np.nan, 1.0])}, NonFiniteError, "'x' is NaN in row 1"),
        ({"groups": groups[:M]}, UnknownNameError, "'lines'.*mean 'group'.*Known: group, x"),
        ({"group": groups[:2]}, ParameterError, "2 or 3 by the data"),
    ):
        with pytest.raises(kind, match=said):
            fit.predict(**{**known, **changed})
    with pytest.raises(ShapeError, match="'lines'.*container 'group' was not given"):
        fit.predict(x=NEW)


def test_a_density_does_not_need_a_way_to_draw_outcomes(monkeypatch):
    def fail(*_):
        raise NotImplementedError

    with pm.Model() as model:
        logp = censored(pm.Normal("slope") * pm.Data("x", X), None)
    draws = own.prior_draws(model, {})
    monkeypatch.setattr(pytensor_resizing, "_remade", fail)
    found = lq.from_pymc(model, own.posterior(model, draws)).source.all_logp(slice(0, N))
    mu = draws["slope"][..., None] * X
    np.testing.assert_allclose(found, logp(np.minimum(Y, 1.0), mu), rtol=1e-7)
