"""``lockquack paper``: the paper's experiments."""

from __future__ import annotations

import argparse
import os

from lockquack.cli.commands import Command
from lockquack.cli.options import add_path, add_seed, choice, count, names
from lockquack.cli.requiring import require

#: Kept apart from their home, so that asking for help imports nothing; a test compares them.
EXPERIMENTS = ("weights", "scores", "sampling", "overfitting", "demo")
FORMATS = ("png", "pdf", "svg")


def _add_options(parser: argparse.ArgumentParser) -> None:
    known = ("all", *EXPERIMENTS)
    parser.add_argument(
        "experiment",
        nargs="?",
        default="all",
        type=choice("experiment", known),
        metavar="EXPERIMENT",
        help=f"{', '.join(known)} (default: all)",
    )
    parser.add_argument(
        "--replications",
        type=count,
        default=100,
        metavar="N",
        help="of each experiment (default: 100)",
    )
    add_seed(parser)
    add_path(parser, "where files go", "paper-output", "DIR")
    parser.add_argument(
        "--workers",
        type=count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="how many processes do the work (default: one for each processor)",
    )
    parser.add_argument("--cluster", metavar="ADDRESS", help="dask scheduler that does the work")
    parser.add_argument(
        "--format",
        type=_formats,
        default="png",
        metavar="png,pdf,svg",
        help="of the figures (default: png)",
    )


def _run(options: argparse.Namespace) -> int:
    require("matplotlib", "paper")
    from lockquack.paper.experiments import EXPERIMENTS as KNOWN
    from lockquack.paper.experiments import Settings
    from lockquack.paper.runner import Runner

    runner = Runner(options.output, options.seed, options.workers, options.cluster)
    settings = Settings(runner, options.replications, options.format)
    wanted = EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    for name in wanted:
        outputs = KNOWN[name](settings)
        print(f"{outputs.summary}\n")
        for path in outputs.files:
            print(f"  {path}")
        print(flush=True)
    return 0


def _formats(text: str) -> tuple[str, ...]:
    return tuple(map(choice("format", FORMATS), names(text)))


COMMAND = Command(
    name="paper",
    summary="run the paper's experiments again",
    description="Run the experiments of Yao, Carvalho, Mesquita and McLatchie (2023) again: "
    "figures and the tables behind them. An interrupted run goes on where it stopped.",
    examples=("lockquack paper", "lockquack paper weights --replications 10"),
    add_options=_add_options,
    run=_run,
)
