"""Draws of a combination in ArviZ's own plots, of either generation."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lockquack as lq
from tests.helpers import lock

plt = pytest.importorskip("matplotlib.pyplot")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import arviz as az

#: ArviZ 0.x has containers and plots of its own; 1.x takes DataTrees as they are.
FIRST = hasattr(az, "from_netcdf") and hasattr(az, "plot_ppc")


@pytest.fixture(autouse=True)
def _figures():
    with plt.rc_context({"backend": "agg"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    plt.close("all")


def predictions(family, y, rng, **parameters):
    models = {
        name: lq.from_family(family, y=y, **{k: v + shift for k, v in parameters.items()})
        for name, shift in (("near", 0.0), ("far", 0.3))
    }
    rule = lq.LogScore() if family == "poisson" else lq.Hyvarinen()
    return lock(models, rule=rule).sample(200, random_seed=1)


@pytest.fixture
def continuous(rng):
    mu = 0.1 * rng.normal(size=(2, 50))
    return predictions("normal", rng.normal(size=30), rng, mu=mu, sigma=1.0)


@pytest.fixture
def counts(rng):
    return predictions("poisson", rng.poisson(3.0, size=30), rng, mu=np.full((2, 50), 3.0))


def drawn_lines(result):
    """Lines and patches on whatever a plot returned."""
    if FIRST:
        axes = np.atleast_1d(np.asarray(result, dtype=object)).ravel()
    else:
        axes = np.atleast_1d(result.viz["figure"].item().axes)
    return sum(len(ax.lines) + len(ax.patches) + len(ax.collections) for ax in axes)


@pytest.mark.skipif(not FIRST, reason="ArviZ 1.x")
def test_plots_of_the_first_generation(continuous, counts):
    for tree in (continuous, counts):
        data = az.InferenceData.from_datatree(tree)
        assert drawn_lines(az.plot_ppc(data, num_pp_samples=20)) > 3
        assert drawn_lines(az.plot_bpv(data, kind="p_value")) > 0
        assert drawn_lines(az.plot_dist(data.posterior_predictive["y"].values)) > 0


@pytest.mark.skipif(FIRST, reason="ArviZ 0.x")
def test_plots_of_the_second_generation(continuous, counts):
    assert drawn_lines(az.plot_ppc_dist(continuous)) > 3
    assert drawn_lines(az.plot_ppc_pit(continuous)) > 0
    assert drawn_lines(az.plot_ppc_rootogram(counts)) > 0
    assert drawn_lines(az.plot_ppc_tstat(continuous)) > 0


def test_summaries(continuous):
    predicted = continuous["posterior_predictive"].to_dataset()
    data = az.convert_to_inference_data(predicted) if FIRST else continuous
    table = az.summary(
        data if FIRST else continuous, **({} if FIRST else {"group": "posterior_predictive"})
    )
    assert len(table) == 30
    assert np.isfinite(table["mean"].astype(float)).all()
