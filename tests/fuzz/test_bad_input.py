"""Bad input gets one of the library's own errors, in words; never a wrong number."""

from __future__ import annotations

import contextlib
import inspect
import math
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

import lockquack as lq
from lockquack.errors import LockquackError
from tests.fuzz.junk import FAULTS, JUNK
from tests.fuzz.worlds import worlds
from tests.helpers import lock

fuzzed = pytest.mark.fuzzed
seeds = st.integers(0, 2**32 - 1)
faults = st.sampled_from(FAULTS)


@contextlib.contextmanager
def refusing(*why):
    """Pass over our own errors, and files that are not there; all others are findings."""
    message = "."
    try:
        yield
    except (LockquackError, FileNotFoundError) as error:
        message = str(error)
    assert message.rstrip()[-1] in ".)!?]'\"", (why, message)


def attempt(make):
    """Return what is made, or None where it is refused."""
    with refusing():
        return make()
    return None


def weights_of(models):
    found = attempt(lambda: lq.stack(models, scores="in-sample"))
    return None if found is None else found.weights.values


@fuzzed(14)
@given(world=worlds(models=(1, 1), n=(3, 8)), fault=faults, seed=seeds, data=st.data())
def test_what_is_wrong_with_parameters(world, fault, seed, data):
    rng = np.random.default_rng(seed)
    recipe = next(iter(world.recipes.values()))
    given = {"y": world.y, **recipe.given()}
    spoilt = data.draw(st.sampled_from(sorted(given)))
    made = attempt(lambda: remade(recipe, {**given, spoilt: fault.spoil(given[spoilt], rng)}))
    if fault.harmless:
        assert made is not None
    if made is not None:
        shown_as_it_is(made, recipe, given, spoilt)


def remade(recipe, given):
    return lq.from_family(recipe.family, transform=recipe.transform, **given)


def shown_as_it_is(made, recipe, given, spoilt):
    """Whatever is taken must be taken for what it is: all numbers finite, all draws there."""
    with refusing(spoilt):
        found = made.collapse("in-sample", derivatives=False).jet.logp
        assert np.isfinite(found).all() or spoilt == "y"
        clean = remade(recipe, given)
        if made.observations.values.shape == clean.observations.values.shape:
            expected = clean.collapse("in-sample", derivatives=False).jet.logp
            shapes = (made.n_chains, made.n_draws) == (clean.n_chains, clean.n_draws)
            assert not shapes or found.shape == expected.shape


@fuzzed(14)
@given(world=worlds(models=(1, 1), n=(3, 8)), fault=faults, seed=seeds, data=st.data())
def test_what_is_wrong_with_arrays(world, fault, seed, data):
    rng = np.random.default_rng(seed)
    given = {"y": world.y, **next(iter(world.arrays.values()))}
    spoilt = data.draw(st.sampled_from(sorted(given)))
    bad = {**given, spoilt: fault.spoil(given[spoilt], rng)}
    made = attempt(lambda: lq.from_arrays(**bad))
    assert made is not None or not fault.harmless
    if made is not None:
        with refusing(spoilt, fault):
            jet = made.collapse("in-sample", derivatives=made.source.can.differentiate).jet
            assert all(np.isfinite(part).all() for part in jet.parts)
            clean = lq.from_arrays(**given)
            assert made.observations.n == clean.observations.n or spoilt == "y"


@fuzzed(6)
@given(world=worlds(models=(1, 1)), seed=seeds, value=st.sampled_from([0.0, -1.0, -1e-300, 1e-200]))
def test_scales_that_are_not_positive(world, seed, value):
    recipe = next(iter(world.recipes.values()))
    from lockquack.families import FAMILIES

    positive = sorted(FAMILIES[recipe.family].positive)
    assume(positive)
    name = positive[seed % len(positive)]
    bad = np.array(recipe.given()[name])
    bad.flat[seed % bad.size] = value
    with pytest.raises(LockquackError, match=name):
        remade(recipe, {"y": world.y, **recipe.given(), name: bad})


