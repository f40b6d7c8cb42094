"""Effective draws per second of ``method="auto"`` against the paper's equal-mixture proposal.

Two Gaussian models of d components, eight standard deviations apart, each a posterior of several
draws. Run ``python benchmarks/sampling.py [draws of each model]``. It prints effective sample
sizes, seconds and their ratio; at least 10 is wanted.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import lockquack as lq
from lockquack.operators.pool import Pool
from lockquack.prediction.vectors import ModelTarget
from lockquack.sampling.samplers import Drawn, sample

WANTED = 2000
REPEATS = 3


def gaussian_models(
    d: int, distance: float, n_draws: int, rng: np.random.Generator
) -> dict[str, lq.Model]:
    """Two models whose draws of the mean scatter a little around places that far apart."""
    y = np.zeros((1, d))
    middle = np.zeros((2, 1, 1, d))
    middle[1, ..., 0] = distance
    mu = middle + 0.1 * rng.normal(size=(2, 1, n_draws, d))
    return {str(k): lq.from_family("mv_normal", y=y, mu=mu[k], cov=np.eye(d)) for k in (0, 1)}


def timed(target: ModelTarget, method: str) -> tuple[Drawn, float, float]:
    """Sample a few times; return the last draws, mean ESS and mean seconds."""
    sizes, seconds = [], []
    for seed in range(REPEATS):
        start = time.perf_counter()
        drawn = sample(target, WANTED, method, np.random.default_rng(seed))
        seconds.append(time.perf_counter() - start)
        sizes.append(drawn.ess)
    return drawn, float(np.mean(sizes)), float(np.mean(seconds))


def main() -> None:
    """Print the table."""
    n_draws = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"{WANTED} draws wanted from the equal log-linear pool, {n_draws} draws per model")
    print(
        f"{'d':>3} {'apart':>6} {'method':>12} {'ESS':>8} {'seconds':>8} {'ESS/s':>9} {'ratio':>7}"
    )
    for d in (1, 2, 5, 20):
        for distance in (2.0, 8.0):
            models = gaussian_models(d, distance, n_draws, np.random.default_rng(d))
            target = ModelTarget(models, Pool(lq.Locking(), np.array([0.5, 0.5]), 2), 0, loo=False)
            rates = []
            for method in ("mixture-is", "auto"):
                drawn, size, seconds = timed(target, method)
                rates.append(size / seconds)
                shown = drawn.method if method == "auto" else method
                ratio = f"{rates[-1] / rates[0]:7.1f}" if method == "auto" else ""
                print(
                    f"{d:>3} {distance:>6g} {shown:>12} {size:>8.0f} {seconds:>8.3f} "
                    f"{rates[-1]:>9.0f} {ratio}"
                )


if __name__ == "__main__":
    main()
