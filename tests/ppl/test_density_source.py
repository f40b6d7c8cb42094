"""Densities known only through a function: their edges and where their mass is."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import lockquack as lq
from lockquack.errors import SupportError, UnsupportedError
from lockquack.families import Edge
from lockquack.jets import Jet
from lockquack.models.likelihood import Likelihood
from lockquack.models.observations import as_observations
from lockquack.operators import Locking
from lockquack.sources.density import DensitySource, described
from tests.helpers import normalise


@dataclass(frozen=True, eq=False, repr=False)
class ScipySource(DensitySource):
    """A distribution of scipy; its parameters are of shape (chain, draw)."""

    logpdf: Any
    parameters: dict[str, np.ndarray]

    def jets_at(self, y, chain, draws, obs, *, derivatives):
        theta = {name: p[chain, draws, None] for name, p in self.parameters.items()}
        y = y[:, None, :, 0]

        def logp(at):
            return np.broadcast_to(self.logpdf(at, **theta), np.broadcast_shapes(y.shape, shape))

        shape = next(iter(theta.values())).shape
        step = 1e-4
        with np.errstate(all="ignore"):
            below, here, above = logp(y - step), logp(y), logp(y + step)
            grad, curv = (above - below) / (2 * step), (above - 2 * here + below) / step**2
        return Jet(here, grad[..., None], curv[..., None])


def predictive(name, y, logpdf, parts=(), **parameters):
    parameters = {k: np.broadcast_to(np.asarray(v), (2, 40)) for k, v in parameters.items()}
    source = ScipySource(
        as_observations(y), 2, 40, Likelihood(name), logpdf=logpdf, parameters=parameters
    )
    return lq.Model(described(source, name, parts))


Y = np.array([0.2, 0.5, 0.7])
JITTER = np.linspace(0.9, 1.1, 80).reshape(2, 40)
INF = np.inf
EDGES = {
    "Normal": (stats.norm.logpdf, {"scale": JITTER}, [(-INF, INF), (INF, INF)]),
    "Gamma": (stats.gamma.logpdf, {"a": 3 * JITTER}, [(0, 1.7), (INF, 1.0)]),
    "Beta": (stats.beta.logpdf, {"a": 2 * JITTER, "b": 3 * JITTER}, [(0, 0.8), (1, 1.7)]),
    # Not known by name:
    "Weibull": (stats.weibull_min.logpdf, {"c": 4 * JITTER}, [(0, 2.6), (INF, INF)]),
    "ChiSquared": (stats.chi2.logpdf, {"df": 8 * JITTER}, [(0, 2.6), (INF, 0.5)]),
    "InverseGamma": (stats.invgamma.logpdf, {"a": JITTER}, [(0, INF), (INF, 0)]),
    "Rice": (stats.rice.logpdf, {"b": JITTER}, [(0, 1.0), (INF, INF)]),
    "Shifted": (
        lambda y, a: stats.gamma.logpdf(y, a, loc=-2),
        {"a": JITTER},
        [(-2, -0.1), (INF, 1)],
    ),
    "Cauchy": (stats.cauchy.logpdf, {"scale": JITTER}, [(-INF, 0), (INF, 0)]),
    "LogGamma": (stats.loggamma.logpdf, {"c": 2 * JITTER}, [(-INF, 1.8), (INF, INF)]),
    "Exponential": (stats.expon.logpdf, {"scale": JITTER}, [(0, 0), (INF, 1 / 1.1)]),
    "LogitNormal": (
        lambda y, s: stats.norm.logpdf(np.log(y / (1 - y)), scale=s) - np.log(y * (1 - y)),
        {"s": JITTER},
        [(0, INF), (1, INF)],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_the_edges_of_a_density_are_found(name):
    logpdf, parameters, expected = EDGES[name]
    likelihood = predictive(name, Y, logpdf, **parameters).likelihood
    assert [edge.at for edge in likelihood.edges] == [at for at, _ in expected]
    for edge, (_, order) in zip(likelihood.edges, expected, strict=True):
        # Some draws are enough for the rate of decay far out.
        tolerance = 1e-3 if np.isfinite(edge.at) else 0.01
        assert edge.order == pytest.approx(order, rel=tolerance, abs=1e-3)
    assert not likelihood.not_smooth


@pytest.mark.parametrize(
    ("logpdf", "order"),
    [
        (lambda y, m: stats.expon.logpdf(y, loc=-m), 0.0),
        (lambda y, m: stats.gamma.logpdf(y, 1.5, loc=-m), 0.5),
        (lambda y, m: stats.gamma.logpdf(y, 4.0, loc=-m), None),
        (lambda y, m: stats.lognorm.logpdf(y, 0.5, loc=-m), None),
        (lambda y, m: stats.lognorm.logpdf(y, 1.0, loc=-m), None),
    ],
)
def test_an_edge_that_depends_on_parameters_must_vanish_for_the_score(logpdf, order):
    """Where it does, the average over draws has no edge: a density on the whole line."""
    likelihood = predictive("Odd", Y, logpdf, m=JITTER).likelihood
    if order is None:
        assert not likelihood.not_smooth
        assert likelihood.edges[0] == Edge(-INF, INF)
    else:
        assert "depends on its parameters" in likelihood.not_smooth
        found = re.search(r"distance\^([-.\d]+)", likelihood.not_smooth)
        assert float(found[1]) == pytest.approx(order, abs=0.01)


def test_what_is_wrong_with_a_part_is_wrong_with_the_whole():
    for part, what in [
        ("Laplace", "kink"),
        ("Gamma", "different places"),
        ("Weibull", "different places"),
    ]:
        mixture = predictive("Mixture", Y, stats.norm.logpdf, ["Normal", part], scale=JITTER)
        assert what in mixture.likelihood.not_smooth


@pytest.mark.parametrize("parts", [["Gamma", "LogNormal"], ["LogNormal", "Gamma"]])
def test_the_worst_part_of_a_mixture_decides_at_an_edge(parts):
    def logpdf(y, a):
        return np.logaddexp(stats.gamma.logpdf(y, a), stats.lognorm.logpdf(y, 1.0)) - np.log(2)

    (low, _) = predictive("Mixture", Y, logpdf, parts, a=3 * JITTER).likelihood.edges
    assert (low.at, low.order) == (0.0, pytest.approx(1.7, rel=1e-3))


def poisson(y, mu):
    return stats.poisson.logpmf(y, mu)


def test_discrete_models_are_like_those_of_a_family():
    y, mu = np.array([0.0, 2.0, 7.0]), 3.0 * JITTER
    model = predictive("Poisson", y, poisson, mu=mu)
    assert model.likelihood.discrete
    assert not model.source.can.differentiate
    with pytest.raises(UnsupportedError, match="is discrete"):
        model.source.derivatives(0, slice(0, 1), slice(0, 1))
    exact = lq.from_family("poisson", y=y, mu=mu)
    assert model.likelihood.support == exact.likelihood.support
    assert model.loo().logp == pytest.approx(exact.loo().logp)
    result = normalise({"a": model}, Locking(), np.ones(1), loo=False)
    assert result.log_norm == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Mixture", ["Poisson", "DiracDelta"]),
        ("Mixture", ["Poisson", "Categorical"]),
        ("Categorical", []),  # with how many outcomes, its name does not tell
    ],
)
def test_discrete_outcomes_are_known_by_name_or_by_looking(name, parts):
    model = predictive(name, np.array([0.0, 2.0]), poisson, parts, mu=JITTER)
    assert model.likelihood.discrete
    assert [edge.at for edge in model.likelihood.edges] == [0.0, INF]
    assert model.source.can.evaluate


def test_impossible_outcomes_are_refused():
    with pytest.raises(SupportError, match=r"is -inf at observation 0, where y is \[-1.0\]"):
        predictive("Gamma", np.array([-1.0, 1.0]), stats.gamma.logpdf, a=JITTER)


@pytest.mark.parametrize("detailed", [False, True])
def test_bulks_are_where_the_mass_is(detailed):
    y = np.array([0.3, 5.0, 900.0])  # the last one is 90,000 standard deviations out
    model = predictive("Normal", y, stats.norm.logpdf, loc=3 * JITTER, scale=0.01)
    bulks = model.source.bulks(slice(0, 3), np.array([-1.0, 0.0, 1.0]), detailed=detailed)
    whole, peak = bulks[0], bulks[1]
    assert whole[1] == pytest.approx(3.0, abs=0.05)
    assert whole[2] - whole[1] == pytest.approx(0.3 * 2 / 3, rel=0.1)  # of a uniform on ±0.3
    assert (np.abs(peak[1] - 3.0) < 0.31).all()
    if detailed:
        assert bulks[:, 1].min() == pytest.approx(2.7, abs=0.05)
        assert bulks[:, 1].max() == pytest.approx(3.3, abs=0.05)


def two_peaks(y, at):
    left, right = stats.norm.logpdf(y, -at, 0.01), stats.norm.logpdf(y, 50 * at, 0.3)
    return np.logaddexp(left, right) - np.log(2)


SHAPES = {
    "gamma": (stats.gamma.logpdf, {"a": 2 * JITTER}, "Gamma"),
    "spike at the edge": (stats.gamma.logpdf, {"a": 0.5 * JITTER}, "Gamma"),
    "beta": (stats.beta.logpdf, {"a": 5 * JITTER, "b": 40 * JITTER}, "Beta"),
    "heavy tails": (stats.cauchy.logpdf, {"scale": 1e-3 * JITTER}, "Cauchy"),
    "two peaks": (two_peaks, {"at": JITTER}, "Normal"),
    "tiny and far": (stats.norm.logpdf, {"loc": 40.0, "scale": 1e-3 * JITTER}, "Normal"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_quadrature_finds_all_the_mass(shape):
    logpdf, parameters, name = SHAPES[shape]
    model = predictive(name, Y, logpdf, **parameters)
    result = normalise({"a": model}, Locking(), np.ones(1), loo=False)
    assert result.log_norm == pytest.approx(0.0, abs=1e-7)


def test_a_pass_evaluates_each_tile_once():
    calls = []

    @dataclass(frozen=True, eq=False, repr=False)
    class Counting(ScipySource):
        def jets_at(self, *args, **options):
            calls.append(options)
            return super().jets_at(*args, **options)

    rng = np.random.default_rng(1)
    mu = rng.normal(size=(2, 40))
    source = Counting(
        as_observations(Y), 2, 40, Likelihood("Normal"), stats.norm.logpdf, {"loc": mu}
    )
    exact = lq.from_family("normal", y=Y, mu=mu, sigma=1.0)
    got, expected = lq.Model(source).collapse("in-sample").jet, exact.collapse("in-sample").jet
    assert got.logp == pytest.approx(expected.logp)
    assert got.curv == pytest.approx(expected.curv, rel=1e-4, abs=1e-4)
    assert len(calls) == 2


def of_counts(name, y, logpmf, **parameters):
    parameters = {k: np.broadcast_to(np.asarray(v), (2, 40)) for k, v in parameters.items()}
    likelihood = Likelihood(name, discrete=True)
    source = ScipySource(
        as_observations(y), 2, 40, likelihood, logpdf=logpmf, parameters=parameters
    )
    return lq.Model(described(source, name))


ENDS = {
    "trials": (lambda y, a: stats.betabinom.logpmf(y, 7, a, 2.0), {"a": JITTER}, (0, 7)),
    "shifted": (lambda y, mu: stats.poisson.logpmf(y + 3, mu), {"mu": 5 * JITTER}, (-3, INF)),
    "both ways": (
        lambda y, a: np.log(np.tanh(a / 2)) - a * np.abs(y),
        {"a": JITTER},
        (-INF, INF),
    ),
    "last differs": (
        lambda y, n: stats.binom.logpmf(y, n, 0.5),
        {"n": np.resize([4, 9], (2, 40))},
        (0, 9),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_first_and_last_possible_count_are_found(name):
    logpmf, parameters, ends = ENDS[name]
    model = of_counts(name, np.array([1.0, 2.0, 4.0]), logpmf, **parameters)
    assert tuple(edge.at for edge in model.likelihood.edges) == ends
    assert model.source.can.evaluate


@pytest.mark.parametrize(
    "logpmf",
    [
        lambda y, p: y * np.log(p) + (1 - y) * np.log(1 - p),  # of 0 and 1, but never refuses 2
        lambda y, p: np.where((y >= 0) & (y < 9), np.log(p / 20), -np.inf),  # of part of the mass
    ],
)
def test_counts_whose_probabilities_do_not_add_up_are_not_gone_through(logpmf):
    model = of_counts("by hand", np.array([0.0, 1.0, 1.0]), logpmf, p=0.5 * JITTER)
    assert not model.likelihood.edges
    assert not model.source.can.evaluate


@dataclass(frozen=True, eq=False, repr=False)
class Capped(ScipySource):
    """A normal distribution whose outcomes above a bound are all observed there."""

    def draw_outcomes(self, chain, draws, obs, rng):
        mu = self.parameters["loc"][chain, draws, None, None]
        n = np.arange(self.n_obs)[obs].size
        return np.minimum(rng.normal(mu, size=(draws.size, n, 1)), 1.0)

    @property
    def can(self):
        return replace(super().can, has_generator=True)


def capped(y, loc):
    def logp(y, loc):
        return np.where(y < 1, stats.norm.logpdf(y, loc), stats.norm.logsf(1.0, loc))

    known = as_observations(y), 2, 40, Likelihood("Censored")
    source = Capped(*known, logpdf=logp, parameters={"loc": loc}, has_atoms=True)
    return lq.Model(described(source, "Censored"))


def test_mixtures_of_models_with_atoms_are_drawn_by_their_generators():
    y = np.array([0.2, 1.0, -0.5, 1.0])
    models = {"low": capped(y, JITTER - 1), "high": capped(y, JITTER + 0.5)}
    prediction = lq.equal(models).predict()
    drawn = prediction.sample(20000, random_seed=1)["posterior_predictive"]["y"].values[0]
    for at in (-1.0, 0.0, 0.9):
        each = [stats.norm.cdf(at, model.source.parameters["loc"]) for model in models.values()]
        np.testing.assert_allclose((drawn <= at).mean(axis=0), np.mean(each), atol=0.016)
        # By one outcome of each draw: a coarser answer to the same question.
        np.testing.assert_allclose(prediction.cdf(at), np.mean(each), atol=0.15)
    assert (drawn.max(axis=0) == 1.0).all()
    with pytest.raises(UnsupportedError, match="single outcomes a probability.*lq.stack"):
        lq.combine(models, lq.Locking(), lq.LogScore(), scores="in-sample")
