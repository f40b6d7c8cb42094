"""Real posteriors: scores and weights against stored reference answers."""

from __future__ import annotations

import numpy as np
import pytest

import lockquack as lq
from lockquack.errors import IdentifiabilityWarning
from lockquack.jets import stack_jets
from lockquack.transforms import get_transform
from tests.helpers import changed, lock
from tests.reference import ON_LOG_SCALE, reference_family

PLAIN = lq.Hyvarinen(transform=None)


def test_draws_are_those_that_the_answers_are_for(made_family):
    # If they are not, a library makes other draws: run scripts/reference_answers.py.
    for name, stored in made_family.answers["models"].items():
        draws = made_family.draws[name]["draws"]
        np.testing.assert_allclose(draws[0, 0], stored["first_draw"], rtol=1e-9)
        np.testing.assert_allclose(draws[-1, -1], stored["last_draw"], rtol=1e-9)


@pytest.mark.parametrize(("kind", "stored"), [("loo", "loo"), ("in-sample", "in_sample")])
def test_scores_of_every_model(family, kind, stored):
    for scale, answers in family.answers["scales"].items():
        for k, (name, model) in enumerate(family.models(scale).items()):
            jet = model.collapse(kind).jet
            total = float((2 * jet.curv + jet.grad**2).sum())
            assert total == pytest.approx(answers["per_model"][name][f"hyv_{stored}"], rel=1e-8)
            np.testing.assert_allclose(
                jet.grad[family.observations, 0],
                family.pointwise[f"{scale}__{stored}__grad"][:, k],
                rtol=1e-8,
            )
            np.testing.assert_allclose(
                jet.curv[family.observations, 0],
                family.pointwise[f"{scale}__{stored}__lapl"][:, k],
                rtol=1e-8,
                atol=1e-12,
            )


@pytest.mark.parametrize(("kind", "stored"), [("loo", "loo"), ("in-sample", "in_sample")])
def test_locking_weights_of_every_subset(family, kind, stored):
    for scale, answers in family.answers["scales"].items():
        models = family.models(scale)
        for subset in answers["sets"].values():
            chosen = {name: models[name] for name in subset["models"]}
            expected = subset["locking"][stored]["standardised"]
            fit = lock(chosen, scores=kind, rule=PLAIN)
            np.testing.assert_allclose(fit.weights, expected["weights"], atol=1e-5)
            assert fit.solution.objective == pytest.approx(expected["objective"], rel=1e-9)
            assert fit.solution.relative_gap < 1e-9
            raw = lock(chosen, scores=kind, rule=PLAIN, scale=1.0)
            np.testing.assert_allclose(
                raw.weights, subset["locking"][stored]["raw"]["weights"], atol=1e-5
            )


def test_by_default_models_of_log_y_are_scored_on_its_scale(family):
    # So the answers for models of y are those for the same models brought to log y.
    answers = family.answers["scales"].get("logy", {"sets": {}})
    models = family.models("y")
    for subset in answers["sets"].values():
        chosen = {name: models[name] for name in subset["models"]}
        fit = lock(chosen)
        on_half_line = any(model.likelihood.support[0] == 0 for model in chosen.values())
        assert fit.rule.transform == ("log" if on_half_line else None)
        if on_half_line:
            expected = subset["locking"]["loo"]["standardised"]["weights"]
            np.testing.assert_allclose(fit.weights, expected, atol=1e-5)


def test_flat_prior_reaches_the_stored_optimum_with_exact_zeros(family):
    for scale, answers in family.answers["scales"].items():
        models = family.models(scale)
        for subset in answers["sets"].values():
            chosen = {name: models[name] for name in subset["models"]}
            fit = lock(chosen, prior=1.0, rule=PLAIN)
            expected = subset["locking"]["loo"]["standardised_no_prior"]
            assert fit.solution.objective <= expected["objective"] + 1e-6
            tiny = np.array(expected["weights"]) < 1e-7
            assert (fit.solution.x[tiny] < 1e-7).all()


def test_duplicated_models_are_noted_and_their_sum_is_stable(family):
    models = family.models(next(iter(family.answers["scales"])))
    weights = lock(models).weights
    for group in family.duplicates:
        single = {name: m for name, m in models.items() if name not in group[1:]}
        alone = lock(single).weights
        together = float(weights.sel(model=group).sum())
        assert together == pytest.approx(float(alone.sel(model=group[0])), abs=0.05)
        if together > 0.05:
            fit = lock(models)
            alike = [r.models for r in fit.remarks if r.category is IdentifiabilityWarning]
            assert any(set(group) <= set(models) for models in alike)
    assert float(weights.sum()) == pytest.approx(1.0)


