"""``lockquack weights``: combine models, show their weights."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockquack.cli.commands import DOUBTFUL, Command
from lockquack.cli.options import add_cluster, add_fit, add_output, add_sources, count, progressbar
from lockquack.cli.wording import shell_words

if TYPE_CHECKING:
    import pandas as pd

    from lockquack.cli.output import Line
    from lockquack.combination.combination import Combination
    from lockquack.combination.influence import Influence


def _add_options(parser: ArgumentParser) -> None:
    add_sources(parser)
    add_fit(parser)
    parser.add_argument(
        "--bootstrap",
        type=count,
        metavar="N",
        help="draws of the Bayesian bootstrap behind errors and intervals of the weights",
    )
    parser.add_argument(
        "--influence",
        nargs="?",
        type=count,
        const=5,
        metavar="N",
        help="the weights without each of the N observations that move them most (5)",
    )
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write the fit to NetCDF or Zarr, for lq.load"
    )
    add_cluster(parser)
    add_output(parser)


def _run(options: Namespace) -> int:
    from lockquack.cli.fitting import fit_models, is_doubtful
    from lockquack.cli.output import Result, hear_warnings, require_writable, say, write_result
    from lockquack.cli.sources import read_models
    from lockquack.parallel.cluster import cluster
    from lockquack.report.table import header, rounded_table

    require_writable(options, files=[options.output], stores=[options.save])
    with cluster(options.cluster, options.workers), hear_warnings(options) as heard:
        fit = fit_models(read_models(options), options)
        table = _table(fit, options)
        if not (options.json or options.csv or options.output):
            # The table shows them.
            heard[:] = [remark for remark in heard if remark not in fit.remarks]
        shown, record = rounded_table(table), _record(fit, table)
        below = _below(fit)
        if options.influence is not None:
            found = fit.influence(progressbar=progressbar(options))
            record["influence"] = found.to_dataframe(options.influence)
            below += _without_one(found, options.influence)
        result = Result(header(fit), shown, list(shown), below, table, record)
        if options.save is not None:  # before whoever reads the table may go away
            fit.save(options.save)
            say(f"written: {options.save}", options)
        write_result(result, options)
    return DOUBTFUL if is_doubtful(fit) or (options.strict and fit.remarks) else 0


def _table(fit: Combination, options: Namespace) -> pd.DataFrame:
    """Return the combination's table, with errors from as many bootstrap draws as asked for."""
    table = fit.to_dataframe()
    if options.bootstrap is None:
        return table
    draws = fit.bootstrap(
        options.bootstrap, random_seed=options.seed, progressbar=progressbar(options)
    )
    if fit.design is not None:
        draws = draws.mean([dim for dim in draws.dims if dim not in ("draw", "model")])
    rows = list(fit.names)
    table.loc[rows, "weight_se"] = draws.std("draw", ddof=1).values
    for column, p in (("weight_5%", 0.05), ("weight_95%", 0.95)):
        table.loc[rows, column] = draws.quantile(p, "draw").values
    return table


def _below(fit: Combination) -> list[Line]:
    from lockquack.cli.output import Line
    from lockquack.report.table import note, solution_lines

    notes = (Line(shell_words(note(remark)), "remark") for remark in fit.remarks)
    return [*(Line(shell_words(line)) for line in solution_lines(fit)), *notes]


def _without_one(found: Influence, most: int) -> list[Line]:
    from lockquack.cli.output import Line

    rows = found.to_dataframe(most)
    said = []
    for name, row in rows.iterrows():
        weights = ", ".join(f"{model} {row[f'weight[{model}]']:.3f}" for model in found.names)
        said.append(Line(f"Without observation {name}: {weights} ({row['moved']:.3f} moves)"))
    return [*said, Line(found.lines[0])]


def _record(fit: Combination, table: pd.DataFrame) -> dict[str, Any]:
    from lockquack import __version__

    return {
        "operator": fit.operator.name,
        "rule": fit.rule.name,
        "scores": fit.scores,
        "observations": fit.observations.n,
        "case_weights": fit.objective.n_counted if fit.observations.weights is not None else None,
        "weights": table["weight"].iloc[1:].to_dict(),
        "by": None if fit.design is None else fit.what_varies,
        "parameters": {str(name): each.values for name, each in fit.parameters.data_vars.items()},
        "table": table,
        "converged": bool(fit.solution.converged),
        "certificate": fit.fitter.certificate(fit.solution),
        "notes": [remark.summary() for remark in fit.remarks],
        "lockquack": __version__,
    }


COMMAND = Command(
    name="weights",
    summary="combine models, show their weights",
    description="Combine models and show their weights, scores and how far to trust them. "
    "Exit status 3: the solver did not converge.",
    examples=(
        "lockquack weights normal.nc student.nc",
        "lockquack weights normal.nc student.nc --family normal=normal --family student=student_t",
        "lockquack weights a.nc b.nc --operator linear --json",
        "lockquack weights a.nc b.nc --influence",
        "lockquack weights 'normal-*.csv' 'student-*.csv' --y data.csv:y",
        'lockquack weights a=fit1.nc b=fit2.nc --family "normal(mu=mu, sigma=sigma)"',
    ),
    add_options=_add_options,
    run=_run,
)
