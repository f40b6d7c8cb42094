"""Every continuous family against scipy (log density) and mpmath (both derivatives as well)."""

from __future__ import annotations

from itertools import product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lockquack.errors import ParameterError, UnknownNameError, UnsupportedError
from lockquack.families import (
    FAMILIES,
    Edge,
    Mixture,
    Range,
    find_family,
    get_family,
    worst_edges,
)
from lockquack.families.skew_normal import _inverse_mills
from lockquack.families.student_t import log_normaliser
from tests.helpers import mixture

LINE = [-30.0, -12.0, -5.0, -1.3, -0.4, 0.3, 1.1, 4.0, 11.0, 30.0]
POSITIVE = [1e-9, 1e-3, 0.2, 0.9, 2.5, 7.0, 40.0]
ANGLES = [-np.pi, -3.1, -1.3, -1e-9, 0.4, 2.2, np.pi]
UNIT = [1e-9, 1e-3, 0.2, 0.47, 0.8, 0.999, 1 - 1e-9]


def mp_normal(z):
    return -z * z / 2 - mp.log(2 * mp.pi) / 2


def mp_t(z, nu):
    constant = mp.loggamma((nu + 1) / 2) - mp.loggamma(nu / 2) - mp.log(nu * mp.pi) / 2
    return constant - (nu + 1) / 2 * mp.log1p(z * z / nu)


MPMATH = {
    "normal": lambda y, mu, sigma: mp_normal((y - mu) / sigma) - mp.log(sigma),
    "student_t": lambda y, nu, mu, sigma: mp_t((y - mu) / sigma, nu) - mp.log(sigma),
    "logistic": lambda y, mu, s: -mp.log(s) - 2 * mp.log(2 * mp.cosh((y - mu) / (2 * s))),
    "lognormal": lambda y, mu, sigma: (
        mp_normal((mp.log(y) - mu) / sigma) - mp.log(sigma) - mp.log(y)
    ),
    "gamma": lambda y, alpha, beta: (
        alpha * mp.log(beta) - mp.loggamma(alpha) + (alpha - 1) * mp.log(y) - beta * y
    ),
    "beta": lambda y, alpha, beta: (
        (alpha - 1) * mp.log(y) + (beta - 1) * mp.log1p(-y) - mp.log(mp.beta(alpha, beta))
    ),
    "skew_normal": lambda y, mu, sigma, alpha: (
        mp_normal((y - mu) / sigma)
        - mp.log(sigma)
        + mp.log(mp.erfc(-alpha * (y - mu) / sigma / mp.sqrt(2)))
    ),
    "gumbel": lambda y, mu, beta: -(y - mu) / beta - mp.exp(-(y - mu) / beta) - mp.log(beta),
    "exponential": lambda y, lam: mp.log(lam) - lam * y,
    "half_normal": lambda y, sigma: mp_normal(y / sigma) - mp.log(sigma) + mp.log(2),
    "weibull": lambda y, alpha, beta: (
        mp.log(alpha / beta) + (alpha - 1) * mp.log(y / beta) - (y / beta) ** alpha
    ),
    "inverse_gamma": lambda y, alpha, beta: (
        alpha * mp.log(beta) - mp.loggamma(alpha) - (alpha + 1) * mp.log(y) - beta / y
    ),
    "von_mises": lambda y, mu, kappa: (
        kappa * mp.cos(y - mu) - mp.log(2 * mp.pi * mp.besseli(0, kappa))
    ),
}

SCIPY = {
    "normal": lambda p: stats.norm(p["mu"], p["sigma"]),
    "student_t": lambda p: stats.t(p["nu"], p["mu"], p["sigma"]),
    "logistic": lambda p: stats.logistic(p["mu"], p["s"]),
    "lognormal": lambda p: stats.lognorm(p["sigma"], scale=np.exp(p["mu"])),
    "gamma": lambda p: stats.gamma(p["alpha"], scale=1 / p["beta"]),
    "beta": lambda p: stats.beta(p["alpha"], p["beta"]),
    "skew_normal": lambda p: stats.skewnorm(p["alpha"], p["mu"], p["sigma"]),
    "gumbel": lambda p: stats.gumbel_r(p["mu"], p["beta"]),
    "exponential": lambda p: stats.expon(scale=1 / p["lam"]),
    "half_normal": lambda p: stats.halfnorm(scale=p["sigma"]),
    "weibull": lambda p: stats.weibull_min(p["alpha"], scale=p["beta"]),
    "inverse_gamma": lambda p: stats.invgamma(p["alpha"], scale=p["beta"]),
    "von_mises": lambda p: stats.vonmises(p["kappa"], loc=p["mu"]),
}

SCALARS = sorted(MPMATH)
VECTORS = ["mv_normal", "mv_student_t"]


def draw(name, rng):
    """Random parameters, as Python floats."""
    pick = {
        "mu": lambda: rng.normal(),
        "sigma": lambda: np.exp(rng.normal() / 2),
        "s": lambda: np.exp(rng.normal()),
        "nu": lambda: np.exp(rng.uniform(-1, 5)),
        "alpha": lambda: (
            rng.uniform(-6, 6) if name == "skew_normal" else np.exp(rng.uniform(-2, 3))
        ),
        "beta": lambda: np.exp(rng.uniform(-2, 2)),
        "lam": lambda: np.exp(rng.uniform(-2, 2)),
        "kappa": lambda: np.exp(rng.uniform(-3, 6)),
    }
    return {key: float(pick[key]()) for key in FAMILIES[name].signatures[0]}


