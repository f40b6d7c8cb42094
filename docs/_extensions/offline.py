"""Refuse to end a build whose pages would fetch something from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: What a page loads by itself; links that a reader may follow are another matter.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data)=["']?(?:https?:)?//
    |<link\b(?=[^>]*rel=["']?(?:stylesheet|preload|preconnect|dns-prefetch|icon))[^>]*?href=["']?(?:https?:)?//
    |@import\s+(?:url\()?["']?(?:https?:)?//
    |\burl\(["']?(?:https?:)?//""",
    re.VERBOSE | re.IGNORECASE,
)


def from_elsewhere(text: str) -> list[str]:
    """Beginnings of what a page or a style sheet would load from another place."""
    return [text[match.start() : match.end() + 40] for match in _LOADED.finditer(text)]


def _check(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    from sphinx.errors import ExtensionError

    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in {".html", ".css"}:
            found = from_elsewhere(path.read_text("utf-8"))
            if found:
                raise ExtensionError(f"{path.relative_to(app.outdir)} loads {found[0]!r}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at what was written when all of it is."""
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
