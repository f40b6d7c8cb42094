"""Products of simplices: limits, one structure against another, an independent solver."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
from scipy import optimize, sparse, special

from lockquack.solvers.simplex_newton import simplices_newton
from lockquack.solvers.simplex_qp import simplex_qp
from lockquack.solvers.simplices_qp import GroupForm, SimplicesQuadratic, SparseForm, simplices_qp


def random_problem(rng, B, K, rank=None):
    factor = rng.normal(size=(B, K, rank or 3 * K)) + rng.normal(size=(K, rank or 3 * K))
    blocks = factor @ factor.swapaxes(1, 2)
    return blocks, -0.3 * blocks.sum(axis=2) + 5 * rng.normal(size=(B, K))


def assembled(blocks, pull):
    B, K = blocks.shape[:2]
    centring = sparse.eye_array(B) - np.ones((B, B)) / B
    return sparse.csr_array(
        sparse.block_diag([sparse.coo_array(each) for each in blocks])
        + pull * sparse.kron(centring, sparse.eye_array(K))
    )


def by_clarabel(Q, c):
    B, K = c.shape
    n = B * K
    sums = sparse.kron(sparse.eye_array(B), np.ones((1, K)))
    A = sparse.csc_matrix(sparse.vstack([sums, -sparse.eye_array(n)]))
    b = np.concatenate([np.ones(B), np.zeros(n)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    cones = [clarabel.ZeroConeT(B), clarabel.NonnegativeConeT(n)]
    P = sparse.csc_matrix(sparse.triu(2 * Q))
    found = clarabel.DefaultSolver(P, 2 * c.ravel(), A, b, cones, settings).solve()
    return np.array(found.x).reshape(B, K)


@pytest.mark.parametrize(
    ("B", "K", "pull"), [(5, 4, 0.0), (5, 4, 3.0), (20, 10, 10.0), (20, 10, 1e4), (50, 4, 1e-3)]
)
def test_an_independent_solver_agrees(rng, B, K, pull):
    blocks, c = random_problem(rng, B, K)
    solution = simplices_qp(GroupForm(blocks, pull), c, np.zeros((B, K)))
    assert solution.converged
    assert solution.relative_gap < 1e-12
    np.testing.assert_allclose(solution.x, by_clarabel(assembled(blocks, pull), c), atol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 0.01, 2.0])
@pytest.mark.parametrize(("B", "K"), [(4, 3), (90, 8)])  # dense and sparse factors
def test_structure_does_not_matter(rng, B, K, alpha):
    blocks, c = random_problem(rng, B, K)
    prior = np.full((B, K), alpha)
    one = simplices_qp(GroupForm(blocks, 2.0), c, prior)
    other = simplices_qp(SparseForm(assembled(blocks, 2.0)), c, prior)
    assert one.converged
    assert other.converged
    np.testing.assert_allclose(one.x, other.x, atol=1e-9)
    assert one.objective == pytest.approx(float(other.objective), rel=1e-12)


def test_without_a_pull_each_simplex_is_alone(rng):
    blocks, c = random_problem(rng, 7, 5)
    for alpha in (0.0, 0.01):
        found = simplices_qp(GroupForm(blocks), c, np.full(c.shape, alpha)).x
        np.testing.assert_allclose(found, simplex_qp(blocks, c, alpha).x, atol=1e-9)


def test_a_strong_pull_makes_one_of_all(rng):
    blocks, c = random_problem(rng, 7, 5)
    found = simplices_qp(GroupForm(blocks, 1e9), c, np.zeros(c.shape)).x
    whole = simplex_qp(blocks.sum(axis=0), c.sum(axis=0), 0.0).x
    np.testing.assert_allclose(found, np.broadcast_to(whole, found.shape), atol=1e-6)


def test_weights_are_exactly_zero_where_they_should_be(rng):
    blocks, c = random_problem(rng, 30, 6)
    found = simplices_qp(GroupForm(blocks, 1.0), c, np.zeros(c.shape))
    zero = found.x == 0
    assert 0.1 < zero.mean() < 0.9
    h = SimplicesQuadratic(GroupForm(blocks, 1.0), c, np.zeros(c.shape)).gradient(found.x)
    level = np.where(zero, np.inf, h).min(axis=1, keepdims=True)
    scale = np.abs(h).max()
    np.testing.assert_allclose(np.where(zero, level, h) - level, 0.0, atol=1e-9 * scale)
    assert (h >= level - 1e-9 * scale).all()


def test_the_gap_bounds_the_distance_to_the_minimum(rng):
    blocks, c = random_problem(rng, 6, 4)
    for alpha in (0.0, 0.5):
        problem = SimplicesQuadratic(GroupForm(blocks, 1.5), c, np.full(c.shape, alpha))
        least = float(simplices_qp(problem.form, c, problem.alpha).objective)
        for _ in range(50):
            v = rng.dirichlet(np.ones(4), size=6)
            assert problem.gap(v) >= problem.objective(v) - least - 1e-9


def test_duplicated_groups_have_equal_weights(rng):
    blocks, c = random_problem(rng, 3, 4)
    twice = simplices_qp(
        GroupForm(np.repeat(blocks, 2, 0), 1.0), np.repeat(c, 2, 0), np.zeros((6, 4))
    )
    once = simplices_qp(GroupForm(2 * blocks, 2.0), 2 * c, np.zeros((3, 4)))
    np.testing.assert_allclose(twice.x[::2], twice.x[1::2], atol=1e-9)
    np.testing.assert_allclose(twice.x[::2], once.x, atol=1e-9)


def test_mixtures_by_groups(rng):
    """Stacking in groups, pulled together, against its optimality conditions."""
    B, K, n, pull = 4, 3, 200, 2.0
    group = rng.integers(B, size=n)
    density = np.exp(rng.normal(size=(n, K)))

    def expand(v):
        mixture = (density * v[group]).sum(axis=1)
        ratio = density / mixture[:, None]
        gradient = -np.stack([ratio[group == b].sum(axis=0) for b in range(B)])
        blocks = np.stack([ratio[group == b].T @ ratio[group == b] for b in range(B)]) / 2
        form = GroupForm(blocks, pull)
        apart = v - v.mean(axis=0)
        value = -np.log(mixture).sum() + pull * (apart**2).sum()
        return value, gradient + 2 * pull * apart, form

    found = simplices_newton(expand, np.full((B, K), 1 / K), np.zeros((B, K)), scale=float(n))
    assert found.converged
    assert found.relative_gap < 1e-12

    def value(z):
        return expand(special.softmax(z.reshape(B, K), axis=1))[0]

    other = optimize.minimize(value, np.zeros(B * K), method="BFGS", options={"gtol": 1e-6})
    assert found.objective == pytest.approx(other.fun, abs=1e-5)
    assert found.objective <= other.fun + 1e-9
