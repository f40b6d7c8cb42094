"""Monte Carlo errors of CRPS and energy score, beside what repeated simulation has."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import lockquack as lq
from lockquack.quadrature.pairs import apart_from_numbers, apart_from_vectors

pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")

N = 12
X = np.random.default_rng(1).normal(size=N)
Y = X + 1.0 + np.random.default_rng(2).normal(size=N)


def walk(rng, n_draws, slow=0.7):
    """Draws of a chain that remembers, of unit variance."""
    steps = rng.normal(size=(4, n_draws))
    for t in range(1, n_draws):
        steps[:, t] = slow * steps[:, t - 1] + np.sqrt(1 - slow**2) * steps[:, t]
    return steps


def of_draws(rng):
    level = 0.5 * walk(rng, 60)[..., None]
    return lq.from_draws(X + level + rng.normal(size=(4, 60, N)), y=Y, held_out=True)


def of_densities(rng):
    return lq.from_family("normal", y=Y, mu=X + 0.5 * walk(rng, 60)[..., None], sigma=1.0)


def of_vectors(rng):
    level = 0.5 * walk(rng, 60)[..., None, None]
    y = np.stack([Y, X], axis=1)
    return lq.from_draws(level + rng.normal(size=(4, 60, N, 2)), y=y, held_out=True)


@pytest.mark.parametrize(
    ("make", "operator", "rule"),
    [
        (of_draws, lq.Linear(), lq.CRPS(scale=1)),
        (of_draws, lq.Quantiles(), lq.CRPS(scale=1)),
        (of_densities, lq.Linear(), lq.CRPS(scale=1)),
        (of_vectors, lq.Linear(), lq.EnergyScore(scale=1)),
    ],
    ids=["draws", "quantiles", "densities", "vectors"],
)
def test_errors_are_the_spread_over_simulations(make, operator, rule):
    fits = [
        lq.combine({"a": make(np.random.default_rng(seed))}, operator, rule, scores="held-out")
        for seed in range(100, 130)
    ]
    spread = np.std([float(fit.pointwise.isel(model=1).sum()) for fit in fits], ddof=1)
    estimated = np.mean([fit.mcse[0] for fit in fits])
    # Thirty simulations know a spread to 13 %.
    assert estimated == pytest.approx(spread, rel=0.35)


def test_the_error_of_independent_draws_is_known():
    """Of outcomes that are independent, the effects' variance over the number of draws."""
    rng = np.random.default_rng(3)
    drawn = rng.normal(size=(4, 500, N))
    fit = lq.combine({"a": lq.from_draws(drawn, y=Y, held_out=True)}, lq.Linear(), lq.CRPS(scale=1))
    flat = drawn.reshape(2000, N)
    h = np.abs(flat - Y) - np.stack(
        [np.abs(flat[:, [i]] - flat[:, i]).mean(axis=1) for i in range(N)], 1
    )
    assert fit.mcse[0] == pytest.approx(h.sum(axis=1).std() / np.sqrt(2000), rel=0.15)


def test_there_is_none_where_nothing_was_drawn():
    levels = np.linspace(0.05, 0.95, 19)
    quantiles = lq.from_quantiles(levels, Y + np.linspace(-2, 2, 19)[:, None], y=Y)
    exact = lq.from_family("normal", y=Y, mu=np.zeros((1, 1)), sigma=1.0)
    ensemble = lq.from_draws(np.random.default_rng(1).normal(size=(1, 20, N)), y=Y, held_out=True)
    for model in (quantiles, ensemble):
        assert np.isnan(lq.combine({"a": model}, lq.Linear(), lq.CRPS()).mcse).all()
    assert lq.combine({"a": exact}, lq.Linear(), lq.CRPS()).mcse[0] == 0.0


def test_case_weights_are_repetitions():
    rng = np.random.default_rng(4)
    drawn, times = rng.normal(size=(4, 50, N)), np.arange(N) % 3
    rows = np.repeat(np.arange(N), times)
    once = lq.from_draws(drawn, y=Y, held_out=True, weights=times)
    more = lq.from_draws(drawn[..., rows], y=Y[rows], held_out=True)
    found, expected = (
        lq.combine({"a": each}, lq.Linear(), lq.CRPS(scale=1)).mcse[0] for each in (once, more)
    )
    assert found == pytest.approx(expected, rel=1e-9)


def test_mean_distances_are_plain_sums(rng):
    draws, mass = rng.normal(size=(30, 2)).round(1), rng.dirichlet(np.ones(30), size=2).T
    expected = np.stack(
        [np.abs(d[:, None] - d) @ m for d, m in zip(draws.T, mass.T, strict=True)], 1
    )
    np.testing.assert_allclose(apart_from_numbers(draws, mass), expected, atol=1e-12)
    vectors = rng.normal(size=(30, 2, 3))
    expected = np.stack([cdist(vectors[:, i], vectors[:, i]) @ mass[:, i] for i in range(2)], 1)
    np.testing.assert_allclose(apart_from_vectors(vectors, mass), expected, atol=1e-12)
