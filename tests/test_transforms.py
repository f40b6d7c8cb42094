"""Models of a transformed outcome on the scale of the outcome."""

from __future__ import annotations

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from scipy.integrate import quad

from lockquack.errors import UnknownNameError
from lockquack.families import FAMILIES, Edge, Range
from lockquack.jets import Jet
from lockquack.transforms import TRANSFORMS, get_transform
from tests.helpers import changed, mixture

NAMES = sorted(TRANSFORMS)
MPMATH = {
    "log": mp.log,
    "log10": mp.log10,
    "sqrt": mp.sqrt,
    "logit": lambda y: mp.log(y / (1 - y)),
    "exp": mp.exp,
}
NORMAL = {"mu": np.float64(0.3), "sigma": np.float64(0.8)}


def outcomes(name):
    if name == "logit":
        return np.array([1e-6, 0.03, 0.2, 0.5, 0.71, 0.999, 1 - 1e-6])
    if name == "exp":
        return np.array([-9.0, -1.2, -0.3, 0.1, 0.8, 1.7, 3.0])
    return np.array([1e-6, 0.03, 0.2, 1.0, 1.7, 12.0, 1e5])


def bring(name, family, y, p):
    transform = get_transform(name)
    jet = family.jet(transform.forward(y), p)
    return changed(transform, y, jet, multivariate=family.multivariate)


def test_log_of_normal_is_lognormal():
    y = np.array([1e-100, 1e-6, 0.03, 1.0, 1.7, 1e5, 1e100])
    p = {"mu": np.array([[0.3], [-2.0]]), "sigma": np.array([[0.8], [3.0]])}
    got, want = bring("log", FAMILIES["normal"], y, p), FAMILIES["lognormal"].jet(y, p)
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(got, part), getattr(want, part), rtol=2e-14)


@pytest.mark.parametrize("name", NAMES)
def test_transform_against_mpmath(name):
    family, y = FAMILIES["normal"], outcomes(name)
    jet = bring(name, family, y, NORMAL)
    with mp.workdps(60):
        mu, sigma = (mp.mpf(float(NORMAL[key])) for key in ("mu", "sigma"))

        def logp(at):
            z = (MPMATH[name](at) - mu) / sigma
            slope = mp.diff(MPMATH[name], at)
            return -z * z / 2 - mp.log(sigma) - mp.log(2 * mp.pi) / 2 + mp.log(slope)

        for i, value in enumerate(y):
            at = mp.mpf(float(value))
            room = at if name != "logit" else min(at, 1 - at)
            h = room * mp.mpf(10) ** -12
            left, middle, right = logp(at - h), logp(at), logp(at + h)
            grad, curv = (right - left) / (2 * h), (right - 2 * middle + left) / h**2
            assert jet.logp[i] == pytest.approx(float(middle), rel=1e-12)
            assert jet.grad[i, 0] == pytest.approx(float(grad), rel=1e-11)
            assert jet.curv[i, 0] == pytest.approx(float(curv), rel=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name):
    transform, y = get_transform(name), outcomes(name)
    z = transform.forward(y)
    np.testing.assert_allclose(z, [float(MPMATH[name](v)) for v in y], rtol=1e-12, atol=1e-15)
    assert (np.diff(z) > 0).all()
    np.testing.assert_allclose(transform.backward(z), y, rtol=1e-13)


def test_log10_is_exact_at_powers_of_ten():
    transform = get_transform("log10")
    assert transform.forward(np.array([1e3])).item() == 3.0
    assert transform.backward(np.array([3.0])).item() == 1e3


