"""Angles: a circle has no edge, so no score may depend on where it is cut open."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

import lockquack as lq
from lockquack.errors import EdgeError, SupportError
from lockquack.families import FAMILIES
from lockquack.models.likelihood import Likelihood
from tests.helpers import pooled_distribution

SHAPE, N = (2, 40), 30


def wrap(angle):
    return (angle + np.pi) % (2 * np.pi) - np.pi


@pytest.fixture
def y(rng):
    return wrap(rng.vonmises(2.8, 2.0, size=N))


@pytest.fixture
def parameters(rng):
    """Directions and concentrations of two models."""
    return {
        name: (mu + 0.1 * rng.normal(size=SHAPE), kappa * rng.gamma(50, 0.02, size=SHAPE))
        for name, mu, kappa in (("a", 3.0, 3.0), ("b", 1.5, 1.2))
    }


def models(y, parameters, turn=0.0):
    return {
        name: lq.from_family("von_mises", y=wrap(y + turn), mu=mu + turn, kappa=kappa)
        for name, (mu, kappa) in parameters.items()
    }


def one_draw(y, mu, kappa):
    return lq.from_family("von_mises", y=y, mu=np.full((1, 1), mu), kappa=kappa)


def two_directions(y):
    """Two models of one draw each; their log-linear pools are von Mises themselves."""
    return {name: one_draw(y, mu, kappa) for name, mu, kappa in (("a", 3.0, 3.0), ("b", 1.5, 1.2))}


def test_the_score_is_proper_on_the_circle():
    """E[2 ∂² log q + (∂ log q)²] is least at the truth, and no edge adds to it."""
    family, truth = FAMILIES["von_mises"], {"mu": 2.9, "kappa": 1.3}

    def expected(mu, kappa):
        def integrand(y):
            grad, curv = family.derivatives(np.float64(y), {"mu": mu, "kappa": kappa})
            return np.exp(family.logp(np.float64(y), truth)) * (2 * curv + grad**2)

        return integrate.quad(integrand, -np.pi, np.pi, epsabs=1e-12)[0]

    best = expected(**truth)
    # Integrated by parts, it is minus the Fisher information of a shift, which is known.
    information = truth["kappa"] * stats.vonmises.expect(np.cos, args=(truth["kappa"],))
    assert best == pytest.approx(-information, rel=1e-9)
    for mu, kappa in ((2.8, 1.3), (3.0, 1.3), (-3.1, 1.3), (2.9, 1.2), (2.9, 1.5)):
        assert expected(mu, kappa) > best + 1e-4


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
@pytest.mark.parametrize("method", [lq.lock, lq.stack])
def test_nothing_depends_on_where_the_circle_is_cut(y, parameters, method):
    here = method(models(y, parameters), **({"scale": 1.0} if method is lq.lock else {}))
    for turn in (0.4, 2.0, -3.0):
        there = method(models(y, parameters, turn), **({"scale": 1.0} if method is lq.lock else {}))
        np.testing.assert_allclose(there.weights, here.weights, atol=1e-9)
        np.testing.assert_allclose(there.predict().logpdf(), here.predict().logpdf(), atol=1e-8)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_a_log_linear_pool_is_von_mises(rng):
    """κ e^{iμ} of the pool is the weighted mean of those of the models."""
    y = wrap(rng.vonmises(2.5, 2.0, size=12))
    fit = lq.combine(two_directions(y), lq.Locking(), lq.Hyvarinen(scale=1.0), scores="held-out")
    w = fit.weights.values
    arrow = w @ (np.array([3.0, 1.2]) * np.exp(1j * np.array([3.0, 1.5])))
    exact = stats.vonmises(abs(arrow), loc=np.angle(arrow))
    predicted = fit.predict()
    np.testing.assert_allclose(predicted.logpdf(), exact.logpdf(y), rtol=1e-8)
    np.testing.assert_allclose(predicted.cdf(), exact.cdf(y) - exact.cdf(-np.pi), atol=1e-8)
    low, high = predicted.interval(0.8).values
    inside = exact.cdf(high) - exact.cdf(low)
    np.testing.assert_allclose(inside, 0.8, atol=1e-7)
    draws = predicted.sample(400, random_seed=1).posterior_predictive["y"].values[0, :, 0]
    assert (np.abs(draws) <= np.pi).all()
    assert stats.kstest(draws, lambda v: exact.cdf(v) - exact.cdf(-np.pi)).pvalue > 1e-3


@pytest.mark.parametrize("kappa", [0.01, 3.0, 1e5])
def test_a_bulk_that_crosses_the_cut_is_integrated_whole(kappa):
    y, width = np.array([3.0, -3.0]), 1 / np.sqrt(kappa)

    def pool(turn):
        each = {
            name: one_draw(wrap(y - turn), np.pi + shift - turn, kappa)
            for name, shift in (("a", 0.0), ("b", -width))
        }
        return pooled_distribution(each, lq.Locking(), np.array([0.5, 0.5]))

    cut, whole = pool(0.0), pool(3.0)
    np.testing.assert_allclose(cut.log_norm, whole.log_norm, rtol=1e-7)
    np.testing.assert_allclose(
        cut.logpdf(y[None]), whole.logpdf(wrap(y - 3.0)[None]), rtol=1e-9, atol=1e-7
    )


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_mixtures_are_on_the_circle_too(y, parameters):
    components = [("von_mises", {"mu": mu, "kappa": kappa}) for mu, kappa in parameters.values()]
    weights = np.broadcast_to([0.3, 0.7], (*SHAPE, 2))
    mixed = lq.from_family("mixture", y=y, weights=weights, components=components)
    assert all(edge.joined for edge in mixed.likelihood.edges)
    assert np.isfinite(lq.lock({"mixed": mixed, **models(y, parameters)}).weights).all()
    stored = Likelihood.from_attrs(mixed.likelihood.to_attrs(), "")
    assert stored == mixed.likelihood


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_lines_and_circles_do_not_mix(y, parameters, rng):
    both = models(y, parameters)
    both["line"] = lq.from_family("normal", y=y, mu=2 + rng.normal(size=SHAPE), sigma=1.0)
    with pytest.raises(EdgeError, match="angles on a circle and others of numbers on a line"):
        lq.lock(both)
    assert lq.stack(both).weights.sum() == pytest.approx(1.0)


def test_angles_are_from_minus_pi_to_pi(y):
    ends = np.array([-np.pi, np.pi, np.float32(np.pi), 0.3])
    model = lq.from_family("von_mises", y=ends, mu=np.zeros(SHAPE), kappa=2.0)
    logp = model.source.all_logp(slice(0, 4))[0, 0]
    np.testing.assert_allclose(logp[:2], logp[0])
    lq.check(model, thorough=True).require()
    with pytest.raises(SupportError, match="Bring angles there by"):
        lq.from_family("von_mises", y=y + np.pi, mu=np.zeros(SHAPE), kappa=2.0)
