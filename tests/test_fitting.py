"""Every operator by every rule against independent optimisers; what is noted of the results."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import optimize, stats

import lockquack as lq
from lockquack.errors import (
    ConvergenceWarning,
    EdgeError,
    ImproperError,
    LockquackWarning,
    UnsupportedError,
)
from lockquack.families import FAMILIES
from lockquack.fitting.convex import ConvexFitter
from lockquack.fitting.fitters import FITTERS, can_be_fitted
from lockquack.fitting.formulas import bootstrap_counts
from lockquack.fitting.identifiability import collinear
from lockquack.fitting.objective import Objective
from lockquack.fitting.smooth import SmoothFitter
from lockquack.jets import Jet
from lockquack.methods.examine import examine_solution, examine_tails
from lockquack.methods.gather import gather, in_units
from lockquack.methods.method import METHODS
from lockquack.operators import (
    AVERAGES,
    OPERATORS,
    Hoelder,
    Hybrid,
    Linear,
    Locking,
    Nested,
    Selection,
    Superposition,
    get_operator,
)
from lockquack.operators.pool import Pool
from lockquack.operators.space import Phases
from lockquack.quadrature.curves import curves_on_outcomes, curves_on_panels
from lockquack.quadrature.grid import Grid, Line
from lockquack.quadrature.nodes import Nodes
from lockquack.remarks.solver import SeveralOptima, StoppedEarly
from lockquack.remarks.support import NormaliserUnchecked
from lockquack.remarks.weights import ParameterAtBound
from lockquack.rules import RULES, Hyvarinen, LogScore
from lockquack.rules.wishes import DISTRIBUTION, INTEGRAL
from lockquack.solvers.base import Solution
from tests.helpers import beside_of, densities_of, pose_pair

N = 40
FIXED = [Superposition(phases=0), Hoelder(-1), Hoelder(0.3)]
# Operators with many parameters are fitted to two models, the others to three.
TWO = [Hybrid(), Hybrid(signed=True), Superposition(), Superposition(capped=True)]
THREE = [
    *(kind() for kind in OPERATORS.values() if kind() not in TWO),
    Locking("nonnegative"),
    *FIXED,
    Nested(Linear(), [(Nested(Locking(), [1, 0]), [0, 1]), 2]),
]
PAIRS = [
    *(
        ("density", rule, operator, K)
        for rule in ("log", "hyvarinen", "crps")
        for K, operators in ((2, TWO), (3, THREE))
        for operator in operators
    ),
    *(("counts", "pairwise", operator, 2) for operator in TWO),
    *(("counts", "pairwise", operator, 3) for operator in THREE if operator not in FIXED),
    *(
        ("counts", rule, operator, 2)
        for rule in ("log", "crps")
        for operator in map(get_operator, OPERATORS)
    ),
    *(("density", "energy", operator, 3) for operator in THREE if operator.normalised),
]


#: The support of normals, and outcomes around them.
WHOLE = (-np.inf, np.inf)
Y = np.random.default_rng(1).normal(0.3, 1.5, size=N)


def named(pair):
    kind, rule, operator, K = pair
    return f"{operator!r}-{rule}-{kind}-{K}"


def normals(K):
    return {
        "mu": np.array([[-1.0], [1.2], [0.4]])[:K],
        "sigma": np.array([[1.0], [1.4], [2.5]])[:K],
    }


def densities(rule, K, grid=33):
    """Normals around a normal outcome, which none of them fits."""
    y, p = Y, normals(K)
    jets = in_units(FAMILIES["normal"].jet(y[None], p), rule.unit(y[:, None]))
    places = np.linspace(-12, 12, grid)
    logp = np.repeat(FAMILIES["normal"].logp(places[None], p)[..., None], N, axis=2)
    nodes = Nodes(logp, np.full((grid, N), np.log(24 / (grid - 1))))
    return densities_of(jets, (nodes,), curves=[curves(y, p)])


def curves(y, p):
    """Distribution functions of normals, on panels that end at the outcomes."""
    line = Line(np.sort(np.column_stack([y, np.tile(np.linspace(-24, 24, 17), (N, 1))])), WHOLE)

    def components(at, rows):
        return np.stack([stats.norm(*each).logpdf(at) for each in zip(*p.values(), strict=True)])

    return curves_on_panels(Grid.lay(components, line, tails=False), y, y.std(ddof=1))


def counts(rule, K):
    """Distributions on 0, …, 12: every sum is finite, and both ends occur."""
    rng = np.random.default_rng(7)
    y = np.append([0, 12], rng.binomial(12, rng.beta(1.5, 2.5, size=N - 2)))
    each = [stats.binom(12, 0.3), stats.betabinom(12, 2, 2), stats.betabinom(12, 2, 4)][:K]

    def logp(at):
        return np.stack([one.logpmf(at) for one in each])

    nothing = np.empty((K, N, 0))
    everything = np.repeat(logp(np.arange(13))[..., None], N, axis=2)
    return densities_of(
        Jet(logp(y), nothing, nothing),
        (Nodes(everything, np.zeros((13, N))),),
        logp(np.stack([y - 1, y + 1])),
        [curves_on_outcomes(everything, np.arange(13.0), y, y.std(ddof=1))],
    )


def pose(pair, concentration=1.01, evidence=None):
    kind, name, operator, K = pair
    rule = RULES[name]()
    if rule.needs_derivatives:
        operator = operator.without_zeros()
    if evidence is None:
        evidence = (densities if kind == "density" else counts)(rule, K)
    prior = np.broadcast_to(np.asarray(concentration, dtype=float), (K,))
    return pose_pair(operator, rule, evidence, prior)


@cache
def solved(pair):
    problem = pose(pair)
    return problem, problem.solve()


def is_convex(pair):
    return isinstance(pose(pair), ConvexFitter)


CONVEX = [pair for pair in PAIRS if is_convex(pair)]


def somewhere(problem, rng, width=1.0):
    return problem.objective.space.natural(width * rng.normal(size=problem.objective.space.size))


@pytest.fixture(params=PAIRS, ids=named)
def pair(request):
    return request.param


searched = pytest.mark.parametrize(
    "pair", [p for p in PAIRS if not isinstance(p[2], Selection)], ids=named
)


# What is maximised is what is written


def test_every_registered_problem_is_tried():
    tried = {(type(operator), RULES[rule]) for _, rule, operator, _ in PAIRS}
    # Averages of quantiles are no pools of densities: tests/test_quantile_average.py.
    assert {pair for pair in FITTERS if pair[0] not in AVERAGES.values()} <= tried
    every = {(kind, rule) for kind in OPERATORS.values() for rule in RULES.values()}
    assert {(kind, rule) for kind, rule in every if can_be_fitted(kind(), rule())} <= tried


def energy_of_pool(pair, operator, evidence, x):
    """E|X − y| − E|X − X'| / 2, in units of the spread, by plain sums."""
    (table,) = evidence.tables[DISTRIBUTION]
    if pair[0] == "counts":
        outcomes = np.arange(13.0)
        mass = np.exp(operator.pool_density(evidence.tables[INTEGRAL][0].logp, x))
        mass /= mass.sum(axis=0)
        y = 13.0 - table.above.sum(axis=0)
        apart = np.abs(outcomes[:, None] - outcomes)
        energy = (np.abs(outcomes[:, None] - y) * mass).sum(axis=0)
        return (energy - (mass * (apart @ mass)).sum(axis=0) / 2) * table.length[0]
    places = np.linspace(-24, 24, 48_001)
    logp = FAMILIES["normal"].logp(places[None], normals(pair[3]))
    q = np.exp(operator.pool_density(logp, x))
    below = np.cumsum(q) / q.sum()
    away = (np.abs(places - Y[:, None]) * q).sum(axis=1) / q.sum()
    return (away - 0.001 * (below * (1 - below)).sum()) / Y.std(ddof=1)


