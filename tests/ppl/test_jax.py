"""Densities written in JAX, against closed forms."""

from __future__ import annotations

import os

import numpy as np
import pytest
import xarray as xr

# Compiling is most of what these tests do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
jax = pytest.importorskip("jax")

from jax.scipy import stats  # noqa: E402

import lockquack as lq  # noqa: E402
from lockquack.errors import (  # noqa: E402
    DerivativeError,
    LockquackError,
    ObservationMismatchError,
    ParameterError,
    ShapeError,
    SmoothnessError,
    SupportError,
)
from lockquack.sources.jax import from_jax  # noqa: E402
from lockquack.sources.jax_precision import own_arrays  # noqa: E402
from tests.ppl.helpers import assert_same_outcomes  # noqa: E402

CHAINS, DRAWS, N = 2, 90, 11
SHAPE = (CHAINS, DRAWS)


def log_density(y, params, x):
    return stats.t.logpdf(y, params["nu"], params["slope"] * x, params["sigma"])


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(3)


@pytest.fixture(scope="module")
def params(rng):
    return {
        "slope": rng.normal(size=SHAPE),
        "sigma": rng.gamma(50, 0.02, size=SHAPE),
        "nu": rng.gamma(20, 0.2, size=SHAPE),
    }


@pytest.fixture(scope="module")
def x(rng):
    return rng.normal(size=N)


@pytest.fixture(scope="module")
def y(rng, x):
    return x + rng.normal(size=N)


def closed_form(y, params, x):
    return lq.from_family(
        "student_t",
        y=y,
        mu=params["slope"][..., None] * x,
        sigma=params["sigma"],
        nu=params["nu"],
    )


@pytest.fixture(scope="module")
def model(params, y, x):
    return from_jax(log_density, params, y=y, data={"x": x}, likelihood="student_t")


def assert_same(model, reference, rtol=1e-12):
    """Compare jets, with slack for the zeros of derivatives."""
    for chain in range(reference.n_chains):
        every = chain, slice(0, reference.n_draws), slice(0, reference.observations.n)
        np.testing.assert_allclose(
            model.source.logp(*every), reference.source.logp(*every), rtol=rtol
        )
        for got, expected in zip(
            model.source.derivatives(*every), reference.source.derivatives(*every), strict=True
        ):
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.std(expected))


def test_jets_are_those_of_the_closed_form_in_float64(model, params, y, x):
    before = jax.config.jax_enable_x64
    assert not before
    assert_same(model, closed_form(y, params, x))
    assert jax.config.jax_enable_x64 == before
    assert jax.numpy.ones(1).dtype == "float32"


def test_tiles_are_parts_of_the_whole(model, params, y, x):
    reference = closed_form(y, params, x)
    for draws in (slice(0, 1), slice(3, 70), slice(60, DRAWS), slice(1, DRAWS, 7)):
        obs = slice(2, 9)
        np.testing.assert_allclose(
            model.source.logp(1, draws, obs), reference.source.logp(1, draws, obs), rtol=1e-12
        )
        grad, curv = model.source.derivatives(1, draws, obs)
        assert grad.shape == curv.shape == (len(range(*draws.indices(DRAWS))), 7, 1)
        np.testing.assert_allclose(grad, reference.source.derivatives(1, draws, obs)[0], rtol=1e-11)


def test_chunks_of_draws_are_remembered_and_few(params, y, x, monkeypatch):
    """Two tiles that lie across chunks of draws, each read twice, evaluate no chunk twice."""
    from lockquack.sources import jax_evaluation as adapter

    monkeypatch.setattr(adapter, "_AT_ONCE", 32 * adapter._FEWEST_OUTCOMES)
    model = from_jax(log_density, params, y=y, data={"x": x}, likelihood="student_t")
    model.source._last.clear()
    calls = []
    jets = model.source.evaluator.jets
    monkeypatch.setattr(
        model.source.evaluator, "jets", lambda *a, **k: calls.append(a[3]) or jets(*a, **k)
    )
    for draws in (slice(0, 40), slice(40, 80)):
        model.source.derivatives(0, draws, slice(0, N))
        model.source.logp(0, draws, slice(0, N))
    assert [(part.start, part.stop) for part in calls] == [(0, 32), (32, 64), (64, 96)]
    assert len(model.source._last) == 2
    assert_same(model, closed_form(y, params, x))


