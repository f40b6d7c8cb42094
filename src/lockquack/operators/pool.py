"""Pools: operators bound to their parameters, which know their observations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, Jet
from lockquack.operators.base import Operator
from lockquack.operators.linear import Linear
from lockquack.quadrature.beta import BetaTransform

Rows = NDArray[np.intp]


class Pooling(Protocol):
    """A way to make one density of K, for each of some observations."""

    @property
    def recalibration(self) -> BetaTransform | None:
        """How the distribution function of the pool is transformed; None: it is not."""

    def __call__(self, logp: Array, rows: Rows) -> Array:
        """Pool log densities (K, ..., c); column i belongs to observation ``rows[i]``.

        The result, (..., c), is not normalised.
        """

    def at(self, obs: slice | Rows) -> Pooling:
        """Return the same for some of the observations, which are then counted from 0."""


@dataclass(frozen=True, eq=False)
class Pool:
    """An operator with its parameters for K models.

    Parameters are the same at all observations, (P,), or differ between them, (P, n).
    """

    operator: Operator
    x: Array
    K: int
    #: How the distribution function of the pool is transformed; None: it is not.
    recalibration: BetaTransform | None = None

    @classmethod
    def of_one(cls) -> Pool:
        """Return the pool of one model: the model itself."""
        return cls(Linear(), np.ones(1), 1)

    @property
    def varies(self) -> bool:
        """Whether the parameters differ between observations."""
        return self.x.ndim == 2 or (self.recalibration is not None and self.recalibration.varies)

    @cached_property
    def weights(self) -> Array:
        """Share of each model, (K,), or (K, n) where it differs."""
        return self.operator.weights(self.x, self.K)

    @property
    def parameters(self) -> dict[str, Array]:
        """Parameters besides the weights, by name: they are the same at all observations."""
        each = self.x.mean(axis=1) if self.x.ndim == 2 else self.x
        return self.operator.parameters(each, self.K)

    @property
    def mixture_above(self) -> Array | None:
        """Coefficients of a mixture above the pool, shaped like the weights, where one is known."""
        return self.operator.mixture_above(self.x, self.K)

    @property
    def log_norm_bounds(self) -> tuple[Array, Array]:
        """Bounds on the log of the normaliser, (), or (n,), that hold whatever the densities are.

        So the log score of the pool is known within bounds from the densities at the observed
        outcomes alone.
        """
        certain = np.zeros((self.K, *self.x.shape[1:]))
        return self.operator.log_norm_bounds(self.x, certain, certain)

    def __call__(self, logp: Array, rows: Rows) -> Array:
        """Pool log densities (K, ..., c); column i belongs to observation ``rows[i]``."""
        return self.operator.pool_density(logp, self._columns(rows))

    def jet(self, jets: Jet, rows: Rows) -> Jet:
        """Pool jets (K, ..., c) in the same way."""
        return self.operator.pool(jets, self._columns(rows))

    def at(self, obs: slice | Rows) -> Pool:
        """Return the pool of some of the observations, which are then counted from 0."""
        if not self.varies:
            return self
        own = None if self.recalibration is None else self.recalibration.at(obs)
        return replace(self, x=self._columns(obs), recalibration=own)

    def without_unused(self) -> tuple[Pool, NDArray[np.bool_]]:
        """Leave out models that have no weight anywhere; tell which are left."""
        keep = np.asarray(self.weights.reshape(self.K, -1).any(axis=1))
        if keep.all():
            return self, keep
        operator, x = self.operator.restrict(self.x, keep)
        return replace(self, operator=operator, x=x, K=int(keep.sum())), keep

    def _columns(self, rows: slice | Rows) -> Array:
        return self.x[:, rows] if self.x.ndim == 2 else self.x


@dataclass(frozen=True)
class OneModel:
    """One of the models, as a pool of all."""

    k: int
    recalibration: ClassVar[None] = None

    def __call__(self, logp: Array, rows: Rows) -> Array:
        """Take that model's log densities."""
        return logp[self.k]

    def at(self, obs: slice | Rows) -> OneModel:
        """Return the same: it does not depend on the observation."""
        return self


@dataclass(frozen=True)
class GeometricMean:
    """The geometric mean of two models."""

    j: int
    k: int
    recalibration: ClassVar[None] = None

    def __call__(self, logp: Array, rows: Rows) -> Array:
        """Average two models' log densities."""
        return logp[self.j] / 2 + logp[self.k] / 2  # a sum could overflow

    def at(self, obs: slice | Rows) -> GeometricMean:
        """Return the same: it does not depend on the observation."""
        return self


@dataclass(frozen=True)
class PoolOfSome:
    """A pool of some of the models, as one of all."""

    pool: Pooling
    places: tuple[int, ...]

    @property
    def recalibration(self) -> BetaTransform | None:
        """How the distribution function of the pool is transformed; None: it is not."""
        return self.pool.recalibration

    def __call__(self, logp: Array, rows: Rows) -> Array:
        """Pool those models' log densities."""
        return self.pool(logp[list(self.places)], rows)

    def at(self, obs: slice | Rows) -> PoolOfSome:
        """Return the pool of some of the observations."""
        return PoolOfSome(self.pool.at(obs), self.places)
