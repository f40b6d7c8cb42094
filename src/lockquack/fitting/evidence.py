"""What a scoring rule looks at: the models' densities where it needs them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, Jet
from lockquack.quadrature.nodes import Nodes, join_nodes


@dataclass(frozen=True)
class Evidence:
    """The models' predictions at each of n observations, as a rule needs them."""

    jets: Jet  # (K, n) and (K, n, d), at the observed outcomes, in the rule's coordinates
    #: For rules that need a normaliser: consecutive groups of observations.
    nodes: tuple[Nodes, ...] = ()
    #: For rules that look at neighbouring outcomes, (K, neighbour, n): −inf where impossible.
    neighbours: Array | None = None

    @property
    def n_models(self) -> int:
        """Number of models."""
        return int(self.jets.logp.shape[0])

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return int(self.jets.logp.shape[1])

    def at(self, chosen: NDArray[np.intp]) -> Evidence:
        """Keep some observations, by position; groups of nodes become one."""
        nodes = tuple(join_nodes(self.nodes)[chosen] for _ in self.nodes[:1])
        neighbours = None if self.neighbours is None else self.neighbours[..., chosen]
        return Evidence(self.jets[:, chosen], nodes, neighbours)
