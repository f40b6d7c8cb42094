"""Derivatives by central differences of exact gradients: where Hessians come from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lockquack.jets import Array

#: Step that suits functions whose arguments make a difference when they change by about one.
STEP = 1e-5


def central_differences(
    function: Callable[[Array], Array], z: Array, steps: Array | float = STEP
) -> Array:
    """Differentiate a function in each entry of z: (P,) → (...) gives (P, ...).

    Entries that are not finite are held: the derivative in them is zero.

    Examples
    --------
    >>> central_differences(lambda z: z**3, np.array([1.0, 2.0])).diagonal().round(6)
    array([ 3., 12.])
    """
    lengths = np.broadcast_to(steps, z.shape)
    rows: list[Array | None] = []
    for j, entry in enumerate(z.tolist()):
        ahead, behind = z.copy(), z.copy()
        ahead[j], behind[j] = entry + lengths[j], entry - lengths[j]
        held = not np.isfinite(entry)
        rows.append(None if held else (function(ahead) - function(behind)) / (ahead[j] - behind[j]))
    shape = next((row.shape for row in rows if row is not None), z.shape)
    filled = [np.zeros(shape) if row is None else row for row in rows]
    return np.stack(filled) if filled else np.zeros((0, *shape))


def hessian(gradient: Callable[[Array], Array], z: Array) -> Array:
    """Differentiate a gradient, (P, ...), in z and make it symmetric: (P, P, ...)."""
    raw = central_differences(gradient, z)
    return (raw + raw.swapaxes(0, 1)) / 2
