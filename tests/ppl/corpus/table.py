"""What becomes of the models of the corpus, as tables of the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.ppl.corpus.case import Case

#: What a table says for ``Case.goes_in``.
GOES_IN = {
    "H": "yes",
    "H of log y": "in log y",
    "H of logit y": "in logit y",
    "log": "log score",
    "no": "no",
}


def page(every: Mapping[str, Sequence[Case]]) -> str:
    """Write how many models go in, and a section for each library."""
    sections = [f"## {library}\n\n{models(cases)}" for library, cases in every.items()]
    return "\n".join([counts(every), *sections])


def counts(every: Mapping[str, Sequence[Case]]) -> str:
    """Write how many models of each library go in."""
    rows = [["", *GOES_IN.values(), "all"]]
    for library, cases in every.items():
        each = [case.goes_in for case in cases]
        numbers = [str(each.count(goes_in)) for goes_in in GOES_IN]
        rows.append([library, *numbers, str(len(each))])
    return _table(rows)


def models(cases: Sequence[Case]) -> str:
    """Write what becomes of each model of a library."""
    rows, kind = [["kind", "model", "goes in", "why not more, or what is remarked on"]], ""
    for case in cases:
        shown, kind = "" if case.kind == kind else case.kind, case.kind
        rows.append([shown, case.title, GOES_IN[case.goes_in], case.reason])
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Write rows, the first of them a head, as Markdown."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:], ""])
