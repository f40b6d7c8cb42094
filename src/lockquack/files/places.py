"""Where results may be written, and how they get there whole.

A result is written beside its place under a name of its own, and takes the place when it is whole:
whoever reads there finds what was there before or what is there now. Folders are only replaced if
nothing is lost by it: empty ones, and Zarr stores that this library wrote and that hold nothing
else.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lockquack.errors import OverwriteError

#: Attribute by which a Zarr store is known as one that may be replaced.
WRITTEN_BY = {"written_by": "lockquack"}
_DESCRIPTIONS = (".zgroup", ".zarray", ".zattrs", ".zmetadata")
_CHUNK = re.compile(r"\d+(\.\d+)*")
#: Numbers of Linux: a path is relative to the current folder; two paths change places.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def require_place(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """Refuse, before any work is done, a path at which something else would be lost.

    Parameters
    ----------
    path
        Where a result is to be written.
    inputs
        Files that the result is made of.

    Returns
    -------
    pathlib.Path
        The path.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "thesis.tex").write_text("Chapter one.")
    ...     require_place(folder)
    Traceback (most recent call last):
    lockquack.errors.OverwriteError: ... is a folder that holds thesis.tex. ...
    """
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to.")
    if any(path.resolve() == Path(given).resolve() for given in inputs):
        raise OverwriteError(
            f"{path} is one of the files that are read; writing there would destroy it. Give "
            "another path."
        )
    if path.is_dir():
        _require_own(path)
    elif not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written.")
    return path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield where to write a file or folder that takes its place when the ``with`` ends well.

    What is written may be read from what was there before. Several writers of one path do not
    disturb each other: one of their results stays, whole.
    """
    place = require_place(path).resolve()
    if place.exists() and not (place.is_file() or place.is_dir()):
        yield place  # a device or a pipe cannot be replaced
        return
    unfinished = _beside(place)
    try:
        yield unfinished
        if unfinished.is_dir():
            _replace_folder(unfinished, place)
        else:
            if place.is_file():
                shutil.copymode(place, unfinished)
            unfinished.replace(place)
    finally:
        _remove(unfinished)


def write_text(path: str | Path, text: str) -> None:
    """Write text to a file that is then whole, or still what it was."""
    with written_whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _beside(path: Path) -> Path:
    """Make a name in the same folder that nobody else has; its ending says what it is."""
    return path.with_name(f".{path.stem}-{uuid.uuid4().hex[:12]}{path.suffix}")


def _require_own(folder: Path) -> None:
    strange = _strange(folder)
    if strange is not None:
        raise OverwriteError(
            f"{folder} is a folder that holds {strange}. Only an empty folder, or a Zarr store "
            "that lockquack wrote, is replaced. Give another path, or remove the folder yourself."
        )


def _strange(folder: Path) -> str | None:
    """Find something in a folder that is not part of a store of ours; None if there is nothing."""
    inside = sorted(path for path in folder.rglob("*") if not _is_part_of_store(path))
    if inside:
        return str(inside[0].relative_to(folder))
    if not any(folder.iterdir()) or _attributes(folder).items() >= WRITTEN_BY.items():
        return None
    return "a Zarr store of somebody else's"


def _is_part_of_store(path: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_dir():
        return any((path / name).is_file() for name in (".zgroup", ".zarray"))
    is_chunk = _CHUNK.fullmatch(path.name) and (path.parent / ".zarray").is_file()
    return path.name in _DESCRIPTIONS or bool(is_chunk)


def _attributes(folder: Path) -> dict[str, object]:
    try:
        return dict(json.loads((folder / ".zattrs").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _replace_folder(new: Path, place: Path) -> None:
    """Put a folder in place of what is there: nothing, a file, or a folder."""
    if not place.exists():
        new.rename(place)
    elif _exchange(new, place):
        _remove(new)  # which is what was there before
    else:
        old = _beside(place)
        place.rename(old)
        new.rename(place)
        _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step, where the system can; tell whether it did."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