def test_scores_are_those_of_the_written_rule(pair):
    problem, _ = solved(pair)
    operator, evidence = problem.objective.operator, problem.objective.densities
    for seed in range(3):
        x = somewhere(problem, np.random.default_rng(seed))
        at = operator.pool_density(evidence.jets.logp, x)
        if pair[1] == "log":
            nodes = evidence.tables.get(INTEGRAL, ())[0]
            mass = np.exp(operator.pool_density(nodes.logp, x) + nodes.log_measure).sum(axis=0)
            expected = at - (0.0 if operator.normalised else np.log(mass))
        elif pair[1] == "hyvarinen":
            jet = operator.pool(evidence.jets, x)
            expected = -(2 * jet.curv + jet.grad**2)[:, 0]
        elif pair[1] in ("crps", "energy"):
            expected = -energy_of_pool(pair, operator, evidence, x)
            got, precise = problem.objective.scores(x), pair[0] == "counts"
            # Sums over a fine grid; a pool that does not vanish at its ends is cut off there.
            rough = 1e-4 if operator.signed else 1e-7
            np.testing.assert_allclose(got, expected, rtol=rough, atol=1e-11 if precise else 1e-6)
            expected = got
        else:
            beside = operator.pool_density(beside_of(evidence), x)
            expected = -np.log1p(np.exp(beside - at)).sum(axis=0)
        np.testing.assert_allclose(problem.objective.scores(x), expected, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(problem.objective.expand(x)[0], expected, rtol=1e-11, atol=1e-11)
        total = -expected.sum() - problem.objective.space.log_prior(x)
        assert problem.value(x) == pytest.approx(total, rel=1e-11)


def test_slopes_match_finite_differences(pair):
    problem, _ = solved(pair)
    rng = np.random.default_rng(3)
    z, u = 0.7 * rng.normal(size=problem.objective.space.size), rng.random(N)
    for given in (None, u):
        value, slopes = problem.objective.expand_free(z, given)
        natural = problem.objective.space.natural(z)
        assert value == pytest.approx(problem.objective.value(natural, given))
        for j in range(z.size):
            step = 1e-5 * np.eye(z.size)[j]
            ahead, behind = (problem.objective.expand_free(z + s, given)[0] for s in (step, -step))
            slope = (ahead - behind) / 2e-5
            assert slopes[j] == pytest.approx(slope, rel=1e-6, abs=1e-6 * abs(value))


@pytest.mark.parametrize("pair", CONVEX, ids=named)
def test_slopes_and_bends_in_weights_match_finite_differences(pair):
    problem, _ = solved(pair)
    K, step = pair[3], 1e-5
    w = np.array([0.2, 0.5, 0.3])[:K]
    w /= w.sum()

    def total(at):
        return -problem.objective.scores(at).sum()

    for j, way in enumerate(step * np.eye(K)):
        # Rules of a normalised mixture hold off the simplex as well.
        slope = (total(w + way) - total(w - way)) / (2 * step)
        assert problem.weight_slopes(w)[j] == pytest.approx(slope, rel=1e-6, abs=1e-6)
        bend = (problem.weight_slopes(w + way) - problem.weight_slopes(w - way)) / (2 * step)
        np.testing.assert_allclose(2 * problem.half_hessian(w)[j], bend, rtol=1e-5, atol=1e-5)
    direction = np.append(np.full(K - 1, 1 / (K - 1)), -1.0)
    line = [total(w + t * direction) for t in np.linspace(-0.2, 0.2, 500)]
    got = problem.score_range(w, direction, -0.2, 0.2)
    assert got == pytest.approx(np.ptp(line), rel=2e-2)
    flat = problem.flat_directions(w, np.ones(K, dtype=bool))
    np.testing.assert_allclose(flat.sum(axis=1), 0.0, atol=1e-10)


# Solutions


def elsewhere(problem, tries=3):
    """The lowest objective that scipy finds from starts of its own."""
    rng = np.random.default_rng(11)
    best = np.inf
    for _ in range(tries):
        start = 1.5 * rng.normal(size=problem.objective.space.size)
        with np.errstate(all="ignore"):
            if not np.isfinite(problem.objective.expand_free(start)[0]):
                continue
            end = optimize.minimize(
                problem.objective.expand_free, start, jac=True, method="L-BFGS-B"
            )
        best = min(best, float(end.fun))
    return best


def rewards_kinks(pair):
    """Hölder pools of large order have kinks, which the Hyvärinen score rewards."""
    return pair[1] == "hyvarinen" and pair[2] == Hoelder()


@pytest.mark.parametrize(
    "pair",
    [p for p in PAIRS if not isinstance(p[2], Selection) and not rewards_kinks(p)],
    ids=named,
)
def test_no_other_parameters_score_better(pair):
    problem, solution = solved(pair)
    assert solution.converged
    assert problem.value(solution.x) == pytest.approx(float(solution.objective), rel=1e-12)
    allowed = float(solution.objective) - 1e-8 * float(solution.scale)
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        others = [problem.value(somewhere(problem, rng, 1.5)) for _ in range(200)]
    assert np.nanmin(others) >= allowed
    assert elsewhere(problem) >= allowed


@searched
def test_slopes_vanish(pair):
    problem, solution = solved(pair)
    _, slopes = problem.objective.expand_free(problem.objective.space.free(solution.x))
    for block, part in problem.objective.space.parts(slopes):
        if not isinstance(block, Phases):  # which may be at their cap
            assert np.abs(part).max() <= 1e-7 * float(solution.scale)
    if isinstance(problem, SmoothFitter):
        assert solution.stationarity <= 1e-7


@searched
def test_fitting_again_to_the_same_data_changes_nothing(pair):
    problem, solution = solved(pair)
    again = problem.refit(np.ones(N), solution.x)
    (together,) = problem.refit_many(np.ones((1, N)), solution.x)
    for x in (again, together):
        np.testing.assert_allclose(
            problem.objective.weights(x), problem.objective.weights(solution.x), atol=1e-6
        )
        np.testing.assert_allclose(
            problem.objective.scores(x), problem.objective.scores(solution.x), atol=1e-5
        )


@searched
def test_many_countings_at_once_are_those_one_by_one(pair):
    problem, solution = solved(pair)
    rng = np.random.default_rng(13)
    mild = 1 + 0.2 * (bootstrap_counts(rng, 2, N) - 1)
    together = problem.refit_many(mild, solution.x)
    one_by_one = [problem.refit(u, solution.x) for u in mild]
    for a, b in zip(together, one_by_one, strict=True):
        np.testing.assert_allclose(
            problem.objective.weights(a), problem.objective.weights(b), atol=1e-4
        )


@searched
def test_no_replicate_is_worse_than_the_solution_it_began_with(pair):
    problem, solution = solved(pair)
    drawn = bootstrap_counts(np.random.default_rng(14), 4, N)
    for u, x in zip(drawn, problem.refit_many(drawn, solution.x), strict=True):
        before, after = problem.objective.value(solution.x, u), problem.objective.value(x, u)
        assert after <= before + 1e-9 * float(solution.scale)
        if is_convex(pair):
            best = problem.refit(u, solution.x)
            np.testing.assert_allclose(x, best, atol=1e-5)


def ordered(pair, order):
    """The same problem with the models in another order."""
    return pose(pair).objective.densities.of(np.asarray(order))


@pytest.mark.parametrize("pair", [*CONVEX, *(p for p in PAIRS if p[2] == Selection())], ids=named)
def test_permuting_models_permutes_weights(pair):
    _, solution = solved(pair)
    order = np.roll(np.arange(pair[3]), 1)
    other = pose(pair, evidence=ordered(pair, order)).solve()
    np.testing.assert_allclose(other.x, solution.x[order], atol=1e-8)


@pytest.mark.parametrize(
    "pair",
    [
        (kind, rule, operator, 2)
        for kind, rule in (("density", "log"), ("density", "hyvarinen"), ("counts", "pairwise"))
        for operator in (Linear(), Superposition(), Hoelder(0.3), Hoelder(-1))
        if (operator, rule) != (Linear(), "log")
    ],
    ids=named,
)
def test_the_order_of_models_does_not_matter(pair):
    one, other = pose(pair).solve(), pose(pair, evidence=ordered(pair, [1, 0])).solve()
    assert min(one.starts[0], other.starts[0]) >= 2
    assert other.objective == pytest.approx(float(one.objective), rel=1e-6)


@pytest.mark.parametrize("shift", [-800.0, 800.0])
@pytest.mark.parametrize(
    "pair",
    [p for p in PAIRS if "signed" not in repr(p[2]) and "nonneg" not in repr(p[2])],
    ids=named,
)
def test_densities_up_to_a_constant_are_enough(pair, shift):
    problem, solution = solved(pair)
    evidence = problem.objective.densities
    moved = replace(
        evidence,
        jets=replace(evidence.jets, logp=evidence.jets.logp + shift),
        tables={
            wish: tuple(replace(each, logp=each.logp + shift) for each in tables)
            for wish, tables in evidence.tables.items()
        },
    )
    other = pose(pair, evidence=moved)
    if is_convex(pair) or isinstance(pair[2], Selection):
        np.testing.assert_allclose(other.solve().x, solution.x, atol=1e-8)
        return
    z = problem.objective.space.free(solution.x) + 0.1
    np.testing.assert_allclose(
        other.objective.expand_free(z)[1], problem.objective.expand_free(z)[1], rtol=1e-6, atol=1e-7
    )


def test_agreement_of_starts_is_reported_where_nothing_is_certified(pair):
    problem, solution = solved(pair)
    if isinstance(problem, SmoothFitter):
        agreeing, tried = solution.starts
        assert 1 <= agreeing <= tried
        assert tried >= 8
        assert np.isnan(solution.gap)
    else:
        assert solution.starts is None
        assert solution.relative_gap <= 1e-10


# Convex problems


@pytest.mark.parametrize("concentration", [1.0, 1.01, 1.5])
@pytest.mark.parametrize("pair", CONVEX, ids=named)
def test_the_certificate_holds(pair, concentration):
    problem = pose(pair, concentration)
    solution = problem.solve()
    free, equal = "nonneg" in repr(pair[2]), np.full(pair[3], 1 / pair[3])
    found = optimize.minimize(
        lambda w: problem.value(np.maximum(w, 1e-300)),
        equal,
        method="SLSQP",
        bounds=[(0.0, None)] * equal.size,
        constraints=[] if free else [{"type": "eq", "fun": lambda w: w.sum() - 1}],
        options={"ftol": 1e-12, "maxiter": 300},
    )
    best = min(float(found.fun), problem.value(equal))
    assert solution.converged
    assert best >= float(solution.objective) - float(solution.gap) - 1e-9
    assert float(solution.gap) <= 1e-10 * float(solution.scale)
    # Optimality: no weight can be moved to a model where it would do more.
    if concentration == 1.0 and not free:
        slopes = problem.weight_slopes(solution.x)
        used = slopes[solution.x > 0]
        np.testing.assert_allclose(used, used.min(), atol=1e-6 * float(solution.scale))
        assert slopes.min() >= used.min() - 1e-6 * float(solution.scale)


@pytest.mark.parametrize(
    "pair", [p for p in PAIRS if is_convex(p) and "nonneg" not in repr(p[2])], ids=named
)
def test_objectives_of_convex_problems_are_convex(pair):
    problem = pose(pair)
    rng = np.random.default_rng(15)
    for _ in range(200):
        a, b = rng.dirichlet(np.ones(pair[3]), size=2)
        ends = (problem.value(a) + problem.value(b)) / 2
        assert problem.value((a + b) / 2) <= ends + 1e-10 * abs(ends)


@pytest.mark.parametrize("prior", [1.01, 1.5])
def test_locking_by_the_log_score_against_the_closed_form_of_normals(prior):
    # A product of powers of normals is normal: Z is known, and a plain optimiser will do.
    rng = np.random.default_rng(16)
    y = rng.normal(0.5, 1.3, size=N)
    mu, sd = np.array([-1.0, 1.0, 3.0]), np.array([1.0, 0.8, 2.0])
    models = {
        str(k): lq.from_family("normal", y=y, mu=np.full((1, 1), mu[k]), sigma=sd[k])
        for k in range(3)
    }

    def minus_score(w):
        precision = w / sd**2
        total = precision.sum()
        mean = precision @ mu / total
        logpdf = stats.norm.logpdf(y, mean, total**-0.5)
        return -logpdf.sum() - (prior - 1) * np.log(w).sum()

    best = optimize.minimize(
        lambda free: minus_score(np.exp(free) / np.exp(free).sum()),
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-11, "fatol": 1e-14, "maxiter": 4000, "maxfev": 4000},
    )
    rule = LogScore()
    evidence = gather(models, Locking(), rule, "held-out").densities
    problem = pose_pair(Locking(), rule, evidence, np.full(3, prior))
    solution = problem.solve()
    assert solution.objective == pytest.approx(best.fun, abs=1e-9)
    np.testing.assert_allclose(solution.x, np.exp(best.x) / np.exp(best.x).sum(), atol=1e-6)
    # The exact optimum to more digits: where the slopes of the closed form vanish.
    exact = optimize.root(
        lambda free: _closed_form_slopes(free, y, mu, sd, prior), best.x[:2] - best.x[2]
    )
    w = np.exp([*exact.x, 0.0])
    np.testing.assert_allclose(solution.x, w / w.sum(), atol=1e-7)


