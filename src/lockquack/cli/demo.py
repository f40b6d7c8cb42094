"""``lockquack demo``: three regressions on real data."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from lockquack.cli.commands import Command
from lockquack.cli.options import add_path
from lockquack.cli.requiring import require


def _add_options(parser: ArgumentParser) -> None:
    add_path(parser, "where the picture goes", "demo-output/diabetes.png")


def _run(options: Namespace) -> int:
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
