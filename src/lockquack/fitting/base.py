"""What it takes to fit the weights of one operator by one rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lockquack.jets import Array, Jet
from lockquack.solvers.base import Solution


@dataclass(frozen=True)
class Problem(ABC):
    """Maximise Σ_i u_i score_i(w) + log prior(w), with a Dirichlet prior on the simplex."""

    jets: Jet  # (K, n), (K, n, d)
    unit: Array  # (d,)
    concentration: Array  # (K,)

    @abstractmethod
    def solve(self) -> Solution:
        """Fit the weights, every observation counting once."""

    @abstractmethod
    def resolve(self, counts: Array) -> Solution:
        """Fit the weights again for many countings u of the observations, (replicate, n)."""

    @abstractmethod
    def score_range(self, weights: Array, direction: Array, first: float, last: float) -> float:
        """Range of the total score at ``weights + t · direction`` for t from first to last."""

    @abstractmethod
    def flat_directions(self, weights: Array) -> Array:
        """Directions, (m, K), along which the score changes least; besides pairs of models."""
