"""The combination as a distribution against closed forms, scipy and mpmath."""

from __future__ import annotations

import warnings
from dataclasses import replace

import mpmath
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import lockquack as lq
from lockquack.errors import (
    LockquackError,
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    UnsupportedError,
)
from lockquack.operators import Hoelder, Hybrid, Linear, Locking, Superposition
from lockquack.operators.pool import OneModel, Pool
from lockquack.prediction.distribution import distribution_of
from lockquack.prediction.nodes import refine_nodes
from lockquack.quadrature.continuous import ContinuousRows, resolved
from lockquack.quadrature.grid import Grid, Line
from tests.helpers import lock, paper_models, pooled_distribution

PROBABILITIES = np.array([0.001, 0.025, 0.3, 0.5, 0.9, 0.999])


def one_draw(name, y, **parameters):
    """A model with a single draw: its predictive is the likelihood itself."""
    return lq.from_family(name, y=y, **{k: np.full((1, 1), v) for k, v in parameters.items()})


def normal_pool(w, mu, sd):
    """Mean, standard deviation and log normaliser of a log-linear pool of normals."""
    w, mu, sd = map(np.asarray, (w, mu, sd))
    precision = w / sd**2
    mean, var = precision @ mu / precision.sum(), 1 / precision.sum()
    log_norm = (
        0.5 * np.log(2 * np.pi * var)
        - w @ (0.5 * np.log(2 * np.pi * sd**2))
        - 0.5 * (precision @ (mu - mean) ** 2)
    )
    return mean, np.sqrt(var), log_norm


