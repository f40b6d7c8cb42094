"""Parameters of operators in free coordinates: slopes, priors, volumes, starts."""

from __future__ import annotations

import numpy as np
import pytest

from lockquack.families import FAMILIES
from lockquack.jets import stack_jets
from lockquack.operators import (
    OPERATORS,
    Hoelder,
    Hybrid,
    Linear,
    Locking,
    Nested,
    Superposition,
)
from lockquack.operators.space import Interval, Phases, Positive, Real, Simplex, Space

INSTANCES = [
    *(kind() for kind in OPERATORS.values()),
    Locking("nonnegative"),
    Superposition(phases=0),
    Superposition(capped=True),
    Hoelder(-1),
    Hoelder(0.3),
    Hybrid(signed=True),
    Nested(Locking(), [(Linear(), [0, 1]), 2]),
    Nested(Linear(), [(Locking(), [0, 1]), (Superposition(), [1, 2])]),
    Nested(Hoelder(), [(Hybrid(), [0, 2]), 1]),
    Nested(Superposition(), [(Nested(Locking("nonnegative"), [(Linear(), [0, 1]), 0]), [1, 2]), 0]),
    Nested(Locking(), [Superposition(), Hybrid(signed=True)]),
]
CONCENTRATION = np.array([1.0, 1.4, 2.5])

BLOCKS = {
    "simplex": Simplex("w", 3, CONCENTRATION),
    "positive": Positive("w", 3, CONCENTRATION),
    "real": Real("w", 3, 0.6),
    "phases": Phases("alpha", 3),
    "capped": Phases("alpha", 3, 3.1),
    "interval": Interval("p", 2, -8.0, 8.0, first=(0.5, 1.0)),
    "narrow": Interval("p", 1, 0.2, 0.3),
}


@pytest.fixture(params=INSTANCES, ids=repr)
def operator(request):
    return request.param


@pytest.fixture(params=BLOCKS)
def block(request):
    return BLOCKS[request.param]


def inside(block, seed=0):
    """Free coordinates of a block, nothing special about them."""
    z = np.random.default_rng(seed).normal(size=block.size)
    return 1.5 + 0.5 * np.tanh(z) if isinstance(block, Phases) and block.cap else z


def members(d):
    y = np.random.default_rng(1).normal(size=(4, d))
    if d == 1:
        p = {"mu": np.array([[-1.0], [0.5], [2.0]]), "sigma": np.array([[1.0], [0.7], [2.0]])}
        return FAMILIES["normal"].jet(y[None, :, 0], p)
    return stack_jets(
        [
            FAMILIES["mv_student_t"].jet(
                y, {"nu": np.array(5.0), "mu": np.full(d, mu), "scale": s * (np.eye(d) + 0.4)}
            )
            for mu, s in ((-1.0, 1.0), (0.5, 0.5), (2.0, 4.0))
        ]
    )


def differences(function, z, step=1e-4):
    """Differentiate by central differences of fourth order, along a new first axis."""
    slopes = []
    for way in step * np.eye(z.size):
        far, above, below, beyond = (function(z + by * way) for by in (2, 1, -1, -2))
        slopes.append((8 * (above - below) - (far - beyond)) / (12 * step))
    return np.array(slopes)


# Operators in their coordinates


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("part", ["logp", "grad", "curv"])
def test_tangents_match_finite_differences(operator, d, part):
    jets, space = members(d), operator.space(CONCENTRATION)
    z = 0.8 * np.random.default_rng(2).normal(size=space.size)
    slopes = space.pull(z, getattr(operator.tangents(jets, space.natural(z)), part))
    expected = differences(lambda at: getattr(operator.pool(jets, space.natural(at)), part), z)
    np.testing.assert_allclose(slopes, expected, rtol=1e-7, atol=1e-8)


def test_tangents_at_order_zero_are_the_limit():
    # The pool of order p and its slopes are smooth through p = 0, where the formula is another.
    jets, operator = members(1), Hoelder()
    x = np.array([0.2, 0.5, 0.3, 0.0])
    at_zero = operator.tangents(jets, x)
    for part in ("logp", "grad", "curv"):

        def pooled(p, part=part):
            return getattr(operator.pool(jets, np.append(x[:3], p)), part)

        slope = (pooled(1e-4) - pooled(-1e-4)) / 2e-4
        np.testing.assert_allclose(getattr(at_zero, part)[3], slope, rtol=1e-5, atol=1e-5)


def test_coordinates_and_parameters_are_one_to_one(operator):
    space = operator.space(CONCENTRATION)
    assert space.size == sum(block.size for block in space.blocks)
    assert all(x.size == block.size for block, x in space.parts(np.arange(space.size)))
    for seed in range(5):
        x = space.natural(np.random.default_rng(seed).normal(size=space.size))
        again = space.natural(space.free(x))
        for (block, before), (_, after) in zip(space.parts(x), space.parts(again), strict=True):
            if isinstance(block, Phases) and block.cap:  # only differences of phases matter
                before, after = before - before.min(), after - after.min()
            np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-9)


def test_weights_at_zero_stay_there(operator):
    space = operator.space(np.ones(3))
    z = np.random.default_rng(3).normal(size=space.size)
    start = 0
    for block in space.blocks:
        if isinstance(block, Simplex | Positive) and block.size > 1:
            z[start] = -np.inf
        start += block.size
    x = space.natural(z)
    again = space.free(x)
    np.testing.assert_array_equal(x == 0, np.isneginf(z))
    np.testing.assert_array_equal(np.isneginf(again), np.isneginf(z))
    np.testing.assert_array_equal(space.natural(again) == 0, x == 0)
    assert np.isfinite(space.log_volume(z))
    assert space.log_prior(x) > -np.inf
    pulled = space.pull(z, operator.tangents(members(1), x).logp)
    np.testing.assert_array_equal(pulled[np.isneginf(z)], 0.0)


