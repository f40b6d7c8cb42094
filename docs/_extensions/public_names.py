"""Links to classes of other libraries by the names under which these document them.

Type hints name a class by the module it is defined in, ``xarray.core.dataarray.DataArray``; the
inventory of its library has ``xarray.DataArray``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


def shorter_names(name: str) -> list[str]:
    """Return the names that a class may have in the packages above its module, longest first."""
    *modules, last = name.split(".")
    return [".".join([*modules[:count], last]) for count in range(len(modules) - 1, 0, -1)]


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.reference | None:
    from sphinx.ext.intersphinx import missing_reference

    asked = node.get("reftarget", "")
    try:
        for node["reftarget"] in shorter_names(asked):
            if found := missing_reference(app, env, node, shown):
                return found
    finally:
        node["reftarget"] = asked
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Ask after intersphinx has looked for the name as it is."""
    app.setup_extension("sphinx.ext.intersphinx")
    app.connect("missing-reference", _resolve, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
