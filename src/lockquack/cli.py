"""The command line: ``lockquack paper`` and ``lockquack demo``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lockquack.errors import LockquackError

#: Kept apart from their home, so that asking for help imports nothing; a test compares them.
EXPERIMENTS = ("weights", "scores", "sampling", "overfitting", "demo")
FORMATS = ("png", "pdf", "svg")


def build_parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    parser = argparse.ArgumentParser(
        prog="lockquack",
        description="Combine the predictions of several Bayesian models.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    paper = commands.add_parser(
        "paper",
        help="run the paper's experiments again",
        description="Run the experiments of Yao, Carvalho, Mesquita and McLatchie (2023) again: "
        "figures and the tables behind them. An interrupted run goes on where it stopped.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    paper.set_defaults(run=_paper)
    paper.add_argument(
        "experiment", nargs="?", default="all", choices=("all", *EXPERIMENTS), help="which of them"
    )
    paper.add_argument("--replications", type=_count, default=100, metavar="N", help="how many")
    paper.add_argument("--seed", type=int, default=0, metavar="S", help="seed of everything random")
    paper.add_argument(
        "--output", type=Path, default=Path("paper-output"), metavar="DIR", help="where files go"
    )
    paper.add_argument(
        "--workers", type=_count, default=os.cpu_count() or 1, metavar="N", help="processes"
    )
    paper.add_argument("--cluster", metavar="ADDRESS", help="dask scheduler to run on instead")
    paper.add_argument(
        "--format", type=_formats, default="png", metavar="png,pdf,svg", help="of the figures"
    )
    demo = commands.add_parser(
        "demo",
        help="combine three regressions on real data",
        description="Combine three regressions on real data and draw their predictions.",
    )
    demo.set_defaults(run=_demo)
    demo.add_argument(
        "--output", type=Path, default=Path("demo-output/diabetes.png"), metavar="FILE"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("\nInterrupted. What is done is kept; the same command goes on.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has gone, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except LockquackError as error:
        print(f"lockquack: {error}", file=sys.stderr)
        return 1
    return 0


def _paper(options: argparse.Namespace) -> None:
    # Before numpy is imported: on small matrices several threads get into each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from lockquack.paper.experiments import EXPERIMENTS as KNOWN
    from lockquack.paper.experiments import Order
    from lockquack.paper.runner import Runner

    _require("matplotlib", "plots")
    runner = Runner(options.output, options.seed, options.workers, options.cluster)
    order = Order(runner, options.replications, options.format)
    wanted = EXPERIMENTS if options.experiment == "all" else (options.experiment,)
    for name in wanted:
        report = KNOWN[name](order)
        print(f"{report.summary}\n")
        for path in report.files:
            print(f"  {path}")
        print(flush=True)


def _demo(options: argparse.Namespace) -> None:
    from lockquack import demo

    _require("matplotlib", "demo")
    _require("sklearn", "demo")
    sys.argv = ["lockquack demo", str(options.output)]
    demo.main()


def _require(module: str, extra: str) -> None:
    """Say what to install before hours of work, not after."""
    if find_spec(module) is None:
        raise LockquackError(
            f"This needs {module}, which is not installed: pip install 'lockquack[{extra}]'."
        )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {number}")
    return number


def _formats(text: str) -> tuple[str, ...]:
    chosen = tuple(part.strip() for part in text.split(","))
    unknown = [part for part in chosen if part not in FORMATS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown format {unknown[0]!r}; choose {','.join(FORMATS)}"
        )
    return chosen
