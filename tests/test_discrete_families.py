"""Families of whole numbers against scipy, mpmath and their own sums."""

from __future__ import annotations

from itertools import product

import mpmath as mp
import numpy as np
import pytest
import xarray as xr
from scipy import special, stats

import lockquack as lq
from lockquack.errors import ParameterError, SmoothnessError, SupportError, UnsupportedError
from lockquack.families import FAMILIES, Edge
from lockquack.families.negative_binomial import log_rising
from tests.helpers import mixture

DISCRETE = sorted(name for name in FAMILIES if FAMILIES[name].discrete)


def zero_inflated(logp, y, psi):
    plain = np.log(psi) + logp
    return np.where(y == 0, np.logaddexp(np.log1p(-psi), plain), plain)


def nbinom(p):
    return stats.nbinom(p["alpha"], p["alpha"] / (p["alpha"] + p["mu"]))


SCIPY = {
    "poisson": lambda y, p: stats.poisson.logpmf(y, p["mu"]),
    "negative_binomial": lambda y, p: nbinom(p).logpmf(y),
    "binomial": lambda y, p: stats.binom.logpmf(y, p["n"], p["p"]),
    "bernoulli": lambda y, p: stats.bernoulli.logpmf(y, p["p"]),
    "geometric": lambda y, p: stats.geom.logpmf(y, p["p"]),
    "zero_inflated_poisson": lambda y, p: zero_inflated(
        stats.poisson.logpmf(y, p["mu"]), y, p["psi"]
    ),
    "zero_inflated_negative_binomial": lambda y, p: zero_inflated(nbinom(p).logpmf(y), y, p["psi"]),
}

VALUES = {
    "mu": [1e-8, 1e-3, 0.4, 3.0, 250.0, 1e6],
    "alpha": [1e-3, 0.4, 3.0, 250.0],
    "n": [0.0, 1.0, 7.0, 1e6],
    "p": [1e-12, 1e-3, 0.3, 0.8, 1 - 1e-9],
    "psi": [1e-9, 0.3, 0.9, 1 - 1e-12],
}

TYPICAL = {"mu": 3.2, "alpha": 1.7, "n": 9.0, "p": 0.3, "psi": 0.6}


def every_parameter(name):
    keys = list(FAMILIES[name].signatures[0])
    for values in product(*(VALUES[key] for key in keys)):
        yield {key: np.float64(value) for key, value in zip(keys, values, strict=True)}


def typical(name):
    return {key: np.float64(TYPICAL[key]) for key in FAMILIES[name].signatures[0]}


def outcomes(name, p):
    family = FAMILIES[name]
    low, high = family.support
    middle, width = float(family.location(p)), float(family.spread(p))
    near = np.floor(middle + width * np.array([-4.0, -1.0, 0.0, 1.0, 4.0, 30.0]))
    y = np.unique(np.clip(np.concatenate([low + np.arange(4.0), near]), low, high))
    return y[y <= p["n"]] if "n" in p else y


@pytest.mark.parametrize("name", DISCRETE)
def test_logp_against_scipy(name):
    for p in every_parameter(name):
        if "alpha" in p and p["mu"] < 1e-3 * p["alpha"]:
            continue  # scipy is given a probability there that is 1 but for a few digits
        y = outcomes(name, p)
        got, want = FAMILIES[name].logp(y, p), SCIPY[name](y, p)
        # In both, terms as large as log y! cancel: neither has more digits than these leave.
        size = np.abs(want) + special.gammaln(y + 1.0)
        np.testing.assert_array_less(np.abs(got - want), 1e-12 * size + 1e-14, err_msg=str(p))


@pytest.mark.parametrize("mu", [1e-8, 1e-3, 0.4, 3.0, 250.0, 1e6])
@pytest.mark.parametrize("alpha", [1e-8, 1e-3, 0.4, 3.0, 15.9, 16.1, 250.0, 1e6, 1e10, 1e14])
def test_negative_binomial_against_mpmath(alpha, mu):
    # Also where scipy's has no digits left: alpha much larger than mu.
    p = {"mu": np.float64(mu), "alpha": np.float64(alpha)}
    for y in outcomes("negative_binomial", p):
        with mp.workdps(60):
            a, m, k = mp.mpf(alpha), mp.mpf(mu), mp.mpf(float(y))
            want = mp.loggamma(a + k) - mp.loggamma(a) - mp.loggamma(k + 1)
            want = float(want - a * mp.log1p(m / a) + k * mp.log(m / (a + m)))
        got = float(FAMILIES["negative_binomial"].logp(y, p))
        size = abs(want) + float(special.gammaln(y + 1.0))
        assert got == pytest.approx(want, rel=0, abs=2e-15 * max(size, 1e-300) * 8)


