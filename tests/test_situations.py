"""Nothing misleads in silence: every situation of the table is answered as the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockquack import errors
from lockquack.remarks import REMARKS
from tests.situations import SITUATIONS, table

PAGE = Path(__file__).parents[1] / "docs" / "limits.md"


@pytest.mark.parametrize("again", range(3))
@pytest.mark.parametrize("name", SITUATIONS)
def test_it_is_said(name, again):
    """Not only of the data that one seed makes."""
    each = SITUATIONS[name]
    assert each.says in each.said(again)


def test_there_are_many_and_all_say_something_that_exists():
    assert len(SITUATIONS) >= 40
    for each in SITUATIONS.values():
        known = each.says in REMARKS or hasattr(errors, each.says)
        assert known or each.says.startswith("“")


def test_the_page_has_the_table():
    assert table() in PAGE.read_text(encoding="utf-8")
