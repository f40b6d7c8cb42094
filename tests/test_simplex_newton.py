"""Convex functions on the simplex against the special solvers, high precision and scipy."""

from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from scipy.special import logsumexp
from scipy.stats import gumbel_r, logistic, norm

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.base import Solution
from lockquack.solvers.mixture_proportions import mixture_proportions
from lockquack.solvers.simplex_newton import simplex_newton
from lockquack.solvers.simplex_qp import simplex_qp


@dataclass(frozen=True)
class LogPartition:
    """Σ_i log Σ_m exp(Σ_k w_k L_kim + b_im) − Σ_ik w_k l_ik: locking under the log score."""

    L: np.ndarray  # (K, n, M)
    b: np.ndarray  # (n, M)
    ell: np.ndarray  # (n, K)
    alpha: np.ndarray  # (K,)

    @property
    def scale(self) -> float:
        return float(np.abs(self.L).max() * len(self.b))

    def __call__(self, w):
        exponent = np.tensordot(w, self.L, 1) + self.b
        log_norm = logsumexp(exponent, axis=1)
        p = np.exp(exponent - log_norm[:, None])
        mean = (p * self.L).sum(axis=-1)
        centred = self.L - mean[..., None]
        H = np.einsum("kim,jim->kj", p * centred, centred)
        return (log_norm - self.ell @ w).sum(), (mean - self.ell.T).sum(axis=1), H

    def objective(self, w):
        prior = self.alpha > 0
        return self(w)[0] - self.alpha[prior] @ np.log(w[prior])

    def solve(self, start=None, **options) -> Solution:
        start = np.full(len(self.L), 1 / len(self.L)) if start is None else start
        return simplex_newton(self, start, self.alpha, scale=self.scale, **options)


def random_log_partition(rng, K, alpha, size=1.0, n=20, M=12):
    L = rng.normal(size=(K, n, M)) * size
    seen = L[:, np.arange(n), rng.integers(M, size=n)].T
    return LogPartition(L, rng.normal(size=(n, M)), seen, np.full(K, alpha))


def mixture(L, u):
    top = L.max(axis=1)
    P = np.exp(L - top[:, None])

    def expand(w):
        with np.errstate(divide="ignore", invalid="ignore"):
            t = P @ w
            R = P / t[:, None]
            return -u @ (np.log(t) + top), -u @ R, (R * u[:, None]).T @ R

    return expand


def quadratic(Q, c):
    def expand(w):
        return w @ Q @ w + 2 * c @ w, 2 * (Q @ w + c), 2 * Q

    return expand


# ---- the special solvers


@pytest.mark.parametrize("alpha", [0.0, 0.01, 3.0])
@pytest.mark.parametrize(("K", "n"), [(1, 5), (2, 30), (4, 50), (10, 300), (20, 100)])
def test_mixtures_get_the_weights_of_stacking(K, n, alpha):
    rng = np.random.default_rng(K)
    L, u = rng.normal(size=(n, K)) * 2, rng.exponential(size=n)
    theirs = mixture_proportions(L, u, alpha)
    scale = float(theirs.scale)
    ours = simplex_newton(mixture(L, u), np.full(K, 1 / K), alpha, scale=scale)
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-8)
    np.testing.assert_array_equal(ours.x == 0, theirs.x == 0)
    assert ours.objective == pytest.approx(float(theirs.objective), rel=1e-12)
    assert ours.converged
    assert ours.relative_gap < 1e-14
    assert ours.iterations < 20


def test_mixtures_with_densities_of_zero_are_never_left_without_any():
    # At vertices, where the quadratic model points, the likelihood is zero.
    L = np.array([[0.0, -np.inf], [0.0, -np.inf], [-np.inf, 0.0]])
    solution = simplex_newton(mixture(L, np.ones(3)), [0.1, 0.9], 0.0, scale=3.0)
    np.testing.assert_allclose(solution.x, [2 / 3, 1 / 3], rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.01, 3.0])
