"""Equally spaced nodes against scipy, finer sums and panels."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

import lockquack as lq
from lockquack.models.model import sources_of
from lockquack.operators import Hoelder, Linear, Locking
from lockquack.operators.pool import Pool
from lockquack.prediction import nodes
from lockquack.prediction.distribution import distribution_of
from lockquack.prediction.members import MULTIPLES
from lockquack.quadrature.grid import Grid, Line
from lockquack.quadrature.spaced import Spaced

WHOLE = (-np.inf, np.inf)


def first(logs, rows):
    return logs[0]


def lay_one(logpdf, spread=1.0, support=WHOLE, heavy=False):
    """Lay nodes for one density around 0, on the scale on which the line is whole."""

    def components(y, rows):
        with np.errstate(all="ignore"):
            return logpdf(y)[None]

    modes = spread * MULTIPLES[None, :, None]
    line = Line(spread * MULTIPLES[None, :], support)
    return Spaced.lay(components, line, modes, [first], heavy=heavy), components


@pytest.mark.parametrize(
    ("density", "support", "heavy"),
    [
        (stats.norm(), WHOLE, False),
        (stats.logistic(scale=0.5), WHOLE, True),
        (stats.t(5.0), WHOLE, True),
        (stats.gumbel_r(), WHOLE, True),
        (stats.lognorm(1.0), (0.0, np.inf), False),
        (stats.gamma(3.0, scale=0.3), (0.0, np.inf), False),
        (stats.beta(3.0, 2.0), (0.0, 1.0), False),
    ],
    ids=lambda value: getattr(getattr(value, "dist", None), "name", None),
)
def test_smooth_densities_integrate_to_one(density, support, heavy):
    found, _ = lay_one(density.logpdf, support=support, heavy=heavy)
    result = found.integrate(first)
    error = abs(np.expm1(result.log_value.item()))
    assert error <= result.relative_error.item() + 1e-13  # what lies beyond the last node
    assert error < 1e-9
    assert found.log_components.shape[1] < 130


def test_a_normal_density_needs_few_nodes():
    found, _ = lay_one(stats.norm.logpdf)
    assert found.log_components.shape[1] < 35
    assert found.integrate(first).log_value.item() == pytest.approx(0.0, abs=1e-13)


@pytest.mark.parametrize(
    "logpdf",
    [
        lambda y: -np.abs(y - 0.3) - np.log(2.0),
        lambda y: stats.uniform.logpdf(y, -2.0, 4.0),
    ],
    ids=["kink", "jumps"],
)
def test_what_is_not_smooth_goes_to_panels(logpdf):
    found, components = lay_one(logpdf)
    assert found is None
    # Nodes that were enough for another pool are given up for this one.
    enough, _ = lay_one(stats.norm.logpdf)
    known = replace(enough, log_components=components(enough._places()[0], None))
    assert isinstance(known.refined(components, first), Grid)


def test_a_pool_that_bends_more_than_its_components_is_refined_without_evaluating_them():
    def components(y, rows):
        return np.stack([stats.norm.logpdf(y, -0.3), stats.norm.logpdf(y, 0.4, 1.2)])

    def nobody(y, rows):
        raise AssertionError("what is known between the nodes is evaluated again")

    modes = np.stack([MULTIPLES - 0.3, 0.4 + 1.2 * MULTIPLES])[:, :, None]
    line = Line(np.sort(modes.ravel())[None], WHOLE)
    laid = Spaced.lay(components, line, modes, [first], heavy=False)
    pool = Pool(Hoelder(8.0), np.array([0.5, 0.5]), 2)
    fine = laid.refined(nobody, pool)
    assert fine.log_components.shape[1] > laid.log_components.shape[1]

    def density(y):
        return np.exp(pool(components(np.array([[y]]), None), np.arange(1)).item())

    exact, _ = integrate.quad(density, -12, 12, points=[0.0], epsabs=1e-13, epsrel=1e-13, limit=500)
    assert fine.integrate(pool).log_value.item() == pytest.approx(np.log(exact), abs=1e-8)


@pytest.fixture
def halved_t():
    """Nodes of a t density, the same at half the distance, and at how many it was evaluated."""
    density, asked = stats.t(8.0), []

    def components(y, rows):
        asked.append(y.size)
        return density.logpdf(y)[None]

    modes = MULTIPLES[None, :, None]
    laid = Spaced.lay(components, Line(MULTIPLES[None, :], WHOLE), modes, [first], heavy=True)
    asked.clear()
    return laid, laid.halved(components, first), sum(asked)


def test_far_out_nodes_that_are_halved_are_not_evaluated(halved_t):
    laid, halved, evaluated = halved_t
    assert 0 < evaluated < (laid.n_nodes - 1) / 2
    y, _ = halved._places()
    wrong = np.abs(halved.log_components[0] - stats.t(8.0).logpdf(y))
    assert wrong[1::2].max() > 1e-12  # not evaluated indeed
    assert (wrong <= halved.doubt + 1e-13).all()
    assert abs(np.expm1(halved.integrate(first).log_value.item())) < 1e-11
    assert halved.is_smooth(first)


def test_doubt_about_nodes_matters_to_pools_that_have_mass_there(halved_t):
    _, halved, _ = halved_t
    y, _ = halved._places()
    doubtful = replace(halved, doubt=np.where(np.abs(y) > 20, 1e-4, 0.0))

    def wide(logs, rows):
        return 0.2 * logs[0]

    assert doubtful.integrate(first).relative_error.item() < 1e-10
    assert doubtful.is_smooth(first)
    assert halved.is_smooth(wide)
    more = doubtful.integrate(wide).relative_error - halved.integrate(wide).relative_error
    assert more.item() > 1e-6
    assert not doubtful.is_smooth(wide)


def test_a_spike_between_nodes_is_mass_that_is_missing():
    y = np.zeros(1)
    draws = {"mu": np.array([[0.0] * 99 + [0.4]]), "sigma": np.array([[1.0] * 99 + [1e-4]])}
    models = sources_of({"a": lq.from_family("normal", y=y, **draws)})
    pooled = distribution_of(models, Pool(Linear(), np.ones(1), 1))
    assert isinstance(pooled.one.group.grid, Grid)
    exact = (99 * stats.norm.cdf(0.4) + 0.5) / 100
    assert pooled.cdf(np.array([[0.4]])).item() == pytest.approx(exact, abs=1e-10)


def test_modes_that_differ_much_go_to_panels():
    y = np.zeros(1)
    models = sources_of(
        {
            name: lq.from_family("normal", y=y, mu=0.0, sigma=sigma * np.ones((1, 1)))
            for name, sigma in (("narrow", 0.01), ("wide", 1.0))
        }
    )
    pooled = distribution_of(models, Pool(Linear(), np.array([0.5, 0.5]), 2))
    assert isinstance(pooled.one.group.grid, Grid)
    assert pooled.cdf(np.array([[0.01]])).item() == pytest.approx(
        (stats.norm.cdf(1.0) + stats.norm.cdf(0.01)) / 2, abs=1e-10
    )


@pytest.mark.parametrize("operator", [Linear(), Locking(), Hoelder(-1.0)], ids=repr)
@pytest.mark.parametrize("loo", [False, True])
def test_distributions_from_spaced_nodes_are_those_from_panels(operator, loo, rng, monkeypatch):
    y = rng.normal(size=3)
    mu, sigma = 0.1 * rng.normal(size=(4, 100)), rng.gamma(99, 0.01, (4, 100))
    pool = Pool(operator, np.array([0.4, 0.6]), 2)

    def answers():
        models = {
            "a": lq.from_family("normal", y=y, mu=mu, sigma=sigma),
            "b": lq.from_family("normal", y=y, mu=1.0 - mu, sigma=1.5 * np.ones((4, 100))),
        }
        pooled = distribution_of(sources_of(models), pool, loo=loo)
        p = np.array([1e-6, 0.01, 0.4, 0.95])
        numbers = pooled.log_norm, pooled.quantile(p), pooled.cdf(np.array([[-2.0], [0.3]]) + 0 * y)
        group = pooled.groups[0].group if loo else pooled.one.group
        return group.grid, [*numbers, pooled.mean(), pooled.var(), pooled.mode()]

    grid, spaced = answers()
    assert isinstance(grid, Spaced)
    monkeypatch.setattr(Spaced, "lay", lambda *_, **__: None)
    grid, panels = answers()
    assert isinstance(grid, Grid)
    for found, expected in zip(spaced, panels, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


def test_log_densities_between_nodes():
    found, components = lay_one(
        lambda y: logsumexp([stats.norm.logpdf(y, m) for m in (-0.2, 0.3)], 0)
    )
    y = np.linspace(-4.0, 4.0, 41)[:, None]
    rows = np.zeros(1, dtype=np.intp)
    np.testing.assert_allclose(
        found.interpolate(y, rows), components(y, rows), rtol=1e-9, atol=1e-9
    )


def test_nodes_are_laid_once_for_all_questions(rng, monkeypatch):
    y = rng.normal(size=30)
    models = {
        name: lq.from_family("normal", y=y, mu=mu + 0.1 * rng.normal(size=(4, 100)), sigma=1.0)
        for name, mu in (("a", -0.5), ("b", 0.5))
    }
    laid = []
    lay = nodes._lay
    monkeypatch.setattr(nodes, "_lay", lambda *a, **k: laid.append(k["loo"]) or lay(*a, **k))
    fit = lq.lock(models)
    first = fit.logpdf(loo=True)
    fit.coverage()
    fit.pit()
    lq.compare(models, ["lock", "stack"])
    assert laid == [True]
    fit.sample(5, random_seed=1)
    fit.interval(0.5)
    assert laid == [True, False]
    np.testing.assert_allclose(fit.logpdf(loo=True), first, rtol=0, atol=1e-12)


CROSSING = {
    "normals": (stats.norm(1.05, 1.23), stats.norm(-1.09, 1.3)),
    "logistic and normal": (stats.logistic(0.9, 0.8), stats.norm(-0.8)),
    "logistic and Gumbel": (stats.logistic(0.18, 1.15), stats.gumbel_r(-0.19, 0.71)),
    "t and normal": (stats.t(5.0, 0.5, 1.1), stats.norm(-0.7, 0.9)),
}


@pytest.mark.parametrize("order", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("weight", [0.5, 0.003, 0.0003])
@pytest.mark.parametrize("pair", CROSSING.values(), ids=CROSSING)
def test_the_error_of_a_pool_that_bends_where_densities_cross_is_seen(pair, weight, order):
    """Its transform falls fast, and then, below a small part of it, slowly."""

    def components(y, rows):
        with np.errstate(over="ignore"):  # scipy's Gumbel density far to the left
            return np.stack([density.logpdf(y) for density in pair])

    spreads = [density.std() for density in pair]
    modes = [m.mean() + s * MULTIPLES for m, s in zip(pair, spreads, strict=True)]
    modes = np.stack(modes)[:, :, None]
    line = Line(np.sort(modes.ravel())[None], WHOLE)
    pool = Pool(Hoelder(order), np.array([1 - weight, weight]), 2)
    found = Spaced.lay(components, line, modes, [first, pool], heavy=True)
    if found is None:  # panels, which have errors of their own
        found = Grid.lay(components, line).refined(components, pool)
    result = found.integrate(pool)

    def density(y):
        return np.exp(pool(components(np.array([[y]]), None), np.arange(1)).item())

    ends = [-np.inf, -30.0, *np.linspace(-8.0, 8.0, 33), 30.0, np.inf]
    exact = sum(
        integrate.quad(density, low, high, epsabs=1e-15, epsrel=1e-13, limit=200)[0]
        for low, high in pairwise(ends)
    )
    error = abs(np.expm1(result.log_value.item() - np.log(exact)))
    assert error < 1e-8
    assert error < 3 * result.relative_error.item() + 1e-9
