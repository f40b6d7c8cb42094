"""What is known of models at some observations: tables of arrays, group by group."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array


@dataclass(frozen=True)
class Table(ABC):
    """Arrays of which some axes belong to K models and the last to n observations.

    What is done to models and observations is done to every array by the names of its axes.
    """

    #: Axes of each array, a letter each: k, models; n, observations; others, places of each.
    axes: ClassVar[dict[str, str]]
    #: What an array has at places that only others have, where groups are joined.
    padding: ClassVar[dict[str, float]] = {}

    def __getitem__(self, chosen: NDArray[np.intp]) -> Self:
        """Keep some observations."""
        return self._taken("n", chosen)

    def of(self, models: NDArray[np.intp]) -> Self:
        """Keep some models, in this order."""
        return self._taken("k", models)

    def _taken(self, letter: str, chosen: NDArray[np.intp]) -> Self:
        arrays = {name: getattr(self, name) for name in self.axes}
        for name, axes in self.axes.items():
            for axis in (i for i, each in enumerate(axes) if each == letter):
                arrays[name] = np.take(arrays[name], chosen, axis=axis)
        return type(self)(**arrays)


def join_tables(groups: Sequence[Table]) -> Table:
    """Put groups of observations side by side, padded to the same number of places."""
    kind = type(groups[0])
    joined = {}
    for name, axes in kind.axes.items():
        arrays = [getattr(group, name) for group in groups]
        if "n" not in axes:
            joined[name] = arrays[0]
            continue
        most = np.max([array.shape for array in arrays], axis=0)
        fill = kind.padding.get(name, 0.0)
        joined[name] = np.concatenate(
            [np.pad(a, _widths(a, most, axes), constant_values=fill) for a in arrays],
            axis=axes.index("n"),
        )
    return kind(**joined)


def _widths(array: Array, most: Array, axes: str) -> list[tuple[int, int]]:
    lacking = (most - array.shape).tolist()
    return [
        (0, 0 if axis in "kn" else missing) for axis, missing in zip(axes, lacking, strict=True)
    ]


@dataclass(frozen=True)
class Nodes(Table):
    """Log densities of K models at the nodes of a quadrature, or at all outcomes of a discrete one.

    At some observations.
    """

    logp: Array  # (K, m, n)
    log_measure: Array  # (m, n): log of what a node stands for; −inf where it is only padding

    axes: ClassVar[dict[str, str]] = {"logp": "kmn", "log_measure": "mn"}
    padding: ClassVar[dict[str, float]] = {"log_measure": -np.inf}
