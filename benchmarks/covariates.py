"""Weights that depend on covariates: how long they take, and what they are worth.

``python benchmarks/covariates.py time`` fits many groups and many observations, from densities that
are given. ``python benchmarks/covariates.py worth`` simulates data sets in which constant weights
are right, and some in which they are not (``worth "constant, stack"``: only these). ``python
benchmarks/covariates.py softmax`` fits the same log densities by convex weights, by a softmax drawn
from its posterior, and by a program of the same in NumPyro, where that is installed. All print a
table, of processor seconds.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.stats import norm

import lockquack as lq
from lockquack.fitting.densities import Densities
from lockquack.fitting.gated import GatedFitter
from lockquack.jets import Array, Jet
from lockquack.methods.gather import Gathered
from lockquack.methods.method import METHODS, Varying
from lockquack.models.design import read_by
from lockquack.models.observations import as_observations

#: Differences in nats that are rounding.
_SAME = 1e-6


def normal_jets(y: Array, mu: Array, sigma: Array) -> Jet:
    """Jets of K normal predictions, (K, n)."""
    z = (y - mu) / sigma
    grad, curv = -z / sigma, np.broadcast_to(-1 / sigma**2, mu.shape)
    return Jet(norm.logpdf(z) - np.log(sigma), grad[..., None], curv[..., None].copy())


def timed(label: str, n: int, K: int, by: Callable[[np.random.Generator], object]) -> None:
    """Fit K models of n observations by two methods, λ chosen, and print how long that takes."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=n)
    jets = normal_jets(y, rng.normal(size=(K, n)), rng.uniform(0.8, 2.0, size=(K, 1)))
    _, basis = read_by(by(rng), as_observations(y))
    for name in ("lock", "stack"):
        for shrinkage in (1.0, None):
            method = METHODS[name].varied(Varying(basis, shrinkage), ["x"])
            fitter = method.pose(Gathered(Densities(jets), ()), np.full(K, method.concentration))
            start = time.process_time()
            solution = fitter.settled().solve()
            took = time.process_time() - start
            how = "chosen" if shrinkage is None else "given"
            gap = float(solution.relative_gap)
            print(f"{label:<34}{name:<7}λ {how:<8}{took:7.2f} s   gap {gap:.0e}")


def times() -> None:
    """Time large problems, after the pass over draws."""
    timed("1,000 groups, n = 20,000, K = 10", 20_000, 10, lambda rng: many_groups(rng, 20_000))
    timed("20 splines, n = 1,000,000, K = 10", 10**6, 10, lambda rng: a_spline(rng, 10**6))


def many_groups(rng: np.random.Generator, n: int) -> lq.Groups:
    """Draw one of a thousand groups for each observation."""
    return lq.Groups(rng.integers(1000, size=n), name="x")


def a_spline(rng: np.random.Generator, n: int) -> lq.Spline:
    """Draw a number for each observation, of which there are twenty splines."""
    return lq.Spline(rng.uniform(size=n), df=20, name="x")


def worth(only: str = "", data_sets: int = 50) -> None:
    """Simulate data sets; print test scores minus those of constant weights, in nats."""
    warnings.simplefilter("ignore")
    for name, simulate in (("constant", constant_truth), ("spread grows with x", growing_spread)):
        for method in ("lock", "stack"):
            if only not in f"{name}, {method}":
                continue
            found = [compare_once(simulate, method, seed) for seed in range(data_sets)]
            gain, se, spread = (np.array(each) for each in zip(*found, strict=True))
            mean, error = gain.mean(), gain.std(ddof=1) / np.sqrt(data_sets)
            print(
                f"{name:<22}{method:<7}gain {mean:+.2f} ± {error:.2f} nats per training set; "
                f"better in {(gain > _SAME).sum()}, worse in {(gain < -_SAME).sum()} of "
                f"{data_sets}, by more than two standard errors in "
                f"{(gain < -2 * se - _SAME).sum()}; spread of weights {spread.mean():.3f}"
            )