def points(name, p):
    low, high = FAMILIES[name].support
    if (low, high) == (0.0, 1.0):
        return np.array(UNIT)
    if low == -np.pi:
        return np.array(ANGLES)
    if low == 0.0:
        return np.array(POSITIVE)
    return p["mu"] + np.array(LINE) * (p.get("sigma") or p.get("s") or p["beta"])


def reference(density, y, p, digits=100):
    """Log density and two derivatives, differentiated numerically in high precision."""
    with mp.workdps(digits):
        exact = {key: mp.mpf(value) for key, value in p.items()}

        def f(x):
            return density(x, **exact)

        at = mp.mpf(float(y))
        h = (
            mp.mpf(10) ** -18 * min(at, 1 - at)
            if 0 < at < 1
            else mp.mpf(10) ** -18 * max(1, abs(at))
        )
        left, middle, right = f(at - h), f(at), f(at + h)
        return tuple(
            float(v)
            for v in (middle, (right - left) / (2 * h), (right - 2 * middle + left) / (h * h))
        )


def assert_jet(name, ys, p, rtol, floor=4e-15, digits=100):
    family = FAMILIES[name]
    p = {key: np.float64(value) for key, value in p.items()}
    got = np.array([family.logp(ys, p), *family.derivatives(ys, p)])
    want = np.array([reference(MPMATH[name], y, p, digits) for y in ys]).T
    unit = float(family.spread(p))
    for order in range(3):
        np.testing.assert_allclose(
            got[order], want[order], rtol=rtol, atol=floor * unit**-order, err_msg=f"{order} {p}"
        )


def as_ranges(p):
    return {key: Range(float(np.min(v)), float(np.max(v))) for key, v in p.items()}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", SCALARS)
def test_jet_against_mpmath(name, seed):
    p = draw(name, np.random.default_rng(seed))
    assert_jet(name, points(name, p), p, rtol=1e-11)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", SCALARS)
