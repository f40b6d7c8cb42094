"""Terminals and pipes as they are: closed ones, and those that know no letters beyond ASCII."""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata

#: What stands for signs that are no letters with an accent, which lose it.
_SIGNS = {"±": "+/-", "−": "-", "–": "-", "—": "-", "→": "->", "…": "...", "×": "x", "·": "*"}
_HANDLER = "lockquack-nearest"


def prepare_streams() -> None:
    """Let everything be written somewhere: nowhere, if a stream is closed; else as near as can be.

    A command whose result nobody reads may still save it.
    """
    codecs.register_error(_HANDLER, _nearest)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Write what cannot be written by what is nearest, as ``Hyvarinen`` and ``+/-``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    given = error.object[error.start : error.end]
    return "".join(map(_plain, given)), error.end


def _plain(letter: str) -> str:
    if letter in _SIGNS:
        return _SIGNS[letter]
    parts = unicodedata.normalize("NFKD", letter)
    kept = "".join(part for part in parts if part.isascii())
    return kept if kept or unicodedata.combining(letter) else "?"


def printable(text: str) -> str:
    r"""Show what would move the cursor or colour the screen, in names that somebody else chose.

    Examples
    --------
    >>> print(printable("red: \x1b[31m, bell: \a"))
    red: \x1b[31m, bell: \x07
    """
    return "".join(
        sign if sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cs") else _escaped(sign)
        for sign in text
    )


def _escaped(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
