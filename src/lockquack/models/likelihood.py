"""What is known about a model's likelihood besides its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from lockquack.errors import FileError, in_brief
from lockquack.families.base import Edge
from lockquack.jets import Array


@dataclass(frozen=True)
class Likelihood:
    """What is known about the density of one observation, given the parameters."""

    description: str
    discrete: bool = False
    #: Where the support ends and how the density behaves there; empty: not known.
    edges: tuple[Edge, ...] = ()
    #: Why the density lacks derivatives (a kink, an atom, censoring); empty: it is smooth.
    not_smooth: str = ""
    #: Whether the density of an observation is conditional on earlier outcomes, as in a series.
    given_earlier: bool = False
    #: Names of terms whose data shape the posterior but are not scored.
    not_scored: tuple[str, ...] = ()

    @classmethod
    def of_components(cls, parts: Mapping[str, Likelihood]) -> Likelihood:
        """Describe a vector whose components, or groups of them, have likelihoods of their own."""
        names = dict.fromkeys(part.description for part in parts.values())
        together = cls(
            " and ".join(names),
            discrete=all(part.discrete for part in parts.values()),
            given_earlier=any(part.given_earlier for part in parts.values()),
        )
        if together.discrete:
            return together
        for name, part in parts.items():
            why = part._why_not_differentiated()
            if why:
                return replace(together, not_smooth=f"of its component {name!r}: {why}")
        return together

    def _why_not_differentiated(self) -> str:
        """Say why a component of a vector has no Hyvärinen score; empty: it has one."""
        sharp = [edge.at for edge in self.edges if np.isfinite(edge.at) and edge.order <= 1]
        if self.discrete:
            return "it is discrete"
        if sharp and not self.not_smooth:
            return f"its density does not vanish at {sharp[0]:g}"
        return self.not_smooth

    def to_attrs(self) -> dict[str, str]:
        """Turn it into attributes of a variable."""
        return {"lockquack_likelihood": json.dumps(asdict(self))}

    @classmethod
    def from_attrs(cls, attrs: Mapping[Any, Any], default: str) -> Likelihood:
        """Read it from the attributes of a variable; little is known where there are none."""
        if "lockquack_likelihood" not in attrs:
            return cls(default)
        try:
            fields = json.loads(attrs["lockquack_likelihood"])
            fields["edges"] = tuple(Edge(**edge) for edge in fields["edges"])
            fields["not_scored"] = tuple(fields.get("not_scored", ()))
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FileError(
                f"Cannot make sense of the attribute 'lockquack_likelihood' ({in_brief(error)}). "
                "The file was damaged, or a later version of lockquack wrote it: make the model "
                "again."
            ) from error

    def order_at(self, place: float) -> float | None:
        """Order of the density at a place: 0 inside its support, None outside."""
        orders = [edge.order for edge in self.edges if edge.at == place]
        if orders:
            return min(orders)
        low, high = self.support or (-np.inf, np.inf)
        return 0.0 if low < place < high else None

    def is_joined_at(self, place: float) -> bool:
        """Whether the density goes on at its other end there, as on a circle."""
        return any(edge.joined for edge in self.edges if edge.at == place)

    @property
    def is_circle(self) -> bool:
        """Whether outcomes are angles, so that the two ends of the support are one place."""
        return bool(self.edges) and all(edge.joined for edge in self.edges)

    def on_circle(self, y: Array) -> Array:
        """Bring outcomes beyond the ends of a circle back onto it; on a line they stay."""
        if not self.is_circle:
            return y
        low, high = self.edges[0].at, self.edges[-1].at
        return low + np.remainder(y - low, high - low)

    @property
    def support(self) -> tuple[float, float] | None:
        """Outermost edges, or None where they are not known."""
        places = [edge.at for edge in self.edges]
        return (min(places), max(places)) if places else None
