"""The numbers in golden/numbers.json, computed again; scripts/golden_numbers.py writes them.

With the same libraries on the same kind of processor they are the same to the last bit, on any
number of threads. Tolerances are for other ones. To see whether a change of the code changed
anything at all, run the script with ``--compare tests/golden/numbers.json``.
"""

from __future__ import annotations

import importlib.util
import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "golden_numbers.py"
SPEC = importlib.util.spec_from_file_location("golden_numbers", SCRIPT)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

GOLDEN = json.loads(script.GOLDEN.read_text(encoding="utf-8"))
#: Largest difference, relative to the largest number of an entry.
USUAL = 1e-12
#: Larger ones, by the name of the entry: a hundred times what another processor makes of them.
LARGER = {
    # Where a function is flat: what is found is known to the root of the precision.
    "*/mode": 1e-5,
    "*/hdi": 1e-5,
    # Finite differences of rounded numbers.
    "checks/*/error": 2e-5,
    # Another rounding sends a chain elsewhere: what agrees is the distribution.
    "uncertainty/*/posterior": 0.2,
    "uncertainty/*": 1e-7,
    "files/*/weights_se": 2e-9,
    # Iterations from several starts.
    "operators_*": 1e-10,
    "arrays/quack": 1e-10,
    "comparison*": 1e-10,
    "real_data/pareto_k": 1e-10,
}


def tolerance(name):
    return next((rtol for like, rtol in LARGER.items() if fnmatchcase(name, like)), USUAL)


def test_all_topics_are_written_down():
    assert sorted(GOLDEN) == sorted(script.TOPICS)


def test_tolerances_are_for_entries_that_exist():
    names = [f"{topic}/{name}" for topic, numbers in GOLDEN.items() for name in numbers]
    for like in LARGER:
        assert any(fnmatchcase(name, like) for name in names), like


@pytest.mark.parametrize("topic", script.TOPICS)
def test_numbers_have_not_changed(topic):
    found = {topic: script.compute(topic)}
    apart = script.compare(found, {topic: GOLDEN[topic]})
    wrong = {name: by for name, by in apart.items() if by > tolerance(name)}
    assert not wrong, f"{len(wrong)} of {len(apart)} entries differ, relative to their size"


@pytest.mark.parametrize(
    ("found", "expected", "by"),
    [
        (1.0, 1.0, 0.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        (0.5, 0.0, 0.5),
        ([2.0, 1.0], [4.0, 1.0], 0.5),
        ([1.0, 2.0], [1.0], float("inf")),
        (float("nan"), 1.0, float("inf")),
    ],
)
def test_deviations_are_seen(found, expected, by):
    assert script.deviation(found, expected) == by


def test_entries_that_are_new_or_gone_are_seen():
    apart = script.compare({"topic": {"a": 1.0, "b": 2.0}}, {"topic": {"b": 2.0, "c": 3.0}})
    assert apart == {"topic/a": float("inf"), "topic/c": float("inf"), "topic/b": 0.0}
