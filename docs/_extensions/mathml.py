"""Formulas as MathML: no script, nothing to download, and every current browser draws it."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

#: What docutils has by another name, or not at all.
_TEX = {r"\textstyle": "", r"\texttt": r"\mathtt", r"\operatorname": r"\mathrm"}
#: Functions whose argument has no bracket need the space that TeX would leave.
_APPLIED = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*<mo [^>]*>[(\[]|\s*</)")


def mathml(tex: str, *, block: bool) -> str:
    """Convert a formula; what is not understood is an error."""
    for known, instead in _TEX.items():
        tex = tex.replace(known, instead)
    if block and (r"\\" in tex or "&" in tex) and r"\begin" not in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    converted = tex2mathml(tex.strip(), as_block=block)
    return _APPLIED.sub('<mo rspace="0.17em">&ApplyFunction;</mo>', converted)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="formula"))
    translator.body.append(mathml(node.astext(), block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
