"""Nonnegative quadratic programmes against closed forms, another solver and their symmetry."""

from dataclasses import dataclass

import clarabel
import mpmath
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.base import Solution
from lockquack.solvers.nonnegative_qp import nonnegative_qp
from lockquack.solvers.simplex_qp import simplex_qp


@dataclass(frozen=True)
class Problem:
    Q: np.ndarray
    c: np.ndarray
    alpha: np.ndarray
    strong: bool  # well conditioned and evenly scaled, so that the weights are well determined

    def solve(self, **options) -> Solution:
        return nonnegative_qp(self.Q, self.c, self.alpha, **options)

    def f(self, w):
        prior = self.alpha > 0
        return w @ self.Q @ w + 2 * self.c @ w - self.alpha[prior] @ np.log(w[prior])


def random_problem(rng) -> Problem:
    """A problem that has a minimum: without curvature, the linear term is level too."""
    K = int(rng.choice([1, 2, 3, 5, 8, 13, 30]))
    n = int(rng.choice([max(1, K // 3), K, 4 * K + 5]))
    G = rng.normal(size=(n, K)) + rng.choice([0, 1, 10]) * rng.normal(size=(n, 1))
    kind = rng.choice(["plain", "badly scaled", "duplicates", "nearly singular"])
    if kind == "badly scaled":
        G *= 10 ** rng.uniform(-3, 3, size=K)
    if kind == "duplicates":
        G[:, 1::2] = G[:, 0 : 2 * (K // 2) : 2]
    if kind == "nearly singular":
        G[:, K // 2] = G[:, 0] + rng.normal(size=n) * 1e-6
    # The residuals of a regression whose coefficients would like to be positive on average.
    b = G @ (rng.normal(size=K) + rng.choice([0, 1])) + rng.normal(size=n)
    mixed = np.where(rng.random(K) < 0.5, 0.0, 10 ** rng.uniform(-3, 1, size=K))
    alpha = [np.zeros(K), np.full(K, 0.01), mixed, np.full(K, 5.0)][rng.integers(4)]
    if n < K:
        alpha = np.zeros(K)  # a prior would push along directions without curvature
    size = 10.0 ** rng.choice([-12, -6, 0, 0, 0, 6, 12])
    Q, c = G.T @ G * size, -G.T @ b * size
    strong = kind == "plain" and n > K and np.linalg.cond(Q) < 1e5
    return Problem(Q, c, alpha * rng.choice([1.0, size]), bool(strong))


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(20240609)
    problems = [random_problem(rng) for _ in range(400)]
    return [(problem, problem.solve()) for problem in problems]


def clarabel_weights(problem: Problem) -> tuple[np.ndarray, bool]:
    """Clarabel's minimiser, made feasible, and whether Clarabel claims it solved it."""
    K = len(problem.c)
    prior = np.flatnonzero(problem.alpha > 0)
    m = len(prior)
    root = np.sqrt(np.diagonal(problem.Q))
    size = max(np.abs(problem.c / root).max(), np.sqrt(problem.alpha.max()))
    unit = size / root
    P = 2 * problem.Q * unit[:, None] * unit / size**2
    linear = np.concatenate([2 * problem.c * unit, -problem.alpha[prior]]) / size**2
    P = sparse.block_diag([sparse.csc_matrix(P), sparse.csc_matrix((m, m))])
    # t_k <= log w_k is (t_k, 1, w_k) in the exponential cone.
    cone = sparse.lil_matrix((3 * m, K + m))
    offset = np.zeros(3 * m)
    for i, k in enumerate(prior):
        cone[3 * i, K + i] = cone[3 * i + 2, k] = -1
        offset[3 * i + 1] = 1
    sign = sparse.hstack([-sparse.eye(K), sparse.csc_matrix((K, m))])
    A = sparse.vstack([sign, cone]).tocsc()
    b = np.concatenate([np.zeros(K), offset])
    cones = [clarabel.NonnegativeConeT(K)] + [clarabel.ExponentialConeT()] * m
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    P = sparse.triu(P).tocsc()
    result = clarabel.DefaultSolver(P, linear, A, b, cones, settings).solve()
    w = np.maximum(np.array(result.x[:K]), np.where(problem.alpha > 0, 1e-300, 0.0))
    return w * unit, str(result.status) == "Solved"


# ---- several hundred random problems


def test_every_problem_is_certified(many):
    assert max(float(solution.relative_gap) for _, solution in many) < 1e-10
    assert all(solution.converged and solution.status == "converged" for _, solution in many)


def test_weights_are_not_negative_and_positive_where_there_is_a_prior(many):
    for problem, solution in many:
        assert (solution.x >= 0).all()
        assert (solution.x[problem.alpha > 0] > 0).all()


def test_objective_and_scale_are_what_they_are_said_to_be(many):
    for problem, solution in many:
        w, prior = solution.x, problem.alpha > 0
        logs = problem.alpha[prior] * np.log(w[prior])
        scale = w @ problem.Q @ w + 2 * np.abs(problem.c) @ w
        scale += problem.alpha.sum() + np.abs(logs).sum()
        assert solution.scale == pytest.approx(scale, rel=1e-9)
        assert abs(solution.objective - problem.f(w)) <= 1e-12 * scale


def test_optimality_conditions_hold(many):
    for problem, solution in many:
        w = solution.x
        pull = np.divide(problem.alpha, w, out=np.zeros_like(w), where=problem.alpha > 0)
        gradient = 2 * (problem.Q @ w + problem.c) - pull
        unit = 1 / np.sqrt(np.diagonal(problem.Q))
        size = np.sqrt(solution.scale) + np.abs(problem.c * unit).max() + (pull * unit).max()
        assert (gradient * unit > -1e-6 * size).all()
        assert np.abs(gradient * w).max() < 1e-6 * solution.scale + 1e-12 * size**2


def test_never_worse_than_clarabel(many):
    solved = 0
    for problem, solution in many:
        theirs, claimed = clarabel_weights(problem)
        excess = problem.f(solution.x) - problem.f(theirs)
        assert excess <= 1e-9 * solution.scale
        if claimed and problem.strong:
            solved += 1
            np.testing.assert_allclose(solution.x, theirs, atol=1e-4 * theirs.max() + 1e-12)
            assert -excess <= 1e-6 * solution.scale + 1e-12 * np.abs(problem.c).max()
    assert solved > 20


def test_agreement_with_nonnegative_least_squares():
    rng = np.random.default_rng(2)
    for K in (1, 2, 6, 15, 30):
        A, b = rng.normal(size=(50, K)), rng.normal(size=50)
        theirs, _ = nnls(A, b)
        ours = nonnegative_qp(A.T @ A, -A.T @ b)
        np.testing.assert_allclose(ours.x, theirs, atol=1e-11)
        np.testing.assert_array_equal(ours.x == 0, theirs == 0)


# ---- answers known otherwise


@pytest.mark.parametrize("alpha", [0.0, 1e-9, 0.01, 5.0])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_independent_weights_in_closed_form(size, alpha):
    # 2 q w + 2 c − alpha / w = 0
    q, c = np.array([1.0, 3.0, 1e-4, 1e4, 0.5]), np.array([-1.0, 2.0, -5.0, -1e-3, 0.0])
    q, c, a = q * size, c * size, alpha * size
    root = np.sqrt(c**2 + 2 * q * a)
    exact = np.where(c < 0, (root - c) / (2 * q), a / np.where(root + c > 0, root + c, 1.0))
    solution = nonnegative_qp(np.diag(q), c, a)
    np.testing.assert_allclose(solution.x, exact, rtol=1e-8, atol=0)
    assert solution.converged


def test_weights_without_curvature_are_held_by_their_linear_terms():
    solution = nonnegative_qp(np.zeros((3, 3)), [1.0, 2.0, 1e-3], [0.5, 0.0, 0.1])
    np.testing.assert_allclose(solution.x, [0.25, 0.0, 50.0], rtol=1e-9)
    assert solution.converged


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_recalibration_of_one_model(alpha):
    solution = nonnegative_qp([[4.0]], [-6.0], alpha)
    assert solution.x[0] == pytest.approx((6 + np.sqrt(36 + 8 * alpha)) / 8, rel=1e-14)


def test_nothing_wanted_is_exactly_nothing():
    solution = nonnegative_qp(np.eye(3), [0.0, 1.0, 2.0])
    assert solution.x.tolist() == [0, 0, 0]
    assert solution.converged
    assert solution.gap == solution.scale == solution.relative_gap == 0


@pytest.mark.parametrize("n", [40, 8])
def test_weights_agree_with_fifty_digits(n):
    rng = np.random.default_rng(n)
    K, a = 6, 0.01
    G = rng.normal(size=(n, K))
    Q, c = G.T @ G, -G.T @ G @ rng.normal(size=K)
    x = nonnegative_qp(Q, c, a).x
    with mpmath.workdps(50):
        w = [mpmath.mpf(v) for v in x]
        for _ in range(8):
            jacobian, rhs = mpmath.mpf(2) * mpmath.matrix(Q.tolist()), mpmath.zeros(K, 1)
            for i in range(K):
                rhs[i] = mpmath.mpf(a) / w[i] - 2 * (mpmath.fdot(Q[i].tolist(), w) + c[i])
                jacobian[i, i] += mpmath.mpf(a) / w[i] ** 2
            step = mpmath.lu_solve(jacobian, rhs)
            w = [v + dv for v, dv in zip(w, step, strict=True)]
        assert max(abs(s / v) for s, v in zip(step, w, strict=True)) < 1e-30
    np.testing.assert_allclose(x, [float(v) for v in w], rtol=1e-9)


def test_the_sum_on_the_simplex_is_that_of_a_free_minimum_which_sums_to_one():
    rng = np.random.default_rng(6)
    G = rng.normal(size=(30, 7))
    Q = G.T @ G
    target = rng.dirichlet(np.ones(7))
    free = nonnegative_qp(Q, -Q @ target)
    np.testing.assert_allclose(free.x, target, atol=1e-12)
    np.testing.assert_allclose(free.x, simplex_qp(Q, -Q @ target, 0.0).x, atol=1e-11)


# ---- problems without a minimum


@pytest.mark.parametrize(
    ("quad", "linear", "alpha"),
    [
        ([[0.0]], [-1.0], 0.0),
        ([[0.0]], [0.0], 0.01),
        ([[1.0, -1.0], [-1.0, 1.0]], [0.0, -1.0], 0.0),
        ([[1.0, -1.0], [-1.0, 1.0]], [0.0, -1e-6], 0.0),
        ([[1.0, -1.0], [-1.0, 1.0]], [0.0, -1e6], 0.01),
        ([[1.0, -1.0], [-1.0, 1.0]], [0.0, 0.0], 0.01),
        ([[1.0, 0.0], [0.0, 0.0]], [-3.0, -1e-3], 0.0),
        ([[4.0, 0.0, -2.0], [0.0, 1.0, 0.0], [-2.0, 0.0, 1.0]], [-1.0, 1.0, 0.2], 0.0),
    ],
)
def test_unbounded_problems_say_so(quad, linear, alpha):
    solution = nonnegative_qp(quad, linear, alpha)
    assert solution.status == "unbounded"
    assert not solution.converged
    assert np.isfinite(solution.x).all()
    assert np.isfinite(solution.objective)
    assert solution.gap == solution.relative_gap == np.inf


def test_random_unbounded_problems_say_so():
    rng = np.random.default_rng(7)
    for _ in range(20):
        K = int(rng.integers(2, 20))
        v = np.where(rng.random(K) < 0.5, rng.exponential(size=K), 0.0)
        v[0] = 1.0
        G = rng.normal(size=(2 * K, K))
        G -= np.outer(G @ v, v) / (v @ v)  # so that G v = 0
        c = rng.normal(size=K)
        c -= v * (c @ v + rng.exponential()) / (v @ v)
        solution = nonnegative_qp(G.T @ G, c)
        assert solution.status == "unbounded"
        assert not solution.converged


def test_almost_unbounded_problems_are_solved_or_admit_that_they_are_not():
    rng = np.random.default_rng(8)
    for curvature in 10.0 ** np.arange(-14, 1):
        V = np.linalg.qr(np.column_stack([rng.exponential(size=5), rng.normal(size=(5, 4))]))[0]
        v = np.abs(V[:, 0])
        Q = (V * [curvature, 1, 1, 2, 3]) @ V.T
        solution = nonnegative_qp(Q, -v)
        assert solution.converged == (curvature > 1e-6) or curvature == pytest.approx(1e-6)
        if curvature > 1e-10:
            error = np.abs(solution.x * curvature / v - 1).max()
            assert error < 1e-13 / curvature
        if curvature < 1e-13:
            assert solution.status == "unbounded"


# ---- symmetries


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_permuting_the_models_permutes_the_weights(alpha):
    rng = np.random.default_rng(11)
    G = rng.normal(size=(40, 15))
    Q, c, order = G.T @ G, -G.T @ rng.normal(size=40), rng.permutation(15)
    permuted = nonnegative_qp(Q[np.ix_(order, order)], c[order], alpha)
    expected = nonnegative_qp(Q, c, alpha).x[order]
    np.testing.assert_allclose(permuted.x, expected, rtol=1e-8, atol=1e-13)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("factor", [1e-100, 3e-13, 7e11, 1e100])
def test_rescaling_the_objective_keeps_the_weights(factor, alpha):
    rng = np.random.default_rng(12)
    G = rng.normal(size=(30, 8))
    Q, c = G.T @ G, -G.T @ rng.normal(size=30)
    base, scaled = (
        nonnegative_qp(Q, c, alpha),
        nonnegative_qp(Q * factor, c * factor, alpha * factor),
    )
    np.testing.assert_allclose(scaled.x, base.x, rtol=1e-8, atol=1e-13)
    assert scaled.objective / factor == pytest.approx(float(base.objective), rel=1e-10)
    assert scaled.scale / factor == pytest.approx(float(base.scale), rel=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_changing_the_units_of_the_weights_changes_the_weights_alike(alpha):
    rng = np.random.default_rng(13)
    G, unit = rng.normal(size=(30, 8)), 10 ** rng.uniform(-6, 6, size=8)
    Q, c = G.T @ G, -G.T @ rng.normal(size=30)
    changed = nonnegative_qp(Q * unit * unit[:, None], c * unit, alpha)
    np.testing.assert_allclose(
        changed.x * unit, nonnegative_qp(Q, c, alpha).x, rtol=1e-7, atol=1e-13
    )


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_duplicates_share_equally_and_act_as_one_model(alpha):
    rng = np.random.default_rng(14)
    G = rng.normal(size=(30, 5))
    Q, c = G.T @ G, -G.T @ np.abs(rng.normal(size=30))
    copies = np.array([0, 1, 1, 2, 3, 3, 3, 4])
    x = nonnegative_qp(Q[np.ix_(copies, copies)], c[copies], alpha).x
    for k in range(5):
        assert np.ptp(x[copies == k]) < 1e-8
    merged = nonnegative_qp(Q, c, alpha * np.bincount(copies)).x
    np.testing.assert_allclose(np.bincount(copies, x), merged, atol=1e-9)


def test_only_the_symmetric_part_of_the_matrix_matters():
    skew = np.triu(np.ones((3, 3)), 1)
    Q, c = np.diag([1.0, 2.0, 3.0]), -np.ones(3)
    changed = nonnegative_qp(Q + skew - skew.T, c, 0.1)
    np.testing.assert_allclose(changed.x, nonnegative_qp(Q, c, 0.1).x, rtol=1e-12)


# ---- batches, the certificate and the limits


def test_a_batch_is_its_problems_solved_one_by_one():
    rng = np.random.default_rng(21)
    G = rng.normal(size=(3, 1, 12, 9)) * 10 ** rng.uniform(-3, 3, size=(3, 1, 1, 1))
    Q = np.swapaxes(G, -1, -2) @ G
    c = rng.normal(size=(4, 9)) * 10
    alpha = np.where(np.arange(9) % 2, 0.01, 0.0)
    batch = nonnegative_qp(Q, c, alpha)
    assert batch.x.shape == (3, 4, 9)
    assert batch.gap.shape == batch.status.shape == batch.relative_gap.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        single = nonnegative_qp(Q[i, 0], c[j], alpha)
        assert single.gap.shape == single.status.shape == ()
        np.testing.assert_allclose(batch.x[i, j], single.x, rtol=1e-9, atol=1e-12)
        assert batch.objective[i, j] == pytest.approx(float(single.objective), rel=1e-12)
    assert batch.converged.all()


def test_an_empty_batch_is_fine():
    solution = nonnegative_qp(np.zeros((0, 3, 3)), np.zeros((0, 3)))
    assert solution.x.shape == (0, 3)
    assert solution.converged.shape == (0,)


def test_an_unbounded_problem_leaves_the_others_alone():
    Q = np.stack([np.eye(2), np.zeros((2, 2)), 2 * np.eye(2)])
    batch = nonnegative_qp(Q, [-1.0, -1.0])
    assert batch.status.tolist() == ["converged", "unbounded", "converged"]
    np.testing.assert_allclose(batch.x[[0, 2]], [[1, 1], [0.5, 0.5]], rtol=1e-12)


def test_gap_of_an_unfinished_solve_bounds_its_true_error():
    rng = np.random.default_rng(31)
    loose = 0
    for _ in range(80):
        problem = random_problem(rng)
        best = problem.f(problem.solve().x)
        for steps in (0, 1, 2, 4):
            early = problem.solve(max_iter=steps)
            error = problem.f(early.x) - best
            assert error <= early.gap * (1 + 1e-9) + 1e-12 * early.scale
            loose += np.isfinite(early.gap) and error > 1e-6 * early.scale
    assert loose > 30  # the bound was put to the test


def test_a_low_iteration_limit_is_reported():
    rng = np.random.default_rng(32)
    G = rng.normal(size=(60, 30)) + rng.normal(size=(60, 1))
    early = nonnegative_qp(G.T @ G, -G.T @ rng.normal(size=60), max_iter=1)
    assert not early.converged
    assert early.status == "iteration limit"
    assert early.iterations == 1
    assert np.isfinite(early.x).all()


def test_an_impossible_tolerance_stalls_and_says_so():
    rng = np.random.default_rng(33)
    G = rng.normal(size=(40, 12))
    solution = nonnegative_qp(G.T @ G, -G.T @ rng.normal(size=40), tol=1e-30)
    assert not solution.converged
    assert solution.status == "stalled"
    assert solution.relative_gap < 1e-12


@pytest.mark.parametrize(
    ("quad", "linear", "alpha", "error"),
    [
        (np.eye(3), np.zeros(2), 0.01, ShapeError),
        (np.eye(3), np.zeros(3), [0.01, 0.01], ShapeError),
        (np.eye(2) * np.nan, np.zeros(2), 0.01, NonFiniteError),
        (np.eye(2), np.zeros(2), -0.01, ParameterError),
        (np.diag([1.0, -1.0]), np.zeros(2), 0.01, ParameterError),
    ],
)
def test_bad_input_raises(quad, linear, alpha, error):
    with pytest.raises(error):
        nonnegative_qp(quad, linear, alpha)
