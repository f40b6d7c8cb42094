"""The heaps of an HDF5 file, in which texts are kept: whether HDF5 would ever finish reading them.

HDF5 goes through a heap from object to object, each as far on as it says that it is long. Where a
damaged one says that it is no bytes long, HDF5 stays there for ever.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from lockquack.errors import FileError

#: How a heap begins: its name, version 1, three zeros; then its length follows.
_BEGINNING = b"GCOL\x01\0\0\0"
#: Of a heap, its beginning and its length; of an object, its number, its users and its length.
_HEAP, _OBJECT = struct.Struct("<8sQ"), struct.Struct("<HHIQ")


def require_readable_heaps(path: Path) -> None:
    """Refuse an HDF5 file with a heap that cannot be gone through."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(_BEGINNING)
        while at >= 0:
            _go_through(content, at)
            at = content.find(_BEGINNING, at + 1)


def _go_through(content: mmap.mmap, start: int) -> None:
    if start + _HEAP.size > len(content):
        return
    end = min(start + _HEAP.unpack_from(content, start)[1], len(content))
    at = start + _HEAP.size
    while at + _OBJECT.size <= end:
        number, _, _, length = _OBJECT.unpack_from(content, at)
        # What is free is number 0, and its length includes what describes it.
        step = length if number == 0 else _OBJECT.size + -(-length // 8) * 8
        if step == 0:
            raise FileError(
                f"It is damaged: the heap of texts at byte {start} has an object of no length."
            )
        at += step