@pytest.mark.parametrize("distance", [0.0, 1.0, 8.0, 1000.0])
@pytest.mark.parametrize("ratio", [1.0, 10.0, 1e4])
def test_pools_of_normals_are_normal(distance, ratio):
    y = np.array([0.1, distance])
    models = {
        "a": one_draw("normal", y, mu=0.0, sigma=1.0),
        "b": one_draw("normal", y, mu=distance, sigma=ratio),
    }
    w = np.array([0.4, 0.6])
    pooled = pooled_distribution(models, Locking(), w)
    mean, sd, log_norm = normal_pool(w, [0.0, distance], [1.0, ratio])
    exact = stats.norm(mean, sd)
    close = {"rtol": 0, "atol": 1e-8 * sd}
    np.testing.assert_allclose(pooled.log_norm, log_norm, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(pooled.mean(), mean, **close)
    np.testing.assert_allclose(pooled.var(), sd**2, rtol=1e-8)
    np.testing.assert_allclose(pooled.mode(), mean, rtol=0, atol=1e-5 * sd)
    quantiles = exact.ppf(PROBABILITIES)[:, None] * np.ones(2)
    np.testing.assert_allclose(pooled.quantile(PROBABILITIES), quantiles, **close)
    np.testing.assert_allclose(pooled.cdf(quantiles), PROBABILITIES[:, None] * [1, 1], atol=1e-9)
    np.testing.assert_allclose(pooled.logpdf(quantiles), exact.logpdf(quantiles), atol=1e-7)
    central = np.array(exact.interval(0.9))[:, None]
    np.testing.assert_allclose(pooled.interval(0.9) - central, 0, **close)
    # The length is flat around its minimum, so the ends have half the digits.
    np.testing.assert_allclose(pooled.interval(0.9, "hdi") - central, 0, atol=1e-5 * sd)


SINGLE = {
    "cauchy": ("student_t", {"nu": 1.0, "mu": 1.0, "sigma": 2.0}, stats.t(1, 1, 2)),
    "t2": ("student_t", {"nu": 2.0, "mu": 1.0, "sigma": 2.0}, stats.t(2, 1, 2)),
    "t2.5": ("student_t", {"nu": 2.5, "mu": 1.0, "sigma": 2.0}, stats.t(2.5, 1, 2)),
    "t5": ("student_t", {"nu": 5.0, "mu": 1.0, "sigma": 2.0}, stats.t(5, 1, 2)),
    "gamma": ("gamma", {"alpha": 3.0, "beta": 2.0}, stats.gamma(3, scale=0.5)),
    "pole": ("gamma", {"alpha": 0.5, "beta": 2.0}, stats.gamma(0.5, scale=0.5)),
    "beta": ("beta", {"alpha": 0.8, "beta": 3.0}, stats.beta(0.8, 3)),
    "lognormal": ("lognormal", {"mu": 0.0, "sigma": 1.5}, stats.lognorm(1.5)),
    "exponential": ("exponential", {"lam": 2.0}, stats.expon(scale=0.5)),
    "skew": ("skew_normal", {"mu": 0.0, "sigma": 1.0, "alpha": 9.0}, stats.skewnorm(9)),
}


@pytest.mark.parametrize("case", SINGLE)
def test_one_model_is_its_own_distribution(case):
    family, parameters, exact = SINGLE[case]
    model = one_draw(family, np.array([0.2, 0.7]), **parameters)
    pooled = pooled_distribution({"only": model}, Locking(), np.ones(1))
    quantiles = exact.ppf(PROBABILITIES)[:, None] * np.ones(2)
    np.testing.assert_allclose(pooled.quantile(PROBABILITIES), quantiles, rtol=1e-8)
    np.testing.assert_allclose(pooled.cdf(quantiles), PROBABILITIES[:, None] * [1, 1], atol=1e-9)
    np.testing.assert_allclose(pooled.mean(), {"cauchy": np.nan}.get(case, exact.mean()), rtol=1e-8)
    np.testing.assert_allclose(pooled.var(), {"cauchy": np.inf}.get(case, exact.var()), rtol=1e-6)
    assert np.isinf(pooled.quantile(np.array([1.0]))).all() == np.isinf(exact.ppf(1.0))


POOLS = {
    "student": [("student_t", {"nu": 1.0, "mu": 0.0, "sigma": 1.0}),
                ("student_t", {"nu": 2.0, "mu": 6.0, "sigma": 0.5})],
    "gamma": [("gamma", {"alpha": 3.0, "beta": 1.0}), ("gamma", {"alpha": 1.2, "beta": 0.3})],
    "beta": [("beta", {"alpha": 4.0, "beta": 5.0}), ("beta", {"alpha": 0.8, "beta": 0.7})],
}  # fmt: skip


def mp_density(family, p):
    """The same densities, written again in high precision."""
    if family == "student_t":
        nu, mu, s = map(mpmath.mpf, (p["nu"], p["mu"], p["sigma"]))
        c = mpmath.gamma((nu + 1) / 2) / mpmath.gamma(nu / 2) / mpmath.sqrt(nu * mpmath.pi) / s
        return lambda y: c * (1 + ((y - mu) / s) ** 2 / nu) ** (-(nu + 1) / 2)
    a, b = mpmath.mpf(p["alpha"]), mpmath.mpf(p["beta"])
    if family == "gamma":
        return lambda y: b**a / mpmath.gamma(a) * y ** (a - 1) * mpmath.exp(-b * y)
    return lambda y: y ** (a - 1) * (1 - y) ** (b - 1) / mpmath.beta(a, b)


@pytest.mark.parametrize("case", POOLS)
def test_other_pools_in_high_precision(case):
    w = (0.35, 0.65)
    densities = [mp_density(*part) for part in POOLS[case]]

    def q(y):
        return densities[0](y) ** w[0] * densities[1](y) ** w[1]

    ends = {
        "student": [-mpmath.inf, -1, 0, 3, 6, 7, mpmath.inf],
        "gamma": [0, 0.01, 1, 4, 12, 50, mpmath.inf],
        "beta": [0, 0.1, 0.5, 0.9, 1],
    }
    knots = ends[case]
    total = mpmath.quad(q, knots)
    middle = knots[3]
    below = mpmath.quad(q, knots[:4]) / total
    y = np.array([0.3, 0.6])
    models = {str(k): one_draw(name, y, **p) for k, (name, p) in enumerate(POOLS[case])}
    pooled = pooled_distribution(models, Locking(), np.array(w))
    np.testing.assert_allclose(pooled.log_norm, float(mpmath.log(total)), atol=1e-8)
    at = np.full((1, 2), float(middle))
    np.testing.assert_allclose(pooled.cdf(at), float(below), rtol=1e-8)
    np.testing.assert_allclose(pooled.quantile(np.array([float(below)])), at, rtol=1e-8)
    if case != "student":
        mean = mpmath.quad(lambda v: v * q(v), knots) / total
        var = mpmath.quad(lambda v: (v - mean) ** 2 * q(v), knots) / total
        np.testing.assert_allclose(pooled.mean(), float(mean), rtol=1e-8)
        np.testing.assert_allclose(pooled.var(), float(var), rtol=1e-8)


def test_moments_that_do_not_exist_are_not_given():
    y = np.array([0.3])
    for nu, mean, var in (
        (1.0, np.nan, np.inf),
        (1.9, 0.0, np.inf),
        (2.1, 0.0, 21.0),
        (2.5, 0.0, 5.0),
    ):
        model = one_draw("student_t", y, nu=nu, mu=0.0, sigma=1.0)
        pooled = pooled_distribution({"t": model}, Locking(), np.ones(1))
        np.testing.assert_allclose(pooled.mean(), mean, atol=1e-8)
        np.testing.assert_allclose(pooled.var(), var, rtol=1e-5)
    for alpha, mean, var in ((0.8, np.inf, np.inf), (1.2, 5.0, np.inf), (2.2, 1 / 1.2, 1 / 0.288)):
        model = one_draw("inverse_gamma", y, alpha=alpha, beta=1.0)
        pooled = pooled_distribution({"ig": model}, Locking(), np.ones(1))
        np.testing.assert_allclose(pooled.mean(), mean, rtol=1e-5)
        np.testing.assert_allclose(pooled.var(), var, rtol=1e-5)


@pytest.mark.parametrize(
    ("operator", "x"),
    [
        (Linear(), [0.3, 0.7]),
        (Locking(), [0.3, 0.7]),
        (Locking("nonnegative"), [0.9, 0.8]),
        (Superposition(), [0.3, 0.7, 0.0, 2.0]),
        (Hybrid(), [0.5, 0.2, 0.3, 0.4, 0.6]),
        (Hoelder(-1.0), [0.3, 0.7]),
        (Hoelder(2.0), [0.3, 0.7]),
    ],
    ids=lambda v: repr(v) if not isinstance(v, list) else "",
)
def test_every_operator_has_a_distribution(operator, x, rng):
    y = np.array([0.2])
    shape = (2, 20)
    models = {
        "a": lq.from_family("normal", y=y, mu=0.3 * rng.normal(size=shape), sigma=1.0),
        "b": lq.from_family("student_t", y=y, nu=4.0, mu=3 + 0.3 * rng.normal(size=shape), sigma=2),
    }
    pooled = pooled_distribution(models, operator, np.array(x))
    # Against a plain fine grid, which knows nothing of panels and polynomials.
    line = np.linspace(-60.0, 70.0, 40001)
    density = np.exp(pooled.logpdf(line[:, None])[:, 0])
    step = line[1] - line[0]
    cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * step)])
    assert cdf[-1] == pytest.approx(1.0, abs=2e-5)
    np.testing.assert_allclose(pooled.cdf(line[::100, None])[:, 0], cdf[::100], atol=2e-5)
    at = pooled.quantile(PROBABILITIES)
    np.testing.assert_allclose(pooled.cdf(at)[:, 0], PROBABILITIES, atol=1e-10)
    assert line[density.argmax()] == pytest.approx(pooled.mode()[0], abs=step)
    low, high = pooled.interval(0.8, "hdi")
    assert pooled.cdf(high[None]) - pooled.cdf(low[None]) == pytest.approx(0.8, abs=1e-9)
    shortest = min(
        np.searchsorted(cdf, start + 0.8) - np.searchsorted(cdf, start)
        for start in np.linspace(0, 0.1999, 400)
    )
    assert (high - low).item() == pytest.approx(shortest * step, abs=3 * step)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["normal", "logistic", "gumbel"]),
            st.floats(-20, 20),
            st.floats(0.05, 10),
            st.floats(0.01, 1),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_pools_of_log_concave_densities_have_one_mode_between_theirs(parts):
    names = {"normal": ("mu", "sigma"), "logistic": ("mu", "s"), "gumbel": ("mu", "beta")}
    y = np.array([0.0])
    models = {
        str(k): one_draw(family, y, **dict(zip(names[family], (at, width), strict=True)))
        for k, (family, at, width, _) in enumerate(parts)
    }
    w = np.array([part[3] for part in parts])
    pooled = pooled_distribution(models, Locking(), w / w.sum())
    low, high = min(p[1] for p in parts), max(p[1] for p in parts)  # their modes
    reach = max(p[2] for p in parts)
    assert low - 1e-4 * reach <= pooled.mode()[0] <= high + 1e-4 * reach
    line = pooled.quantile(np.linspace(0.001, 0.999, 400))
    slopes = np.sign(np.round(np.diff(pooled.logpdf(line)[:, 0]), 9))
    turns = np.diff(slopes[slopes != 0])
    assert (turns <= 0).all()
    assert np.count_nonzero(turns) <= 1


