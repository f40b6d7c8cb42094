"""CRPS and energy score: closed forms, peers, an independent solver, and what weights become."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, sparse, stats
from scipy.special import ndtri

import lockquack as lq
from lockquack.errors import (
    IdentifiabilityWarning,
    LockquackError,
    NonFiniteError,
    UnsupportedError,
)
from lockquack.quadrature.pairs import pairs_of_numbers, pairs_of_vectors
from lockquack.rules.wishes import DISTANCES

NORMALS = [(-1.0, 1.0), (1.2, 1.4), (0.4, 2.5)]
ONE = np.zeros((1, 1))


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(1).normal(0.3, 1.5, size=60)


def exactly(y, family="normal", parameters=NORMALS, names=("mu", "sigma")):
    """Models whose predictions are single densities."""
    return {
        f"m{k}": lq.from_family(family, y=y, **dict(zip(names, (ONE + p[0], *p[1:]), strict=True)))
        for k, p in enumerate(parameters)
    }


def matrices(fit):
    return np.concatenate(
        [each.matrix for each in fit.objective.densities.known_for(DISTANCES)], axis=-1
    )


def mean_distance(mean, sd):
    """E|X| of a normal."""
    z = mean / sd
    return sd * (2 * stats.norm.pdf(z) + z * (2 * stats.norm.cdf(z) - 1))


def of_normals(y, normals):
    """Q of normals in closed form."""
    near = np.stack([mean_distance(mu - y, sd) for mu, sd in normals])
    mu, sd = np.array(normals).T
    apart = mean_distance(mu[:, None] - mu, np.hypot(sd[:, None], sd))
    return (near[:, None] + near - apart[..., None]) / 2


def with_clarabel(Q):
    """Minimise w'Qw on the simplex with an independent solver."""
    clarabel = pytest.importorskip("clarabel")
    K = len(Q)
    scale = np.abs(Q).max()
    P = sparse.csc_matrix(np.triu(2 * Q / scale))
    A = sparse.csc_matrix(np.vstack([np.ones((1, K)), -np.eye(K)]))
    b = np.append(1.0, np.zeros(K))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-14
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(K)]
    return np.array(clarabel.DefaultSolver(P, np.zeros(K), A, b, cones, settings).solve().x)


# The score


def test_normals_have_their_closed_form(y):
    fit = lq.combine(exactly(y), lq.Linear(), lq.CRPS(scale=1))
    np.testing.assert_allclose(matrices(fit), of_normals(y, NORMALS), rtol=1e-9)


@pytest.mark.parametrize(
    ("family", "names", "parameters", "peer"),
    [
        (
            "student_t",
            ("mu", "sigma", "nu"),
            (0.3, 1.2, 3.0),
            lambda s, y: s.crps_t(y, 3, 0.3, 1.2),
        ),
        ("logistic", ("mu", "s"), (0.3, 1.2), lambda s, y: s.crps_logistic(y, 0.3, 1.2)),
        ("gamma", ("alpha", "beta"), (1.5, 0.7), lambda s, y: s.crps_gamma(y, 1.5, 0.7)),
        ("exponential", ("lam",), (0.8,), lambda s, y: s.crps_exponential(y, 0.8)),
        ("lognormal", ("mu", "sigma"), (0.2, 0.9), lambda s, y: s.crps_lognormal(y, 0.2, 0.9)),
        ("poisson", ("mu",), (3.4,), lambda s, y: s.crps_poisson(y, 3.4)),
    ],
)
def test_scores_are_those_of_scoringrules(family, names, parameters, peer):
    scoringrules = pytest.importorskip("scoringrules")
    y = np.random.default_rng(2).gamma(2.0, size=30)
    y = np.floor(3 * y).astype(int) if family == "poisson" else y
    models = exactly(y, family, [parameters], names)
    fit = lq.combine(models, lq.Linear(), lq.CRPS(scale=1))
    np.testing.assert_allclose(-fit.objective.model_scores()[0], peer(scoringrules, y), rtol=1e-6)


def test_an_outcome_far_out_costs_its_distance():
    y = np.append(np.linspace(-2, 2, 9), 1e6)
    fit = lq.combine(exactly(y), lq.Linear(), lq.CRPS(scale=1))
    np.testing.assert_allclose(matrices(fit), of_normals(y, NORMALS), rtol=1e-9)


