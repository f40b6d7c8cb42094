"""Combinations as distributions: densities, distribution functions, quantiles and draws agree."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit, logit

import lockquack as lq
from lockquack.errors import ImproperError, LockquackError, QuadratureWarning
from lockquack.families import FAMILIES
from lockquack.methods.examine import examine_tails
from lockquack.models.model import sources_of
from lockquack.operators import Operator
from lockquack.operators.pool import Pool
from lockquack.prediction.prediction import Prediction
from tests.fuzz.pairs import operators, parameters_of
from tests.fuzz.worlds import CONTINUOUS, COUNTS, SUPPORTS, World, worlds

fuzzed = pytest.mark.fuzzed
seeds = st.integers(0, 2**32 - 1)
#: Probabilities in the tails as well.
P = np.array([1e-6, 1e-3, 0.05, 0.3, 0.5, 0.8, 0.99, 1 - 1e-4])


#: The whole line for each kind of outcome: z of y, y of z, and log dy/dz.
LINES = {
    "line": (lambda y: y, lambda z: z, np.zeros_like),
    "angle": (lambda y: y, lambda z: z, np.zeros_like),
    "positive": (np.log, np.exp, lambda z: z),
    "unit": (logit, expit, lambda z: -np.logaddexp(0, z) - np.logaddexp(0, -z)),
}


def line_of(world):
    """Name the kind of outcomes that all models of a world are of."""
    first = next(iter(world.recipes.values()))
    known = {support: kind for kind, support in SUPPORTS.items()}
    return world.kind if first.transform else known[FAMILIES[first.family].support]


@dataclass(frozen=True, repr=False)
class Forecast:
    """A pool of models at given parameters, in-sample or leave-one-out."""

    world: World
    operator: Operator
    x: np.ndarray
    loo: bool

    def _repr_pretty_(self, printer, cycle):
        printer.text(f"{self.world!r}, {self.operator!r}, {self.x!r}, loo={self.loo}")

    @property
    def is_discrete(self):
        return self.world.kind == COUNTS

    def predict(self):
        """Normalise; pools that cannot be are refused or warned of, and are no case."""
        models = self.world.models()
        observations = next(iter(models.values())).observations
        pool = Pool(self.operator, self.x, len(models))
        prediction = Prediction(models, pool, observations, "pool", loo=self.loo)
        with warnings.catch_warnings():
            warnings.simplefilter("error", QuadratureWarning)
            try:
                examine_tails(sources_of(models), pool)  # as a fit does
                prediction.log_norm(), prediction.cdf()
            except (ImproperError, QuadratureWarning):
                assume(False)
        return prediction


@st.composite
def forecasts(draw, kinds=CONTINUOUS):
    world = draw(worlds(kinds, n=(2, 4), models=(1, 3), samples=(25, 40)))
    operator = draw(operators(world.names, depth=1)).bind(tuple(world.names))
    rng = np.random.default_rng(draw(seeds))
    x = parameters_of(operator, len(world.recipes), rng)
    return Forecast(world, operator, x, draw(st.booleans()))


@fuzzed(5)
@given(forecast=forecasts())
def test_densities_integrate_to_the_distribution_function(forecast):
    assume(forecast.world.has_one_support)  # integrals across an edge need more care
    prediction = forecast.predict()
    to_line, from_line, log_slope = LINES[line_of(forecast.world)]
    ends = to_line(prediction.quantile(P).values)  # (p, n)
    assume((np.diff(ends, axis=0) > 0).all())
    nodes, masses = np.polynomial.legendre.leggauss(12)
    cuts = np.linspace(0, 1, 33)
    found = []
    for low, high in pairwise(ends):
        panels = low + cuts[:, None] * (high - low)  # (cut, n)
        middle, half = (panels[1:] + panels[:-1]) / 2, (panels[1:] - panels[:-1]) / 2
        z = (middle[:, None] + half[:, None] * nodes[:, None]).reshape(-1, middle.shape[1])
        density = np.exp(prediction.logpdf(from_line(z)).values + log_slope(z))
        density = density.reshape(len(middle), len(nodes), -1)
        found.append((density * masses[:, None] * half[:, None]).sum(axis=(0, 1)))
    expected = np.diff(P)[:, None]
    assert (np.abs(np.array(found) - expected) <= 1e-5 + 1e-3 * expected).all(), found


@fuzzed(8)
@given(forecast=forecasts(), seed=seeds)
def test_quantiles_invert_the_distribution_function(forecast, seed):
    prediction = forecast.predict()
    p = np.sort(np.random.default_rng(seed).random(6))
    y = prediction.quantile(p)
    assert (np.diff(y.values, axis=0) >= 0).all()
    found = prediction.cdf(y.values).values
    np.testing.assert_allclose(found, np.broadcast_to(p[:, None], found.shape), atol=1e-6)


@fuzzed(8)
@given(forecast=forecasts([COUNTS]), seed=seeds)
def test_quantiles_of_counts(forecast, seed):
    prediction = forecast.predict()
    p = np.sort(np.random.default_rng(seed).random(5))
    y = prediction.quantile(p).values
    assert (y == y.round()).all()
    up, below = prediction.cdf(y).values, prediction.cdf(y - 1).values
    assert (up >= p[:, None] - 1e-9).all()
    assert (below <= p[:, None] + 1e-9).all()
    mass = np.exp(prediction.logpdf(y).values)
    np.testing.assert_allclose(mass, up - below, atol=1e-7)


@fuzzed(3)
@given(
    forecast=forecasts((*CONTINUOUS, COUNTS)),
    method=st.sampled_from(["auto", "rejection"]),
    seed=seeds,
)
def test_draws_follow_the_distribution_function(forecast, method, seed):
    """The largest distance of 2,000 draws; by Massart's bound, one in 10⁹ is above the limit."""
    prediction = forecast.predict()
    n = 2000
    try:
        tree = prediction.sample(n, method=method, random_seed=seed)
    except LockquackError:
        assume(method == "auto")  # of some pools no mixture above them is known
        raise
    draws = tree["posterior_predictive"]["y"].values[0]  # (n, obs)
    limit = np.sqrt(np.log(2e9) / (2 * n))
    ordered = np.sort(draws, axis=0)
    cdf = prediction.cdf(ordered).values
    discrete = forecast.is_discrete
    for i in range(draws.shape[1]):
        share = np.searchsorted(ordered[:, i], ordered[:, i], side="right") / n
        assert np.abs(share - cdf[:, i]).max() <= limit + (0 if discrete else 1 / n)


