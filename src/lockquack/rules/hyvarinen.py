"""The Hyvärinen score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lockquack.collapse import Collapsed
from lockquack.errors import ScaleError
from lockquack.jets import Array, Jet
from lockquack.numeric import as_numeric
from lockquack.rules.base import Rule


@dataclass(frozen=True)
class Hyvarinen(Rule):
    r"""Hyvärinen score in units of the outcome's spread, larger is better.

    .. math:: -\sum_j s_j^2 \bigl(2\, \partial_{jj} \log q + (\partial_j \log q)^2\bigr)

    It needs no normalising constant. The literature minimises it with the opposite sign and
    without the units :math:`s_j`; without them a prior on the weights would act differently on
    metres and on millimetres. The default unit is the standard deviation of each component.

    Do not trust it where densities are not smooth or do not vanish at an edge of their support,
    nor to choose between well separated modes: it only sees the shape near each observation.

    Parameters
    ----------
    scale
        The unit of the outcome, one number or one per component. None: the standard deviation
        of the observed outcomes.

    References
    ----------
    Hyvärinen (2005), Estimation of non-normalized statistical models by score matching, JMLR 6.
    """

    scale: ArrayLike | None = None

    name = "hyvarinen"
    label = "Hyvärinen"
    needs_normaliser = False
    needs_derivatives = True
    needs_density = False

    def __post_init__(self) -> None:
        if self.scale is not None:
            object.__setattr__(self, "scale", _plain(self.scale))

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, as JSON can hold it."""
        return {"scale": self.scale}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Hyvarinen:
        """Make it again from its options."""
        return cls(options["scale"])

    def unit(self, y: Array) -> Array:
        """Units of the outcome, one per component, from outcomes of shape (n, d)."""
        n, d = y.shape
        if self.scale is not None:
            return _given_unit(self.scale, d)
        spread = y.std(axis=0, ddof=1) if n > 1 else np.zeros(d)
        if not (spread > 0).all():
            raise ScaleError(
                f"The outcome does not vary (standard deviation {spread.tolist()} over {n} "
                "observations), so it has no unit. Set one with scale=."
            )
        return np.asarray(spread)

    def score(self, jet: Jet, unit: Array) -> Array:
        """Score each observation: jets of shape (..., n) and (..., n, d) give (..., n)."""
        return np.asarray(-(2.0 * jet.curv + jet.grad**2) @ np.square(unit))

    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        """Monte Carlo standard error of the total score of a model."""
        return collapsed.mcse(unit)


def _plain(scale: Any) -> float | tuple[float, ...]:
    """Turn numbers of any kind into those that hash, compare and go into JSON."""
    numbers = as_numeric("scale", scale, ScaleError)
    if numbers.ndim > 1:
        raise ScaleError(
            f"scale must be one number or one per component; got the shape {numbers.shape}."
        )
    plain = numbers.astype(np.float64).tolist()
    return tuple(plain) if isinstance(plain, list) else float(plain)


def _given_unit(scale: ArrayLike, d: int) -> Array:
    unit = np.asarray(scale, dtype=np.float64)
    if unit.shape not in ((), (1,), (d,)):
        raise ScaleError(f"scale must be one number or {d}, one per component; got {unit.shape}.")
    if not (np.isfinite(unit).all() and (unit > 0).all()):
        raise ScaleError(f"scale must be positive and finite; got {scale!r}.")
    return np.broadcast_to(unit, (d,)).copy()
