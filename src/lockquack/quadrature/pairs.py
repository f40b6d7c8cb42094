r"""Distances of distributions to an outcome and to each other, from weighted draws.

With :math:`d_{jk} = E|X_j - X_k|` and :math:`e_k = E|X_k - y|` the energy score of the mixture of
K distributions is quadratic in its weights,

.. math:: \sum_k w_k e_k - \tfrac12 \sum_{jk} w_j w_k d_{jk} = w' Q w,
   \qquad Q_{jk} = \tfrac12 (e_j + e_k - d_{jk}),

where the weights sum to one. For single numbers it is the continuous ranked probability score, and

.. math:: Q_{jk} = \int \bigl(F_j(t) - 1[t \ge y]\bigr) \bigl(F_k(t) - 1[t \ge y]\bigr) dt .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from lockquack.jets import Array
from lockquack.quadrature.nodes import Table

#: Most draws of vectors that distances of one are averaged over.
_MOST_VECTORS = 1000


@dataclass(frozen=True)
class Pairs(Table):
    """The matrices Q of K models at n observations."""

    matrix: Array  # (K, K, n), symmetric and positive semidefinite

    axes: ClassVar[dict[str, str]] = {"matrix": "kkn"}

    @property
    def own(self) -> Array:
        """Each model's own distance to the outcomes, (K, n)."""
        return np.einsum("kkn->kn", self.matrix)


def pairs_of_numbers(draws: Sequence[Array], weights: Sequence[Array], y: Array) -> Array:
    """Q of scalar outcomes, (K, K, n), from draws (S, n) of each model and their weights.

    Exact for the empirical distributions: sums over the intervals between neighbouring draws.
    """
    K, n = len(draws), y.size
    counts = [len(each) for each in draws]
    model = np.append(np.repeat(np.arange(K), counts), K)
    values = np.concatenate([*draws, y[None]])
    mass = np.concatenate([*(w / w.sum(axis=0) for w in weights), np.ones((1, n))])
    matrix = np.empty((K, K, n))
    for i in range(n):
        order = values[:, i].argsort(kind="stable")
        steps = np.zeros((K + 1, order.size))
        steps[model[order], np.arange(order.size)] = mass[order, i]
        curves = steps.cumsum(axis=1)[:, :-1]
        departure = curves[:K] - curves[K]
        matrix[..., i] = (departure * np.diff(values[order, i])) @ departure.T
    return matrix


def apart_from_numbers(draws: Array, mass: Array) -> Array:
    """Mean distances of each draw to all others, (S, n), by sums over sorted draws.

    Examples
    --------
    >>> apart_from_numbers(np.array([[0.0], [1.0], [4.0]]), np.full((3, 1), 1 / 3))[:, 0]
    array([1.66666667, 1.33333333, 2.33333333])
    """
    order = draws.argsort(axis=0)
    values, shares = (np.take_along_axis(each, order, axis=0) for each in (draws, mass))
    below, moment = shares.cumsum(axis=0), (shares * values).cumsum(axis=0)
    found = values * (2.0 * below - 1.0) + moment[-1] - 2.0 * moment
    apart = np.empty_like(found)
    np.put_along_axis(apart, order, found, axis=0)
    return apart


def apart_from_vectors(draws: Array, mass: Array) -> Array:
    """Mean distances of each draw to some of the others, (S, n, d) → (S, n)."""
    some = slice(None, None, -(-len(draws) // _MOST_VECTORS))
    columns = [
        cdist(draws[:, i], draws[some, i]) @ (mass[some, i] / mass[some, i].sum())
        for i in range(draws.shape[1])
    ]
    return np.stack(columns, axis=1)


def pairs_of_vectors(draws: Sequence[Array], weights: Sequence[Array], y: Array) -> Array:
    """Q of vector outcomes, (K, K, n), from draws (S, n, d) of each model and weights (S, n).

    A double sum over the draws.
    """
    K, n = len(draws), len(y)
    edges = np.cumsum([0, *(len(each) for each in draws)])
    values = np.concatenate(draws)
    mass = np.concatenate([w / w.sum(axis=0) for w in weights])
    matrix = np.empty((K, K, n))
    for i in range(n):
        away = np.linalg.norm(values[:, i] - y[i], axis=1)
        apart = mass[:, i, None] * cdist(values[:, i], values[:, i]) * mass[:, i]
        apart = np.add.reduceat(np.add.reduceat(apart, edges[:-1], axis=0), edges[:-1], axis=1)
        near = np.add.reduceat(mass[:, i] * away, edges[:-1])
        matrix[..., i] = (near[:, None] + near - apart) / 2
    return matrix
