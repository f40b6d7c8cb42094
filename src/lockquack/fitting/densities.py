"""The models' densities wherever a rule wants to know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Jet
from lockquack.quadrature.nodes import Nodes, join_nodes
from lockquack.rules.wishes import Wish

#: What was found for a wish: consecutive groups of observations.
Tables = tuple[Nodes, ...]


@dataclass(frozen=True)
class Densities:
    """The densities of K models at each of n observations."""

    jets: Jet  # (K, n) and (K, n, d), at the observed outcomes, in the rule's coordinates
    tables: Mapping[Wish, Tables] = field(default_factory=dict)

    @property
    def n_models(self) -> int:
        """Number of models."""
        return int(self.jets.logp.shape[0])

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return int(self.jets.logp.shape[1])

    def at(self, chosen: NDArray[np.intp]) -> Densities:
        """Keep some observations, by position; groups become one."""
        tables = {wish: (join_nodes(groups)[chosen],) for wish, groups in self.tables.items()}
        return Densities(self.jets[:, chosen], tables)