def test_logp_against_scipy(name, seed):
    p = draw(name, np.random.default_rng(100 + seed))
    ys = points(name, p)
    got = FAMILIES[name].logp(ys, p)
    np.testing.assert_allclose(got, SCIPY[name](p).logpdf(ys), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alpha", [-1e4, -20.0, -1.0, 0.0, 20.0, 1e4])
def test_skew_normal_hard_tail(alpha):
    p = {"mu": 0.25, "sigma": 0.5, "alpha": alpha}
    assert_jet("skew_normal", 0.25 + 0.5 * np.array(LINE), p, rtol=2e-12, floor=0.0)


@settings(deadline=None, max_examples=150)
@given(st.floats(-1e6, 37.0))
def test_inverse_mills_keeps_its_digits(x):
    with mp.workdps(60):
        ratio = mp.npdf(mp.mpf(x)) / (mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2)
        excess = float(ratio + mp.mpf(x))
        ratio = float(ratio)
    got = _inverse_mills(np.array([x]))
    # At 37 the ratio is exp(-680): its argument alone costs x²ε.
    np.testing.assert_allclose(got[0], ratio, rtol=2e-12)
    np.testing.assert_allclose(got[1], excess, rtol=5e-13)


@pytest.mark.parametrize("z", [-600.0, 600.0])
def test_logistic_far_tail(z):
    assert_jet("logistic", np.array([z]), {"mu": 0.0, "s": 1.0}, rtol=1e-12, floor=0.0, digits=330)


def test_extreme_outcomes_do_not_warn():
    # pytest turns warnings into errors.
    y = np.array([-1e5, 1e5])
    logistic = FAMILIES["logistic"].jet(y, {"mu": 0.0, "s": 1.0})
    np.testing.assert_allclose(logistic.logp, [-1e5, -1e5])
    np.testing.assert_allclose(logistic.grad[:, 0], [1, -1])
    gumbel = FAMILIES["gumbel"].jet(y, {"mu": 0.0, "beta": 1.0})
    np.testing.assert_array_equal(gumbel.logp, [-np.inf, -1e5])
    np.testing.assert_array_equal(gumbel.grad[:, 0], [np.inf, -1])
    skew = FAMILIES["skew_normal"].jet(y, {"mu": 0.0, "sigma": 1.0, "alpha": 3.0})
    np.testing.assert_allclose(skew.curv[:, 0], [-10, -1])
    assert np.isfinite(
        FAMILIES["student_t"].jet(y, {"nu": 2.0, "mu": 0.0, "sigma": 1.0}).logp
    ).all()
    weibull = FAMILIES["weibull"].jet(y, {"alpha": 100.0, "beta": 1.0})
    np.testing.assert_array_equal(weibull.logp, -np.inf)
    assert weibull.grad[1, 0] == -np.inf


@pytest.mark.parametrize("d", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("nu", [1e-3, 0.7, 4.0, 1e3, 3e4, 1e9, 1e14])
def test_t_normaliser_at_all_nu(nu, d):
    with mp.workdps(60):
        exact = mp.loggamma((mp.mpf(nu) + d) / 2) - mp.loggamma(mp.mpf(nu) / 2)
        exact = float(exact - mp.mpf(d) / 2 * mp.log(nu * mp.pi))
    assert float(log_normaliser(np.float64(nu), d)) == pytest.approx(exact, rel=1e-10)


MOMENTS = ["gamma", "beta", "logistic", "gumbel", "skew_normal", "normal", "exponential"]


@pytest.mark.parametrize("name", [*MOMENTS, "half_normal"])
def test_location_and_spread_are_moments(name):
    p = draw(name, np.random.default_rng(3))
    family, frozen = FAMILIES[name], SCIPY[name](p)
    assert float(family.location(p)) == pytest.approx(frozen.mean(), rel=1e-9)
    assert float(family.spread(p)) == pytest.approx(frozen.std(), rel=1e-7)


@pytest.mark.parametrize(
    ("name", "p"),
    [
        ("lognormal", {"mu": 0.4, "sigma": 1.3}),
        ("weibull", {"alpha": 0.2, "beta": 3.0}),
        ("weibull", {"alpha": 7.0, "beta": 3.0}),
    ],
)
def test_location_and_spread_are_quantiles(name, p):
    low, middle, high = SCIPY[name](p).ppf(stats.norm.cdf([-1, 0, 1]))
    assert float(FAMILIES[name].location(p)) == pytest.approx(middle)
    assert float(FAMILIES[name].spread(p)) == pytest.approx((high - low) / 2)


def test_inverse_gamma_location_and_spread_are_those_of_its_peak():
    family, p = FAMILIES["inverse_gamma"], {"alpha": 0.7, "beta": 3.0}
    grad, curv = family.derivatives(family.location(p), p)
    assert float(grad) == pytest.approx(0.0, abs=1e-12)
    assert float(family.spread(p)) == pytest.approx(float(-curv) ** -0.5)


@pytest.mark.parametrize("shape", [1.0, 2.0])
def test_weibull_of_simple_shapes(shape):
    # Shape 1 is the exponential, shape 2 the Rayleigh.
    p = {"alpha": np.float64(shape), "beta": np.float64(1.7)}
    y = np.array(POSITIVE)
    known = stats.expon(scale=1.7) if shape == 1 else stats.rayleigh(scale=1.7 / np.sqrt(2))
    np.testing.assert_allclose(FAMILIES["weibull"].logp(y, p), known.logpdf(y), rtol=1e-12)
    if shape == 1:
        rate = {"lam": 1 / np.float64(1.7)}
        expected = FAMILIES["exponential"].derivatives(y, rate)
        np.testing.assert_allclose(FAMILIES["weibull"].derivatives(y, p), expected, rtol=1e-14)


# Broadcasting


def stacked(name, rng, shapes):
    """Parameters in the given shapes, one per parameter, cycled."""
    out = {}
    for key, shape in zip(FAMILIES[name].signatures[0], shapes * 3, strict=False):
        values = [draw(name, rng)[key] for _ in range(int(np.prod(shape)))]
        out[key] = np.reshape(values, shape)
    return out


@pytest.mark.parametrize(
    "shapes", [[(4, 1)], [(4, 3)], [(), (4, 1)], [(4, 1), ()], [(4, 3), (4, 1)]], ids=str
)
@pytest.mark.parametrize("y_shape", [(3,), (2, 1, 3), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("name", SCALARS)
def test_broadcasting_equals_the_loop(name, y_shape, shapes):
    rng = np.random.default_rng(7)
    family, p = FAMILIES[name], stacked(name, rng, shapes)
    y = rng.uniform(0.1, 0.9, y_shape)
    shape = np.broadcast_shapes(y_shape, *(v.shape for v in p.values()))
    logp, (grad, curv) = family.logp(y, p), family.derivatives(y, p)
    assert logp.shape == grad.shape == curv.shape == shape
    jet = family.jet(y, p)
    assert jet.grad.shape == (*shape, 1)
    for index in np.ndindex(shape):
        one = {key: np.broadcast_to(v, shape)[index] for key, v in p.items()}
        at = np.broadcast_to(y, shape)[index]
        np.testing.assert_allclose(logp[index], family.logp(at, one), rtol=1e-13, atol=1e-14)
        expected = family.derivatives(at, one)
        np.testing.assert_allclose((grad[index], curv[index]), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(jet.logp, logp)
    np.testing.assert_array_equal(jet.curv[..., 0], curv)


# Support


BOUNDED = [name for name in SCALARS if np.isfinite(FAMILIES[name].support[0])]


@pytest.mark.parametrize("name", BOUNDED)
def test_outside_the_support(name):
    family, p = FAMILIES[name], draw(name, np.random.default_rng(0))
    y = np.array([-np.inf, -1.0, 0.0, 0.5, 1.0, 3.0, np.nan])
    dead = np.array([1, 1, 1, 0, 0, 0, 0], bool)
    if name == "beta":
        dead[4:6] = True
    if name == "von_mises":
        y, dead = np.append(y, [-np.pi, np.pi + 0.1]), np.array([1, 0, 0, 0, 0, 0, 0, 0, 1], bool)
    p = {key: np.full((2, 1), value) for key, value in p.items()}
    jet = family.jet(y, p)
    assert (jet.logp[:, dead] == -np.inf).all()
    assert np.isnan(jet.grad[:, dead]).all()
    assert np.isnan(jet.curv[:, dead]).all()
    alive = ~dead & ~np.isnan(y)
    assert np.isfinite(jet.logp[:, alive]).all()
    assert np.isfinite(jet.curv[:, alive]).all()
    assert np.isnan(jet.logp[:, np.isnan(y)]).all()


# Edges


def observed_order(family, p, at, distance, side):
    """Log-log slope near a finite edge, exponential rate near an infinite one."""
    if np.isinf(at):
        grad, _ = family.derivatives(np.float64(np.sign(at) * distance), p)
        return -np.sign(at) * float(grad)
    near, far = (float(family.logp(np.float64(at + side * t), p)) for t in (distance, 4 * distance))
    return (far - near) / np.log(4)


EDGE_CASES = [
    ("normal", {"mu": 0.3, "sigma": 2.0}),
    ("skew_normal", {"mu": 0.3, "sigma": 2.0, "alpha": -2.0}),
    ("student_t", {"nu": 3.0, "mu": 0.3, "sigma": 2.0}),
    ("logistic", {"mu": 0.3, "s": 2.5}),
    ("gumbel", {"mu": 0.3, "beta": 2.5}),
    ("lognormal", {"mu": 0.3, "sigma": 1.5}),
    ("gamma", {"alpha": 3.5, "beta": 0.7}),
    ("gamma", {"alpha": 0.6, "beta": 2.0}),
    ("beta", {"alpha": 2.5, "beta": 0.4}),
    ("beta", {"alpha": 1.0, "beta": 3.0}),
    ("exponential", {"lam": 0.7}),
    ("half_normal", {"sigma": 2.0}),
    ("weibull", {"alpha": 2.5, "beta": 2.0}),
    ("weibull", {"alpha": 1.0, "beta": 2.0}),
    ("weibull", {"alpha": 0.6, "beta": 2.0}),
    ("inverse_gamma", {"alpha": 0.6, "beta": 2.0}),
    ("von_mises", {"mu": 1.0, "kappa": 2.0}),
]


@pytest.mark.parametrize(("name", "p"), EDGE_CASES, ids=str)
def test_edges_against_the_density(name, p):
    family = FAMILIES[name]
    edges = family.edges(as_ranges(p))
    assert [edge.at for edge in edges] == list(family.support)
    for edge, side in zip(edges, (1, -1), strict=True):
        # Gumbel's lower tail overflows beyond 700 scales.
        far = 1e3 if name == "gumbel" else 1e9
        nearer, near = (1e-10, 1e-6) if np.isfinite(edge.at) else (far, 30.0)
        orders = [observed_order(family, p, edge.at, t, side) for t in (near, nearer)]
        if edge.order == np.inf:
            assert orders[0] > 4
            assert orders[1] > 1.5 * orders[0]
        elif edge.order == 0 and np.isinf(edge.at):
            assert 0 < orders[1] < 1e-2 * orders[0]
        else:
            assert orders[1] == pytest.approx(edge.order, abs=1e-5)


def test_edges_are_the_worst_over_the_ranges():
    wide = {key: Range(0.5, 4.0) for key in ("mu", "sigma", "s", "nu", "alpha", "beta", "lam")}
    assert FAMILIES["logistic"].edges(wide) == (Edge(-np.inf, 0.25), Edge(np.inf, 0.25))
    assert FAMILIES["gumbel"].edges(wide) == (Edge(-np.inf, np.inf), Edge(np.inf, 0.25))
    assert FAMILIES["gamma"].edges(wide) == (Edge(0.0, -0.5), Edge(np.inf, 0.5))
    assert FAMILIES["beta"].edges(wide) == (Edge(0.0, -0.5), Edge(1.0, -0.5))
    assert FAMILIES["exponential"].edges(wide) == (Edge(0.0, 0.0), Edge(np.inf, 0.5))
    assert FAMILIES["half_normal"].edges(wide) == (Edge(0.0, 0.0), Edge(np.inf, np.inf))
    assert FAMILIES["weibull"].edges(wide) == (Edge(0.0, -0.5), Edge(np.inf, 0.0))
    one = wide | {"alpha": Range(1.0, 4.0)}
    assert FAMILIES["weibull"].edges(one) == (Edge(0.0, 0.0), Edge(np.inf, 0.25))
    assert FAMILIES["inverse_gamma"].edges(wide) == (Edge(0.0, np.inf), Edge(np.inf, 0.0))
    assert FAMILIES["mv_normal"].edges({}) == (Edge(-np.inf, np.inf), Edge(np.inf, np.inf))
    assert FAMILIES["mv_student_t"].edges({}) == (Edge(-np.inf, 0), Edge(np.inf, 0))


def test_edges_that_the_name_alone_tells():
    for name, family in FAMILIES.items():
        known = {edge.at: edge.order for edge in family.fixed_edges}
        assert tuple(known) in ((), family.support)
        if known:
            ranges = {key: Range(0.1, 9.0) for key in family.signatures[0]}
            assert all(known[edge.at] <= edge.order for edge in family.edges(ranges)), name


def test_worst_edges_merges_places():
    edges = [Edge(1.0, 2.0), Edge(0.0, np.inf), Edge(1.0, -0.5), Edge(0.0, np.inf)]
    assert worst_edges(edges) == (Edge(0.0, np.inf), Edge(1.0, -0.5))


def test_a_sum_meets_its_other_end_if_its_parts_do():
    joined, gone, open_end = Edge(1.0, 0.0, joined=True), Edge(1.0, np.inf), Edge(1.0, 0.0)
    assert worst_edges([joined, joined]) == (joined,)
    assert worst_edges([joined, gone]) == (joined,)
    assert worst_edges([joined, open_end]) == (open_end,)
    assert worst_edges([gone]) == (gone,)


# Vector families


def vector_parameters(name, rng, d, correlation=None):
    root = rng.normal(size=(d, d))
    matrix = root @ root.T + np.eye(d)
    if correlation is not None:
        matrix = np.full((d, d), correlation) + (1 - correlation) * np.eye(d)
    p = {"mu": rng.normal(size=d)}
    if name == "mv_student_t":
        return {"nu": np.float64(rng.uniform(1, 9)), **p, "scale": matrix}
    return {**p, "cov": matrix}


def by_cholesky(p):
    out = {key: v for key, v in p.items() if key not in ("cov", "scale")}
    return out | {"chol": np.linalg.cholesky(p["cov" if "cov" in p else "scale"])}


def mp_vector(name, y, p):
    """Jet of a vector family from the exact inverse and step differences, all at 60 digits."""
    with mp.workdps(60):
        d = len(y)
        matrix = mp.matrix(p["cov" if name == "mv_normal" else "scale"].tolist())
        precision, log_det = matrix**-1, mp.log(mp.det(matrix))

        def f(point):
            delta = mp.matrix([a - mp.mpf(float(b)) for a, b in zip(point, p["mu"], strict=True)])
            m = (delta.T * precision * delta)[0]
            if name == "mv_normal":
                return -(m + log_det + d * mp.log(2 * mp.pi)) / 2
            nu = mp.mpf(float(p["nu"]))
            constant = mp.loggamma((nu + d) / 2) - mp.loggamma(nu / 2) - d * mp.log(nu * mp.pi) / 2
            return constant - log_det / 2 - (nu + d) / 2 * mp.log1p(m / nu)

        at = [mp.mpf(float(v)) for v in y]
        h, middle, grad, curv = mp.mpf(10) ** -18, f(at), [], []
        for j in range(d):
            left, right = (f([v + s * h * (i == j) for i, v in enumerate(at)]) for s in (-1, 1))
            grad.append(float((right - left) / (2 * h)))
            curv.append(float((right - 2 * middle + left) / h**2))
        return float(middle), np.array(grad), np.array(curv)


@pytest.mark.parametrize("distance", [1.0, 40.0])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("name", VECTORS)
def test_vector_jet_against_mpmath(name, d, distance):
    rng = np.random.default_rng(d)
    p = vector_parameters(name, rng, d)
    y = p["mu"] + distance * rng.normal(size=d)
    want = mp_vector(name, y, p)
    for given_p in (p, by_cholesky(p)):
        jet = FAMILIES[name].jet(y, given_p)
        np.testing.assert_allclose(jet.logp, want[0], rtol=1e-12)
        np.testing.assert_allclose(jet.grad, want[1], rtol=1e-11)
        np.testing.assert_allclose(jet.curv, want[2], rtol=1e-11)


@pytest.mark.parametrize("name", VECTORS)
def test_vector_jet_nearly_singular(name):
    p = vector_parameters(name, np.random.default_rng(1), 3, correlation=0.999999)
    y = p["mu"] + np.array([1.0, 1.002, 0.9985])
    jet, want = FAMILIES[name].jet(y, p), mp_vector(name, y, p)
    np.testing.assert_allclose(jet.logp, want[0], rtol=1e-8)
    np.testing.assert_allclose(jet.grad, want[1], rtol=1e-8)
    np.testing.assert_allclose(jet.curv, want[2], rtol=1e-8)


def test_vector_logp_against_scipy():
    rng = np.random.default_rng(4)
    y = rng.normal(size=(6, 3)) * 3
    p = vector_parameters("mv_normal", rng, 3)
    expected = stats.multivariate_normal(p["mu"], p["cov"]).logpdf(y)
    np.testing.assert_allclose(FAMILIES["mv_normal"].logp(y, p), expected, rtol=1e-12)
    p = vector_parameters("mv_student_t", rng, 3)
    expected = stats.multivariate_t(p["mu"], p["scale"], df=p["nu"]).logpdf(y)
    np.testing.assert_allclose(FAMILIES["mv_student_t"].logp(y, p), expected, rtol=1e-12)


@pytest.mark.parametrize("correlation", [None, 0.999999])
@pytest.mark.parametrize("d", [1, 2, 4])
@pytest.mark.parametrize("name", VECTORS)
def test_vectors_at_many_outcomes_are_those_at_one(name, d, correlation, rng):
    draws, n = 7, 3
    one = vector_parameters(name, rng, d, correlation)
    scale = rng.uniform(0.5, 2.0, size=(draws, 1, 1, 1))
    matrix = "cov" if name == "mv_normal" else "scale"
    p = {**one, "mu": 1e4 + rng.normal(size=(draws, n, d)), matrix: scale * one[matrix]}
    if "nu" in p:
        p["nu"] = np.full((draws, 1), one["nu"])
    spread = np.linalg.cholesky(one[matrix])
    y = 1e4 + 5 * rng.normal(size=(40, 1, n, d)) @ spread.T
    each = np.concatenate([FAMILIES[name].logp(point[None], p) for point in y])
    many = FAMILIES[name].logp(y, p)
    assert many.shape == (40, draws, n)
    tolerance = 1e-11 if correlation is None else 1e-8
    np.testing.assert_allclose(many, each, rtol=tolerance, atol=tolerance)


def test_vector_families_at_dimension_one_are_the_scalar_ones():
    y = np.linspace(-9, 9, 7)
    matrix = np.array([[2.25]])
    for name, scalar, p, key in [
        ("mv_normal", "normal", {}, "cov"),
        ("mv_student_t", "student_t", {"nu": np.float64(3.3)}, "scale"),
    ]:
        vector = FAMILIES[name].jet(y[:, None], {**p, "mu": np.array([0.5]), key: matrix})
        flat = FAMILIES[scalar].jet(y, {**p, "mu": np.float64(0.5), "sigma": np.float64(1.5)})
        for part in ("logp", "grad", "curv"):
            np.testing.assert_allclose(getattr(vector, part), getattr(flat, part), rtol=1e-12)


@pytest.mark.parametrize("y_shape", [(3,), (2, 1, 3), (1,), ()], ids=str)
@pytest.mark.parametrize(
    ("mu_shape", "matrix_shape"),
    list(product([(4, 1), (4, 3), ()], [(4, 1), (4, 3), (1, 1), ()])),
    ids=str,
)
@pytest.mark.parametrize("name", VECTORS)
def test_vector_broadcasting_equals_the_loop(name, mu_shape, matrix_shape, y_shape):
    rng, d, family = np.random.default_rng(5), 2, FAMILIES[name]
    root = rng.normal(size=(*matrix_shape, d, d))
    p = {"mu": rng.normal(size=(*mu_shape, d))}
    p[family.matrix] = root @ np.swapaxes(root, -1, -2) + np.eye(d)
    event = {"mu": 1, family.matrix: 2, "nu": 0}
    if name == "mv_student_t":
        p["nu"] = rng.uniform(2, 8, (4, 1))
    y = rng.normal(size=(*y_shape, d))
    lead = {key: v.shape[: v.ndim - event[key]] for key, v in p.items()}
    shape = np.broadcast_shapes(y_shape, *lead.values())
    jet = family.jet(y, p)
    assert jet.logp.shape == shape
    assert jet.grad.shape == jet.curv.shape == (*shape, d)
    np.testing.assert_array_equal(family.logp(y, p), jet.logp)
    np.testing.assert_array_equal(family.derivatives(y, p), (jet.grad, jet.curv))
    for index in np.ndindex(shape):
        one = {
            key: np.broadcast_to(v, (*shape, *v.shape[v.ndim - event[key] :]))[index]
            for key, v in p.items()
        }
        single = family.jet(np.broadcast_to(y, (*shape, d))[index], one)
        for part in ("logp", "grad", "curv"):
            got, want = getattr(jet, part)[index], getattr(single, part)
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", VECTORS)
def test_vector_location_and_spread(name):
    p = vector_parameters(name, np.random.default_rng(6), 3)
    sd = np.sqrt(np.diag(p[FAMILIES[name].matrix]))
    for given_p in (p, by_cholesky(p)):
        np.testing.assert_allclose(FAMILIES[name].spread(given_p), sd)
        np.testing.assert_array_equal(FAMILIES[name].location(given_p), p["mu"])


# Mixtures

TWO = mixture(["normal", "normal"])


def mixture_parameters(weights, *parts):
    p = {"weights": np.asarray(weights, float)}
    for k, part in enumerate(parts):
        p |= {f"{k}.{key}": np.asarray(value, float) for key, value in part.items()}
    return p


def assert_same_jet(got, want, rtol=1e-13, atol=0.0):
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(got, part), getattr(want, part), rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "names", [("normal", "normal"), ("normal", "student_t", "gumbel"), ("gamma", "lognormal")]
)
def test_mixture_against_mpmath(names):
    rng = np.random.default_rng(8)
    parts = [draw(name, rng) for name in names]
    weights = rng.dirichlet(np.ones(len(names)))
    weights = [float(w) for w in weights]

    def density(y):
        terms = [
            mp.mpf(w) * mp.exp(MPMATH[name](y, **{k: mp.mpf(v) for k, v in part.items()}))
            for w, name, part in zip(weights, names, parts, strict=True)
        ]
        return mp.log(mp.fsum(terms))

    y = np.array(POSITIVE[2:] if "gamma" in names else [-25.0, -3.0, -0.7, 0.1, 0.6, 2.0, 12.0])
    family, p = mixture(names), mixture_parameters(weights, *parts)
    jet = family.jet(y, p)
    got = np.array([family.logp(y, p), *family.derivatives(y, p)])
    want = np.array([reference(density, v, {}) for v in y]).T
    np.testing.assert_allclose(got, want, rtol=1e-10)
    np.testing.assert_allclose(got, [jet.logp, jet.grad[:, 0], jet.curv[:, 0]], rtol=1e-13)


def test_mixture_of_two_normals_closed_form():
    # Equal halves of N(±a, 1): log p = log N(y; 0, 1) - a²/2 + log cosh(ay).
    a, y = 1.7, np.linspace(-4, 4, 9)
    half = mixture_parameters([0.5, 0.5], {"mu": a, "sigma": 1}, {"mu": -a, "sigma": 1})
    jet = TWO.jet(y, half)
    logp = stats.norm.logpdf(y) - a * a / 2 + np.log(np.cosh(a * y))
    np.testing.assert_allclose(jet.logp, logp, rtol=1e-13)
    np.testing.assert_allclose(jet.grad[:, 0], -y + a * np.tanh(a * y), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(jet.curv[:, 0], -1 + (a / np.cosh(a * y)) ** 2, rtol=1e-12)


def test_mixture_zero_weight_is_no_component():
    y = np.array([-40.0, 0.3, 1.0, 40.0])
    part = {"mu": 0.4, "sigma": 1.2}
    other = {"mu": -1.0, "sigma": 0.1}
    lone = FAMILIES["normal"].jet(y, part)
    assert_same_jet(TWO.jet(y, mixture_parameters([0.0, 1.0], other, part)), lone)
    nested = Mixture([TWO, FAMILIES["normal"]])
    inner = mixture_parameters([1.0, 0.0], part, other)
    assert_same_jet(nested.jet(y, mixture_parameters([1.0, 0.0], inner, other)), lone)
    assert nested.signature(mixture_parameters([1.0, 0.0], inner, other))["0.weights"] == 1


def test_nested_mixture_is_the_flat_one():
    rng = np.random.default_rng(9)
    a, b, c = ({"mu": rng.normal(), "sigma": rng.uniform(0.5, 2)} for _ in range(3))
    y = np.linspace(-3, 3, 5)
    flat = mixture(["normal"] * 3).jet(y, mixture_parameters([0.2, 0.3, 0.5], a, b, c))
    inner = mixture_parameters([0.4, 0.6], a, b)
    nested = Mixture([TWO, FAMILIES["normal"]])
    got = nested.jet(y, mixture_parameters([0.5, 0.5], inner, c))
    assert_same_jet(got, flat, rtol=1e-12)


def test_mixture_with_a_component_out_of_its_support():
    family = mixture(["gamma", "normal"])
    assert family.support == (-np.inf, np.inf)
    part = {"mu": 0.4, "sigma": 1.2}
    p = mixture_parameters([0.3, 0.7], {"alpha": 2.0, "beta": 1.0}, part)
    y = np.array([-2.0, -0.1])
    lone = FAMILIES["normal"].jet(y, part)
    for cells in (y, np.array([-2.0, -0.1, 1.0])):
        jet = family.jet(cells, p)
        np.testing.assert_allclose(jet.logp[:2], lone.logp + np.log(0.7), rtol=1e-14)
        np.testing.assert_array_equal(jet.grad[:2], lone.grad)
        np.testing.assert_array_equal(jet.curv[:2], lone.curv)
        assert np.isfinite(jet.curv).all()


def test_mixture_outside_all_supports():
    family = mixture(["gamma", "lognormal"])
    p = mixture_parameters([0.3, 0.7], {"alpha": 2.0, "beta": 1.0}, {"mu": 0.0, "sigma": 1.0})
    assert family.support == (0.0, np.inf)
    y = np.array([-1.0, 1.0])
    jet = family.jet(y, p)
    np.testing.assert_array_equal(np.isfinite(jet.logp), [False, True])
    assert jet.logp[0] == family.logp(y, p)[0] == -np.inf
    np.testing.assert_array_equal(np.isnan(jet.grad[:, 0]), [True, False])
    np.testing.assert_array_equal(np.isnan(jet.curv[:, 0]), [True, False])


def test_mixture_component_that_overflows_is_silent():
    family = mixture(["gumbel", "normal"])
    p = mixture_parameters([0.5, 0.5], {"mu": 0.0, "beta": 0.01}, {"mu": 0.0, "sigma": 1.0})
    # At -20 the gradient of the Gumbel is infinite; at -6 it is finite and its square is not.
    jet = family.jet(np.array([-20.0, -6.0]), p)
    np.testing.assert_allclose(jet.grad[:, 0], [20.0, 6.0])
    np.testing.assert_allclose(jet.curv, -1.0)


@pytest.mark.parametrize("weights_shape", [(4, 1, 2), (4, 3, 2), (2,)], ids=str)
@pytest.mark.parametrize("part_shape", [(4, 1), (4, 3), ()], ids=str)
@pytest.mark.parametrize("y_shape", [(3,), (2, 1, 3)], ids=str)
def test_mixture_broadcasting_equals_the_loop(y_shape, part_shape, weights_shape):
    rng = np.random.default_rng(10)
    weights = rng.uniform(size=weights_shape)
    weights /= weights.sum(axis=-1, keepdims=True)
    first = {"mu": rng.normal(size=part_shape), "sigma": np.float64(1.0)}
    second = {"mu": np.float64(0.0), "sigma": rng.uniform(1, 2, part_shape)}
    p, y = mixture_parameters(weights, first, second), rng.normal(size=y_shape)
    shape = np.broadcast_shapes(y_shape, part_shape, weights_shape[:-1])
    jet = TWO.jet(y, p)
    assert jet.logp.shape == TWO.logp(y, p).shape == shape
    assert jet.grad.shape == (*shape, 1)
    for index in np.ndindex(shape):
        one = {
            key: np.broadcast_to(v, (*shape, *v.shape[v.ndim - (key == "weights") :]))[index]
            for key, v in p.items()
        }
        at = np.broadcast_to(y, shape)[index]
        assert_same_jet(jet[index], TWO.jet(at, one), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(TWO.logp(y, p)[index], TWO.logp(at, one), rtol=1e-12)
    middle = TWO.location(p)
    assert np.broadcast_shapes(middle.shape, shape) == shape


def test_vector_mixture():
    rng = np.random.default_rng(11)
    family = mixture(VECTORS)
    assert family.multivariate
    assert len(family.signatures) == 4
    parts = [vector_parameters(name, rng, 2) for name in VECTORS]
    weights, y = [0.3, 0.7], rng.normal(size=(5, 2))
    jet = family.jet(y, mixture_parameters(weights, *parts))
    jets = [FAMILIES[name].jet(y, part) for name, part in zip(VECTORS, parts, strict=True)]
    share = np.array([w * np.exp(j.logp) for w, j in zip(weights, jets, strict=True)])
    total = share.sum(axis=0)
    np.testing.assert_allclose(jet.logp, np.log(total), rtol=1e-12)
    first = sum(s[:, None] * j.grad for s, j in zip(share, jets, strict=True)) / total[:, None]
    np.testing.assert_allclose(jet.grad, first, rtol=1e-11)
    # (log p)'' = p''/p - (p'/p)², the second derivative of each part being p (ℓ'' + ℓ'²).
    second = sum(s[:, None] * (j.curv + j.grad**2) for s, j in zip(share, jets, strict=True))
    np.testing.assert_allclose(jet.curv, second / total[:, None] - first**2, rtol=1e-10)
    middle = family.location(mixture_parameters(weights, *parts))
    np.testing.assert_allclose(middle, 0.3 * parts[0]["mu"] + 0.7 * parts[1]["mu"])


def test_mixture_location_and_spread():
    p = mixture_parameters(
        [[0.25, 0.75]], {"mu": [1.0], "sigma": [2.0]}, {"mu": [5.0], "sigma": [1.0]}
    )
    np.testing.assert_allclose(TWO.location(p), [4.0])
    np.testing.assert_allclose(TWO.spread(p), [np.sqrt(0.25 * (4 + 9) + 0.75 * (1 + 1))])


def test_mixture_edges():
    family = mixture(["gamma", "gamma", "logistic"])
    p = mixture_parameters(
        [0.2, 0.3, 0.5],
        {"alpha": [3.0, 4.0], "beta": 1.0},
        {"alpha": [2.5, 9.0], "beta": 1.0},
        {"mu": 0.0, "s": [0.5, 2.0]},
    )
    expected = (Edge(-np.inf, 0.5), Edge(0.0, 1.5), Edge(np.inf, 0.5))
    assert family.edges(as_ranges(p)) == expected


# Names and validation


def test_registry():
    for name, family in FAMILIES.items():
        assert family.name == name
        assert get_family(name) is family
        assert find_family(name.replace("_", "").upper()) is family
    with pytest.raises(UnknownNameError, match="'student_t'"):
        get_family("studentt")
    with pytest.raises(UnknownNameError, match="Did you mean 'mixture'"):
        get_family("mixtur")
    for name in ("HalfNormal", "ZeroInflatedPoisson", "NegativeBinomial"):
        with pytest.raises(UnknownNameError, match=f"Did you mean '{find_family(name).name}'"):
            get_family(name)
    for name in ("half_cauchy", "zero_inflated_binomial", "BernoulliLogit"):
        assert find_family(name) is None
        with pytest.raises(UnsupportedError, match=f"'{name}' is not offered"):
            get_family(name)
    with pytest.raises(ParameterError, match="at least one component"):
        get_family("mixture")
    with pytest.raises(ParameterError, match="scalar and vector"):
        mixture(["normal", "mv_normal"])


@pytest.mark.parametrize("name", SCALARS)
def test_validation_of_every_parameter(name):
    family = FAMILIES[name]
    good = {k: np.full((3, 2), v) for k, v in draw(name, np.random.default_rng(0)).items()}
    family.validate(good)
    for key, value in good.items():
        for bad, said in [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")]:
            broken = value.copy()
            broken[1, 1] = bad
            with pytest.raises(ParameterError, match=f"'{key}' of family '{name}'.*value {said}"):
                family.validate(good | {key: broken})
        for bad in (0.0, -1.25):
            broken = value.copy()
            broken[1, 1] = bad
            if key in family.positive:
                with pytest.raises(ParameterError, match=f"'{key}'.*positive.*is {bad:g}"):
                    family.validate(good | {key: broken})
            else:
                family.validate(good | {key: broken})


def test_positive_parameters():
    positive = {name: set(FAMILIES[name].positive) for name in FAMILIES}
    assert positive == {
        "normal": {"sigma"},
        "student_t": {"nu", "sigma"},
        "logistic": {"s"},
        "lognormal": {"sigma"},
        "gamma": {"alpha", "beta"},
        "beta": {"alpha", "beta"},
        "skew_normal": {"sigma"},
        "gumbel": {"beta"},
        "exponential": {"lam"},
        "half_normal": {"sigma"},
        "weibull": {"alpha", "beta"},
        "inverse_gamma": {"alpha", "beta"},
        "von_mises": {"kappa"},
        "mv_normal": set(),
        "mv_student_t": {"nu"},
        "poisson": {"mu"},
        "negative_binomial": {"mu", "alpha"},
        "binomial": set(),
        "bernoulli": set(),
        "geometric": set(),
        "zero_inflated_poisson": {"mu"},
        "zero_inflated_negative_binomial": {"mu", "alpha"},
    }


@pytest.mark.parametrize("name", VECTORS)
def test_matrix_validation(name):
    family = FAMILIES[name]
    p = vector_parameters(name, np.random.default_rng(2), 2)
    family.validate(p)
    family.validate(by_cholesky(p))
    key = family.matrix
    indefinite = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]])])
    with pytest.raises(ParameterError, match=f"'{key}'.*positive definite.*eigenvalue is -1"):
        family.validate(p | {key: indefinite})
    with pytest.raises(ParameterError, match="positive definite"):
        family.logp(np.zeros(2), p | {key: indefinite})
    with pytest.raises(ParameterError, match=r"symmetric.*0\.5"):
        family.validate(p | {key: np.array([[1.0, 0.5], [0.0, 1.0]])})
    chol = by_cholesky(p)
    with pytest.raises(ParameterError, match=r"'chol'.*lower triangular.*0.5"):
        family.validate(chol | {"chol": np.array([[1.0, 0.5], [0.0, 1.0]])})
    with pytest.raises(ParameterError, match=r"'chol'.*positive diagonal.*-1"):
        family.validate(chol | {"chol": np.array([[1.0, 0.0], [0.5, -1.0]])})
    with pytest.raises(ParameterError, match="finite"):
        family.validate(p | {key: np.full((2, 2), np.nan)})


def test_mixture_validation():
    part = {"mu": 0.0, "sigma": 1.0}
    for weights in ([0.3, 0.7], [0.0, 1.0], [[0.5, 0.5], [1.0, 0.0]]):
        TWO.validate(mixture_parameters(weights, part, part))
    with pytest.raises(ParameterError, match=r"'weights'.*negative.*-0.1"):
        TWO.validate(mixture_parameters([-0.1, 1.1], part, part))
    with pytest.raises(ParameterError, match=r"'weights'.*sum to 1.*0.9"):
        TWO.validate(mixture_parameters([[0.5, 0.5], [0.4, 0.5]], part, part))
    with pytest.raises(ParameterError, match=r"one entry per component, 2.*has 3"):
        TWO.validate(mixture_parameters([0.2, 0.3, 0.5], part, part))
    with pytest.raises(ParameterError, match=r"'1\.sigma'.*positive.*-2"):
        TWO.validate(mixture_parameters([0.5, 0.5], part, {"mu": 0.0, "sigma": -2.0}))
    vectors = mixture(["mv_normal"])
    bad = {"mu": np.zeros(2), "cov": np.array([[1.0, 2.0], [2.0, 1.0]])}
    with pytest.raises(ParameterError, match="positive definite"):
        vectors.validate(mixture_parameters([1.0], bad))
    with pytest.raises(ParameterError, match=r"weights, 0.mu, 0.sigma, 1.mu"):
        TWO.signature({"weights": 0})