def test_other_outcomes_of_some_observations(model, params, y, x, rng):
    reference = closed_form(y, params, x)
    points = rng.normal(size=(5, 3, 1))
    chosen = np.array([7, 0, 7])
    where = 1, slice(10, 30), chosen
    np.testing.assert_allclose(
        model.source.logp_at(points, *where), reference.source.logp_at(points, *where), rtol=1e-12
    )


def test_with_data_is_the_same_posterior_at_other_observations(model, params, rng):
    x, y = rng.normal(size=4), rng.normal(size=4)
    assert_same(model.with_data(y, x=x), closed_form(y, params, x))


def test_vector_outcomes(rng):
    y, mu = rng.normal(size=(N, 3)), rng.normal(size=(*SHAPE, 3))
    cov = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])
    model = from_jax(
        lambda y, p: stats.multivariate_normal.logpdf(y, p["mu"], cov), {"mu": mu}, y=y
    )
    mu = np.broadcast_to(mu[:, :, None], (*SHAPE, N, 3))
    assert_same(model, lq.from_family("mv_normal", y=y, mu=mu, cov=cov))


def test_outcomes_are_drawn_by_a_function_of_a_key(rng):
    y, mu, scale = rng.normal(size=(N, 2)), rng.normal(size=(*SHAPE, 2)), rng.gamma(9, size=N)

    def log_density(y, p, scale):
        return stats.norm.logpdf(y, p["mu"], scale).sum()

    def sample(key, p, scale):
        return p["mu"] + scale * jax.random.normal(key, (2,))

    options = {"params": {"mu": mu}, "y": y, "data": {"scale": scale}}
    model = from_jax(log_density, **options, sample=sample)
    exact = lq.from_family(
        "mv_normal",
        y=y,
        mu=np.broadcast_to(mu[:, :, None], (*SHAPE, N, 2)),
        chol=scale[:, None, None] * np.eye(2),
    )
    assert_same_outcomes(model, exact, repeats=60)
    moved = model.with_data(y[:2], scale=scale[3:5])
    assert_same_outcomes(
        moved,
        exact.with_data(
            y[:2], mu=mu[:, :, None] + np.zeros((2, 2)), chol=scale[3:5, None, None] * np.eye(2)
        ),
        repeats=60,
    )
    assert not from_jax(log_density, **options).source.can.draw
    with pytest.raises(ParameterError, match="one outcome of one observation, a vector \\(2,\\)"):
        from_jax(log_density, **options, sample=lambda key, p, scale: jax.random.normal(key))


def test_group_effects_pytrees_and_labels(rng):
    """Eight schools: an index in the data picks the effect."""
    y = xr.DataArray(
        [28.0, 8, -3, 7, -1, 1, 18, 12], dims="school", coords={"school": list("abcdefgh")}
    )
    sigma = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    theta = rng.normal(5, 5, size=(*SHAPE, 8))
    model = from_jax(
        lambda y, p, school, sigma: stats.norm.logpdf(y, p[0]["theta"][school], sigma),
        [{"theta": theta}],
        y=y,
        data={"school": np.arange(8), "sigma": sigma},
        likelihood="normal",
    )
    assert_same(model, lq.from_family("normal", y=y, mu=theta, sigma=sigma))
    assert model.observations.dims == ("school",)


def test_a_posterior_dataset_gives_the_draws(params, y, x):
    posterior = xr.Dataset({name: (("draw", "chain"), values.T) for name, values in params.items()})
    model = from_jax(log_density, posterior, y=y, data={"x": x}, likelihood="student_t")
    assert_same(model, closed_form(y, params, x))


def test_the_edges_of_an_unnamed_density_are_found(rng):
    """A gamma with shape between 2.5 and 3.5 goes like y^1.5 at 0."""
    y, alpha = rng.gamma(3, size=N), np.linspace(2.5, 3.5, CHAINS * DRAWS).reshape(SHAPE)
    model = from_jax(lambda y, p: stats.gamma.logpdf(y, p["alpha"]), {"alpha": alpha}, y=y)
    low, high = model.likelihood.edges
    assert (low.at, high.at) == (0.0, np.inf)
    assert low.order == pytest.approx(1.5, abs=1e-6)


