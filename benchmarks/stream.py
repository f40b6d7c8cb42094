"""Lock a stream of observations that never exists as a whole; print time and memory.

    .venv/bin/python benchmarks/stream.py --observations 1e8

Two normal models with a few hundred draws, a million observations at a time.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import lockquack as lq

AT_ONCE = 1_000_000


def part(mu: np.ndarray, n: int, rng: np.random.Generator) -> dict[str, lq.Model]:
    """Make both models of some new observations."""
    y = rng.normal(1.0, 1.5, size=n)
    return {
        "narrow": lq.from_family("normal", y=y, mu=mu, sigma=1.0),
        "wide": lq.from_family("normal", y=y, mu=mu, sigma=3.0),
    }


def main() -> None:
    """Stream, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=float, default=1e7)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    mu = rng.normal(1.0, 0.01, size=(4, options.draws // 4))
    began, n = time.process_time(), int(options.observations)
    fit = lq.running_lock(part(mu, min(n, AT_ONCE), rng))
    while fit.n_obs < n:
        fit = fit.update(part(mu, min(n - fit.n_obs, AT_ONCE), rng))
    took = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(fit)
    cells = 2 * n * mu.size
    print(f"{took:.0f} s of processor time, {1e9 * took / cells:.2f} ns per draw and observation")
    print(f"{peak:.0f} MiB resident at most")


if __name__ == "__main__":
    main()
