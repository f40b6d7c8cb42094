"""Where results may be written, and how they get there whole.

A result is written beside its place under a name of its own, and takes the place when it is whole:
whoever reads there finds what was there before or what is there now. Folders are only replaced if
nothing is lost by it: empty ones, and Zarr stores that this library wrote and that hold nothing
else. So are files in place of which a fit or a model would go; see :mod:`.formats`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockquack.errors import OverwriteError

#: Attributes by which a Zarr store is known as one that may be replaced, if it holds no more.
AUTHOR, _PARTS = "written_by", "written_parts"
#: What the first of them says.
OWN = "lockquack"
_DESCRIPTIONS = (".zgroup", ".zarray", ".zattrs", ".zmetadata")
_CHUNK = re.compile(r"\d+(\.\d+)*")
#: Names of what a process has open, standard output among them.
_STREAM = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/[^/]+/fd/\d+")
#: What systems say where nothing more can be written.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
#: Seconds after which a folder that could not be finished is removed, and looked for again.
_STRAGGLING = (0.0, 0.02, 0.1, 0.3)
#: Numbers of Linux: a path is relative to the current folder; two paths change places.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def require_place(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """Refuse, before any work is done, a path at which something else would be lost.

    ``inputs`` are the files that the result is made of.
    """
    path = Path(path)
    place = _resolved(path)
    if not place.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to.")
    for given in map(Path, inputs):
        if _is_same(place, given) or (
            _is_part_of_store(given) and given.resolve() in place.parents
        ):
            raise OverwriteError(
                f"{path} is one of the files that are read; writing there would destroy it. Give "
                "another path."
            )
    if place.is_file() and _STREAM.fullmatch(str(path.absolute())):
        raise OverwriteError(
            f"{path} leads to {place}, which is being written already and would be destroyed. Name "
            "another file, or let the result be printed."
        )
    if place.is_dir():
        _require_own(place, path)
    # What is not a device is written beside its place first.
    needed = [path] if _is_device(path) else [place.parent, *([place] if place.exists() else [])]
    if not all(os.access(each, os.W_OK) for each in needed):
        raise PermissionError(f"{path} cannot be written.")
    return path


def require_file_place(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """Do as :func:`require_place` for what is a file, which cannot take the place of a folder."""
    place = require_place(path, inputs)
    if place.is_dir():
        raise OverwriteError(f"{place} is a folder. Give the path of a file.")
    return place


def require_different(paths: Iterable[Path | None]) -> None:
    """Refuse several results that would be written to one place."""
    given = [_resolved(path) for path in paths if path is not None and not _is_device(path)]
    twice = [path for i, path in enumerate(given) if path in given[:i]]
    if twice:
        raise OverwriteError(
            f"Two results are to be written to {twice[0]}. Give each its own path."
        )


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield where to write a file or folder that takes its place when the ``with`` ends well.

    What is written may be read from what was there before. Several writers of one path do not
    disturb each other: one of their results stays, whole.
    """
    path = require_place(path)
    if _is_device(path):  # a device or a pipe cannot be replaced
        with _naming_what_is_full(path):
            yield path
        return
    place = path.resolve()
    unfinished = _beside(place)
    try:
        with _naming_what_is_full(path):
            yield unfinished
        if unfinished.is_dir():
            _sign(unfinished)
            _replace_folder(unfinished, place)
        else:
            require_file_place(place)
            if place.is_file():
                shutil.copymode(place, unfinished)
            _reach_the_disk(unfinished)
            unfinished.replace(place)
    finally:
        _remove(unfinished)


@contextmanager
def _naming_what_is_full(path: str | Path) -> Iterator[None]:
    """Say where there was no room; the system does not, or names the unfinished file."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_text(path: str | Path, text: str) -> None:
    """Write text to a file that is then whole, or still what it was."""
    require_file_place(path)
    with written_whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _beside(path: Path) -> Path:
    """Make a name in the same folder that nobody else has; its ending says what it is."""
    ending = path.suffix if len(path.suffix) < 10 else ""  # a name must not get too long
    return path.with_name(f".lockquack-{uuid.uuid4().hex[:12]}{ending}")


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (ValueError, RuntimeError) as error:  # a name with a zero in it, links in a circle
        raise OverwriteError(f"{str(path)!r} is no path that can be written ({error}).") from error


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths are one file, under whichever names."""
    return one == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def _is_device(path: Path) -> bool:
    return path.exists() and not (path.is_file() or path.is_dir())


def _require_own(folder: Path, path: Path) -> None:
    strange = _strange(folder)
    if strange is not None:
        raise OverwriteError(
            f"{path} is a folder that holds {strange}. Only an empty folder, or a Zarr store "
            "that lockquack wrote, is replaced. Give another path, or remove the folder yourself."
        )


def _strange(folder: Path) -> str | None:
    """Find something in a folder that is not part of a store of ours; None if there is nothing."""
    inside = sorted(path for path in folder.rglob("*") if not _is_part_of_store(path))
    if inside:
        return str(inside[0].relative_to(folder))
    if not any(folder.iterdir()):
        return None
    about = _attributes(folder)
    if about.get(AUTHOR) != OWN:
        return "a Zarr store of somebody else's"
    written = about.get(_PARTS)
    added = set(_parts(folder)) - set(written if isinstance(written, list) else ())
    return f"{min(added)}, which was added to it" if added else None


def _sign(store: Path) -> None:
    """Note in a store who wrote it, and which arrays and groups."""
    if (store / ".zgroup").is_file():
        about = {**_attributes(store), AUTHOR: OWN, _PARTS: _parts(store)}
        (store / ".zattrs").write_text(json.dumps(about, indent=4), encoding="utf-8")


def _parts(store: Path) -> list[str]:
    """Folders of the arrays and groups of a store."""
    return sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_dir())


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
    while True:
        if place.is_dir():
            _require_own(place, place)  # somebody may have put something there meanwhile
        if place.exists() and _exchange(new, place):
            _remove(new)  # which is what was there before
            return
        old = _beside(place)
        try:
            with suppress(FileNotFoundError):
                place.rename(old)
            new.rename(place)
        except OSError as error:
            if old.exists() and not place.exists():
                old.rename(place)
            # Another writer was faster, and its result is to be replaced in turn.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        else:
            _remove(old)
            return
        _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step, where the system can; tell whether it did."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    if rename is None:
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def _reach_the_disk(path: Path) -> None:
    """Wait until a file is written; some file systems say only now that they are full."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    # Where one chunk of a store failed, others are still on their way and bring the folder back.
    for pause in _STRAGGLING:
        time.sleep(pause)
        shutil.rmtree(path, ignore_errors=True)
