r"""Jets of log densities and the one rule that pools them.

For a log density :math:`\ell(y) = \log p(y)` with :math:`y` in :math:`\mathbb{R}^d`, the
*jet* at a point is :math:`\ell`, its gradient :math:`\partial_j \ell` and the diagonal of its
Hessian :math:`\partial_{jj} \ell`. Derivatives are with respect to the **observation**, never
the parameters. Every operator of this package, and the average over posterior draws too, maps
jets to a jet by :func:`power_pool`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Real, or complex where superposition needs phases.
Numeric = NDArray[Any]

#: Exponentials of less than this are zero here: those below the normal numbers are slow.
_LOWEST = -708.0
#: Rows that are transposed at once.
_ROWS = 32


@dataclass(frozen=True)
class Jet:
    """A log density and its first and second derivatives in the observation.

    The leading axes are free (draws, models, observations); the last axis of the derivatives
    is the component of the outcome, of length 1 for scalar outcomes.
    """

    logp: Array  # (...,)
    grad: Array  # (..., d)
    curv: Array  # (..., d): the second derivatives ∂²/∂y_j², their sum is the Laplacian

    @property
    def is_bare(self) -> bool:
        """Whether there are no derivatives, as of :func:`bare`."""
        return self.grad.shape[-1] == 0

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        """All three arrays."""
        return self.logp, self.grad, self.curv

    def __getitem__(self, index: Any) -> Jet:
        """Select along the leading axes."""
        return Jet(*(part[index] for part in self.parts))

    def times(self, factor: Array) -> Jet:
        """Multiply all by a factor that broadcasts against ``logp``; zero silences infinity."""
        cell = np.asarray(factor)[..., None]
        with np.errstate(invalid="ignore"):
            logp = np.where(factor == 0, 0.0, factor * self.logp)
        return Jet(logp, cell * self.grad, cell * self.curv)

    def __iter__(self) -> Iterator[Jet]:
        """Go through the jets along the first axis."""
        return (self[k] for k in range(len(self.logp)))


def all_finite(values: Numeric) -> bool:
    """Whether no value is NaN or infinite, found by one sum in most cases.

    A sum reads the values once, in their own order, and copies nothing. It can overflow on
    finite values; only then each of them is looked at.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all())


def transpose_into(out: Array, values: Array) -> None:
    """Copy values, or what they broadcast to, to an array of the other order of its two axes.

    Some rows at a time: of a whole array every line of memory would be read for each of its
    numbers.

    Examples
    --------
    >>> out = np.empty((2, 3))
    >>> transpose_into(out, np.arange(6.0).reshape(3, 2))
    >>> out.tolist()
    [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]
    """
    values = np.broadcast_to(values, out.shape[::-1])
    for start in range(0, len(values), _ROWS):
        rows = slice(start, start + _ROWS)
        out[:, rows] = values[rows].T


def bare(logp: Array) -> Jet:
    """Return a jet without derivatives: one of no components."""
    nothing = np.empty((*logp.shape, 0))
    return Jet(logp, nothing, nothing)


def stack_jets(jets: Sequence[Jet]) -> Jet:
    """Stack jets of equal shape along a new first axis."""
    if all(jet.is_bare for jet in jets):
        return bare(np.stack([jet.logp for jet in jets]))
    return Jet(*map(np.stack, zip(*(jet.parts for jet in jets), strict=True)))


def join_jets(jets: Sequence[Jet], axis: int = 0) -> Jet:
    """Join jets along an axis that all their parts have."""
    if len(jets) == 1:
        return jets[0]
    if all(jet.is_bare for jet in jets):
        return bare(np.concatenate([jet.logp for jet in jets], axis=axis))
    parts = zip(*(jet.parts for jet in jets), strict=True)
    return Jet(*(np.concatenate(each, axis=axis) for each in parts))


def softmax(terms: Numeric, axis: int = 0) -> tuple[Numeric, Numeric]:
    """Return ``exp(terms) / Σ exp(terms)`` and ``log Σ exp(terms)``, without overflow.

    Complex terms give complex shares and a complex logarithm. Where all terms are −inf, so is
    the logarithm, and the shares are zero.
    """
    share, total, log_total = exponentials(terms, axis)
    share /= total if total.all() else np.where(total == 0, 1.0, total)
    return share, log_total


def log_sum_exp(terms: Numeric, axis: int = 0) -> Numeric:
    """Return ``log Σ exp(terms)`` alone; −inf where all terms are."""
    return exponentials(terms, axis)[2]


def exponentials(terms: Numeric, axis: int) -> tuple[Numeric, Numeric, Numeric]:
    """Return exponentials up to a common factor, their sum, and the log of the true sum."""
    peak = terms.real.max(axis=axis, keepdims=True)
    if not np.isfinite(peak).all():
        peak = np.where(np.isfinite(peak), peak, 0.0)
    # What overflows does so to −inf, whose exponential is as right.
    with np.errstate(over="ignore", divide="ignore"):
        scaled = terms - peak
        if scaled.dtype == np.float64 and scaled.size and scaled.min() < _LOWEST:
            np.copyto(scaled, -np.inf, where=scaled < _LOWEST)
        np.exp(scaled, out=scaled)
        total = scaled.sum(axis=axis, keepdims=True)
        return scaled, total, (np.log(total) + peak).squeeze(axis)


