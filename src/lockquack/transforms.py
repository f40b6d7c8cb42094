r"""Models of a transformed outcome, brought to the scale of the outcome itself.

A model of :math:`z = t(y)` is a model of y with density
:math:`p_y(y) = p_z(t(y))\,|t'(y)|`. All transforms here increase, component by component, so
with :math:`J = \log t'` (and :math:`t'' = t' J'`) the jet of y is

.. math::

    \log p_y &= \log p_z + J \\
    \partial_y \log p_y &= t'\, \partial_z \log p_z + J' \\
    \partial_y^2 \log p_y &= t'^2\, \partial_z^2 \log p_z + t' J'\, \partial_z \log p_z + J''.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, logit
from typing_extensions import override

from lockquack.families.base import Edge, confine, exp, outside, worst_edges
from lockquack.jets import Array
from lockquack.registry import require_known


@dataclass(frozen=True)
class Change:
    r"""What becomes of the jet of any density at given outcomes: a linear map and a shift.

    :math:`\log p + c`, :math:`a g + b` and :math:`a^2 h + s g + e`, with numbers that depend on the
    outcomes only: the same for all draws, and for all models.
    """

    root: Array  # a, (n, d)
    slope: Array  # s, (n, d)
    grad_shift: Array | float = 0.0  # b, (n, d)
    curv_shift: Array | float = 0.0  # e, (n, d)
    #: c; None: log densities stay as they are.
    log_shift: Array | None = None  # (n,)

    def __getitem__(self, which: Any) -> Change:
        """Take the change at some of the outcomes, or in other axes."""
        parts = (getattr(self, field.name) for field in fields(Change))
        return Change(*(part[which] if isinstance(part, np.ndarray) else part for part in parts))

    def logp(self, logp: Any) -> Any:
        """Change log densities, (..., n): arrays of numpy's or dask's."""
        return logp if self.log_shift is None else logp + self.log_shift

    def derivatives(self, grad: Any, curv: Any) -> tuple[Any, Any]:
        """Change derivatives, each (..., n, d)."""
        changed = self.root * self.root * curv + (self.slope * grad + self.curv_shift)
        return self.root * grad + self.grad_shift, changed


class Transform(ABC):
    """An increasing, smooth function of the outcome, applied to each of its components.

    Arguments called ``y`` have the shape that a family sees: the component axis is last for
    vector outcomes (``multivariate=True``) and absent for scalar ones.

    Examples
    --------
    If log y is standard normal, y is log-normal, with mode exp(-1):

    >>> import numpy as np
    >>> y = np.exp([-1.0])
    >>> z = get_transform("log").forward(y)
    >>> grad, curv = get_transform("log").derivatives(y, -z, -np.ones(1))
    >>> grad.item()
    0.0
    """

    #: The open interval of values that can be transformed.
    domain: tuple[float, float] = (0.0, np.inf)
    #: What it is transformed to; a model of z that reaches beyond has mass that no y accounts for.
    image: tuple[float, float] = (-np.inf, np.inf)

    def forward(self, y: Array) -> Array:
        """Return z = t(y), NaN outside the domain."""
        return self._forward(confine(y, self.domain))

    @abstractmethod
    def backward(self, z: Array) -> Array:
        """Return the y with t(y) = z."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What z is called in tables."""

    @abstractmethod
    def edge(self, edge: Edge) -> Edge:
        """How an edge of the density of z shows up in y."""

    @abstractmethod
    def _forward(self, y: Array) -> Array: ...

    @abstractmethod
    def _log_slope(self, y: Array) -> Array:
        """Return J = log t'."""

    @abstractmethod
    def _slopes(self, y: Array) -> tuple[Array, Array, Array]:
        """Return t', J' and J''."""

    def logp(self, y: Array, logp: Array, *, multivariate: bool = False) -> Array:
        """Bring the log density of z to y; −inf outside the domain."""
        change = self._log_slope(confine(y, self.domain))
        out = outside(y, self.domain)
        if multivariate:
            change, out = change.sum(axis=-1), np.asarray(out.any(axis=-1))
        logp = logp + change
        return np.where(out, -np.inf, logp) if out.any() else logp

    def derivatives(self, y: Array, grad: Array, curv: Array) -> tuple[Array, Array]:
        """Bring the derivatives of the log density of z to y; NaN outside the domain.

        Scalar or vector, y, grad and curv have the same axes here.
        """
        return self._change(confine(y, self.domain)).derivatives(grad, curv)

    def change(self, y: Array) -> Change:
        """Return what becomes of jets of z at outcomes (n, d) inside the domain."""
        return replace(self._change(y), log_shift=self._log_slope(y).sum(axis=1))

    def _change(self, y: Array) -> Change:
        slope, first, second = self._slopes(y)
        return Change(slope, slope * first, first, second)

    def score_weight(self, y: Array) -> Change:
        """Return what becomes of derivatives g and c: √h g and h c + h' g, for h = (dy/dz)².

        This weight vanishes where z has no end.
        """
        with np.errstate(over="ignore"):  # of the second derivative, which is not needed
            slope, first, _ = self._slopes(confine(y, self.domain))
        root = 1.0 / slope
        return Change(root, -2.0 * first * root * root)

    def edges(self, edges: Iterable[Edge]) -> tuple[Edge, ...]:
        """Bring all edges of the density of z to y, the worst of those that fall together."""
        return worst_edges(self.edge(edge) for edge in edges)


