"""Combining discrete models: exact sums, neighbours, what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize, special, stats

import lockquack as lq
from lockquack.errors import LockquackWarning, SmoothnessError, UnsupportedError
from lockquack.jets import Jet
from lockquack.methods.gather import gather
from lockquack.models.model import sources_of
from lockquack.operators import (
    OPERATORS,
    Hoelder,
    Hybrid,
    Linear,
    Locking,
    Nested,
    Superposition,
)
from lockquack.operators.pool import Pool
from lockquack.prediction.nodes import lay_nodes
from lockquack.rules import LogScore, PairwiseScore, Pooled
from lockquack.rules.wishes import NEIGHBOURS
from tests.helpers import beside_of, densities_of, lock, pose_pair

INSTANCES = [
    *(kind() for kind in OPERATORS.values()),
    Locking("nonnegative"),
    Superposition(phases=0),
    Hoelder(-1),
    Hoelder(0.3),
    Nested(Locking(), [(Linear(), [0, 1]), 2]),
    Nested(Linear(), [(Nested(Superposition(), [(Locking(), [0, 1]), 1]), [0, 2]), 1]),
]


def nbinom(mu, alpha):
    return stats.nbinom(alpha, alpha / (alpha + mu))


def combined(models, *given, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        return lq.combine(models, *given, **options)


def overdispersed(rng, n=60, draws=(2, 20)):
    """Outcomes of a negative binomial, and three models of which it is one."""
    y = nbinom(4.0, 1.5).rvs(size=n, random_state=rng)
    wobble = np.exp(0.02 * rng.normal(size=draws))
    return {
        "poisson": lq.from_family("poisson", y=y, mu=4.0 * wobble),
        "nb": lq.from_family("negative_binomial", y=y, mu=4.0 * wobble, alpha=1.5),
        "zip": lq.from_family("zero_inflated_poisson", y=y, mu=5.0 * wobble, psi=0.8),
    }


# The pairwise conditional score


def score_of(pmf, y):
    """Score outcomes, by the rule, of a distribution on 0, 1, …, len − 1."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate([[0.0], pmf, [0.0]]))
    y = np.asarray(y)
    nothing = np.empty((y.size, 0))
    pooled = Pooled(
        Jet(logs[y + 1], nothing, nothing), {NEIGHBOURS: np.stack([logs[y], logs[y + 2]])}
    )
    return PairwiseScore().score(pooled)


def test_the_score_by_hand():
    pmf = np.array([0.1, 0.2, 0.3, 0.4])
    by_hand = [
        -np.log(1 + 0.2 / 0.1),
        -np.log(1 + 0.1 / 0.2) - np.log(1 + 0.3 / 0.2),
        -np.log(1 + 0.2 / 0.3) - np.log(1 + 0.4 / 0.3),
        -np.log(1 + 0.3 / 0.4),
    ]
    np.testing.assert_allclose(score_of(pmf, [0, 1, 2, 3]), by_hand, rtol=1e-14)


def test_the_score_is_free_of_the_normaliser():
    pmf = np.array([0.1, 0.2, 0.3, 0.4])
    for factor in (1e-300, 7.0, 1e300):
        np.testing.assert_allclose(
            score_of(factor * pmf, [0, 1, 2, 3]), score_of(pmf, [0, 1, 2, 3]), rtol=1e-12
        )


def test_each_term_is_a_conditional_log_probability():
    # log P(Y = y | Y in {y, y + 1}) + log P(Y = y | Y in {y − 1, y}).
    pmf = stats.poisson(3.0).pmf(np.arange(40))
    y = np.array([0, 1, 5, 12])
    up = np.log(pmf[y] / (pmf[y] + pmf[y + 1]))
    down = np.where(y > 0, np.log(pmf[y] / (pmf[y] + pmf[y - 1])), 0.0)
    np.testing.assert_allclose(score_of(pmf, y), up + down, rtol=1e-12)


def test_the_truth_scores_best_in_expectation(rng):
    for _ in range(30):
        truth = rng.dirichlet(np.ones(6))
        best = truth @ score_of(truth, np.arange(6))
        for width in (0.02, 0.3, 2.0):
            other = special.softmax(np.log(truth) + width * rng.normal(size=6))
            assert truth @ score_of(other, np.arange(6)) < best


def test_in_a_family_the_expected_score_is_largest_at_the_truth():
    outcomes = np.arange(120)
    truth = nbinom(4.0, 1.5).pmf(outcomes)

    def expected(parameters):
        mu, alpha = np.exp(parameters)
        return -truth @ score_of(nbinom(mu, alpha).pmf(outcomes), outcomes)

    found = optimize.minimize(expected, np.log([2.0, 5.0]), method="Nelder-Mead")
    np.testing.assert_allclose(np.exp(found.x), [4.0, 1.5], rtol=2e-3)