@pytest.mark.parametrize("operator", [lq.Locking(), lq.Hoelder(-1), lq.Superposition(phases=0)])
def test_scores_of_other_pools_are_those_of_their_draws(operator, y):
    fit = lq.combine(exactly(y[:20]), operator, lq.CRPS(scale=1))
    levels = (np.arange(2000) + 0.5) / 2000
    drawn = fit.predict().quantile(levels).transpose(..., "obs_id").values
    weights = np.ones_like(drawn)
    expected = pairs_of_numbers([drawn], [weights], y[:20])[0, 0]
    np.testing.assert_allclose(-fit.objective.scores(fit.solution.x), expected, rtol=1e-4)


def test_draws_are_scored_as_by_scoringrules(y):
    scoringrules = pytest.importorskip("scoringrules")
    draws = np.random.default_rng(3).normal(size=(200, y.size))
    found = pairs_of_numbers([draws], [np.ones_like(draws)], y)[0, 0]
    np.testing.assert_allclose(found, scoringrules.crps_ensemble(y, draws.T), rtol=1e-12)


def test_vectors_are_scored_as_by_scoringrules():
    scoringrules = pytest.importorskip("scoringrules")
    rng = np.random.default_rng(4)
    y, draws = rng.normal(size=(7, 3)), rng.normal(size=(50, 7, 3))
    found = pairs_of_vectors([draws], [np.ones((50, 7))], y)[0, 0]
    expected = scoringrules.es_ensemble(y, np.moveaxis(draws, 0, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def brute_force(draws, weights, y, w):
    """Energy score of a mixture of weighted draws, (S, d) each, by the double sum."""
    points = np.concatenate(draws)
    mass = np.concatenate([k * v / v.sum() for k, v in zip(w, weights, strict=True)])
    near = sum(m * np.linalg.norm(p - y) for p, m in zip(points, mass, strict=True))
    pairs = [
        m * o * np.linalg.norm(p - q)
        for p, m in zip(points, mass, strict=True)
        for q, o in zip(points, mass, strict=True)
    ]
    return near - sum(pairs) / 2


@pytest.mark.parametrize("d", [1, 3])
def test_the_quadratic_form_is_the_brute_force_sum(d):
    rng = np.random.default_rng(5)
    draws = [rng.normal(size=(S, 2, d)) for S in (9, 14, 11)]
    weights = [rng.random(size=each.shape[:2]) for each in draws]
    y, w = rng.normal(size=(2, d)), rng.dirichlet(np.ones(3))
    matrix = pairs_of_vectors(draws, weights, y)
    if d == 1:
        numbers = [each[..., 0] for each in draws]
        np.testing.assert_allclose(pairs_of_numbers(numbers, weights, y[:, 0]), matrix, rtol=1e-12)
    for i in range(2):
        expected = brute_force([a[:, i] for a in draws], [a[:, i] for a in weights], y[i], w)
        assert w @ matrix[..., i] @ w == pytest.approx(expected, rel=1e-12)


# The weights


def test_weights_are_those_of_an_independent_solver(y):
    fit = lq.combine(exactly(y), lq.Linear(), lq.CRPS())
    expected = with_clarabel(of_normals(y, NORMALS).sum(axis=2))
    np.testing.assert_allclose(fit.weights.values, expected, atol=1e-7)
    assert float(fit.solution.gap) <= 1e-10 * float(fit.solution.scale)


def test_weights_of_many_models_too():
    rng = np.random.default_rng(6)
    y = rng.normal(size=200)
    normals = list(zip(rng.normal(size=12), 0.5 + rng.random(12), strict=True))
    fit = lq.combine(exactly(y, parameters=normals), lq.Linear(), lq.CRPS())
    Q = of_normals(y, normals).sum(axis=2)
    expected, got = with_clarabel(Q), fit.weights.values
    assert got @ Q @ got <= expected @ Q @ expected * (1 + 1e-12)
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_the_unit_of_the_outcome_does_not_matter(y):
    metres = lq.combine(exactly(y), lq.Linear(), lq.CRPS(), prior=2.0)
    mm = exactly(1e3 * y, parameters=[(1e3 * mu, 1e3 * sd) for mu, sd in NORMALS])
    got = lq.combine(mm, lq.Linear(), lq.CRPS(), prior=2.0)
    np.testing.assert_allclose(got.weights, metres.weights, atol=1e-9)


def normal_means(y, prior_sd, S=4000, seed=7):
    """Draws of the mean of normal outcomes, and the exact leave-one-out predictions."""
    n = y.size
    variance = 1 / (n + prior_sd**-2)
    mu = np.random.default_rng(seed).normal(variance * y.sum(), np.sqrt(variance), size=(4, S // 4))
    rest = 1 / (n - 1 + prior_sd**-2)
    return mu, list(zip(rest * (y.sum() - y), np.full(n, np.sqrt(1 + rest)), strict=True))


def test_draws_and_densities_leave_out_what_a_refit_leaves_out():
    y = np.random.default_rng(8).normal(0.5, 1.0, size=12)
    mu, exact = normal_means(y, 0.5)
    model = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    expected = [of_normals(y[[i]], [each])[0, 0, 0] for i, each in enumerate(exact)]
    by_density = lq.combine({"a": model}, lq.Linear(), lq.CRPS(scale=1))
    np.testing.assert_allclose(matrices(by_density)[0, 0], expected, rtol=0.02)
    drawn = np.random.default_rng(9).normal(mu[..., None], 1.0, size=(*mu.shape, y.size))
    logp = stats.norm(mu[..., None], 1.0).logpdf(y)
    by_draws = lq.combine(
        {"a": lq.from_draws(drawn, y=y, log_lik=logp)}, lq.Linear(), lq.CRPS(scale=1)
    )
    np.testing.assert_allclose(matrices(by_draws)[0, 0], expected, rtol=0.08)
    within = lq.combine(
        {"a": lq.from_draws(drawn, y=y)}, lq.Linear(), lq.CRPS(scale=1), scores="in-sample"
    )
    assert matrices(within).sum() < matrices(by_draws).sum()


def test_bootstrap_sandwich_and_posterior_agree():
    y = np.random.default_rng(10).normal(0.1, 1.5, size=400)
    fit = lq.combine(exactly(y, parameters=NORMALS[:2]), lq.Linear(), lq.CRPS())
    expected = np.sqrt(float(fit.sandwich()[0, 0]))
    assert float(fit.bootstrap().std("draw")[0]) == pytest.approx(expected, rel=0.1)
    drawn = fit.posterior(random_seed=1).isel(model=0)
    assert float(drawn.std()) == pytest.approx(expected, rel=0.25)


def test_each_observation_is_left_out_exactly(y):
    models = exactly(y[:25])
    fit = lq.combine(models, lq.Linear(), lq.CRPS())
    found = fit.fitter.without_each(np.arange(25), fit.solution.x)
    Q = of_normals(y[:25], NORMALS)
    for i in (0, 11, 24):
        rest = np.delete(Q, i, axis=2).sum(axis=2)
        np.testing.assert_allclose(found[i], with_clarabel(rest), atol=1e-6)


def test_weights_of_groups_are_fitted_together(y):
    groups = np.repeat(["a", "b"], 30)
    models = exactly(y)
    fit = lq.combine(models, lq.Linear(), lq.CRPS(), by=groups, shrinkage=0.0)
    Q = of_normals(y, NORMALS)
    for at, obs in ((0, slice(0, 30)), (-1, slice(30, None))):
        expected = with_clarabel(Q[..., obs].sum(axis=2))
        np.testing.assert_allclose(fit.weights.isel(obs_id=at).values, expected, atol=1e-6)
    constant = lq.combine(models, lq.Linear(), lq.CRPS(), by=groups, shrinkage=np.inf)
    same = lq.combine(models, lq.Linear(), lq.CRPS()).weights.values
    np.testing.assert_allclose(constant.weights.isel(obs_id=0), same, atol=1e-9)


def with_outliers(count):
    y = np.append(ndtri((np.arange(200) + 0.5) / 200), np.full(count, 40.0))
    return exactly(y, parameters=[(0.0, 1.0), (0.25, 1.0)])


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
def test_gross_outliers_take_log_scores_weights_and_not_those_of_crps():
    clean, dirty = with_outliers(0), with_outliers(8)

    def weight_of_the_right_one(models, operator, rule):
        return float(lq.combine(models, operator, rule).weights[0])

    for operator, rule in (
        (lq.Linear(), lq.LogScore()),
        (lq.Locking(), lq.LogScore()),
        (lq.Locking(), lq.Hyvarinen()),
        (lq.Linear(), lq.CRPS()),
        (lq.Locking(), lq.CRPS()),
    ):
        assert weight_of_the_right_one(clean, operator, rule) > 0.95
        left = weight_of_the_right_one(dirty, operator, rule)
        assert left > 0.65 if rule == lq.CRPS() else left < (0.25 if operator.normalised else 0.01)
    assert float(lq.pseudo_bma(dirty).weights[0]) < 1e-6


def test_counts_by_distribution_and_by_draws():
    rng = np.random.default_rng(11)
    y = rng.poisson(3.0, size=40)
    models = {
        "poisson": lq.from_family("poisson", y=y, mu=ONE + 2.5),
        "binomial": lq.from_family("binomial", y=y, n=np.full(40, 12), p=ONE + 0.3),
    }
    fit = lq.combine(models, lq.Linear(), lq.CRPS(scale=1))
    t = np.arange(0, 60)[:, None]
    each = [stats.poisson(2.5).cdf(t) - (t >= y), stats.binom(12, 0.3).cdf(t) - (t >= y)]
    expected = np.einsum("jtn,ktn->jkn", each, each)
    np.testing.assert_allclose(matrices(fit), expected, rtol=1e-7, atol=1e-9)
    drawn = {
        "poisson": lq.from_draws(rng.poisson(2.5, size=(1, 4000, 40)), y=y, held_out=True),
        "binomial": lq.from_draws(rng.binomial(12, 0.3, size=(1, 4000, 40)), y=y, held_out=True),
    }
    by_draws = lq.combine(drawn, lq.Linear(), lq.CRPS(scale=1))
    np.testing.assert_allclose(matrices(by_draws).sum(axis=2), expected.sum(axis=2), rtol=0.02)
    assert by_draws.predict().quantile(0.5).dtype.kind in "if"


def test_vectors_are_mixed_by_energy_score():
    rng = np.random.default_rng(12)
    y = rng.normal(size=(50, 2)) * [1.0, 100.0]
    draws = [rng.normal(at, 1.0, size=(2, 100, 50, 2)) * [1.0, 100.0] for at in (-0.4, 0.6)]
    models = {f"m{k}": lq.from_draws(each, y=y, held_out=True) for k, each in enumerate(draws)}
    fit = lq.combine(models, lq.Linear(), lq.EnergyScore())
    unit = y.std(axis=0, ddof=1)
    flat = [each.reshape(200, 50, 2) / unit for each in draws]
    Q = pairs_of_vectors(flat, [np.ones((200, 50))] * 2, y / unit)
    np.testing.assert_allclose(fit.weights, with_clarabel(Q.sum(axis=2)), atol=1e-7)
    assert fit.predict().mean().shape == (50, 2)


def test_a_fit_is_saved_with_all_it_rests_on(y, tmp_path):
    for operator in (lq.Linear(), lq.Locking()):
        fit = lq.combine(exactly(y), operator, lq.CRPS())
        fit.save(tmp_path / "fit.nc")
        back = lq.load(tmp_path / "fit.nc")
        np.testing.assert_array_equal(back.weights, fit.weights)
        np.testing.assert_allclose(
            back.objective.all_scores(back.solution.x), fit.objective.all_scores(fit.solution.x)
        )
        assert back.rule == fit.rule
    again = back.bootstrap(20, random_seed=1)
    np.testing.assert_allclose(again, fit.bootstrap(20, random_seed=1), atol=1e-6)


def test_compare_knows_it_by_name(y):
    table = lq.compare(
        exactly(y), {"a": ("linear", "crps"), "b": ("locking", "crps"), "c": ("linear", "energy")}
    )
    expected = lq.combine(exactly(y), "linear", "crps").weights.values
    np.testing.assert_allclose(
        table.loc["a", [f"weight[{k}]" for k in exactly(y)]], expected, atol=1e-9
    )
    named = lq.compare(exactly(y), ["stack by CRPS"])
    assert named.loc["stack by CRPS", "elpd"] == table.loc["a", "elpd"]


# What cannot be done is said


@pytest.mark.parametrize(
    ("operator", "rule", "match"),
    [
        (lq.Locking(), lq.EnergyScore(), "mixtures only"),
        (lq.Hybrid(), lq.EnergyScore(), "mixtures only"),
    ],
)
def test_draws_tell_of_mixtures_only(operator, rule, match, y):
    with pytest.raises(UnsupportedError, match=match):
        lq.combine(exactly(y), operator, rule)


def test_vectors_have_no_crps():
    y = np.zeros((12, 2)) + np.arange(12)[:, None]
    model = lq.from_draws(np.random.default_rng(1).normal(size=(1, 9, 12, 2)), y=y, held_out=True)
    with pytest.raises(UnsupportedError, match=r"Use EnergyScore\(\)"):
        lq.combine({"a": model, "b": model}, lq.Linear(), lq.CRPS())


def test_log_densities_alone_have_no_crps(y):
    model = lq.from_arrays(logp=np.random.default_rng(1).normal(size=(2, 50, 60)), y=y)
    with pytest.raises(LockquackError, match="no predictive draws"):
        lq.combine({"a": model, "b": model}, lq.Linear(), lq.CRPS())


@pytest.mark.parametrize("operator", [lq.Linear(), lq.Locking()])
def test_a_prediction_without_a_mean_is_refused_by_name(rng, operator):
    y = np.exp(rng.normal(size=12))
    mu = 0.1 * rng.normal(size=(2, 20))
    models = {
        "mean": lq.from_family("lognormal", y=y, mu=mu, sigma=1.0),
        "none": lq.from_family("student_t", y=y, transform="log", nu=3.0, mu=mu, sigma=1.0),
    }
    with pytest.raises(NonFiniteError, match="'none' is infinite.*no mean"):
        lq.combine(models, operator, lq.CRPS())


@pytest.mark.filterwarnings("ignore::lockquack.errors.MonteCarloWarning")
def test_neither_order_nor_copies_of_models_change_what_is_drawn(rng):
    y = rng.normal(size=(15, 2))
    mu = 0.1 * rng.normal(size=(2, 20, 1, 2))
    cov = np.eye(2)
    models = {
        "a": lq.from_family("mv_normal", y=y, mu=mu, cov=cov),
        "b": lq.from_family("mv_normal", y=y, mu=mu + 0.5, cov=2 * cov),
    }
    found = lq.combine(models, lq.Linear(), lq.EnergyScore(), scores="held-out").weights
    turned = lq.combine(
        {name: models[name] for name in "ba"}, lq.Linear(), lq.EnergyScore(), scores="held-out"
    )
    np.testing.assert_allclose(turned.weights.sel(model=["a", "b"]), found, atol=1e-9)
    with pytest.warns(IdentifiabilityWarning, match="'a', 'copy'"):
        twice = lq.combine(
            {**models, "copy": models["a"]}, lq.Linear(), lq.EnergyScore(), scores="held-out"
        ).weights
    assert float(twice.sel(model=["a", "copy"]).sum()) == pytest.approx(float(found[0]), abs=1e-6)


@pytest.mark.filterwarnings("ignore::lockquack.errors.LockquackWarning")
@pytest.mark.parametrize(
    "operator", [lq.Linear(), lq.Locking(), lq.Superposition(phases=0)], ids=repr
)
def test_narrow_modes_far_apart_are_all_seen(operator):
    """Scores of pools that are fitted are those of their distribution functions on a fine grid."""
    y = np.array([-50.1, -0.5, 0.8, 10.0, -30.0, 50.3, 25.1, 49.0, -49.0, 0.1, 1.0, -24.0])
    modes = {"a": ((-50.0, 0.0, 50.0), (0.2, 1.0, 0.2)), "b": ((-25.0, 25.0, 0.0), (2.0, 0.1, 5.0))}
    models = {
        name: lq.from_family("normal", y=y, mu=np.array([at]), sigma=np.array([sd]))
        for name, (at, sd) in modes.items()
    }
    fit = lq.combine(models, operator, lq.CRPS(scale=1), scores="held-out")
    fine = [
        np.linspace(a - 12 * s, a + 12 * s, 4001)
        for m in modes.values()
        for a, s in zip(*m, strict=True)
    ]
    t = np.unique(np.concatenate([*fine, np.linspace(-250, 250, 50_001), y]))
    logp = np.stack(
        [
            np.log(
                np.mean([stats.norm(a, s).pdf(t) for a, s in zip(*each, strict=True)], axis=0)
                + 1e-300
            )
            for each in modes.values()
        ]
    )
    q = np.exp(operator.pool_density(logp, fit.solution.x))
    F = integrate.cumulative_trapezoid(q, t, initial=0.0)
    F /= F[-1]
    for outcome, score in zip(y, fit.pointwise.isel(model=0).values, strict=True):
        low, high = t <= outcome, t >= outcome
        exact = np.trapezoid(F[low] ** 2, t[low]) + np.trapezoid((1 - F[high]) ** 2, t[high])
        assert -score == pytest.approx(exact, rel=1e-4)
