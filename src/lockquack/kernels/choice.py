"""Which of the two sets of sums over draws is used; they have the same functions.

Arrays of draws are (group, member, cell): blocks of
consecutive draws, the draws in a block, and what is averaged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Protocol, cast

from lockquack.errors import LockquackWarning
from lockquack.jets import Array
from lockquack.kernels import plain

#: Numbers to sum from which on the second that it takes to load a compiler is well spent.
_WORTH_COMPILING = 2**25
#: The same for quantiles to find.
_WORTH_INVERTING = 2**17


#: As :func:`lockquack.kernels.predictive.log_sums`.
LogSums = Callable[..., Array]


class Kernels(Protocol):
    """Functions that pool the draws of a block."""

    #: Most numbers of an array, and most of them in a row, to be given at once.
    HELD_TILE: int
    HELD_ROW: int

    def average_members(self, grad: Array, curv: Array, mean: Array, pooled: Array) -> None:
        """Pool members that have equal shares: their mean gradient, mean h + Var g."""

    def mix_members(self, terms: Array, grad: Array, curv: Array, out: plain.Room) -> None:
        """Pool members that have shares in proportion to the exponentials of terms."""

    def log_sum_members(self, terms: Array) -> Array:
        """Log of the sum of the members' exponentials, (group, cell)."""


def kernels_for(n_numbers: int) -> Kernels:
    """Choose how to sum this many numbers."""
    compiled = _compiled() if n_numbers >= _WORTH_COMPILING else None
    return compiled or cast(Kernels, plain)


def predictive_sums(n_numbers: int) -> LogSums | None:
    """Return compiled sums of densities over draws, if there are any and they are worth it."""
    if n_numbers < _WORTH_COMPILING or _compiled() is None:
        return None
    from lockquack.kernels import predictive

    return predictive.log_sums


def panel_inverses(n_points: int) -> Callable[..., Array] | None:
    """Return compiled quantiles on panels, if there are any and they are worth it."""
    if n_points < _WORTH_INVERTING or _compiled() is None:
        return None
    from lockquack.kernels import inverse

    return inverse.solve_panels


@cache
def _compiled() -> Kernels | None:
    if find_spec("numba") is None:
        return None
    try:
        from lockquack.kernels import compiled
    except ImportError as error:  # it refuses versions of numpy that it does not know
        warnings.warn(
            f"numba is installed but cannot be used, so sums over draws take longer: {error}",
            LockquackWarning,
            stacklevel=1,
        )
        return None
    return cast(Kernels, compiled)
