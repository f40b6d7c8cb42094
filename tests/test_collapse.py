"""From draws to predictive jets: identities, closed forms, Monte Carlo errors, one pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import special, stats
from threadpoolctl import threadpool_info, threadpool_limits

import lockquack as lq
from lockquack.draws import blocks
from lockquack.draws.blocks import (
    Average,
    BlockGrid,
    complete_blocks,
    observation_groups,
    pool_blocks,
)
from lockquack.draws.collapse import collapse, join, merge_blocks
from lockquack.draws.psis import psis
from lockquack.errors import ShapeError
from lockquack.kernels import choice as kernels
from lockquack.kernels import plain
from lockquack.parallel.threads import thread_map

UNIT = np.ones(1)


def arrays(rng, chains=3, draws=101, n=37, d=1):
    shape = (chains, draws, n, d)
    y = rng.normal(size=(n, d))
    grad, curv = rng.normal(size=shape), -rng.gamma(2.0, size=shape)
    logp = -0.5 * np.square(grad).sum(-1)
    squeeze = (lambda a: a[..., 0]) if d == 1 else (lambda a: a)
    return {"logp": logp, "grad": squeeze(grad), "curv": squeeze(curv), "y": squeeze(y)}


def by_hand(given, log_terms):
    """Weighted averages over all draws at once, straight from the formulas."""
    flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in given.items() if k != "y"}
    grad = flat["grad"].reshape(*flat["logp"].shape, -1)
    curv = flat["curv"].reshape(grad.shape)
    W = special.softmax(log_terms.reshape(flat["logp"].shape), axis=0)[..., None]
    mean = (W * grad).sum(0)
    return mean, (W * curv).sum(0) + (W * (grad - mean) ** 2).sum(0)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("kind", ["loo", "in-sample", "held-out"])
def test_blocks_agree_with_the_formulas(rng, kind, d):
    given = arrays(rng, d=d)
    terms = np.zeros_like(given["logp"]) if kind == "loo" else given["logp"]
    jet = lq.from_arrays(**given).collapse(kind).jet
    grad, curv = by_hand(given, terms)
    np.testing.assert_allclose(jet.grad, grad, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(jet.curv, curv, rtol=1e-12, atol=1e-14)
    if kind != "loo":
        expected = special.logsumexp(given["logp"], axis=(0, 1)) - np.log(3 * 101)
        np.testing.assert_allclose(jet.logp, expected, rtol=1e-13)


@pytest.mark.parametrize("shape", [(3, 101), (3, 101, 37)])
def test_given_log_weights(rng, shape):
    given = arrays(rng)
    log_weights = rng.normal(size=shape)
    full = np.broadcast_to(log_weights[..., None] if len(shape) == 2 else log_weights, (3, 101, 37))
    jet = collapse(lq.from_arrays(**given).source, "in-sample", log_weights=log_weights).jet
    grad, curv = by_hand(given, full + given["logp"])
    np.testing.assert_allclose(jet.grad, grad, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(jet.curv, curv, rtol=1e-12, atol=1e-14)
    expected = special.logsumexp(full + given["logp"], axis=(0, 1)) - special.logsumexp(
        full, axis=(0, 1)
    )
    np.testing.assert_allclose(jet.logp, expected, rtol=1e-12)


def test_loo_is_the_importance_weighted_average_with_ratios_one_over_f(rng):
    model = lq.from_arrays(**arrays(rng))
    by_identity = collapse(model.source, "loo", density=True).jet
    by_weights = collapse(model.source, "in-sample", log_weights=-model.source.logp_draws).jet
    for part in ("logp", "grad", "curv"):
        np.testing.assert_allclose(
            getattr(by_identity, part), getattr(by_weights, part), rtol=1e-11, atol=1e-13
        )


def test_psis_weights_leave_the_derivatives_nearly_as_the_identity_has_them(family):
    for scale in family.answers["scales"]:
        for k, (name, model) in enumerate(family.models(scale).items()):
            draws = model.source.all_logp(slice(0, model.observations.n))
            log_weights, pareto_k = psis(draws)
            weighted = collapse(model.source, "in-sample", log_weights=log_weights).jet
            stored = {
                part: family.pointwise[f"{scale}__loo_psis_weighted__{part}"][:, k]
                for part in ("logp", "grad", "lapl")
            }
            at = family.observations
            np.testing.assert_allclose(weighted.logp[at], stored["logp"], rtol=1e-7, err_msg=name)
            np.testing.assert_allclose(weighted.grad[at, 0], stored["grad"], rtol=1e-6, atol=1e-10)
            np.testing.assert_allclose(weighted.curv[at, 0], stored["lapl"], rtol=1e-6, atol=1e-10)
            loo = model.loo()
            np.testing.assert_allclose(loo.logp, weighted.logp, rtol=1e-10, atol=1e-11)
            np.testing.assert_allclose(loo.pareto_k, pareto_k)


def test_a_hopeless_tail_is_called_hopeless(rng):
    # One draw outweighs all others by e^2500: there is no tail to fit.
    logp = np.zeros((4, 100, 2))
    logp[..., 0] = 0.2 * rng.normal(size=(4, 100))
    logp[..., 1] = -3000 * rng.uniform(size=(4, 100)) ** 2
    log_weights, pareto_k = psis(logp)
    assert pareto_k[0] < 0.5
    assert pareto_k[1] > 0.7
    assert np.isfinite(log_weights).all()
    np.testing.assert_allclose(special.logsumexp(log_weights, axis=(0, 1)), 0.0, atol=1e-10)


# Conjugate models: draws with exactly the posterior's moments make the identity exact.


def exact_regression_draws(X, y, sigma, prior_var):
    """Draws of β whose mean and covariance are exactly those of the posterior."""
    p = X.shape[1]
    V = np.linalg.inv(X.T @ X / sigma**2 + np.eye(p) / prior_var)
    m = V @ X.T @ y / sigma**2
    L = np.sqrt(p) * np.linalg.cholesky(V).T
    return np.concatenate([m + L, m - L])[None], m, V


def test_loo_identity_is_exact_leave_one_out_in_conjugate_regression(rng):
    n, p, sigma, prior_var = 25, 3, 0.8, 10.0
    X, y = rng.normal(size=(n, p)), rng.normal(size=n)
    beta, _, _ = exact_regression_draws(X, y, sigma, prior_var)
    jet = lq.from_family("normal", y=y, mu=lq.linear_predictor(X, beta), sigma=sigma).collapse().jet
    for i in range(n):
        rest = np.arange(n) != i
        _, m, V = exact_regression_draws(X[rest], y[rest], sigma, prior_var)
        var = sigma**2 + X[i] @ V @ X[i]
        assert jet.grad[i, 0] == pytest.approx((X[i] @ m - y[i]) / var, rel=1e-10)
        assert jet.curv[i, 0] == pytest.approx(-1 / var, rel=1e-10)


def test_total_loo_score_is_that_of_the_marginal_likelihood(rng):
    n, p, sigma, prior_var = 25, 3, 0.8, 10.0
    X, y = rng.normal(size=(n, p)), rng.normal(size=n)
    beta, _, _ = exact_regression_draws(X, y, sigma, prior_var)
    jet = lq.from_family("normal", y=y, mu=lq.linear_predictor(X, beta), sigma=sigma).collapse().jet
    precision = np.linalg.inv(sigma**2 * np.eye(n) + prior_var * X @ X.T)
    marginal = -2 * np.trace(precision) + np.square(precision @ y).sum()
    assert (2 * jet.curv + jet.grad**2).sum() == pytest.approx(marginal, rel=1e-10)


def test_loo_identity_with_an_unknown_variance(rng):
    # M2 of the paper: y ~ N(0, θ), θ ~ InvGamma(ν/2, ντ/2); the predictive is Student's t.
    # Quadrature nodes for 1/θ stand in for draws, their weights for the posterior.
    y = rng.normal(0, 2.0, size=12)
    nu0, tau0 = 0.1, 1.0
    nu, total = nu0 + len(y), nu0 * tau0 + np.square(y).sum()
    precision, weight = special.roots_genlaguerre(80, nu / 2 - 1)
    precision *= 2 / total
    keep = weight > 1e-280
    sigma = 1 / np.sqrt(precision[keep])
    model = lq.from_family("normal", y=y, mu=0.0, sigma=sigma[None])
    posterior = np.log(weight[keep])[None, :, None]
    logf = stats.norm.logpdf(y, 0, sigma[None, :, None])
    in_sample = collapse(model.source, "in-sample", log_weights=posterior[..., 0]).jet
    np.testing.assert_allclose(
        in_sample.logp, stats.t.logpdf(y, nu, 0, np.sqrt(total / nu)), rtol=1e-9
    )
    loo = collapse(model.source, "in-sample", log_weights=posterior - logf).jet
    for i in range(len(y)):
        left = total - y[i] ** 2
        expected = lq.from_family(
            "student_t",
            y=y[[i]],
            nu=nu - 1,
            mu=0.0,
            sigma=np.full((1, 1), np.sqrt(left / (nu - 1))),
        ).collapse("in-sample")
        for part in ("logp", "grad", "curv"):
            np.testing.assert_allclose(
                getattr(loo, part)[i], getattr(expected.jet, part)[0], rtol=1e-8
            )


# Monte Carlo error


def autocorrelated(rng, shape, rho):
    noise = rng.normal(size=shape)
    draws = np.empty(shape)
    draws[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        draws[:, t] = rho * draws[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return draws


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["loo", "in-sample"])
def test_mcse_agrees_with_arviz_on_single_draws_and_with_the_truth(rng, kind, rho):
    y = rng.normal(size=20)
    estimates, scores, references = [], [], []
    for _ in range(40):
        mu = 0.4 * autocorrelated(rng, (4, 1000), rho)
        model = lq.from_family("normal", y=y, mu=mu, sigma=1.0)
        collapsed = collapse(model.source, kind)
        jet = collapsed.jet
        estimates.append(collapsed.mcse(UNIT))
        scores.append((2 * jet.curv + jet.grad**2).sum())
        # The same first-order effect, draw by draw, through ArviZ's own estimator.
        g = mu[..., None] - y
        W = np.exp(-0.5 * g**2) if kind == "in-sample" else np.ones_like(g)
        W /= W.mean(axis=(0, 1))
        A, mean = g**2 - 1, jet.grad[:, 0]
        effect = W * (2 * (A - jet.curv[:, 0] - mean**2) - 2 * mean * (g - mean))
        references.append(array_stats.mcse(effect.sum(-1), chain_axis=0, draw_axis=1))
    assert np.mean(estimates) == pytest.approx(np.mean(references), rel=0.08)
    # Forty replications know their own standard deviation to about 11 %.
    assert np.mean(estimates) == pytest.approx(np.std(scores, ddof=1), rel=0.35)


def test_mcse_sees_chains_that_disagree(rng):
    y = rng.normal(size=20)
    mixed = 0.1 * rng.normal(size=(4, 1000))
    stuck = mixed + np.array([[-1.0], [-1.0], [1.0], [1.0]])
    good = lq.from_family("normal", y=y, mu=mixed, sigma=1.0).collapse()
    bad = lq.from_family("normal", y=y, mu=stuck, sigma=1.0).collapse()
    assert bad.mcse(UNIT) > 20 * good.mcse(UNIT)


def test_mcse_of_constant_draws_is_zero_and_of_too_few_unknown():
    y = np.array([0.0, 1.0])
    assert lq.from_family("normal", y=y, mu=np.zeros((2, 10)), sigma=1.0).collapse().mcse(UNIT) == 0
    assert np.isnan(
        lq.from_family("normal", y=y, mu=np.zeros((2, 3)), sigma=1.0).collapse().mcse(UNIT)
    )


def test_mcse_weighs_components_by_their_units(rng):
    given = arrays(rng, chains=4, draws=200, d=2)
    collapsed = lq.from_arrays(**given).collapse()
    first, second = collapsed.mcse(np.array([1.0, 0.0])), collapsed.mcse(np.array([0.0, 1.0]))
    both = collapsed.mcse(np.array([3.0, 3.0]))
    assert 9 * max(first, second) < both < 9 * (first + second)


def test_the_effect_of_a_block_is_what_leaving_it_out_does(rng):
    given = arrays(rng, chains=2, draws=50, n=9)
    effect = lq.from_arrays(**given).collapse().effect
    assert effect.shape == (2, 50, 1)

    def score(keep):
        g, h = given["grad"].reshape(100, 9)[keep], given["curv"].reshape(100, 9)[keep]
        return (2 * (h.mean(0) + g.var(0)) + g.mean(0) ** 2).sum()

    everything = np.arange(100)
    for draw in (3, 77):
        change = score(everything) - score(everything != draw)
        assert effect.reshape(100)[draw] == pytest.approx(99 * change, rel=0.05, abs=0.5)


def test_how_many_draws_carry_an_average(rng):
    given = arrays(rng)
    loo, inside = (lq.from_arrays(**given).collapse(kind) for kind in ("loo", "in-sample"))
    np.testing.assert_allclose(loo.n_effective, 303)
    W = special.softmax(given["logp"].reshape(303, -1), axis=0)
    np.testing.assert_allclose(inside.n_effective, 1 / np.square(W).sum(0), rtol=1e-10)


def test_ess_is_arviz_own(rng):
    given = arrays(rng, chains=4, draws=200, n=5)
    ess = lq.from_arrays(**given).ess()
    for i in range(5):
        g, h = given["grad"][..., i], given["curv"][..., i]
        expected = [array_stats.ess(x, method="mean") for x in (g, h + g**2)]
        np.testing.assert_allclose([ess["grad"][i], ess["curv"][i]], expected)
    assert ess["grad"].dims == ("obs_id",)


# One pass along the stored layout


class Counting:
    """A source that counts what is read from it and how large the tiles are."""

    def __init__(self, model, contiguous=False):
        self.source = source = model.source
        self.can = replace(source.can, be_shared=True, read_along_draws=contiguous)
        self.n_components, self.case_weights = source.n_components, source.case_weights
        self.n_chains, self.n_draws, self.n_obs = source.n_chains, source.n_draws, source.n_obs
        self.read = {"logp": 0, "derivatives": 0}
        self.largest = self.tiles = 0

    def logp(self, chain, draws, obs):
        tile = self.source.logp(chain, draws, obs)
        self.read["logp"] += tile.size
        return tile

    def derivatives(self, chain, draws, obs):
        tile = self.source.derivatives(chain, draws, obs)
        self.read["derivatives"] += tile[0].size
        self.largest = max(self.largest, tile[0].size)
        self.tiles += 1
        return tile


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("kind", ["loo", "in-sample"])
def test_every_number_is_read_once_in_small_tiles(rng, kind, contiguous):
    given = arrays(rng, chains=2, draws=530, n=700)
    source = Counting(lq.from_arrays(**given), contiguous)
    collapsed = collapse(source, kind)
    size = given["logp"].size
    assert source.read == {"derivatives": size, "logp": size if kind == "in-sample" else 0}
    most = plain.HELD_TILE
    assert source.largest <= most
    # Neither are they many: at most one more per chain and group than would hold everything.
    groups = len(observation_groups(source, BlockGrid(2, 530, 700), Average(kind)))
    assert source.tiles <= 2 * size / most + 2 * groups * source.n_chains
    reference = lq.from_arrays(**given).collapse(kind)
    np.testing.assert_allclose(collapsed.jet.curv, reference.jet.curv, rtol=1e-12)
    np.testing.assert_allclose(collapsed.effect, reference.effect, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["loo", "in-sample", "held-out"])
def test_derivatives_that_are_not_wanted_are_not_read(rng, kind):
    given = arrays(rng, chains=2, draws=130, n=70)
    source = Counting(lq.from_arrays(**given))
    collapsed = collapse(source, kind, density=True, derivatives=False)
    assert source.read == {"derivatives": 0, "logp": given["logp"].size}
    assert collapsed.jet.grad.shape == collapsed.jet.curv.shape == (70, 0)
    assert collapsed.effect.shape == (*collapsed.log_effect.shape, 0)
    reference = collapse(lq.from_arrays(**given).source, kind, density=True)
    np.testing.assert_array_equal(collapsed.jet.logp, reference.jet.logp)
    np.testing.assert_array_equal(collapsed.log_effect, reference.log_effect)
    np.testing.assert_array_equal(collapsed.n_effective, reference.n_effective)


def test_extra_memory_does_not_grow_with_the_input(rng, monkeypatch):
    import tracemalloc

    monkeypatch.setenv("LOCKQUACK_NUM_THREADS", "1")

    def peak(n):
        model = lq.from_arrays(**arrays(rng, chains=2, draws=200, n=n))
        tracemalloc.start()
        collapse(model.source, "loo")
        collapse(model.source, "in-sample")
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    width = plain.HELD_ROW
    assert peak(8 * width) < 1.2 * peak(2 * width)


@pytest.mark.parametrize("worth_compiling", [2**62, 2**25])
@pytest.mark.parametrize("kind", ["loo", "in-sample"])
def test_extra_memory_is_small_next_to_the_input(rng, kind, worth_compiling, monkeypatch):
    import tracemalloc

    monkeypatch.setenv("LOCKQUACK_NUM_THREADS", "2")
    monkeypatch.setattr(kernels, "_WORTH_COMPILING", worth_compiling)
    # One array stands for three, and one chain for four: 960 MB in the eyes of the pass.
    draws = np.broadcast_to(rng.normal(size=(1000, 10_000)), (4, 1000, 10_000))
    model = lq.from_arrays(logp=draws, grad=draws, curv=draws, y=np.zeros(10_000))
    collapse(model.source, kind)  # what is compiled stays
    tracemalloc.start()
    collapse(model.source, kind)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.05 * 3 * 8 * draws.size


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("kind", ["loo", "in-sample"])
def test_large_gradients_cost_no_digits_of_the_curvature(rng, kind, contiguous, d):
    given = arrays(rng, d=d)
    # At some observations, far larger than their spread.
    given["grad"] += np.where(np.arange(37) % 3, 0.0, 1e6).reshape(37, *[1] * (d > 1))
    terms = np.zeros_like(given["logp"]) if kind == "loo" else given["logp"]
    _, curv = by_hand(given, terms)
    if contiguous:
        given |= {
            k: np.moveaxis(np.moveaxis(given[k], 2, 0).copy(), 0, 2) for k in given if k != "y"
        }
    jet = lq.from_arrays(**given).collapse(kind).jet
    np.testing.assert_allclose(jet.curv, curv, rtol=1e-9, atol=1e-11)


def test_memory_layout_and_precision_do_not_matter(rng):
    given = arrays(rng, n=50)
    expected = lq.from_arrays(**given).collapse("in-sample").jet
    turned = {
        k: np.moveaxis(np.moveaxis(v, -1, 0).copy(), 0, -1) if k != "y" else v
        for k, v in given.items()
    }
    assert turned["grad"].strides != given["grad"].strides
    assert lq.from_arrays(**turned).source.can.read_along_draws
    got = lq.from_arrays(**turned).collapse("in-sample").jet
    np.testing.assert_allclose(got.curv, expected.curv, rtol=1e-12)
    single = {k: v.astype(np.float32) if k != "y" else v for k, v in given.items()}
    got = lq.from_arrays(**single).collapse("in-sample").jet
    np.testing.assert_allclose(got.curv, expected.curv, rtol=1e-4, atol=1e-5)
    assert got.curv.dtype == np.float64


# Pieces: draws cut anywhere, observations in groups


class Piece(Counting):
    """Some chains, draws and observations of a model, as a source of its own."""

    def __init__(self, model, chains, draws, obs):
        super().__init__(model)
        self.chains, self.draws, self.obs = chains, draws, obs
        self.n_chains, self.n_draws, self.n_obs = len(chains), len(draws), len(obs)

    def logp(self, chain, draws, obs):
        return super().logp(self.chains[chain], self.within(self.draws, draws), self.of(obs))

    def derivatives(self, chain, draws, obs):
        return super().derivatives(self.chains[chain], self.within(self.draws, draws), self.of(obs))

    def of(self, obs):
        return self.within(self.obs, obs)

    @staticmethod
    def within(whole, part):
        chosen = whole[part]
        return slice(chosen.start, chosen.stop)


def cut(size, places):
    ends = [0, *places, size]
    return [range(a, b) for a, b in pairwise(ends)]


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("kind", ["loo", "in-sample"])
@pytest.mark.parametrize("places", [(), (100,), (1, 2, 33, 77, 104)])
def test_pieces_give_what_the_whole_gives(rng, kind, d, places):
    model = lq.from_arrays(**arrays(rng, chains=3, draws=105, n=23, d=d))
    whole = collapse(model.source, kind, density=True)
    grid, average = BlockGrid(3, 105, 23), Average(kind, density=True)
    groups = []
    for obs in cut(23, (5, 6)):
        parts = []
        for chains in cut(3, (2,)):
            for draws in cut(105, places):
                piece = Piece(model, chains, draws, obs)
                everything = slice(0, piece.n_obs)
                start = {"first_chain": chains[0], "first_draw": draws[0]}
                parts.append(pool_blocks(piece, everything, grid, average, **start))
        parts = [parts[i] for i in rng.permutation(len(parts))]
        # A tree: some parts are completed before the others are there.
        parts = [complete_blocks(parts[::2]), *parts[1::2]]
        groups.append(merge_blocks(parts, grid))
    pieces = join(groups)
    assert pieces.n_samples == whole.n_samples
    for mine, theirs in [
        (pieces.jet.logp, whole.jet.logp),
        (pieces.jet.grad, whole.jet.grad),
        (pieces.jet.curv, whole.jet.curv),
        (pieces.n_effective, whole.n_effective),
        (pieces.effect, whole.effect),
        (pieces.log_effect, whole.log_effect),
    ]:
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max())
    assert pieces.mcse(np.ones(d)) == pytest.approx(whole.mcse(np.ones(d)), rel=1e-12)
    assert pieces.mcse_logp() == pytest.approx(whole.mcse_logp(), rel=1e-11)


def test_a_missing_piece_is_missed(rng):
    model = lq.from_arrays(**arrays(rng, chains=2, draws=105, n=4))
    piece = Piece(model, range(2), range(0, 104), range(4))
    grid = BlockGrid(2, 105, 4)
    with pytest.raises(ShapeError, match="hold 208 draws; there are 210"):
        merge_blocks([pool_blocks(piece, slice(0, 4), grid, Average())], grid)


@pytest.mark.parametrize("kind", ["loo", "in-sample"])
def test_the_number_of_threads_changes_no_bit(rng, kind, monkeypatch):
    model = lq.from_arrays(**arrays(rng, draws=20, n=plain.HELD_ROW + 7))
    grid = BlockGrid(model.n_chains, model.n_draws, model.observations.n)
    assert len(observation_groups(model.source, grid, Average(kind))) >= 2
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("LOCKQUACK_NUM_THREADS", threads)
        results.append(collapse(model.source, kind))
    for other in results[1:]:
        np.testing.assert_array_equal(other.jet.grad, results[0].jet.grad)
        np.testing.assert_array_equal(other.jet.curv, results[0].jet.curv)
        np.testing.assert_array_equal(other.effect, results[0].effect)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_start_no_threads_of_linear_algebra(threads):
    def most():
        return max(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")

    with threadpool_limits(2, user_api="blas"):
        assert set(thread_map(lambda _: most(), range(4), threads=threads)) == {1}
        assert most() == 2


def test_a_pass_is_remembered(rng):
    model = lq.from_arrays(**arrays(rng))
    assert model.collapse() is model.collapse()
    assert model.collapse() is not model.collapse("in-sample")


def test_progress_counts_all_observations(rng):
    model, seen = lq.from_arrays(**arrays(rng, n=300)), []
    collapse(Counting(model, contiguous=True), progress=seen.append)
    assert sum(seen) == 300
    assert len(seen) > 1 or blocks._TILE // model.n_draws >= 300
