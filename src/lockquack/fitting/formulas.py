"""Weights of a mixture that a formula gives, without a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from lockquack.errors import UnsupportedError
from lockquack.fitting.fitter import Fitter
from lockquack.fitting.selection import certain, totals_without
from lockquack.jets import Array, softmax
from lockquack.operators.base import Positions
from lockquack.solvers.base import Solution

#: Bayesian bootstrap replicates behind the weights of pseudo-BMA+, as in R's loo.
_REPLICATES = 1000


@dataclass(frozen=True)
class Formula(Fitter, ABC):
    """Weights by a formula; it is exact, so there is nothing to certify."""

    kind = "formula"
    is_optimum = False
    is_formula = True

    @abstractmethod
    def formula(self) -> Array:
        """Weights of the models, (K,)."""

    def solve(self) -> Solution:
        """Apply the formula."""
        x = self.formula()
        scores = self.objective.scores(x)
        total = self.objective.total
        return certain(x, -float(total(scores)), float(total(np.abs(scores))))

    def certificate(self, solution: Solution) -> str:
        """Say that nothing was searched for."""
        return "Weights by a formula: nothing was searched for."


@dataclass(frozen=True)
class FixedFormula(Formula, ABC):
    """Weights that stay the same however often each observation counts."""

    resamples = False
    #: What to say to those who resample the observations nevertheless.
    refusal: ClassVar[str]

    @override
    def refit_many(self, counts: Array, x: Array) -> Array:
        raise UnsupportedError(self.refusal)

    @override
    def refit(self, counts: Array, x: Array) -> Array:
        return x


@dataclass(frozen=True)
class EqualWeights(FixedFormula):
    """The same weight for every model."""

    refusal = "Equal weights do not depend on the data: nothing to resample."

    @override
    def formula(self) -> Array:
        return np.full(self.objective.K, 1.0 / self.objective.K)


@dataclass(frozen=True)
class GivenWeights(FixedFormula):
    """Weights that the user gave."""

    refusal = "Weights that were given do not depend on the data: nothing to resample."
    given: Array = field(default_factory=lambda: np.zeros(0))
    wants = ("given",)

    @override
    def formula(self) -> Array:
        return self.given


@dataclass(frozen=True)
class PseudoBMA(Formula):
    r"""Weights :math:`w_k \propto \exp \sum_i u_i \log \pi_k(y_i)`, u the case weights."""

    most_deletions = 10_000_000

    @override
    def formula(self) -> Array:
        return self.refit_many(self.objective.counts[None], np.empty(0))[0]

    def refit_many(self, counts: Array, x: Array) -> Array:
        """Apply the formula to many sets of counts, (replicate, n)."""
        return np.asarray(softmax(counts @ self.objective.jets.logp.T, axis=1)[0])

    @override
    def without_each(self, chosen: Positions, x: Array) -> Array:
        return np.asarray(softmax(totals_without(self.objective, chosen), axis=0)[0]).T


@dataclass(frozen=True)
class PseudoBMAPlus(PseudoBMA):
    """The average of pseudo-BMA weights over Bayesian bootstrap replicates."""

    random_seed: int = 0
    wants = ("random_seed",)
    most_deletions = 10_000

    @override
    def formula(self) -> Array:
        rng, objective = np.random.default_rng(self.random_seed), self.objective
        counts = bootstrap_counts(rng, _REPLICATES, objective.n_obs, objective.case_weights)
        return self.refit_many(counts, np.empty(0)).mean(axis=0)

    @override
    def without_each(self, chosen: Positions, x: Array) -> Array:
        # The same replicates without one of their observations: new ones would differ by chance.
        rng, objective = np.random.default_rng(self.random_seed), self.objective
        counts = bootstrap_counts(rng, _REPLICATES, objective.n_obs, objective.case_weights)
        totals, whole = counts @ objective.jets.logp.T, objective.n_counted
        found = np.empty((chosen.size, objective.K))
        for row, i in enumerate(chosen.tolist()):
            left = counts[:, i, None]
            rest = (whole - objective.counts[i]) / (whole - left)
            own = totals - left * objective.jets.logp[:, i]
            found[row] = softmax(rest * own, axis=1)[0].mean(axis=0)
        return found

    def refit(self, counts: Array, x: Array) -> Array:
        """Apply the formula to the observations that count."""
        counted = replace(self, objective=self.objective.at(np.flatnonzero(counts)))
        return counted.formula()


@dataclass(frozen=True)
class ModelAveraging(FixedFormula):
    """Posterior probabilities of the models."""

    refusal = (
        "Weights by marginal likelihood cannot be bootstrapped over observations: the "
        "marginal likelihood is not a sum over them."
    )
    #: Log marginal likelihood and log prior probability of each model, (K,).
    log_probability: Array = field(default_factory=lambda: np.zeros(0))
    wants = ("log_probability",)

    @override
    def formula(self) -> Array:
        return np.asarray(softmax(self.log_probability)[0])


@dataclass(frozen=True)
class ChoiceByMarginalLikelihood(ModelAveraging):
    """All weight on the model of the largest posterior probability."""

    @override
    def formula(self) -> Array:
        return np.eye(self.objective.K)[self.log_probability.argmax()]


def bootstrap_counts(
    rng: np.random.Generator, replicates: int, n_obs: int, case_weights: Array | None = None
) -> Array:
    """Draw counts of the observations, (replicate, n): n times flat Dirichlet.

    With case weights w, in proportion to w times exponential numbers, and of the same sum as w.
    """
    counts = rng.standard_exponential((replicates, n_obs))
    if case_weights is not None:
        counts *= case_weights
    whole = n_obs if case_weights is None else case_weights.sum()
    counts *= whole / counts.sum(axis=1, keepdims=True)
    return counts
