"""How long the PyMC and Bambi adapters take next to ``pm.compute_log_likelihood``.

Run with an environment that has PyMC: ``python benchmarks/ppl.py``. Every line is one model:
the log likelihood alone by PyMC, then log density, gradient and curvature at every draw and
observation by lockquack, from the model to averages over the draws; the best of five runs, in
turns, after the first, which compiles; in CPU time. The ratio should stay below 3.
"""

from __future__ import annotations

import argparse
import logging
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
CHAINS = 4


def student_t(n: int, draws: int, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Build a regression with three covariates and unknown degrees of freedom."""
    import pymc as pm

    X = rng.normal(size=(n, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.standard_t(4, size=n)
    with pm.Model() as model:
        x = pm.Data("x", X)
        beta = pm.Normal("beta", 0, 1, shape=3)
        sigma, nu = pm.HalfNormal("sigma"), pm.Gamma("nu", 2, 0.1)
        pm.StudentT("y", nu=nu, mu=x @ beta, sigma=sigma, observed=y)
    shape = (CHAINS, draws)
    return model, {
        "beta": rng.normal([1.0, 2.0, 3.0], 0.03, size=(*shape, 3)),
        "sigma": np.exp(rng.normal(0, 0.03, size=shape)),
        "nu": 4 + 0.1 * rng.gamma(2.0, size=shape),
    }


def hierarchical_gamma(n: int, draws: int, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Build a model of positive outcomes in groups, with log link."""
    import pymc as pm

    group = rng.integers(20, size=n)
    y = rng.gamma(5.0, np.exp(0.1 * group) / 5.0)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0, 1, shape=20)
        alpha = pm.HalfNormal("alpha", 5)
        pm.Gamma("y", alpha=alpha, beta=alpha * pm.math.exp(-effect[group]), observed=y)
    shape = (CHAINS, draws)
    return model, {
        "effect": rng.normal(0.1 * np.arange(20), 0.05, size=(*shape, 20)),
        "alpha": 5 * np.exp(rng.normal(0, 0.03, size=shape)),
    }


def mv_normal(n: int, draws: int, rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """Build a model of outcomes with three components."""
    import pymc as pm

    y = rng.normal(size=(n, 3))
    with pm.Model() as model:
        mu, scale = pm.Normal("mu", 0, 1, shape=3), pm.HalfNormal("scale")
        pm.MvNormal("y", mu, chol=scale * np.linalg.cholesky(0.5 * np.eye(3) + 0.5), observed=y)
    shape = (CHAINS, draws)
    return model, {
        "mu": rng.normal(0, 0.05, size=(*shape, 3)),
        "scale": np.exp(rng.normal(0, 0.03, size=shape)),
    }


def container(draws: dict[str, Any]) -> Any:
    """Hold draws as the installed PyMC returns them."""
    import pymc as pm
    import xarray as xr

    posterior = xr.Dataset(
        {
            name: (("chain", "draw", *(f"{name}_{i}" for i in range(value.ndim - 2))), value)
            for name, value in draws.items()
        }
    )
    if pm.__version__.startswith("5."):
        import arviz as az

        return az.InferenceData(posterior=posterior)
    return xr.DataTree.from_dict({"posterior": posterior})


def alternate(works: Sequence[Callable[[], object]], times: int = 5) -> tuple[Array, Array]:
    """CPU time of each piece of work: of its first run, and the best of those that follow.

    They take turns, so that whatever else the machine does slows all of them.
    """
    used = np.empty((1 + times, len(works)))
    for row in used:
        for k, work in enumerate(works):
            start = time.process_time()
            work()
            row[k] = time.process_time() - start
    return used[0], used[1:].min(axis=0)


def compare(make: Callable[..., Any], n: int, draws: int) -> None:
    """Print one line."""
    import pymc as pm

    from lockquack.sources.pymc import from_pymc

    model, values = make(n, draws, np.random.default_rng(1))
    idata = container(values)
    taken = from_pymc(model, idata)

    def theirs() -> object:
        return pm.compute_log_likelihood(
            idata, model=model, extend_inferencedata=False, progressbar=False
        )

    def ours() -> object:
        return from_pymc(model, idata).collapse("in-sample", progressbar=False)

    def one_pass() -> object:
        return replace(taken).collapse("in-sample", progressbar=False)

    first, best = alternate([theirs, ours, one_pass])
    tracemalloc.start()
    ours()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    print(
        f"{make.__name__:20s} n={n:<6d} S={CHAINS * draws}: compute_log_likelihood "
        f"{best[0]:6.2f} s (first {first[0]:5.1f}), lockquack {best[1]:6.2f} s "
        f"(first {first[1]:5.1f}, pass alone {best[2]:6.2f}), peak {peak:4.0f} MB, "
        f"ratio {best[1] / best[0]:.2f}, first {first[1] / first[0]:.2f}",
        flush=True,
    )


def main() -> None:
    """Compare all models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="draws of each of four chains")
    parser.add_argument("--large", action="store_true", help="also ten thousand observations")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import pymc as pm

    print(f"PyMC {pm.__version__}")
    compare(student_t, 1000, options.draws)
    compare(hierarchical_gamma, 1000, options.draws)
    compare(mv_normal, 1000, options.draws)
    if options.large:
        compare(student_t, 10_000, options.draws)


if __name__ == "__main__":
    main()
