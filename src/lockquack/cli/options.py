"""The options that several commands share.

Names of operators, rules and kinds of scores are kept apart from their home, so that asking for
help imports nothing; a test compares them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lockquack.cli.commands import near

OPERATORS = ("linear", "locking", "superposition", "hybrid", "hoelder", "selection", "quantiles")
RULES = ("hyvarinen", "log", "pairwise", "crps", "energy")
#: Those that need no densities.
DISTANCES = ("crps", "energy")
WEIGHTS = ("simplex", "softmax")
SCORES = ("loo", "in-sample", "held-out")
TRANSFORMS = ("log", "log10", "sqrt", "logit", "exp")
SCORE_TRANSFORMS = ("auto", "none", *TRANSFORMS)

_FILES = """\
a model: a NetCDF file, a Zarr store, or CSV files of draws ('fit-*.csv', one for each chain). It
is called like its file, or NAME where NAME=FILE is given
"""
_FAMILY = """\
the likelihood of the models, such as "normal(mu=alpha + beta * x, sigma=sigma)", where names are
variables of the file (posterior, constant_data) or columns of --y. Without the parentheses, the
variables are called like the parameters. NAME=FAMILY is for one model. A model whose likelihood is
known can be locked, and its combination can be sampled and calibrated
"""


class _Once(argparse.Action):
    """An option whose second value would silently take the place of the first."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Set it, once."""
        if getattr(namespace, self.dest, None) is not None:
            parser.error(f"{option_string} can be given once; join names by commas: FILE:a,b")
        setattr(namespace, self.dest, values)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the files and how to read them."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=_FILES)
    group = parser.add_argument_group("reading files")
    group.add_argument(
        "--family", action="append", default=[], metavar="[NAME=]FAMILY", help=_FAMILY
    )
    group.add_argument(
        "--transform",
        type=_transform,
        action="append",
        default=[],
        metavar="[NAME=]TRANSFORM",
        help="the model, and the outcomes in its file, are of this function of the outcome: "
        f"{', '.join(TRANSFORMS)}. It is turned into a model of the outcome itself; the outcomes "
        "in --y are not transformed",
    )
    group.add_argument(
        "--ignore-log-lik",
        action="store_true",
        help="do not compare --family with the log densities in the file, which may be of "
        "something else",
    )
    group.add_argument(
        "--y",
        metavar="FILE[:NAME]",
        help="observed outcomes, for files without them: a column of a CSV file, or a name in the "
        "JSON data of a Stan program. Files that have outcomes must have the same",
    )
    group.add_argument(
        "--case-weights",
        metavar="[FILE:]NAME",
        help="how often each observation counts: a variable of the files (constant_data), or a "
        "column of --y or of another file",
    )
    group.add_argument(
        "--var-name",
        metavar="NAME",
        help="which outcome, if a NetCDF file has several; in CSV files, what the log densities "
        "are called (log_lik)",
    )
    group.add_argument(
        "--chains",
        type=count,
        metavar="N",
        help="how many chains follow one another in the rows of a CSV file without a column .chain",
    )


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Add how to combine the models."""
    group = parser.add_argument_group("combining")
    group.add_argument(
        "--operator",
        type=choice("operator", OPERATORS),
        metavar="NAME",
        help=f"how the densities are pooled: {', '.join(OPERATORS)} (default: locking; of files "
        "that hold log densities only linear, that is stacking)",
    )
    group.add_argument(
        "--rule",
        type=choice("rule", RULES),
        metavar="NAME",
        help=f"the score that the weights maximise: {', '.join(RULES)} (default: hyvarinen for "
        "locking and hybrid; log for linear, hoelder, selection and counts; for superposition log "
        "where the densities are known anywhere, else hyvarinen)",
    )
    group.add_argument(
        "--prior",
        type=numbers,
        metavar="A[,A...]",
        help="concentration of the Dirichlet prior on the weights, one for all models or one each "
        "(default: 1.01; 1 for linear by log)",
    )
    add_scores(group)
    add_by(group)
    group.add_argument(
        "--scale",
        type=numbers,
        metavar="S",
        help="unit of the outcome for the Hyvärinen score (default: its standard deviation)",
    )


def add_by(parser: argparse._ActionsContainer) -> None:
    """Add the covariates that weights may depend on, and how."""
    parser.add_argument(
        "--by",
        action=_Once,
        metavar="[FILE:]NAME[,NAME...]",
        help="let the weights depend on these columns of a CSV file (default: that of --y), "
        "numbers smoothly and anything else by groups, as much as cross-validation supports it",
    )
    parser.add_argument(
        "--weights",
        type=choice("kind of weights", WEIGHTS),
        default="simplex",
        metavar="KIND",
        help=f"how weights depend on --by: {', '.join(WEIGHTS)} (default: simplex, a convex "
        "problem; softmax is hierarchical stacking, drawn from its posterior by NUTS)",
    )


def add_scores(parser: argparse._ActionsContainer) -> None:
    """Add which predictions are scored, the transform of the score, and the seed."""
    parser.add_argument(
        "--scores",
        type=choice("kind of scores", SCORES),
        default="loo",
        metavar="KIND",
        help=f"which predictions are scored: {', '.join(SCORES)} (default: loo, leave-one-out)",
    )
    parser.add_argument(
        "--score-transform",
        type=choice("transform", SCORE_TRANSFORMS),
        default="auto",
        metavar="NAME",
        help="take the Hyvärinen score of this function of the outcome: log for positive ones, "
        "logit for those between 0 and 1, none for the outcome itself (default: auto, by where "
        "the models' densities end)",
    )
    add_seed(parser)


def add_seed(parser: argparse._ActionsContainer) -> None:
    """Add the seed."""
    parser.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="seed of everything random (default: 0)"
    )


def add_methods(parser: argparse._ActionsContainer, help: str) -> None:
    """Add which methods are compared, and by how many folds."""
    parser.add_argument("--methods", type=names, metavar="NAME[,NAME...]", help=help)
    parser.add_argument(
        "--cv",
        type=count,
        default=10,
        metavar="N",
        help="folds that cross-validate the weights (10)",
    )


def add_path(
    parser: argparse._ActionsContainer, help: str, default: str | None = None, kind: str = "FILE"
) -> None:
    """Add where something is written; a default is named in the help."""
    path = None if default is None else Path(default)
    shown = help if default is None else f"{help} (default: {default})"
    parser.add_argument("-o", "--output", type=Path, default=path, metavar=kind, help=shown)


def add_output(parser: argparse.ArgumentParser, *, tables: bool = True) -> None:
    """Add where results and messages go."""
    group = parser.add_argument_group("output")
    if tables:
        form = group.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="write JSON, for machines")
        form.add_argument("--csv", action="store_true", help="write CSV, for machines")
        add_path(group, "write to a file instead; .json and .csv say which form")
    group.add_argument("--no-progress", action="store_true", help="show no progress bars")
    group.add_argument(
        "--quiet", action="store_true", help="show no progress bars and no notes on stderr"
    )
    group.add_argument(
        "--strict", action="store_true", help="exit with status 3 if there are notes"
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add where the work is done."""
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="how many processes of this machine do the work, by dask (default: one, with threads)",
    )
    parser.add_argument("--cluster", metavar="ADDRESS", help="dask scheduler that does the work")


def choice(kind: str, known: Sequence[str]) -> Callable[[str], str]:
    """Make a reader of one of several names, which suggests the nearest."""

    def read(text: str) -> str:
        if text not in known:
            hint = near(text, known) or f" Choose from {', '.join(known)}."
            raise argparse.ArgumentTypeError(f"unknown {kind} {text!r}.{hint}")
        return text

    return read


def names(text: str) -> tuple[str, ...]:
    """Read one or more names, with commas between."""
    return tuple(part.strip() for part in text.split(","))


def count(text: str) -> int:
    """Read a number from 1."""
    return _whole(text, 1)


def seed(text: str) -> int:
    """Read a number from 0."""
    return _whole(text, 0)


def numbers(text: str) -> float | list[float]:
    """Read a number, or several with commas between."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers; got {text!r}.") from None
    return values[0] if len(values) == 1 else values


def progressbar(options: argparse.Namespace) -> bool | None:
    """Return the argument of that name: None shows a bar in a terminal only."""
    return False if options.no_progress or options.quiet else None


def _transform(text: str) -> str:
    """Read a transform, for one model or for all."""
    choice("transform", TRANSFORMS)(text.rsplit("=", 1)[-1])
    return text


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number; got {text!r}.") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}; got {number}.")
    return number