def constant_truth(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Outcomes whose distribution does not depend on x."""
    left = rng.random(n) < 0.5
    y = np.where(left, rng.normal(-1.0, 1.0, size=n), rng.normal(0.8, 1.3, size=n))
    return rng.uniform(size=n), y


def growing_spread(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Outcomes whose spread grows with x."""
    x = rng.uniform(size=n)
    return x, rng.normal(size=n) * (0.7 + 1.6 * x)


def compare_once(
    simulate: Callable[[np.random.Generator, int], tuple[Array, Array]], method: str, seed: int
) -> tuple[float, float, float]:
    """Gain on 4,000 new outcomes, per training set, its standard error, the weights' spread."""
    rng, n = np.random.default_rng(seed), 200
    x, y = simulate(rng, n)
    new_x, new_y = simulate(rng, 4000)
    mu, sigma = np.array([[-1.0], [1.0], [0.0]]), np.array([[1.0], [1.3], [2.0]])
    models = {
        f"m{k}": lq.from_family("normal", y=y, mu=np.full((1, 1), mu[k, 0]), sigma=sigma[k, 0])
        for k in range(3)
    }
    verb = getattr(lq, method)
    constant, varying = verb(models), verb(models, by=lq.Spline(x, name="x"))
    weights = varying.weights_at(new_x)["weight"].values
    apart = score(method, weights, new_y, mu, sigma) - score(
        method, constant.weights.values[:, None], new_y, mu, sigma
    )
    se = apart.std() / np.sqrt(apart.size)
    return n * apart.mean(), n * se, float(weights.std(axis=1).max())


def score(method: str, weights: Array, y: Array, mu: Array, sigma: Array) -> Array:
    """Log scores of normal predictions mixed or locked."""
    if method == "stack":
        return np.asarray(np.log((weights * np.exp(norm.logpdf(y, mu, sigma))).sum(axis=0)))
    precision = (weights / sigma**2).sum(axis=0)
    mean = (weights * mu / sigma**2).sum(axis=0) / precision
    return np.asarray(norm.logpdf(y, mean, precision**-0.5))


def softmaxes() -> None:
    """Time weights by three splines and by ten groups, convex and drawn."""
    rng, n = np.random.default_rng(0), 400
    x, group = rng.uniform(size=n), rng.integers(10, size=n)
    y = np.where(x < 0.5, -1.0, 1.0) + rng.normal(size=10)[group] + rng.normal(size=n)
    jets = normal_jets(y, np.array([[-1.0], [1.0], [0.0]]) + 0 * y, np.array([[1.0], [1.0], [2.0]]))
    gathered, flat = Gathered(Densities(jets), ()), np.ones(3)
    for label, by in (("3 splines", lq.Spline(x, df=3)), ("10 groups", lq.Groups(group))):
        _, basis = read_by(by, as_observations(y))
        took = {}
        for name, shrinkage in (("convex, λ given", 1.0), ("convex, λ chosen", None)):
            fitter = METHODS["stack"].varied(Varying(basis, shrinkage), ["x"]).pose(gathered, flat)
            took[name] = seconds(lambda fitter=fitter: fitter.settled().solve())
        constant = METHODS["stack"].pose(gathered, flat)
        gate = GatedFitter.beside(constant, constant.solve(), basis, 0)
        took["softmax"] = seconds(lambda gate=gate: gate.settled().solve())
        took["NumPyro"] = seconds(
            lambda basis=basis: by_numpyro(jets.logp.T, basis.share.toarray())
        )
        for name, time_taken in took.items():
            ratio = time_taken / took["convex, λ chosen"]
            print(f"{label:<12}{name:<18}{time_taken:8.3f} s   {ratio:8.1f} × convex, λ chosen")


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds that something takes; NaN where it cannot be done."""
    start = time.process_time()
    try:
        work()
    except ImportError:
        return float("nan")
    return time.process_time() - start


def by_numpyro(logp: Array, functions: Array) -> None:
    """Draw from the published model, as many draws as the softmax has."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from jax import numpy as jnp

    def model() -> None:
        unit, heads = dist.Normal(0, 1), logp.shape[1] - 1
        mu = numpyro.sample("mu", unit.expand([heads]))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1).expand([heads]))
        effects = numpyro.sample("unit", unit.expand([functions.shape[1], heads]))
        predictor = mu + functions @ (sigma * effects)
        whole = jnp.concatenate([predictor, jnp.zeros((len(logp), 1))], axis=1)
        log_weights = jax.nn.log_softmax(whole, axis=1)
        numpyro.factor("score", jax.nn.logsumexp(logp + log_weights, axis=1).sum())

    kernel = numpyro.infer.NUTS(model, target_accept_prob=0.9)
    sampler = numpyro.infer.MCMC(
        kernel, num_warmup=400, num_samples=300, num_chains=4, progress_bar=False,
        chain_method="sequential",
    )  # fmt: skip
    sampler.run(jax.random.PRNGKey(0))


if __name__ == "__main__":
    {"time": times, "worth": worth, "softmax": softmaxes}[sys.argv[1]](*sys.argv[2:])
