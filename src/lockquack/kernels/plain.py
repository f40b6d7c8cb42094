"""Sums over draws in numpy: each step reads a tile, which stays in the processor's cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lockquack.jets import Array, all_finite, exponentials, log_sum_exp, pool_derivatives, softmax

#: Long rows are read faster, and a few tiles must stay in a core's cache.
HELD_TILE, HELD_ROW = 2**17, 5000

#: Arrays for log masses, squared shares, gradients and curvatures.
Room = tuple[Array, Array, Array, Array]

#: Second derivatives this much smaller than the squared first have lost digits to it.
_LOSS = 1e-4


def average_members(grad: Array, curv: Array, mean: Array, pooled: Array) -> None:
    """Pool (group, member, cell) derivatives by equal shares, into (group, cell).

    It is all that leave-one-out averaging over draws needs (its importance ratios cancel the
    likelihood), so no density is read and nothing is exponentiated there.
    """
    length = grad.shape[1]
    pool_members(np.full(length, 1.0 / length), grad, curv, mean, pooled)


def pool_members(share: Array, grad: Array, curv: Array, mean: Array, pooled: Array) -> None:
    """Do the same by shares (member,).

    The variance is the mean of squares less the square of the mean, in one reading and without
    copies; only where that loses digits is it centred first.
    """
    _sum_members(share, grad, out=mean)
    if (share == share[0]).all():
        np.einsum("gmc,gmc->gc", grad, grad, out=pooled)
        pooled *= share[0]
    else:
        np.einsum("m,gmc,gmc->gc", share, grad, grad, out=pooled)
    pooled += _sum_members(share, curv)
    lossy = _subtract_square(pooled, mean)
    if lossy.any():
        group, cell = np.nonzero(lossy)
        few, few_curv = (each[group, :, cell] for each in (grad, curv))
        pooled[group, cell] = (few_curv + np.square(few - mean[group, cell, None])) @ share


def mix_members(terms: Array, grad: Array, curv: Array, out: Room) -> None:
    """Pool (group, member, cell, component) derivatives by shares ∝ exp(terms).

    Parameters
    ----------
    terms
        Log weights, (group, member, cell).
    grad, curv
        Derivatives, (group, member, cell, component).
    out
        Where to put the log of the sum of the weights and the sum of the squared shares, both
        (group, cell), and the pooled derivatives, (group, cell, component).
    """
    log_mass, square, mean, pooled = out
    weight, total, log_mass[:] = exponentials(terms, axis=1)
    total = total[:, 0]
    np.divide(np.einsum("gmc,gmc->gc", weight, weight), total * total, out=square)
    for j in range(grad.shape[-1]):
        _mix(weight, total, grad[..., j], curv[..., j], mean[..., j], pooled[..., j])
    if not all_finite(pooled):
        # A draw that deems the outcome impossible has no share, whatever its derivatives are.
        share, _ = softmax(terms, axis=1)
        mean[:], pooled[:] = pool_derivatives(share, grad, curv, 1.0, axis=1)


def log_sum_members(terms: Array) -> Array:
    """Log of the sum of the members' exponentials, (group, member, cell) → (group, cell)."""
    return np.asarray(log_sum_exp(terms, axis=1))


def _mix(weight: Array, total: Array, grad: Array, curv: Array, mean: Array, pooled: Array) -> None:
    """Pool by weights (group, member, cell), which have the sums (group, cell)."""
    weighted = weight * grad
    np.divide(_sum_members(np.ones(weight.shape[1]), weighted), total, out=mean)
    np.einsum("gmc,gmc->gc", weighted, grad, out=pooled)
    pooled += np.einsum("gmc,gmc->gc", weight, curv)
    pooled /= total
    lossy = _subtract_square(pooled, mean)
    if lossy.any():
        group, cell = np.nonzero(lossy)
        few, few_curv, share = (each[group, :, cell] for each in (grad, curv, weight))
        share /= total[group, cell, None]
        offset = np.square(few - mean[group, cell, None])
        pooled[group, cell] = np.einsum("im,im->i", share, few_curv + offset)


def _sum_members(share: Array, values: Array, out: Array | None = None) -> Array:
    """Sum (group, member, cell) over the members, in the order in which memory holds them."""
    _, member, cell = values.strides
    if member < cell:
        return np.matmul(values.transpose(2, 0, 1), share, out=None if out is None else out.T).T
    return np.matmul(share, values, out=out)


def _subtract_square(pooled: Array, mean: Array) -> NDArray[np.bool_]:
    """Subtract the square of the mean, in place; return where too few digits are left."""
    square = mean * mean
    pooled -= square
    square *= _LOSS
    return square > np.abs(pooled)
