"""What a command needs installed."""

from __future__ import annotations

from importlib.util import find_spec

from lockquack.errors import LockquackError


def require(module: str, extra: str) -> None:
    """Say what to install before hours of work, not after."""
    if find_spec(module) is None:
        raise LockquackError(
            f"This needs {module}, which is not installed: pip install 'lockquack[{extra}]'."
        )