@fuzzed(4)
@given(forecast=forecasts((*CONTINUOUS, COUNTS)), prob=st.sampled_from([0.05, 0.5, 0.9, 0.99]))
def test_intervals_hold_their_probability(forecast, prob):
    prediction = forecast.predict()
    central, shortest = (prediction.interval(prob, kind=kind).values for kind in ("central", "hdi"))
    discrete = forecast.is_discrete
    for low, high in (central, shortest):
        held = prediction.cdf(high).values - prediction.cdf(low - discrete).values
        assert (held >= prob - 1e-5).all()
        assert discrete or (held <= prob + 1e-5).all()
    width = np.diff([central, shortest], axis=1)[:, 0]
    assert (width[1] <= width[0] * (1 + 1e-6) + 1e-9).all()


@fuzzed(4)
@given(
    forecast=forecasts(["line"]),
    seed=seeds,
)
def test_one_model_predicts_like_its_family(forecast, seed):
    """The mixture of one model is the average over its draws."""
    name = forecast.world.names[seed % len(forecast.world.names)]
    alone = Forecast(forecast.world.of([name]), lq.Linear(), np.ones(1), False).predict()
    y = forecast.world.y
    logp = forecast.world.arrays[name]["logp"].reshape(-1, y.size)
    top = logp.max(axis=0)
    expected = top + np.log(np.exp(logp - top).mean(axis=0))
    np.testing.assert_allclose(alone.logpdf().values, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(alone.log_norm().values, 0.0, atol=1e-6)
