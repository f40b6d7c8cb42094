"""Indices that are too large: JAX takes the last element in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockquack.sources.jax_precision import double_precision


def stays_inside(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function uses no index that is too large; True where that cannot be found out."""
    import jax
    from jax.experimental import checkify

    checked: Callable[..., Any] = checkify.checkify(function, errors=checkify.index_checks)
    try:
        with double_precision():
            # Elements are taken out of arrays by what is not known yet, which numpy's refuse.
            error, _ = checked(*jax.tree.map(jax.numpy.asarray, arguments))
            return error.get() is None
    except Exception:  # what cannot be looked through
        return True
