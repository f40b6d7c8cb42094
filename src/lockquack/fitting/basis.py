r"""Functions of covariates that share out each observation: a partition of unity.

Weights that differ between observations are :math:`w_i = \sum_b \varphi_b(x_i) v_b` with
:math:`\varphi \ge 0`, :math:`\sum_b \varphi_b = 1`, and every :math:`v_b` on the simplex. So
:math:`w_i` is on the simplex everywhere, and what is convex in constant weights is convex in V.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lockquack.jets import Array
from lockquack.solvers.simplices_qp import Form, GroupForm, SparseForm

#: How the functions of a term are alike: all in the same way, or neighbours more than others.
Likeness = Literal["exchangeable", "neighbours"]
#: Observations whose products are formed at once.
_AT_ONCE = 2**15


@dataclass(frozen=True)
class Term:
    """The functions of one covariate."""

    size: int
    likeness: Likeness

    @property
    def penalty(self) -> sparse.csr_array:
        r"""P of the shrinkage :math:`\sum_k v_k' P v_k`, zero for constants alone.

        :math:`\sum_b |v_b - \bar v|^2` of exchangeable functions, the squared differences of
        neighbours otherwise.
        """
        if self.likeness == "exchangeable":
            return sparse.csr_array(np.eye(self.size) - 1.0 / self.size)
        steps = sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(self.size - 1, self.size))
        return sparse.csr_array(steps.T @ steps)


@dataclass(frozen=True, eq=False)
class Basis:
    """Functions of covariates at n observations, in terms that are averaged."""

    share: sparse.csr_array  # (n, B): φ, rows sum to one
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """Number of functions."""
        return int(self.share.shape[1])

    @cached_property
    def group(self) -> NDArray[np.intp] | None:
        """The one function that is not zero, at each observation; None where there are several."""
        single = len(self.terms) == 1 and self.terms[0].likeness == "exchangeable"
        counts = np.diff(self.share.indptr)
        if not single or (counts != 1).any():
            return None
        return self.share.indices.astype(np.intp)

    def at(self, chosen: NDArray[np.intp]) -> Basis:
        """Return the basis at some of the observations."""
        return Basis(self.share[chosen], self.terms)

    def spread(self, v: Array) -> Array:
        """Weights at each observation, (K, n), of weights of the functions, (B, K)."""
        return np.asarray((self.share @ v).T)

    def gather(self, slopes: Array, counts: Array | None = None) -> Array:
        """Pull slopes in the weights of each observation, (K, n), back to V, (B, K)."""
        weighted = slopes if counts is None else slopes * counts
        return np.asarray(self.share.T @ weighted.T)

    def sums(self, products: Callable[[slice], Array]) -> Array:
        r"""Sum :math:`\varphi_{ia} \varphi_{ib} M_i` over observations, a row for each pair (a, b).

        ``products`` gives the upper triangles of the symmetric matrices M of some observations,
        (K (K + 1) / 2, observations), and so do the rows.
        """
        total: Array | float = 0.0
        for start in range(0, self.share.shape[0], _AT_ONCE):
            obs = slice(start, start + _AT_ONCE)
            total = total + self._pairs.shares[:, obs] @ products(obs).T
        return np.asarray(total)

    def assembled(self, sums: Array, K: int, shrinkage: float) -> Form:
        r"""Return :math:`\sum_i (\varphi_i \varphi_i') \otimes M_i` and the shrinkage as a form."""
        row, column = np.triu_indices(K)
        matrices = np.empty((len(sums), K, K))
        matrices[:, row, column] = matrices[:, column, row] = sums
        if self.group is not None:
            return GroupForm(matrices, shrinkage)
        B = self.size
        blocks = _in_rows(matrices, self._pairs.first, self._pairs.second, B)
        whole = sparse.bsr_array(blocks, shape=(B * K, B * K))
        pull = sparse.kron(shrinkage * self.penalty, sparse.eye_array(K))
        return SparseForm(sparse.csr_array(whole + pull))

    def form(self, products: Callable[[slice], Array], K: int, shrinkage: float) -> Form:
        """Assemble what the products come to."""
        return self.assembled(self.sums(products), K, shrinkage)

    @cached_property
    def penalty(self) -> sparse.csr_array:
        """P of all terms together, (B, B)."""
        return sparse.csr_array(sparse.block_diag([term.penalty for term in self.terms]))

    def roughness(self, v: Array) -> float:
        """Return what shrinkage keeps small, of weights of the functions, (B, K)."""
        return float((v * (self.penalty @ v)).sum())

    @cached_property
    def _pairs(self) -> _Pairs:
        """Pairs of functions that overlap somewhere, and their products there."""
        if self.group is not None:
            each = np.arange(self.size)
            return _Pairs(each, each, sparse.csr_array(self.share.T))
        columns = sparse.csc_array(self.share)
        together = sparse.coo_array(sparse.triu(columns.T @ columns))
        first, second = (each.astype(np.intp) for each in together.coords)
        rows = [(columns[:, [a]] * columns[:, [b]]).T for a, b in zip(first, second, strict=True)]
        return _Pairs(first, second, sparse.csr_array(sparse.vstack(rows)))


@dataclass(frozen=True)
class _Pairs:
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    shares: sparse.csr_array  # (pairs, n)


def _in_rows(
    matrices: Array, first: NDArray[np.intp], second: NDArray[np.intp], B: int
) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
    """Lay out blocks and their mirror images as a block sparse matrix wants them."""
    apart = first != second
    rows = np.concatenate([first, second[apart]])
    columns = np.concatenate([second, first[apart]])
    blocks = np.concatenate([matrices, matrices[apart]])
    order = np.lexsort((columns, rows))
    starts = np.searchsorted(rows[order], np.arange(B + 1))
    return blocks[order], columns[order], starts


def groups(labels: NDArray[np.intp], size: int) -> Basis:
    """One function for each group.

    Examples
    --------
    >>> groups(np.array([0, 2, 0]), 3).spread(np.eye(3)).tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    n = len(labels)
    share = sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, size))
    return Basis(share, (Term(size, "exchangeable"),))


def together(parts: Sequence[Basis]) -> Basis:
    """Average several partitions of unity into one."""
    share = sparse.csr_array(sparse.hstack([part.share for part in parts]) / len(parts))
    return Basis(share, tuple(term for part in parts for term in part.terms))
