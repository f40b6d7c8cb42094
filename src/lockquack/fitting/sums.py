r"""Sums over observations that are all that locking by the Hyvärinen score needs, and that add.

With the features :math:`\varphi_i = (G_i G_i', C_i)` of an observation, the models' gradients times
each other and their curvatures, the score of every pool and of every model is linear in
:math:`\varphi_i`. So :math:`\sum w_i \varphi_i` determines the weights, and
:math:`\sum w_i^2 \varphi_i \varphi_i'` every standard error: numbers that do not grow with the
observations, and that are added where data come in parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from typing_extensions import override

from lockquack.draws.diagnostics import mcse_mean
from lockquack.fitting.densities import Densities
from lockquack.fitting.forms import triangles
from lockquack.fitting.objective import Objective
from lockquack.fitting.quadratic import LockingHyvarinen
from lockquack.jets import Array, Jet
from lockquack.operators import Locking
from lockquack.rules import Hyvarinen
from lockquack.solvers.simplex_qp import simplex_qp
from lockquack.totals import counted

#: Most features whose products are kept; of more, standard errors are not known.
_MOST_FEATURES = 700


@dataclass(frozen=True)
class Spread:
    """The spread of outcomes that come in parts."""

    weight: float  # Σ w
    count: int  # observations that count
    mean: Array  # (d,)
    squares: Array  # (d,): Σ w (z − mean)²

    @classmethod
    def of(cls, values: Array, weights: Array | None) -> Spread:
        """Look at outcomes, (n, d)."""
        w = np.ones(len(values)) if weights is None else weights
        size = float(w.sum())
        mean = w @ values / size if size else np.zeros(values.shape[1])
        return cls(size, counted(weights, len(values)), mean, w @ np.square(values - mean))

    def __add__(self, other: Spread) -> Spread:
        weight = self.weight + other.weight
        if weight == 0:
            return self
        apart = other.mean - self.mean
        share = other.weight / weight
        return Spread(
            weight,
            self.count + other.count,
            self.mean + share * apart,
            self.squares + other.squares + self.weight * share * apart**2,
        )

    def times(self, factor: float) -> Spread:
        """Let every observation count a factor as often."""
        return replace(self, weight=factor * self.weight, squares=factor * self.squares)

    def deviation(self) -> Array:
        """Find the standard deviation of each component; see :func:`lockquack.totals.spread`."""
        size = max(self.weight, float(self.count))
        if size <= 1:
            return np.zeros_like(self.mean)
        return np.sqrt(self.squares / self.weight * size / (size - 1.0))


@dataclass(frozen=True)
class LockingSums:
    """What locking by the Hyvärinen score needs to know of the data, whatever their number.

    Features are in plain coordinates of the outcome, component by component, so that parts whose
    outcomes have another spread add as well.
    """

    n_models: int
    outcomes: Spread
    first: Array  # (d · P,): Σ w φ
    #: Σ w², Σ w² φ, (d · P,), and Σ w² φ φ', (d · P, d · P), which is empty where that is too many.
    square_weight: float
    square_first: Array
    square_second: Array
    #: Effect of blocks of draws on each model's total, (chain, block, d), by their shape: blocks
    #: of another shape are of other draws, with an error of their own.
    influences: tuple[tuple[Array, ...], ...]

    @classmethod
    def of(
        cls,
        jets: Jet,
        outcomes: Array,
        weights: Array | None,
        influences: tuple[Array, ...],
    ) -> LockingSums:
        """Sum over observations: jets (K, n, d), outcomes (n, d)."""
        K, n, d = jets.grad.shape
        features = np.concatenate(
            [
                np.concatenate([triangles(jets.grad[..., j : j + 1]), jets.curv[..., j]])
                for j in range(d)
            ]
        )  # (d · P, n)
        w = np.ones(n) if weights is None else weights
        weighted = features if weights is None else features * w
        few = len(features) <= _MOST_FEATURES
        return cls(
            K,
            Spread.of(outcomes, weights),
            weighted.sum(axis=1),
            float(w @ w),
            weighted @ w,
            weighted @ weighted.T if few else np.empty((0, 0)),
            tuple((each,) for each in influences),
        )

    def __add__(self, other: LockingSums) -> LockingSums:
        return LockingSums(
            self.n_models,
            self.outcomes + other.outcomes,
            self.first + other.first,
            self.square_weight + other.square_weight,
            self.square_first + other.square_first,
            self.square_second + other.square_second,
            tuple(map(_added, self.influences, other.influences)),
        )

    def times(self, factor: float) -> LockingSums:
        """Let every observation count a factor as often: forget some of it."""
        return replace(
            self,
            outcomes=self.outcomes.times(factor),
            first=factor * self.first,
            square_weight=factor**2 * self.square_weight,
            square_first=factor**2 * self.square_first,
            square_second=factor**2 * self.square_second,
            influences=tuple(tuple(factor * a for a in each) for each in self.influences),
        )

    @property
    def n_components(self) -> int:
        """Number of components of an outcome."""
        return self.outcomes.mean.size

    def quadratic(self, unit: Array, first: Array | None = None) -> tuple[Array, Array]:
        """Q and c in units of the outcome, (..., K, K) and (..., K), of these or other sums."""
        first = self.first if first is None else first
        by_component = first.reshape(*first.shape[:-1], self.n_components, -1)
        total = np.square(unit) @ by_component  # (..., P)
        row, column = np.triu_indices(self.n_models)
        Q = np.empty((*total.shape[:-1], self.n_models, self.n_models))
        Q[..., row, column] = Q[..., column, row] = total[..., : row.size]
        return Q, total[..., row.size :]

    def totals(self, weights: Array, unit: Array) -> Array:
        """Total score of pools with these weights, (pool, K) → (pool,)."""
        return np.asarray(self._score(weights, unit) @ self.first)

    def errors(self, weights: Array, unit: Array) -> tuple[Array, Array]:
        """Find the standard errors of totals and of their differences to the first, (pool,).

        As :func:`lockquack.totals.error_of_total` has them; NaN where they are not known.
        """
        m = self.outcomes.count
        if m < 2 or not self.square_second.size:
            unknown = np.full(len(weights), np.nan)
            return unknown, unknown
        score, covariance = self._score(weights, unit), self._covariance * m / (m - 1)
        return _errors(score, covariance), _errors(score - score[0], covariance)

    def replicates(
        self, concentration: Array, unit: Array, n: int, rng: np.random.Generator
    ) -> Array:
        """Draw weights as the Bayesian bootstrap of many observations would, (n, K).

        By the central limit theorem the sums of its replicates are normal; their mean and
        covariance are known exactly.
        """
        if not self.square_second.size:
            return np.full((n, self.n_models), np.nan)
        values, vectors = np.linalg.eigh(self._covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        m = self.outcomes.count
        noise = rng.standard_normal((n, values.size)) @ root.T * np.sqrt(m / (m + 1))
        Q, c = self.quadratic(unit, self.first + noise)
        # A sum of squares stays one; a normal replicate of few observations might not.
        size, axes = np.linalg.eigh(Q)
        Q = (axes * np.maximum(size, 0.0)[:, None]) @ np.swapaxes(axes, -1, -2)
        return simplex_qp(Q, c, concentration - 1.0).x

    def mcse(self, unit: Array) -> Array:
        """Monte Carlo standard error of each model's total score, (K,)."""
        squared = np.square(unit)
        return np.array(
            [
                np.sqrt(sum(_mcse(influence @ squared) ** 2 for influence in each))
                for each in self.influences
            ]
        )

    @property
    def _covariance(self) -> Array:
        """Σ w² (φ − mean)(φ − mean)'."""
        mean = self.first / self.outcomes.weight
        cross = np.outer(self.square_first, mean)
        return np.asarray(
            self.square_second - cross - cross.T + self.square_weight * np.outer(mean, mean)
        )

    def _score(self, weights: Array, unit: Array) -> Array:
        """Coefficients of the features in the scores of pools, (pool, d · P)."""
        row, column = np.triu_indices(self.n_models)
        products = weights[:, row] * weights[:, column] * np.where(row == column, 1.0, 2.0)
        one = np.concatenate([products, 2.0 * weights], axis=1)
        return -np.concatenate([one * s**2 for s in unit], axis=1)


