"""How near single steps come to what the machine can do."""

from __future__ import annotations

import os
import time
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import arviz_stats
import numpy as np
from arviz_base import from_dict

import lockquack as lq
from lockquack.draws.collapse import collapse
from lockquack.kernels import choice as kernels
from lockquack.models.source import Source
from lockquack.parallel.threads import thread_map
from lockquack.solvers.mixture_proportions import mixture_proportions
from lockquack.solvers.simplex_qp import simplex_qp

Array = np.ndarray[Any, Any]
Row = dict[str, Any]


def best_of(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds of each work, the best of several rounds in which they take turns."""
    best = dict.fromkeys(works, np.inf)
    for _ in range(rounds):
        for name, work in works.items():
            start = clock()
            work()
            best[name] = min(best[name], clock() - start)
    return best


def measure_passes(n_obs: int, rounds: int) -> list[Row]:
    """Compare the pass over draws with reading the same bytes, and with blocked numpy."""
    rng = np.random.default_rng(0)
    shape = (4, 1000, n_obs)
    grad, curv = rng.normal(size=shape), -rng.gamma(2.0, size=shape)
    logp = -0.5 * grad * grad
    model = lq.from_arrays(logp=logp, grad=grad, curv=curv, y=np.zeros(n_obs))
    rows = []
    for threads in (1, 2):
        os.environ["LOCKQUACK_NUM_THREADS"] = str(threads)

        def read() -> None:
            # Whole chains: long runs of memory, shared out among as many threads.
            list(thread_map(np.sum, [*grad, *curv]))

        def blocked(threads: int = threads) -> None:
            width = -(-n_obs // threads)
            groups = [slice(i, i + width) for i in range(0, n_obs, width)]
            list(thread_map(lambda obs: softmax_in_blocks(logp, grad, curv, obs), groups))

        for kind, reference, work, times in [
            ("leave-one-out", "np.sum of gradients and curvatures", read, 4 * rounds),
            ("in-sample", "online softmax in blocks of draws, plain numpy", blocked, rounds),
        ]:
            run = partial(collapse, model.source, "loo" if kind == "leave-one-out" else kind)
            own = {
                f"{kind} pass, compiled": run,
                f"{kind} pass, numpy alone": partial(in_numpy_alone, run),
            }
            run()  # compiles
            seconds = best_of({reference: work} | own, times)
            rows.append(
                {"work": reference, "threads": threads, "seconds": seconds[reference]}
                | {"ratio": None, "extra": None}
            )
            rows += [
                {"work": name, "threads": threads, "seconds": seconds[name]}
                | {"ratio": seconds[name] / seconds[reference]}
                | {"extra": extra_memory(own[name]) / (3 * grad.nbytes)}
                for name in own
            ]
    del os.environ["LOCKQUACK_NUM_THREADS"]
    return rows


def in_numpy_alone(work: Callable[[], object]) -> None:
    """Do some work as if there were no compiler."""
    limit, kernels._WORTH_COMPILING = kernels._WORTH_COMPILING, 2**62
    work()
    kernels._WORTH_COMPILING = limit


def softmax_in_blocks(
    logp: Array, grad: Array, curv: Array, obs: slice, block: int = 32
) -> tuple[Array, Array, Array]:
    """Log-mean-exp and two weighted means: the best plain numpy does, without any errors."""
    flat = [array.reshape(-1, array.shape[-1])[:, obs] for array in (logp, grad, curv)]
    n_draws, n_obs = flat[0].shape
    peak = np.full(n_obs, -np.inf)
    total, first, second = np.zeros((3, n_obs))
    for start in range(0, n_draws, block):
        terms, g, h = (array[start : start + block] for array in flat)
        higher = np.maximum(peak, terms.max(axis=0))
        weight, factor = np.exp(terms - higher), np.exp(peak - higher)
        total = total * factor + weight.sum(axis=0)
        first = first * factor + np.einsum("si,si->i", weight, g)
        second = second * factor + np.einsum("si,si->i", weight, h)
        peak = higher
    return peak + np.log(total / n_draws), first / total, second / total


def extra_memory(work: Callable[[], object]) -> int:
    """Bytes that some work allocates at most."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure_psis(n_obs: int, rounds: int) -> list[Row]:
    """Leave-one-out densities, from 4,000 draws in memory, by observation and processor time."""
    rng = np.random.default_rng(0)
    logp = -0.5 * np.square(rng.normal(size=n_obs) - 0.3 * rng.normal(size=(4, 1000, n_obs)))
    few = n_obs // 10
    tree = from_dict({"log_likelihood": {"y": logp[..., :few]}})

    def arviz() -> Array:
        return arviz_stats.loo(tree, var_name="y", pointwise=True, reff=1.0).elpd_i.values

    def own() -> Array:
        return lq.from_arrays(logp=logp, y=np.zeros(n_obs)).loo().logp

    os.environ["LOCKQUACK_NUM_THREADS"] = "1"
    seconds = best_of({"arviz-stats": arviz, "lockquack": own}, rounds, time.process_time)
    difference = float(np.abs(arviz() - own()[:few]).max())
    del os.environ["LOCKQUACK_NUM_THREADS"]
    each = {"arviz-stats": seconds["arviz-stats"] / few, "lockquack": seconds["lockquack"] / n_obs}
    return [
        {"work": name, "seconds": each[name], "difference": difference}
        | {"ratio": each["arviz-stats"] / each[name]}
        for name in each
    ]


def measure_solvers(rounds: int) -> list[Row]:
    """Weights after the pass: certified gaps beside times."""
    rng = np.random.default_rng(0)
    rows = []
    for K in (10, 50, 200):
        grad = rng.normal(size=(2000, K)) + rng.normal(size=(2000, 1))
        Q, c = grad.T @ grad, -rng.gamma(5.0, size=(2000, K)).sum(axis=0)
        work = {"": lambda Q=Q, c=c: simplex_qp(Q, c, 0.01)}
        gap = float(simplex_qp(Q, c, 0.01).gap)
        rows.append({"work": f"locking, K = {K}", "seconds": best_of(work, rounds)[""], "gap": gap})
    for K, n in ((20, 100_000), (54, 100_000), (100, 100_000)):
        place = rng.normal(size=K)
        noise = 0.3 * rng.normal(size=(n, K))
        elpd = -0.5 * np.square(rng.normal(size=(n, 1)) - place - noise)
        work = {"": lambda elpd=elpd: mixture_proportions(elpd)}
        gap = float(mixture_proportions(elpd).gap)
        rows.append(
            {"work": f"stacking, K = {K}, n = {n:,}", "seconds": best_of(work, 1)[""], "gap": gap}
        )
    K, n, replicates = 10, 100_000, 4000
    y = rng.normal(size=n)
    models = {
        str(k): lq.from_arrays(
            logp=np.zeros((1, 4, n)),
            grad=rng.normal(size=(1, 4, n)),
            curv=-rng.gamma(2.0, size=(1, 4, n)),
            y=y,
        )
        for k in range(K)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = lq.lock(models)
    seconds = best_of({"": lambda: fit.bootstrap(replicates, random_seed=1)}, 1)[""]
    name = f"{replicates:,} bootstrap replicates of locking, K = {K}, n = {n:,}"
    rows.append({"work": name, "seconds": seconds, "gap": None})
    return rows


def measure_growth(rounds: int) -> list[Row]:
    """Time and memory of the leave-one-out passes as one of n, S and K grows: their exponents."""
    rng = np.random.default_rng(0)
    rows = []
    smallest = {"n": 2000, "S": 1000, "K": 2}
    for axis in ("observations n", "draws S", "models K"):
        letter = axis[-1]
        places = [smallest[letter] * 2**power for power in range(5)]
        seconds, memory = [], []
        for place in places:
            size = smallest | {letter: place}
            draws = rng.normal(size=(4, size["S"] // 4, size["n"]))
            model = lq.from_arrays(logp=draws, grad=draws, curv=draws, y=np.zeros(size["n"]))

            def work(source: Source = model.source, K: int = size["K"]) -> None:
                for _ in range(K):
                    collapse(source)

            seconds.append(best_of({"": work}, rounds)[""])
            memory.append(extra_memory(work))
        rows.append({"axis": axis, **growth(places, seconds, memory)})
    return rows


def growth(places: list[int], seconds: list[float], memory: list[int]) -> Row:
    """Put measurements beside the powers of the places that they grow with."""
    exponent, of_memory = (
        float(np.polyfit(np.log(places), np.log(values), 1)[0]) for values in (seconds, memory)
    )
    return {"places": places, "seconds": seconds, "exponent": exponent, "memory": of_memory}
