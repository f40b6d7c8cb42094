"""The page: one file that needs nothing else."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

import lockquack.report.sections as sections
from lockquack.report.contents import Contents
from lockquack.report.markup import links_to

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination


def as_page(contents: Contents, title: str | None, command: str | None) -> str:
    """Write the page."""
    fit = contents.fit
    names = ", ".join(fit.names) if len(fit.names) <= 4 else f"{len(fit.names)} models"
    parts = [
        sections.overview(contents),
        sections.what_was_combined(contents),
        sections.weights(fit),
        sections.influence(contents),
        sections.scores(contents),
        sections.calibration(contents),
        sections.predictions(contents),
        sections.diagnostics(contents),
        sections.how_it_was_made(fit, command),
    ]
    here = files("lockquack.report")
    page = Template(here.joinpath("page.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=escape(title or f"{fit.label.capitalize()}: {names}"),
        subtitle=_size(fit),
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        links=links_to(parts),
        sections="\n".join(map(str, parts)),
    )


def _size(fit: Combination) -> str:
    """Say how much was combined."""
    counts = {"model": len(fit.names), "observation": fit.observations.n}
    return " of ".join(f"{n} {word}{'s' if n > 1 else ''}" for word, n in counts.items())
