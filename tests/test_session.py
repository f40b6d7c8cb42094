"""The caller's session changes nothing: np.seterr(all="raise"), and warnings as errors."""

from __future__ import annotations

import inspect
import types
import warnings
from contextlib import suppress

import numpy as np
import pytest

import lockquack as lq
from lockquack.errors import LockquackError, LockquackWarning

N, SHAPE = 3, (4, 40)
UNCERTAINTY = {"bootstrap": {"n": 10}, "sandwich": {}, "posterior": {"n": 5, "chains": 1}}
LOG_H = lq.Hyvarinen(transform="log")


def scalar(rng):
    y, level = rng.normal(size=N), rng.normal(size=SHAPE) / 8
    mu = lq.linear_predictor(rng.normal(size=(N, 1)), 1 + rng.normal(size=(*SHAPE, 1)) / 9)
    return {
        "near": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "heavy": lq.from_family("student_t", y=y, nu=4.0, mu=level, sigma=1.2),
        "far": lq.from_family("normal", y=y, mu=level + 30.0, sigma=1.0),
    }


def counts(rng):
    y, mean = rng.poisson(4, size=N), rng.gamma(40, 0.1, size=SHAPE)
    return {
        "poisson": lq.from_family("poisson", y=y, mu=mean),
        "wide": lq.from_family("negative_binomial", y=y, mu=mean, alpha=2.0),
    }


def positive(rng):
    y, shape = rng.gamma(4, 0.5, size=N), rng.gamma(400, 0.01, size=SHAPE)
    return {
        "gamma": lq.from_family("gamma", y=y, alpha=shape, beta=2.0),
        "log": lq.from_family("normal", y=y, transform="log", mu=shape - 3.5, sigma=0.5),
    }


def vector(rng):
    y, mu = rng.normal(size=(N, 2)), rng.normal(size=(*SHAPE, 2)) / 8
    return {
        "normal": lq.from_family("mv_normal", y=y, mu=mu, cov=np.eye(2)),
        "heavy": lq.from_family("mv_student_t", y=y, nu=5.0, mu=mu + 0.3, scale=np.eye(2)),
    }


#: How the models of each kind are locked.
KINDS = {scalar: "hyvarinen", counts: "log", positive: LOG_H, vector: "hyvarinen"}


def fits_of(models, rule):
    """Combine by the three verbs; the numbers that they have to agree on."""
    fits = [lq.lock(models, rule=rule), lq.stack(models), lq.quack(models)]
    return fits, [(fit.weights.values, fit.logpdf().values) for fit in fits]


def look_at(fit, folder):
    """Ask for everything else that a combination knows."""
    repr(fit), fit._repr_html_(), fit.parameters, fit.weights_se, fit.pointwise
    for uncertainty, options in UNCERTAINTY.items():
        with suppress(LockquackError):  # weights that are no optimum have none
            getattr(fit, uncertainty)(**options)
    p = fit.predict(loo=fit.label != "stack")
    p.logpdf(), p.log_norm(), p.cdf(), p.pit(), p.coverage([0.9])
    p.quantile([0.01, 0.5]), p.interval(0.9), p.interval(0.5, kind="hdi")
    p.mean(), p.var(), p.mode(), p.sample(20, random_seed=1)
    fit.save(folder / "fit.nc")
    repr(lq.load(folder / "fit.nc"))
    fit.report(folder / "report.html", thorough=False)


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_that_raises_changes_nothing(kind, tmp_path):
    with warnings.catch_warnings():  # all others are errors, here as in all tests
        warnings.simplefilter("ignore", LockquackWarning)
        _, expected = fits_of(kind(np.random.default_rng(1)), KINDS[kind])
        with np.errstate(all="raise"):
            session = np.geterr()
            models = kind(np.random.default_rng(1))
            fits, found = fits_of(models, KINDS[kind])
            np.testing.assert_equal(found, expected)
            for fit in fits[:2]:
                look_at(fit, tmp_path)
            lq.pseudo_bma(models), lq.select(models), lq.equal(models)
            lq.compare(models, ["stack", "select"])
            for model in models.values():
                model.save(tmp_path / "model.zarr")
                lq.from_datatree(tmp_path / "model.zarr", lazy=True).loo()
                if kind is not counts:
                    lq.check(model), model.ess()
            assert np.geterr() == session


def test_every_way_in_is_prepared():
    """What a session can change must not be forgotten at a new function or method."""
    for name in lq.__all__:
        public = getattr(lq, name)
        if isinstance(public, types.FunctionType):
            assert inspect.unwrap(public).__module__.startswith("lockquack")
            assert public.__code__.co_filename.endswith("arithmetic.py"), name
    for cls in (lq.Model, lq.Combination, lq.Prediction):
        for name, given in vars(cls).items():
            function = given.fget if isinstance(given, property) else given
            if isinstance(function, types.FunctionType) and not name.startswith("_"):
                assert function.__code__.co_filename.endswith("arithmetic.py"), (cls, name)
