"""The weighted Hyvärinen score, for outcomes that are positive or between bounds."""

from __future__ import annotations

import json
import warnings

import mpmath as mp
import numpy as np
import pytest
from scipy import optimize, stats

import lockquack as lq
from lockquack.errors import (
    EdgeError,
    EdgeWarning,
    LockquackWarning,
    ParameterError,
    ScaleError,
    SupportError,
    UnknownNameError,
)
from lockquack.families import FAMILIES, Edge
from lockquack.methods.examine import _pooled_order
from lockquack.methods.gather import gather
from lockquack.operators import Linear, Locking, Superposition
from lockquack.operators.pool import Pool
from lockquack.remarks.support import SlowEdge
from lockquack.rules import RULES, Hyvarinen, LogScore, PairwiseScore, get_rule
from lockquack.rules.base import Pooled


def fitted(models, operator, rule, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return lq.combine(models, operator, rule, **options)


def scores(rule, name, y, **parameters):
    """Scores, by the rule, of a density without uncertain parameters."""
    y = np.asarray(y, dtype=float)
    model = lq.from_family(name, y=y, **{k: np.full((1, 1), v) for k, v in parameters.items()})
    jets = gather({"m": model}, Linear(), rule, "held-out").densities.jets
    return rule.score(Pooled(jets[0], {}))


# The formula

Y = np.array([0.03, 0.2, 0.5, 0.71, 0.96])


def weight(transform, bounds, y):
    """h and h' as written: y² or [(y − a)(b − y)/(b − a)]²."""
    if transform == "log":
        return y**2, 2 * y
    a, b = bounds
    root = (y - a) * (b - y) / (b - a)
    return root**2, 2 * root * (a + b - 2 * y) / (b - a)


CASES = [
    ("log", None, "gamma", {"alpha": 1.3, "beta": 2.0}),
    ("log", None, "exponential", {"lam": 0.7}),
    ("log", None, "lognormal", {"mu": 0.2, "sigma": 0.9}),
    ("logit", (0.0, 1.0), "beta", {"alpha": 0.6, "beta": 2.5}),
    ("logit", None, "beta", {"alpha": 3.0, "beta": 0.9}),
    ("logit", (-1.0, 2.0), "normal", {"mu": 0.4, "sigma": 0.8}),
]


@pytest.mark.parametrize(("transform", "bounds", "name", "parameters"), CASES)
def test_the_score_by_hand(transform, bounds, name, parameters):
    rule = Hyvarinen(scale=1.0, transform=transform, bounds=bounds)
    jet = FAMILIES[name].jet(Y, {k: np.float64(v) for k, v in parameters.items()})
    h, slope = weight(transform, bounds or (0.0, 1.0), Y)
    grad, curv = jet.grad[:, 0], jet.curv[:, 0]
    by_hand = -(2 * slope * grad + 2 * h * curv + h * grad**2)
    np.testing.assert_allclose(scores(rule, name, Y, **parameters), by_hand, rtol=1e-12)


def of_transformed(name, parameters, transform, bounds, y):
    """Plain H of the density of z = t(y), by differentiating it numerically."""
    family = {
        "gamma": lambda v: (parameters["alpha"] - 1) * mp.log(v) - parameters["beta"] * v,
        "lognormal": lambda v: (
            -(((mp.log(v) - parameters["mu"]) / parameters["sigma"]) ** 2) / 2 - mp.log(v)
        ),
        "beta": lambda v: (
            (parameters["alpha"] - 1) * mp.log(v) + (parameters["beta"] - 1) * mp.log(1 - v)
        ),
        "normal": lambda v: -(((v - parameters["mu"]) / parameters["sigma"]) ** 2) / 2,
    }[name]
    a, b = bounds or (0.0, 1.0)

    def back(z):
        return mp.exp(z) if transform == "log" else a + (b - a) / (1 + mp.exp(-z))

    def logp(z):
        return family(back(z)) + mp.log(mp.diff(back, z))

    with mp.workdps(40):
        z = mp.log(y) if transform == "log" else mp.log((y - a) / (b - y))
        first, second = mp.diff(logp, z), mp.diff(logp, z, 2)
        return float(2 * second + first**2)


@pytest.mark.parametrize(
    ("transform", "bounds", "one", "other"),
    [
        (
            "log",
            None,
            ("gamma", {"alpha": 1.3, "beta": 2.0}),
            ("lognormal", {"mu": 0.2, "sigma": 0.9}),
        ),
        (
            "logit",
            None,
            ("beta", {"alpha": 0.6, "beta": 2.5}),
            ("beta", {"alpha": 3.0, "beta": 0.9}),
        ),
        (
            "logit",
            (-1.0, 2.0),
            ("normal", {"mu": 0.4, "sigma": 0.8}),
            ("normal", {"mu": -0.4, "sigma": 1.5}),
        ),
    ],
)
def test_models_differ_as_they_do_on_the_transformed_scale(transform, bounds, one, other):
    rule = Hyvarinen(scale=1.0, transform=transform, bounds=bounds)
    difference = scores(rule, one[0], Y, **one[1]) - scores(rule, other[0], Y, **other[1])
    exact = [
        of_transformed(*other, transform, bounds, y) - of_transformed(*one, transform, bounds, y)
        for y in Y
    ]
    np.testing.assert_allclose(difference, exact, rtol=1e-9)


@pytest.mark.parametrize("operator", ["locking", "linear", "superposition"])
def test_fits_are_those_of_the_plain_score_on_the_transformed_scale(rng, operator):
    y = rng.gamma(3.0, 1.0, size=50)
    draws = 0.03 * rng.normal(size=(4, 50))
    weighted = fitted(
        {
            "gamma": lq.from_family("gamma", y=y, alpha=2.5 + draws, beta=1.0),
            "lognormal": lq.from_family("lognormal", y=y, mu=1.2 + draws, sigma=0.8),
        },
        operator,
        Hyvarinen(transform="log"),
    )
    plain = fitted(
        {
            "gamma": lq.from_family(
                "gamma", y=np.log(y), alpha=2.5 + draws, beta=1.0, transform="exp"
            ),
            "lognormal": lq.from_family("normal", y=np.log(y), mu=1.2 + draws, sigma=0.8),
        },
        operator,
        Hyvarinen(),
    )
    np.testing.assert_allclose(weighted.weights, plain.weights, atol=1e-6)
    # Scores are the same up to what no model can change, outcome by outcome.
    apart = weighted.pointwise.values - plain.pointwise.values
    np.testing.assert_allclose(apart, np.broadcast_to(apart[0], apart.shape), atol=1e-7)
    if operator == "locking":
        np.testing.assert_allclose(weighted.mcse, plain.mcse, rtol=1e-8)


def test_each_component_of_a_vector_is_weighted(rng):
    # Independent components: the score of a log-normal vector is the sum of their scores.
    z = rng.normal(size=(6, 2))
    model = lq.from_family(
        "mv_normal", y=np.exp(z), mu=np.zeros((1, 1, 2)), cov=np.diag([1.0, 4.0]), transform="log"
    )
    rule = Hyvarinen(scale=[1.0, 3.0], transform="log")
    jets = gather({"m": model}, Linear(), rule, "held-out").densities.jets
    got = rule.score(Pooled(jets[0], {}))
    parts = [
        s**2 * scores(Hyvarinen(1.0, "log"), "lognormal", np.exp(z[:, j]), mu=0.0, sigma=sd)
        for j, (s, sd) in enumerate(((1.0, 1.0), (3.0, 2.0)))
    ]
    np.testing.assert_allclose(got, sum(parts), rtol=1e-10)


# Units


def test_the_unit_is_the_spread_of_the_transformed_outcome(rng):
    y = rng.gamma(2.0, size=(30, 1))
    assert Hyvarinen(transform="log").unit(y) == pytest.approx(np.log(y).std(ddof=1))
    u = rng.beta(2.0, 3.0, size=(30, 1))
    assert Hyvarinen(transform="logit").unit(u) == pytest.approx(np.log(u / (1 - u)).std(ddof=1))
    wide = Hyvarinen(transform="logit", bounds=(-1, 3))
    assert wide.unit(4 * u - 1) == pytest.approx(np.log(u / (1 - u)).std(ddof=1))
    assert Hyvarinen(scale=2.5, transform="log").unit(y) == 2.5
    with pytest.raises(ScaleError, match="does not vary"):
        Hyvarinen(transform="log").unit(np.ones((5, 1)))


@pytest.mark.parametrize("factor", [1e-4, 1e5])
def test_units_of_a_positive_outcome_do_not_matter(factor):
    def fit(units):
        rng = np.random.default_rng(3)
        y = rng.exponential(2.0, size=40)
        rate = np.exp(0.1 * rng.normal(size=(4, 50)))
        return fitted(
            {
                "a": lq.from_family("exponential", y=units * y, lam=0.3 * rate / units),
                "b": lq.from_family("exponential", y=units * y, lam=1.5 * rate / units),
            },
            "locking",
            Hyvarinen(transform="log"),
        )

    one, other = fit(1.0), fit(factor)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-7)
    np.testing.assert_allclose(one.pointwise, other.pointwise, rtol=1e-7)