def test_prior_slopes_match_finite_differences(operator):
    space = operator.space(CONCENTRATION)
    z = 0.8 * np.random.default_rng(4).normal(size=space.size)
    slopes = space.pull(z, space.prior_slopes(space.natural(z)))
    expected = differences(lambda at: np.array(space.log_prior(space.natural(at))), z)
    np.testing.assert_allclose(slopes, expected, rtol=1e-7, atol=1e-8)


def test_starts_are_many_different_and_the_same_every_time(operator):
    space = operator.space(CONCENTRATION)
    for count in (1, 2, 8, 24):
        starts = space.starts(count)
        assert starts.shape == (count, space.size)
        assert np.isfinite(starts).all()
        assert len(np.unique(starts.round(9), axis=0)) == count
        np.testing.assert_array_equal(starts, space.starts(count))
        for z in starts:
            assert np.isfinite(operator.pool(members(1), space.natural(z)).curv).all()


def test_the_first_start_has_equal_weights():
    for operator in (Linear(), Locking(), Superposition(), Hoelder(), Locking("nonnegative")):
        space = operator.space(CONCENTRATION)
        x = space.natural(space.starts(8)[0])
        np.testing.assert_allclose(x[:3], 1 / 3, rtol=1e-12)


# Blocks


def test_pulling_is_the_chain_rule(block):
    z = inside(block)
    log = isinstance(block, Simplex | Positive)

    def function(at):
        x = block.natural(at)
        return np.array([np.sin(x @ np.arange(1.0, 1 + x.size)), np.square(x).sum()])

    x = block.natural(z)
    ways = np.arange(1.0, 1 + x.size)
    slopes = np.stack([np.cos(x @ ways) * ways, 2 * x], axis=1) * (x[:, None] if log else 1.0)
    expected = differences(function, z)
    np.testing.assert_allclose(block.pull(z, slopes), expected, rtol=1e-7, atol=1e-9)


def log_determinant(block, z):
    """Log of the volume of parameters per volume of coordinates, up to a constant."""
    jacobian = differences(block.natural, z).T
    if isinstance(block, Simplex):  # the last weight follows from the others; so may its z
        jacobian = jacobian[:-1, :-1]
    return np.linalg.slogdet(jacobian)[1]


def test_the_volume_is_the_jacobian(block):
    one, other = inside(block, 1), inside(block, 2)
    exact = log_determinant(block, one) - log_determinant(block, other)
    assert block.log_volume(one) - block.log_volume(other) == pytest.approx(exact, abs=1e-7)


def test_the_volume_of_a_space_is_that_of_its_blocks(operator):
    space = operator.space(CONCENTRATION)
    z = np.random.default_rng(5).normal(size=space.size)
    total = sum(block.log_volume(part) for block, part in space.parts(z))
    assert space.log_volume(z) == pytest.approx(total)


def test_the_prior_is_the_written_density(block):
    x, y = (block.natural(inside(block, seed)) for seed in (3, 4))
    change = block.log_prior(x) - block.log_prior(y)
    exact = 0.0
    if isinstance(block, Simplex | Positive):
        exact = (CONCENTRATION - 1) @ np.log(x / y)
    elif isinstance(block, Real):
        exact = (np.square(y - 1 / 3).sum() - np.square(x - 1 / 3).sum()) / (2 * 0.6**2)
    assert change == pytest.approx(exact)


@pytest.mark.parametrize("name", ["simplex", "positive"])
def test_a_flat_prior_bears_weights_at_zero(name):
    block = BLOCKS[name]
    x = block.natural(np.array([-np.inf, 0.3, -0.2]))
    assert x[0] == 0.0
    assert block.log_prior(x) == pytest.approx((CONCENTRATION[1:] - 1) @ np.log(x[1:]))


def test_weights_on_the_simplex_keep_their_digits():
    block = Simplex("w", 3, np.ones(3))
    x = block.natural(np.array([0.0, 700.0, -100.0]))
    assert x.sum() == pytest.approx(1.0, abs=1e-15)
    assert x[0] == pytest.approx(np.exp(-700.0), rel=1e-10)


@pytest.mark.parametrize("z", [-1e4, -30.0, 0.0, 2.0, 30.0, 1e4])
def test_bounds_are_kept(z):
    interval, capped = BLOCKS["narrow"], BLOCKS["capped"]
    assert 0.2 <= interval.natural(np.array([z]))[0] <= 0.3
    phases = capped.natural(np.full(3, z))
    assert ((phases >= 0) & (phases <= 3.1)).all()
    assert np.isfinite(interval.free(interval.natural(np.array([z])))).all()


def test_phases_are_confined_by_their_differences():
    # All phases within less than half a turn: no sum of square roots can vanish.
    operator = Superposition(capped=True)
    space = operator.space(np.ones(3))
    rng = np.random.default_rng(6)
    for _ in range(20):
        x = space.natural(5 * rng.normal(size=space.size))
        assert np.ptp(x[3:]) <= 0.99 * np.pi
    shifted = np.array([0.2, 0.5, 0.3, 7.0, 8.0, 6.5])
    again = space.natural(space.free(shifted))
    np.testing.assert_allclose(np.diff(again[3:]), np.diff(shifted[3:]), atol=1e-9)


def test_a_space_of_nothing():
    space = Space(())
    assert space.size == 0
    assert space.natural(np.zeros(0)).shape == space.prior_slopes(np.zeros(0)).shape == (0,)
    assert space.log_prior(np.zeros(0)) == space.log_volume(np.zeros(0)) == 0.0
