"""The parts of benchmarks/heldout.py, against closed forms."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

import lockquack as lq

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="a wheel has no benchmarks")
sys.path.insert(0, str(BENCHMARKS))
regressions = pytest.importorskip("regressions")
heldout_scores = pytest.importorskip("heldout_scores")
sys.path.remove(str(BENCHMARKS))


def design(rng, n=60):
    return np.column_stack([np.ones(n), rng.normal(size=(n, 2))])


def test_normal_regressions_have_the_conjugate_posterior(rng):
    X = design(rng)
    y = X @ [1.0, 2.0, -1.0] + rng.normal(size=60)
    draws = regressions.Normal().fit(X, y, rng)
    beta = draws.beta.reshape(-1, 3)
    mean, squares, *_ = np.linalg.lstsq(X, y)
    sigma = np.sqrt(squares[0] / 57)
    error = sigma * np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    np.testing.assert_allclose(beta.mean(axis=0), mean, atol=0.15 * error.max())
    np.testing.assert_allclose(beta.std(axis=0), error, rtol=0.15)
    assert draws.dispersion.mean() == pytest.approx(sigma, rel=0.05)


def test_student_t_is_not_moved_by_an_outlier(rng):
    X = design(rng)
    y = X @ [1.0, 2.0, -1.0] + rng.normal(size=60)
    y[0] += 100.0
    beta = regressions.StudentT().fit(X, y, rng).beta.mean(axis=(0, 1))
    np.testing.assert_allclose(beta, [1.0, 2.0, -1.0], atol=0.6)


@pytest.mark.parametrize("name", ["Poisson", "NegativeBinomial", "Gamma"])
def test_slopes_of_log_links_are_those_of_their_densities(rng, name):
    likelihood = getattr(regressions, name)()
    y, eta, alpha, h = np.array([1.0, 3.0, 7.0]), rng.normal(size=3), 1.7, 1e-6
    by_eta, by_log = likelihood.slopes(y, eta, alpha)
    logp = likelihood.logp
    assert by_eta == pytest.approx((logp(y, eta + h, alpha) - logp(y, eta - h, alpha)) / (2 * h))
    if likelihood.dispersed:
        up, down = (logp(y, eta, alpha * np.exp(step)) for step in (h, -h))
        assert by_log == pytest.approx((up - down) / (2 * h), rel=1e-5)


def test_metropolis_finds_a_posterior_that_can_be_integrated(rng):
    y = rng.poisson(3.0, size=12)
    draws = regressions.Poisson().fit(np.ones((12, 1)), y, rng)

    def posterior(eta, power):
        prior = -0.5 * np.square((eta - np.log(y.mean())) / regressions.INTERCEPT)
        logp = y.sum() * eta - 12 * np.exp(eta) - gammaln(y + 1).sum() + prior
        return eta**power * np.exp(logp + 20.0)

    total, first, second = (integrate.quad(posterior, -2, 4, args=(p,))[0] for p in range(3))
    mean = first / total
    sd = np.sqrt(second / total - mean**2)
    assert draws.beta.mean() == pytest.approx(mean, abs=0.15 * sd)
    assert draws.beta.std() == pytest.approx(sd, rel=0.12)


def one_draw(likelihood, eta, dispersion, n):
    draws = regressions.Draws(np.full((1, 1, 1), eta), np.full((1, 1), dispersion))
    return heldout_scores.Member(likelihood, draws, np.ones((n, 1)))


def test_scores_of_a_locked_pool_of_normals_are_those_of_a_normal():
    y = np.linspace(-3.0, 5.0, 20)
    members = [one_draw(regressions.Normal(), m, s, y.size) for m, s in ((0.0, 1.0), (2.0, 2.0))]
    # Copies of a draw, so that the quantiles of predictions are known well.
    members = [
        heldout_scores.Member(
            each.likelihood,
            regressions.Draws(
                np.repeat(each.draws.beta, 4000, 1), np.repeat(each.draws.dispersion, 4000, 1)
            ),
            each.X,
        )
        for each in members
    ]
    w = 0.3
    found = heldout_scores.score(
        members, {"lock": lambda logp: w * logp[0] + (1 - w) * logp[1]}, y, counts=False, seed=1
    )["lock"]
    precision = np.array([w / 1.0, (1 - w) / 4.0])
    pool = stats.norm(precision @ [0.0, 2.0] / precision.sum(), precision.sum() ** -0.5)
    np.testing.assert_allclose(found[0], pool.logpdf(y), atol=1e-5)
    z = (y - pool.mean()) / pool.std()
    crps = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(found[1], pool.std() * crps, atol=1e-5)
    np.testing.assert_array_equal(found[2], np.abs(pool.cdf(y) - 0.5) <= 0.45)


def test_scores_of_counts(rng):
    y = np.array([0.0, 2.0, 9.0])
    member = one_draw(regressions.Poisson(), np.log(3.0), 1.0, y.size)
    found = heldout_scores.score([member], {"it": lambda logp: logp[0]}, y, counts=True, seed=1)
    k = np.arange(60)
    cdf = stats.poisson.cdf(k, 3.0)
    np.testing.assert_allclose(found["it"][0], stats.poisson.logpmf(y, 3.0), atol=1e-8)
    crps = [np.square(cdf - (k >= each)).sum() for each in y]
    np.testing.assert_allclose(found["it"][1], crps, atol=1e-8)
    lower, upper = stats.poisson.cdf(y - 1, 3.0), stats.poisson.cdf(y, 3.0)
    inside = np.clip(np.minimum(upper, 0.95) - np.maximum(lower, 0.05), 0, None)
    np.testing.assert_allclose(found["it"][2], inside / (upper - lower), atol=1e-7)


@pytest.mark.parametrize("mu", [300.0, 9_000.0])
def test_scores_of_counts_that_reach_far_are_sums_over_all_of_them(mu, monkeypatch):
    monkeypatch.setattr(heldout_scores, "MOST", 0)
    y, alpha, copies = np.array([2.0, 800.0, 1100.0, 7000.0]), 1.5, 1000
    draws = regressions.Draws(np.full((1, copies, 1), np.log(mu)), np.full((1, copies), alpha))
    member = heldout_scores.Member(regressions.NegativeBinomial(), draws, np.ones((y.size, 1)))
    pools = {"it": lambda logp: 0.9 * logp[0]}
    score, crps, inside = heldout_scores.score([member], pools, y, counts=True, seed=1)["it"]
    k = np.arange(400_000)
    p = stats.nbinom.pmf(k, alpha, alpha / (alpha + mu)) ** 0.9
    p /= p.sum()
    own, cdf = p[y.astype(int)], np.cumsum(p)
    np.testing.assert_allclose(score, np.log(own), atol=1e-5)
    np.testing.assert_allclose(crps, [np.square(cdf - (k >= each)).sum() for each in y], rtol=1e-5)
    upper = cdf[y.astype(int)]
    share = np.clip(np.minimum(upper, 0.95) - np.maximum(upper - own, 0.05), 0, None) / own
    np.testing.assert_allclose(inside, share, atol=1e-5)


@pytest.mark.filterwarnings("ignore::lockquack.errors.SupportWarning")
def test_scores_are_those_of_the_library(rng):
    X = design(rng, 40)
    y = np.exp(0.3 * (X @ [1.0, 1.0, 0.5]) + 0.4 * rng.normal(size=40))
    likelihoods = {"normal": regressions.Normal(), "gamma": regressions.Gamma()}
    members, models = [], {}
    for name, likelihood in likelihoods.items():
        draws = likelihood.fit(X, y, rng)
        given = likelihood.family(draws.predictor(X), draws.dispersion[..., None])
        members.append(heldout_scores.Member(likelihood, draws, X))
        models[name] = lq.from_family(y=y, **given)
    fit = lq.lock(models, rule="log")
    pooling = {"lock": lambda logp: fit.pool(logp, np.arange(logp.shape[-1]))}
    found = heldout_scores.score(members, pooling, y, counts=False, seed=2)["lock"]
    np.testing.assert_allclose(found[0], fit.logpdf(), atol=2e-4)
    inside = np.abs(fit.predict().cdf(y) - 0.5) <= 0.45
    np.testing.assert_array_equal(found[2].astype(bool), inside)