@pytest.mark.parametrize(
    ("family", "parameters", "mode"),
    [
        ("lognormal", {"mu": 2.0, "sigma": 0.5}, np.exp(1.75)),
        ("lognormal", {"mu": 2.0, "sigma": 3.0}, np.exp(-7.0)),
        ("gamma", {"alpha": 3.0, "beta": 1.0}, 2.0),
        ("gamma", {"alpha": 0.5, "beta": 1.0}, 0.0),
        ("inverse_gamma", {"alpha": 2.0, "beta": 1.0}, 1 / 3),
        ("exponential", {"lam": 2.0}, 0.0),
        ("beta", {"alpha": 30.0, "beta": 2.0}, 29 / 30),
        ("beta", {"alpha": 2.0, "beta": 1.0}, 1.0),
    ],
)
def test_an_edge_makes_no_mode_of_its_own(family, parameters, mode):
    models = {"a": one_draw(family, np.array([0.4]), **parameters)}
    pooled = pooled_distribution(models, Locking(), np.array([1.0]))
    assert pooled.mode()[0] == pytest.approx(mode, rel=1e-6, abs=1e-7)


def test_modes_near_the_end_of_a_panel():
    ends = np.linspace(-0.01, 0.01, 101)  # of a panel; the mode is 0
    line = Line(np.stack([np.full(101, -8.0), ends, np.full(101, 3.0)], 1), (-np.inf, np.inf))

    def cauchy(y, rows):
        return stats.cauchy.logpdf(y)[None]

    def alone(logp, rows):
        return logp[0]

    grid = Grid.lay(cauchy, line).refined(cauchy, alone)
    rows = ContinuousRows.of(resolved(grid, alone, cauchy))
    np.testing.assert_allclose(rows.mode(), 0.0, atol=1e-6)


def test_heavy_tails_can_have_two_modes():
    # The counter-example to the paper's first proposition: Cauchy densities at ±5.
    y = np.array([0.0])
    models = {str(at): one_draw("student_t", y, nu=1.0, mu=at, sigma=1.0) for at in (-5.0, 5.0)}
    pooled = pooled_distribution(models, Locking(), np.array([0.5, 0.5]))
    assert abs(pooled.mode()[0]) == pytest.approx(np.sqrt(24.0), abs=1e-6)
    at = np.array([[-np.sqrt(24.0)], [0.0], [np.sqrt(24.0)]])
    left, middle, right = pooled.logpdf(at)[:, 0]
    assert left == pytest.approx(right)
    assert middle < left - 0.5


