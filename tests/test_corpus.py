"""The models of the corpus: enough of each library, and all of them in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ppl.corpus import table
from tests.ppl.corpus.registry import corpora

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "models.md"
CORPORA = corpora()


@pytest.mark.parametrize(("library", "least"), [("PyMC", 60), ("Bambi", 25), ("NumPyro", 25)])
def test_there_are_many_models_of_a_library(library, least):
    assert len(CORPORA[library]) >= least
    assert len({case.name for case in CORPORA[library]}) == len(CORPORA[library])


def test_the_page_has_a_section_for_every_library():
    assert "```{corpus}" in PAGE.read_text()
    found = re.findall(r"^## (\w+)$", table.page(CORPORA), re.MULTILINE)
    assert found == list(CORPORA)


@pytest.mark.parametrize("library", CORPORA)
def test_the_table_says_what_becomes_of_each_model(library):
    cases = CORPORA[library]
    head, rule, *rows = table.models(cases).splitlines()
    assert head.count("|") == rule.count("|")
    kind, shown = "", []
    for row in rows:
        first, title, goes_in, reason = (cell.strip() for cell in row.strip("|").split(" | "))
        kind = first or kind
        shown.append((kind, title, goes_in, reason))
    expected = [(case.kind, case.title, table.GOES_IN[case.goes_in], case.reason) for case in cases]
    assert shown == expected


def test_the_counts_add_up():
    for library, row in zip(CORPORA, table.counts(CORPORA).splitlines()[2:], strict=True):
        name, *numbers = (cell.strip() for cell in row.strip("|").split("|"))
        *each, total = map(int, numbers)
        assert name == library
        assert sum(each) == total == len(CORPORA[library])
