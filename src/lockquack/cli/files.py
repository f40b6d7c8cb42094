"""Finding the files of each model."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from lockquack.errors import LockquackError
from lockquack.sources.csv import cmdstan_run, is_cmdstan


@dataclass(frozen=True)
class ModelFiles:
    """A model's name and the files of its draws: several are chains in CSV."""

    name: str
    paths: tuple[Path, ...]

    @property
    def title(self) -> str:
        """What messages call it."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"

    @property
    def is_csv(self) -> bool:
        """Whether the draws are in CSV files."""
        return self.paths[0].suffix.lower() in (".csv", ".txt")


def find_sources(arguments: Sequence[str]) -> list[ModelFiles]:
    """Find the files of each model.

    Files that CmdStan wrote for the chains of one program are one model.
    """
    found = [_source(argument) for argument in arguments]
    found = _join_chains(found)
    for source in found:
        same = [each.title for each in found if each.name == source.name]
        if len(same) > 1:
            raise LockquackError(
                f"{' and '.join(same[:2])} are both called {source.name!r}. Name them: "
                f"NAME={same[0]}."
            )
    return found


def _source(argument: str) -> ModelFiles:
    name, path = "", argument
    if "=" in argument and not Path(argument).exists():
        name, path = argument.split("=", 1)
    paths = _expand(path)
    # 'fit-*.csv' is called fit
    stem = re.sub(r"[-_. ]*[*?\[].*", "", Path(path).stem) or paths[0].stem
    return ModelFiles(name or _as_text(stem), paths)


def _as_text(stem: str) -> str:
    """Bring the name of a file to letters that can be written, which its bytes need not be."""
    return os.fsencode(stem).decode("utf-8", "backslashreplace")


def _expand(path: str) -> tuple[Path, ...]:
    """Find the files behind a path, a pattern, or a folder of CSV files."""
    if Path(path).is_dir():
        inside = tuple(sorted(Path(path).glob("*.csv")))
        return inside or (Path(path),)
    # A file that does not exist is reported when it is read.
    return tuple(sorted(map(Path, glob(path)))) or (Path(path),)


def _join_chains(sources: Sequence[ModelFiles]) -> list[ModelFiles]:
    """Put single files of one Stan program, with chains of different numbers, together."""
    joined: dict[str, ModelFiles] = {}
    seen: set[tuple[str, str]] = set()
    for source in sources:
        path = source.paths[0]
        single = len(source.paths) == 1 and source.is_csv and path.exists() and is_cmdstan(path)
        # A name of its own says that it is a model of its own.
        if not single or source.name != _as_text(path.stem):
            joined[f"{len(joined)} {source.name}"] = source
            continue
        program, chain = cmdstan_run(path)
        if (program, chain) in seen:
            raise LockquackError(
                f"{path} is chain {chain} of the Stan program {program!r}, of which there is one "
                "already. Say which files belong together: NAME='FILES*.csv'."
            )
        seen.add((program, chain))
        before = joined.get(program, ModelFiles(program or source.name, ()))
        joined[program] = ModelFiles(before.name, (*before.paths, path))
    return list(joined.values())
