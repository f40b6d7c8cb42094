"""How large numbers may be, and arithmetic that the caller's session does not change.

Densities underflow far out in their tails, logarithms of zero are minus infinity, and both are
meant. With ``np.seterr(all="raise")`` in the caller's session they would be errors. So every
public function and method computes as numpy does by default, and leaves the session as it was.
Threads need nothing: numpy begins each with its defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

#: Largest sizes of what is computed with, and largest of their inverses. Beyond them the squares
#: and fourth powers overflow, or vanish, of which scores and their errors are made.
LARGEST = {"outcome": 1e70, "parameter": 1e100, "logp": 1e100, "grad": 1e75, "curv": 1e150}

#: How notebooks and terminals ask for what they show.
_SHOWN = ("__repr__", "_repr_html_")


def own_arithmetic(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function.

    Examples
    --------
    >>> tail = own_arithmetic(lambda: float(np.exp(np.float64(-1e4))))
    >>> with np.errstate(all="raise"):
    ...     tail()
    0.0
    """

    # Not numpy's own decorator: warnings name the first line outside this package.
    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return function(*args, **kwargs)

    return computed


def methods_in_own_arithmetic(cls: C) -> C:
    """Decorate all public methods and properties of a class.

    Examples
    --------
    >>> @methods_in_own_arithmetic
    ... class Tail:
    ...     def density(self, y):
    ...         return np.exp(-np.square(np.float64(y)))
    >>> with np.errstate(all="raise"):
    ...     float(Tail().density(100.0))
    0.0
    """
    for name, given in list(vars(cls).items()):
        if not name.startswith("_") or name in _SHOWN:
            setattr(cls, name, _decorated(given))
    return cls


def _decorated(given: Any) -> Any:
    match given:
        case FunctionType():
            return own_arithmetic(given)
        case classmethod():
            return classmethod(own_arithmetic(given.__func__))
        case property():
            return property(given.fget and own_arithmetic(given.fget), doc=given.__doc__)
        case cached_property():
            remembered = cached_property(own_arithmetic(given.func))
            remembered.attrname = given.attrname
            return remembered
    return given
