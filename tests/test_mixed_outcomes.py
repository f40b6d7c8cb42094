"""Outcomes without a density: zeros among amounts, censoring, counts; by CRPS from draws."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
import scoringrules
from scipy import sparse, stats

import lockquack as lq

pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")

N, S = 60, 100


def hurdle(rng, p, scale, size):
    """Nothing with probability 1 − p, else an amount."""
    return np.where(rng.random(size) < p, rng.gamma(2.0, scale, size), 0.0)


def censored(rng, at, sd, size):
    return np.clip(rng.normal(at, sd, size), 0.0, 2.0)


def counts(rng, rate, size):
    return rng.poisson(rate, size)


#: How outcomes are drawn by the truth, and by each of three models.
KINDS = {
    "hurdle": (hurdle, (0.6, 1.0), [(0.9, 1.0), (0.3, 1.2), (0.5, 0.5)]),
    "censored": (censored, (1.0, 1.0), [(0.2, 1.0), (1.8, 1.0), (1.0, 3.0)]),
    "counts": (counts, (3.0,), [(2.0,), (5.0,), (9.0,)]),
}


@pytest.fixture(scope="module", params=KINDS)
def case(request):
    draw, truth, models = KINDS[request.param]
    rng = np.random.default_rng(1)
    y = draw(rng, *truth, N)
    return y, {f"m{k}": draw(rng, *each, (2, S // 2, N)) for k, each in enumerate(models)}


@pytest.fixture(scope="module")
def fit(case):
    y, drawn = case
    models = {name: lq.from_draws(each, y=y, held_out=True) for name, each in drawn.items()}
    return lq.combine(models, lq.Linear(), lq.CRPS(scale=1.0))


def members(draws):
    """(obs, member), as scoringrules has them."""
    return draws.reshape(S, N).T.astype(float)


def form(case):
    """Q of ties and all, by double sums: E|X_j − y| and E|X_j − X_k|."""
    y, drawn = case
    each = [members(draws) for draws in drawn.values()]
    near = np.array([np.abs(x - y[:, None]).mean() for x in each])
    apart = np.array([[np.abs(a[:, :, None] - b[:, None]).mean() for a in each] for b in each])
    return (near[:, None] + near - apart) / 2


def test_models_are_scored_as_by_scoringrules(case, fit):
    y, drawn = case
    for name, draws in drawn.items():
        expected = scoringrules.crps_ensemble(y.astype(float), members(draws), estimator="nrg")
        np.testing.assert_allclose(-fit.pointwise.sel(model=name), expected, atol=1e-10)


def test_weights_are_those_of_another_solver(case, fit):
    K = 3
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(2 * np.triu(form(case))),
        np.zeros(K),
        sparse.csc_matrix(np.vstack([np.ones((1, K)), -np.eye(K)])),
        np.append(1.0, np.zeros(K)),
        [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(K)],
        _settings(),
    )
    np.testing.assert_allclose(fit.weights, solver.solve().x, atol=1e-6)


def _settings():
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    return settings


def test_atoms_keep_their_probability_in_the_mixture(case, fit):
    y, drawn = case
    at = float(stats.mode(y).mode)
    w = fit.weights.values
    shares = [(draws == at).mean(axis=(0, 1)) for draws in drawn.values()]
    below = np.nextafter(at, -np.inf)
    p = fit.predict()
    np.testing.assert_allclose(p.cdf(at) - p.cdf(below), w @ np.stack(shares), atol=1e-12)
    sampled = fit.sample(2000, random_seed=2)["posterior_predictive"]["y"]
    assert float((sampled == at).mean()) == pytest.approx(float((w @ shares).mean()), abs=0.01)


def test_the_mixture_is_scored_as_its_members_are(case, fit):
    """The CRPS of a mixture of draws is that of all of them with the models' weights."""
    y, drawn = case
    pooled = np.concatenate([members(draws) for draws in drawn.values()], axis=1)
    weights = np.tile(np.repeat(fit.weights.values, S) / S, (N, 1))
    apart = np.abs(pooled[:, :, None] - pooled[:, None])
    expected = (weights * np.abs(pooled - y[:, None])).sum(axis=1)
    expected -= np.einsum("ij,ijk,ik->i", weights, apart, weights) / 2
    np.testing.assert_allclose(-fit.pointwise.isel(model=0), expected, atol=1e-10)
    np.testing.assert_allclose(fit.predict().crps(), expected, atol=1e-10)


def test_averages_of_quantiles_are_fitted_too(case, fit):
    average = lq.average_quantiles(fit.models)
    assert bool(average.solution.converged)
    alone = average.to_dataframe()["score"].iloc[1:].max()
    assert average.to_dataframe()["score"].iloc[0] >= alone - 1e-9


def test_compare_and_recalibration_take_them(fit):
    found = lq.compare(fit.models, recalibrated=True, metrics=True)
    assert found["crps"].notna().all()
    assert found["coverage_0.9"].between(0, 1).all()
    again = fit.recalibrated()
    assert float(again.predict().crps().mean()) < 1.1 * float(fit.predict().crps().mean())
