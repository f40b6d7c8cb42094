"""Compiled predictive densities against the families' own, summed by numpy."""

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import lockquack as lq
from lockquack.families import FAMILIES
from lockquack.kernels import choice
from lockquack.prediction.members import PredictiveDensity

pytest.importorskip("numba")

PARAMETERS = {
    "mu": lambda rng: 0.3 * rng.normal(size=(2, 40, 3)),
    "sigma": lambda rng: rng.gamma(20.0, 0.05, size=(2, 40)),
    "nu": lambda rng: rng.gamma(4.0, 1.0, size=(2, 40)),
    "alpha": lambda rng: rng.gamma(9.0, 0.2, size=(2, 40, 3)),
    "beta": lambda rng: rng.gamma(9.0, 0.2, size=(2, 40)),
    "lam": lambda rng: rng.gamma(9.0, 0.2, size=(2, 40)),
    "kappa": lambda rng: rng.gamma(9.0, 0.2, size=(2, 40)),
    "s": lambda rng: rng.gamma(9.0, 0.2, size=(2, 40)),
}
Y = np.array([0.2, 0.5, 0.9])
SCALAR = [f for f in FAMILIES.values() if not (f.discrete or f.multivariate)]
#: Far out, outside of supports, and where a density is not asked for.
PLACES = np.array(
    [[-3e5], [-40.0], [-1.0], [0.0], [1e-9], [0.3], [0.999], [7.0], [1e9], [1e149], [np.nan]]
)


def some_model(family, rng, **options):
    names = family.signatures[0]
    return lq.from_family(family.name, y=Y, **{n: PARAMETERS[n](rng) for n in names}, **options)


def densities(model, loo, monkeypatch, least):
    monkeypatch.setattr(choice, "_WORTH_COMPILING", least)
    density = PredictiveDensity.of(model.source, slice(0, 3), loo)
    return density, density.logpdf(PLACES * np.ones(3), np.array([0, 1, 2]))


@pytest.mark.parametrize("loo", [False, True])
@pytest.mark.parametrize("family", [f for f in SCALAR if f.name != "mixture"], ids=lambda f: f.name)
def test_compiled_equals_plain(family, loo, rng, monkeypatch):
    model = some_model(family, rng)
    _, plain = densities(model, loo, monkeypatch, np.inf)
    compiled, found = densities(model, loo, monkeypatch, 0)
    assert (compiled._compiled is None) == (compiled.source.split(slice(0, 3)) is None)
    np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["normal", "student_t", "gamma", "lognormal", "beta", "skew_normal"]
)
def test_the_common_families_are_compiled(name, rng):
    assert some_model(FAMILIES[name], rng).source.split(slice(0, 3)) is not None


def test_compiled_models_of_log_y(rng, monkeypatch):
    model = some_model(FAMILIES["student_t"], rng, transform="log")
    _, plain = densities(model, True, monkeypatch, np.inf)
    compiled, found = densities(model, True, monkeypatch, 0)
    assert compiled._compiled is not None
    np.testing.assert_allclose(found, plain, rtol=1e-12, atol=1e-12)


def test_many_degrees_of_freedom_lose_no_digits(rng, monkeypatch):
    draws = {"mu": PARAMETERS["mu"](rng), "sigma": 1.0, "nu": 1e9 * np.ones((2, 40))}
    model = lq.from_family("student_t", y=Y, **draws)
    _, plain = densities(model, False, monkeypatch, np.inf)
    _, found = densities(model, False, monkeypatch, 0)
    np.testing.assert_allclose(found, plain, rtol=1e-11)


@pytest.mark.parametrize("count", [5, 33, 90])
@pytest.mark.parametrize("centre", [0.0, 1e4])
@pytest.mark.parametrize("unequal", [1.0, 1e-3], ids=["alike", "one narrow draw"])
def test_equally_spaced_outcomes(count, centre, unequal, rng, monkeypatch):
    sigma = PARAMETERS["sigma"](rng)
    sigma[0, 0] *= unequal  # its terms are too small for a series, so it is given up
    model = lq.from_family("normal", y=Y, mu=centre + PARAMETERS["mu"](rng), sigma=sigma)
    y = centre + np.linspace(-9.0, 11.0, count)[:, None] * np.ones(3)
    rows = np.arange(3)
    monkeypatch.setattr(choice, "_WORTH_COMPILING", 0)
    density = PredictiveDensity.of(model.source, slice(0, 3), False)
    terms = stats.norm.logpdf(
        y[:, None], *(_all_draws(model.source, name) for name in ("mu", "sigma"))
    )
    exact = logsumexp(terms, axis=1) - np.log(80)
    np.testing.assert_allclose(
        density.logpdf(y, rows), exact, rtol=1e-12, atol=2e-13 * (1 + centre)
    )


def _all_draws(source, name):
    chains = [source._parameters(chain, slice(0, 40), slice(0, 3))[name] for chain in (0, 1)]
    return np.concatenate(chains)


@pytest.mark.parametrize("alpha", [-30.0, -0.5, 0.0, 2.0, 1e3])
def test_skew_normal_far_into_both_tails(alpha, monkeypatch):
    model = lq.from_family("skew_normal", y=Y, mu=0.0, sigma=1.0, alpha=alpha * np.ones((1, 30)))
    monkeypatch.setattr(choice, "_WORTH_COMPILING", 0)
    density = PredictiveDensity.of(model.source, slice(0, 1), False)
    assert density._compiled is not None
    y = np.array([-40.0, -6.0, -0.3, 0.0, 1e-3, 2.0, 35.0])
    exact = [
        float(mpmath.log(2 * mpmath.npdf(each) * mpmath.ncdf(mpmath.mpf(alpha) * each)))
        for each in y
    ]
    found = density.logpdf(y[:, None], np.zeros(1, dtype=np.intp))[:, 0]
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-13)
