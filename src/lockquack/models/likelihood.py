"""What is known about a model's likelihood besides its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lockquack.families.base import Edge


@dataclass(frozen=True)
class Likelihood:
    """What is known about the density of one observation, given the parameters."""

    description: str
    discrete: bool = False
    #: Where the support ends and how the density behaves there; empty: not known.
    edges: tuple[Edge, ...] = ()
    #: Why the density lacks derivatives (a kink, an atom, censoring); empty: it is smooth.
    not_smooth: str = ""

    def to_attrs(self) -> dict[str, str]:
        """Turn it into attributes of a variable."""
        return {"lockquack_likelihood": json.dumps(asdict(self))}

    @classmethod
    def from_attrs(cls, attrs: Mapping[Any, Any], default: str) -> Likelihood:
        """Read it from the attributes of a variable; little is known where there are none."""
        if "lockquack_likelihood" not in attrs:
            return cls(default)
        fields = json.loads(attrs["lockquack_likelihood"])
        edges = tuple(Edge(**edge) for edge in fields.pop("edges"))
        return cls(edges=edges, **fields)

    def order_at(self, place: float) -> float | None:
        """Order of the density at a place: 0 inside its support, None outside."""
        orders = [edge.order for edge in self.edges if edge.at == place]
        if orders:
            return min(orders)
        low, high = self.support or (-np.inf, np.inf)
        return 0.0 if low < place < high else None

    @property
    def support(self) -> tuple[float, float] | None:
        """Outermost edges, or None where they are not known."""
        places = [edge.at for edge in self.edges]
        return (min(places), max(places)) if places else None