def _closed_form_slopes(free, y, mu, sd, prior):
    """Slopes of the exact objective in log(w_k / w_3), k = 1, 2."""
    w = np.exp([*free, 0.0])
    w /= w.sum()
    precision = w / sd**2
    total, mean = precision.sum(), precision @ mu / precision.sum()
    # E_q of (y − μ_k)² less what was observed, halved and over σ_k²: slopes in w_k.
    expected = 1 / total + (mean - mu) ** 2
    observed = np.square(y[:, None] - mu)
    slope = ((observed - expected) / (2 * sd**2)).sum(axis=0) - (prior - 1) / w
    return (w * (slope - slope @ w))[:2]


# A flat prior


def two_and(rule, mu, sigma):
    """Two normals that fit the outcomes together, and a third."""
    y = np.random.default_rng(17).normal(0.3, 1.5, size=N)
    p = {"mu": np.array([[-0.8], [1.2], [mu]]), "sigma": np.array([[1.1], [1.4], [sigma]])}
    jets = in_units(FAMILIES["normal"].jet(y[None], p), rule.unit(y[:, None]))
    places = np.linspace(-12, 14, 79)
    logp = np.repeat(FAMILIES["normal"].logp(places[None], p)[..., None], N, axis=2)
    return densities_of(jets, (Nodes(logp, np.full((79, N), np.log(1 / 3))),))


