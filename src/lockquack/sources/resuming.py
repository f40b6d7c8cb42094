"""A folder that keeps the fits of a cross-validation, so that it can be interrupted.

Each fit is written beside its place and takes it when it is whole. A file says of which data,
folds and function they are; a folder of others is refused.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.errors import OverwriteError, ParameterError, UnsupportedError
from lockquack.files.places import write_text, written_whole
from lockquack.models.model import Model

_ABOUT = "cross-validation.json"
#: What a folder can be of, as said where it is of another.
_WORDS = {
    "n": "as many observations",
    "y": "the same outcomes",
    "folds": "the same folds",
    "fit": "the same function",
}


@dataclass(frozen=True)
class FitFolder:
    """The fits that a folder keeps, by number; without a folder, none."""

    folder: Path | None

    @classmethod
    def open(cls, folder: str | Path | None, about: Mapping[str, Any]) -> FitFolder:
        """Begin to keep fits in a folder, or find those of the same cross-validation there."""
        if folder is None:
            return cls(None)
        if not isinstance(folder, str | Path) or not str(folder).strip("\0"):
            raise ParameterError(f"folder must be the path of a folder; got {folder!r}.")
        place = Path(folder)
        if place.exists() and not place.is_dir():
            raise OverwriteError(f"{place} is a file. Give the path of a folder.")
        if not (place / _ABOUT).exists():
            if place.is_dir() and any(place.iterdir()):
                raise OverwriteError(
                    f"{place} holds something else than the fits of a cross-validation. Give a new "
                    "folder, or an empty one."
                )
            place.mkdir(parents=True, exist_ok=True)
            write_text(place / _ABOUT, json.dumps(about, indent=1))
        _require_same(place, about)
        return cls(place)

    def __contains__(self, k: int) -> bool:
        """Whether fit k is there."""
        return self.folder is not None and self._path(k).exists()

    def write(self, k: int, fit: Model) -> None:
        """Keep fit k."""
        if self.folder is None:
            return
        try:
            content = _pickler().dumps(fit)
        except Exception as reason:  # whatever the classes of other libraries raise
            raise UnsupportedError(
                f"The fit to fold {k} cannot be written to a folder ({reason}). Leave folder= out, "
                "or install cloudpickle, which can write functions too."
            ) from reason
        with written_whole(self._path(k)) as unfinished:
            unfinished.write_bytes(content)

    def read(self, k: int) -> Model:
        """Read fit k."""
        path = self._path(k)
        try:
            found = pickle.loads(path.read_bytes())
        except Exception as reason:  # of another version, or damaged
            raise UnsupportedError(
                f"{path} cannot be read ({reason}). Remove it, and this fold is fitted again."
            ) from reason
        if not isinstance(found, Model):
            raise UnsupportedError(f"{path} holds no model. Remove it to fit this fold again.")
        return found

    def _path(self, k: int) -> Path:
        assert self.folder is not None
        return self.folder / f"fold-{k:04d}.pickle"


def describe(
    fit: Callable[..., Any], y: NDArray[np.float64], splits: Sequence[tuple[Any, Any]]
) -> dict[str, Any]:
    """Say what identifies a cross-validation."""
    while isinstance(fit, partial):
        fit = fit.func
    return {
        "n": len(y),
        "y": _digest(y),
        "folds": _digest(*(np.asarray(each, dtype=np.int64) for split in splits for each in split)),
        "fit": getattr(fit, "__qualname__", type(fit).__qualname__),
    }


def _require_same(place: Path, about: Mapping[str, Any]) -> None:
    try:
        known = json.loads((place / _ABOUT).read_text(encoding="utf-8"))
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise UnsupportedError(f"{place / _ABOUT} cannot be read. Give a new folder.")
    for key, words in _WORDS.items():
        if known.get(key) != about[key]:
            theirs, ours = (
                f": {each.get(key)}" if key in ("n", "fit") else "" for each in (known, about)
            )
            raise ParameterError(
                f"{place} keeps the fits of another cross-validation, not of {words}"
                f"{f' (there{theirs}; here{ours})' if theirs else ''}. Give a folder for each, or "
                "remove this one to begin anew."
            )


def _digest(*arrays: NDArray[Any]) -> str:
    total = sha256()
    for each in arrays:
        total.update(str(each.shape).encode())
        total.update(np.ascontiguousarray(each).tobytes())
    return total.hexdigest()


def _pickler() -> Any:
    """Return what writes functions too, where it is installed."""
    return import_module("pickle" if find_spec("cloudpickle") is None else "cloudpickle")
