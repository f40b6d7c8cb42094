"""The few pieces of HTML that sections are made of; all text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

#: A heading and the cells below it.
Column = tuple[str, Sequence[object]]


def paragraph(text: str, *, soft: bool = False) -> str:
    """Write a paragraph."""
    kind = ' class="soft"' if soft else ""
    return f"<p{kind}>{escape(text)}</p>"


def explanation(lead: str, text: str, *, soft: bool = False) -> str:
    """Write a paragraph of the package's own words, in which backticks mark code."""
    return re.sub("`(.*?)`", r"<code>\1</code>", paragraph(f"{lead} {text}", soft=soft))


def bullets(items: Iterable[str]) -> str:
    """Write a list."""
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    title: str
    body: str

    @property
    def anchor(self) -> str:
        """Where links to it lead: the first word of its title."""
        return self.title.split()[0].lower().strip(",")

    def __str__(self) -> str:
        place = escape(self.anchor)
        return (
            f'<section id="{place}" aria-labelledby="{place}-title">\n'
            f'<h2 id="{place}-title">{escape(self.title)}</h2>\n{self.body}\n</section>'
        )


def section(title: str, *parts: str) -> Section:
    """Make a section of those parts that are not empty."""
    return Section(title, "\n".join(part for part in parts if part))


def links_to(sections: Iterable[Section]) -> str:
    """Write links to sections."""
    links = (
        f'<li><a href="#{escape(each.anchor)}">{escape(each.title)}</a></li>' for each in sections
    )
    return f'<nav aria-label="Parts of this page"><ul>{"".join(links)}</ul></nav>'


def figure(svg: str, caption: str) -> str:
    """Put a caption below a picture; it is also the description for screen readers."""
    seen = svg.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}"', 1)
    return f"<figure>{seen}<figcaption>{escape(caption)}</figcaption></figure>"


def side_by_side(*parts: str) -> str:
    """Put parts next to each other, where there is room."""
    return f'<div class="wide">{"".join(f"<div>{part}</div>" for part in parts if part)}</div>'


def definitions(values: Mapping[str, str]) -> str:
    """Write names and values, one below the other."""
    parts = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values.items())
    return f"<dl>{''.join(parts)}</dl>"


def folded(summary: str, *parts: str) -> str:
    """Write parts that are hidden until the reader opens them."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def titled_note(title: str, *parts: str) -> str:
    """Write a note with a title."""
    return f'<div class="note"><h3>{escape(title)}</h3>{"".join(parts)}</div>'


def table(corner: str, names: Iterable[object], columns: Sequence[Column]) -> str:
    """Write a table of text and rounded numbers; it scrolls where it is too wide."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading, _ in columns)
    cells = zip(*(values for _, values in columns), strict=True)
    body = "".join(
        f'<tr><th scope="row">{escape(str(name))}</th>'
        + "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        + "</tr>"
        for name, row in zip(names, cells, strict=True)
    )
    return (
        f'<div class="table" tabindex="0"><table><thead><tr><th scope="col">{escape(corner)}</th>'
        f"{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def numbers(heading: str, values: Iterable[float], digits: int) -> Column:
    """Write a column of numbers."""
    return heading, [number(value, digits) for value in values]


def number(value: float, digits: int) -> str:
    """Write a number with a true minus sign; nothing where there is none.

    Examples
    --------
    >>> number(-12.34, 1), number(float("nan"), 1), number(-0.001, 1)
    ('−12.3', '', '0.0')
    """
    if np.isnan(value):
        return ""
    rounded = round(float(value), digits) + 0.0
    written = f"{rounded:.{digits}f}" if abs(rounded) < 1e7 else f"{rounded:.3e}"
    return written.replace("-", "−")


def code(text: str) -> str:
    """Write a command to type."""
    return f"<pre><code>{escape(text)}</code></pre>"
