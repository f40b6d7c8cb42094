"""Looking up an operator or a rule by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lockquack.errors import unknown_name

T = TypeVar("T")


def look_up(kind: str, given: T | type[T] | str, base: type[T], known: Mapping[str, type[T]]) -> T:
    """Return an object as it is, a class or its registered name as an object with defaults."""
    if isinstance(given, base):
        return given
    if isinstance(given, type) and issubclass(given, base):
        return given()
    if not isinstance(given, str) or given not in known:
        raise unknown_name(kind, given, known)
    return known[given]()