def test_scenario_3_is_near_its_population_pool(rng):
    # math.md §7: both models wrong, truth N(4, 3); one large sample.
    y = rng.normal(4.0, np.sqrt(3.0), size=20_000)
    fit = lock(paper_models(y, rng, shape=(2, 100)))
    models, pool = fit.predict()._evaluation.used
    pooled = distribution_of(models, pool, slices=[slice(0, 1)])
    line = np.linspace(-6.0, 13.0, 2000)
    found = np.exp(pooled.logpdf(line[:, None])[:, 0])
    population = stats.norm.pdf(line, 3.576, np.sqrt(2.906))
    assert np.abs(found - population).sum() * (line[1] - line[0]) / 2 < 0.02


def test_counts_are_summed(rng):
    y = np.array([0, 3, 7, 2])
    mu = rng.gamma(30, 0.1, size=(2, 40))
    models = {
        "p": lq.from_family("poisson", y=y, mu=mu),
        "nb": lq.from_family("negative_binomial", y=y, mu=2 * mu, alpha=1.5),
    }
    w = np.array([0.4, 0.6])
    pooled = pooled_distribution(models, Locking(), w)
    outcomes = np.arange(400)
    p = stats.poisson.pmf(outcomes[:, None, None], mu).mean(axis=(1, 2))
    nb = stats.nbinom.pmf(outcomes[:, None, None], 1.5, 1.5 / (1.5 + 2 * mu)).mean(axis=(1, 2))
    mass = p ** w[0] * nb ** w[1]
    mass /= mass.sum()
    cdf = np.cumsum(mass)
    np.testing.assert_allclose(np.exp(pooled.logpdf(np.tile(y, (1, 1)))[0]), mass[y], rtol=1e-9)
    np.testing.assert_allclose(pooled.cdf(y[None] + 0.5)[0], cdf[y], rtol=1e-9)
    assert (pooled.cdf(np.full((1, 4), -1.0)) == 0).all()
    quantiles = np.searchsorted(cdf, PROBABILITIES)
    np.testing.assert_array_equal(pooled.quantile(PROBABILITIES)[:, 0], quantiles)
    np.testing.assert_array_equal(pooled.quantile(cdf[:6])[:, 0], np.arange(6))
    mean = mass @ outcomes
    np.testing.assert_allclose(pooled.mean(), mean, rtol=1e-9)
    np.testing.assert_allclose(pooled.var(), mass @ (outcomes - mean) ** 2, rtol=1e-9)
    assert (pooled.mode() == mass.argmax()).all()
    low, high = pooled.interval(0.8, "hdi")[:, 0].astype(int)
    assert mass[low : high + 1].sum() >= 0.8
    lengths = [b - a for a in range(30) for b in range(a, 30) if mass[a : b + 1].sum() >= 0.8]
    assert high - low == min(lengths)


def test_coordinates_are_inverted():
    breaks = np.array([[1.0, 1.0, 2.0, 5.0], [0.5, 1.0, 1.5, 9.0]])
    for support in ((-np.inf, np.inf), (0.0, np.inf), (0.0, 10.0)):
        line = Line(breaks, support)
        t = np.linspace(-0.999, 3.999, 57)[:, None] * np.ones(2)
        y, _ = line.place(t, np.arange(2))
        for row in (0, 1):
            back = line.locate(y[:, row], np.full(len(t), row))
            again, _ = line.place(back[:, None], np.full(1, row))
            np.testing.assert_allclose(again[:, 0], y[:, row], rtol=1e-9, atol=1e-14)


def test_blocks_of_observations_join(rng, monkeypatch):
    y = rng.normal(size=7)
    models = {
        "a": lq.from_family("normal", y=y, mu=rng.normal(size=(2, 30, 7)), sigma=1.0),
        "b": lq.from_family("normal", y=y, mu=rng.normal(size=(2, 30, 7)) + 1, sigma=2.0),
    }
    whole = pooled_distribution(models, Locking(), np.array([0.5, 0.5]))
    monkeypatch.setattr("lockquack.models.source._OBS_AT_ONCE", 3)
    parts = pooled_distribution(models, Locking(), np.array([0.5, 0.5]))
    assert len(parts.groups) == 3
    for method in ("mean", "var", "mode"):
        np.testing.assert_allclose(getattr(whole, method)(), getattr(parts, method)(), atol=1e-6)
    np.testing.assert_allclose(whole.cdf(y[None]), parts.cdf(y[None]), atol=1e-9)
    p = np.array([0.1, 0.9])
    np.testing.assert_allclose(whole.quantile(p), parts.quantile(p), atol=1e-8)
    np.testing.assert_allclose(whole.logpdf(y[None]), parts.logpdf(y[None]), atol=1e-8)


