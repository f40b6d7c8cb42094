"""The models' densities wherever a rule wants to know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, Jet
from lockquack.quadrature.nodes import Table, join_tables
from lockquack.rules.wishes import Wish

#: What was found for a wish: consecutive groups of observations.
Tables = tuple[Table, ...]


def ranks_of(names: Sequence[str]) -> tuple[int, ...]:
    """Return the ranks of models in the order of their names.

    Examples
    --------
    >>> ranks_of(["normal", "beta", "student"])
    (1, 0, 2)
    """
    return tuple(map(sorted(names).index, names))


@dataclass(frozen=True)
class Densities:
    """The densities of K models at each of n observations."""

    jets: Jet  # (K, n) and (K, n, d), at the observed outcomes, in the rule's coordinates
    tables: Mapping[Wish, Tables] = field(default_factory=dict)
    #: How often each observation counts, (n,); None: once each.
    case_weights: Array | None = None
    #: Ranks of the models in an order that does not depend on how they were given, (K,): it
    #: settles what their densities leave open. Empty: as they are.
    ranks: tuple[int, ...] = ()

    @property
    def n_models(self) -> int:
        """Number of models."""
        return int(self.jets.logp.shape[0])

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return int(self.jets.logp.shape[1])

    def known_for(self, wish: Wish) -> tuple[Any, ...]:
        """Return what was found for a wish, or can be made of what was found for others."""
        return wish.found_in(self.tables)

    def at(self, chosen: NDArray[np.intp]) -> Densities:
        """Keep some observations, by position; groups become one."""
        tables = {wish: (join_tables(groups)[chosen],) for wish, groups in self.tables.items()}
        weights = None if self.case_weights is None else self.case_weights[chosen]
        return replace(self, jets=self.jets[:, chosen], tables=tables, case_weights=weights)

    def of(self, models: NDArray[np.intp]) -> Densities:
        """Keep some models, in this order."""
        tables = {
            wish: tuple(part.of(models) for part in groups) for wish, groups in self.tables.items()
        }
        ranks = tuple(self.ranks[k] for k in models.tolist()) if self.ranks else ()
        return replace(self, jets=self.jets[models], tables=tables, ranks=ranks)
