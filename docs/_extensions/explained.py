"""What warnings mean and what to do about each: the words of the package, as part of a page.

A block ``{explained}`` with the name of a warning lists all that it can be about.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from lockquack import remarks

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def as_markdown(kind: type[remarks.Remark]) -> str:
    """Write one kind of remark as an entry of a definition list."""
    return (
        f"**{kind.title}** (`{kind.code}`)\n"
        f": `{kind.of_example()}`\n\n"
        f"  {kind.meaning}\n\n"
        f"  **What to do.** {kind.remedy}\n"
    )


class Explained(SphinxDirective):
    """All that one kind of warning can be about."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Write the list; a warning without an entry is a mistake."""
        for file in Path(remarks.__file__).parent.glob("*.py"):
            self.env.note_dependency(str(file))
        name = self.arguments[0]
        found = [kind for kind in remarks.REMARKS.values() if kind.category.__name__ == name]
        if not found:
            raise self.error(f"lockquack.remarks has nothing about {name!r}")
        return self.parse_text_to_nodes("\n".join(map(as_markdown, found)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the block."""
    app.add_directive("explained", Explained)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