def test_psis_log_scores(family):
    for scale, answers in family.answers["scales"].items():
        for k, (name, model) in enumerate(family.models(scale).items()):
            loo, at = model.loo(), family.observations
            stored, pointwise = answers["per_model"][name], family.pointwise
            assert loo.logp.sum() == pytest.approx(stored["elpd_loo_psis"], abs=1e-6)
            assert loo.pareto_k.max() == pytest.approx(stored["pareto_k_max"], abs=1e-6)
            expected = pointwise[f"{scale}__loo__logp"][:, k], pointwise["pareto_k"][:, k]
            np.testing.assert_allclose(loo.logp[at], expected[0], atol=1e-8)
            np.testing.assert_allclose(loo.pareto_k[at], expected[1], atol=1e-8)


def test_in_sample_log_densities(family):
    for scale, answers in family.answers["scales"].items():
        for k, (name, model) in enumerate(family.models(scale).items()):
            logp = model.collapse("in-sample").jet.logp
            stored = answers["per_model"][name]["lppd_in_sample"]
            assert logp.sum() == pytest.approx(stored, abs=1e-8)
            pointwise = family.pointwise[f"{scale}__in_sample__logp"][:, k]
            np.testing.assert_allclose(logp[family.observations], pointwise, atol=1e-10)


def test_draws_agree_with_exact_leave_one_out(family):
    # The derivatives do so where PSIS fails too. Where k̂ is only near its limit, PSIS can be off
    # by more than its own error says.
    for scale, answers in family.answers["scales"].items():
        for name, model in family.models(scale).items():
            predicted, stored = (
                model.passes.predict("loo", density=True),
                answers["per_model"][name],
            )
            jet = predicted.jet
            error = float((2 * jet.curv + jet.grad**2).sum()) - stored["exact_hyv_loo"]
            assert abs(error) < 4 * predicted.mcse(np.ones(1))
            if stored["pareto_k_max"] < 0.5:
                error = jet.logp.sum() - stored["exact_elpd_loo"]
                assert abs(error) < 4 * predicted.mcse_logp()


@pytest.mark.parametrize(("kind", "stored"), [("loo", "loo"), ("in-sample", "in_sample")])
@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_stacking_weights_of_every_subset(family, kind, stored):
    for scale, answers in family.answers["scales"].items():
        models = family.models(scale)
        for subset in answers["sets"].values():
            expected, merge = subset["stacking"][stored], family.merge_duplicates(subset["models"])
            fit = lq.stack({name: models[name] for name in subset["models"]}, scores=kind)
            assert -fit.solution.objective == pytest.approx(expected["log_score"], abs=1e-6)
            ours, theirs = merge @ fit.weights.values, merge @ expected["weights"]
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_mcse_is_of_the_stored_size(family):
    # The stored errors are a jackknife over ten chains: one such estimate is good to 25 %.
    for scale, answers in family.answers["scales"].items():
        ratios = [
            model.collapse().mcse(np.ones(1)) / answers["per_model"][name]["hyv_loo_mcse"]
            for name, model in family.models(scale).items()
        ]
        assert 0.6 < np.exp(np.mean(np.log(ratios))) < 1.6


@pytest.mark.parametrize("label", ON_LOG_SCALE)
def test_weights_follow_the_variable_only_through_its_score(label):
    # Locking commutes with a change of variable at fixed weights: the pooled jets agree.
    family = reference_family(label)
    on_y, on_log = family.models("y"), family.models("logy")
    weights = np.full(len(on_y), 1 / len(on_y))
    pooled = {}
    for label, models in (("y", on_y), ("logy", on_log)):
        jets = stack_jets([m.collapse("in-sample").jet for m in models.values()])
        pooled[label] = lq.Locking().pool(jets, weights)
    brought = changed(get_transform("exp"), np.log(family.y), pooled["y"])
    np.testing.assert_allclose(brought.grad, pooled["logy"].grad, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(brought.curv, pooled["logy"].curv, rtol=1e-8, atol=1e-10)
