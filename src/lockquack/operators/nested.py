"""Pools of pools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from lockquack.errors import ParameterError, unknown_name
from lockquack.jets import Array, Jet, join_jets, stack_jets
from lockquack.operators.base import Operator
from lockquack.operators.space import Mask, Space

#: Models by name or position; None: all of them.
Models = tuple[str | int, ...] | None


@dataclass(frozen=True)
class Member:
    """One member of an outer pool: a model, or a pool of some models."""

    models: NDArray[np.intp]
    operator: Operator | None = None  # None: the one model itself

    def pool(self, jets: Jet, x: Array) -> Jet:
        """Jet of the member."""
        if self.operator is None:
            return jets[self.models[0]]
        return self.operator.pool(jets[self.models], x)

    def weights(self, x: Array) -> Array:
        """Share of each of its models in the member."""
        return np.ones(1) if self.operator is None else self.operator.weights(x, self.models.size)

    def mixture_above(self, x: Array) -> Array | None:
        """Coefficients of a mixture of its models above the member, where one is known."""
        if self.operator is None:
            return np.ones(1)
        return self.operator.mixture_above(x, self.models.size)


@dataclass(frozen=True)
class Composite:
    """An outer operator over members: parameters of the outer one first, then the members'."""

    outer: Operator
    members: tuple[Member, ...]

    def space(self, concentration: Array) -> Space:
        """Lay out the parameters of the outer pool, then those of each inner one."""
        outside = np.array([concentration[m.models].mean() for m in self.members])
        blocks = list(self.outer.space(outside).blocks)
        for place, member in enumerate(self.members):
            if member.operator is not None:
                inner = member.operator.space(concentration[member.models])
                blocks += [replace(b, name=f"member{place}_{b.name}") for b in inner.blocks]
        return Space(tuple(blocks))

    def split(self, x: Array, K: int) -> tuple[Array, list[Array]]:
        """Parameters of the outer operator and of each member."""
        flat = np.ones(K)
        outside = self.outer.space(np.ones(len(self.members))).size
        parts, start = [], outside
        for member in self.members:
            size = 0
            if member.operator is not None:
                size = member.operator.space(flat[member.models]).size
            parts.append(x[start : start + size])
            start += size
        return x[:outside], parts

    def pool(self, jets: Jet, x: Array) -> Jet:
        """Pool the members' pools."""
        outer, inner = self.split(x, len(jets.logp))
        return self.outer.pool(self._pools(jets, inner), outer)

    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate in the outer parameters, then through the outer pool in the inner ones."""
        outer, inner = self.split(x, len(jets.logp))
        pools = self._pools(jets, inner)
        parts = [self.outer.tangents(pools, outer)]
        for place, (member, part) in enumerate(zip(self.members, inner, strict=True)):
            if member.operator is not None:
                tangent = member.operator.tangents(jets[member.models], part)
                # Where the inner pool is zero it stays so, whatever its logarithm does.
                logp = np.where(np.isneginf(pools.logp[place]), 0.0, tangent.logp)
                tangent = replace(tangent, logp=logp)
                parts.append(self.outer.push(pools, outer, place, tangent))
        return join_jets(parts)

    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        """Carry derivatives of one model's jet through all pools that it is in."""
        outer, inner = self.split(x, len(jets.logp))
        pools = self._pools(jets, inner)
        total = tangent.times(np.array(0.0))
        for place, (each, part) in enumerate(zip(self.members, inner, strict=True)):
            if member not in each.models:
                continue
            through = tangent
            if each.operator is not None:
                position = int(np.flatnonzero(each.models == member)[0])
                through = each.operator.push(jets[each.models], part, position, tangent)
            pushed = self.outer.push(pools, outer, place, through)
            total = Jet(
                total.logp + pushed.logp, total.grad + pushed.grad, total.curv + pushed.curv
            )
        return total

    def weights(self, x: Array, K: int) -> Array:
        """Share of each model: its weights along all ways to it, multiplied and added up."""
        outer, inner = self.split(x, K)
        within = [m.weights(part) for m, part in zip(self.members, inner, strict=True)]
        return self._spread(self.outer.weights(outer, len(within)), within, K)

    def mixture_above(self, x: Array, K: int) -> Array | None:
        """Bound the outer pool by a mixture of its members, and those by mixtures of the models."""
        outer, inner = self.split(x, K)
        above = self.outer.mixture_above(outer, len(self.members))
        within = [m.mixture_above(part) for m, part in zip(self.members, inner, strict=True)]
        if above is None or any(each is None for each in within):
            return None
        return self._spread(above, [each for each in within if each is not None], K)

    def _spread(self, shares: Array, within: Sequence[Array], K: int) -> Array:
        """Add up, model by model, the shares of the members times the model's share of them."""
        total = np.zeros((K, *shares.shape[1:]))
        for share, member, own in zip(shares, self.members, within, strict=True):
            total[member.models] += share * own
        return total

    def _pools(self, jets: Jet, inner: Iterable[Array]) -> Jet:
        return stack_jets([m.pool(jets, x) for m, x in zip(self.members, inner, strict=True)])


