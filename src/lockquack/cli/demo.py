"""``lockquack demo``: three regressions on real data."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from lockquack.cli.commands import Command
from lockquack.cli.options import few_threads
from lockquack.cli.requiring import require


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("demo-output/diabetes.png"),
        metavar="FILE",
        help="where the picture goes (default: demo-output/diabetes.png)",
    )


def _run(options: Namespace) -> int:
    few_threads()
    require("matplotlib", "demo")
    require("sklearn", "demo")
    from lockquack import demo

    demo.main(options.output)
    return 0


COMMAND = Command(
    name="demo",
    summary="combine three regressions on real data",
    description="Combine three regressions on real data and draw their predictions.",
    examples=("lockquack demo",),
    add_options=_add_options,
    run=_run,
)
