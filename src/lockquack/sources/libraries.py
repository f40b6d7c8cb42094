"""Libraries that are needed only where a model was made with them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def library(name: str, extra: str) -> Any:
    """Import a library, or say how to install it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # something that it needs itself
            raise
        raise ImportError(
            f"This needs {name}, which is not installed: pip install 'lockquack[{extra}]'."
        ) from error
