"""What becomes of the models that the tests bring, as part of a page.

A block ``{corpus}`` counts them and lists those of each library in a section of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from tests.ppl.corpus import table  # noqa: E402
from tests.ppl.corpus.registry import corpora  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class CorpusTable(SphinxDirective):
    """How many models there are of each library, and which."""

    def run(self) -> list[nodes.Node]:
        """Write the tables."""
        for file in (ROOT / "tests" / "ppl" / "corpus").rglob("*.py"):
            self.env.note_dependency(str(file))
        return self.parse_text_to_nodes(table.page(corpora()), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the block."""
    app.add_directive("corpus", CorpusTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
