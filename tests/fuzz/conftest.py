"""How many cases each invariant gets, which ones, and how to see one again.

Every invariant is a test over random input, marked ``@fuzzed(share)``: of all cases it gets
that share, relative to the shares of the others that are run. Cheap ones have 10, those that
write files, start threads or integrate have less.

Within ``make test`` the cases are the same every time. ``make fuzz`` draws new ones, remembers
failures in ``.hypothesis/`` and begins with these the next time. A failure prints the smallest
input that was found; run the test again, and it comes first.
"""

from __future__ import annotations

import os
import warnings

import pytest
from hypothesis import HealthCheck, Phase, settings

from lockquack.errors import LockquackWarning

#: Cases of all invariants together: those that never change, or ``make fuzz``'s.
FIXED, WANTED = 600, os.environ.get("FUZZ_CASES")

_PHASES = [phase for phase in Phase if phase is not Phase.explain]  # tells little, takes long


def pytest_configure(config):
    config.addinivalue_line("markers", "fuzzed(share): an invariant, and its share of the cases")


def pytest_collection_modifyitems(items):
    shares = {item: mark.args[0] for item in items if (mark := item.get_closest_marker("fuzzed"))}
    total, cases = sum(shares.values()), int(WANTED or FIXED)
    for item, share in shares.items():
        settings(
            max_examples=max(1, round(cases * share / total)),
            derandomize=WANTED is None,
            deadline=None,
            phases=_PHASES,
            print_blob=WANTED is not None,
            suppress_health_check=list(HealthCheck),
        )(item.function)


@pytest.fixture(autouse=True)
def _unwarned():
    """Remarks are not what invariants are about; warnings of other libraries remain errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LockquackWarning)
        yield
