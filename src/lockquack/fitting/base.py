"""What it takes to fit the parameters of one operator by one rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lockquack.fitting.evidence import Evidence
from lockquack.jets import Array
from lockquack.operators.base import Normaliser, Operator
from lockquack.operators.space import Space
from lockquack.rules.base import Pooled, Rule
from lockquack.solvers.base import Solution

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Problem(ABC):
    """Maximise Σ_i u_i score_i(x) + log prior(x) over an operator's parameters."""

    operator: Operator
    rule: Rule
    evidence: Evidence
    concentration: Array  # (K,)

    #: In a word or two, how it is solved.
    kind: ClassVar[str]
    #: Whether the parameters depend on the observations through a sum over them.
    resamples: ClassVar[bool] = True

    @abstractmethod
    def solve(self) -> Solution:
        """Fit the parameters, every observation counting once."""

    @abstractmethod
    def resolve(self, counts: Array, x: Array) -> Array:
        """Fit again for many countings u of the observations, (replicate, n) → (replicate, P).

        ``x`` is the solution for equal counts.
        """

    def refit(self, counts: Array, x: Array) -> Array:
        """Fit again, exactly, for one counting of the observations, (n,) → (P,)."""
        return self.resolve(counts[None], x)[0]

    @property
    def K(self) -> int:  # noqa: N802 (the symbol of the mathematics)
        """Number of models."""
        return self.evidence.n_models

    @cached_property
    def space(self) -> Space:
        """The operator's parameters."""
        return self.operator.space(self.concentration)

    @cached_property
    def normalisers(self) -> tuple[Normaliser, ...]:
        """Normalisers of consecutive groups of observations; empty where none is needed."""
        if not self.rule.needs_normaliser or self.operator.normalised:
            return ()
        return tuple(self.operator.normaliser(nodes) for nodes in self.evidence.nodes)

    def scores(self, x: Array) -> Array:
        """Score of the pool at each observation, (n,)."""
        return self.rule.score(self._pooled(x, [each.log_norm(x) for each in self.normalisers]))

    def expand(self, x: Array) -> tuple[Array, Array]:
        """Scores, (n,), and their slopes in the parameters, (P, n); see :class:`Block`."""
        norms = [each.tangents(x) for each in self.normalisers]
        pooled = self._pooled(x, [value for value, _ in norms])
        beside = self.evidence.neighbours
        jet = self.operator.tangents(self.evidence.jets, x)
        tangent = Pooled(
            jet,
            np.concatenate([slopes for _, slopes in norms], axis=1) if norms else jet.logp * 0.0,
            None if beside is None else self.operator.density_tangents(beside, x),
        )
        return self.rule.score(pooled), self.rule.slopes(pooled, tangent)

    def expand_free(self, z: Array, counts: Array | None = None) -> tuple[float, Array]:
        """Objective and its gradient at free coordinates."""
        x = self.space.natural(z)
        scores, slopes = self.expand(x)
        total = scores.sum() if counts is None else scores @ counts
        by_parameter = slopes.sum(axis=1) if counts is None else slopes @ counts
        by_parameter = by_parameter + self.space.prior_slopes(x)
        value = -float(total) - self.space.log_prior(x)
        return value, -self.space.pull(z, by_parameter)

    def model_scores(self) -> Array:
        """Score of each model alone, (K, n)."""
        scores = np.empty((self.K, self.evidence.n_obs))
        self._score_models(out=scores)
        return scores

    def all_scores(self, x: Array) -> Array:
        """Score of the pool and of each model alone, (1 + K, n)."""
        pooled = self.scores(x)
        scores = np.empty((1 + self.K, pooled.size))
        scores[0] = pooled
        self._score_models(out=scores[1:])
        return scores

    def _score_models(self, out: Array) -> None:
        # One after the other: of many observations, little else fits into memory.
        beside, nothing = self.evidence.neighbours, np.zeros(self.evidence.n_obs)
        for k, jet in enumerate(self.evidence.jets):
            out[k] = self.rule.score(Pooled(jet, nothing, None if beside is None else beside[k]))

    def weights(self, x: Array) -> Array:
        """Share of each model in the pool, (K,)."""
        return self.operator.weights(x, self.K)

    def objective(self, x: Array, counts: Array | None = None) -> float:
        """Minus the total score and log prior."""
        scores = self.scores(x)
        total = scores.sum() if counts is None else scores @ counts
        return -float(total) - self.space.log_prior(x)

    def _pooled(self, x: Array, log_norms: list[Array]) -> Pooled:
        evidence, operator = self.evidence, self.operator
        beside = evidence.neighbours
        return Pooled(
            operator.pool(evidence.jets, x),
            np.concatenate(log_norms) if log_norms else np.zeros(evidence.n_obs),
            None if beside is None else operator.pool_density(beside, x),
        )