@pytest.mark.parametrize(
    ("name", "family", "p"),
    [
        ("log", "student_t", {"nu": 5.0, "mu": 0.3, "sigma": 0.5}),
        ("log10", "normal", {"mu": 0.3, "sigma": 0.4}),
        ("logit", "normal", {"mu": 0.3, "sigma": 1.8}),
        ("logit", "gumbel", {"mu": -0.3, "beta": 0.7}),
        ("sqrt", "lognormal", {"mu": 0.3, "sigma": 0.5}),
        ("sqrt", "gamma", {"alpha": 3.5, "beta": 2.0}),
    ],
)
def test_density_integrates_to_one(name, family, p):
    transform = get_transform(name)
    # In pieces between images of z, so that quad meets no long empty stretch.
    low, high = FAMILIES[family].support[0], 30.0
    knots = transform.backward(np.linspace(max(low, -30.0), high, 61))
    knots = np.unique(np.concatenate([knots, [transform.domain[0]]]))

    def density(y):
        y = np.float64(y)
        return float(np.exp(transform.logp(y, FAMILIES[family].logp(transform.forward(y), p))))

    total = sum(quad(density, a, b)[0] for a, b in pairwise(knots))
    assert total == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_parts_agree_with_the_jet_and_broadcast(name):
    rng = np.random.default_rng(0)
    transform, y = get_transform(name), outcomes(name)[1:6]
    p = {"mu": rng.normal(size=(4, 1)), "sigma": rng.uniform(0.5, 2, (4, 5))}
    family, z = FAMILIES["normal"], transform.forward(y)
    jet = bring(name, family, y, p)
    assert jet.logp.shape == (4, 5)
    assert jet.grad.shape == jet.curv.shape == (4, 5, 1)
    np.testing.assert_array_equal(transform.logp(y, family.logp(z, p)), jet.logp)
    grad, curv = transform.derivatives(y, *family.derivatives(z, p))
    np.testing.assert_array_equal(grad, jet.grad[..., 0])
    np.testing.assert_array_equal(curv, jet.curv[..., 0])


@pytest.mark.parametrize("name", NAMES)
def test_vector_outcome_with_independent_components(name):
    # Independent components: the log densities add up and the derivatives stand side by side.
    y = np.stack([outcomes(name)[1:6], outcomes(name)[5:0:-1]], axis=-1)
    mu, sd = np.array([0.3, -0.4]), np.array([0.8, 1.5])
    vector = bring(name, FAMILIES["mv_normal"], y, {"mu": mu, "chol": np.diag(sd)})
    single = [
        bring(name, FAMILIES["normal"], y[:, j], {"mu": mu[j], "sigma": sd[j]}) for j in range(2)
    ]
    assert isinstance(vector, Jet)
    np.testing.assert_allclose(vector.logp, single[0].logp + single[1].logp, rtol=1e-12)
    for part in ("grad", "curv"):
        columns = np.concatenate([getattr(jet, part) for jet in single], axis=-1)
        np.testing.assert_allclose(getattr(vector, part), columns, rtol=1e-11)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "exp"])
def test_outside_the_domain(name):
    y = np.array([-1.0, 0.0, 0.5, 1.0, 2.0])
    dead = y <= 0
    if name == "logit":
        dead |= y >= 1
    jet = bring(name, FAMILIES["normal"], y, NORMAL)
    np.testing.assert_array_equal(jet.logp == -np.inf, dead)
    np.testing.assert_array_equal(np.isnan(jet.grad[:, 0]), dead)
    np.testing.assert_array_equal(np.isnan(jet.curv[:, 0]), dead)
    pair = np.array([[0.5, 0.5], [0.5, -1.0]])
    jet = bring(name, FAMILIES["mv_normal"], pair, {"mu": np.zeros(2), "cov": np.eye(2)})
    np.testing.assert_array_equal(np.isneginf(jet.logp), [False, True])


# Edges


def slope(name, family, p, at, side, distance):
    """Log-log slope of the density in y at a distance from a finite edge."""
    y = at + side * distance * np.array([1.0, 4.0])
    logp = bring(name, family, y, p).logp
    return (logp[1] - logp[0]) / np.log(4)


def edges(name, family, p):
    ranges = {key: Range(float(np.min(v)), float(np.max(v))) for key, v in p.items()}
    return get_transform(name).edges(family.edges(ranges))


