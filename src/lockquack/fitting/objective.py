"""What is minimised when the parameters of an operator are fitted by a rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockquack.fitting.densities import Densities
from lockquack.jets import Array, Jet, bare
from lockquack.operators.base import Operator
from lockquack.operators.pool import Pool
from lockquack.operators.space import Space
from lockquack.rules.base import Pooled, Rule
from lockquack.rules.wishes import Answer, Wish
from lockquack.totals import average, total


@dataclass(frozen=True)
class Objective:
    """Minus Σ_i u_i score_i(x) and log prior(x), as a function of an operator's parameters x.

    The counts u are the case weights of the observations unless others are given. Parameters may
    differ between observations, (P, n), where only scores are asked for.
    """

    operator: Operator
    rule: Rule
    densities: Densities
    concentration: Array  # (K,)

    def common_fields(self) -> dict[str, Any]:
        """Return the fields of every objective, for one that is made of this one."""
        return {each.name: getattr(self, each.name) for each in fields(Objective)}

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

    @property
    def case_weights(self) -> Array | None:
        """How often each observation counts, (n,); None: once each."""
        return self.densities.case_weights

    @property
    def counts(self) -> Array:
        """How often each observation counts, (n,)."""
        return np.ones(self.n_obs) if self.case_weights is None else self.case_weights

    @property
    def n_counted(self) -> float:
        """Number of observations, each as often as it counts."""
        return self.n_obs if self.case_weights is None else float(self.case_weights.sum())

    def total(self, values: Array, counts: Array | None = None) -> Array:
        """Sum over the observations, the last axis: the one place where case weights count."""
        return total(values, self.case_weights if counts is None else counts)

    def size_of(self, scores: Array) -> float:
        """Size of the terms of a total of scores, whatever constant they have in common."""
        return float(self.total(np.abs(scores - np.median(scores)))) + self.n_counted

    @cached_property
    def space(self) -> Space:
        """The operator's parameters."""
        return self.operator.space(self.concentration)

    @cached_property
    def _scored(self) -> Jet:
        """The models' jets, without what the rule does not need: that costs less."""
        if self.rule.needs_derivatives:
            return self.jets
        return bare(self.jets.logp if self.rule.needs_density else np.zeros((self.K, self.n_obs)))

    @cached_property
    def _answers(self) -> Mapping[Wish, Answer]:
        return {
            wish: wish.answer(self.operator, self.densities.known_for(wish), self.n_obs)
            for wish in self.rule.wishes_for(self.operator)
        }

    def at(self, chosen: NDArray[np.intp]) -> Objective:
        """Return the objective of some of the observations."""
        return replace(self, densities=self.densities.at(chosen))

    def of(self, models: NDArray[np.intp]) -> tuple[Objective, NDArray[np.intp]]:
        """Return the objective of some models, in this order, and which parameters it has."""
        operator, chosen = self.operator.select(models, self.K)
        densities, concentration = self.densities.of(models), self.concentration[models]
        return Objective(operator, self.rule, densities, concentration), chosen

    def parameters(self, x: Array) -> Array:
        """Return the operator's parameters, (P,), or those at each observation, (P, n)."""
        return x

    def pool(self, x: Array) -> Pool:
        """Bind the operator to parameters."""
        return Pool(self.operator, self.parameters(x), self.K)

    def weights(self, x: Array) -> Array:
        """Share of each model in the pool, (K,), or (K, n) where it differs."""
        return self.operator.weights(self.parameters(x), self.K)

    def mean_weights(self, x: Array) -> Array:
        """Share of each model in the pool, (K,), on average over the observations."""
        weights = self.weights(x)
        return weights if weights.ndim == 1 else average(weights, self.case_weights)

    def value(self, x: Array, counts: Array | None = None) -> float:
        """Minus the total score and log prior."""
        return -float(self.total(self.scores(x), counts)) - self.space.log_prior(x)

    def expand_free(self, z: Array, counts: Array | None = None) -> tuple[float, Array]:
        """Return the value and its gradient at free coordinates."""
        x = self.space.natural(z)
        scores, slopes = self.expand(x)
        by_parameter = self.total(slopes, counts) + self.space.prior_slopes(x)
        value = -float(self.total(scores, counts)) - self.space.log_prior(x)
        return value, -self.space.pull(z, by_parameter)

    def scores(self, x: Array) -> Array:
        """Score of the pool at each observation, (n,)."""
        known = {wish: answer.value(x) for wish, answer in self._answers.items()}
        return self.rule.score(Pooled(self.operator.pool(self._scored, x), known))

    def expand(self, x: Array) -> tuple[Array, Array]:
        """Scores, (n,), and their slopes in the parameters, (P, n); see :class:`Block`."""
        found = {wish: answer.tangents(x) for wish, answer in self._answers.items()}
        known = {wish: value for wish, (value, _) in found.items()}
        slopes = {wish: slope for wish, (_, slope) in found.items()}
        jet, tangents = self.operator.expand(self._scored, x)
        pooled = Pooled(jet, known)
        return self.rule.score(pooled), self.rule.slopes(pooled, Pooled(tangents, slopes))

    def scores_each(self, x: Array) -> Array:
        """Score of the pool at each observation by parameters of its own, (P, n) → (n,)."""
        return self.scores(x)

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