# Propriety


def exponentials(rng, rates, n=200):
    y = rng.exponential(1.0, size=n)
    wobble = np.exp(0.01 * rng.normal(size=(4, 25)))
    return {f"{rate:g}": lq.from_family("exponential", y=y, lam=rate * wobble) for rate in rates}


def test_the_plain_score_of_exponentials_is_refused(rng):
    models = exponentials(rng, [0.5, 1.0, 2.0])
    for rule in (Hyvarinen(transform=None), Hyvarinen(transform="sqrt")):
        with pytest.raises(EdgeError, match=r"Hyvarinen\(transform='log'\)"):
            lq.lock(models, rule=rule)


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
def test_the_expected_score_of_exponentials_is_best_at_the_true_rate(true):
    # Gauss-Laguerre quadrature is exact for scores that are polynomials in y.
    nodes, mass = np.polynomial.laguerre.laggauss(20)

    def expected(rate):
        return mass @ scores(Hyvarinen(1.0, "log"), "exponential", nodes / true, lam=rate)

    rates = true * np.array([0.5, 0.9, 1.0, 1.1, 2.0])
    values = [expected(rate) for rate in rates]
    assert int(np.argmax(values)) == 2
    # In closed form it is 4 λ/λ₀ − 2 λ²/λ₀².
    np.testing.assert_allclose(values, 4 * rates / true - 2 * (rates / true) ** 2, atol=1e-6)


