"""Files of the repository as pages of the site, and links that work in both.

Pages link to files as they lie in the repository, so that they can be read there. A page of
:data:`PAGES` has the text of the file that it stands for.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
#: Which page stands for which file outside the folder of the documentation.
PAGES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
_STANDS_FOR = {
    **{file: f"docs/{page}.md" for page, file in PAGES.items()},
    "README.md": "docs/index.md",
}
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def relink(text: str, written_in: str, shown_in: str) -> str:
    """Turn links of a file of the repository into those of the page that shows it."""

    def turned(match: re.Match[str]) -> str:
        opening, target, anchor, closing = match.groups(default="")
        path = normpath(join(dirname(written_in), target))
        path = _STANDS_FOR.get(path, path)
        return opening + relpath(path, dirname(shown_in)) + anchor + closing

    return _LINK.sub(turned, text)


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    shown_in = f"docs/{page}.md"
    if page in PAGES:
        app.env.note_dependency(ROOT / PAGES[page])
        source[0] = relink((ROOT / PAGES[page]).read_text("utf-8"), PAGES[page], shown_in)
    elif Path(app.env.doc2path(page)).suffix == ".md":
        source[0] = relink(source[0], shown_in, shown_in)


def setup(app: Sphinx) -> dict[str, bool]:
    """Read pages through it."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
