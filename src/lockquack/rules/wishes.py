"""What a rule may want to know of a pool besides its jet at the outcome that was observed.

A wish is granted in two steps. :mod:`lockquack.methods.gather` evaluates the models at the places
that a wish asks for: one function for each wish, in one table. Here, what is known of the models
there becomes what is known of a pool of them. A rule with a wish that exists already is one file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from lockquack.jets import Array
from lockquack.operators.base import Normaliser, Operator
from lockquack.quadrature.curves import Curves
from lockquack.quadrature.levels import Levels
from lockquack.quadrature.nodes import Nodes, Table
from lockquack.quadrature.pairs import Pairs


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
    #: What is known of the models once it is granted.
    table: ClassVar[type[Table]] = Nodes
    #: Whether what a pool comes to depends on its normaliser.
    normalises: ClassVar[bool] = False

    def is_granted_by(self, operator: Operator) -> bool:
        """Whether the operator alone answers, so that no model need be asked."""
        return False

    def found_in(self, tables: Mapping[Wish, Sequence[Table]]) -> tuple[Any, ...]:
        """Return what is known for it among what is known for any; empty: nothing."""
        return tuple(tables.get(self, ()))

    @abstractmethod
    def answer(self, operator: Operator, tables: Sequence[Any], n_obs: int) -> Answer:
        """Prepare the answer from what is known of the models, group by group of observations."""


@dataclass(frozen=True)
class Integral(Wish):
    """The log of the pool's integral over all outcomes, (n,): its normaliser."""

    name: ClassVar[str] = "integral"
    normalises: ClassVar[bool] = True

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


@dataclass(frozen=True)
class Distances(Wish):
    """Mean distance of a mixture to the outcome, less half its own mean difference, (n,).

    Quadratic in the weights: draws of the models are enough.
    """

    name: ClassVar[str] = "distances"
    table: ClassVar[type[Table]] = Pairs
    normalises: ClassVar[bool] = True

    def found_in(self, tables: Mapping[Wish, Sequence[Table]]) -> tuple[Pairs, ...]:
        """Return matrices, or make them of distribution functions."""
        known: tuple[Pairs, ...] = super().found_in(tables)
        return known or tuple(each.pairs() for each in DISTRIBUTION.found_in(tables))

    def answer(self, operator: Operator, tables: Sequence[Pairs], n_obs: int) -> Answer:
        """Prepare the quadratic form."""
        return _Quadratic(operator, np.concatenate([part.matrix for part in tables], axis=-1))


@dataclass(frozen=True)
class Distribution(Wish):
    """The same of any pool of densities, from its distribution function, (n,)."""

    name: ClassVar[str] = "distribution"
    table: ClassVar[type[Table]] = Curves
    normalises: ClassVar[bool] = True

    def answer(self, operator: Operator, tables: Sequence[Curves], n_obs: int) -> Answer:
        """Prepare sums over the nodes of a quadrature."""
        return _FromCurves(n_obs, tuple(tables), operator)


@dataclass(frozen=True)
class AtLevels(Wish):
    """The same of an average of quantiles, from these, (n,)."""

    name: ClassVar[str] = "levels"
    table: ClassVar[type[Table]] = Levels
    normalises: ClassVar[bool] = True

    def answer(self, operator: Operator, tables: Sequence[Levels], n_obs: int) -> Answer:
        """Prepare sums over the levels."""
        (levels,) = tables
        return _FromLevels(levels)


INTEGRAL, NEIGHBOURS = Integral(), Neighbours()
DISTANCES, DISTRIBUTION, LEVELS = Distances(), Distribution(), AtLevels()
#: All wishes, by name.
WISHES: dict[str, Wish] = {
    wish.name: wish for wish in (INTEGRAL, NEIGHBOURS, DISTANCES, DISTRIBUTION, LEVELS)
}
G = TypeVar("G", Normaliser, Curves)


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
        return np.concatenate([group.log_norm(part) for group, part in _parts(self.groups, x)])

    def tangents(self, x: Array) -> tuple[Array, Array]:
        return _side_by_side([group.tangents(part) for group, part in _parts(self.groups, x)])


@dataclass(frozen=True)
class _FromCurves(Answer):
    """Distances of the distribution function of a pool to outcomes, by groups of these."""

    n_obs: int
    groups: tuple[Curves, ...]
    operator: Operator

    def value(self, x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            found = [
                group.distance(self.operator.pool_density(group.logp, part))
                for group, part in _parts(self.groups, x)
            ]
        return np.concatenate(found)

    def tangents(self, x: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore"):
            found = [
                group.tangents(*self.operator.expand_density(group.logp, part))
                for group, part in _parts(self.groups, x)
            ]
        return _side_by_side(found)

    def of_model(self, k: int) -> Array:
        return np.concatenate([group.distance(group.logp[k]) for group in self.groups])


@dataclass(frozen=True)
class _FromLevels(Answer):
    """Distances of averages of quantiles to outcomes; the parameters are the weights."""

    levels: Levels

    def value(self, x: Array) -> Array:
        return self.levels.distance(self.levels.averaged(x))

    def tangents(self, x: Array) -> tuple[Array, Array]:
        slopes = self.levels.slopes(x)
        return self.value(x), slopes * (x if x.ndim > 1 else x[:, None])

    def of_model(self, k: int) -> Array:
        return self.levels.distance(self.levels.excess[k])


@dataclass(frozen=True)
class _Quadratic(Answer):
    """Quadratic forms in the weights of a mixture."""

    operator: Operator
    matrix: Array  # (K, K, n)

    def value(self, x: Array) -> Array:
        return self._form(np.exp(self.operator.pool_density(self._alone(x), x)))[0]

    def tangents(self, x: Array) -> tuple[Array, Array]:
        with np.errstate(invalid="ignore"):
            logs, slopes = self.operator.expand_density(self._alone(x), x)
        weights = np.exp(logs)
        value, along = self._form(weights)
        # A model without weight stays without, whatever the logarithm of that does.
        slopes = np.where(weights > 0, weights * slopes, 0.0)
        return value, 2.0 * (slopes * along).sum(axis=1)

    def of_model(self, k: int) -> Array:
        return self.matrix[k, k]

    def _alone(self, x: Array) -> Array:
        """Log densities at K outcomes, of which each is possible under one model only.

        A mixture of them has the weights of the models there, however it is made.
        """
        with np.errstate(divide="ignore"):
            logs = np.log(np.eye(len(self.matrix)))
        n = x.shape[1] if x.ndim > 1 else 1
        return np.repeat(logs[..., None], n, axis=2)

    def _form(self, weights: Array) -> tuple[Array, Array]:
        along = np.einsum(
            "jkn,kn->jn", self.matrix, np.broadcast_to(weights, self.matrix.shape[1:])
        )
        return (weights * along).sum(axis=0), along


def _parts(groups: Sequence[G], x: Array) -> Iterator[tuple[G, Array]]:
    """Go through groups of observations with their own parameters, where these differ."""
    start = 0
    for group in groups:
        yield group, x if x.ndim == 1 else x[:, start : start + group.n_obs]
        start += group.n_obs


def _side_by_side(found: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Join values and slopes of groups of observations."""
    slopes = np.concatenate([slope for _, slope in found], axis=1)
    return np.concatenate([value for value, _ in found]), slopes


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