@fuzzed(6)
@given(world=worlds(["line", "counts"], n=(3, 8)), seed=seeds, of=st.sampled_from(["y", "mu"]))
def test_tables_of_other_rows(world, seed, of):
    """Two tables with rows of the same names in another order, or of other names, do not match."""
    recipe = next(iter(world.recipes.values()))
    assume("mu" in recipe.parameters)
    rng = np.random.default_rng(seed)
    order = rng.permutation(world.n)
    assume((order != np.arange(world.n)).any())
    labels = np.arange(world.n) + rng.integers(0, 2) * 10
    constant = recipe.parameters["mu"][0, 0].mean() + np.zeros(world.n)
    y, mu = pd.Series(world.y, index=labels), pd.Series(constant, index=labels)
    given = {**recipe.given(), "y": y, "mu": mu}
    assert remade(recipe, given).observations.n == world.n
    with pytest.raises(LockquackError, match="label|order"):
        remade(recipe, {**given, of: given[of].iloc[order]})


@fuzzed(6)
@given(
    world=worlds(models=(1, 2), n=(3, 8)),
    dim=st.sampled_from(["chain", "draw", "obs"]),
    seed=seeds,
    of=st.sampled_from(["grad", "curv", "y"]),
)
def test_labels_that_contradict_each_other(world, dim, seed, of):
    given = next(iter(world.arrays.values()))
    assume(of == "y" or of in given)
    rng = np.random.default_rng(seed)

    def labelled(name, array, order=None):
        dims = ("obs", "component") if name == "y" else ("chain", "draw", "obs", "component")
        sizes = dict(zip(dims, array.shape, strict=False))
        coords = {d: np.arange(sizes[d]) for d in ("chain", "draw", "obs") if d in sizes}
        if order is not None:
            coords[dim] = coords[dim][order]
        return xr.DataArray(array, dims=list(sizes), coords=coords)

    arrays = {"y": world.y, **given}
    fine = {name: labelled(name, array) for name, array in arrays.items()}
    kind = {"component_dim": "component"} if world.kind == "vector" else {}
    assert lq.from_arrays(**fine, **kind).observations.n == world.n
    assume(of != "y" or dim == "obs")
    order = rng.permutation(fine[of].sizes[dim])
    assume((order != np.arange(order.size)).any())
    with pytest.raises(LockquackError, match="label|order"):
        lq.from_arrays(**{**fine, of: labelled(of, arrays[of], order)}, **kind)


@fuzzed(4)
@given(world=worlds(["line"], models=(2, 2), n=(3, 6)), seed=seeds)
def test_models_of_other_observations(world, seed):
    models = world.models()
    order = np.random.default_rng(seed).permutation(world.n)
    assume((np.abs(world.y[order] - world.y) > 1e-3).any())
    other = world.at(order).model(world.names[1])
    with pytest.raises(LockquackError, match=r"outcome|observation|order"):
        lq.stack({world.names[0]: models[world.names[0]], world.names[1]: other})


# Every argument of every public function


def _example():
    rng = np.random.default_rng(5)
    y, mu = rng.normal(size=6), rng.normal(size=(2, 30)) / 5
    return {
        "a": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "b": lq.from_family("student_t", y=y, nu=4.0, mu=mu + 0.5, sigma=1.0),
    }


def _fit(train, test):
    return lq.from_family("normal", y=Y[test], mu=MU, sigma=1.0)


