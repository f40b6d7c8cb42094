"""Smoothed tails of importance weights, kept for the next question about the same draws.

Leave-one-out densities, predictions and comparisons all weigh the draws of a source in the same
way. Nearly all work of that is to find the largest weights and to smooth them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from lockquack.draws.psis import Tails

#: Observations of a source whose tails are kept: two kilobytes each, with 4,000 draws.
_MOST_KEPT = 2**11


@dataclass(frozen=True)
class TailStore:
    """The tails of groups of observations, forgotten with the source of the draws."""

    _found: WeakKeyDictionary[object, dict[tuple[int, int], Tails]] = field(
        default_factory=WeakKeyDictionary
    )

    def get(self, source: object, obs: slice) -> Tails | None:
        """Return what was kept of these observations, or None."""
        return self._found.get(source, {}).get((obs.start, obs.stop))

    def keep(self, source: object, obs: slice, tails: Tails) -> None:
        """Keep the tails of some observations, unless there are too many."""
        if obs.stop <= _MOST_KEPT:
            self._found.setdefault(source, {})[obs.start, obs.stop] = tails


TAILS = TailStore()
