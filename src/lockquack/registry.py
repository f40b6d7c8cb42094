"""Looking up an operator or a rule by its name, and names in general."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from lockquack.errors import unknown_name

T = TypeVar("T")


def look_up(kind: str, given: T | type[T] | str, base: type[T], known: Mapping[str, type[T]]) -> T:
    """Return an object as it is, a class or its registered name as an object with defaults."""
    if isinstance(given, base):
        return given
    if isinstance(given, type) and issubclass(given, base):
        return given()
    require_known(kind, given, known)
    return known[str(given)]()


def require_known(kind: str, given: Any, known: Collection[str]) -> None:
    """Refuse what is not one of some names; arrays are not even compared with them.

    Examples
    --------
    >>> require_known("kind of interval", "hpd", ("central", "hdi"))
    Traceback (most recent call last):
    lockquack.errors.UnknownNameError: Unknown kind of interval 'hpd'. Did you mean 'hdi'? ...
    """
    if not isinstance(given, str) or given not in known:
        raise unknown_name(kind, given, known)
