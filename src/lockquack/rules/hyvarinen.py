"""The Hyvärinen score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from typing_extensions import override

from lockquack.draws.collapse import Collapsed
from lockquack.errors import ParameterError
from lockquack.families.base import Edge
from lockquack.jets import Array
from lockquack.numeric import as_numeric
from lockquack.rules.base import Pooled
from lockquack.rules.scaled import ScaledRule
from lockquack.transforms import Transform, get_transform, unbounded

#: The transform that the models' supports determine.
AUTO = "auto"


@dataclass(frozen=True)
class Hyvarinen(ScaledRule):
    r"""Hyvärinen score in units of the outcome's spread, larger is better.

    .. math:: -\sum_j s_j^2 \bigl(2\, \partial_{jj} \log q + (\partial_j \log q)^2\bigr)

    It needs no normalising constant. The literature minimises it with the opposite sign and
    without the units :math:`s_j`; without them a prior on the weights would act differently on
    metres and on millimetres. The default unit is the standard deviation of each component.

    Do not trust it where densities are not smooth or do not vanish at an edge of their support,
    nor to choose between well separated modes: it only sees the shape near each observation.

    Where models live on a half-line or an interval, the score is that of a function z = t(y) which
    takes it to the whole line. Up to a constant this is the weighted score of y

    .. math:: -\sum_j s_j^2 \bigl(2 h'\, \partial_j \log q + 2 h\, \partial_{jj} \log q
        + h\, (\partial_j \log q)^2\bigr), \qquad h = (dy/dz)^2,

    whose weight h vanishes at the edges. Densities that do not vanish there (exponential,
    half-normal, gamma with a shape up to 2, beta) need it; others profit from it, because the
    plain score of a positive outcome depends on the few smallest ones.

    Parameters
    ----------
    scale
        The unit of the outcome, one number or one per component; with a transform, of the
        transformed outcome. None: the standard deviation of what was observed.
    transform
        ``"auto"``: log of the distance to the end of a half-line, logit on an interval, y itself
        on the whole line, by the support that all models with a known one have in common. The
        table says which. None forces the plain score; ``"log"`` is for positive outcomes
        (h = y²), ``"logit"`` for those between two bounds; or another transform of
        :func:`from_family`.
    bounds
        The bounds for ``"logit"``, (0, 1) by default; for ``"log"``, the half-line, such as
        ``(2, np.inf)``, by default the positive numbers.

    Examples
    --------
    >>> import lockquack as lq
    >>> from lockquack.testing import example_models
    >>> fit = lq.combine(example_models(), lq.Linear(), lq.Hyvarinen(scale=2.0))
    >>> fit.rule
    Hyvarinen(scale=2.0, transform=None, bounds=None)
    >>> lq.Hyvarinen().suited_to([(-np.inf, np.inf), (0.0, np.inf)]).transform
    'log'

    References
    ----------
    Hyvärinen (2005), Estimation of non-normalized statistical models by score matching, JMLR 6.
    """

    transform: str | None = AUTO
    bounds: tuple[float, float] | None = None

    name = "hyvarinen"
    label = "Hyvärinen"
    short = "H"
    needs_derivatives = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.transform, str | None):
            raise ParameterError(f"transform must be a name or None; got {self.transform!r}.")
        if self.bounds is not None:
            object.__setattr__(self, "bounds", _plain_bounds(self.bounds, self.transform))
        if self.transform not in (None, AUTO):
            get_transform(str(self.transform))

    @override
    def suited_to(self, supports: Sequence[tuple[float, float] | None]) -> Self:
        known = [support for support in supports if support is not None]
        if self.transform != AUTO or not known:
            return self
        low, high = max(ends[0] for ends in known), min(ends[1] for ends in known)
        if not low < high or (np.isinf(low) and np.isinf(high)):
            return replace(self, transform=None)
        inside = bool(np.isfinite(low) and np.isfinite(high))
        name, usual = ("logit", (0.0, 1.0)) if inside else ("log", (0.0, np.inf))
        bounds = None if (low, high) == usual else (low, high)
        return replace(self, transform=name, bounds=bounds)

    @property
    @override
    def options(self) -> dict[str, Any]:
        return {**super().options, "transform": self.transform, "bounds": self.bounds}

    @cached_property
    @override
    def coordinates(self) -> Transform | None:
        if self.transform in (None, AUTO):
            return None
        if self.bounds is None:
            return get_transform(str(self.transform))
        return unbounded(self.bounds)

    @property
    @override
    def of_what(self) -> str:
        return "y" if self.coordinates is None else self.coordinates.label

    @property
    @override
    def knows_support(self) -> bool:
        return self.transform != AUTO

    @override
    def factor(self, unit: Array) -> Array:
        return np.square(unit)

    def is_proper_at(self, edge: Edge) -> bool:
        """Whether q h ∂ log q vanishes at such an edge, or is the same at both ends of a circle."""
        if edge.joined and self.coordinates is None:
            return True
        return self._is_above(1.0 - self._vanishing(edge), edge)

    def has_variance(self, edge: Edge) -> bool:
        """Whether the score, which goes like h / distance² there, has a variance."""
        if edge.joined and self.coordinates is None:
            return True
        return self._is_above(3.0 - 2.0 * self._vanishing(edge), edge)

    def _is_above(self, limit: float, edge: Edge) -> bool:
        # Like 1 / distance goes only what is a power tail of z, such as Student's t of log y.
        fine = edge.order > limit or limit == edge.order == -1.0
        return bool(np.isinf(edge.at) or fine)

    def _vanishing(self, edge: Edge) -> float:
        """Power of the distance with which h vanishes: 2 where z has no end, 1 where it has one."""
        change = self.coordinates
        if change is None or edge.at not in change.domain:
            return 0.0
        return 2.0 if np.isinf(change.image[change.domain.index(edge.at)]) else 1.0

    def score(self, pooled: Pooled) -> Array:
        """Score each observation, (n,), from jets in units of the outcome."""
        return -(2.0 * pooled.jet.curv + pooled.jet.grad**2).sum(axis=-1)

    @override
    def slopes(self, pooled: Pooled, tangent: Pooled) -> Array:
        return -2.0 * (tangent.jet.curv + pooled.jet.grad * tangent.jet.grad).sum(axis=-1)

    @override
    def mcse(self, collapsed: Collapsed, unit: Array) -> float:
        return collapsed.mcse(unit)


def _plain_bounds(bounds: Any, transform: str | None) -> tuple[float, float]:
    ends = as_numeric("bounds", bounds, ParameterError)
    finite = np.isfinite(ends).sum()
    if ends.shape != (2,) or not ends[0] < ends[1] or (transform == "logit" and finite < 2):
        raise ParameterError(f"bounds must be two numbers, the lower first; got {bounds!r}.")
    if transform not in ("log", "logit") or (transform == "log" and finite != 1):
        raise ParameterError(
            "Two finite bounds belong to transform='logit', the ends of a half-line, such as "
            f"(2, np.inf), to 'log'; got bounds={bounds!r} and transform={transform!r}."
        )
    return float(ends[0]), float(ends[1])
