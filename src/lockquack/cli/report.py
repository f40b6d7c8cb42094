"""``lockquack report``: one page about a combination, for people."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace

from lockquack.cli.commands import DOUBTFUL, Command
from lockquack.cli.options import (
    add_cluster,
    add_fit,
    add_methods,
    add_output,
    add_path,
    add_sources,
    progressbar,
)
from lockquack.cli.requiring import require


def _add_options(parser: ArgumentParser) -> None:
    add_sources(parser)
    group = parser.add_argument_group("report")
    add_path(group, "where the page goes", "report.html")
    group.add_argument("--title", metavar="TEXT", help="heading of the page")
    add_methods(group, "methods to compare with, as for lockquack compare; none: no comparison")
    group.add_argument(
        "--thorough",
        action=BooleanOptionalAction,
        help="whether to compare methods and to examine calibration (default: where that takes "
        "minutes at most)",
    )
    add_fit(parser)
    add_cluster(parser)
    add_output(parser, tables=False)


def _run(options: Namespace) -> int:
    require("matplotlib", "cli")
    from lockquack.cli.fitting import fit_models, is_doubtful
    from lockquack.cli.output import hear_warnings, require_writable, say
    from lockquack.cli.sources import read_models
    from lockquack.parallel.cluster import cluster
    from lockquack.report import write_report

    require_writable(options, files=[options.output])
    with cluster(options.cluster, options.workers), hear_warnings(options) as heard:
        fit = fit_models(read_models(options), options)
        write_report(
            fit,
            options.output,
            title=options.title,
            command=options.command_line,
            methods=() if options.methods == ("none",) else options.methods,
            cv=options.cv,
            thorough=options.thorough,
            progressbar=progressbar(options),
        )
        heard.clear()  # the page tells, with what to do about it
        say(f"written: {options.output}", options)
    return DOUBTFUL if is_doubtful(fit) or (options.strict and fit.remarks) else 0


COMMAND = Command(
    name="report",
    summary="write one page about the combination, for people",
    description="Combine models and write one page that a colleague can open in a browser: "
    "weights, scores, calibration, pictures, and what to do about each warning.",
    examples=(
        "lockquack report normal.nc student.nc -o report.html",
        'lockquack report a.nc b.nc --family "normal(mu=mu, sigma=sigma)" --title "Two models"',
    ),
    add_options=_add_options,
    run=_run,
)
