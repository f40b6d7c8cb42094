"""Ways in which the same numbers lie in memory, or are handed over."""

from __future__ import annotations

import numpy as np


def _strided(array, rng):
    wide = rng.normal(size=tuple(2 * size + 1 for size in array.shape))
    inner = tuple(slice(1, 2 * size + 1, 2) for size in array.shape)
    wide[inner] = array
    return wide[inner]


def _frozen(array, rng):
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def _unaligned(array, rng):
    bytes_ = np.zeros(array.nbytes + 1, dtype=np.uint8)
    view = np.ndarray(array.shape, array.dtype, buffer=bytes_.data, offset=1)
    view[...] = array
    return view


_WAYS = {
    "C": lambda array, rng: np.ascontiguousarray(array),
    "Fortran": lambda array, rng: np.asfortranarray(array),
    "transposed": lambda array, rng: np.ascontiguousarray(array.T).T,
    "strided": _strided,
    "backwards": lambda array, rng: array[..., ::-1].copy()[..., ::-1],
    "read-only": _frozen,
    "unaligned": _unaligned,
    "big-endian": lambda array, rng: array.astype(">f8"),
    "long": lambda array, rng: array.astype(np.longdouble),
    "list": lambda array, rng: array.tolist(),
    "masked without a mask": lambda array, rng: np.ma.masked_array(array),
    "matrix": lambda array, rng: array.view(type("Subclass", (np.ndarray,), {})),
}
LAYOUTS = sorted(_WAYS)


def laid_out(layout: str, rng: np.random.Generator):
    """Return a function that lays out arrays so."""
    return lambda array: _WAYS[layout](np.asarray(array, dtype=np.float64), rng)
