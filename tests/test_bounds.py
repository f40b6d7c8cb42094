"""Bounds on the normaliser that hold whatever the densities are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lockquack.operators import (
    Hoelder,
    Hybrid,
    Linear,
    Locking,
    Nested,
    Operator,
    Selection,
    Superposition,
)
from lockquack.operators.pool import Pool
from lockquack.solvers.mixture_proportions import mixture_proportions

NODES = np.linspace(-60.0, 60.0, 24001)
OPERATORS = [
    Linear(),
    Selection(),
    Locking(),
    Locking("nonnegative"),
    *(Hoelder(p) for p in (-3, -1, 0, 0.3, 0.5, 1, 2, 5)),
    Hoelder(),
    Superposition(),
    Superposition(capped=True),
    Superposition(phases=0),
    Hybrid(),
    Nested(Linear(), [Superposition(), 0]),
    Nested(Superposition(), [Locking(), 1]),
    Nested(Superposition(), [Superposition(), Linear()]),
    Nested(Superposition(), [Locking("nonnegative"), 0]),
    Nested(Locking(), [Linear(), 0]),
    Nested(Hoelder(2), [Hoelder(0.5), (Superposition(), [0, 1])]),
    Nested(Hoelder(-1), [Hoelder(3), 0]),
]


def random_pool(operator: Operator, rng: np.random.Generator) -> tuple[Pool, float]:
    """Return a pool of two to four normal densities, and the log of its integral."""
    K = int(rng.integers(2, 5))
    sd = np.exp(0.5 * rng.normal(size=(K, 1)))
    logp = stats.norm.logpdf(NODES, 5.0 * rng.normal(size=(K, 1)), sd)
    space = operator.space(np.ones(K))
    x = space.natural(2.0 * rng.normal(size=space.size))
    logq = operator.pool_density(logp[:, :, None], x)[:, 0]
    total = np.log(np.exp(logq - logq.max()).sum() * (NODES[1] - NODES[0]))
    return Pool(operator, x, K), float(logq.max() + total)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_the_normaliser_lies_within_its_bounds(operator):
    rng = np.random.default_rng(16)
    for _ in range(40):
        pool, log_norm = random_pool(operator, rng)
        least, most = pool.log_norm_bounds
        assert least - 1e-6 <= log_norm <= most + 1e-6


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9, 1.0, 1.5, 4.0])
def test_bounds_of_power_means_are_attained(p):
    # By models that are the same, and by models without overlap: then Z = Σ w^(1/p).
    w = np.array([0.2, 0.5, 0.3])
    ends = np.sort([0.0, np.log((w ** (1 / p)).sum())])
    np.testing.assert_allclose(Pool(Hoelder(p), w, 3).log_norm_bounds, ends, atol=1e-14)
    least, most = Pool(Hoelder(p), w, 3).log_norm_bounds
    # So they are at least as sharp as max w^(1/p) ≤ Z ≤ 1 for p ≤ 1.
    assert p > 1 or (least >= np.log(w.max()) / p and most <= 1e-14)


def test_bounds_of_a_superposition_in_closed_form():
    w, phases = np.array([0.2, 0.5, 0.3]), np.array([0.0, 2.5, -1.0])
    cos = np.sqrt(np.outer(w, w)) * np.cos(phases[:, None] - phases)
    np.fill_diagonal(cos, 0.0)
    least, most = Pool(Superposition(), np.append(w, phases), 3).log_norm_bounds
    assert np.exp(least) == pytest.approx(max(1 + cos[cos < 0].sum(), 0.0), abs=1e-12)
    assert np.exp(most) == pytest.approx(1 + cos[cos > 0].sum(), rel=1e-12)


def test_one_model_is_normalised_whatever_the_operator():
    for operator in (Linear(), Locking(), Hoelder(-1), Hoelder(0.5), Hoelder(3), Superposition(0)):
        np.testing.assert_allclose(Pool(operator, np.eye(3)[1], 3).log_norm_bounds, 0.0, atol=1e-12)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_parameters_that_differ_between_observations_have_bounds_each(operator):
    rng = np.random.default_rng(3)
    space = operator.space(np.ones(3))
    x = np.stack([space.natural(rng.normal(size=space.size)) for _ in range(4)], axis=1)
    if operator == Hoelder():
        x[3] = x[3, 0]  # its order is common to all
    together = Pool(operator, x, 3).log_norm_bounds
    for i in range(4):
        alone = Pool(operator, x[:, i], 3).log_norm_bounds
        np.testing.assert_allclose([each[i] for each in together], alone, atol=1e-12)


@pytest.mark.parametrize("operator", [op for op in OPERATORS if "nonnegative" not in repr(op)])
def test_no_pool_is_certain_to_beat_the_best_mixture(operator):
    """Lower bounds are those of mixtures: q̃/Z_max ≤ Σ v_k π_k, so stacking has the largest.

    Superposition: √(π_j π_k) ≤ (π_j + π_k)/2 where the cosine is positive, and 0 elsewhere. Power
    means: below p = 1 they are below the mean, above it (Σ w π^p)^(1/p) ≤ Σ w^(1/p) π.
    """
    rng = np.random.default_rng(7)
    for _ in range(20):
        logp = 3.0 * rng.normal(size=(3, 40))
        space = operator.space(np.ones(3))
        x = space.natural(2.0 * rng.normal(size=space.size))
        certain = operator.pool_density(logp, x) - Pool(operator, x, 3).log_norm_bounds[1]
        best = mixture_proportions(logp.T).x
        stacked = np.logaddexp.reduce(logp + np.log(np.maximum(best, 1e-300))[:, None], axis=0)
        assert certain.sum() <= stacked.sum() + 1e-6
