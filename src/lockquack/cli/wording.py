"""Messages as the command line prints them: in its own words, on one line."""

from __future__ import annotations

from lockquack.errors import LockquackError
from lockquack.words import in_shell


def shell_words(message: str | Exception) -> str:
    """Return a message, or that of an error, in words of the command line, on one line.

    Examples
    --------
    >>> from lockquack.words import LOG_SCORE, Text
    >>> shell_words(Text("Use ", LOG_SCORE, "."))
    'Use --rule log.'
    """
    if isinstance(message, Exception):
        message = message.text if isinstance(message, LockquackError) else str(message)
    return " ".join(in_shell(message).split())
