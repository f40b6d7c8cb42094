"""How much a file says that it holds, before any of it is read.

A damaged file of a few kilobytes may declare terabytes, and libraries believe it: labels are read
as soon as a file is opened.
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lockquack.errors import FileError
from lockquack.files.heaps import require_readable_heaps
from lockquack.words import advice

#: Bytes of numbers that any file may declare, and how many for each byte of it: what the usual
#: compression reaches where all numbers are alike.
_LARGE, _MOST_COMPRESSED = 2**28, 2000
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def require_possible_size(path: Path, *, to_memory: bool) -> None:
    """Refuse a file whose numbers cannot be in it, or that are more than memory can hold."""
    declared = _declared_in_store(path) if path.is_dir() else _declared_in_file(path)
    stored = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
    if declared > _LARGE + _MOST_COMPRESSED * stored:
        raise FileError(
            f"It declares {_in_words(declared)} of numbers, which cannot be in its "
            f"{_in_words(stored)}. The file was damaged, or made to do harm."
        )
    if to_memory and declared > _memory():
        raise FileError(
            f"It holds {_in_words(declared)} of numbers; this machine has {_in_words(_memory())} "
            "of memory. Leave them on disk: ",
            advice("lq.from_datatree(path, lazy=True)", "write the model to a Zarr store"),
            ".",
        )


def _declared_in_store(store: Path) -> float:
    """Bytes of all arrays of a Zarr store, of its second or third format."""
    total = 0.0
    for about in (*store.rglob(".zarray"), *store.rglob("zarr.json")):
        described = json.loads(about.read_text(encoding="utf-8"))
        if "shape" in described:
            total += prod(map(float, described["shape"])) * _item_size(described)
    return total


def _item_size(described: dict[str, Any]) -> int:
    try:
        return np.dtype(described.get("dtype", described.get("data_type"))).itemsize
    except TypeError:  # text and the like
        return 1


def _declared_in_file(path: Path) -> float:
    """Bytes of all arrays of an HDF5 file; 0 for other files, which their readers look at."""
    if find_spec("h5py") is None:
        return 0.0
    import h5py

    sizes: list[float] = []

    def add(_: str, each: Any) -> None:
        if isinstance(each, h5py.Dataset):
            sizes.append(float(each.size or 0) * each.dtype.itemsize)

    if h5py.is_hdf5(path):
        require_readable_heaps(path)
        with h5py.File(path) as file:
            file.visititems(add)
    return sum(sizes)


def _memory() -> float:
    """Bytes of memory of this machine, where it says so."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return np.inf


def _in_words(size: float) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> _in_words(3_500), _in_words(8e12)
    ('3.5 kB', '8 TB')
    """
    power = min(int(np.log10(max(size, 1)) // 3), len(_UNITS) - 1)
    return f"{size / 1000**power:.3g} {_UNITS[power]}"