def power_pool(jet: Jet, log_coef: Numeric, power: float, axis: int = 0) -> Jet:
    r"""Pool the jets along ``axis`` into the jet of :math:`q \propto |\sum_k a_k \pi_k^p|^{1/p}`.

    With :math:`c_k = a_k \pi_k^p / \sum_j a_j \pi_j^p`, component by component,

    .. math::

        \log q &= \tfrac1p \log \bigl|\textstyle\sum_k a_k \pi_k^p\bigr| \\
        \partial \log q &= \Re \textstyle\sum_k c_k\, \partial \ell_k \\
        \partial^2 \log q &= \Re \bigl[\textstyle\sum_k c_k\, \partial^2 \ell_k
            + p \sum_k c_k (\partial \ell_k - \sum_j c_j \partial \ell_j)^2 \bigr]

    At ``power=0`` the pool is log-linear, :math:`q = \prod_k \pi_k^{a_k}`: the coefficients
    are the weights themselves and need not sum to one.

    Parameters
    ----------
    jet
        The jets to pool, stacked along ``axis``.
    log_coef
        ``log a``, broadcastable against ``jet.logp``; complex where the coefficients have
        phases. ``-inf`` drops a member.
    power
        The exponent p.
    axis
        The axis of ``jet.logp`` that is pooled away.

    Returns
    -------
    Jet
        The pooled jet. It is not normalised unless p = 1 and the coefficients sum to one.

    Examples
    --------
    An equal mixture of N(-1, 1) and N(1, 1) at 0: the gradients cancel and their variance,
    here 1, flattens the peak.

    >>> import numpy as np
    >>> jet = Jet(np.full((2, 1), -1.4), np.array([[[-1.0]], [[1.0]]]), np.full((2, 1, 1), -1.0))
    >>> pooled = power_pool(jet, np.log([[0.5], [0.5]]), 1.0)
    >>> pooled.grad.item(), pooled.curv.item()
    (0.0, 0.0)
    """
    if jet.is_bare and power != 0:  # nobody asks for the shares
        return bare(np.real(log_sum_exp(log_coef + power * jet.logp, axis)) / power)
    share, logp = pool_densities(jet.logp, log_coef, power, axis)
    if jet.is_bare:
        return bare(logp)
    grad, curv = pool_derivatives(share, jet.grad, jet.curv, power, axis)
    return Jet(logp, grad, curv)


def column(values: Numeric, ndim: int) -> Numeric:
    """Shape one value for each of K members, (K,) or (K, n), for the ends of ``ndim`` axes.

    Values (K, n) differ between the observations, which are the last axis.

    Examples
    --------
    >>> column(np.ones(2), 3).shape, column(np.ones((2, 5)), 3).shape
    ((2, 1, 1), (2, 1, 5))
    """
    return values.reshape(len(values), *[1] * (ndim - values.ndim), *values.shape[1:])


def log_linear_pool(jet: Jet, weights: Array) -> Jet:
    """Pool jets along the first axis into that of Π π_k^{w_k}, for weights of any sign."""
    weight = column(weights, jet.logp.ndim)
    logp = _weighted_sum(weight, jet.logp, 0)
    if jet.is_bare:
        return bare(logp)
    return Jet(
        logp,
        _weighted_sum(weight[..., None], jet.grad, 0),
        _weighted_sum(weight[..., None], jet.curv, 0),
    )


def pool_densities(
    logp: Array, log_coef: Numeric, power: float, axis: int = 0
) -> tuple[Numeric, Array]:
    """Pool log densities alone; return the shares c_k and the pooled log density."""
    if power == 0:
        weight = np.broadcast_to(np.exp(log_coef), logp.shape)
        return weight, _weighted_sum(weight, logp, axis)
    share, log_total = softmax(log_coef + power * logp, axis)
    return share, np.real(log_total) / power


def pool_derivatives(
    share: Numeric, grad: Array, curv: Array, power: float, axis: int = 0
) -> tuple[Array, Array]:
    """Pool gradients and curvatures with the shares c_k already known."""
    share = share[..., None]
    mean = _weighted_sum(share, grad, axis)
    pooled = _weighted_sum(share, curv, axis)
    if power != 0:
        centred = grad - np.expand_dims(mean, axis)
        pooled = pooled + power * _weighted_sum(share, centred * centred, axis)
    return np.real(mean), np.real(pooled)


@dataclass(frozen=True)
class PoolDerivatives:
    """A pooled jet, and its derivatives in the coefficients and in the power.

    ``by_log_coef`` has the pooled members along its first axis. Its arrays are complex when
    the coefficients are: the real part is the derivative in the log-amplitude log|a_j|, minus
    the imaginary part the derivative in the phase arg a_j (:attr:`by_phase`).
    """

    pooled: Jet
    by_log_coef: Jet
    in_power: Callable[[], Jet]

    @property
    def by_power(self) -> Jet:
        """Derivatives in the power p."""
        return self.in_power()

    @property
    def by_log_amplitude(self) -> Jet:
        """Derivatives in log|a_j|."""
        return _map_jet(np.real, self.by_log_coef)

    @property
    def by_phase(self) -> Jet:
        """Derivatives in arg a_j."""
        return _map_jet(lambda z: -np.imag(z), self.by_log_coef)


