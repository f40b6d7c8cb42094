"""Weights of functions of covariates: limits, each group alone, finite differences, replicates."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import poisson

import lockquack as lq
from lockquack.fitting.basis import groups
from lockquack.fitting.formulas import bootstrap_counts
from lockquack.fitting.varying import VaryingObjective
from lockquack.fitting.varying_convex import VaryingLinearLogScore, VaryingLockingHyvarinen
from tests.helpers import lock, shown

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


@pytest.mark.filterwarnings("ignore:There are:lockquack.errors.IdentifiabilityWarning")
def test_groups_of_a_tail_that_falls_faster_than_any_exponential():
    """A logistic pool expects an infinite log density of a Gumbel: every bit of it is a gain."""
    y = np.array([-0.7, -0.2, 2.7, 2.9, -2.2, -7.0])

    def locked(rows, **options):
        zero, one = np.zeros((2, 30)), np.ones((2, 30))
        logistic = lq.from_family("logistic", y=y[rows], mu=zero, s=one)
        gumbel = lq.from_family("gumbel", y=y[rows], mu=-one, beta=one)
        models = {"logistic": logistic, "gumbel": gumbel}
        return lq.lock(models, rule="log", prior=1.0, **options)

    together = locked(slice(None), by=list("aaabbb"), shrinkage=0.0)
    assert together.solution.converged
    alone = [locked(slice(0, 3)), locked(slice(3, 6))]
    for part, fit in zip(([0, 1, 2], [3, 4, 5]), alone, strict=True):
        each = together.pointwise.values[:, part].sum(axis=1)
        np.testing.assert_allclose(each, fit.pointwise.values.sum(axis=1), rtol=1e-8)
        assert each[0] >= each[1:].max() - together.solution.gap


@pytest.mark.filterwarnings("ignore::lockquack.errors.IdentifiabilityWarning")
@pytest.mark.filterwarnings("ignore::lockquack.errors.SupportWarning")
def test_a_gain_of_one_group_does_not_hide_that_another_loses_a_model():
    """A trace of a model that excludes 0 excludes it from the pool; without, the score jumps."""
    y = np.array([1, 6, 6, 4, 2, 3])
    half = np.full((2, 30), 0.5)
    models = {
        "geometric": lq.from_family("geometric", y=y, p=half),
        "poisson": lq.from_family("poisson", y=y, mu=4 * half),
    }
    fit = lq.lock(models, rule="log", prior=1.0, by=list("bbccaa"), shrinkage=0.0)
    # Group a: next to all weight on the Poisson, of which 0 is cut off.
    best = poisson.logpmf(y[4:], 2).sum() - 2 * np.log1p(-np.exp(-2))
    assert fit.pointwise.values[0, 4:].sum() >= best - 1e-6


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


@pytest.fixture(scope="module")
def one_other_town():
    """Ten towns, one of which may differ: constant weights are chosen, but narrowly."""
    rng = np.random.default_rng(2)
    town = np.arange(200) % 10
    y = np.where(town == 0, 0.6, 0.0) + rng.normal(size=200)
    mu = np.ones((2, 30))
    models = {
        "down": lq.from_family("normal", y=y, mu=-mu, sigma=1.0),
        "up": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
    }
    return lq.lock(models, by=lq.Groups(town, name="town"), random_seed=1)


def test_intervals_know_that_another_shrinkage_could_have_been_chosen(one_other_town):
    fitter, x = one_other_town.fitter, one_other_town.solution.x
    counts = bootstrap_counts(np.random.default_rng(0), 60, 200)

    def width(found):
        weights = [fitter.objective.functions(each)[0, 1] for each in found]
        return np.ptp(np.quantile(weights, [0.05, 0.95]))

    assert width(fitter.replicates(counts, x)) > 2.5 * width(fitter.refit_many(counts, x))
    some = counts[:16]  # of which all folds are fitted again
    anew = width([fitter.refit(each, x) for each in some])
    assert width(fitter.replicates(some, x)) == pytest.approx(anew, rel=0.35)


def test_replicates_are_optima_for_the_shrinkage_that_they_choose(one_other_town):
    fitter, x = one_other_town.fitter, one_other_town.solution.x
    counts = bootstrap_counts(np.random.default_rng(0), 12, 200)
    before = fitter.objective.counts
    shrinkages = [fitter.held_out.choose(each, before).shrinkage for each in counts]
    assert len(set(shrinkages)) > 1
    for u, shrinkage, found in zip(counts, shrinkages, fitter.replicates(counts, x), strict=True):
        alone = fitter.with_shrinkage(shrinkage)
        np.testing.assert_allclose(found, alone.again(u, x), atol=1e-5)
    (same,) = fitter.replicates(before[None], x)  # the data themselves choose what they chose
    np.testing.assert_allclose(same, x, atol=1e-7)


def test_a_given_shrinkage_is_kept_in_every_replicate():
    fit = lq.lock(lq.example_models(), by=GROUP == 0, shrinkage=1.0)
    counts = bootstrap_counts(np.random.default_rng(0), 5, 40)
    found = fit.fitter.replicates(counts, fit.solution.x)
    np.testing.assert_array_equal(found, fit.fitter.refit_many(counts, fit.solution.x))


def test_a_file_knows_what_the_shrinkage_was_chosen_by(one_other_town, tmp_path):
    fit = one_other_town
    fit.save(tmp_path / "fit.nc")
    again = lq.load(tmp_path / "fit.nc")
    assert again.fitter.choice == fit.fitter.choice
    assert shown(again) == shown(fit)
    draws = fit.bootstrap(20, random_seed=3)
    xr.testing.assert_identical(again.bootstrap(20, random_seed=3), draws)
    xr.testing.assert_identical(fit.bootstrap(20, random_seed=3), draws)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_too_few_observations_to_choose_by_survive_a_file(tmp_path):
    y = np.linspace(-1.0, 1.0, 15)
    models = {
        name: lq.from_family("normal", y=y, mu=np.full((2, 30), mu), sigma=1.0)
        for name, mu in (("down", -1.0), ("up", 1.0))
    }
    fit = lq.lock(models, by=np.arange(15) % 2 == 0)
    fit.save(tmp_path / "fit.nc")
    again = lq.load(tmp_path / "fit.nc")
    assert "too few observations to tell" in shown(again)
    xr.testing.assert_identical(again.bootstrap(5, random_seed=3), fit.bootstrap(5, random_seed=3))
