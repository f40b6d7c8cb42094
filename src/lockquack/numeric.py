"""Reading numbers that users give, holding constant arrays as one number, cutting ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockquack.errors import LockquackError, NonFiniteError, ParameterError
from lockquack.jets import Array, Numeric

#: Most of anything that is counted; what is more does not fit into memory.
_MOST = 2**31 - 1
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
            f"{name} is masked at position {tuple(at[0].tolist())}{and_more(len(at) - 1)}. "
            "Drop the missing values before combining."
        )
    try:
        array = np.asarray(given)
    except Exception as reason:  # whatever the classes of other libraries raise
        raise error(
            f"{name} is not an array of numbers, or its rows differ in length ({reason})."
        ) from reason
    if array.dtype.kind not in "biuf":
        remedy = _REMEDIES.get(array.dtype.kind, "Convert it with np.asarray(..., dtype=float).")
        if array.dtype.kind == "O" and any(each is None for each in array.flat):
            remedy += " If values are missing (None), drop these observations from every model."
        raise error(f"{name} is not numeric: it has the dtype {array.dtype}. {remedy}")
    return array


def all_within(values: Numeric, limit: float) -> bool:
    """Whether all values are finite and at most ``limit`` in size.

    Found by one sum of squares where the values lie together, which reads them once.

    Examples
    --------
    >>> all_within(np.array([1.0, -2.0]), 10.0), all_within(np.array([1e308, -1e308]), 1e100)
    (True, False)
    >>> all_within(np.array([np.nan]), 10.0)
    False
    """
    if values.size == 0:
        return True
    if values.dtype == np.float64 and values.flags.forc:
        together = values.ravel(order="K")
        with np.errstate(over="ignore", invalid="ignore"):
            if np.vdot(together, together) < limit * limit:
                return True
    return float(values.min()) >= -limit and float(values.max()) <= limit


def and_more(count: int) -> str:
    """End a message that names the first of several.

    Examples
    --------
    >>> and_more(0), and_more(2)
    ('', ' and 2 more')
    """
    return f" and {count} more" if count else ""


def as_flag(name: str, given: Any) -> bool:
    """Read True or False.

    Examples
    --------
    >>> as_flag("metrics", np.True_)
    True
    >>> as_flag("metrics", "no")
    Traceback (most recent call last):
    lockquack.errors.ParameterError: metrics must be True or False; got 'no'.
    """
    if not isinstance(given, bool | np.bool_):
        raise ParameterError(f"{name} must be True or False; got {given!r}.")
    return bool(given)


def as_count(name: str, given: Any, *, least: int = 1) -> int:
    """Read how many of something are wanted: a whole number, mostly from 1.

    Examples
    --------
    >>> as_count("n", np.int64(5))
    5
    >>> as_count("n", 1e3)
    Traceback (most recent call last):
    lockquack.errors.ParameterError: n must be a whole number from 1; got 1000.0.
    """
    if not isinstance(given, int | np.integer) or given < least:
        raise ParameterError(f"{name} must be a whole number from {least}; got {given!r}.")
    if given > _MOST:
        raise ParameterError(f"{name} must be at most {_MOST}; got {given}.")
    return int(given)


def as_positive(name: str, given: Any) -> float:
    """Read one positive, finite number.

    Examples
    --------
    >>> as_positive("prior_sd", "1")
    Traceback (most recent call last):
    lockquack.errors.ParameterError: prior_sd must be one positive number; got '1'.
    """
    if not (isinstance(given, int | float | np.number) and 0 < given < np.inf):
        raise ParameterError(f"{name} must be one positive number; got {given!r}.")
    return float(given)


def as_probability(name: str, given: Any) -> float:
    """Read one probability between 0 and 1.

    Examples
    --------
    >>> as_probability("prob", 90)
    Traceback (most recent call last):
    lockquack.errors.ParameterError: prob must be one number between 0 and 1; got 90.
    """
    if not (isinstance(given, int | float | np.number) and 0 < given < 1):
        raise ParameterError(f"{name} must be one number between 0 and 1; got {given!r}.")
    return float(given)


def as_generator(random_seed: Any) -> np.random.Generator:
    """Make a generator of random numbers of whatever numpy takes as a seed.

    Examples
    --------
    >>> as_generator(-1)
    Traceback (most recent call last):
    lockquack.errors.ParameterError: random_seed must be an integer from 0, ...; got -1.
    """
    try:
        return np.random.default_rng(random_seed)
    except (TypeError, ValueError) as reason:
        raise ParameterError(
            f"random_seed must be an integer from 0, a numpy Generator or None; got "
            f"{random_seed!r}."
        ) from reason


def broadcast_if_constant(values: Array) -> Array:
    """Return an array whose numbers are all the same as a view of one of them.

    Examples
    --------
    >>> broadcast_if_constant(np.full(1000, np.nan)).strides
    (0,)
    >>> broadcast_if_constant(np.arange(3.0)).strides
    (8,)
    """
    first = values.flat[0] if values.size else np.nan
    same = np.isnan(values) if np.isnan(first) else values == first
    return np.broadcast_to(first, values.shape) if same.all() else values


def cut(whole: slice, length: int) -> list[slice]:
    """Cut a range of consecutive positions into slices of at most that length.

    Examples
    --------
    >>> cut(slice(5, 10), 3)
    [slice(5, 8, None), slice(8, 10, None)]
    """
    starts = range(whole.start, whole.stop, length)
    return [slice(start, min(start + length, whole.stop)) for start in starts]
