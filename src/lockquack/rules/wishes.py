"""What a rule may want to know of a pool besides its jet at the outcome that was observed.

A wish is granted in two steps. :mod:`lockquack.methods.gather` evaluates the models at the places
that a wish asks for: one function for each wish, in one table. Here, what is known of the models
there becomes what is known of a pool of them. A rule with a wish that exists already is one file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lockquack.jets import Array
from lockquack.operators.base import Normaliser, Operator
from lockquack.quadrature.nodes import Nodes


class Answer(ABC):
    """What a wish has come to: numbers of a pool, (..., n), as a function of its parameters."""

    @abstractmethod
    def value(self, x: Array) -> Array:
        """Return the numbers of the pool with these parameters."""

    @abstractmethod
    def tangents(self, x: Array) -> tuple[Array, Array]:
        """Return the numbers, and their derivatives in the parameters, (P, ..., n)."""

    @abstractmethod
    def of_model(self, k: int) -> Array:
        """Return the numbers of one of the models by itself."""


@dataclass(frozen=True)
class Wish(ABC):
    """A kind of places where a rule wants to know the models' densities."""

    name: ClassVar[str]

    def is_granted_by(self, operator: Operator) -> bool:
        """Whether the operator alone answers, so that no model need be asked."""
        return False

    @abstractmethod
    def answer(self, operator: Operator, tables: Sequence[Nodes], n_obs: int) -> Answer:
        """Prepare the answer from what is known of the models, group by group of observations."""


@dataclass(frozen=True)
class Integral(Wish):
    """The log of the pool's integral over all outcomes, (n,): its normaliser."""

    name: ClassVar[str] = "integral"

    def is_granted_by(self, operator: Operator) -> bool:
        """Whether pools are densities already."""
        return operator.normalised

    def answer(self, operator: Operator, tables: Sequence[Nodes], n_obs: int) -> Answer:
        """Prepare sums over the nodes of a quadrature, or a closed form."""
        if operator.normalised:
            return _Zero(n_obs)
        return _LogNorms(n_obs, tuple(operator.normaliser(nodes) for nodes in tables))


@dataclass(frozen=True)
class Neighbours(Wish):
    """The pool's log density one below and one above a whole number, (2, n)."""

    name: ClassVar[str] = "neighbours"

    def answer(self, operator: Operator, tables: Sequence[Nodes], n_obs: int) -> Answer:
        """Pool the models' log densities there."""
        return _AtPlaces(operator, np.concatenate([nodes.logp for nodes in tables], axis=-1))


INTEGRAL, NEIGHBOURS = Integral(), Neighbours()
#: All wishes, by name.
WISHES: dict[str, Wish] = {wish.name: wish for wish in (INTEGRAL, NEIGHBOURS)}


@dataclass(frozen=True)
class _Zero(Answer):
    """The log normalisers of what is normalised."""

    n_obs: int

    def value(self, x: Array) -> Array:
        return np.zeros(self.n_obs)

    def tangents(self, x: Array) -> tuple[Array, Array]:
        return np.zeros(self.n_obs), np.zeros((len(x), self.n_obs))

    def of_model(self, k: int) -> Array:
        return np.zeros(self.n_obs)


@dataclass(frozen=True)
class _LogNorms(_Zero):
    """Normalisers of consecutive groups of observations; models need none."""

    groups: tuple[Normaliser, ...]

    def value(self, x: Array) -> Array:
        return np.concatenate([group.log_norm(part) for group, part in self._parts(x)])

    def tangents(self, x: Array) -> tuple[Array, Array]:
        norms = [group.tangents(part) for group, part in self._parts(x)]
        slopes = np.concatenate([slope for _, slope in norms], axis=1)
        return np.concatenate([value for value, _ in norms]), slopes

    def _parts(self, x: Array) -> Iterator[tuple[Normaliser, Array]]:
        """Go through the groups with their own parameters, where these differ."""
        start = 0
        for group in self.groups:
            yield group, x if x.ndim == 1 else x[:, start : start + group.n_obs]
            start += group.n_obs


@dataclass(frozen=True)
class _AtPlaces(Answer):
    """Log densities of the pool at places where those of the models are known."""

    operator: Operator
    logp: Array  # (K, place, n)

    def value(self, x: Array) -> Array:
        return self.operator.pool_density(self.logp, x)

    def tangents(self, x: Array) -> tuple[Array, Array]:
        return self.operator.expand_density(self.logp, x)

    def of_model(self, k: int) -> Array:
        return self.logp[k]
