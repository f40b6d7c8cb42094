"""Whether predictions are as sure as they should be."""

from __future__ import annotations

import warnings
import weakref

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import lockquack as lq
from lockquack.errors import LockquackWarning
from lockquack.operators import Locking
from lockquack.prediction import distribution
from lockquack.prediction.nodes import lay_nodes
from lockquack.quadrature.uniformity import uniformity
from lockquack.testing import example_models
from tests.helpers import lock, pooled_distribution


def test_the_uniformity_test_has_its_level(rng):
    # 400 uniform samples: p-values are uniform too, so about 5% are below 5%.
    p = np.array([uniformity(rng.random(60)) for _ in range(400)])
    assert stats.binomtest(int((p < 0.05).sum()), 400, 0.05).pvalue > 1e-3
    assert stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda u: u**1.5,
        lambda u: 0.5 + 0.7 * (u - 0.5),
        lambda u: stats.norm.cdf(1.6 * stats.norm.ppf(u)),
    ],
    ids=["biased", "too wide", "too narrow"],
)
def test_the_uniformity_test_sees(wrong, rng):
    p = [uniformity(wrong(rng.random(200))) for _ in range(20)]
    assert np.median(p) < 0.01


def combination_that_is_right(n, rng):
    """Outcomes drawn from the pool itself: N(mean, var) at each observation."""
    x = rng.normal(size=n)
    w = np.array([0.3, 0.7])
    mu, sd = np.stack([x, 1 + 2 * x]), np.array([1.0, 2.0])
    precision = w / sd**2
    mean = precision @ mu / precision.sum()
    y = rng.normal(mean, precision.sum() ** -0.5)
    models = {
        str(k): lq.from_family("normal", y=y, mu=np.tile(mu[k], (1, 1, 1)), sigma=sd[k])
        for k in (0, 1)
    }
    return y, pooled_distribution(models, Locking(), w)


def test_intervals_of_a_right_combination_cover(rng):
    n = 1000
    y, pooled = combination_that_is_right(n, rng)
    for prob in (0.5, 0.8, 0.95):
        for kind in ("central", "hdi"):
            low, high = pooled.interval(prob, kind)
            covered = int(((low <= y) & (y <= high)).sum())
            assert stats.binomtest(covered, n, prob).pvalue > 1e-3 / 6
    assert uniformity(pooled.cdf(y[None])[0]) > 1e-3


def test_draws_of_a_right_combination_rank_uniformly(rng):
    y, pooled = combination_that_is_right(500, rng)
    ranks = (pooled.sample(400, rng) < y).mean(axis=0)
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3


def test_leave_one_out_probabilities_are_those_of_refits(rng):
    # y ~ N(μ, 1) with a flat prior: without y_i, it is N(mean of the others, 1 + 1/(n − 1)).
    n = 40
    y = rng.normal(2.0, 1.0, size=n)
    mu = y.mean() + rng.normal(size=(4, 1000)) / np.sqrt(n)
    fit = lock({"only": lq.from_family("normal", y=y, mu=mu, sigma=1.0)})
    exact = stats.norm.cdf(y, (y.sum() - y) / (n - 1), np.sqrt(1 + 1 / (n - 1)))
    np.testing.assert_allclose(fit.pit(), exact, atol=0.02)
    # In-sample, outcomes are nearer to the middle of their own predictions.
    assert (np.abs(fit.pit(loo=False) - 0.5) < np.abs(exact - 0.5) + 0.01).all()


def test_the_table_shows_what_combining_bought(rng):
    # Truth between two models that are off to either side: each is biased, the pool is right.
    n = 150
    y = rng.normal(size=n)
    mu = 0.05 * rng.normal(size=(2, 300))
    models = {
        "low": lq.from_family("normal", y=y, mu=mu - 1.0, sigma=1.0),
        "high": lq.from_family("normal", y=y, mu=mu + 1.0, sigma=1.0),
    }
    fit = lock(models)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        table = fit.coverage([0.5, 0.9])
    assert list(table.index) == ["[lock]", "[stack]", "low", "high"]
    assert table.loc["[lock]", "uniformity_p"] > 0.01
    assert table.loc["low", "uniformity_p"] < 0.001
    assert table.loc["[lock]", "0.9"] == pytest.approx(0.9, abs=0.08)
    assert table.loc["high", "0.5"] < 0.4
    # The mixture covers by being wide.
    assert table.loc["[stack]", "width_0.9"] > 1.2 * table.loc["[lock]", "width_0.9"]


def test_nodes_of_one_group_are_kept_at_a_time(rng, monkeypatch):
    monkeypatch.setenv("LOCKQUACK_NUM_THREADS", "1")
    monkeypatch.setattr("lockquack.models.source._OBS_AT_ONCE", 5)
    for place in ("distribution", "shared"):  # as if these were many observations
        monkeypatch.setattr(f"lockquack.prediction.{place}.MOST_KEPT", 0)
    node_groups = []

    def watched(*args, **options):
        assert not any(each() for each in node_groups)
        parts = lay_nodes(*args, **options)
        node_groups.extend(weakref.ref(part) for part in parts)
        return parts

    monkeypatch.setattr(distribution, "lay_nodes", watched)
    table = lock(example_models(30)).coverage([0.5, 0.9], loo=False)
    assert len(node_groups) == 6
    monkeypatch.setattr("lockquack.models.source._OBS_AT_ONCE", 30)
    pd.testing.assert_frame_equal(lock(example_models(30)).coverage([0.5, 0.9], loo=False), table)


def test_probabilities_of_counts(rng):
    n = 300
    y = rng.poisson(4.0, size=n)
    models = {
        "p": lq.from_family("poisson", y=y, mu=rng.gamma(4 * n, 1 / n, size=(2, 100))),
        "g": lq.from_family("negative_binomial", y=y, mu=np.full((2, 100), 4.0), alpha=50.0),
    }
    fit = lq.combine(models, lq.Locking(), lq.LogScore(), prior=1.0)
    random = fit.pit()
    assert uniformity(random.values) > 1e-3
    np.testing.assert_array_equal(random, fit.pit(random_seed=0))
    middle = fit.pit(random_seed=None)
    lower, upper = fit.predict(loo=True).cdf(y - 1.0), fit.predict(loo=True).cdf()
    np.testing.assert_allclose(middle, (lower + upper) / 2)
    assert ((random >= lower) & (random <= upper)).all()


def test_models_that_end_at_different_places(rng):
    # Half of the normal's mass lies where the gamma has none; it still counts for the normal.
    y = rng.gamma(3.0, 1.0, size=60)
    models = {
        "gamma": lq.from_family("gamma", y=y, alpha=np.full((2, 50), 3.0), beta=1.0),
        "normal": lq.from_family("normal", y=y, mu=0.02 * rng.normal(size=(2, 50)), sigma=2.0),
    }
    fit = lock(models, prior=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        beside = fit.predict()._calibrated([0.5])
    pit = {name: each.pit(None) for name, each in beside.items()}
    np.testing.assert_allclose(pit["normal"], stats.norm.cdf(y, 0.0, 2.0), atol=0.01)
    np.testing.assert_allclose(pit["gamma"], stats.gamma.cdf(y, 3.0), atol=1e-8)
    np.testing.assert_allclose(pit["[lock]"], fit.pit(loo=False), atol=1e-7)
    # Half of it is on the other side of the gamma's end.
    width = 4.0 * stats.norm.ppf(0.75)
    assert beside["normal"].widths() == pytest.approx([width], rel=0.01)