@pytest.mark.parametrize(
    ("operator", "rule", "third", "without"),
    [
        (Linear(), "log", (4.0, 1.0), 2),
        (Linear(), "hyvarinen", (4.0, 1.0), 2),
        (Locking(), "log", (4.0, 1.0), 2),
        (Locking(), "hyvarinen", (4.0, 1.0), 2),
        (Superposition(phases=0), "log", (6.0, 2.0), 2),
        (Superposition(phases=0), "hyvarinen", (4.0, 1.0), 2),
        (Hoelder(0.3), "log", (0.3, 0.4), 2),
        (Nested(Linear(), [(Locking(), [0, 1]), 2]), "log", (6.0, 2.0), 2),
        (Nested(Linear(), [(Locking(), [0, 1]), 2]), "hyvarinen", (4.0, 1.0), 2),
    ],
    ids=repr,
)
def test_a_hopeless_model_gets_exactly_nothing_under_a_flat_prior(operator, rule, third, without):
    evidence = two_and(RULES[rule](), *third)
    pair = ("density", rule, operator, 3)
    problem = pose(pair, 1.0, evidence)
    solution = problem.solve()
    weights = problem.objective.weights(solution.x)
    assert weights[without] == 0.0
    assert weights.max() < 0.9
    # Giving it some does not help.
    for share in (1e-6, 1e-3) if solution.x.size == 3 else ():
        other = (1 - share) * solution.x + share * np.eye(3)[without]
        assert problem.value(other) >= float(solution.objective)
    again = problem.refit(np.ones(N), solution.x)
    np.testing.assert_allclose(problem.objective.weights(again), weights, atol=1e-6)
    drawn = bootstrap_counts(np.random.default_rng(18), 3, N)
    assert np.isfinite(problem.refit_many(drawn, solution.x)).all()
    # With a prior that asks for some, it has some.
    assert pose(pair, 1.01, evidence).solve().x.min() > 0.0


