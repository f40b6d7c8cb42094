"""Samplers against exact distributions, over many seeds with a family-wise level."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import lockquack as lq
from lockquack.errors import MonteCarloWarning, UnknownNameError, UnsupportedError
from lockquack.families import FAMILIES, Mixture, get_family
from lockquack.models.source import Abilities
from lockquack.operators import Hoelder, Hybrid, Linear, Locking, Nested, Superposition
from lockquack.sampling.proposals import t_mixture
from lockquack.sampling.samplers import SAMPLERS, automatic, importance, sample, smc
from tests.helpers import lock, model_target, pooled_distribution

#: Chance that any of the samplers' tests in this file fails although all is well.
LEVEL = 1e-3
SEEDS = 20


def one_draw(name, y, **parameters):
    return lq.from_family(name, y=y, **{k: np.full((1, 1), v) for k, v in parameters.items()})


def gaussian_pool(d, distance, rng):
    """Two models of d components so many standard deviations apart, and their pool."""
    y = np.zeros((1, d))
    root = rng.normal(size=(d, d)) / np.sqrt(d)
    cov = np.stack([np.eye(d), 0.5 * np.eye(d) + root @ root.T])
    mu = np.zeros((2, d))
    mu[1, 0] = distance
    models = {
        str(k): lq.from_family("mv_normal", y=y, mu=mu[k][None, None], cov=cov[k]) for k in (0, 1)
    }
    w = np.array([0.4, 0.6])
    precision = np.linalg.inv(cov)
    pooled_cov = np.linalg.inv(np.einsum("k,kij->ij", w, precision))
    mean = pooled_cov @ np.einsum("k,kij,kj->i", w, precision, mu)
    square = np.einsum("k,ki,kij,kj->", w, mu, precision, mu)
    log_norm = 0.5 * (
        np.linalg.slogdet(pooled_cov)[1]
        - w @ np.linalg.slogdet(cov)[1]
        - square
        + mean @ np.linalg.solve(pooled_cov, mean)
    )
    return model_target(models, Locking(), w, 0, loo=False), mean, pooled_cov, log_norm


def kolmogorov(values, cdf, n_tests):
    """Refuse values that are not from a distribution, at a level shared by so many tests."""
    assert stats.kstest(values, cdf).pvalue > LEVEL / n_tests


SCALAR = {
    "near": {
        "a": ("normal", {"mu": 0.0, "sigma": 1.0}),
        "b": ("normal", {"mu": 2.0, "sigma": 2.0}),
    },
    "heavy": {
        "a": ("student_t", {"nu": 2.0, "mu": 0.0, "sigma": 1.0}),
        "b": ("normal", {"mu": 3.0, "sigma": 1.5}),
    },
    "positive": {
        "a": ("gamma", {"alpha": 2.0, "beta": 1.0}),
        "b": ("lognormal", {"mu": 0.5, "sigma": 0.7}),
    },
}


@pytest.mark.parametrize("case", SCALAR)
@pytest.mark.parametrize("method", ["inverse-cdf", *SAMPLERS])
def test_scalar_samplers_follow_the_distribution_function(case, method):
    y = np.array([1.0])
    models = {name: one_draw(family, y, **p) for name, (family, p) in SCALAR[case].items()}
    w = np.array([0.45, 0.55])
    exact = pooled_distribution(models, Locking(), w)

    def cdf(values):
        return exact.cdf(np.asarray(values)[:, None])[:, 0]

    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        if method == "inverse-cdf":
            draws = exact.sample(500, rng)[:, 0]
        else:
            target = model_target(models, Locking(), w, 0, loo=False)
            draws = sample(target, 500, method, rng).y[:, 0]
        # Resampled draws and particles are a little dependent: look at fewer of them.
        kolmogorov(draws[:250], cdf, n_tests=SEEDS * 15)


@pytest.mark.parametrize("d", [2, 5, 20])
@pytest.mark.parametrize("distance", [1.0, 8.0])
def test_vector_samplers_follow_gaussian_pools(d, distance):
    target, mean, cov, log_norm = gaussian_pool(d, distance, np.random.default_rng(d))
    white = np.linalg.inv(np.linalg.cholesky(cov))
    methods = {"auto": automatic, "importance": importance, "smc": smc}
    if distance == 1.0:
        methods |= {name: SAMPLERS[name] for name in ("rejection", "mixture-is")}
    n_tests = 6 * 5 * 3 * 3
    for method, draw in methods.items():
        for seed in range(3):
            drawn = draw(target, 600, np.random.default_rng(seed))
            u = (drawn.y - mean) @ white.T
            some = u[:300]
            kolmogorov(some[:, 0], stats.norm.cdf, n_tests)
            kolmogorov(np.square(some).sum(axis=1), stats.chi2(d).cdf, n_tests)
            kolmogorov(some.sum(axis=1) / np.sqrt(d), stats.norm.cdf, n_tests)
            assert drawn.reliable, method
            error = drawn.log_norm - log_norm
            assert abs(error) < 5 * drawn.log_norm_error + 1e-3, method
            assert drawn.log_norm_error < 0.1


def test_auto_beats_the_papers_proposal_where_models_are_apart():
    target, *_ = gaussian_pool(5, 8.0, np.random.default_rng(1))
    auto = automatic(target, 1000, np.random.default_rng(2))
    paper = SAMPLERS["mixture-is"](target, 1000, np.random.default_rng(2))
    assert auto.reliable
    assert not paper.reliable
    assert auto.ess > 10 * paper.ess


OPERATORS = [
    (Linear(), [0.2, 0.5, 0.3]),
    (Locking(), [0.2, 0.5, 0.3]),
    (Superposition(), [0.2, 0.5, 0.3, 0.0, 2.0, 1.0]),
    (Superposition(0.0), [0.2, 0.5, 0.3]),
    (Hybrid(), [0.4, 0.1, 0.3, 0.2, 0.3, 0.3, 0.4]),
    (Hoelder(-2.0), [0.2, 0.5, 0.3]),
    (Hoelder(0.5), [0.2, 0.5, 0.3]),
    (Hoelder(3.0), [0.2, 0.5, 0.3]),
    (Nested(Locking(), [(Superposition(0.0), [0, 1]), 2]), [0.6, 0.4, 0.5, 0.5]),
    (Nested(Superposition([0.0, 2.0]), [(Locking(), [0, 1]), 2]), [0.6, 0.4, 0.5, 0.5]),
]


@pytest.mark.parametrize(("operator", "x"), OPERATORS, ids=lambda v: str(v)[:30])
def test_the_mixture_is_above_the_pool(operator, x, rng):
    logp = rng.normal(scale=3.0, size=(3, 5000))
    x = np.array(x)
    above = operator.mixture_above(x, 3)
    bound = np.log(above @ np.exp(logp))
    assert (operator.pool_density(logp, x) <= bound + 1e-12).all()
    if isinstance(operator, Locking | Hybrid | Linear):
        assert above.sum() == pytest.approx(1.0)


def test_pools_without_a_mixture_above_them(rng):
    assert Locking("nonnegative").mixture_above(np.array([0.5, 0.7]), 2) is None
    signed = np.array([0.5, 0.7, -0.2, 0.5, 0.5])
    assert Hybrid(signed=True).mixture_above(signed, 2) is None
    y = np.array([0.0])
    models = {k: one_draw("normal", y, mu=0.0, sigma=1.0) for k in "ab"}
    target = model_target(models, Locking("nonnegative"), np.array([0.5, 0.7]), 0, loo=False)
    with pytest.raises(UnsupportedError, match="no mixture"):
        sample(target, 10, "rejection", rng)
    drawn = sample(target, 2000, "auto", rng)  # N(0, 1/1.2)
    kolmogorov(drawn.y[:500, 0], stats.norm(0, 1.2**-0.5).cdf, 10)


@pytest.mark.parametrize(("operator", "x"), [o for o in OPERATORS if not isinstance(o[0], Nested)],
                         ids=lambda v: str(v)[:30])  # fmt: skip
def test_rejection_and_importance_for_every_operator(operator, x, rng):
    y = np.array([0.0])
    models = {
        "a": one_draw("normal", y, mu=0.0, sigma=1.0),
        "b": one_draw("student_t", y, nu=5.0, mu=1.0, sigma=1.0),
        "c": one_draw("normal", y, mu=3.0, sigma=2.0),
    }
    x = np.array(x)
    exact = pooled_distribution(models, operator, x)
    target = model_target(models, operator, x, 0, loo=False)
    for method in ("rejection", "importance"):
        drawn = sample(target, 800, method, rng)
        kolmogorov(
            drawn.y[:400, 0], lambda v: exact.cdf(np.asarray(v)[:, None])[:, 0], 2 * len(OPERATORS)
        )
        assert abs(drawn.log_norm - exact.log_norm[0]) < 5 * drawn.log_norm_error + 1e-6


def test_hopeless_rejection_is_given_up(rng):
    y = np.array([0.0])
    models = {str(at): one_draw("normal", y, mu=at, sigma=1.0) for at in (0.0, 30.0)}
    target = model_target(models, Locking(), np.array([0.5, 0.5]), 0, loo=False)
    with pytest.raises(UnsupportedError, match="disagree too much"):
        sample(target, 10, "rejection", rng)
    drawn = sample(target, 500, "auto", rng)
    kolmogorov(drawn.y[:300, 0], stats.norm(15, 1).cdf, 10)


def test_smc_finds_both_modes_of_a_heavy_tailed_pool():
    # Cauchy at ±8 in two dimensions: a pool with two modes, whose moments do not exist.
    y = np.zeros((1, 2))
    models = {
        str(at): lq.from_family(
            "mv_student_t", y=y, nu=1.0, mu=np.array([[[at, 0.0]]]), scale=np.eye(2)
        )
        for at in (-8.0, 8.0)
    }
    target = model_target(models, Locking(), np.array([0.5, 0.5]), 0, loo=False)
    share = [(smc(target, 1000, np.random.default_rng(s)).y[:, 0] > 0).mean() for s in range(4)]
    assert np.abs(np.array(share) - 0.5).max() < 0.2
    assert np.mean(share) == pytest.approx(0.5, abs=0.1)


def test_pooled_gradients_match_differences(rng):
    y = np.zeros((1, 3))
    models = {
        str(k): lq.from_family(
            "mv_normal", y=y, mu=rng.normal(size=(2, 20, 3)), cov=np.eye(3) * (1 + k)
        )
        for k in (0, 1)
    }
    target = model_target(models, Locking(), np.array([0.3, 0.7]), 0, loo=False)
    at, h = rng.normal(size=(5, 3)), 1e-6
    logq, grad = target.with_gradient(at)
    np.testing.assert_allclose(logq, target.pool(target.log_components(at)), atol=1e-12)
    for j in range(3):
        step = h * np.eye(3)[j]
        up, down = (target.pool(target.log_components(at + s)) for s in (step, -step))
        np.testing.assert_allclose(grad[:, j], (up - down) / (2 * h), atol=1e-6)
    mixture = t_mixture([(0.3, np.zeros(3), np.eye(3)), (0.7, np.ones(3), 2 * np.eye(3))])
    _, grad = mixture.with_gradient(at)
    for j in range(3):
        step = h * np.eye(3)[j]
        up, down = (mixture.logpdf(at + s) for s in (step, -step))
        np.testing.assert_allclose(grad[:, j], (up - down) / (2 * h), atol=1e-6)


def test_proposals_are_what_they_draw(rng):
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    mixture = t_mixture([(1.0, np.array([1.0, -1.0]), cov)])
    exact = stats.multivariate_t([1.0, -1.0], cov, df=5)
    at = rng.normal(size=(6, 2))
    np.testing.assert_allclose(mixture.logpdf(at), exact.logpdf(at))
    u = (mixture.draw(1000, rng) - [1.0, -1.0]) @ np.linalg.inv(np.linalg.cholesky(cov)).T
    kolmogorov(u[:, 0], stats.t(5).cdf, 100)


PARAMETERS = {
    "normal": {"mu": 0.5, "sigma": 2.0},
    "student_t": {"nu": 4.0, "mu": 1.0, "sigma": 2.0},
    "logistic": {"mu": 1.0, "s": 0.7},
    "lognormal": {"mu": 0.2, "sigma": 0.8},
    "gamma": {"alpha": 2.5, "beta": 1.5},
    "beta": {"alpha": 2.0, "beta": 3.0},
    "skew_normal": {"mu": 1.0, "sigma": 2.0, "alpha": -3.0},
    "gumbel": {"mu": 1.0, "beta": 2.0},
    "exponential": {"lam": 1.5},
    "half_normal": {"sigma": 2.0},
    "weibull": {"alpha": 1.5, "beta": 2.0},
    "inverse_gamma": {"alpha": 3.0, "beta": 2.0},
    "von_mises": {"mu": 2.5, "kappa": 1.5},
    "poisson": {"mu": 3.0},
    "negative_binomial": {"mu": 3.0, "alpha": 1.5},
    "binomial": {"n": 9.0, "p": 0.3},
    "bernoulli": {"p": 0.3},
    "geometric": {"p": 0.3},
    "zero_inflated_poisson": {"psi": 0.6, "mu": 3.0},
    "zero_inflated_negative_binomial": {"psi": 0.6, "mu": 3.0, "alpha": 1.5},
}


@pytest.mark.parametrize("name", [n for n in FAMILIES if not FAMILIES[n].multivariate])
def test_families_draw_from_their_density(name, rng):
    family = get_family(name)
    y = np.array([1.0 if family.discrete else 0.5])
    model = one_draw(name, y, **PARAMETERS[name])
    exact = pooled_distribution({"only": model}, Linear(), np.ones(1))
    draws = model.source.draw_outcomes(0, np.zeros(2000, dtype=int), slice(0, 1), rng)[:, 0, 0]
    if family.discrete:  # against the counts, where there are enough
        values, counts = np.unique(draws, return_counts=True)
        expected = 2000 * np.exp(exact.logpdf(values[:, None])[:, 0])
        enough = expected > 5
        error = (counts - expected)[enough] / np.sqrt(expected[enough])
        assert np.square(error).sum() < stats.chi2(enough.sum()).ppf(1 - LEVEL / len(FAMILIES))
    else:
        kolmogorov(draws, lambda v: exact.cdf(np.asarray(v)[:, None])[:, 0], len(FAMILIES))


def test_mixtures_and_transforms_draw_from_their_density(rng):
    assert Mixture.name == "mixture"
    models = {
        "mixture": lq.from_family(
            "mixture",
            y=[0.5],
            weights=np.array([0.3, 0.7]),
            components=[
                ("normal", {"mu": np.zeros((2, 10)), "sigma": 1.0}),
                ("gamma", {"alpha": 5.0, "beta": 1.0}),
            ],
        ),
        "log": lq.from_family(
            "normal", y=[0.5], transform="log", mu=rng.normal(size=(2, 10)), sigma=0.5
        ),
        # Half of the normal has no square root: what is left is drawn.
        "sqrt": lq.from_family(
            "normal", y=[0.5], transform="sqrt", mu=np.zeros((2, 10)), sigma=1.0
        ),
    }
    for model in models.values():
        exact = pooled_distribution({"only": model}, Linear(), np.ones(1))
        target = model_target({"only": model}, Linear(), np.ones(1), 0, loo=False)
        draws = target.draw_component(0, 1500, rng)[:, 0]
        kolmogorov(draws, lambda v, of=exact: of.cdf(np.asarray(v)[:, None])[:, 0], 30)


def test_leave_one_out_draws_are_weighted(rng):
    n = 8
    y = rng.normal(size=n)
    mu = y.mean() + rng.normal(size=(4, 1000)) / np.sqrt(n)
    model = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
    exact = pooled_distribution({"m": model}, Linear(), np.ones(1), loo=True)
    target = model_target({"m": model}, Linear(), np.ones(1), 3, loo=True)
    draws = target.draw_component(0, 1000, rng)[:, 0]
    whole = np.zeros((1000, n))
    whole[:, 3] = draws
    assert stats.kstest(exact.cdf(whole)[:, 3], "uniform").pvalue > LEVEL


def test_models_without_a_generator_are_inverted(rng, monkeypatch):
    monkeypatch.setattr(Abilities, "draw", False)
    y = np.array([0.0])
    models = {
        "a": one_draw("normal", y, mu=0.0, sigma=1.0),
        "b": one_draw("normal", y, mu=2.0, sigma=1.0),
    }
    target = model_target(models, Locking(), np.array([0.5, 0.5]), 0, loo=False)
    kolmogorov(target.draw_component(1, 500, rng)[:, 0], stats.norm(2.0, 1.0).cdf, 10)
    drawn = sample(target, 500, "rejection", rng)
    kolmogorov(drawn.y[:, 0], stats.norm(1.0, 1.0).cdf, 10)
    fit = fit_of_vectors(rng)
    with pytest.raises(UnsupportedError, match="Model 'near'.*no generator"):
        fit.sample(10)


def fit_of_vectors(rng, n=3):
    y = rng.normal(size=(n, 2))
    mu = 0.2 * rng.normal(size=(2, 50, 2))
    return lock(
        {
            "near": lq.from_family("mv_normal", y=y, mu=mu, cov=np.eye(2)),
            "wide": lq.from_family("mv_normal", y=y, mu=mu + 1.0, cov=3 * np.eye(2)),
        }
    )


def test_draws_are_what_arviz_takes(normals):
    fit = lock(normals)
    tree = fit.sample(200, random_seed=1)
    predicted = tree["posterior_predictive"]["y"]
    assert predicted.dims == ("chain", "draw", "obs_id")
    assert tree["posterior_predictive"].attrs["sampling_method"] == "inverse-cdf"
    np.testing.assert_array_equal(tree["observed_data"]["y"], fit.observations.values[:, 0])
    np.testing.assert_array_equal(
        predicted, fit.sample(200, random_seed=1)["posterior_predictive"]["y"]
    )
    u = fit.predict().cdf(predicted.values[0]).values.ravel()
    assert stats.kstest(u, "uniform").pvalue > LEVEL
    with pytest.raises(UnknownNameError, match="inverse-cdf"):
        fit.sample(10, method="inverse")


def test_draws_of_vectors(rng):
    fit = fit_of_vectors(rng)
    tree = fit.sample(400, random_seed=1)
    assert dict(tree["posterior_predictive"]["y"].sizes) == {
        "chain": 1, "draw": 400, "obs_id": 3, "component": 2,
    }  # fmt: skip
    statistics = tree["sampling_stats"]
    assert (statistics["ess"] > 100).all()
    assert set(statistics["method"].values) == {"rejection"}
    assert tree["posterior_predictive"].attrs["worst_acceptance"] > 0.1
    norm = fit.predict().log_norm()
    assert (norm.error < 0.05).all()
    assert (norm.pareto_k < 0.7).all()
    assert norm.values == pytest.approx(statistics["log_norm"].values, abs=0.2)
    assert fit.logpdf().dims == ("obs_id",)
    assert fit.predict().mean().dims == ("obs_id", "component")


def test_bad_draws_are_warned_of(rng):
    y = np.array([[4.0, 0.0], [5.0, 1.0]])
    mu, shift = 0.01 * rng.normal(size=(2, 10, 2)), np.array([9.0, 0.0])
    fit = lock(
        {
            "a": lq.from_family("mv_normal", y=y, mu=mu, cov=np.eye(2)),
            "b": lq.from_family("mv_normal", y=y, mu=mu + shift, cov=np.eye(2)),
        },
        prior=1e5,
    )
    with pytest.warns(MonteCarloWarning, match="2 observation.*'mixture-is'") as caught:
        fit.sample(300, method="mixture-is", random_seed=1)
    assert [w.filename for w in caught] == [__file__]
    fit.sample(300, random_seed=1)


def test_counts_by_every_method(rng):
    y = np.array([2])
    models = {
        "p": lq.from_family("poisson", y=y, mu=np.full((1, 1), 3.0)),
        "nb": lq.from_family("negative_binomial", y=y, mu=np.full((1, 1), 5.0), alpha=2.0),
    }
    w = np.array([0.5, 0.5])
    exact = pooled_distribution(models, Locking(), w)
    target = model_target(models, Locking(), w, 0, loo=False)
    outcomes = np.arange(30)
    p = np.exp(exact.logpdf(outcomes[:, None].astype(float))[:, 0])
    for method in ("inverse-cdf", "rejection", "mixture-is"):
        if method == "inverse-cdf":
            draws = exact.sample(2000, rng)[:, 0]
        else:
            draws = sample(target, 2000, method, rng).y[:, 0]
        enough = 2000 * p > 5
        counts = np.bincount(draws.astype(int), minlength=30)[:30]
        error = ((counts - 2000 * p) / np.sqrt(2000 * p))[enough]
        assert np.square(error).sum() < stats.chi2(enough.sum()).ppf(1 - LEVEL / 3)