def power_pool_derivatives(jet: Jet, log_coef: Numeric, power: float) -> PoolDerivatives:
    r"""Differentiate :func:`power_pool` over the first axis in the coefficients and the power.

    With :math:`\zeta_j = \log a_j` and :math:`V = \sum_k c_k (\partial\ell_k - m)^2`, m the
    pooled gradient before its real part is taken,

    .. math::

        \partial_{\zeta_j} \log q &= c_j / p \\
        \partial_{\zeta_j} m &= c_j (\partial\ell_j - m) \\
        \partial_{\zeta_j} (\text{curvature}) &= c_j \bigl[\partial^2 \ell_j
            - \textstyle\sum_k c_k \partial^2 \ell_k + p\{(\partial\ell_j - m)^2 - V\}\bigr].

    At power 0 the coefficients are the weights, so the derivatives are those weights times the
    members' jets; the derivative in the power is that of weights that sum to one.
    """
    share, logp = pool_densities(jet.logp, log_coef, power, 0)
    cell = share[..., None]
    offset, square, excess, spread, grad, curv = _spread(jet, cell)
    if power == 0:
        by_log_coef = Jet(share * jet.logp, cell * jet.grad, cell * jet.curv)
    else:
        by_log_coef = Jet(share / power, cell * offset, cell * (excess + power * (square - spread)))
        curv = curv + power * spread

    def by_power() -> Jet:
        mean = _weighted_sum(share, jet.logp, 0)
        with np.errstate(invalid="ignore"):
            surprise = jet.logp - mean
        tilt = share * np.where(share == 0, 0.0, surprise)
        if power == 0:
            in_logp = _weighted_sum(tilt, surprise, 0) / 2
        else:
            in_logp = (np.real(mean) - np.where(np.isfinite(logp), logp, 0.0)) / power
        in_grad = _weighted_sum(tilt[..., None], jet.grad, 0)
        in_curv = _weighted_sum(tilt[..., None], excess + power * square, 0) + spread
        return Jet(in_logp, np.real(in_grad), np.real(in_curv))

    return PoolDerivatives(Jet(logp, np.real(grad), np.real(curv)), by_log_coef, by_power)


def push_through_pool(jet: Jet, log_coef: Numeric, power: float, member: int, tangent: Jet) -> Jet:
    r"""Carry derivatives of one member's jet through :func:`power_pool` over the first axis.

    With :math:`(\delta\ell, \delta g, \delta h)` those of member k, any number of them along a
    leading axis,

    .. math::

        \delta \log q &= c_k\, \delta\ell \\
        \delta m &= c_k \{\delta g + p\, \delta\ell\, (g_k - m)\} \\
        \delta (\text{curvature}) &= c_k \{\delta h + 2p (g_k - m)\, \delta g
            + p\, \delta\ell\, [h_k - \textstyle\sum_j c_j h_j + p((g_k - m)^2 - V)]\}.
    """
    share, _ = pool_densities(jet.logp, log_coef, power, 0)
    offset, square, excess, spread, *_ = _spread(jet, share[..., None])
    weight, cell = share[member], share[member][..., None]
    lift = tangent.logp[..., None]
    bend = excess[member] + power * (square[member] - spread)
    return Jet(
        np.real(weight * tangent.logp),
        np.real(cell * (tangent.grad + power * lift * offset[member])),
        np.real(
            cell * (tangent.curv + power * (2.0 * offset[member] * tangent.grad + lift * bend))
        ),
    )


def _spread(jet: Jet, cell: Numeric) -> tuple[Numeric, ...]:
    """Distances of the members' gradients and curvatures from their means, along the first axis.

    Returns g − m, its square, h − Σ c h, the variance V of the gradients, m and Σ c h.
    """
    if jet.is_bare:
        return jet.grad, jet.grad, jet.grad, *(jet.grad[0],) * 3
    grad, curv = _weighted_sum(cell, jet.grad, 0), _weighted_sum(cell, jet.curv, 0)
    offset = jet.grad - grad
    square = offset * offset
    return offset, square, jet.curv - curv, _weighted_sum(cell, square, 0), grad, curv


def _weighted_sum(weight: Numeric, values: Numeric, axis: int) -> Numeric:
    """Sum weight × values along ``axis``, where a zero weight silences an infinite value."""
    with np.errstate(invalid="ignore", over="ignore"):
        product = weight * values
        total = product.sum(axis=axis)
        if not np.isfinite(total).all():
            total = np.where(weight == 0, 0.0, product).sum(axis=axis)
    return np.asarray(total)


def _map_jet(function: Callable[[Numeric], Array], jet: Jet) -> Jet:
    return Jet(*map(function, jet.parts))
