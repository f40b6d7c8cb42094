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
from scipy.interpolate import BSpline

from lockquack.jets import Array
from lockquack.numeric import cut
from lockquack.solvers.simplices_qp import DenseForm, Form, GroupForm, SparseForm

#: How the functions of a term are alike: all in the same way, or neighbours more than others.
Likeness = Literal["exchangeable", "neighbours"]
#: Gives the upper triangles of symmetric matrices M of some observations, by their positions:
#: (K (K + 1) / 2, observations).
Products = Callable[[slice | NDArray[np.intp]], Array]
#: Unknowns up to which a matrix is a dense one.
_DENSE = 600
#: Numbers up to which functions at all observations are a dense matrix.
_SMALL = 2**14
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
        steps = np.diff(np.eye(self.size), axis=0)
        return sparse.csr_array(steps.T @ steps)


@dataclass(frozen=True, eq=False)
class Basis:
    """Functions of covariates at n observations, in terms that are averaged."""

    share: sparse.csr_array  # (n, B): φ, rows sum to one
    terms: tuple[Term, ...]
    #: Which observations have a group that is none of the functions, (n, terms); None: none has.
    unseen: NDArray[np.bool_] | None = None

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
        unseen = None if self.unseen is None else self.unseen[chosen]
        return Basis(self.share[chosen], self.terms, unseen)

    def spread(self, v: Array) -> Array:
        """Weights at each observation, (K, n), of weights of the functions, (B, K)."""
        return np.asarray((self._functions[0] @ v).T)

    def gather(self, slopes: Array, counts: Array | None = None) -> Array:
        """Pull slopes in the weights of each observation, (K, n), back to V, (B, K)."""
        weighted = slopes if counts is None else slopes * counts
        return np.asarray(self._functions[1] @ weighted.T)

    @cached_property
    def _functions(self) -> tuple[Array | sparse.csr_array, Array | sparse.csr_array]:
        """The functions and their transpose; small ones dense, which takes less time to handle."""
        small = self.share.shape[0] * self.size <= _SMALL
        if small:
            dense = self.share.toarray()
            return dense, dense.T
        return self.share, sparse.csr_array(self.share.T)

    def sums(self, products: Products, chosen: NDArray[np.intp] | None = None) -> Array:
        r"""Sum :math:`\varphi_{ia} \varphi_{ib} M_i` over observations, a row for each pair (a, b).

        The rows are upper triangles. The sum is over all observations, or over those chosen.
        """
        count = self.share.shape[0] if chosen is None else chosen.size
        total: Array | float = 0.0
        for part in cut(slice(0, count), _AT_ONCE):
            obs = part if chosen is None else chosen[part]
            total = total + self._pairs.shares[obs].T @ products(obs).T
        return np.asarray(total)

    def over_pairs(self, sums: Array) -> Array:
        """Add such sums up over all pairs of functions, (a, b) and (b, a)."""
        twice = np.where(self._pairs.first == self._pairs.second, 1.0, 2.0)
        return np.asarray(twice @ sums)

    def is_small(self, K: int) -> bool:
        """Whether forms can be assembled in batches."""
        return self.group is not None or self.size * K <= _DENSE

    def assembled(self, sums: Array, K: int, shrinkage: float | Array) -> Form:
        r"""Return :math:`\sum_i (\varphi_i \varphi_i') \otimes M_i` and the shrinkage as a form.

        Of small problems, sums and shrinkage may have a leading axis.
        """
        row, column = np.triu_indices(K)
        matrices = np.empty((*sums.shape[:-1], K, K))
        matrices[..., row, column] = matrices[..., column, row] = sums
        if self.group is not None:
            return GroupForm(matrices, shrinkage)
        B = self.size
        if self.is_small(K):
            return DenseForm(self._dense(matrices, np.asarray(shrinkage)))
        blocks = _in_rows(matrices, self._pairs.first, self._pairs.second, B)
        whole = sparse.bsr_array(blocks, shape=(B * K, B * K))
        pull = sparse.kron(shrinkage * self.penalty, sparse.eye_array(K))
        return SparseForm(sparse.csr_array(whole + pull))

    def _dense(self, matrices: Array, shrinkage: Array) -> Array:
        B, K = self.size, matrices.shape[-1]
        whole = np.zeros((*matrices.shape[:-3], B, K, B, K))
        at = np.arange(K)
        pull = shrinkage[..., None, None, None] * self.penalty.toarray()[:, :, None]
        whole[..., :, at, :, at] = np.moveaxis(pull, -1, 0) * np.ones((K, *[1] * (pull.ndim - 1)))
        first, second = self._pairs.first, self._pairs.second
        apart = first != second
        by_pair = np.moveaxis(whole, (-4, -2), (0, 1))  # (B, B, ..., K, K), a view
        blocks = np.moveaxis(matrices, -3, 0)
        by_pair[first, second] += blocks
        by_pair[second[apart], first[apart]] += blocks[apart]
        return whole.reshape(*matrices.shape[:-3], B * K, B * K)

    def form(self, products: Products, K: int, shrinkage: float) -> Form:
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
            return _Pairs(each, each, self.share)
        columns = sparse.csc_array(self.share)
        together = sparse.coo_array(sparse.triu(columns.T @ columns))
        first, second = (each.astype(np.intp) for each in together.coords)
        shares = columns[:, first] * columns[:, second]
        return _Pairs(first, second, sparse.csr_array(shares))


