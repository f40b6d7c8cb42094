"""Reading numbers from whatever users hand in."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockquack.errors import LockquackError, NonFiniteError
from lockquack.jets import Numeric

_REMEDIES = {
    "c": "Take its real part.",
    "M": "Turn dates into numbers, such as days since the first.",
    "m": "Divide durations by a unit, such as np.timedelta64(1, 'D').",
}


def as_numeric(name: str, given: Any, error: type[LockquackError] = LockquackError) -> Numeric:
    """Read real numbers, without a copy where they are an array; refuse everything else.

    Parameters
    ----------
    name
        What to call them in a message.
    given
        Anything that numpy makes an array of.
    error
        The class of the error for what is not numeric. Masked entries are
        :class:`NonFiniteError`: they are missing values by another name.

    Examples
    --------
    >>> as_numeric("y", [1, 2]).dtype.kind
    'i'
    >>> as_numeric("y", ["1", "2"])
    Traceback (most recent call last):
    lockquack.errors.LockquackError: y is not numeric: it has the dtype <U1. Convert it with ...
    """
    if given is None:
        raise error(f"{name} is None; give numbers.")
    if isinstance(given, np.ma.MaskedArray) and np.ma.getmaskarray(given).any():
        at = np.argwhere(np.ma.getmaskarray(given))
        raise NonFiniteError(
            f"{name} is masked at position {tuple(at[0].tolist())} and {len(at) - 1} more. "
            "Drop the missing values before combining."
        )
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as reason:
        raise error(
            f"{name} is not an array of numbers, or its rows differ in length ({reason})."
        ) from reason
    if array.dtype.kind not in "biuf":
        remedy = _REMEDIES.get(array.dtype.kind, "Convert it with np.asarray(..., dtype=float).")
        raise error(f"{name} is not numeric: it has the dtype {array.dtype}. {remedy}")
    return array