@pytest.mark.parametrize(("K", "n"), [(1, 3), (2, 4), (6, 30), (20, 8), (20, 60)])
def test_quadratic_functions_get_the_weights_of_the_quadratic_programme(K, n, alpha):
    rng = np.random.default_rng(n)
    G = rng.normal(size=(n, K))
    Q, c = G.T @ G, G.T @ rng.normal(size=n)
    theirs = simplex_qp(Q, c, alpha)
    start = rng.dirichlet(np.ones(K))
    ours = simplex_newton(quadratic(Q, c), start, alpha, scale=float(theirs.scale))
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-9)
    assert ours.objective == pytest.approx(float(theirs.objective), rel=1e-10, abs=1e-10)
    assert ours.iterations <= 3


# ---- log partition functions


def exact_weight(problem: LogPartition) -> float:
    """The weight of the first of two models, by fifty digits; with a prior, so inside."""
    L0, L1 = problem.L.tolist()
    a = mpmath.mpf(float(problem.alpha[0]))

    def slope(w):
        total = a / (1 - w) - a / w
        for i, ell in enumerate(problem.ell.tolist()):
            terms = zip(L0[i], L1[i], problem.b[i].tolist(), strict=True)
            parts = [(x - y, mpmath.exp(w * x + (1 - w) * y + b)) for x, y, b in terms]
            mean = mpmath.fsum(d * e for d, e in parts) / mpmath.fsum(e for _, e in parts)
            total += mean - (mpmath.mpf(ell[0]) - ell[1])
        return total

    with mpmath.workdps(50):
        ends = (mpmath.mpf(10) ** -30, 1 - mpmath.mpf(10) ** -30)
        return float(mpmath.findroot(slope, ends, solver="anderson", tol=1e-50, verify=False))


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_two_models_agree_with_fifty_digits(size, alpha):
    problem = random_log_partition(np.random.default_rng(3), 2, alpha, size, n=4, M=5)
    w = exact_weight(problem)
    np.testing.assert_allclose(problem.solve().x, [w, 1 - w], atol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_two_models_agree_with_brute_force(size):
    problem = random_log_partition(np.random.default_rng(4), 2, 0.0, size)
    grid = np.linspace(0, 1, 2001)
    values = [problem.objective(np.array([w, 1 - w])) for w in grid]
    solution = problem.solve()
    assert solution.x[0] == pytest.approx(grid[np.argmin(values)], abs=5.1e-4)
    assert solution.objective <= min(values) + 1e-12 * problem.scale


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("K", [3, 5])
def test_not_worse_than_trust_constr(K, alpha):
    problem = random_log_partition(np.random.default_rng(K), K, alpha)
    result = minimize(
        problem.objective,
        np.full(K, 1 / K),
        jac=lambda w: problem(w)[1] - problem.alpha / w,
        hess=lambda w: problem(w)[2] + np.diag(problem.alpha / w**2),
        method="trust-constr",
        constraints=LinearConstraint(np.ones((1, K)), 1, 1),
        bounds=[(1e-10, 1)] * K,
        options={"xtol": 1e-12, "gtol": 1e-12, "maxiter": 2000},
    )
    solution = problem.solve()
    assert solution.objective <= result.fun + 1e-12 * problem.scale
    np.testing.assert_allclose(solution.x, result.x, atol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize("K", [1, 2, 5, 20])
def test_every_size_is_certified(K, size, alpha):
    problem = random_log_partition(np.random.default_rng(K), K, alpha, size)
    solution = problem.solve()
    assert solution.converged
    assert solution.status == "converged"
    assert solution.relative_gap < 1e-11
    assert abs(solution.x.sum() - 1) < 1e-14
    assert (solution.x >= 0).all()
    assert (solution.x > 0).all() or alpha == 0
    assert solution.objective == pytest.approx(problem.objective(solution.x), rel=1e-12)
    # The cruder Frank-Wolfe gap needs no logarithms.
    pull = np.divide(alpha, solution.x, out=np.zeros(K), where=solution.x > 0)
    gradient = problem(solution.x)[1] - pull
    assert gradient @ solution.x - gradient.min() < 1e-7 * problem.scale


def test_a_sum_of_sharp_bends():
    # Softplus functions that are nearly |x|: their curvature is invisible from most points.
    rng = np.random.default_rng(8)
    A, b = rng.normal(size=(60, 8)) * 1e4, rng.normal(size=60) * 1e3

    def softplus(w):
        x = A @ w - b
        p = np.exp(-np.logaddexp(0, -x))
        return np.logaddexp(0, x).sum(), A.T @ p, (A.T * (p * (1 - p))) @ A

    solution = simplex_newton(softplus, np.eye(8)[0], 0.01, scale=1e4 * 60)
    assert solution.converged
    assert solution.iterations < 80


def test_badly_scaled_models_among_others():
    rng = np.random.default_rng(9)
    p = random_log_partition(rng, 8, 0.01)
    factor = 10.0 ** np.arange(-4, 4)
    problem = LogPartition(p.L * factor[:, None, None], p.b, p.ell * factor, p.alpha)
    solution = problem.solve()
    assert solution.converged
    assert solution.relative_gap < 1e-13


def test_optimum_at_a_vertex_is_exact():
    rng = np.random.default_rng(10)
    p = random_log_partition(rng, 4, 0.0)
    best = p.L.argmax(axis=-1)[2]
    # What was seen is what the third model likes best, and more than it expects.
    ell = p.ell.copy()
    ell[:, 2] = p.L[2, np.arange(20), best] + 1
    solution = LogPartition(p.L, p.b, ell, p.alpha).solve()
    assert solution.x.tolist() == [0, 0, 1, 0]
    assert solution.converged


def test_zeros_are_exact_and_wanted():
    problem = random_log_partition(np.random.default_rng(11), 15, 0.0, n=8)
    solution = problem.solve()
    assert 0 < (solution.x == 0).sum() < 15
    gradient = problem(solution.x)[1]
    on = solution.x > 0
    np.testing.assert_allclose(gradient[on], gradient[on][0], atol=1e-10 * problem.scale)
    assert (gradient[~on] > gradient[on][0]).all()


@pytest.mark.parametrize("seed", [72, 216, 262])
def test_slopes_without_bound_at_zero_are_certified_beside_it(seed):
    """Logistic tails make the expected log density of a Gumbel endless, unless it has weight."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(-60, 60, 481)
    mass = logistic.pdf(grid)
    seen = rng.choice(grid.size, p=mass / mass.sum(), size=6)
    gumbel, normal = (
        family.logpdf(grid, rng.integers(-3, 4), rng.choice([0.5, 1, 2]))
        for family in (gumbel_r, norm)
    )
    L = np.stack([logistic.logpdf(grid), gumbel, normal])
    problem = LogPartition(
        np.repeat(L[:, None], 6, axis=1), np.zeros((6, grid.size)), L[:, seen].T, np.zeros(3)
    )
    solution = simplex_newton(problem, np.full(3, 1 / 3), 0.0, scale=20.0)
    assert solution.converged
    corners = np.array([problem(corner)[0] for corner in np.eye(3)])
    assert (solution.objective <= corners + solution.gap).all()


# ---- symmetries


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_duplicates_share_equally_and_act_as_one_model(alpha):
    p = random_log_partition(np.random.default_rng(12), 4, alpha, n=60)
    copies = np.array([0, 1, 1, 2, 3, 3, 3])
    again = LogPartition(p.L[copies], p.b, p.ell[:, copies], np.full(7, alpha))
    x = again.solve().x
    for k in range(4):
        assert np.ptp(x[copies == k]) < 1e-8
    merged = LogPartition(p.L, p.b, p.ell, alpha * np.bincount(copies)).solve().x
    np.testing.assert_allclose(np.bincount(copies, x), merged, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_permuting_the_models_permutes_the_weights(alpha):
    rng = np.random.default_rng(13)
    p = random_log_partition(rng, 9, alpha)
    order = rng.permutation(9)
    permuted = LogPartition(p.L[order], p.b, p.ell[:, order], p.alpha[order])
    np.testing.assert_allclose(permuted.solve().x, p.solve().x[order], atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_the_start_does_not_matter(alpha):
    rng = np.random.default_rng(14)
    problem = random_log_partition(rng, 6, alpha, size=5.0)
    starts = [np.eye(6)[0], np.eye(6)[3], rng.dirichlet(np.full(6, 0.1))]
    for start in starts:
        np.testing.assert_allclose(problem.solve(start).x, problem.solve().x, atol=1e-8)
    assert problem.solve(problem.solve().x).iterations <= 3


# ---- the certificate and the limits


@pytest.mark.parametrize("alpha", [0.0, 0.01, 1.0])
def test_gap_of_an_unfinished_solve_bounds_its_true_error(alpha):
    rng = np.random.default_rng(15)
    loose = 0
    for _ in range(20):
        K, size = int(rng.integers(2, 12)), 10 ** rng.uniform(-1, 3)
        problem = random_log_partition(rng, K, alpha, size)
        best = problem.objective(problem.solve().x)
        for steps in (0, 1, 2, 4):
            early = problem.solve(rng.dirichlet(np.ones(K)), max_iter=steps)
            error = problem.objective(early.x) - best
            assert error <= early.gap + 1e-13 * early.scale
            loose += error > 1e-6 * early.scale
    assert loose > 15  # the bound was put to the test


def test_every_step_goes_down():
    problem = random_log_partition(np.random.default_rng(16), 8, 0.01, size=300.0)
    values = []

    def recorded(w):
        values.append(problem.objective(w))
        return problem(w)

    lowest = np.inf
    for steps in range(1, 8):
        values.clear()
        simplex_newton(recorded, np.eye(8)[0], 0.01, scale=problem.scale, max_iter=steps)
        assert min(values) < min(lowest, values[0])
        lowest = min(values)


def test_a_low_iteration_limit_is_reported():
    early = random_log_partition(np.random.default_rng(17), 10, 0.0, 100.0).solve(max_iter=2)
    assert not early.converged
    assert early.status == "iteration limit"
    assert early.iterations == 2


def test_an_impossible_tolerance_stalls_and_says_so():
    solution = random_log_partition(np.random.default_rng(18), 5, 0.01).solve(tol=1e-30)
    assert not solution.converged
    assert solution.status == "stalled"
    assert solution.relative_gap < 1e-13


def test_fields_are_those_of_one_problem():
    solution = random_log_partition(np.random.default_rng(19), 3, 0.01).solve()
    assert solution.x.shape == (3,)
    for name in ("objective", "gap", "scale", "converged", "iterations", "status"):
        assert getattr(solution, name).shape == ()


# ---- bad input


@pytest.mark.parametrize(
    ("start", "alpha", "scale", "error"),
    [
        ([], 0.0, 1.0, ShapeError),
        ([[0.5, 0.5]], 0.0, 1.0, ShapeError),
        ([0.5, 0.5], [0.0, 0.0, 0.0], 1.0, ShapeError),
        ([1.0], 0.0, 1.0, ShapeError),  # the function has two weights
        ([0.5, np.nan], 0.0, 1.0, NonFiniteError),
        ([0.5, 0.5], np.inf, 1.0, NonFiniteError),
        ([1.5, -0.5], 0.0, 1.0, ParameterError),
        ([0.5, 0.6], 0.0, 1.0, ParameterError),
        ([0.5, 0.5], -1.0, 1.0, ParameterError),
        ([0.5, 0.5], 0.0, 0.0, ParameterError),
        ([0.5, 0.5], 0.0, np.nan, ParameterError),
    ],
)
def test_bad_input_raises(start, alpha, scale, error):
    with pytest.raises(error):
        simplex_newton(lambda w: (0.0, np.zeros(2), np.eye(2)), start, alpha, scale=scale)


def test_a_function_that_is_not_finite_at_the_start_raises():
    with pytest.raises(NonFiniteError, match="at the start"):
        simplex_newton(lambda w: (np.nan, w, np.eye(1)), [1.0], 0.0, scale=1.0)
