"""What the Python contestants have in common: read, repeat, measure, print JSON.

``python contestants/<name>.py <task> <folder>`` with the task ``draws`` or ``elpds``. Reading the
files is not timed. The best time counts; memory is what the process held beyond its input.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

#: Repeat until this many seconds are spent, or this many times.
ENOUGH, MOST = 3.0, 5


def held(field: str) -> int:
    """Bytes that this process holds (VmRSS) or held at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def report(run: Callable[[], list[float]]) -> None:
    """Time some work that ends in weights, and print what it came to."""
    before = held("VmRSS")
    seconds: list[float] = []
    weights: list[float] = []
    while len(seconds) < MOST and sum(seconds) < ENOUGH:
        start = time.perf_counter()
        weights = run()
        seconds.append(time.perf_counter() - start)
    extra = held("VmHWM") - before
    print(json.dumps({"seconds": min(seconds), "weights": weights, "extra": extra}))
