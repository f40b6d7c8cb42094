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
    return ", ".join(f"{count} {way}" for way, count in _counts(hows).items())


def how_left_out(models: Mapping[str, Source], scores: Kind) -> list[str]:
    """Say how each model came by its predictions, where these were not all had in the usual way."""
    ways = {name: _counts(source.hows_left_out) for name, source in models.items()}
    if scores == "in-sample" or set().union(*ways.values()) in _USUAL:
        return []
    said = (f"{name}: {counted_ways(models[name].hows_left_out)}" for name in ways)
    return [f"How observations were left out: {'; '.join(said)}."]


def _counts(hows: NDArray[np.str_]) -> dict[str, int]:
    """Count each way; where there is one only, without a look at every observation."""
    if hows.strides == (0,):
        return {str(hows[0]): hows.size}
    ways, counts = np.unique(hows, return_counts=True)
    return dict(zip(ways.tolist(), counts.tolist(), strict=True))
