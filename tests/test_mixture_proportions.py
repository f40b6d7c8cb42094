"""Mixture proportions against closed forms, another solver, stored answers and symmetry."""

import tracemalloc
from dataclasses import dataclass
from itertools import product

import clarabel
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import logsumexp

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.base import Solution
from lockquack.solvers.mixture_proportions import mixture_proportions


@dataclass(frozen=True)
class Problem:
    L: np.ndarray
    u: np.ndarray
    alpha: np.ndarray

    def solve(self, **options) -> Solution:
        return mixture_proportions(self.L, self.u, self.alpha, **options)

    def f(self, w):
        """The objective with every row measured from its best model."""
        with np.errstate(divide="ignore"):
            mixture = logsumexp(self.L - self.L.max(axis=1, keepdims=True) + np.log(w), axis=1)
        used, prior = self.u > 0, self.alpha > 0
        return -self.u[used] @ mixture[used] - self.alpha[prior] @ np.log(w[prior])

    def frank_wolfe_gap(self, w):
        P = np.exp(self.L - self.L.max(axis=1, keepdims=True))
        pull = np.divide(self.alpha, w, out=np.zeros_like(w), where=self.alpha > 0)
        gradient = -(self.u / (P @ w)) @ P - pull
        return gradient @ w - gradient.min()


def regression(rng, K, n, spread=0.5):
    """Log densities of K normal models with their own errors in location, and a few bad ones."""
    y = rng.standard_t(5, size=n)
    sd = np.exp(rng.normal(size=K) * 0.3)
    mean = rng.normal(size=(n, K)) * spread + rng.normal(size=K)
    return -0.5 * ((y[:, None] - mean) / sd) ** 2 - np.log(sd)


