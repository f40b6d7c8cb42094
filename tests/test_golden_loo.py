"""R's loo: the same weights, the same smoothed importance weights.

The answers are in golden/loo_stacking.json; scripts/golden_loo.sh makes it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

import lockquack as lq
from lockquack.draws.psis import psis
from lockquack.solvers.mixture_proportions import mixture_proportions

# Models without spread have Monte Carlo errors that are not known; that is not the matter here.
pytestmark = pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")

GOLDEN = json.loads((Path(__file__).parent / "golden" / "loo_stacking.json").read_text())


@pytest.fixture(params=GOLDEN["stacking"], ids=lambda case: f"{np.shape(case['lpd'])}")
def case(request):
    return {name: np.array(values) for name, values in request.param.items()}


def point_models(lpd):
    """Models whose held-out log densities are these: all of their draws agree."""
    return {
        f"m{k}": lq.from_arrays(logp=np.broadcast_to(column, (2, 4, column.size)), y=column * 0.0)
        for k, column in enumerate(lpd.T)
    }


def log_score(lpd, w):
    return logsumexp(lpd, axis=1, b=w).sum()


def test_stacking_weights(case):
    lpd = case["lpd"]
    ours = lq.stack(point_models(lpd), scores="held-out").weights
    np.testing.assert_allclose(ours, case["stacking"], atol=1e-4)
    np.testing.assert_allclose(mixture_proportions(lpd).x, ours, atol=1e-12)
    # loo stops early by default, but comes as close as this for so few models.
    np.testing.assert_allclose(ours, case["stacking_default"], atol=5e-4)


def test_stacking_objective_is_never_below(case):
    lpd, solution = case["lpd"], mixture_proportions(case["lpd"])
    best = log_score(lpd, solution.x)
    assert solution.gap < 1e-7
    for theirs in ("stacking", "stacking_default"):
        assert best >= log_score(lpd, case[theirs]) - 1e-9


def test_pseudo_bma_weights(case):
    models = point_models(case["lpd"])
    ours = lq.pseudo_bma(models, bootstrap=False, scores="held-out").weights
    np.testing.assert_allclose(ours, case["pseudobma"], atol=1e-6)


@pytest.mark.parametrize("answer", GOLDEN["psis"]["answers"], ids=lambda a: f"r_eff={a['r_eff']}")
def test_psis(answer):
    # Only the length of the tail depends on r_eff, 3√(S / r_eff): loo rounds it up and estimates
    # r_eff for each observation; lockquack, like ArviZ, rounds down and takes it to be 1 unless
    # told. The stored tails have whole lengths, so there is nothing to round.
    log_lik = np.array(GOLDEN["psis"]["log_lik"])
    log_weights, pareto_k = psis(log_lik, r_eff=answer["r_eff"])
    np.testing.assert_allclose(logsumexp(log_weights, axis=(0, 1)), 0.0, atol=1e-12)
    elpd = logsumexp(log_weights + log_lik, axis=(0, 1))
    np.testing.assert_allclose(elpd, answer["elpd"], rtol=1e-6)
    np.testing.assert_allclose(pareto_k, answer["pareto_k"], atol=1e-6)


def test_a_models_loo_is_that_of_r():
    log_lik = np.array(GOLDEN["psis"]["log_lik"])
    loo = lq.from_arrays(logp=log_lik, y=np.zeros(log_lik.shape[2])).loo()
    at_one = GOLDEN["psis"]["answers"][0]
    np.testing.assert_allclose(loo.logp, at_one["elpd"], rtol=1e-6)
    np.testing.assert_allclose(loo.pareto_k, at_one["pareto_k"], atol=1e-6)
