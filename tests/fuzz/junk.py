"""Bad input of every kind: what is wrong with an array, and what is no array at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr


@dataclass(frozen=True)
class Fault:
    """Something done to an array of numbers; ``harmless`` ones leave the numbers as they are."""

    name: str
    spoil: Callable[[np.ndarray, np.random.Generator], Any]
    harmless: bool = False

    def __repr__(self) -> str:
        return self.name


def _at(value):
    def spoil(array, rng):
        copy = np.array(array, dtype=np.result_type(np.float64, type(value)))
        copy[tuple(rng.integers(size) for size in copy.shape)] = value
        return copy

    return spoil


def _mask(array, rng):
    mask = np.zeros(np.shape(array), dtype=bool)
    mask.flat[rng.integers(mask.size)] = True
    return np.ma.masked_array(array, mask)


def _ragged(array, rng):
    nested = np.asarray(array).tolist()
    return [*nested[:-1], [nested[-1], nested[-1]]]


_VALUES = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "1e308": 1e308, "complex": 1j}
FAULTS = [
    *(Fault(f"{name} somewhere", _at(value)) for name, value in _VALUES.items()),
    Fault("masked somewhere", _mask),
    Fault("one short", lambda a, rng: a[..., :-1]),
    Fault("one more", lambda a, rng: np.concatenate([a, a[..., -1:]], axis=-1)),
    Fault("another axis", lambda a, rng: np.stack([a] * 7)),
    Fault("another axis at the end", lambda a, rng: np.stack([a] * 7, axis=-1)),
    Fault("empty", lambda a, rng: np.zeros((*a.shape[:-1], 0))),
    Fault("nothing", lambda a, rng: np.zeros(0)),
    Fault("strings", lambda a, rng: a.astype(str)),
    Fault("bytes", lambda a, rng: a.astype("S8")),
    Fault("words", lambda a, rng: np.full(a.shape, "a word")),
    Fault("objects", lambda a, rng: np.full(a.shape, object())),
    Fault("dates", lambda a, rng: np.zeros(a.shape, dtype="datetime64[D]")),
    Fault("durations", lambda a, rng: np.zeros(a.shape, dtype="timedelta64[D]")),
    Fault("records", lambda a, rng: np.zeros(a.shape, dtype=[("a", float), ("b", float)])),
    Fault("all NaN", lambda a, rng: np.full(a.shape, np.nan)),
    Fault("ragged", _ragged),
    Fault("generator", lambda a, rng: (row for row in a)),
    Fault("set", lambda a, rng: set(a.ravel().tolist())),
    Fault("dict", lambda a, rng: {"a": a}),
    Fault("None inside", lambda a, rng: [None, *a.tolist()[1:]]),
    Fault("categories", lambda a, rng: pd.Categorical(a.ravel().astype(str))),
    Fault("dataset", lambda a, rng: xr.Dataset({"a": xr.DataArray(a)})),
    Fault("other dimensions", lambda a, rng: xr.DataArray(a)),
    Fault("list", lambda a, rng: a.tolist(), harmless=True),
    Fault("numbers as objects", lambda a, rng: a.astype(object)),
]


class _Hostile:
    """Looks like an array until somebody reads it."""

    shape, dtype, ndim = (2, 3), np.dtype(float), 2

    def __array__(self, *args, **kwargs):
        raise RuntimeError("not an array after all")

    def __repr__(self) -> str:
        return "hostile"


#: What is no array: for every argument of every function.
JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**70, 0.5, 1.5, -0.0, np.nan, np.inf, 1j, "", "a word", "log",
    b"bytes", [], {}, set(), (), [None], ["a"], [0.5, "a"], [[1.0], [2.0, 3.0]], {"a": 1.0}, {1: 2},
    object(), object, len, lambda y: y, np.zeros(0), np.zeros((2, 0)), np.array(1.0), np.array("a"),
    np.array(None), np.float32(2), np.bool_(True), np.datetime64("2020-01-01"), range(3), slice(3),
    pd.Series([1.0, 2.0]), pd.Series(["a"]), pd.DataFrame({"a": [1.0]}), pd.NaT, pd.NA,
    xr.DataArray(1.0), xr.DataArray([1.0], dims="model"), xr.Dataset(), xr.DataTree(), ..., type,
    np.ma.masked, np.ma.masked_array([1.0, 2.0], [True, False]), ValueError("x"), "\x00", "🦆",
    _Hostile(),
]  # fmt: skip
