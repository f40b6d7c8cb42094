"""Time a NumPyro model's densities and derivatives against NumPyro's own log likelihood.

Run with ``python benchmarks/ppl_jax.py [n] [S]``. The ratios, not the seconds, are what counts:
everything is measured in one process, one after the other, the best of three where compilation
is not part of the question.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import log_likelihood

from lockquack.adapters.numpyro import from_numpyro


def regression(x: Any, y: Any = None) -> None:
    """Student-t regression with unknown degrees of freedom."""
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("y", dist.StudentT(nu, x @ beta, sigma), obs=y)


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Return the shortest of some runs."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def main(n: int = 1000, S: int = 4000) -> None:
    """Print the table."""
    rng = np.random.default_rng(1)
    arguments = {"x": rng.normal(size=(n, 4)), "y": rng.normal(size=n)}
    draws = {
        "beta": rng.normal(size=(4, S // 4, 4)),
        "sigma": rng.gamma(50, 0.02, size=(4, S // 4)),
        "nu": rng.gamma(20, 0.2, size=(4, S // 4)),
    }

    def theirs() -> None:
        logp = log_likelihood(regression, draws, batch_ndims=2, **arguments)
        logp["y"].block_until_ready()

    theirs()
    reference = seconds(theirs, 3)
    print(f"jax {jax.__version__}, numpyro {numpyro.__version__}; n = {n}, S = {S}")
    print(f"numpyro.infer.log_likelihood, float32: {reference:.3f} s")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    model = from_numpyro(regression, draws, model_kwargs=arguments)
    made = time.perf_counter() - start
    first = seconds(lambda: model.collapse("loo"))

    def again() -> None:
        model._passes.clear()
        model._last.clear()
        model.collapse("loo")

    warm = seconds(again, 3)
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    for what, taken in (
        ("from_numpyro", made),
        ("first pass over the derivatives, compilation included", first),
        ("next passes", warm),
        ("model and first pass together", made + first),
    ):
        print(f"{what}: {taken:.3f} s, ratio {taken / reference:.2f}")
    print(f"memory beyond that of log_likelihood: {extra:.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
