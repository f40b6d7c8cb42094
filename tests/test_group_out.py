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


def test_it_is_what_fits_without_each_group_predict():
    means, sds = exact()
    found = lq.leave_group_out(WHOLE, GROUP)
    loo = found.loo()
    assert (loo.pareto_k < found.source.pareto_limit).all()
    assert all(len(set(loo.pareto_k[g == GROUP])) == 1 for g in range(8))
    np.testing.assert_allclose(loo.logp, stats.norm.logpdf(Y, means, sds), atol=0.03)
    assert np.abs(WHOLE.loo().logp - stats.norm.logpdf(Y, means, sds)).max() > 0.03
    jet = found.collapse("loo").jet
    np.testing.assert_allclose(jet.grad[:, 0], (means - Y) / sds**2, atol=0.03)
    p = lq.stack({"m": found}).predict(loo=True)
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
