"""Measure lockquack beside its peers and beside the machine; write docs/benchmarks.md.

``make bench``, or ``python benchmarks/run.py [--python-of-bayesblend PATH]``. Contestants run in
processes of their own, one after the other, on the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from after_weights import BEFORE, CASES, measure_after
from kernels import measure_growth, measure_passes, measure_psis, measure_solvers
from pictures import draw
from problems import CHAINS, DRAWS, n_models, read, write_draws, write_elpds, write_far_elpds
from scipy.special import logsumexp
from workers import measure_workers

from lockquack.draws.psis import loo_densities
from lockquack.solvers.mixture_proportions import mixture_proportions

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
RESULTS = HERE.parent / "build" / "benchmarks.json"
#: Seconds after which a contestant has given no answer.
PATIENCE = 200
DRAW_SIZES = [(4, 100), (4, 1000), (4, 3000)]
ELPD_SIZES = [(3, 1000), (20, 1000), (100, 1000), (20, 100_000)]
FAR_SIZES = [(3, 1000), (20, 1000)]
WRITERS = {"draws": write_draws, "elpds": write_elpds, "far": write_far_elpds}

Row = dict[str, Any]


def contestants(python_of_bayesblend: str | None) -> dict[str, list[str]]:
    """Commands of the contestants that are here."""
    folder = HERE / "contestants"
    found = {
        name: [sys.executable, str(folder / f"{script}.py")]
        for name, script in [
            ("lockquack, lock", "lockquack_lock"),
            ("lockquack, stack", "lockquack_stack"),
            ("arviz-stats", "arviz_stats_stack"),
        ]
    }
    if python_of_bayesblend is not None and _has(python_of_bayesblend, "bayesblend"):
        found["bayesblend"] = [python_of_bayesblend, str(folder / "bayesblend_stack.py")]
    if shutil.which("Rscript") is not None:
        found["R loo"] = ["Rscript", str(folder / "loo_stack.R")]
    return found


def ask(command: list[str], task: str, folder: Path) -> Row:
    """Let a contestant work; return what it printed, or how it failed."""
    try:
        done = subprocess.run(
            [*command, task, str(folder)], capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"no answer in {PATIENCE} s"}
    if done.returncode != 0:
        return {"failure": done.stderr.strip().splitlines()[-1].split(":")[0].split(".")[-1]}
    return json.loads(done.stdout)


def contest(task: str, sizes: list[tuple[int, int]], commands: dict[str, list[str]]) -> list[Row]:
    """Give the same files to all contestants."""
    rows = []
    for K, n in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            WRITERS[task](folder, K, n)
            loo, inside = densities(folder, task)
            for who, command in commands.items():
                if task != "draws" and who == "lockquack, lock":
                    continue
                print(f"{task}, K = {K}, n = {n}: {who}", flush=True)
                answer = ask(command, task, folder)
                row = {"who": who, "K": K, "n": n, **answer}
                if "weights" in answer and who != "lockquack, lock":
                    lpd = inside if who == "bayesblend" else loo
                    row["below"] = nats_below_best(lpd, np.array(answer["weights"]))
                rows.append(row)
    return rows


def densities(folder: Path, task: str) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out and in-sample log densities of the models, (obs, model)."""
    if task != "draws":
        elpd = read(folder, "elpd")
        return elpd, elpd
    loo, inside = [], []
    for k in range(n_models(folder)):
        logp = read(folder, f"logp_{k}")
        inside.append(logsumexp(logp, axis=(0, 1)) - np.log(CHAINS * DRAWS))
        loo.append(loo_densities(np.moveaxis(logp, -1, 0).reshape(logp.shape[-1], -1))[0])
    return np.stack(loo, axis=1), np.stack(inside, axis=1)


def nats_below_best(lpd: np.ndarray, weights: np.ndarray) -> float:
    """How far weights stay below the certified optimum; those that do not sum to one are scaled."""

    def total(w: np.ndarray) -> float:
        with np.errstate(divide="ignore"):
            return float(logsumexp(lpd + np.log(np.maximum(w, 0.0)), axis=1).sum())

    return total(mixture_proportions(lpd).x) - total(weights / weights.sum())


def main() -> None:
    """Measure everything and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python-of-bayesblend", help="interpreter that has bayesblend")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of short measurements")
    commands = contestants(parser.parse_known_args()[0].python_of_bayesblend)
    measures: dict[str, Callable[[], Any]] = {
        "machine": lambda: describe_machine(commands),
        "draws": lambda: contest("draws", DRAW_SIZES, commands),
        "elpds": lambda: contest("elpds", ELPD_SIZES, commands),
        "far": lambda: contest("far", FAR_SIZES, commands),
        "passes": lambda: measure_passes(10_000, options.rounds),
        "psis": lambda: measure_psis(1000, options.rounds),
        "solvers": lambda: measure_solvers(options.rounds),
        "after": measure_after,
        "growth": lambda: measure_growth(options.rounds),
        "workers": measure_workers,
    }
    parser.add_argument(
        "--only", nargs="+", choices=measures, help="measure these anew, keep the others' results"
    )
    options = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    results = json.loads(RESULTS.read_text()) if options.only else {}
    for name in options.only or measures:
        print(name, flush=True)
        results.setdefault("busy", {})[name] = os.getloadavg()[0]
        results[name] = measures[name]()
        RESULTS.write_text(json.dumps(results))
    draw(results, DOCS / "images" / "benchmarks.png")
    (DOCS / "benchmarks.md").write_text(write_page(results))


def describe_machine(commands: dict[str, list[str]]) -> str:
    """Say in words what this ran on."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    said = [
        f"{cores} cores of a virtual {platform.machine()} machine with {memory:.0f} GB",
        f"Python {platform.python_version()}",
        ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba", "arviz-stats")),
    ]
    if "bayesblend" in commands:
        asked = "from importlib.metadata import version as v; print(v('bayesblend'), v('numpy'))"
        found = _output([commands["bayesblend"][0], "-c", asked]).split()
        said.append("bayesblend {} with numpy {}".format(*found))
    if "R loo" in commands:
        asked = 'cat(R.version$major, R.version$minor, format(packageVersion("loo")))'
        said.append("R {}.{} with loo {}".format(*_output(["Rscript", "-e", asked]).split()))
    return "; ".join(said)