def test_support_cuts_off_what_the_function_does_not(rng):
    y = rng.gamma(3, size=N)
    params = {"scale": rng.gamma(50, 0.02, size=SHAPE)}
    model = from_jax(
        lambda y, p: np.log(2) + stats.norm.logpdf(y, 0, p["scale"]),
        params,
        y=y,
        support=(0, np.inf),
    )
    where = 0, slice(0, 3), np.array([0])
    assert np.isneginf(model.source.logp_at(np.full((1, 1, 1), -1.0), *where)).all()
    assert model.likelihood.edges[0].order == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(SupportError, match="first -1 at observation 2"):
        model.with_data([1.0, 2.0, -1.0])


def test_impossible_draws_have_no_derivatives(rng):
    """Autodiff calls a density that is −inf constant; a score must not."""
    width = np.full(SHAPE, 3.0)
    width[1, 5] = 0.5
    with pytest.raises(SupportError, match="-inf at observation 0.*in 1 of 180 draws"):
        from_jax(
            lambda y, p: stats.beta.logpdf(y / p["w"], 3.0, 3.0) - jax.numpy.log(p["w"]),
            {"w": width},
            y=np.array([1.0, 2.0]),
            likelihood="scaled beta",
        )


def test_a_discrete_density_has_log_densities_only(rng):
    y, mu = rng.poisson(3.0, size=N), rng.gamma(30, 0.1, size=SHAPE)
    model = from_jax(
        lambda y, p: stats.poisson.logpmf(y, p["mu"]), {"mu": mu}, y=y, likelihood="poisson"
    )
    assert model.likelihood.discrete
    assert not model.source.can.differentiate
    expected = lq.from_family("poisson", y=y, mu=mu)
    every = 0, slice(0, DRAWS), slice(0, N)
    np.testing.assert_allclose(model.source.logp(*every), expected.source.logp(*every), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "why"),
    [("laplace", "kink"), ("truncated normal", "cut off"), ("censored", "censored")],
)
def test_what_is_not_smooth_is_known_by_name(rng, name, why):
    model = from_jax(
        lambda y, p: stats.laplace.logpdf(y, p["mu"]),
        {"mu": rng.normal(size=SHAPE)},
        y=rng.normal(size=N),
        likelihood=name,
    )
    assert why in model.likelihood.not_smooth
    with pytest.raises(SmoothnessError, match="Model 'a': .*Use the log score"):
        lq.lock({"a": model})


def test_finite_differences_agree(model):
    report = lq.check(model, thorough=True)
    assert report.ok
    assert report.worst.error < 1e-6


def test_a_derivative_rule_that_is_wrong_is_caught(rng):
    @jax.custom_jvp
    def logpdf(y, mu):
        return stats.norm.logpdf(y, mu)

    @logpdf.defjvp
    def rule(primals, tangents):  # the derivative in mu in place of that in y
        (y, mu), (dy, dmu) = primals, tangents
        return logpdf(y, mu), (y - mu) * dy + (mu - y) * dmu

    model = from_jax(
        lambda y, p: logpdf(y, p["mu"]),
        {"mu": rng.normal(size=SHAPE)},
        y=rng.normal(size=N),
        likelihood="normal",
    )
    report = lq.check(model)
    assert report.worst.what in ("gradient", "curvature")
    assert report.worst.got == pytest.approx(-report.worst.expected, rel=1e-4)
    with pytest.raises(DerivativeError, match="Model 'a': .*not in the parameters"):
        lq.lock({"a": model})


def good(params, y, x):
    return {"log_density": log_density, "params": params, "y": y, "data": {"x": x}}