def test_negative_binomial_tends_to_the_poisson():
    y, mu = np.arange(20.0), np.float64(4.0)
    got = FAMILIES["negative_binomial"].logp(y, {"mu": mu, "alpha": np.float64(1e15)})
    np.testing.assert_allclose(got, stats.poisson.logpmf(y, 4.0), rtol=1e-13)
    mixed = np.array([[2.0], [1e15]])  # on both sides of where the formula changes
    each = [log_rising(alpha, y) for alpha in mixed]
    np.testing.assert_array_equal(log_rising(mixed, y), each)


@pytest.mark.parametrize("name", DISCRETE)
def test_probabilities_sum_to_one(name):
    p = typical(name)
    low, high = FAMILIES[name].support
    y = np.arange(low, min(high, 2000.0) + 1)
    assert np.exp(FAMILIES[name].logp(y, p)).sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("name", DISCRETE)
def test_location_and_spread_are_moments(name):
    p = typical(name)
    y = np.arange(3000.0)
    mass = np.exp(FAMILIES[name].logp(y, p))
    assert float(FAMILIES[name].location(p)) == pytest.approx(mass @ y, rel=1e-10)
    sd = np.sqrt(mass @ np.square(y - mass @ y))
    assert float(FAMILIES[name].spread(p)) == pytest.approx(sd, rel=1e-10)


@pytest.mark.parametrize("name", DISCRETE)
def test_impossible_outcomes(name):
    family, p = FAMILIES[name], {k: np.full((2, 1), v) for k, v in typical(name).items()}
    y = np.array([-np.inf, -1.0, 1 - 1e-15, 0.5, 1.0, 1 + 1e-15, 1e300, np.inf, np.nan])
    logp = family.logp(y, p)
    possible = y == 1
    if name not in ("bernoulli", "binomial"):
        possible |= y == 1e300
        assert (logp[:, 6] < -1e200).all()
    assert logp.shape == (2, y.size)
    assert (logp[:, ~possible & ~np.isnan(y)] == -np.inf).all()
    assert np.isnan(logp[:, -1]).all()
    assert np.isfinite(logp[:, 4]).all()
    assert (np.isfinite(family.logp(np.zeros(1), p)) == (name != "geometric")).all()


def test_more_successes_than_trials():
    p = {"n": np.array([3.0, 5.0, 9.0]), "p": np.float64(0.4)}
    logp = FAMILIES["binomial"].logp(np.full(3, 5.0), p)
    np.testing.assert_array_equal(np.isfinite(logp), [False, True, True])
    assert logp[0] == -np.inf
    assert FAMILIES["binomial"].support == (0.0, np.inf)


@pytest.mark.parametrize("name", DISCRETE)
def test_broadcasting_equals_the_loop(name):
    rng = np.random.default_rng(3)
    keys = list(FAMILIES[name].signatures[0])
    shapes = [(4, 1), (), (4, 3)]
    p = {key: TYPICAL[key] * rng.uniform(0.8, 1.2, shapes[i]) for i, key in enumerate(keys)}
    if name == "binomial":
        p["n"] = np.round(p["n"])
    y = rng.integers(0 if name != "geometric" else 1, 2, (2, 1, 3)).astype(float)
    y[0, 0, 0] = -1.0
    logp = FAMILIES[name].logp(y, p)
    assert logp.shape == np.broadcast_shapes(y.shape, *(np.shape(v) for v in p.values()))
    for index in np.ndindex(logp.shape):
        one = {key: np.broadcast_to(v, logp.shape)[index] for key, v in p.items()}
        alone = FAMILIES[name].logp(np.broadcast_to(y, logp.shape)[index], one)
        np.testing.assert_allclose(logp[index], alone, rtol=1e-13)


