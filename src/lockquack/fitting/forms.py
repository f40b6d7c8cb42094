r"""Scores that are quadratic in the weights, :math:`-(w'Q_i w + 2 c_i'w)` of observation i."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, Jet

#: Some of the observations.
Some = slice | NDArray[np.intp]


class Forms(ABC):
    """Quadratic forms of K weights, one for each of n observations."""

    @property
    @abstractmethod
    def linear(self) -> Array:
        """Return c, (K, n)."""

    @abstractmethod
    def total(self, counts: Array | None) -> tuple[Array, Array]:
        """Sum Q, (K, K), and c, (K,), every observation as often as it counts."""

    @abstractmethod
    def triangles(self, obs: Some) -> Array:
        """Upper triangles of Q of some observations, (K (K + 1) / 2, m)."""

    @abstractmethod
    def matrices(self, obs: Some) -> Array:
        """Q of some observations, (K, K, m)."""

    @abstractmethod
    def along(self, weights: Array) -> Array:
        """Q times weights, (K,) or (K, n), at each observation, (K, n)."""

    def slopes(self, weights: Array) -> Array:
        """Slopes of minus each score in the weights, (K, n)."""
        return 2.0 * (self.along(weights) + self.linear)


@dataclass(frozen=True)
class OfJets(Forms):
    r"""Forms of the jets of a log-linear pool's members.

    :math:`Q_i = \sum_j G_{ij} G_{ij}'` and :math:`c_i = \sum_j C_{ij}`, with their gradients and
    curvatures. Q is never held.
    """

    jets: Jet  # (K, n, d)

    @property
    def linear(self) -> Array:
        """Sum curvatures over the components."""
        return self.jets.curv.sum(axis=2)

    def total(self, counts: Array | None) -> tuple[Array, Array]:
        """Multiply all gradients at once."""
        return quadratic_form(self.jets, counts)

    def triangles(self, obs: Some) -> Array:
        """Multiply gradients."""
        return triangles(self.jets.grad[:, obs])

    def matrices(self, obs: Some) -> Array:
        """Multiply gradients."""
        grad = self.jets.grad[:, obs]
        return np.einsum("jnd,knd->jkn", grad, grad)

    def along(self, weights: Array) -> Array:
        """Multiply by the gradient of the pool."""
        grad = self.jets.grad
        pooled = np.einsum("k,knj->nj" if weights.ndim == 1 else "kn,knj->nj", weights, grad)
        return np.einsum("knj,nj->kn", grad, pooled)


@dataclass(frozen=True)
class OfMatrices(Forms):
    """Forms that are given as matrices, without a linear part."""

    matrix: Array  # (K, K, n)

    @property
    def linear(self) -> Array:
        """Nothing."""
        return np.zeros(self.matrix.shape[1:])

    def total(self, counts: Array | None) -> tuple[Array, Array]:
        """Sum matrices."""
        Q = self.matrix.sum(axis=2) if counts is None else self.matrix @ counts
        return Q, np.zeros(len(Q))

    def triangles(self, obs: Some) -> Array:
        """Take their upper triangles."""
        row, column = np.triu_indices(len(self.matrix))
        return self.matrix[row, column][:, obs]

    def matrices(self, obs: Some) -> Array:
        """Return them."""
        return self.matrix[..., obs]

    def along(self, weights: Array) -> Array:
        """Multiply by the weights."""
        return np.einsum("jkn,k->jn" if weights.ndim == 1 else "jkn,kn->jn", self.matrix, weights)


def quadratic_form(jets: Jet, counts: Array | None) -> tuple[Array, Array]:
    """Q and c of the jets of some experts, every observation as often as it counts."""
    grad = jets.grad if counts is None else np.sqrt(counts)[:, None] * jets.grad
    flat = grad.reshape(len(grad), -1)
    c = jets.curv.sum(axis=(1, 2)) if counts is None else jets.curv.sum(axis=2) @ counts
    return flat @ flat.T, c


def triangles(grad: Array) -> Array:
    """Upper triangles of Σ_j G_ij G_ij' for each observation i: (K, n, d) → (K (K + 1) / 2, n)."""
    return np.concatenate([np.einsum("kij,ij->ki", grad[k:], each) for k, each in enumerate(grad)])


def symmetric(upper: Array, K: int) -> Array:
    """Matrices of upper triangles, (..., K (K + 1) / 2) → (..., K, K)."""
    row, column = np.triu_indices(K)
    matrices = np.empty((*upper.shape[:-1], K, K))
    matrices[..., row, column] = matrices[..., column, row] = upper
    return matrices