def test_an_impossible_neighbour_has_no_term_and_no_slope():
    K = 2
    logp = np.log([[0.5, 0.2], [0.1, 0.3]])
    beside = np.full((K, 2, 2), -np.inf)
    beside[:, 1] = np.log([[0.25, 0.4], [0.2, 0.3]])
    evidence = densities_of(Jet(logp, np.empty((K, 2, 0)), np.empty((K, 2, 0))), (), beside)
    w = np.array([0.3, 0.7])
    for operator in (Linear(), Locking(), Hoelder(-1), Hoelder(0.3), Superposition(phases=0)):
        problem = pose_pair(operator, PairwiseScore(), evidence, np.ones(K))
        q, up = (np.exp(operator.pool_density(at, w)) for at in (logp, beside[:, 1]))
        np.testing.assert_allclose(problem.objective.scores(w), -np.log1p(up / q), rtol=1e-12)
        assert np.isfinite(problem.objective.expand(w)[1]).all()


@pytest.mark.parametrize("operator", INSTANCES, ids=repr)
def test_outcomes_at_the_lowest_value_are_borne(operator):
    # Zero occurs often; no model deems −1 possible.
    models = overdispersed(np.random.default_rng(5))
    rule = PairwiseScore()
    evidence = gather(models, operator, rule, "held-out").densities
    y = models["nb"].observations.values[:, 0]
    assert (y == 0).sum() > 5
    assert np.isneginf(beside_of(evidence)[:, 0, y == 0]).all()
    assert np.isfinite(beside_of(evidence)[:, 1]).all()
    problem = pose_pair(operator, rule, evidence, np.full(3, 1.01))
    x = problem.objective.space.natural(
        0.5 * np.random.default_rng(6).normal(size=problem.objective.space.size)
    )
    assert np.isfinite(problem.objective.scores(x)).all()
    assert np.isfinite(problem.objective.expand(x)[1]).all()


def test_neighbours_are_the_models_probabilities(rng):
    y, mu = np.array([0.0, 3.0, 1.0]), rng.gamma(3.0, size=(2, 20))
    model = lq.from_family("poisson", y=y, mu=mu)
    evidence = gather({"poisson": model}, Locking(), PairwiseScore(), "held-out").densities
    for row, at in enumerate((y - 1, y + 1)):
        each = stats.poisson.logpmf(at, mu.reshape(40, 1))
        exact = special.logsumexp(each, axis=0) - np.log(40)
        np.testing.assert_allclose(beside_of(evidence)[0, row], exact, rtol=1e-10)


def test_locking_by_the_pairwise_score_is_convex():
    models = overdispersed(np.random.default_rng(7))
    evidence = gather(models, Locking(), PairwiseScore(), "loo").densities
    problem = pose_pair(Locking(), PairwiseScore(), evidence, np.ones(3))
    rng = np.random.default_rng(8)
    for _ in range(200):
        a, b = rng.dirichlet(np.full(3, 0.5), size=2)
        ends = (problem.value(a) + problem.value(b)) / 2
        assert problem.value((a + b) / 2) <= ends + 1e-11 * abs(ends)
    assert np.linalg.eigvalsh(problem.half_hessian(np.full(3, 1 / 3))).min() > -1e-12


# Exact sums