def test_a_fit_of_exponentials_has_the_closed_form(rng):
    # Locked exponentials are exponential with rate Σ w λ; the best is 2 Σ y / Σ y².
    models = exponentials(rng, [0.25, 0.5, 2.0, 4.0], n=400)
    fit = fitted(models, "locking", Hyvarinen(transform="log"), prior=1.0)
    y = models["2"].observations.values
    rate = float((fit.weights * [0.25, 0.5, 2.0, 4.0]).sum())
    assert rate == pytest.approx(2 * y.sum() / np.square(y).sum(), rel=0.01)
    assert rate == pytest.approx(1.0, abs=0.25)


def test_a_mixture_of_exponentials_is_mostly_the_true_one(rng):
    models = exponentials(rng, [0.2, 1.0, 5.0], n=400)
    fit = fitted(models, "linear", Hyvarinen(transform="log"))
    assert fit.weights.sel(model="1") > 0.8


def best_parameters(pdf, support, rule, name, start):
    """Parameters of a family with the best expected score under a density."""
    nodes, mass = np.polynomial.legendre.leggauss(400)
    # Mapped so that dy goes like the cube of the distance at both ends, where densities diverge.
    low, high = support
    t = (nodes + 1) / 2
    smooth = t**4 * (35 - 84 * t + 70 * t**2 - 20 * t**3)
    slope = 140 * t**3 * (1 - t) ** 3
    y = low + (high - low) * smooth
    w = pdf(y) * mass / 2 * slope * (high - low)
    keep = (y > low) & (y < high)

    def minus(parameters):
        alpha, beta = np.exp(parameters)
        return -(w[keep] @ scores(rule, name, y[keep], alpha=alpha, beta=beta))

    found = optimize.minimize(minus, np.log(start), method="Nelder-Mead", options={"xatol": 1e-6})
    return np.exp(found.x)


@pytest.mark.parametrize("shape", [0.7, 1.5])
def test_the_expected_score_of_gammas_is_best_at_the_truth(shape):
    truth = stats.gamma(shape, scale=1 / 2.0)
    rule = Hyvarinen(1.0, "log")
    best = best_parameters(truth.pdf, (0.0, 25.0), rule, "gamma", [3.0, 1.0])
    np.testing.assert_allclose(best, [shape, 2.0], rtol=1e-3)


@pytest.mark.parametrize("shapes", [(0.6, 1.7), (2.0, 3.0)])
def test_the_expected_score_of_betas_is_best_at_the_truth(shapes):
    rule = Hyvarinen(1.0, "logit")
    best = best_parameters(stats.beta(*shapes).pdf, (0.0, 1.0), rule, "beta", [1.0, 1.0])
    np.testing.assert_allclose(best, shapes, rtol=1e-3)


