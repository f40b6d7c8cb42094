"""Minima of functions that are not convex, whose minima are known."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, rosen, rosen_der, rosen_hess
from scipy.special import softmax

from lockquack.errors import NonFiniteError, ParameterError, ShapeError
from lockquack.solvers.multistart import multistart, near, newton


def smallest_eigenvalue(found):
    return np.linalg.eigvalsh(found.hessian).min(initial=np.inf)


def rosenbrock(z):
    return rosen(z), rosen_der(z)


def double_well(z, tilt=0.1):
    """Wells near -1, the deeper one, and +1 in the first coordinate; a bowl in the others."""
    value = (z[0] ** 2 - 1) ** 2 + tilt * z[0] + (z[1:] ** 2).sum()
    return value, np.r_[4 * z[0] * (z[0] ** 2 - 1) + tilt, 2 * z[1:]]


def overparametrised(target):
    """Distance of softmax(z) to a target: adding a constant to z changes nothing."""

    def objective(z):
        p = softmax(z)
        slope = 2 * (p - target)
        return ((p - target) ** 2).sum(), p * (slope - slope @ p)

    return objective


def ill_conditioned(P, condition=1e8, size=1.0):
    """A quartic with curvatures from 1 to ``condition``, along axes that no coordinate follows."""
    rng = np.random.default_rng(P)
    rotation = np.linalg.qr(rng.normal(size=(P, P)))[0]
    stiffness = np.geomspace(1, condition, P)
    minimum = rng.normal(size=P)

    def objective(z):
        t = rotation @ (z - minimum)
        value = (stiffness * (t**2 + t**4) / 2).sum()
        return size * value, size * rotation.T @ (stiffness * (t + 2 * t**3))

    return objective, minimum


# ---- known minima


@pytest.mark.parametrize("P", [2, 3, 5, 10, 30])
def test_rosenbrock(P):
    starts = np.random.default_rng(P).normal(size=(4, P)) * 2
    found = multistart(rosenbrock, starts, scale=1.0)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-11)
    assert found.converged
    assert found.status == "converged"
    assert found.stationarity < 1e-11
    assert found.objective < 1e-20
    np.testing.assert_allclose(found.hessian, rosen_hess(found.x), atol=1e-6)
    exact = np.linalg.eigvalsh(rosen_hess(np.ones(P))).min()
    assert smallest_eigenvalue(found) == pytest.approx(exact, rel=1e-6)
    assert found.objectives.shape == (4,)
    assert found.starts[1] == 4
    assert found.starts[0] == (found.objectives < 1e-6).sum() >= 1


@pytest.mark.parametrize("P", [2, 4, 10])
def test_newton_alone_finds_the_minimum_of_rosenbrock(P):
    found = newton(rosenbrock, np.full(P, -1.2), scale=1.0)
    assert found.converged
    assert np.abs(rosen_der(found.x)).max() < 1e-11
    assert found.starts == (1, 1)
    assert found.objectives.tolist() == [found.objective]


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e8])
@pytest.mark.parametrize("P", [2, 6, 20])
def test_ill_conditioned_quartic(P, size):
    objective, minimum = ill_conditioned(P, size=size)
    starts = minimum + np.random.default_rng(1).normal(size=(3, P)) * 3
    found = multistart(objective, starts, scale=size)
    np.testing.assert_allclose(found.x, minimum, atol=1e-8)
    assert found.starts[0] == 3
    # Gradients cannot be better than the rounding of z times the stiffness.
    assert found.stationarity < 1e8 * 1e-14
    assert smallest_eigenvalue(found) / size == pytest.approx(1, abs=0.1)
    assert multistart(objective, starts, scale=1e8 * size).converged


def test_a_minimum_without_curvature():
    # Newton's method is only linear on z⁴.
    found = newton(lambda z: ((z**4).sum(), 4 * z**3), [1.0, -3.0], scale=1.0)
    assert found.converged
    assert np.abs(found.x).max() < 2e-3
    assert found.objective < 1e-10


def test_the_solution_does_not_depend_on_the_units():
    starts = [[-2.0, 1.0], [0.4, 1.0], [3.0, -1.0]]
    plain = multistart(double_well, starts, scale=1.0)
    unit = 2.0**40

    def scaled(z):
        value, gradient = double_well(z)
        return unit * value, unit * gradient

    large = multistart(scaled, starts, scale=unit)
    np.testing.assert_array_equal(large.x, plain.x)
    np.testing.assert_array_equal(large.hessian, unit * plain.hessian)
    assert large.stationarity == plain.stationarity
    assert large.objective == unit * plain.objective


# ---- several wells


def test_double_well_counts_the_starts_that_agree():
    starts = [[-2.0, 1.0], [2.0, 1.0], [-0.5, 3.0], [0.7, 0.0], [1.5, 1.0]]
    found = multistart(double_well, starts, scale=1.0)
    assert found.x[0] == pytest.approx(-1.0123, abs=1e-4)
    assert found.starts[0] == 2
    assert (found.objectives < 0).tolist() == [True, False, True, False, False]
    other = newton(double_well, [0.9, 0.0], scale=1.0)
    assert other.converged
    assert other.x[0] == pytest.approx(0.9873, abs=1e-4)
    np.testing.assert_allclose(found.objectives[[1, 3, 4]], other.objective, rtol=1e-12)


def test_of_two_equal_wells_the_first_start_decides():
    def symmetric(z):
        return double_well(z, tilt=0.0)

    for sign in (-1.0, 1.0):
        found = multistart(symmetric, [[sign * 2.0], [-sign * 0.3]], scale=1.0)
        assert found.x[0] == pytest.approx(sign)
        assert found.starts[0] == 2


def test_agreement_is_measured_in_units_of_the_scale():
    starts = [[-2.0], [2.0]]
    assert multistart(double_well, starts, scale=1.0).starts[0] == 1
    assert multistart(double_well, starts, scale=1e6).starts[0] == 2


# ---- flat directions


@pytest.mark.parametrize("P", [2, 5, 12])
def test_an_exactly_flat_direction_takes_no_steps(P):
    rng = np.random.default_rng(P)
    target = rng.dirichlet(np.full(P, 3.0))
    start = rng.normal(size=P)
    found = newton(overparametrised(target), start, scale=1.0)
    assert found.converged
    np.testing.assert_allclose(softmax(found.x), target, atol=1e-10)
    assert smallest_eigenvalue(found) == pytest.approx(0, abs=1e-8)
    # The gradient has no component along the constant, so the mean stays.
    assert found.x.mean() == pytest.approx(start.mean(), abs=1e-5)


def test_a_flat_circle_is_reached_from_everywhere():
    def ring(z):
        excess = z @ z - 1
        return 50 * excess**2, 200 * excess * z

    starts = np.random.default_rng(3).normal(size=(10, 3)) * 4
    found = multistart(ring, starts, scale=50.0)
    assert found.converged
    assert found.starts[0] == 10
    assert np.linalg.norm(found.x) == pytest.approx(1, abs=1e-13)
    eigenvalues = np.linalg.eigvalsh(found.hessian)
    np.testing.assert_allclose(eigenvalues, [0, 0, 400], atol=1e-4)


def test_a_minimum_at_infinity_ends_where_the_gradient_does():
    found = newton(lambda z: (np.exp(-z).sum(), -np.exp(-z)), [0.0], scale=1.0)
    assert found.converged
    assert found.objective < 1e-8
    assert np.isfinite(found.x).all()


# ---- saddles


@pytest.mark.parametrize("solve", ["newton", "multistart"])
def test_a_start_on_a_saddle_leaves_it(solve):
    saddle = np.zeros(3)
    if solve == "newton":
        found = newton(lambda z: double_well(z, 0.0), saddle, scale=1.0)
    else:
        found = multistart(lambda z: double_well(z, 0.0), [saddle], scale=1.0)
    assert found.converged
    assert abs(found.x[0]) == pytest.approx(1)
    assert smallest_eigenvalue(found) == pytest.approx(2, rel=1e-6)


def test_a_saddle_is_left_towards_the_lower_side():
    # z³ + z⁴ has curvature zero at 0, made slightly negative here.
    def skewed(z):
        return (z**4 + z**3 - 1e-3 * z**2).sum(), 4 * z**3 + 3 * z**2 - 2e-3 * z

    found = newton(skewed, [0.0], scale=1.0)
    assert found.x[0] == pytest.approx((-3 - np.sqrt(9.032)) / 8)


def test_monkey_saddles_of_a_product():
    # The factors of a rank one matrix: the origin is a saddle, minima form a hyperbola.
    def product(z):
        excess = z[0] * z[1] - 2
        return excess**2, 2 * excess * z[::-1]

    found = newton(product, [0.0, 0.0], scale=1.0)
    assert found.converged
    assert found.x.prod() == pytest.approx(2)
    assert smallest_eigenvalue(found) == pytest.approx(0, abs=1e-7)


# ---- where the objective is not finite


def wall(value):
    """A minimum at 0.01 beside a region, z ≤ 0, where the objective is not a number."""

    def objective(z):
        if (z <= 0).any():
            return value, np.full_like(z, np.nan)
        return (z - 0.01 * np.log(z)).sum(), 1 - 0.01 / z

    return objective


@pytest.mark.parametrize("value", [np.inf, np.nan, -np.inf])
@pytest.mark.parametrize("P", [1, 4])
def test_no_step_ends_where_the_objective_is_not_finite(value, P):
    found = multistart(wall(value), [np.full(P, 5.0), np.linspace(1e-4, 50, P)], scale=1.0)
    assert found.converged
    assert found.starts[0] == 2
    np.testing.assert_allclose(found.x, 0.01, rtol=1e-10)
    alone = newton(wall(value), np.full(P, 3.0), scale=1.0)
    assert alone.converged
    np.testing.assert_allclose(alone.x, 0.01, rtol=1e-10)


def test_overflow_at_a_trial_point_is_no_warning():
    def steep(z):
        return (np.exp(z) - 700 * z).sum(), np.exp(z) - 700

    found = multistart(steep, [[-600.0], [30.0]], scale=700.0)
    assert found.converged
    np.testing.assert_allclose(found.x, np.log(700))


def test_starts_outside_the_region_are_counted_but_not_used():
    found = multistart(wall(np.inf), [[-1.0], [2.0], [-3.0]], scale=1.0)
    assert found.objectives.tolist() == [np.inf, found.objective, np.inf]
    assert found.converged
    assert found.starts[0] == 1
    assert found.starts[1] == 3


def test_a_minimum_on_the_edge_is_not_called_converged():
    def edge(z):
        return (z[0], np.ones(1)) if z[0] >= 0 else (np.inf, np.ones(1))

    found = multistart(edge, [[1.0]], scale=1.0)
    assert not found.converged
    assert found.status in ("stalled", "iteration limit")
    assert 0 <= found.objective < 1e-3


# ---- the result


def test_nothing_is_random():
    starts = np.random.default_rng(4).normal(size=(5, 8))
    first, second = (multistart(rosenbrock, starts, scale=1.0) for _ in range(2))
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.objectives, second.objectives)
    assert first.iterations == second.iterations


def test_warm_start_needs_no_more_than_a_step():
    cold = newton(rosenbrock, np.full(6, 3.0), scale=1.0)
    warm = newton(rosenbrock, cold.x, scale=1.0)
    assert cold.iterations > 5
    assert warm.iterations <= 1


def test_an_iteration_limit_is_reported():
    found = newton(rosenbrock, [-1.2, 1.0], scale=1.0, max_iter=3)
    assert not found.converged
    assert found.status == "iteration limit"
    assert found.iterations == 3
    assert found.objective < rosen([-1.2, 1.0])
    exact = approx_fprime(found.x, rosen_der)
    np.testing.assert_allclose(found.hessian, exact, rtol=1e-4, atol=1e-3)


def test_an_impossible_tolerance_stalls():
    target = np.random.default_rng(5).dirichlet(np.ones(6))
    found = multistart(overparametrised(target), [np.zeros(6)], scale=1.0, tol=1e-30)
    assert not found.converged
    assert found.status == "stalled"


def test_nothing_to_vary():
    found = multistart(lambda z: (3.0, z), np.zeros((2, 0)), scale=1.0)
    assert found.converged
    assert found.objective == 3
    assert found.x.shape == (0,)
    assert found.hessian.shape == (0, 0)
    assert smallest_eigenvalue(found) == np.inf


def test_an_objective_that_writes_into_its_argument_does_no_harm():
    def careless(z):
        z -= 1
        return float(z @ z), 2 * z

    np.testing.assert_allclose(multistart(careless, [[4.0, 4.0]], scale=1.0).x, 1)


@pytest.mark.parametrize(
    ("starts", "scale", "error"),
    [
        ([0.0, 1.0], 1.0, ShapeError),
        (np.zeros((0, 2)), 1.0, ShapeError),
        ([[np.nan, 1.0]], 1.0, NonFiniteError),
        ([[0.0, 1.0]], 0.0, ParameterError),
        ([[0.0, 1.0]], np.inf, ParameterError),
    ],
)
def test_bad_input_raises(starts, scale, error):
    with pytest.raises(error):
        multistart(rosenbrock, starts, scale=scale)


def test_objectives_that_cannot_be_used_raise():
    with pytest.raises(NonFiniteError, match="any of the 2 starts"):
        multistart(wall(np.inf), [[-1.0], [-2.0]], scale=1.0)
    with pytest.raises(NonFiniteError, match="at the start"):
        newton(wall(np.inf), [-1.0], scale=1.0)
    with pytest.raises(ShapeError, match="gradient"):
        newton(lambda z: (0.0, np.zeros(3)), [1.0], scale=1.0)
    with pytest.raises(ShapeError, match="want"):
        newton(rosenbrock, [[1.0]], scale=1.0)


def test_near_a_minimum_each_step_takes_one_evaluation():
    rng = np.random.default_rng(3)
    root, shift = rng.normal(size=(4, 4)), 0.1 * rng.normal(size=4)
    calls = []

    def bowl(z):
        calls.append(z)
        along = root @ (z - shift)
        return np.cosh(along).sum(), root.T @ np.sinh(along)

    found = near(bowl, np.zeros(4), root.T @ root, scale=1.0)
    np.testing.assert_allclose(found, shift, rtol=0, atol=1e-14)
    assert len(calls) < 12
    exact = newton(bowl, np.zeros(4), scale=1.0)
    np.testing.assert_allclose(found, exact.x, rtol=0, atol=1e-13)


def test_what_is_not_near_or_no_minimum_is_left_to_newton():
    def wells(z):
        return ((z**2 - 1) ** 2).sum(), 4 * z * (z**2 - 1)

    assert near(wells, np.array([0.1]), np.array([[-4.0]]), scale=1.0) is None
    assert near(wells, np.array([3.0]), np.array([[1e-3]]), scale=1.0) is None
    assert near(wells, np.zeros(0), np.zeros((0, 0)), scale=1.0).size == 0
