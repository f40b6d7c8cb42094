"""The power pool against finite differences, closed forms and its own limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockquack.families import FAMILIES
from lockquack.jets import (
    Jet,
    log_linear_pool,
    log_sum_exp,
    pool_densities,
    power_pool,
    power_pool_derivatives,
    softmax,
    stack_jets,
)

MU = np.array([-1.0, 0.5, 2.0])
SIGMA = np.array([1.0, 0.7, 2.0])
POWERS = [1.0, 0.5, -1.0, 2.3, 0.0]


def members(y):
    """Jets of three normals, or for vector outcomes of three correlated ones, at points y."""
    if np.ndim(y[0]) == 0:
        p = {"mu": MU[:, None], "sigma": SIGMA[:, None]}
        return FAMILIES["normal"].jet(np.asarray(y)[None], p)
    d = np.shape(y)[1]
    cov = [s**2 * (np.eye(d) + 0.4) for s in SIGMA]
    return stack_jets(
        [
            FAMILIES["mv_student_t"].jet(
                y, {"nu": np.array(5.0), "mu": np.full(d, mu), "scale": matrix}
            )
            for mu, matrix in zip(MU, cov, strict=True)
        ]
    )


def coefficients(power, phases):
    log_coef = np.log([0.2, 0.5, 0.3])
    return (log_coef + 1j * np.array([0.0, 0.7, -1.1]) if phases else log_coef)[:, None]


@pytest.mark.parametrize("phases", [False, True])
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("d", [0, 3])
def test_derivatives_in_y_match_finite_differences(power, phases, d):
    if power == 0.0 and phases:
        power = 0.31
    rng = np.random.default_rng(1)
    y = rng.normal(size=5) if d == 0 else rng.normal(size=(5, d))
    log_coef = coefficients(power, phases)

    def logp(points):
        return power_pool(members(points), log_coef, power).logp

    pooled = power_pool(members(y), log_coef, power)
    step = 1e-4
    for j in range(max(d, 1)):
        shift = step if d == 0 else step * np.eye(d)[j]
        above, here, below = logp(y + shift), logp(y), logp(y - shift)
        np.testing.assert_allclose(pooled.grad[:, j], (above - below) / (2 * step), rtol=2e-6)
        np.testing.assert_allclose(
            pooled.curv[:, j], (above - 2 * here + below) / step**2, rtol=2e-5, atol=2e-6
        )


@pytest.mark.parametrize("phases", [False, True])
@pytest.mark.parametrize("power", POWERS)
def test_derivatives_in_the_coefficients_match_finite_differences(power, phases):
    if power == 0.0 and phases:
        power = 0.31
    jets = members(np.array([-0.4, 1.3, 3.0]))
    log_coef = coefficients(power, phases)
    slopes = power_pool_derivatives(jets, log_coef, power)
    step = 1e-6
    directions = {"by_log_amplitude": step}
    if phases:
        directions["by_phase"] = 1j * step
    for name, change in directions.items():
        for j in range(3):
            shift = np.zeros((3, 1), dtype=complex if phases else float)
            shift[j] = change
            above = power_pool(jets, log_coef + shift, power)
            below = power_pool(jets, log_coef - shift, power)
            for part in ("logp", "grad", "curv"):
                got = getattr(getattr(slopes, name), part)[j]
                expected = (getattr(above, part) - getattr(below, part)) / (2 * step)
                np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("phases", [False, True])
@pytest.mark.parametrize("power", [1.0, 0.5, -1.0, 2.3])
def test_derivatives_in_the_power_match_finite_differences(power, phases):
    jets, log_coef, step = members(np.array([-0.4, 1.3, 3.0])), coefficients(power, phases), 1e-6
    slopes = power_pool_derivatives(jets, log_coef, power).by_power
    above = power_pool(jets, log_coef, power + step)
    below = power_pool(jets, log_coef, power - step)
    for part in ("logp", "grad", "curv"):
        expected = (getattr(above, part) - getattr(below, part)) / (2 * step)
        np.testing.assert_allclose(getattr(slopes, part), expected, rtol=1e-6, atol=1e-8)


def test_power_zero_is_the_limit_of_small_powers():
    jets, weights = members(np.array([-0.4, 1.3, 3.0])), np.log([[0.2], [0.5], [0.3]])
    limit, near = power_pool(jets, weights, 0.0), power_pool(jets, weights, 1e-7)
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(limit, part), getattr(near, part), atol=1e-5)
    limit = power_pool_derivatives(jets, weights, 0.0).by_power
    near = power_pool_derivatives(jets, weights, 1e-5).by_power
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(limit, part), getattr(near, part), rtol=1e-3)


def test_log_linear_pool_of_normals_is_normal():
    weights = np.array([0.2, 0.5, 0.3])
    precision = weights / SIGMA**2
    mean, var = (precision @ MU) / precision.sum(), 1 / precision.sum()
    y = np.linspace(-4, 5, 7)
    pooled = power_pool(members(y), np.log(weights)[:, None], 0.0)
    np.testing.assert_allclose(pooled.grad[:, 0], (mean - y) / var, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(pooled.curv[:, 0], -1 / var, rtol=1e-13)


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_one_hot_coefficients_return_that_member(power, chosen):
    jets = members(np.array([-0.4, 1.3]))
    with np.errstate(divide="ignore"):
        log_coef = np.log(np.eye(3)[chosen])[:, None]
    pooled = power_pool(jets, log_coef, power)
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(pooled, part), getattr(jets[chosen], part), rtol=1e-14)


@given(
    shift=st.floats(-900, 900),
    power=st.sampled_from(POWERS),
    y=st.floats(-6, 6),
)
def test_a_common_shift_of_logp_changes_nothing_else(shift, power, y):
    jets, log_coef = members(np.array([y])), np.log([[0.2], [0.5], [0.3]])
    moved = Jet(jets.logp - shift, jets.grad, jets.curv)
    pooled, shifted = power_pool(jets, log_coef, power), power_pool(moved, log_coef, power)
    np.testing.assert_allclose(shifted.logp, pooled.logp - shift, atol=1e-10)
    np.testing.assert_allclose(shifted.grad, pooled.grad, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(shifted.curv, pooled.curv, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("power", POWERS)
def test_permuting_members_changes_nothing(power):
    jets, log_coef = members(np.array([-0.4, 1.3])), np.log([[0.2], [0.5], [0.3]])
    order = [2, 0, 1]
    a, b = power_pool(jets, log_coef, power), power_pool(jets[order], log_coef[order], power)
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(a, part), getattr(b, part), rtol=1e-13)


def test_a_pool_of_pools_is_a_pool():
    jets, weights = members(np.array([-0.4, 1.3])), np.array([[0.2], [0.5], [0.3]])
    inner = power_pool(jets[:2], np.log(weights[:2]), 0.5)
    outer = stack_jets([inner, jets[2]])
    nested = power_pool(outer, np.array([[0.0], [np.log(0.3)]]), 0.5)
    flat = power_pool(jets, np.log(weights), 0.5)
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(getattr(nested, part), getattr(flat, part), rtol=1e-12)


def test_a_silent_member_cannot_poison_the_pool():
    jets = members(np.array([0.3]))
    dead = Jet(np.array([[-np.inf]]), np.array([[[np.nan]]]), np.array([[[np.nan]]]))
    joined = Jet(*(np.concatenate([getattr(jets, p), getattr(dead, p)]) for p in vars(dead)))
    log_coef = np.log([[0.2], [0.5], [0.3], [0.1]])
    pooled, clean = power_pool(joined, log_coef, 1.0), power_pool(jets, log_coef[:3], 1.0)
    np.testing.assert_allclose(pooled.curv, clean.curv)


def test_the_variance_term_survives_large_gradients():
    # Far from both members the gradients are huge and nearly equal; their spread is exact.
    grad = 1e8 + np.array([0.0, 1.0])
    jet = Jet(np.zeros((2, 1)), grad[:, None, None], np.zeros((2, 1, 1)))
    assert power_pool(jet, np.zeros((2, 1)), 1.0).curv.item() == pytest.approx(0.25, rel=1e-12)


def test_log_sum_exp_stays_in_log_space():
    terms = np.array([-1e5, -1e5 + 1.0])
    assert log_sum_exp(terms) == pytest.approx(-1e5 + np.log1p(np.e), rel=1e-15)
    assert log_sum_exp(np.array([-np.inf, -np.inf])) == -np.inf
    share, total = softmax(terms)
    assert share.sum() == pytest.approx(1.0)
    assert total == log_sum_exp(terms)


def test_pool_densities_agrees_with_the_jet():
    jets, log_coef = members(np.array([-0.4, 1.3])), np.log([[0.2], [0.5], [0.3]])
    for power in POWERS:
        assert np.array_equal(
            pool_densities(jets.logp, log_coef, power)[1], power_pool(jets, log_coef, power).logp
        )


def test_log_densities_that_add_up_beyond_all_numbers_are_of_zero():
    zero = np.zeros((2, 1, 1))
    jets = Jet(np.full((2, 1), -1.7e308), zero, zero)
    assert np.isneginf(log_linear_pool(jets, np.array([1.0, 1.0])).logp).all()