def test_gammas_of_small_shape_and_betas_are_fitted(rng):
    y = rng.gamma(1.5, 1.0, size=300)
    wobble = np.exp(0.01 * rng.normal(size=(4, 25)))
    models = {
        "true": lq.from_family("gamma", y=y, alpha=1.5 * wobble, beta=1.0),
        "steep": lq.from_family("gamma", y=y, alpha=0.5 * wobble, beta=0.4),
    }
    with pytest.raises(EdgeError, match="distance"):
        lq.lock(models, rule=Hyvarinen(transform=None))
    assert fitted(models, "locking", Hyvarinen(transform="log")).weights.sel(model="true") > 0.9
    u = rng.beta(0.7, 1.5, size=300)
    models = {
        "true": lq.from_family("beta", y=u, alpha=0.7 * wobble, beta=1.5),
        "flat": lq.from_family("beta", y=u, alpha=1.0 * wobble, beta=1.0),
    }
    with pytest.raises(EdgeError, match="'logit' for bounded"):
        lq.lock(models, rule=Hyvarinen(transform=None))
    assert fitted(models, "locking", Hyvarinen(transform="logit")).weights.sel(model="true") > 0.8


@pytest.mark.parametrize(
    ("transform", "at", "borne_from"),
    [
        (None, 0.0, 1.0),
        ("log", 0.0, -1.0),
        ("log10", 0.0, -1.0),
        ("sqrt", 0.0, 0.0),
        ("logit", 0.0, -1.0),
        ("logit", 1.0, -1.0),
        ("log", 1.0, 1.0),
    ],
)
def test_edges_that_the_score_bears(transform, at, borne_from):
    # q h ∂ log q goes like the distance to the power order + 2 (or 1, or 0) − 1.
    rule = Hyvarinen(transform=transform)
    assert rule.is_proper_at(Edge(at, borne_from + 0.01))
    assert not rule.is_proper_at(Edge(at, borne_from - 0.01))
    assert rule.is_proper_at(Edge(np.inf, 0.0))


def test_rounding_makes_no_edge(rng):
    """Student's t of log y goes like 1/y at 0, a limit that pools of such models keep exactly."""
    y = rng.gamma(3.0, size=8)
    models = {"exponential": lq.from_family("exponential", y=y, lam=5 + rng.random((2, 20)))}
    for name, mu in (("a", 0.9), ("b", 1.0)):
        draws = mu + 0.1 * rng.normal(size=(2, 20))
        models[name] = lq.from_family(
            "student_t", y=y, transform="log", nu=5.0, mu=draws, sigma=0.5
        )
    by = {"x": rng.normal(size=8)}
    one, other = (
        fitted(models, "locking", Hyvarinen(), prior=1.0, **more)
        for more in ({}, {"by": by, "shrinkage": np.inf})
    )
    np.testing.assert_allclose(other.weights.isel(obs_id=0), one.weights, atol=1e-6)
    for w in rng.dirichlet(np.ones(3), size=50):
        assert _pooled_order([-1.0, -1.0, -1.0], Pool(Locking(), w[:, None], 3)) == -1.0


def test_slow_edges_are_noted_unless_weighted(rng):
    y = rng.gamma(3.0, 1.0, size=60)
    models = {"gamma": lq.from_family("gamma", y=y, alpha=np.full((4, 25), 3.0), beta=1.0)}
    plain = fitted(models, "locking", Hyvarinen(transform=None))
    assert SlowEdge((0.0,)) in plain.remarks
    weighted = fitted(models, "locking", Hyvarinen(transform="log"))
    assert not [remark for remark in weighted.remarks if remark.category is EdgeWarning]


def test_the_weight_must_vanish_where_the_models_end(rng):
    # Both end at 0, where the weight of log vanishes, and that of logit from 0.25 does not.
    y = 0.5 + rng.gamma(4.0, 1.0, size=60)
    draws = np.full((4, 25), 1.0)
    models = {
        "half": lq.from_family("half_normal", y=y, sigma=4.0 * draws),
        "gamma": lq.from_family("gamma", y=y, alpha=0.5 * draws, beta=0.1),
    }
    fit = fitted(models, "linear", Hyvarinen(transform="log"))
    assert fit.solution.converged
    with pytest.raises(EdgeError, match="half_normal"):
        fitted(models, "linear", Hyvarinen(transform="logit", bounds=(0.25, 100.0)))


# Monte Carlo errors


