"""Time a NumPyro model's densities and derivatives against NumPyro's own log likelihood.

Run with ``python benchmarks/ppl_jax.py [n] [S]``. The ratios, not the seconds, are what counts:
everything is measured in one process, in CPU time; what compiles is compared with the first run
of NumPyro's, which compiles too, and the rest with the best of five runs, in turns.
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

from lockquack.sources.numpyro import from_numpyro


def regression(x: Any, y: Any = None) -> None:
    """Student-t regression with unknown degrees of freedom."""
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    nu = numpyro.sample("nu", dist.Gamma(2.0, 0.1))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("y", dist.StudentT(nu, x @ beta, sigma), obs=y)


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


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

    cold = seconds(theirs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    model = from_numpyro(regression, draws, model_kwargs=arguments)
    made = time.process_time() - start
    first = seconds(lambda: model.collapse("loo"))

    def again() -> None:
        model._passes.clear()
        model._last.clear()
        model.collapse("loo")

    turns = [(seconds(theirs), seconds(again)) for _ in range(5)]
    reference, warm = (min(each) for each in zip(*turns, strict=True))
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"jax {jax.__version__}, numpyro {numpyro.__version__}; n = {n}, S = {S}; CPU time")
    print(f"numpyro.infer.log_likelihood, float32: {reference:.3f} s, at first {cold:.3f} s")
    for what, taken, by in (
        ("from_numpyro", made, cold),
        ("first pass over the derivatives, compilation included", first, cold),
        ("model and first pass together", made + first, cold),
        ("next passes", warm, reference),
    ):
        print(f"{what}: {taken:.3f} s, ratio {taken / by:.2f}")
    print(f"memory beyond that of log_likelihood: {extra:.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
