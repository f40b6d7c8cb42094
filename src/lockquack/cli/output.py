"""Where results and messages go: data to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
import textwrap
import warnings
from argparse import Namespace
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from lockquack.cli.files import find_sources
from lockquack.cli.streams import printable
from lockquack.cli.wording import shell_words
from lockquack.files.formats import require_store_place
from lockquack.files.places import require_different, require_file_place, write_text
from lockquack.remarks import Remark, remark_of

_WIDTH = 88
#: Short headings, so that a table fits a terminal of 80 columns.
_HEADINGS = {
    "weight_se": "±",
    "5%": "5 %",
    "95%": "95 %",
    "score_se": "±",
    "diff_se": "±",
    "elpd_se": "±",
    "elpd_diff": "diff",
    "dse": "±",
    "observations": "obs",
    "worst k": "k̂",
    "least ess": "ess",
}
#: The column of a table whose cells are coloured by what they say.
_VERDICT = "verdict"
#: How verdicts, and lines of that kind below a table, stand out.
_STYLES = {
    "best": "green",
    "fine": "green",
    "worse": "red",
    "problem": "red",
    "remark": "yellow",
    "fact": "dim",
}


@dataclass(frozen=True)
class Line:
    """A line below a table, and what it is about."""

    text: str
    kind: Literal["fact", "remark", "problem"] = "fact"


@dataclass(frozen=True)
class Result:
    """A result in all the forms in which it can be written."""

    above: list[str]
    shown: pd.DataFrame  # of text
    #: Columns of it that hold numbers.
    numbers: Collection[Hashable]
    below: list[Line]
    table: pd.DataFrame  # of numbers, for CSV
    record: Mapping[str, Any]  # for JSON


def write_result(result: Result, options: Namespace) -> None:
    """Write a result to standard output or to a file, in the form asked for."""
    form = _form(options)
    if form == "text" and options.output is None and sys.stdout.isatty() and find_spec("rich"):
        _print_rich(result)
        return
    shown = options.output is None
    ascii_only = shown and "utf" not in (sys.stdout.encoding or "utf-8").lower()
    text = _as_text(result, form, ascii_only=ascii_only)
    if shown:
        print(text)
    else:
        write_text(options.output, f"{text}\n")
        say(f"written: {options.output}", options)


def say(message: str, options: Namespace) -> None:
    """Write a message to standard error, unless it should be quiet."""
    if not options.quiet:
        print(f"lockquack: {printable(message)}", file=sys.stderr)


def require_writable(
    options: Namespace, *, files: Sequence[Path | None] = (), stores: Sequence[Path | None] = ()
) -> None:
    """Refuse, before the work is done, paths where something would be lost or cannot be written.

    Parameters
    ----------
    options
        Of the command, which name what is read.
    files
        Where files go; None: nowhere.
    stores
        Where files or Zarr stores go.
    """
    read = [file for source in find_sources(options.files) for file in source.paths]
    if options.y is not None:
        read += [Path(options.y), Path(options.y.rsplit(":", 1)[0])]
    columns = [getattr(options, name, None) for name in ("by", "case_weights")]
    read += [Path(each.rsplit(":", 1)[0]) for each in columns if each is not None and ":" in each]
    wanted = dict.fromkeys(files, require_file_place) | dict.fromkeys(stores, require_store_place)
    require_different([*files, *stores])
    for path, require in wanted.items():
        if path is not None:
            require(path, read)


@contextmanager
def hear_warnings(options: Namespace) -> Iterator[list[Remark]]:
    """Collect the remarks that are warned of inside; print those left in the list afterwards.

    A command takes out of it what its result shows already. Warnings of other libraries concern
    developers, who see them with --traceback.
    """
    heard: list[Remark] = []

    def hear(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        remark = remark_of(message)
        if remark is not None and remark not in heard:
            heard.append(remark)
        elif remark is None and options.traceback:
            print(f"{category.__name__}: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hear
        yield heard
    for remark in heard:
        say(f"note: {shell_words(remark.message)}", options)


def as_json(value: Any) -> Any:
    """Turn numpy's and pandas' values into what JSON has; NaN and infinity into null."""
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, pd.DataFrame):
        return {str(name): as_json(row) for name, row in value.to_dict("index").items()}
    if isinstance(value, np.ndarray):
        return as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def _form(options: Namespace) -> Literal["text", "json", "csv"]:
    suffix = options.output.suffix.lower() if options.output is not None else ""
    if options.json or (suffix == ".json" and not options.csv):
        return "json"
    return "csv" if options.csv or suffix == ".csv" else "text"


def _as_text(result: Result, form: Literal["text", "json", "csv"], *, ascii_only: bool) -> str:
    if form == "json":
        return json.dumps(as_json(result.record), indent=2, ensure_ascii=ascii_only)
    if form == "csv":
        return result.table.to_csv().rstrip("\n")
    table = result.shown.rename(index=lambda name: printable(str(name))).to_string()
    below = [line.text for line in result.below]
    lines = [*_wrapped(result.above), "", table, "", *_wrapped(below)]
    return printable("\n".join(lines).rstrip())


def _wrapped(lines: Iterable[str]) -> list[str]:
    return [textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in lines]


def _print_rich(result: Result) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for title in result.above:
        console.print(Text(printable(title), style="bold" if title == result.above[0] else ""))
    table = Table(box=None, header_style="dim", padding=(0, 1), pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in result.shown:
        numeric = name in result.numbers
        heading = _HEADINGS.get(str(name), str(name))
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for name, row in result.shown.iterrows():
        style = "bold" if str(name).startswith("[") else ""
        cells = [
            Text(
                printable(str(cell)), style=_STYLES.get(str(cell), "") if column == _VERDICT else ""
            )
            for column, cell in row.items()
        ]
        table.add_row(Text(printable(str(name))), *cells, style=style)
    console.print(Padding(table, (1, 0)))
    for line in result.below:
        console.print(Text(printable(line.text), style=_STYLES[line.kind]))