@dataclass(frozen=True)
class Log(Transform):
    r""":math:`z = \log y / \log b`, for the base b."""

    log_base: float = 1.0
    label = "log y"

    def backward(self, z: Array) -> Array:
        """Return y = b^z."""
        return exp(z * self.log_base)

    def edge(self, edge: Edge) -> Edge:
        """Turn the rate r of a lower tail exp(-r|z|) into the power y^(r / log b - 1) at 0."""
        if edge.at == -np.inf:
            return Edge(0.0, edge.order / self.log_base - 1.0)
        if edge.at == np.inf:
            return Edge(np.inf, 0.0)
        return Edge(float(self.backward(np.asarray(edge.at))), edge.order)

    def _forward(self, y: Array) -> Array:
        return np.log(y) / self.log_base

    def _log_slope(self, y: Array) -> Array:
        return -math.log(self.log_base) - np.log(y)

    def _slopes(self, y: Array) -> tuple[Array, Array, Array]:
        inverse = 1.0 / y
        return 1.0 / (self.log_base * y), -inverse, inverse * inverse


@dataclass(frozen=True)
class Log10(Log):
    """:class:`Log` of base 10, exact at the powers of ten."""

    log_base: float = math.log(10.0)
    label = "log10 y"

    @override
    def backward(self, z: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.power(10.0, z)

    def _forward(self, y: Array) -> Array:
        return np.log10(y)


@dataclass(frozen=True)
class LogDistance(Transform):
    r""":math:`z = \log(y - a)` above the end a of a half-line, :math:`-\log(a - y)` below it."""

    end: float
    above: bool = True

    @property
    def domain(self) -> tuple[float, float]:  # type: ignore[override]
        """The half-line."""
        return (self.end, np.inf) if self.above else (-np.inf, self.end)

    @property
    def label(self) -> str:
        """The function, with the end of the half-line."""
        if self.above:
            return f"log(y {'+' if self.end < 0 else '-'} {abs(self.end):g})"
        return f"-log({self.end:g} - y)" if self.end else "-log(-y)"

    def backward(self, z: Array) -> Array:
        """Return y = a + exp(z), or a - exp(-z)."""
        with np.errstate(over="ignore"):
            return self.end + self._side * np.exp(self._side * z)

    def log_stretch(self, z: Array) -> Array:
        """Return log dy/dz."""
        return self._side * z

    def edge(self, edge: Edge) -> Edge:
        """Turn the rate r of the tail that goes to a into the power r - 1 of the distance."""
        if edge.at == -self._side * np.inf:
            return Edge(self.end, edge.order - 1.0)
        if np.isinf(edge.at):
            return Edge(edge.at, 0.0)
        return Edge(float(self.backward(np.asarray(edge.at))), edge.order)

    @property
    def _side(self) -> float:
        return 1.0 if self.above else -1.0

    def _distance(self, y: Array) -> Array:
        return self._side * (y - self.end)

    def _forward(self, y: Array) -> Array:
        return self._side * np.log(self._distance(y))

    def _log_slope(self, y: Array) -> Array:
        return -np.log(self._distance(y))

    def _slopes(self, y: Array) -> tuple[Array, Array, Array]:
        inverse = 1.0 / self._distance(y)
        return inverse, -self._side * inverse, inverse * inverse


@dataclass(frozen=True)
class Sqrt(Transform):
    r""":math:`z = \sqrt y`."""

    image = (0.0, np.inf)
    label = "sqrt y"

    def backward(self, z: Array) -> Array:
        """Return y = z²."""
        return np.square(z)

    def edge(self, edge: Edge) -> Edge:
        """Turn the power z^e at 0 into y^((e - 1)/2)."""
        if edge.at == np.inf:
            return Edge(np.inf, 0.0)
        if edge.at > 0:
            return Edge(edge.at**2, edge.order)
        # A support that begins below 0 has nothing special at z = 0: order 0 there.
        order = edge.order if edge.at == 0 else 0.0
        return Edge(0.0, (order - 1.0) / 2.0)

    def _forward(self, y: Array) -> Array:
        return np.sqrt(y)

    def _log_slope(self, y: Array) -> Array:
        return -math.log(2.0) - 0.5 * np.log(y)

    def _slopes(self, y: Array) -> tuple[Array, Array, Array]:
        inverse = 1.0 / y
        return 0.5 / np.sqrt(y), -0.5 * inverse, 0.5 * inverse * inverse


@dataclass(frozen=True)
class Logit(Transform):
    r""":math:`z = \log((y - a) / (b - y))`, for the bounds a and b."""

    low: float = 0.0
    high: float = 1.0

    @property
    def domain(self) -> tuple[float, float]:  # type: ignore[override]
        """The bounds."""
        return self.low, self.high

    @property
    def label(self) -> str:
        """The function, with its bounds unless they are 0 and 1."""
        usual = (self.low, self.high) == (0.0, 1.0)
        return "logit y" if usual else f"logit of y on ({self.low:g}, {self.high:g})"

    def backward(self, z: Array) -> Array:
        """Return y = a + (b - a)/(1 + exp(-z))."""
        return np.asarray(self.low + self._width * expit(z))

    def log_stretch(self, z: Array) -> Array:
        """Return log dy/dz."""
        return np.asarray(math.log(self._width) + log_expit(z) + log_expit(-z))

    def edge(self, edge: Edge) -> Edge:
        """Turn the rate r of a tail exp(-r|z|) into the power r - 1 of the distance to a bound."""
        at = float(self.backward(np.asarray(edge.at)))
        return Edge(at, edge.order - 1.0 if np.isinf(edge.at) else edge.order)

    @property
    def _width(self) -> float:
        return self.high - self.low

    def _forward(self, y: Array) -> Array:
        return np.asarray(logit((y - self.low) / self._width))

    def _log_slope(self, y: Array) -> Array:
        return math.log(self._width) - np.log(y - self.low) - np.log(self.high - y)

    def _slopes(self, y: Array) -> tuple[Array, Array, Array]:
        below, above = y - self.low, self.high - y
        left, right = 1.0 / below, 1.0 / above
        return self._width / (below * above), right - left, left * left + right * right


@dataclass(frozen=True)
class Exp(Transform):
    r""":math:`z = e^y`: a model of a positive quantity, brought to the scale of its log."""

    domain = (-np.inf, np.inf)
    image = (0.0, np.inf)
    label = "exp y"

    def backward(self, z: Array) -> Array:
        """Return y = log z."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(z, 0.0))

    def edge(self, edge: Edge) -> Edge:
        """Turn the power z^e at 0 into the rate e + 1 of the lower tail."""
        if edge.at == np.inf:
            return Edge(np.inf, np.inf if edge.order > 0 else 0.0)
        if edge.at > 0:
            return Edge(math.log(edge.at), edge.order)
        order = edge.order if edge.at == 0 else 0.0
        return Edge(-np.inf, order + 1.0)

    def _forward(self, y: Array) -> Array:
        return exp(y)

    def _log_slope(self, y: Array) -> Array:
        return y

    def _slopes(self, y: Array) -> tuple[Array, Array, Array]:
        return self._forward(y), np.ones_like(y), np.zeros_like(y)


def unbounded(support: tuple[float, float]) -> LogDistance | Logit | None:
    """Return the function that makes the whole line of a support; None where it is that already.

    Examples
    --------
    >>> unbounded((0.0, np.inf)).label, unbounded((0.0, 1.0)).label
    ('log(y - 0)', 'logit y')
    """
    low, high = support
    if np.isinf(low) and np.isinf(high):
        return None
    if np.isfinite(low) and np.isfinite(high):
        return Logit(low, high)
    return LogDistance(low) if np.isinf(high) else LogDistance(high, above=False)


TRANSFORMS: dict[str, Transform] = {
    "log": Log(),
    "log10": Log10(),
    "sqrt": Sqrt(),
    "logit": Logit(),
    "exp": Exp(),
}


def get_transform(name: str) -> Transform:
    """Look up a transform by name."""
    require_known("transform", name, TRANSFORMS)
    return TRANSFORMS[name]
