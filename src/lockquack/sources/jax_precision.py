"""JAX in double precision, beside a session in single precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from lockquack.errors import LockquackError
from lockquack.sources.libraries import library


@contextmanager
def double_precision() -> Iterator[None]:
    """Let JAX compute in float64 inside, whatever the session's setting."""
    jax = library("jax", "jax")

    with jax.enable_x64(True):
        try:
            yield
        except (ValueError, RuntimeError) as error:
            if any(sign in str(error) for sign in _MIXED_PRECISION):
                raise LockquackError(
                    "JAX met a numpy array that it had compiled in single precision before. Hand "
                    "all arrays to the function as arguments (model_kwargs=, data=), or make them "
                    "JAX arrays by jnp.asarray."
                ) from error
            raise


#: How JAX fails on an array that it remembers with another precision.
_MIXED_PRECISION = ("Cannot lower jaxpr with verifier errors", "RuntimeProgramInputMismatch")
_LIBRARIES = ("jax", "numpyro", "numpy", "scipy")


def own_arrays(value: Any) -> Any:
    """Copy the arrays that a container holds, or that a function uses from outside, in double.

    JAX (0.10 and 0.12) remembers an array that it compiled into a function together with the
    precision that it had then, and fails on the same array in the other precision. So the arrays
    of the user's session must not be seen in float64.
    """
    with double_precision():
        return with_arrays(value, _in_double)


def _in_double(array: Any) -> Any:
    import jax.numpy as jnp

    if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize < 8:
        return array.astype(np.float64)
    if array.dtype == np.int32:  # JAX's own in a session of single precision
        return array.astype(np.int64)
    return array.copy() if isinstance(array, np.ndarray) else array


def with_arrays(value: Any, change: Callable[[Any], Any]) -> Any:
    """Put other arrays in place of those that a container holds, or a function uses."""
    return _Copies(change).of(value)


class _Copies:
    """Copies of what has arrays inside; what has none stays the same object."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change = change  # of an array of numpy's or JAX's
        self.made: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Copy anything that is known to have arrays inside."""
        import jax

        if id(value) in self.made:
            return self.made[id(value)]
        if isinstance(value, np.ndarray | jax.Array):
            return self.change(value)
        if type(value) in (list, tuple):
            parts = [self.of(part) for part in value]
            return type(value)(parts) if _differ(parts, value) else value
        if type(value) is dict:
            parts = [self.of(part) for part in value.values()]
            return dict(zip(value, parts, strict=True)) if _differ(parts, value.values()) else value
        if isinstance(value, partial):
            func, args = self.of(value.func), self.of(value.args)
            return partial(func, *args, **self.of(value.keywords))
        if isinstance(value, MethodType):
            return MethodType(self.of(value.__func__), self._object(value.__self__))
        if isinstance(value, FunctionType):
            return self._function(value)
        # What NumPyro wraps around a model.
        return self._object(value) if callable(getattr(value, "fn", None)) else value

    def _object(self, value: Any) -> Any:
        twin = self.made[id(value)] = copy(value)
        vars(twin).update({name: self.of(part) for name, part in vars(value).items()})
        return twin

    def _function(self, function: FunctionType) -> FunctionType:
        """Make the same function of copies of what it looks up, helpers of its module included."""
        if (function.__module__ or "").split(".")[0] in _LIBRARIES:
            return function
        names = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        twin = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, cells or None
        )
        twin.__kwdefaults__ = function.__kwdefaults__
        self.made[id(function)] = twin
        for name in _names_in(function.__code__) & names.keys():
            module = getattr(names[name], "__module__", function.__module__)
            if module == function.__module__ or not isinstance(names[name], FunctionType):
                names[name] = self.of(names[name])
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a name that is not bound yet
                cell.cell_contents = self.of(original.cell_contents)
        return twin


def _differ(parts: Iterable[Any], originals: Iterable[Any]) -> bool:
    return any(part is not original for part, original in zip(parts, originals, strict=True))


def _names_in(code: CodeType) -> set[str]:
    """Names that a function and the functions inside it look up."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))