@pytest.mark.parametrize("name", DISCRETE)
def test_there_are_no_derivatives(name):
    family, p = FAMILIES[name], typical(name)
    for what in (family.derivatives, family.jet):
        with pytest.raises(UnsupportedError, match=f"'{name}' is discrete.*log score"):
            what(np.ones(2), p)
    low, high = family.support
    assert family.edges({}) == (Edge(low, 0.0), Edge(high, 0.0))


@pytest.mark.parametrize("name", DISCRETE)
def test_validation(name):
    family, good = FAMILIES[name], typical(name)
    family.validate(good)
    for key in set(good) & {"p", "psi"}:
        for bad in (0.0, 1.0, -0.2, 1.5):
            with pytest.raises(ParameterError, match=f"'{key}'.*between 0 and 1.*value {bad:g}"):
                family.validate(good | {key: np.array([[0.5], [bad]])})
    for key in set(good) & {"mu", "alpha"}:
        with pytest.raises(ParameterError, match=f"'{key}'.*positive.*is 0"):
            family.validate(good | {key: np.array([1.0, 0.0])})
    if "n" in good:
        family.validate(good | {"n": np.float64(0.0)})
        for bad in (-1.0, 2.5):
            with pytest.raises(ParameterError, match=f"'n'.*whole number from 0.*value {bad:g}"):
                family.validate(good | {"n": np.array([[3.0, bad]])})


# Mixtures


def test_a_mixture_of_counts():
    family = mixture(["poisson", "geometric"])
    assert family.discrete
    assert family.support == (0.0, np.inf)
    assert family.edges({}) == (Edge(0.0, 0.0), Edge(1.0, 0.0), Edge(np.inf, 0.0))
    p = {"weights": np.array([0.3, 0.7]), "0.mu": np.float64(4.0), "1.p": np.float64(0.2)}
    family.validate(p)
    y = np.arange(-1.0, 500.0)
    want = 0.3 * stats.poisson.pmf(y, 4.0) + 0.7 * stats.geom.pmf(y, 0.2)
    np.testing.assert_allclose(np.exp(family.logp(y, p)), want, rtol=1e-12)
    assert family.logp(y, p)[0] == -np.inf
    for what in (family.derivatives, family.jet):
        with pytest.raises(UnsupportedError, match="discrete"):
            what(y, p)
    with pytest.raises(ParameterError, match=r"'p' of family 'geometric'.*between 0 and 1"):
        family.validate(p | {"1.p": np.float64(1.0)})


def test_zero_inflation_is_a_mixture_with_few_counts():
    y = np.arange(9.0)
    inflated = FAMILIES["zero_inflated_poisson"].logp(
        y, {"psi": np.float64(0.7), "mu": np.float64(2.5)}
    )
    p = {"weights": np.array([0.7, 0.3]), "0.mu": np.float64(2.5), "1.mu": np.float64(1e-15)}
    mixed = mixture(["poisson", "poisson"]).logp(y, p)
    np.testing.assert_allclose(inflated, mixed, rtol=1e-13)


def test_counts_do_not_mix_with_densities():
    with pytest.raises(ParameterError, match="all discrete, or all continuous.*poisson, gamma"):
        mixture(["poisson", "gamma"])


# Through the adapter

C, D, N = 3, 20, 6


def drawn(name, rng):
    p = {
        key: TYPICAL[key] * np.exp(0.1 * rng.normal(size=(C, D)))
        for key in FAMILIES[name].signatures[0]
    }
    return p | ({"n": np.arange(3.0, 3.0 + N)} if "n" in p else {})