def _has(python: str, package: str) -> bool:
    return (
        Path(python).exists() and not subprocess.run([python, "-c", f"import {package}"]).returncode
    )


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write_page(results: dict[str, Any]) -> str:
    """Put the results into Markdown."""
    tables = {
        "draws": _contest_table(results["draws"]),
        "elpds": _contest_table(results["elpds"]),
        "far": _contest_table(results["far"]),
        "passes": _table(
            ["work", "threads", "ms", "ratio", "extra memory"],
            [
                [
                    row["work"],
                    row["threads"],
                    f"{1e3 * row['seconds']:.0f}",
                    "" if row["ratio"] is None else f"{row['ratio']:.2f}",
                    "" if row["extra"] is None else f"{100 * row['extra']:.1f} %",
                ]
                for row in results["passes"]
            ],
        ),
        "psis": _table(
            ["by", "µs", "times as fast"],
            [
                [row["work"], f"{1e6 * row['seconds']:.0f}", f"{row['ratio']:.1f}"]
                for row in results["psis"]
            ],
        ),
        "solvers": _table(
            ["weights", "seconds", "certified gap"],
            [
                [
                    row["work"],
                    _seconds(row["seconds"]),
                    "" if row["gap"] is None else f"{row['gap']:.0e}",
                ]
                for row in results["solvers"]
            ],
        ),
        "growth": _table(
            ["size", "from", "to", "exponent of time", "of memory"],
            [
                [
                    row["axis"],
                    *(f"{row['places'][end]:,}" for end in (0, -1)),
                    *(f"{row[power]:.2f}" for power in ("exponent", "memory")),
                ]
                for row in results["growth"]
            ],
        ),
        "workers": _table(
            ["work", "on", "seconds", "speed-up", "exponent of time", "of memory"],
            [
                [
                    row["work"],
                    f"{places[0]} to {places[-1]} {row['by']}",
                    " to ".join(_seconds(row["seconds"][end]) for end in (0, -1)),
                    f"{row['seconds'][0] / row['seconds'][-1]:.2f}",
                    *(f"{row[power]:.2f}" for power in ("exponent", "memory")),
                ]
                for row in results["workers"]
                for places in [row["places"]]
            ],
        ),
    }
    return (
        (HERE / "page.md")
        .read_text()
        .format(
            machine=results["machine"],
            busy=", ".join(
                f"{load:.1f} ({name})"
                for name, load in results["busy"].items()
                if name != "machine"
            ),
            sample=f"{CHAINS} chains of {DRAWS:,}",
            difference=f"{results['psis'][0]['difference']:.0e}",
            **after_tables(results["after"]),
            **tables,
        )
    )


def after_tables(found: dict[str, Any]) -> dict[str, str]:
    """Put what comes after the weights into tables, in units of plain numpy."""
    plain = found["numpy"]["seconds"]["numpy"]
    names = ("logpdf", "sample", "coverage", "compare", "report")
    rows = [
        [
            "normal, two models of PyMC's" if family == "pymc" else family.replace("_", " "),
            *(_beside(found, family, name, plain) for name in names),
            "" if family == "pymc" else f"{found[family]['error']:.0e}",
        ]
        for family in CASES
        if "seconds" in found[family]
    ]
    large = found["large"]
    grown = found["growth"]["growth"]
    return {
        "after": _table(["likelihood", *names, "largest error"], rows),
        "plain": _seconds(plain),
        "before": BEFORE,
        "large": f"{_seconds(large['seconds']['logpdf'])} s and {large['megabytes']:.0f} MB",
        "exponents": ", ".join(
            f"{row['exponent']:.2f} of {row['axis']} ({row['places'][0]:,} to "
            f"{row['places'][-1]:,})"
            for row in grown
        ),
    }


def _beside(found: dict[str, Any], family: str, name: str, plain: float) -> str:
    """Write a time in units of another, and how many times that it was once."""
    seconds = found[family]["seconds"][name]
    before = found.get("before", {}).get(family, {}).get("seconds", {}).get(name)
    return f"{seconds / plain:.2f}" + (f" (1/{before / seconds:.0f})" if before else "")


def _contest_table(rows: list[Row]) -> str:
    reference = {
        (row["K"], row["n"]): row["seconds"] for row in rows if row["who"] == "lockquack, stack"
    }
    lines = []
    for row in rows:
        cells = [row.get("failure", ""), "", "", ""]
        if "seconds" in row:
            ratio = row["seconds"] / reference[row["K"], row["n"]]
            cells = [
                _seconds(row["seconds"]),
                f"{ratio:.2f}" if ratio < 1 else f"{ratio:,.0f}",
                _nats(row["below"]) if "below" in row else "",
                f"{row['extra'] / 2**20:,.0f} MB",
            ]
        lines.append([row["K"], f"{row['n']:,}", row["who"], *cells])
    return _table(["K", "n", "by", "seconds", "times `stack`", "below the best", "memory"], lines)


def _nats(value: float) -> str:
    return f"{max(value, 0.0):.1g}" if value < 10 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.1f}"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
