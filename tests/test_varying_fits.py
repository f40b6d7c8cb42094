"""Weights of functions of covariates: limits, each group alone, finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import lockquack as lq
from lockquack.fitting.basis import groups
from lockquack.fitting.varying import VaryingObjective
from lockquack.fitting.varying_convex import VaryingLinearLogScore, VaryingLockingHyvarinen
from tests.helpers import lock

GROUP = np.arange(40) % 2
FITTERS = {"lock": VaryingLockingHyvarinen, "stack": VaryingLinearLogScore}


def fit(name):
    models = lq.example_models()
    return lock(models, prior=1.0) if name == "lock" else lq.stack(models)


def varying(objective, shrinkage):
    return VaryingObjective(
        objective.operator,
        objective.rule,
        objective.densities,
        objective.concentration,
        basis=groups(GROUP, 2),
        shrinkage=shrinkage,
    )


@pytest.mark.parametrize("name", FITTERS)
def test_strong_shrinkage_is_the_constant_fit(name):
    constant = fit(name)
    fitter = FITTERS[name](varying(constant.objective, 1e7))
    weights = fitter.objective.weights(fitter.solve().x)
    np.testing.assert_allclose(weights, constant.weights.values[:, None] + np.zeros(40), atol=1e-5)


@pytest.mark.parametrize("name", FITTERS)
def test_without_shrinkage_every_group_is_alone(name):
    objective = fit(name).objective
    fitter = FITTERS[name](varying(objective, 0.0))
    solution = fitter.solve()
    assert solution.converged
    found = fitter.objective.functions(solution.x)
    for g in range(2):
        counts = (g == GROUP).astype(float)
        alone = fit(name).fitter.refit(counts, fit(name).solution.x)
        np.testing.assert_allclose(found[g], alone, atol=1e-7)


@pytest.mark.parametrize("operator", [lq.Linear(), lq.Superposition(), lq.Hoelder()])
def test_slopes_are_those_of_finite_differences(operator):
    objective = lq.combine(lq.example_models(), operator, lq.LogScore()).objective
    over = varying(objective, 2.0)
    z = 0.3 * np.random.default_rng(1).normal(size=over.space.size)
    value, slopes = over.expand_free(z)
    assert value == pytest.approx(over.value(over.space.natural(z)))
    steps = 1e-5 * np.eye(z.size)
    differences = [
        (over.expand_free(z + step)[0] - over.expand_free(z - step)[0]) / 2e-5 for step in steps
    ]
    np.testing.assert_allclose(slopes, differences, rtol=1e-5, atol=1e-5)
