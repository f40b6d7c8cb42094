"""What it takes to fit the weights of one operator by one rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, Jet
from lockquack.solvers.base import Solution

Mask = NDArray[np.bool_]


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
    def slopes(self, weights: Array) -> Array:
        """Slopes of minus the total score in the weights."""

    @abstractmethod
    def score_range(self, weights: Array, direction: Array, first: float, last: float) -> float:
        """Range of the total score at ``weights + t · direction`` for t from first to last."""

    @abstractmethod
    def flat_directions(self, weights: Array, face: Mask) -> Array:
        """Directions among the models of a face, (m, K), in which the score bends least."""


def flattest(bend: Array, face: Mask) -> Array:
    """Eigenvectors, (m, K), of a matrix (K, K) with small eigenvalues, among moves of weight.

    They involve the models of the face only and leave the sum of the weights as it is.
    """
    members = np.flatnonzero(face)
    centring = np.eye(members.size) - 1.0 / members.size
    basis = np.linalg.qr(centring)[0][:, : members.size - 1]
    values, vectors = np.linalg.eigh(basis.T @ bend[np.ix_(members, members)] @ basis)
    flat = values < 1e-2 * values.max(initial=0.0)
    directions = np.zeros((int(flat.sum()), face.size))
    directions[:, members] = (basis @ vectors[:, flat]).T
    return directions
