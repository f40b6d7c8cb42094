"""Nodes that were laid for some models, kept for the next question about them.

Densities, calibration, samples and comparisons of one set of models look at the same integrals.
Their nodes are kept as long as the models are, and added to where another pool needs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

from lockquack.models.source import Source

#: Observations of which nodes are kept: those of more take tens of megabytes.
MOST_KEPT = 2**12


@dataclass(frozen=True)
class NodeStore:
    """What was laid for sets of models; forgotten with any of them."""

    _found: WeakKeyDictionary[Source, dict[Any, tuple[tuple[ref[Source], ...], Any]]] = field(
        default_factory=WeakKeyDictionary
    )

    def get(self, models: Sequence[Source], about: Any) -> Any:
        """Return what was kept of these very models, or None."""
        kept = self._found.get(models[0], {}).get((_names(models), about))
        if kept is None or any(a() is not b for a, b in zip(kept[0], models, strict=True)):
            return None
        return kept[1]

    def keep(self, models: Sequence[Source], about: Any, value: Any) -> None:
        """Keep something, in place of what was kept of the same models."""
        if models[0].n_obs <= MOST_KEPT:
            of_first = self._found.setdefault(models[0], {})
            of_first[_names(models), about] = tuple(map(ref, models)), value


def _names(models: Sequence[Source]) -> tuple[int, ...]:
    return tuple(map(id, models))


NODES = NodeStore()
