"""Files that seem to take everything, for libraries that do not survive a disk that is full.

HDF5 that cannot write a file to its end cannot close it either: it tries again when the process
ends, and takes it down. So it writes to a file that says yes to everything, and what went wrong
is raised once it has closed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override


@contextmanager
def unfailing(path: Path) -> Iterator[io.RawIOBase]:
    """Yield a new file to write to and to read from; raise what went wrong when it is closed."""
    with _UnfailingFile(path, "w+b") as file:
        yield file
    if file.failure is not None:
        raise file.failure


class _UnfailingFile(io.FileIO):
    """A file that remembers the first thing that went wrong, and writes nothing from then on."""

    failure: OSError | None = None

    @override
    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest and self.failure is None:
            try:
                rest = rest[super().write(rest) or 0 :]
            except OSError as error:
                self.failure = error
        return size

    @override
    def truncate(self, size: int | None = None) -> int:
        if self.failure is None:
            try:
                return super().truncate(size)
            except OSError as error:
                self.failure = error
        return self.tell() if size is None else size

    @override
    def readinto(self, buffer: Any) -> int:
        rest = memoryview(buffer).cast("B")
        size = len(rest)
        while rest and (count := super().readinto(rest)):
            rest = rest[count:]
        rest[:] = bytes(len(rest))  # of what could not be written
        return size
