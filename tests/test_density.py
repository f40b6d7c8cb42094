"""The normalised combination against closed forms and independent quadrature."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate as scipy_integrate
from scipy import stats

import lockquack as lq
from lockquack.errors import (
    ParetoWarning,
    QuadratureWarning,
    SupportError,
    UnsupportedError,
)
from lockquack.operators import Locking
from lockquack.operators.pool import Pool
from lockquack.prediction.examine import examine_density
from lockquack.prediction.pooled import (
    Normalised,
)
from lockquack.quadrature.grid import KRONROD, LEGENDRE, NODES, Grid, Line
from lockquack.remarks.densities import WrongNormaliser
from tests.helpers import lock, normalise, pooled_distribution, unheard, with_pool


def one_draw(name, y, **parameters):
    """A model with a single draw: its predictive is the likelihood itself."""
    return lq.from_family(name, y=y, **{k: np.full((1, 1), v) for k, v in parameters.items()})


def pooled(models, weights, loo=False):
    return normalise(models, Locking(), np.asarray(weights), loo=loo)


def test_the_rule_is_kronrods():
    # 15 Kronrod nodes integrate degree 22 exactly.
    for degree in range(23):
        exact = 2 / (degree + 1) if degree % 2 == 0 else 0.0
        assert KRONROD @ NODES**degree == pytest.approx(exact, abs=1e-14)
    # The first coefficient is the mean over the panel.
    np.testing.assert_allclose(2 * LEGENDRE[0], KRONROD, atol=1e-14)


@pytest.mark.parametrize("width", [1.0, 2.0, 3.5, 5.0, 7.0, 10.0])
@pytest.mark.parametrize(
    "density",
    [
        lambda y: stats.norm.logpdf(y),
        lambda y: stats.t.logpdf(y, 2),
        lambda y: stats.gumbel_r.logpdf(y),
        lambda y: 0.5 * np.logaddexp(stats.norm.logpdf(y, -2.5), stats.norm.logpdf(y, 2.5)),
        lambda y: -np.abs(y - 0.3),
        lambda y: 2.3 * np.log(np.maximum(y + 10.0, 1e-300)) - (y + 10.0),
    ],
    ids=["normal", "t2", "gumbel", "root of a mixture", "kink", "power at an edge"],
)
def test_the_error_estimate_bounds_the_error(density, width):
    # One panel, whose rule is compared with a much finer one.
    def components(y, rows):
        with np.errstate(over="ignore"):  # the tails, which are left out below
            return density(y)[None]

    edge = -10.0 if width == 10.0 else -width / 2
    line = Line(np.array([[edge, edge + width, edge + 2 * width]]), (-np.inf, np.inf))
    coarse = Grid.lay(components, line)
    inside = (coarse.panels.start >= 0) & (coarse.panels.stop <= 2)
    coarse = Grid(line, coarse.panels[inside])
    fine = coarse
    for _ in range(7):
        fine = fine.refined(components, lambda logs, rows: logs[0], tolerance=0.0, rounds=1)
    integral = coarse.integrate(lambda logs, rows: logs[0])
    exact = fine.integrate(lambda logs, rows: logs[0]).log_value
    error = np.abs(np.expm1(integral.log_value - exact)).item()
    assert error <= integral.relative_error.item() + 1e-12


@pytest.mark.parametrize("distance", [0.0, 1.0, 8.0, 30.0, 1000.0])
@pytest.mark.parametrize("ratio", [1.0, 10.0, 1e4])
def test_pool_of_normals_is_closed_form(distance, ratio):
    y = np.array([0.1, distance / 2, distance])
    models = {
        "a": one_draw("normal", y, mu=0.0, sigma=1.0),
        "b": one_draw("normal", y, mu=distance, sigma=ratio),
    }
    w = np.array([0.4, 0.6])
    result = pooled(models, w)
    precision = w / np.array([1.0, ratio**2])
    mean, sd = precision @ [0.0, distance] / precision.sum(), precision.sum() ** -0.5
    np.testing.assert_allclose(result.logp, stats.norm.logpdf(y, mean, sd), rtol=1e-8, atol=1e-8)
    assert (result.relative_error < 1e-8).all()


@pytest.mark.parametrize(
    ("places", "widths", "weights"),
    [
        ((0.0, 50.0), (1.0, 1e-4), (0.999, 0.001)),
        ((0.0, 50.0), (1.0, 1e-6), (0.999, 0.001)),
        ((0.0, 20.0), (1.0, 1e-2), (0.7, 0.3)),
        ((0.0, 50.0, -3.0), (1.0, 1e-2, 5.0), (0.4, 0.4, 0.2)),
    ],
)
def test_a_narrow_component_at_the_rim(places, widths, weights):
    y = np.array([0.0, 1.0])
    models = {
        str(k): one_draw("normal", y, mu=mu, sigma=sd)
        for k, (mu, sd) in enumerate(zip(places, widths, strict=True))
    }
    w, mu, sd = map(np.array, (weights, places, widths))
    precision = w / sd**2
    mean, var = precision @ mu / precision.sum(), 1 / precision.sum()
    exact = (
        0.5 * np.log(2 * np.pi * var)
        - w @ (0.5 * np.log(2 * np.pi * sd**2))
        - 0.5 * (precision @ (mu - mean) ** 2)
    )
    np.testing.assert_allclose(pooled(models, w).log_norm, exact, rtol=1e-9, atol=1e-8)


REFERENCES = {
    "student": ({"a": ("student_t", {"nu": 1.0, "mu": 0.0, "sigma": 1.0}),
                 "b": ("student_t", {"nu": 2.0, "mu": 6.0, "sigma": 0.5})}, (-np.inf, np.inf)),
    "gamma": ({"a": ("gamma", {"alpha": 3.0, "beta": 1.0}),
               "b": ("gamma", {"alpha": 1.2, "beta": 0.3})}, (0.0, np.inf)),
    "edge": ({"a": ("gamma", {"alpha": 0.3, "beta": 1.0}),
              "b": ("lognormal", {"mu": 0.0, "sigma": 1.0})}, (0.0, np.inf)),
    "beta": ({"a": ("beta", {"alpha": 4.0, "beta": 5.0}),
              "b": ("beta", {"alpha": 0.8, "beta": 0.7})}, (0.0, 1.0)),
    "mixed": ({"a": ("normal", {"mu": 1.0, "sigma": 2.0}),
               "b": ("lognormal", {"mu": 0.0, "sigma": 1.0})}, (0.0, np.inf)),
}  # fmt: skip


@pytest.mark.parametrize("case", REFERENCES)
def test_other_pools_against_scipy(case):
    parts, (low, high) = REFERENCES[case]
    y = np.array([0.3, 0.6])
    models = {name: one_draw(family, y, **p) for name, (family, p) in parts.items()}
    w = np.array([0.35, 0.65])

    def density(at):
        point = np.array([[[at]]])
        each = [
            m.source.logp_at(point, 0, slice(0, 1), slice(0, 1)).item() for m in models.values()
        ]
        return np.exp(w @ each)

    knots = [low, *np.array([1e-8, 1e-4, 0.01, 0.5, 0.99]) * min(high, 1.0), 3.0, 6.0, 12.0, high]
    knots = sorted(k for k in knots if low <= k <= high)
    total = sum(
        scipy_integrate.quad(density, a, b, epsabs=0, epsrel=1e-11, limit=500)[0]
        for a, b in pairwise(knots)
    )
    result = pooled(models, w)
    np.testing.assert_allclose(result.log_norm, np.log(total), atol=1e-8)
    np.testing.assert_allclose(np.exp(result.logp), [density(v) / total for v in y], rtol=1e-8)


def test_draws_are_averaged_before_they_are_pooled(rng):
    y = rng.normal(size=4)
    mu, sigma = rng.normal(size=(2, 30)), rng.gamma(9.0, 0.1, size=(2, 30))
    models = {
        "a": lq.from_family("normal", y=y, mu=mu, sigma=sigma),
        "b": lq.from_family("normal", y=y, mu=mu + 2.0, sigma=2 * sigma),
    }
    w = np.array([0.3, 0.7])

    def predictive(at, shift, factor):
        return stats.norm.pdf(at, mu + shift, factor * sigma).mean()

    def density(at):
        return predictive(at, 0, 1) ** w[0] * predictive(at, 2, 2) ** w[1]

    total = scipy_integrate.quad(density, -30, 30, limit=300, epsrel=1e-11)[0]
    result = pooled(models, w)
    np.testing.assert_allclose(np.exp(result.logp), [density(v) / total for v in y], rtol=1e-7)
    grid = np.linspace(-3, 5, 9)
    third = pooled_distribution(models, Locking(), w, slices=[slice(2, 3)])
    pool = third.logpdf(grid[:, None])[:, 0]
    np.testing.assert_allclose(np.exp(pool), [density(v) / total for v in grid], rtol=1e-7)
    right = third.log_components(grid[:, None])[1, :, 0]
    np.testing.assert_allclose(np.exp(right), [predictive(v, 2, 2) for v in grid], rtol=1e-10)


def test_a_combination_of_one_model_is_that_model(rng):
    y = rng.normal(size=12)
    model = lq.from_family("normal", y=y, mu=0.2 * rng.normal(size=(4, 100)), sigma=1.0)
    fit = lq.lock({"only": model})
    inside = model.collapse("in-sample").jet.logp
    np.testing.assert_allclose(fit.logpdf(), inside, atol=1e-8)
    np.testing.assert_allclose(fit.predict().log_norm(), 0.0, atol=1e-8)
    np.testing.assert_allclose(fit.logpdf(loo=True), model.loo().logp, atol=1e-8)


@pytest.mark.filterwarnings("ignore:The curvatures of 'beyond':lockquack.errors.LikelihoodWarning")
def test_exact_zeros_need_no_evaluation(normals):
    pair = {name: normals[name] for name in ("left", "right")}
    y = normals["left"].observations.values[:, 0]
    beyond = lq.from_arrays(  # it could not be evaluated
        logp=np.zeros((4, 50, 30)),
        grad=np.full((4, 50, 30), 50.0) - y,
        curv=np.zeros((4, 50, 30)),
        y=y,
    )
    fit = lq.lock({**pair, "beyond": beyond}, prior=1.0)
    assert fit.weights.sel(model="beyond") == 0.0
    np.testing.assert_allclose(fit.logpdf(), lq.lock(pair, prior=1.0).logpdf(), rtol=1e-6)


def test_stored_log_scores_of_locked_combinations(family):
    for name, entry in family.answers["normalised_loo_log_score"].items():
        models = family.models(entry["density_scale"])
        scales = {on: answers["sets"][name] for on, answers in family.answers["scales"].items()}
        for members in {tuple(subset["models"]) for subset in scales.values()}:
            some = {m: models[m] for m in members}
            # The nodes do for all weights.
            start = np.full(len(some), 1 / len(some))
            pooled = pooled_distribution(some, Locking(), start, loo=True)
            for fitted_on, subset in scales.items():
                if tuple(subset["models"]) != members:
                    continue
                weights = np.array(subset["locking"]["exact_loo"]["standardised"]["weights"])
                result = with_pool(pooled, Pool(Locking(), weights, len(some))).at_observed()
                key = f"locking_w_from_{fitted_on}_exact_loo_standardised"
                # The stored scores are exact, these come from draws: .05 for ten thousand.
                tolerance = 5 / np.sqrt(next(iter(some.values())).source.n_samples)
                assert result.logp.sum() == pytest.approx(entry["scores"][key], abs=tolerance)
                assert (result.relative_error < 1e-8).all()


@pytest.mark.parametrize(("loo", "kind"), [(True, "loo"), (False, "in_sample")])
def test_stored_densities_of_locked_draws(made_family, loo, kind):
    # From the same draws by the trapezoidal rule on a dense grid, so Pareto k̂ does not matter.
    for entry in made_family.answers["locked_densities"].values():
        models = made_family.models(entry["density_scale"], obs=made_family.observations)
        some = {name: models[name] for name in entry["models"]}
        result = pooled(some, entry["weights"], loo=loo)
        np.testing.assert_allclose(result.log_norm, entry[kind]["log_norm"], atol=1e-8)
        np.testing.assert_allclose(result.logp, entry[kind]["logp"], atol=1e-8)


def test_unreliable_weights_are_warned_of(rng):
    y = np.append(rng.normal(size=20), 40.0)
    mu, sigma = rng.normal(scale=0.5, size=(4, 500)), np.exp(0.4 * rng.normal(size=(4, 500)))
    fit = lq.lock({"t": lq.from_family("normal", y=y, mu=mu, sigma=2 * sigma)})
    with pytest.warns(ParetoWarning, match="'t' are unreliable at . observ") as caught:
        fit.logpdf(loo=True)
    assert [w.filename for w in caught] == [__file__]


def test_reliability_is_judged_by_each_models_own_draws(rng):
    y = rng.normal(size=10)
    mu, sigma = rng.normal(scale=0.3, size=(2, 20)), np.exp(0.2 * rng.normal(size=(2, 20)))
    few = lq.from_family("normal", y=y, mu=mu, sigma=sigma)
    many = lq.from_family("normal", y=y, mu=0.01 * rng.normal(size=(4, 1000)), sigma=1.5)
    for models in ({"few": few, "many": many}, {"many": many, "few": few}):
        fit = lock(unheard(models))
        with pytest.warns(ParetoWarning, match="densities of 'few' are"):
            fit.logpdf(loo=True)


def test_densities_are_computed_once(normals):
    fit = lq.lock(normals)
    first = fit.logpdf()
    assert fit.predict() is fit.predict()
    assert fit.predict()._evaluation.normalised is fit.predict()._evaluation.normalised
    np.testing.assert_array_equal(first, fit.logpdf())


MODES = {
    "mixture": {
        "family": "mixture",
        "weights": np.array([0.5, 0.5]),
        "components": [
            ("normal", {"mu": np.zeros((4, 100)), "sigma": 1.0}),
            ("normal", {"mu": np.full((4, 100), 20.0), "sigma": 0.1}),
        ],
    },
    "chains": {
        "family": "normal",
        "mu": np.broadcast_to([[0.0], [0.0], [50.0], [0.0]], (4, 100)),
        "sigma": 0.1,
    },
}


MODES["inside"] = {  # a spike within a broad bulk
    "family": "mixture",
    "weights": np.array([0.5, 0.5]),
    "components": [
        ("normal", {"mu": np.zeros((4, 100)), "sigma": 1.0}),
        ("normal", {"mu": np.full((4, 100), 0.3), "sigma": 1e-3}),
    ],
}
MODES["scales"] = {  # draws of very different widths in one chain
    "family": "normal",
    "mu": 0.0,
    "sigma": np.broadcast_to(np.where(np.arange(100) % 2, 1.0, 1e-3), (4, 100)),
}


@pytest.mark.parametrize("case", MODES)
def test_narrow_modes_of_one_model_are_found(case):
    given = dict(MODES[case])
    model = lq.from_family(given.pop("family"), y=[0.0, 0.1, 0.2], **given)
    result = pooled({"only": model}, [1.0])
    np.testing.assert_allclose(result.log_norm, 0.0, atol=1e-8)
    assert result.missing.max() < 1e-8


def test_mass_that_is_not_found_is_warned_of():
    # One draw in ten is a narrow spike between the others, and not the narrowest.
    kind = np.arange(100) % 10
    mu = np.broadcast_to(np.select([kind == 0, kind == 1], [151.0, 300.0], 0.0), (2, 100))
    sigma = np.broadcast_to(np.select([kind == 0, kind == 2], [1e-4, 1e-5], 1.0), (2, 100))
    model = lq.from_family("normal", y=[0.0, 0.1, 0.2], mu=mu, sigma=sigma)
    result = pooled({"spiky": model}, [1.0])
    np.testing.assert_allclose(result.missing, 0.1, atol=1e-6)
    fit = lock({"spiky": model})
    with pytest.warns(QuadratureWarning, match="at 3 observation"):
        fit.predict().log_norm()


def test_nodes_that_were_refined_for_the_solution_are_not_warned_of():
    """The harmonic pool needs more nodes than those that a fit begins with; it gets them."""
    y, means = np.linspace(-3.0, 3.0, 10), np.array([-2.0, 2.0])
    models = {
        str(m): lq.from_family("normal", y=y, mu=np.full((4, 50), m), sigma=1.0) for m in means
    }
    fit = lq.combine(models, lq.Hoelder(-1), lq.LogScore(), scores="held-out")
    assert fit.remarks == ()

    def pool(z):
        return 1 / np.sum(fit.weights.values / stats.norm.pdf(z, means, 1.0))

    norm, error = scipy_integrate.quad(pool, -12, 12, points=[-2, 0, 2], epsabs=1e-13)
    assert error < 1e-9 * norm
    np.testing.assert_allclose(fit.pointwise[0], np.log([pool(z) / norm for z in y]), atol=1e-9)


def test_a_normaliser_that_is_not_a_number_is_warned_of(normals):
    ones = np.ones((1, 30))
    for part in ("logp", "relative_error"):
        good = {name: np.zeros(30) for name in ("logp", "log_norm", "relative_error")}
        result = Normalised(**good, missing=0 * ones, pareto_k=0 * ones)
        only = {"left": normals["left"].source}
        observations = normals["left"].observations
        assert examine_density(only, result, observations) == []
        getattr(result, part)[4] = np.nan
        (remark,) = examine_density(only, result, observations)
        assert remark == WrongNormaliser(1, np.inf, "observation 4")
        assert remark.category is QuadratureWarning
        assert "1 observation(s)" in remark.message
        assert "observation 4" in remark.message


def test_what_cannot_be_normalised_is_said(rng, normals):
    shape = (2, 10, 5)
    y = rng.normal(size=5)
    arrays = lq.from_arrays(
        logp=np.zeros(shape), grad=rng.normal(size=shape), curv=-np.ones(shape), y=y
    )
    with pytest.raises(UnsupportedError, match="Model 'a' .*observed outcomes only"):
        lock({"a": arrays}).logpdf()
    far = {
        "a": one_draw("beta", np.array([0.5]), alpha=2.0, beta=2.0),
        "b": lq.from_family("lognormal", y=[0.5], transform="exp", mu=np.zeros((1, 1)), sigma=1.0),
    }
    assert np.isfinite(pooled(far, [0.5, 0.5]).logp).all()


def test_disjoint_supports_leave_nothing():
    a = one_draw("beta", np.array([0.5]), alpha=2.0, beta=2.0)
    b = one_draw("gamma", np.array([0.5]), alpha=3.0, beta=2.0)
    b = lq.from_family("gamma", y=[1.5], transform="log", alpha=np.full((1, 1), 3.0), beta=2.0)
    with pytest.raises(SupportError, match="no outcome in common"):
        pooled({"a": a, "b": b}, [0.5, 0.5])


def test_integrate_refines_where_it_must():
    # A spike that the break points do not know about, next to one that they do.
    def components(y, rows):
        return np.stack([stats.norm.logpdf(y, 0, 1), stats.norm.logpdf(y, 2.5, 0.01)])

    def mixture(logs, rows):
        return np.logaddexp(logs[0], logs[1]) - np.log(2)

    line = Line(np.array([[-7.0, 0.0, 7.0]]), (-np.inf, np.inf))
    grid = Grid.lay(components, line).refined(components, mixture)
    result = grid.integrate(mixture)
    assert result.log_value[0, 0] == pytest.approx(0.0, abs=1e-8)


def test_memory_does_not_hold_draws_on_nodes(rng):
    n, n_draws = 300, 500
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    models = {
        str(shift): lq.from_family(
            "normal",
            y=X[:, 1],
            mu=lq.linear_predictor(X, shift + 0.1 * rng.normal(size=(2, n_draws, 2))),
            sigma=1 + 0.1 * rng.random((2, n_draws)),
        )
        for shift in (0.0, 0.3)
    }
    tracemalloc.start()
    pooled = pooled_distribution(models, Locking(), np.array([0.5, 0.5]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    on_nodes = sum(each.group.nodes.logp[0].size for each in pooled.groups)
    assert most < 0.1 * 8 * on_nodes * 2 * n_draws
