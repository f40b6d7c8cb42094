r"""Sums over observations that are all that a score needs that is quadratic in the weights.

The score of every pool and of every model is linear in the features
:math:`\varphi_i = (Q_i, c_i)` of an observation: for locking by the Hyvärinen score the products
of the models' gradients and their curvatures, for mixtures by CRPS distances. So
:math:`\sum w_i \varphi_i` determines the weights, and :math:`\sum w_i^2 \varphi_i \varphi_i'` every
standard error: numbers that do not grow with the observations, and that are added where data come
in parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from typing_extensions import override

from lockquack.draws.diagnostics import mcse_mean
from lockquack.fitting.densities import Densities
from lockquack.fitting.forms import Forms, OfJets, symmetric, triangles
from lockquack.fitting.objective import Objective
from lockquack.fitting.quadratic import QuadraticFitter
from lockquack.jets import Array, Jet
from lockquack.operators import Operator
from lockquack.rules.scaled import ScaledRule
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
class QuadraticSums:
    """What weights by a quadratic score need to know of the data, whatever their number.

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
    effects: tuple[tuple[Array, ...], ...]

    @classmethod
    def of_jets(
        cls,
        jets: Jet,
        outcomes: Array,
        weights: Array | None,
        effects: tuple[Array, ...],
    ) -> QuadraticSums:
        """Sum over observations: jets (K, n, d), outcomes (n, d)."""
        features = [
            np.concatenate([triangles(jets.grad[..., j : j + 1]), jets.curv[..., j]])
            for j in range(jets.grad.shape[2])
        ]
        each = tuple((effect,) for effect in effects)
        return cls._of(len(jets.grad), np.concatenate(features), outcomes, weights, each)

    @classmethod
    def of_matrices(cls, matrices: Array, outcomes: Array, weights: Array | None) -> QuadraticSums:
        """Sum over observations: Q (K, K, n) in plain units, outcomes (n, 1)."""
        K = len(matrices)
        row, column = np.triu_indices(K)
        nothing = np.zeros((K, matrices.shape[2]))
        features = np.concatenate([matrices[row, column], nothing])
        return cls._of(K, features, outcomes, weights, ((),) * K)

    @classmethod
    def _of(
        cls,
        K: int,
        features: Array,
        outcomes: Array,
        weights: Array | None,
        effects: tuple[tuple[Array, ...], ...],
    ) -> QuadraticSums:
        w = np.ones(len(outcomes)) if weights is None else weights
        weighted = features if weights is None else features * w
        few = len(features) <= _MOST_FEATURES
        return cls(
            K,
            Spread.of(outcomes, weights),
            weighted.sum(axis=1),
            float(w @ w),
            weighted @ w,
            weighted @ weighted.T if few else np.empty((0, 0)),
            effects,
        )

    def __add__(self, other: QuadraticSums) -> QuadraticSums:
        return QuadraticSums(
            self.n_models,
            self.outcomes + other.outcomes,
            self.first + other.first,
            self.square_weight + other.square_weight,
            self.square_first + other.square_first,
            self.square_second + other.square_second,
            tuple(map(_added, self.effects, other.effects)),
        )

    def times(self, factor: float) -> QuadraticSums:
        """Let every observation count a factor as often: forget some of it."""
        return replace(
            self,
            outcomes=self.outcomes.times(factor),
            first=factor * self.first,
            square_weight=factor**2 * self.square_weight,
            square_first=factor**2 * self.square_first,
            square_second=factor**2 * self.square_second,
            effects=tuple(tuple(factor * a for a in each) for each in self.effects),
        )

    @property
    def n_components(self) -> int:
        """Number of components of an outcome."""
        return self.outcomes.mean.size

    def quadratic(self, factor: Array, first: Array | None = None) -> tuple[Array, Array]:
        """Q and c, (..., K, K) and (..., K), of these or other sums.

        Scores of each component are multiplied by a factor, (d,), which its unit determines.
        """
        first = self.first if first is None else first
        by_component = first.reshape(*first.shape[:-1], self.n_components, -1)
        total = factor @ by_component  # (..., P)
        size = self.n_models * (self.n_models + 1) // 2
        return symmetric(total[..., :size], self.n_models), total[..., size:]

    def totals(self, weights: Array, factor: Array) -> Array:
        """Total score of pools with these weights, (pool, K) → (pool,)."""
        return np.asarray(self._score(weights, factor) @ self.first)

    def errors(self, weights: Array, factor: Array) -> tuple[Array, Array]:
        """Find the standard errors of totals and of their differences to the first, (pool,).

        As :func:`lockquack.totals.error_of_total` has them; NaN where they are not known.
        """
        m = self.outcomes.count
        if m < 2 or not self.square_second.size:
            unknown = np.full(len(weights), np.nan)
            return unknown, unknown
        score, covariance = self._score(weights, factor), self._covariance * m / (m - 1)
        return _errors(score, covariance), _errors(score - score[0], covariance)

    def replicates(
        self, concentration: Array, factor: Array, n: int, rng: np.random.Generator
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
        Q, c = self.quadratic(factor, self.first + noise)
        # A sum of squares stays one; a normal replicate of few observations might not.
        size, axes = np.linalg.eigh(Q)
        Q = (axes * np.maximum(size, 0.0)[:, None]) @ np.swapaxes(axes, -1, -2)
        return simplex_qp(Q, c, concentration - 1.0).x

    def mcse(self, factor: Array) -> Array:
        """Monte Carlo standard error of each model's total score, (K,); NaN where not known."""
        return np.array(
            [
                np.sqrt(sum(_mcse(effect @ factor) ** 2 for effect in each)) if each else np.nan
                for each in self.effects
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

    def _score(self, weights: Array, factor: Array) -> Array:
        """Coefficients of the features in the scores of pools, (pool, d · P)."""
        row, column = np.triu_indices(self.n_models)
        products = weights[:, row] * weights[:, column] * np.where(row == column, 1.0, 2.0)
        one = np.concatenate([products, 2.0 * weights], axis=1)
        return -np.concatenate([one * each for each in factor], axis=1)


@dataclass(frozen=True)
class SummedFitter(QuadraticFitter):
    """Weights by a quadratic score, from sums in place of observations."""

    sums: QuadraticSums
    factor: Array  # (d,)

    @classmethod
    def of(
        cls,
        sums: QuadraticSums,
        operator: Operator,
        rule: ScaledRule,
        factor: Array,
        concentration: Array,
    ) -> SummedFitter:
        """Pose the problem."""
        none = np.empty((sums.n_models, 0, sums.n_components))
        densities = Densities(Jet(none[..., 0], none, none))
        return cls(Objective(operator, rule, densities, concentration), sums, factor)

    @property
    @override
    def forms(self) -> Forms:
        return OfJets(self.objective.jets)  # none: observations are not held

    @cached_property
    @override
    def quadratic(self) -> tuple[Array, Array]:
        return self.sums.quadratic(self.factor)


def _added(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
    """Add effects of blocks of the same shape; keep others apart."""
    by_shape = {each.shape: each for each in left}
    for each in right:
        known = by_shape.get(each.shape)
        by_shape[each.shape] = each if known is None else known + each
    return tuple(by_shape.values())


def _mcse(effect: Array) -> float:
    return 0.0 if effect.size == 1 else mcse_mean(effect)


def _errors(score: Array, covariance: Array) -> Array:
    return np.sqrt(np.maximum(np.einsum("ka,ab,kb->k", score, covariance, score), 0.0))
