"""What must hold of a model that goes in: the library's own density, and its derivatives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import lockquack as lq

Array = NDArray[np.float64]

#: Weights of the five-point formulas for the first and second derivative, at −2h, −h, 0, h, 2h.
FIRST = np.array([1, -8, 0, 8, -1]) / 12
SECOND = np.array([-1, 16, -30, 16, -1]) / 12


def assert_same_densities(model: lq.Model, own_logp: Callable[[Array], Array], rtol=1e-8) -> None:
    """Compare log densities at every draw with those that the library itself computes.

    ``own_logp`` takes outcomes of shape (observation, component) and returns the library's own
    log densities, (chain, draw, observation).
    """
    everything = slice(0, model.observations.n)
    expected = own_logp(model.observations.values)
    assert np.isfinite(expected).all()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        model.source.all_logp(everything), expected, rtol=rtol, atol=rtol * scale
    )


def assert_same_derivatives(
    model: lq.Model,
    own_logp: Callable[[Array], Array],
    rtol=1e-4,
    step=0.01,
    *,
    in_turn: bool = False,
) -> None:
    """Compare derivatives in the outcome with finite differences of the library's own density.

    The step is relative to the width of the density at each observation, 1/√|∂²|. Where the
    density of an observation is given the outcomes of others, these are moved ``in_turn``, and
    the others stay where they were observed.
    """
    y = model.observations.values
    grad, curv = model.source.all_derivatives(slice(0, len(y)))
    for j in range(y.shape[1]):
        h = _steps(curv, y, j, step)
        moves = np.diag(h) if in_turn else h[None]
        values = np.zeros((5, *grad.shape[:-1]))
        for move in moves:
            moved = np.repeat(y[None], 5, axis=0)
            moved[:, :, j] += np.arange(-2, 3)[:, None] * move
            some = np.flatnonzero(move)
            values[..., some] = np.stack([own_logp(each) for each in moved])[..., some]
        _assert_differences(values, h, grad[..., j], curv[..., j], rtol)


def assert_terms_of(
    model: lq.Model, own_joint: Callable[[Array], Array], rtol=1e-4, step=0.01
) -> None:
    """Compare with one joint density that the library itself computes, (chain, draw).

    The log densities add up to it, at the observed outcomes and at others, and each integrates to
    one over its own outcome, given the earlier ones: so they are log p(y_t | y_<t, θ), and no
    other terms are. Where no other term depends on an outcome, as on the last one, derivatives
    are those of the joint density.
    """
    y = model.observations.values
    n = slice(0, len(y))
    for moved in (y, y[::-1], y + 0.3):
        terms = model.with_data(moved[:, 0]).source.all_logp(n)
        np.testing.assert_allclose(terms.sum(axis=-1), own_joint(moved), rtol=1e-8)
    grad, curv = (each[..., 0] for each in model.source.all_derivatives(n))
    mode, width = y[:, 0] - grad / curv, 1 / np.sqrt(-curv)
    for chain, draw in np.ndindex(mode.shape[:2]):
        places = mode[chain, draw] + np.linspace(-9, 9, 181)[:, None] * width[chain, draw]
        logp = model.source.logp_at(places[..., None], chain, slice(draw, draw + 1), n)[:, 0]
        total = np.exp(logp).sum(axis=0) * width[chain, draw] / 10
        np.testing.assert_allclose(total, 1, rtol=1e-6)
    last = len(y) - 1
    rows = [last] if model.likelihood.given_earlier else range(len(y))
    h = _steps(curv[..., None], y, 0, step)
    for t in rows:
        moved = np.repeat(y[None], 5, axis=0)
        moved[:, t, 0] += np.arange(-2, 3) * h[t]
        values = np.stack([own_joint(each) for each in moved])[..., None]
        one = slice(t, t + 1)
        _assert_differences(values, h[one], grad[..., one], curv[..., one], rtol)


def _steps(curv: Array, y: Array, j: int, step: float) -> Array:
    """Steps of finite differences at each observation, in component j."""
    width = 1 / np.sqrt(np.abs(curv[..., j]).max(axis=(0, 1)) + 1e-300)
    return np.asarray(step * np.minimum(width, np.abs(y[:, j]).max() + 1))


def _assert_differences(values: Array, h: Array, grad: Array, curv: Array, rtol: float) -> None:
    """Compare derivatives with those of values at five points, (point, chain, draw, obs)."""
    for weights, power, got in ((FIRST, 1, grad), (SECOND, 2, curv)):
        expected = np.tensordot(weights, values, 1) / h**power
        rounding = 1e-14 * np.abs(values).max() / h.min() ** power
        atol = rtol * np.abs(expected).max() + rounding
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
