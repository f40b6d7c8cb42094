"""What a file of ours must hold, and whether it still is what was written.

Disks, transfers and other programs change files. A changed number looks like any other, so a file
has a digest of all that is in it, and one that does not fit it is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

import numpy as np
import xarray as xr

from lockquack.draws.blocks import Kind
from lockquack.errors import FileError, in_brief
from lockquack.jets import Array

T = TypeVar("T")
_DIGEST = "digest"
#: Attributes that are added to a store when it takes its place; see ``places.py``.
_ADDED = (_DIGEST, "written_by", "written_parts")
#: What to say where a file is not what was written.
DAMAGED = "The file was damaged or changed since it was written. Fit again, or take a copy."


class Contents:
    """The attributes and arrays of a dataset, which are asked for by name."""

    def __init__(self, dataset: xr.Dataset, prefix: str) -> None:
        self._attrs: Mapping[str, Any] = dataset.attrs
        self.arrays = {
            str(name).removeprefix(prefix): array for name, array in dataset.data_vars.items()
        }

    def attribute(self, name: str, read: Callable[[Any], T]) -> T:
        """Return an attribute as ``read`` makes it of what was written."""
        if name not in self._attrs:
            raise FileError(f"There is no attribute {name!r}. {DAMAGED}")
        with making_sense_of(f"the attribute {name!r}, {_shortened(self._attrs[name])}"):
            return read(self._attrs[name])

    def text(self, name: str) -> str:
        """Return an attribute that is text."""
        return self.attribute(name, str)

    def json(self, name: str) -> Any:
        """Return an attribute that was written as JSON."""
        return self.attribute(name, lambda written: json.loads(str(written)))

    def number(self, name: str) -> Array:
        """Return an attribute that is a number."""
        return np.array(self.attribute(name, float))

    def array(self, name: str, shape: tuple[int, ...] | None = None) -> Any:
        """Return the values of a variable, of a shape where one is given."""
        if name not in self.arrays:
            raise FileError(f"There is no variable {name!r}. {DAMAGED}")
        values = self.arrays[name].values
        if values.dtype.kind not in "fiub" or (shape is not None and values.shape != shape):
            expected = "" if shape is None else f" of the shape {shape}"
            raise FileError(
                f"The variable {name!r} must be numbers{expected}; it is {values.dtype} of the "
                f"shape {values.shape}. {DAMAGED}"
            )
        return values


@contextmanager
def making_sense_of(what: str) -> Iterator[None]:
    """Say which part of a file makes no sense, whatever is wrong with it."""
    try:
        yield
    except Exception as error:  # anything can be in a damaged file
        raise FileError(f"Cannot make sense of {what} ({in_brief(error)}). {DAMAGED}") from error


def signed(dataset: xr.Dataset) -> xr.Dataset:
    """Return a dataset with the digest of its contents."""
    return dataset.assign_attrs({_DIGEST: _digest(dataset)})


def require_unchanged(dataset: xr.Dataset) -> None:
    """Refuse a dataset that is not what was signed."""
    with making_sense_of("its attributes"):
        expected, found = dataset.attrs.get(_DIGEST), _digest(dataset)
    if not isinstance(expected, str) or expected != found:
        raise FileError(f"What is in it does not fit its digest. {DAMAGED}")


def _digest(dataset: xr.Dataset) -> str:
    """Hash what every format returns as it was given: names, numbers, text and attributes."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(map(str, dataset.variables)):
        variable = dataset.variables[name]
        digest.update(f"{name} {variable.dims} {variable.shape}".encode(errors="replace"))
        digest.update(_bytes(variable.values))
    for name in sorted(set(dataset.attrs) - set(_ADDED)):
        value = dataset.attrs[name]
        # Formats differ in the kind of a number, not in its value.
        text = value if isinstance(value, str) else repr(float(value))
        digest.update(f"{name} {text}".encode(errors="replace"))
    return digest.hexdigest()


def _bytes(values: Any) -> bytes:
    if values.dtype.kind in "fiub":
        return np.ascontiguousarray(values, dtype="<f8").tobytes()
    if values.dtype.kind in "OUT" and all(isinstance(each, str) for each in values.flat):
        return "\0".join(values.ravel().tolist()).encode(errors="replace")
    return b""  # times and the like, of which formats make what they can


def read_kind(text: str) -> Kind:
    """Read which predictions were scored."""
    return next(kind for kind in get_args(Kind) if kind == text)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:56]}...{text[0]}"
