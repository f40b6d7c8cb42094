"""What tests of several libraries need."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import xarray as xr
from scipy import stats

import lockquack as lq


def container(draws, **groups):
    """Hold draws as the installed ArviZ does; a value may come with the names of its axes."""
    import arviz as az

    posterior = xr.Dataset(
        {
            name: value
            if isinstance(value, tuple)
            else (("chain", "draw", *(f"{name}_dim_{i}" for i in range(value.ndim - 2))), value)
            for name, value in draws.items()
        }
    )
    if az.__version__.startswith("0."):
        return az.InferenceData(posterior=posterior, **groups)
    return xr.DataTree.from_dict({"posterior": posterior, **groups})


def assert_same_jets(model, exact, rtol=1e-6):
    """Compare all log densities and derivatives, and these with finite differences."""
    assert model.source.can.differentiate
    for chain in range(exact.n_chains):
        everything = chain, slice(0, exact.n_draws), slice(0, exact.observations.n)
        pairs = [(model.source.logp(*everything), exact.source.logp(*everything))]
        pairs += zip(
            model.source.derivatives(*everything),
            exact.source.derivatives(*everything),
            strict=True,
        )
        for got, expected in pairs:
            assert got.shape == expected.shape
            atol = rtol * np.abs(expected).max()
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    lq.check(model).require()


def assert_same_outcomes(model, exact, obs=(1, 0), repeats=200):
    """Draw outcomes of two observations from both and compare their distributions."""
    assert model.source.can.draw
    obs = np.array(obs)
    draws = np.tile(np.arange(exact.n_draws), repeats)
    ours, again = (
        model.source.draw_outcomes(1, draws, obs, np.random.default_rng(seed)) for seed in (1, 1)
    )
    theirs = exact.source.draw_outcomes(1, draws, obs, np.random.default_rng(2))
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours, again)
    d = ours.shape[2]
    for direction in (*np.eye(d), np.ones(d))[: None if d > 1 else 1]:
        for i in range(2):
            both = (drawn[:, i] @ direction for drawn in (ours, theirs))
            assert stats.ks_2samp(*both).pvalue > 1e-3
        # Outcomes of different observations, and of a draw that comes twice, are drawn apart.
        both = (drawn[:, 0] @ direction - drawn[:, 1] @ direction for drawn in (ours, theirs))
        assert stats.ks_2samp(*both).pvalue > 1e-3
        both = (np.diff((drawn[:, 0] @ direction)[:: exact.n_draws]) for drawn in (ours, theirs))
        assert stats.ks_2samp(*both).pvalue > 1e-3


@contextmanager
def not_compiled():
    """Let PyTensor evaluate by numpy, so that tests need not wait for a compiler."""
    import pytensor

    from lockquack.sources import pytensor_compiling

    pytensor_compiling._COMPILED.clear()
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