def test_what_is_the_same_everywhere_is_computed_once(rng):
    y = rng.normal(size=5)
    mu = rng.normal(size=(2, 30))
    once = {
        "a": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "b": lq.from_family("student_t", y=y, nu=4.0, mu=mu + 1, sigma=2.0),
    }
    each = {  # the same models, of which that is not known
        "a": lq.from_family("normal", y=y, mu=np.repeat(mu[..., None], 5, axis=2), sigma=1.0),
        "b": once["b"],
    }
    w, p = np.array([0.5, 0.5]), np.array([0.1, 0.9])
    short, long = (pooled_distribution(m, Locking(), w) for m in (once, each))
    assert short.one.group.obs == slice(0, 1)
    assert short.n_obs == long.n_obs == 5
    for name in ("log_norm", "relative_error", "missing", "pareto_k"):
        np.testing.assert_allclose(getattr(short, name), getattr(long, name), atol=1e-9)
    for name in ("mean", "var", "mode"):
        np.testing.assert_allclose(getattr(short, name)(), getattr(long, name)(), atol=1e-6)
    at = rng.normal(size=(3, 5))
    for name in ("logpdf", "cdf"):
        np.testing.assert_allclose(getattr(short, name)(at), getattr(long, name)(at), atol=1e-9)
    np.testing.assert_allclose(short.quantile(p), long.quantile(p), atol=1e-8)
    for kind in ("central", "hdi"):
        ends = short.interval(0.8, kind)
        np.testing.assert_allclose(ends, long.interval(0.8, kind), atol=1e-5)
    assert short.sample(7, rng).shape == (7, 5)
    alone = replace(short, one=replace(short.one, pool=OneModel(0)))
    np.testing.assert_allclose(alone.cdf(at), stats.norm.cdf(at[..., None], mu.ravel()).mean(-1))


def test_weights_change_without_new_evaluations(normals, monkeypatch):
    pooled = pooled_distribution(normals, Locking(), np.full(3, 1 / 3))

    def refuse(*args, **kwargs):
        raise AssertionError("evaluated again")

    monkeypatch.setattr("lockquack.prediction.members.PredictiveDensity.logpdf_at", refuse)
    other = Pool(Locking(), np.array([0.4, 0.35, 0.25]), 3)
    (group,) = refine_nodes([pooled.one.group], pooled.models, other, loo=False)
    _, relative_error = group.log_norm(other)
    assert (relative_error < 1e-8).all()


def test_labels(normals):
    y = normals["left"].observations.values[:, 0]
    labelled = xr.DataArray(
        y.reshape(5, 6), dims=("school", "year"), coords={"school": list("abcde")}
    )
    rng = np.random.default_rng(3)
    mu = rng.normal(size=(4, 50))
    models = {
        "a": lq.from_family(
            "normal", y=labelled, mu=xr.DataArray(mu, dims=("chain", "draw")), sigma=2.0
        ),
        "b": lq.from_family(
            "student_t",
            y=labelled,
            nu=5.0,
            mu=xr.DataArray(mu + 1, dims=("chain", "draw")),
            sigma=1.5,
        ),
    }
    fit = lock(models)
    assert fit.predict().cdf().dims == ("school", "year")
    assert fit.predict().quantile(0.5).dims == ("school", "year")
    assert fit.predict().quantile([0.1, 0.9]).dims == ("quantile", "school", "year")
    ends = fit.interval(0.5)
    assert ends.dims == ("ci_bound", "school", "year")
    assert (ends.sel(ci_bound="upper") > ends.sel(ci_bound="lower")).all()
    assert fit.logpdf([[0.0], [1.0]]).dims == ("point", "school", "year")
    points = xr.DataArray([0.0, 1.0, 2.0], dims="where", coords={"where": [7, 8, 9]})
    at = fit.predict().cdf(points)
    assert dict(at.sizes) == {"where": 3, "school": 5, "year": 6}
    np.testing.assert_allclose(at.sel(where=8), fit.predict().cdf(1.0))
    np.testing.assert_allclose(fit.logpdf(labelled), fit.logpdf(), atol=1e-9)
    norm = fit.predict().log_norm()
    assert float(norm.error.max()) == norm.attrs["max_error"] < 1e-8
    with pytest.raises(ShapeError, match="30 observations"):
        fit.predict().cdf(np.zeros((2, 3, 4)))
    with pytest.raises(ParameterError, match="between 0 and 1"):
        fit.predict().quantile(1.5)
    with pytest.raises(ParameterError, match="between 0 and 1"):
        fit.interval(90)


def test_what_is_asked_for_must_make_sense(normals):
    fit = lock(normals)
    for ask, message in (
        (lambda: fit.sample(1e3), r"n must be a whole number from 1; got 1000\.0"),
        (lambda: fit.sample(0), "n must be a whole number from 1; got 0"),
        (lambda: fit.bootstrap(10.5), "n must be a whole number"),
        (lambda: fit.posterior(10, chains=0), "chains must be a whole number"),
        (lambda: fit.sample(10, random_seed=-1), "random_seed must be an integer from 0"),
        (lambda: fit.bootstrap(10, random_seed="a"), "random_seed must be .* got 'a'"),
        (lambda: fit.posterior(10, random_seed=1.5), "random_seed must be"),
        (lambda: fit.interval([0.5, 0.9]), "prob must be one number"),
        (lambda: fit.interval("90%"), "prob must be one number"),
        (lambda: fit.predict().quantile("a"), "p is not numeric"),
        (lambda: fit.coverage([], loo=False), "probs must be one or more"),
        (lambda: fit.plot_weights(fit), "others must be combinations"),
        (lambda: fit.plot_weights({"again": 3}), "others must be combinations"),
        (lambda: fit.plot_weights(prob=90), "prob must be one number between 0 and 1; got 90"),
        (lambda: fit.plot_pit(prob=95, loo=False), "prob must be one number"),
    ):
        with pytest.raises(ParameterError, match=message):
            ask()