@pytest.mark.parametrize("operator", INSTANCES, ids=repr)
def test_the_log_score_is_the_sum_over_all_outcomes(operator):
    y = np.array([0, 2, 7, 41])
    models = {
        "poisson": lq.from_family("poisson", y=y, mu=np.full((1, 1), 6.0)),
        "nb": lq.from_family("negative_binomial", y=y, mu=np.full((1, 1), 9.0), alpha=0.7),
        "zinb": lq.from_family(
            "zero_inflated_negative_binomial", y=y, mu=np.full((1, 1), 4.0), alpha=2.0, psi=0.6
        ),
    }
    outcomes = np.arange(10_000)
    inflated = 0.6 * nbinom(4.0, 2.0).pmf(outcomes)
    inflated[0] += 0.4
    with np.errstate(divide="ignore"):
        logp = np.stack(
            [
                stats.poisson(6.0).logpmf(outcomes),
                nbinom(9.0, 0.7).logpmf(outcomes),
                np.log(inflated),
            ]
        )
    logp[2] = np.where(
        np.isneginf(logp[2]), np.log(0.6) + nbinom(4.0, 2.0).logpmf(outcomes), logp[2]
    )
    rule = LogScore()
    evidence = gather(models, operator, rule, "held-out").densities
    problem = pose_pair(operator, rule, evidence, np.ones(3))
    x = problem.objective.space.natural(
        0.5 * np.random.default_rng(1).normal(size=problem.objective.space.size)
    )
    logq = operator.pool_density(logp, x)
    exact = logq[y] - special.logsumexp(logq)
    np.testing.assert_allclose(problem.objective.scores(x), exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mu", [1e-3, 1.0, 300.0, 1e4, 1e6])
def test_outcomes_of_any_size_are_summed_completely(mu):
    # √(Poisson(μ) Poisson(μ + 3 √μ)): Poisson with the geometric mean of the means, times this.
    y = np.array([int(mu), int(mu) + 1])
    other = mu + 3 * np.sqrt(mu)
    models = {
        name: lq.from_family("poisson", y=y, mu=np.full((1, 1), mean))
        for name, mean in (("a", mu), ("b", other))
    }
    (node_groups,) = lay_nodes(sources_of(models), loo=False)
    assert node_groups.outcomes.size < 60 * np.sqrt(mu) + 40
    w = np.array([0.5, 0.5])
    log_norm, _ = node_groups.log_norm(Pool(Locking(), w, 2))
    np.testing.assert_allclose(
        log_norm, np.sqrt(mu * other) - (mu + other) / 2, atol=3e-9 * mu**0.5
    )
    assert node_groups.missing.max() < 1e-6


def test_supports_that_differ_are_summed_where_they_overlap():
    # A geometric begins at 1; what the Poisson has at 0 does not count, and is not missed.
    y = np.array([1, 3, 2, 6, 1])
    models = {
        "poisson": lq.from_family("poisson", y=y, mu=np.full((2, 20), 3.0)),
        "geometric": lq.from_family("geometric", y=y, p=np.full((2, 20), 0.3)),
    }
    outcomes = np.arange(1, 10_000)
    logp = np.stack([stats.poisson(3.0).logpmf(outcomes), stats.geom(0.3).logpmf(outcomes)])
    fit = combined(models, "locking", "log")
    logq = fit.solution.x @ logp
    exact = logq[y - 1] - special.logsumexp(logq)
    np.testing.assert_allclose(fit.pointwise[0], exact, atol=1e-10)
    assert not [remark for remark in fit.remarks if "normaliser" in remark.code]


def test_a_bounded_support_is_summed_to_its_end():
    y = np.array([0, 3, 5, 2])
    models = {
        "binomial": lq.from_family("binomial", y=y, n=np.full((1, 1), 5), p=0.4),
        "poisson": lq.from_family("poisson", y=y, mu=np.full((1, 1), 2.5)),
    }
    outcomes = np.arange(200)
    logp = np.stack([stats.binom(5, 0.4).logpmf(outcomes), stats.poisson(2.5).logpmf(outcomes)])
    for operator, w in ((Locking(), [0.6, 0.4]), (Superposition(phases=0), [0.6, 0.4])):
        rule = LogScore()
        evidence = gather(models, operator, rule, "held-out").densities
        problem = pose_pair(operator, rule, evidence, np.ones(2))
        logq = operator.pool_density(logp, np.array(w))
        exact = logq[y] - special.logsumexp(logq)
        np.testing.assert_allclose(problem.objective.scores(np.array(w)), exact, atol=1e-10)
        if operator == Locking():
            assert np.isneginf(logq[6:]).all()


def test_a_pool_wider_than_its_members_is_summed_completely():
    # Poisson models of very dispersed outcomes: a small power of them reaches much further.
    rng = np.random.default_rng(9)
    y = rng.negative_binomial(1, 0.1, size=40)
    models = {
        name: lq.from_family("poisson", y=y, mu=np.full((2, 20), mu))
        for name, mu in (("a", 9.0), ("b", 7.0))
    }
    fit = combined(models, Locking("nonnegative"), "log")
    w = fit.solution.x
    assert w.sum() < 0.2
    outcomes = np.arange(10_000)
    logq = w @ np.stack([stats.poisson(mu).logpmf(outcomes) for mu in (9.0, 7.0)])
    exact = logq[y] - special.logsumexp(logq)
    np.testing.assert_allclose(fit.pointwise[0], exact, rtol=1e-10)
    np.testing.assert_allclose(fit.logpdf(), exact, rtol=1e-10)


# Fits


@pytest.mark.parametrize("rule", ["log", "pairwise"])
@pytest.mark.parametrize("operator", ["linear", "locking"])
def test_the_true_negative_binomial_is_favoured(operator, rule):
    rng = np.random.default_rng(10)
    models = overdispersed(rng, n=200)
    fit = combined({k: models[k] for k in ("poisson", "nb")}, operator, rule)
    assert fit.weights.sel(model="nb") > 0.85
    assert fit.solution.converged
    totals = fit.pointwise.values.sum(axis=1)
    assert totals[2] > totals[1] + 5


def test_the_pairwise_score_finds_the_weights_that_the_log_score_finds():
    # Locked Poissons are Poisson: both rules look for the one with the mean of the outcomes.
    rng = np.random.default_rng(11)
    y = rng.poisson(5.0, size=300)
    wobble = np.exp(0.002 * rng.normal(size=(2, 20)))
    models = {
        "low": lq.from_family("poisson", y=y, mu=3.0 * wobble),
        "high": lq.from_family("poisson", y=y, mu=8.0 * wobble),
    }
    exact = np.log(y.mean() / 3) / np.log(8 / 3)
    by_log, by_pairs = (combined(models, "locking", rule) for rule in ("log", "pairwise"))
    assert by_log.weights.sel(model="high") == pytest.approx(exact, abs=1e-3)
    assert by_pairs.weights.sel(model="high") == pytest.approx(exact, abs=0.1)
    assert np.isnan(by_pairs.mcse).all()


def test_stacking_counts_needs_no_sum():
    rng = np.random.default_rng(12)
    models = overdispersed(rng)
    fit = combined(models, "linear", "log", prior=1.0)
    assert fit.objective.densities.tables == {}
    logp = np.stack([model.loo().logp for model in models.values()])
    best = optimize.minimize(
        lambda free: -special.logsumexp(logp.T, b=special.softmax(free), axis=1).sum(),
        np.zeros(3),
        tol=1e-12,
    )
    # Its own search ends a little above the optimum.
    assert best.fun * (1 - 1e-8) < fit.solution.objective < best.fun * (1 + 1e-10)


# What is refused


def mixed():
    y = np.array([1.0, 2.0, 4.0, 3.0])
    return {
        "counts": lq.from_family("poisson", y=y, mu=np.full((2, 20), 3.0)),
        "density": lq.from_family("normal", y=y, mu=np.full((2, 20), 3.0), sigma=1.0),
    }


@pytest.mark.parametrize("operator", [Linear(), Locking(), Superposition(), Hybrid()], ids=repr)
@pytest.mark.parametrize("rule", ["log", "pairwise"])
def test_discrete_models_beside_densities_are_refused(operator, rule):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        with pytest.raises(UnsupportedError, match="'counts' is discrete and .*'density' has a"):
            lq.combine(mixed(), operator, rule)
        with pytest.raises(UnsupportedError, match="'counts' is discrete and .*'density' has a"):
            lq.stack(mixed())


def test_the_pairwise_score_of_densities_is_refused():
    with pytest.raises(UnsupportedError, match=r"discrete outcomes.*Hyvarinen\(\) or LogScore\(\)"):
        lq.combine({"density": mixed()["density"]}, "locking", "pairwise")


def test_the_pairwise_score_needs_models_that_can_be_evaluated():
    model = mixed()["counts"]
    stored = lq.from_datatree(model.to_datatree())
    with pytest.raises(UnsupportedError, match="observed outcomes only.*from_family"):
        lq.combine({"stored": stored}, "locking", "pairwise")


@pytest.mark.parametrize("operator", ["locking", "linear", "superposition"])
def test_the_hyvarinen_score_of_counts_is_refused(operator):
    with pytest.raises(SmoothnessError, match='is discrete.*Use the log score, rule="log"'):
        lq.combine({"counts": mixed()["counts"]}, operator, "hyvarinen")


def test_quack_takes_the_log_score_for_counts():
    models = overdispersed(np.random.default_rng(13), n=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        fit = lq.quack({k: models[k] for k in ("poisson", "nb")})
    assert fit.rule == LogScore()
    assert fit.solution.converged


def test_a_locked_pool_is_no_worse_than_a_model_that_excludes_outcomes(rng):
    """With any weight of it the pool excludes them too: the score jumps where it has none."""
    rate = 0.4 + 0.01 * rng.random((2, 60))
    models = {
        "coin": lq.from_family("bernoulli", y=[0, 0], p=0.31 + 0.01 * rng.random((2, 60))),
        "count": lq.from_family("poisson", y=[0, 0], mu=rate),
    }
    fit = lock(models, rule="log", prior=1.0)
    totals = fit.pointwise.sum("obs_id").values
    assert totals[0] > totals[1:].max()
    assert fit.weights.sel(model="coin") > 0


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_models_that_have_a_single_outcome_in_common():
    """Of 1, 2, ... and 0, 1 only 1 is left, which the pool knows for sure."""
    y, half = np.ones(3), np.full((2, 30), 0.5)
    families = ("geometric", "bernoulli")
    models = {name: lq.from_family(name, y=y, p=half) for name in families}
    fit = lq.lock(models, rule="log")
    np.testing.assert_allclose(fit.pointwise.values[0], 0.0, atol=1e-12)