@pytest.mark.parametrize("rule", [LogScore(), Hyvarinen()], ids=repr)
def test_weights_of_any_sum_can_be_exactly_zero(rule):
    # Outcomes to the right of both models: the one further left could only pull away.
    y = np.random.default_rng(19).normal(1.0, 1.0, size=N)
    p = {"mu": np.array([[0.0], [-2.0]]), "sigma": np.array([[1.0], [1.2]])}
    jets = in_units(FAMILIES["normal"].jet(y[None], p), rule.unit(y[:, None]))
    logp = FAMILIES["normal"].logp(np.linspace(-15, 15, 61)[None], p)
    nodes = Nodes(np.repeat(logp[..., None], N, axis=2), np.full((61, N), np.log(0.5)))
    pair = ("density", rule.name, Locking("nonnegative"), 2)
    weights = pose(pair, 1.0, densities_of(jets, (nodes,))).solve().x
    assert weights[1] == 0.0
    if rule == LogScore():  # π^w is normal with variance σ²/w, best at the mean square
        assert weights[0] == pytest.approx(1 / np.square(y).mean(), rel=1e-6)


def test_the_hybrid_leaves_the_place_where_its_mixture_has_no_weight():
    # There β makes no difference, so nothing tells which way to go.
    problem = pose(("density", "hyvarinen", Hybrid(), 3), 1.0)
    solution = problem.solve()
    for inner in (Locking(), Linear()):
        other = pose(("density", "hyvarinen", inner, 3), 1.0).solve()
        assert float(solution.objective) < float(other.objective) - 1.0
    assert solution.x[0] > 0.1
    assert solution.starts[0] >= 2
    # Exponents and proportions that are not needed are exactly zero.
    assert (solution.x[1:4] == 0.0).any()
    assert (solution.x[4:] == 0.0).any()
    assert not ((solution.x > 0) & (solution.x < 1e-5)).any()