@pytest.mark.parametrize("kind", ["loo", "held-out"])
def test_monte_carlo_errors_agree_with_replications(kind):
    data = np.random.default_rng(4)
    y = data.gamma(1.5, 1.0, size=15)
    rule = Hyvarinen(transform="log")

    def replicate(seed):
        draws = np.random.default_rng([seed, 1]).normal(size=(2, 2, 100))
        model = lq.from_family(
            "gamma", y=y, alpha=np.exp(0.4 + 0.2 * draws[0]), beta=np.exp(0.2 * draws[1])
        )
        fit = fitted({"gamma": model}, Locking(), rule, scores=kind)
        return float(fit.pointwise.values[1].sum()), float(fit.mcse[0])

    totals, errors = np.array([replicate(seed) for seed in range(120)]).T
    assert np.median(errors) == pytest.approx(totals.std(ddof=1), rel=0.3)


# Options


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"transform": "lgo"}, UnknownNameError, "Did you mean 'log'"),
        ({"transform": 3}, ParameterError, "a name or None"),
        ({"bounds": (0, 1)}, ParameterError, "belong to transform='logit'"),
        ({"transform": "log", "bounds": (0, 1)}, ParameterError, "belong to transform='logit'"),
        ({"transform": "logit", "bounds": (1, 0)}, ParameterError, "the lower first"),
        ({"transform": "logit", "bounds": (0, np.inf)}, ParameterError, "the lower first"),
        ({"transform": "logit", "bounds": 3}, ParameterError, "two numbers"),
        ({"transform": "logit", "bounds": "ab"}, ParameterError, "bounds"),
        ({"scale": [[1.0]]}, ScaleError, "one per component"),
    ],
)
def test_bad_options_say_why(options, error, message):
    with pytest.raises(error, match=message):
        Hyvarinen(**options)


@pytest.mark.parametrize(
    ("transform", "y"), [("log", [0.5, -1.0, 2.0]), ("log", [0.0, 1.0]), ("logit", [0.2, 1.0])]
)
def test_outcomes_must_lie_where_the_transform_is_defined(transform, y):
    model = lq.from_family("normal", y=y, mu=np.full((4, 25), 0.5), sigma=1.0)
    with pytest.raises(SupportError, match=f"transform '{transform}'"):
        lq.lock({"m": model}, rule=Hyvarinen(transform=transform))


@pytest.mark.parametrize(
    "rule",
    [
        *(kind() for kind in RULES.values()),
        Hyvarinen(scale=[1, 2.5]),
        Hyvarinen(transform="log"),
        Hyvarinen(np.float32(2.0), "logit", (0, 5)),
    ],
    ids=repr,
)
def test_rules_are_made_again_from_their_options(rule):
    again = type(rule).from_options(json.loads(json.dumps(rule.options)))
    assert again == rule
    assert hash(again) == hash(rule)
    assert get_rule(rule) is rule
    assert type(get_rule(rule.name)) is type(get_rule(type(rule))) is type(rule)
    assert eval(repr(rule), {kind.__name__: kind for kind in RULES.values()}) == rule


def test_an_unknown_rule_suggests_another():
    with pytest.raises(UnknownNameError, match="Did you mean 'hyvarinen'"):
        get_rule("hyvarinnen")


def test_what_rules_need_says_what_they_use():
    assert Hyvarinen().needs_derivatives
    assert LogScore().needs_normaliser
    assert PairwiseScore().is_for_discrete
    assert not Hyvarinen(transform="log").needs_density


def test_superposition_is_capped_for_the_weighted_score_too(rng):
    models = exponentials(rng, [0.5, 2.0], n=40)
    fit = fitted(models, Superposition(), Hyvarinen(transform="log"))
    assert fit.operator == Superposition(capped=True)


def test_heavy_tails_of_the_logarithm_are_no_edge(rng):
    """On the line that log y is, Student's t is as smooth as any: the weights are those there."""
    z, mu = rng.standard_t(3, size=40), rng.normal(size=(4, 50)) / 6

    def models(y, transform):
        made = {"y": y, "transform": transform, "mu": mu, "sigma": 1.0}
        return {
            "t": lq.from_family("student_t", nu=3.0, **made),
            "normal": lq.from_family("normal", **made),
        }

    with pytest.raises(EdgeError, match="does not vanish smoothly at 0"):
        fitted(models(np.exp(z), "log"), Locking(), Hyvarinen(transform=None))
    of_log = fitted(models(np.exp(z), "log"), Locking(), Hyvarinen())
    assert of_log.rule.transform == "log"
    expected = fitted(models(z, None), Locking(), Hyvarinen()).weights
    np.testing.assert_allclose(of_log.weights, expected, atol=1e-8)
    assert 0.1 < expected[0] < 1.0
