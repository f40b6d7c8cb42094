"""What is minimised when the parameters of an operator are fitted by a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lockquack.fitting.densities import Densities
from lockquack.jets import Array, Jet
from lockquack.operators.base import Operator
from lockquack.operators.pool import Pool
from lockquack.operators.space import Space
from lockquack.rules.base import Pooled, Rule
from lockquack.rules.wishes import Answer, Wish


@dataclass(frozen=True)
class Objective:
    """Minus Σ_i u_i score_i(x) and log prior(x), as a function of an operator's parameters x.

    Scores may be had of parameters that differ between observations, (P, n), as well.
    """

    operator: Operator
    rule: Rule
    densities: Densities
    concentration: Array  # (K,)

    @property
    def K(self) -> int:  # noqa: N802 (the symbol of the mathematics)
        """Number of models."""
        return self.densities.n_models

    @property
    def jets(self) -> Jet:
        """The models' jets at the observed outcomes, (K, n)."""
        return self.densities.jets

    @property
    def n_obs(self) -> int:
        """Number of observations."""
        return self.densities.n_obs

    @cached_property
    def space(self) -> Space:
        """The operator's parameters."""
        return self.operator.space(self.concentration)

    @cached_property
    def _answers(self) -> Mapping[Wish, Answer]:
        tables = self.densities.tables
        return {
            wish: wish.answer(self.operator, tables.get(wish, ()), self.n_obs)
            for wish in self.rule.wishes
        }

    def at(self, chosen: NDArray[np.intp]) -> Objective:
        """Return the objective of some of the observations."""
        return replace(self, densities=self.densities.at(chosen))

    def pool(self, x: Array) -> Pool:
        """Bind the operator to parameters."""
        return Pool(self.operator, x, self.K)

    def weights(self, x: Array) -> Array:
        """Share of each model in the pool, (K,)."""
        return self.operator.weights(x, self.K)

    def value(self, x: Array, counts: Array | None = None) -> float:
        """Minus the total score and log prior."""
        return -_total(self.scores(x), counts) - self.space.log_prior(x)

    def expand_free(self, z: Array, counts: Array | None = None) -> tuple[float, Array]:
        """Return the value and its gradient at free coordinates."""
        x = self.space.natural(z)
        scores, slopes = self.expand(x)
        by_parameter = slopes.sum(axis=1) if counts is None else slopes @ counts
        by_parameter = by_parameter + self.space.prior_slopes(x)
        value = -_total(scores, counts) - self.space.log_prior(x)
        return value, -self.space.pull(z, by_parameter)

    def scores(self, x: Array) -> Array:
        """Score of the pool at each observation, (n,)."""
        known = {wish: answer.value(x) for wish, answer in self._answers.items()}
        return self.rule.score(Pooled(self.operator.pool(self.jets, x), known))

    def expand(self, x: Array) -> tuple[Array, Array]:
        """Scores, (n,), and their slopes in the parameters, (P, n); see :class:`Block`."""
        jets, found = self.jets, {w: a.tangents(x) for w, a in self._answers.items()}
        known = {wish: value for wish, (value, _) in found.items()}
        slopes = {wish: slope for wish, (_, slope) in found.items()}
        pooled = Pooled(self.operator.pool(jets, x), known)
        tangent = Pooled(self.operator.tangents(jets, x), slopes)
        return self.rule.score(pooled), self.rule.slopes(pooled, tangent)

    def model_scores(self) -> Array:
        """Score of each model alone, (K, n)."""
        scores = np.empty((self.K, self.n_obs))
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
        for k, jet in enumerate(self.jets):
            known = {wish: answer.of_model(k) for wish, answer in self._answers.items()}
            out[k] = self.rule.score(Pooled(jet, known))


def _total(scores: Array, counts: Array | None) -> float:
    return float(scores.sum() if counts is None else scores @ counts)
