"""``lockquack compare``: every way to combine models, side by side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from lockquack.cli.commands import DOUBTFUL, Command
from lockquack.cli.options import (
    add_cluster,
    add_output,
    add_scores,
    add_sources,
    count,
    few_threads,
    progressbar,
)
from lockquack.cli.wording import by_reason, shell_words

if TYPE_CHECKING:
    import pandas as pd


def _add_options(parser: ArgumentParser) -> None:
    add_sources(parser)
    group = parser.add_argument_group("comparing")
    group.add_argument(
        "--methods",
        metavar="NAME[,NAME...]",
        help='which methods, such as "lock,stack,select" (default: all that these models allow)',
    )
    group.add_argument(
        "--cv", type=count, default=10, metavar="N", help="folds of cross-validation (default: 10)"
    )
    add_scores(group)
    add_cluster(parser)
    add_output(parser)


def _run(options: Namespace) -> int:
    few_threads()
    from lockquack.cli.output import Line, Result, hear_warnings, require_writable, write_result
    from lockquack.cli.sources import read_models
    from lockquack.methods.compare import compare
    from lockquack.parallel.cluster import cluster
    from lockquack.rules import Hyvarinen

    require_writable(options.output, options)
    methods = options.methods and [name.strip() for name in options.methods.split(",")]
    with cluster(options.cluster, options.workers), hear_warnings(options) as heard:
        models = read_models(options)
        table = compare(
            models,
            methods,
            cv=options.cv,
            hyvarinen=Hyvarinen(transform=options.score_transform),
            scores=options.scores,
            random_seed=options.seed,
            progressbar=progressbar(options),
        )
        observations = next(iter(models.values())).observations.n
        left_out = table.attrs["left_out"]
        record = {"observations": observations, "cv": options.cv, "table": table}
        above = [
            "Ways to combine, weights cross-validated (larger is better)",
            f"models: {len(models)}   observations: {observations}   folds: {options.cv}",
        ]
        below = [Line(f"Left out: {names}. {why}") for why, names in by_reason(left_out).items()]
        record["left_out"] = {name: shell_words(why) for name, why in left_out.items()}
        record["notes"] = [remark.summary() for remark in heard]
        shown = _shown(table)
        numbers = [name for name in shown if name != "verdict"]
        result = Result(above, shown, numbers, below, table, record)
        write_result(result, options)
        return DOUBTFUL if options.strict and heard else 0


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """Round for reading; where there is no log score, the Hyvärinen score leads."""
    columns = ["elpd", "elpd_diff", "dse", "verdict"]
    if table["elpd"].isna().all():
        columns = ["hyvarinen", "hyvarinen_diff", "hyvarinen_dse", "verdict"]
    weights = [name for name in table if str(name).startswith("weight[")][:6]
    shown = table[[*columns, "bad_k", *weights]].copy()
    for column in columns[:3]:
        shown[column] = [f"{value:.1f}" for value in table[column]]
    for weight in weights:
        shown[weight] = [f"{value:.3f}" for value in table[weight]]
    shown["bad_k"] = table["bad_k"].astype(str)
    shown = shown.rename(columns=lambda name: str(name).removeprefix("weight[").rstrip("]"))
    return shown.rename_axis(index=None)


COMMAND = Command(
    name="compare",
    summary="compare all ways to combine models, cross-validated",
    description="Compare all ways to combine models, cross-validated, the best first. verdict says "
    "whether the distance to the best is noise; bad_k, how many observations have a high Pareto k; "
    "the columns called like the models are their weights.",
    examples=(
        "lockquack compare normal.nc student.nc",
        'lockquack compare a.nc b.nc --methods "lock,stack,pseudo-BMA+" --csv > table.csv',
    ),
    add_options=_add_options,
    run=_run,
)
