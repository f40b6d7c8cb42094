"""The page: one file that needs nothing else."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

import lockquack.report.sections as sections
from lockquack.report.contents import Contents
from lockquack.report.markup import bullets


def as_page(contents: Contents, title: str | None, command: str | None) -> str:
    """Write the page."""
    fit = contents.fit
    names = ", ".join(fit.names) if len(fit.names) <= 4 else f"{len(fit.names)} models"
    parts = [
        f'<div class="short"><strong>In short</strong>{bullets(sections.in_short(contents))}</div>',
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
        subtitle=f"{len(fit.names)} model(s) of {fit.observations.n} observation(s), combined",
        style=here.joinpath("page.css").read_text(encoding="utf-8"),
        sections="\n".join(parts),
    )
