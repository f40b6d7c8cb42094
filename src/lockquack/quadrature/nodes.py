"""Log densities of models at the nodes of a quadrature, or at all outcomes of a discrete one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array


@dataclass(frozen=True)
class Nodes:
    """Log densities of K models at the nodes of a quadrature, at some observations."""

    logp: Array  # (K, m, n)
    log_measure: Array  # (m, n): log of what a node stands for; −inf where it is only padding

    def __getitem__(self, chosen: NDArray[np.intp]) -> Nodes:
        """Keep some observations."""
        return Nodes(self.logp[..., chosen], self.log_measure[:, chosen])


def join_nodes(groups: Sequence[Nodes]) -> Nodes:
    """Put groups of observations side by side, padded to the same number of nodes."""
    most = max(len(group.log_measure) for group in groups)

    def padded(values: Array, fill: float) -> Array:
        missing = most - values.shape[-2]
        widths = [(0, 0)] * (values.ndim - 2) + [(0, missing), (0, 0)]
        return np.pad(values, widths, constant_values=fill)

    return Nodes(
        np.concatenate([padded(group.logp, 0.0) for group in groups], axis=-1),
        np.concatenate([padded(group.log_measure, -np.inf) for group in groups], axis=-1),
    )
