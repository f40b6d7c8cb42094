"""Where the paper is wrong: each formula as printed, and what shows that it cannot be.

The wrong formulas are written here, as the paper has them, and nowhere else. Every test checks
two things: the printed formula misses a truth known by other means (a closed form, finite
differences, a fit without the observation), and ours meets it.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

import lockquack as lq
from lockquack.draws.collapse import collapse
from lockquack.jets import Jet, power_pool
from lockquack.operators import Hybrid, Linear, Locking, Superposition
from lockquack.paper import overfitting
from lockquack.paper.scenarios import (
    SCENARIOS,
    Density,
    loo_predictions,
    models_at,
    posterior_draws,
    predictions,
)
from lockquack.solvers.simplex_qp import simplex_qp
from tests.helpers import lock

DRAWS = (4, 5000)


def second_difference(f, y, step=1e-3):
    return (f(y + step) - 2 * f(y) + f(y - step)) / step**2


def first_difference(f, y, step=1e-4):
    return (f(y + step) - f(y - step)) / (2 * step)


@pytest.fixture
def y(rng):
    return rng.normal(0.0, 1.0, 30)


@pytest.fixture
def draws(y, rng):
    return posterior_draws(y, rng, DRAWS)


def draw_jets(model, y):
    """Densities and their two derivatives at y, of every draw: f, ∇f, Δf, (draw, obs)."""
    obs, everything = slice(0, y.size), slice(0, DRAWS[1])
    logp = model.source.all_logp(obs).reshape(-1, y.size)
    parts = [model.source.derivatives(chain, everything, obs) for chain in range(DRAWS[0])]
    grad = np.concatenate([g[..., 0] for g, _ in parts])
    curv = np.concatenate([h[..., 0] for _, h in parts])
    f = np.exp(logp)
    return f, f * grad, f * (curv + grad**2)


# 1. Step 3 averages Δ log f over draws.


def test_1_step_3_drops_the_variance_of_the_gradients(y, draws):
    for model, exact in zip(models_at(y, draws).values(), loo_predictions(y), strict=True):
        f, df, ddf = draw_jets(model, y)
        printed = (ddf / f - (df / f) ** 2).mean(axis=0)
        truth = exact.jet(y).curv[:, 0]
        ours = collapse(model.source, "loo").jet.curv[:, 0]
        assert np.abs(ours - truth).max() < 0.02
        assert np.abs(printed - truth).max() > 0.03
    # In M1 the printed average does not even depend on the data: −1, for −1 / (1 + V).
    f, df, ddf = draw_jets(models_at(y, draws)["M1"], y)
    np.testing.assert_allclose((ddf / f - (df / f) ** 2).mean(axis=0), -1.0)


@pytest.mark.parametrize(
    ("predict", "right", "printed"), [(loo_predictions, 0.74, 0.40), (predictions, 0.41, 0.13)]
)
def test_1_step_3_changes_the_weights(predict, right, printed):
    """Both models are right (scenario 4): mean weight of M1 over 100 data sets."""
    found = []
    for seed in range(100):
        y = np.random.default_rng(seed).normal(size=200)
        jets = [each.jet(y) for each in predict(y)]
        G = np.stack([jet.grad[:, 0] for jet in jets])
        # Averages over the posterior: of −1, and of −1/θ₂ for θ₂ scaled-inverse-χ².
        mean_curv = np.array([-1.0, -(0.1 + y.size) / (0.1 + np.square(y).sum())])
        curv = np.array([jet.curv.sum() for jet in jets])
        linear = (curv, y.size * mean_curv)
        found.append([simplex_qp(G @ G.T, c, np.full(2, 0.01)).x[0] for c in linear])
    np.testing.assert_allclose(np.mean(found, axis=0), [right, printed], atol=0.01)


# 2. Appendix A.


@pytest.mark.parametrize("k", [0, 1])
def test_2_appendix_a_first_derivative(y, draws, k):
    model = list(models_at(y, draws).values())[k]
    f, df, _ = draw_jets(model, y)
    truth = predictions(y)[k].jet(y).grad[:, 0]
    in_its_fifth_line = (df * f).sum(axis=0) / (f**2).sum(axis=0)
    by_its_h1 = (f * df / f**2).sum(axis=0) / f.sum(axis=0)
    by_ours = (f * (df / f)).sum(axis=0) / f.sum(axis=0)  # h1 = ∇f / f, weights f
    assert np.abs(by_ours - truth).max() < 0.02
    assert np.abs(in_its_fifth_line - truth).max() > 0.02
    assert np.abs(by_its_h1 - truth).max() > 0.2
    np.testing.assert_allclose(collapse(model.source, "in-sample").jet.grad[:, 0], by_ours)


@pytest.mark.parametrize("k", [0, 1])
def test_2_appendix_a_second_derivative(y, draws, k):
    model = list(models_at(y, draws).values())[k]
    f, df, ddf = draw_jets(model, y)
    jet = predictions(y)[k].jet(y)
    truth = jet.curv[:, 0] + jet.grad[:, 0] ** 2  # π'' / π
    in_its_fourth_line = ddf.sum(axis=0) / (f**2).sum(axis=0)
    by_its_h2 = (f * (ddf * f - df**2) / f**3).sum(axis=0) / f.sum(axis=0)
    by_ours = (f * (ddf / f)).sum(axis=0) / f.sum(axis=0)  # h2 = Δf / f
    assert np.abs(by_ours - truth).max() < 0.03
    assert np.abs(in_its_fourth_line - truth).max() > 0.1
    assert np.abs(by_its_h2 - truth).max() > 0.1


@pytest.mark.parametrize("k", [0, 1])
def test_2_the_leave_one_out_ratio_is_one_over_f(y, draws, k):
    """Weighting draws by f counts the observation twice instead of leaving it out."""
    model = list(models_at(y, draws).values())[k]
    f, df, _ = draw_jets(model, y)
    without = np.array(
        [predictions(np.delete(y, i))[k].jet(y[i]).grad.item() for i in range(y.size)]
    )
    twice = np.array(
        [predictions(np.append(y, y[i]))[k].jet(y[i]).grad.item() for i in range(y.size)]
    )

    def weighted(ratio):
        return (ratio * df).sum(axis=0) / (ratio * f).sum(axis=0)

    assert np.abs(weighted(1 / f) - without).max() < 0.02
    assert np.abs(weighted(f) - without).max() > 0.02
    assert np.abs(weighted(f) - twice).max() < 0.02
    np.testing.assert_allclose(loo_predictions(y)[k].jet(y).grad[:, 0], without, rtol=1e-9)


# 3. Appendix B.


def test_3_appendix_b_lacks_a_square():
    """The Laplacian of w₀ log Σβπ, against finite differences."""
    members = (Density.of("normal", mu=-1.0, sigma=1.0), Density.of("normal", mu=1.5, sigma=0.7))
    beta, w0, w = np.array([0.4, 0.6]), 0.5, np.array([0.2, 0.3])
    x = np.concatenate([[w0], w, beta])
    y = np.linspace(-2.0, 2.5, 7)

    def log_pool(at):
        return Hybrid().pool_density(np.stack([m.logp(at) for m in members]), x)

    jets = [member.jet(y) for member in members]
    pi = np.stack([np.exp(jet.logp) for jet in jets])
    d_log = np.stack([jet.grad[:, 0] for jet in jets])
    dd_log = np.stack([jet.curv[:, 0] for jet in jets])
    rest = w @ dd_log
    star = w0 * (beta @ (pi * (dd_log + d_log**2))) / (beta @ pi)
    missing = w0 * ((beta @ (pi * d_log)) / (beta @ pi)) ** 2
    truth = second_difference(log_pool, y)
    assert np.abs(star + rest - truth).max() > 0.2
    np.testing.assert_allclose(star - missing + rest, truth, atol=1e-5)
    stacked = Jet(np.log(pi), d_log[..., None], dd_log[..., None])
    np.testing.assert_allclose(Hybrid().pool(stacked, x).curv[:, 0], truth, atol=1e-5)


# 4. Proposition 1.


def modes(logp):
    inner = logp[1:-1]
    return np.flatnonzero((inner > logp[:-2]) & (inner >= logp[2:])) + 1


def test_4_unimodal_members_do_not_make_a_unimodal_pool():
    grid = np.linspace(-20, 20, 40001)
    cauchy = [Density.of("student_t", nu=1.0, mu=m, sigma=1.0).logp(grid) for m in (-5.0, 5.0)]
    found = grid[modes(Locking().pool_density(np.stack(cauchy), np.array([0.5, 0.5])))]
    np.testing.assert_allclose(found, [-np.sqrt(24), np.sqrt(24)], atol=2e-3)
    assert all(len(modes(each)) == 1 for each in cauchy)
    assert found.min() >= -5
    assert found.max() <= 5, "the bound on the mode stands"
    # With log-concave members the proposition holds.
    normal = [Density.of("normal", mu=m, sigma=1.0).logp(grid) for m in (-5.0, 5.0)]
    assert len(modes(Locking().pool_density(np.stack(normal), np.array([0.5, 0.5])))) == 1


# 5. Uniform phases; a single model.


def test_5_uniform_phases_give_the_mixture_before_normalising_only():
    grid = np.linspace(-10, 10, 2001)
    step = grid[1] - grid[0]
    members = [Density.of("normal", mu=m, sigma=1.0).logp(grid) for m in (-0.7, 0.7)]
    logp, weights = np.stack(members), np.array([0.5, 0.5])
    phases = 2 * np.pi * (np.arange(64) + 0.5) / 64
    pools = [np.exp(Superposition([0.0, a]).pool_density(logp, weights)) for a in phases]
    mixture = np.exp(Linear().pool_density(logp, weights))
    np.testing.assert_allclose(np.mean(pools, axis=0), mixture, atol=1e-12)
    normalised = np.mean([pool / (pool.sum() * step) for pool in pools], axis=0)
    assert np.abs(normalised - mixture).max() > 0.05


def test_5_a_single_model_changes_only_if_the_sum_of_weights_is_free(rng):
    y = rng.normal(0.0, 2.0, 200)
    narrow = {"narrow": lq.from_family("normal", y=y, mu=np.zeros((4, 10)), sigma=1.0)}
    assert lock(narrow).weights.item() == 1.0
    logp = Density.of("normal", mu=0.0, sigma=1.0).logp(y)[None]
    for phase in (0.0, 1.0, np.pi):
        same = Superposition([phase]).pool_density(logp, np.ones(1))
        np.testing.assert_allclose(same, logp[0], atol=1e-12)
    # N(0, 1)^w is N(0, 1/w): the exponent finds the variance of the outcomes.
    freed = lock(narrow, weights="nonnegative").weights.item()
    assert freed == pytest.approx(1 / np.square(y).mean(), rel=0.02)


# 6. Derivatives in y are not those that HMC has.


def test_6_gradients_in_the_parameters_are_others():
    """In M2, y ~ N(0, θ), the two differ everywhere."""
    y, theta = 1.3, 2.0

    def log_f(y, theta):
        return -0.5 * y**2 / theta - 0.5 * np.log(2 * np.pi * theta)

    in_y = first_difference(lambda at: log_f(at, theta), y)
    in_theta = first_difference(lambda at: log_f(y, at), theta)
    ours = Density.of("normal", mu=0.0, sigma=np.sqrt(theta)).jet(np.array(y)).grad.item()
    assert ours == pytest.approx(in_y, abs=1e-8)
    assert abs(ours - in_theta) > 0.5


# 7. "Immunity to over-fitting".


@pytest.fixture(scope="module")
def regressions():
    seeds = np.random.SeedSequence(7).spawn(3)
    tables = [overfitting.replicate(seed, (1, 50, 90)) for seed in seeds]
    names = tables[0][0].keys()
    return {
        name: np.median([[row[name] for row in table] for table in tables], 0) for name in names
    }


def test_7_the_hyvarinen_score_over_fits(regressions):
    gap = regressions["hyvarinen_in_sample"] - regressions["hyvarinen_loo"]
    assert gap[0] < 0.2
    assert gap[1] > 0.4
    assert gap[2] > 0.4


def test_7_step_3_hides_it(regressions):
    """Its second derivatives are the same average in-sample and leave-one-out."""
    gap = regressions["step_3_in_sample"] - regressions["step_3_loo"]
    assert gap[2] < 0.1


def test_7_the_harmonic_mean_is_lower_as_the_paper_says(y, draws):
    for model in models_at(y, draws).values():
        logp = model.source.all_logp(slice(0, y.size)).reshape(-1, y.size)
        in_sample = logsumexp(logp, axis=0) - np.log(len(logp))
        loo = np.log(len(logp)) - logsumexp(-logp, axis=0)
        assert (loo < in_sample).all()


# 8. Slips.


def test_8_in_scenario_2_it_is_m1_that_is_wrong():
    """The paper writes "M2 is correctly specified but M2 is not"."""
    scenario = SCENARIOS[1]
    grid = np.linspace(-15, 15, 3001)
    truth = scenario.truth.logp(grid)
    y = np.random.default_rng(1).normal(scenario.mean, np.sqrt(scenario.variance), 20000)
    apart = [np.exp(truth) @ (truth - each.logp(grid)) * 0.01 for each in predictions(y)]
    assert apart[0] > 0.5
    assert abs(apart[1]) < 1e-3


def test_8_h_is_minimised_not_maximised(rng):
    """Maximised, it picks the wrong model: M1 is right in scenario 1."""
    y = rng.normal(1.0, 1.0, 500)
    totals = [float((2 * jet.curv + jet.grad**2).sum()) for jet in map_jets(loo_predictions(y), y)]
    assert np.argmin(totals) == 0
    assert np.argmax(totals) == 1


def test_8_without_units_the_prior_depends_on_them(rng):
    """The printed objective for metres and for millimetres, and ours."""
    y = rng.normal(1.0, 1.0, 200)
    printed, ours = [], []
    for factor in (1.0, 1000.0):
        jets = map_jets(loo_predictions(y), y)
        G = np.stack([jet.grad[:, 0] for jet in jets]) / factor
        c = np.array([jet.curv.sum() for jet in jets]) / factor**2
        scale = np.std(factor * y, ddof=1)
        printed.append(simplex_qp(G @ G.T, c, np.full(2, 0.01)).x[0])
        ours.append(simplex_qp(scale**2 * G @ G.T, scale**2 * c, np.full(2, 0.01)).x[0])
    assert printed[0] > 0.9
    assert printed[1] == pytest.approx(0.5, abs=0.02)
    assert ours[1] == pytest.approx(ours[0], abs=1e-6)


def map_jets(densities, y):
    return [density.jet(y) for density in densities]


def test_the_identity_of_leave_one_out_derivatives(y):
    """∂ log p_loo = mean g and ∂² log p_loo = mean h + Var g, exactly, on a fine grid of θ."""
    theta = np.linspace(-2.0, 2.0, 4001)[:, None]
    log_posterior = -0.5 * np.square(y - theta).sum(axis=1) - 0.5 * theta[:, 0] ** 2 / 10
    log_posterior -= logsumexp(log_posterior)
    jets = Density.of("normal", mu=theta, sigma=1.0).jet(y)
    ratio = log_posterior[:, None] - jets.logp
    pooled = power_pool(jets, ratio - logsumexp(ratio, axis=0), 1.0)
    exact = loo_predictions(y)[0].jet(y)
    np.testing.assert_allclose(pooled.logp, exact.logp, atol=1e-9)
    np.testing.assert_allclose(pooled.grad, exact.grad, atol=1e-9)
    np.testing.assert_allclose(pooled.curv, exact.curv, atol=1e-9)
    share = np.exp(log_posterior)[:, None]
    mean = (share * jets.grad[..., 0]).sum(axis=0)
    np.testing.assert_allclose(mean, exact.grad[:, 0], atol=1e-9)
    spread = (share * np.square(jets.grad[..., 0] - mean)).sum(axis=0)
    np.testing.assert_allclose(spread - 1.0, exact.curv[:, 0], atol=1e-9)
