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
from lockquack.operators.base import Operator, Positions
from lockquack.operators.space import Space

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

    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """Bounds on the log of the member's integral, from those of its models."""
        if self.operator is None:
            return low[0], high[0]
        return self.operator.log_norm_bounds(x, low, high)


#: Members of an outer pool with the parameters of each.
Parts = list[tuple[Member, Array]]


class CompositeOperator(Operator):
    """A pool of pools: an outer operator over members.

    Parameters of the outer one come first, then those of each member.
    """

    mixes = True

    @abstractmethod
    def composite(self, K: int) -> tuple[Operator, tuple[Member, ...]]:
        """Return the outer operator and its members, for K models."""

    def space(self, concentration: Array) -> Space:
        """Lay out the parameters of the outer pool, then those of each inner one."""
        outer, members = self.composite(concentration.size)
        outside = np.array([concentration[m.models].mean() for m in members])
        blocks = list(outer.space(outside).blocks)
        for place, member in enumerate(members):
            if member.operator is not None:
                inner = member.operator.space(concentration[member.models])
                blocks += [replace(b, name=f"member{place}_{b.name}") for b in inner.blocks]
        return Space(tuple(blocks))

    @override
    def pool(self, jets: Jet, x: Array) -> Jet:
        outer, own, inner = self._split(x, len(jets.logp))
        return outer.pool(_pools(jets, inner), own)

    def tangents(self, jets: Jet, x: Array) -> Jet:
        """Differentiate in the outer parameters, then through the outer pool in the inner ones."""
        return self.expand(jets, x)[1]

    @override
    def expand(self, jets: Jet, x: Array) -> tuple[Jet, Jet]:
        outer, own, inner = self._split(x, len(jets.logp))
        pools = _pools(jets, inner)
        pooled, tangents = outer.expand(pools, own)
        parts = [tangents]
        for place, (member, part) in enumerate(inner):
            if member.operator is not None:
                tangent = member.operator.tangents(jets[member.models], part)
                # Where the inner pool is zero it stays so, whatever its logarithm does.
                logp = np.where(np.isneginf(pools.logp[place]), 0.0, tangent.logp)
                parts.append(outer.push(pools, own, place, replace(tangent, logp=logp)))
        return pooled, join_jets(parts)

    def push(self, jets: Jet, x: Array, member: int, tangent: Jet) -> Jet:
        """Carry derivatives of one model's jet through all pools that it is in."""
        outer, own, inner = self._split(x, len(jets.logp))
        pools = _pools(jets, inner)
        total = tangent.times(np.array(0.0))
        for place, (each, part) in enumerate(inner):
            if member not in each.models:
                continue
            through = tangent
            if each.operator is not None:
                position = int(np.flatnonzero(each.models == member)[0])
                through = each.operator.push(jets[each.models], part, position, tangent)
            pushed = outer.push(pools, own, place, through)
            total = Jet(*map(np.add, total.parts, pushed.parts))
        return total

    def weights(self, x: Array, K: int) -> Array:
        """Share of each model: its weights along all ways to it, multiplied and added up."""
        outer, own, inner = self._split(x, K)
        within = [member.weights(part) for member, part in inner]
        return _spread(outer.weights(own, len(inner)), inner, within, K)

    def mixture_above(self, x: Array, K: int) -> Array | None:
        """Bound the outer pool by a mixture of its members, and those by mixtures of the models."""
        outer, own, inner = self._split(x, K)
        above = outer.mixture_above(own, len(inner))
        within = [member.mixture_above(part) for member, part in inner]
        if above is None or any(each is None for each in within):
            return None
        return _spread(above, inner, [each for each in within if each is not None], K)

    @override
    def log_norm_bounds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        outer, own, inner = self._split(x, len(low))
        bounds = [
            member.log_norm_bounds(part, low[member.models], high[member.models])
            for member, part in inner
        ]
        least, most = (np.stack(each) for each in zip(*bounds, strict=True))
        return outer.log_norm_bounds(own, least, most)

    def _split(self, x: Array, K: int) -> tuple[Operator, Array, Parts]:
        """Return the outer operator with its parameters, and each member with its own."""
        outer, members = self.composite(K)
        flat = np.ones(K)
        outside = start = outer.space(np.ones(len(members))).size
        parts: Parts = []
        for member in members:
            operator = member.operator
            size = 0 if operator is None else operator.space(flat[member.models]).size
            parts.append((member, x[start : start + size]))
            start += size
        return outer, x[:outside], parts


def _pools(jets: Jet, inner: Parts) -> Jet:
    return stack_jets([member.pool(jets, x) for member, x in inner])


def _spread(shares: Array, inner: Parts, within: Sequence[Array], K: int) -> Array:
    """Add up, model by model, the shares of the members times the model's share of them."""
    total = np.zeros((K, *shares.shape[1:]))
    for share, (member, _), own in zip(shares, inner, within, strict=True):
        total[member.models] += share * own
    return total


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
        listed = isinstance(members, Sequence) and not isinstance(members, str | bytes)
        if not isinstance(outer, Operator) or not listed or not members:
            raise ParameterError(
                "A pool of pools needs an operator and a list of members, such as "
                "Nested(Locking(), [(Linear(), ['a', 'b']), 'c'])."
            )
        read = [_as_member(member) for member in members]
        for operator in (outer, *(inner for inner, _ in read if inner is not None)):
            if not operator.of_densities:
                raise ParameterError(
                    f"{operator!r} makes no density of densities, so it cannot be part of a pool "
                    "of pools."
                )
        self._set(outer, read)

    def without_zeros(self) -> Nested:
        """Return the operator with all of its pools confined to those without zeros."""
        return Nested.__new__(Nested)._set(
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

        return Nested.__new__(Nested)._set(self.outer, (bound(*member) for member in self.members))

    @override
    def composite(self, K: int) -> tuple[Operator, tuple[Member, ...]]:
        everything = tuple(range(K))
        return self.outer, tuple(
            Member(np.array(everything if names is None else names, dtype=np.intp), operator)
            for operator, names in self.members
        )

    @override
    def select(self, models: Positions, K: int) -> tuple[Operator, Positions]:
        (outer, everyone), rank = self.composite(K), np.full(K, -1)
        rank[models] = np.arange(models.size)
        size = self.space(np.ones(K)).size
        parts = self._split(np.arange(float(size)), K)[2]
        members: list[tuple[Operator | None, Models]] = []
        outside, inside = [], []
        for place, (member, own) in enumerate(parts):
            there = np.flatnonzero(rank[member.models] >= 0)
            if not there.size:
                continue
            order = there[np.argsort(rank[member.models[there]])]
            operator = member.operator
            if operator is not None:
                operator, chosen = operator.select(order, member.models.size)
                inside.append(own[chosen].astype(np.intp))
            members.append((operator, tuple(rank[member.models[order]].tolist())))
            outside.append(place)
        outer, first = outer.select(np.array(outside), len(everyone))
        selected = Nested.__new__(Nested)._set(outer, members)
        return selected, np.concatenate([first, *inside])

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

    def _set(self, outer: Operator, members: Iterable[tuple[Operator | None, Models]]) -> Nested:
        self.outer, self.members = outer, tuple(members)
        pools = [outer, *(operator for operator, _ in self.members if operator is not None)]
        self.needs_density = any(each.needs_density for each in pools)
        self.normalised = all(each.normalised for each in pools)
        # Exponents of any sum inside may leave a pool without a normaliser.
        self.always_integrable = all(each.always_integrable for each in pools)
        self.signed = any(each.signed for each in pools)
        return self


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