@pytest.mark.parametrize(
    ("name", "family", "p", "at", "side", "order"),
    [
        ("log", "logistic", {"mu": 0.3, "s": 0.4}, 0.0, 1, 1 / 0.4 - 1),
        ("log", "logistic", {"mu": 0.3, "s": 2.0}, 0.0, 1, -0.5),
        ("log10", "logistic", {"mu": 0.3, "s": 0.2}, 0.0, 1, 5 / np.log(10) - 1),
        ("logit", "logistic", {"mu": 0.3, "s": 0.3}, 0.0, 1, 1 / 0.3 - 1),
        ("logit", "logistic", {"mu": 0.3, "s": 0.3}, 1.0, -1, 1 / 0.3 - 1),
        ("logit", "gumbel", {"mu": 0.3, "beta": 0.5}, 1.0, -1, 1.0),
        ("logit", "gamma", {"alpha": 2.5, "beta": 1.5}, 0.5, 1, 1.5),
        ("log", "gamma", {"alpha": 2.5, "beta": 1.5}, 1.0, 1, 1.5),
        ("log10", "beta", {"alpha": 2.5, "beta": 1.5}, 10.0, -1, 0.5),
        ("sqrt", "gamma", {"alpha": 3.5, "beta": 1.5}, 0.0, 1, 0.75),
        ("sqrt", "normal", {"mu": 1.0, "sigma": 1.5}, 0.0, 1, -0.5),
        ("sqrt", "beta", {"alpha": 2.5, "beta": 1.5}, 1.0, -1, 0.5),
    ],
)
def test_finite_edges_against_the_density(name, family, p, at, side, order):
    found = {edge.at: edge.order for edge in edges(name, FAMILIES[family], p)}
    assert found[at] == pytest.approx(order, rel=1e-12)
    # The density of z at √y sees the distance √t, so sqrt converges at half the pace.
    near = 1e-13 if at == 0.0 else 1e-9
    assert slope(name, FAMILIES[family], p, at, side, near) == pytest.approx(order, abs=3e-5)


def test_other_edges():
    heavy, light = FAMILIES["student_t"], FAMILIES["normal"]
    t, n = {"nu": 3.0, "mu": 0.0, "sigma": 1.0}, {"mu": 0.0, "sigma": 1.0}
    assert edges("log", light, n) == (Edge(0.0, np.inf), Edge(np.inf, 0.0))
    assert edges("log", heavy, t) == (Edge(0.0, -1.0), Edge(np.inf, 0.0))
    assert edges("log10", light, n) == (Edge(0.0, np.inf), Edge(np.inf, 0.0))
    assert edges("logit", light, n) == (Edge(0.0, np.inf), Edge(1.0, np.inf))
    assert edges("logit", heavy, t) == (Edge(0.0, -1.0), Edge(1.0, -1.0))
    assert edges("sqrt", FAMILIES["lognormal"], n) == (Edge(0.0, np.inf), Edge(np.inf, 0.0))
    assert get_transform("sqrt").edge(Edge(-0.5, 2.0)) == Edge(0.0, -0.5)
    assert get_transform("sqrt").edge(Edge(3.0, 2.0)) == Edge(9.0, 2.0)
    assert edges("exp", light, n) == (Edge(-np.inf, 1.0), Edge(np.inf, np.inf))
    assert edges("exp", heavy, t) == (Edge(-np.inf, 1.0), Edge(np.inf, 0.0))
    assert get_transform("exp").edge(Edge(0.0, 1.5)) == Edge(-np.inf, 2.5)
    assert get_transform("exp").edge(Edge(1.0, 1.5)) == Edge(0.0, 1.5)


def test_exp_undoes_log():
    # A normal model of z, seen on the scale of y = exp(z), and brought back to that of z.
    z = np.array([-3.0, 0.2, 2.0])
    on_y = bring("log", FAMILIES["normal"], np.exp(z), NORMAL)
    back, want = changed(get_transform("exp"), z, on_y), FAMILIES["normal"].jet(z, NORMAL)
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(back, part), getattr(want, part), rtol=1e-12)


def test_edges_that_fall_together_keep_the_worst():
    family = mixture(["gamma", "normal"])
    ranges = {"0.alpha": Range(3.0, 3.0), "0.beta": Range(1.0, 1.0)}
    # The gamma alone would have order 1/2; the normal does not vanish at z = 0.
    found = get_transform("sqrt").edges(family.edges(ranges))
    assert found == (Edge(0.0, -0.5), Edge(np.inf, 0.0))


def test_names():
    assert NAMES == ["exp", "log", "log10", "logit", "sqrt"]
    with pytest.raises(UnknownNameError, match="Did you mean 'logit'"):
        get_transform("logitt")