def random_problem(rng) -> Problem:
    K, n = int(rng.choice([1, 2, 3, 5, 8, 13, 30, 60])), int(rng.choice([1, 2, 5, 20, 100, 1000]))
    size = rng.choice([0.01, 0.1, 1, 10, 100, 1e3, 1e5])
    L = rng.normal(size=(n, K)) * size
    kind = rng.choice(["plain", "duplicates", "holes", "levels", "tails", "nearly equal"])
    if kind == "duplicates":
        L[:, 1::2] = L[:, 0 : 2 * (K // 2) : 2]
    if kind == "holes":
        holes = rng.random((n, K)) < 0.5
        holes[np.arange(n), rng.integers(K, size=n)] = False
        L[holes] = -np.inf
    if kind == "levels":
        L = L + rng.normal(size=K) * rng.choice([1, 10, 100])
    if kind == "tails":
        L = rng.standard_t(2, size=(n, K)) * size
    if kind == "nearly equal":
        L = L[:, :1] + rng.normal(size=(n, K)) * 1e-6
    counts = [np.ones(n), rng.exponential(size=n), 1.0 + rng.integers(0, 3, size=n)]
    mixed = np.where(rng.random(K) < 0.5, 0.0, 10 ** rng.uniform(-6, 2, size=K))
    alphas = [np.zeros(K), np.full(K, 0.01), mixed, np.full(K, 5.0), np.full(K, 1e4)]
    return Problem(L, counts[rng.integers(3)], alphas[rng.integers(5)])


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(20240608)
    problems = [random_problem(rng) for _ in range(600)]
    return [(problem, problem.solve()) for problem in problems]


def clarabel_weights(p: Problem) -> tuple[np.ndarray, bool]:
    """Clarabel's maximiser, moved onto the simplex, and whether Clarabel claims it solved it."""
    K = p.L.shape[1]
    prior = np.flatnonzero(p.alpha > 0)
    linear = np.vstack([np.exp(p.L - p.L.max(axis=1, keepdims=True)), np.eye(K)[prior]])
    m = len(linear)
    # τ_i <= log of a linear form is (τ_i, 1, form) in the exponential cone.
    cone = np.zeros((m, 3, K + m))
    cone[np.arange(m), 0, K + np.arange(m)] = -1
    cone[:, 2, :K] = -linear
    total = np.r_[np.ones(K), np.zeros(m)][None]
    sign = np.hstack([-np.eye(K), np.zeros((K, m))])
    A = sparse.csc_matrix(np.vstack([total, sign, cone.reshape(3 * m, K + m)]))
    b = np.concatenate([[1.0], np.zeros(K), np.tile([0.0, 1.0, 0.0], m)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(K)]
    cones += [clarabel.ExponentialConeT()] * m
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    q = np.concatenate([np.zeros(K), -p.u, -p.alpha[prior]]) / p.u.sum()
    zero = sparse.csc_matrix((K + m, K + m))
    result = clarabel.DefaultSolver(zero, q, A, b, cones, settings).solve()
    w = np.maximum(np.array(result.x[:K]), 1e-300)
    return w / w.sum(), str(result.status) == "Solved"


# ---- several hundred random problems


def test_every_problem_is_certified(many):
    assert max(float(solution.relative_gap) for _, solution in many) < 1e-12
    assert all(solution.converged and solution.status == "converged" for _, solution in many)
    assert max(int(solution.iterations) for _, solution in many) < 40


def test_weights_are_on_the_simplex_and_inside_it_where_there_is_a_prior(many):
    for problem, solution in many:
        assert abs(solution.x.sum() - 1) < 1e-13
        assert (solution.x >= 0).all()
        assert (solution.x[problem.alpha > 0] > 0).all()


def test_objective_and_scale_are_what_they_are_said_to_be(many):
    for problem, solution in many:
        top = problem.L.max(axis=1)
        f = problem.f(solution.x)
        assert solution.objective == pytest.approx(f - problem.u @ top, rel=1e-9, abs=1e-9)
        prior = problem.alpha > 0
        logs = problem.alpha[prior] * np.log(solution.x[prior])
        scale = f + logs.sum() + problem.u.sum() + problem.alpha.sum() + np.abs(logs).sum()
        assert solution.scale == pytest.approx(scale, rel=1e-9)


def test_the_cruder_frank_wolfe_gap_is_small_too(many):
    for problem, solution in many:
        assert problem.frank_wolfe_gap(solution.x) <= 1e-6 * solution.scale


def test_agreement_with_clarabel():
    rng = np.random.default_rng(41)
    solved = 0
    for K, n, alpha in product([2, 5, 12], [30, 200], [0.0, 0.01, 2.0]):
        p = Problem(regression(rng, K, n), rng.exponential(size=n), np.full(K, alpha))
        solution, (theirs, claimed) = p.solve(), clarabel_weights(p)
        excess = p.f(solution.x) - p.f(theirs)
        assert excess <= 1e-12 * solution.scale
        if claimed:
            solved += 1
            assert -excess <= 1e-7 * n
            assert np.abs(solution.x - theirs).max() < 1e-4
    assert solved >= 12


# ---- answers known otherwise


@pytest.mark.parametrize("alpha", [0.0, 0.01, 3.0])
def test_two_models_solve_their_equation(alpha):
    rng = np.random.default_rng(42)
    L, u = rng.normal(size=(50, 2)), rng.exponential(size=50)
    p = np.exp(L)

    def slope(w):
        mixture = w * p[:, 0] + (1 - w) * p[:, 1]
        return u @ ((p[:, 0] - p[:, 1]) / mixture) + alpha / w - alpha / (1 - w)

    root = brentq(slope, 1e-12, 1 - 1e-12, xtol=1e-15)
    np.testing.assert_allclose(mixture_proportions(L, u, alpha).x, [root, 1 - root], rtol=1e-11)


@pytest.mark.parametrize("missing", [-np.inf, -1e6, -900.0])
def test_models_of_disjoint_observations_get_their_shares(missing):
    owner = np.repeat([0, 1, 2, 3], [1, 2, 3, 14])
    L = np.where(np.arange(4) == owner[:, None], -3.0, missing)
    np.testing.assert_allclose(mixture_proportions(L).x, [0.05, 0.1, 0.15, 0.7], rtol=1e-12)
    posterior = mixture_proportions(L, alpha=[0.5, 0.0, 1.0, 2.5]).x
    np.testing.assert_allclose(posterior * 24, [1.5, 2, 4, 16.5], rtol=1e-12)


def test_a_dominating_model_takes_all_exactly():
    rng = np.random.default_rng(43)
    L = rng.normal(size=(100, 5))
    L[:, 3] = L.max(axis=1) + 0.1
    solution = mixture_proportions(L)
    assert solution.x.tolist() == [0, 0, 0, 1, 0]
    assert solution.objective == pytest.approx(-L[:, 3].sum())
    assert solution.relative_gap < 1e-14


def test_zeros_are_exact_where_an_interior_point_has_dust():
    rng = np.random.default_rng(44)
    p = Problem(regression(rng, 30, 300), np.ones(300), np.zeros(30))
    w, (theirs, solved) = p.solve().x, clarabel_weights(p)
    assert solved
    dust = theirs < 1e-6
    assert 5 < dust.sum() < 25
    assert (w[dust] == 0.0).all()
    assert (w[~dust] > 0.0).all()


@pytest.mark.parametrize("alpha", [0.0, 0.01, 5.0])
def test_one_model_has_all_the_weight(alpha):
    solution = mixture_proportions([[-3.0], [2.0]], alpha=alpha)
    assert solution.x.tolist() == [1.0]
    assert solution.objective == pytest.approx(1.0)
    assert solution.relative_gap < 1e-15
    assert solution.converged


def test_models_that_are_all_alike_leave_the_prior_its_mode():
    alpha = np.array([0.01, 5.0, 1e-6, 2.0])
    x = mixture_proportions(np.full((10, 4), -7.0), alpha=alpha).x
    np.testing.assert_allclose(x, alpha / alpha.sum(), rtol=1e-9)


def test_stored_stacking_weights(family):
    compared = 0
    for scale, answer in family.answers["scales"].items():
        logp = {}
        for subset in answer["sets"].values():
            models = subset["models"]
            merge = family.merge_duplicates(models)
            for kind, expected in subset["stacking"].items():
                if kind not in logp:
                    logp[kind] = family.log_densities(scale, kind)
                columns = [family.order.index(model) for model in models]
                solution = mixture_proportions(logp[kind][:, columns])
                assert -solution.objective == pytest.approx(expected["log_score"], abs=1e-8)
                weights = merge @ solution.x, merge @ expected["weights"]
                np.testing.assert_allclose(*weights, atol=1e-5)
                assert solution.gap < 1e-10
                compared += 1
    assert compared


# ---- symmetries


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_permuting_the_models_permutes_the_weights(alpha):
    rng = np.random.default_rng(51)
    L, order = regression(rng, 15, 200), rng.permutation(15)
    x = mixture_proportions(L, alpha=alpha).x
    permuted = mixture_proportions(L[:, order], alpha=alpha).x
    np.testing.assert_allclose(permuted, x[order], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("shift", [-800.0, 800.0, -1e5, 1e5, "rows"])
def test_constants_in_the_rows_only_move_the_objective(shift, alpha):
    rng = np.random.default_rng(52)
    L = np.round(regression(rng, 6, 200) * 2**20) / 2**20  # so that the shift rounds nothing
    by = np.full(200, shift) if shift != "rows" else rng.choice([-900.0, 800, 1e5, 0], size=200)
    base, moved = (
        mixture_proportions(L, alpha=alpha),
        mixture_proportions(L + by[:, None], None, alpha),
    )
    np.testing.assert_array_equal(moved.x, base.x)
    assert moved.scale == base.scale
    assert moved.gap == base.gap
    assert moved.objective == pytest.approx(float(base.objective) - by.sum(), rel=1e-13, abs=1e-6)


def test_one_row_far_below_the_others_counts_like_any_other():
    rng = np.random.default_rng(53)
    L = regression(rng, 4, 100)
    base = mixture_proportions(L).x
    L[17] -= 900
    np.testing.assert_allclose(mixture_proportions(L).x, base, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.01, 5.0])
@pytest.mark.parametrize("n", [3, 200])
def test_duplicates_share_equally_and_act_as_one_model(n, alpha):
    L = regression(np.random.default_rng(54), 5, n)
    copies = np.array([0, 1, 1, 2, 3, 3, 3, 4])
    x = mixture_proportions(L[:, copies], alpha=alpha).x
    for k in range(5):
        assert np.ptp(x[copies == k]) < 1e-12
    # Merged, m copies with prior alpha are one model with prior m alpha.
    merged = mixture_proportions(L, alpha=alpha * np.bincount(copies)).x
    np.testing.assert_allclose(np.bincount(copies, x), merged, atol=1e-9)


def test_identical_models_get_equal_weights():
    L = np.tile(np.linspace(-1000, 3, 50)[:, None], (1, 7))
    np.testing.assert_allclose(mixture_proportions(L).x, 1 / 7, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_counts_are_repetitions(alpha):
    rng = np.random.default_rng(55)
    L, u = regression(rng, 5, 100), rng.integers(0, 4, size=100)
    counted = mixture_proportions(L, u, alpha)
    repeated = mixture_proportions(np.repeat(L, u, axis=0), alpha=alpha)
    np.testing.assert_allclose(counted.x, repeated.x, rtol=1e-9, atol=1e-13)
    for field in ("objective", "scale"):
        assert getattr(counted, field) == pytest.approx(float(getattr(repeated, field)))


@pytest.mark.parametrize("factor", [1e-200, 3e-13, 7e11, 1e200])
def test_rescaling_counts_and_prior_keeps_the_weights(factor):
    p = Problem(regression(np.random.default_rng(56), 8, 100), np.ones(100), np.full(8, 0.01))
    base, scaled = p.solve(), Problem(p.L, p.u * factor, p.alpha * factor).solve()
    np.testing.assert_allclose(scaled.x, base.x, rtol=1e-9)
    assert scaled.objective / factor == pytest.approx(float(base.objective))


def test_an_observation_that_does_not_count_may_be_impossible_for_all_that_remain():
    L = np.array([[0.0, -1.0, -5.0], [0.0, -1.0, -5.0], [-np.inf, -np.inf, 0.0]])
    assert mixture_proportions(L, [1.0, 1, 0]).x.tolist() == [1, 0, 0]
    x = mixture_proportions(L, [1.0, 1, 1e-9]).x
    assert x[2] == pytest.approx(5e-10 / (1 - np.exp(-5)), rel=1e-6)  # the count's share


# ---- sizes at which other software fails


@pytest.mark.parametrize(("K", "n"), [(54, 100_000), (100, 20_000)])
def test_many_models_and_observations(K, n):
    solution = mixture_proportions(regression(np.random.default_rng(61), K, n) - 800)
    assert solution.converged
    assert solution.relative_gap < 1e-14
    assert solution.x.sum() == pytest.approx(1, abs=1e-14)
    assert (solution.x == 0).any()


def test_only_one_more_array_of_the_size_of_the_input_is_made():
    L = regression(np.random.default_rng(62), 40, 50_000)
    tracemalloc.start()
    mixture_proportions(L, max_iter=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.4 * L.nbytes


@pytest.mark.parametrize("K", [40, 200])
def test_a_fine_grid_of_nearly_collinear_densities(K):
    y = np.random.default_rng(63).standard_t(3, size=1000)
    solution = mixture_proportions(-0.5 * (y[:, None] - np.linspace(-8, 8, K)) ** 2)
    assert solution.relative_gap < 1e-13
    assert (solution.x == 0).sum() > K / 3


# ---- replicates


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_replicates_are_their_problems_solved_one_by_one(alpha, monkeypatch):
    rng = np.random.default_rng(71)
    L, u = regression(rng, 5, 80), rng.dirichlet(np.ones(80), size=(2, 7)) * 80
    batch = mixture_proportions(L, u, alpha)
    assert batch.x.shape == (2, 7, 5)
    assert batch.gap.shape == batch.status.shape == batch.relative_gap.shape == (2, 7)
    assert batch.converged.all()
    for i, j in np.ndindex(2, 7):
        single = mixture_proportions(L, u[i, j], alpha)
        np.testing.assert_allclose(batch.x[i, j], single.x, rtol=1e-9, atol=1e-12)
        assert batch.objective[i, j] == pytest.approx(float(single.objective), rel=1e-12)
    monkeypatch.setitem(mixture_proportions.__globals__, "_CHUNK", 3 * 80)
    np.testing.assert_allclose(mixture_proportions(L, u, alpha).x, batch.x, rtol=1e-9, atol=1e-12)


def test_a_thousand_bootstrap_replicates():
    rng = np.random.default_rng(72)
    L, u = regression(rng, 5, 500), rng.dirichlet(np.ones(500), size=1000) * 500
    solution = mixture_proportions(L, u)
    assert solution.converged.all()
    assert solution.relative_gap.max() < 1e-13
    centre = mixture_proportions(L).x
    assert np.abs(solution.x.mean(axis=0) - centre).max() < 0.05


def test_no_replicates_are_fine():
    solution = mixture_proportions(np.zeros((4, 3)), np.zeros((0, 4)))
    assert solution.x.shape == (0, 3)
    assert solution.converged.shape == (0,)


# ---- the certificate and the limits


def test_gap_of_an_unfinished_solve_bounds_its_true_error():
    rng = np.random.default_rng(81)
    loose = 0
    for _ in range(100):
        problem = random_problem(rng)
        best = problem.f(problem.solve().x)
        for steps in (0, 1, 2, 4):
            early = problem.solve(max_iter=steps)
            rounding = 1e-13 * float(early.scale)
            error = problem.f(early.x) - best
            assert -rounding <= error <= early.gap + rounding
            assert 0 < early.gap <= problem.frank_wolfe_gap(early.x) * (1 + 1e-9) + rounding
            loose += error > 1e-6 * early.scale
    assert loose > 60  # the bound was put to the test


def test_without_prior_the_bound_is_the_largest_mean_density_ratio():
    L = regression(np.random.default_rng(82), 6, 50)
    early = mixture_proportions(L, max_iter=1)
    P = np.exp(L)
    ratio = (P / (P @ early.x)[:, None]).mean(axis=0)
    assert early.gap == pytest.approx(50 * np.log(ratio.max()), rel=1e-12)


def test_a_low_iteration_limit_is_reported():
    L = regression(np.random.default_rng(83), 30, 100)
    early = mixture_proportions(L, max_iter=2)
    assert not early.converged
    assert early.status == "iteration limit"
    assert early.iterations == 2
    assert early.gap > 1e-10 * early.scale
    assert early.x.sum() == pytest.approx(1)


def test_an_impossible_tolerance_stalls_and_says_so():
    solution = mixture_proportions(regression(np.random.default_rng(84), 8, 100), tol=1e-30)
    assert not solution.converged
    assert solution.status == "stalled"
    assert solution.relative_gap < 1e-14


# ---- bad input


@pytest.mark.parametrize(
    ("L", "counts", "alpha", "error"),
    [
        (np.zeros(3), None, 0.0, ShapeError),
        (np.zeros((2, 3, 4)), None, 0.0, ShapeError),
        (np.zeros((0, 3)), None, 0.0, ShapeError),
        (np.zeros((3, 0)), None, 0.0, ShapeError),
        (np.zeros((3, 2)), np.ones(2), 0.0, ShapeError),
        (np.zeros((3, 2)), 1.0, 0.0, ShapeError),
        (np.zeros((3, 2)), None, np.zeros(3), ShapeError),
        (np.zeros((3, 2)), None, np.zeros((1, 2)), ShapeError),
        (np.zeros((3, 2)), [1, np.nan, 1], 0.0, NonFiniteError),
        (np.zeros((3, 2)), [1, np.inf, 1], 0.0, NonFiniteError),
        (np.zeros((3, 2)), None, np.nan, NonFiniteError),
        (np.zeros((3, 2)), [1, -1, 1], 0.0, ParameterError),
        (np.zeros((3, 2)), [0, 0, 0], 0.0, ParameterError),
        (np.zeros((3, 2)), [[1, 1, 1], [0, 0, 0]], 0.0, ParameterError),
        (np.zeros((3, 2)), None, -0.01, ParameterError),
    ],
)
def test_bad_input_raises(L, counts, alpha, error):
    with pytest.raises(error):
        mixture_proportions(L, counts, alpha)


@pytest.mark.parametrize("row", [[0.0, np.nan], [0.0, np.inf], [-np.inf, np.nan], [-np.inf] * 2])
def test_a_row_without_a_finite_best_is_named(row):
    with pytest.raises(NonFiniteError, match="Row 2 .*1 of 4"):
        mixture_proportions([[0.0, 1], [0, 1], row, [0, -np.inf]])