@pytest.mark.parametrize("name", DISCRETE)
def test_every_family_through_the_adapter(name, rng, tmp_path):
    y, p = rng.integers(0, 2, size=N), drawn(name, rng)
    if name == "geometric":
        y = y + 1
    model = lq.from_family(name, y=y, **p)
    assert model.likelihood.discrete
    assert model.likelihood.support == FAMILIES[name].support
    assert model.source.can.evaluate
    assert not model.source.can.differentiate
    one = {key: value if key == "n" else value[1, 7] for key, value in p.items()}
    np.testing.assert_allclose(
        model.source.all_logp(slice(0, N))[1, 7], SCIPY[name](y, one), rtol=1e-12
    )
    grid = np.stack([y + 1.0, y + 0.5, y - 2.0])[..., None]
    elsewhere = model.source.logp_at(grid, 1, slice(7, 8), slice(0, N))[:, 0]
    np.testing.assert_allclose(elsewhere[0], SCIPY[name](y + 1, one), rtol=1e-12)
    assert (elsewhere[1] == -np.inf).all()
    np.testing.assert_allclose(elsewhere[2], SCIPY[name](y - 2, one), rtol=1e-12)
    bulk = model.source.bulks(slice(0, N), np.array([-1.0, 0.0, 1.0]), detailed=True)
    assert np.isfinite(bulk).all()
    assert bulk.min() >= FAMILIES[name].support[0]
    with pytest.raises(UnsupportedError, match="discrete"):
        model.source.derivatives(0, slice(0, 1), slice(0, N))
    with pytest.raises(SmoothnessError, match=f"Model 'counts': {name} is discrete.*log score"):
        lq.lock({"counts": model})
    model.save(tmp_path / "counts.nc")
    back = lq.from_datatree(tmp_path / "counts.nc")
    assert back.likelihood == model.likelihood
    np.testing.assert_allclose(back.loo().logp, model.loo().logp, rtol=1e-12)


def test_a_regression_of_counts(rng):
    X, beta = rng.normal(size=(N, 2)), 0.3 * rng.normal(size=(C, D, 2))
    y = rng.poisson(2.0, size=N)
    mu = lq.linear_predictor(X, beta, link="log")
    model = lq.from_family("poisson", y=y, mu=mu)
    want = stats.poisson.logpmf(y, np.exp(beta @ X.T))
    np.testing.assert_allclose(model.source.all_logp(slice(0, N)), want, rtol=1e-12)
    p = lq.linear_predictor(X, beta, link="logit")
    model = lq.from_family("binomial", y=np.minimum(y, 4), n=4, p=p)
    want = stats.binom.logpmf(np.minimum(y, 4), 4, special.expit(beta @ X.T))
    np.testing.assert_allclose(model.source.all_logp(slice(0, N)), want, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        (
            "poisson",
            [0, 1.5, 2, 0.2],
            r"'poisson' needs whole numbers from 0; 2 .*1.5 .*tion 1",
        ),
        ("poisson", [0, 3, -1, 2], r"1 outcome.*first -1 at observation 2"),
        ("geometric", [1, 2, 0, 2], r"whole numbers from 1; 1 .*first 0 at observation 2"),
        ("bernoulli", [0, 1, 1, 2], r"from 0 to 1; 1 .*first 2 at observation 3"),
        ("binomial", [0, 9, 10, 12], r"'binomial' .*2 outcome.*probability 0.*\[10.0\] .*tion 2"),
    ],
)
def test_outcomes_that_cannot_be(name, y, message):
    labelled = xr.DataArray(np.array(y, float), dims="day", coords={"day": [*"abcd"]})
    given = {key: TYPICAL[key] for key in FAMILIES[name].signatures[0]}
    for outcome, where in ((y, ""), (labelled, r" \(day=[bcd]\)")):
        with pytest.raises(SupportError, match=message + where):
            lq.from_family(name, y=outcome, **given)


def test_what_discrete_families_refuse(rng):
    mu = np.full((C, D), 2.0)
    with pytest.raises(ParameterError, match="'poisson' is discrete.*transform"):
        lq.from_family("poisson", y=[1, 2], mu=mu, transform="log")
    with pytest.raises(ParameterError, match="all discrete, or all continuous"):
        lq.from_family(
            "mixture",
            y=[1, 2],
            weights=[0.5, 0.5],
            components=[("poisson", {"mu": mu}), ("normal", {"mu": mu, "sigma": 1.0})],
        )
    with pytest.raises(ParameterError, match="'p' of family 'bernoulli' .*value 1"):
        lq.from_family("bernoulli", y=[0, 1], p=np.ones((C, D)))
    with pytest.raises(ParameterError, match="takes the parameters n, p; got p"):
        lq.from_family("binomial", y=[0, 1], p=0.5)
    mixed = lq.from_family(
        "mixture",
        y=[0, 12],
        weights=[0.5, 0.5],
        components=[("bernoulli", {"p": 0.3}), ("poisson", {"mu": mu})],
    )
    assert mixed.likelihood.discrete
    assert mixed.likelihood.support == (0.0, np.inf)
    assert np.isfinite(mixed.source.all_logp(slice(0, 2))).all()
