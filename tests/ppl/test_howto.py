"""The how-to pages, run as they are but for the number of draws."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.ppl.helpers import not_compiled

# Compiling is most of what these tests do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
PAGES = Path(__file__).parents[2] / "docs" / "howto"
sys.path.append(str(PAGES.parent / "_extensions"))
recorded = importlib.import_module("recorded")
FEWER = {
    **dict.fromkeys(("draws", "num_samples"), 50),
    **dict.fromkeys(("tune", "num_warmup"), 80),
    **dict.fromkeys(("chains", "num_chains"), 2),
}
# What the libraries, and lockquack of so few draws, warn of is not what the pages are about.
pytestmark = pytest.mark.filterwarnings("ignore")


def run(page):
    """Run the Python blocks of a page in one namespace, and return it."""
    blocks = recorded.cells((PAGES / page).read_text())
    assert len(blocks) > 1
    names = {"__name__": "howto"}
    for block in blocks:
        for option, number in FEWER.items():
            block = re.sub(rf"\b{option}=\d+", f"{option}={number}", block)
        exec(compile(block, page, "exec"), names)
    return names


def assert_sampled(names, *models):
    """The page ends with draws from a combination of its models at three new observations."""
    assert tuple(names["fit"].names) == models
    drawn = names["draws"]["posterior_predictive"]["y"]
    assert drawn.sizes["chain"] * drawn.sizes["draw"] == 1000
    assert drawn.shape[2:] == (3,)
    assert np.isfinite(drawn).all()
    low, high = np.quantile(drawn, [0.05, 0.95], axis=(0, 1))
    expected = names["new"].interval(0.9).transpose(..., names["new"].observations.dims[0])
    width = (expected[1] - expected[0]).values
    np.testing.assert_allclose([low, high], expected, atol=0.2 * width.max())


@pytest.fixture
def pymc(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pm = pytest.importorskip("pymc")
    sample = pm.sample
    # In this process, where nothing has to be compiled.
    monkeypatch.setattr(pm, "sample", lambda *args, **kw: sample(*args, **{**kw, "cores": 1}))
    with not_compiled():
        yield pm


def test_pymc(pymc):
    names = run("pymc.md")
    assert_sampled(names, "normal", "student")


def test_bambi(pymc):
    pytest.importorskip("bambi")
    assert_sampled(run("bambi.md"), "y ~ x", "y ~ z")


def test_numpyro():
    pytest.importorskip("numpyro")
    assert_sampled(run("numpyro.md"), "normal", "student")


def test_jax():
    pytest.importorskip("jax")
    names = run("jax.md")
    assert_sampled(names, "first", "second")
    assert names["model_w"].likelihood.edges[0].order > 1
    assert names["model_2"].source.can.draw


def test_stan():
    pytest.importorskip("stan")
    names = run("stan.md")
    assert_sampled(names, "normal", "student")