MODELS = _example()
Y = MODELS["a"].observations.values[:, 0]
FIT = lock(MODELS)
MU = np.zeros((2, 30))
PART = ("normal", {"mu": MU, "sigma": 1.0})
CALLS = {
    "lock": (lq.lock, {"models": MODELS}),
    "stack": (lq.stack, {"models": MODELS}),
    "select": (lq.select, {"models": MODELS}),
    "equal": (lq.equal, {"models": MODELS}),
    "pseudo_bma": (lq.pseudo_bma, {"models": MODELS}),
    "bma": (lq.bma, {"models": MODELS, "log_marginal_likelihood": [0.0, 1.0]}),
    "combine": (lq.combine, {"models": MODELS, "operator": "linear", "rule": "log"}),
    "quack": (lq.quack, {"models": {"a": MODELS["a"]}}),
    "compare": (lq.compare, {"models": MODELS, "methods": ["equal"], "cv": 2}),
    "check": (lq.check, {"model": MODELS["a"]}),
    "split_chains": (lq.split_chains, {"model": MODELS["a"]}),
    "load": (lq.load, {"path": "no such file.nc"}),
    "from_datatree": (lq.from_datatree, {"data": "no such file.nc"}),
    "from_elpd": (lq.from_elpd, {"elpd": None}),
    "from_family": (lq.from_family, {"family": "normal", "y": Y, "mu": MU, "sigma": 1.0}),
    "mixture": (
        lq.from_family,
        {"family": "mixture", "y": Y, "weights": [0.5, 0.5], "components": [PART] * 2},
    ),
    "from_arrays": (lq.from_arrays, {"logp": np.zeros((2, 30, 6)), "y": Y}),
    "linear_predictor": (lq.linear_predictor, {"X": np.ones((6, 1)), "coef": np.ones((2, 30, 1))}),
    "with_weights": (MODELS["a"].with_weights, {"weights": np.ones(6)}),
    "collapse": (MODELS["a"].collapse, {}),
    "Hyvarinen": (lq.Hyvarinen, {}),
    "Locking": (lq.Locking, {}),
    "Superposition": (lq.Superposition, {}),
    "Hoelder": (lq.Hoelder, {}),
    "Hybrid": (lq.Hybrid, {}),
    "Nested": (lq.Nested, {"outer": lq.Linear(), "members": ["a", (lq.Locking(), ["a", "b"])]}),
    "cross_validate": (lq.cross_validate, {"fit": _fit, "n": 6, "folds": 2}),
    "leave_future_out": (lq.leave_future_out, {"n": 9, "first": 2}),
    "refit": (lq.refit, {"model": MODELS["a"], "fit": _fit}),
    "leave_group_out": (lq.leave_group_out, {"model": MODELS["a"], "groups": [0, 0, 1, 1, 2, 2]}),
    "Model": (lq.Model, {"source": MODELS["a"].source}),
    "predict": (FIT.predict, {}),
    "logpdf": (FIT.predict().logpdf, {}),
    "cdf": (FIT.predict().cdf, {}),
    "quantile": (FIT.predict().quantile, {"p": 0.5}),
    "interval": (FIT.predict().interval, {}),
    "sample": (FIT.predict().sample, {"n": 5}),
    "pit": (FIT.predict().pit, {}),
    "coverage": (FIT.predict().coverage, {}),
    "bootstrap": (FIT.bootstrap, {"n": 3}),
    "sandwich": (FIT.sandwich, {}),
    "posterior": (FIT.posterior, {"n": 3, "chains": 1}),
}
#: Results, which nobody makes, and functions that need a language of their own or draw a picture.
_NOT_CALLED = re.compile(
    "Combination|Prediction|Running|errors|plot_|from_(pymc|bambi|numpyro|jax|cmd|pystan)"
)
for _name in lq.__all__:
    if callable(_public := getattr(lq, _name)) and not _NOT_CALLED.match(_name):
        CALLS.setdefault(_name, (_public, {}))
#: Some arguments are dicts of whatever a model takes, some are truth values, as Python has them;
#: functions of users raise what they raise, and any name will do for a folder.
_LEFT_ALONE = {
    *("progressbar", "bootstrap", "lazy", "thorough", "loo", "capped", "signed", "derivatives"),
    *("fit", "folder"),
    *("self", "args", "kwargs", "data", "parameters"),
}


def _arguments(name):
    function, given = CALLS[name]
    return sorted({*inspect.signature(function).parameters, *given} - _LEFT_ALONE)


def _completed(function, given, junk):
    """Add what else the function must be given; a new one is given junk for everything."""
    needed = {
        name: MODELS if name == "models" else junk
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    }
    return {**needed, **given}


@fuzzed(40)
@given(
    name=st.sampled_from([name for name in sorted(CALLS) if _arguments(name)]),
    junk=st.integers(0, len(JUNK) - 1),
    data=st.data(),
)
def test_every_argument_of_every_function(name, junk, data):
    (function, given), bad = CALLS[name], JUNK[junk]
    argument = data.draw(st.sampled_from(_arguments(name)))
    with refusing(name, argument, bad):
        reasonable(function(**{**_completed(function, given, bad), argument: bad}), bad)


def reasonable(result, junk=None):
    """What is taken after all must not lead to nonsense; NaN in, NaN out is none."""
    if isinstance(result, lq.Combination):
        weights = result.weights.values
        assert np.isfinite(weights).all()
        assert (weights >= 0).all()
        assert math.isclose(weights.sum(), 1.0) or not result.operator.on_simplex
        repr(result)
    elif isinstance(result, lq.Model):
        with refusing():
            smooth = result.source.can.differentiate
            jet = result.collapse("in-sample", derivatives=smooth).jet
            assert not any(np.isnan(part).any() for part in jet.parts)
    elif isinstance(result, xr.DataArray):
        assert not np.isnan(result.values).any() or junk is np.nan
