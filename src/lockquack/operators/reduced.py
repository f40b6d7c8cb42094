"""Operators that leave some of the models out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from lockquack.jets import Array, Jet
from lockquack.operators.base import Normaliser, Operator, Positions
from lockquack.operators.space import Space
from lockquack.quadrature.nodes import Nodes


class Reduced(Operator):
    """An operator of some of the models; the others have no weight.

    Made where a score that sees densities near the observations only is misled by models that are
    far from all of them.

    Examples
    --------
    >>> from lockquack.operators.linear import Linear
    >>> Reduced(Linear(), [0, 2]).weights(np.array([0.3, 0.7]), 3)
    array([0.3, 0. , 0.7])
    """

    name = "reduced"

    def __init__(self, operator: Operator, kept: Sequence[int]) -> None:
        self.operator, self.kept = operator, tuple(map(int, kept))
        for attribute in _SHARED:
            setattr(self, attribute, getattr(operator, attribute))

    @property
    def _places(self) -> Positions:
        return np.array(self.kept, dtype=np.intp)

    @property
    @override
    def title(self) -> str:
        return f"{self.operator.title} of {len(self.kept)} of the models"

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {"operator": self.operator.describe(), "kept": list(self.kept)}

    @classmethod
    @override
    def from_options(cls, options: Mapping[str, Any]) -> Reduced:
        return cls(cls.from_description(options["operator"]), options["kept"])

    def __repr__(self) -> str:
        return f"Reduced({self.operator!r}, {list(self.kept)})"

    @override
    def left_out(self, K: int) -> Positions:
        return np.setdiff1d(np.arange(K), self._places)

    def space(self, concentration: Array) -> Space:
        """Lay out the parameters for the models that are left."""
        return self.operator.space(concentration[self._places])

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        return self.operator.pool(jets[self._places], x)

    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate the pool of the models that are left."""
        return self.operator.tangents(jets[self._places], x)

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        if member not in self.kept:
            return tangent.times(np.array(0.0))
        return self.operator.push(jets[self._places], x, self.kept.index(member), tangent)

    @override
    def weights(self, x: Array, K: int) -> Array:
        return self._spread(self.operator.weights(x, len(self.kept)), K)

    @override
    def mixture_above(self, x: Array, K: int) -> Array | None:
        above = self.operator.mixture_above(x, len(self.kept))
        return None if above is None else self._spread(above, K)

    @override
    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        return self.operator.log_norm_bounds(x, low[self._places], high[self._places])

    def parameters(self, x: Array, K: int) -> dict[str, Array]:
        """Return those of the operator; models that were left out have zeros."""
        found = self.operator.parameters(x, len(self.kept))
        return {
            name: self._spread(values, K) if name in self.operator.of_models else values
            for name, values in found.items()
        }

    @override
    def select(self, models: Positions, K: int) -> tuple[Operator, Positions]:
        here = [self.kept.index(k) for k in models.tolist() if k in self.kept]
        operator, chosen = self.operator.select(np.array(here, dtype=np.intp), len(self.kept))
        kept = [place for place, k in enumerate(models.tolist()) if k in self.kept]
        return (operator if len(kept) == models.size else Reduced(operator, kept)), chosen

    @override
    def bind(self, names: tuple[str, ...]) -> Operator:
        return Reduced(self.operator.bind(tuple(names[k] for k in self.kept)), self.kept)

    @override
    def without_zeros(self) -> Operator:
        return Reduced(self.operator.without_zeros(), self.kept)

    @override
    def normaliser(self, nodes: Nodes) -> Normaliser:
        return self.operator.normaliser(Nodes(nodes.logp[self._places], nodes.log_measure))

    def _spread(self, values: Array, K: int) -> Array:
        """Put zeros where models were left out."""
        spread = np.zeros((K, *values.shape[1:]))
        spread[self._places] = values
        return spread


def leave_out(operator: Operator, models: Positions, K: int) -> Reduced:
    """Return the operator of all models but some, as one of all K."""
    kept = np.setdiff1d(np.arange(K), np.union1d(models, operator.left_out(K)))
    return Reduced(operator.select(kept, K)[0], kept.tolist())


#: What it has in common with the operator.
_SHARED = (
    "verb",
    "needs_density",
    "normalised",
    "vanishes_with_any",
    "always_integrable",
    "mixes",
    "on_simplex",
    "signed",
)
