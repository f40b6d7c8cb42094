"""``lockquack compare``: every way to combine models, side by side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from lockquack.cli.commands import DOUBTFUL, Command
from lockquack.cli.options import (
    DISTANCES,
    add_by,
    add_cluster,
    add_methods,
    add_output,
    add_scores,
    add_sources,
    choice,
    progressbar,
)
from lockquack.cli.wording import shell_words


def _add_options(parser: ArgumentParser) -> None:
    add_sources(parser)
    group = parser.add_argument_group("comparing")
    add_methods(
        group, 'which methods, such as "lock,stack,select" (default: all that these models allow)'
    )
    group.add_argument(
        "--rule",
        type=choice("rule", DISTANCES),
        metavar="NAME",
        help="the score that decides, instead of the log score: crps, or energy for vectors "
        "(default: these where a model has no densities)",
    )
    add_scores(group)
    add_by(group)
    group.add_argument(
        "--recalibrated",
        action="store_true",
        help="add each method with its predictions recalibrated",
    )
    group.add_argument(
        "--metrics",
        action="store_true",
        help="add CRPS, coverage and width of 90 %% intervals, RMSE and R2 of the means",
    )
    add_cluster(parser)
    add_output(parser)


def _run(options: Namespace) -> int:
    from lockquack.cli.fitting import hyvarinen
    from lockquack.cli.output import Line, Result, hear_warnings, require_writable, write_result
    from lockquack.cli.sources import read_by, read_models
    from lockquack.methods.compare import compare
    from lockquack.parallel.cluster import cluster

    require_writable(options, files=[options.output])
    with cluster(options.cluster, options.workers), hear_warnings(options) as heard:
        models = read_models(options)
        table = compare(
            models,
            options.methods,
            cv=options.cv,
            by=read_by(options),
            rule=options.rule,
            weights=options.weights,
            hyvarinen=hyvarinen(options),
            scores=options.scores,
            recalibrated=options.recalibrated,
            metrics=options.metrics,
            random_seed=options.seed,
            progressbar=progressbar(options),
        )
        left_out = table.attrs["left_out"]
        record = {
            "observations": table.attrs["observations"],
            "case_weights": table.attrs["case_weights"],
            "cv": options.cv,
            "recommended": table.recommended,
            "table": table,
        }
        about = (table.legend(), table.attrs["why_led"], table.caution)
        below = [Line(said) for said in about if said]
        below += map(Line, table.left_out(shell_words))
        record["left_out"] = {name: shell_words(why) for name, why in left_out.items()}
        record["notes"] = [remark.summary() for remark in heard]
        shown = table.rounded()
        numbers = [name for name in shown if name not in ("verdict", "flags", "weights")]
        result = Result([table.heading, table.advice], shown, numbers, below, table, record)
        write_result(result, options)
        return DOUBTFUL if options.strict and heard else 0


COMMAND = Command(
    name="compare",
    summary="compare all ways to combine models, cross-validated",
    description="Compare all ways to combine models, cross-validated, the best first. Above the "
    "table stands what it recommends; verdict says whether the distance to the best is noise, "
    "flags what makes it unreliable; w(NAME) is the weight of a model, weights those of all.",
    examples=(
        "lockquack compare normal.nc student.nc",
        'lockquack compare a.nc b.nc --methods "lock,stack,pseudo-BMA+" --csv > table.csv',
        "lockquack compare a.nc b.nc --recalibrated --metrics",
        "lockquack compare a.nc b.nc --rule crps",
    ),
    add_options=_add_options,
    run=_run,
)
