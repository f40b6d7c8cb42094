"""``lockquack sample``: draw from the combination."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lockquack.cli.commands import DOUBTFUL, Command
from lockquack.cli.options import (
    add_cluster,
    add_fit,
    add_output,
    add_sources,
    choice,
    count,
    progressbar,
)

if TYPE_CHECKING:
    import xarray as xr

    from lockquack.models.model import Model

METHODS = ("auto", "inverse-cdf", "rejection", "importance", "smc", "mixture-is")


def _add_options(parser: ArgumentParser) -> None:
    add_sources(parser)
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "-n",
        "--draws",
        type=count,
        default=1000,
        metavar="N",
        help="of each observation (default: 1000)",
    )
    group.add_argument(
        "--method",
        type=choice("method", METHODS),
        default="auto",
        metavar="NAME",
        help=f"how they are drawn: {', '.join(METHODS)} (default: auto)",
    )
    group.add_argument(
        "--loo", action="store_true", help="leave each observation out of its own prediction"
    )
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="where the draws go: .nc or .zarr for ArviZ (group posterior_predictive), .csv for R "
        "(a row for each draw, a column for each observation, y[1] if the outcome is y)",
    )
    add_fit(parser)
    add_cluster(parser)
    add_output(parser, tables=False)


def _run(options: Namespace) -> int:
    from lockquack.cli.fitting import choose_operator, fit_models, is_doubtful
    from lockquack.cli.output import hear_warnings, require_writable, say
    from lockquack.cli.sources import read_models
    from lockquack.errors import ParameterError
    from lockquack.files.formats import write
    from lockquack.parallel.cluster import cluster

    if options.output.suffix not in (".nc", ".zarr", ".csv"):
        raise ParameterError(f"{options.output} must end in .nc, .zarr or .csv.")
    is_csv = options.output.suffix == ".csv"
    require_writable(options, **{"files" if is_csv else "stores": [options.output]})
    with cluster(options.cluster, options.workers), hear_warnings(options) as heard:
        models = read_models(options)
        chosen = choose_operator(models, options)
        _require_draws(models, options.operator)
        if chosen:
            say(chosen, options)
        fit = fit_models(models, options)
        mean = fit.to_dataframe()["weight"].iloc[1:]
        weights = ", ".join(f"{name} {float(w):.3f}" for name, w in mean.items())
        say(f"weights: {weights}", options)
        tree = fit.sample(
            options.draws,
            method=options.method,
            loo=options.loo,
            random_seed=options.seed,
            progressbar=progressbar(options),
        )
        if is_csv:
            _write_csv(tree, options.output)
        else:
            write(tree, options.output)
        say(
            f"{options.draws} draws of {fit.observations.n} observations: {options.output}", options
        )
    return DOUBTFUL if is_doubtful(fit) or (options.strict and heard) else 0


def _require_draws(models: Mapping[str, Model], operator: str) -> None:
    """Refuse, before the fit, models that cannot be sampled."""
    from lockquack.errors import UnsupportedError
    from lockquack.operators import get_operator

    mixes = get_operator(operator).normalised
    for name, model in models.items():
        if model.source.can.evaluate or (mixes and model.source.outcome_draws is not None):
            continue
        stored = "Put predictive draws into the file" if mixes else "Mix by --operator linear"
        raise UnsupportedError(
            f"Model {name!r} is known at the observed outcomes only, so the combination cannot be "
            "sampled. Name its likelihood and the draws of its parameters: --family "
            f'{name}="normal(mu=mu, sigma=sigma)". {stored}, if that is enough: mixtures can be '
            "drawn from the group posterior_predictive."
        )


def _write_csv(tree: xr.DataTree, path: Path) -> None:
    """Write a row a draw, as R's posterior package reads it."""
    import numpy as np
    import pandas as pd

    from lockquack.files.places import written_whole

    (draws,) = tree["posterior_predictive"].to_dataset().data_vars.values()
    values = draws.transpose("chain", "draw", ...).values
    chains, n = values.shape[:2]
    shape = values.shape[2:]
    places = [",".join(str(i + 1) for i in index) for index in np.ndindex(*shape)]
    names = [f"{draws.name}[{place}]" for place in places]
    table = pd.DataFrame(values.reshape(chains * n, -1), columns=names)
    table.insert(0, ".chain", np.repeat(np.arange(1, chains + 1), n))
    table.insert(1, ".iteration", np.tile(np.arange(1, n + 1), chains))
    table.insert(2, ".draw", np.arange(1, chains * n + 1))
    with written_whole(path) as unfinished:
        table.to_csv(unfinished, index=False)


COMMAND = Command(
    name="sample",
    summary="draw outcomes from the combination",
    description="Draw outcomes from the combination at each observation. The models' densities "
    "must be known anywhere, not only at the observed outcomes: see --family. Mixtures (--operator "
    "linear or selection) can be drawn from the predictive draws in files that have some.",
    examples=(
        'lockquack sample a.nc b.nc --family "normal(mu=mu, sigma=sigma)" -n 4000 -o draws.nc',
        "lockquack sample a.nc b.nc --family a=normal --family b=student_t -o draws.csv",
        "lockquack sample a.nc b.nc --operator linear --loo -o draws.nc",
    ),
    add_options=_add_options,
    run=_run,
)
