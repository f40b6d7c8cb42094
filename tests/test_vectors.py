"""Combinations of vector outcomes against the closed form of Gaussian pools."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import lockquack as lq
from lockquack.errors import ShapeError
from lockquack.models.observations import as_observations
from lockquack.operators import Locking
from lockquack.operators.pool import Pool
from lockquack.prediction.draws import WeightedDraws
from lockquack.prediction.prediction import Prediction
from tests.helpers import lock

W = np.array([0.4, 0.6])
COV = np.array([[[1.0, 0.5], [0.5, 2.0]], [[1.5, -0.2], [-0.2, 0.6]]])
PRECISION = np.linalg.inv(COV)
POOLED_COV = np.linalg.inv(np.einsum("k,kij->ij", W, PRECISION))


class GaussianPool:
    """Two normal models of two components, and their log-linear pool at each observation."""

    def __init__(self, n, rng, noise=0.0):
        self.mu = rng.normal(size=(2, n, 2))
        self.mean = np.einsum("ij,k,kjl,knl->ni", POOLED_COV, W, PRECISION, self.mu)
        self.y = self.mean + rng.multivariate_normal(np.zeros(2), POOLED_COV, size=n)
        draws = self.mu[:, None, None] + noise * rng.normal(size=(2, 2, 20, n, 2))
        self.models = {
            name: lq.from_family("mv_normal", y=self.y, mu=draws[k], cov=COV[k])
            for k, name in enumerate(("a", "b"))
        }

    @property
    def distribution(self):
        return Prediction(self.models, Pool(Locking(), W, 2), as_observations(self.y), "lock")


@pytest.fixture
def pool(rng):
    return GaussianPool(3, rng)


def test_densities_anywhere(pool, rng):
    found = pool.distribution.logpdf()
    exact = stats.multivariate_normal(np.zeros(2), POOLED_COV).logpdf
    error = np.log1p(pool.distribution.log_norm().error.values)
    assert (np.abs(found - exact(pool.y - pool.mean)) < 5 * error + 1e-9).all()
    points = rng.normal(size=(4, 3, 2))
    several = pool.distribution.logpdf(points)
    assert several.dims == ("point", "obs_id")
    differences = several - several[0]
    wanted = exact(points - pool.mean)
    np.testing.assert_allclose(differences, wanted - wanted[0], atol=1e-9)
    one = pool.distribution.logpdf(points[0])
    np.testing.assert_allclose(one, several[0], atol=1e-12)


def test_components_one_by_one(pool):
    distribution, sd = pool.distribution, np.sqrt(np.diag(POOLED_COV))
    assert distribution.mean().dims == ("obs_id", "component")
    np.testing.assert_allclose(distribution.mean(), pool.mean, atol=5 * sd.max() / 4000**0.5)
    np.testing.assert_allclose(distribution.var(), np.tile(sd**2, (3, 1)), rtol=0.12)
    middle = distribution.quantile(0.5)
    np.testing.assert_allclose(middle, pool.mean, atol=7 * sd.max() / 4000**0.5)
    several = distribution.quantile([0.1, 0.9])
    assert several.dims == ("quantile", "obs_id", "component")
    assert several.sel(quantile=0.9).values == pytest.approx(pool.mean + 1.2816 * sd, abs=0.12)
    for kind in ("central", "hdi"):
        ends = distribution.interval(0.8, kind=kind)
        assert ends.dims == ("ci_bound", "obs_id", "component")
        width = (ends.sel(ci_bound="upper") - ends.sel(ci_bound="lower")).values
        assert width == pytest.approx(np.tile(2 * 1.2816 * sd, (3, 1)), rel=0.07)
    exact = stats.norm.cdf((pool.y - pool.mean) / sd)
    np.testing.assert_allclose(distribution.cdf(), exact, atol=0.04)
    np.testing.assert_allclose(distribution.pit(), exact, atol=0.04)


def test_the_shortest_interval_is_not_the_central_one_of_a_skewed_sample():
    draws = WeightedDraws.of(stats.expon.ppf((np.arange(1000)[::-1, None] + 0.5) / 1000))
    low, high = draws.interval(0.5, "hdi")
    assert low == pytest.approx(0.0, abs=0.01)
    assert high == pytest.approx(np.log(2.0), abs=0.01)
    assert draws.interval(0.5)[0] == pytest.approx(-np.log(0.75), abs=0.01)


def test_modes_are_where_the_gradient_vanishes(pool):
    np.testing.assert_allclose(pool.distribution.mode(), pool.mean, atol=1e-4)


def test_outcomes_by_their_labels(pool):
    distribution = pool.distribution
    zero = distribution.cdf(0.0)
    labelled = xr.DataArray(np.zeros((2, 3)), dims=["component", "obs_id"])
    xr.testing.assert_allclose(distribution.cdf(labelled), zero)
    with pytest.raises(ShapeError, match=r"\(3, 3\).*3 observations of 2 component"):
        distribution.cdf(np.zeros((3, 3)))


def test_coverage_by_component(rng):
    pool = GaussianPool(60, rng, noise=0.01)
    fit = lock(pool.models)
    table = fit.coverage((0.5, 0.9), loo=False)
    assert table.index.tolist() == ["[lock]", "[stack]", "a", "b"]
    for prob in (0.5, 0.9):
        # Two dependent components: no more information than one, no less than half of two.
        error = np.sqrt(prob * (1 - prob) / 60)
        assert abs(table.loc["[lock]", f"{prob:g}"] - prob) < 4 * error
    assert table.loc["[lock]", "uniformity_p"] > 1e-3
    assert table.loc["[lock]", "width_0.9"] < table.loc["[stack]", "width_0.9"]
