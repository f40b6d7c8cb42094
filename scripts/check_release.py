"""Refuse to publish a tag that is not the version, or whose changelog has no date.

``python scripts/check_release.py v0.1.0``; it needs nothing but Python.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(tag: str) -> list[str]:
    """Say in words what is not ready."""
    source = (ROOT / "src" / "lockquack" / "__init__.py").read_text("utf-8")
    version = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)[1]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    title = re.search(
        rf"^## {re.escape(version)} \((.+)\)$",
        (ROOT / "CHANGELOG.md").read_text("utf-8"),
        re.MULTILINE,
    )
    found = []
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, the version {version}: tag v{version}")
    if cited[1] != version:
        found.append(f"CITATION.cff has version {cited[1]}, not {version}")
    if title is None:
        found.append(f"CHANGELOG.md has no section '## {version} (date)'")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", title[1]):
        found.append(f"CHANGELOG.md has {version} as '{title[1]}': write the date, 2026-01-31")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(problems(sys.argv[1])) or None)