@dataclass(frozen=True)
class _Pairs:
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    shares: sparse.csr_array  # (n, pairs)


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
    """One function for each group; what belongs to none, −1, has the mean of all.

    Examples
    --------
    >>> groups(np.array([0, 2, 0]), 3).spread(np.eye(3)).tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    n, known = len(labels), np.maximum(labels, 0)
    share = sparse.csr_array((np.ones(n), known, np.arange(n + 1)), shape=(n, size))
    terms = (Term(size, "exchangeable"),)
    if not (labels < 0).any():
        return Basis(share, terms)
    return Basis(_averaged(share, labels < 0), terms, (labels < 0)[:, None])


def splines(x: Array, knots: Array, degree: int) -> Basis:
    """B-splines, constant beyond the first and the last knot; what is missing has their mean.

    Examples
    --------
    >>> at = np.array([-1.0, 0.0, 0.5, 1.0, np.nan])
    >>> splines(at, np.array([0.0, 0.0, 1.0, 1.0]), 1).share.toarray().tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [0.5, 0.5]]
    """
    missing = np.isnan(x)
    inside = np.where(missing, knots[0], np.clip(x, knots[0], knots[-1]))
    share = sparse.csr_array(BSpline.design_matrix(inside, knots, degree))
    share.eliminate_zeros()
    if missing.any():
        share = _averaged(share, missing)
    return Basis(share, (Term(int(share.shape[1]), "neighbours"),))


def knots_of(x: Array, size: int, degree: int) -> tuple[Array, int]:
    """Place the knots of that many splines at quantiles of x; return them and the degree.

    Of fewer different numbers there are fewer splines, and one of degree zero of a single number.

    Examples
    --------
    >>> knots_of(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 4, 2)
    (array([1., 1., 1., 3., 5., 5., 5.]), 2)
    >>> knots_of(np.array([0.0, 1.0, 1.0]), 4, 2)
    (array([0., 0., 1., 1.]), 1)
    """
    different = np.unique(x[~np.isnan(x)])
    size = min(size, different.size)
    degree = min(degree, size - 1)
    if size == 1:
        return np.array([different[0], np.nextafter(different[0], np.inf)]), 0
    # Quantiles of the different numbers: ties, however many, do not pile knots on one place.
    inner = np.quantile(different, np.linspace(0, 1, size - degree + 1)[1:-1])
    ends = np.repeat(different[[0, -1]], degree + 1)
    return np.concatenate([ends[: degree + 1], inner, ends[degree + 1 :]]), degree


def features(values: Array) -> Basis:
    """Given functions, (n, B), whose rows are not negative and sum to one."""
    return Basis(sparse.csr_array(values), (Term(values.shape[1], "exchangeable"),))


def _averaged(share: sparse.csr_array, rows: NDArray[np.bool_]) -> sparse.csr_array:
    """Give some rows equal shares of all functions."""
    others = sparse.diags_array((~rows).astype(np.float64)) @ share
    chosen = sparse.csr_array(rows[:, None].astype(np.float64))
    equal = sparse.csr_array(np.full((1, share.shape[1]), 1.0 / share.shape[1]))
    return sparse.csr_array(others + chosen @ equal)


def together(parts: Sequence[Basis]) -> Basis:
    """Average several partitions of unity into one."""
    share = sparse.csr_array(sparse.hstack([part.share for part in parts]) / len(parts))
    none = np.zeros((share.shape[0], 1), dtype=np.bool_)
    unseen = [none if part.unseen is None else part.unseen for part in parts]
    terms = tuple(term for part in parts for term in part.terms)
    return Basis(share, terms, np.concatenate(unseen, axis=1))
