"""Mixtures by CRPS of PyMC models whose outcomes are censored: no density to differentiate."""

from __future__ import annotations

import numpy as np
import pytest

import lockquack as lq

pm = pytest.importorskip("pymc")

#: PyMC's own, and ours on so few draws.
pytestmark = pytest.mark.filterwarnings("ignore")
LIMIT = 1.3


@pytest.fixture(scope="module")
def fitted():
    """Waiting times that were not followed beyond a limit, by two models."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=60)
    y = np.minimum(rng.gamma(6.0, np.exp(0.2 * x) / 6), LIMIT)
    found = {}
    for name in ("weibull", "exponential"):
        with pm.Model() as model:
            slope, level = pm.Normal("slope"), pm.Normal("level")
            scale = pm.math.exp(level + slope * x)
            if name == "weibull":
                waiting = pm.Weibull.dist(alpha=pm.HalfNormal("alpha", 2.0), beta=scale)
            else:
                waiting = pm.Exponential.dist(1 / scale)
            pm.Censored("y", waiting, lower=None, upper=LIMIT, observed=y)
            idata = pm.sample(200, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
            pm.compute_log_likelihood(idata, progressbar=False)
            pm.sample_posterior_predictive(
                idata, extend_inferencedata=True, random_seed=2, progressbar=False
            )
        found[name] = model, idata
    return y, found


def test_censored_outcomes_are_mixed_by_draws_of_their_own_generators(fitted):
    _, found = fitted
    by_model = lq.combine(
        {name: lq.from_pymc(*each) for name, each in found.items()},
        lq.Linear(),
        lq.CRPS(scale=1),
        random_seed=3,
    )
    by_arviz = lq.combine(
        {name: idata for name, (_, idata) in found.items()}, lq.Linear(), lq.CRPS(scale=1)
    )
    ours, theirs = by_model.objective.model_scores(), by_arviz.objective.model_scores()
    assert ours.sum(axis=1) == pytest.approx(theirs.sum(axis=1), rel=0.03)
    # Which is better does not depend on whose draws they are.
    assert min(float(fit.weights.sel(model="weibull")) for fit in (by_model, by_arviz)) > 0.8
    assert bool(by_model.solution.converged)


def test_the_mixture_keeps_the_atom_at_the_limit(fitted):
    y, found = fitted
    fit = lq.combine({k: lq.from_pymc(*v) for k, v in found.items()}, lq.Linear(), lq.CRPS())
    p = fit.predict()
    assert float(p.cdf(LIMIT).min()) == 1.0
    below = float(p.cdf(LIMIT - 1e-6).mean())
    assert 1 - below == pytest.approx((y == LIMIT).mean(), abs=0.1)


def test_scores_are_those_of_scoringrules_on_pymcs_own_draws(fitted):
    scoringrules = pytest.importorskip("scoringrules")
    y, found = fitted
    models = {name: idata for name, (_, idata) in found.items()}
    fit = lq.combine(models, lq.Linear(), lq.CRPS(scale=1), scores="in-sample")
    for k, (_, idata) in enumerate(found.values()):
        drawn = idata.posterior_predictive["y"].stack(sample=("chain", "draw")).values
        expected = scoringrules.crps_ensemble(y, drawn)
        np.testing.assert_allclose(-fit.objective.model_scores()[k], expected, rtol=1e-9)
