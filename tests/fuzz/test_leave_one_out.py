"""Leave-one-out predictions against those of models fitted without the observation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import lockquack as lq

fuzzed = pytest.mark.fuzzed
S = 4000
#: Draws that lie as evenly as possible, in an order that means nothing.
EVEN = np.random.default_rng(1).permutation(stats.norm.ppf((np.arange(S) + 0.5) / S))


@fuzzed(6)
@given(
    n=st.integers(4, 30),
    sigma=st.sampled_from([0.3, 1.0, 4.0]),
    prior=st.sampled_from([0.5, 2.0, 20.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_normal_mean(n, sigma, prior, seed):
    """θ ~ N(0, prior²), y ~ N(θ, σ²): without y_i the prediction is normal, in closed form."""
    y = np.random.default_rng(seed).normal(0.5, sigma, size=n)
    precision = n / sigma**2 + 1 / prior**2
    theta = y.sum() / sigma**2 / precision + EVEN / np.sqrt(precision)
    model = lq.from_family("normal", y=y, mu=theta.reshape(4, -1), sigma=sigma)

    left = precision - 1 / sigma**2
    mean = (y.sum() - y) / sigma**2 / left
    variance = sigma**2 + 1 / left
    jet, loo = model.collapse("loo").jet, model.loo()
    unit = 1 / np.sqrt(variance)
    np.testing.assert_allclose(jet.grad[:, 0], (mean - y) / variance, atol=0.01 * unit)
    np.testing.assert_allclose(jet.curv[:, 0], -1 / variance, atol=0.02 * unit**2)
    fine = loo.pareto_k < 0.5
    expected = stats.norm.logpdf(y, mean, np.sqrt(variance))
    np.testing.assert_allclose(loo.logp[fine], expected[fine], atol=0.05)


@fuzzed(6)
@given(n=st.integers(3, 20), seed=st.integers(0, 2**32 - 1), shape=st.sampled_from([1.0, 3.0]))
def test_a_poisson_rate(n, seed, shape):
    """λ ~ Gamma(a, 1): without y_i the prediction is negative binomial."""
    rng = np.random.default_rng(seed)
    y = rng.poisson(3.0, size=n)
    uniform = stats.norm.cdf(EVEN)
    rate = stats.gamma.ppf(uniform, shape + y.sum(), scale=1 / (1 + n))
    model = lq.from_family("poisson", y=y, mu=rate.reshape(4, -1))
    loo = model.loo()
    expected = stats.nbinom.logpmf(y, shape + y.sum() - y, n / (n + 1))
    fine = loo.pareto_k < 0.5
    np.testing.assert_allclose(loo.logp[fine], expected[fine], atol=0.05)
    inside = model.collapse("in-sample", derivatives=False).jet.logp
    exact = stats.nbinom.logpmf(y, shape + y.sum(), (n + 1) / (n + 2))
    np.testing.assert_allclose(inside, exact, atol=0.02)


@fuzzed(6)
@given(n=st.integers(2, 12), d=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_leaving_out_by_hand(n, d, seed):
    """Weights 1/f on the draws: of any densities and derivatives, whatever they are of."""
    rng = np.random.default_rng(seed)
    shape = (2, 40, n) if d == 1 else (2, 40, n, d)
    logp = rng.normal(size=(2, 40, n))
    grad, curv = rng.normal(size=(2, *shape))
    model = lq.from_arrays(
        logp=logp, grad=grad, curv=curv, y=rng.normal(size=shape[2:]), component_dim=None
    )
    flat = [part.reshape(80, n, -1) for part in (logp, grad, curv)]
    f, g, h = np.exp(flat[0]), flat[1], flat[2]
    weights = (1 / f) / (1 / f).sum(axis=0)
    q = (weights * f).sum(axis=0)
    first = (weights * f * g).sum(axis=0) / q
    second = (weights * f * (h + g**2)).sum(axis=0) / q
    jet = model.collapse("loo").jet
    np.testing.assert_allclose(jet.grad, first, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jet.curv, second - first**2, rtol=1e-9, atol=1e-12)