def test_a_file_needs_a_directory(normals, tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere to write fit.nc"):
        lock(normals).save(tmp_path / "nowhere" / "fit.nc")


def test_held_out_observations_are_not_left_out(normals):
    # What the models never saw cannot be taken out of them: calibration is that of plain
    # predictions, beside stacking by held-out scores.
    models = {name: normals[name] for name in ("left", "right")}
    fit = lock(models, scores="held-out")
    np.testing.assert_array_equal(fit.pit(), fit.predict().cdf())
    table = fit.coverage([0.5])
    stacked = lq.stack(models, scores="held-out")
    lower, upper = stacked.interval(0.5).values
    y = fit.observations.values[:, 0]
    assert table.loc["[stack]", "0.5"] == ((lower <= y) & (y <= upper)).mean()
    assert table.loc["[stack]", "width_0.5"] == pytest.approx((upper - lower).mean())
    for ask in (fit.pit, fit.coverage, fit.logpdf, fit.plot_pit):
        with pytest.raises(ParameterError, match="not used to fit the models"):
            ask(loo=True)


def regressions(rng, n=40):
    x = rng.normal(size=(n, 2))
    y = x @ [1.0, -1.0] + rng.normal(size=n)
    beta = np.array([1.0, -1.0]) + 0.1 * rng.normal(size=(2, 100, 2))
    level = 0.1 * rng.normal(size=(2, 100))
    models = {
        "both": lq.from_family("normal", y=y, mu=lq.linear_predictor(x, beta), sigma=1.0),
        "first": lq.from_family(
            "normal",
            y=y,
            mu=lq.linear_predictor(x[:, :1], beta[..., :1], intercept=level),
            sigma=np.full((2, 100), 1.4),
        ),
    }
    return models, beta, level


def test_new_covariates(rng):
    models, beta, level = regressions(rng)
    fit = lock(models)
    x_new, y_new = rng.normal(size=(3, 2)), rng.normal(size=3)
    data = {"x": {"both": x_new, "first": x_new[:, :1]}}
    there = {
        "both": lq.from_family(
            "normal", y=y_new, mu=np.einsum("np,cdp->cdn", x_new, beta), sigma=1.0
        ),
        "first": lq.from_family(
            "normal", y=y_new, mu=level[..., None] + x_new[:, 0] * beta[..., :1], sigma=1.4
        ),
    }
    expected = fit.predict(models=there)
    np.testing.assert_allclose(fit.predict(y_new, **data).logpdf(), expected.logpdf(), atol=1e-9)
    np.testing.assert_allclose(fit.predict(y_new, **data).cdf(), expected.cdf(), atol=1e-9)
    unknown = fit.predict(**data)
    np.testing.assert_allclose(unknown.mean(), expected.mean(), atol=1e-9)
    assert "observed_data" not in unknown.sample(10, random_seed=1).children
    with pytest.raises(ParameterError, match="not known"):
        unknown.logpdf()
    with pytest.raises(ParameterError, match="Model 'both'.*give the covariates"):
        fit.predict(y_new)
    with pytest.raises(ParameterError, match="2 columns"):
        fit.predict(y_new, x=np.ones((3, 5)))
    with pytest.raises(ParameterError, match="no parameter 'z'"):
        fit.predict(y_new, z=1.0)
    with pytest.raises(ParameterError, match="drop loo"):
        fit.predict(y_new, loo=True, **data)
    with pytest.raises(ParameterError, match="lacks 'first'"):
        fit.predict(models={"both": there["both"]})
    with pytest.raises(LockquackError, match="Model 'both' is a ndarray"):
        fit.predict(models={"both": y_new, "first": y_new})
    with pytest.raises(LockquackError, match="must be a dict of name → model, got list"):
        fit.predict(models=list(there.values()))


def test_models_of_a_fit_from_a_file_are_given_beside_new_data(rng, tmp_path):
    models, _, _ = regressions(rng)
    fit = lock(models)
    fit.save(tmp_path / "fit.nc")
    loaded = lq.load(tmp_path / "fit.nc")
    x = rng.normal(size=(3, 2))
    data = {"x": {"both": x, "first": x[:, :1]}}
    with pytest.raises(UnsupportedError, match="as models=, beside the new data"):
        loaded.predict(**data)
    for y in (None, rng.normal(size=3)):
        got, expected = loaded.predict(y, models=models, **data), fit.predict(y, **data)
        np.testing.assert_array_equal(got.mean(), expected.mean())
    with pytest.raises(ParameterError, match="lacks 'first'"):
        loaded.predict(models={"both": models["both"]}, **data)


def test_one_covariate_matrix_for_all(rng):
    x = rng.normal(size=(30, 1))
    y = x[:, 0] + rng.normal(size=30)
    beta = 1 + 0.1 * rng.normal(size=(2, 100, 1))
    models = {
        "normal": lq.from_family("normal", y=y, mu=lq.linear_predictor(x, beta), sigma=1.0),
        "t": lq.from_family(
            "student_t", y=y, nu=4.0, mu=lq.linear_predictor(x, 0.9 * beta), sigma=1.0
        ),
    }
    fit = lock(models)
    np.testing.assert_allclose(fit.predict(y[:5], x=x[:5]).logpdf(), fit.logpdf()[:5], atol=1e-8)


def test_columns_of_new_covariates_are_those_of_the_regression(rng):
    X = pd.DataFrame(rng.normal(size=(20, 2)), columns=["age", "dose"])
    beta, level = rng.normal(size=(2, 60, 2)), rng.normal(size=(2, 60))
    y = pd.Series(rng.normal(size=20))
    with_level = lq.linear_predictor(X, beta, intercept=level)
    model = lq.from_family("normal", y=y, mu=with_level, sigma=1.0)
    x, y_new = X[:5], y[:5]
    expected = model.source.logp(0, slice(0, 9), slice(0, 5))

    def there(x):
        return model.with_data(y_new, x=x).source.logp(0, slice(0, 9), slice(0, 5))

    for same in (x, x.to_numpy(), x.assign(one=1.0)[["one", "age", "dose"]]):
        np.testing.assert_allclose(there(same), expected)
    labelled = xr.DataArray(x, dims=("obs_id", "covariate"))
    np.testing.assert_allclose(there(labelled.T), expected)
    with pytest.raises(ParameterError, match="columns dose, age; .* had age, dose"):
        there(x[["dose", "age"]])
    with pytest.raises(ParameterError, match="columns weight, dose; .* had age, dose"):
        there(x.rename(columns={"age": "weight"}))
    with pytest.raises(ParameterError, match="columns age; "):
        there(x[["age"]])
    with pytest.raises(ParameterError, match="first is that of the intercept"):
        there(np.zeros((5, 3)))


def test_labels_of_outcomes_are_those_of_the_combination(rng):
    y = pd.Series(rng.normal(size=4), index=pd.Index(list("abcd"), name="city"))
    mu = xr.DataArray(rng.normal(size=(2, 50, 4)), dims=("chain", "draw", "city"))
    fit = lock({"one": lq.from_family("normal", y=y, mu=mu, sigma=1.0)})
    labelled = y.to_xarray()
    for same in (y, labelled, labelled.drop_vars("city"), y.to_numpy(), y.rename_axis("town")):
        np.testing.assert_allclose(fit.logpdf(same), fit.logpdf(), atol=1e-9)
    points = labelled.expand_dims(point=3)
    assert fit.predict().cdf(points).sizes == {"point": 3, "city": 4}
    for other in (y[::-1], labelled[::-1], points[:, ::-1]):
        with pytest.raises(ObservationMismatchError, match="same labels in another order"):
            fit.logpdf(other)
    with pytest.raises(ObservationMismatchError, match="position 0 is A in y"):
        fit.predict().cdf(y.rename(str.upper))
    with pytest.raises(ShapeError, match="2 values along 'city'; the combination has 4"):
        fit.predict().cdf(points[:, :2].drop_vars("city"))


def test_rows_of_new_covariates_are_those_of_the_outcomes(rng):
    X, beta = pd.DataFrame({"dose": rng.normal(size=6)}), rng.normal(size=(2, 60, 1))
    mu = lq.linear_predictor(X, beta, offset=1.0)
    model = lq.from_family("normal", y=rng.normal(size=6), mu=mu, sigma=1.0)
    y, x = pd.Series([0.0, 1.0], index=["a", "b"]), pd.DataFrame({"dose": [2.0, 3.0]}, ["a", "b"])
    offset = pd.Series([1.0, 2.0], index=["a", "b"])
    assert model.with_data(y, x=x, offset=offset).observations.n == 2
    with pytest.raises(ObservationMismatchError, match="x and y label 'obs_id' differently"):
        model.with_data(y, x=x[::-1], offset=offset)
    with pytest.raises(ObservationMismatchError, match="offset and y label 'obs_id' differently"):
        model.with_data(y, x=x, offset=offset[::-1])
    with pytest.raises(ObservationMismatchError, match="offset and y label"):
        model.with_data(y.to_numpy(), x=x, offset=offset[::-1])


@pytest.mark.parametrize("dim", ["point", "quantile", "ci_bound"])
def test_observations_may_be_called_what_results_are(rng, dim):
    y = xr.DataArray(rng.normal(size=4), dims=dim)
    fit = lock({"one": lq.from_family("normal", y=y, mu=rng.normal(size=(2, 50)), sigma=1.0)})
    assert fit.logpdf(np.zeros((2, 4))).sizes[dim] == 4
    assert fit.predict().quantile([0.1, 0.5]).sizes[dim] == 4
    assert fit.interval(0.5).sizes[dim] == 4


def test_a_link_that_overflows_is_an_error_not_a_warning(rng):
    y = rng.normal(size=5)
    sigma = lq.linear_predictor(1e3 * np.ones((5, 1)), np.ones((2, 30, 1)), link="log")
    with pytest.raises(ParameterError, match="'sigma'.* must be finite.* inf"):
        lq.lock({"wide": lq.from_family("normal", y=y, mu=0.0, sigma=sigma)})


def test_new_outcomes_without_covariates(normals, rng):
    fit = lock(normals)
    y_new = rng.normal(size=4)
    at = fit.predict(y_new).logpdf()
    assert at.dims == ("obs_id",)
    np.testing.assert_allclose(at, fit.logpdf(y_new[:, None])[:, 0], atol=1e-8)


def test_arrays_cannot_be_taken_elsewhere(rng):
    shape = (2, 30, 5)
    y = rng.normal(size=5)
    grad = rng.normal(size=shape)
    arrays = lq.from_arrays(logp=-np.ones(shape), grad=grad, curv=-np.ones(shape), y=y)
    fit = lock({"stored": arrays})
    with pytest.raises(UnsupportedError, match=r"Model 'stored'.*predict\(models="):
        fit.predict(y)
    with pytest.raises(UnsupportedError, match="'stored'.*observed outcomes only"):
        fit.predict().cdf()


def test_the_number_of_new_observations_is_not_that_of_chains(normals, rng):
    fit = lock(normals)
    draws = rng.normal(size=(4, 50))
    with pytest.raises(ParameterError, match=r"do not tell how many new observations .*\(mu\);"):
        fit.predict(mu=draws)
    with pytest.raises(ParameterError, match="could be 3 or 5 by the data, mu, sigma"):
        fit.predict(mu=draws[..., None] + np.zeros(3), sigma=np.ones(5))
    with pytest.raises(ParameterError, match=r"differ in \(chain, draw\): mu: \(4, 50\), sigma"):
        fit.predict(y=np.zeros(3), mu=draws)
    for mu in (
        draws[..., None] + np.zeros(3),
        xr.DataArray(draws[..., None] + np.zeros(3), dims=("chain", "draw", "obs_id")).T,
        np.zeros(3),
        lq.linear_predictor(np.ones((3, 1)), draws[..., None]),
    ):
        assert fit.predict(mu=mu, sigma=1.0).mean().shape == (3,)


def test_models_that_data_names_must_exist(rng):
    models, *_ = regressions(rng)
    x = rng.normal(size=(3, 2))
    with pytest.raises(ParameterError, match=r"neither a model \(both, first\)"):
        lock(models).predict(x={"both": x, "third": x})


def test_parameters_that_differ_must_be_given(rng):
    y = rng.normal(size=6)
    model = lq.from_family("normal", y=y, mu=rng.normal(size=(2, 50, 6)), sigma=1.0)
    with pytest.raises(ParameterError, match="'mu' differs between observations"):
        model.with_data(np.zeros(2))
    moved = model.with_data(np.zeros(2), mu=np.zeros((2, 50, 2)))
    np.testing.assert_allclose(moved.collapse("in-sample").jet.logp, stats.norm.logpdf(0.0))
    with pytest.raises(ParameterError, match="no linear_predictor"):
        model.with_data(np.zeros(2), x=np.ones((2, 1)))


def test_offsets_are_asked_for(rng):
    x, offset = rng.normal(size=(6, 1)), np.arange(6.0)
    mu = lq.linear_predictor(x, rng.normal(size=(2, 50, 1)), offset=offset)
    model = lq.from_family("normal", y=offset, mu=mu, sigma=1.0)
    with pytest.raises(ParameterError, match="has an offset"):
        model.with_data(offset[:2], x=x[:2])
    with pytest.raises(ParameterError, match="offset must be finite; it is nan at row 0"):
        model.with_data(offset[:2], x=x[:2], offset=[np.nan, 1.0])
    moved = model.with_data(offset[:2], x=x[:2], offset=offset[:2])
    whole = slice(0, 50)
    np.testing.assert_allclose(
        moved.source.logp(0, whole, slice(0, 2)), model.source.logp(0, whole, slice(0, 2))
    )


def test_leave_one_out_densities_anywhere(rng):
    # A conjugate model: leaving one out of n changes mean and variance by a known amount.
    n = 12
    y = rng.normal(size=n)
    mu = y.mean() + rng.normal(size=(4, 4000)) / np.sqrt(n)
    model = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    fit = lock({"only": model})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        without = (y.sum() - y) / (n - 1)
        exact = stats.norm(without, np.sqrt(1 + 1 / (n - 1)))
        at = np.linspace(-2, 2, 5)[:, None]
        np.testing.assert_allclose(fit.logpdf(at, loo=True), exact.logpdf(at), atol=0.02)
        np.testing.assert_allclose(fit.predict(loo=True).cdf(), exact.cdf(y), atol=0.02)
        np.testing.assert_allclose(fit.predict(loo=True).mean(), without, atol=0.03)


def test_compiled_quantiles_are_those_of_numpy(rng):
    pytest.importorskip("numba")
    from lockquack.kernels.inverse import solve_panels

    y = rng.normal(size=6)
    mu, nu = rng.normal(size=(2, 50, 6)), 2.0 + rng.gamma(2.0, size=(2, 50))
    model = lq.from_family("student_t", y=y, mu=mu, sigma=0.3, nu=nu)
    pooled = pooled_distribution({"a": model}, Linear(), np.ones(1), loo=False)
    rows = pooled.groups[0]._rows
    p = np.concatenate([rng.random(300), [1e-12, 1e-6, 0.5, 1 - 1e-9]])
    panel = rng.integers(rows.row.size, size=p.size)
    target = p * rows.mass[panel]
    found = rows._solve_by(solve_panels, target, panel)
    np.testing.assert_allclose(found, rows._solve(target, panel), rtol=0, atol=1e-12)
