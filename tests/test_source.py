"""What an adapter implements, and what a model makes of it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import lockquack as lq
from lockquack.errors import ParameterError, UnsupportedError
from lockquack.models.likelihood import Likelihood
from lockquack.models.source import Abilities, Source
from lockquack.models.weighted import WeightedSource
from lockquack.transforms import get_transform

N, SHAPE = 12, (4, 60)
EVERYTHING = slice(0, SHAPE[1]), slice(0, N)


@dataclass(frozen=True, eq=False, repr=False)
class Least(Source):
    """A normal model by the two methods that a source must have."""

    mu: np.ndarray  # (chain, draw)

    def logp(self, chain, draws, obs):
        z = self.observations.values[obs, 0] - self.mu[chain, draws, None]
        return -0.5 * z**2 - 0.5 * np.log(2 * np.pi)

    def derivatives(self, chain, draws, obs):
        z = self.observations.values[obs] - self.mu[chain, draws, None, None]
        return -z, -np.ones_like(z)


@pytest.fixture
def mu(rng):
    return 0.1 * rng.normal(size=SHAPE)


@pytest.fixture
def exact(rng, mu):
    return lq.from_family("normal", y=rng.lognormal(size=N), mu=mu, sigma=1.0)


@pytest.fixture
def least(exact, mu):
    return lq.Model(Least(exact.observations, *SHAPE, exact.likelihood, mu))


def test_two_methods_are_enough_to_lock_stack_and_save(least, exact, mu, tmp_path):
    other = exact.with_data(
        exact.observations.values[:, 0], mu=1.0 + exact.source.parameters["mu"].values[..., 0]
    )
    for method in (lq.lock, lq.stack):
        got, want = (method({"a": model, "b": other}).weights for model in (least, exact))
        np.testing.assert_allclose(got, want, rtol=1e-10)
    least.save(tmp_path / "least.nc")
    np.testing.assert_array_equal(
        lq.from_datatree(tmp_path / "least.nc").loo().logp, least.loo().logp
    )
    assert repr(least) == "<Model normal; chain: 4, draw: 60, obs_id: 12, components: 1>"
    assert repr(least.source) == repr(least).replace("Model", "Least")


def test_what_it_cannot_do_it_says(least):
    assert least.source.can == Abilities()
    here = np.zeros((1, N, 1)), 0, *EVERYTHING
    for asked in (
        lambda: least.source.logp_at(*here),
        lambda: least.source.jets_at(*here, derivatives=True),
        lambda: least.source.bulks(slice(0, N), np.zeros(1), detailed=False),
        lambda: least.with_data(np.zeros(2)),
    ):
        with pytest.raises(UnsupportedError, match=r"holds values at the observed.*from_family"):
            asked()
    with pytest.raises(UnsupportedError, match="no generator of random numbers"):
        least.source.draw_outcomes(0, np.arange(3), slice(0, 2), np.random.default_rng(1))


def test_abilities_of_each_kind_of_source(exact, least):
    tree = exact.to_datatree()
    logp = tree["log_likelihood/y"].values
    y = exact.observations.values[:, 0]
    arrays = Abilities(differentiate=False, be_shared=True, be_sent=False, read_in_place=True)
    assert lq.from_arrays(logp=logp, y=y).source.can == arrays
    single = lq.from_arrays(logp=logp.astype(np.float32), y=y).source.can
    assert single == replace(arrays, read_in_place=False)
    assert lq.from_datatree(tree).source.can.differentiate
    chunked = lq.from_arrays(logp=da.from_array(logp), y=y).source.can
    assert chunked == Abilities(differentiate=False, be_sent=False)
    family = Abilities(evaluate=True, evaluate_once=True, be_shared=True, has_generator=True)
    assert exact.source.can == family
    counts = lq.from_family("poisson", y=np.arange(3), mu=np.ones((2, 5, 3))).source.can
    assert counts == replace(family, differentiate=False, evaluate_once=False)
    weighted = WeightedSource.of(exact.source, get_transform("log")).can
    assert weighted == Abilities(be_shared=True)


def test_a_generator_is_looked_for_when_it_is_asked_for():
    found = []
    can = Abilities(has_generator=lambda: bool(found.append(1)) or True)
    assert can.evaluate is False
    assert not found
    assert can.draw
    assert found == [1]


def test_passes_through_a_weight_share_the_leave_one_out_densities(least):
    weighted = least.passes.weighted(get_transform("log"))
    loo = weighted.loo()
    assert least.loo() is loo
    y = least.observations.values
    plain, scaled = (each.predict("loo", density=True) for each in (least.passes, weighted))
    np.testing.assert_array_equal(scaled.jet.logp, plain.jet.logp)
    np.testing.assert_allclose(scaled.jet.grad, y * plain.jet.grad, rtol=1e-12)


def test_lazy_draws_are_weighted_where_they_are(exact):
    parts = {
        name: da.from_array(exact.to_datatree()[f"log_likelihood{group}/y"].values, (2, 30, 5))
        for name, group in (("logp", ""), ("grad", "_grad"), ("curv", "_curv"))
    }
    lazy = lq.from_arrays(y=exact.observations.values[:, 0], **parts)
    change = get_transform("log")
    ours, theirs = (m.passes.weighted(change).predict("loo", density=True) for m in (lazy, exact))
    np.testing.assert_allclose(ours.jet.curv, theirs.jet.curv, rtol=1e-11)
    np.testing.assert_allclose(ours.jet.logp, theirs.jet.logp, rtol=1e-12)
    weighted = WeightedSource.of(lazy.source, change)
    read = weighted.map_groups(lambda sources, obs: sources[0].all_derivatives(obs)[0], ("grad",))
    expected = exact.observations.values * exact.source.all_derivatives(slice(0, N))[0]
    np.testing.assert_allclose(np.concatenate(list(read), axis=2), expected, rtol=1e-12)


def test_a_model_is_made_of_a_source(exact):
    with pytest.raises(ParameterError, match=r"made of a Source; got a DataTree.*from_datatree"):
        lq.Model(exact.to_datatree())
    again = replace(exact)
    assert again.source is exact.source
    assert again.passes is not exact.passes


CORE = (
    *("arithmetic", "draws", "errors", "families", "fitting", "jets", "kernels", "numeric"),
    *("operators", "parallel", "quadrature", "registry", "remarks", "rules", "sampling", "solvers"),
    *("totals", "transforms", "words"),
)


def test_the_numeric_core_loads_neither_labels_nor_models_nor_languages():
    root = Path(lq.__file__).parent
    files = [path for name in CORE for path in (root / f"{name}.py", *(root / name).glob("*.py"))]
    names = [
        ".".join(("lockquack", *path.relative_to(root).with_suffix("").parts))
        for path in files
        if path.exists() and path.stem != "compiled"  # numba is optional
    ]
    assert len(names) > 60
    script = (
        f"import sys; [__import__(name) for name in {names}]; print(*(name for name in sys.modules "
        "if name in ('xarray', 'pandas', 'pymc', 'bambi', 'numpyro', 'jax', 'cmdstanpy') or "
        "name.startswith(('lockquack.models', 'lockquack.sources', 'lockquack.prediction'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


# What is said of vectors whose components have likelihoods of their own


def likelihood_of(family, **parameters):
    y = np.ones(3)
    return lq.from_family(family, y=y, **parameters).source.likelihood


def test_a_vector_is_as_smooth_as_its_components():
    normal = likelihood_of("normal", mu=0.0, sigma=1.0)
    counts = likelihood_of("poisson", mu=2.0)
    waiting = likelihood_of("exponential", lam=1.0)
    both = Likelihood.of_components({"a": normal, "b": normal})
    assert (both.description, both.not_smooth, both.discrete) == ("normal", "", False)
    assert Likelihood.of_components({"a": counts, "b": counts}).discrete
    mixed = Likelihood.of_components({"a": normal, "b": counts})
    assert mixed.not_smooth == "of its component 'b': it is discrete"
    edge = Likelihood.of_components({"a": waiting, "b": normal})
    assert edge.not_smooth == "of its component 'a': its density does not vanish at 0"
    series = Likelihood.of_components({"a": normal, "b": replace(normal, given_earlier=True)})
    assert series.given_earlier
