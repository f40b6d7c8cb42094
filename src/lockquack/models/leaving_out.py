"""How observations that are left out are predicted, in a line."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lockquack.draws.blocks import Kind
from lockquack.models.source import Source

#: What the name of the scores says already.
_USUAL = ({"PSIS"}, {"held out"})


def counted_by_way(each: NDArray[np.str_]) -> str:
    """Say how many observations are predicted in which way.

    Examples
    --------
    >>> counted_by_way(np.array(["PSIS", "refit", "PSIS"]))
    '2 PSIS, 1 refit'
    """
    return ", ".join(f"{count} {way}" for way, count in _counts(each).items())


def lines_about_left_out(models: Mapping[str, Source], scores: Kind) -> list[str]:
    """Say how each model predicts what is left out, where that is not what the scores say."""
    ways = {name: _counts(source.each_left_out_by) for name, source in models.items()}
    if scores == "in-sample" or set().union(*ways.values()) in _USUAL:
        return []
    said = (f"{name}: {counted_by_way(models[name].each_left_out_by)}" for name in ways)
    return [f"How observations were left out: {'; '.join(said)}."]


def _counts(each: NDArray[np.str_]) -> dict[str, int]:
    """Count each way; where there is one only, without a look at every observation."""
    if each.strides == (0,):
        return {str(each[0]): each.size}
    ways, counts = np.unique(each, return_counts=True)
    return dict(zip(ways.tolist(), counts.tolist(), strict=True))