class CompositeOperator(Operator):
    """An operator that is a pool of pools for any number of models."""

    mixes = True

    @abstractmethod
    def composite(self, K: int) -> Composite:
        """Return the composition for K models."""

    def space(self, concentration: Array) -> Space:
        """Lay out the parameters of the outer pool, then those of each inner one."""
        return self.composite(concentration.size).space(concentration)

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        return self.composite(len(jets.logp)).pool(jets, x)

    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate the pool in the parameters."""
        return self.composite(len(jets.logp)).tangents(jets, x)

    @override
    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        return self.composite(len(jets.logp)).push(jets, x, member, tangent)

    def weights(self, x: Array, K: int) -> Array:
        """Share of each model in the pool, (K,)."""
        return self.composite(K).weights(x, K)

    @override
    def mixture_above(self, x: Array, K: int) -> Array | None:
        return self.composite(K).mixture_above(x, K)

    def restrict(self, x: Array, keep: Mask) -> None:
        """Return none: models may be members in several ways, and cannot be left out."""


class Nested(CompositeOperator):
    r"""A pool of pools, all of whose parameters are fitted together.

    .. math:: q = \text{outer}(\text{inner}_1(\pi), \text{inner}_2(\pi), \ldots)

    Inner pools enter as they are, not normalised. Under an outer :class:`Locking` that makes no
    difference; under other operators an inner pool of models that disagree counts for less.
    The weight of a model is its share along all ways to it.

    Parameters
    ----------
    outer
        The operator that pools the members.
    members
        Each a model's name (or position), an operator over all models, or a pair of an operator
        and the names of the models that it pools.

    Examples
    --------
    A log-linear pool of model ``"c"`` with the mixture of ``"a"`` and ``"b"``:

    >>> import lockquack as lq
    >>> lq.Nested(lq.Locking(), [(lq.Linear(), ["a", "b"]), "c"])
    Nested(Locking(), [(Linear(), ['a', 'b']), 'c'])
    """

    name = "nested"

    def __init__(self, outer: Operator, members: Sequence[Any]) -> None:
        if not isinstance(outer, Operator) or isinstance(members, str) or not members:
            raise ParameterError(
                "A pool of pools needs an operator and a list of members, such as "
                "Nested(Locking(), [(Linear(), ['a', 'b']), 'c'])."
            )
        self.outer = outer
        self.members = tuple(_as_member(member) for member in members)

    @property
    def needs_density(self) -> bool:  # type: ignore[override]
        """Whether any of the pools needs its members' densities."""
        return any(operator.needs_density for operator in self._pools)

    @property
    def normalised(self) -> bool:  # type: ignore[override]
        """Whether all of the pools are mixtures."""
        return all(operator.normalised for operator in self._pools)

    @property
    def always_integrable(self) -> bool:  # type: ignore[override]
        """Whether every pool has a normaliser, which exponents of any sum inside may prevent."""
        return all(operator.always_integrable for operator in self._pools)

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether any of the pools has exponents of any sign."""
        return any(operator.signed for operator in self._pools)

    @property
    def _pools(self) -> tuple[Operator, ...]:
        inner = (operator for operator, _ in self.members)
        return self.outer, *(operator for operator in inner if operator is not None)

    def without_zeros(self) -> Nested:
        """Return the operator with all of its pools confined to those without zeros."""
        return self._with(
            self.outer.without_zeros(),
            (
                (None if operator is None else operator.without_zeros(), names)
                for operator, names in self.members
            ),
        )

    def bind(self, names: tuple[str, ...]) -> Nested:
        """Return the operator with models by their position instead of their name."""

        def position(name: str | int) -> int:
            if name in names:
                return names.index(str(name))
            if isinstance(name, int) and 0 <= name < len(names):
                return name
            raise unknown_name("model in a pool of pools", name, names)

        def bound(operator: Operator | None, given: Models) -> tuple[Operator | None, Models]:
            places = tuple(map(position, range(len(names)) if given is None else given))
            if len(set(places)) < len(places):
                raise ParameterError(f"A pool names a model twice: {given}.")
            inside = tuple(names[place] for place in places)
            return None if operator is None else operator.bind(inside), places

        return self._with(self.outer, (bound(*member) for member in self.members))

    @override
    def composite(self, K: int) -> Composite:
        everything = tuple(range(K))
        return Composite(
            self.outer,
            tuple(
                Member(np.array(everything if names is None else names, dtype=np.intp), operator)
                for operator, names in self.members
            ),
        )

    def parameters(self, x: Array, K: int) -> dict[str, Array]:
        """Everything besides the models' shares, by block."""
        outside = len(self.outer.space(np.ones(len(self.members))).blocks)
        return {
            f"outer_{block.name}" if place < outside else block.name: part
            for place, (block, part) in enumerate(self.space(np.ones(K)).parts(x))
        }

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {
            "outer": self.outer.describe(),
            "members": [
                [None if operator is None else operator.describe(), names]
                for operator, names in self.members
            ],
        }

    @classmethod
    @override
    def from_options(cls, options: Mapping[str, Any]) -> Nested:
        members = [
            names[0] if operator is None else (cls.from_description(operator), names)
            for operator, names in options["members"]
        ]
        return cls(cls.from_description(options["outer"]), members)

    def __repr__(self) -> str:
        listed = []
        for operator, names in self.members:
            if operator is None and names is not None:
                listed.append(repr(names[0]))
            else:
                listed.append(repr(operator) if names is None else f"({operator!r}, {[*names]})")
        return f"Nested({self.outer!r}, [{', '.join(listed)}])"

    @classmethod
    def _with(cls, outer: Operator, members: Iterable[tuple[Operator | None, Models]]) -> Nested:
        made = cls.__new__(cls)
        made.outer, made.members = outer, tuple(members)
        return made


def _as_member(given: Any) -> tuple[Operator | None, Models]:
    """Read a member: its operator, if any, and its models (None: all)."""
    if isinstance(given, str | int):
        return None, (given,)
    if isinstance(given, Operator):
        return given, None
    if isinstance(given, Sequence) and len(given) == 2 and isinstance(given[0], Operator):
        names = given[1]
        if names is None or (isinstance(names, Sequence) and not isinstance(names, str)):
            return given[0], None if names is None else tuple(names)
    raise ParameterError(
        f"A member of a pool of pools is a model's name, an operator, or a pair such as "
        f"(Linear(), ['a', 'b']); got {given!r}."
    )