@dataclass(frozen=True)
class SummedLocking(LockingHyvarinen):
    """Locking weights by the Hyvärinen score, from sums in place of observations."""

    sums: LockingSums
    unit: Array  # (d,)

    @classmethod
    def of(
        cls, sums: LockingSums, rule: Hyvarinen, unit: Array, concentration: Array
    ) -> SummedLocking:
        """Pose the problem."""
        none = np.empty((sums.n_models, 0, sums.n_components))
        densities = Densities(Jet(none[..., 0], none, none))
        return cls(Objective(Locking(), rule, densities, concentration), sums, unit)

    @cached_property
    @override
    def quadratic(self) -> tuple[Array, Array]:
        return self.sums.quadratic(self.unit)


def _added(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
    """Add influences of blocks of the same shape; keep others apart."""
    by_shape = {each.shape: each for each in left}
    for each in right:
        known = by_shape.get(each.shape)
        by_shape[each.shape] = each if known is None else known + each
    return tuple(by_shape.values())


def _mcse(influence: Array) -> float:
    return 0.0 if influence.size == 1 else mcse_mean(influence)


def _errors(score: Array, covariance: Array) -> Array:
    return np.sqrt(np.maximum(np.einsum("ka,ab,kb->k", score, covariance, score), 0.0))