WRONG = {
    "flat draws": (
        {"params": {"slope": np.ones(5), "sigma": np.ones(5), "nu": np.ones(5)}},
        ParameterError,
        "must be \\(chain, draw, ...\\)",
    ),
    "unequal draws": (
        {"params": {"slope": np.ones((2, 5)), "sigma": np.ones((2, 4)), "nu": np.ones((2, 5))}},
        ParameterError,
        "same chains and draws.*'sigma'.*\\(2, 4\\)",
    ),
    "no parameters": ({"params": {}}, ParameterError, "no parameters"),
    "NaN": (
        {"params": {"slope": np.full((1, 2), np.nan)}},
        ParameterError,
        "must be finite; it is nan at chain 0, draw 0",
    ),
    "data of another length": (
        {"data": {"x": np.ones(N + 1)}},
        ShapeError,
        "first axis must be the observations, of which there are 11",
    ),
    "no data": ({"data": {}}, LockquackError, "does not run for one observation.*'x'"),
    "a function of all observations": (
        {"log_density": lambda y, p, x: jax.numpy.zeros(N)},
        ShapeError,
        "must return one number",
    ),
    "labels in another order": (
        {
            "y": xr.DataArray(np.ones(N), dims="day", coords={"day": np.arange(N)}),
            "data": {"x": xr.DataArray(np.ones(N), dims="day", coords={"day": np.arange(N)[::-1]})},
        },
        ObservationMismatchError,
        "another order",
    ),
    "a support upside down": ({"support": (1, 0)}, SupportError, "the lower first"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(params, y, x, case):
    changes, error, says = WRONG[case]
    with pytest.raises(error, match=says):
        from_jax(**good(params, y, x) | changes)


SHARED = np.linspace(0.0, 1.0, N)


def helper(y, mu):
    return stats.norm.logpdf(y, mu + SHARED[3], 1.0)


def test_arrays_of_the_session_are_never_seen_in_double_precision(rng):
    """JAX alone fails on arrays that it met in the other precision."""
    y, offset, mu = rng.normal(size=N), np.array([0.5]), rng.normal(size=SHAPE)
    cells = {"offset": [offset], "other": "text"}

    def log_density(y, params, scale=SHARED[-1]):
        return helper(y, params["mu"] + cells["offset"][0].sum()) - jax.numpy.log(scale)

    single = jax.jit(lambda m: log_density(0.0, {"mu": m}))
    assert single(1.0).dtype == "float32"
    model = from_jax(log_density, {"mu": mu}, y=y, likelihood="normal")
    assert_same(model, lq.from_family("normal", y=y, mu=mu + SHARED[3] + 0.5, sigma=1.0))
    assert jax.jit(lambda m: log_density(0.0, {"mu": m + 1.0}))(1.0).dtype == "float32"


def test_only_what_holds_arrays_is_copied():
    array, plain = np.ones(2), [1, 2]

    def countdown(n):
        return array.sum() if n == 0 else countdown(n - 1)

    twin = own_arrays(countdown)
    assert twin(3) == 2.0
    array[:] = 5.0
    assert (countdown(3), twin(3)) == (10.0, 2.0)
    assert own_arrays(plain) is plain
    assert own_arrays({"a": plain, "b": array})["a"] is plain
    assert own_arrays(np.sum) is np.sum


def test_an_index_that_is_too_large_is_refused():
    """JAX takes the last group in its place: for groups counted from 1, and for new ones."""
    effect = np.random.default_rng(3).normal(size=(2, 5, 3))

    def log_density(y, params, group):
        return -0.5 * (y - params["effect"][group]) ** 2 - 0.5 * np.log(2 * np.pi)

    y, group = np.linspace(-1.0, 1.0, 4), np.array([0, 1, 2, 2])
    model = lq.from_jax(log_density, {"effect": effect}, y=y, data={"group": group})
    for make in (
        lambda: lq.from_jax(log_density, {"effect": effect}, y=y, data={"group": group + 1}),
        lambda: model.with_data(y[:1], group=np.array([3])),
    ):
        with pytest.raises(ParameterError, match=r"data\['group'\] has indices up to 3"):
            make()


def test_the_posterior_of_a_container_will_do():
    mu = np.random.default_rng(3).normal(size=(2, 5))
    dataset = xr.Dataset({"mu": (("chain", "draw"), mu)})

    def log_density(y, params):
        return -0.5 * (y - params["mu"]) ** 2 - 0.5 * np.log(2 * np.pi)

    arviz = pytest.importorskip("arviz")
    containers = [dataset, xr.DataTree.from_dict({"posterior": dataset}), xr.DataTree(dataset)]
    if arviz.__version__.startswith("0."):
        containers.append(arviz.InferenceData(posterior=dataset))
    y = np.linspace(-1.0, 1.0, 4)
    exact = lq.from_family("normal", y=y, mu=mu, sigma=1.0).source.all_logp(slice(0, 4))
    for given in containers:
        got = lq.from_jax(log_density, given, y=y).source.all_logp(slice(0, 4))
        np.testing.assert_allclose(got, exact, rtol=1e-12)