@pytest.mark.parametrize("operator", [*(kind() for kind in OPERATORS.values())], ids=repr)
@pytest.mark.parametrize("rule", [LogScore(), Hyvarinen()], ids=repr)
def test_one_model_is_returned_as_it_is(operator, rule):
    pair = ("density", rule.name, operator, 1)
    problem = pose(pair, 1.01, densities(rule, 1))
    solution = problem.solve()
    np.testing.assert_allclose(problem.objective.weights(solution.x), [1.0], atol=1e-12)
    np.testing.assert_allclose(
        problem.objective.scores(solution.x),
        problem.objective.model_scores()[0],
        rtol=1e-8,
        atol=1e-8,
    )


# What a formula gives


def test_formulas_have_their_written_weights():
    evidence = densities(LogScore(), 3)
    elpd = evidence.jets.logp.sum(axis=1)
    arguments = (Linear(), LogScore(), evidence, np.ones(3))

    def solve(name, **options):
        return METHODS[name].kind(Objective(*arguments), **options).solve().x

    np.testing.assert_allclose(solve("equal"), 1 / 3)
    weights = np.exp(elpd - elpd.max())
    np.testing.assert_allclose(solve("pseudo-BMA"), weights / weights.sum())
    u = stats.dirichlet(np.ones(N)).rvs(4000, random_state=1) * N
    drawn = np.exp(u @ evidence.jets.logp.T)
    average = (drawn / drawn.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(solve("pseudo-BMA+", random_seed=3), average, atol=0.04)
    evidence_of_models = np.array([-30.0, -31.0, -29.0])
    exact = np.exp(evidence_of_models) / np.exp(evidence_of_models).sum()
    np.testing.assert_allclose(solve("BMA", log_probability=evidence_of_models), exact)
    best = solve("select by ML", log_probability=evidence_of_models)
    assert best.tolist() == [0.0, 0.0, 1.0]


# The way from models to a fit


def one_draw(name, y, **parameters):
    return lq.from_family(name, y=y, **{k: np.full((2, 4), v) for k, v in parameters.items()})


@pytest.mark.parametrize(
    "operator",
    [*(kind() for kind in OPERATORS.values()), Locking("nonnegative"), THREE[-1]],
    ids=repr,
)
def test_gathered_normalisers_are_exact(operator):
    y = np.array([-0.5, 0.4, 2.0])
    models = {
        "a": one_draw("normal", y, mu=-1.0, sigma=1.0),
        "b": one_draw("student_t", y, nu=4.0, mu=1.0, sigma=0.8),
        "c": one_draw("normal", y, mu=[[0.5]], sigma=2.0),
    }
    frozen = [stats.norm(-1, 1), stats.t(4, 1, 0.8), stats.norm(0.5, 2)]
    rule = LogScore()
    evidence = gather(models, operator, rule, "held-out").densities
    problem = pose_pair(operator, rule, evidence, np.ones(3))
    x = problem.objective.space.natural(
        0.5 * np.random.default_rng(2).normal(size=problem.objective.space.size)
    )
    # A grid that is fine in the middle and reaches far into the tails.
    t = np.linspace(-12, 12, 40_001)
    grid, measure = np.sinh(t), np.cosh(t) * (t[1] - t[0])
    logq = operator.pool_density(np.stack([each.logpdf(grid) for each in frozen]), x)
    expected = operator.pool_density(np.stack([each.logpdf(y) for each in frozen]), x)
    expected = expected - np.log((np.exp(logq) * measure).sum())
    np.testing.assert_allclose(problem.objective.scores(x), expected, atol=1e-8)


# Remarks


def combined(models, operator, rule, **options):
    """Combine, and return the result with the codes of what was remarked on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.combine(models, operator, rule, **options)
    return fit, [remark.code for remark in fit.remarks]


def two_normals(rng, places, n=40, sigma=1.0, at=None):
    at = places if at is None else at
    y = np.concatenate([rng.normal(m, 1.0, size=n // 2) for m in at])
    mu = 0.05 * rng.normal(size=(2, 20))
    return {
        name: lq.from_family("normal", y=y, mu=mu + m, sigma=sigma)
        for name, m in zip(("left", "right"), places, strict=True)
    }


def test_starts_that_disagree_are_noted():
    solution = Solution(
        x=np.ones(1),
        objective=np.array(1.0),
        gap=np.array(np.nan),
        scale=np.array(1.0),
        converged=np.array(True),
        iterations=np.array(3),
        status=np.array("converged"),
        starts=(1, 8),
        stationarity=1e-9,
    )
    (remark,) = examine_solution(solution)
    assert remark == SeveralOptima(1, 8)
    assert remark.category is ConvergenceWarning
    assert "Only 1 of 8 searches ended" in remark.message
    assert examine_solution(replace(solution, starts=(3, 8))) == [SeveralOptima(3, 8)]
    assert examine_solution(replace(solution, starts=(4, 8))) == []
    (remark,) = examine_solution(replace(solution, converged=np.array(False)))
    assert remark == StoppedEarly("converged", 1e-9)
    assert "stopped early" in remark.message


@pytest.mark.parametrize("operator", [Linear(), Hybrid()], ids=repr)
def test_proportions_of_separate_modes_are_noted_for_the_hyvarinen_score(rng, operator):
    def blind(places, rule="hyvarinen"):
        codes = combined(two_normals(rng, places), operator, rule, scores="in-sample")[1]
        return "modes-apart" in codes

    assert blind((-5.0, 5.0))
    assert not blind((-0.7, 0.7))
    if operator == Linear():
        assert not blind((-5.0, 5.0), "log")


def test_locking_is_not_blind(rng):
    codes = combined(two_normals(rng, (-5.0, 5.0)), "locking", "hyvarinen")[1]
    assert "modes-apart" not in codes


def test_phases_at_their_cap_are_noted(rng):
    # Outcomes in two clumps, and two models between them: only interference makes a gap.
    models = two_normals(rng, (-0.3, 0.3), at=(-2.5, 2.5), sigma=1.5)
    fit, codes = combined(models, "superposition", "hyvarinen")
    assert np.ptp(fit.parameters["phases"].values) > 0.98 * np.pi
    assert "phases-at-cap" in codes
    _, codes = combined(models, "superposition", "log")
    assert "phases-at-cap" not in codes


def test_an_order_at_its_bound_is_noted(rng):
    # Outcomes on either side of both models: the larger the order, the deeper the dip between.
    models = two_normals(rng, (-1.5, 1.5), at=(-3.0, 3.0))
    fit, codes = combined(models, "hoelder", "log")
    power = float(fit.parameters["power"])
    assert abs(power) == pytest.approx(8.0, abs=0.05)
    assert codes.count("parameter-at-bound") == 1
    assert ParameterAtBound("power", power) in fit.remarks


def test_an_order_inside_its_bounds_is_not(rng):
    models = two_normals(rng, (-1.0, 1.0), at=(-0.3, 0.4))
    fit, codes = combined(models, "hoelder", "log")
    assert abs(fit.parameters["power"]) < 7.9
    assert "parameter-at-bound" not in codes


# Pools that cannot be normalised


def test_a_signed_hybrid_without_normaliser_is_refused():
    # Sharp in the middle, but not far out: a power of the Cauchy density, and the normal upside
    # down to make up for its tails.
    y = np.concatenate([-np.geomspace(0.05, 6, 30), np.geomspace(0.05, 6, 30)])
    draws = np.zeros((2, 20))
    models = {
        "a": lq.from_family("normal", y=y, mu=draws, sigma=3.0),
        "b": lq.from_family("student_t", y=y, nu=1.0, mu=draws, sigma=0.5),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        with pytest.raises(ImproperError, match=r"no normaliser at .* Use weights on the simplex"):
            lq.combine(models, Hybrid(signed=True, prior_sd=10.0), "hyvarinen")
        assert lq.combine(models, Hybrid(), "hyvarinen").solution.converged


def test_a_signed_hybrid_with_a_normaliser_is_returned(rng):
    fit, _ = combined(two_normals(rng, (-1.0, 1.0)), Hybrid(signed=True), "hyvarinen")
    exponents = fit.parameters["mixture_exponent"] + fit.parameters["exponents"].sum()
    assert 0.2 < exponents < 3.0


def known_at_outcomes_only(models):
    return {name: lq.from_datatree(model.to_datatree()) for name, model in models.items()}


def test_signed_exponents_need_models_that_can_be_checked(rng):
    models = known_at_outcomes_only(two_normals(rng, (-1.0, 1.0)))
    with pytest.raises(UnsupportedError, match="without signed"):
        lq.combine(models, Hybrid(signed=True), "hyvarinen")
    fit, _ = combined(models, Locking("nonnegative"), "hyvarinen")
    assert NormaliserUnchecked("left") in fit.remarks


@pytest.mark.parametrize(
    "operator",
    [Locking("nonnegative"), Nested(Locking("nonnegative"), [(Linear(), ["a", "b"]), "a"])],
    ids=repr,
)
def test_a_small_power_of_heavy_tails_is_refused(rng, operator):
    # Outcomes much wider than two Cauchy densities: the best power of them has no integral.
    y = np.concatenate([-np.geomspace(5, 300, 30), np.geomspace(5, 300, 30)])
    draws = 0.001 * rng.normal(size=(2, 20))
    models = {
        "a": lq.from_family("student_t", y=y, nu=1.0, mu=draws, sigma=0.5),
        "b": lq.from_family("student_t", y=y, nu=1.0, mu=draws + 0.1, sigma=0.6),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        with pytest.raises(ImproperError, match="has no normaliser"):
            lq.combine(models, operator, Hyvarinen())
        assert lq.lock(models).solution.converged


def test_a_large_power_of_a_density_that_rises_at_an_edge_is_refused(rng):
    # Like 1 / (y |log y|^9) near 0: a power above one of it has no integral there.
    draws = 0.1 * rng.normal(size=(2, 20))
    own = {"nu": 8.0, "mu": draws, "sigma": 1.0}
    model = lq.from_family("student_t", y=rng.lognormal(size=10), transform="log", **own)
    for power, refused in ((1.0, False), (1.5, True)):
        pool = Pool(Locking("nonnegative"), np.array([power]), 1)
        with pytest.raises(ImproperError, match="near 0") if refused else nullcontext():
            examine_tails({"a": model.source}, pool)


@pytest.mark.parametrize("operator", ["linear", "locking"])
def test_a_pool_that_ends_abruptly_is_refused(rng, operator):
    # A gamma ends at 0 smoothly, a normal goes on: their mixture jumps there.
    y = rng.gamma(4.0, 1.0, size=60)
    draws = 0.02 * rng.normal(size=(4, 50))
    models = {
        "gamma": lq.from_family("gamma", y=y, alpha=4.0 + draws, beta=1.0),
        "normal": lq.from_family("normal", y=y, mu=4.0 + draws, sigma=2.0),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        if operator == "linear":
            assert lq.combine(models, operator, "log").solution.converged
        else:
            plain = lq.Hyvarinen(transform=None)
            with pytest.raises(EdgeError, match="does not vanish smoothly at 0"):
                lq.combine(models, operator, plain, prior=[1e4, 9e4])


def test_shifts_of_weight_end_before_a_model_has_none():
    # With any weight a model excludes outcomes, without it not: rounding would decide.
    weights, asked = np.array([0.85, 0.09, 0.06]), []

    class Flat:
        def weight_slopes(self, weights):
            return np.zeros(3)

        def flat_directions(self, weights, face):
            return np.array([[-0.16, 0.77, -0.61]])

        def score_range(self, weights, direction, first, last):
            asked.extend(weights + end * direction for end in (first, last))
            return 0.0

    assert collinear(Flat(), weights, np.full(3, 0.1), 1.0) == [(0, 1, 2)]
    assert np.min(asked) > 0
    np.testing.assert_allclose(np.min(asked, axis=1), 0.0, atol=1e-8)
