"""How predictions of observations that are left out were had, in a line."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.blocks import Kind
from lockquack.models.source import Source

#: What the name of the scores says already.
_USUAL = ({"PSIS"}, {"held out"})


def counted_ways(hows: NDArray[np.str_]) -> str:
    """Say in how many ways predictions were had.

    Examples
    --------
    >>> counted_ways(np.array(["PSIS", "refit", "PSIS"]))
    '2 PSIS, 1 refit'
    """
    ways, counts = np.unique(hows, return_counts=True)
    return ", ".join(f"{count} {way}" for way, count in zip(ways, counts, strict=True))


def how_left_out(models: Mapping[str, Source], scores: Kind) -> list[str]:
    """Say how each model came by its predictions, where these were not all had in the usual way."""
    ways = {name: source.hows_left_out for name, source in models.items()}
    found = set(np.concatenate([*ways.values()]).tolist())
    if scores == "in-sample" or found in _USUAL:
        return []
    said = (f"{name}: {counted_ways(hows)}" for name, hows in ways.items())
    return [f"How observations were left out: {'; '.join(said)}."]
