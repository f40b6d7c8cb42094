"""Rules that measure the outcome in a unit."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from lockquack.errors import ParameterError, ScaleError
from lockquack.jets import Array
from lockquack.numeric import as_numeric
from lockquack.rules.base import Rule
from lockquack.totals import counted, standard_deviation
from lockquack.words import advice


@dataclass(frozen=True)
class ScaledRule(Rule):
    """A rule whose scores depend on the unit of the outcome: by default, its spread."""

    scale: ArrayLike | None = None

    has_unit = True

    def __post_init__(self) -> None:
        if self.scale is not None:
            object.__setattr__(self, "scale", _plain(self.scale))

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale}

    @override
    def with_scale(self, scale: Any) -> Self:
        if self.scale is not None:
            raise ParameterError(f"There are two scales, {self!r} and scale={scale!r}; give one.")
        return replace(self, scale=scale)

    @override
    def unit(self, y: Array, case_weights: Array | None = None) -> Array:
        d, n = y.shape[1], counted(case_weights, len(y))
        if self.scale is not None:
            return _given_unit(self.scale, d)
        z = y if self.coordinates is None else self.coordinates.forward(y)
        return self.unit_by(standard_deviation(z, case_weights) if n > 1 else np.zeros(d), n)

    @abstractmethod
    def factor(self, unit: Array) -> Array:
        """Return by what a score of the outcome as it is, is multiplied in these units, (d,)."""

    def unit_by(self, found: Array, n: int) -> Array:
        """Return the units, given the components' standard deviations over n observations, (d,)."""
        if self.scale is not None:
            return _given_unit(self.scale, found.size)
        if not (found > 0).all():
            raise ScaleError(
                f"The outcome does not vary (standard deviation {found.tolist()} over {n} "
                "observations), so it has no unit. Set one ",
                advice("with scale=", "by --scale"),
                ".",
            )
        return found


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
