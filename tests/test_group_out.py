"""Leave-group-out from one fit: against the closed form, and the identity of H."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import lockquack as lq
from lockquack.errors import ParameterError, UnsupportedError

Y = np.random.default_rng(2).normal(0.4, 1.1, size=24)
GROUP = np.random.default_rng(3).permutation(np.arange(24) % 8)


def posterior(y):
    return y.sum() / (len(y) + 0.1), 1 / (len(y) + 0.1)


def fit(train, test):
    mean, variance = posterior(Y[train])
    mu = np.random.default_rng(len(train)).normal(mean, np.sqrt(variance), size=(4, 4000))
    return lq.from_family("normal", y=Y[test], mu=mu, sigma=1.0)


WHOLE = fit(np.arange(24), np.arange(24))


def exact():
    each = np.array([posterior(Y[g != GROUP]) for g in GROUP])
    return each[:, 0], np.sqrt(1 + each[:, 1])


def test_it_is_what_fits_without_each_group_predict(tmp_path):
    means, sds = exact()
    found = lq.leave_group_out(WHOLE, GROUP)
    loo = found.loo()
    assert (loo.pareto_k < found.source.pareto_limit).all()
    assert all(len(set(loo.pareto_k[g == GROUP])) == 1 for g in range(8))
    np.testing.assert_allclose(loo.logp, stats.norm.logpdf(Y, means, sds), atol=0.03)
    assert np.abs(WHOLE.loo().logp - stats.norm.logpdf(Y, means, sds)).max() > 0.03
    jet = found.collapse("loo").jet
    np.testing.assert_allclose(jet.grad[:, 0], (means - Y) / sds**2, atol=0.03)
    fit = lq.stack({"m": found})
    assert "How observations were left out: m: 24 PSIS without its group." in repr(fit)
    fit.save(tmp_path / "fit.nc")
    assert "m: 24 PSIS without its group" in repr(lq.load(tmp_path / "fit.nc"))
    assert "How observations" not in repr(lq.stack({"m": WHOLE}))
    p = fit.predict(loo=True)
    np.testing.assert_allclose(p.logpdf(), loo.logp, rtol=1e-9)
    np.testing.assert_allclose(p.pit(), stats.norm.cdf(Y, means, sds), atol=0.01)


def test_groups_with_a_high_k_are_fitted_again_as_a_whole():
    calls = []

    def counted(train, test):
        calls.append(test)
        return fit(train, test)

    k_hat = lq.leave_group_out(WHOLE, GROUP).loo().pareto_k
    limit = np.unique(k_hat)[-2] + 1e-9
    found = lq.refit(lq.leave_group_out(WHOLE, GROUP), counted, limit=limit)
    worst = GROUP[np.argmax(k_hat)]
    assert [test.tolist() for test in calls] == [np.flatnonzero(worst == GROUP).tolist()]
    assert (found.loo().how == "refit").sum() == 3


def test_joint_h_of_groups_is_that_of_single_observations():
    """The gradient and curvature in y_g of log p(y_g | rest) are those of the evidence."""
    precision = np.linalg.inv(np.eye(24) + 10.0)
    grad, curv = -precision @ Y, -np.diag(precision)
    joint = 0.0
    for g in range(8):
        own, rest = np.flatnonzero(g == GROUP), np.flatnonzero(g != GROUP)
        mean, variance = posterior(Y[rest])
        inner = np.linalg.inv(np.eye(len(own)) + variance)
        joint += np.sum(-2 * np.diag(inner)) + np.sum((inner @ (Y[own] - mean)) ** 2)
    assert joint == pytest.approx(np.sum(2 * curv + grad**2), abs=1e-10)
    jet = WHOLE.collapse("loo").jet
    np.testing.assert_allclose(np.sum(2 * jet.curv + jet.grad**2), joint, atol=0.1)


def test_what_is_refused():
    with pytest.raises(ParameterError, match="labels of the 24 observations"):
        lq.leave_group_out(WHOLE, GROUP[1:])
    with pytest.raises(ParameterError, match="of one group"):
        lq.leave_group_out(WHOLE, np.zeros(24))
    with pytest.raises(UnsupportedError, match="folds=groups"):
        lq.leave_group_out(lq.from_folds([(np.arange(24), WHOLE)]), GROUP)


def test_joint_h_of_groups_by_cross_validation():
    """The same identity in the library's own numbers: groups are vectors, left out one by one.

    By H the two cannot be told apart, while their log scores differ.
    """
    groups = np.stack([np.flatnonzero(g == GROUP) for g in range(8)])
    vectors = Y[groups]  # (group, member)

    def predict(n_left, mean, variance, y):
        covariance = np.eye(n_left) + variance
        return lq.from_family(
            "mv_normal", y=y, mu=np.full((1, 1, 1, n_left), mean), cov=covariance[None, None]
        )

    def by_group(train, test):
        return predict(3, *posterior(vectors[train].ravel()), vectors[test])

    def by_observation(train, test):
        mean, variance = posterior(Y[train])
        return lq.from_family("normal", y=Y[test], mu=[[mean]], sigma=[[np.sqrt(1 + variance)]])

    joint = lq.cross_validate(by_group, n=8, folds=8)
    single = lq.cross_validate(by_observation, n=24, folds=24)
    h, logp = [], []
    for model in (joint, single):
        jet = model.collapse("loo").jet
        h.append(float(np.sum(2 * jet.curv + jet.grad**2)))
        logp.append(float(jet.logp.sum()))
    assert h[0] == pytest.approx(h[1], abs=1e-10)
    assert abs(logp[0] - logp[1]) > 0.1


# A panel: observations of a group share an effect that is drawn with it.

MEMBERS, GROUPS, TAU = 4, 7, 0.8
UNIT = np.repeat(np.arange(GROUPS), MEMBERS)
PANEL = np.random.default_rng(6).normal(1.0, TAU, size=GROUPS)[UNIT] + np.random.default_rng(
    7
).normal(size=GROUPS * MEMBERS)


def panel_posterior(train):
    """Mean and covariance of (μ, u_1, …, u_G) given some rows; μ ~ N(0, 10), u ~ N(0, τ²)."""
    X = np.column_stack([np.ones(UNIT.size), UNIT[:, None] == np.arange(GROUPS)])[train]
    precision = np.diag([1 / 10, *[1 / TAU**2] * GROUPS]) + X.T @ X
    covariance = np.linalg.inv(precision)
    return covariance @ X.T @ PANEL[train], covariance


def panel_fit(train, test):
    """Draws; the effect of a group without rows comes from its prior, as it should."""
    rng = np.random.default_rng(len(train) + int(test[0]))
    theta = rng.multivariate_normal(*panel_posterior(train), size=(4, 4000))
    mu = theta[..., :1] + theta[..., 1 + UNIT[test]]
    return lq.from_family("normal", y=PANEL[test], mu=mu, sigma=1.0)


def test_new_groups_of_a_panel():
    """Weights cannot do it where a group has a parameter of its own; refits where k̂ says so do."""
    everything = np.arange(UNIT.size)
    whole = panel_fit(everything, everything)
    weighted = lq.leave_group_out(whole, UNIT)
    bad = np.unique(UNIT[weighted.loo().pareto_k > weighted.source.pareto_limit])
    assert bad.size
    calls = []

    def counting(train, test):
        calls.append(np.unique(UNIT[test]).tolist())
        return panel_fit(train, test)

    found = lq.refit(weighted, counting)
    assert calls == [[g] for g in bad]
    means, sds = np.empty((2, UNIT.size))
    for g in range(GROUPS):
        mean, covariance = panel_posterior(np.flatnonzero(g != UNIT))
        means[g == UNIT] = mean[0] + mean[1 + g]
        own = np.eye(1 + GROUPS)[0] + np.eye(1 + GROUPS)[1 + g]
        sds[g == UNIT] = np.sqrt(1 + own @ covariance @ own)
    expected = stats.norm.logpdf(PANEL, means, sds)
    refitted = found.loo().how == "refit"
    assert set(UNIT[refitted]) == set(bad)
    np.testing.assert_allclose(found.loo().logp[refitted], expected[refitted], atol=0.05)
    # Leave-one-out asks another question: its groups are known.
    assert whole.loo().logp.sum() > expected.sum() + 1
    by_refits = lq.cross_validate(panel_fit, n=UNIT.size, folds=UNIT)
    np.testing.assert_allclose(by_refits.loo().logp, expected, atol=0.05)
