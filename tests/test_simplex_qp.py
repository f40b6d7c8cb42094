"""The simplex solver against closed forms, high precision, another solver and its own symmetry."""

from dataclasses import dataclass

import clarabel
import mpmath
import numpy as np
import pytest
from scipy import sparse

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.base import Solution
from lockquack.solvers.interior_point import solve_each
from lockquack.solvers.simplex_qp import simplex_qp, simplex_qp_near


@dataclass(frozen=True)
class Problem:
    Q: np.ndarray
    c: np.ndarray
    alpha: np.ndarray
    strong: bool  # strongly convex and evenly scaled, so that the weights are well determined

    def solve(self, **options) -> Solution:
        return simplex_qp(self.Q, self.c, self.alpha, **options)

    def f(self, w):
        """The objective up to the constant that a shift of c adds."""
        prior = self.alpha > 0
        logs = self.alpha[prior] * np.log(w[prior])
        return w @ self.Q @ w + 2 * (self.c - self.c.min()) @ w - logs.sum()


def random_problem(rng) -> Problem:
    K = int(rng.choice([2, 3, 5, 8, 13, 30, 60, 200], p=[0.15] * 5 + [0.12, 0.1, 0.03]))
    n = int(rng.choice([max(1, K // 3), K, 4 * K + 5]))
    G = rng.normal(size=(n, K)) + rng.choice([0, 1, 10]) * rng.normal(size=(n, 1))
    kind = rng.choice(["plain", "badly scaled", "duplicates"], p=[0.5, 0.25, 0.25])
    if kind == "badly scaled":
        G *= 10 ** rng.uniform(0, 4, size=K)
    if kind == "duplicates":
        G[:, 1::2] = G[:, 0 : 2 * (K // 2) : 2]
    Q = G.T @ G
    c = G.T @ rng.normal(size=n) * rng.choice([0, 1, 3]) / np.sqrt(n)
    c = c + rng.choice([0, 100]) * rng.normal()
    size = 10.0 ** rng.choice([-12, -6, 0, 0, 0, 6, 12])
    mixed = np.where(rng.random(K) < 0.5, 0.0, 10 ** rng.uniform(-3, 1, size=K))
    alpha = [np.zeros(K), np.full(K, 0.01), mixed, np.full(K, 5.0)][rng.integers(4)]
    alpha = alpha * rng.choice([1.0, size])
    strong = kind == "plain" and n > K and np.linalg.cond(Q) < 1e5
    return Problem(Q * size, c * size, alpha, bool(strong))


@pytest.fixture(scope="module")
def thousand():
    rng = np.random.default_rng(20240607)
    problems = [random_problem(rng) for _ in range(1000)]
    return [(problem, problem.solve()) for problem in problems]


def clarabel_weights(problem: Problem) -> tuple[np.ndarray, bool]:
    """Clarabel's minimiser, moved onto the simplex, and whether Clarabel claims it solved it."""
    K = len(problem.c)
    prior = np.flatnonzero(problem.alpha > 0)
    P, linear = 2 * problem.Q, 2 * (problem.c - problem.c.min())
    size = max(np.abs(P).max(), np.abs(linear).max(), problem.alpha.max())
    m = len(prior)
    P = sparse.block_diag([sparse.csc_matrix(P / size), sparse.csc_matrix((m, m))])
    q = np.concatenate([linear, -problem.alpha[prior]]) / size
    # t_k <= log w_k is (t_k, 1, w_k) in the exponential cone.
    cone = sparse.lil_matrix((3 * m, K + m))
    offset = np.zeros(3 * m)
    for i, k in enumerate(prior):
        cone[3 * i, K + i] = cone[3 * i + 2, k] = -1
        offset[3 * i + 1] = 1
    total = sparse.csc_matrix(np.r_[np.ones(K), np.zeros(m)][None])
    sign = sparse.hstack([-sparse.eye(K), sparse.csc_matrix((K, m))])
    A = sparse.vstack([total, sign, cone]).tocsc()
    b = np.concatenate([[1.0], np.zeros(K), offset])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(K)]
    cones += [clarabel.ExponentialConeT()] * m
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    P = sparse.triu(P).tocsc()
    result = clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()
    w = np.maximum(np.array(result.x[:K]), np.where(problem.alpha > 0, 1e-300, 0.0))
    return w / w.sum(), str(result.status) == "Solved"


def frank_wolfe_gap(problem: Problem, w):
    prior = np.divide(problem.alpha, w, out=np.zeros_like(w), where=problem.alpha > 0)
    gradient = 2 * (problem.Q @ w + problem.c - problem.c.min()) - prior
    return gradient @ w - gradient.min()


def regression(rng, K, n, alpha) -> Problem:
    """A strongly convex problem whose optimum leaves some models out."""
    G = rng.normal(size=(n, K))
    return Problem(G.T @ G, -G.T @ G @ rng.normal(size=K), np.full(K, alpha), True)


# ---- a thousand random problems


def test_every_problem_is_certified(thousand):
    assert max(float(solution.relative_gap) for _, solution in thousand) < 1e-9
    assert all(solution.converged and solution.status == "converged" for _, solution in thousand)


def test_weights_are_on_the_simplex_and_inside_it_where_there_is_a_prior(thousand):
    for problem, solution in thousand:
        assert abs(solution.x.sum() - 1) < 1e-13
        assert (solution.x >= 0).all()
        assert (solution.x[problem.alpha > 0] > 0).all()


def test_the_cruder_frank_wolfe_gap_is_small_too(thousand):
    # A prior below the rounding error of the objective leaves the tiniest weights, and so the
    # slopes alpha / w that this gap is made of, to the machine's arithmetic.
    felt = [
        (problem, solution)
        for problem, solution in thousand
        if (problem.alpha[problem.alpha > 0] > 1e-13 * solution.scale).all()
    ]
    assert len(felt) > 900
    for problem, solution in felt:
        rounding = np.abs(problem.Q).max() + np.ptp(problem.c) + problem.alpha.max()
        assert frank_wolfe_gap(problem, solution.x) <= 1e-7 * solution.scale + 1e-12 * rounding


def test_never_worse_than_clarabel(thousand):
    solved = 0
    for problem, solution in thousand:
        theirs, claimed = clarabel_weights(problem)
        excess = problem.f(solution.x) - problem.f(theirs)
        assert excess <= 1e-9 * solution.scale
        if claimed and problem.strong:
            solved += 1
            assert np.abs(solution.x - theirs).max() < 1e-4
            assert -excess <= 1e-6 * solution.scale
    assert solved > 30
    assert len(thousand) == 1000


def test_a_prior_as_strong_as_the_data_does_not_trap_the_iteration():
    # Both pull with equal force: multipliers that overshoot towards zero have to come back.
    rng = np.random.default_rng(7)
    G = rng.normal(size=(4000, 8, 8)) + rng.choice([0, 1, 10], size=(4000, 1, 1))
    c = np.swapaxes(G, -1, -2) @ rng.normal(size=(4000, 8, 1))
    alpha = 10 ** rng.uniform(-1, 1.5, size=(4000, 1))
    solution = simplex_qp(np.swapaxes(G, -1, -2) @ G, 2 * c[..., 0], alpha)
    assert solution.converged.all()
    assert solution.iterations.max() < 40


# ---- answers known otherwise


def test_interior_optimum_in_closed_form():
    d = np.array([1.0, 2.0, 4.0, 1e6])
    np.testing.assert_allclose(simplex_qp(np.diag(d), np.zeros(4), 0.0).x, (1 / d) / sum(1 / d))


def test_prior_alone_gives_its_mode():
    alpha = np.array([0.01, 5.0, 1e-6, 2.0])
    x = simplex_qp(np.zeros((4, 4)), np.full(4, 7.0), alpha).x
    np.testing.assert_allclose(x, alpha / alpha.sum(), rtol=1e-10)


def test_two_models_with_prior_solve_their_cubic():
    # f' = 2 q w − 2 r (1 − w) + 2 c − a / w + a / (1 − w), times w (1 − w).
    q, r, c, a = 3.0, 50.0, 4.0, 0.01
    roots = np.roots([-2 * (q + r), 4 * r + 2 * q - 2 * c, 2 * c - 2 * r + 2 * a, -a])
    (root,) = [v.real for v in roots if abs(v.imag) < 1e-12 and 0 < v.real < 1]
    x = simplex_qp([[q, 0], [0, r]], [c, 0], a).x
    np.testing.assert_allclose(x, [root, 1 - root], rtol=1e-12)


@pytest.mark.parametrize(("n", "size"), [(40, 1e2), (40, 1e4), (3, 1e4), (40, 1e8)])
def test_weights_agree_with_fifty_digits(n, size):
    rng = np.random.default_rng(n)
    K, a = 6, mpmath.mpf(0.01)
    G = rng.normal(size=(n, K))
    Q, c = G.T @ G, -2 * G.T @ rng.normal(size=n) + np.arange(K) * n
    factor = size / np.abs(Q).max()
    Q, c = Q * factor, c * factor
    x = simplex_qp(Q, c).x
    with mpmath.workdps(50):
        w = [mpmath.mpf(v) for v in x]
        for _ in range(8):
            jacobian, rhs = mpmath.zeros(K + 1), mpmath.zeros(K + 1, 1)
            for i in range(K):
                rhs[i] = a / w[i] - 2 * (mpmath.fdot(Q[i].tolist(), w) + c[i])
                for j in range(K):
                    jacobian[i, j] = 2 * mpmath.mpf(Q[i, j])
                jacobian[i, i] += a / w[i] ** 2
                jacobian[i, K] = jacobian[K, i] = 1
            rhs[K] = 1 - mpmath.fsum(w)
            step = mpmath.lu_solve(jacobian, rhs)
            w = [v + dv for v, dv in zip(w, step, strict=False)]
        assert max(abs(s / v) for s, v in zip(step, w, strict=False)) < 1e-30
    exact = np.array([float(v) for v in w])
    assert exact.min() < 1e-4
    np.testing.assert_allclose(x, exact, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("alpha", [0.0, 0.01, 5.0])
def test_one_model_has_all_the_weight(alpha):
    solution = simplex_qp([[3.0]], [-1.0], alpha)
    assert solution.x.tolist() == [1.0]
    assert solution.objective == pytest.approx(1.0)
    assert solution.relative_gap < 1e-15
    assert solution.converged


def test_zeros_are_exact_where_an_interior_point_has_dust():
    rng = np.random.default_rng(5)
    problem = regression(rng, 20, 60, 0.0)
    w = problem.solve().x
    theirs, solved = clarabel_weights(problem)
    assert solved
    dust = theirs < 1e-7
    assert 5 < dust.sum() < 20
    assert (w[dust] == 0.0).all()
    assert (w[~dust] > 0.0).all()
    gradient = 2 * (problem.Q @ w + problem.c)
    on = w > 0
    np.testing.assert_allclose(gradient[on], gradient[on][0], rtol=1e-10)
    assert (gradient[~on] > gradient[on][0]).all()


def test_vertex_optimum_without_curvature():
    assert simplex_qp(np.zeros((3, 3)), [2.0, -1.0, 5.0], 0.0).x.tolist() == [0.0, 1.0, 0.0]
    perfect = simplex_qp(np.diag([0.0, 1.0, 2.0]), np.zeros(3), 0.0)
    assert perfect.x.tolist() == [1.0, 0.0, 0.0]
    assert perfect.converged


# ---- symmetries


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_permuting_the_models_permutes_the_weights(alpha):
    rng = np.random.default_rng(11)
    p = regression(rng, 15, 40, alpha)
    order = rng.permutation(15)
    permuted = simplex_qp(p.Q[np.ix_(order, order)], p.c[order], p.alpha[order])
    np.testing.assert_allclose(permuted.x, p.solve().x[order], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("factor", [1e-200, 3e-13, 0.7, 7e11, 1e200])
def test_rescaling_the_objective_keeps_the_weights(factor, alpha):
    p = regression(np.random.default_rng(12), 8, 30, alpha)
    base, scaled = p.solve(), simplex_qp(p.Q * factor, p.c * factor, p.alpha * factor)
    np.testing.assert_allclose(scaled.x, base.x, rtol=1e-9, atol=1e-13)
    assert scaled.objective / factor == pytest.approx(float(base.objective), rel=1e-10)
    assert scaled.scale / factor == pytest.approx(float(base.scale), rel=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("shift", [-3.0, 1e3, 2.0**20])
def test_a_constant_in_the_linear_term_only_moves_the_objective(shift, alpha):
    p = regression(np.random.default_rng(13), 8, 30, alpha)
    base, moved = p.solve(), simplex_qp(p.Q, p.c + shift, p.alpha)
    np.testing.assert_allclose(moved.x, base.x, atol=1e-9)
    assert moved.objective - 2 * shift == pytest.approx(float(base.objective), abs=1e-8)
    assert moved.scale == pytest.approx(float(base.scale), rel=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.01, 5.0])
@pytest.mark.parametrize("n", [3, 30])
def test_duplicates_share_equally_and_act_as_one_model(n, alpha):
    rng = np.random.default_rng(n)
    G = rng.normal(size=(n, 5))
    c = G.T @ rng.normal(size=n)
    copies = np.array([0, 1, 1, 2, 3, 3, 3, 4])
    x = simplex_qp((G.T @ G)[np.ix_(copies, copies)], c[copies], alpha).x
    for k in range(5):
        assert np.ptp(x[copies == k]) < 1e-8
    if n == 30:  # merged, m copies with prior alpha are one model with prior m alpha
        merged = simplex_qp(G.T @ G, c, alpha * np.bincount(copies)).x
        np.testing.assert_allclose(np.bincount(copies, x), merged, atol=1e-9)


def test_identical_models_get_equal_weights():
    np.testing.assert_allclose(simplex_qp(np.ones((7, 7)), np.ones(7), 0.0).x, 1 / 7, rtol=1e-12)


def test_only_the_symmetric_part_of_the_matrix_matters():
    p = regression(np.random.default_rng(14), 5, 20, 0.01)
    skew = np.triu(np.ones((5, 5)), 1) * 3
    np.testing.assert_allclose(simplex_qp(p.Q + skew - skew.T, p.c).x, p.solve().x, rtol=1e-9)


# ---- batches


def test_a_batch_is_its_problems_solved_one_by_one():
    rng = np.random.default_rng(21)
    G = rng.normal(size=(3, 1, 6, 9)) * 10 ** rng.uniform(-3, 3, size=(3, 1, 1, 1))
    Q = np.swapaxes(G, -1, -2) @ G
    c = rng.normal(size=(4, 9)) * 10
    alpha = np.where(np.arange(9) % 2, 0.01, 0.0)
    batch = simplex_qp(Q, c, alpha)
    assert batch.x.shape == (3, 4, 9)
    assert batch.gap.shape == batch.status.shape == batch.relative_gap.shape == (3, 4)
    for i, j in np.ndindex(3, 4):
        single = simplex_qp(Q[i, 0], c[j], alpha)
        np.testing.assert_allclose(batch.x[i, j], single.x, rtol=1e-9, atol=1e-12)
        assert batch.objective[i, j] == pytest.approx(float(single.objective), rel=1e-12)
        assert batch.iterations[i, j] == single.iterations
    assert batch.converged.all()


def test_chunks_do_not_show(monkeypatch):
    rng = np.random.default_rng(22)
    G = rng.normal(size=(7, 12, 4))
    Q, c = np.swapaxes(G, -1, -2) @ G, rng.normal(size=(7, 4))
    whole = simplex_qp(Q, c)
    monkeypatch.setitem(simplex_qp.__globals__, "_CHUNK", 3 * 16)
    np.testing.assert_allclose(simplex_qp(Q, c).x, whole.x, rtol=1e-12)


def test_an_empty_batch_is_fine():
    solution = simplex_qp(np.zeros((0, 3, 3)), np.zeros((0, 3)))
    assert solution.x.shape == (0, 3)
    assert solution.converged.shape == (0,)


def test_trouble_in_one_problem_leaves_the_others_alone():
    p = regression(np.random.default_rng(23), 4, 20, 0.01)
    broken = np.array([[1, 1e9, 0, 0], [1e9, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]) * -1
    np.fill_diagonal(broken, 1)  # indefinite: its optimum is not even a stationary point
    batch = simplex_qp(np.stack([p.Q, broken, p.Q]), np.stack([p.c, 0 * p.c, p.c]))
    np.testing.assert_allclose(batch.x[[0, 2]], np.stack([p.solve().x] * 2), rtol=1e-10)
    assert batch.converged[[0, 2]].all()
    assert np.isfinite(batch.x).all()


def test_a_singular_system_spoils_only_its_own_row():
    matrix = np.stack([np.eye(2), np.zeros((2, 2)), 2 * np.eye(2)])
    solved = solve_each(matrix, np.ones((3, 2)))
    np.testing.assert_array_equal(solved, [[1, 1], [np.nan, np.nan], [0.5, 0.5]])


# ---- the certificate and the limits


def test_gap_of_an_unfinished_solve_bounds_its_true_error():
    rng = np.random.default_rng(31)
    loose = 0
    for _ in range(60):
        problem = random_problem(rng)
        best = problem.f(problem.solve().x)
        for steps in (0, 1, 3, 6):
            early = problem.solve(max_iter=steps)
            rounding = 1e-13 * float(early.scale)
            error = problem.f(early.x) - best
            assert error <= early.gap + rounding
            fw = frank_wolfe_gap(problem, early.x)
            assert early.gap <= fw * (1 + 1e-9) + 1e-9 * early.scale
            loose += error > 1e-6 * early.scale
    assert loose > 60  # the bound was put to the test


def test_a_low_iteration_limit_is_reported():
    p = regression(np.random.default_rng(32), 30, 60, 0.01)
    early = p.solve(max_iter=2)
    assert not early.converged
    assert early.status == "iteration limit"
    assert early.iterations == 2
    assert early.gap > 1e-10 * early.scale
    assert early.x.sum() == pytest.approx(1)


def test_an_impossible_tolerance_stalls_and_says_so():
    rng = np.random.default_rng(33)
    G = rng.normal(size=(40, 12)) * 10 ** rng.uniform(0, 4, size=12)
    solution = simplex_qp(G.T @ G, -G.T @ rng.normal(size=40), 0.0, tol=1e-30)
    assert not solution.converged
    assert solution.status == "stalled"
    assert solution.relative_gap < 1e-12


def test_scale_ignores_models_without_weight():
    small = simplex_qp(np.eye(2), np.zeros(2), 0.0)
    large = simplex_qp(np.diag([1, 1, 1e12]), [0, 0, 1e12], 0.0)
    assert large.x[2] == 0
    assert large.scale == pytest.approx(float(small.scale))


# ---- bad input


@pytest.mark.parametrize(
    ("quad", "linear", "alpha", "error"),
    [
        (np.eye(3), np.zeros(2), 0.01, ShapeError),
        (np.ones((2, 3)), np.zeros(3), 0.01, ShapeError),
        (np.ones(3), np.zeros(3), 0.01, ShapeError),
        (np.eye(3), 0.0, 0.01, ShapeError),
        (np.zeros((0, 0)), np.zeros(0), 0.01, ShapeError),
        (np.eye(3), np.zeros(3), [0.01, 0.01], ShapeError),
        (np.ones((2, 1, 1)), np.zeros((3, 1)), 0.01, ShapeError),
        (np.ones((1, 1)), np.zeros(1), [0.01, 0.01], ShapeError),
        (np.eye(2) * np.nan, np.zeros(2), 0.01, NonFiniteError),
        (np.eye(2), [0.0, np.inf], 0.01, NonFiniteError),
        (np.eye(2), np.zeros(2), [np.nan, 0.0], NonFiniteError),
        (np.eye(2), np.zeros(2), -0.01, ParameterError),
        (np.diag([1.0, -1.0]), np.zeros(2), 0.01, ParameterError),
    ],
)
def test_bad_input_raises(quad, linear, alpha, error):
    with pytest.raises(error):
        simplex_qp(quad, linear, alpha)


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 5.0])
def test_from_weights_that_are_near_newton_finds_the_same(rng, alpha):
    for K in (2, 4, 9):
        G = rng.normal(size=(50, K))
        Q, c, prior = G.T @ G, G.T @ rng.normal(size=50), np.full(K, alpha)
        exact = simplex_qp(Q, c, prior)
        moved = simplex_qp(Q, c + 0.1 * rng.normal(size=K), prior).x
        found = simplex_qp_near(Q, c, prior, moved)
        np.testing.assert_allclose(found, exact.x, rtol=1e-9)
        assert abs(found.sum() - 1) < 1e-14
    lost = simplex_qp_near(Q, c, prior, np.full(K, np.nan))
    np.testing.assert_array_equal(lost, exact.x)
    sparse = np.append(0.0, prior[1:])  # of weights without a prior Newton's method knows nothing
    alone = simplex_qp_near(Q, c, sparse, moved)
    np.testing.assert_array_equal(alone, simplex_qp(Q, c, sparse).x)


@pytest.mark.parametrize("size", [1e12, 1e26, 1e100])
def test_an_entry_out_of_all_proportion_changes_nothing(size):
    Q = np.array([[5.0, 3.84, 3.29], [3.84, 4.1, 3.0], [3.29, 3.0, 4.6]])
    c = np.array([-4.03, -2.22, -2.33])
    outlying = np.full((4, 4), np.sqrt(size))
    outlying[:3, :3], outlying[3, 3] = Q, size
    found = simplex_qp(outlying, np.append(c, size), alpha=0.0)
    assert found.converged
    np.testing.assert_allclose(found.x, np.append(simplex_qp(Q, c, alpha=0.0).x, 0.0), atol=1e-8)
