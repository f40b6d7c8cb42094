"""Score every method on held-out outcomes of real data; write docs/evidence.md.

``make evidence``, or ``python benchmarks/heldout.py [--repeats 2]``. Models and weights are fitted
anew to every training part. What was computed before is kept in build/heldout.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from evidence_page import write_page
from heldout_data import ENTRIES, Entry, Task
from heldout_scores import Member, Pooling, score
from numpy.typing import NDArray

import lockquack as lq
from lockquack.errors import LockquackError

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "evidence.md"
RESULTS = HERE.parent / "build" / "heldout.json"
FOLDS = 5
#: Processor seconds after which the weights of one method on one training part are given up.
PATIENCE = 10.0

Models = dict[str, lq.Model]
#: What is tried; where a method is not for an outcome, it is left out.
METHODS: dict[str, Callable[[Models], lq.Combination]] = {
    "stack": lq.stack,
    "lock": lq.lock,
    "lock, plain H": lambda models: lq.lock(models, rule=lq.Hyvarinen(transform=None)),
    "lock by log": lambda models: lq.lock(models, rule="log"),
    "lock by pairwise": lambda models: lq.lock(models, rule=lq.PairwiseScore()),
    "quack": lq.quack,
    "pseudo-BMA+": lq.pseudo_bma,
    "select": lq.select,
    "equal": lq.equal,
}


def run(entry: Entry, repeat: int) -> dict[str, Any]:
    """Cross-validate one data set: scores of each method and model at each observation."""
    task = entry.load()
    n = len(task.y)
    fold = np.random.default_rng([repeat, n]).permutation(n) % FOLDS
    found: dict[str, NDArray[np.float64]] = {}
    refused: dict[str, str] = {}
    started = time.process_time()
    for each in range(FOLDS):
        train = fold != each
        seed = FOLDS * repeat + each
        scored, why_not = run_fold(task, train, seed, without=set(refused))
        refused |= why_not
        for name, values in scored.items():
            found.setdefault(name, np.full((3, n), np.nan))[:, ~train] = values
    return {
        "n": n,
        "refused": refused,
        "seconds": time.process_time() - started,
        "scores": {name: v.tolist() for name, v in found.items() if np.isfinite(v).all()},
    }


def run_fold(
    task: Task, train: NDArray[np.bool_], seed: int, without: set[str]
) -> tuple[dict[str, NDArray[np.float64]], dict[str, str]]:
    """Fit models and weights to one part, score them on the rest; say which methods refused."""
    rng = np.random.default_rng(seed)
    members, models = [], {}
    for name, (likelihood, blocks) in task.models.items():
        X = task.design(blocks, train)
        draws = likelihood.fit(X[train], task.y[train], rng)
        members.append(Member(likelihood, draws, X[~train]))
        given = likelihood.family(draws.predictor(X[train]), draws.dispersion[..., None])
        models[name] = lq.from_family(y=task.y[train], **given)
    poolings: dict[str, Pooling] = {
        f"model {name}": lambda logp, k=k: logp[k] for k, name in enumerate(models)
    }
    refused = {}
    for name, method in METHODS.items():
        if name in without:
            continue
        try:
            with patience(PATIENCE):
                poolings[name] = pooling_of(method(models))
        except (LockquackError, TimeoutError) as error:
            refused[name] = str(error)
    counts = task.entry.kind == "count"
    return score(members, poolings, task.y[~train], counts=counts, seed=seed), refused


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Stop what takes longer, in processor time, by a TimeoutError."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"No weights in {seconds:g} s.")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def pooling_of(fit: lq.Combination) -> Pooling:
    """Return what makes one log density, not normalised, of (K, nodes, n)."""
    return lambda logp: fit.pool(logp, np.arange(logp.shape[-1]))


def main() -> None:
    """Run what has not been run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2, help="how often to cut into five parts")
    parser.add_argument("--anew", action="store_true", help="forget what was computed before")
    options = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    kept = RESULTS.exists() and not options.anew
    results = json.loads(RESULTS.read_text()) if kept else {}
    warnings.simplefilter("ignore")  # remarks on single fits
    for repeat in range(options.repeats):
        for entry in ENTRIES:
            if f"{entry.name} {repeat}" not in results:
                result = results[f"{entry.name} {repeat}"] = run(entry, repeat)
                print(f"{entry.name} {repeat}: {result['seconds']:.0f} s", flush=True)
                RESULTS.write_text(json.dumps(results))
    PAGE.write_text(write_page(results))


if __name__ == "__main__":
    main()
