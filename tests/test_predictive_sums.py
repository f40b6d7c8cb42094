"""Compiled predictive densities against the families' own, summed by numpy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import lockquack as lq
from lockquack.families import FAMILIES, Family
from lockquack.kernels import choice
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import as_observations
from lockquack.prediction.members import PredictiveDensity
from lockquack.sources.density import DensitySource

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


@dataclass(frozen=True, eq=False, repr=False)
class Foreign(DensitySource):
    """A density that a library evaluates: here, of a family, perhaps with something added."""

    family: Family
    p: Mapping[str, np.ndarray]  # (chain, draw, obs)
    bump: float = 0.0

    def jets_at(self, y, chain, draws, obs, *, derivatives):
        p = {name: value[chain, draws][:, obs] for name, value in self.p.items()}
        jet = self.family.jet(y[:, None, :, 0], p)
        far = np.abs(y[:, None, :, 0] - self.observations.values[obs, 0]) > 1e-3
        return replace(jet, logp=jet.logp + self.bump * far)


FOREIGN = {
    "normal": lambda rng, shape: {"mu": rng.normal(size=shape), "sigma": rng.gamma(9, 0.1, shape)},
    "lognormal": lambda rng, shape: {
        "mu": rng.normal(size=shape),
        "sigma": rng.gamma(9, 0.1, shape),
    },
    "gamma": lambda rng, shape: {"alpha": rng.gamma(9, 0.3, shape), "beta": rng.gamma(9, 1, shape)},
    "exponential": lambda rng, shape: {"lam": rng.gamma(9, 0.1, shape)},
}


def foreign(name, rng, bump=0.0, told=None):
    shape, y = (2, 40, 5), rng.gamma(3.0, size=5)
    p = FOREIGN[name](rng, shape)
    likelihood = Likelihood(told or name)
    return Foreign(as_observations(y), 2, 40, likelihood, FAMILIES[name], p, bump)


@pytest.mark.parametrize("name", FOREIGN)
def test_densities_of_a_library_are_split_by_what_their_jets_tell(name, rng):
    source = foreign(name, rng)
    split = source.split(slice(1, 4))
    expected = FAMILIES[name].split({k: v[:, :, 1:4].reshape(80, 3) for k, v in source.p.items()})
    assert split.formula == expected.formula
    np.testing.assert_allclose(split.constant, np.broadcast_to(expected.constant, (80, 3)).T)
    y = rng.gamma(3.0, size=(7, 3))
    base, *others = split.of_outcome(y)
    log_sums = choice.predictive_sums(2**30)
    sums = log_sums(split.formula, others, base, np.arange(3), split.constant, split.parameters)
    by_chain = [source.logp_at(y[..., None], c, slice(0, 40), slice(1, 4)) for c in (0, 1)]
    direct = logsumexp(np.concatenate(by_chain, axis=1), axis=1)
    np.testing.assert_allclose(sums, direct, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_density_that_is_not_what_its_name_says_is_not_split(name, rng):
    everywhere = slice(0, 5)
    assert foreign(name, rng, bump=1e-6).split(everywhere) is None
    other = "gamma" if name == "lognormal" else "lognormal"
    assert foreign(name, rng, told=other).split(everywhere) is None
    assert foreign(name, rng, told="laplace").split(everywhere) is None


@pytest.mark.parametrize("name", FOREIGN)
def test_where_a_density_of_a_library_has_its_mass_is_told_by_its_draws(name, rng):
    source, multiples = foreign(name, rng), np.array([0.0, 1.0, 3.0])
    family, p = source.family, {k: v[:, :, 1:4].reshape(80, 3) for k, v in source.p.items()}
    place, width = family.location(p), family.spread(p)
    spread = np.sqrt(np.square(width).mean(axis=0) + place.var(axis=0))
    expected = (place.mean(axis=0) + multiples[:, None] * spread)[None]
    found = source.bulks(slice(1, 4), multiples, detailed=False)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_where_a_density_that_is_not_what_its_name_says_has_its_mass_is_searched_for(rng):
    source = foreign("gamma", rng, told="lognormal")
    found = source.bulks(slice(1, 4), np.zeros(1), detailed=False)
    assert len(found) > 1  # the mass as a whole, and modes
